/* quant/k_quants.c - Q2_K to Q6_K: blocks of 256 with coded scales (and mins) of 16 or 32 elements
 * under half super-scales. Decoders here, encoders in k_encode.c.
 *   Q2_K, Q4_K, Q5_K: value = (d * scale) * q - (dmin * min)      Q3_K, Q6_K: (d * scale) * q */
#include "quant/k_encode.h"
#include "quant/rows.h"

static void q2_k_decode(const void *src, float *dst, int64_t n)
{
    const struct block_q2_k *b = src;
    for (int64_t k = 0; k < n / QK; k++, b++, dst += QK) {
        float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
        for (int g = 0; g < 16; g++) {           /* 16 elements: half of a 32-run at one shift */
            float scale = d * (float)(b->scales[g] & 15), min = dmin * (float)(b->scales[g] >> 4);
            const uint8_t *q = b->qs + 32 * (g / 8) + 16 * (g % 2);
            int shift = 2 * (g / 2 % 4);
            for (int l = 0; l < 16; l++) dst[16 * g + l] = scale * (float)(q[l] >> shift & 3) - min;
        }
    }
}

static void q3_k_decode(const void *src, float *dst, int64_t n)
{
    const struct block_q3_k *b = src;
    for (int64_t k = 0; k < n / QK; k++, b++, dst += QK) {
        float d = f16_to_f32(b->d);
        for (int g = 0; g < 16; g++) {
            float scale = d * (float)k3_scale(b->scales, g);
            const uint8_t *q = b->qs + 32 * (g / 8) + 16 * (g % 2), *high = b->hmask + 16 * (g % 2);
            int shift = 2 * (g / 2 % 4), bit = g / 2;
            for (int l = 0; l < 16; l++)
                dst[16 * g + l] = scale *
                                  (float)((q[l] >> shift & 3) + (high[l] >> bit & 1) * 4 - 4);
        }
    }
}

static void q4_k_decode(const void *src, float *dst, int64_t n)
{
    const struct block_q4_k *b = src;
    for (int64_t k = 0; k < n / QK; k++, b++, dst += QK) {
        float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
        for (int s = 0; s < 8; s++) {
            int scale, min, shift = 4 * (s % 2);
            k4_scale_min(b->scales, s, &scale, &min);
            float ds = d * (float)scale, dm = dmin * (float)min;
            const uint8_t *q = b->qs + 32 * (s / 2);
            for (int l = 0; l < 32; l++) dst[32 * s + l] = ds * (float)(q[l] >> shift & 15) - dm;
        }
    }
}

static void q5_k_decode(const void *src, float *dst, int64_t n)
{
    const struct block_q5_k *b = src;
    for (int64_t k = 0; k < n / QK; k++, b++, dst += QK) {
        float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
        for (int s = 0; s < 8; s++) {
            int scale, min, shift = 4 * (s % 2);
            k4_scale_min(b->scales, s, &scale, &min);
            float ds = d * (float)scale, dm = dmin * (float)min;
            const uint8_t *q = b->qs + 32 * (s / 2);
            for (int l = 0; l < 32; l++)
                dst[32 * s + l] = ds * (float)((q[l] >> shift & 15) | (b->qh[l] >> s & 1) << 4) -
                                  dm;
        }
    }
}

static void q6_k_decode(const void *src, float *dst, int64_t n)
{
    const struct block_q6_k *b = src;
    for (int64_t k = 0; k < n / QK; k++, b++, dst += QK) {
        float d = f16_to_f32(b->d);
        for (int g = 0; g < 16; g++) { /* run of 32: half h of the block, quarter j of it */
            int h = g / 8, j = g / 2 % 4, at = 16 * (g % 2);
            float scale = d * (float)b->scales[g];
            const uint8_t *low = b->ql + 64 * h + 32 * (j % 2) + at, *high = b->qh + 32 * h + at;
            for (int l = 0; l < 16; l++)
                dst[16 * g + l] =
                    scale *
                    (float)(((low[l] >> 4 * (j / 2) & 15) | (high[l] >> 2 * j & 3) << 4) - 32);
        }
    }
}

VALID_HALVES(q2_k_valid, QK, block_q2_k, d, dmin)
VALID_HALVES(q3_k_valid, QK, block_q3_k, d, d)
VALID_HALVES(q4_k_valid, QK, block_q4_k, d, dmin)
VALID_HALVES(q5_k_valid, QK, block_q5_k, d, dmin)
VALID_HALVES(q6_k_valid, QK, block_q6_k, d, d)

const struct format format_q2_k = {
    .id = Q_Q2_K,
    .name = "q2_K",
    .doc = "2 bits, 4-bit scale and min per 16",
    .block = QK,
    .bytes = sizeof(struct block_q2_k),
    .decode = q2_k_decode,
    .encode = q2_k_encode,
    .valid = q2_k_valid,
};
const struct format format_q3_k = {
    .id = Q_Q3_K,
    .name = "q3_K",
    .doc = "3 bits, 6-bit scale per 16",
    .block = QK,
    .bytes = sizeof(struct block_q3_k),
    .decode = q3_k_decode,
    .encode = q3_k_encode,
    .valid = q3_k_valid,
};
const struct format format_q4_k = {
    .id = Q_Q4_K,
    .name = "q4_K",
    .doc = "4 bits, 6-bit scale and min per 32: the common one",
    .block = QK,
    .bytes = sizeof(struct block_q4_k),
    .decode = q4_k_decode,
    .encode = q4_k_encode,
    .valid = q4_k_valid,
};
const struct format format_q5_k = {
    .id = Q_Q5_K,
    .name = "q5_K",
    .doc = "5 bits, 6-bit scale and min per 32",
    .block = QK,
    .bytes = sizeof(struct block_q5_k),
    .decode = q5_k_decode,
    .encode = q5_k_encode,
    .valid = q5_k_valid,
};
const struct format format_q6_k = {
    .id = Q_Q6_K,
    .name = "q6_K",
    .doc = "6 bits, 8-bit scale per 16: heads, values, down projections",
    .block = QK,
    .bytes = sizeof(struct block_q6_k),
    .decode = q6_k_decode,
    .encode = q6_k_encode,
    .valid = q6_k_valid,
};
