/* device/cpu/lanes_neon.h - lanes_portable.h with NEON of AArch64. */
#ifndef LUCE_DEVICE_CPU_LANES_NEON_H
#define LUCE_DEVICE_CPU_LANES_NEON_H

#include "device/cpu/port.h"
#include "device/cpu/vec.h"

typedef struct {
    float32x4_t at[4];
} v16;
#define BLOCK 4

#define EACH_PART(expression)                                                             \
    v16 y;                                                                                \
    for (int i = 0; i < 4; i++) y.at[i] = expression;                                     \
    return y

INLINE v16 v_load(const float *p)
{
    EACH_PART(vld1q_f32(p + 4 * i));
}
INLINE void v_store(float *p, v16 v)
{
    for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, v.at[i]);
}
INLINE v16 v_all(float x)
{
    EACH_PART(vdupq_n_f32(x));
}
INLINE v16 v_add(v16 a, v16 b)
{
    EACH_PART(vaddq_f32(a.at[i], b.at[i]));
}
INLINE v16 v_max(v16 a, v16 b)
{
    EACH_PART(vbslq_f32(vcgtq_f32(a.at[i], b.at[i]), a.at[i], b.at[i]));
}
INLINE v16 v_select(uint16_t bits, v16 a, v16 b)
{
    static const uint32_t bit[4] = { 1, 2, 4, 8 };
    EACH_PART(vbslq_f32(vtstq_u32(vdupq_n_u32((uint32_t)bits >> 4 * i), vld1q_u32(bit)), a.at[i], b.at[i]));
}
INLINE v16 v_mul(v16 a, v16 b)
{
    EACH_PART(vmulq_f32(a.at[i], b.at[i]));
}
INLINE v16 v_fma(v16 a, v16 b, v16 c)
{
    EACH_PART(vfmaq_f32(c.at[i], a.at[i], b.at[i]));
}
INLINE v16 v_from_f16(const uint8_t *p)
{
    EACH_PART(vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * i))));
}
INLINE v16 v_from_i8(const uint8_t *p)
{
    int8x16_t v = vreinterpretq_s8_u8(vld1q_u8(p));
    int16x8_t half[2] = { vmovl_s8(vget_low_s8(v)), vmovl_s8(vget_high_s8(v)) };
    EACH_PART(vcvtq_f32_s32(vmovl_s16(i % 2 ? vget_high_s16(half[i / 2]) : vget_low_s16(half[i / 2]))));
}
INLINE void v_to_f16(uint8_t *p, v16 v)
{
    for (int i = 0; i < 4; i++) vst1_u8(p + 8 * i, vreinterpret_u8_f16(vcvt_f16_f32(v.at[i])));
}
#undef EACH_PART

#include "device/cpu/turn.h"

#endif
