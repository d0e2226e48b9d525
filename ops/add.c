/* ops/add.c - ADD: y = a + b, element by element; all [rows, cols] f32 of one domain. */
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"

struct val op_add(struct tape *t, struct val a, struct val b)
{
    if (!record_input(t, "add", a, "a") || !record_input(t, "add", b, "b")) return (struct val){ 0 };
    struct shape s = tape_shape(t, a);
    if (!record_same(t, "add", b, s)) return (struct val){ 0 };
    return op_push(t, &(struct call){ .op = OP_ADD, .layer = -1, .n_in = 2, .in = { a, b }, .n_out = 1,
                                      .shape = { s } });
}

static void reference(const struct ref_args *a)
{
    size_t n = (size_t)a->rows * (size_t)a->out_cols[0];
    for (size_t i = 0; i < n; i++) a->y[0][i] = a->x[0][i] + a->x[1][i];
}

static struct val record_case(struct case_env *env, const struct op_case *c)
{
    struct val a = case_input(env, DOM_ROWS, c->p[0], 1);
    return op_add(case_tape(env), a, case_input(env, DOM_ROWS, c->p[0], 1));
}

static void cases(struct case_list *l)
{
    static const int cols[] = { 1, 31, 576 };
    for (int i = 0; i < 3; i++)
        for (int j = i; j < CASE_WIDTHS; j += 2) {
            int n = case_widths[j];
            case_add(l, &(struct op_case){ .n_rows = n, .wide = n > NARROW_ROWS, .p = { cols[i] },
                                           .record = record_case, .label = "" });
        }
}

const struct op_def op_def_add = { .name = "add", .reference = reference, .cases = cases };
