/* tests/test_families.c - what holds for every family of the table, on small models with random weights:
 * every cache format gives the text's own logits, near its beginning and after a long prompt, and a
 * prompt gives the same bits in chunks of any size. */
#include <math.h>

#include "gguf/writer.h"
#include "model/open.h"
#include "model/presets.h"
#include "quant/quant.h"
#include "run/runner.h"
#include "test.h"

enum { VOCAB = 96, LONG = 1500, LONGEST = 2500, FAR = 8000, CONTEXT = 8192, WINDOW = 200, ROWS = 12 };

struct rig {
    struct gguf *file;
    struct buf header;
    struct device *device;
    struct runner *runner;
};

static void add_u32(struct gguf_writer *w, const char *arch, const char *suffix, uint32_t value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", arch, suffix);
    gguf_add_u32(w, key, value);
}

/* The keys of a model of two layers with heads of 64. A family takes what it knows. */
static void make_header(struct buf *out, const char *arch)
{
    static const struct { const char *suffix; uint32_t value; } keys[] = {
        { "block_count", 2 }, { "context_length", CONTEXT }, { "embedding_length", 64 },
        { "feed_forward_length", 96 }, { "attention.head_count", 2 }, { "attention.head_count_kv", 1 },
        { "attention.key_length", 64 }, { "attention.value_length", 64 }, { "vocab_size", VOCAB },
        { "attention.sliding_window", WINDOW }, { "attention.sliding_window_pattern", 2 }, { "expert_count", 4 }, { "expert_used_count", 4 },
        { "expert_feed_forward_length", 64 }, { "expert_shared_feed_forward_length", 64 },
        /* hybrids: the second layer attends */
        { "rope.dimension_count", 32 }, { "full_attention_interval", 2 }, { "ssm.conv_kernel", 4 },
        { "ssm.state_size", 16 }, { "ssm.group_count", 2 }, { "ssm.time_step_rank", 4 }, { "ssm.inner_size", 64 },
    };
    struct gguf_writer w = { 0 };
    char key[96];
    gguf_add_text(&w, "general.architecture", str_of(arch));
    /* A dense family refuses experts, and llama heads that turn in part. */
    bool hybrid = strstr(arch, "qwen35") || strstr(arch, "next"), moe = strstr(arch, "moe") || strstr(arch, "next");
    for (size_t i = 0; i < COUNT(keys); i++) {
        const char *suffix = keys[i].suffix;
        bool wanted = !strncmp(suffix, "expert", 6) ? moe : strcmp(suffix, "rope.dimension_count") || hybrid;
        if (wanted) add_u32(&w, arch, suffix, keys[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_add_f32(&w, key, 1e-5f);
    luce_error err = { 0 };
    CHECK_OK(gguf_write_header(&w, out, &err), err);
    gguf_writer_drop(&w);
}

/* False for a family whose model these keys do not make. */
static bool rig_open(struct rig *g, const char *arch, struct load_params p)
{
    struct synthetic_plan plan = { .format = Q_F32, .seed = 7 };
    struct model *m = NULL;
    luce_error err = { 0 };
    *g = (struct rig){ 0 };
    make_header(&g->header, arch);
    CHECK_OK(gguf_open_memory(&g->file, g->header.data, g->header.len, arch, &err), err);
    luce_status st = model_open_planned(&m, g->file, &plan, &err);
    if (st) return false;
    CHECK_OK(device_open(&g->device, "cpu", &(struct device_params){ .n_threads = 2 }, &err), err);
    p.device = g->device;
    CHECK_OK(runner_open(&g->runner, m, &p, &err), err);
    return g->runner != NULL;
}

static void rig_close(struct rig *g)
{
    runner_close(g->runner);
    device_close(g->device);
    gguf_close(g->file);
    buf_drop(&g->header);
}

static int32_t token_at(int i)
{
    return (int32_t)((uint32_t)i * 2654435761u >> 8) % VOCAB;
}

/* Feeds the text up to `from` as a prompt, then n rows narrow, and reads their logits. */
static void feed(struct rig *g, struct seq *s, int from, int n, float *logits)
{
    static int32_t text[FAR];
    luce_error err = { 0 };
    for (int i = 0; i < FAR; i++) text[i] = token_at(i);
    int at = seq_length(s);
    CHECK_OK(runner_prefill(g->runner, s, text + at, from - at, NULL, NULL, &err), err);
    runner_begin(g->runner, STEP_NARROW);
    CHECK_OK(runner_add(g->runner, s, text + from, NULL, n, WANT_ALL, NULL, &err), err);
    CHECK_OK(runner_run(g->runner, &err), err);
    for (int i = 0; i < n; i++) CHECK_OK(runner_logits(g->runner, i, logits + (size_t)i * VOCAB, &err), err);
    seq_accept(s, NULL, n);
}

/* Places at which a wrong cache has been seen to show: the first tokens, behind a page, beyond a window,
 * beyond 1024, at the end. */
static const int places[] = { 1, 64, 300, 1020, LONG - ROWS };

static void walk(struct rig *g, float *logits)
{
    struct seq *s;
    luce_error err = { 0 };
    CHECK_OK(seq_open(&s, runner_cache(g->runner), &err), err);
    for (size_t i = 0; i < COUNT(places); i++) feed(g, s, places[i], ROWS, logits + i * ROWS * VOCAB);
    seq_close(s);
}

/* Squared difference over squared size; infinite when anything is NaN. */
static double distance(const float *a, const float *b, int n)
{
    double off = 0, size = 0;
    for (int i = 0; i < n; i++) {
        off += pow((double)a[i] - (double)b[i], 2);
        size += pow((double)b[i], 2);
    }
    return off / size < INFINITY ? off / size : INFINITY;
}

/* The squared error of a rounded element over its square, for normal values: bf16 rounds by 2^-9 at most, q8_0 by
 * 1/254 and q4_0 by 1/14 of the largest of 32 (2.5 times the size), evenly spread: 1e-6, 3e-5, 1e-2. Softmax and
 * the layers above make up to 20 times that of it; the bound is 30 times. A wrong cache gives about 2. Weights
 * are f32 and all experts are used, so that nothing else is rounded or turns over. */
static const struct { uint32_t format; double bound; } types[] = {
    { Q_F16, 1e-6 }, { Q_BF16, 3e-5 }, { Q_Q8_0, 1e-3 }, { Q_Q4_0, 0.3 },
};

TEST(families_answer_alike_with_every_cache_format)
{
    enum { N = COUNT(places) * ROWS * VOCAB };
    static float exact[N], got[N];
    int n = 0;
    for (size_t f = 0; family_at(f); f++)
        for (size_t i = 0; i < COUNT(types) * COUNT(types); i++) {
            struct rig g;
            size_t k = i / COUNT(types), v = i % COUNT(types);
            if (k != v && !(k == 2 && v == 3)) continue;    /* keys and values are stored by themselves */
            struct load_params p = { .context = LONG, .chunk = 256, .k_format = types[k].format, .v_format = types[v].format };
            if (rig_open(&g, family_at(f)->arch, p)) {
                walk(&g, i ? got : exact);
                for (size_t at = 0; i && at < COUNT(places); at++) {
                    double off = distance(got + at * ROWS * VOCAB, exact + at * ROWS * VOCAB, ROWS * VOCAB);
                    double bound = types[k].bound + types[v].bound;
                    CHECK(off < bound, "%s, keys %s, values %s: %g at position %d", family_at(f)->arch,
                          format_find(types[k].format)->name, format_find(types[v].format)->name, off, places[at]);
                }
                n++;
            }
            rig_close(&g);
        }
    CHECK(n >= 9 * 5, "only %d models: give make_header the keys of the new family", n);
}

TEST(families_give_the_same_bits_for_every_chunk_of_a_long_prompt)
{
    static const int chunks[] = { 64, 256, 1000, 2048 };
    static float first[ROWS * VOCAB], got[ROWS * VOCAB];
    for (size_t f = 0; family_at(f); f++)
        for (size_t i = 0; i < COUNT(chunks); i++) {
            struct rig g;
            struct seq *s;
            luce_error err = { 0 };
            struct load_params p = { .context = LONGEST, .chunk = chunks[i], .k_format = Q_F16, .v_format = Q_Q8_0 };
            if (rig_open(&g, family_at(f)->arch, p)) {
                CHECK_OK(seq_open(&s, runner_cache(g.runner), &err), err);
                feed(&g, s, LONGEST - ROWS, ROWS, i ? got : first);
                seq_close(s);
                CHECK(!i || !memcmp(first, got, sizeof first), "%s: chunks of %d", family_at(f)->arch, chunks[i]);
            }
            rig_close(&g);
        }
}

/* One that attends to all of it and one with windows; the rows at the end alone see all splits. */
TEST(families_give_the_same_bits_behind_8000_tokens)
{
    static const char *const archs[] = { "qwen3", "gemma3" };
    static const int chunks[] = { 512, 2048 };
    static float first[ROWS * VOCAB], got[ROWS * VOCAB], near[ROWS * VOCAB];
    for (size_t f = 0; f < COUNT(archs); f++)
        for (size_t i = 0; i < COUNT(chunks); i++) {
            struct rig g;
            struct seq *s;
            luce_error err = { 0 };
            struct load_params p = { .context = FAR, .chunk = chunks[i], .k_format = Q_F16, .v_format = Q_F16 };
            CHECK(rig_open(&g, archs[f], p), "%s", archs[f]);
            CHECK_OK(seq_open(&s, runner_cache(g.runner), &err), err);
            feed(&g, s, FAR - 2 * ROWS, ROWS, near);
            feed(&g, s, FAR - ROWS, ROWS, i ? got : first);
            CHECK_EQ(seq_length(s), FAR);
            CHECK(distance(near, i ? got : first, ROWS * VOCAB) > 1e-6, "%s: logits do not follow the text", archs[f]);
            seq_close(s);
            CHECK(!i || !memcmp(first, got, sizeof first), "%s: chunks of %d", archs[f], chunks[i]);
            rig_close(&g);
        }
}
