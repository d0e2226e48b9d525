/* model/llama.c - Llama 2 and 3, SmolLM2, Mistral, Nemo: GGUF arch "llama".
 * Equations: huggingface/transformers, models/llama; tensor names: ggml-org/llama.cpp, src/llama-arch.cpp.
 *   h = norm(x)
 *   x = x + Wo attn(rope(Wq h), rope(Wk h), Wv h)
 *   h = norm(x)
 *   x = x + Wdown (silu(Wgate h) * Wup h)
 * Files of this arch hold q and k with their rows permuted, so that rope turns neighbours. */
#include "base/mem.h"
#include "model/family.h"

struct layer {
    const struct weight *attn_norm, *q, *k, *v, *o, *q_bias, *k_bias, *v_bias, *o_bias;
    const struct weight *ffn_norm, *gate, *up, *down, *gate_bias, *up_bias, *down_bias;
};
#define AT(f) offsetof(struct layer, f)
static const struct bind binds[] = {     /* tensor, field, in, out, how it splits over devices */
    { "attn_norm.weight",   AT(attn_norm), DIM_EMBD, DIM_NONE, WHOLE,  0 },
    { "attn_q.weight",      AT(q),         DIM_EMBD, DIM_Q,    BY_ROW, 0 },
    { "attn_k.weight",      AT(k),         DIM_EMBD, DIM_KV,   BY_ROW, 0 },
    { "attn_v.weight",      AT(v),         DIM_EMBD, DIM_KV,   BY_ROW, 0 },
    { "attn_output.weight", AT(o),         DIM_Q,    DIM_EMBD, BY_COL, 0 },
    { "attn_q.bias",        AT(q_bias),    DIM_Q,    DIM_NONE, BY_ROW, OPTIONAL },
    { "attn_k.bias",        AT(k_bias),    DIM_KV,   DIM_NONE, BY_ROW, OPTIONAL },
    { "attn_v.bias",        AT(v_bias),    DIM_KV,   DIM_NONE, BY_ROW, OPTIONAL },
    { "attn_output.bias",   AT(o_bias),    DIM_EMBD, DIM_NONE, WHOLE,  OPTIONAL },
    { "ffn_norm.weight",    AT(ffn_norm),  DIM_EMBD, DIM_NONE, WHOLE,  0 },
    { "ffn_gate.weight",    AT(gate),      DIM_EMBD, DIM_FF,   BY_ROW, 0 },
    { "ffn_up.weight",      AT(up),        DIM_EMBD, DIM_FF,   BY_ROW, 0 },
    { "ffn_down.weight",    AT(down),      DIM_FF,   DIM_EMBD, BY_COL, 0 },
    { "ffn_gate.bias",      AT(gate_bias), DIM_FF,   DIM_NONE, BY_ROW, OPTIONAL },
    { "ffn_up.bias",        AT(up_bias),   DIM_FF,   DIM_NONE, BY_ROW, OPTIONAL },
    { "ffn_down.bias",      AT(down_bias), DIM_EMBD, DIM_NONE, WHOLE,  OPTIONAL },
};

static luce_status configure(struct model *m, const struct gguf *g, luce_error *err)
{
    int experts;
    luce_status st;
    if ((st = decoder_count(m, g, "expert_count", 0, 0, 1 << 20, &experts, err))) return st;
    if (experts > 0)
        return fail(err, LUCE_E_UNSUPPORTED,
                    "%s: llama.expert_count is %d: this is a Mixtral model (experts in arch llama), which "
                    "luce does not run. Use a dense model.", gguf_path(g), experts);
    m->c.rope[0].layout = ROPE_NORM;
    if ((st = decoder_configure(m, g, err))) return st;
    if (m->c.rope[0].dims != m->c.head_dim)
        return fail(err, LUCE_E_UNSUPPORTED,
                    "%s: llama.rope.dimension_count is %d and the head has %d dimensions; arch llama "
                    "rotates all of them", gguf_path(g), m->c.rope[0].dims, m->c.head_dim);
    return decoder_windows(m, g, 0, 0, err);
}

static struct val record_layer(struct tape *t, const struct model *m, int l, struct val x)
{
    const struct decoder *c = &m->c;
    const struct layer   *w = (const struct layer *)m->layers + l;
    struct rope_kv_attr post = decoder_rope_kv(c, l);
    struct attn_attr attn = decoder_attn(c, l);
    struct val h = op_norm(t, x, w->attn_norm, c->eps);
    struct val q = op_qkv(t, l, h, &(struct qkv_weights){
                          .q = w->q, .k = w->k, .v = w->v, .q_bias = w->q_bias, .k_bias = w->k_bias,
                          .v_bias = w->v_bias, .freq = decoder_freq(c, l) }, &post);
    struct val a = op_attn(t, l, q, &attn);
    x = op_linear_add(t, a, w->o, w->o_bias, x);
    h = op_norm(t, x, w->ffn_norm, c->eps);
    struct val g = decoder_glu(t, h, w->gate, w->up, w->gate_bias, w->up_bias, ACT_SILU);
    return op_linear_add(t, g, w->down, w->down_bias, x);
}

extern const struct family family_llama;
const struct family family_llama = {
    .arch = "llama", .doc = "Llama 2 and 3, SmolLM2, Mistral, Nemo", .configure = configure,
    .record_layer = record_layer, .layer_size = sizeof(struct layer), .binds = binds,
    .n_binds = COUNT(binds),
};
