/* ops/gate.c - GATE: y[r][i] = act(x[r][i]) * x[r][n + i]
 * x [rows, 2 n] f32, y [rows, n] f32. silu(z) = z / (1 + exp(-z));
 * gelu_tanh(z) = z / 2 * (1 + tanh(sqrt(2 / pi) * (z + 0.044715 z^3))). */
#include "ops/cases.h"
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

static struct val record_case(struct case_env *env, const struct op_case *c)
{
    return op_gate(case_tape(env), case_input(env, DOM_ROWS, 2 * c->p[0], 3), (enum act)c->p[1]);
}

static void cases(struct case_list *l)
{
    static const int cols[] = { 1, 31, 64, 1536 };
    for (int i = 0; i < 4; i++)
        for (int j = i % 2; j < CASE_WIDTHS; j += 2) {
            int n = case_widths[j];
            case_add(l, &(struct op_case){ .n_rows = n, .wide = n > NARROW_ROWS, .p = { cols[i], j / 2 % 2 },
                                           .record = record_case, .label = "" });
        }
}

const struct op_def op_def_gate = { .name = "gate", .reference = reference, .cases = cases, .print = print };
