/* ops/moe_glu.c - MOE_GLU: y[r][j] = act(Wgate_e x[r]) * (Wup_e x[r]), e = ids[r][j], for every slot j
 * x [rows, in] f32; ids [rows, slots] i32, each below the number of experts; Wgate, Wup [in, ff, experts]
 * in any matrix format; y [rows, slots, ff] f32. Rows do not see each other. The shared expert, where there is one, is
 * the last: matrices [in, ff] of their own, in any format. */
#include "base/mem.h"
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"
#include "ops/work.h"
#include "quant/quant.h"

struct val op_moe_glu(struct tape *t, struct val x, struct val ids, const struct experts *w, enum act act)
{
    if (!record_input(t, "moe_glu", x, "x") || !record_input(t, "moe_glu", ids, "ids")) return (struct val){ 0 };
    struct shape s = tape_shape(t, x), i = tape_shape(t, ids);
    if (i.type != DT_I32 || i.rows != s.rows)
        return tape_fail(t, "moe_glu: ids must be indices of the rows of x, not values of domain %d", (int)i.rows);
    const struct weight *up = w->up;
    bool shared = w->shared_up != NULL;
    if (!record_matrix(t, "moe_glu", up, (uint64_t)s.cols, 0) ||
        !record_experts(t, "moe_glu", w->gate, (uint64_t)s.cols, up->dim[1], up->dim[2]))
        return (struct val){ 0 };
    if (shared && (!record_matrix(t, "moe_glu", w->shared_up, (uint64_t)s.cols, up->dim[1]) ||
                   !record_matrix(t, "moe_glu", w->shared_gate, (uint64_t)s.cols, up->dim[1])))
        return (struct val){ 0 };
    if ((uint64_t)i.cols > up->dim[2] + shared || up->dim[2] >= INT16_MAX)
        return tape_fail(t, "moe_glu: a row takes %d experts of %s, which has %d", i.cols, up->name, (int)up->dim[2]);
    if (up->dim[1] > (uint64_t)(INT32_MAX / 4 / i.cols)) return tape_fail(t, "moe_glu: %s has too many rows", up->name);
    struct moe_attr a = { .act = act, .experts = (int)up->dim[2] + shared, .used = i.cols, .shared = shared };
    struct call c = { .op = OP_MOE_GLU, .layer = -1, .n_in = 2, .in = { x, ids },
                      .n_w = shared ? 2 * MOE_GLU_W : MOE_GLU_W, .n_out = 1, .attr = &a, .attr_size = sizeof a,
                      .w = { w->gate, up, w->shared_gate, w->shared_up },
                      .shape = { { s.rows, DT_F32, i.cols * (int)up->dim[1] } } };
    return op_push(t, &c);
}

static void reference(const struct ref_args *a)
{
    const struct moe_attr *p = a->call->attr;
    size_t in = (size_t)a->cols[0], ff = (size_t)(a->out_cols[0] / p->used), used = (size_t)p->used;
    for (int e = 0; e < p->experts; e++) {
        bool shared = p->shared && e == p->experts - 1;
        uint64_t first = shared ? 0 : (uint64_t)e * ff;
        for (size_t o = 0; o < ff; o++)
            for (int m = 0; m < 2; m++) {
                int slot = (m ? W_MOE_UP : W_MOE_GATE) + (shared ? MOE_GLU_W : 0);
                const double *w = NULL;             /* decoded for the first row that chose e */
                for (size_t i = 0; i < (size_t)a->rows * used; i++) {
                    if (a->x[1][i] != e) continue;
                    if (!w) w = ref_weight_row(a, slot, first + o);
                    double z = ref_dot(w, a->x[0] + i / used * in, in), *y = a->y[0] + i * ff + o;
                    *y = m ? *y * z : ref_act(p->act, z);
                }
            }
    }
}

static void print(const void *attr, struct buf *out)
{
    const struct moe_attr *p = attr;
    buf_printf(out, "%s, %d of %d%s", act_name(p->act), p->used, p->experts, p->shared ? ", the last in all rows" : "");
}

static struct work work(const struct tape *t, const struct call *c, const struct step *s)
{
    const struct moe_attr *a = c->attr;
    return work_experts(t, c, s, a, MOE_GLU_W);
}

/* p: in, ff, experts, used, act, whether there is a shared one: 2, in another format. */
static struct val record_case(struct case_env *env, const struct op_case *c)
{
    struct tape *t = case_tape(env);
    int shared = c->p[5];
    struct val x = case_input(env, DOM_ROWS, c->p[0], 1), z = case_input(env, DOM_ROWS, c->p[2] + 1, 1), weights;
    struct route_attr route = { .experts = c->p[2], .used = c->p[3], .shared = shared != 0 };
    struct val ids = op_route(t, z, NULL, &route, &weights);
    struct experts w = { .gate = case_weight_experts(env, c->p[0], c->p[1], c->p[2], 0.1f),
                         .up = case_weight_experts(env, c->p[0], c->p[1], c->p[2], 0.1f) };
    struct weight *(*make)(struct case_env *, int, int, float, float) = shared == 2 ? case_weight_f32 : case_weight;
    for (int i = 0; shared && i < 2; i++) *(i ? &w.shared_up : &w.shared_gate) = make(env, c->p[0], c->p[1], 0, 0.1f);
    return op_moe_glu(t, x, ids, &w, (enum act)c->p[4]);
}

static void cases(struct case_list *l)
{
    static const struct { int rows, p[4]; } any[] = {       /* few rows have many columns, see GLU */
        { 2, { 512, 66, 5, 2 } }, { 3, { 512, 32, 8, 3 } }, { 17, { 512, 17, 5, 2 } }, { 33, { 256, 32, 8, 3 } },
        { 200, { 512, 17, 5, 2 } },
    };
    static const int rows[] = { 1, 2, 5, 16, 64, 200 };
    for (size_t i = 0; i < COUNT(any); i++) {
        const int n = any[i].rows, *p = any[i].p;
        case_add(l, &(struct op_case){ .n_rows = n, .wide = n > NARROW_ROWS, .each_format = true,
                                       .p = { p[0], p[1], p[2], p[3], i % 2, i % 2 }, .label = "",
                                       .record = record_case });
    }
    for (int j = 0; j < (int)COUNT(rows); j++)
        case_add(l, &(struct op_case){ .n_rows = rows[j], .wide = rows[j] > NARROW_ROWS, .format = Q_Q8_0,
                                       .p = { 256, 66, 6, 2, 0, 1 + j % 2 }, .record = record_case,
                                       .label = "a shared one" });
    case_add(l, &(struct op_case){ .n_rows = 1, .p = { 31, 5, 128, 8 }, .record = record_case, .label = "31 columns" });
    case_add(l, &(struct op_case){ .n_rows = 1, .p = { 32, 4, 300, 9, 0, 1 }, .record = record_case,
                                   .label = "many experts" });
    case_add(l, &(struct op_case){ .n_rows = 33, .p = { 64, 3, 1, 1 }, .record = record_case, .label = "one expert" });
}

const struct op_def op_def_moe_glu = { .name = "moe_glu", .reference = reference, .cases = cases, .print = print,
                                       .work = work };
