/* model/decoder.c - what all decoders share: keys, and the forward pass around the layers.
 *
 *   x = scale * table[token]
 *   x = layer(x), for every layer                    the family's record_layer
 *   logits = softcap(head norm(x)), for the rows whose logits are wanted
 *
 * Every key is untrusted and checked here, once (counts within limits, floats finite). */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "model/rope.h"
#include "ops/record.h"

enum { MAX_HEADS = 1024, MAX_HEAD_DIM = 1024, MAX_EMBD = 1 << 18, MAX_FF = 1 << 20, MAX_VOCAB = 1 << 24,
       MAX_CONTEXT = 1 << 28, MAX_EXPERTS = 4096 };

static const char *key_of(const struct model *m, const char *suffix, char *key, size_t size)
{
    snprintf(key, size, "%s.%s", m->family->arch, suffix);
    return key;
}

static luce_status check_count(const struct gguf *g, const char *key, uint32_t value, int low, int high,
                               luce_error *err)
{
    if (value >= (uint32_t)low && value <= (uint32_t)high) return LUCE_OK;
    return fail(err, LUCE_E_FORMAT, "%s: %s is %u; this engine takes %d to %d", gguf_path(g), key, value,
                low, high);
}

static luce_status missing(const struct gguf *g, const char *key, luce_error *err)
{
    return fail(err, LUCE_E_FORMAT, "%s: key '%s' is missing: the file is no complete model", gguf_path(g),
                key);
}

luce_status decoder_count(const struct model *m, const struct gguf *g, const char *suffix, int absent,
                          int low, int high, int *out, luce_error *err)
{
    char key[128];
    uint32_t value;
    luce_status st;
    *out = absent;
    key_of(m, suffix, key, sizeof key);
    if (!gguf_key(g, key)) return absent < 0 ? missing(g, key, err) : LUCE_OK;
    if ((st = gguf_u32(g, key, 0, &value, err))) return st;
    if ((st = check_count(g, key, value, low, high, err))) return st;
    *out = (int)value;
    return LUCE_OK;
}

luce_status decoder_float(const struct model *m, const struct gguf *g, const char *suffix, float absent,
                          float low, float *out, luce_error *err)
{
    char key[128];
    key_of(m, suffix, key, sizeof key);
    if (isnan(absent) && !gguf_key(g, key)) return missing(g, key, err);
    luce_status st = gguf_f32(g, key, absent, out, err);
    if (st) return st;
    if (isfinite(*out) && *out > low) return LUCE_OK;
    return fail(err, LUCE_E_FORMAT, "%s: %s is %g; it must be a finite number above %g", gguf_path(g), key,
                *out, low);
}

/* A count per layer, from a scalar or an array, into the int at `field` of each layer's shape. */
static luce_status per_layer(const struct model *m, const struct gguf *g, const char *suffix, int high,
                             size_t field, struct decoder *c, luce_error *err)
{
    char key[128];
    uint32_t values[MODEL_MAX_LAYERS];
    luce_status st;
    key_of(m, suffix, key, sizeof key);
    if (!gguf_key(g, key)) return missing(g, key, err);
    if ((st = gguf_u32_per(g, key, 0, values, c->n_layers, err))) return st;
    for (int l = 0; l < c->n_layers; l++) {
        if ((st = check_count(g, key, values[l], 1, high, err))) return st;
        int value = (int)values[l];
        memcpy((char *)&c->layer[l] + field, &value, sizeof value);
    }
    return LUCE_OK;
}

static luce_status read_heads(const struct model *m, const struct gguf *g, struct decoder *c, luce_error *err)
{
    char key[128];
    luce_status st;
    if ((st = per_layer(m, g, "attention.head_count", MAX_HEADS, offsetof(struct layer_shape, heads), c, err)))
        return st;
    bool shared = gguf_key(g, key_of(m, "attention.head_count_kv", key, sizeof key)) != NULL;
    if ((st = per_layer(m, g, shared ? "attention.head_count_kv" : "attention.head_count", MAX_HEADS,
                        offsetof(struct layer_shape, kv_heads), c, err))) return st;
    for (int l = 0; l < c->n_layers; l++)
        if (c->layer[l].heads % c->layer[l].kv_heads)
            return fail(err, LUCE_E_FORMAT, "%s: layer %d has %d heads and %d key-value heads; the second must "
                        "divide the first", gguf_path(g), l, c->layer[l].heads, c->layer[l].kv_heads);
    bool stated = gguf_key(g, key_of(m, "attention.key_length", key, sizeof key)) != NULL;
    if (!stated && c->embd % c->layer[0].heads)
        return fail(err, LUCE_E_FORMAT, "%s: %s is missing and %d heads do not divide embedding length %d",
                    gguf_path(g), key, c->layer[0].heads, c->embd);
    if ((st = decoder_count(m, g, "attention.key_length", c->embd / c->layer[0].heads, 1, MAX_HEAD_DIM,
                            &c->head_dim, err))) return st;
    int value_dim;
    if ((st = decoder_count(m, g, "attention.value_length", c->head_dim, 1, MAX_HEAD_DIM, &value_dim, err)))
        return st;
    if (c->head_dim > MAX_HEAD_DIM || c->head_dim % 2)
        return fail(err, LUCE_E_FORMAT, "%s: a head has %d dimensions; this engine takes even numbers up to %d",
                    gguf_path(g), c->head_dim, MAX_HEAD_DIM);
    if (value_dim != c->head_dim)
        return fail(err, LUCE_E_UNSUPPORTED, "%s: keys have %d dimensions a head and values %d; arch %s needs "
                    "them equal", gguf_path(g), c->head_dim, value_dim, m->family->arch);
    c->attn_scale = 1 / sqrtf((float)c->head_dim);
    return LUCE_OK;
}

/* The token list rules; without one the key, without that the embedding table. */
static luce_status read_vocab(const struct model *m, const struct gguf *g, struct decoder *c, luce_error *err)
{
    char key[128];
    uint64_t n = 0;
    uint32_t stated = 0;
    const struct gguf_key *tokens = gguf_key(g, "tokenizer.ggml.tokens");
    const struct gguf_tensor *table = gguf_find(g, "token_embd.weight");
    luce_status st = gguf_u32(g, key_of(m, "vocab_size", key, sizeof key), 0, &stated, err);
    if (st) return st;
    if (tokens && tokens->type == GGUF_ARRAY) n = tokens->count;
    else if (stated) n = stated;
    else if (table) n = table->dim[1];
    if (n < 1 || n > MAX_VOCAB)
        return fail(err, LUCE_E_FORMAT, "%s: the vocabulary has %llu tokens; this engine takes 1 to %d",
                    gguf_path(g), (unsigned long long)n, MAX_VOCAB);
    c->vocab = (int)n;
    return LUCE_OK;
}

luce_status decoder_configure(struct model *m, const struct gguf *g, luce_error *err)
{
    struct decoder *c = &m->c;
    char key[128];
    luce_status st;
    if ((st = decoder_count(m, g, "block_count", -1, 1, MODEL_MAX_LAYERS, &c->n_layers, err))) return st;
    if ((st = decoder_count(m, g, "embedding_length", -1, 1, MAX_EMBD, &c->embd, err))) return st;
    if ((st = decoder_count(m, g, "context_length", -1, 1, MAX_CONTEXT, &c->context, err))) return st;
    bool experts = gguf_key(g, key_of(m, "expert_count", key, sizeof key)) != NULL;
    bool dense = gguf_key(g, key_of(m, "feed_forward_length", key, sizeof key)) != NULL;
    if ((dense || !experts) &&
        (st = per_layer(m, g, "feed_forward_length", MAX_FF, offsetof(struct layer_shape, ff), c, err)))
        return st;
    if ((st = decoder_float(m, g, "attention.layer_norm_rms_epsilon", NAN, 0, &c->eps, err))) return st;
    if ((st = read_heads(m, g, c, err))) return st;
    if ((st = read_vocab(m, g, c, err))) return st;
    c->n_ropes = 1;
    return rope_configure(m, g, err);
}

luce_status decoder_experts(struct model *m, const struct gguf *g, luce_error *err)
{
    struct route_attr *r = &m->c.route;
    char key[128];
    int gating, groups;
    luce_status st;
    if ((st = decoder_count(m, g, "expert_count", -1, 1, MAX_EXPERTS, &r->experts, err))) return st;
    if ((st = decoder_count(m, g, "expert_used_count", -1, 1, r->experts, &r->used, err))) return st;
    if ((st = decoder_count(m, g, "expert_feed_forward_length", -1, 1, MAX_FF, &m->c.expert_ff, err))) return st;
    int usual = r->score == SCORE_SIGMOID ? 2 : 1;
    if ((st = decoder_count(m, g, "expert_gating_func", usual, 0, 1000, &gating, err))) return st;
    if (gating > 2)
        return fail(err, LUCE_E_UNSUPPORTED, "%s: %s is %d; this engine knows 1 (softmax) and 2 (sigmoid)",
                    gguf_path(g), key_of(m, "expert_gating_func", key, sizeof key), gating);
    if (gating) r->score = gating == 2 ? SCORE_SIGMOID : SCORE_SOFTMAX;
    if ((st = decoder_count(m, g, "expert_group_count", 1, 0, MAX_EXPERTS, &groups, err))) return st;
    if (groups > 1)
        return fail(err, LUCE_E_UNSUPPORTED, "%s: %s is %d; groups of experts are not known for arch %s", gguf_path(g),
                    key_of(m, "expert_group_count", key, sizeof key), groups, m->family->arch);
    key_of(m, "expert_weights_norm", key, sizeof key);
    if ((st = gguf_bool(g, key, r->normalise, &r->normalise, err))) return st;
    return decoder_float(m, g, "expert_weights_scale", 0, -1e-30f, &r->scale, err);
}

struct val decoder_moe(struct tape *t, const struct decoder *c, struct val h, struct val logits,
                       const struct experts *w, enum act act, struct val x)
{
    struct route_attr route = c->route;
    struct experts all = *w;
    struct val weights;
    /* As wide as the others, it is one of them. */
    route.shared = w->shared_up && c->shared_ff == c->expert_ff && w->shared_gate->type == w->shared_up->type;
    if (w->shared_up && !route.shared) {
        struct gated_attr scale = { .heads = 1, .dim = c->embd, .fn = GATE_SIGMOID, .scalar = true,
                                    .at = route.experts };
        struct val y = op_linear(t, op_glu(t, h, w->shared_gate, w->shared_up, act), w->shared_down, NULL);
        x = op_gated(t, y, logits, NULL, &scale, x);
        all.shared_gate = all.shared_up = all.shared_down = NULL;
    }
    struct val ids = op_route(t, logits, NULL, &route, &weights);
    return op_moe_down(t, op_moe_glu(t, h, ids, &all, act), ids, weights, &all, x);
}

/* The pattern key: a period, or whether each layer has the window. */
static luce_status read_pattern(const struct gguf *g, const char *key, const struct decoder *c, int *period,
                                bool *windowed, luce_error *err)
{
    const struct gguf_key *k = gguf_key(g, key);
    if (k && k->type == GGUF_ARRAY) {
        if (k->count < (uint64_t)c->n_layers || k->element == GGUF_STRING || k->element == GGUF_ARRAY)
            return fail(err, LUCE_E_FORMAT, "%s: %s has %llu elements of type %s, expected a bool for each of "
                        "%d layers", gguf_path(g), key, (unsigned long long)k->count,
                        gguf_type_name(k->element), c->n_layers);
        for (int l = 0; l < c->n_layers; l++) windowed[l] = gguf_int_at(k, (uint64_t)l) != 0;
        return LUCE_OK;
    }
    uint32_t stated;
    luce_status st = gguf_u32(g, key, (uint32_t)*period, &stated, err);
    if (st) return st;
    *period = stated > MODEL_MAX_LAYERS ? 0 : (int)stated;
    for (int l = 0; l < c->n_layers; l++) windowed[l] = *period == 0 || (l + 1) % *period != 0;
    return LUCE_OK;
}

luce_status decoder_flags(const struct model *m, const struct gguf *g, const char *suffix, int *period, bool *flags,
                          luce_error *err)
{
    char key[128];
    return read_pattern(g, key_of(m, suffix, key, sizeof key), &m->c, period, flags, err);
}

luce_status decoder_sections(struct model *m, const struct gguf *g, luce_error *err)
{
    char key[128];
    struct rope_config *r = &m->c.rope[0];
    const struct gguf_key *k = gguf_key(g, key_of(m, "rope.dimension_sections", key, sizeof key));
    if (!k) return LUCE_OK;
    if (k->type != GGUF_ARRAY || k->count < 3 || k->element == GGUF_STRING || k->element == GGUF_ARRAY)
        return fail(err, LUCE_E_FORMAT, "%s: %s is no list of at least three numbers", gguf_path(g), key);
    for (int i = 0; i < 2; i++) {
        int64_t n = gguf_int_at(k, (uint64_t)i + 1);
        if (n < 0 || n > r->dims / 2)
            return fail(err, LUCE_E_FORMAT, "%s: %s holds %lld; a head turns %d pairs", gguf_path(g), key, (long long)n,
                        r->dims / 2);
        r->sections[i] = (int)n;
    }
    return LUCE_OK;
}

luce_status decoder_windows(struct model *m, const struct gguf *g, int absent, int period, luce_error *err)
{
    char key[128];
    bool windowed[MODEL_MAX_LAYERS];
    int window;
    luce_status st;
    if ((st = decoder_count(m, g, "attention.sliding_window", absent, 0, INT32_MAX, &window, err))) return st;
    key_of(m, "attention.sliding_window_pattern", key, sizeof key);
    if ((st = read_pattern(g, key, &m->c, &period, windowed, err))) return st;
    for (int l = 0; l < m->c.n_layers; l++) m->c.layer[l].window = windowed[l] ? window : 0;
    return LUCE_OK;
}

struct rope_kv_attr decoder_rope_kv(const struct decoder *c, int layer)
{
    const struct layer_shape *s = &c->layer[layer];
    const struct rope_config *r = &c->rope[s->rope];
    return (struct rope_kv_attr){ .heads = s->heads, .kv_heads = s->kv_heads, .head_dim = c->head_dim,
                                  .layout = r->layout, .rope_dims = r->dims, .magnitude = r->magnitude,
                                  .eps = c->eps, .sections = { r->sections[0], r->sections[1] } };
}

struct attn_attr decoder_attn(const struct decoder *c, int layer)
{
    const struct layer_shape *s = &c->layer[layer];
    return (struct attn_attr){ .heads = s->heads, .kv_heads = s->kv_heads, .head_dim = c->head_dim,
                               .scale = c->attn_scale, .window = s->window };
}

struct val decoder_glu(struct tape *t, struct val x, const struct weight *gate, const struct weight *up,
                       const struct weight *gate_bias, const struct weight *up_bias, enum act act)
{
    if (!gate_bias && !up_bias) return op_glu(t, x, gate, up, act);
    struct linear_parts both = { .x = x, .mat = { gate, up }, .bias = { gate_bias, up_bias },
                                 .attr = { .n_mat = 2 }, .layer = -1 };
    return op_gate(t, record_linear(t, &both), act);
}

/* Keeps x as "layer.N"; the name lives in the tape. */
static void keep_layer(struct tape *t, struct val x, int layer)
{
    char text[24];
    if (tape_dead(t)) return;
    int n = snprintf(text, sizeof text, "layer.%d", layer);
    char *name = arena_text(&t->arena, text, (size_t)n);
    if (name) tape_keep(t, x, name);
    else tape_fail(t, "out of memory");
}

void model_record(struct tape *t, const struct model *m, const struct record_params *p, struct record *out)
{
    const struct decoder *c = &m->c;
    static const struct record_params usual = { 0 };
    if (!p) p = &usual;
    *out = (struct record){ 0 };
    struct val x = op_embed(t, m->token_embd, c->embed_scale);
    for (int l = 0; l < c->n_layers; l++) {
        x = m->family->record_layer(t, m, l, x);
        if (p->all_layers) keep_layer(t, x, l);
        for (int i = 0; i < p->n_taps; i++) {
            if (p->tap_layer[i] != l) continue;
            out->taps[i] = x;
            if (!p->all_layers) tape_keep(t, x, "tap");
        }
    }
    x = op_take(t, x);
    out->hidden = op_norm(t, x, m->output_norm, c->eps);
    tape_keep(t, out->hidden, "hidden");
    out->logits = op_head(t, out->hidden, m->output, c->softcap);
    tape_keep(t, out->logits, "logits");
    out->argmax = op_argmax(t, out->logits);
    tape_keep(t, out->argmax, "argmax");
    out->choice = op_sample(t, out->logits, out->argmax, m->allowed);
    tape_keep(t, out->choice, "choice");
    if (p->ahead && t->target.ahead) {
        out->kept = op_accept(t, out->choice);
        tape_keep(t, out->kept, "kept");
    }
    if (p->n_likely) record_ids(t, p->n_likely, 0, out);
}

void record_ids(struct tape *t, int k, float scale, struct record *out)
{
    out->ids = op_likely(t, out->logits, &(struct likely_attr){ .k = k, .scale = scale }, &out->likely);
    tape_keep(t, out->ids, "ids");
    tape_keep(t, out->likely, "likely");
}
