/* quant/ternary.c - two to four levels under one half scale: Q1_0 (-1, 1), TQ1_0 and TQ2_0 (-1, 0,
 * 1), Q2_0 (-1, 0, 1, 2). TQ1_0 puts five trits in a byte as ceil(v * 256 / 243): multiplying by
 * 3^n and keeping 8 bits brings trit n to the top. Encode: d = max|x| and codes round(x / d), which
 * is exact for ternary weights (Q2_0's level 2 is not used); Q1_0: d = mean|x| and the signs. */
#include "quant/rows.h"

static void q1_0_decode(const void *src, float *dst, int64_t n)
{
    const struct block_q1_0 *b = src;
    for (int64_t k = 0; k < n / 128; k++, b++, dst += 128) {
        float d = f16_to_f32(b->d);
        for (int i = 0; i < 128; i++) dst[i] = b->qs[i / 8] >> i % 8 & 1 ? d : -d;
    }
}

static void q1_0_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    (void)importance;
    struct block_q1_0 *b = dst;
    for (int64_t k = 0; k < n / 128; k++, b++) {
        const float *x = src + 128 * k;
        float sum = 0;
        memset(b, 0, sizeof *b);
        for (int i = 0; i < 128; i++) {
            sum += fabsf(x[i]);
            b->qs[i / 8] |= (uint8_t)((x[i] >= 0) << i % 8);
        }
        b->d = f32_to_f16(sum / 128);
    }
}

static void q2_0_decode(const void *src, float *dst, int64_t n)
{
    const struct block_q2_0 *b = src;
    for (int64_t k = 0; k < n / 64; k++, b++, dst += 64) {
        float d = f16_to_f32(b->d);
        for (int i = 0; i < 64; i++) dst[i] = (float)((b->qs[i / 4] >> 2 * (i % 4) & 3) - 1) * d;
    }
}

/* `count` bytes of `trits` trits: trit t of byte m is element count * t + m. */
static void trits_decode(const uint8_t *qs, int count, int trits, float d, float *dst)
{
    static const uint8_t power[5] = { 1, 3, 9, 27, 81 };
    for (int t = 0; t < trits; t++)
        for (int m = 0; m < count; m++) {
            int top = (uint8_t)(qs[m] * power[t]);
            dst[count * t + m] = (float)((top * 3 >> 8) - 1) * d;
        }
}

static void tq1_0_decode(const void *src, float *dst, int64_t n)
{
    const struct block_tq1_0 *b = src;
    for (int64_t k = 0; k < n / QK; k++, b++, dst += QK) {
        float d = f16_to_f32(b->d);
        trits_decode(b->qs, 32, 5, d, dst);
        trits_decode(b->qs + 32, 16, 5, d, dst + 160);
        trits_decode(b->qh, 4, 4, d, dst + 240);
    }
}

static void tq2_0_decode(const void *src, float *dst, int64_t n)
{
    const struct block_tq2_0 *b = src;
    for (int64_t k = 0; k < n / QK; k++, b++, dst += QK) {
        float d = f16_to_f32(b->d);
        for (int run = 0; run < 8; run++)        /* 32 elements at one shift */
            for (int m = 0; m < 32; m++)
                dst[32 * run + m] = d * (float)((b->qs[32 * (run / 4) + m] >> 2 * (run % 4) & 3) - 1);
    }
}

/* Codes 0..2 of n elements; returns the scale. */
static float trit_codes(int n, const float *x, uint8_t *codes)
{
    float amax = 0;
    for (int i = 0; i < n; i++) amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    float id = inverse(amax);
    for (int i = 0; i < n; i++) codes[i] = (uint8_t)(round_away_to(x[i] * id, 1) + 1);
    return amax;
}

static void trits_encode(const uint8_t *codes, int count, int trits, uint8_t *qs)
{
    for (int m = 0; m < count; m++) {
        int v = 0;
        for (int t = 0; t < 5; t++) v = 3 * v + (t < trits ? codes[count * t + m] : 0);
        qs[m] = (uint8_t)((v * 256 + 242) / 243);
    }
}

static void q2_0_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    (void)importance;
    struct block_q2_0 *b = dst;
    for (int64_t k = 0; k < n / 64; k++, b++) {
        uint8_t codes[64];
        b->d = f32_to_f16(trit_codes(64, src + 64 * k, codes));
        for (int i = 0; i < 16; i++) {
            const uint8_t *c = codes + 4 * i;
            b->qs[i] = (uint8_t)(c[0] | c[1] << 2 | c[2] << 4 | c[3] << 6);
        }
    }
}

static void tq1_0_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    (void)importance;
    struct block_tq1_0 *b = dst;
    for (int64_t k = 0; k < n / QK; k++, b++) {
        uint8_t codes[QK];
        b->d = f32_to_f16(trit_codes(QK, src + QK * k, codes));
        trits_encode(codes, 32, 5, b->qs);
        trits_encode(codes + 160, 16, 5, b->qs + 32);
        trits_encode(codes + 240, 4, 4, b->qh);
    }
}

static void tq2_0_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    (void)importance;
    struct block_tq2_0 *b = dst;
    for (int64_t k = 0; k < n / QK; k++, b++) {
        uint8_t codes[QK];
        b->d = f32_to_f16(trit_codes(QK, src + QK * k, codes));
        for (int i = 0; i < 64; i++) {
            const uint8_t *c = codes + 128 * (i / 32) + i % 32;
            b->qs[i] = (uint8_t)(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
        }
    }
}

VALID_HALVES(q1_0_valid, 128, block_q1_0, d, d)
VALID_HALVES(q2_0_valid, 64, block_q2_0, d, d)
VALID_HALVES(tq1_0_valid, QK, block_tq1_0, d, d)
VALID_HALVES(tq2_0_valid, QK, block_tq2_0, d, d)

const struct format format_q1_0 = {
    .id = Q_Q1_0,
    .name = "q1_0",
    .doc = "signs, a scale per 128",
    .block = 128,
    .bytes = sizeof(struct block_q1_0),
    .decode = q1_0_decode,
    .encode = q1_0_encode,
    .valid = q1_0_valid,
};
const struct format format_q2_0 = {
    .id = Q_Q2_0,
    .name = "q2_0",
    .doc = "levels -1 to 2, a scale per 64",
    .block = 64,
    .bytes = sizeof(struct block_q2_0),
    .decode = q2_0_decode,
    .encode = q2_0_encode,
    .valid = q2_0_valid,
};
const struct format format_tq1_0 = {
    .id = Q_TQ1_0, .name = "tq1_0", .doc = "ternary, five trits a byte", .block = QK,
    .bytes = sizeof(struct block_tq1_0), .decode = tq1_0_decode, .encode = tq1_0_encode,
    .valid = tq1_0_valid,
};
const struct format format_tq2_0 = {
    .id = Q_TQ2_0, .name = "tq2_0", .doc = "ternary, two bits a value", .block = QK,
    .bytes = sizeof(struct block_tq2_0), .decode = tq2_0_decode, .encode = tq2_0_encode,
    .valid = tq2_0_valid,
};
