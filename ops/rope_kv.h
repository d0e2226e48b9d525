/* ops/rope_kv.h - what the references of QKV and ROPE_KV share. */
#ifndef LUCE_OPS_ROPE_KV_H
#define LUCE_OPS_ROPE_KV_H

#include "ops/ops.h"

static inline int rope_q_stride(const struct rope_kv_attr *a)
{
    return a->q_stride ? a->q_stride : a->head_dim;
}
/* Which of a row's rotary positions turns pair i. */
static inline int rope_axis(const struct rope_kv_attr *a, int i)
{
    for (int axis = 1; axis < 3; axis++)
        if (i % 3 == axis && i < 3 * a->sections[axis - 1]) return axis;
    return 0;
}
/* Carries out the commits of all sequences in the call's layer. */
void rope_kv_commit(const struct ref_args *a);
/* Norms and rotates the row x (q, k, v side by side; changed), writes q and the layer's k and v. */
void rope_kv_row(const struct ref_args *a, const struct rope_kv_attr *p, int row, double *x, double *q);
void rope_kv_print(const struct rope_kv_attr *p, struct buf *out);

#endif
