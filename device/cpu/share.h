/* device/cpu/share.h - how threads share the items of a job (strips of products).
 * Every thread has a part of its own, the same in every step: its caches keep of the weights what they can, where
 * threads have no cache in common too, and what it counts in moves to no other core. It takes a few items at a
 * time off the front. Who is through takes from the ends of the others' parts, so that a thread that is held up
 * delays nobody. */
#ifndef LUCE_DEVICE_CPU_SHARE_H
#define LUCE_DEVICE_CPU_SHARE_H

#include "device/cpu/cpu.h"

struct share {                      /* items [from, to) */
    int from, to;
};

/* What thread `of` has taken of a job: in the low half from the front, in the high half from the end. */
static inline _Atomic uint64_t *share_counter(const struct job *j, const struct run *r, int of)
{
    return j->taken + (size_t)of * r->program->taken_stride;
}

/* Up to `each` items that nobody has taken off the front (own) or the end of thread `of`'s part; false: there are
 * none. A counter may run past the part's size. */
static inline bool share_take(const struct job *j, const struct run *r, int of, bool own, struct share part, int each,
                              struct share *out)
{
    _Atomic uint64_t *counter = share_counter(j, r, of);
    uint64_t was = own ? 0 : atomic_load_explicit(counter, memory_order_relaxed);
    uint64_t size = (uint64_t)(part.to - part.from);
    if ((was & UINT32_MAX) + (was >> 32) >= size) return false;
    was = atomic_fetch_add_explicit(counter, own ? (uint64_t)each : (uint64_t)each << 32, memory_order_relaxed);
    uint64_t front = was & UINT32_MAX, back = was >> 32;
    if (front + back >= size) return false;
    int left = (int)(size - front - back), n = left < each ? left : each;
    if (own) *out = (struct share){ part.from + (int)front, part.from + (int)front + n };
    else *out = (struct share){ part.to - (int)back - n, part.to - (int)back };
    return true;
}

/* The next item of a job whose items are counted from 0 for all threads. */
static inline int share_next(const struct job *j)
{
    return (int)atomic_fetch_add_explicit(j->taken, 1, memory_order_relaxed);
}

#endif
