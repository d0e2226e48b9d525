/* quant/iq4.c - IQ4_NL and IQ4_XS: 4-bit codes into 16 uneven levels. NL is a block of 32 with a
 * half scale; XS is 256 elements with a signed 6-bit scale per 32. Nibbles as in Q4_0. Encode: per
 * 32 elements least squares over 15 candidate scales, weights x^2 or, with importance, im * sqrt(2
 * mean(x^2) + x^2), the mean over the block. */
#include "quant/rows.h"
#include "quant/search.h"

const int8_t iq4nl_values[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113 };

static inline void decode_32(const uint8_t qs[16], float d, float *dst)
{
    for (int i = 0; i < 16; i++) {
        dst[i] = d * (float)iq4nl_values[qs[i] & 15];
        dst[i + 16] = d * (float)iq4nl_values[qs[i] >> 4];
    }
}

static void iq4_nl_decode(const void *src, float *dst, int64_t n)
{
    const struct block_iq4_nl *b = src;
    for (int64_t k = 0; k < n / 32; k++) decode_32(b[k].qs, f16_to_f32(b[k].d), dst + 32 * k);
}

/* Scale of sub-block s of IQ4_XS, -32..31. */
static inline int xs_scale(const struct block_iq4_xs *b, int s)
{
    return (int)((b->scales_l[s / 2] >> 4 * (s % 2) & 15) | (b->scales_h >> 2 * s & 3) << 4) - 32;
}

static void iq4_xs_decode(const void *src, float *dst, int64_t n)
{
    const struct block_iq4_xs *b = src;
    for (int64_t k = 0; k < n / QK; k++, b++, dst += QK) {
        float d = f16_to_f32(b->d);
        for (int s = 0; s < 8; s++)
            decode_32(b->qs + 16 * s, d * (float)xs_scale(b, s), dst + 32 * s);
    }
}

/* Code of the level nearest to v; between two levels a tie goes to the upper one. */
static int nearest(float v)
{
    int low = 0, high = 15;
    if (!(v > iq4nl_values[0])) return 0;
    if (v >= iq4nl_values[15]) return 15;
    while (high - low > 1) {
        int mid = (low + high) / 2;
        if (v < iq4nl_values[mid]) high = mid;
        else low = mid;
    }
    return v - iq4nl_values[low] < iq4nl_values[high] - v ? low : high;
}

/* Least-squares scale for the codes of x * id; *score is what it explains, false when nothing. */
static bool fit(const float *x, const float *w, float id, float *sumqx, float *sumq2)
{
    *sumqx = *sumq2 = 0;
    for (int i = 0; i < 32; i++) {
        float q = iq4nl_values[nearest(id * x[i])];
        *sumqx += w[i] * q * x[i];
        *sumq2 += w[i] * q * q;
    }
    return *sumq2 > 0;
}

static float best_scale(const float *x, const float *im, float mean_sq)
{
    float w[32], amax = 0, max = 0, sumqx, sumq2;
    if (im) search_weights(32, x, im, mean_sq, w);
    for (int i = 0; i < 32; i++) {
        if (!im) w[i] = x[i] * x[i];
        if (fabsf(x[i]) > amax) amax = fabsf(x[i]), max = x[i];
    }
    if (amax < 1e-15f) return 0;
    float scale = 0, best = 0;
    if (fit(x, w, 1 / (-max / iq4nl_values[0]), &sumqx, &sumq2)) scale = sumqx / sumq2;
    best = scale * sumqx;
    for (int k = -7; k <= 7; k++) {
        if (!fit(x, w, (float)(k + iq4nl_values[0]) / max, &sumqx, &sumq2)) continue;
        if (!(sumqx * sumqx > best * sumq2)) continue;
        scale = sumqx / sumq2;
        best = scale * sumqx;
    }
    return scale;
}

static void encode_32(const float *x, float scale, uint8_t qs[16])
{
    float id = inverse(scale);
    for (int i = 0; i < 16; i++)
        qs[i] = (uint8_t)(nearest(id * x[i]) | nearest(id * x[i + 16]) << 4);
}

static void iq4_nl_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    struct block_iq4_nl *b = dst;
    for (int64_t k = 0; k < n / 32; k++) {
        const float *x = src + 32 * k;
        float scale = best_scale(x, importance ? importance + 32 * k : NULL,
                                 2 * search_sum_sq(32, x) / 32);
        b[k].d = f32_to_f16(scale);
        encode_32(x, scale, b[k].qs);
    }
}

static void iq4_xs_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    struct block_iq4_xs *b = dst;
    for (int64_t k = 0; k < n / QK; k++, b++) {
        const float *x = src + QK * k, *im = importance ? importance + QK * k : NULL;
        float scales[8], max = 0, mean_sq = im ? 2 * search_sum_sq(QK, x) / QK : 0;
        for (int s = 0; s < 8; s++) {
            scales[s] = best_scale(x + 32 * s, im ? im + 32 * s : NULL, mean_sq);
            if (fabsf(scales[s]) > fabsf(max)) max = scales[s];
        }
        float d = -max / 32, id = inverse(d);
        memset(b, 0, sizeof *b);
        b->d = f32_to_f16(d);
        for (int s = 0; s < 8; s++) {
            int l = clamp_int(round_even(id * scales[s]), -32, 31);
            encode_32(x + 32 * s, d * (float)l, b->qs + 16 * s);
            b->scales_l[s / 2] |= (uint8_t)(((l + 32) & 15) << 4 * (s % 2));
            b->scales_h = (uint16_t)(b->scales_h | (l + 32) >> 4 << 2 * s);
        }
    }
}

VALID_HALVES(iq4_nl_valid, 32, block_iq4_nl, d, d)
VALID_HALVES(iq4_xs_valid, QK, block_iq4_xs, d, d)

const struct format format_iq4_nl = {
    .id = Q_IQ4_NL, .name = "iq4_nl", .doc = "4 bits, uneven levels, a scale per 32", .block = 32,
    .bytes = sizeof(struct block_iq4_nl), .decode = iq4_nl_decode, .encode = iq4_nl_encode,
    .valid = iq4_nl_valid,
};
const struct format format_iq4_xs = {
    .id = Q_IQ4_XS,
    .name = "iq4_xs",
    .doc = "4 bits, uneven levels, 6-bit scale per 32",
    .block = QK,
    .bytes = sizeof(struct block_iq4_xs),
    .decode = iq4_xs_decode,
    .encode = iq4_xs_encode,
    .valid = iq4_xs_valid,
};
