/* ops/moe_down.c - MOE_DOWN: y[r] = sum over slots j of w[r][j] * (W_e x[r][j]) (+ residual[r]), e = ids[r][j]
 * x [rows, slots, in] f32; ids [rows, slots] i32, each below the number of experts; w [rows, slots] f32;
 * W [in, out, experts] in any matrix format, and a matrix of its own for the last expert, if that is shared (MOE_GLU);
 * y [rows, out] f32. A device adds slot 0 first, then 1, ...,
 * the residual last, so that a row's bits do not depend on which rows share an expert. */
#include "base/mem.h"
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"
#include "ops/work.h"
#include "quant/quant.h"

struct val op_moe_down(struct tape *t, struct val x, struct val ids, struct val weights, const struct experts *of,
                       struct val residual)
{
    if (!record_input(t, "moe_down", x, "x") || !record_input(t, "moe_down", ids, "ids") ||
        !record_input(t, "moe_down", weights, "weights"))
        return (struct val){ 0 };
    struct shape s = tape_shape(t, x), i = tape_shape(t, ids), w = tape_shape(t, weights);
    const struct weight *down = of->down;
    bool shared = of->shared_down != NULL;
    if (i.type != DT_I32 || w.type != DT_F32 || i.rows != s.rows || w.rows != s.rows || i.cols != w.cols)
        return tape_fail(t, "moe_down: %d indices and %d weights a row, needs as many", i.cols, w.cols);
    if (s.cols % i.cols) return tape_fail(t, "moe_down: %d columns for %d experts a row", s.cols, i.cols);
    uint64_t in = (uint64_t)(s.cols / i.cols);
    if (!record_matrix(t, "moe_down", down, in, 0)) return (struct val){ 0 };
    if (shared && !record_matrix(t, "moe_down", of->shared_down, in, down->dim[1])) return (struct val){ 0 };
    if ((uint64_t)i.cols > down->dim[2] + shared || down->dim[2] >= INT16_MAX || down->dim[1] > INT32_MAX / 4)
        return tape_fail(t, "moe_down: a row takes %d experts of %s, which has %d", i.cols, down->name,
                         (int)down->dim[2]);
    struct moe_attr a = { .experts = (int)down->dim[2] + shared, .used = i.cols, .shared = shared };
    struct call c = { .op = OP_MOE_DOWN, .layer = -1, .n_in = residual.id ? 4 : 3, .in = { x, ids, weights, residual },
                      .n_w = shared ? 2 * MOE_DOWN_W : MOE_DOWN_W, .w = { down, of->shared_down }, .n_out = 1,
                      .attr = &a, .attr_size = sizeof a, .shape = { { s.rows, DT_F32, (int)down->dim[1] } } };
    if (!record_same(t, "moe_down", residual, c.shape[0])) return (struct val){ 0 };
    return op_push(t, &c);
}

static void reference(const struct ref_args *a)
{
    const struct moe_attr *p = a->call->attr;
    size_t used = (size_t)p->used, in = (size_t)a->cols[0] / used, out = (size_t)a->out_cols[0];
    for (size_t i = 0; i < (size_t)a->rows * out; i++) a->y[0][i] = a->x[3] ? a->x[3][i] : 0;
    for (int e = 0; e < p->experts; e++) {
        bool shared = p->shared && e == p->experts - 1;
        uint64_t first = shared ? 0 : (uint64_t)e * out;
        for (size_t o = 0; o < out; o++) {
            const double *w = NULL;                 /* decoded for the first row that chose e */
            for (size_t i = 0; i < (size_t)a->rows * used; i++) {
                if (a->x[1][i] != e) continue;
                if (!w) w = ref_weight_row(a, W_MOE_DOWN + (shared ? MOE_DOWN_W : 0), first + o);
                a->y[0][i / used * out + o] += a->x[2][i] * ref_dot(w, a->x[0] + i * in, in);
            }
        }
    }
}

static void print(const void *attr, struct buf *out)
{
    const struct moe_attr *p = attr;
    buf_printf(out, "%d of %d%s", p->used, p->experts, p->shared ? ", the last in all rows" : "");
}

static struct work work(const struct tape *t, const struct call *c, const struct step *s)
{
    const struct moe_attr *a = c->attr;
    return work_experts(t, c, s, a, MOE_DOWN_W);
}

/* p: in, out, experts, used, with a residual, whether there is a shared one: 2, in another format. */
static struct val record_case(struct case_env *env, const struct op_case *c)
{
    struct tape *t = case_tape(env);
    int shared = c->p[5], slots = c->p[3] + (shared != 0);
    struct val x = case_input(env, DOM_ROWS, c->p[0] * slots, 1), z = case_input(env, DOM_ROWS, c->p[2] + 1, 1);
    struct val weights;
    struct route_attr route = { .experts = c->p[2], .used = c->p[3], .normalise = true, .shared = shared != 0 };
    struct val ids = op_route(t, z, NULL, &route, &weights);
    struct val residual = c->p[4] ? case_input(env, DOM_ROWS, c->p[1], 1) : (struct val){ 0 };
    struct experts w = { .down = case_weight_experts(env, c->p[0], c->p[1], c->p[2], 0.1f) };
    if (shared == 1) w.shared_down = case_weight(env, c->p[0], c->p[1], 0, 0.1f);
    if (shared == 2) w.shared_down = case_weight_f32(env, c->p[0], c->p[1], 0, 0.1f);
    return op_moe_down(t, x, ids, weights, &w, residual);
}

static void cases(struct case_list *l)
{
    static const int any[][4] = { { 256, 32, 8, 3 }, { 512, 17, 5, 2 } }, rows[] = { 1, 2, 5, 16, 64, 200 };
    for (int i = 0; i < 2; i++)
        for (int j = 2 - i; j < CASE_WIDTHS; j += 4) {
            int n = case_widths[j];
            case_add(l, &(struct op_case){ .n_rows = n, .wide = n > NARROW_ROWS, .each_format = true,
                                           .p = { any[i][0], any[i][1], any[i][2], any[i][3], i, i }, .label = "",
                                           .record = record_case });
        }
    for (int j = 0; j < (int)COUNT(rows); j++)
        case_add(l, &(struct op_case){ .n_rows = rows[j], .wide = rows[j] > NARROW_ROWS, .format = Q_Q8_0,
                                       .p = { 256, 130, 6, 2, 1, 1 + j % 2 }, .record = record_case,
                                       .label = "a shared one" });
    case_add(l, &(struct op_case){ .n_rows = 1, .p = { 31, 5, 128, 8, 1 }, .record = record_case,
                                   .label = "31 columns" });
    case_add(l, &(struct op_case){ .n_rows = 33, .p = { 32, 3, 1, 1 }, .record = record_case, .label = "one expert" });
}

const struct op_def op_def_moe_down = { .name = "moe_down", .reference = reference, .cases = cases, .print = print,
                                        .work = work };
