/* ops/gated.c - GATED: y[r][h][i] = n(x[r][h])[i] * f(gate[r][at + h * stride + i]) (+ residual[r][h][i])
 * x, y [rows, heads * dim] f32; gate [rows, any] f32. n(z) = z * w / sqrt(mean(z^2) + eps), w [dim] f32; without w
 * n(z) = z. f(z) = 1 / (1 + exp(-z)), or z times that. scalar: one gate a head, gate[r][at + h * stride]. */
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"

struct val op_gated(struct tape *t, struct val x, struct val gate, const struct weight *w,
                    const struct gated_attr *attr, struct val residual)
{
    if (!record_input(t, "gated", x, "x") || !record_input(t, "gated", gate, "gate")) return (struct val){ 0 };
    struct shape s = tape_shape(t, x), g = tape_shape(t, gate);
    int64_t end = (int64_t)attr->at + (int64_t)(attr->heads - 1) * attr->stride + (attr->scalar ? 1 : attr->dim);
    if (attr->heads < 1 || attr->dim < 1 || (int64_t)attr->heads * attr->dim != s.cols)
        return tape_fail(t, "gated: x has %d columns for %d heads of %d", s.cols, attr->heads, attr->dim);
    if (attr->at < 0 || attr->stride < 0 || end > g.cols || g.rows != s.rows)
        return tape_fail(t, "gated: the last gate is column %lld, there are %d", (long long)end - 1, g.cols);
    if (!record_vector(t, "gated", w, (uint64_t)attr->dim) || !record_same(t, "gated", residual, s))
        return (struct val){ 0 };
    return op_push(t, &(struct call){ .op = OP_GATED, .layer = -1, .n_in = residual.id ? 3 : 2,
                                      .in = { x, gate, residual }, .n_w = 1, .w = { w }, .n_out = 1, .attr = attr,
                                      .attr_size = sizeof *attr, .shape = { s } });
}

static void run_head(const struct ref_args *a, const struct gated_attr *p, const double *x, const double *gate,
                     double *y)
{
    double scale = 1, sum = 0;
    for (int i = 0; i < p->dim; i++) sum += x[i] * x[i];
    if (a->call->w[0]) scale = 1 / sqrt(sum / p->dim + p->eps);
    for (int i = 0; i < p->dim; i++) {
        double z = gate[p->scalar ? 0 : i], f = (p->fn == GATE_SILU ? z : 1) / (1 + exp(-z));
        y[i] = x[i] * scale * (a->call->w[0] ? ref_vector_at(a, 0, (uint64_t)i) : 1) * f;
    }
}

static void reference(const struct ref_args *a)
{
    const struct gated_attr *p = a->call->attr;
    for (int r = 0; r < a->rows; r++)
        for (int h = 0; h < p->heads; h++) {
            size_t at = (size_t)r * (size_t)a->cols[0] + (size_t)h * (size_t)p->dim;
            const double *gates = a->x[1] + (size_t)r * (size_t)a->cols[1] + p->at;
            run_head(a, p, a->x[0] + at, gates + (size_t)h * (size_t)p->stride, a->y[0] + at);
            for (int i = 0; a->x[2] && i < p->dim; i++) a->y[0][at + (size_t)i] += a->x[2][at + (size_t)i];
        }
}

static void print(const void *attr, struct buf *out)
{
    const struct gated_attr *p = attr;
    buf_printf(out, "%d heads of %d, %s%s", p->heads, p->dim, p->fn == GATE_SILU ? "silu" : "sigmoid",
               p->scalar ? ", one gate a head" : "");
}

/* p: heads, dim, columns of gate, at, stride, fn, with a norm, scalar and a residual. */
static struct val record_case(struct case_env *env, const struct op_case *c)
{
    struct gated_attr a = { .heads = c->p[0], .dim = c->p[1], .at = c->p[3], .stride = c->p[4],
                            .fn = (enum gate_fn)c->p[5], .scalar = c->p[7], .eps = 1e-6f };
    struct val x = case_input(env, DOM_ROWS, a.heads * a.dim, 2), g = case_input(env, DOM_ROWS, c->p[2], 2);
    return op_gated(case_tape(env), x, g, c->p[6] ? case_weight(env, a.dim, 0, 1, 0.3f) : NULL, &a,
                    a.scalar ? case_input(env, DOM_ROWS, a.heads * a.dim, 2) : (struct val){ 0 });
}

/* The input of a product, which a device may let it make. p[7]: columns of the product. */
static struct val record_product(struct case_env *env, const struct op_case *c)
{
    struct op_case gated = *c;
    gated.p[7] = 0;
    struct val y = record_case(env, &gated);
    return op_linear(case_tape(env), y, case_weight_f32(env, c->p[0] * c->p[1], c->p[7], 0, 0.05f), NULL);
}

static void cases(struct case_list *l)
{
    static const int products[][8] = {
        { 16, 128, 2048, 0, 128, GATE_SILU, 1, 300 }, { 3, 256, 1540, 256, 512, GATE_SIGMOID, 0, 17 },
        { 6, 24, 150, 4, 24, GATE_SILU, 1, 200 }, { 5, 16, 80, 0, 16, GATE_SIGMOID, 1, 3 },
    };
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++) {
            struct op_case c = { .n_rows = case_widths[j], .record = record_product, .label = "into a product" };
            for (int k = 0; k < 8; k++) c.p[k] = products[i][k];
            case_add(l, &c);
        }
    static const int any[][8] = {
        { 16, 128, 2048, 0, 128, GATE_SILU, 1 }, { 4, 256, 2100, 256, 512, GATE_SIGMOID },
        { 3, 31, 93, 0, 31, GATE_SILU },
        { 1, 1024, 1, 0, 0, GATE_SIGMOID, 0, 1 }, { 5, 8, 17, 2, 3, GATE_SIGMOID, 1, 1 },
    };
    for (size_t i = 0; i < sizeof any / sizeof *any; i++)
        for (int j = (int)i % 3; j < CASE_WIDTHS; j += 3) {
            struct op_case c = { .n_rows = case_widths[j], .wide = case_widths[j] > NARROW_ROWS, .record = record_case,
                                 .label = "" };
            for (int k = 0; k < 8; k++) c.p[k] = any[i][k];
            case_add(l, &c);
        }
}

const struct op_def op_def_gated = { .name = "gated", .reference = reference, .cases = cases, .print = print };
