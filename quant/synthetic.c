/* quant/synthetic.c - see synthetic.h. A pool of encoded pieces (64 elements, or a block if that is
 * longer) is made once; a row is a sequence of pieces picked by a hash of seed, row and place. */
#include "quant/synthetic.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"

enum { PIECE = 256, PIECES = 128 };     /* most elements of a piece; a power of two of pieces */

/* What the thread made last. Pure memory of a result: nobody can see it. */
struct pool {
    const struct format *format;
    float   std;
    int     elements;                   /* of a piece */
    size_t  bytes;
    uint8_t piece[PIECES][PIECE * sizeof(double)];
};
static _Thread_local struct pool pool;

/* Two normal values by Box and Muller, from a counter. */
static void normal_pair(uint64_t counter, float std, float *out)
{
    uint64_t h = hash_u64(counter * 0x9e3779b97f4a7c15u + 1);
    double u = ((double)(h >> 32) + 0.5) * 0x1p-32, angle = (double)(uint32_t)h * (6.283185307179586 * 0x1p-32);
    double r = std * sqrt(-2 * log(u));
    out[0] = (float)(r * cos(angle));
    out[1] = (float)(r * sin(angle));
}

static void fill_pool(const struct format *f, float std)
{
    float values[PIECE];
    pool.format = f;
    pool.std = std;
    pool.elements = f->block > 64 ? f->block : 64 / f->block * f->block;
    pool.bytes = format_bytes(f, (uint64_t)pool.elements);
    for (int p = 0; p < PIECES; p++) {
        for (int i = 0; i < pool.elements; i += 2) {
            values[i] = values[i + 1] = 1;
            if (std != 0) normal_pair((uint64_t)p * PIECE + (uint64_t)i, std, values + i);
        }
        f->encode(values, pool.piece[p], pool.elements, NULL);
    }
}

void synthetic_rows(const struct format *f, uint64_t seed, uint64_t first_row, uint64_t n_rows,
                    uint64_t cols, float std, void *out)
{
    uint8_t *at = out;
    if (pool.format != f || pool.std != std) fill_pool(f, std);
    for (uint64_t row = first_row; row < first_row + n_rows; row++) {
        uint64_t h = hash_u64(hash_u64(seed) ^ row), left = format_bytes(f, cols);
        while (left) {
            size_t n = left < pool.bytes ? (size_t)left : pool.bytes;
            h = h * 6364136223846793005u + 1442695040888963407u;
            memcpy(at, pool.piece[h >> 57], n);
            at += n;
            left -= n;
        }
    }
}
