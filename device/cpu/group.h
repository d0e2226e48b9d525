/* device/cpu/group.h - the numbers that go with a group of 32 activations as int8 (quantise.h). */
#ifndef LUCE_DEVICE_CPU_GROUP_H
#define LUCE_DEVICE_CPU_GROUP_H

#include "base/inline.h"
#include "device/cpu/cpu.h"
#include "device/cpu/vec.h"

/* The scale of a group whose largest magnitude has the bits `top`, and what activations are multiplied by. */
INLINE float group_scale(uint32_t top, float *inverse)
{
    float amax = float_of(top), d = float_of((bits_of(amax / 127.0f) + 2) & ~3u);
    *inverse = d > 0.0f ? 127.0f / amax : 0.0f;
    /* A maximum below 127 times the smallest normal number would overflow the inverse. */
    if (*inverse > 1e37f) *inverse = d = 0.0f;
    return d;
}

INLINE bool group_finite(uint32_t top)
{
    return top < (127u + 112u) << 23;
}

INLINE void group_finish(struct xblock *b, int g, float d, int sum0, int sum1)
{
    b->d[g] = d;
    b->drop[g] = -LIFT * d;
    b->s[g] = d * (float)(sum0 + sum1);
    b->half[2 * g] = (int16_t)sum0;
    b->half[2 * g + 1] = (int16_t)sum1;
    b->start[g] = LIFT_BITS - 128 * (sum0 + sum1);
}

#endif
