/* tests/test_dflash.c - DFlash drafters as networks: the logits and guesses of an independent forward pass
 * (scripts/make-dflash-fixtures.py) from every form of file; features shared and forgotten with the cache. */
#include <math.h>

#include "dflash_rig.h"
#include "gguf/safetensors.h"
#include "quant/quant.h"
#include "spec/ddtree.h"

static const struct { const char *file, *kind; bool second; } files[] = {
    { "dflash/v1_llama.gguf", "v1", false }, { "dflash/v1_lucebox.gguf", "v1", false }, { "dflash/v1", "v1", false },
    { "dflash/v2_llama.gguf", "v2", true },  { "dflash/v2_lucebox.gguf", "v2", true },  { "dflash/v2", "v2", true },
};

static bool rig_open(struct drafter_rig *g, int i, int n_slots)
{
    char path[512];
    snprintf(path, sizeof path, "%s", fixture(files[i].file));
    return dflash_rig_open(g, NULL, path, files[i].second, n_slots);
}

/* The logits of a block with these features, by the network's own steps; returns what they are softly capped at, by
 * the head (before they are scaled), 0: nothing. */
static double block_logits(struct drafter_rig *g, int i, const int32_t *ids, int n, const float *features, float *out)
{
    static const int32_t zeros[TEXT_MOST];
    luce_error err = { 0 };
    struct model *m = NULL;
    struct runner *r = NULL;
    struct seq *s;
    int first = -1;
    CHECK_OK(dflash_open(&m, fixture(files[i].file), runner_model(g->target), &err), err);
    if (!m) return 0;
    const struct dflash *d = dflash_of(m);
    struct load_params p = { .device = g->device, .context = 256 };
    CHECK_OK(runner_open(&r, m, &p, &err), err);
    if (!r) return 0;
    CHECK_OK(seq_open(&s, runner_cache(r), &err), err);
    runner_begin(r, STEP_WIDE);
    CHECK_OK(runner_add(r, s, zeros, NULL, n - 1, WANT_NONE, NULL, &err), err);
    CHECK_OK(runner_give(r, runner_record(r)->given, 0, n - 1, features, &err), err);
    CHECK_OK(runner_run(r, &err), err);
    int32_t block[BLOCK] = { ids[n - 1] };
    for (int k = 1; k < BLOCK; k++) block[k] = d->mask;
    runner_begin(r, STEP_NARROW);
    CHECK_OK(runner_add(r, s, block, NULL, BLOCK, WANT_REST, &first, &err), err);
    CHECK_OK(runner_run(r, &err), err);
    for (int k = 0; k + 1 < BLOCK; k++) CHECK_OK(runner_logits(r, first + k, out + k * VOCAB, &err), err);
    double cap = (double)d->softcap / (double)d->logit_scale;
    seq_close(s);
    runner_close(r);
    return cap;
}

/* Both round keys and values to f16, from sums that differ by some 1e-7: now and then one goes another way,
 * which moves a value of size 8 by 2^-8, and logits of standard deviation 4 to 5 by two or three times that. */
static const double f32_error = 1e-2;

TEST(dflash_gives_the_logits_of_an_independent_forward_pass)
{
    float first_form[2][2][(BLOCK - 1) * VOCAB];
    for (size_t i = 0; i < COUNT(files); i++) {
        struct drafter_rig g;
        if (!rig_open(&g, (int)i, 1)) return;
        for (int text = 0; text < 2; text++) {
            float got[(BLOCK - 1) * VOCAB];
            const struct gguf_tensor *tokens = dflash_answer(&g, "", text, "tokens");
            const struct gguf_tensor *want = dflash_answer(&g, files[i].kind, text, "logits");
            const int32_t *ids = (const int32_t *)(const void *)tokens->data;
            const float *x = (const float *)(const void *)want->data;
            double most = 0;
            const struct gguf_tensor *features = dflash_answer(&g, "", text, "features");
            double cap = block_logits(&g, (int)i, ids, (int)tokens->dim[0],
                                      (const float *)(const void *)features->data, got);
            CHECK_EQ(cap > 0, files[i].second);
            for (int k = 0; k < (BLOCK - 1) * VOCAB; k++) {
                double off = fabs((double)got[k] - (cap > 0 ? cap * tanh((double)x[k] / cap) : (double)x[k]));
                most = off <= most ? most : off;        /* NaN stays */
            }
            CHECK(most < f32_error, "%s, text %d: logits differ by %g", files[i].file, text, most);
            float *form = first_form[files[i].second][text];
            if (i % 3 == 0) memcpy(form, got, sizeof got);
            CHECK(!memcmp(form, got, sizeof got), "%s, text %d: other bits than from the first form", files[i].file, text);
        }
        drafter_rig_close(&g);
    }
}

/* The target rounds its keys and values to f16, which the answers do not: 2^-11 of values of size 1, in three
 * layers whose outputs have a standard deviation of about 4. */
TEST(dflash_features_are_the_outputs_of_the_tapped_layers)
{
    enum { EMBD = 32, TAPS = 2 };
    struct drafter_rig g;
    luce_error err = { 0 };
    if (!rig_open(&g, 0, 1)) return;
    for (int text = 0; text < 2; text++) {
        struct seq *s;
        const struct gguf_tensor *tokens = dflash_answer(&g, "", text, "tokens"), *want = dflash_answer(&g, "", text, "features");
        const float *x = (const float *)(const void *)want->data;
        int n = (int)tokens->dim[0] - 1;
        CHECK_OK(seq_open(&s, runner_cache(g.target), &err), err);
        CHECK_OK(runner_prefill(g.target, s, (const int32_t *)(const void *)tokens->data, n, NULL, NULL, &err), err);
        for (int row = 0; row < n; row++)
            for (int t = 0; t < TAPS; t++, x += EMBD) {
                float got[EMBD];
                double most = 0;
                CHECK_OK(runner_read(g.target, runner_record(g.target)->taps[t], row, 1, got, &err), err);
                for (int k = 0; k < EMBD; k++) most = fmax(most, fabs((double)got[k] - (double)x[k]));
                CHECK(most < 0.05, "text %d, row %d, tap %d differs by %g", text, row, t, most);
            }
        seq_close(s);
    }
    drafter_rig_close(&g);
}

TEST(dflash_guesses_as_the_independent_pass_however_the_text_was_fed)
{
    static const struct { int width; enum step_class class; } ways[] = { { 256, STEP_WIDE }, { 1, STEP_NARROW },
                                                                         { 7, STEP_WIDE }, { 13, STEP_NARROW } };
    for (size_t i = 0; i < COUNT(files); i++) {
        struct drafter_rig g;
        luce_error err = { 0 };
        if (!rig_open(&g, (int)i, 1)) return;
        for (int text = 0; text < 2; text++) {
            const struct gguf_tensor *tokens = dflash_answer(&g, "", text, "tokens");
            const struct gguf_tensor *chain = dflash_answer(&g, files[i].kind, text, "chain");
            const int32_t *ids = (const int32_t *)(const void *)tokens->data;
            const int32_t *want = (const int32_t *)(const void *)chain->data;
            int n = (int)tokens->dim[0];
            struct tree first = { 0 };
            for (size_t w = 0; w < COUNT(ways); w++) {
                struct seq *s;
                CHECK_OK(seq_open(&s, runner_cache(g.target), &err), err);
                drafter_rig_feed(&g, s, ids, n - 1, ways[w].width, ways[w].class);
                struct tree t = dflash_guess(&g, seq_slot(s), ids, n, BLOCK - 1);
                CHECK_EQ(t.n, BLOCK);
                for (int k = 0; k < (int)chain->dim[0] && want[k] >= 0; k++)
                    CHECK(t.token[k + 1] == want[k], "%s, text %d: guess %d is %d, not %d", files[i].file, text, k,
                          t.token[k + 1], want[k]);
                if (w == 0) first = t;
                CHECK(dflash_same_tree(&first, &t), "%s, text %d, way %zu: another guess", files[i].file, text, w);
                seq_close(s);
            }
        }
        drafter_rig_close(&g);
    }
}

static void random_ids(int32_t *ids, int n)
{
    for (int i = 0; i < n; i++) ids[i] = (int32_t)(test_random() % (VOCAB - 1));
}

/* P12: what the target reuses of another slot's pages, the drafter has too; what is forgotten and said
 * otherwise is forgotten here. */
TEST(dflash_keeps_its_features_in_step_with_the_cache)
{
    int32_t ids[TEXT_MOST];
    luce_error err = { 0 };
    struct drafter_rig g;
    if (!rig_open(&g, 0, 3)) return;
    struct seq *a, *b, *c;
    random_ids(ids, TEXT_MOST);
    CHECK_OK(seq_open(&a, runner_cache(g.target), &err), err);
    CHECK_OK(seq_open(&b, runner_cache(g.target), &err), err);
    CHECK_OK(seq_open(&c, runner_cache(g.target), &err), err);
    drafter_rig_feed(&g, a, ids, 150, 40, STEP_WIDE);
    struct tree want = dflash_guess(&g, seq_slot(a), ids, 151, 20);

    CHECK_EQ(seq_claim(b, ids, 150), 128);
    drafter_rig_feed(&g, b, ids, 150, 9, STEP_NARROW);
    struct tree got = dflash_guess(&g, seq_slot(b), ids, 151, 20);
    CHECK(dflash_same_tree(&want, &got), "a shared prefix");

    int32_t other[TEXT_MOST];                           /* another text in between, and back */
    memcpy(other, ids, sizeof ids);
    random_ids(other + 100, 50);
    seq_truncate(a, 100);
    drafter_rig_feed(&g, a, other, 150, 64, STEP_WIDE);
    got = dflash_guess(&g, seq_slot(a), other, 151, 20);
    CHECK(!dflash_same_tree(&want, &got), "features of another text");
    seq_truncate(a, 100);
    drafter_rig_feed(&g, a, ids, 150, 3, STEP_NARROW);
    got = dflash_guess(&g, seq_slot(a), ids, 151, 20);
    CHECK(dflash_same_tree(&want, &got), "a text that was rewound");

    /* Rows that nobody showed: the guess is another one, and nothing else happens. */
    CHECK_OK(runner_prefill(g.target, c, other, 120, NULL, NULL, &err), err);
    other[0] = (other[0] + 1) % VOCAB;
    drafter_rig_feed(&g, c, other, 150, 30, STEP_WIDE);
    got = dflash_guess(&g, seq_slot(c), other, 151, 20);
    CHECK_EQ(got.n, 21);
    seq_close(a);
    seq_close(b);
    seq_close(c);
    drafter_rig_close(&g);
}

TEST(dflash_trees_begin_with_the_greedy_chain)
{
    int32_t ids[40];
    luce_error err = { 0 };
    for (int i = 0; i < 6; i += 3) {
        struct drafter_rig g;
        struct seq *s;
        if (!rig_open(&g, i, 1)) return;
        random_ids(ids, 40);
        CHECK_OK(seq_open(&s, runner_cache(g.target), &err), err);
        drafter_rig_feed(&g, s, ids, 39, 64, STEP_WIDE);
        struct tree chain = dflash_guess(&g, seq_slot(s), ids, 40, BLOCK - 1);
        for (int most = 1; most < 40; most++) {
            struct tree t = dflash_guess(&g, seq_slot(s), ids, 40, most);
            CHECK_EQ(t.n, most + 1);
            for (int k = 1; k < t.n && k < BLOCK; k++)
                CHECK(t.token[k] == chain.token[k] && t.parent[k] == k - 1, "most %d: node %d is not of the chain", most, k);
            for (int k = 1; k < t.n; k++)
                CHECK(t.likely[k] > 0 && t.likely[k] <= t.likely[t.parent[k]] && t.depth[k] < BLOCK);
        }
        seq_close(s);
        drafter_rig_close(&g);
    }
}

/* ---- the tree alone ------------------------------------------------------------------------------ */
struct marginals {
    int n;
    float p[4][DDTREE_MOST];
};

static void marginal(void *context, int depth, int32_t after, struct candidates *out)
{
    const struct marginals *m = context;
    (void)after;
    out->n = m->n;
    for (int i = 0; i < m->n; i++) {
        out->token[i] = 10 * depth + i;
        out->log_likely[i] = logf(m->p[depth - 1][i]);
    }
}

TEST(ddtree_takes_the_likeliest_paths_after_the_chain)
{
    for (int round = 0; round < 200; round++) {
        struct marginals m = { .n = 3 };
        for (int d = 0; d < 4; d++) {
            float p = (float)test_uniform(0.45, 0.9);
            m.p[d][0] = p;
            m.p[d][1] = (1 - p) * 0.7f;
            m.p[d][2] = (1 - p) * 0.3f;
        }
        struct tree t;
        int most = 4 + (int)(test_random() % 30);
        tree_init(&t, 1);
        ddtree_build(&t, most, 4, 0, &(struct ddtree_source){ &m, marginal });
        CHECK_EQ(t.n, most + 1);
        float least = 1;
        for (int i = 1; i < t.n; i++) {
            int rank = t.token[i] % 10;
            float want = t.likely[t.parent[i]] * m.p[t.depth[i] - 1][rank];
            CHECK(fabsf(t.likely[i] - want) < 1e-5f);
            if (i > 4 && t.likely[i] < least) least = t.likely[i];
        }
        int better = 0;             /* of all 3 + 9 + 27 + 81 paths, none that is left out is likelier */
        for (int path = 1; path < 256; path++) {
            float p = 1;
            int node = 0, d = 0;
            bool whole = true;
            for (int rest = path; rest && d < 4; rest /= 4, d++) {
                if (rest % 4 == 0) whole = false;
                else p *= m.p[d][rest % 4 - 1];
                if (whole && node >= 0) node = tree_child(&t, node, 10 * (d + 1) + rest % 4 - 1);
            }
            if (whole && node < 0) better += p > least * 1.0001f;
        }
        CHECK_EQ(better, 0);
        struct tree cut;            /* the same without what is far from the likeliest path */
        double margin = test_uniform(0.1, 4);
        float floor = t.likely[1] * expf((float)-margin);
        tree_init(&cut, 1);
        ddtree_build(&cut, NARROW_ROWS, 4, margin, &(struct ddtree_source){ &m, marginal });
        for (int i = 1; i < cut.n; i++) CHECK(cut.likely[i] > floor * 0.9999f, "node %d of margin %g", i, margin);
        for (int i = 1, at = 0; i < t.n; i++) {
            for (at = 1; at < cut.n && cut.likely[at] != t.likely[i]; at++) continue;
            CHECK(at < cut.n || t.likely[i] < floor * 1.0001f || cut.n == NARROW_ROWS, "a likely node is missing");
        }
    }
}
