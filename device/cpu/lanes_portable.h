/* device/cpu/lanes_portable.h - 16 f32 lanes in plain C: the meaning of lanes_avx2.h and
 * lanes_avx512.h, which give the same bits. The op bodies (table.h) are written with them. */
#ifndef LUCE_DEVICE_CPU_LANES_PORTABLE_H
#define LUCE_DEVICE_CPU_LANES_PORTABLE_H

#include "device/cpu/vec.h"

typedef struct {
    float at[LANES];
} v16;
/* attn.h says what they are. */
enum { BLOCK = 4, TALL = 4, FULL_AS = 3, HALF_AS = 1, DELTA_BLOCKS = 1 };

#define EACH_LANE(expression)                                                             \
    v16 y;                                                                                \
    for (int i = 0; i < LANES; i++) y.at[i] = expression;                                 \
    return y

INLINE v16 v_load(const float *p)
{
    v16 y;
    memcpy(y.at, p, sizeof y);
    return y;
}
INLINE void v_store(float *p, v16 v)
{
    memcpy(p, v.at, sizeof v);
}
INLINE v16 v_all(float x)
{
    EACH_LANE(x);
}
INLINE v16 v_add(v16 a, v16 b)
{
    EACH_LANE(a.at[i] + b.at[i]);
}
/* a where a > b, else b: also where one is NaN. */
INLINE v16 v_max(v16 a, v16 b)
{
    EACH_LANE(a.at[i] > b.at[i] ? a.at[i] : b.at[i]);
}
/* Lane i of a where bit i is set, else of b. */
INLINE v16 v_select(uint16_t bits, v16 a, v16 b)
{
    EACH_LANE(bits >> i & 1 ? a.at[i] : b.at[i]);
}
INLINE v16 v_mul(v16 a, v16 b)
{
    EACH_LANE(a.at[i] * b.at[i]);
}
/* a * b + c, rounded once. */
INLINE v16 v_fma(v16 a, v16 b, v16 c)
{
    EACH_LANE(fmaf(a.at[i], b.at[i], c.at[i]));
}
INLINE v16 v_from_f16(const uint8_t *p)
{
    uint16_t h[LANES];
    memcpy(h, p, sizeof h);
    EACH_LANE(f16_to_f32(h[i]));
}
INLINE v16 v_from_i8(const uint8_t *p)
{
    EACH_LANE((float)(int8_t)p[i]);
}
/* The lower (part 0) or upper (1) 4 bits of 16 bytes, less 8. */
INLINE v16 v_from_i4(const uint8_t *p, int part)
{
    EACH_LANE((float)((p[i] >> 4 * part & 15) - 8));
}
INLINE void v_to_f16(uint8_t *p, v16 v)
{
    uint16_t h[LANES];
    for (int i = 0; i < LANES; i++) h[i] = f32_to_f16(v.at[i]);
    memcpy(p, h, sizeof h);
}
INLINE v16 v_from_bf16(const uint8_t *p)
{
    uint16_t h[LANES];
    memcpy(h, p, sizeof h);
    EACH_LANE(float_of((uint32_t)h[i] << 16));
}
/* p[0] in even lanes, p[1] in odd ones. */
INLINE v16 v_pair(const float *p)
{
    EACH_LANE(p[i % 2]);
}
/* Each even lane (part 0) or odd lane (1) in both places. */
INLINE v16 v_double(v16 v, int part)
{
    EACH_LANE(v.at[i / 2 * 2 + part]);
}
/* Lanes of a and b in turn: of the lower (part 0) or the upper 8 (1) of each. */
INLINE v16 v_zip(v16 a, v16 b, int part)
{
    EACH_LANE(i % 2 ? b.at[i / 2 + 8 * part] : a.at[i / 2 + 8 * part]);
}
#undef EACH_LANE

#include "device/cpu/turn.h"

#endif
