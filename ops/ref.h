/* ops/ref.h - what the float64 references share: activations, and the cache of keys and values. */
#ifndef LUCE_OPS_REF_H
#define LUCE_OPS_REF_H

#include <math.h>

#include "ops/ops.h"

/* One (layer, slot) after the other; positions 0 .. max_positions - 1, then the bank's NARROW_ROWS.
 * k [layer][slot][pos][kv_head][k_dim], v alike. */
struct ref_cache {
    const struct kv_layout *kv;
    int n_slots, max_positions;
    bool round;                 /* through the layer's format at each write */
    double *data;
    uint64_t layer_at[KV_MAX_LAYERS];   /* offset of a layer, in doubles */
    double *state, *journal;    /* of recurrent layers: [layer][slot], each as tape/kv.h lays it out */
    uint64_t state_at[KV_MAX_LAYERS], journal_at[KV_MAX_LAYERS];
    uint8_t *block;             /* scratch for rounding: one head's block */
    float *row;                 /* scratch for rounding: one position */
};

/* Room for n_slots sequences of max_positions. LUCE_E_NOMEM. */
luce_status ref_cache_open(struct ref_cache *c, const struct kv_layout *kv, int n_slots,
                           int max_positions, bool round, luce_error *err);
void ref_cache_drop(struct ref_cache *c);
/* Key or value of one head. pos < 0: bank row -1 - pos. */
double *ref_k(const struct ref_cache *c, int layer, int slot, int pos, int head);
double *ref_v(const struct ref_cache *c, int layer, int slot, int pos, int head);
/* A number as a recurrent layer's state or journal keeps it: f32, when the cache rounds. */
static inline double ref_kept(const struct ref_cache *c, double x)
{
    return c->round ? (double)(float)x : x;
}
/* Rounds what was just written there, when the cache rounds. */
void ref_round(const struct ref_cache *c, int layer, int slot, int pos, int head);
/* State and journal of a recurrent layer; `part` of the journal, row 0. */
double *ref_state(const struct ref_cache *c, int layer, int slot);
double *ref_journal(const struct ref_cache *c, int layer, int slot, enum journal part);
/* Carries out the commit of one sequence in one layer. */
void ref_commit(const struct ref_cache *c, int layer, const struct step_seq *s);

/* Element i of the f32 vector in weight slot `slot`. */
double ref_vector_at(const struct ref_args *a, int slot, uint64_t i);

static inline double ref_dot(const double *a, const double *b, size_t n)
{
    double sum[4] = { 0 };
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++) sum[j] += a[i + (size_t)j] * b[i + (size_t)j];
    for (; i < n; i++) sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static inline double ref_act(enum act a, double z)
{
    if (a == ACT_SILU) return z / (1 + exp(-z));
    return 0.5 * z * (1 + tanh(0.79788456080286535588 * (z + 0.044715 * z * z * z)));
}

/* Rows of a domain in this step. */
static inline int step_rows_of(const struct step *s, enum domain d)
{
    switch (d) {
    case DOM_ROWS: return s->head.n_rows;
    case DOM_OUT: return s->head.n_out;
    case DOM_CTX: return s->head.n_ctx;
    case DOM_SEQS: return s->head.n_seqs;
    default: return 0;
    }
}

#endif
