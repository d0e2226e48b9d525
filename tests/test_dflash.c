/* tests/test_dflash.c - DFlash drafters as networks: the logits and guesses of an independent forward pass
 * (scripts/make-dflash-fixtures.py) from every form of file; features shared and forgotten with the cache;
 * files that are for another model, or damaged. */
#include <math.h>

#include "base/file.h"
#include "gguf/safetensors.h"
#include "gguf/writer.h"
#include "model/dflash.h"
#include "quant/quant.h"
#include "spec/ddtree.h"
#include "spec/drafter.h"
#include "test.h"
#include "tiny_model.h"

enum { VOCAB = 96, BLOCK = 8, TEXT_MOST = 200 };

static const struct { const char *file, *kind; bool second; } files[] = {
    { "dflash/v1_llama.gguf", "v1", false }, { "dflash/v1_lucebox.gguf", "v1", false }, { "dflash/v1", "v1", false },
    { "dflash/v2_llama.gguf", "v2", true },  { "dflash/v2_lucebox.gguf", "v2", true },  { "dflash/v2", "v2", true },
};
static const char target_file[] = "dflash/target.gguf";

/* A target with a drafter beside it. */
struct rig {
    struct gguf *file, *answers;
    struct device *device;
    struct runner *target;
    const struct drafter *drafter;
    struct drafter_state *state;
};

static bool rig_open_with(struct rig *g, const char *path, bool second, int n_slots)
{
    luce_error err = { 0 };
    struct model *m = NULL;
    struct load_params p = { .n_slots = n_slots, .context = 256 };
    *g = (struct rig){ .drafter = drafter_find(second ? "dflash2" : "dflash") };
    struct drafter_env env = { .path = path };
    luce_status st = gguf_open(&g->file, fixture(target_file), &err);
    if (!st) st = gguf_open(&g->answers, fixture("dflash/answers.gguf"), &err);
    if (!st) st = device_open(&g->device, "cpu", &(struct device_params){ .n_threads = 2 }, &err);
    if (!st) st = model_open(&m, g->file, &err);
    p.device = g->device;
    env.model = m;
    if (!st) st = g->drafter->prepare(&env, &p.record, &err);
    if (!st) st = runner_open(&g->target, m, &p, &err);
    env.target = g->target;
    if (!st) st = g->drafter->open(&g->state, &env, &err);
    CHECK_OK(st, err);
    return !st;
}

static bool rig_open(struct rig *g, int i, int n_slots)
{
    char path[512];
    snprintf(path, sizeof path, "%s", fixture(files[i].file));
    return rig_open_with(g, path, files[i].second, n_slots);
}

static void rig_close(struct rig *g)
{
    if (g->drafter) g->drafter->close(g->state);
    runner_close(g->target);
    device_close(g->device);
    gguf_close(g->answers);
    gguf_close(g->file);
}

static const struct gguf_tensor *answer(const struct rig *g, const char *kind, int text, const char *what)
{
    char name[40];
    snprintf(name, sizeof name, "%s%s%d.%s", kind, *kind ? "." : "", text, what);
    const struct gguf_tensor *t = gguf_find(g->answers, name);
    CHECK(t, "%s is not there", name);
    return t;
}

/* Feeds tokens at the end of the sequence, in steps of `width`, and shows the drafter their rows. */
static void feed(struct rig *g, struct seq *s, const int32_t *ids, int to, int width, enum step_class class)
{
    luce_error err = { 0 };
    for (int at = seq_length(s); at < to; at = seq_length(s)) {
        int n = to - at < width ? to - at : width;
        runner_begin(g->target, class);
        CHECK_OK(runner_add(g->target, s, ids + at, NULL, n, WANT_NONE, NULL, &err), err);
        CHECK_OK(runner_run(g->target, &err), err);
        if (class == STEP_NARROW) seq_accept(s, NULL, n);
        struct observed o = { .slot = seq_slot(s), .ids = ids, .at = at, .first_row = 0, .n = n };
        CHECK_OK(g->drafter->observe(g->state, &o, &err), err);
    }
}

/* The guess at a text of n tokens. */
static struct tree guess(struct rig *g, int slot, const int32_t *ids, int n, int most)
{
    luce_error err = { 0 };
    struct draft d = { .slot = slot, .ids = ids, .n_ids = n, .most = most, .depth = BLOCK - 1, .block = BLOCK };
    struct draft *drafts[] = { &d };
    tree_init(&d.tree, ids[n - 1]);
    CHECK_OK(g->drafter->propose(g->state, drafts, 1, &err), err);
    return d.tree;
}

static bool same_tree(const struct tree *a, const struct tree *b)
{
    return a->n == b->n && !memcmp(a->token, b->token, (size_t)a->n * sizeof *a->token) &&
           !memcmp(a->parent, b->parent, (size_t)a->n * sizeof *a->parent) &&
           !memcmp(a->likely, b->likely, (size_t)a->n * sizeof *a->likely);
}

/* The logits of a block with these features, by the network's own steps; returns what they are softly capped at, by
 * the head (before they are scaled), 0: nothing. */
static double block_logits(struct rig *g, int i, const int32_t *ids, int n, const float *features, float *out)
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
        struct rig g;
        if (!rig_open(&g, (int)i, 1)) return;
        for (int text = 0; text < 2; text++) {
            float got[(BLOCK - 1) * VOCAB];
            const struct gguf_tensor *tokens = answer(&g, "", text, "tokens");
            const struct gguf_tensor *want = answer(&g, files[i].kind, text, "logits");
            const int32_t *ids = (const int32_t *)(const void *)tokens->data;
            const float *x = (const float *)(const void *)want->data;
            double most = 0;
            const struct gguf_tensor *features = answer(&g, "", text, "features");
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
        rig_close(&g);
    }
}

/* The target rounds its keys and values to f16, which the answers do not: 2^-11 of values of size 1, in three
 * layers whose outputs have a standard deviation of about 4. */
TEST(dflash_features_are_the_outputs_of_the_tapped_layers)
{
    enum { EMBD = 32, TAPS = 2 };
    struct rig g;
    luce_error err = { 0 };
    if (!rig_open(&g, 0, 1)) return;
    for (int text = 0; text < 2; text++) {
        struct seq *s;
        const struct gguf_tensor *tokens = answer(&g, "", text, "tokens"), *want = answer(&g, "", text, "features");
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
    rig_close(&g);
}

TEST(dflash_guesses_as_the_independent_pass_however_the_text_was_fed)
{
    static const struct { int width; enum step_class class; } ways[] = { { 256, STEP_WIDE }, { 1, STEP_NARROW },
                                                                         { 7, STEP_WIDE }, { 13, STEP_NARROW } };
    for (size_t i = 0; i < COUNT(files); i++) {
        struct rig g;
        luce_error err = { 0 };
        if (!rig_open(&g, (int)i, 1)) return;
        for (int text = 0; text < 2; text++) {
            const struct gguf_tensor *tokens = answer(&g, "", text, "tokens");
            const struct gguf_tensor *chain = answer(&g, files[i].kind, text, "chain");
            const int32_t *ids = (const int32_t *)(const void *)tokens->data;
            const int32_t *want = (const int32_t *)(const void *)chain->data;
            int n = (int)tokens->dim[0];
            struct tree first = { 0 };
            for (size_t w = 0; w < COUNT(ways); w++) {
                struct seq *s;
                CHECK_OK(seq_open(&s, runner_cache(g.target), &err), err);
                feed(&g, s, ids, n - 1, ways[w].width, ways[w].class);
                struct tree t = guess(&g, seq_slot(s), ids, n, BLOCK - 1);
                CHECK_EQ(t.n, BLOCK);
                for (int k = 0; k < (int)chain->dim[0] && want[k] >= 0; k++)
                    CHECK(t.token[k + 1] == want[k], "%s, text %d: guess %d is %d, not %d", files[i].file, text, k,
                          t.token[k + 1], want[k]);
                if (w == 0) first = t;
                CHECK(same_tree(&first, &t), "%s, text %d, way %zu: another guess", files[i].file, text, w);
                seq_close(s);
            }
        }
        rig_close(&g);
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
    struct rig g;
    if (!rig_open(&g, 0, 3)) return;
    struct seq *a, *b, *c;
    random_ids(ids, TEXT_MOST);
    CHECK_OK(seq_open(&a, runner_cache(g.target), &err), err);
    CHECK_OK(seq_open(&b, runner_cache(g.target), &err), err);
    CHECK_OK(seq_open(&c, runner_cache(g.target), &err), err);
    feed(&g, a, ids, 150, 40, STEP_WIDE);
    struct tree want = guess(&g, seq_slot(a), ids, 151, 20);

    CHECK_EQ(seq_claim(b, ids, 150), 128);
    feed(&g, b, ids, 150, 9, STEP_NARROW);
    struct tree got = guess(&g, seq_slot(b), ids, 151, 20);
    CHECK(same_tree(&want, &got), "a shared prefix");

    int32_t other[TEXT_MOST];                           /* another text in between, and back */
    memcpy(other, ids, sizeof ids);
    random_ids(other + 100, 50);
    seq_truncate(a, 100);
    feed(&g, a, other, 150, 64, STEP_WIDE);
    got = guess(&g, seq_slot(a), other, 151, 20);
    CHECK(!same_tree(&want, &got), "features of another text");
    seq_truncate(a, 100);
    feed(&g, a, ids, 150, 3, STEP_NARROW);
    got = guess(&g, seq_slot(a), ids, 151, 20);
    CHECK(same_tree(&want, &got), "a text that was rewound");

    /* Rows that nobody showed: the guess is another one, and nothing else happens. */
    CHECK_OK(runner_prefill(g.target, c, other, 120, NULL, NULL, &err), err);
    other[0] = (other[0] + 1) % VOCAB;
    feed(&g, c, other, 150, 30, STEP_WIDE);
    got = guess(&g, seq_slot(c), other, 151, 20);
    CHECK_EQ(got.n, 21);
    seq_close(a);
    seq_close(b);
    seq_close(c);
    rig_close(&g);
}

TEST(dflash_trees_begin_with_the_greedy_chain)
{
    int32_t ids[40];
    luce_error err = { 0 };
    for (int i = 0; i < 6; i += 3) {
        struct rig g;
        struct seq *s;
        if (!rig_open(&g, i, 1)) return;
        random_ids(ids, 40);
        CHECK_OK(seq_open(&s, runner_cache(g.target), &err), err);
        feed(&g, s, ids, 39, 64, STEP_WIDE);
        struct tree chain = guess(&g, seq_slot(s), ids, 40, BLOCK - 1);
        for (int most = 1; most < 40; most++) {
            struct tree t = guess(&g, seq_slot(s), ids, 40, most);
            CHECK_EQ(t.n, most + 1);
            for (int k = 1; k < t.n && k < BLOCK; k++)
                CHECK(t.token[k] == chain.token[k] && t.parent[k] == k - 1, "most %d: node %d is not of the chain", most, k);
            for (int k = 1; k < t.n; k++)
                CHECK(t.likely[k] > 0 && t.likely[k] <= t.likely[t.parent[k]] && t.depth[k] < BLOCK);
        }
        seq_close(s);
        rig_close(&g);
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

/* ---- files that do not fit ----------------------------------------------------------------------- */
struct change {
    const char *drop;               /* key or tensor that is left out */
    const char *key;                /* of this u32 value, or of an array of one */
    uint32_t value;
    bool array;
    const char *extra;              /* a tensor more */
    const char *vocabulary;         /* file whose tokenizer keys are added */
    const void *said;               /* tokens of a head of its own (i64, or i32), with the target's rows */
    int n_said;
    bool narrow, no_head;
};

static void copy_tokenizer(struct gguf_writer *w, struct gguf **from, const char *path)
{
    luce_error err = { 0 };
    CHECK_OK(gguf_open(from, path, &err), err);
    for (size_t i = 0; *from && i < gguf_n_keys(*from); i++) {
        const struct gguf_key *k = gguf_key_at(*from, i);
        if (k->name.len > 10 && !memcmp(k->name.at, "tokenizer.", 10)) gguf_add_key(w, k);
    }
}

/* The tensor d2t, and those rows of the target's embedding (its head, too) that it names; others are any row. */
static void add_ids(struct gguf_writer *w, const struct change *c, struct gguf **target, struct buf *head)
{
    luce_error err = { 0 };
    CHECK_OK(gguf_open(target, fixture(target_file), &err), err);
    const struct gguf_tensor *t = *target ? gguf_find(*target, "token_embd.weight") : NULL;
    uint64_t n = (uint64_t)c->n_said;
    for (int i = 0; t && i < c->n_said; i++) {
        int64_t id = c->narrow ? ((const int32_t *)c->said)[i] : ((const int64_t *)c->said)[i];
        if (id < 0 || id >= VOCAB) id = 0;
        buf_add(head, t->data + t->bytes / VOCAB * (uint64_t)id, t->bytes / VOCAB);
    }
    gguf_add_tensor(w, &(struct gguf_source){ .name = "d2t", .dim = { n }, .n_dims = 1, .type = c->narrow ? 26 : 27,
                                              .data = c->said });
    if (!t || c->no_head) return;
    gguf_add_tensor(w, &(struct gguf_source){ .name = "output.weight", .dim = { t->dim[0], n }, .n_dims = 2,
                                              .type = t->type, .data = head->data });
}

static const char *changed(const char *file, const struct change *c)
{
    static const float zeros[64];
    luce_error err = { 0 };
    struct gguf *g = NULL, *words = NULL, *target = NULL;
    struct gguf_writer w = { 0 };
    struct buf head = { 0 };
    const char *path = scratch("changed.gguf");
    CHECK_OK(gguf_open(&g, fixture(file), &err), err);
    if (c->key && c->array) gguf_add_array(&w, c->key, GGUF_U32, &c->value, 1);
    else if (c->key) gguf_add_u32(&w, c->key, c->value);
    if (c->vocabulary) copy_tokenizer(&w, &words, c->vocabulary);
    for (size_t i = 0; g && i < gguf_n_keys(g); i++) {
        const struct gguf_key *k = gguf_key_at(g, i);
        if ((c->drop && str_is(k->name, c->drop)) || (c->key && str_is(k->name, c->key))) continue;
        if (c->vocabulary && k->name.len > 10 && !memcmp(k->name.at, "tokenizer.", 10)) continue;
        gguf_add_key(&w, k);
    }
    for (size_t i = 0; g && i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (c->drop && !strcmp(t->name, c->drop)) continue;
        struct gguf_source s = { .name = t->name, .n_dims = t->n_dims, .type = t->type, .data = t->data };
        memcpy(s.dim, t->dim, sizeof s.dim);
        gguf_add_tensor(&w, &s);
    }
    if (c->extra)
        gguf_add_tensor(&w, &(struct gguf_source){ .name = c->extra, .dim = { 64 }, .n_dims = 1, .type = Q_F32, .data = zeros });
    if (c->said) add_ids(&w, c, &target, &head);
    CHECK_OK(gguf_write(&w, path, &err), err);
    gguf_writer_drop(&w);
    buf_drop(&head);
    gguf_close(words);
    gguf_close(target);
    gguf_close(g);
    return path;
}

static void refused(const char *what, const char *target, const char *drafter, const char *path, luce_status status,
                    const char *says)
{
    luce_error err = { 0 };
    luce_model *m = NULL;
    size_t live = mem_live();
    luce_model_params p = { .path = target, .device = "cpu", .threads = 1, .drafter = drafter, .draft_path = path };
    luce_status st = luce_model_open(&m, &p, &err);
    CHECK(st == status, "%s: %d (%s), not %d", what, (int)st, err.text, (int)status);
    CHECK(strstr(err.text, says), "%s: \"%s\" lacks \"%s\"", what, err.text, says);
    CHECK_EQ(m, NULL);
    CHECK_EQ(mem_live(), live);
    luce_model_close(m);
}

/* P03 */
TEST(dflash_refuses_drafters_that_do_not_fit_and_says_why)
{
    static const int64_t few[] = { 3, 96, 5 }, twice[] = { 3, 7, 3 };
    static const struct { const char *file; struct change c; luce_status status; const char *says; } bad[] = {
        { "dflash/v1_llama.gguf", { .said = few, .n_said = 3 }, LUCE_E_FORMAT, "element 1 of 'd2t' names token 96" },
        { "dflash/v1_llama.gguf", { .said = twice, .n_said = 3 }, LUCE_E_FORMAT, "element 2 of 'd2t' names token 3" },
        { "dflash/v1_llama.gguf", { .said = few, .n_said = 1, .no_head = true }, LUCE_E_FORMAT, "no 'output.weight'" },
        { "dflash/v2_llama.gguf", { .said = few, .n_said = 1 }, LUCE_E_UNSUPPORTED, "(tensor 'd2t') is not computed" },
        { "dflash/v1_llama.gguf", { .key = "dflash.embedding_length", .value = 64 }, LUCE_E_ARG,
          "is for another model: rows of 64 there, 32 in the model" },
        { "dflash/v1_llama.gguf", { .key = "dflash.target_layers", .value = 4, .array = true }, LUCE_E_ARG,
          "is for another model: it reads layer 3, the model has 3" },
        { "dflash/v1_lucebox.gguf", { .key = "qwen35-dflash-draft.dflash.target_layer_ids", .value = 3, .array = true },
          LUCE_E_ARG, "is for another model: it reads layer 3, the model has 3" },
        { "dflash/v1_llama.gguf", { .key = "dflash.target_layers", .value = 0, .array = true }, LUCE_E_FORMAT,
          "is 0; it counts from 1" },
        { "dflash/v1_lucebox.gguf", { .key = "qwen35-dflash-draft.vocab_size", .value = 97 }, LUCE_E_ARG,
          "is for another model: the vocabulary has 97 there, 96 in the model" },
        { "dflash/v1_llama.gguf", { .key = "tokenizer.ggml.mask_token_id", .value = 96 }, LUCE_E_ARG,
          "its mask token is 96, the vocabulary of the model has 96" },
        { "dflash/v1_llama.gguf", { .drop = "tokenizer.ggml.mask_token_id" }, LUCE_E_FORMAT, "dflash.mask_token_id" },
        { "dflash/v1_llama.gguf", { .drop = "dflash.target_layers" }, LUCE_E_FORMAT, "no complete drafter" },
        { "dflash/v1_llama.gguf", { .drop = "blk.1.ffn_up.weight" }, LUCE_E_FORMAT,
          "'blk.1.ffn_up.weight' [32, 48] is missing" },
        { "dflash/v2_llama.gguf", { .drop = "selector_predecessor.weight" }, LUCE_E_FORMAT, "is missing" },
        { "dflash/v1_llama.gguf", { .key = "dflash.feed_forward_length", .value = 64 }, LUCE_E_FORMAT,
          "expected [32, 64] by the keys" },
        { "dflash/v1_llama.gguf", { .extra = "markov_w1.weight" }, LUCE_E_UNSUPPORTED,
          "'markov_w1.weight' belongs to a kind of drafter" },
        { "dflash/v1_llama.gguf", { .key = "dflash.attention.head_count", .value = 3 }, LUCE_E_FORMAT, "3 heads over 2" },
        { "dflash/v1_llama.gguf", { .key = "dflash.block_size", .value = 65 }, LUCE_E_FORMAT, "takes 2 to 64" },
    };
    char target[512];
    snprintf(target, sizeof target, "%s", fixture(target_file));
    for (size_t i = 0; i < COUNT(bad); i++)
        refused(bad[i].says, target, NULL, changed(bad[i].file, &bad[i].c), bad[i].status, bad[i].says);
    refused("kind", target, "dflash", fixture("dflash/v2_llama.gguf"), LUCE_E_ARG, "of the kind dflash2, not dflash:");
    refused("kind", target, "dflash2", fixture("dflash/v1"), LUCE_E_ARG, "of the kind dflash, not dflash2:");
    refused("no file", target, "dflash", NULL, LUCE_E_ARG, "'dflash' needs a file");
    refused("no drafter", target, "dflash", target, LUCE_E_ARG, "is no DFlash drafter");

    char words[512];                /* its own vocabulary is compared where both have one */
    const char *tiny = tiny_model();
    snprintf(words, sizeof words, "%s", tiny_model_with("QQ"));
    struct change c = { .vocabulary = words };
    refused("vocabulary", tiny, NULL, changed("dflash/v1_llama.gguf", &c), LUCE_E_ARG, "token 258 is 'QQ' there");
    refused("embedding", tiny, NULL, fixture("dflash/v1_llama.gguf"), LUCE_E_ARG, "rows of 32 there, 64 in the model");
}

/* A head for some of the tokens, in any order: the guesses are the likeliest of those, with all of them the guesses
 * of the file without. The target rounds features by up to 0.05, which decides near ties. */
TEST(dflash_says_the_tokens_of_its_own_vocabulary)
{
    int64_t said[VOCAB];
    int32_t narrow[VOCAB];
    for (int i = 0; i < VOCAB; i++) said[i] = i;
    for (int i = VOCAB - 1; i > 0; i--) {
        int j = (int)(test_random() % (uint64_t)(i + 1));
        int64_t id = said[i];
        said[i] = said[j], said[j] = id;
    }
    for (int i = 0; i < VOCAB; i++) narrow[i] = (int32_t)said[i];
    const struct change ways[] = { { .said = said, .n_said = VOCAB }, { .said = narrow, .n_said = 40, .narrow = true },
                                   { .said = said, .n_said = 1 } };
    for (size_t w = 0; w < COUNT(ways); w++) {
        struct rig g;
        struct seq *s;
        luce_error err = { 0 };
        if (!rig_open_with(&g, changed("dflash/v1_llama.gguf", &ways[w]), false, 1)) return;
        for (int text = 0; text < 2; text++) {
            const struct gguf_tensor *tokens = answer(&g, "", text, "tokens"), *want = answer(&g, "v1", text, "logits");
            const int32_t *ids = (const int32_t *)(const void *)tokens->data;
            const float *x = (const float *)(const void *)want->data;
            int n = (int)tokens->dim[0];
            CHECK_OK(seq_open(&s, runner_cache(g.target), &err), err);
            feed(&g, s, ids, n - 1, 64, STEP_WIDE);
            struct tree t = guess(&g, seq_slot(s), ids, n, BLOCK - 1);
            CHECK_EQ(t.n, BLOCK);
            for (int k = 0; k + 1 < BLOCK; k++) {
                float best = -INFINITY, got = -INFINITY;
                for (int i = 0; i < ways[w].n_said; i++) {
                    float likely = x[k * VOCAB + narrow[i]];
                    if (likely > best) best = likely;
                    if (narrow[i] == t.token[k + 1]) got = likely;
                }
                CHECK(best - got < 0.1, "way %zu, text %d: guess %d is %d, %g below the best", w, text, k, t.token[k + 1],
                      (double)(best - got));
            }
            seq_close(s);
        }
        rig_close(&g);
    }
}

TEST(dflash_refuses_files_that_are_cut_short)
{
    static const char *const whole[] = { "dflash/v1_llama.gguf", "dflash/v2_lucebox.gguf" };
    char target[512];
    luce_error err = { 0 };
    snprintf(target, sizeof target, "%s", fixture(target_file));
    for (size_t i = 0; i < COUNT(whole); i++) {
        struct buf text = { 0 };
        CHECK_OK(file_read(&text, fixture(whole[i]), 1 << 20, &err), err);
        for (int part = 1; part < 8; part++) {
            struct file_writer w = { 0 };
            const char *path = scratch("cut.gguf");
            CHECK_OK(file_create(&w, path, &err), err);
            CHECK_OK(file_append(&w, text.data, text.len * (size_t)part / 8, &err), err);
            CHECK_OK(file_commit(&w, &err), err);
            refused("cut", target, "dflash", path, LUCE_E_FORMAT, "cut short");
        }
        buf_drop(&text);
    }
}
