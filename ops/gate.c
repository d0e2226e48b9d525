/* ops/gate.c - GATE: y[r][i] = act(x[r][i]) * x[r][n + i]
 * x [rows, 2 n] f32, y [rows, n] f32. silu(z) = z / (1 + exp(-z));
 * gelu_tanh(z) = z / 2 * (1 + tanh(sqrt(2 / pi) * (z + 0.044715 z^3))). */
#include "ops/record.h"
#include "ops/ref.h"

struct val op_gate(struct tape *t, struct val x, enum act act)
{
    if (!record_input(t, "gate", x, "x")) return (struct val){ 0 };
    struct shape s = tape_shape(t, x);
    if (s.cols % 2) return tape_fail(t, "gate: x has %d columns, must be even", s.cols);
    s.cols /= 2;
    struct gate_attr a = { .act = act };
    return op_push(t, &(struct call){ .op = OP_GATE, .layer = -1, .n_in = 1, .in = { x }, .n_out = 1,
                                      .attr = &a, .attr_size = sizeof a, .shape = { s } });
}

static void reference(const struct ref_args *a)
{
    const struct gate_attr *p = a->call->attr;
    size_t n = (size_t)a->out_cols[0];
    for (size_t r = 0; r < (size_t)a->rows; r++) {
        const double *x = a->x[0] + r * 2 * n;
        for (size_t i = 0; i < n; i++) a->y[0][r * n + i] = ref_act(p->act, x[i]) * x[n + i];
    }
}

static void print(const void *attr, struct buf *out)
{
    const struct gate_attr *p = attr;
    buf_add_text(out, act_name(p->act));
}

const struct op_def op_def_gate = { .name = "gate", .doc = "act(left half) * right half",
                                    .reference = reference, .print = print };
