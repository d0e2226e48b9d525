/* model/qwen3moe.c - Qwen3 mixtures of experts: GGUF arch "qwen3moe".
 * Equations: huggingface/transformers, models/qwen3_moe; tensor names: ggml-org/llama.cpp, src/llama-arch.cpp.
 *   h = norm(x)
 *   x = x + Wo attn(rope(norm(Wq h)), rope(norm(Wk h)), Wv h)     norm of q and k per head
 *   h = norm(x)
 *   p = softmax(Wr h); the 8 (say) largest are chosen, their weights p divided by their sum
 *   x = x + sum_e p_e Wdown_e (silu(Wgate_e h) * Wup_e h)
 * A layer that has ffn_gate is dense instead (mlp_only_layers of the checkpoint). */
#include "base/mem.h"
#include "model/family.h"

struct layer {
    const struct weight *attn_norm, *q, *k, *v, *q_norm, *k_norm, *o;
    const struct weight *ffn_norm, *gate, *up, *down;           /* of a dense layer */
    const struct weight *router;
    struct experts experts;
};
#define AT(f) offsetof(struct layer, f)
static const struct bind binds[] = {     /* tensor, field, in, out, how it splits over devices */
    { "attn_norm.weight",   AT(attn_norm), DIM_EMBD, DIM_NONE, WHOLE,  0 },
    { "attn_q.weight",      AT(q),         DIM_EMBD, DIM_Q,    BY_ROW, 0 },
    { "attn_k.weight",      AT(k),         DIM_EMBD, DIM_KV,   BY_ROW, 0 },
    { "attn_v.weight",      AT(v),         DIM_EMBD, DIM_KV,   BY_ROW, 0 },
    { "attn_q_norm.weight", AT(q_norm),    DIM_HEAD, DIM_NONE, WHOLE,  0 },
    { "attn_k_norm.weight", AT(k_norm),    DIM_HEAD, DIM_NONE, WHOLE,  0 },
    { "attn_output.weight", AT(o),         DIM_Q,    DIM_EMBD, BY_COL, 0 },
    { "ffn_norm.weight",    AT(ffn_norm),  DIM_EMBD, DIM_NONE, WHOLE,  0 },
    { "ffn_gate.weight",    AT(gate),      DIM_EMBD, DIM_FF,   BY_ROW, OPTIONAL },
    { "ffn_up.weight",      AT(up),        DIM_EMBD, DIM_FF,   BY_ROW, WITH },
    { "ffn_down.weight",    AT(down),      DIM_FF,   DIM_EMBD, BY_COL, WITH },
    { "ffn_gate_inp.weight",  AT(router), DIM_EMBD,      DIM_EXPERTS,   WHOLE,  INSTEAD },
    { "ffn_gate_exps.weight", AT(experts.gate),   DIM_EMBD,      DIM_EXPERT_FF, BY_ROW, INSTEAD | EACH },
    { "ffn_up_exps.weight",   AT(experts.up),     DIM_EMBD,      DIM_EXPERT_FF, BY_ROW, INSTEAD | EACH },
    { "ffn_down_exps.weight", AT(experts.down),   DIM_EXPERT_FF, DIM_EMBD,      BY_COL, INSTEAD | EACH },
};

static luce_status configure(struct model *m, const struct gguf *g, luce_error *err)
{
    m->c.rope[0].layout = ROPE_NEOX;
    m->c.route = (struct route_attr){ .score = SCORE_SOFTMAX, .normalise = true };
    luce_status st = decoder_configure(m, g, err);
    return st ? st : decoder_experts(m, g, err);
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
    struct val a = op_attn(t, l, q, &attn);
    x = op_linear_add(t, a, w->o, NULL, x);
    h = op_norm(t, x, w->ffn_norm, c->eps);
    if (!w->gate) return decoder_moe(t, c, h, op_linear(t, h, w->router, NULL), &w->experts, ACT_SILU, x);
    struct val g = op_glu(t, h, w->gate, w->up, ACT_SILU);
    return op_linear_add(t, g, w->down, NULL, x);
}

extern const struct family family_qwen3moe;
const struct family family_qwen3moe = {
    .arch = "qwen3moe", .doc = "Qwen3 mixtures of experts", .configure = configure, .record_layer = record_layer,
    .layer_size = sizeof(struct layer), .binds = binds, .n_binds = COUNT(binds),
};
