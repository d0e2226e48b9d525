/* ops/take.c - TAKE: y[o] = x[out[o].row], the rows whose logits are wanted.
 * x [rows, cols] f32, y [out rows, cols] f32. */
#include <string.h>

#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"
#include "ops/work.h"

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

static struct val record_case(struct case_env *env, const struct op_case *c)
{
    return op_take(case_tape(env), case_input(env, DOM_ROWS, c->p[0], 1));
}

static void cases(struct case_list *l)
{
    static const int cols[] = { 1, 31, 576 };
    for (int i = 0; i < 3; i++)
        for (int j = i; j < CASE_WIDTHS; j += 3) {
            int n = case_widths[j];
            case_add(l, &(struct op_case){ .n_rows = n, .wide = n > NARROW_ROWS, .p = { cols[i] },
                                           .record = record_case, .label = "every other row, from the last" });
        }
}

static struct work work(const struct tape *t, const struct call *c, const struct step *s)
{
    (void)t;
    return (struct work){ .bytes = 2.0 * (double)shape_row_bytes(c->shape[0]) * s->head.n_out };
}

const struct op_def op_def_take = { .name = "take", .reference = reference, .cases = cases, .work = work };
