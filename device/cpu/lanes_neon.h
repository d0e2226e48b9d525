/* device/cpu/lanes_neon.h - lanes_portable.h with NEON of AArch64. */
#ifndef LUCE_DEVICE_CPU_LANES_NEON_H
#define LUCE_DEVICE_CPU_LANES_NEON_H

#include "device/cpu/port.h"
#include "device/cpu/vec.h"

typedef struct {
    float32x4_t at[4];
} v16;
enum { BLOCK = 4, TALL = 4, FULL_AS = 3, HALF_AS = 1, DELTA_BLOCKS = 1 };

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
INLINE v16 v_from_bytes(int8x16_t v)
{
    int16x8_t half[2] = { vmovl_s8(vget_low_s8(v)), vmovl_s8(vget_high_s8(v)) };
    EACH_PART(vcvtq_f32_s32(vmovl_s16(i % 2 ? vget_high_s16(half[i / 2]) : vget_low_s16(half[i / 2]))));
}
INLINE v16 v_from_i8(const uint8_t *p)
{
    return v_from_bytes(vreinterpretq_s8_u8(vld1q_u8(p)));
}
INLINE v16 v_from_i4(const uint8_t *p, int part)
{
    uint8x16_t v = vld1q_u8(p);
    v = part ? vshrq_n_u8(v, 4) : vandq_u8(v, vdupq_n_u8(15));
    return v_from_bytes(vsubq_s8(vreinterpretq_s8_u8(v), vdupq_n_s8(8)));
}
INLINE v16 v_from_bf16(const uint8_t *p)
{
    EACH_PART(vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * i)), 16)));
}
INLINE v16 v_pair(const float *p)
{
    EACH_PART(vcombine_f32(vld1_f32(p), vld1_f32(p)));
}
INLINE v16 v_double(v16 v, int part)
{
    EACH_PART(part ? vtrn2q_f32(v.at[i], v.at[i]) : vtrn1q_f32(v.at[i], v.at[i]));
}
INLINE v16 v_zip(v16 a, v16 b, int part)
{
    EACH_PART(i % 2 ? vzip2q_f32(a.at[2 * part + i / 2], b.at[2 * part + i / 2])
                    : vzip1q_f32(a.at[2 * part + i / 2], b.at[2 * part + i / 2]));
}
INLINE void v_to_f16(uint8_t *p, v16 v)
{
    for (int i = 0; i < 4; i++) vst1_u8(p + 8 * i, vreinterpret_u8_f16(vcvt_f16_f32(v.at[i])));
}
#undef EACH_PART

#include "device/cpu/turn.h"

#endif
