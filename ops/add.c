/* ops/add.c - ADD: y = a + b, element by element; all [rows, cols] f32 of one domain. */
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

const struct op_def op_def_add = { .name = "add", .doc = "a + b", .reference = reference };
