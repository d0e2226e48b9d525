/* model/family.h - model families: equations on one side, tensors and keys on the other.
 *
 * A family is a row: which tensors it has (the bind table), which keys it reads, and how one layer is
 * recorded. The layer loop, embedding, final norm, head and feature taps are model/decoder.c. A family
 * does not know batch or width, pages, devices, drafters, sampling or chat.
 * How to add one: docs/models.md. */
#ifndef LUCE_MODEL_FAMILY_H
#define LUCE_MODEL_FAMILY_H

#include "gguf/reader.h"
#include "ops/ops.h"

enum { MODEL_MAX_LAYERS = 512, MODEL_MAX_TAPS = 16, MODEL_MAX_ROPES = 2 };

enum dim {                      /* sizes that tensors are checked against */
    DIM_NONE, DIM_EMBD, DIM_EMBD2, DIM_Q, DIM_KV, DIM_QKV, DIM_HEAD, DIM_FF, DIM_FF2, DIM_VOCAB,
    DIM_EXPERTS, DIM_EXPERT_FF, DIM_SHARED_FF,
    DIM_GATED_Q, DIM_GATED_QKV,         /* heads of q twice as wide: query and gate */
    DIM_CHANNELS, DIM_TAPS, DIM_VALUES, DIM_V_HEADS, DIM_V_DIM, DIM_GATES,      /* of decoder.state */
    DIM_COUNT
};
enum split { WHOLE, BY_ROW, BY_COL };      /* how a tensor is cut over devices */
enum bind_flags {
    OPTIONAL = 1,               /* the field is NULL when the tensor is absent */
    INSTEAD  = 2,               /* looked for only when the nearest OPTIONAL row above it is absent,
                                   and then needed (unless OPTIONAL as well) */
    WITH     = 4,               /* looked for only when that row is there, and then needed */
    EACH     = 8,               /* one matrix for each expert: [in, out, experts] */
    RECURRENT = 16,             /* in recurrent layers only */
    ATTENDS  = 32,              /* in the other layers only */
    AS_F32   = 64,              /* a matrix that is f32 in memory whatever the file holds */
    NEGATIVE = 128,             /* a vector that synthetic models fill with -1 instead of 1 */
    FIRST_HALF = 256,           /* of the rows of each matrix; the tensor has twice as many */
    SECOND_HALF = 512,
};

struct bind {                   /* one tensor of a layer ("blk.N." before it) or of the model */
    const char *tensor;
    size_t      field;          /* offset of its const struct weight * */
    enum dim    in, out;        /* out DIM_NONE: a vector, f32 in memory whatever the file holds */
    enum split  split;
    unsigned    flags;
};

struct rope_config {
    enum rope_layout layout;
    int   dims;                 /* of a head that are rotated; even */
    float base;
    float magnitude;            /* of cos and sin */
    const struct weight *freq;  /* [dims / 2] f32: radians a position; all scaling is in it */
    float *table;               /* its values, in the model's arena */
    /* longrope: divisors of the frequencies up to original_context positions, and beyond. */
    const float *short_factors, *long_factors;
    int   original_context;
    int   sections[2];          /* as in rope_kv_attr */
};

struct layer_shape {
    int heads, kv_heads, ff;
    int window;                 /* positions a row sees including itself; 0: all */
    int rope;                   /* index into decoder.rope */
    bool recurrent;             /* keeps decoder.state instead of keys and values */
};

struct decoder {                /* the keys that all decoders share, checked */
    int   n_layers, embd, head_dim, vocab, context;
    float eps;
    float embed_scale;          /* 0: 1 */
    float attn_scale;           /* of q . k */
    float softcap;              /* of the logits; 0: none */
    int   n_ropes;
    struct rope_config rope[MODEL_MAX_ROPES];
    int   expert_ff;            /* rows of an expert's gate; 0 without experts */
    struct route_attr route;    /* experts 0: none */
    int   shared_ff;            /* rows of the shared expert's gate */
    struct kv_state state;      /* of recurrent layers */
    struct layer_shape layer[MODEL_MAX_LAYERS];
};

struct synthetic_plan;          /* model/presets.h */
struct record;

struct model {
    const struct family *family;
    const struct gguf   *file;  /* borrowed; until the upload is done, with a block (mtp) as long as the model */
    struct gguf         *own;   /* the header of a synthetic model, which this model closes */
    struct buf           header;
    const struct synthetic_plan *synthetic;     /* NULL for a model from a file */
    struct decoder       c;
    struct arena         arena;
    const struct weight *token_embd, *output_norm, *output;     /* output is token_embd when tied */
    void                *layers;            /* family's struct layer, n_layers of them */
    const struct weight *allowed;           /* [vocab] f32: 0, or minus infinity: never chosen; or NULL */
    const struct mtp    *mtp;               /* of a trailing block that is a model of its own (model/mtp.h) */
    struct weight       *weights;           /* all that the tapes use, in file order */
    int                  n_weights;
    struct kv_layout     kv;                /* formats not yet fixed */
    uint64_t             bytes;             /* of all weights in their stored formats */
    int                  n_unused;          /* tensors of the file that no tape uses */
};

struct family {
    const char *arch, *doc;                 /* general.architecture */
    /* Reads the keys into m->c: sets rope[0].layout, calls decoder_configure, then changes what is
     * the family's own. Weights are not bound yet. */
    luce_status (*configure)(struct model *m, const struct gguf *g, luce_error *err);
    /* One layer, with its residual stream x [rows, embd] in and out. */
    struct val (*record_layer)(struct tape *t, const struct model *m, int layer, struct val x);
    /* Families whose wide steps are another forward pass than their narrow ones record both here, one call
     * each; NULL: model_record with record_layer serves both. */
    void (*record)(struct tape *t, const struct model *m, enum step_class class, struct record *out);
    size_t layer_size;
    const struct bind *binds;
    int n_binds;
};
const struct family *family_at(size_t i);          /* NULL past the end */
const struct family *family_named(struct str arch);

/* Synthetic models: real dimensions, random weights, no file. Rows are in model/presets.c: presets
 * give dimensions, mixes give a format per tensor; every format with an encoder is a mix as well.
 * Parses "qwen3-0.6b:q8_0". LUCE_E_ARG lists presets and mixes. */
luce_status model_open_synthetic(struct model **out, const char *spec, luce_error *err);
const char *preset_name(size_t i);                 /* NULL past the end */
const char *mix_name(size_t i);                    /* mixes that are no format; NULL past the end */

/* Checks keys and tensors against the family's tables; every tensor that a tape will use has exactly
 * the expected dims and a format that decodes. Missing tensors are named with the wanted shape; unused
 * ones are counted and logged once. g must outlive the upload of the weights.
 * LUCE_E_UNSUPPORTED: an architecture, a kind of file or a property that this engine does not run.
 * LUCE_E_FORMAT: keys or tensors contradict each other. */
luce_status model_open(struct model **out, const struct gguf *g, luce_error *err);
void model_close(struct model *m);                 /* NULL is fine */
/* The longest context that this model will be used with (at most c.context, which it lowers). Longrope
 * models choose their frequencies by it, so it comes before the upload. LUCE_E_ARG names the limit. */
luce_status model_limit_context(struct model *m, int positions, luce_error *err);
/* Only tokens whose bit is set will be chosen. Once, before the upload. LUCE_E_NOMEM. */
luce_status model_allow(struct model *m, const uint32_t *bits, luce_error *err);
/* Reads all weights and refuses one that holds values or scales that are not finite (LUCE_E_FORMAT, with
 * the tensor's name). Until the upload; as long as reading the file takes. */
luce_status model_check_weights(const struct model *m, luce_error *err);

struct record {                 /* what model_record gives; of a drafter that reads features, see model/dflash.h */
    struct val logits;          /* [out, vocab], kept */
    struct val argmax;          /* [out, 1] i32, kept */
    struct val choice;          /* [out, 1] i32, kept: the token that the step's draw gives (SAMPLE) */
    struct val kept;            /* [out, 2] i32, kept: what ACCEPT says of it (record_params.ahead) */
    struct val ids, likely;     /* [out, n_likely] tokens and logarithms of their probabilities (LIKELY), kept */
    struct val taps[MODEL_MAX_TAPS];       /* residual stream after the asked layers, [rows, embd], kept */
    struct val hidden;          /* [out, embd] after the final norm, kept (embeddings) */
    struct val given;           /* an input of wide steps, [rows, ..]: features of the target */
};
struct record_params {
    int n_taps, tap_layer[MODEL_MAX_TAPS];
    int  n_likely;              /* likeliest tokens that are wanted of each row; 0: none */
    bool ahead;                 /* steps of others will be queued behind these, where the device takes such */
    bool all_layers;            /* name and keep every layer's output "layer.N" (tests, traces) */
};
/* Records the whole forward pass on a begun tape. */
void model_record(struct tape *t, const struct model *m, const struct record_params *p, struct record *out);

/* The last of a pass: the k likeliest tokens of each row of out->logits, by scale times these (0: 1). */
void record_ids(struct tape *t, int k, float scale, struct record *out);

/* ---- shared by families ------------------------------------------------------------------------ */
/* Reads the common keys into m->c, checks them and makes rope[0]'s table; all layers see everything. */
luce_status decoder_configure(struct model *m, const struct gguf *g, luce_error *err);
/* Reads <arch>.expert_count, .expert_used_count, .expert_feed_forward_length (needed) and, where the file
 * says so, .expert_gating_func, .expert_weights_norm and .expert_weights_scale; otherwise the scores and
 * `normalise` stay as c->route has them. LUCE_E_UNSUPPORTED: another gating function, groups of experts. */
luce_status decoder_experts(struct model *m, const struct gguf *g, luce_error *err);
/* Reads <arch>.attention.sliding_window (absent: `absent`; 0: none; -1: the key
 * is needed) and its pattern: a bool per layer, or a period; absent: `period`. Of each `period`
 * layers the last sees everything; 0: none does. */
luce_status decoder_windows(struct model *m, const struct gguf *g, int absent, int period, luce_error *err);
/* Which layers a list of flags names (<arch>.<suffix>: a bool per layer, or a period); without the key, all but
 * every *period-th (0: all). */
luce_status decoder_flags(const struct model *m, const struct gguf *g, const char *suffix, int *period, bool *flags,
                          luce_error *err);
/* Reads <arch>.rope.dimension_sections (optional) into rope[0]. */
luce_status decoder_sections(struct model *m, const struct gguf *g, luce_error *err);
/* Adds rope[n_ropes] for windowed layers: rope[0]'s layout and dims, this base, no scaling. */
luce_status decoder_local_rope(struct model *m, float base, luce_error *err);
/* <arch>.<suffix>, finite and above `low` (that is, > low). absent NaN: the key is needed. */
luce_status decoder_float(const struct model *m, const struct gguf *g, const char *suffix, float absent,
                          float low, float *out, luce_error *err);
/* <arch>.<suffix> from low to high; absent -1: the key is needed. */
luce_status decoder_count(const struct model *m, const struct gguf *g, const char *suffix, int absent,
                          int low, int high, int *out, luce_error *err);

/* The attributes that QKV and ATTN of this layer have. */
struct rope_kv_attr decoder_rope_kv(const struct decoder *c, int layer);
struct attn_attr decoder_attn(const struct decoder *c, int layer);
/* The file declares a block behind its layers (model/mtp.h). */
static inline bool decoder_has_block(const struct decoder *c)
{
    return c->n_layers < MODEL_MAX_LAYERS && c->layer[c->n_layers].heads;
}
/* Frequencies of this layer. */
static inline const struct weight *decoder_freq(const struct decoder *c, int layer)
{
    return c->rope[c->layer[layer].rope].freq;
}
/* x + the experts' GLU of h, the shared one's among them; logits: the router's, then the shared expert's, if there is
 * one. */
struct val decoder_moe(struct tape *t, const struct decoder *c, struct val h, struct val logits,
                       const struct experts *w, enum act act, struct val x);
/* act(Wg x + bg) * (Wu x + bu); the biases may be NULL. */
struct val decoder_glu(struct tape *t, struct val x, const struct weight *gate, const struct weight *up,
                       const struct weight *gate_bias, const struct weight *up_bias, enum act act);

#endif
