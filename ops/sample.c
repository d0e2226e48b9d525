/* ops/sample.c - SAMPLE: the token after a wanted row, as its step_draw says.
 * logits [out, cols] f32, argmax [out, 1] i32 of them, allowed [cols] f32 (0, or minus infinity: never chosen),
 * y [out, 1] i32. scale 0: the largest column, ties to the lowest. Else, in order: the top_k largest; those whose
 * weight is min_p of the largest's; the largest that together have top_p of what is left, at least one; of these the
 * one in which u falls, by column. -1: the logits hold a NaN or +infinity, or no column may be chosen.
 * Weights are those of ops/draw.h, whole numbers: the result is the same on every device.
 * Holtzman et al. 2019, "The Curious Case of Neural Text Degeneration" (top_p). */
#include <stdlib.h>

#include "base/mem.h"
#include "ops/cases.h"
#include "ops/draw.h"
#include "ops/record.h"
#include "ops/ref.h"

struct val op_sample(struct tape *t, struct val logits, struct val argmax, const struct weight *allowed)
{
    if (!record_input(t, "sample", logits, "logits") || !record_input(t, "sample", argmax, "argmax"))
        return (struct val){ 0 };
    struct shape s = tape_shape(t, logits), best = tape_shape(t, argmax);
    if (s.type != DT_F32 || s.rows != DOM_OUT) return tape_fail(t, "sample: the logits are not f32 of wanted rows");
    if (best.type != DT_I32 || best.rows != DOM_OUT || best.cols != 1)
        return tape_fail(t, "sample: argmax is not one i32 a wanted row");
    if (!record_vector(t, "sample", allowed, (uint64_t)s.cols)) return (struct val){ 0 };
    return op_push(t, &(struct call){ .op = OP_SAMPLE, .layer = -1, .n_in = 2, .in = { logits, argmax },
                                      .n_w = allowed ? 1 : 0, .w = { allowed }, .n_out = 1, .shape = { best } });
}

struct ref_column {
    float x;
    int   id;
};

static int by_value(const void *a, const void *b)
{
    const struct ref_column *x = a, *y = b;
    if (x->x != y->x) return x->x > y->x ? -1 : 1;
    return x->id - y->id;
}

static int by_column(const void *a, const void *b)
{
    return ((const struct ref_column *)a)->id - ((const struct ref_column *)b)->id;
}

static uint64_t weigh(const struct ref_column *c, int n, float max, float scale)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) sum += draw_weight(c[i].x, max, scale);
    return sum;
}

/* All columns in their order: how many of them may be drawn. */
static int keep(const struct ref_column *c, int n, const struct step_draw *d)
{
    if (d->top_k > 0 && d->top_k < n) n = d->top_k;
    while (n > 1 && draw_weight(c[n - 1].x, c[0].x, d->scale) < draw_least(d->min_p)) n--;
    if (!(d->top_p > 0 && d->top_p < 1)) return n;
    uint64_t wanted = draw_wanted(d->top_p, weigh(c, n, c[0].x, d->scale)), sum = 0;
    int few = 0;
    while (few < n && sum < wanted) sum += draw_weight(c[few++].x, c[0].x, d->scale);
    return few;
}

static int choose(struct ref_column *c, int n, const struct step_draw *d)
{
    qsort(c, (size_t)n, sizeof *c, by_value);
    float max = c[0].x;
    if (!isfinite(max)) return -1;
    if (d->scale == 0.0f) return c[0].id;
    n = keep(c, n, d);
    qsort(c, (size_t)n, sizeof *c, by_column);
    uint64_t all = weigh(c, n, max, d->scale), target = (uint64_t)(d->u * (double)all), sum = 0;
    int last = 0;
    for (int i = 0; i < n; i++) {
        uint64_t w = draw_weight(c[i].x, max, d->scale);
        if (w) last = i;
        if ((sum += w) > target) break;
    }
    return c[last].id;
}

static void reference(const struct ref_args *a)
{
    int cols = a->cols[0];
    struct ref_column *c = mem_array((size_t)cols, sizeof *c);
    for (int r = 0; r < a->rows; r++) {
        bool bad = !c;
        for (int i = 0; c && i < cols; i++) {
            float x = (float)a->x[0][(size_t)r * (size_t)cols + (size_t)i];
            bad |= isnan(x) || x == INFINITY;
            c[i] = (struct ref_column){ x + (a->call->n_w ? (float)ref_vector_at(a, 0, (uint64_t)i) : 0), i };
        }
        a->y[0][r] = bad ? -1 : choose(c, cols, &a->step->out[r].draw);
    }
    mem_free(c);
}

/* ---- cases ----------------------------------------------------------------------------------------------- */
/* p: columns, ties, some may not be chosen. */
static struct val record_case(struct case_env *env, const struct op_case *c)
{
    struct tape *t = case_tape(env);
    struct val x = c->p[1] ? case_input_ties(env, DOM_ROWS, c->p[0]) : case_input(env, DOM_ROWS, c->p[0], c->f[0]);
    struct val taken = op_take(t, x);
    return op_sample(t, taken, op_argmax(t, taken), c->p[2] ? case_allowed(env, c->p[0]) : NULL);
}

static void cases(struct case_list *l)
{
    static const struct { int cols; float deviation; } shapes[] = {
        { 1, 1 }, { 31, 1 }, { 2049, 0.05f }, { 2049, 4 }, { 5000, 0.3f }, { 49152, 2 }, { 49152, 6 },
    };
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (int kind = 0; kind < 4; kind++)
            case_add(l, &(struct op_case){ .n_rows = shapes[i].cols > 9000 ? 32 : 64,
                                           .p = { shapes[i].cols, kind & 1, kind & 2 },
                                           .f = { shapes[i].deviation }, .record = record_case,
                                           .label = kind & 1 ? "ties, NaN, -inf" : "" });
}

const struct op_def op_def_sample = { .name = "sample", .reference = reference, .cases = cases };
