/* model/presets.c - synthetic models: the dimensions of released models with random weights, for
 * benches and tests of speed without a download.
 *
 * A preset is a header of keys only, built in memory and read by the family's usual configure; then
 * bind_model makes the weights that a file would hold. A mix gives each tensor its format: a few mixes
 * follow the public recipes, and every format with an encoder is a mix of itself. */
#include <stdio.h>
#include <strings.h>

#include "base/mem.h"
#include "gguf/writer.h"
#include "model/open.h"
#include "quant/quant.h"

struct preset {
    const char *name, *arch;
    int   embd, n_layers, heads, kv_heads, head_dim, ff, vocab, context;
    float base, eps;
    int   window;
    bool  tied;
    int   experts, used, expert_ff;
    const struct hybrid *hybrid;        /* NULL: every layer attends */
};
/* Recurrent layers, all but every fourth: heads of 128, four taps, and a quarter of an attention head turns. */
struct hybrid {
    int k_heads, v_heads, shared_ff;
};
static const struct hybrid hybrid_16 = { 16, 16, 0 }, hybrid_32 = { 16, 32, 0 }, hybrid_48 = { 16, 48, 0 },
                           hybrid_moe = { 16, 32, 512 };
enum { HYBRID_DIM = 128, HYBRID_TAPS = 4, HYBRID_INTERVAL = 4 };
/* The contexts are as long as a bench may want, not what the models were trained for. dense-27b is no released model: a
 * plain decoder of 26.7 G parameters, between qwen3-14b and qwen3-32b, for speeds of that size. */
static const struct preset presets[] = {
    { "llama-135m",  "llama",   576, 30,  9, 3,  64,  1536,  49152,  8192, 1e5f, 1e-5f,   0, true, 0, 0, 0, NULL },
    { "gemma3-270m", "gemma3",  640, 18,  4, 1, 256,  2048, 262144, 262144, 1e6f, 1e-6f, 512, true, 0, 0, 0, NULL },
    { "qwen3-0.6b",  "qwen3",  1024, 28, 16, 8, 128,  3072, 151936, 262144, 1e6f, 1e-6f,   0, true, 0, 0, 0, NULL },
    { "qwen3-1.7b",  "qwen3",  2048, 28, 16, 8, 128,  6144, 151936, 262144, 1e6f, 1e-6f,   0, true, 0, 0, 0, NULL },
    { "qwen3-4b",    "qwen3",  2560, 36, 32, 8, 128,  9728, 151936, 262144, 1e6f, 1e-6f,   0, true, 0, 0, 0, NULL },
    { "qwen3-8b",    "qwen3",  4096, 36, 32, 8, 128, 12288, 151936, 262144, 1e6f, 1e-6f,   0, false, 0, 0, 0, NULL },
    { "qwen3-14b",   "qwen3",  5120, 40, 40, 8, 128, 17408, 151936, 262144, 1e6f, 1e-6f,   0, false, 0, 0, 0, NULL },
    { "qwen3-32b",   "qwen3",  5120, 64, 64, 8, 128, 25600, 151936, 262144, 1e6f, 1e-6f,   0, false, 0, 0, 0, NULL },
    { "dense-27b",   "qwen3",  5120, 64, 40, 8, 128, 21504, 151936, 262144, 1e6f, 1e-6f,   0, false, 0, 0, 0, NULL },
    { "qwen3-30b-a3b", "qwen3moe", 2048, 48, 32, 4, 128, 6144, 151936, 262144, 1e6f, 1e-6f, 0, false, 128, 8,
      768, NULL },
    { "qwen35-0.8b", "qwen35",  1024, 24,  8, 2, 256,  3584, 248320, 262144, 1e7f, 1e-6f, 0, true, 0, 0, 0,
      &hybrid_16 },
    { "qwen35-4b",   "qwen35",  2560, 32, 16, 4, 256,  9216, 248320, 262144, 1e7f, 1e-6f, 0, true, 0, 0, 0,
      &hybrid_32 },
    { "qwen35-27b",  "qwen35",  5120, 64, 24, 4, 256, 17408, 248320, 262144, 1e7f, 1e-6f, 0, false, 0, 0, 0,
      &hybrid_48 },
    { "qwen35-35b-a3b", "qwen35moe", 2048, 40, 16, 2, 256, 512, 248320, 262144, 1e7f, 1e-6f, 0, false, 256, 8,
      512, &hybrid_moe },
};

/* Layers in which a recipe spends more bits on a tensor. */
enum where { NOWHERE, MORE, FIRST_EIGHTH, SHARED_BY_4 };
static const struct mix {
    const char *name;
    uint32_t    base, head;
    struct raised { uint32_t format; enum where where; } attn_v, ffn_down, out;
} mixes[] = {
    { "q4_k_m",     Q_Q4_K,   Q_Q6_K, { Q_Q6_K, MORE },        { Q_Q6_K, MORE }, { 0, NOWHERE } },
    { "q5_k_m",     Q_Q5_K,   Q_Q6_K, { Q_Q6_K, MORE },        { Q_Q6_K, MORE }, { 0, NOWHERE } },
    { "iq4_xs-mix", Q_IQ4_XS, Q_Q6_K, { Q_Q5_K, SHARED_BY_4 }, { Q_Q5_K, FIRST_EIGHTH },
      { Q_Q6_K, FIRST_EIGHTH } },
};

const char *preset_name(size_t i)
{
    return i < COUNT(presets) ? presets[i].name : NULL;
}

const char *mix_name(size_t i)
{
    return i < COUNT(mixes) ? mixes[i].name : NULL;
}

static bool raises(enum where where, int layer, const struct decoder *c)
{
    int n = c->n_layers, eighth = n / 8;
    switch (where) {
    case NOWHERE:      return false;
    case MORE:         return layer < eighth || layer >= 7 * n / 8 || (layer - eighth) % 3 == 2;
    case FIRST_EIGHTH: return layer < eighth;
    case SHARED_BY_4:  return c->layer[layer].heads >= 4 * c->layer[layer].kv_heads;
    }
    return false;
}

/* What converters fall back to when a row is no whole number of blocks. */
static uint32_t fallback(uint32_t format, uint64_t n_in)
{
    static const struct { uint32_t from, to; } table[] = {
        { Q_Q2_K, Q_IQ4_NL }, { Q_Q3_K, Q_IQ4_NL }, { Q_IQ3_S, Q_IQ4_NL }, { Q_IQ2_S, Q_IQ4_NL },
        { Q_IQ3_XXS, Q_IQ4_NL }, { Q_IQ4_XS, Q_IQ4_NL }, { Q_Q4_K, Q_Q5_0 }, { Q_Q5_K, Q_Q5_1 },
        { Q_Q6_K, Q_Q8_0 }, { Q_TQ1_0, Q_Q4_0 }, { Q_TQ2_0, Q_Q4_0 },
    };
    for (size_t i = 0; i < COUNT(table) && n_in % (uint64_t)format_find(format)->block; i++)
        if (table[i].from == format) format = table[i].to;
    return n_in % (uint64_t)format_find(format)->block ? Q_F16 : format;
}

uint32_t synthetic_format(const struct model *m, const char *tensor, int layer, uint64_t n_in)
{
    const struct synthetic_plan *p = m->synthetic;
    const struct mix *mix = p->mix;
    uint32_t format = mix ? mix->base : p->format;
    if (!strcmp(tensor, "ffn_gate_inp.weight")) return Q_F32;      /* near ties decide experts */
    if (!strcmp(tensor, "ssm_conv1d.weight")) return Q_F32;
    if (!strcmp(tensor, "ssm_alpha.weight") || !strcmp(tensor, "ssm_beta.weight")) return fallback(Q_Q8_0, n_in);
    bool output = m->c.state.taps && (!strcmp(tensor, "attn_output.weight") || !strcmp(tensor, "ssm_out.weight"));
    if (mix && (!strcmp(tensor, "output.weight") || (!strcmp(tensor, "token_embd.weight") && !p->untied)))
        format = mix->head;
    const struct raised *r = !mix || layer < 0 ? NULL : !strcmp(tensor, "attn_v.weight") ? &mix->attn_v :
                             !strncmp(tensor, "ffn_down", 8) ? &mix->ffn_down : output ? &mix->out : NULL;
    if (r && raises(r->where, layer, &m->c)) format = r->format;
    return fallback(format, n_in);
}

static void add_u32(struct gguf_writer *w, const char *arch, const char *suffix, int value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", arch, suffix);
    gguf_add_u32(w, key, (uint32_t)value);
}

static void add_f32(struct gguf_writer *w, const char *arch, const char *suffix, float value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", arch, suffix);
    gguf_add_f32(w, key, value);
}

static void add_hybrid(struct gguf_writer *w, const char *arch, const struct preset *p)
{
    const struct hybrid *h = p->hybrid;
    add_u32(w, arch, "rope.dimension_count", p->head_dim / 4);
    add_u32(w, arch, "full_attention_interval", HYBRID_INTERVAL);
    add_u32(w, arch, "ssm.conv_kernel", HYBRID_TAPS);
    add_u32(w, arch, "ssm.state_size", HYBRID_DIM);
    add_u32(w, arch, "ssm.group_count", h->k_heads);
    add_u32(w, arch, "ssm.time_step_rank", h->v_heads);
    add_u32(w, arch, "ssm.inner_size", h->v_heads * HYBRID_DIM);
    if (h->shared_ff) add_u32(w, arch, "expert_shared_feed_forward_length", h->shared_ff);
}

/* A GGUF of keys without tensors. */
static luce_status make_header(struct buf *out, const struct preset *p, luce_error *err)
{
    struct gguf_writer w = { 0 };
    const char *a = p->arch;
    gguf_add_text(&w, "general.architecture", str_of(a));
    gguf_add_text(&w, "general.name", str_of(p->name));
    add_u32(&w, a, "block_count", p->n_layers);
    add_u32(&w, a, "context_length", p->context);
    add_u32(&w, a, "embedding_length", p->embd);
    add_u32(&w, a, "feed_forward_length", p->ff);
    add_u32(&w, a, "attention.head_count", p->heads);
    add_u32(&w, a, "attention.head_count_kv", p->kv_heads);
    add_u32(&w, a, "attention.key_length", p->head_dim);
    add_u32(&w, a, "attention.value_length", p->head_dim);
    add_f32(&w, a, "attention.layer_norm_rms_epsilon", p->eps);
    add_f32(&w, a, "rope.freq_base", p->base);
    add_u32(&w, a, "vocab_size", p->vocab);
    if (p->experts) {
        add_u32(&w, a, "expert_count", p->experts);
        add_u32(&w, a, "expert_used_count", p->used);
        add_u32(&w, a, "expert_feed_forward_length", p->expert_ff);
    }
    if (p->window) add_u32(&w, a, "attention.sliding_window", p->window);
    if (p->hybrid) add_hybrid(&w, a, p);
    luce_status st = gguf_write_header(&w, out, err);
    gguf_writer_drop(&w);
    return st;
}

static bool may_fill(const struct format *f)
{
    return f->encode && f->decode && !f->needs_importance && !f->levels && f->id < Q_PRIVATE;
}

static luce_status list_all(const char *spec, luce_error *err)
{
    struct buf b = { 0 };
    for (size_t i = 0; preset_name(i); i++) buf_printf(&b, "%s%s", i ? ", " : "", preset_name(i));
    buf_add_text(&b, "; formats: ");
    for (size_t i = 0; mix_name(i); i++) buf_printf(&b, "%s, ", mix_name(i));
    for (size_t i = 0, n = 0; format_at(i); i++)
        if (may_fill(format_at(i))) buf_printf(&b, "%s%s", n++ ? ", " : "", format_at(i)->name);
    luce_status st = fail(err, LUCE_E_ARG, "no synthetic model '%.60s'; it is PRESET:FORMAT. Presets: %s", spec,
                          buf_text(&b));
    buf_drop(&b);
    return st;
}

/* Splits "preset:format"; false when either is unknown. */
static bool parse_spec(const char *spec, struct synthetic_plan *p)
{
    const char *colon = strchr(spec, ':');
    if (!colon) return false;
    struct str name = { spec, (size_t)(colon - spec) };
    for (size_t i = 0; i < COUNT(presets); i++)
        if (str_is(name, presets[i].name)) p->preset = &presets[i];
    for (size_t i = 0; i < COUNT(mixes); i++)
        if (!strcasecmp(colon + 1, mixes[i].name)) p->mix = &mixes[i];
    const struct format *f = format_named(colon + 1);
    if (f && may_fill(f)) p->format = f->id;
    else if (!p->mix) return false;
    return p->preset != NULL;
}

luce_status model_open_synthetic(struct model **out, const char *spec, luce_error *err)
{
    struct synthetic_plan plan = { .seed = 1 };
    struct buf header = { 0 };
    struct gguf *g = NULL;
    luce_status st;
    *out = NULL;
    if (!parse_spec(spec, &plan)) return list_all(spec, err);
    plan.untied = !plan.preset->tied;
    if ((st = make_header(&header, plan.preset, err))) goto bad;
    if ((st = gguf_open_memory(&g, header.data, header.len, spec, err))) goto bad;
    if ((st = model_open_planned(out, g, &plan, err))) goto bad;
    (*out)->own = g;
    (*out)->header = header;
    return LUCE_OK;
bad:
    gguf_close(g);
    buf_drop(&header);
    return st;
}
