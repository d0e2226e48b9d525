/* tests/test_model_files.c - models that are refused and why; what is read from keys and tensors. The
 * hostile models are edits of an oracle file: one key set or dropped, one tensor dropped, renamed or
 * given other dims. */
#include <math.h>

#include "base/log.h"
#include "gguf/writer.h"
#include "quant/quant.h"
#include "tests/model_drive.h"

enum edit_kind { NONE, U32, F32, TEXT, DROP, U32S };
struct edit {
    const char *key;
    enum edit_kind kind;
    double value;               /* U32S: that many times */
    const char *text;
};
struct tensor_edit {
    const char *name;
    const char *rename;         /* NULL: dropped, unless dims are given */
    uint64_t dim[2];
    uint32_t type;              /* 0: as it is */
};

static void add_edit(struct gguf_writer *w, const struct edit *e)
{
    struct buf many = { 0 };
    uint32_t value = e->kind == U32 || e->kind == U32S ? (uint32_t)e->value : 0;
    switch (e->kind) {
    case U32:  gguf_add_u32(w, e->key, value); break;
    case F32:  gguf_add_f32(w, e->key, (float)e->value); break;
    case TEXT: gguf_add_text(w, e->key, str_of(e->text)); break;
    case U32S:
        for (uint32_t i = 0; i < value; i++) buf_add(&many, &(uint32_t){ 2 }, 4);
        gguf_add_array(w, e->key, GGUF_U32, many.data, value);
        break;
    case NONE:
    case DROP: break;
    }
    buf_drop(&many);
}

static void copy_tensors(struct gguf_writer *w, const struct gguf *g, const struct tensor_edit *e)
{
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct gguf_source s = { .name = t->name, .n_dims = t->n_dims, .type = t->type, .data = t->data };
        memcpy(s.dim, t->dim, sizeof s.dim);
        if (e->name && !strcmp(e->name, t->name)) {
            if (!e->rename && !e->dim[0] && !e->type) continue;
            if (e->rename) s.name = e->rename;
            if (e->type) s.type = e->type;
            if (e->dim[0]) {
                memcpy(s.dim, e->dim, sizeof e->dim);
                s.n_dims = e->dim[1] ? 2 : 1;
            }
        }
        gguf_add_tensor(w, &s);
    }
}

/* Writes an edited copy of an oracle file and opens it. */
static luce_status open_edited(struct gguf **g, struct model **m, const char *base, const struct edit *e,
                               const struct tensor_edit *t, luce_error *err)
{
    struct gguf *from = NULL;
    struct gguf_writer w = { 0 };
    luce_error io = { 0 };
    const char *path = scratch("edited.gguf");
    *g = NULL;
    *m = NULL;
    CHECK_OK(gguf_open(&from, fixture(base), &io), io);
    for (size_t i = 0; i < gguf_n_keys(from); i++)
        if (!e->key || !str_is(gguf_key_at(from, i)->name, e->key)) gguf_add_key(&w, gguf_key_at(from, i));
    if (e->key) add_edit(&w, e);
    copy_tensors(&w, from, t);
    CHECK_OK(gguf_write(&w, path, &io), io);
    gguf_writer_drop(&w);
    gguf_close(from);
    CHECK_OK(gguf_open(g, path, &io), io);
    log_set_level(LOG_ERROR);
    luce_status st = *g ? model_open(m, *g, err) : LUCE_E_IO;
    log_set_level(LOG_WARN);
    return st;
}

#define LLAMA "oracle/llama.gguf"
#define MOE "oracle/qwen3moe.gguf"
#define HYBRID "oracle/qwen35.gguf"
#define LLAMA3 "oracle/llama3.gguf"
static const struct {
    const char *base;
    struct edit edit;
    struct tensor_edit tensor;
    luce_status status;
    const char *says;
} bad[] = {
    { LLAMA, { "general.architecture", TEXT, 0, "mamba" }, { 0 }, LUCE_E_UNSUPPORTED,
      "architecture 'mamba' is not supported; known: llama, qwen2, qwen3, qwen3moe, gemma3, phi3" },
    { LLAMA, { "general.architecture", DROP, 0, 0 }, { 0 }, LUCE_E_FORMAT, "key 'general.architecture' is missing" },
    { LLAMA, { "general.architecture", U32, 1, 0 }, { 0 }, LUCE_E_FORMAT, "general.architecture" },
    { LLAMA, { "general.architecture", TEXT, 0, "clip" }, { 0 }, LUCE_E_UNSUPPORTED, "mmproj" },
    { LLAMA, { "general.type", TEXT, 0, "adapter" }, { 0 }, LUCE_E_UNSUPPORTED, "is an adapter (LoRA)" },
    { LLAMA, { "general.type", TEXT, 0, "imatrix" }, { 0 }, LUCE_E_UNSUPPORTED, "importance matrix" },
    { LLAMA, { "general.type", TEXT, 0, "mmproj" }, { 0 }, LUCE_E_UNSUPPORTED, "mmproj" },
    { LLAMA, { "llama.expert_count", U32, 8, 0 }, { 0 }, LUCE_E_UNSUPPORTED, "this is a Mixtral model" },
    { LLAMA, { "llama.block_count", U32, 0, 0 }, { 0 }, LUCE_E_FORMAT, "llama.block_count is 0; this engine takes 1 to 512" },
    { LLAMA, { "llama.block_count", U32, 600, 0 }, { 0 }, LUCE_E_FORMAT, "llama.block_count is 600" },
    { LLAMA, { "llama.block_count", U32, 4294967295.0, 0 }, { 0 }, LUCE_E_FORMAT, "llama.block_count is 4294967295" },
    { LLAMA, { "llama.block_count", DROP, 0, 0 }, { 0 }, LUCE_E_FORMAT, "key 'llama.block_count' is missing" },
    { LLAMA, { "llama.block_count", TEXT, 0, "3" }, { 0 }, LUCE_E_FORMAT, "llama.block_count" },
    { LLAMA, { "llama.block_count", U32, 4, 0 }, { 0 }, LUCE_E_FORMAT, "tensor 'blk.3.attn_norm.weight' [48] is missing" },
    { LLAMA, { "llama.embedding_length", U32, 0, 0 }, { 0 }, LUCE_E_FORMAT, "llama.embedding_length is 0" },
    { LLAMA, { "llama.embedding_length", U32, 1e9, 0 }, { 0 }, LUCE_E_FORMAT, "llama.embedding_length is 1000000000" },
    { LLAMA, { "llama.embedding_length", U32, 96, 0 }, { 0 }, LUCE_E_FORMAT, "'token_embd.weight' is [48, 96], expected [96, 96]" },
    { LLAMA, { "llama.embedding_length", U32, 47, 0 }, { 0 }, LUCE_E_FORMAT, "6 heads do not divide embedding length 47" },
    { LLAMA, { "llama.context_length", U32, 0, 0 }, { 0 }, LUCE_E_FORMAT, "llama.context_length is 0" },
    { LLAMA, { "llama.feed_forward_length", U32, 0, 0 }, { 0 }, LUCE_E_FORMAT, "llama.feed_forward_length is 0" },
    { LLAMA, { "llama.feed_forward_length", U32, 160, 0 }, { 0 }, LUCE_E_FORMAT, "ffn_gate.weight' is [48, 80], expected [48, 160]" },
    { LLAMA, { "llama.feed_forward_length", U32S, 2, 0 }, { 0 }, LUCE_E_FORMAT, "llama.feed_forward_length" },
    { LLAMA, { "llama.attention.head_count", U32, 0, 0 }, { 0 }, LUCE_E_FORMAT, "llama.attention.head_count is 0" },
    { LLAMA, { "llama.attention.head_count", U32, 5, 0 }, { 0 }, LUCE_E_FORMAT, "5 heads and 2 key-value heads" },
    { LLAMA, { "llama.attention.head_count", U32, 1 << 20, 0 }, { 0 }, LUCE_E_FORMAT, "takes 1 to 1024" },
    { LLAMA, { "llama.attention.head_count_kv", U32, 0, 0 }, { 0 }, LUCE_E_FORMAT, "llama.attention.head_count_kv is 0" },
    { LLAMA, { "llama.attention.head_count_kv", U32, 4, 0 }, { 0 }, LUCE_E_FORMAT, "6 heads and 4 key-value heads" },
    { LLAMA, { "llama.attention.head_count_kv", DROP, 0, 0 }, { 0 }, LUCE_E_FORMAT, "attn_k.weight' is [48, 16], expected [48, 48]" },
    { LLAMA, { "llama.attention.key_length", U32, 16, 0 }, { 0 }, LUCE_E_FORMAT, "attn_q.weight' is [48, 48], expected [48, 96]" },
    { LLAMA, { "llama.attention.key_length", U32, 0, 0 }, { 0 }, LUCE_E_FORMAT, "llama.attention.key_length is 0" },
    { LLAMA, { "llama.attention.key_length", U32, 7, 0 }, { 0 }, LUCE_E_FORMAT, "even numbers" },
    { LLAMA, { "llama.attention.key_length", U32, 4096, 0 }, { 0 }, LUCE_E_FORMAT, "llama.attention.key_length is 4096" },
    { LLAMA, { "llama.attention.value_length", U32, 16, 0 }, { 0 }, LUCE_E_UNSUPPORTED, "keys have 8 dimensions a head and values 16" },
    { LLAMA, { "llama.attention.layer_norm_rms_epsilon", F32, NAN, 0 }, { 0 }, LUCE_E_FORMAT, "rms_epsilon' is nan" },
    { LLAMA, { "llama.attention.layer_norm_rms_epsilon", F32, 0, 0 }, { 0 }, LUCE_E_FORMAT, "rms_epsilon is 0" },
    { LLAMA, { "llama.attention.layer_norm_rms_epsilon", F32, -1, 0 }, { 0 }, LUCE_E_FORMAT, "rms_epsilon is -1" },
    { LLAMA, { "llama.attention.layer_norm_rms_epsilon", DROP, 0, 0 }, { 0 }, LUCE_E_FORMAT, "rms_epsilon' is missing" },
    { LLAMA, { "llama.rope.freq_base", F32, INFINITY, 0 }, { 0 }, LUCE_E_FORMAT, "'llama.rope.freq_base' is inf" },
    { LLAMA, { "llama.rope.freq_base", F32, 1, 0 }, { 0 }, LUCE_E_FORMAT, "must be above 1" },
    { LLAMA, { "llama.rope.dimension_count", U32, 7, 0 }, { 0 }, LUCE_E_FORMAT, "must be even" },
    { LLAMA, { "llama.rope.dimension_count", U32, 16, 0 }, { 0 }, LUCE_E_FORMAT, "takes 2 to 8" },
    { LLAMA, { "llama.rope.dimension_count", U32, 4, 0 }, { 0 }, LUCE_E_UNSUPPORTED, "arch llama rotates all" },
    { LLAMA, { "llama.rope.scaling.type", TEXT, 0, "spiral" }, { 0 }, LUCE_E_UNSUPPORTED, "known: none, linear, yarn, longrope" },
    { LLAMA, { "llama.rope.scaling.type", TEXT, 0, "longrope" }, { 0 }, LUCE_E_FORMAT, "'rope_factors_short.weight' [4] is missing" },
    { LLAMA, { "llama.rope.scaling.factor", F32, -2, 0 }, { 0 }, LUCE_E_FORMAT, "llama.rope.scaling.factor is -2" },
    { LLAMA, { "llama.rope.scaling.factor", F32, 1e-30, 0 }, { 0 }, LUCE_E_FORMAT, "factor is 1e-30; expected 0.001 to" },
    { LLAMA, { "llama.rope.scaling.attn_factor", F32, 3e38, 0 }, { 0 }, LUCE_E_FORMAT, "attn_factor is 3e+38" },
    { LLAMA, { "llama.rope.scaling.attn_factor", F32, -1, 0 }, { 0 }, LUCE_E_FORMAT, "attn_factor is -1" },
    { LLAMA, { "llama.vocab_size", U32, 97, 0 }, { 0 }, LUCE_E_FORMAT, "'token_embd.weight' is [48, 96], expected [48, 97]" },
    { LLAMA, { "tokenizer.ggml.tokens", U32S, 95, 0 }, { 0 }, LUCE_E_FORMAT, "'token_embd.weight' is [48, 96], expected [48, 95]" },
    { LLAMA, { 0 }, { .name = "token_embd.weight" }, LUCE_E_FORMAT, "the vocabulary has 0 tokens" },
    { LLAMA, { 0 }, { .name = "output_norm.weight" }, LUCE_E_FORMAT, "tensor 'output_norm.weight' [48] is missing" },
    { LLAMA, { 0 }, { .name = "blk.0.attn_norm.weight", .rename = "blk.0.attn_norm.weights" }, LUCE_E_FORMAT,
      "tensor 'blk.0.attn_norm.weight' [48] is missing" },
    { LLAMA, { 0 }, { .name = "blk.2.ffn_down.weight" }, LUCE_E_FORMAT, "tensor 'blk.2.ffn_down.weight' [80, 48] is missing" },
    { LLAMA, { 0 }, { .name = "blk.1.attn_k.weight", .dim = { 16, 48 } }, LUCE_E_FORMAT, "'blk.1.attn_k.weight' is [16, 48], expected [48, 16]" },
    { LLAMA, { 0 }, { .name = "blk.1.ffn_norm.weight", .dim = { 24, 2 } }, LUCE_E_FORMAT, "'blk.1.ffn_norm.weight' is [24, 2], expected [48]" },
    { LLAMA, { 0 }, { .name = "blk.1.attn_v.weight", .type = Q_I32 }, LUCE_E_UNSUPPORTED, "no format of weights" },
    { LLAMA, { 0 }, { .name = "oracle.0.tokens", .rename = "blk.0.ffn_up.scale" }, LUCE_E_UNSUPPORTED,
      "'blk.0.ffn_up.scale' multiplies a whole tensor" },
    { LLAMA3, { 0 }, { .name = "rope_freqs.weight", .dim = { 3, 2 } }, LUCE_E_FORMAT, "'rope_freqs.weight' is [3, 2] of type 0, expected [6]" },
    { "oracle/gemma3.gguf", { "gemma3.attention.sliding_window_pattern", U32S, 3, 0 }, { 0 }, LUCE_E_FORMAT, "expected a bool for each of 7 layers" },
    { "oracle/gemma3.gguf", { "gemma3.attention.sliding_window", DROP, 0, 0 }, { 0 }, LUCE_E_FORMAT, "key 'gemma3.attention.sliding_window' is missing" },
    { "oracle/phi3.gguf", { 0 }, { .name = "blk.0.attn_qkv.weight" }, LUCE_E_FORMAT, "tensor 'blk.0.attn_q.weight' [48, 48] is missing" },
    { HYBRID, { "qwen35.rope.dimension_count", DROP, 0, 0 }, { 0 }, LUCE_E_FORMAT, "dimension_count' is missing" },
    { HYBRID, { "qwen35.ssm.conv_kernel", U32, 3, 0 }, { 0 }, LUCE_E_FORMAT, "ssm_conv1d.weight' is [4, 144], expected [3, 144]" },
    { HYBRID, { "qwen35.ssm.time_step_rank", U32, 5, 0 }, { 0 }, LUCE_E_FORMAT, "each must be a multiple of the next" },
    { HYBRID, { "qwen35.ssm.state_size", DROP, 0, 0 }, { 0 }, LUCE_E_FORMAT, "key 'qwen35.ssm.state_size' is missing" },
    { HYBRID, { "qwen35.full_attention_interval", U32, 2, 0 }, { 0 }, LUCE_E_FORMAT, "blk.1.attn_qkv.weight' is [32, 144], expected [32, 288]" },
    { HYBRID, { "qwen35.nextn_predict_layers", U32, 4, 0 }, { 0 }, LUCE_E_FORMAT, "nextn_predict_layers is 4; this engine takes 0 to 3" },
    { MOE, { "qwen3moe.expert_count", DROP, 0, 0 }, { 0 }, LUCE_E_FORMAT, "key 'qwen3moe.expert_count' is missing" },
    { MOE, { "qwen3moe.expert_count", U32, 0, 0 }, { 0 }, LUCE_E_FORMAT, "qwen3moe.expert_count is 0; this engine takes 1 to 4096" },
    { MOE, { "qwen3moe.expert_count", U32, 9, 0 }, { 0 }, LUCE_E_FORMAT, "ffn_gate_inp.weight' is [32, 8], expected [32, 9]" },
    { MOE, { "qwen3moe.expert_used_count", U32, 9, 0 }, { 0 }, LUCE_E_FORMAT, "expert_used_count is 9; this engine takes 1 to 8" },
    { MOE, { "qwen3moe.expert_feed_forward_length", U32, 48, 0 }, { 0 }, LUCE_E_FORMAT,
      "ffn_gate_exps.weight' is [32, 24, 8], expected [32, 48, 8]" },
    { MOE, { "qwen3moe.expert_gating_func", U32, 4, 0 }, { 0 }, LUCE_E_UNSUPPORTED, "knows 1 (softmax) and 2 (sigmoid)" },
    { MOE, { "qwen3moe.expert_group_count", U32, 4, 0 }, { 0 }, LUCE_E_UNSUPPORTED, "groups of experts" },
    { MOE, { "qwen3moe.expert_weights_scale", F32, -1, 0 }, { 0 }, LUCE_E_FORMAT, "expert_weights_scale is -1" },
    { MOE, { 0 }, { .name = "blk.1.ffn_gate_inp.weight" }, LUCE_E_FORMAT, "'blk.1.ffn_gate_inp.weight' [32, 8] is missing" },
    { MOE, { 0 }, { .name = "blk.1.ffn_down_exps.weight" }, LUCE_E_FORMAT, "'blk.1.ffn_down_exps.weight' [24, 32, 8] is missing" },
    { "oracle/qwen2.gguf", { 0 }, { .name = "blk.0.attn_k.bias" }, LUCE_E_FORMAT, "tensor 'blk.0.attn_k.bias' [16] is missing" },
};

TEST(models_that_contradict_themselves_are_refused_with_reasons)
{
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct gguf *g;
        struct model *m;
        luce_error err = { 0 };
        luce_status st = open_edited(&g, &m, bad[i].base, &bad[i].edit, &bad[i].tensor, &err);
        CHECK(st == bad[i].status, "row %zu: %s, not %s: %s", i, status_name(st), status_name(bad[i].status), err.text);
        CHECK(strstr(err.text, bad[i].says) != NULL, "row %zu: \"%s\" does not say \"%s\"", i, err.text, bad[i].says);
        CHECK(m == NULL, "row %zu", i);
        model_close(m);
        gguf_close(g);
    }
}

/* Opens an edit that is fine and returns the model (closed by end_edit). */
static struct model *fine(struct gguf **g, const char *base, struct edit e, struct tensor_edit t)
{
    struct model *m;
    luce_error err = { 0 };
    luce_status st = open_edited(g, &m, base, &e, &t, &err);
    CHECK_OK(st, err);
    return m;
}

static void end_edit(struct model *m, struct gguf *g)
{
    model_close(m);
    gguf_close(g);
}

TEST(tensors_that_no_tape_uses_are_counted)
{
    struct gguf *g;
    struct model *m = fine(&g, LLAMA, (struct edit){ 0 },
                           (struct tensor_edit){ .name = "oracle.0.tokens", .rename = "v.patch_embd.weight" });
    if (m) CHECK_EQ(m->n_unused, 8);
    end_edit(m, g);
}

TEST(a_file_without_head_is_tied)
{
    struct gguf *g;
    struct model *m = fine(&g, LLAMA, (struct edit){ 0 }, (struct tensor_edit){ .name = "output.weight" });
    if (m) CHECK(m->output == m->token_embd, "output is %s", m->output->name);
    end_edit(m, g);
}

TEST(a_count_may_be_an_array_with_an_element_per_layer)
{
    struct gguf *g;
    struct model *m = fine(&g, LLAMA, (struct edit){ "llama.attention.head_count_kv", U32S, 3, 0 },
                           (struct tensor_edit){ 0 });
    if (m) CHECK_EQ(m->c.layer[2].kv_heads, 2);
    end_edit(m, g);
}

TEST(weights_stand_in_the_order_of_the_file)
{
    struct gguf *g;
    struct model *m = fine(&g, LLAMA3, (struct edit){ 0 }, (struct tensor_edit){ 0 });
    int n_file = m ? m->n_weights - m->c.n_ropes : 0;
    for (int i = 1; i < n_file; i++)
        CHECK(m->weights[i - 1].host < m->weights[i].host, "%s after %s", m->weights[i].name, m->weights[i - 1].name);
    if (m) CHECK(m->c.rope[0].freq == &m->weights[m->n_weights - 1], "the rope table is a weight");
    end_edit(m, g);
}

TEST(gemma_has_one_full_layer_in_six_unless_the_pattern_says_otherwise)
{
    struct gguf *g;
    struct model *m = fine(&g, "oracle/gemma3.gguf", (struct edit){ 0 }, (struct tensor_edit){ 0 });
    for (int l = 0; m && l < 7; l++) {
        CHECK_EQ(m->c.layer[l].window, l == 5 ? 0 : 8);
        CHECK_EQ(m->c.layer[l].rope, l == 5 ? 0 : 1);
    }
    if (m) CHECK_EQ(m->kv.n_kinds, 2);
    end_edit(m, g);
    m = fine(&g, "oracle/gemma3.gguf", (struct edit){ "gemma3.attention.sliding_window_pattern", U32, 2, 0 },
             (struct tensor_edit){ 0 });
    for (int l = 0; m && l < 7; l++) CHECK_EQ(m->c.layer[l].window, l % 2 ? 0 : 8);
    end_edit(m, g);
}

/* Published check values of the llama3 rule, through rope_freqs.weight, are those of the fixture's
 * script; here: the table divides by the factors. */
TEST(rope_tables_hold_all_scaling)
{
    struct gguf *g;
    struct model *m = fine(&g, LLAMA3, (struct edit){ 0 }, (struct tensor_edit){ 0 });
    const struct gguf_tensor *t = g ? gguf_find(g, "rope_freqs.weight") : NULL;
    for (int i = 0; m && t && i < 6; i++) {
        float f = ((const float *)(const void *)t->data)[i];
        CHECK(m->c.rope[0].table[i] == (float)((double)(float)pow(10000, -2.0 * i / 12) / f), "pair %d", i);
    }
    end_edit(m, g);
    m = fine(&g, LLAMA, (struct edit){ "llama.rope.scaling.factor", F32, 4, 0 }, (struct tensor_edit){ 0 });
    for (int i = 0; m && i < 4; i++)
        CHECK(m->c.rope[0].table[i] == (float)pow(10000, -2.0 * i / 8) / 4, "pair %d", i);
    end_edit(m, g);
}

TEST(a_limited_context_chooses_the_short_longrope_factors)
{
    struct gguf *g;
    luce_error err = { 0 };
    struct model *m = fine(&g, "oracle/phi3_long.gguf", (struct edit){ 0 }, (struct tensor_edit){ 0 });
    if (m) {
        float long_1 = m->c.rope[0].table[1];
        CHECK_EQ(model_limit_context(m, 513, &err), LUCE_E_ARG);
        CHECK(strstr(err.text, "1 to 512") != NULL, "%s", err.text);
        CHECK_EQ(model_limit_context(m, 0, &err), LUCE_E_ARG);
        CHECK_OK(model_limit_context(m, 65, &err), err);
        CHECK(m->c.rope[0].table[1] == long_1, "65 positions are beyond the original 64");
        CHECK_OK(model_limit_context(m, 64, &err), err);
        CHECK(fabsf(m->c.rope[0].table[1] / long_1 - 2.5f / 1.1f) < 1e-5, "%g", m->c.rope[0].table[1]);
    }
    end_edit(m, g);
}

TEST(vectors_in_other_formats_become_f32)
{
    struct gguf *from = NULL, *g = NULL;
    struct model *m = NULL;
    struct gguf_writer w = { 0 };
    luce_error err = { 0 };
    uint16_t half[48];
    CHECK_OK(gguf_open(&from, fixture(LLAMA), &err), err);
    for (size_t i = 0; i < gguf_n_keys(from); i++) gguf_add_key(&w, gguf_key_at(from, i));
    const struct gguf_tensor *norm = gguf_find(from, "output_norm.weight");
    for (int i = 0; i < 48; i++) half[i] = f32_to_f16(((const float *)(const void *)norm->data)[i]);
    copy_tensors(&w, from, &(struct tensor_edit){ .name = "output_norm.weight" });
    gguf_add_tensor(&w, &(struct gguf_source){ .name = "output_norm.weight", .dim = { 48 }, .n_dims = 1,
                                               .type = Q_F16, .data = half });
    CHECK_OK(gguf_write(&w, scratch("half_norm.gguf"), &err), err);
    gguf_writer_drop(&w);
    gguf_close(from);
    log_set_level(LOG_ERROR);
    if (model_from_file(&g, &m, scratch("half_norm.gguf"))) {
        CHECK_EQ(m->output_norm->type, Q_F32);
        for (int i = 0; i < 48; i++)
            CHECK(((const float *)(const void *)m->output_norm->host)[i] == f16_to_f32(half[i]), "element %d", i);
    }
    log_set_level(LOG_WARN);
    end_edit(m, g);
}

TEST(model_open_survives_any_failed_allocation)
{
    static const char *const files[] = { LLAMA3, "oracle/gemma3.gguf", "oracle/phi3_long.gguf" };
    log_set_level(LOG_ERROR);
    for (size_t i = 0; i < COUNT(files); i++) {
        struct gguf *g = NULL;
        luce_error io = { 0 };
        CHECK_OK(gguf_open(&g, fixture(files[i]), &io), io);
        size_t before = mem_live();
        for (int n = 0;; n++) {
            struct model *m = NULL;
            luce_error err = { 0 };
            mem_fail_after(n);
            luce_status st = model_open(&m, g, &err);
            mem_fail_never();
            model_close(m);
            CHECK_EQ(mem_live(), before);
            if (st == LUCE_OK) break;
            CHECK_EQ(st, LUCE_E_NOMEM);
            if (n > 1000) break;
        }
        gguf_close(g);
    }
    log_set_level(LOG_WARN);
}
