/* device/check.c - see check.h. The page images of a case make both sides see the same rounded keys
 * and values; the reference rounds new ones through the cache's format. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "device/check_rig.h"
#include "ops/ref.h"
#include "quant/quant.h"

/* Error of n x cols values against the reference: over all, or a quarter of the worst row's where
 * that is more, so that one wrong row among many shows. */
static double error_of(const void *got, const double *want, int n, int cols, enum dtype type)
{
    double total = 0, worst = 0, energy = 0;
    for (int r = 0; r < n; r++) {
        double row = 0;
        for (int i = 0; i < cols; i++) {
            size_t at = (size_t)r * (size_t)cols + (size_t)i;
            double y = type == DT_I32 ? ((const int32_t *)got)[at] : (double)((const float *)got)[at];
            if (!isfinite(y)) return (double)INFINITY;
            row += (y - want[at]) * (y - want[at]);
            energy += want[at] * want[at];
        }
        if (type == DT_I32 && row > 0) return (double)INFINITY;
        total += row;
        if (row > worst) worst = row;
    }
    if (energy == 0) return total == 0 ? 0 : (double)INFINITY;
    double by_row = worst * n / energy / 4;
    return total / energy > by_row ? total / energy : by_row;
}

/* What one position of a page should hold after the step. */
enum place { UNTOUCHED, COMMITTED, NEW_ROW };
struct source {
    enum place place;
    int slot, pos;              /* as interp_k takes them; COMMITTED: the bank row, -1 - row */
};

static struct source source_of(const struct case_env *env, int kind, int page, int at)
{
    const struct step *s = env->step;
    for (int i = 0; i < s->head.n_seqs; i++) {
        const struct step_seq *q = &s->seq[i];
        if (page == q->slot && !s->head.wide && at < q->n_rows) return (struct source){ NEW_ROW, q->slot, -1 - at };
        int first = q->past - q->n_commit, end = q->past + (s->head.wide ? q->n_rows : 0);
        for (int pos = first; page >= env->n_slots && pos < end; pos++) {
            if (pos % PAGE != at || case_page(env, kind, q->slot, pos) != page) continue;
            if (pos >= q->past) return (struct source){ NEW_ROW, q->slot, pos };
            return (struct source){ COMMITTED, q->slot, -1 - q->commit[pos - first] };
        }
    }
    return (struct source){ UNTOUCHED, 0, 0 };
}

/* Equality of one position of two head blocks, possibly at different positions. */
static bool same_bytes(uint32_t format, int dim, const uint8_t *a, int pos_a, const uint8_t *b, int pos_b)
{
    size_t row = (size_t)kv_row_bytes(format, dim), scales = (size_t)kv_scales_at(format, dim);
    if (memcmp(a + (size_t)pos_a * row, b + (size_t)pos_b * row, row)) return false;
    size_t n = scales ? (size_t)dim / 32 * 2 : 0;
    return !n || !memcmp(a + scales + (size_t)pos_a * n, b + scales + (size_t)pos_b * n, n);
}

/* What is summed up over all written keys and values. */
struct kv_error {
    double error, energy;
    int n;                      /* numbers compared */
    bool moved;                 /* a byte changed that should not, or a commit is not exact */
    float *row;
};

struct half {                   /* keys or values of one head */
    uint32_t format;
    int dim;
    uint64_t at;                /* in a page */
};

static void compare_half(struct kv_error *e, const struct case_env *env, int kind, const struct half *h, int page,
                         const uint8_t *after, int at, struct source src, const double *want)
{
    uint64_t bytes = env->kv.kind[kind].page_bytes;
    const uint8_t *before = env->pages[kind] + (uint64_t)page * bytes + h->at;
    const uint8_t *bank = env->pages[kind] + (uint64_t)src.slot * bytes + h->at;
    after += h->at;
    if (src.place == UNTOUCHED && !same_bytes(h->format, h->dim, before, at, after, at)) e->moved = true;
    if (src.place == COMMITTED && !same_bytes(h->format, h->dim, bank, -1 - src.pos, after, at)) e->moved = true;
    if (src.place != NEW_ROW) return;
    kv_decode(h->format, h->dim, after, at, e->row);
    for (int i = 0; i < h->dim; i++) {
        double diff = e->row[i] - want[i];
        e->error += isfinite(diff) ? diff * diff : (double)INFINITY;
        e->energy += want[i] * want[i];
        e->n++;
    }
}

static void compare_page(struct kv_error *e, const struct case_env *env, struct interp *ref, int kind, int page,
                         int written_layer, const uint8_t *after)
{
    for (int at = 0; at < PAGE; at++) {
        struct source src = source_of(env, kind, page, at);
        for (int l = 0; l < env->kv.n_layers; l++) {
            const struct kv_layer *y = &env->kv.layer[l];
            if (y->kind != kind) continue;
            struct source now = l == written_layer ? src : (struct source){ UNTOUCHED, 0, 0 };
            for (int h = 0; h < y->kv_heads; h++) {
                struct half k = { y->k_format, y->k_dim, kv_k_at(y, h) }, v = { y->v_format, y->v_dim, kv_v_at(y, h) };
                compare_half(e, env, kind, &k, page, after, at, now, interp_k(ref, l, now.slot, now.pos, h));
                compare_half(e, env, kind, &v, page, after, at, now, interp_v(ref, l, now.slot, now.pos, h));
            }
        }
    }
}

/* Error of written keys and values beyond `tolerance` that rounding to the cache's format may cause:
 * a value next to a tie falls to either side. */
static double rounding_slack(uint32_t format, double tolerance)
{
    bool exact = tolerance < 1e-6;
    switch (format) {
    case Q_Q4_0: return exact ? 2e-3 : 1e-2;
    case Q_Q8_0: return exact ? 1e-5 : 5e-4;
    case Q_BF16: return exact ? 1e-6 : 1e-5;
    default: return 1e-7;
    }
}

/* Most error of n new numbers of keys and values. A call that only copies them must round exactly as kv_encode. */
static double kv_allowed(const struct rig *r, const struct call *writer, int layer, int n)
{
    const struct rope_kv_attr *a = writer->attr;
    bool copies = writer->op == OP_ROPE_KV && a->layout == ROPE_NONE && !writer->w[W_QKV_QNORM] &&
                  !writer->w[W_QKV_KNORM];
    if (copies) return 0;
    const struct kv_layer *y = &r->env->kv.layer[layer];
    double tolerance = rig_tolerance(r), k = rounding_slack(y->k_format, tolerance);
    double v = rounding_slack(y->v_format, tolerance);
    const int few = 512;            /* among fewer, one next to a tie weighs more */
    return 2 * tolerance + (k > v ? k : v) * (n > 0 && n < few ? (double)few / n : 1);
}

static luce_status compare_pages(struct check_walk *w, struct rig *r, struct interp *ref, const struct call *writer,
                                 luce_error *err)
{
    const struct case_env *env = r->env;
    uint64_t most = 0;
    for (int k = 0; k < env->kv.n_kinds; k++)
        if (env->kv.kind[k].page_bytes > most) most = env->kv.kind[k].page_bytes;
    uint8_t *after = mem_aligned(most, 64);
    struct kv_error e = { .row = mem_array(4096, sizeof *e.row) };
    luce_status st = after && e.row ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory for a page");
    for (int kind = 0; !st && kind < env->kv.n_kinds; kind++)
        for (int page = 0; !st && page < env->n_pages[kind]; page++) {
            st = r->d->fns->page_read(r->d, r->cache, kind, page, after, err);
            if (!st) compare_page(&e, env, ref, kind, page, writer->layer, after);
        }
    mem_free(after);
    mem_free(e.row);
    if (st) return st;
    check_report(w, "new keys and values", e.energy > 0 ? e.error / e.energy : e.error,
                 kv_allowed(r, writer, writer->layer, e.n));
    check_report(w, "committed and other positions", e.moved ? (double)INFINITY : 0, 0);
    return LUCE_OK;
}

/* A few sums of random products may all be near zero by chance, where errors are not: the bound holds
 * for many values. */
static double few_allowance(int n)
{
    return n > 0 && n < 64 ? 64.0 / n : 1;
}

static luce_status compare(struct check_walk *w, struct rig *r, struct interp *ref, struct val want,
                           const struct call *writer, void *got, luce_error *err)
{
    const struct step *s = r->env->step;
    struct rig_program p;
    luce_status st = rig_compile(r, &p, step_room(s), s->head.wide, err);
    if (st) return st;
    if (!(st = rig_fill(r, err)) && !(st = rig_run(r, &p, s, 0, s->head.n_rows, got, err))) {
        struct shape shape = tape_shape(&r->tape, r->out);
        int rows = rig_out_rows(r, s);
        check_report(w, "", error_of(got, interp_read(ref, want), rows, shape.cols, shape.type),
                     rig_tolerance(r) * few_allowance(rows * shape.cols));
        if (writer && r->env->kv.layer[writer->layer].kind == KV_STATE) st = check_states(w, r, ref, writer, err);
        else if (writer) st = compare_pages(w, r, ref, writer, err);
    }
    rig_program_close(r, &p);
    return st;
}

static luce_status check_case(struct check_walk *w, struct case_env *env, luce_error *err)
{
    struct tape whole = { 0 };
    struct val want;
    struct interp *ref = NULL;
    struct rig r = { 0 };
    void *got = NULL;
    luce_status st = case_record(env, &whole, (struct target){ 0 }, &want, err);
    if (!st) st = case_interp(env, &whole, &ref, err);
    if (!st) st = interp_run(ref, env->step, err);
    if (!st) st = rig_open(&r, w->d, env, err);
    if (!st) {
        got = mem_array((size_t)env->step->head.n_rows, shape_row_bytes(tape_shape(&r.tape, r.out)));
        if (!got) st = fail(err, LUCE_E_NOMEM, "out of memory for the output of a test case");
    }
    const struct call *writer = NULL;           /* the first call of a layer writes keys and values */
    for (int i = whole.n_calls - 1; i >= 0; i--)
        if (whole.calls[i].layer >= 0) writer = &whole.calls[i];
    if (!st) st = compare(w, &r, ref, want, writer, got, err);
    mem_free(got);
    rig_close(&r);
    interp_close(ref);
    tape_drop(&whole);
    return st;
}

luce_status check_device(struct device *d, const struct check_params *p, check_fn fn, void *context,
                         int *n_failed, luce_error *err)
{
    struct check_walk w = { .d = d, .params = p, .fn = fn, .context = context, .n_failed = n_failed };
    return check_walk(&w, check_case, err);
}
