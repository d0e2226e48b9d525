/* ops/norm.c - NORM: y[r][i] = x[r][i] * w[i] / sqrt(mean_i(x[r][i]^2) + eps) (+ residual[r][i])
 * x, residual, y [rows, cols] f32, w [cols] f32. Rows do not see each other.
 * Zhang & Sennrich 2019, "Root Mean Square Layer Normalization". */
#include "ops/record.h"
#include "ops/ref.h"

struct val op_norm_add(struct tape *t, struct val x, const struct weight *w, float eps, struct val residual)
{
    if (!record_input(t, "norm", x, "x")) return (struct val){ 0 };
    if (!w) return tape_fail(t, "norm: the weights are missing");
    struct shape s = tape_shape(t, x);
    if (!record_vector(t, "norm", w, (uint64_t)s.cols) || !record_same(t, "norm", residual, s))
        return (struct val){ 0 };
    struct norm_attr a = { .eps = eps };
    return op_push(t, &(struct call){ .op = OP_NORM, .layer = -1, .n_in = residual.id ? 2 : 1,
                                      .in = { x, residual }, .n_w = 1, .w = { w }, .n_out = 1,
                                      .attr = &a, .attr_size = sizeof a, .shape = { s } });
}

struct val op_norm(struct tape *t, struct val x, const struct weight *w, float eps)
{
    return op_norm_add(t, x, w, eps, (struct val){ 0 });
}

static void reference(const struct ref_args *a)
{
    const struct norm_attr *p = a->call->attr;
    int cols = a->out_cols[0];
    const double *w = ref_weight_row(a, 0, 0);
    for (int r = 0; r < a->rows; r++) {
        const double *x = a->x[0] + (size_t)r * (size_t)cols;
        const double *residual = a->x[1] ? a->x[1] + (size_t)r * (size_t)cols : NULL;
        double *y = a->y[0] + (size_t)r * (size_t)cols, sum = 0;
        for (int i = 0; i < cols; i++) sum += x[i] * x[i];
        double scale = 1 / sqrt(sum / cols + p->eps);
        for (int i = 0; i < cols; i++) y[i] = x[i] * scale * w[i] + (residual ? residual[i] : 0);
    }
}

static void print(const void *attr, struct buf *out)
{
    const struct norm_attr *p = attr;
    buf_printf(out, "eps %g", p->eps);
}

const struct op_def op_def_norm = { .name = "norm", .doc = "x * w / rms(x) (+ residual)",
                                    .reference = reference, .print = print };
