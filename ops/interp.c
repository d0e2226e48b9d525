/* ops/interp.c - see interp.h. Every value has room of its own, grown to the largest step so far;
 * calls run in tape order through the references of op_defs. */
#include "ops/interp.h"

#include <string.h>

#include "base/mem.h"
#include "ops/ref.h"

struct interp {
    const struct tape *tape;
    struct ref_cache cache;
    double **rows;              /* by value id */
    int *cap_rows;
    double *scratch, *scratch2;
    int *places;
};

/* Doubles that the references of the tape need as scratch. */
static uint64_t scratch_size(const struct tape *t, int max_positions)
{
    uint64_t most = (uint64_t)(max_positions + NARROW_ROWS);
    for (int i = 0; i < t->n_calls; i++)
        for (int j = 0; j < t->calls[i].n_w; j++) {
            const struct weight *w = t->calls[i].w[j];
            if (w && w->dim[0] * 2 > most) most = w->dim[0] * 2;    /* the row in f32 lies behind */
        }
    for (int i = 0; t->kv && i < t->kv->n_layers; i++) {
        uint64_t memory = kv_memory_size(&t->kv->layer[i].state);
        if (memory > most) most = memory;
    }
    return most;
}

/* Doubles of one row of q, k and v, or of two rows of a router's scores, the widest of the tape; DELTA needs less
 * than its row of x. */
static uint64_t scratch2_size(const struct tape *t)
{
    uint64_t most = 1;
    for (int i = 0; i < t->n_calls; i++) {
        const struct call *c = &t->calls[i];
        uint64_t scores = c->op == OP_ROUTE ? 2 * (uint64_t)tape_shape(t, c->in[0]).cols : 0;
        if (scores > most) most = scores;
        if (c->layer < 0 || !t->kv) continue;
        const struct kv_layer *y = &t->kv->layer[c->layer];
        uint64_t n = (uint64_t)c->shape[0].cols + (uint64_t)y->kv_heads * (uint64_t)(y->k_dim + y->v_dim);
        if (c->op == OP_ROPE_KV || c->op == OP_DELTA) n = (uint64_t)tape_shape(t, c->in[0]).cols;
        if (n > most) most = n;
    }
    return most;
}

/* Weights must be at hand: an upload may have released them. */
static luce_status check_weights(const struct tape *t, luce_error *err)
{
    for (int i = 0; i < t->n_calls; i++)
        for (int j = 0; j < t->calls[i].n_w; j++) {
            const struct weight *w = t->calls[i].w[j];
            if (w && !w->host && w->synthetic_std == 0)
                return fail(err, LUCE_E_ARG, "the reference needs %s, which has no bytes in host memory", w->name);
        }
    return LUCE_OK;
}

luce_status interp_open(struct interp **out, const struct tape *t, const struct kv_layout *kv, int n_slots,
                        int max_positions, bool round_cache, luce_error *err)
{
    *out = NULL;
    struct interp *p = mem_zero(sizeof *p);
    if (!p) return fail(err, LUCE_E_NOMEM, "out of memory for the reference interpreter");
    p->tape = t;
    luce_status st = check_weights(t, err);
    if (!st) st = ref_cache_open(&p->cache, kv, n_slots, max_positions, round_cache, err);
    if (st) goto bad;
    size_t n_values = (size_t)(t->n_values ? t->n_values : 1);
    p->rows = mem_array(n_values, sizeof *p->rows);
    p->cap_rows = mem_array(n_values, sizeof *p->cap_rows);
    p->scratch = mem_array(scratch_size(t, max_positions), sizeof *p->scratch);
    p->scratch2 = mem_array(scratch2_size(t), sizeof *p->scratch2);
    p->places = mem_array((size_t)max_positions + NARROW_ROWS, sizeof *p->places);
    if (p->rows && p->cap_rows && p->scratch && p->scratch2 && p->places) {
        *out = p;
        return LUCE_OK;
    }
    st = fail(err, LUCE_E_NOMEM, "out of memory for the values of a tape of %d calls", t->n_calls);
bad:
    interp_close(p);
    return st;
}

void interp_close(struct interp *p)
{
    if (!p) return;
    for (int i = 0; p->rows && i < p->tape->n_values; i++) mem_free(p->rows[i]);
    mem_free(p->rows);
    mem_free(p->cap_rows);
    mem_free(p->scratch);
    mem_free(p->scratch2);
    mem_free(p->places);
    ref_cache_drop(&p->cache);
    mem_free(p);
}

static luce_status reserve(struct interp *p, int id, int n, luce_error *err)
{
    if (n <= p->cap_rows[id]) return LUCE_OK;
    size_t bytes;
    double *rows = NULL;
    if (!__builtin_mul_overflow((size_t)n, (size_t)p->tape->values[id].shape.cols * sizeof *rows, &bytes))
        rows = mem_resize(p->rows[id], bytes);
    if (!rows)
        return fail(err, LUCE_E_NOMEM, "out of memory for %d rows of %d columns in float64", n,
                    p->tape->values[id].shape.cols);
    p->rows[id] = rows;
    p->cap_rows[id] = n;
    return LUCE_OK;
}

static void run_call(struct interp *p, const struct call *c, const struct step *s)
{
    struct ref_args a = { .call = c, .kv = p->cache.kv, .step = s, .cache = &p->cache,
                          .scratch = p->scratch, .scratch2 = p->scratch2, .places = p->places };
    for (int i = 0; i < c->n_in; i++) {
        a.x[i] = p->rows[c->in[i].id];
        a.cols[i] = p->tape->values[c->in[i].id].shape.cols;
    }
    for (int i = 0; i < c->n_out; i++) {
        a.y[i] = p->rows[c->out[i].id];
        a.out_cols[i] = c->shape[i].cols;
    }
    a.rows = c->n_out ? step_rows_of(s, c->shape[0].rows) : s->head.n_rows;
    op_defs[c->op]->reference(&a);
}

/* What would make a reference read or write outside its room. */
static luce_status check_step(const struct interp *p, const struct step *s, luce_error *err)
{
    for (int i = 0; i < s->head.n_seqs; i++) {
        const struct step_seq *q = &s->seq[i];
        int end = q->past + (s->head.wide ? q->n_rows : 0);
        if (p->cache.kv && (q->slot < 0 || q->slot >= p->cache.n_slots || q->past < q->n_commit ||
                            end > p->cache.max_positions))
            return fail(err, LUCE_E_ARG, "interp: sequence %d in slot %d ends at position %d; there are %d "
                        "slots of %d positions", i, q->slot, end, p->cache.n_slots, p->cache.max_positions);
    }
    return LUCE_OK;
}

luce_status interp_run(struct interp *p, const struct step *s, luce_error *err)
{
    const struct tape *t = p->tape;
    luce_status st = check_step(p, s, err);
    for (int i = 1; !st && i < t->n_values; i++)
        st = reserve(p, i, step_rows_of(s, t->values[i].shape.rows), err);
    for (int i = 0; !st && i < t->n_calls; i++) run_call(p, &t->calls[i], s);
    return st;
}

luce_status interp_write(struct interp *p, struct val v, const double *rows, int n_rows, luce_error *err)
{
    luce_status st = reserve(p, v.id, n_rows, err);
    if (st) return st;
    memcpy(p->rows[v.id], rows, (size_t)n_rows * (size_t)p->tape->values[v.id].shape.cols * sizeof *rows);
    return LUCE_OK;
}

const double *interp_read(const struct interp *p, struct val v)
{
    return p->rows[v.id];
}

double *interp_k(struct interp *p, int layer, int slot, int pos, int head)
{
    return ref_k(&p->cache, layer, slot, pos, head);
}

double *interp_v(struct interp *p, int layer, int slot, int pos, int head)
{
    return ref_v(&p->cache, layer, slot, pos, head);
}

double *interp_state(struct interp *p, int layer, int slot)
{
    return ref_state(&p->cache, layer, slot);
}

double *interp_journal(struct interp *p, int layer, int slot)
{
    return ref_journal(&p->cache, layer, slot, JOURNAL_INPUT);
}
