/* ops/take.c - TAKE: y[o] = x[out[o].row], the rows whose logits are wanted.
 * x [rows, cols] f32, y [out rows, cols] f32. */
#include <string.h>

#include "ops/record.h"
#include "ops/ref.h"

struct val op_take(struct tape *t, struct val x)
{
    if (!record_input(t, "take", x, "x")) return (struct val){ 0 };
    struct shape s = tape_shape(t, x);
    if (s.rows != DOM_ROWS) return tape_fail(t, "take: x has no rows of the step (domain %d)", (int)s.rows);
    s.rows = DOM_OUT;
    return op_push(t, &(struct call){ .op = OP_TAKE, .layer = -1, .n_in = 1, .in = { x }, .n_out = 1,
                                      .shape = { s } });
}

static void reference(const struct ref_args *a)
{
    size_t cols = (size_t)a->out_cols[0];
    for (int o = 0; o < a->rows; o++)
        memcpy(a->y[0] + (size_t)o * cols, a->x[0] + (size_t)a->step->out[o].row * cols, cols * sizeof(double));
}

const struct op_def op_def_take = { .name = "take", .doc = "the rows whose logits are wanted",
                                    .reference = reference };
