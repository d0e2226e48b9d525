/* quant/k_encode.c - encoders of Q2_K to Q6_K. All go the same way: search scale (and min) of each
 * sub-block, code those under super-scales, then choose the values' codes again for the scales as
 * they will be decoded. With importance the weights are im * sqrt(c * mean(x^2) + x^2), c = 1 for
 * Q2_K and 2 for Q3_K to Q5_K; Q6_K takes im as it is. */
#include "quant/k_encode.h"

#include "quant/rows.h"
#include "quant/search.h"

static const struct search_steps weighted = { .first = -0.9f, .step = 0.05f, .count = 36 };

/* What a sub-block with scale and min ends up with: x ~ (d * scale) * code - dmin * min. */
struct coded {
    uint8_t scale[16], min[16];
    float   d, dmin;
};

/* Codes for sub-block scales or mins without importance: the largest gets `top`. */
static float code_evenly(int n, int top, const float *v, uint8_t *codes)
{
    float max = 0;
    for (int i = 0; i < n; i++) max = v[i] > max ? v[i] : max;
    float inv = max > 0 ? (float)top / max : 0;
    for (int i = 0; i < n; i++) codes[i] = (uint8_t)clamp_int(round_even(inv * v[i]), 0, top);
    return max / (float)top;
}

/* Codes of n elements for scale d and min dm as decoded; with d = 0 they stay as they are. */
static void requantise(int n, int nmax, const float *x, float d, float dm, uint8_t *codes)
{
    if (d == 0) return;
    for (int i = 0; i < n; i++) codes[i] = (uint8_t)clamp_int(round_even((x[i] + dm) / d), 0, nmax);
}

static void requantise_signed(int n, int half, const float *x, float d, uint8_t *codes)
{
    if (d == 0) return;
    for (int i = 0; i < n; i++)
        codes[i] = (uint8_t)(clamp_int(round_even(x[i] / d), -half, half - 1) + half);
}

/* Scales and mins of the sub-blocks of `size` elements, and first codes, for Q2_K, Q4_K and Q5_K.
 * plain_weights fills the weights of a sub-block when there is no importance. */
static void affine_block(const float *x, const float *im, int size, int nmax, int top, float factor,
                         const struct search_steps *plain, struct coded *c, uint8_t codes[QK])
{
    int n = QK / size;
    float scales[16], mins[16], sum_w[16], w[32];
    float mean_sq = im ? factor * search_sum_sq(QK, x) / QK : 0;
    for (int s = 0; s < n; s++) {
        const float *xs = x + s * size;
        if (im) {
            search_weights(size, xs, im + s * size, mean_sq, w);
        } else {                /* Q2_K by magnitude alone, the finer ones more evenly */
            float even = size == 32 ? sqrtf(search_sum_sq(size, xs) / (float)size) : 0;
            for (int i = 0; i < size; i++) w[i] = even + fabsf(xs[i]);
        }
        sum_w[s] = 0;
        for (int i = 0; i < size; i++) sum_w[s] += w[i];
        scales[s] = search_affine(size, nmax, xs, w, im ? &weighted : plain, codes + s * size,
                                  &mins[s]);
    }
    c->d = im ? search_positive(n, top, scales, sum_w, c->scale)
              : code_evenly(n, top, scales, c->scale);
    c->dmin = im ? search_positive(n, top, mins, sum_w, c->min) : code_evenly(n, top, mins, c->min);
    float d = f16_to_f32(f32_to_f16(c->d)), dmin = f16_to_f32(f32_to_f16(c->dmin));
    for (int s = 0; s < n; s++)
        requantise(size, nmax, x + s * size, d * (float)c->scale[s], dmin * (float)c->min[s],
                   codes + s * size);
}

/* qs[32n + l] holds the low 2 bits of elements 128n + 32j + l at bit 2j. */
static void pack_pairs(const uint8_t codes[QK], uint8_t qs[64])
{
    for (int h = 0; h < 2; h++)
        for (int l = 0; l < 32; l++) {
            const uint8_t *c = codes + 128 * h + l;
            qs[32 * h + l] = (uint8_t)((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 |
                                       (c[96] & 3) << 6);
        }
}

void q2_k_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    static const struct search_steps plain = {
        .first = -0.5f, .step = 0.1f, .count = 15, .absolute = 1
    };
    struct block_q2_k *b = dst;
    for (int64_t k = 0; k < n / QK; k++, b++) {
        struct coded c;
        uint8_t codes[QK];
        affine_block(src + QK * k, importance ? importance + QK * k : NULL, 16, 3, 15, 1, &plain,
                     &c, codes);
        for (int s = 0; s < 16; s++) b->scales[s] = (uint8_t)(c.scale[s] | c.min[s] << 4);
        b->d = f32_to_f16(c.d);
        b->dmin = f32_to_f16(c.dmin);
        pack_pairs(codes, b->qs);
    }
}

void q3_k_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    struct block_q3_k *b = dst;
    for (int64_t k = 0; k < n / QK; k++, b++) {
        const float *x = src + QK * k, *im = importance ? importance + QK * k : NULL;
        uint8_t codes[QK], coded[16] = { 0 };
        float scales[16], sum_w[16], w[16], max = 0, d;
        float mean_sq = im ? 2 * search_sum_sq(QK, x) / QK : 0;
        for (int g = 0; g < 16; g++) {
            sum_w[g] = 0;
            if (im) {
                search_weights(16, x + 16 * g, im + 16 * g, mean_sq, w);
                for (int i = 0; i < 16; i++) sum_w[g] += w[i];
                scales[g] = search_symmetric(16, 4, x + 16 * g, w, codes + 16 * g);
            } else {
                scales[g] = search_symmetric_refined(16, 4, x + 16 * g, codes + 16 * g);
            }
            if (fabsf(scales[g]) > fabsf(max)) max = scales[g];
        }
        if (im) {
            d = search_symmetric(16, 32, scales, sum_w, coded);
        } else {
            float iscale = max != 0 ? -32 / max : 0;
            for (int g = 0; g < 16 && max != 0; g++)
                coded[g] = (uint8_t)(clamp_int(round_even(iscale * scales[g]), -32, 31) + 32);
            d = inverse(iscale);
        }
        memset(b, 0, sizeof *b);
        b->d = f32_to_f16(d);
        for (int g = 0; g < 16; g++) {
            b->scales[g % 8] |= (uint8_t)((coded[g] & 15) << (g < 8 ? 0 : 4));
            b->scales[8 + g % 4] |= (uint8_t)(coded[g] >> 4 << 2 * (g / 4));
        }
        for (int g = 0; g < 16; g++)
            requantise_signed(16, 4, x + 16 * g, f16_to_f32(b->d) * (float)k3_scale(b->scales, g),
                              codes + 16 * g);
        for (int e = 0; e < QK; e++) b->hmask[e % 32] |= (uint8_t)((codes[e] >> 2) << e / 32);
        pack_pairs(codes, b->qs);
    }
}

/* The 12 bytes of k4_scale_min. */
static void pack_k4(const struct coded *c, uint8_t s[12])
{
    for (int b = 0; b < 4; b++) {
        s[b] = (uint8_t)(c->scale[b] | c->scale[b + 4] >> 4 << 6);
        s[b + 4] = (uint8_t)(c->min[b] | c->min[b + 4] >> 4 << 6);
        s[b + 8] = (uint8_t)((c->scale[b + 4] & 15) | (c->min[b + 4] & 15) << 4);
    }
}

/* qs[32p + l]: low nibbles are sub-block 2p, high nibbles 2p + 1. */
static void pack_k4_nibbles(const uint8_t codes[QK], uint8_t qs[128])
{
    for (int i = 0; i < 128; i++) {
        const uint8_t *c = codes + 64 * (i / 32) + i % 32;
        qs[i] = (uint8_t)((c[0] & 15) | (c[32] & 15) << 4);
    }
}

void q4_k_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    static const struct search_steps plain = { .first = -1, .step = 0.1f, .count = 20 };
    struct block_q4_k *b = dst;
    for (int64_t k = 0; k < n / QK; k++, b++) {
        struct coded c;
        uint8_t codes[QK];
        affine_block(src + QK * k, importance ? importance + QK * k : NULL, 32, 15, 63, 2, &plain,
                     &c, codes);
        pack_k4(&c, b->scales);
        b->d = f32_to_f16(c.d);
        b->dmin = f32_to_f16(c.dmin);
        pack_k4_nibbles(codes, b->qs);
    }
}

void q5_k_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    static const struct search_steps plain = { .first = -0.5f, .step = 0.1f, .count = 15 };
    struct block_q5_k *b = dst;
    for (int64_t k = 0; k < n / QK; k++, b++) {
        struct coded c;
        uint8_t codes[QK];
        affine_block(src + QK * k, importance ? importance + QK * k : NULL, 32, 31, 63, 2, &plain,
                     &c, codes);
        pack_k4(&c, b->scales);
        b->d = f32_to_f16(c.d);
        b->dmin = f32_to_f16(c.dmin);
        pack_k4_nibbles(codes, b->qs);
        memset(b->qh, 0, sizeof b->qh);
        for (int e = 0; e < QK; e++) b->qh[e % 32] |= (uint8_t)((codes[e] >> 4) << e / 32);
    }
}

void q6_k_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    struct block_q6_k *b = dst;
    for (int64_t k = 0; k < n / QK; k++, b++) {
        const float *x = src + QK * k, *im = importance ? importance + QK * k : NULL;
        uint8_t codes[QK];
        float scales[16], max = 0;
        for (int g = 0; g < 16; g++) {
            scales[g] = search_symmetric(16, 32, x + 16 * g, im ? im + 16 * g : NULL,
                                         codes + 16 * g);
            if (fabsf(scales[g]) > fabsf(max)) max = scales[g];
        }
        memset(b, 0, sizeof *b);
        if (!(fabsf(max) >= 1e-15f)) continue;          /* nothing but zeros */
        float iscale = -128 / max;
        b->d = f32_to_f16(1 / iscale);
        for (int g = 0; g < 16; g++) {
            b->scales[g] = (int8_t)clamp_int(round_even(iscale * scales[g]), -128, 127);
            requantise_signed(16, 32, x + 16 * g, f16_to_f32(b->d) * (float)b->scales[g],
                              codes + 16 * g);
        }
        for (int h = 0; h < 2; h++)
            for (int l = 0; l < 32; l++) {
                const uint8_t *c = codes + 128 * h + l;
                b->ql[64 * h + l] = (uint8_t)((c[0] & 15) | (c[64] & 15) << 4);
                b->ql[64 * h + 32 + l] = (uint8_t)((c[32] & 15) | (c[96] & 15) << 4);
                b->qh[32 * h + l] = (uint8_t)(c[0] >> 4 | c[32] >> 4 << 2 | c[64] >> 4 << 4 |
                                              c[96] >> 4 << 6);
            }
    }
}
