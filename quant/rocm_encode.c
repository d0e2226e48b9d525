/* quant/rocm_encode.c - encoders of the ROCm formats: every scale byte is tried, from the one that
 * fits the largest value outwards, and the least (weighted) squared error wins, the lower byte
 * among equals. Weights are im * sqrt(mean row x^2 + x^2). Values that are not finite count as
 * zeros. */
#include <float.h>
#include <stdlib.h>

#include "quant/rocm.h"
#include "quant/rows.h"
#include "quant/search.h"

struct kind {
    int top;                    /* the largest level */
    int group;                  /* elements under one scale */
    int (*level)(float v);      /* the level for x / scale */
    bool fit; /* without importance: the scale that fits the largest value, no search */
};

/* Levels by thresholds on |v|: at[i] is the largest |v| that still takes magnitude i. */
static int threshold(float v, const float *at, const int8_t *magnitude, int n)
{
    int i = 0;
    while (i < n && fabsf(v) > at[i]) i++;
    return v < 0 ? -magnitude[i] : magnitude[i];
}

static int level_fp4(float v)
{
    static const float at[7] = { 0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 9 };
    return threshold(v, at, rocmfp4_values, 7);
}

static int level_fp3(float v)
{
    static const float at[3] = { 0.5f, 1.5f, 3 };
    return threshold(v, at, rocmfp3_values, 3);
}

static int level_fp2(float v)
{
    return v <= -0.5f ? -1 : v <= 0.5f ? 0 : v <= 1.5f ? 1 : 2;
}

static int level_fp6(float v)
{
    return round_away_to(v, 31);
}

static int level_fp8(float v)
{
    return round_away_to(v, 127);
}

/* The byte of the scale nearest to v, the lower one of two. */
static int nearest_scale(float v)
{
    int low = 0, high = 0x7e;
    while (high - low > 1) {
        int mid = (low + high) / 2;
        if (ue4m3_half((uint8_t)mid) <= v) low = mid;
        else high = mid;
    }
    return v - ue4m3_half((uint8_t)low) <= ue4m3_half((uint8_t)high) - v ? low : high;
}

/* Error of a group under scale byte e; stops where it exceeds `enough`. */
static float error_of(const struct kind *k, const float *x, const float *w, int e, float enough)
{
    float scale = ue4m3_half((uint8_t)e), inv = 1 / scale, sum = 0;
    for (int i = 0; i < k->group && sum <= enough; i++) {
        float diff = x[i] - scale * (float)k->level(x[i] * inv);
        sum += w ? w[i] * diff * diff : diff * diff;
    }
    return sum;
}

/* The scale byte of a group; w may be NULL. */
static uint8_t search_scale(const struct kind *k, const float *x, const float *w)
{
    float amax = 0, heavy = 1;
    for (int i = 0; i < k->group; i++)
        if (fabsf(x[i]) > amax) amax = fabsf(x[i]), heavy = w ? w[i] : 1;
    if (amax == 0) return 0;
    int start = nearest_scale(amax / (float)k->top), best = 0;
    if (start < 1) start = 1;
    if (k->fit && !w) return (uint8_t)start;
    float least = INFINITY;
    bool down = true;
    for (int delta = 0; delta <= 125; delta++) {
        int low = start - delta, high = start + delta;
        if (down && low >= 1) {
            float clip = amax - (float)k->top * ue4m3_half((uint8_t)low);
            down = !(clip > 0 && heavy * clip * clip > least);
            float error = down ? error_of(k, x, w, low, least) : INFINITY;
            if (error <= least) least = error, best = low;
        }
        if (delta > 0 && high <= 0x7e) {
            float error = error_of(k, x, w, high, least);
            if (error < least) least = error, best = high;
        }
    }
    return (uint8_t)(best ? best : start);
}

/* Chooses scales e[32 / group] and levels of a block. */
static void block_levels(const struct kind *k, const float *src, const float *im, float mean_sq,
                         uint8_t *e, int level[32])
{
    float x[32], w[32];
    for (int i = 0; i < 32; i++) {
        bool fine = isfinite(src[i]);
        x[i] = fine ? src[i] : 0;
        w[i] = 0;
        if (!im || !fine || !(im[i] > 0) || !isfinite(im[i])) continue;
        w[i] = im[i] * sqrtf(mean_sq + x[i] * x[i]);
        if (!(w[i] <= FLT_MAX)) w[i] = FLT_MAX;
    }
    for (int at = 0; at < 32; at += k->group) {
        uint8_t byte = search_scale(k, x + at, im ? w + at : NULL);
        float inv = inverse(ue4m3_half(byte));
        e[at / k->group] = byte;
        for (int i = at; i < at + k->group; i++) level[i] = k->level(x[i] * inv);
    }
}

static float row_mean_sq(const float *x, int64_t n, const float *importance)
{
    return importance ? search_sum_sq(n, x) / (float)n : 0;
}

/* Code of a level in a table of magnitudes with the sign as the bit `sign`. */
static uint8_t sign_magnitude(int level, const int8_t *magnitude, int sign)
{
    int code = 0;
    while (magnitude[code] != abs(level)) code++;
    return (uint8_t)(level < 0 ? code | sign : code);
}

/* Writes 32 codes of `bits` bits as a little-endian bit string. */
static void pack_bits(const uint8_t *codes, int bits, uint8_t *qs)
{
    memset(qs, 0, (size_t)(4 * bits));
    for (int i = 0; i < 32; i++)
        for (int j = 0; j < bits; j++)
            qs[(bits * i + j) / 8] |= (uint8_t)((codes[i] >> j & 1) << (bits * i + j) % 8);
}

static void pack_fp4(const int level[32], uint8_t qs[16])
{
    for (int i = 0; i < 16; i++)
        qs[i] = (uint8_t)(sign_magnitude(level[i], rocmfp4_values, 8) |
                          sign_magnitude(level[i + 16], rocmfp4_values, 8) << 4);
}

void rocmfp4_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    static const struct kind kind = { .top = 10, .group = 16, .level = level_fp4 };
    struct block_rocmfp4 *b = dst;
    float mean_sq = row_mean_sq(src, n, importance);
    for (int64_t i = 0; i < n / 32; i++, b++) {
        int level[32];
        block_levels(&kind, src + 32 * i, importance ? importance + 32 * i : NULL, mean_sq, b->e,
                     level);
        pack_fp4(level, b->qs);
    }
}

void rocmfp4_fast_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    static const struct kind kind = { .top = 10, .group = 32, .level = level_fp4 };
    struct block_rocmfp4_fast *b = dst;
    float mean_sq = row_mean_sq(src, n, importance);
    for (int64_t i = 0; i < n / 32; i++, b++) {
        int level[32];
        block_levels(&kind, src + 32 * i, importance ? importance + 32 * i : NULL, mean_sq, &b->e,
                     level);
        pack_fp4(level, b->qs);
    }
}

void rocmfp6_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    static const struct kind kind = { .top = 31, .group = 16, .level = level_fp6 };
    struct block_rocmfp6 *b = dst;
    float mean_sq = row_mean_sq(src, n, importance);
    for (int64_t i = 0; i < n / 32; i++, b++) {
        int level[32];
        uint8_t codes[32];
        block_levels(&kind, src + 32 * i, importance ? importance + 32 * i : NULL, mean_sq, b->e,
                     level);
        for (int j = 0; j < 32; j++) codes[j] = (uint8_t)(level[j] < 0 ? 32 | -level[j] : level[j]);
        pack_bits(codes, 6, b->qs);
    }
}

void rocmfp8_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    static const struct kind kind = { .top = 127, .group = 32, .level = level_fp8, .fit = true };
    struct block_rocmfp8 *b = dst;
    float mean_sq = row_mean_sq(src, n, importance);
    for (int64_t i = 0; i < n / 32; i++, b++) {
        int level[32];
        block_levels(&kind, src + 32 * i, importance ? importance + 32 * i : NULL, mean_sq, &b->e,
                     level);
        for (int j = 0; j < 32; j++) b->qs[j] = (int8_t)level[j];
    }
}

void rocmfp3_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    static const struct kind kind = { .top = 4, .group = 16, .level = level_fp3 };
    struct block_rocmfp3 *b = dst;
    float mean_sq = row_mean_sq(src, n, importance);
    for (int64_t i = 0; i < n / 32; i++, b++) {
        int level[32];
        uint8_t codes[32];
        block_levels(&kind, src + 32 * i, importance ? importance + 32 * i : NULL, mean_sq, b->e,
                     level);
        for (int j = 0; j < 32; j++) codes[j] = sign_magnitude(level[j], rocmfp3_values, 4);
        pack_bits(codes, 3, b->qs);
    }
}

void rocmfp2_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    static const struct kind kind = { .top = 2, .group = 16, .level = level_fp2 };
    struct block_rocmfp2 *b = dst;
    float mean_sq = row_mean_sq(src, n, importance);
    for (int64_t i = 0; i < n / 32; i++, b++) {
        int level[32];
        uint8_t codes[32];
        block_levels(&kind, src + 32 * i, importance ? importance + 32 * i : NULL, mean_sq, b->e,
                     level);
        for (int j = 0; j < 32; j++) codes[j] = (uint8_t)(level[j] + 1);
        pack_bits(codes, 2, b->qs);
    }
}

enum rocmfp2_reading rocmfp2_guess(const void *src, int64_t n)
{
    const struct block_rocmfp2 *b = src;
    int64_t total = 0, even = 0, wide = 0;
    for (int64_t k = 0; k < n / 32; k++, b++) {
        if ((b->e[0] | b->e[1]) & 0x80) return ROCMFP2_TWO_SCALES; /* only there it has a meaning */
        float first = ue4m3_half(b->e[0]), second = ue4m3_half(b->e[1]);
        if (first == 0 || second == 0) continue;
        total++;
        even += second < 1.15f * first;
        wide += second > 1.35f * first;
    }
    if (2 * even > total) return ROCMFP2_TWO_SCALES;
    return 2 * wide > total ? ROCMFP2_SCALE_OFFSET : ROCMFP2_UNCLEAR;
}
