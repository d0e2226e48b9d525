/* tests/tiny_model.c - see tiny_model.h. */
#include "tiny_model.h"

#include "base/rng.h"
#include "gguf/writer.h"
#include "quant/quant.h"
#include "test.h"
#include "toy_vocab.h"

enum { EMBD = 64, FF = 96, HEADS = 2, KV_HEADS = 1, HEAD = 32, LAYERS = 2 };

struct tensor {
    const char *name;
    int in, out;                /* out 0: a vector of ones */
    uint32_t type;
};
static const struct tensor of_layer[] = {
    { "attn_norm", EMBD, 0, Q_F32 }, { "attn_q", EMBD, HEADS * HEAD, Q_Q8_0 },
    { "attn_k", EMBD, KV_HEADS * HEAD, Q_Q8_0 }, { "attn_v", EMBD, KV_HEADS * HEAD, Q_F16 },
    { "attn_output", HEADS * HEAD, EMBD, Q_Q4_0 }, { "ffn_norm", EMBD, 0, Q_F32 },
    { "ffn_gate", EMBD, FF, Q_Q4_1 }, { "ffn_up", EMBD, FF, Q_Q5_0 }, { "ffn_down", FF, EMBD, Q_Q8_0 },
};
static const struct tensor of_model[] = {
    { "token_embd", EMBD, TINY_VOCAB, Q_F32 }, { "output_norm", EMBD, 0, Q_F32 },
    { "output", EMBD, TINY_VOCAB, Q_Q8_0 },
};

/* Random rows of the tensor, encoded; freed by the caller. */
static uint8_t *make_data(const struct tensor *t, uint64_t stream)
{
    const struct format *f = format_find(t->type);
    int rows = t->out ? t->out : 1;
    uint64_t row_bytes = format_bytes(f, (uint64_t)t->in);
    uint8_t *data = mem_alloc(row_bytes * (uint64_t)rows);
    float row[FF > EMBD ? FF : EMBD];
    for (int r = 0; data && r < rows; r++) {
        for (int i = 0; i < t->in; i++)
            row[i] = t->out ? (float)rng_normal(17, stream, (uint64_t)(r * t->in + i)) * 0.2f : 1;
        f->encode(row, data + row_bytes * (uint64_t)r, t->in, NULL);
    }
    return data;
}

static void add_tensor(struct gguf_writer *w, const struct tensor *t, const char *prefix, uint8_t **data)
{
    static uint64_t stream;
    char name[64];
    snprintf(name, sizeof name, "%s%s.weight", prefix, t->name);
    *data = make_data(t, ++stream);
    gguf_add_tensor(w, &(struct gguf_source){ .name = name, .dim = { (uint64_t)t->in, (uint64_t)t->out },
                                              .n_dims = t->out ? 2 : 1, .type = t->type, .data = *data });
}

static void add_keys(struct gguf_writer *w, const char *last_token, int context)
{
    struct toy *toy = toy_new("gpt2", "gpt-2");
    toy_token(toy, str_of("<|im_start|>"), TOKEN_CONTROL, 0);
    toy_token(toy, str_of("<|im_end|>"), TOKEN_CONTROL, 0);
    toy_token(toy, str_of(last_token), TOKEN_NORMAL, 0);
    for (int i = (int)toy->source.n_tokens; i < TINY_VOCAB; i++) {
        char name[24];
        snprintf(name, sizeof name, "[PAD%d]", i);
        toy_token(toy, str_of(name), TOKEN_UNUSED, 0);
    }
    char left[2] = { last_token[0], 0 };
    toy_merge(toy, str_of(left), str_of(last_token + 1));
    gguf_add_text(w, "general.architecture", str_of("llama"));
    gguf_add_u32(w, "llama.block_count", LAYERS);
    gguf_add_u32(w, "llama.context_length", (uint32_t)context);
    gguf_add_u32(w, "llama.embedding_length", EMBD);
    gguf_add_u32(w, "llama.feed_forward_length", FF);
    gguf_add_u32(w, "llama.attention.head_count", HEADS);
    gguf_add_u32(w, "llama.attention.head_count_kv", KV_HEADS);
    gguf_add_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_add_text(w, "tokenizer.ggml.model", str_of("gpt2"));
    gguf_add_text(w, "tokenizer.ggml.pre", str_of("gpt-2"));
    gguf_add_texts(w, "tokenizer.ggml.tokens", toy->tokens, toy->source.n_tokens);
    gguf_add_array(w, "tokenizer.ggml.token_type", GGUF_I32, toy->kinds, toy->source.n_tokens);
    gguf_add_texts(w, "tokenizer.ggml.merges", toy->merges, toy->source.n_merges);
    gguf_add_u32(w, "tokenizer.ggml.eos_token_id", TINY_END);
    gguf_add_text(w, "tokenizer.chat_template", str_of("{{ '<|im_start|>' }}"));
    toy_free(toy);
}

static luce_status write_model(const char *path, const char *last_token, int context, luce_error *err)
{
    enum { N_LAYER = COUNT(of_layer), N_MODEL = COUNT(of_model), N = LAYERS * N_LAYER + N_MODEL };
    uint8_t *data[N] = { 0 };
    int n = 0;
    struct gguf_writer w = { 0 };
    add_keys(&w, last_token, context);
    for (int i = 0; i < N_MODEL; i++) add_tensor(&w, &of_model[i], "", &data[n++]);
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < N_LAYER; i++) {
            char prefix[16];
            snprintf(prefix, sizeof prefix, "blk.%d.", l);
            add_tensor(&w, &of_layer[i], prefix, &data[n++]);
        }
    luce_status st = gguf_write(&w, path, err);
    gguf_writer_drop(&w);
    for (int i = 0; i < N; i++) mem_free(data[i]);
    return st;
}

const char *tiny_model(void)
{
    static char path[512];
    luce_error err = { 0 };
    if (*path) return path;
    snprintf(path, sizeof path, "%s", scratch("tiny.gguf"));
    luce_status st = write_model(path, "th", TINY_CONTEXT, &err);
    CHECK_OK(st, err);
    if (st) *path = '\0';
    return *path ? path : NULL;
}

const char *tiny_model_with(const char *text, int context)
{
    static char path[512];
    luce_error err = { 0 };
    snprintf(path, sizeof path, "%s", scratch("tiny_with.gguf"));
    luce_status st = write_model(path, text, context, &err);
    CHECK_OK(st, err);
    return st ? NULL : path;
}
