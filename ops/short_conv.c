/* ops/short_conv.c - SHORT_CONV: y[r][c] = silu(sum_j w[c][j] * x of the row taps - 1 - j before row r, at channel c)
 * x [rows, channels or more] f32, y [rows, channels] f32, w [taps, channels] f32.
 * The rows before are the row's ancestors in this step (its path;
 * of wide rows the ones before it), then the columns that the layer's state holds, the newest first; 0 where the
 * sequence begins. Before anything else the accepted inputs of the step before move from the journal into the state.
 * A narrow row's input goes to the journal, wide rows change the state at once. */
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"
#include "ops/work.h"

#include <string.h>

struct val op_short_conv(struct tape *t, int layer, struct val x, const struct weight *w)
{
    if (!record_input(t, "short_conv", x, "x")) return (struct val){ 0 };
    struct shape s = tape_shape(t, x);
    const struct kv_state *k = record_state(t, "short_conv", layer, s.cols, true);
    if (!k || !record_matrix(t, "short_conv", w, (uint64_t)k->taps, (uint64_t)k->channels)) return (struct val){ 0 };
    if (w->type != 0 || s.rows != DOM_ROWS)
        return tape_fail(t, "short_conv: layer %d: %s has type %d and x domain %d; needs f32 and rows of the step",
                         layer, w->name, (int)w->type, (int)s.rows);
    return op_push(t, &(struct call){ .op = OP_SHORT_CONV, .layer = layer, .n_in = 1, .in = { x }, .n_w = 1, .w = { w },
                                      .n_out = 1, .shape = { { s.rows, s.type, k->channels } } });
}

/* A column newer than all that the state holds. */
static void shift(const struct ref_cache *c, const struct kv_state *k, double *state, const double *x)
{
    size_t n = (size_t)k->channels;
    memmove(state, state + n, (size_t)(k->taps - 2) * n * sizeof *state);
    for (size_t i = 0; i < n; i++) state[(size_t)(k->taps - 2) * n + i] = ref_kept(c, x[i]);
}

static void commit(const struct ref_args *a, const struct kv_state *k, const struct step_seq *s)
{
    double *state = ref_state(a->cache, a->call->layer, s->slot);
    const double *journal = ref_journal(a->cache, a->call->layer, s->slot, JOURNAL_INPUT);
    if (s->past == s->n_commit) memset(state, 0, kv_conv_size(k) * sizeof *state);
    for (int i = 0; i < s->n_commit; i++)
        shift(a->cache, k, state, journal + (size_t)s->commit[i] * (size_t)k->channels);
}

/* The columns that local row j of the sequence sees, window[taps - 1] its own. */
static void find_window(const struct ref_args *a, const struct kv_state *k, const struct step_seq *s, int j,
                        const double **window)
{
    const double *state = ref_state(a->cache, a->call->layer, s->slot);
    uint64_t path = a->step->row[s->first_row + j].path;
    int at = k->taps - 1;
    for (int i = j; i >= 0 && at >= 0; i--)
        if (a->step->head.wide || path >> i & 1)
            window[at--] = a->x[0] + (size_t)(s->first_row + i) * (size_t)a->cols[0];
    for (int i = k->taps - 2; at >= 0; i--) window[at--] = state + (size_t)i * (size_t)k->channels;
}

static void convolve(const struct ref_args *a, const struct kv_state *k, const struct step_seq *s, int j)
{
    const double *window[16];
    double *y = a->y[0] + (size_t)(s->first_row + j) * (size_t)k->channels;
    find_window(a, k, s, j, window);
    for (int c = 0; c < k->channels; c++) {
        const double *w = ref_weight_row(a, 0, (uint64_t)c);
        double sum = 0;
        for (int i = 0; i < k->taps; i++) sum += w[i] * window[i][c];
        y[c] = sum / (1 + exp(-sum));
    }
}

static void reference(const struct ref_args *a)
{
    const struct kv_state *k = &a->kv->layer[a->call->layer].state;
    size_t n = (size_t)k->channels;
    for (int i = 0; i < a->step->head.n_seqs; i++) {
        const struct step_seq *s = &a->step->seq[i];
        commit(a, k, s);
        for (int j = 0; j < s->n_rows; j++) convolve(a, k, s, j);
        for (int j = 0; j < s->n_rows; j++) {
            const double *x = a->x[0] + (size_t)(s->first_row + j) * (size_t)a->cols[0];
            double *journal = ref_journal(a->cache, a->call->layer, s->slot, JOURNAL_INPUT) + (size_t)j * n;
            if (a->step->head.wide) shift(a->cache, k, ref_state(a->cache, a->call->layer, s->slot), x);
            for (size_t e = 0; !a->step->head.wide && e < n; e++) journal[e] = ref_kept(a->cache, x[e]);
        }
    }
}

/* p: key heads, value heads, dim of keys, of values, taps, further columns. */
static struct val record_case(struct case_env *env, const struct op_case *c)
{
    struct kv_state k = { .k_heads = c->p[0], .v_heads = c->p[1], .k_dim = c->p[2], .v_dim = c->p[3], .taps = c->p[4],
                          .channels = 2 * c->p[0] * c->p[2] + c->p[1] * c->p[3] };
    (void)case_state(env, &(struct kv_state){ 52, 3, 1, 1, 10, 32 });      /* a layer before it */
    int layer = case_state(env, &k);
    struct val x = case_input(env, DOM_ROWS, k.channels + c->p[5], 1);
    return op_short_conv(case_tape(env), layer, x, case_weight_f32(env, k.taps, k.channels, 0, 0.5f));
}

static void cases(struct case_list *l)
{
    static const struct op_case shapes[] = {
        { .n_rows = 1, .p = { 1, 1, 8, 16, 4 } },
        { .n_rows = 1, .p = { 2, 4, 16, 16, 4, 9 }, .past = 5 },
        { .n_rows = 2, .p = { 2, 2, 100, 32, 4 }, .past = 2 },
        { .n_rows = 5, .p = { 4, 8, 64, 64, 4, 512 }, .past = 70, .n_seqs = 3 },
        { .n_rows = 17, .p = { 2, 4, 16, 16, 2 }, .past = 64 },
        { .n_rows = 64, .p = { 2, 6, 128, 128, 4 }, .past = 65, .tree = 1 },
        { .n_rows = 33, .p = { 1, 3, 40, 48, 6 }, .past = 3, .n_seqs = 4, .tree = 1 },
        { .n_rows = 65, .p = { 2, 4, 16, 16, 4 }, .wide = 1 },
        { .n_rows = 200, .p = { 2, 4, 16, 32, 4, 128 }, .past = 65, .n_seqs = 3, .wide = 1 },
        { .n_rows = 2, .p = { 2, 4, 16, 32, 4 }, .past = 70, .n_seqs = 2, .wide = 1 },
    };
    case_add_shapes(l, shapes, sizeof shapes / sizeof *shapes, record_case);
}

static struct work work(const struct tape *t, const struct call *c, const struct step *s)
{
    struct work w = work_plain(t, c, s);
    const struct kv_state *k = &t->kv->layer[c->layer].state;
    w.bytes += 4.0 * s->head.n_seqs * (double)kv_conv_size(k) * 2;
    return w;
}

const struct op_def op_def_short_conv = { .name = "short_conv", .reference = reference, .cases = cases, .work = work };
