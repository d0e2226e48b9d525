/* model/phi3.c - Phi-3, Phi-3.5, Phi-4, Phi-4-mini: GGUF arch "phi3".
 * Equations: huggingface/transformers, models/phi3; tensor names: ggml-org/llama.cpp, src/llama-arch.cpp.
 *   h = norm(x)
 *   x = x + Wo attn(rope(q), rope(k), v)           q, k, v: rows of one product Wqkv h
 *   h = norm(x)
 *   x = x + Wdown (silu(g) * u)                    g, u: first and second half of Wup h
 * All layers share one window. 128k models choose between two sets of rope factors by the context
 * (longrope); some rotate a part of each head only. */
#include "base/mem.h"
#include "model/family.h"

struct layer {
    const struct weight *attn_norm, *qkv, *q, *k, *v, *qkv_bias, *q_bias, *k_bias, *v_bias, *o;
    const struct weight *ffn_norm, *up, *down;
};
#define AT(f) offsetof(struct layer, f)
static const struct bind binds[] = {     /* tensor, field, in, out, how it splits over devices */
    { "attn_norm.weight",   AT(attn_norm), DIM_EMBD, DIM_NONE, WHOLE,  0 },
    { "attn_qkv.weight",    AT(qkv),       DIM_EMBD, DIM_QKV,  BY_ROW, OPTIONAL },
    { "attn_q.weight",      AT(q),         DIM_EMBD, DIM_Q,    BY_ROW, INSTEAD },
    { "attn_k.weight",      AT(k),         DIM_EMBD, DIM_KV,   BY_ROW, INSTEAD },
    { "attn_v.weight",      AT(v),         DIM_EMBD, DIM_KV,   BY_ROW, INSTEAD },
    { "attn_qkv.bias",      AT(qkv_bias),  DIM_QKV,  DIM_NONE, BY_ROW, OPTIONAL },
    { "attn_q.bias",        AT(q_bias),    DIM_Q,    DIM_NONE, BY_ROW, INSTEAD | OPTIONAL },
    { "attn_k.bias",        AT(k_bias),    DIM_KV,   DIM_NONE, BY_ROW, INSTEAD | OPTIONAL },
    { "attn_v.bias",        AT(v_bias),    DIM_KV,   DIM_NONE, BY_ROW, INSTEAD | OPTIONAL },
    { "attn_output.weight", AT(o),         DIM_Q,    DIM_EMBD, BY_COL, 0 },
    { "ffn_norm.weight",    AT(ffn_norm),  DIM_EMBD, DIM_NONE, WHOLE,  0 },
    { "ffn_up.weight",      AT(up),        DIM_EMBD, DIM_FF2,  BY_ROW, 0 },
    { "ffn_down.weight",    AT(down),      DIM_FF,   DIM_EMBD, BY_COL, 0 },
};

/* Files older than the key: the window follows from the released models' sizes. */
static int window_without_key(const struct decoder *c)
{
    bool mini = c->n_layers == 32, medium = c->n_layers == 40;
    if (c->context == 4096 && (mini || medium)) return 2047;
    if (c->context == 131072 && mini && c->layer[0].kv_heads == 32) return 262144;
    if (c->context == 131072 && medium) return 131072;
    return 0;
}

static luce_status configure(struct model *m, const struct gguf *g, luce_error *err)
{
    luce_status st;
    m->c.rope[0].layout = ROPE_NEOX;
    if ((st = decoder_configure(m, g, err))) return st;
    return decoder_windows(m, g, window_without_key(&m->c), 0, err);
}

static struct val record_layer(struct tape *t, const struct model *m, int l, struct val x)
{
    const struct decoder *c = &m->c;
    const struct layer   *w = (const struct layer *)m->layers + l;
    struct rope_kv_attr post = decoder_rope_kv(c, l);
    struct attn_attr attn = decoder_attn(c, l);
    struct val h = op_norm(t, x, w->attn_norm, c->eps);
    struct val q = op_qkv(t, l, h, &(struct qkv_weights){
                          .q = w->qkv ? w->qkv : w->q, .k = w->k, .v = w->v,
                          .q_bias = w->qkv ? w->qkv_bias : w->q_bias, .k_bias = w->k_bias,
                          .v_bias = w->v_bias, .freq = decoder_freq(c, l) }, &post);
    struct val a = op_attn(t, l, q, &attn);
    x = op_linear_add(t, a, w->o, NULL, x);
    h = op_norm(t, x, w->ffn_norm, c->eps);
    struct val g = op_glu(t, h, NULL, w->up, ACT_SILU);
    return op_linear_add(t, g, w->down, NULL, x);
}

extern const struct family family_phi3;
const struct family family_phi3 = {
    .arch = "phi3", .doc = "Phi-3, Phi-3.5, Phi-4", .configure = configure, .record_layer = record_layer,
    .layer_size = sizeof(struct layer), .binds = binds, .n_binds = COUNT(binds),
};
