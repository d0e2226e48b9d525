/* base/rng.c - see rng.h. */
#include "base/rng.h"

#include <math.h>

void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * c0, b = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static void draw(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t out[2])
{
    uint32_t c[4] = { (uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream,
                      (uint32_t)(stream >> 32) };
    uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) }, words[4];
    rng_philox(c, key, words);
    out[0] = words[0] | (uint64_t)words[1] << 32;
    out[1] = words[2] | (uint64_t)words[3] << 32;
}

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint64_t bits[2];
    draw(seed, stream, counter, bits);
    return bits[0];
}

double rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return (double)(rng_u64(seed, stream, counter) >> 11) * 0x1p-53;
}

double rng_normal(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint64_t bits[2];
    draw(seed, stream, counter, bits);
    double u = ((double)(bits[0] >> 11) + 1) * 0x1p-53, v = (double)(bits[1] >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);          /* u is never 0 */
}
