/* device/cpu/vec.h - 16 f32 lanes in plain C, for the op bodies that are compiled once per instruction
 * set (kernels.c, kernels_avx2.c, kernels_avx512.c). Products and sums are separate operations, so the
 * compiler may use any vector unit and gives the same bits. */
#ifndef LUCE_DEVICE_CPU_VEC_H
#define LUCE_DEVICE_CPU_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/inline.h"

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

/* Lanes combined as a tree: 8 apart, 4, 2, 1. */
INLINE float tree_sum(const float v[LANES])
{
    float s[8];
    for (int i = 0; i < 8; i++) s[i] = v[i] + v[i + 8];
    for (int i = 0; i < 4; i++) s[i] += s[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/* exp with a relative error below 2e-7; NaN stays NaN. Range reduction by ln 2 in two parts, a
 * polynomial of degree 6 (the coefficients of Moshier's Cephes library). Exactly 1 at 0. Below -87 and
 * above 88 the argument is clamped. */
INLINE float exp_f32(float x)
{
    const float round = 12582912.0f;            /* 1.5 * 2^23: adding it rounds to an integer */
    float c = x < -87.0f ? -87.0f : x;
    c = c > 88.0f ? 88.0f : c;
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

INLINE float tanh_f32(float x)
{
    return 1.0f - 2.0f / (exp_f32(2.0f * x) + 1.0f);
}

INLINE float silu_f32(float x)
{
    return x / (1.0f + exp_f32(-x));
}

/* x / 2 * (1 + tanh u), written so that nothing cancels where tanh u is near -1. */
INLINE float gelu_tanh_f32(float x)
{
    float u = 0.7978845608f * (x + 0.044715f * (x * x * x));
    return x / (1.0f + exp_f32(-2.0f * u));
}

#endif
