/* tests/test_run.c - the runner: any way of feeding a text gives the same bits as feeding it row by
 * row; what does not fit is refused with numbers; failures leave nothing behind. */
#include <stdlib.h>

#include "ref_device.h"
#include "quant/quant.h"
#include "run/runner.h"
#include "test.h"

enum { TEXT = 150, MOST_SEQS = 3, VOCAB_MOST = 256 };

struct rig {
    struct gguf *file;
    struct device *device;
    struct runner *runner;
    int vocab;
};

static const struct { const char *name; bool is_ref, equal_bits; } kinds[] = {
    { "ref", true, true }, { "ref with pages", true, false }, { "cpu", false, true },
};

static luce_status rig_open(struct rig *g, const char *model, int kind, const struct load_params *params,
                            luce_error *err)
{
    char name[64];
    *g = (struct rig){ 0 };
    snprintf(name, sizeof name, "oracle/%s.gguf", model);
    luce_status st = gguf_open(&g->file, fixture(name), err);
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
    int n = left ? runner_prefill_rows(g->runner, seq_length(t->seq), 1 + (int)(test_random() % (uint64_t)left),
                                       &class) : 0;
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
