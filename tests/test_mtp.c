/* tests/test_mtp.c - the block that predicts further tokens: its logits and guesses are those of an independent
 * forward pass (scripts/make-oracle-fixtures.py), however the text was fed; files without one are refused. */
#include <math.h>

#include "drafter_rig.h"
#include "gguf/writer.h"
#include "model/mtp.h"

enum { GUESSES = 4, TEXTS = 3 };
static const char file[] = "oracle/qwen35_mtp.gguf";

static bool rig_open(struct drafter_rig *g, int n_slots)
{
    return drafter_rig_open(g, &(struct drafter_rig_params){ .drafter = "mtp", .target = file, .n_slots = n_slots,
                                                             .context = 128 });
}

static const struct gguf_tensor *answer(const struct drafter_rig *g, int text, const char *what)
{
    char name[40];
    snprintf(name, sizeof name, "oracle.%d.%s", text, what);
    const struct gguf_tensor *t = gguf_find(g->file, name);
    CHECK(t, "%s is not there", name);
    return t;
}

static const int32_t *tokens_of(const struct drafter_rig *g, int text, int *n)
{
    const struct gguf_tensor *t = answer(g, text, "tokens");
    *n = (int)t->dim[0];
    return (const int32_t *)(const void *)t->data;
}

static const float *rows_of(const struct drafter_rig *g, int text, const char *what)
{
    return (const float *)(const void *)answer(g, text, what)->data;
}

/* The target's states of the text's positions but the last, after its final norm. */
static void hidden_states(struct drafter_rig *g, const int32_t *ids, int n, float *out)
{
    luce_error err = { 0 };
    struct seq *s;
    int first;
    CHECK_OK(seq_open(&s, runner_cache(g->target), &err), err);
    runner_begin(g->target, STEP_NARROW);
    CHECK_OK(runner_add(g->target, s, ids, NULL, n, WANT_ALL, &first, &err), err);
    CHECK_OK(runner_run(g->target, &err), err);
    CHECK_OK(runner_read(g->target, runner_record(g->target)->hidden, first, n, out, &err), err);
    seq_close(s);
}

/* Both round keys and values to f16 (see test_model.c for the bound on the target's part). */
static const double bound = 0.05;

static void check_close(const float *got, const float *want, int n, int text, int row)
{
    double most = 0;
    for (int i = 0; i < n; i++) {
        double off = fabs((double)got[i] - (double)want[i]);
        most = off <= most ? most : off;        /* NaN stays */
    }
    CHECK(most < bound, "text %d, row %d: logits differ by %g", text, row, most);
}

static void check_text(struct drafter_rig *g, struct runner *r, int text)
{
    luce_error err = { 0 };
    const struct record *rec = runner_record(r);
    int n, first, vocab = runner_model(r)->c.vocab, embd = runner_model(r)->c.embd;
    const int32_t *ids = tokens_of(g, text, &n);
    const float *want = rows_of(g, text, "mtp"), *next = rows_of(g, text, "mtp_next");
    float *hidden = mem_array((size_t)n * (size_t)embd, sizeof *hidden), *logits = mem_array((size_t)vocab, sizeof *logits);
    struct seq *s;
    hidden_states(g, ids, n - 1, hidden);
    CHECK_OK(seq_open(&s, runner_cache(r), &err), err);
    runner_begin(r, STEP_NARROW);
    CHECK_OK(runner_add(r, s, ids + 1, NULL, n - 1, WANT_ALL, &first, &err), err);
    CHECK_OK(runner_give(r, rec->given, 0, n - 1, hidden, &err), err);
    for (int row = 0; row < n - 1; row++) {
        if (row == 0) CHECK_OK(runner_run(r, &err), err);
        CHECK_OK(runner_logits(r, first + row, logits, &err), err);
        check_close(logits, want + (size_t)row * (size_t)vocab, vocab, text, row);
    }
    const float *before = want + (size_t)(n - 2) * (size_t)vocab;
    first += n - 2;
    seq_accept(s, NULL, n - 1);
    for (int k = 0; k < GUESSES - 1; k++) {             /* from its own states */
        int32_t token = 0;
        for (int i = 1; i < vocab; i++)
            if (before[i] > before[token]) token = i;
        CHECK_OK(runner_read(r, rec->hidden, first, 1, hidden, &err), err);
        runner_begin(r, STEP_NARROW);
        CHECK_OK(runner_add(r, s, &token, NULL, 1, WANT_ALL, &first, &err), err);
        CHECK_OK(runner_give(r, rec->given, 0, 1, hidden, &err), err);
        CHECK_OK(runner_run(r, &err), err);
        seq_accept(s, NULL, 1);
        before = next + (size_t)k * (size_t)vocab;
        CHECK_OK(runner_logits(r, first, logits, &err), err);
        check_close(logits, before, vocab, text, n + k);
    }
    seq_close(s);
    mem_free(hidden);
    mem_free(logits);
}

TEST(mtp_gives_the_logits_of_an_independent_forward_pass)
{
    struct drafter_rig g;
    luce_error err = { 0 };
    struct model *m = NULL;
    struct runner *r = NULL;
    if (!rig_open(&g, 2)) return;
    CHECK_OK(mtp_open(&m, runner_model(g.target), &err), err);
    if (m) CHECK_OK(runner_open(&r, m, &(struct load_params){ .device = g.device, .context = 128 }, &err), err);
    for (int text = 0; r && text < TEXTS; text++) check_text(&g, r, text);
    runner_close(r);
    drafter_rig_close(&g);
}

/* The likeliest tokens of the answers, one after the other. */
static void chain_of(const struct drafter_rig *g, int text, int n, int vocab, int32_t *out)
{
    for (int k = 0; k < GUESSES; k++) {
        const float *x = k ? rows_of(g, text, "mtp_next") + (size_t)(k - 1) * (size_t)vocab
                           : rows_of(g, text, "mtp") + (size_t)(n - 2) * (size_t)vocab;
        out[k] = 0;
        for (int i = 1; i < vocab; i++)
            if (x[i] > x[out[k]]) out[k] = i;
    }
}

/* All texts at once, with other texts guessed at in between; wide trees begin with the chain. */
TEST(mtp_guesses_as_the_independent_pass_however_the_text_was_fed)
{
    static const struct { int width; enum step_class class; int most; } ways[] = {
        { 128, STEP_WIDE, GUESSES }, { 1, STEP_NARROW, GUESSES }, { 7, STEP_WIDE, 4 * GUESSES }, { 13, STEP_NARROW, 1 },
    };
    luce_error err = { 0 };
    for (size_t w = 0; w < COUNT(ways); w++) {
        struct drafter_rig g;
        struct seq *s[TEXTS] = { NULL };
        struct draft d[TEXTS], *drafts[TEXTS];
        if (!rig_open(&g, TEXTS)) return;
        int vocab = runner_model(g.target)->c.vocab, n[TEXTS];
        for (int i = 0; i < TEXTS; i++) {
            const int32_t *ids = tokens_of(&g, i, &n[i]);
            CHECK_OK(seq_open(&s[i], runner_cache(g.target), &err), err);
            drafter_rig_feed(&g, s[i], ids, n[i] - 1, ways[w].width, ways[w].class);
            d[i] = (struct draft){ .slot = seq_slot(s[i]), .ids = ids, .n_ids = n[i], .most = ways[w].most,
                                   .depth = GUESSES };
            tree_init(&d[i].tree, ids[n[i] - 1]);
            drafts[i] = &d[i];
        }
        CHECK_OK(g.drafter->propose(g.state, drafts, TEXTS, &err), err);
        for (int i = 0; i < TEXTS; i++) {
            int32_t want[GUESSES];
            chain_of(&g, i, n[i], vocab, want);
            CHECK_EQ(d[i].tree.n, ways[w].most + 1);
            int node = 0;
            for (int k = 0; k < GUESSES && k < ways[w].most; k++) {
                int child = -1;
                for (int j = 1; j < d[i].tree.n && child < 0; j++)
                    if (d[i].tree.parent[j] == node && d[i].tree.token[j] == want[k]) child = j;
                CHECK(child > 0, "way %zu, text %d: guess %d is not %d", w, i, k, want[k]);
                node = child;
            }
            seq_close(s[i]);
        }
        drafter_rig_close(&g);
    }
}

TEST(mtp_refuses_models_without_the_block)
{
    static const char *const files[] = { "oracle/qwen35.gguf", "oracle/qwen3.gguf" };
    for (size_t i = 0; i < COUNT(files); i++) {
        luce_error err = { 0 };
        luce_model *m = NULL;
        luce_model_params p = { .path = fixture(files[i]), .device = "cpu", .context = 64, .drafter = "mtp" };
        CHECK_EQ(luce_model_open(&m, &p, &err), LUCE_E_ARG);
        CHECK(strstr(err.text, "no block that predicts further tokens"), "\"%s\"", err.text);
        CHECK_EQ(m, NULL);
    }
}
