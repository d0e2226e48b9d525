/* quant/q8_0.c - Q8_0: 32 signed bytes and a half scale. value = q * d.
 * Encode: d = max|x| / 127, q = x / d rounded half away from zero. Importance changes nothing. */
#include "quant/rows.h"

void q8_0_decode_block(const struct block_q8_0 *b, float dst[32])
{
    float d = f16_to_f32(b->d);
    for (int i = 0; i < 32; i++) dst[i] = (float)b->qs[i] * d;
}

void q8_0_encode_block(const float src[32], struct block_q8_0 *b)
{
    float amax = 0;
    for (int i = 0; i < 32; i++) amax = fabsf(src[i]) > amax ? fabsf(src[i]) : amax;
    float d = amax / 127, id = inverse(d);
    b->d = f32_to_f16(d);
    for (int i = 0; i < 32; i++) b->qs[i] = (int8_t)round_away_to(src[i] * id, 127);
}

static void decode(const void *src, float *dst, int64_t n)
{
    const struct block_q8_0 *b = src;
    for (int64_t i = 0; i < n / 32; i++) q8_0_decode_block(b + i, dst + 32 * i);
}

static void encode(const float *src, void *dst, int64_t n, const float *importance)
{
    (void)importance;
    struct block_q8_0 *b = dst;
    for (int64_t i = 0; i < n / 32; i++) q8_0_encode_block(src + 32 * i, b + i);
}

VALID_HALVES(valid, 32, block_q8_0, d, d)

const struct format format_q8_0 = {
    .id = Q_Q8_0,
    .name = "q8_0",
    .doc = "8 bits, a scale per 32: drafters, caches, activations",
    .block = 32,
    .bytes = sizeof(struct block_q8_0),
    .decode = decode,
    .encode = encode,
    .valid = valid,
};
