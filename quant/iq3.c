/* quant/iq3.c - IQ3_XXS and IQ3_S: groups of 4 magnitudes from a grid, with signs; 4-bit scales per
 * 32 elements. XXS: value = d * (0.5 + scale) / 2 * magnitude * sign, 8 signs in 7 bits (even
 * parity). S: value = d * (1 + 2 scale) * magnitude * sign, every sign has its bit. */
#include "quant/grids.h"
#include "quant/iq_encode.h"
#include "quant/rows.h"

static void iq3_xxs_decode(const void *src, float *dst, int64_t n)
{
    static const int8_t magnitude[8] = { 4, 12, 20, 28, 36, 44, 52, 62 };
    const struct block_iq3_xxs *b = src;
    for (int64_t k = 0; k < n / QK; k++, b++, dst += QK) {
        float d = f16_to_f32(b->d);
        for (int g = 0; g < 32; g++) {           /* 8 elements: two points */
            uint32_t word = b->signs[g / 4];
            float db = d * (0.5f + (float)(word >> 28)) * 0.5f;
            unsigned signs = iq_signs(word >> 7 * (g % 4) & 127);
            uint32_t code = iq3_xxs_grid[b->qs[2 * g]] | (uint32_t)iq3_xxs_grid[b->qs[2 * g + 1]]
                                                             << 12;
            for (int j = 0; j < 8; j++) {
                int m = magnitude[code >> 3 * j & 7];
                dst[8 * g + j] = db * (float)(signs >> j & 1 ? -m : m);
            }
        }
    }
}

static void iq3_s_decode(const void *src, float *dst, int64_t n)
{
    const struct block_iq3_s *b = src;
    for (int64_t k = 0; k < n / QK; k++, b++, dst += QK) {
        float d = f16_to_f32(b->d);
        for (int g = 0; g < 32; g++) {
            int ib = g / 4, t = 2 * g;
            float db = d * (float)(1 + 2 * (b->scales[ib / 2] >> 4 * (ib % 2) & 15));
            unsigned high = (unsigned)b->qh[t / 8] >> t % 8;
            uint32_t code = iq3_s_grid[b->qs[t] | (high & 1) << 8] |
                            (uint32_t)iq3_s_grid[b->qs[t + 1] | (high >> 1 & 1) << 8] << 12;
            for (int j = 0; j < 8; j++) {
                int m = 2 * (int)(code >> 3 * j & 7) + 1;
                dst[8 * g + j] = db * (float)(b->signs[g] >> j & 1 ? -m : m);
            }
        }
    }
}

VALID_HALVES(iq3_xxs_valid, QK, block_iq3_xxs, d, d)
VALID_HALVES(iq3_s_valid, QK, block_iq3_s, d, d)

const struct format format_iq3_xxs = {
    .id = Q_IQ3_XXS,
    .name = "iq3_xxs",
    .doc = "3.06 bits, grid of 256, 4-bit scale per 32",
    .block = QK,
    .bytes = sizeof(struct block_iq3_xxs),
    .decode = iq3_xxs_decode,
    .encode = iq3_xxs_encode,
    .valid = iq3_xxs_valid,
};
const struct format format_iq3_s = {
    .id = Q_IQ3_S, .name = "iq3_s", .doc = "3.4 bits, grid of 512, 4-bit scale per 32", .block = QK,
    .bytes = sizeof(struct block_iq3_s), .decode = iq3_s_decode, .encode = iq3_s_encode,
    .valid = iq3_s_valid,
};
