/* model/dflash.c - see dflash.h. Two dialects of GGUF hold the same network under other names, and count
 * the target's layers from one (the input of the layer after) or from zero; a safetensors checkpoint is read
 * as the second dialect. Keys and names: ggml-org/llama.cpp (arch dflash), Luce-Org/lucebox. */
#include "model/dflash.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "gguf/safetensors.h"
#include "model/rope.h"
#include "quant/quant.h"

enum { MOST_POSITIONS = 1 << 28, MOST_RANK = 4096, MOST_TOP_K = 64, MOST_TAPS = 8 };

enum key { KEY_LAYERS, KEY_BLOCK, KEY_MASK, KEY_CAUSAL, KEY_TAPS, KEY_GROUP, KEY_RANK, KEY_TOP_K, KEY_SCALE,
           KEY_SOFTCAP, KEY_EMBED_SCALE, KEY_COUNT };
struct dialect {
    int shift;                      /* of the target's layer numbers */
    const char *key[KEY_COUNT];     /* after "<arch>." */
};
static const struct dialect llama_cpp = { 1, {
    "target_layers", "block_size", "mask_token_id", "attention.causal", "conv_kernel_size", "conv_group_size",
    "selector_rank", "selector_top_k", "logit_scale", "final_logit_softcapping", "input_embedding_scale" } };
static const struct dialect lucebox = { 0, {
    "dflash.target_layer_ids", "dflash.block_size", "dflash.mask_token_id", "dflash.is_causal",
    "dflash.dflash2.conv_kernel_size", "dflash.dflash2.conv_group_size", "dflash.dflash2.selector_rank",
    "dflash.dflash2.selector_top_k", "dflash.logit_scale", "dflash.final_logit_softcapping",
    "dflash.input_embedding_scale" } };

static void record(struct tape *t, const struct model *m, enum step_class class, struct record *out)
{
    dflash_record(t, m, class, out);
}
static const struct family archs[] = {
    { .arch = "dflash", .record = record }, { .arch = "dflash-draft", .record = record },
    { .arch = "qwen35-dflash-draft", .record = record }, { .arch = "gemma4-dflash-draft", .record = record },
};

/* Names of a safetensors checkpoint, as the second dialect has them. */
static const struct safetensors_name keys[] = {
    { "num_hidden_layers", "dflash-draft.block_count" }, { "hidden_size", "dflash-draft.embedding_length" },
    { "intermediate_size", "dflash-draft.feed_forward_length" },
    { "num_attention_heads", "dflash-draft.attention.head_count" },
    { "num_key_value_heads", "dflash-draft.attention.head_count_kv" },
    { "head_dim", "dflash-draft.attention.key_length" },
    { "rms_norm_eps", "dflash-draft.attention.layer_norm_rms_epsilon" },
    { "vocab_size", "dflash-draft.vocab_size" }, { "num_target_layers", "dflash-draft.dflash.n_layers_of_target" },
    { "sliding_window", "dflash-draft.attention.sliding_window" },
    { "rope_theta", "dflash-draft.rope.freq_base" }, { "rope_parameters.rope_theta", "dflash-draft.rope.freq_base" },
    { "rope_parameters.rope_type", "dflash-draft.rope.scaling.type" },
    { "rope_parameters.factor", "dflash-draft.rope.scaling.factor" },
    { "rope_parameters.original_max_position_embeddings", "dflash-draft.rope.scaling.original_context_length" },
    { "rope_scaling.rope_type", "dflash-draft.rope.scaling.type" },
    { "rope_scaling.factor", "dflash-draft.rope.scaling.factor" },
    { "rope_scaling.original_max_position_embeddings", "dflash-draft.rope.scaling.original_context_length" },
    { "block_size", "dflash-draft.dflash.block_size" },
    { "dflash_config.block_size", "dflash-draft.dflash.block_size" },
    { "is_causal", "dflash-draft.dflash.is_causal" }, { "dflash_config.is_causal", "dflash-draft.dflash.is_causal" },
    { "dflash_config.target_layer_ids", "dflash-draft.dflash.target_layer_ids" },
    { "dflash_config.mask_token_id", "dflash-draft.dflash.mask_token_id" },
    { "dflash_config.conv_kernel_size", "dflash-draft.dflash.dflash2.conv_kernel_size" },
    { "dflash_config.conv_group_size", "dflash-draft.dflash.dflash2.conv_group_size" },
    { "dflash_config.selector_rank", "dflash-draft.dflash.dflash2.selector_rank" },
    { "dflash_config.selector_top_k", "dflash-draft.dflash.dflash2.selector_top_k" },
    { "dflash_config.output_multiplier", "dflash-draft.dflash.logit_scale" },
    { "output_multiplier", "dflash-draft.dflash.logit_scale" },
    { "final_logit_softcapping", "dflash-draft.dflash.final_logit_softcapping" },
    { "dflash_config.final_logit_softcapping", "dflash-draft.dflash.final_logit_softcapping" },
    { "dflash_config.input_embedding_scale", "dflash-draft.dflash.input_embedding_scale" },
    { "input_embedding_scale", "dflash-draft.dflash.input_embedding_scale" },
};
static const struct safetensors_name tensors[] = {
    { "fc.weight", "dflash.fc.weight" }, { "hidden_norm.weight", "dflash.hidden_norm.weight" },
    { "norm.weight", "output_norm.weight" }, { "layers.*.input_layernorm.weight", "blk.*.attn_norm.weight" },
    { "layers.*.post_attention_layernorm.weight", "blk.*.ffn_norm.weight" },
    { "layers.*.self_attn.q_proj.weight", "blk.*.attn_q.weight" },
    { "layers.*.self_attn.k_proj.weight", "blk.*.attn_k.weight" },
    { "layers.*.self_attn.v_proj.weight", "blk.*.attn_v.weight" },
    { "layers.*.self_attn.o_proj.weight", "blk.*.attn_output.weight" },
    { "layers.*.self_attn.q_norm.weight", "blk.*.attn_q_norm.weight" },
    { "layers.*.self_attn.k_norm.weight", "blk.*.attn_k_norm.weight" },
    { "layers.*.mlp.gate_proj.weight", "blk.*.ffn_gate.weight" },
    { "layers.*.mlp.up_proj.weight", "blk.*.ffn_up.weight" },
    { "layers.*.mlp.down_proj.weight", "blk.*.ffn_down.weight" },
    { "layers.*.attention_conv.base_kernel", "blk.*.attn_conv.base" },
    { "layers.*.attention_conv.kernel_projection.weight", "blk.*.attn_conv.proj.weight" },
    { "layers.*.mlp_conv.base_kernel", "blk.*.ffn_conv.base" },
    { "layers.*.mlp_conv.kernel_projection.weight", "blk.*.ffn_conv.proj.weight" },
    { "candidate_selector.hidden_projection.weight", "dflash.selector.hproj.weight" },
    { "candidate_selector.predecessor_codebook", "dflash.selector.pred_cb" },
    { "candidate_selector.successor_codebook", "dflash.selector.succ_cb" },
};

luce_status dflash_file(struct gguf **out, const char *path, luce_error *err)
{
    if (!safetensors_is(path)) return gguf_open(out, path, err);
    struct safetensors_names names = { .arch = "dflash-draft", .keys = keys, .n_keys = COUNT(keys),
                                       .tensors = tensors, .n_tensors = COUNT(tensors) };
    return safetensors_open(out, path, &names, err);
}

static const struct family *arch_of(const struct gguf *g)
{
    struct str arch = { 0 };
    if (gguf_text(g, "general.architecture", (struct str){ "", 0 }, &arch, NULL)) return NULL;
    for (size_t i = 0; i < COUNT(archs); i++)
        if (str_is(arch, archs[i].arch)) return &archs[i];
    return NULL;
}

bool dflash_is(const struct gguf *g, bool *second)
{
    *second = gguf_find(g, "selector_hidden.weight") || gguf_find(g, "dflash.selector.hproj.weight");
    return arch_of(g) != NULL;
}

const struct dflash *dflash_of(const struct model *m)
{
    return m->layers;
}

void dflash_code(const struct dflash *d, const struct gguf_tensor *codes, int32_t token, float *out)
{
    const struct format *f = format_find(codes->type);
    int32_t row = d->row_of && codes->dim[1] == (uint64_t)d->n_ids ? d->row_of[token] : token;
    if (row < 0) memset(out, 0, (size_t)d->rank * sizeof *out);
    else f->decode(codes->data + (uint64_t)row * format_bytes(f, (uint64_t)d->rank), out, d->rank);
}

/* ---- keys ---------------------------------------------------------------------------------------- */
struct reading {
    struct model *m;
    struct dflash *d;
    const struct gguf *g;
    const struct model *target;
    const struct dialect *dialect;
    bool *used;                     /* [tensors] */
    int n_weights;
};

static luce_status count(const struct reading *r, enum key key, int absent, int low, int high, int *out,
                         luce_error *err)
{
    return decoder_count(r->m, r->g, r->dialect->key[key], absent, low, high, out, err);
}

static luce_status other_target(const struct reading *r, const char *what, int own, int targets, luce_error *err)
{
    return fail(err, LUCE_E_ARG, "%s: this drafter is for another model: %s %d there, %d in the model. Use the "
                "drafter that was made for this model.", gguf_path(r->g), what, own, targets);
}

static luce_status read_shape(struct reading *r, luce_error *err)
{
    struct model *m = r->m;
    struct decoder *c = &m->c;
    int heads, kv_heads, ff, layers_of_target, vocab;
    luce_status st;
    if ((st = decoder_count(m, r->g, "block_count", -1, 1, MODEL_MAX_LAYERS, &c->n_layers, err))) return st;
    if ((st = decoder_count(m, r->g, "embedding_length", -1, 1, 1 << 18, &c->embd, err))) return st;
    if (c->embd != r->target->c.embd) return other_target(r, "rows of", c->embd, r->target->c.embd, err);
    if ((st = decoder_count(m, r->g, "feed_forward_length", -1, 1, 1 << 20, &ff, err))) return st;
    if ((st = decoder_count(m, r->g, "attention.head_count", -1, 1, 1024, &heads, err))) return st;
    if ((st = decoder_count(m, r->g, "attention.head_count_kv", heads, 1, 1024, &kv_heads, err))) return st;
    if ((st = decoder_count(m, r->g, "attention.key_length", 128, 2, 1024, &c->head_dim, err))) return st;
    if ((st = decoder_float(m, r->g, "attention.layer_norm_rms_epsilon", NAN, 0, &c->eps, err))) return st;
    if (heads % kv_heads || c->head_dim % 2)
        return fail(err, LUCE_E_FORMAT, "%s: %d heads over %d key-value heads of %d dimensions; the second must divide "
                    "the first, the third must be even", gguf_path(r->g), heads, kv_heads, c->head_dim);
    for (int l = 0; l < c->n_layers; l++)
        c->layer[l] = (struct layer_shape){ .heads = heads, .kv_heads = kv_heads, .ff = ff };
    int known = r->target->c.n_layers;
    if ((st = decoder_count(m, r->g, "dflash.n_layers_of_target", known, 1, 4096, &layers_of_target, err))) return st;
    if (layers_of_target != known) return other_target(r, "layers of the model:", layers_of_target, known, err);
    known = r->target->c.vocab;
    if ((st = decoder_count(m, r->g, "vocab_size", known, 1, 1 << 24, &vocab, err))) return st;
    if (vocab != known) return other_target(r, "the vocabulary has", vocab, known, err);
    c->vocab = known;
    c->context = MOST_POSITIONS;
    c->attn_scale = 1 / sqrtf((float)c->head_dim);
    return LUCE_OK;
}

/* Windows from the pattern, or from the checkpoint's list of layer types. */
static luce_status read_windows(struct reading *r, luce_error *err)
{
    const struct gguf_key *types = gguf_key(r->g, "layer_types");
    struct decoder *c = &r->m->c;
    int window;
    luce_status st;
    if (!types) return decoder_windows(r->m, r->g, 0, 0, err);
    if ((st = decoder_count(r->m, r->g, "attention.sliding_window", 0, 0, INT32_MAX, &window, err))) return st;
    struct gguf_cursor at = { 0 };
    struct str type;
    for (int l = 0; gguf_next(types, &at, &type) && l < c->n_layers; l++)
        if (str_is(type, "sliding_attention")) c->layer[l].window = window;
    return LUCE_OK;
}

static luce_status read_taps(struct reading *r, luce_error *err)
{
    char key[128];
    uint32_t layer[MODEL_MAX_TAPS];
    snprintf(key, sizeof key, "%s.%s", r->m->family->arch, r->dialect->key[KEY_LAYERS]);
    const struct gguf_key *k = gguf_key(r->g, key);
    if (!k) return fail(err, LUCE_E_FORMAT, "%s: key '%s' is missing: the file is no complete drafter", gguf_path(r->g),
                        key);
    if (k->type != GGUF_ARRAY || k->count < 1 || k->count > MODEL_MAX_TAPS)
        return fail(err, LUCE_E_FORMAT, "%s: %s has %" PRIu64 " elements; it must be an array of 1 to %d layers",
                    gguf_path(r->g), key, k->count, MODEL_MAX_TAPS);
    struct dflash *d = r->d;
    d->n_taps = (int)k->count;
    luce_status st = gguf_u32_per(r->g, key, 0, layer, d->n_taps, err);
    for (int i = 0; i < d->n_taps && !st; i++) {
        d->tap[i] = (int)(layer[i] > 4096 ? 4096 : layer[i]) - r->dialect->shift;
        if (d->tap[i] < 0)
            st = fail(err, LUCE_E_FORMAT, "%s: element %d of %s is 0; it counts from 1", gguf_path(r->g), i, key);
        else if (d->tap[i] >= r->target->c.n_layers)
            st = fail(err, LUCE_E_ARG, "%s: this drafter is for another model: it reads layer %d, the model has %d. "
                      "Use the drafter that was made for this model.", gguf_path(r->g), d->tap[i],
                      r->target->c.n_layers);
    }
    return st;
}

static luce_status read_second(struct reading *r, luce_error *err)
{
    struct dflash *d = r->d;
    luce_status st;
    bool second;
    (void)dflash_is(r->g, &second);
    if (!second) return LUCE_OK;
    if ((st = count(r, KEY_TAPS, -1, 1, MOST_TAPS, &d->taps, err))) return st;
    if ((st = count(r, KEY_GROUP, -1, 1, r->m->c.embd, &d->group, err))) return st;
    if ((st = count(r, KEY_RANK, -1, 1, MOST_RANK, &d->rank, err))) return st;
    if ((st = count(r, KEY_TOP_K, -1, 1, MOST_TOP_K, &d->top_k, err))) return st;
    if (r->m->c.embd % d->group)
        return fail(err, LUCE_E_FORMAT, "%s: groups of %d columns do not divide rows of %d", gguf_path(r->g), d->group,
                    r->m->c.embd);
    return LUCE_OK;
}

static luce_status read_keys(struct reading *r, luce_error *err)
{
    struct dflash *d = r->d;
    char key[128];
    int mask;
    uint32_t from_vocab;
    luce_status st;
    if ((st = read_shape(r, err))) return st;
    if ((st = read_windows(r, err))) return st;
    if ((st = read_taps(r, err))) return st;
    if ((st = count(r, KEY_BLOCK, 16, 2, NARROW_ROWS, &d->block, err))) return st;
    if ((st = gguf_u32(r->g, "tokenizer.ggml.mask_token_id", UINT32_MAX, &from_vocab, err))) return st;
    bool has = from_vocab <= INT32_MAX;
    if ((st = count(r, KEY_MASK, has ? (int)from_vocab : -1, 0, INT32_MAX, &mask, err))) return st;
    if (has) mask = (int)from_vocab;
    if (mask >= r->target->c.vocab)
        return fail(err, LUCE_E_ARG, "%s: this drafter is for another model: its mask token is %d, the vocabulary of "
                    "the model has %d. Use the drafter that was made for this model.", gguf_path(r->g), mask,
                    r->target->c.vocab);
    d->mask = mask;
    if ((st = decoder_float(r->m, r->g, r->dialect->key[KEY_SCALE], 1, 0, &d->logit_scale, err))) return st;
    if ((st = decoder_float(r->m, r->g, r->dialect->key[KEY_SOFTCAP], 0, -1e-30f, &d->softcap, err))) return st;
    float scale = r->target->c.embed_scale;
    if ((st = decoder_float(r->m, r->g, r->dialect->key[KEY_EMBED_SCALE], scale, -1e-30f, &r->m->c.embed_scale, err)))
        return st;
    snprintf(key, sizeof key, "%s.%s", r->m->family->arch, r->dialect->key[KEY_CAUSAL]);
    bool causal, stated = gguf_key(r->g, key);
    if ((st = gguf_bool(r->g, key, false, &causal, err))) return st;
    for (int l = 0; l < r->m->c.n_layers; l++)
        d->layer[l].whole_block = stated ? !causal : r->m->c.layer[l].window == 0;
    r->m->c.rope[0].layout = ROPE_NEOX;
    r->m->c.n_ropes = 1;
    if ((st = rope_configure(r->m, r->g, err))) return st;
    return read_second(r, err);
}

/* ---- tensors ------------------------------------------------------------------------------------- */
enum size { NONE, EMBD, FEATURE, Q, KV, HEAD, FF, VOCAB, SAID, RANK, CONV, DYN };
enum { MAY_MISS = 1, SECOND = 2 };
struct row {
    const char *name[3];            /* in the first dialect, in the second, an alias; NULL: none */
    size_t field;
    enum size in, out;              /* out NONE: a vector, f32 in memory */
    unsigned flags;
};
#define OF(f) offsetof(struct dflash, f)
static const struct row of_model[] = {
    { { "fc.weight", "dflash.fc.weight", "dflash_fc.weight" }, OF(fc), FEATURE, EMBD, 0 },
    { { "enc.output_norm.weight", "dflash.hidden_norm.weight", "dflash_hidden_norm.weight" }, OF(feature_norm), EMBD,
      NONE, 0 },
    { { "output_norm.weight", NULL, NULL }, OF(norm), EMBD, NONE, 0 },
    { { "token_embd.weight", NULL, NULL }, OF(embd), EMBD, VOCAB, MAY_MISS },
    { { "output.weight", NULL, NULL }, OF(head), EMBD, SAID, MAY_MISS },
    { { "selector_hidden.weight", "dflash.selector.hproj.weight", NULL }, OF(selector), EMBD, RANK, SECOND },
};
#undef OF
#define OF(f) offsetof(struct dflash_layer, f)
static const struct row of_layer[] = {
    { { "attn_norm.weight", NULL, NULL }, OF(attn_norm), EMBD, NONE, 0 },
    { { "attn_q.weight", NULL, NULL }, OF(q), EMBD, Q, 0 }, { { "attn_k.weight", NULL, NULL }, OF(k), EMBD, KV, 0 },
    { { "attn_v.weight", NULL, NULL }, OF(v), EMBD, KV, 0 },
    { { "attn_output.weight", NULL, NULL }, OF(o), Q, EMBD, 0 },
    { { "attn_q_norm.weight", NULL, NULL }, OF(q_norm), HEAD, NONE, 0 },
    { { "attn_k_norm.weight", NULL, NULL }, OF(k_norm), HEAD, NONE, 0 },
    { { "ffn_norm.weight", "post_attention_norm.weight", NULL }, OF(ffn_norm), EMBD, NONE, 0 },
    { { "ffn_gate.weight", NULL, NULL }, OF(gate), EMBD, FF, 0 },
    { { "ffn_up.weight", NULL, NULL }, OF(up), EMBD, FF, 0 },
    { { "ffn_down.weight", NULL, NULL }, OF(down), FF, EMBD, 0 },
    { { "attn_conv_base", "attn_conv.base", NULL }, OF(attn_conv), CONV, NONE, SECOND },
    { { "attn_conv_proj.weight", "attn_conv.proj.weight", NULL }, OF(attn_dyn), EMBD, DYN, SECOND },
    { { "ffn_conv_base", "ffn_conv.base", NULL }, OF(ffn_conv), CONV, NONE, SECOND },
    { { "ffn_conv_proj.weight", "ffn_conv.proj.weight", NULL }, OF(ffn_dyn), EMBD, DYN, SECOND },
};
#undef OF

static uint64_t size_of(const struct reading *r, enum size s)
{
    const struct decoder *c = &r->m->c;
    const struct dflash *d = r->d;
    uint64_t embd = (uint64_t)c->embd, hd = (uint64_t)c->head_dim;
    switch (s) {
    case NONE:    return 1;
    case EMBD:    return embd;
    case FEATURE: return embd * (uint64_t)d->n_taps;
    case Q:       return hd * (uint64_t)c->layer[0].heads;
    case KV:      return hd * (uint64_t)c->layer[0].kv_heads;
    case HEAD:    return hd;
    case FF:      return (uint64_t)c->layer[0].ff;
    case VOCAB:   return (uint64_t)c->vocab;
    case SAID:    return (uint64_t)d->n_ids;
    case RANK:    return (uint64_t)d->rank;
    case CONV:    return 2 * (uint64_t)d->taps * embd;
    case DYN:     return 2 * (uint64_t)d->taps * (embd / (uint64_t)d->group);
    }
    return 0;
}

/* The tensor under any of its names; its number is marked as used. */
static const struct gguf_tensor *find(struct reading *r, const struct row *row, int layer, char *name, size_t size)
{
    for (int i = 2; i >= 0; i--) {
        if (!row->name[i]) continue;
        if (layer < 0) snprintf(name, size, "%s", row->name[i]);
        else snprintf(name, size, "blk.%d.%s", layer, row->name[i]);
        const struct gguf_tensor *t = gguf_find(r->g, name);
        if (!t) continue;
        r->used[t - gguf_tensor_at(r->g, 0)] = true;
        return t;
    }
    return NULL;
}

static luce_status check_tensor(const struct reading *r, const struct gguf_tensor *t, const char *name, uint64_t in,
                                uint64_t out, luce_error *err)
{
    const struct format *f = format_find(t->type);
    uint64_t all = 1, last = 1;         /* a vector may come in any dims */
    for (int i = 0; i < 4; i++) all *= t->dim[i];
    for (int i = 2; i < 4; i++) last *= t->dim[i];
    bool good = out == 1 ? all == in : t->dim[0] == in && t->dim[1] == out && last == 1;
    if (!good)
        return fail(err, LUCE_E_FORMAT, "%s: tensor '%s' is [%" PRIu64 ", %" PRIu64 ", %" PRIu64 "], expected [%" PRIu64
                    ", %" PRIu64 "] by the keys of the drafter", gguf_path(r->g), name, t->dim[0], t->dim[1],
                    t->dim[2], in, out);
    if (f && f->decode && !f->levels && t->dim[0] % (uint64_t)f->block == 0) return LUCE_OK;
    return fail(err, LUCE_E_UNSUPPORTED, "%s: tensor '%s' has type %u (%s), which is no format of weights here",
                gguf_path(r->g), name, t->type, f ? f->name : "unknown");
}

static luce_status add_weight(struct reading *r, const struct gguf_tensor *t, const char *name, uint64_t in,
                              uint64_t out, const struct weight **field, luce_error *err)
{
    struct weight *w = &r->m->weights[r->m->n_weights++];
    *w = (struct weight){ .name = t->name, .dim = { in, out, 1 }, .type = t->type, .host = t->data,
                          .host_bytes = t->bytes };
    if (out == 1 && t->type != Q_F32) {
        float *values = arena_array(&r->m->arena, in, sizeof *values);
        if (!values) return fail(err, LUCE_E_NOMEM, "out of memory for %s", name);
        format_find(t->type)->decode(t->data, values, (int64_t)in);
        w->type = Q_F32;
        w->host = (const uint8_t *)values;
        w->host_bytes = in * sizeof *values;
    }
    r->m->bytes += w->host_bytes;
    *field = w;
    return LUCE_OK;
}

static luce_status bind_rows(struct reading *r, const struct row *rows, size_t n, void *fields, int layer,
                             luce_error *err)
{
    for (size_t i = 0; i < n; i++) {
        char name[96];
        if (rows[i].flags & SECOND && !r->d->rank) continue;
        const struct gguf_tensor *t = find(r, &rows[i], layer, name, sizeof name);
        uint64_t in = size_of(r, rows[i].in), out = size_of(r, rows[i].out);
        if (!t && rows[i].flags & MAY_MISS) continue;
        if (!t)
            return fail(err, LUCE_E_FORMAT, "%s: tensor '%s' [%" PRIu64 ", %" PRIu64 "] is missing: the file is no "
                        "complete drafter", gguf_path(r->g), name, in, out);
        luce_status st = check_tensor(r, t, name, in, out, err);
        const struct weight **field = (const struct weight **)(void *)((char *)fields + rows[i].field);
        if (!st) st = add_weight(r, t, name, in, out, field, err);
        if (st) return st;
    }
    return LUCE_OK;
}

static luce_status bind_codes(struct reading *r, luce_error *err)
{
    static const struct row codes[] = {
        { { "selector_predecessor.weight", "dflash.selector.pred_cb", NULL }, 0, RANK, VOCAB, 0 },
        { { "selector_successor.weight", "dflash.selector.succ_cb", NULL }, 0, RANK, VOCAB, 0 },
    };
    const struct gguf_tensor **to[] = { &r->d->before, &r->d->after };
    for (int i = 0; i < 2 && r->d->rank; i++) {
        char name[96];
        const struct gguf_tensor *t = find(r, &codes[i], -1, name, sizeof name);
        uint64_t in = size_of(r, RANK), out = size_of(r, VOCAB);
        if (t && t->dim[1] == size_of(r, SAID)) out = size_of(r, SAID);     /* rows as its head has them */
        if (!t)
            return fail(err, LUCE_E_FORMAT, "%s: tensor '%s' [%" PRIu64 ", %" PRIu64 "] is missing: the file is no "
                        "complete drafter", gguf_path(r->g), name, in, out);
        luce_status st = check_tensor(r, t, name, in, out, err);
        if (st) return st;
        *to[i] = t;
    }
    return LUCE_OK;
}

/* A drafter that says only some tokens: the target's id of each row of its head. */
static luce_status bind_ids(struct reading *r, luce_error *err)
{
    static const struct row row = { { "d2t", NULL, NULL }, 0, SAID, NONE, 0 };
    enum { I32 = 26, I64 = 27 };
    char name[96];
    int vocab = r->m->c.vocab;
    const struct gguf_tensor *t = find(r, &row, -1, name, sizeof name);
    r->d->n_ids = vocab;
    if (!t) return LUCE_OK;
    bool wide = t->type == I64, list = t->dim[1] * t->dim[2] * t->dim[3] == 1;
    if ((!wide && t->type != I32) || !list || t->dim[0] < 1 || t->dim[0] > (uint64_t)vocab)
        return fail(err, LUCE_E_FORMAT, "%s: tensor 'd2t' is no list of 1 to %d tokens (i64 or i32)", gguf_path(r->g),
                    vocab);
    if (!gguf_find(r->g, "output.weight"))
        return fail(err, LUCE_E_FORMAT, "%s: there is a tensor 'd2t', but no 'output.weight' for its %" PRIu64
                    " tokens", gguf_path(r->g), t->dim[0]);
    int n = r->d->n_ids = (int)t->dim[0];
    int32_t *ids = arena_array(&r->m->arena, (size_t)n, sizeof *ids);
    int32_t *row_of = arena_array(&r->m->arena, (size_t)vocab, sizeof *row_of);
    if (!ids || !row_of) return fail(err, LUCE_E_NOMEM, "%s: out of memory for 'd2t'", gguf_path(r->g));
    for (int i = 0; i < vocab; i++) row_of[i] = -1;
    for (int i = 0; i < n; i++) {
        int64_t id = 0;
        int32_t narrow = 0;
        if (wide) memcpy(&id, t->data + sizeof id * (size_t)i, sizeof id);
        else memcpy(&narrow, t->data + sizeof narrow * (size_t)i, sizeof narrow);
        if (!wide) id = narrow;
        if (id < 0 || id >= vocab || row_of[id] >= 0)
            return fail(err, LUCE_E_FORMAT, "%s: element %d of 'd2t' names token %" PRId64 "; each must be another one "
                        "of the model's 0 to %d", gguf_path(r->g), i, id, vocab - 1);
        row_of[id] = i;
        ids[i] = (int32_t)id;
    }
    r->d->ids = ids;
    if (n < vocab) r->d->row_of = row_of;
    return LUCE_OK;
}

static void bind_again(struct model *m, struct dflash_layer *w)
{
    const struct weight *from[] = { w->k, w->v };
    for (int i = 0; i < 2; i++) {
        struct weight *to = &m->weights[m->n_weights++];
        *to = *from[i];
        m->bytes += to->host_bytes;
        w->of_feature[i] = to;
    }
}

static luce_status bind_all(struct reading *r, luce_error *err)
{
    struct model *m = r->m;
    struct dflash *d = r->d;
    size_t n = gguf_n_tensors(r->g);
    m->weights = arena_array(&m->arena, n + 1 + 2 * (size_t)m->c.n_layers, sizeof *m->weights);
    r->used = arena_array(&m->arena, n + 1, sizeof *r->used);
    if (!m->weights || !r->used) return fail(err, LUCE_E_NOMEM, "%s: out of memory for the weights", gguf_path(r->g));
    luce_status st = bind_ids(r, err);
    if (!st) st = bind_rows(r, of_model, COUNT(of_model), d, -1, err);
    for (int l = 0; l < m->c.n_layers && !st; l++) {
        st = bind_rows(r, of_layer, COUNT(of_layer), &d->layer[l], l, err);
        if (!st) bind_again(m, &d->layer[l]);
    }
    if (!st) st = bind_codes(r, err);
    for (size_t i = 0; i < n && !st; i++)
        if (!r->used[i])
            st = fail(err, LUCE_E_UNSUPPORTED, "%s: tensor '%s' belongs to a kind of drafter that luce does not "
                      "compute: without it the guesses would be bad", gguf_path(r->g), gguf_tensor_at(r->g, i)->name);
    if (st) return st;
    if (!d->embd) d->embd = r->target->token_embd;
    if (!d->head) d->head = r->target->output;
    struct weight *freq = &m->weights[m->n_weights++];
    *freq = *m->c.rope[0].freq;
    m->c.rope[0].freq = freq;
    for (int l = 0; l < m->c.n_layers && !st; l++)
        st = kv_layout_add(&m->kv, m->c.layer[l].kv_heads, m->c.head_dim, m->c.head_dim, m->c.layer[l].window, err);
    return st;
}

luce_status dflash_open_file(struct model **out, struct gguf *g, const struct model *target, luce_error *err)
{
    *out = NULL;
    const struct family *family = arch_of(g);
    if (!family)
        return fail(err, LUCE_E_ARG, "%s is no DFlash drafter (general.architecture is not dflash, dflash-draft, "
                    "qwen35-dflash-draft or gemma4-dflash-draft)", gguf_path(g));
    struct model *m = mem_zero(sizeof *m);
    if (!m) return fail(err, LUCE_E_NOMEM, "%s: out of memory for the drafter", gguf_path(g));
    m->family = family;
    m->file = g;
    struct dflash *d = m->layers = arena_alloc(&m->arena, sizeof *d);
    if (d) d->layer = arena_array(&m->arena, MODEL_MAX_LAYERS, sizeof *d->layer);
    luce_status st = d && d->layer ? LUCE_OK : fail(err, LUCE_E_NOMEM, "%s: out of memory for the drafter",
                                                     gguf_path(g));
    struct reading r = { .m = m, .d = d, .g = g, .target = target,
                         .dialect = family == &archs[0] ? &llama_cpp : &lucebox };
    if (!st) st = read_keys(&r, err);
    if (!st) st = bind_all(&r, err);
    if (st) {
        model_close(m);
        return st;
    }
    m->own = g;
    *out = m;
    return LUCE_OK;
}

luce_status dflash_open(struct model **out, const char *path, const struct model *target, luce_error *err)
{
    struct gguf *g;
    *out = NULL;
    luce_status st = dflash_file(&g, path, err);
    if (st) return st;
    st = dflash_open_file(out, g, target, err);
    if (st) gguf_close(g);
    return st;
}
