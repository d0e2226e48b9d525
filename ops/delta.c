/* ops/delta.c - DELTA: the gated delta rule. Per value head of a row, from the conv's q, k, v (keys of width dk):
 *   q = q / max(|q|, eps) / sqrt(dk);  k = k / max(|k|, eps)
 *   decay = exp(softplus(alpha + dt) * a);  beta = sigmoid(beta's gate)
 *   d = beta * (v - decay * S^T k)                       what the memory lacks of v
 *   S = decay * S + k d^T;  o = S^T q
 * S [dk, dv] is the state after the row's ancestors (its path; of wide rows the ones before it), which begins as what
 * the layer's state holds, or 0 where the sequence begins. x [rows, channels]: q heads, k heads, v heads; gates
 * [rows, 2 v_heads]; o [rows, v_heads * dv].
 * Before anything else the accepted rows of the step before are redone from the journal: S = decay * S + k d^T.
 * A narrow row leaves k, d and decay in the journal, wide rows change the state at once.
 * Yang et al. 2024, "Gated Delta Networks". */
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"
#include "ops/work.h"

#include <string.h>

struct val op_delta(struct tape *t, int layer, struct val x, struct val gates, const struct weight *a,
                    const struct weight *dt, const struct delta_attr *attr)
{
    if (!record_input(t, "delta", x, "x") || !record_input(t, "delta", gates, "gates")) return (struct val){ 0 };
    struct shape s = tape_shape(t, x), g = tape_shape(t, gates);
    const struct kv_state *k = record_state(t, "delta", layer, s.cols, false);
    if (!k) return (struct val){ 0 };
    if (attr->k_heads != k->k_heads || attr->v_heads != k->v_heads || attr->k_dim != k->k_dim ||
        attr->v_dim != k->v_dim)
        return tape_fail(t, "delta: %d and %d heads of %d and %d, layer %d keeps %d and %d of %d and %d", attr->k_heads,
                         attr->v_heads, attr->k_dim, attr->v_dim, layer, k->k_heads, k->v_heads, k->k_dim, k->v_dim);
    if (g.cols != 2 * k->v_heads || g.rows != s.rows || s.rows != DOM_ROWS)
        return tape_fail(t, "delta: layer %d: %d gates in domain %d for %d value heads in domain %d", layer, g.cols,
                         (int)g.rows, k->v_heads, (int)s.rows);
    if (!a || !dt) return tape_fail(t, "delta: layer %d has no decay weights", layer);
    if (!record_vector(t, "delta", a, (uint64_t)k->v_heads) || !record_vector(t, "delta", dt, (uint64_t)k->v_heads))
        return (struct val){ 0 };
    struct call c = { .op = OP_DELTA, .layer = layer, .n_in = 2, .in = { x, gates }, .n_w = 2, .n_out = 1, .attr = attr,
                      .attr_size = sizeof *attr, .shape = { { s.rows, DT_F32, k->v_heads * k->v_dim } } };
    c.w[W_DELTA_A] = a;
    c.w[W_DELTA_DT] = dt;
    return op_push(t, &c);
}

/* One value head of one row. */
struct head {
    const double *q, *k, *v;        /* q and k as they come, k_dim each */
    double decay, beta;
    double *key, *correction, *o;   /* k normalised, d and o: results */
};

/* Column j of a head's memory: element i is at i * KV_LANES. */
static double *column(const struct delta_attr *p, double *memory, int j)
{
    return memory + (size_t)(j / KV_LANES) * (size_t)(p->k_dim * KV_LANES) + j % KV_LANES;
}

static void redo(const struct ref_cache *c, const struct delta_attr *p, double *memory, const double *key,
                 const double *d, double decay)
{
    for (int j = 0; j < p->v_dim; j++) {
        double *s = column(p, memory, j);
        for (int i = 0; i < p->k_dim; i++)
            s[i * KV_LANES] = ref_kept(c, decay * s[i * KV_LANES] + key[i] * d[j]);
    }
}

static double length(const double *x, int n, double least)
{
    double l = sqrt(ref_dot(x, x, (size_t)n));
    return l > least ? l : least;
}

static void run_head(const struct ref_cache *c, const struct delta_attr *p, double *memory, const struct head *h)
{
    double lk = length(h->k, p->k_dim, p->eps), lq = length(h->q, p->k_dim, p->eps) * sqrt(p->k_dim);
    for (int i = 0; i < p->k_dim; i++) h->key[i] = ref_kept(c, h->k[i] / lk);
    for (int j = 0; j < p->v_dim; j++) {
        const double *s = column(p, memory, j);
        double known = 0;
        for (int i = 0; i < p->k_dim; i++) known += s[i * KV_LANES] * h->key[i];
        h->correction[j] = ref_kept(c, h->beta * (h->v[j] - h->decay * known));
    }
    redo(c, p, memory, h->key, h->correction, h->decay);
    for (int j = 0; j < p->v_dim; j++) {
        const double *s = column(p, memory, j);
        h->o[j] = 0;
        for (int i = 0; i < p->k_dim; i++) h->o[j] += s[i * KV_LANES] * h->q[i] / lq;
    }
}

static void set_gates(const struct ref_args *a, const struct delta_attr *p, int row, int head, struct head *h)
{
    const double *g = a->x[1] + (size_t)row * (size_t)(2 * p->v_heads);
    int r = p->v_heads / p->k_heads, in_group = head / r * 2 * r + head % r;
    double alpha = p->grouped ? g[in_group + r] : g[head], beta = p->grouped ? g[in_group] : g[p->v_heads + head];
    double z = alpha + ref_vector_at(a, W_DELTA_DT, (uint64_t)head);
    h->decay = ref_kept(a->cache, exp((z > 20 ? z : log1p(exp(z))) * ref_vector_at(a, W_DELTA_A, (uint64_t)head)));
    h->beta = 1 / (1 + exp(-beta));
}

/* scratch: a head's memory on the way, then keys and corrections of one head for all rows. */
static void run_seq(const struct ref_args *a, const struct delta_attr *p, const struct step_seq *s, int head)
{
    const struct kv_state *y = &a->kv->layer[a->call->layer].state;
    size_t dk = (size_t)p->k_dim, dv = (size_t)p->v_dim, size = dk * dv;
    int key_head = p->grouped ? head / (p->v_heads / p->k_heads) : head % p->k_heads;
    double *state = ref_state(a->cache, a->call->layer, s->slot) + kv_conv_size(y) + (size_t)head * size;
    double *keys = ref_journal(a->cache, a->call->layer, s->slot, JOURNAL_KEY) + (size_t)key_head * dk;
    double *corrections = ref_journal(a->cache, a->call->layer, s->slot, JOURNAL_CORRECTION) + (size_t)head * dv;
    double *decays = ref_journal(a->cache, a->call->layer, s->slot, JOURNAL_DECAY) + head, *memory = a->scratch;
    size_t key_step = (size_t)p->k_heads * dk, value_step = (size_t)p->v_heads * dv, decay_step = (size_t)p->v_heads;
    bool wide = a->step->head.wide;
    for (int j = 0; j < s->n_rows; j++) {
        const double *x = a->x[0] + (size_t)(s->first_row + j) * (size_t)y->channels;
        struct head h = { .q = x + (size_t)key_head * dk, .k = x + key_step + (size_t)key_head * dk,
                          .v = x + 2 * key_step + (size_t)head * dv,
                          .o = a->y[0] + (size_t)(s->first_row + j) * value_step + (size_t)head * dv };
        size_t at = wide ? 0 : (size_t)j;
        h.key = wide ? a->scratch2 : keys + at * key_step;
        h.correction = wide ? a->scratch2 + dk : corrections + at * value_step;
        set_gates(a, p, s->first_row + j, head, &h);
        if (!wide) memcpy(memory, state, size * sizeof *memory);
        for (size_t i = 0; !wide && i < (size_t)j; i++)
            if (a->step->row[s->first_row + j].path >> i & 1)
                redo(a->cache, p, memory, keys + i * key_step, corrections + i * value_step, decays[i * decay_step]);
        run_head(a->cache, p, wide ? state : memory, &h);
        if (!wide) decays[at * decay_step] = h.decay;
    }
}

/* Of all heads, before any row of the step changes the journal: value heads share a key there. */
static void commit(const struct ref_args *a, const struct delta_attr *p, const struct step_seq *s)
{
    const struct kv_state *y = &a->kv->layer[a->call->layer].state;
    size_t dk = (size_t)p->k_dim, dv = (size_t)p->v_dim;
    double *state = ref_state(a->cache, a->call->layer, s->slot) + kv_conv_size(y);
    const double *keys = ref_journal(a->cache, a->call->layer, s->slot, JOURNAL_KEY);
    const double *corrections = ref_journal(a->cache, a->call->layer, s->slot, JOURNAL_CORRECTION);
    const double *decays = ref_journal(a->cache, a->call->layer, s->slot, JOURNAL_DECAY);
    if (s->past == s->n_commit) memset(state, 0, kv_memory_size(y) * sizeof *state);
    for (int head = 0; head < p->v_heads; head++) {
        int key_head = p->grouped ? head / (p->v_heads / p->k_heads) : head % p->k_heads;
        for (int i = 0; i < s->n_commit; i++) {
            size_t r = s->commit[i];
            redo(a->cache, p, state + (size_t)head * dk * dv, keys + (r * (size_t)p->k_heads + (size_t)key_head) * dk,
                 corrections + (r * (size_t)p->v_heads + (size_t)head) * dv,
                 decays[r * (size_t)p->v_heads + (size_t)head]);
        }
    }
}

static void reference(const struct ref_args *a)
{
    const struct delta_attr *p = a->call->attr;
    for (int i = 0; i < a->step->head.n_seqs; i++) {
        const struct step_seq *s = &a->step->seq[i];
        commit(a, p, s);
        for (int head = 0; head < p->v_heads; head++) run_seq(a, p, s, head);
    }
}

static void print(const void *attr, struct buf *out)
{
    const struct delta_attr *p = attr;
    buf_printf(out, "%d key heads of %d, %d value heads of %d%s", p->k_heads, p->k_dim, p->v_heads, p->v_dim,
               p->grouped ? ", grouped" : "");
}

static struct work work(const struct tape *t, const struct call *c, const struct step *s)
{
    struct work w = work_plain(t, c, s);
    double memory = (double)kv_memory_size(&t->kv->layer[c->layer].state), redone = 0;
    for (int i = 0; i < s->head.n_seqs; i++) redone += s->seq[i].n_commit;
    w.bytes += 8 * memory * s->head.n_seqs;
    w.ops += memory * (6.0 * s->head.n_rows + 3.0 * redone);
    return w;
}

/* p: key heads, value heads, dim of keys, of values, grouped, taps of a SHORT_CONV before it, its further columns. */
static struct val record_case(struct case_env *env, const struct op_case *c)
{
    struct delta_attr a = { .k_heads = c->p[0], .v_heads = c->p[1], .k_dim = c->p[2], .v_dim = c->p[3],
                            .grouped = c->p[4], .eps = 1e-6f };
    struct kv_state k = { .k_heads = a.k_heads, .v_heads = a.v_heads, .k_dim = a.k_dim, .v_dim = a.v_dim,
                          .taps = c->p[5] ? c->p[5] : 4,
                          .channels = 2 * a.k_heads * a.k_dim + a.v_heads * a.v_dim };
    (void)case_state(env, &(struct kv_state){ 52, 3, 1, 1, 10, 32 });      /* a layer before it */
    int layer = case_state(env, &k);
    struct val x = case_input(env, DOM_ROWS, k.channels + c->p[6], 1), g = case_input(env, DOM_ROWS, 2 * a.v_heads, 2);
    const struct weight *decay = case_weight(env, a.v_heads, 0, -0.5f, 0.1f);
    const struct weight *dt = case_weight(env, a.v_heads, 0, 0, 1);
    if (c->p[5]) x = op_short_conv(case_tape(env), layer, x, case_weight_f32(env, k.taps, k.channels, 0, 0.5f));
    return op_delta(case_tape(env), layer, x, g, decay, dt, &a);
}

static void cases(struct case_list *l)
{
    static const struct op_case shapes[] = {
        { .n_rows = 1, .p = { 3, 3, 8, 16 } },     /* a single q . k may be about 0: all outputs lie at its rounding */
        { .n_rows = 1, .p = { 2, 4, 16, 16 }, .past = 5 },
        { .n_rows = 1, .p = { 2, 4, 128, 128 }, .past = 64 },
        { .n_rows = 2, .p = { 2, 2, 100, 32 }, .past = 2 },
        { .n_rows = 5, .p = { 2, 6, 64, 64, 1 }, .past = 70, .n_seqs = 3 },
        { .n_rows = 17, .p = { 2, 4, 19, 16, 1 }, .past = 64 },
        { .n_rows = 64, .p = { 2, 6, 128, 128 }, .past = 65, .tree = 1 },
        { .n_rows = 33, .p = { 1, 3, 40, 48 }, .past = 3, .n_seqs = 4, .tree = 1 },
        { .n_rows = 64, .p = { 2, 2, 32, 32 } },
        { .n_rows = 1, .p = { 2, 4, 16, 32, 0, 4 } },
        { .n_rows = 1, .p = { 2, 6, 128, 128, 1, 4, 512 }, .past = 70 },
        { .n_rows = 3, .p = { 1, 2, 19, 16, 0, 2, 5 }, .past = 2, .n_seqs = 2 },
        { .n_rows = 8, .p = { 2, 4, 200, 32, 0, 3 }, .past = 65, .tree = 1 },
        { .n_rows = 7, .p = { 2, 4, 64, 64, 1, 4, 32 }, .past = 70, .n_seqs = 3, .tree = 1 },
        { .n_rows = 16, .p = { 2, 4, 32, 32, 0, 4 }, .past = 66, .tree = 1 },
        { .n_rows = 4, .p = { 1, 2, 32, 32, 0, 6 }, .past = 9 },
        { .n_rows = 65, .p = { 2, 4, 16, 16 }, .wide = 1 },
        { .n_rows = 200, .p = { 2, 4, 128, 64 }, .past = 65, .n_seqs = 3, .wide = 1 },
        { .n_rows = 2, .p = { 2, 4, 16, 32, 1 }, .past = 70, .n_seqs = 2, .wide = 1 },
        { .n_rows = 150, .p = { 2, 6, 128, 128, 1 }, .past = 64, .n_seqs = 2, .wide = 1 },
        { .n_rows = 64, .p = { 1, 2, 40, 64 }, .past = 3, .wide = 1 },
    };
    case_add_shapes(l, shapes, sizeof shapes / sizeof *shapes, record_case);
}

const struct op_def op_def_delta = { .name = "delta", .reference = reference, .cases = cases, .work = work,
                                     .print = print, .by_pages = true };
