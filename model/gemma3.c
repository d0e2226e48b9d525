/* model/gemma3.c - Gemma 3 text decoders, 270M to 27B: GGUF arch "gemma3".
 * Equations: huggingface/transformers, models/gemma3; tensor names: ggml-org/llama.cpp, src/llama-arch.cpp.
 *   x = sqrt(embd) * table[token]
 *   a = attn(rope(norm(Wq h)), rope(norm(Wk h)), Wv h)      h = norm(x); norm of q and k per head
 *   x = x + norm(Wo a)
 *   x = x + norm(Wdown (gelu(Wgate h) * Wup h))             h = norm(x)
 * Five layers with a window and their own rope base, then one that sees everything. The files hold
 * norm weights as 1 + w, ready to multiply. */
#include <math.h>

#include "base/mem.h"
#include "model/family.h"

struct layer {
    const struct weight *attn_norm, *q, *k, *v, *q_norm, *k_norm, *o, *post_attn_norm;
    const struct weight *ffn_norm, *gate, *up, *down, *post_ffn_norm;
};
#define AT(f) offsetof(struct layer, f)
static const struct bind binds[] = {     /* tensor, field, in, out, how it splits over devices */
    { "attn_norm.weight",           AT(attn_norm),      DIM_EMBD, DIM_NONE, WHOLE,  0 },
    { "attn_q.weight",              AT(q),              DIM_EMBD, DIM_Q,    BY_ROW, 0 },
    { "attn_k.weight",              AT(k),              DIM_EMBD, DIM_KV,   BY_ROW, 0 },
    { "attn_v.weight",              AT(v),              DIM_EMBD, DIM_KV,   BY_ROW, 0 },
    { "attn_q_norm.weight",         AT(q_norm),         DIM_HEAD, DIM_NONE, WHOLE,  0 },
    { "attn_k_norm.weight",         AT(k_norm),         DIM_HEAD, DIM_NONE, WHOLE,  0 },
    { "attn_output.weight",         AT(o),              DIM_Q,    DIM_EMBD, BY_COL, 0 },
    { "post_attention_norm.weight", AT(post_attn_norm), DIM_EMBD, DIM_NONE, WHOLE,  0 },
    { "ffn_norm.weight",            AT(ffn_norm),       DIM_EMBD, DIM_NONE, WHOLE,  0 },
    { "ffn_gate.weight",            AT(gate),           DIM_EMBD, DIM_FF,   BY_ROW, 0 },
    { "ffn_up.weight",              AT(up),             DIM_EMBD, DIM_FF,   BY_ROW, 0 },
    { "ffn_down.weight",            AT(down),           DIM_FF,   DIM_EMBD, BY_COL, 0 },
    { "post_ffw_norm.weight",       AT(post_ffn_norm),  DIM_EMBD, DIM_NONE, WHOLE,  0 },
};

static luce_status configure(struct model *m, const struct gguf *g, luce_error *err)
{
    struct decoder *c = &m->c;
    float local_base;
    luce_status st;
    c->rope[0].layout = ROPE_NEOX;
    if ((st = decoder_configure(m, g, err))) return st;
    if ((st = decoder_windows(m, g, -1, 6, err))) return st;
    if ((st = decoder_float(m, g, "rope.freq_base_swa", 10000, 0, &local_base, err))) return st;
    if ((st = decoder_local_rope(m, local_base, err))) return st;
    if ((st = decoder_float(m, g, "final_logit_softcapping", 0, -1, &c->softcap, err))) return st;
    c->embed_scale = sqrtf((float)c->embd);
    /* The 27B model alone scales by embd / heads (its query_pre_attn_scalar); no key says so. */
    if (c->n_layers == 62) c->attn_scale = 1 / sqrtf((float)c->embd / (float)c->layer[0].heads);
    return LUCE_OK;
}

static struct val record_layer(struct tape *t, const struct model *m, int l, struct val x)
{
    const struct decoder *c = &m->c;
    const struct layer   *w = (const struct layer *)m->layers + l;
    struct rope_kv_attr post = decoder_rope_kv(c, l);
    struct attn_attr attn = decoder_attn(c, l);
    struct val h = op_norm(t, x, w->attn_norm, c->eps);
    struct val q = op_qkv(t, l, h, &(struct qkv_weights){
                          .q = w->q, .k = w->k, .v = w->v, .q_norm = w->q_norm, .k_norm = w->k_norm,
                          .freq = decoder_freq(c, l) }, &post);
    struct val a = op_linear(t, op_attn(t, l, q, &attn), w->o, NULL);
    x = op_norm_add(t, a, w->post_attn_norm, c->eps, x);
    h = op_norm(t, x, w->ffn_norm, c->eps);
    struct val f = op_linear(t, op_glu(t, h, w->gate, w->up, ACT_GELU_TANH), w->down, NULL);
    return op_norm_add(t, f, w->post_ffn_norm, c->eps, x);
}

extern const struct family family_gemma3;
const struct family family_gemma3 = {
    .arch = "gemma3", .doc = "Gemma 3 text", .configure = configure, .record_layer = record_layer,
    .layer_size = sizeof(struct layer), .binds = binds, .n_binds = COUNT(binds),
};
