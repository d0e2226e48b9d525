/* tests/test_run.c - the runner: any way of feeding a text gives the same bits as feeding it row by
 * row; what does not fit is refused with numbers; failures leave nothing behind. */
#include <stdlib.h>

#include "ref_device.h"
#include "quant/quant.h"
#include "run/runner.h"
#include "test.h"
#include "tiny_model.h"

enum { TEXT = 150, MOST_SEQS = 3, VOCAB_MOST = 300 };

struct rig {
    struct gguf *file;
    struct device *device;
    struct runner *runner;
    int vocab;
};

static const struct { const char *name; bool is_ref, equal_bits; } kinds[] = {
    { "ref", true, true }, { "ref with pages", true, false }, { "cpu", false, true },
};

enum { CPU_KIND = 2 };

static luce_status rig_open_path(struct rig *g, const char *path, int kind, const struct load_params *params,
                                 luce_error *err)
{
    *g = (struct rig){ 0 };
    luce_status st = gguf_open(&g->file, path, err);
    if (!st && kinds[kind].is_ref) {
        g->device = ref_device(kinds[kind].equal_bits, 1u << 30);
        if (!g->device) st = fail(err, LUCE_E_NOMEM, "out of memory for the device");
    } else if (!st) {
        st = device_open(&g->device, "cpu", &(struct device_params){ .n_threads = 2 }, err);
    }
    struct load_params p = *params;
    p.device = g->device;
    struct model *m = NULL;
    if (!st) st = model_open(&m, g->file, err);
    if (!st) st = runner_open(&g->runner, m, &p, err);
    if (!st) g->vocab = runner_model(g->runner)->c.vocab;
    return st;
}

static luce_status rig_open(struct rig *g, const char *model, int kind, const struct load_params *params,
                            luce_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "oracle/%s.gguf", model);
    return rig_open_path(g, fixture(name), kind, params, err);
}

static void rig_close(struct rig *g)
{
    runner_close(g->runner);
    if (g->device) g->device->fns->close(g->device);
    gguf_close(g->file);
    *g = (struct rig){ 0 };
}

/* Logits of every position when the text is fed row by row. */
static void plain(struct rig *g, const int32_t *text, int n, float *logits)
{
    struct seq *s;
    luce_error err = { 0 };
    CHECK_OK(seq_open(&s, runner_cache(g->runner), &err), err);
    for (int i = 0; i < n; i++) {
        runner_begin(g->runner, STEP_NARROW);
        CHECK_OK(runner_add(g->runner, s, text + i, NULL, 1, WANT_LAST, NULL, &err), err);
        CHECK_OK(runner_run(g->runner, &err), err);
        CHECK_OK(runner_logits(g->runner, 0, logits + (size_t)i * (size_t)g->vocab, &err), err);
        seq_accept(s, NULL, 1);
    }
    seq_close(s);
}

struct text {                   /* a sequence on its walk */
    struct seq *seq;
    int32_t id[TEXT];
    float *logits;              /* the plain ones */
    int rows, out;              /* in the step; first wanted row */
    bool on_path[NARROW_ROWS];
    int at[NARROW_ROWS];        /* positions of rows on the path */
};

static bool same(struct rig *g, int out, const float *expected)
{
    float got[VOCAB_MOST];
    luce_error err = { 0 };
    CHECK_OK(runner_logits(g->runner, out, got, &err), err);
    return memcmp(got, expected, (size_t)g->vocab * sizeof *got) == 0;
}

/* A tree of n rows: row i hangs on a random row before it. Rows whose ancestors all continue the text
 * may continue it too; others get any token. */
static void grow_tree(struct rig *g, struct text *t, int n, int32_t *tokens, int *parent)
{
    int length = seq_length(t->seq);
    for (int i = 0; i < n; i++) {
        parent[i] = test_random() % 3 ? i - 1 : (int)(test_random() % (uint64_t)(i + 1)) - 1;
        bool good = parent[i] < 0 || t->on_path[parent[i]];
        int at = parent[i] < 0 ? length : t->at[parent[i]] + 1;
        t->on_path[i] = good && at < TEXT && test_random() % 8;
        t->at[i] = at;
        tokens[i] = t->on_path[i] ? t->id[at] : (int32_t)(test_random() % (uint64_t)g->vocab);
        if (!t->on_path[i] && good && at < TEXT && tokens[i] == t->id[at]) t->on_path[i] = true;
    }
}

static void add_narrow(struct rig *g, struct text *t, int room)
{
    int32_t tokens[NARROW_ROWS];
    int parent[NARROW_ROWS], left = TEXT - seq_length(t->seq);
    int n = 1 + (int)(test_random() % (uint64_t)room);
    luce_error err = { 0 };
    if (n > left) n = left;
    if (n == 0) return;
    t->rows = n;
    if (test_random() % 2) {
        grow_tree(g, t, n, tokens, parent);
        CHECK_OK(runner_add(g->runner, t->seq, tokens, parent, n, WANT_ALL, &t->out, &err), err);
        return;
    }
    for (int i = 0; i < n; i++) {
        t->on_path[i] = true;
        t->at[i] = seq_length(t->seq) + i;
    }
    CHECK_OK(runner_add(g->runner, t->seq, t->id + t->at[0], NULL, n, WANT_ALL, &t->out, &err), err);
}

/* Accepts some of the rows that continue the text: the first one of each position, to a random depth. */
static void accept_some(struct text *t)
{
    uint8_t path[NARROW_ROWS];
    int n = 0, most = (int)(test_random() % (NARROW_ROWS + 1)), next = seq_length(t->seq);
    for (int i = 0; i < t->rows && n < most; i++)
        if (t->on_path[i] && t->at[i] == next) path[n++] = (uint8_t)i, next++;
    seq_accept(t->seq, path, n);
}

static void narrow_step(struct rig *g, struct text *texts, int n)
{
    luce_error err = { 0 };
    runner_begin(g->runner, STEP_NARROW);
    int room = 1 + (int)(test_random() % NARROW_ROWS);
    for (int i = 0; i < n; i++) {
        texts[i].rows = 0;
        int left = room - runner_step(g->runner)->head.n_rows;
        if (left > 0 && test_random() % 4) add_narrow(g, &texts[i], left);
    }
    CHECK_OK(runner_run(g->runner, &err), err);
    for (int i = 0; i < n; i++) {
        struct text *t = &texts[i];
        for (int r = 0; r < t->rows; r++)
            if (t->on_path[r])
                CHECK(same(g, t->out + r, t->logits + (size_t)t->at[r] * (size_t)g->vocab),
                      "row %d of %d, position %d, differs from the plain one", r, t->rows, t->at[r]);
        if (t->rows) accept_some(t);
    }
}

static void wide_step(struct rig *g, struct text *t)
{
    enum step_class class;
    luce_error err = { 0 };
    int left = TEXT - seq_length(t->seq), out;
    int n = left ? runner_prefill_rows(g->runner, t->seq, 1 + (int)(test_random() % (uint64_t)left), &class) : 0;
    if (n == 0 || class == STEP_NARROW) return;
    runner_begin(g->runner, STEP_WIDE);
    int last = seq_length(t->seq) + n - 1;
    CHECK_OK(runner_add(g->runner, t->seq, t->id + last - n + 1, NULL, n, WANT_LAST, &out, &err), err);
    CHECK_OK(runner_run(g->runner, &err), err);
    CHECK(same(g, out, t->logits + (size_t)last * (size_t)g->vocab), "position %d after %d wide rows", last, n);
    CHECK_EQ(seq_length(t->seq), last + 1);
}

static void walk(struct rig *g, int steps)
{
    static struct text texts[MOST_SEQS];
    luce_error err = { 0 };
    for (int i = 0; i < MOST_SEQS; i++) {
        struct text *t = &texts[i];
        for (int j = 0; j < TEXT; j++) t->id[j] = (int32_t)(test_random() % (uint64_t)g->vocab);
        t->logits = mem_array((size_t)TEXT * (size_t)g->vocab, sizeof *t->logits);
        plain(g, t->id, TEXT, t->logits);
    }
    for (int i = 0; i < MOST_SEQS; i++) CHECK_OK(seq_open(&texts[i].seq, runner_cache(g->runner), &err), err);
    for (int i = 0; i < steps; i++) {
        struct text *t = &texts[test_random() % MOST_SEQS];
        int what = (int)(test_random() % 8);
        if (what == 0) wide_step(g, t);
        else if (what == 1) seq_truncate(t->seq, (int)(test_random() % (uint64_t)(seq_length(t->seq) + 1)));
        else narrow_step(g, texts, MOST_SEQS);
    }
    for (int i = 0; i < MOST_SEQS; i++) {
        seq_close(texts[i].seq);
        mem_free(texts[i].logits);
    }
}

TEST(run_any_way_of_feeding_a_text_gives_the_same_bits)
{
    static const char *const models[] = { "llama", "qwen3", "gemma3", "qwen2", "phi3_long" };
    static const uint32_t formats[] = { Q_F16, Q_BF16 };
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (size_t i = 0; i < COUNT(models); i++) {
            struct rig g;
            luce_error err = { 0 };
            struct load_params p = { .context = TEXT, .n_slots = MOST_SEQS + 1, .chunk = k % 2 ? 64 : 100,
                                     .k_format = formats[i % 2], .v_format = formats[(i / 2) % 2] };
            CHECK_OK(rig_open(&g, models[i], (int)k, &p, &err), err);
            if (g.runner) walk(&g, kinds[k].is_ref ? 12 : 60);
            rig_close(&g);
        }
}

static const struct { uint32_t k, v; } cache_formats[] = {
    { Q_F16, Q_F16 }, { Q_BF16, Q_F16 }, { Q_Q8_0, Q_Q8_0 }, { Q_Q8_0, Q_Q4_0 }, { Q_Q4_0, Q_Q4_0 },
};

TEST(run_every_cache_format_gives_the_same_bits_in_any_steps)
{
    for (size_t i = 0; i < COUNT(cache_formats); i++) {
        struct rig g;
        luce_error err = { 0 };
        struct load_params p = { .context = TEXT, .n_slots = MOST_SEQS + 1, .chunk = 50,
                                 .k_format = cache_formats[i].k, .v_format = cache_formats[i].v };
        CHECK_OK(rig_open_path(&g, tiny_model(), CPU_KIND, &p, &err), err);
        if (g.runner) walk(&g, 40);
        rig_close(&g);
    }
}

TEST(run_shared_pages_give_the_bits_of_a_fresh_text)
{
    static const char *const models[] = { "llama", "gemma3" };
    for (size_t i = 0; i < COUNT(models); i++) {
        struct rig g;
        luce_error err = { 0 };
        CHECK_OK(rig_open(&g, models[i], CPU_KIND, &(struct load_params){ .context = TEXT, .n_slots = 3 }, &err), err);
        if (!g.runner) return;
        struct seq *a, *b;
        int32_t text[TEXT];
        float *logits = mem_array((size_t)TEXT * (size_t)g.vocab, sizeof *logits);
        for (int j = 0; j < TEXT; j++) text[j] = (int32_t)(test_random() % (uint64_t)g.vocab);
        plain(&g, text, TEXT, logits);
        CHECK_OK(seq_open(&a, runner_cache(g.runner), &err), err);
        CHECK_OK(seq_open(&b, runner_cache(g.runner), &err), err);
        CHECK_OK(runner_prefill(g.runner, a, text, 130, NULL, NULL, &err), err);
        CHECK_EQ(seq_claim(b, text, 140), 128);
        /* Both go on in what they share, after going back into it. */
        int back = seq_truncate(b, 100);
        CHECK_OK(runner_prefill(g.runner, b, text + back, 140 - back, NULL, NULL, &err), err);
        CHECK(same(&g, 0, logits + (size_t)139 * (size_t)g.vocab));
        CHECK_OK(runner_prefill(g.runner, a, text + 130, 20, NULL, NULL, &err), err);
        CHECK(same(&g, 0, logits + (size_t)149 * (size_t)g.vocab));
        seq_close(a);
        seq_close(b);
        mem_free(logits);
        rig_close(&g);
    }
}

TEST(run_a_step_in_steady_state_allocates_nothing)
{
    struct rig g;
    luce_error err = { 0 };
    CHECK_OK(rig_open(&g, "gemma3", CPU_KIND, &(struct load_params){ .context = 300 }, &err), err);
    if (!g.runner) return;
    int32_t tokens[NARROW_ROWS] = { 1, 2, 3 }, token;
    float logits[VOCAB_MOST];
    struct seq *s;
    CHECK_OK(seq_open(&s, runner_cache(g.runner), &err), err);
    for (int round = 0; round < 2; round++) {
        seq_truncate(s, 0);
        if (round) mem_fail_after(0);           /* any allocation would fail the step */
        CHECK_OK(runner_prefill(g.runner, s, tokens, 50, NULL, NULL, &err), err);
        for (int n = 1; n <= NARROW_ROWS; n *= 2) {
            runner_begin(g.runner, STEP_NARROW);
            CHECK_OK(runner_add(g.runner, s, tokens, NULL, n, WANT_LAST, NULL, &err), err);
            CHECK_OK(runner_run(g.runner, &err), err);
            CHECK_OK(runner_choice(g.runner, 0, &token, &err), err);
            CHECK_OK(runner_logits(g.runner, 0, logits, &err), err);
            seq_accept(s, NULL, n);
        }
        mem_fail_never();
    }
    seq_close(s);
    rig_close(&g);
}

TEST(run_what_does_not_fit_is_refused_with_numbers)
{
    struct gguf *file;
    struct model *m;
    luce_error err = { 0 };
    struct load_plan plan;
    CHECK_OK(gguf_open(&file, fixture("oracle/llama.gguf"), &err), err);
    CHECK_OK(model_open(&m, file, &err), err);
    struct device *d = ref_device(true, 3 << 20);
    struct load_params p = { .device = d, .n_slots = 8, .chunk = 64 };
    CHECK_OK(runner_plan(m, &p, &plan, &err), err);
    CHECK(plan.context > 0 && plan.context == plan.context_fits, "%d", plan.context);
    CHECK(plan.weights + plan.cache + plan.scratch <= plan.free);
    uint64_t half = plan.weights + plan.scratch + plan.cache / 2;
    p.context = 500000;
    CHECK_EQ(runner_plan(m, &p, &plan, &err), LUCE_E_CONTEXT);
    CHECK(strstr(err.text, "takes up to 512"), "%s", err.text);
    d->fns->close(d);
    p.device = d = ref_device(true, half);
    p.context = 0;
    CHECK_OK(runner_plan(m, &p, &plan, &err), err);
    CHECK(plan.context > 0 && plan.context < 512, "%d", plan.context);
    p.context = plan.context + 64;
    CHECK_EQ(runner_plan(m, &p, &plan, &err), LUCE_E_DEVMEM);
    CHECK(strstr(err.text, "weights") && strstr(err.text, "cache") && strstr(err.text, "scratch") &&
          strstr(err.text, "MiB free") && strstr(err.text, "the largest context that fits is "), "%s", err.text);
    p.context = 0;
    p.k_format = Q_Q4_K;
    CHECK_EQ(runner_plan(m, &p, &plan, &err), LUCE_E_ARG);
    p.k_format = 0;
    p.chunk = 5000;
    CHECK_EQ(runner_plan(m, &p, &plan, &err), LUCE_E_ARG);
    CHECK(strstr(err.text, "a chunk of 5000 rows"), "%s", err.text);
    d->fns->close(d);
    p = (struct load_params){ .device = d = ref_device(true, 1 << 18), .chunk = 64 };
    CHECK_EQ(runner_plan(m, &p, &plan, &err), LUCE_E_DEVMEM);
    CHECK(strstr(err.text, "no context fits"), "%s", err.text);
    d->fns->close(d);
    p = (struct load_params){ .device = d = ref_device(true, 1u << 30), .context = 513 };
    CHECK_EQ(runner_plan(m, &p, &plan, &err), LUCE_E_CONTEXT);
    CHECK(strstr(err.text, "takes up to 512"), "%s", err.text);
    d->fns->close(d);
    model_close(m);
    gguf_close(file);
}

TEST(run_complete_pages_of_a_prompt_are_wide_where_classes_differ)
{
    struct rig g;
    luce_error err = { 0 };
    struct seq *s;
    int32_t tokens[TEXT] = { 0 };
    CHECK_OK(rig_open(&g, "llama", 1, &(struct load_params){ .context = TEXT, .chunk = 70 }, &err), err);
    if (!g.runner) return;
    CHECK_EQ(runner_chunk(g.runner), 128);
    CHECK_OK(seq_open(&s, runner_cache(g.runner), &err), err);
    CHECK_OK(runner_prefill(g.runner, s, tokens, TEXT, NULL, NULL, &err), err);
    CHECK_EQ(ref_counts(g.device)->wide_rows, 128);
    CHECK_EQ(ref_counts(g.device)->rows, TEXT);
    CHECK_EQ(seq_wide(s), 128);
    CHECK_EQ(seq_length(s), TEXT);
    seq_close(s);
    rig_close(&g);
}

static bool at_once(void *context)
{
    return --*(int *)context < 0;
}

TEST(run_a_step_refuses_what_it_cannot_hold)
{
    struct rig g;
    luce_error err = { 0 };
    struct seq *s;
    int32_t tokens[NARROW_ROWS + 1] = { 0 }, beyond = 96;
    const int parent[] = { -1, 1 };
    CHECK_OK(rig_open(&g, "llama", 0, &(struct load_params){ .context = TEXT }, &err), err);
    if (!g.runner) return;
    CHECK_OK(seq_open(&s, runner_cache(g.runner), &err), err);
    runner_begin(g.runner, STEP_NARROW);
    CHECK_EQ(runner_add(g.runner, s, tokens, NULL, NARROW_ROWS + 1, WANT_LAST, NULL, &err), LUCE_E_ARG);
    CHECK_EQ(runner_add(g.runner, s, tokens, parent, 2, WANT_LAST, NULL, &err), LUCE_E_ARG);
    CHECK(strstr(err.text, "row 1 has parent 1"), "%s", err.text);
    CHECK_EQ(runner_add(g.runner, s, &beyond, NULL, 1, WANT_LAST, NULL, &err), LUCE_E_ARG);
    CHECK(strstr(err.text, "is 96; the model's vocabulary is 0 to 95"), "%s", err.text);
    CHECK_EQ(runner_step(g.runner)->head.n_rows, 0);
    CHECK_OK(runner_add(g.runner, s, tokens, NULL, 1, WANT_LAST, NULL, &err), err);
    CHECK_EQ(runner_add(g.runner, s, tokens, NULL, 1, WANT_LAST, NULL, &err), LUCE_E_ARG);
    CHECK(strstr(err.text, "twice"), "%s", err.text);
    int steps = 1;
    CHECK_EQ(runner_prefill(g.runner, s, tokens, TEXT / 3, at_once, &(int){ 0 }, &err), LUCE_E_CANCELLED);
    CHECK_EQ(seq_length(s), 0);
    runner_begin(g.runner, STEP_WIDE);
    CHECK_EQ(runner_prefill(g.runner, s, tokens, 10, at_once, &steps, &err), LUCE_OK);
    seq_close(s);
    rig_close(&g);
}

TEST(run_a_hybrid_of_27b_with_131072_positions_fits_a_card_of_32_gb)
{
    struct model *m;
    luce_error err = { 0 };
    struct load_plan plan;
    CHECK_OK(model_open_synthetic(&m, "qwen35-27b:iq4_xs-mix", &err), err);
    if (!m) return;
    struct load_params p = { .device = ref_device(true, UINT64_C(32) << 30), .context = 131072, .k_format = Q_Q8_0,
                             .v_format = Q_Q4_0 };
    CHECK_OK(runner_plan(m, &p, &plan, &err), err);
    double gib = 1 << 30;
    CHECK(plan.weights > 13 * gib && plan.cache > 3 * gib && plan.weights + plan.cache + plan.scratch < 24 * gib,
          "%.1f + %.1f + %.1f GiB", (double)plan.weights / gib, (double)plan.cache / gib, (double)plan.scratch / gib);
    p.k_format = p.v_format = Q_F16;        /* 8 GiB, which fits too; 64 KiB a position */
    CHECK_OK(runner_plan(m, &p, &plan, &err), err);
    CHECK(plan.cache > 8 * gib, "%.1f GiB", (double)plan.cache / gib);
    p.device->fns->close(p.device);
    model_close(m);
}
