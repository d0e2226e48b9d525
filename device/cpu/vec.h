/* device/cpu/vec.h - 16 f32 lanes in plain C, for the op bodies that are compiled once per instruction
 * set (kernels.c, kernels_avx2.c, kernels_avx512.c). Products and sums are separate operations, so the
 * compiler may use any vector unit and gives the same bits. */
#ifndef LUCE_DEVICE_CPU_VEC_H
#define LUCE_DEVICE_CPU_VEC_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/exp.h"
#include "device/cpu/cpu.h"

/* Lanes combined as a tree: 8 apart, 4, 2, 1. */
INLINE float tree_sum(const float v[LANES])
{
    float s[8];
    for (int i = 0; i < 8; i++) s[i] = v[i] + v[i + 8];
    for (int i = 0; i < 4; i++) s[i] += s[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
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
