/* quant/fp4.c - MXFP4 and NVFP4: E2M1 values under byte scales. The levels are kept doubled and the
 * scales halved, so that levels are integers: value = level * half scale.
 * MXFP4: 32 elements, E8M0 scale, nibbles as in Q4_0. NVFP4: 64 elements, UE4M3 scale per 16, each
 * 16 in 8 bytes (low nibbles first); a tensor may have one more f32 scale outside the blocks.
 * Encode: MXFP4's scale is the power of two 2 below the largest value's; NVFP4's is max / 6. Codes
 * are the nearest, the first of several, so -0 never appears. Importance changes nothing. */
#include "quant/rows.h"

const int8_t fp4_values[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

static void mxfp4_decode(const void *src, float *dst, int64_t n)
{
    const struct block_mxfp4 *b = src;
    for (int64_t k = 0; k < n / 32; k++, b++, dst += 32) {
        float d = e8m0_half(b->e);
        for (int i = 0; i < 16; i++) {
            dst[i] = (float)fp4_values[b->qs[i] & 15] * d;
            dst[i + 16] = (float)fp4_values[b->qs[i] >> 4] * d;
        }
    }
}

static int nearest(float x, float d)
{
    int best = 0;
    float least = fabsf((float)fp4_values[0] * d - x);
    for (int i = 1; i < 16; i++) {
        float error = fabsf((float)fp4_values[i] * d - x);
        if (error < least) least = error, best = i;
    }
    return best;
}

static float largest(int n, const float *x)
{
    float amax = 0;
    for (int i = 0; i < n; i++) amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    return amax;
}

static void mxfp4_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    (void)importance;
    struct block_mxfp4 *b = dst;
    for (int64_t k = 0; k < n / 32; k++, b++) {
        const float *x = src + 32 * k;
        float amax = largest(32, x);
        /* The exponent field is floor(log2) + 127; infinity has 255, which is no scale. */
        b->e = (uint8_t)clamp_int((int)(f32_bits(amax) >> 23) - 2, 0, 254);
        float d = e8m0_half(b->e);
        for (int i = 0; i < 16; i++)
            b->qs[i] = (uint8_t)(nearest(x[i], d) | nearest(x[i + 16], d) << 4);
    }
}

static bool mxfp4_valid(const void *src, int64_t n)
{
    const struct block_mxfp4 *b = src;
    for (int64_t k = 0; k < n / 32; k++)
        if (b[k].e == 0xff) return false;
    return true;
}

/* Bit 7 of the scale is ignored. */
static inline float nvfp4_scale(uint8_t byte)
{
    return ue4m3_half(byte & 0x7f);
}

static void nvfp4_decode(const void *src, float *dst, int64_t n)
{
    const struct block_nvfp4 *b = src;
    for (int64_t k = 0; k < n / 64; k++, b++, dst += 64)
        for (int s = 0; s < 4; s++) {
            float d = nvfp4_scale(b->d[s]);
            for (int j = 0; j < 8; j++) {
                dst[16 * s + j] = (float)fp4_values[b->qs[8 * s + j] & 15] * d;
                dst[16 * s + 8 + j] = (float)fp4_values[b->qs[8 * s + j] >> 4] * d;
            }
        }
}

/* UE4M3 byte nearest to v >= 0 (half up), at most 448. */
static uint8_t ue4m3_of(float v)
{
    if (!(v > 0)) return 0;
    if (v >= 448) return 0x7e;
    uint32_t bits = f32_bits(v);
    int exp = (int)(bits >> 23) - 127 + 7;
    if (exp <= 0) {
        int man = trunc_to(v * 512 + 0.5f, 7);
        return (uint8_t)man;
    }
    unsigned code = ((unsigned)exp << 3 | (bits >> 20 & 7)) +
                    (bits >> 19 & 1); /* carries upwards */
    return (uint8_t)(code > 0x7e ? 0x7e : code);
}

static void nvfp4_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    (void)importance;
    struct block_nvfp4 *b = dst;
    for (int64_t k = 0; k < n / 64; k++, b++)
        for (int s = 0; s < 4; s++) {
            const float *x = src + 64 * k + 16 * s;
            b->d[s] = ue4m3_of(largest(16, x) / 6);
            float d = nvfp4_scale(b->d[s]);
            for (int j = 0; j < 8; j++)
                b->qs[8 * s + j] = (uint8_t)(nearest(x[j], d) | nearest(x[j + 8], d) << 4);
        }
}

const struct format format_mxfp4 = {
    .id = Q_MXFP4, .name = "mxfp4", .doc = "E2M1, power-of-two scale per 32", .block = 32,
    .bytes = sizeof(struct block_mxfp4), .decode = mxfp4_decode, .encode = mxfp4_encode,
    .valid = mxfp4_valid,
};
const struct format format_nvfp4 = {
    .id = Q_NVFP4, .name = "nvfp4", .doc = "E2M1, 8-bit float scale per 16", .block = 64,
    .bytes = sizeof(struct block_nvfp4), .decode = nvfp4_decode, .encode = nvfp4_encode,
};
