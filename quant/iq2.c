/* quant/iq2.c - IQ2_XXS, IQ2_XS, IQ2_S: groups of 8 magnitudes (8, 25, 43) from a grid, with signs.
 * value = d * (0.5 + scale) / 4 * magnitude * sign; scales of 4 bits per 32 (XXS) or 16 elements.
 * XXS and XS code 8 signs in 7 bits (an even number of negatives), S has all 8. */
#include "quant/grids.h"
#include "quant/iq_encode.h"
#include "quant/rows.h"

static inline void point(float *dst, float d, unsigned code, unsigned signs)
{
    static const int8_t magnitude[4] = { 8, 25, 43, 0 };
    for (int j = 0; j < 8; j++) {
        int m = magnitude[code >> 2 * j & 3];
        dst[j] = d * (float)(signs >> j & 1 ? -m : m);
    }
}

static void iq2_xxs_decode(const void *src, float *dst, int64_t n)
{
    const struct block_iq2_xxs *b = src;
    for (int64_t k = 0; k < n / QK; k++, b++, dst += QK) {
        float d = f16_to_f32(b->d);
        for (int ib = 0; ib < 8; ib++) {
            uint32_t index = b->qs[2 * ib], rest = b->qs[2 * ib + 1];
            float db = d * (0.5f + (float)(rest >> 28)) * 0.25f;
            for (int l = 0; l < 4; l++)
                point(dst + 32 * ib + 8 * l, db, iq2_xxs_grid[index >> 8 * l & 255],
                      iq_signs(rest >> 7 * l & 127));
        }
    }
}

/* Scale of group g (8 elements) of XS and S: two groups share a nibble. */
static inline float group_scale(float d, const uint8_t scales[8], int g)
{
    return d * (0.5f + (float)(scales[g / 4] >> (g % 4 < 2 ? 0 : 4) & 15)) * 0.25f;
}

static void iq2_xs_decode(const void *src, float *dst, int64_t n)
{
    const struct block_iq2_xs *b = src;
    for (int64_t k = 0; k < n / QK; k++, b++, dst += QK) {
        float d = f16_to_f32(b->d);
        for (int g = 0; g < 32; g++) {
            unsigned q = b->qs[g];
            point(dst + 8 * g, group_scale(d, b->scales, g), iq2_xs_grid[q & 511],
                  iq_signs(q >> 9));
        }
    }
}

static void iq2_s_decode(const void *src, float *dst, int64_t n)
{
    const struct block_iq2_s *b = src;
    for (int64_t k = 0; k < n / QK; k++, b++, dst += QK) {
        float d = f16_to_f32(b->d);
        for (int g = 0; g < 32; g++) {
            unsigned index = b->qs[g] | (b->qh[g / 4] >> 2 * (g % 4) & 3u) << 8;
            point(dst + 8 * g, group_scale(d, b->scales, g), iq2_s_grid[index], b->signs[g]);
        }
    }
}

VALID_HALVES(iq2_xxs_valid, QK, block_iq2_xxs, d, d)
VALID_HALVES(iq2_xs_valid, QK, block_iq2_xs, d, d)
VALID_HALVES(iq2_s_valid, QK, block_iq2_s, d, d)

const struct format format_iq2_xxs = {
    .id = Q_IQ2_XXS,
    .name = "iq2_xxs",
    .doc = "2.06 bits, grid of 256, 4-bit scale per 32",
    .block = QK,
    .bytes = sizeof(struct block_iq2_xxs),
    .decode = iq2_xxs_decode,
    .encode = iq2_xxs_encode,
    .valid = iq2_xxs_valid,
    .needs_importance = true,
};
const struct format format_iq2_xs = {
    .id = Q_IQ2_XS,
    .name = "iq2_xs",
    .doc = "2.3 bits, grid of 512, 4-bit scale per 16",
    .block = QK,
    .bytes = sizeof(struct block_iq2_xs),
    .decode = iq2_xs_decode,
    .encode = iq2_xs_encode,
    .valid = iq2_xs_valid,
    .needs_importance = true,
};
const struct format format_iq2_s = {
    .id = Q_IQ2_S,
    .name = "iq2_s",
    .doc = "2.6 bits, grid of 1024, 4-bit scale per 16",
    .block = QK,
    .bytes = sizeof(struct block_iq2_s),
    .decode = iq2_s_decode,
    .encode = iq2_s_encode,
    .valid = iq2_s_valid,
};
