/* quant/q4_q5.c - Q4_0, Q4_1, Q5_0, Q5_1: blocks of 32 with a half scale and, for _1, a half min.
 *   _0: value = (q - half range) * d      _1: value = q * d + m
 * Low nibbles of qs are elements 0..15, high nibbles 16..31; bit i of qh is bit 4 of element i.
 * Encode without importance: the range is divided evenly, codes come from the scale before it is
 * rounded to half. With importance: searches (search.h), weights im * sqrt(mean row x^2 + x^2). */
#include "quant/rows.h"
#include "quant/search.h"

static const struct search_steps steps = { .first = -0.9f, .step = 0.05f, .count = 36 };

static inline int nibble(const uint8_t qs[16], int i)
{
    return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
}

static void pack_nibbles(const uint8_t codes[32], uint8_t qs[16])
{
    for (int i = 0; i < 16; i++) qs[i] = (uint8_t)((codes[i] & 15) | (codes[i + 16] & 15) << 4);
}

static uint32_t pack_fifth(const uint8_t codes[32])
{
    uint32_t qh = 0;
    for (int i = 0; i < 32; i++) qh |= (uint32_t)(codes[i] >> 4 & 1) << i;
    return qh;
}

/* Codes of a block without a min; half = 8 or 16. Returns the scale before rounding. */
static float codes_0(const float *x, const float *im, float mean_sq, int half, uint8_t codes[32])
{
    if (im) {
        float w[32];
        search_weights(32, x, im, mean_sq, w);
        return search_symmetric(32, half, x, w, codes);
    }
    float amax = 0, max = 0;
    for (int i = 0; i < 32; i++)
        if (fabsf(x[i]) > amax) amax = fabsf(x[i]), max = x[i];
    float d = max / (float)-half, id = inverse(d);
    for (int i = 0; i < 32; i++)
        codes[i] = (uint8_t)trunc_to(x[i] * id + ((float)half + 0.5f), 2 * half - 1);
    return d;
}

/* Codes of a block with a min; nmax = 15 or 31. Returns the scale, *min is added to the values. */
static float codes_1(const float *x, const float *im, float mean_sq, int nmax, uint8_t codes[32],
                     float *min)
{
    if (im) {
        float w[32];
        search_weights(32, x, im, mean_sq, w);
        float d = search_affine(32, nmax, x, w, &steps, codes, min);
        *min = -*min;
        return d;
    }
    float low = INFINITY, high = -INFINITY;
    for (int i = 0; i < 32; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    float d = (high - low) / (float)nmax, id = inverse(d);
    for (int i = 0; i < 32; i++) codes[i] = (uint8_t)trunc_to((x[i] - low) * id + 0.5f, nmax);
    *min = low;
    return d;
}

static float row_mean_sq(const float *x, int64_t n, const float *importance)
{
    return importance ? search_sum_sq(n, x) / (float)n : 0;
}

void q4_0_decode_block(const struct block_q4_0 *b, float dst[32])
{
    float d = f16_to_f32(b->d);
    for (int i = 0; i < 16; i++) {
        dst[i] = (float)((b->qs[i] & 15) - 8) * d;
        dst[i + 16] = (float)((b->qs[i] >> 4) - 8) * d;
    }
}

void q4_0_encode_block(const float src[32], struct block_q4_0 *b)
{
    uint8_t codes[32];
    b->d = f32_to_f16(codes_0(src, NULL, 0, 8, codes));
    pack_nibbles(codes, b->qs);
}

static void q4_0_decode(const void *src, float *dst, int64_t n)
{
    const struct block_q4_0 *b = src;
    for (int64_t i = 0; i < n / 32; i++) q4_0_decode_block(b + i, dst + 32 * i);
}

static void q4_0_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    struct block_q4_0 *b = dst;
    float mean_sq = row_mean_sq(src, n, importance);
    for (int64_t i = 0; i < n / 32; i++) {
        uint8_t codes[32];
        b[i].d = f32_to_f16(
            codes_0(src + 32 * i, importance ? importance + 32 * i : NULL, mean_sq, 8, codes));
        pack_nibbles(codes, b[i].qs);
    }
}

static void q4_1_decode(const void *src, float *dst, int64_t n)
{
    const struct block_q4_1 *b = src;
    for (int64_t k = 0; k < n / 32; k++, b++, dst += 32) {
        float d = f16_to_f32(b->d), m = f16_to_f32(b->m);
        for (int i = 0; i < 16; i++) {
            dst[i] = (float)(b->qs[i] & 15) * d + m;
            dst[i + 16] = (float)(b->qs[i] >> 4) * d + m;
        }
    }
}

static void q4_1_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    struct block_q4_1 *b = dst;
    float mean_sq = row_mean_sq(src, n, importance);
    for (int64_t i = 0; i < n / 32; i++) {
        uint8_t codes[32];
        float min;
        const float *im = importance ? importance + 32 * i : NULL;
        b[i].d = f32_to_f16(codes_1(src + 32 * i, im, mean_sq, 15, codes, &min));
        b[i].m = f32_to_f16(min);
        pack_nibbles(codes, b[i].qs);
    }
}

static void q5_0_decode(const void *src, float *dst, int64_t n)
{
    const struct block_q5_0 *b = src;
    for (int64_t k = 0; k < n / 32; k++, b++, dst += 32) {
        float d = f16_to_f32(b->d);
        uint32_t qh = b->qh;
        for (int i = 0; i < 32; i++)
            dst[i] = (float)((nibble(b->qs, i) | (int)(qh >> i & 1) << 4) - 16) * d;
    }
}

static void q5_0_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    struct block_q5_0 *b = dst;
    float mean_sq = row_mean_sq(src, n, importance);
    for (int64_t i = 0; i < n / 32; i++) {
        uint8_t codes[32];
        const float *im = importance ? importance + 32 * i : NULL;
        b[i].d = f32_to_f16(codes_0(src + 32 * i, im, mean_sq, 16, codes));
        b[i].qh = pack_fifth(codes);
        pack_nibbles(codes, b[i].qs);
    }
}

static void q5_1_decode(const void *src, float *dst, int64_t n)
{
    const struct block_q5_1 *b = src;
    for (int64_t k = 0; k < n / 32; k++, b++, dst += 32) {
        float d = f16_to_f32(b->d), m = f16_to_f32(b->m);
        uint32_t qh = b->qh;
        for (int i = 0; i < 32; i++)
            dst[i] = (float)(nibble(b->qs, i) | (int)(qh >> i & 1) << 4) * d + m;
    }
}

static void q5_1_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    struct block_q5_1 *b = dst;
    float mean_sq = row_mean_sq(src, n, importance);
    for (int64_t i = 0; i < n / 32; i++) {
        uint8_t codes[32];
        float min;
        const float *im = importance ? importance + 32 * i : NULL;
        b[i].d = f32_to_f16(codes_1(src + 32 * i, im, mean_sq, 31, codes, &min));
        b[i].m = f32_to_f16(min);
        b[i].qh = pack_fifth(codes);
        pack_nibbles(codes, b[i].qs);
    }
}

VALID_HALVES(q4_0_valid, 32, block_q4_0, d, d)
VALID_HALVES(q4_1_valid, 32, block_q4_1, d, m)
VALID_HALVES(q5_0_valid, 32, block_q5_0, d, d)
VALID_HALVES(q5_1_valid, 32, block_q5_1, d, m)

const struct format format_q4_0 = {
    .id = Q_Q4_0,
    .name = "q4_0",
    .doc = "4 bits, a scale per 32",
    .block = 32,
    .bytes = sizeof(struct block_q4_0),
    .decode = q4_0_decode,
    .encode = q4_0_encode,
    .valid = q4_0_valid,
};
const struct format format_q4_1 = {
    .id = Q_Q4_1,
    .name = "q4_1",
    .doc = "4 bits, scale and min per 32",
    .block = 32,
    .bytes = sizeof(struct block_q4_1),
    .decode = q4_1_decode,
    .encode = q4_1_encode,
    .valid = q4_1_valid,
};
const struct format format_q5_0 = {
    .id = Q_Q5_0,
    .name = "q5_0",
    .doc = "5 bits, a scale per 32",
    .block = 32,
    .bytes = sizeof(struct block_q5_0),
    .decode = q5_0_decode,
    .encode = q5_0_encode,
    .valid = q5_0_valid,
};
const struct format format_q5_1 = {
    .id = Q_Q5_1,
    .name = "q5_1",
    .doc = "5 bits, scale and min per 32",
    .block = 32,
    .bytes = sizeof(struct block_q5_1),
    .decode = q5_1_decode,
    .encode = q5_1_encode,
    .valid = q5_1_valid,
};
