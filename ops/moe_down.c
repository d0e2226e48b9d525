/* ops/moe_down.c - MOE_DOWN: y[r] = sum over slots j of w[r][j] * (W_e x[r][j]) (+ residual[r]), e = ids[r][j]
 * x [rows, used, in] f32; ids [rows, used] i32, each below the number of experts; w [rows, used] f32;
 * W [in, out, experts] in any matrix format; y [rows, out] f32. A device adds slot 0 first, then 1, ...,
 * the residual last, so that a row's bits do not depend on which rows share an expert. */
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"
#include "ops/work.h"

struct val op_moe_down(struct tape *t, struct val x, struct val ids, struct val weights, const struct weight *down,
                       struct val residual)
{
    if (!record_input(t, "moe_down", x, "x") || !record_input(t, "moe_down", ids, "ids") ||
        !record_input(t, "moe_down", weights, "weights"))
        return (struct val){ 0 };
    struct shape s = tape_shape(t, x), i = tape_shape(t, ids), w = tape_shape(t, weights);
    if (i.type != DT_I32 || w.type != DT_F32 || i.rows != s.rows || w.rows != s.rows || i.cols != w.cols)
        return tape_fail(t, "moe_down: %d indices and %d weights a row, needs as many", i.cols, w.cols);
    if (s.cols % i.cols) return tape_fail(t, "moe_down: %d columns for %d experts a row", s.cols, i.cols);
    if (!record_matrix(t, "moe_down", down, (uint64_t)(s.cols / i.cols), 0)) return (struct val){ 0 };
    if ((uint64_t)i.cols > down->dim[2] || down->dim[2] > INT16_MAX || down->dim[1] > INT32_MAX / 4)
        return tape_fail(t, "moe_down: a row takes %d experts of %s, which has %d", i.cols, down->name,
                         (int)down->dim[2]);
    struct moe_attr a = { .experts = (int)down->dim[2], .used = i.cols };
    struct call c = { .op = OP_MOE_DOWN, .layer = -1, .n_in = residual.id ? 4 : 3, .in = { x, ids, weights, residual },
                      .n_w = 1, .n_out = 1, .attr = &a, .attr_size = sizeof a,
                      .shape = { { s.rows, DT_F32, (int)down->dim[1] } } };
    c.w[W_MOE_DOWN] = down;
    if (!record_same(t, "moe_down", residual, c.shape[0])) return (struct val){ 0 };
    return op_push(t, &c);
}

static void reference(const struct ref_args *a)
{
    const struct moe_attr *p = a->call->attr;
    size_t used = (size_t)p->used, in = (size_t)a->cols[0] / used, out = (size_t)a->out_cols[0];
    for (size_t i = 0; i < (size_t)a->rows * out; i++) a->y[0][i] = a->x[3] ? a->x[3][i] : 0;
    for (int e = 0; e < p->experts; e++)
        for (size_t o = 0; o < out; o++) {
            const double *w = NULL;                 /* decoded for the first row that chose e */
            for (size_t i = 0; i < (size_t)a->rows * used; i++) {
                if (a->x[1][i] != e) continue;
                if (!w) w = ref_weight_row(a, W_MOE_DOWN, (uint64_t)e * out + o);
                a->y[0][i / used * out + o] += a->x[2][i] * ref_dot(w, a->x[0] + i * in, in);
            }
        }
}

static void print(const void *attr, struct buf *out)
{
    const struct moe_attr *p = attr;
    buf_printf(out, "%d of %d", p->used, p->experts);
}

static struct work work(const struct tape *t, const struct call *c, const struct step *s)
{
    const struct moe_attr *a = c->attr;
    return work_experts(t, c, s, a->experts, a->used);
}

/* p: in, out, experts, used, with a residual. */
static struct val record_case(struct case_env *env, const struct op_case *c)
{
    struct tape *t = case_tape(env);
    struct val x = case_input(env, DOM_ROWS, c->p[0] * c->p[3], 1), z = case_input(env, DOM_ROWS, c->p[2], 1), weights;
    struct route_attr route = { .experts = c->p[2], .used = c->p[3], .normalise = true };
    struct val ids = op_route(t, z, NULL, &route, &weights);
    struct val residual = c->p[4] ? case_input(env, DOM_ROWS, c->p[1], 1) : (struct val){ 0 };
    return op_moe_down(t, x, ids, weights, case_weight_experts(env, c->p[0], c->p[1], c->p[2], 0.1f), residual);
}

static void cases(struct case_list *l)
{
    static const int any[][4] = { { 256, 32, 8, 3 }, { 512, 17, 5, 2 } };
    for (int i = 0; i < 2; i++)
        for (int j = 2 - i; j < CASE_WIDTHS; j += 4) {
            int n = case_widths[j];
            case_add(l, &(struct op_case){ .n_rows = n, .wide = n > NARROW_ROWS, .each_format = true,
                                           .p = { any[i][0], any[i][1], any[i][2], any[i][3], i }, .label = "",
                                           .record = record_case });
        }
    case_add(l, &(struct op_case){ .n_rows = 1, .p = { 31, 5, 128, 8, 1 }, .record = record_case,
                                   .label = "31 columns" });
    case_add(l, &(struct op_case){ .n_rows = 33, .p = { 32, 3, 1, 1 }, .record = record_case, .label = "one expert" });
}

const struct op_def op_def_moe_down = { .name = "moe_down", .reference = reference, .cases = cases, .print = print,
                                        .work = work };
