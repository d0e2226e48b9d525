/* tests/test_spec.c - trees, the verifier's distribution, costs and the choice of the width. */
#include <math.h>

#include "base/rng.h"
#include "run/sample.h"
#include "spec/guesses.h"
#include "spec/verify.h"
#include "spec/width.h"
#include "test.h"

/* A tree of n nodes, each of a random parent; likelihoods shrink along a path. */
static void random_tree(struct tree *t, int n, int vocab)
{
    tree_init(t, (int32_t)(test_random() % (uint64_t)vocab));
    for (int k = 1; k < n; k++) {
        int parent = (int)(test_random() % (uint64_t)t->n);
        tree_add(t, parent, (int32_t)(test_random() % (uint64_t)vocab), 0);
    }
    for (int i = 1; i < t->n; i++) t->likely[i] = t->likely[t->parent[i]] * (float)test_uniform(0.1, 0.9);
}

TEST(tree_parents_precede_children_and_paths_lead_to_the_root)
{
    for (int round = 0; round < 300; round++) {
        struct tree t;
        random_tree(&t, 1 + (int)(test_random() % 90), 6);
        CHECK(t.n <= NARROW_ROWS && t.parent[0] == -1);
        for (int i = 1; i < t.n; i++) {
            CHECK(t.parent[i] >= 0 && t.parent[i] < i && t.depth[i] == t.depth[t.parent[i]] + 1);
            CHECK_EQ(tree_child(&t, t.parent[i], t.token[i]), i);
            CHECK_EQ(tree_path(&t, i), tree_path(&t, t.parent[i]) | UINT64_C(1) << i);
            CHECK_EQ(__builtin_popcountll(tree_path(&t, i)), t.depth[i] + 1);
        }
    }
}

/* The path of tokens to a node, as a text. */
static void spell(const struct tree *t, int node, char *out)
{
    int n = t->depth[node];
    out[n + 1] = '\0';
    for (; node >= 0; node = t->parent[node]) out[n--] = (char)('a' + t->token[node]);
}

TEST(tree_prune_keeps_the_likeliest_and_their_ancestors)
{
    for (int round = 0; round < 300; round++) {
        struct tree t, p;
        int n = 1 + (int)(test_random() % NARROW_ROWS);
        random_tree(&t, NARROW_ROWS, 6);
        p = t;
        tree_prune(&p, n);
        CHECK_EQ(p.n, n < t.n ? n : t.n);
        float least = 1;
        for (int i = 0; i < p.n; i++) {
            char path[NARROW_ROWS + 1], other[NARROW_ROWS + 1];
            bool found = false;
            spell(&p, i, path);
            for (int k = 0; k < t.n && !found; k++) {
                spell(&t, k, other);
                found = !strcmp(path, other) && t.likely[k] == p.likely[i];
            }
            CHECK(found, "%s is not in the tree", path);
            if (p.likely[i] < least) least = p.likely[i];
        }
        int better = 0;
        for (int k = 0; k < t.n; k++) better += t.likely[k] > least;
        CHECK(better < p.n, "%d nodes are likelier than the least of %d", better, p.n);
    }
}

enum { VOCAB = 8, DRAWS = 20000 };

/* A text whose next token depends on the two before. */
struct toy {
    struct sampler *sampler;
    struct sample_params p;
    int32_t ids[8];
    int n, most;
};

static void toy_logits(const int32_t *ids, int n, float *logits)
{
    for (int i = 0; i < VOCAB; i++)
        logits[i] = 2 * sinf((float)(i * 7 + ids[n - 1] * 3 + (n > 1 ? ids[n - 2] : 0) * 5));
}

static luce_status toy_choose(void *context, int node, int32_t *token, bool *more, luce_error *err)
{
    struct toy *t = context;
    float logits[VOCAB];
    (void)node;
    toy_logits(t->ids, t->n, logits);
    luce_status st = sampler_choose(t->sampler, &t->p, logits, t->ids, t->n, t->n, token, err);
    t->ids[t->n++] = *token;
    *more = t->n < t->most;
    return st;
}

/* The probabilities by the definition in sample.h, in another way than the sampler's. */
static void exact(const struct sample_params *p, const int32_t *ids, int n, double *out)
{
    float logits[VOCAB];
    double l[VOCAB], sum = 0;
    int rank[VOCAB];
    toy_logits(ids, n, logits);
    double repetition = p->repetition_penalty > 0 ? (double)p->repetition_penalty : 1;
    for (int i = 0; i < VOCAB; i++) {
        int count = 0;
        for (int k = 0; k < n; k++) count += ids[k] == i;
        l[i] = (double)logits[i];
        if (count) l[i] = l[i] > 0 ? l[i] / repetition : l[i] * repetition;
        if (count) l[i] -= (double)p->frequency_penalty * count + (double)p->presence_penalty;
    }
    for (int i = 0; i < VOCAB; i++) {
        rank[i] = 0;
        for (int k = 0; k < VOCAB; k++) rank[i] += l[k] > l[i] || (l[k] == l[i] && k < i);
        out[i] = p->top_k && rank[i] >= p->top_k ? 0 : exp(l[i] / (double)p->temperature);
        sum += out[i];
    }
    double before[VOCAB] = { 0 }, kept = 0;
    for (int i = 0; i < VOCAB; i++)
        for (int k = 0; k < VOCAB; k++) before[i] += rank[k] < rank[i] ? out[k] : 0;
    for (int i = 0; i < VOCAB; i++) {
        if (p->top_p > 0 && p->top_p < 1 && rank[i] > 0 && before[i] >= (double)p->top_p * sum) out[i] = 0;
        kept += out[i];
    }
    for (int i = 0; i < VOCAB; i++) out[i] /= kept;
}

/* Two tokens after a prompt, by trees; counts[pair], and how many guesses came true. */
static int draw_pairs(struct toy *t, int *counts)
{
    int accepted = 0;
    for (int k = 0; k < DRAWS; k++) {
        struct toy plain = *t;
        struct chooser c = { .context = t, .choose = toy_choose };
        luce_error err = { 0 };
        t->p.seed = plain.p.seed = test_random();
        t->n = plain.n = 2;
        while (t->n < t->most) {
            struct tree tree;
            struct accepted a;
            random_tree(&tree, 1 + (int)(test_random() % 12), VOCAB);
            CHECK_OK(verify(&tree, &c, &a, &err), err);
            accepted += a.n - 1;
            for (int i = 1; i < a.n; i++) CHECK_EQ(tree.parent[a.path[i]], a.path[i - 1]);
        }
        int32_t token;
        bool more;
        do CHECK_OK(toy_choose(&plain, 0, &token, &more, &err), err);
        while (more);
        CHECK(!memcmp(plain.ids, t->ids, 4 * sizeof *t->ids), "seed %" PRIu64 ": another text", t->p.seed);
        counts[t->ids[2] * VOCAB + t->ids[3]]++;
    }
    return accepted;
}

TEST(verify_keeps_the_distribution_of_sampling)
{
    static const struct sample_params rows[] = {
        { .temperature = 0.3f }, { .temperature = 1 }, { .temperature = 1.5f, .top_k = 4 },
        { .temperature = 1, .top_p = 0.7f },
        { .temperature = 0.8f, .repetition_penalty = 1.3f, .presence_penalty = 0.4f, .frequency_penalty = 0.2f },
        { .temperature = 1.2f, .top_k = 6, .top_p = 0.9f, .presence_penalty = 0.5f },
    };
    for (size_t r = 0; r < COUNT(rows); r++) {
        struct toy t = { .p = rows[r], .ids = { 3, 5 }, .most = 4 };
        int counts[VOCAB * VOCAB] = { 0 };
        luce_error err = { 0 };
        CHECK_OK(sampler_open(&t.sampler, VOCAB, &err), err);
        int accepted = draw_pairs(&t, counts);
        CHECK(accepted > DRAWS / 20, "row %zu: %d guesses came true", r, accepted);
        double first[VOCAB], second[VOCAB], chi = 0;
        int cells = 0;
        exact(&t.p, t.ids, 2, first);
        for (int i = 0; i < VOCAB; i++) {
            t.ids[2] = i;
            exact(&t.p, t.ids, 3, second);
            for (int k = 0; k < VOCAB; k++) {
                double expected = DRAWS * first[i] * second[k];
                int found = counts[i * VOCAB + k];
                if (expected == 0) CHECK(found == 0, "row %zu: a pair that cannot be", r);
                if (expected < 5) continue;
                chi += (found - expected) * (found - expected) / expected;
                cells++;
            }
        }
        /* Mean cells - 1, deviation sqrt(2 (cells - 1)): six deviations off is a fault. */
        CHECK(chi < cells + 6 * sqrt(2.0 * cells), "row %zu: chi-square %g of %d cells", r, chi, cells);
        sampler_close(t.sampler);
    }
}

TEST(cost_goes_straight_between_measured_widths)
{
    struct cost c = { .seconds = { 0 } };
    CHECK(cost_of(&c, 5) == 0, "nothing is known");
    c.seconds[1] = 1, c.seconds[4] = 4, c.seconds[8] = 5;
    static const struct { int n; double seconds; } rows[] = { { 1, 1 }, { 2, 2 }, { 4, 4 }, { 6, 4.5 }, { 8, 5 },
                                                              { 12, 6 } };
    for (size_t i = 0; i < COUNT(rows); i++)
        CHECK(fabs(cost_of(&c, rows[i].n) - rows[i].seconds) < 1e-9, "%d rows: %g", rows[i].n, cost_of(&c, rows[i].n));
    for (int i = 0; i < 200; i++) cost_observe(&c, 4, 8);
    CHECK(fabs(cost_of(&c, 4) - 8) < 0.3, "%g", cost_of(&c, 4));
    cost_observe(&c, 4, -1);
    cost_observe(&c, 65, 1);
    double before = cost_of(&c, 4);
    cost_observe(&c, 4, 1e9);               /* an interruption moves it a little */
    CHECK(cost_of(&c, 4) < 1.1 * before);
}

TEST(cost_of_a_width_that_was_slow_once_is_forgotten)
{
    struct cost c = { .seconds = { [1] = 1, [4] = 1.5, [8] = 2 } };
    for (int i = 0; i < 20; i++) cost_observe(&c, 4, 6);
    CHECK(cost_of(&c, 4) > 2 * cost_of(&c, 1), "%g of %g", cost_of(&c, 4), cost_of(&c, 1));
    for (int i = 0; i < 600; i++) cost_observe(&c, 1, 1);
    CHECK(fabs(cost_of(&c, 4) - 1.5) < 0.1, "%g", cost_of(&c, 4));
    for (int i = 0; i < 600; i++) cost_observe(&c, i % 2 ? 1 : 8, i % 2 ? 2 : 4);
    CHECK(fabs(cost_of(&c, 4) - 3) < 0.3, "all take twice as long: %g", cost_of(&c, 4));
}

static struct cost line(double first, double more)
{
    struct cost c = { .seconds = { 0 } };
    for (int i = 1; i <= NARROW_ROWS; i++) c.seconds[i] = first + more * (i - 1);
    return c;
}

TEST(width_is_wide_when_rows_are_free_and_none_when_they_cost_a_step)
{
    struct record_of_guesses r[3];
    struct tree t[3];
    struct width_of w[3];
    for (int i = 0; i < 3; i++) record_init(&r[i]);
    for (int round = 0; round < 100; round++) {
        struct cost free_rows = line(1, 0), dear = line(1, 1);
        int n = 1 + round % 3;
        for (int i = 0; i < n; i++) {
            random_tree(&t[i], 20, 50);
            w[i] = (struct width_of){ &r[i], &t[i], INFINITY, 1 };
        }
        struct tree before = t[0];
        width_prune(&free_rows, w, n, 0, NARROW_ROWS - n);
        if (n == 1) CHECK_EQ(t[0].n, before.n);
        for (int i = 0; i < n; i++) random_tree(&t[i], 20, 50);
        width_prune(&free_rows, w, n, 0, 7);
        int nodes = 0;
        for (int i = 0; i < n; i++) nodes += t[i].n - 1;
        CHECK(nodes <= 7, "%d nodes, room for 7", nodes);
        for (int i = 0; i < n; i++) random_tree(&t[i], 20, 50);
        width_prune(&dear, w, n, 0, NARROW_ROWS - n);
        for (int i = 0; i < n; i++) CHECK_EQ(t[i].n, 1);
    }
    struct cost c = line(1, 0.1), dear = line(1, 1);
    struct guess_time cheap = { .depth = 0.01 }, half = { .depth = 0.5 }, whole = { .depth = 1 }, dearest = { .depth = 2 };
    struct guess_time pass = { .pass = 0.1 }, long_pass = { .pass = 15 };
    CHECK(width_depth(&c, &r[0], 1, 15, pass) >= 3);
    CHECK(!width_can_pay(&c, 1, 15, long_pass) && width_can_pay(&c, 1, 15, pass));
    CHECK(width_depth(&c, &r[0], 1, 15, cheap) >= 3);
    CHECK_EQ(width_depth(&c, &r[0], 1, 15, dearest), 0);
    CHECK_EQ(width_depth(&dear, &r[0], 1, 15, cheap), 0);
    CHECK(width_can_pay(&c, 1, 15, half) && !width_can_pay(&c, 1, 15, whole) && !width_can_pay(&dear, 1, 15, cheap));
    CHECK(width_depth(&c, &r[0], 8, 15, cheap) < width_depth(&c, &r[0], 1, 15, cheap), "company narrows");
}

TEST(guesses_that_do_not_pay_are_left_and_taken_up_again)
{
    static const int poor[] = { 1, 2, 1, 4, 1, 1, 3, 2 };
    struct record_of_guesses r;
    record_init(&r);
    int guesses = 0, back = 0;
    for (int step = 0; step < 512; step++) {
        if (!record_pays(&r) && !record_try(&r)) continue;
        record_paid(&r, poor[guesses++ % (int)COUNT(poor)], 2.5);
    }
    CHECK(guesses >= 8 && guesses < 40, "%d of 512 steps guessed at a loss", guesses);
    while (!record_pays(&r) && back < 400) {
        back++;
        if (record_try(&r)) record_paid(&r, 5, 2.5);
    }
    CHECK(back <= 140, "%d steps until guesses that pay are taken", back);
    int taken = 0;
    for (int step = 0; step < 100; step++)
        if (record_pays(&r) || record_try(&r)) record_paid(&r, taken++ % 5 == 0 ? 1 : 4, 2.5);
    CHECK(taken > 70, "%d of 100 steps guessed with a gain", taken);
}

TEST(width_goes_off_when_guesses_fail_and_comes_back_when_they_hold)
{
    struct record_of_guesses r;
    struct cost c = line(1, 0.05);
    struct tree t;
    struct width_of w = { &r, &t, INFINITY, 1 };
    record_init(&r);
    int tries = 0;
    for (int step = 0; step < 600; step++) {
        tree_init(&t, 1);
        for (int i = 0; i < 6; i++) tree_add(&t, i, i, t.likely[i] * 0.8f);
        struct tree whole = t;
        width_prune(&c, &w, 1, 0, 15);
        if (step == 0) CHECK(t.n > 4, "%d nodes at the start", t.n);
        if (step > 60 && step < 300) CHECK_EQ(t.n, 1);
        if (t.n == 1 && record_try(&r)) {
            t = whole;
            tree_prune(&t, 3);
            tries++;
        }
        if (step == 300) CHECK(tries >= 2 && tries <= 8, "%d tries", tries);
        if (t.n > 1) record_observe(&r, &t, step < 300 ? 1 : t.n);
    }
    CHECK(t.n > 4, "%d nodes at the end", t.n);
}
