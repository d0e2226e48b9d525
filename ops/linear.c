/* ops/linear.c - LINEAR: y[r] = W x[r] + b (+ residual[r]), up to 3 W that share x.
 * x [rows, in] f32; W_i [in, out_i] in any matrix format, b_i [out_i] f32 or absent;
 * y [rows, out_0 + out_1 + ...] f32: the products side by side. softcap c: c * tanh(y / c) of
 * W x + b, before the residual. Rows do not see each other. */
#include <assert.h>

#include "base/mem.h"
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"

struct val record_linear(struct tape *t, const struct linear_parts *p)
{
    if (!record_input(t, "linear", p->x, "x")) return (struct val){ 0 };
    struct shape s = tape_shape(t, p->x);
    struct call c = { .op = OP_LINEAR, .layer = p->layer, .n_in = p->residual.id ? 2 : 1,
                      .in = { p->x, p->residual }, .n_w = W_LINEAR_BIAS + p->attr.n_mat, .n_out = 1,
                      .attr = &p->attr, .attr_size = sizeof p->attr };
    uint64_t cols = 0;
    for (int i = 0; i < p->attr.n_mat; i++) {
        if (!record_matrix(t, "linear", p->mat[i], (uint64_t)s.cols, 0) ||
            !record_vector(t, "linear", p->bias[i], p->mat[i]->dim[1]))
            return (struct val){ 0 };
        c.w[W_LINEAR_MAT + i] = p->mat[i];
        c.w[W_LINEAR_BIAS + i] = p->bias[i];
        cols += p->mat[i]->dim[1];
    }
    if (cols > INT32_MAX / 4)
        return tape_fail(t, "linear: %s gives rows of %llu elements, too many", p->mat[0]->name,
                         (unsigned long long)cols);
    c.shape[0] = (struct shape){ s.rows, DT_F32, (int)cols };
    if (!record_same(t, "linear", p->residual, c.shape[0])) return (struct val){ 0 };
    return op_push(t, &c);
}

struct val op_linear_add(struct tape *t, struct val x, const struct weight *w, const struct weight *bias,
                         struct val residual)
{
    return record_linear(t, &(struct linear_parts){ .x = x, .residual = residual, .mat = { w },
                                                    .bias = { bias }, .attr = { .n_mat = 1 }, .layer = -1 });
}

struct val op_linear(struct tape *t, struct val x, const struct weight *w, const struct weight *bias)
{
    return op_linear_add(t, x, w, bias, (struct val){ 0 });
}

struct val op_head(struct tape *t, struct val x, const struct weight *w, float softcap)
{
    return record_linear(t, &(struct linear_parts){ .x = x, .mat = { w }, .layer = -1,
                                                    .attr = { .n_mat = 1, .softcap = softcap } });
}

static void reference(const struct ref_args *a)
{
    const struct linear_attr *p = a->call->attr;
    size_t in = (size_t)a->cols[0], out = (size_t)a->out_cols[0], at = 0;
    assert(p->n_mat <= W_LINEAR_BIAS - W_LINEAR_MAT);
    for (int m = 0; m < p->n_mat; m++) {
        uint64_t n = a->call->w[W_LINEAR_MAT + m]->dim[1];
        for (uint64_t o = 0; o < n; o++, at++) {
            double b = a->call->w[W_LINEAR_BIAS + m] ? ref_vector_at(a, W_LINEAR_BIAS + m, o) : 0;
            const double *w = ref_weight_row(a, W_LINEAR_MAT + m, o);
            for (int r = 0; r < a->rows; r++) {
                double y = ref_dot(w, a->x[0] + (size_t)r * in, in) + b;
                if (p->softcap != 0) y = p->softcap * tanh(y / p->softcap);
                if (a->x[1]) y += a->x[1][(size_t)r * out + at];
                a->y[0][(size_t)r * out + at] = y;
            }
        }
    }
}

static void print(const void *attr, struct buf *out)
{
    const struct linear_attr *p = attr;
    if (p->softcap != 0) buf_printf(out, "softcap %g", p->softcap);
}

/* p: in, out, flags. */
enum { WITH_BIAS = 1, WITH_RESIDUAL = 2, THREE = 4, SOFTCAP = 8 };

static struct val record_case(struct case_env *env, const struct op_case *c)
{
    int flags = c->p[2], n_mat = flags & THREE ? 3 : 1, cols = 0;
    struct linear_parts p = { .x = case_input(env, DOM_ROWS, c->p[0], 1), .layer = -1,
                              .attr = { .n_mat = n_mat, .softcap = flags & SOFTCAP ? 3.0f : 0 } };
    for (int i = 0; i < n_mat; i++) {       /* k and v of a layer are smaller, and of another format */
        int out = i ? (c->p[1] + 1) / 2 : c->p[1];
        p.mat[i] = i == 2 ? case_weight_f32(env, c->p[0], out, 0, 0.05f) : case_weight(env, c->p[0], out, 0, 0.05f);
        /* The error of a product goes by the sizes of its factors: a lone sum near zero would seem wrong. */
        if (flags & WITH_BIAS && i != 1) p.bias[i] = case_weight(env, out, 0, out == 1 ? 8 : 0, 0.5f);
        cols += out;
    }
    if (flags & WITH_RESIDUAL) p.residual = case_input(env, DOM_ROWS, cols, 1);
    return record_linear(case_tape(env), &p);
}

static void cases(struct case_list *l)
{
    static const int any[][3] = { { 256, 17, 0 }, { 512, 64, WITH_BIAS }, { 768, 1, WITH_BIAS | WITH_RESIDUAL },
                                  { 2304, 33, SOFTCAP }, { 256, 130, WITH_BIAS | WITH_RESIDUAL }, { 256, 33, THREE } };
    /* Several strips, and columns enough for several panels of activations. */
    static const struct { int in, out, flags; uint32_t format; } large[] = {
        { 768, 600, WITH_RESIDUAL, Q_Q4_K }, { 2304, 250, WITH_BIAS | WITH_RESIDUAL, Q_IQ4_XS },
        { 2304, 250, 0, Q_F16 }, { 256, 4200, 0, Q_Q8_0 },
    };
    static const int rows[] = { 1, 17, 64 };
    static const int f32[][3] = { { 1, 1, 0 }, { 31, 17, WITH_BIAS }, { 576, 64, WITH_RESIDUAL }, { 5120, 3, 0 } };
    for (int i = 0; i < (int)COUNT(any); i++)
        for (int j = i % 3; j < CASE_WIDTHS; j += 3) {
            int n = case_widths[j];
            case_add(l, &(struct op_case){ .n_rows = n, .wide = n > NARROW_ROWS, .each_format = true,
                                           .p = { any[i][0], any[i][1], any[i][2] }, .record = record_case,
                                           .label = "" });
        }
    for (size_t i = 0; i < COUNT(large); i++)
        for (size_t j = 0; j < COUNT(rows); j++)
            case_add(l, &(struct op_case){ .n_rows = rows[j], .format = large[i].format,
                                           .p = { large[i].in, large[i].out, large[i].flags }, .record = record_case,
                                           .label = "" });
    for (int i = 0; i < 4; i++)
        for (int j = i; j < CASE_WIDTHS; j += 3) {
            int n = case_widths[j];
            case_add(l, &(struct op_case){ .n_rows = n, .wide = n > NARROW_ROWS,
                                           .p = { f32[i][0], f32[i][1], f32[i][2] }, .record = record_case,
                                           .label = "" });
        }
}

const struct op_def op_def_linear = { .name = "linear", .reference = reference, .cases = cases,
                                      .print = print };
