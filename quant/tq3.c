/* quant/tq3.c - TQ3_0, a cache format: groups of 128 rotated values (quant/rotate.h) as 3-bit codes
 * into 8 fixed levels for a unit vector, times a half norm. A group is four blocks of 14 bytes that
 * repeat the norm. Encode and decode both work in the rotated basis.
 * Encode: x / |x| to the nearest level, then the norm is corrected for the levels' own length. */
#include "quant/grids.h"
#include "quant/rotate.h"
#include "quant/rows.h"
#include "quant/search.h"

const float tq3_values[8] = { -0.190685f, -0.117832f, -0.065717f, -0.021460f,
                              0.021460f,  0.065717f,  0.117832f,  0.190685f };
static const float middles[7] = { -0.154259f, -0.091775f, -0.043589f, 0,
                                  0.043589f,  0.091775f,  0.154259f };

static void change_signs(float *x, const uint8_t *signs)
{
    for (int i = 0; i < ROTATE_GROUP; i++) x[i] = signs[i / 8] >> i % 8 & 1 ? -x[i] : x[i];
}

static void transform(float *x)
{
    for (int h = 1; h < ROTATE_GROUP; h *= 2)
        for (int at = 0; at < ROTATE_GROUP; at += 2 * h)
            for (int i = at; i < at + h; i++) {
                float a = x[i], b = x[i + h];
                x[i] = a + b;
                x[i + h] = a - b;
            }
    for (int i = 0; i < ROTATE_GROUP; i++) x[i] *= 0.08838834764831845f;   /* 1 / sqrt(128) */
}

void rotate_group(float x[ROTATE_GROUP])
{
    change_signs(x, rotate_signs_in);
    transform(x);
    change_signs(x, rotate_signs_out);
}

void rotate_back(float x[ROTATE_GROUP])
{
    change_signs(x, rotate_signs_out);
    transform(x);
    change_signs(x, rotate_signs_in);
}

static void decode(const void *src, float *dst, int64_t n)
{
    const struct block_tq3_0 *b = src;
    for (int64_t k = 0; k < n / 32; k++, b++, dst += 32) {
        float norm = f16_to_f32(b->norm);
        for (int i = 0; i < 32; i++) {
            int code = (b->qs[i / 4] >> 2 * (i % 4) & 3) | (b->signs[i / 8] >> i % 8 & 1) << 2;
            dst[i] = tq3_values[code] * norm;
        }
    }
}

static void encode_group(const float *x, struct block_tq3_0 b[4])
{
    float norm = sqrtf(search_sum_sq(ROTATE_GROUP, x)), sum = 0;
    float scale = norm > 1e-10f ? 1 / norm : 0;
    memset(b, 0, 4 * sizeof *b);
    for (int i = 0; i < ROTATE_GROUP; i++) {
        float unit = x[i] * scale;
        int code = 0;
        for (int m = 0; m < 7; m++) code += middles[m] <= unit;
        sum += tq3_values[code] * tq3_values[code];
        b[i / 32].qs[i % 32 / 4] |= (uint8_t)((code & 3) << 2 * (i % 4));
        b[i / 32].signs[i % 32 / 8] |= (uint8_t)(code >> 2 << i % 8);
    }
    float length = sqrtf(sum);
    for (int k = 0; k < 4; k++) b[k].norm = f32_to_f16(length > 1e-10f ? norm / length : norm);
}

static void encode(const float *src, void *dst, int64_t n, const float *importance)
{
    (void)importance;
    struct block_tq3_0 *b = dst;
    for (int64_t k = 0; k < n / ROTATE_GROUP; k++) encode_group(src + ROTATE_GROUP * k, b + 4 * k);
}

VALID_HALVES(valid, 32, block_tq3_0, norm, norm)

const struct format format_tq3_0 = {
    .id = Q_TQ3_0,
    .name = "tq3_0",
    .doc = "caches only: 3 bits, rotated, a norm per 128",
    .block = ROTATE_GROUP,
    .bytes = 4 * sizeof(struct block_tq3_0),
    .decode = decode,
    .encode = encode,
    .valid = valid,
    .rotate = true,
};
