/* ops/route.c - ROUTE: which experts a row takes, and with which weights.
 *   p = softmax(z) over all experts, or sigmoid(z);   z [rows, experts or more] f32: first the router's logits
 *   the `used` largest of p (+ bias), the largest first, ties to the lower index; NaN is never larger
 *   w_j = p of the j-th (without bias), / their sum if normalised, * scale
 *   with a shared expert one slot more: it is the one after all others, w = sigmoid of the logit after the router's
 * ids [rows, slots] i32, w [rows, slots] f32. Shazeer et al. 2017, "Outrageously Large Neural Networks". */
#include "base/mem.h"
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"

struct val op_route(struct tape *t, struct val logits, const struct weight *bias, const struct route_attr *attr,
                    struct val *weights)
{
    *weights = (struct val){ 0 };
    if (!record_input(t, "route", logits, "logits")) return (struct val){ 0 };
    struct shape s = tape_shape(t, logits);
    if (s.cols < attr->experts + attr->shared || attr->used < 1 || attr->used > attr->experts)
        return tape_fail(t, "route: %d logits for %d experts of which a row takes %d%s", s.cols, attr->experts,
                         attr->used, attr->shared ? " and a shared one" : "");
    if (!record_vector(t, "route", bias, (uint64_t)attr->experts)) return (struct val){ 0 };
    struct call c = { .op = OP_ROUTE, .layer = -1, .n_in = 1, .in = { logits }, .n_w = 1, .w = { bias }, .n_out = 2,
                      .attr = attr, .attr_size = sizeof *attr,
                      .shape = { { s.rows, DT_I32, attr->used + attr->shared },
                                 { s.rows, DT_F32, attr->used + attr->shared } } };
    struct val ids = op_push(t, &c);
    if (!tape_dead(t)) *weights = t->calls[t->n_calls - 1].out[1];
    return ids;
}

/* Scores of one row into p. */
static void scores(const struct route_attr *a, const double *z, double *p)
{
    double most = -INFINITY, sum = 0;
    for (int e = 0; e < a->experts; e++) most = z[e] > most ? z[e] : most;
    for (int e = 0; e < a->experts; e++) {
        p[e] = a->score == SCORE_SIGMOID ? 1 / (1 + exp(-z[e])) : exp(z[e] - most);
        sum += p[e];
    }
    for (int e = 0; e < a->experts && a->score == SCORE_SOFTMAX; e++) p[e] /= sum;
}

/* scratch2 holds one row's scores, and behind them whether an expert is chosen. */
static void reference(const struct ref_args *a)
{
    const struct route_attr *p = a->call->attr;
    double *score = a->scratch2, *chosen = score + p->experts, scale = p->scale != 0.0f ? p->scale : 1;
    for (size_t r = 0; r < (size_t)a->rows; r++) {
        const double *z = a->x[0] + r * (size_t)a->cols[0];
        double *ids = a->y[0] + r * (size_t)a->out_cols[0], *w = a->y[1] + r * (size_t)a->out_cols[1], sum = 0;
        scores(p, z, score);
        for (int e = 0; e < p->experts; e++) chosen[e] = 0;
        for (int j = 0; j < p->used; j++) {
            int best = -1;
            double most = 0;
            for (int e = 0; e < p->experts; e++) {
                double s = score[e] + (a->call->w[0] ? ref_vector_at(a, 0, (uint64_t)e) : 0);
                if (chosen[e] != 0 || (best >= 0 && !(s > most) && !(isnan(most) && !isnan(s)))) continue;
                best = e;
                most = s;
            }
            chosen[best] = 1;
            ids[j] = best;
            w[j] = score[best];
            sum += w[j];
        }
        for (int j = 0; j < p->used; j++) w[j] = w[j] / (p->normalise ? sum : 1) * scale;
        if (!p->shared) continue;
        ids[p->used] = p->experts;
        w[p->used] = 1 / (1 + exp(-z[p->experts]));
    }
}

static void print(const void *attr, struct buf *out)
{
    const struct route_attr *p = attr;
    buf_printf(out, "%d of %d, %s%s", p->used, p->experts, p->score == SCORE_SIGMOID ? "sigmoid" : "softmax",
               p->normalise ? ", normalised" : "");
    if (p->scale != 0.0f) buf_printf(out, ", scale %g", p->scale);
    if (p->shared) buf_add_text(out, ", and a shared one");
}

/* p: experts, used, flags, further columns. */
enum { SIGMOID = 1, NORMALISE = 2, BIAS = 4, WEIGHTS = 8, SHARED = 16 };

/* Ids are compared where scores tie or differ by far more than rounding: logits are whole numbers, whose sigmoids do
 * not differ by an eighth, and a bias has eighths. */
static struct val record_case(struct case_env *env, const struct op_case *c)
{
    int flags = c->p[2];
    struct route_attr a = { .experts = c->p[0], .used = c->p[1], .normalise = flags & NORMALISE,
                            .score = flags & SIGMOID ? SCORE_SIGMOID : SCORE_SOFTMAX, .scale = c->f[0],
                            .shared = flags & SHARED };
    int cols = c->p[0] + c->p[3];
    struct val z = flags & WEIGHTS ? case_input(env, DOM_ROWS, cols, 1) : case_input_ties(env, DOM_ROWS, cols);
    const struct weight *bias = !(flags & BIAS) ? NULL : flags & WEIGHTS ? case_weight(env, c->p[0], 0, 0, 0.2f)
                                                                        : case_eighths(env, c->p[0]);
    struct val weights, ids = op_route(case_tape(env), z, bias, &a, &weights);
    return flags & WEIGHTS ? weights : ids;
}

static void cases(struct case_list *l)
{
    static const int any[][4] = {
        { 8, 3, NORMALISE, 1 }, { 128, 8, NORMALISE | WEIGHTS, 1 }, { 60, 4, WEIGHTS }, { 17, 5, SIGMOID | BIAS },
        { 33, 6, SIGMOID | BIAS | NORMALISE | WEIGHTS }, { 40, 8, 0, 3 }, { 3, 3, WEIGHTS }, { 1, 1, SIGMOID },
        { 256, 8, NORMALISE | WEIGHTS | SHARED, 1 }, { 31, 3, SIGMOID | SHARED, 2 },
        { 40, 2, SIGMOID | NORMALISE | WEIGHTS | SHARED, 1 },
    };
    for (int i = 0; i < (int)COUNT(any); i++)
        for (int j = i % 3; j < CASE_WIDTHS; j += 3) {
            int n = case_widths[j];
            case_add(l, &(struct op_case){ .n_rows = n, .wide = n > NARROW_ROWS,
                                           .p = { any[i][0], any[i][1], any[i][2], any[i][3] },
                                           .f = { i == 4 || i == 10 ? 2.5f : 0 }, .record = record_case,
                                           .label = any[i][2] & WEIGHTS ? "weights" : "ids" });
        }
}

const struct op_def op_def_route = { .name = "route", .reference = reference, .cases = cases, .print = print };
