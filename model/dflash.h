/* model/dflash.h - DFlash and DFlash2 drafters: a few layers that guess a whole block of tokens in one pass
 * from the target's own hidden states. Equations: model/dflash_record.c. Files: GGUF in the two published
 * dialects, or a safetensors checkpoint (a folder or file; docs/speculation.md).
 *
 * Such a model has no embedding and no head of its own, as a rule: it uses the target's, on the target's
 * device. Its wide steps take in features of the text (record.given), its narrow steps are blocks: the last
 * token and masks, whose logits (record.logits) guess the tokens after it. */
#ifndef LUCE_MODEL_DFLASH_H
#define LUCE_MODEL_DFLASH_H

#include "model/family.h"

enum { DFLASH_BRANCHES = 8 };       /* tokens of a place in a tree that is no chain */

struct dflash_layer {
    const struct weight *attn_norm, *q, *k, *v, *q_norm, *k_norm, *o, *ffn_norm, *gate, *up, *down;
    /* k and v once more, as features take another product than blocks: a device lays weights out by product. */
    const struct weight *of_feature[2];
    /* DFlash2: the convolution around each half, [2 sides, taps, embd] and what a row adds to it. */
    const struct weight *attn_conv, *attn_dyn, *ffn_conv, *ffn_dyn;
    bool whole_block;           /* a row sees later rows of its block too */
};

struct dflash {
    int n_taps, tap[MODEL_MAX_TAPS];    /* layers of the target whose outputs make a feature, in this order */
    int block;                  /* rows that it was trained for, the last token included */
    int32_t mask;
    int n_ids;                  /* tokens that it may say: rows of its own head */
    const int32_t *ids;         /* [n_ids] the target's token of each row; NULL: all of them, row i is token i */
    const int32_t *row_of;      /* [vocab] and the row of each token, -1: none; NULL: it may say all */
    float logit_scale, softcap; /* of the logits; softcap 0: none */
    const struct weight *embd, *head;   /* the target's or its own */
    const struct weight *fc, *feature_norm, *norm;
    int taps, group;            /* of the convolutions; 0 in a DFlash */
    /* The selector of DFlash2: score of token t after p at a row is its logit + sum_r P[p][r] e[r] S[t][r],
     * e = H hidden. */
    int rank, top_k;            /* 0 in a DFlash */
    const struct weight *selector;      /* H [embd, rank] */
    const struct gguf_tensor *before, *after;   /* P, S [rank, vocab; or n_ids, as the head], in host memory */
    struct dflash_layer *layer;
};

/* The file's layers, for the target (borrowed; with its weights, as long as the model). LUCE_E_ARG: it is a
 * drafter for another model. LUCE_E_FORMAT, LUCE_E_UNSUPPORTED: it is none, or needs what is not computed
 * here. The model owns the file. */
luce_status dflash_open(struct model **out, const char *path, const struct model *target, luce_error *err);
/* The same for a file that is open, which the model owns on success. */
luce_status dflash_open_file(struct model **out, struct gguf *g, const struct model *target, luce_error *err);
/* Opens the file in any of its forms; for what else is in it. */
luce_status dflash_file(struct gguf **out, const char *path, luce_error *err);
/* Whether the file is a DFlash drafter at all, and whether of the second kind. */
bool dflash_is(const struct gguf *g, bool *second);
const struct dflash *dflash_of(const struct model *m);
/* The target's `token` in P or S: rank floats, all 0 where it has no row. */
void dflash_code(const struct dflash *d, const struct gguf_tensor *codes, int32_t token, float *out);

/* dflash_record.c: the family's record function. */
void dflash_record(struct tape *t, const struct model *m, enum step_class class, struct record *out);

#endif
