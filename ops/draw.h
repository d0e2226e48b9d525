/* ops/draw.h - the arithmetic of a draw (SAMPLE), for C and for kernels: the same bits on every device.
 * Weights are whole numbers, so that a sum does not depend on its order. That of the largest logit is 2^40; others are
 * 2^(scale (x - max)) of it, the exponent cut to 20 bits behind the point, 2^f a polynomial (relative error 7e-7 in
 * all, and x in order gives weights in order). Below 2^-40 a weight is 0. */
#ifndef LUCE_OPS_DRAW_H
#define LUCE_OPS_DRAW_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tape/step.h"

/* Each rounded on its own. */
#if defined(LUCE_KERNELS)
#define DRAW_FN __device__ static inline
#define DRAW_SUM(a, b) __fadd_rn(a, b)
#define DRAW_PRODUCT(a, b) __fmul_rn(a, b)
#else
#define DRAW_FN static inline
#define DRAW_SUM(a, b) ((a) + (b))
#define DRAW_PRODUCT(a, b) ((a) * (b))
#endif

#define DRAW_ONE (UINT64_C(1) << 40)

/* A row of logits, and what is added to it (0, or minus infinity: never chosen; NULL: nothing). */
struct draw_row {
    const float *x, *allowed;
    int32_t n;
    float max, scale;           /* the largest that may be chosen; of step_draw */
};
/* What may be drawn: weights of at least `least`, up to column `last` of those with this order, and all before. */
struct draw_cut {
    uint64_t least;
    int32_t order, last;
};
/* What a column counts in a sum: 1, its weight, or 1 if it has the order of the cut. */
enum draw_measure { DRAW_COUNT, DRAW_MASS, DRAW_TIED };

DRAW_FN float draw_value(const struct draw_row *r, int i)
{
    return r->x[i] + (r->allowed ? r->allowed[i] : 0.0f);       /* -0 becomes 0 */
}

/* Integers in the order of the values. */
DRAW_FN int32_t draw_order(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits ^ (bits >> 31 & INT32_MAX);
}

DRAW_FN float draw_value_of(int32_t order)
{
    float x;
    const int32_t bits = order ^ (order >> 31 & INT32_MAX);
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Minus the exponent of two of a weight, 2^20 steps each; at DRAW_END, the most, the weight is 0. */
enum { DRAW_END = 41 << 20 };
DRAW_FN int32_t draw_steps(float x, float max, float scale)
{
    const float t = (max - x) * scale * 0x1p20f;
    return (int32_t)(t < (float)DRAW_END ? t : (float)DRAW_END);
}

DRAW_FN uint64_t draw_weight_of(int32_t steps)
{
    const float f = (float)(-steps & 0xfffff) * 0x1p-20f;
    float p = 0x1.b4d1dep-13f;
    p = DRAW_SUM(DRAW_PRODUCT(p, f), 0x1.4ca4cep-10f);
    p = DRAW_SUM(DRAW_PRODUCT(p, f), 0x1.3c4a8ap-7f);
    p = DRAW_SUM(DRAW_PRODUCT(p, f), 0x1.c69f6ap-5f);
    p = DRAW_SUM(DRAW_PRODUCT(p, f), 0x1.ebfc4p-3f);
    p = DRAW_SUM(DRAW_PRODUCT(p, f), 0x1.62e43p-1f);
    p = DRAW_SUM(DRAW_PRODUCT(p, f), 1.0f);
    return (uint64_t)(int32_t)(p * 0x1p23f) << 17 >> ((steps + 0xfffff) >> 20);
}

DRAW_FN uint64_t draw_weight(float x, float max, float scale)
{
    return draw_weight_of(draw_steps(x, max, scale));
}

/* Larger values first, of equal ones the lower column: a key is larger the earlier its column comes. */
DRAW_FN uint64_t draw_key(int32_t order, int32_t i)
{
    return (uint64_t)((uint32_t)order ^ 0x80000000u) << 32 | (uint32_t)~i;
}
DRAW_FN int32_t draw_key_order(uint64_t key)
{
    return (int32_t)((uint32_t)(key >> 32) ^ 0x80000000u);
}
DRAW_FN int32_t draw_key_column(uint64_t key)
{
    return (int32_t) ~(uint32_t)key;
}

/* The smallest weight that min_p leaves. */
DRAW_FN uint64_t draw_least(float min_p)
{
    if (!(min_p > 0)) return 1;
    const double w = ceil((double)min_p * (double)DRAW_ONE);
    return w < 1 ? 1 : w < (double)DRAW_ONE ? (uint64_t)w : DRAW_ONE;
}

/* True when top_p leaves something out. */
DRAW_FN bool draw_is_top_p(const struct step_draw *d)
{
    return d->top_p > 0 && d->top_p < 1;
}

/* What the first columns must weigh together, of `all`. */
DRAW_FN uint64_t draw_wanted(float top_p, uint64_t all)
{
    const double w = ceil((double)top_p * (double)all);
    const uint64_t n = w < 1 ? 1 : (uint64_t)w;
    return n < all ? n : all;
}

/* The column is drawn up to which the weights, by column, sum to more than this. */
DRAW_FN uint64_t draw_target(double u, uint64_t all)
{
    const uint64_t t = (uint64_t)(u * (double)all);
    return t < all ? t : all - 1;
}

/* Columns go into buckets of 1/64 of an exponent, the heaviest in the first. */
enum { DRAW_BUCKETS = (DRAW_END >> 14) + 1 };
DRAW_FN int draw_bucket(int32_t steps)
{
    return steps >> 14;
}

DRAW_FN bool draw_kept(const struct draw_cut *c, int32_t order, uint64_t weight, int i)
{
    return weight >= c->least && (order > c->order || (order == c->order && i <= c->last));
}

DRAW_FN uint64_t draw_measured(const struct draw_row *r, const struct draw_cut *c, enum draw_measure m, int i)
{
    const float x = draw_value(r, i);
    const int32_t order = draw_order(x);
    const uint64_t w = draw_weight(x, r->max, r->scale);
    const bool counts = draw_kept(c, order, w, i) && (m != DRAW_TIED || order == c->order);
    return !counts ? 0 : m == DRAW_MASS ? w : 1;
}

#endif
