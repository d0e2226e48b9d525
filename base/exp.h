/* base/exp.h - exp in steps that compilers turn to vectors, with the same bits in any of them. */
#ifndef LUCE_BASE_EXP_H
#define LUCE_BASE_EXP_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/inline.h"

INLINE uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

INLINE float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* `is` where `when` holds, else x. By masks: compilers make a branch of a choice here, and with vectors both of its
 * sides and the rest of exp for each. */
INLINE float instead(float x, bool when, float is)
{
    uint32_t mask = 0u - (uint32_t)when;
    return float_of((bits_of(x) & ~mask) | (bits_of(is) & mask));
}

/* exp with a relative error below 2e-7; NaN stays NaN. Range reduction by ln 2 in two parts, a
 * polynomial of degree 6 (the coefficients of Moshier's Cephes library). Exactly 1 at 0. Below -87 and
 * above 88 the argument is clamped. */
INLINE float exp_f32(float x)
{
    const float round = 12582912.0f;            /* 1.5 * 2^23: adding it rounds to an integer */
    float c = instead(instead(x, x < -87.0f, -87.0f), x > 88.0f, 88.0f);
    float t = c * 1.44269504f + round;
    float n = t - round;
    float r = c - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * r) * r + r;
    p = p + 1.0f;
    return float_of(bits_of(p) + (bits_of(t) << 23));
}

#endif
