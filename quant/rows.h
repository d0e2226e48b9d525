/* quant/rows.h - what the files of this folder share: checks of scales, rounding, row loops. */
#ifndef LUCE_QUANT_ROWS_H
#define LUCE_QUANT_ROWS_H

#include <math.h>
#include <string.h>

#include "quant/blocks.h"

static inline bool f16_finite(uint16_t h)
{
    return (h & 0x7c00) != 0x7c00;
}
/* True when the half at `offset` of each of `blocks` blocks of `bytes` bytes is finite. */
static inline bool halves_finite(const void *src, int64_t blocks, size_t bytes, size_t offset)
{
    const uint8_t *at = (const uint8_t *)src + offset;
    unsigned bad = 0;
    for (int64_t i = 0; i < blocks; i++, at += bytes) {
        uint16_t h;
        memcpy(&h, at, sizeof h);
        bad |= !f16_finite(h);
    }
    return !bad;
}
/* Defines `static bool name(src, n)`: field_a and field_b of each struct block_x are finite halves.
 * For blocks with one half both are the same field. */
#define VALID_HALVES(name, elements, type, field_a, field_b)           \
    static bool name(const void *src, int64_t n)                       \
    {                                                                  \
        return halves_finite(src, n / (elements), sizeof(struct type), \
                             offsetof(struct type, field_a)) &&        \
               halves_finite(src, n / (elements), sizeof(struct type), \
                             offsetof(struct type, field_b));          \
    }

/* Nearest integer, ties to even, for |v| < 2^22; some integer beyond, and for NaN. */
static inline int round_even(float v)
{
    return (int)(f32_bits(v + 12582912.0f) & 0x7fffff) - 0x400000;
}
static inline int clamp_int(int v, int low, int high)
{
    return v < low ? low : v > high ? high : v;
}
/* v cut to an integer in 0..high; NaN gives 0. */
static inline int trunc_to(float v, int high)
{
    return !(v > 0) ? 0 : v >= (float)high ? high : (int)v;
}
/* v rounded (ties away from zero) to an integer in -high..high; NaN gives 0. */
static inline int round_away_to(float v, int high)
{
    if (!(fabsf(v) < (float)high)) return v >= (float)high ? high : v <= (float)-high ? -high : 0;
    return (int)roundf(v);
}
/* 1 / v, or 0 for 0. */
static inline float inverse(float v)
{
    return v != 0 ? 1.0f / v : 0;
}

#endif
