/* model/family.h - model families: equations on one side, tensors and keys on the other.
 *
 * A family is a row: which tensors it has (the bind table), which keys it reads, and how one layer is
 * recorded. The layer loop, embedding, final norm, head and feature taps are model/decoder.c. A family
 * does not know batch or width, pages, devices, drafters, sampling or chat. */
#ifndef LUCE_MODEL_FAMILY_H
#define LUCE_MODEL_FAMILY_H

#include "gguf/reader.h"
#include "ops/ops.h"

enum { MODEL_MAX_LAYERS = 512, MODEL_MAX_TAPS = 16 };

enum dim {                      /* sizes that tensors are checked against */
    DIM_NONE, DIM_EMBD, DIM_Q, DIM_KV, DIM_QKV, DIM_HEAD, DIM_FF, DIM_FF2, DIM_VOCAB, DIM_EXPERTS,
    DIM_EXPERT_FF, DIM_SHARED_FF, DIM_ROPE_HALF, DIM_COUNT
};
enum split { WHOLE, BY_ROW, BY_COL };      /* how a tensor is cut over devices */
enum bind_flags { OPTIONAL = 1, VECTOR = 2, EXPERTS = 4 };   /* EXPERTS: a third dimension */

struct bind {                   /* one tensor of a layer ("blk.N." before it) or of the model */
    const char *tensor;
    size_t      field;          /* offset of its const struct weight * */
    enum dim    in, out;
    enum split  split;
    unsigned    flags;
};

struct decoder {                /* the keys that all decoders share, checked */
    int   n_layers, embd, heads, kv_heads, head_dim, vocab, context;
    int   ff[MODEL_MAX_LAYERS];
    float eps, embed_scale, softcap;
    int   window[MODEL_MAX_LAYERS];        /* 0: full attention */
    struct rope_config {
        enum rope_layout layout;
        int   dims;
        float base, factor, magnitude;
        const struct weight *freq;         /* made from the keys (and rope_freqs.weight) at load */
    } rope, rope_local;         /* local: of windowed layers where they differ */
    int   n_experts, n_used, expert_ff, shared_ff;
    float expert_scale;
    bool  expert_norm;
};

struct model {
    const struct family *family;
    const struct gguf   *file;  /* borrowed; until the upload is done */
    struct decoder       c;
    struct arena         arena;
    const struct weight *token_embd, *output_norm, *output;     /* output is token_embd when tied */
    void                *layers;            /* family's struct layer, n_layers of them */
    struct weight       *weights;           /* all that the tapes use, in file order */
    int                  n_weights;
    struct kv_layout     kv;                /* formats not yet fixed */
    uint64_t             bytes;             /* of all weights in their stored formats */
    int                  n_unused;          /* tensors of the file that no tape uses */
};

struct family {
    const char *arch, *doc;                 /* general.architecture */
    luce_status (*configure)(struct model *m, const struct gguf *g, luce_error *err);
    /* One layer, with its residual stream x [rows, embd] in and out. */
    struct val (*record_layer)(struct tape *t, const struct model *m, int layer, struct val x);
    size_t layer_size;
    const struct bind *binds;
    int n_binds;
};
const struct family *family_at(size_t i);          /* NULL past the end */
const struct family *family_named(const char *arch);

/* Synthetic models: real dimensions, random weights, no file (model/presets.c holds the rows). */
struct preset;
const struct preset *preset_at(size_t i);
const char *preset_name(const struct preset *p);
/* Parses "qwen3-0.6b:q8_0" into a model without a file. LUCE_E_ARG lists presets and mixes. */
luce_status model_open_synthetic(struct model **out, const char *spec, luce_error *err);

/* Checks keys and tensors against the family's tables; every tensor that a tape will use has exactly
 * the expected dims and a format that decodes. Missing tensors are named with the wanted shape; unused
 * ones are counted and logged once. g must outlive the upload of the weights. */
luce_status model_open(struct model **out, const struct gguf *g, luce_error *err);
void model_close(struct model *m);

struct record {                 /* what model_record gives */
    struct val logits;          /* [out, vocab], kept */
    struct val argmax;          /* [out, 1] i32, kept */
    struct val taps[MODEL_MAX_TAPS];       /* residual stream after the asked layers, [rows, embd], kept */
    struct val hidden;          /* [out, embd] after the final norm, kept (embeddings) */
};
struct record_params {
    int n_taps, tap_layer[MODEL_MAX_TAPS];
    bool all_layers;            /* name and keep every layer's output (tests) */
};
/* Records the whole forward pass on a begun tape. */
void model_record(struct tape *t, const struct model *m, const struct record_params *p, struct record *out);

/* Shared by families: reads the common keys, makes rope tables and adds the layers' caches. A family
 * sets what differs before or after. */
luce_status decoder_configure(struct model *m, const struct gguf *g, luce_error *err);

#endif
