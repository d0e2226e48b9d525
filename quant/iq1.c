/* quant/iq1.c - IQ1_S and IQ1_M: 8 ternary levels from a grid of 2048 points, shifted by 1/8 up or
 * down. value = d * (2 scale + 1) * (level +- 0.125); scales of 3 bits per 32 (S) or 16 (M). */
#include "quant/grids.h"
#include "quant/iq_encode.h"
#include "quant/rows.h"

/* 8 elements; nib holds index bits 8..10 and, as bit 3, the direction of the shift. */
static inline void point(float *dst, float d, unsigned low, unsigned nib)
{
    unsigned code = iq1_grid[low | (nib & 7) << 8];
    float delta = nib & 8 ? -0.125f : 0.125f;
    for (int j = 0; j < 8; j++) dst[j] = d * ((float)((int)(code >> 2 * j & 3) - 1) + delta);
}

static void iq1_s_decode(const void *src, float *dst, int64_t n)
{
    const struct block_iq1_s *b = src;
    for (int64_t k = 0; k < n / QK; k++, b++, dst += QK) {
        float d = f16_to_f32(b->d);
        for (int ib = 0; ib < 8; ib++) {
            unsigned qh = b->qh[ib];
            float dl = d * (float)(2 * (qh >> 12 & 7) + 1);
            for (int l = 0; l < 4; l++)
                point(dst + 32 * ib + 8 * l, dl, b->qs[4 * ib + l],
                      (qh >> 3 * l & 7) | (qh >> 15) << 3);
        }
    }
}

/* The half scale of IQ1_M lies in the upper nibbles of its four words of scales. */
static inline uint16_t iq1_m_half(const struct block_iq1_m *b)
{
    return (uint16_t)(b->scales[0] >> 12 | (b->scales[1] >> 8 & 0xf0) |
                      (b->scales[2] >> 4 & 0xf00) | (b->scales[3] & 0xf000));
}

static void iq1_m_decode(const void *src, float *dst, int64_t n)
{
    const struct block_iq1_m *b = src;
    for (int64_t k = 0; k < n / QK; k++, b++, dst += QK) {
        float d = f16_to_f32(iq1_m_half(b));
        for (int g = 0; g < 16; g++) {
            float dl = d * (float)(2 * (b->scales[g / 4] >> 3 * (g % 4) & 7) + 1);
            point(dst + 16 * g, dl, b->qs[2 * g], b->qh[g] & 15);
            point(dst + 16 * g + 8, dl, b->qs[2 * g + 1], b->qh[g] >> 4);
        }
    }
}

VALID_HALVES(iq1_s_valid, QK, block_iq1_s, d, d)

static bool iq1_m_valid(const void *src, int64_t n)
{
    const struct block_iq1_m *b = src;
    for (int64_t k = 0; k < n / QK; k++)
        if (!f16_finite(iq1_m_half(b + k))) return false;
    return true;
}

const struct format format_iq1_s = {
    .id = Q_IQ1_S,
    .name = "iq1_s",
    .doc = "1.6 bits, ternary grid, 3-bit scale per 32",
    .block = QK,
    .bytes = sizeof(struct block_iq1_s),
    .decode = iq1_s_decode,
    .encode = iq1_s_encode,
    .valid = iq1_s_valid,
    .needs_importance = true,
};
const struct format format_iq1_m = {
    .id = Q_IQ1_M,
    .name = "iq1_m",
    .doc = "1.75 bits, ternary grid, 3-bit scale per 16",
    .block = QK,
    .bytes = sizeof(struct block_iq1_m),
    .decode = iq1_m_decode,
    .encode = iq1_m_encode,
    .valid = iq1_m_valid,
};
