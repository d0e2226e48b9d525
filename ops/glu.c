/* ops/glu.c - GLU: y[r] = act(Wgate x[r]) * (Wup x[r])
 * x [rows, in] f32; Wgate, Wup [in, ff] in any matrix format, or one matrix [in, 2 ff] with the
 * gate's rows first; y [rows, ff] f32. Expands into LINEAR (side by side) and GATE.
 * Shazeer 2020, "GLU Variants Improve Transformer". */
#include "base/mem.h"
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"

struct val op_glu(struct tape *t, struct val x, const struct weight *gate, const struct weight *up, enum act act)
{
    if (!record_input(t, "glu", x, "x")) return (struct val){ 0 };
    struct shape s = tape_shape(t, x);
    if (!record_matrix(t, "glu", up, (uint64_t)s.cols, 0)) return (struct val){ 0 };
    if (up->dim[1] > INT32_MAX / 4)
        return tape_fail(t, "glu: %s has too many rows", up->name);
    if (gate && !record_matrix(t, "glu", gate, (uint64_t)s.cols, up->dim[1])) return (struct val){ 0 };
    if (!gate && up->dim[1] % 2)
        return tape_fail(t, "glu: %s holds gate and up, but has %d rows: must be even", up->name,
                         (int)up->dim[1]);
    struct glu_attr a = { .act = act, .n_mat = gate ? 2 : 1 };
    struct call c = { .op = OP_GLU, .layer = -1, .n_in = 1, .in = { x }, .n_w = a.n_mat, .n_out = 1,
                      .attr = &a, .attr_size = sizeof a };
    c.w[W_GLU_GATE] = gate ? gate : up;
    if (gate) c.w[W_GLU_UP] = up;
    c.shape[0] = (struct shape){ s.rows, DT_F32, (int)(gate ? up->dim[1] : up->dim[1] / 2) };
    return op_push(t, &c);
}

static struct val expand(struct tape *t, const struct call *c)
{
    const struct glu_attr *a = c->attr;
    struct linear_parts p = { .x = c->in[0], .mat = { c->w[0], c->w[1] }, .layer = c->layer,
                              .attr = { .n_mat = a->n_mat } };
    return op_gate(t, record_linear(t, &p), a->act);
}

static void reference(const struct ref_args *a)
{
    const struct glu_attr *p = a->call->attr;
    size_t in = (size_t)a->cols[0], ff = (size_t)a->out_cols[0];
    for (size_t o = 0; o < ff; o++) {
        const double *w = ref_weight_row(a, 0, o);
        for (size_t r = 0; r < (size_t)a->rows; r++)
            a->y[0][r * ff + o] = ref_act(p->act, ref_dot(w, a->x[0] + r * in, in));
        w = p->n_mat == 2 ? ref_weight_row(a, W_GLU_UP, o) : ref_weight_row(a, 0, ff + o);
        for (size_t r = 0; r < (size_t)a->rows; r++)
            a->y[0][r * ff + o] *= ref_dot(w, a->x[0] + r * in, in);
    }
}

static void print(const void *attr, struct buf *out)
{
    const struct glu_attr *p = attr;
    buf_add_text(out, act_name(p->act));
}

/* p: in, ff, act, one matrix. */
static struct val record_case(struct case_env *env, const struct op_case *c)
{
    struct val x = case_input(env, DOM_ROWS, c->p[0], 1);
    const struct weight *gate = c->p[3] ? NULL : case_weight(env, c->p[0], c->p[1], 0, 0.1f);
    const struct weight *up = case_weight(env, c->p[0], c->p[3] ? 2 * c->p[1] : c->p[1], 0, 0.1f);
    return op_glu(case_tape(env), x, gate, up, (enum act)c->p[2]);
}

/* An output is a product of two sums, so few of them hold most of the energy, and blocks of weights repeat: with few
 * rows the error relative to it is sound only over many columns of several blocks. */
static void cases(struct case_list *l)
{
    static const struct { int rows, in, ff; bool one_matrix; } any[] = {
        { 1, 1024, 322, false }, { 2, 768, 128, true }, { 3, 512, 81, false }, { 8, 256, 130, false },
        { 17, 512, 64, true }, { 33, 512, 17, false }, { 65, 256, 130, false }, { 200, 512, 64, true },
    };
    for (size_t i = 0; i < COUNT(any); i++) {
        int n = any[i].rows;
        case_add(l, &(struct op_case){ .n_rows = n, .wide = n > NARROW_ROWS, .each_format = true,
                                       .p = { any[i].in, any[i].ff, i % 2, any[i].one_matrix }, .record = record_case,
                                       .label = any[i].one_matrix ? "one matrix" : "" });
    }
    /* Several strips, and columns enough for several panels of activations. */
    case_add(l, &(struct op_case){ .n_rows = 64, .format = Q_Q4_K, .p = { 1536, 250, ACT_SILU }, .record = record_case,
                                   .label = "" });
    case_add(l, &(struct op_case){ .n_rows = 20, .format = Q_IQ4_XS, .p = { 512, 400, ACT_SILU }, .record = record_case,
                                   .label = "" });
    case_add(l, &(struct op_case){ .n_rows = 5, .p = { 31, 3, ACT_GELU_TANH }, .record = record_case,
                                   .label = "31 columns" });
}

const struct op_def op_def_glu = { .name = "glu", .reference = reference, .cases = cases,
                                   .expand = expand, .print = print };
