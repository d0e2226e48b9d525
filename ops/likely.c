/* ops/likely.c - LIKELY: the k largest columns of a row, the largest first (ties: the lowest first), and the
 * logarithms of their shares in the softmax of scale * x.
 * x [n, cols] f32; ids [n, k] i32, likely [n, k] f32. Columns that are not finite are never chosen and have no
 * share; where fewer than k are left, the rest is -1 with 0. */
#include "base/mem.h"
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"

struct val op_likely(struct tape *t, struct val x, const struct likely_attr *attr, struct val *likely)
{
    *likely = (struct val){ 0 };
    if (!record_input(t, "likely", x, "x")) return (struct val){ 0 };
    struct shape s = tape_shape(t, x);
    if (s.type != DT_F32) return tape_fail(t, "likely: x is not f32");
    if (attr->k < 1 || attr->k > LIKELY_MOST || !(attr->scale >= 0))
        return tape_fail(t, "likely: %d columns, scale %g; expected 1 to %d, and a scale that keeps the order", attr->k,
                         (double)attr->scale, LIKELY_MOST);
    struct call c = { .op = OP_LIKELY, .layer = -1, .n_in = 1, .in = { x }, .n_out = 2, .attr = attr,
                      .attr_size = sizeof *attr,
                      .shape = { { s.rows, DT_I32, attr->k }, { s.rows, DT_F32, attr->k } } };
    struct val ids = op_push(t, &c);
    if (!tape_dead(t)) *likely = t->calls[t->n_calls - 1].out[1];
    return ids;
}

/* The largest finite column behind `last` in the order of the op (last -1: of all); -1: there is none. */
static int next_of(const double *x, int cols, int last)
{
    int best = -1;
    for (int i = 0; i < cols; i++) {
        bool behind = last < 0 || x[i] < x[last] || (x[i] == x[last] && i > last);
        if (isfinite(x[i]) && behind && (best < 0 || x[i] > x[best])) best = i;
    }
    return best;
}

static void reference(const struct ref_args *a)
{
    const struct likely_attr *p = a->call->attr;
    double scale = p->scale != 0.0f ? (double)p->scale : 1;
    for (size_t r = 0; r < (size_t)a->rows; r++) {
        const double *x = a->x[0] + r * (size_t)a->cols[0];
        double *ids = a->y[0] + r * (size_t)p->k, *likely = a->y[1] + r * (size_t)p->k, sum = 0;
        int first = next_of(x, a->cols[0], -1), at = first;
        for (int i = 0; i < a->cols[0]; i++)
            if (isfinite(x[i])) sum += exp(scale * (x[i] - x[first]));
        for (int j = 0; j < p->k; j++) {
            ids[j] = at;
            likely[j] = at < 0 ? 0 : scale * (x[at] - x[first]) - log(sum);
            if (at >= 0) at = next_of(x, a->cols[0], at);
        }
    }
}

static void print(const void *attr, struct buf *out)
{
    const struct likely_attr *p = attr;
    buf_printf(out, "%d", p->k);
    if (p->scale != 0.0f) buf_printf(out, ", scale %g", (double)p->scale);
}

/* p: columns, k, flags. */
enum { TIES = 1, SHARES = 2 };

static struct val record_case(struct case_env *env, const struct op_case *c)
{
    struct likely_attr a = { .k = c->p[1], .scale = c->f[0] };
    struct val x = c->p[2] & TIES ? case_input_ties(env, DOM_ROWS, c->p[0]) : case_input(env, DOM_ROWS, c->p[0], 2);
    struct val likely, ids = op_likely(case_tape(env), x, &a, &likely);
    return c->p[2] & SHARES ? likely : ids;
}

static void cases(struct case_list *l)
{
    static const int shapes[][2] = { { 1, 1 },    { 3, 8 },    { 31, 4 },   { 64, 16 },
                                     { 2049, 1 }, { 4097, 8 }, { 49152, 8 } };
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (int flags = 0; flags < 4; flags++)
            case_add(l, &(struct op_case){ .n_rows = flags & TIES ? 3 : shapes[i][0] > 9000 ? 5 : 33,
                                           .p = { shapes[i][0], shapes[i][1], flags },
                                           .f = { i == 3 ? 0.25f : 0 }, .record = record_case,
                                           .label = flags & TIES ? "ties, NaN, -inf" : "" });
}

const struct op_def op_def_likely = { .name = "likely", .reference = reference, .cases = cases, .print = print };
