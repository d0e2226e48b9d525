/* ops/norm.c - NORM: y[r][i] = x[r][i] * w[i] / sqrt(mean_i(x[r][i]^2) + eps) (+ residual[r][i])
 * x, residual, y [rows, cols] f32, w [cols] f32. Rows do not see each other.
 * Zhang & Sennrich 2019, "Root Mean Square Layer Normalization". */
#include "ops/cases.h"
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

static struct val record_case(struct case_env *env, const struct op_case *c)
{
    struct val x = case_input(env, DOM_ROWS, c->p[0], 3);
    struct val residual = c->p[1] ? case_input(env, DOM_ROWS, c->p[0], 1) : (struct val){ 0 };
    return op_norm_add(case_tape(env), x, case_weight(env, c->p[0], 0, 1, 0.3f), 1e-6f, residual);
}

/* What most norms are for: the input of products, which a device may let them make, of two formats, and in f32 as well
 * where the output has as many columns. */
static struct val record_products(struct case_env *env, const struct op_case *c)
{
    int cols = c->p[0], out = c->p[1];
    struct tape *t = case_tape(env);
    struct val y = op_norm(t, case_input(env, DOM_ROWS, cols, 3), case_weight(env, cols, 0, 1, 0.3f), 1e-6f);
    struct val a = op_linear(t, y, case_weight(env, cols, out, 0, 0.05f), NULL);
    if (out == cols) a = op_add(t, a, y);
    return op_linear_add(t, y, case_weight_f32(env, cols, out, 0, 0.05f), NULL, a);
}

/* Between products, in a stream of residuals that grows: what a device may spread over them. */
static struct val record_stream(struct case_env *env, const struct op_case *c)
{
    int cols = c->p[0], out = c->p[1];
    struct tape *t = case_tape(env);
    struct val x = case_input(env, DOM_ROWS, cols, 0.1f);
    struct val y = op_norm(t, x, case_weight(env, cols, 0, 1, 0.3f), 1e-6f);
    x = op_linear_add(t, y, case_weight(env, cols, cols, 0, 0.5f), case_weight(env, cols, 0, 0, 0.5f), x);
    y = op_norm(t, x, case_weight(env, cols, 0, 1, 0.3f), 1e-6f);
    y = op_glu(t, y, case_weight(env, cols, out, 0, 0.05f), case_weight(env, cols, out, 0, 0.05f), ACT_SILU);
    x = op_linear_add(t, y, case_weight(env, out, cols, 0, 0.05f), NULL, x);
    y = op_norm(t, x, case_weight(env, cols, 0, 1, 0.3f), 1e-6f);
    struct val other = op_norm(t, x, case_weight(env, cols, 0, 1, 0.3f), 1e-5f);    /* of the same row */
    x = op_linear_add(t, y, case_weight(env, cols, cols, 0, 0.05f), NULL, x);
    return op_linear_add(t, other, case_weight(env, cols, cols, 0, 0.05f), NULL, x);
}

static void cases(struct case_list *l)
{
    static const int streams[][2] = { { 256, 512 }, { 36, 64 }, { 1100, 192 } };
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < CASE_WIDTHS && case_widths[j] <= NARROW_ROWS; j++)
            case_add(l, &(struct op_case){ .n_rows = case_widths[j], .p = { streams[i][0], streams[i][1] },
                                           .each_format = i == 0 && j == 5, .record = record_stream,
                                           .label = "between products" });
    static const int products[][2] = { { 4, 17 }, { 36, 36 }, { 2084, 130 }, { 256, 256 }, { 768, 300 }, { 5120, 40 },
                                       { 6144, 17 } };
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < 2; j++)
            case_add(l, &(struct op_case){ .n_rows = case_widths[j], .p = { products[i][0], products[i][1] },
                                           .each_format = i > 2, .record = record_products, .label = "into products" });
    static const int cols[] = { 1, 31, 64, 576, 5120 };
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < CASE_WIDTHS; j++) {
            int n = case_widths[j];
            case_add(l, &(struct op_case){ .n_rows = n, .wide = n > NARROW_ROWS, .p = { cols[i], (i + j) % 2 },
                                           .record = record_case, .label = "" });
        }
}

const struct op_def op_def_norm = { .name = "norm", .reference = reference, .cases = cases, .print = print };
