/* ops/record.h - what the record functions of ops/ share: shape rules and their messages.
 * All return false, with the tape's error set, when the rule is broken or the tape is dead. */
#ifndef LUCE_OPS_RECORD_H
#define LUCE_OPS_RECORD_H

#include "ops/ops.h"

/* True for a live tape and a given value. `op` names the caller in messages. */
bool record_input(struct tape *t, const char *op, struct val v, const char *what);
/* w is a matrix [in, out] in a known format whose block divides its rows; out 0: any number. */
bool record_matrix(struct tape *t, const char *op, const struct weight *w, uint64_t in, uint64_t out);
/* The same for one matrix an expert: [in, out, experts]. */
bool record_experts(struct tape *t, const char *op, const struct weight *w, uint64_t in, uint64_t out,
                    uint64_t experts);
/* w is NULL or a vector of n f32. */
bool record_vector(struct tape *t, const char *op, const struct weight *w, uint64_t n);
/* The residual (if it is a value) has the given shape. */
bool record_same(struct tape *t, const char *op, struct val v, struct shape s);
/* The layer keeps keys and values of these heads. */
bool record_layer_heads(struct tape *t, const char *op, int layer, int kv_heads, int head_dim);
/* What the layer keeps, or NULL: it is not recurrent, or has another number of channels than cols
 * (`more`: has more of them). */
const struct kv_state *record_state(struct tape *t, const char *op, int layer, int cols, bool more);
/* Weights and attributes of QKV's second half: norms, frequencies, heads. */
bool record_rope(struct tape *t, const char *op, int layer, const struct qkv_weights *w,
                 const struct rope_kv_attr *a);

/* LINEAR of up to 3 matrices with any bias and a residual (id 0: none). */
struct linear_parts {
    struct val x, residual;
    const struct weight *mat[3], *bias[3];
    struct linear_attr attr;
    int layer;
};
struct val record_linear(struct tape *t, const struct linear_parts *p);

static inline const char *act_name(enum act a)
{
    return a == ACT_SILU ? "silu" : "gelu_tanh";
}

#endif
