/* model/qwen35.c - Qwen3.5, 3.6 and 3.8, dense and mixtures of experts, and Qwen3-Next: GGUF archs "qwen35",
 * "qwen35moe" and "qwen3next".
 * Equations: huggingface/transformers, models/qwen3_5 and qwen3_next; tensor names: ggml-org/llama.cpp,
 * src/llama-arch.cpp.
 *   h = norm(x)
 *   x = x + mixer(h)                  one layer in four attends, the others are recurrent
 *   h = norm(x)
 *   x = x + Wdown (silu(Wgate h) * Wup h), or x + experts(h) + sigmoid(ws . h) * the shared expert's
 * Attention: a head of Wq h is 2 d wide, query then gate; q and k are normed per head, a part of it turns.
 *   mixer(h) = Wo (sigmoid(gate) * attn(q, k, v))
 * Recurrent (gated DeltaNet; ops/short_conv.c and ops/delta.c):
 *   q, k, v = silu(conv(Wqkv h));  o = delta(q, k, v, alpha = Wa h, beta = Wb h)
 *   mixer(h) = Wout (norm(o) * silu(Wz h))                            norm per head
 * The files hold norm weights as 1 + w (but for the norm of o) and ssm_a = -exp(A_log). Value heads are tiled over
 * key heads; where alpha and beta are one tensor (ssm_ba, Qwen3-Next) they are grouped by key head. */
#include "base/mem.h"
#include "model/family.h"
#include "ops/record.h"

struct layer {
    const struct weight *attn_norm, *ffn_norm;
    const struct weight *fused, *q, *k, *v, *q_norm, *k_norm, *o;                       /* attention */
    const struct weight *in, *z, *conv, *ba, *alpha, *beta, *dt, *a, *norm, *out;       /* recurrent */
    const struct weight *gate, *up, *down;                                              /* dense */
    const struct weight *router, *shared_scale;                                         /* experts */
    struct experts experts;
};
#define AT(f) offsetof(struct layer, f)
/* tensor, field, in, out, how it splits over devices */
#define MIXER_BINDS                                                                       \
    { "attn_norm.weight",   AT(attn_norm), DIM_EMBD, DIM_NONE, WHOLE,  0 },               \
        { "attn_qkv.weight", AT(fused), DIM_EMBD, DIM_GATED_QKV, BY_ROW, ATTENDS | OPTIONAL }, \
        { "attn_q.weight", AT(q), DIM_EMBD, DIM_GATED_Q, BY_ROW, ATTENDS | INSTEAD },          \
        { "attn_k.weight", AT(k), DIM_EMBD, DIM_KV, BY_ROW, ATTENDS | INSTEAD },               \
        { "attn_v.weight", AT(v), DIM_EMBD, DIM_KV, BY_ROW, ATTENDS | INSTEAD },               \
        { "attn_q_norm.weight", AT(q_norm), DIM_HEAD, DIM_NONE, WHOLE, ATTENDS },              \
        { "attn_k_norm.weight", AT(k_norm), DIM_HEAD, DIM_NONE, WHOLE, ATTENDS },              \
        { "attn_output.weight", AT(o), DIM_Q, DIM_EMBD, BY_COL, ATTENDS },                     \
        { "attn_qkv.weight", AT(in), DIM_EMBD, DIM_CHANNELS, WHOLE, RECURRENT },               \
        { "attn_gate.weight", AT(z), DIM_EMBD, DIM_VALUES, WHOLE, RECURRENT },                 \
        { "ssm_conv1d.weight", AT(conv), DIM_TAPS, DIM_CHANNELS, WHOLE, RECURRENT | AS_F32 },  \
        { "ssm_ba.weight", AT(ba), DIM_EMBD, DIM_GATES, WHOLE, RECURRENT | OPTIONAL },         \
        { "ssm_alpha.weight", AT(alpha), DIM_EMBD, DIM_V_HEADS, WHOLE, RECURRENT | INSTEAD },  \
        { "ssm_beta.weight", AT(beta), DIM_EMBD, DIM_V_HEADS, WHOLE, RECURRENT | INSTEAD },    \
        { "ssm_dt.bias", AT(dt), DIM_V_HEADS, DIM_NONE, WHOLE, RECURRENT },                    \
        { "ssm_a", AT(a), DIM_V_HEADS, DIM_NONE, WHOLE, RECURRENT | NEGATIVE },                \
        { "ssm_norm.weight", AT(norm), DIM_V_DIM, DIM_NONE, WHOLE, RECURRENT },                \
        { "ssm_out.weight", AT(out), DIM_VALUES, DIM_EMBD, WHOLE, RECURRENT },                 \
    { "post_attention_norm.weight", AT(ffn_norm), DIM_EMBD, DIM_NONE, WHOLE, 0 }

static const struct bind dense_binds[] = {
    MIXER_BINDS,
    { "ffn_gate.weight",    AT(gate),      DIM_EMBD, DIM_FF,   BY_ROW, 0 },
    { "ffn_up.weight",      AT(up),        DIM_EMBD, DIM_FF,   BY_ROW, 0 },
    { "ffn_down.weight",    AT(down),      DIM_FF,   DIM_EMBD, BY_COL, 0 },
};
static const struct bind moe_binds[] = {
    MIXER_BINDS,
    { "ffn_gate_inp.weight",   AT(router), DIM_EMBD,      DIM_EXPERTS,   WHOLE,  0 },
    { "ffn_gate_up_exps.weight", AT(experts.gate), DIM_EMBD,      DIM_EXPERT_FF, BY_ROW, EACH | FIRST_HALF | OPTIONAL },
    { "ffn_gate_up_exps.weight", AT(experts.up),   DIM_EMBD,      DIM_EXPERT_FF, BY_ROW, EACH | SECOND_HALF | WITH },
    { "ffn_gate_exps.weight",  AT(experts.gate),   DIM_EMBD,      DIM_EXPERT_FF, BY_ROW, EACH | INSTEAD },
    { "ffn_up_exps.weight",    AT(experts.up),     DIM_EMBD,      DIM_EXPERT_FF, BY_ROW, EACH | INSTEAD },
    { "ffn_down_exps.weight",  AT(experts.down),   DIM_EXPERT_FF, DIM_EMBD,      BY_COL, EACH },
    { "ffn_gate_inp_shexp.weight", AT(shared_scale), DIM_EMBD,    DIM_NONE,      WHOLE,  0 },
    { "ffn_gate_shexp.weight", AT(experts.shared_gate), DIM_EMBD, DIM_SHARED_FF, BY_ROW, 0 },
    { "ffn_up_shexp.weight",   AT(experts.shared_up), DIM_EMBD,   DIM_SHARED_FF, BY_ROW, 0 },
    { "ffn_down_shexp.weight", AT(experts.shared_down), DIM_SHARED_FF, DIM_EMBD,      BY_COL, 0 },
};

/* Which layers are recurrent: a list, or all but every n-th. Trailing blocks that predict further tokens (MTP) are
 * no layers of the model. */
static luce_status read_layers(struct model *m, const struct gguf *g, luce_error *err)
{
    struct decoder *c = &m->c;
    int interval, extra;
    bool recurrent[MODEL_MAX_LAYERS];
    luce_status st;
    if ((st = decoder_count(m, g, "nextn_predict_layers", 0, 0, c->n_layers - 1, &extra, err))) return st;
    if ((st = decoder_count(m, g, "full_attention_interval", 4, 1, MODEL_MAX_LAYERS, &interval, err))) return st;
    if ((st = decoder_flags(m, g, "attention.recurrent_layers", &interval, recurrent, err))) return st;
    c->n_layers -= extra;
    for (int l = 0; l < c->n_layers; l++) c->layer[l].recurrent = recurrent[l];
    return LUCE_OK;
}

static luce_status read_state(struct model *m, const struct gguf *g, luce_error *err)
{
    struct kv_state *k = &m->c.state;
    int inner;
    luce_status st;
    if ((st = decoder_count(m, g, "ssm.conv_kernel", -1, 2, 16, &k->taps, err))) return st;
    if ((st = decoder_count(m, g, "ssm.state_size", -1, 1, 256, &k->k_dim, err))) return st;
    if ((st = decoder_count(m, g, "ssm.group_count", -1, 1, 1024, &k->k_heads, err))) return st;
    if ((st = decoder_count(m, g, "ssm.time_step_rank", -1, 1, 1024, &k->v_heads, err))) return st;
    if ((st = decoder_count(m, g, "ssm.inner_size", -1, 1, 1 << 20, &inner, err))) return st;
    if (inner % k->v_heads || k->v_heads % k->k_heads)
        return fail(err, LUCE_E_FORMAT, "%s: ssm.inner_size %d, ssm.time_step_rank %d, ssm.group_count %d: each must "
                    "be a multiple of the next", gguf_path(g), inner, k->v_heads, k->k_heads);
    k->v_dim = inner / k->v_heads;
    k->channels = 2 * k->k_heads * k->k_dim + inner;
    return LUCE_OK;
}

static luce_status configure(struct model *m, const struct gguf *g, luce_error *err)
{
    struct decoder *c = &m->c;
    int dims;
    luce_status st;
    c->rope[0].layout = ROPE_NEOX;
    if ((st = decoder_configure(m, g, err))) return st;
    /* Without it the whole head would turn. */
    if ((st = decoder_count(m, g, "rope.dimension_count", -1, 2, c->head_dim, &dims, err))) return st;
    if ((st = decoder_sections(m, g, err))) return st;
    if ((st = read_layers(m, g, err))) return st;
    return read_state(m, g, err);
}

static luce_status configure_moe(struct model *m, const struct gguf *g, luce_error *err)
{
    luce_status st = configure(m, g, err);
    m->c.route = (struct route_attr){ .score = SCORE_SOFTMAX, .normalise = true };
    if (!st) st = decoder_experts(m, g, err);
    if (!st) st = decoder_count(m, g, "expert_shared_feed_forward_length", -1, 1, 1 << 20, &m->c.shared_ff, err);
    return st;
}

static struct val attend(struct tape *t, const struct model *m, int l, const struct layer *w, struct val h,
                         struct val x)
{
    const struct decoder *c = &m->c;
    struct rope_kv_attr post = decoder_rope_kv(c, l);
    struct attn_attr attn = decoder_attn(c, l);
    struct gated_attr gated = { .heads = post.heads, .dim = c->head_dim, .fn = GATE_SIGMOID, .at = c->head_dim,
                                .stride = 2 * c->head_dim };
    post.q_stride = gated.stride;
    struct linear_parts three = { .x = h, .mat = { w->q, w->k, w->v }, .attr = { .n_mat = 3 }, .layer = l };
    struct val qkv = w->fused ? op_linear(t, h, w->fused, NULL) : record_linear(t, &three);
    struct val q = op_rope_kv(t, l, qkv, &(struct qkv_weights){ .q_norm = w->q_norm, .k_norm = w->k_norm,
                                                                .freq = decoder_freq(c, l) }, &post);
    struct val a = op_gated(t, op_attn(t, l, q, &attn), qkv, NULL, &gated, (struct val){ 0 });
    return op_linear_add(t, a, w->o, NULL, x);
}

static struct val remember(struct tape *t, const struct model *m, int l, const struct layer *w, struct val h,
                           struct val x)
{
    const struct kv_state *k = &m->c.state;
    struct delta_attr delta = { .k_heads = k->k_heads, .v_heads = k->v_heads, .k_dim = k->k_dim, .v_dim = k->v_dim,
                                .eps = m->c.eps, .grouped = w->ba != NULL };
    struct gated_attr gated = { .heads = k->v_heads, .dim = k->v_dim, .fn = GATE_SILU, .at = k->channels,
                                .stride = k->v_dim, .eps = m->c.eps };
    struct linear_parts two = { .x = h, .mat = { w->in, w->z }, .attr = { .n_mat = 2 }, .layer = l };
    struct linear_parts both = { .x = h, .mat = { w->alpha, w->beta }, .attr = { .n_mat = 2 }, .layer = l };
    struct val qkvz = record_linear(t, &two), gates = w->ba ? op_linear(t, h, w->ba, NULL) : record_linear(t, &both);
    struct val qkv = op_short_conv(t, l, qkvz, w->conv);
    struct val o = op_delta(t, l, qkv, gates, w->a, w->dt, &delta);
    o = op_gated(t, o, qkvz, w->norm, &gated, (struct val){ 0 });
    return op_linear_add(t, o, w->out, NULL, x);
}

static struct val record_layer(struct tape *t, const struct model *m, int l, struct val x)
{
    const struct decoder *c = &m->c;
    const struct layer   *w = (const struct layer *)m->layers + l;
    struct val h = op_norm(t, x, w->attn_norm, c->eps);
    x = c->layer[l].recurrent ? remember(t, m, l, w, h, x) : attend(t, m, l, w, h, x);
    h = op_norm(t, x, w->ffn_norm, c->eps);
    if (w->down) return op_linear_add(t, op_glu(t, h, w->gate, w->up, ACT_SILU), w->down, NULL, x);
    struct linear_parts both = { .x = h, .mat = { w->router, w->shared_scale }, .attr = { .n_mat = 2 }, .layer = l };
    return decoder_moe(t, c, h, record_linear(t, &both), &w->experts, ACT_SILU, x);
}

extern const struct family family_qwen35, family_qwen35moe, family_qwen3next;
const struct family family_qwen35 = {
    .arch = "qwen35", .doc = "Qwen3.5, 3.6, 3.8 hybrids", .configure = configure, .record_layer = record_layer,
    .layer_size = sizeof(struct layer), .binds = dense_binds, .n_binds = COUNT(dense_binds),
};
const struct family family_qwen35moe = {
    .arch = "qwen35moe", .doc = "Qwen3.5, 3.6 hybrid mixtures of experts", .configure = configure_moe,
    .record_layer = record_layer, .layer_size = sizeof(struct layer), .binds = moe_binds, .n_binds = COUNT(moe_binds),
};
const struct family family_qwen3next = {
    .arch = "qwen3next", .doc = "Qwen3-Next, Qwen3-Coder-Next", .configure = configure_moe,
    .record_layer = record_layer, .layer_size = sizeof(struct layer), .binds = moe_binds, .n_binds = COUNT(moe_binds),
};
