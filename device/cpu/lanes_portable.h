/* device/cpu/lanes_portable.h - 16 f32 lanes in plain C: the meaning of lanes_avx2.h and
 * lanes_avx512.h, which give the same bits. The op bodies (table.h) are written with them. */
#ifndef LUCE_DEVICE_CPU_LANES_PORTABLE_H
#define LUCE_DEVICE_CPU_LANES_PORTABLE_H

#include "device/cpu/vec.h"

typedef struct {
    float at[LANES];
} v16;
/* Columns of attention at once. */
#define BLOCK 4

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
INLINE void v_to_f16(uint8_t *p, v16 v)
{
    uint16_t h[LANES];
    for (int i = 0; i < LANES; i++) h[i] = f32_to_f16(v.at[i]);
    memcpy(p, h, sizeof h);
}
#undef EACH_LANE

#include "device/cpu/turn.h"

#endif
