/* ops/record.c - see record.h. */
#include "ops/record.h"

#include <inttypes.h>

#include "quant/quant.h"

bool record_input(struct tape *t, const char *op, struct val v, const char *what)
{
    if (tape_dead(t)) return false;
    if (v.id > 0 && v.id < t->n_values) return true;
    tape_fail(t, "%s: %s is not a value of this tape", op, what);
    return false;
}

bool record_matrix(struct tape *t, const char *op, const struct weight *w, uint64_t in, uint64_t out)
{
    if (tape_dead(t)) return false;
    if (!w) return tape_fail(t, "%s: a matrix of %" PRIu64 " columns is missing", op, in), false;
    if (w->dim[0] != in)
        return tape_fail(t, "%s: %s has rows of %" PRIu64 " elements, its input has %" PRIu64, op, w->name,
                         w->dim[0], in), false;
    if (w->dim[1] < 1 || (out && w->dim[1] != out))
        return tape_fail(t, "%s: %s has %" PRIu64 " rows, needs %" PRIu64, op, w->name, w->dim[1],
                         out ? out : 1), false;
    const struct format *f = format_find(w->type);
    if (!f || !f->decode)
        return tape_fail(t, "%s: %s has type %" PRIu32 ", which is no matrix format", op, w->name, w->type), false;
    if (in % (uint64_t)f->block)
        return tape_fail(t, "%s: %s has rows of %" PRIu64 " elements, not a multiple of the %d of a %s block",
                         op, w->name, in, f->block, f->name), false;
    return true;
}

bool record_experts(struct tape *t, const char *op, const struct weight *w, uint64_t in, uint64_t out,
                    uint64_t experts)
{
    if (!record_matrix(t, op, w, in, out)) return false;
    if (w->dim[2] == experts) return true;
    tape_fail(t, "%s: %s has %" PRIu64 " experts, needs %" PRIu64, op, w->name, w->dim[2], experts);
    return false;
}

bool record_vector(struct tape *t, const char *op, const struct weight *w, uint64_t n)
{
    if (tape_dead(t)) return false;
    if (!w) return true;
    if (w->type != Q_F32)
        return tape_fail(t, "%s: %s has type %" PRIu32 ", a vector must be f32", op, w->name, w->type), false;
    if (w->dim[0] == n && w->dim[1] <= 1) return true;
    tape_fail(t, "%s: %s has %" PRIu64 " elements, needs %" PRIu64, op, w->name, w->dim[0] * w->dim[1], n);
    return false;
}

bool record_same(struct tape *t, const char *op, struct val v, struct shape s)
{
    if (tape_dead(t)) return false;
    if (!v.id) return true;
    struct shape r = tape_shape(t, v);
    if (r.cols == s.cols && r.rows == s.rows && r.type == s.type) return true;
    tape_fail(t, "%s: the residual has %d columns in domain %d, the result %d in domain %d", op, r.cols,
              (int)r.rows, s.cols, (int)s.rows);
    return false;
}

bool record_layer_heads(struct tape *t, const char *op, int layer, int kv_heads, int head_dim)
{
    if (tape_dead(t)) return false;
    if (!t->kv || layer < 0 || layer >= t->kv->n_layers || t->kv->layer[layer].kind < 0 ||
        t->kv->layer[layer].kind == KV_STATE)
        return tape_fail(t, "%s: layer %d has no cache (the layout has %d layers)", op, layer,
                         t->kv ? t->kv->n_layers : 0), false;
    const struct kv_layer *y = &t->kv->layer[layer];
    if (y->kv_heads == kv_heads && y->k_dim == head_dim && y->v_dim == head_dim) return true;
    tape_fail(t, "%s: layer %d has %d kv heads of %d, its cache has %d of %d and %d", op, layer, kv_heads,
              head_dim, y->kv_heads, y->k_dim, y->v_dim);
    return false;
}

const struct kv_state *record_state(struct tape *t, const char *op, int layer, int cols, bool more)
{
    if (tape_dead(t)) return NULL;
    const struct kv_layer *y = t->kv && layer >= 0 && layer < t->kv->n_layers ? &t->kv->layer[layer] : NULL;
    if (!y || y->kind != KV_STATE) return tape_fail(t, "%s: layer %d is not recurrent", op, layer), NULL;
    if (y->state.channels == cols || (more && y->state.channels < cols)) return &y->state;
    tape_fail(t, "%s: x has %d columns, layer %d has %d channels", op, cols, layer, y->state.channels);
    return NULL;
}

bool record_rope(struct tape *t, const char *op, int layer, const struct qkv_weights *w,
                 const struct rope_kv_attr *a)
{
    if (tape_dead(t)) return false;
    if (a->heads < 0 || a->kv_heads < 1 || a->head_dim < 1 || a->heads % a->kv_heads)
        return tape_fail(t, "%s: %d heads of %d over %d kv heads: heads must be a multiple", op, a->heads,
                         a->head_dim, a->kv_heads), false;
    if (a->layout != ROPE_NONE && (a->rope_dims < 2 || a->rope_dims % 2 || a->rope_dims > a->head_dim))
        return tape_fail(t, "%s: %d rotary dims of a head of %d: must be even and within the head", op,
                         a->rope_dims, a->head_dim), false;
    if (a->layout != ROPE_NONE && !w->freq)
        return tape_fail(t, "%s: layer %d rotates but has no frequencies", op, layer), false;
    return record_layer_heads(t, op, layer, a->kv_heads, a->head_dim) &&
           record_vector(t, op, w->q_norm, (uint64_t)a->head_dim) &&
           record_vector(t, op, w->k_norm, (uint64_t)a->head_dim) &&
           record_vector(t, op, a->layout != ROPE_NONE ? w->freq : NULL, (uint64_t)a->rope_dims / 2);
}
