/* ops/ref.c - see ref.h; and the exact decoding of weight rows for the references. */
#include "ops/ref.h"

#include <string.h>

#include "base/mem.h"
#include "quant/synthetic.h"

const double *ref_weight_row(const struct ref_args *a, int slot, uint64_t row)
{
    const struct weight *w = a->call->w[slot];
    const struct format *f = format_find(w->type);
    float *values = (float *)(void *)(a->scratch + w->dim[0]);     /* behind the doubles */
    const void *bytes = w->host ? (const void *)weight_row(w, row, format_bytes(f, w->dim[0])) : a->scratch;
    if (!w->host) synthetic_rows(f, w->seed, row, 1, w->dim[0], w->synthetic_std, a->scratch);
    f->decode(bytes, values, (int64_t)w->dim[0]);
    for (uint64_t i = 0; i < w->dim[0]; i++) a->scratch[i] = values[i];
    return a->scratch;
}

double ref_vector_at(const struct ref_args *a, int slot, uint64_t i)
{
    float f;
    memcpy(&f, a->call->w[slot]->host + 4 * i, 4);
    return f;
}

static uint64_t position_size(const struct kv_layer *y)
{
    return (uint64_t)y->kv_heads * (uint64_t)(y->k_dim + y->v_dim);
}

static uint64_t state_size(const struct kv_state *s)
{
    return kv_conv_size(s) + kv_memory_size(s);
}

static bool open_states(struct ref_cache *c)
{
    uint64_t state = 0, journal = 0;
    for (int i = 0; c->kv && i < c->kv->n_layers; i++) {
        const struct kv_layer *y = &c->kv->layer[i];
        if (y->kind != KV_STATE) continue;
        c->state_at[i] = state;
        c->journal_at[i] = journal;
        state += (uint64_t)c->n_slots * state_size(&y->state);
        journal += (uint64_t)c->n_slots * kv_journal_at(&y->state, JOURNAL_PARTS);
    }
    if (!state) return true;
    c->state = mem_array(state, sizeof *c->state);
    c->journal = mem_array(journal, sizeof *c->journal);
    return c->state && c->journal;
}

double *ref_state(const struct ref_cache *c, int layer, int slot)
{
    return c->state + c->state_at[layer] + (uint64_t)slot * state_size(&c->kv->layer[layer].state);
}

double *ref_journal(const struct ref_cache *c, int layer, int slot, enum journal part)
{
    const struct kv_state *s = &c->kv->layer[layer].state;
    uint64_t at = (uint64_t)slot * kv_journal_at(s, JOURNAL_PARTS) + kv_journal_at(s, part);
    return c->journal + c->journal_at[layer] + at;
}

luce_status ref_cache_open(struct ref_cache *c, const struct kv_layout *kv, int n_slots,
                           int max_positions, bool round, luce_error *err)
{
    *c = (struct ref_cache){ .kv = kv, .n_slots = n_slots, .max_positions = max_positions, .round = round };
    uint64_t total = 0, block = 0, dim = 0, places = (uint64_t)(max_positions + NARROW_ROWS);
    for (int i = 0; kv && i < kv->n_layers; i++) {
        const struct kv_layer *y = &kv->layer[i];
        c->layer_at[i] = total;
        if (y->kind < 0 || y->kind == KV_STATE) continue;
        total += places * (uint64_t)n_slots * position_size(y);
        uint64_t bytes = y->k_head > y->v_head ? y->k_head : y->v_head;
        uint64_t most = (uint64_t)(y->k_dim > y->v_dim ? y->k_dim : y->v_dim);
        if (bytes > block) block = bytes;
        if (most > dim) dim = most;
    }
    if (!open_states(c)) goto bad;
    if (!total) return LUCE_OK;
    c->data = mem_array(total, sizeof *c->data);
    c->row = mem_array(dim, sizeof *c->row);
    if (round) c->block = mem_zero(block);
    if (c->data && c->row && (!round || c->block)) return LUCE_OK;
bad:
    ref_cache_drop(c);
    return fail(err, LUCE_E_NOMEM, "out of memory for a reference cache of %d slots of %d positions", n_slots,
                max_positions);
}

void ref_cache_drop(struct ref_cache *c)
{
    mem_free(c->data);
    mem_free(c->state);
    mem_free(c->journal);
    mem_free(c->block);
    mem_free(c->row);
    *c = (struct ref_cache){ 0 };
}

static double *position(const struct ref_cache *c, int layer, int slot, int pos)
{
    uint64_t places = (uint64_t)(c->max_positions + NARROW_ROWS);
    uint64_t place = pos >= 0 ? (uint64_t)pos : (uint64_t)(c->max_positions - 1 - pos);
    return c->data + c->layer_at[layer] +
           ((uint64_t)slot * places + place) * position_size(&c->kv->layer[layer]);
}

double *ref_k(const struct ref_cache *c, int layer, int slot, int pos, int head)
{
    return position(c, layer, slot, pos) + (size_t)head * (size_t)c->kv->layer[layer].k_dim;
}

double *ref_v(const struct ref_cache *c, int layer, int slot, int pos, int head)
{
    const struct kv_layer *y = &c->kv->layer[layer];
    return position(c, layer, slot, pos) + (size_t)y->kv_heads * (size_t)y->k_dim +
           (size_t)head * (size_t)y->v_dim;
}

static void round_row(const struct ref_cache *c, uint32_t format, int dim, double *values)
{
    for (int i = 0; i < dim; i++) c->row[i] = (float)values[i];
    kv_encode(format, dim, c->block, 0, c->row);
    kv_decode(format, dim, c->block, 0, c->row);
    for (int i = 0; i < dim; i++) values[i] = c->row[i];
}

void ref_round(const struct ref_cache *c, int layer, int slot, int pos, int head)
{
    if (!c->round) return;
    const struct kv_layer *y = &c->kv->layer[layer];
    round_row(c, y->k_format, y->k_dim, ref_k(c, layer, slot, pos, head));
    round_row(c, y->v_format, y->v_dim, ref_v(c, layer, slot, pos, head));
}

void ref_commit(const struct ref_cache *c, int layer, const struct step_seq *s)
{
    uint64_t size = position_size(&c->kv->layer[layer]) * sizeof(double);
    for (int i = 0; i < s->n_commit; i++)
        memcpy(position(c, layer, s->slot, s->past - s->n_commit + i),
               position(c, layer, s->slot, -1 - s->commit[i]), size);
}
