/* tests/test_policy.c - what the policy of guessing costs where guesses fail, and what it gains where they hold: steps
 * and guesses take what a table says, and guesses come true as a pattern says. Nothing is timed. */
#include <math.h>

#include "spec/policy.h"
#include "test.h"

enum { TOKENS = 512 };

/* Time of steps by rows, in steps of one row: measured or of the kind that is measured. */
static const struct table {
    const char *name;
    double rows[7];                 /* 1, 2, 4, 8, 16, 32, 64 */
} tables[] = {
    { "H200, 27b", { 1, 1.02, 1.02, 1.04, 1.30, 1.70, 2.42 } },
    { "H200, 8b q4_k", { 1, 0.96, 1.00, 1.03, 1.21, 1.56, 2.23 } },
    { "consumer card", { 1, 1.05, 1.1, 1.25, 1.6, 2.6, 4.6 } },
    { "CPU, weights from memory", { 1, 1.03, 1.06, 1.22, 2.1, 4.0, 7.8 } },
    { "CPU, two cores", { 1, 1.25, 1.6, 2.4, 4.2, 8, 16 } },
    { "rows cost a step", { 1, 1.9, 3.7, 7.3, 14.5, 29, 58 } },
};
static double step_time(const struct table *t, int rows)
{
    int k = 0;
    while (rows > 1 << (k + 1)) k++;
    if (rows == 1) return t->rows[0];
    double low = 1 << k, part = (rows - low) / low;
    return t->rows[k] + part * (t->rows[k + 1] - t->rows[k]);
}

static const struct drafting {
    const char *name;
    enum guess_cost costs;
    int most, block;
    double pass, depth;             /* of its guesses, in steps of one row */
    float likely;                   /* what it says of each token after the one before */
    float copy;                     /* what a copy of earlier text says of it; 0: nothing to copy */
} drafters[] = {
    { "ngram", GUESS_FREE, 15, 16, 0, 0, 0.97f, 0 },      { "ngram, short matches", GUESS_FREE, 15, 16, 0, 0, 0.67f, 0 },
    { "draft model, 1/20", GUESS_BY_DEPTH, 8, 9, 0, 0.05, 0.9f, 0 },
    { "draft model, 1/5", GUESS_BY_DEPTH, 8, 9, 0, 0.2, 0.9f, 0 },
    { "draft model, 3/5", GUESS_BY_DEPTH, 8, 9, 0, 0.6, 0.9f, 0 },
    { "draft model, 9/10", GUESS_BY_DEPTH, 8, 9, 0, 0.9, 0.9f, 0 },
    { "mtp", GUESS_BY_DEPTH, 3, 4, 0, 0.08, 0.85f, 0 },
    { "dflash, 1/12", GUESS_BY_PASS, 15, 16, 0.08, 0.001, 0.9f, 0 },
    { "dflash, 3/4", GUESS_BY_PASS, 15, 16, 0.5, 0.02, 0.9f, 0 },
    { "dflash, 2", GUESS_BY_PASS, 15, 16, 1.5, 0.04, 0.9f, 0 },
    { "dflash, 4", GUESS_BY_PASS, 15, 16, 3, 0.07, 0.9f, 0 },
    { "dflash, 1/12, copies", GUESS_BY_PASS, 15, 16, 0.08, 0.001, 0.9f, 0.67f },
    { "dflash, 3/4, copies", GUESS_BY_PASS, 15, 16, 0.5, 0.02, 0.9f, 0.97f },
};

/* Tokens of a guess that are right, by the text's tokens so far and the number of guesses before. */
enum pattern { NONE, ALTERNATING, ONE, BURSTS, SHORT_BURSTS, RARE, RIGHT_AT_FIRST, TEASE, ALL, N_PATTERNS };
static const char *const pattern_names[] = { "none", "alternating", "one", "bursts", "short bursts", "rare", "at first",
                                             "tease", "all" };
static int right(enum pattern p, int tokens, int guesses, int pause)
{
    switch (p) {
    case ALTERNATING:    return guesses % 2 ? 3 : 0;
    case ONE:            return 1;
    case BURSTS:         return tokens / 40 % 2 ? 8 : 0;
    case SHORT_BURSTS:   return tokens % 25 < 5 ? 8 : 0;
    case RARE:           return guesses % 10 == 0 ? 8 : 0;
    case RIGHT_AT_FIRST: return tokens < 60 ? 15 : 0;
    case TEASE:          return pause > 16 ? 15 : 0;      /* right when it is off, wrong when it is on */
    case ALL:            return 15;
    default:             return 0;
    }
}

struct sim {
    const struct table *table;
    const struct drafting *drafter;
    enum pattern first, then;       /* of the text's two halves */
    int texts;                      /* at once, all alike */
    bool ahead;                     /* guesses are made behind the step before, as far as that is worth it */
};

/* Seconds of a guess at k texts. */
static double guess_time(const struct drafting *g, int depth, int k)
{
    return g->costs == GUESS_BY_PASS ? k * (g->pass + g->depth * depth) : g->depth * depth;
}

/* What the drafter says, for all that want a guess; returns what those take that were not foreseen. */
static double guess(const struct drafting *g, struct draft **drafts, int n, struct draft **asked, int *k)
{
    int deepest = 0;
    *k = 0;
    for (int i = 0; i < n; i++) {
        struct draft *d = drafts[i];
        int most = d->most < d->depth ? d->most : d->depth;
        if (d->most <= 0 || d->copied) continue;
        if (!d->foreseen) asked[(*k)++] = d;
        for (int node = 0; node < most; node++) tree_add(&d->tree, node, node, d->tree.likely[node] * g->likely);
        if (!d->foreseen && most > deepest) deepest = most;
    }
    double takes = guess_time(g, deepest, *k);
    return *k ? takes > 0 ? takes : 1e-9 : 0;
}

/* The same tokens as a copy of what stood before. */
static void copy(struct policy *p, float likely, struct draft **drafts, int n)
{
    for (int i = 0; i < n; i++)
        for (int node = 0; node < drafts[i]->depth && node < 15; node++)
            tree_add(&drafts[i]->tree, node, node, drafts[i]->tree.likely[node] * likely);
    policy_copied(p, drafts, n, n);
}

enum { TEXTS = 4 };

/* Guesses behind a step, whatever comes of it, for texts that the drafter has gone along with; returns what they take. */
static double guess_ahead(const struct sim *s, struct policy *p, struct draft *d, int n, const int *tokens, int *block)
{
    double takes = 0;
    for (int i = 0; i < n; i++) {
        bool along = s->ahead && s->drafter->costs == GUESS_BY_PASS && (d[i].foreseen || d[i].most > 0);
        block[i] = along ? policy_foresee(p, &d[i], TOKENS - tokens[i] - 2, n, n) : 0;
        if (block[i]) takes += guess_time(s->drafter, block[i] - 1, 1);
    }
    return takes;
}

/* Seconds until a text has its TOKENS; *share: tokens of all by then, over the number of texts. */
static double run(const struct sim *s, double *share)
{
    const struct drafting *g = s->drafter;
    struct policy p = { .costs = g->costs, .most = g->most, .block = g->block, .chain = true,
                        .unit = { g->pass, g->depth } };
    static const int32_t ids[] = { 1 };
    int tokens[TEXTS] = { 0 }, guesses[TEXTS] = { 0 }, block[TEXTS] = { 0 }, n = s->texts;
    bool done = false;
    double time = 0;
    for (int k = 0; k < 7; k++) p.cost.seconds[1 << k] = s->table->rows[k];
    policy_init(&p);
    for (int i = 0; i < s->texts; i++) policy_begin(&p, i);
    *share = 0;
    while (!done) {
        struct draft d[TEXTS], *drafts[TEXTS], *asked[TEXTS];
        int k, rows = 0;
        for (int i = 0; i < n; i++) {
            d[i] = (struct draft){ .slot = i, .ids = ids, .n_ids = 1, .depth = TOKENS - tokens[i] - 1,
                                    .foreseen = block[i] };
            tree_init(&d[i].tree, 1);
            drafts[i] = &d[i];
        }
        if (g->copy > 0) copy(&p, g->copy, drafts, n);
        policy_limit(&p, drafts, n, 0, NARROW_ROWS - n);
        double took = guess(g, drafts, n, asked, &k);
        if (k) policy_guessed(&p, asked, k, took);
        for (int i = 0; i < n; i++)
            if (d[i].foreseen) policy_guessed(&p, &drafts[i], 1, guess_time(g, d[i].foreseen - 1, 1));
        policy_prune(&p, drafts, n, 0, NARROW_ROWS - n);
        for (int i = 0; i < n; i++) rows += d[i].tree.n;
        time += took + step_time(s->table, rows) + guess_ahead(s, &p, d, n, tokens, block);
        cost_observe(&p.cost, rows, step_time(s->table, rows));
        for (int i = 0; i < n; i++) {
            int same = right(tokens[i] < TOKENS / 2 ? s->first : s->then, tokens[i], guesses[i], p.slot[i].pause);
            if (same > d[i].tree.n - 1) same = d[i].tree.n - 1;
            guesses[i] += d[i].tree.n > 1;
            policy_observe(&p, &d[i], same + 1);
            tokens[i] += same + 1;
            *share += (same + 1.0) / n;
            done = done || tokens[i] >= TOKENS;
        }
    }
    return time;
}

TEST(policy_never_loses_more_than_three_percent)
{
    for (size_t t = 0; t < COUNT(tables); t++)
        for (size_t g = 0; g < COUNT(drafters); g++)
            for (int p = 0; p < N_PATTERNS * N_PATTERNS * 4; p++) {
                struct sim s = { &tables[t], &drafters[g], p / 4 / N_PATTERNS, p / 4 % N_PATTERNS, p % 2 ? TEXTS : 1,
                                 p / 2 % 2 };
                if (s.texts > 1 && s.then != s.first && s.then != NONE) continue;
                double share, time = run(&s, &share), plain = share * step_time(s.table, s.texts);
                CHECK(time <= 1.03 * plain, "%s, %s%s, %s then %s, %d texts: %.3f of plain", s.table->name,
                      s.drafter->name, s.ahead ? " ahead" : "", pattern_names[s.first], pattern_names[s.then], s.texts,
                      time / plain);
            }
}

/* The best that a guess of one depth gives where all of it is right, over plain decoding. */
static double best_speed(const struct table *t, const struct drafting *g)
{
    double best = 1;
    for (int d = 1; d <= g->most; d++) best = fmax(best, (d + 1) / (step_time(t, d + 1) + guess_time(g, d, 1)));
    return best;
}

/* Where guesses could double the speed and a short one takes no longer than a plain step, half of the time that this saves
 * is saved from the first token on, and a third where no guess was right for the first half of the text. */
/* What many texts lost together is not the debt of the next one. */
TEST(policy_gives_a_text_room_after_many_that_lost)
{
    struct policy p = { .costs = GUESS_BY_PASS, .most = 7, .block = 8 };
    struct draft d = { .n_ids = 1, .price = 4, .seconds = 1e-3 };
    policy_init(&p);
    for (int slot = 0; slot < 8; slot++) policy_begin(&p, slot);
    for (int i = 0; i < 800; i++) {
        tree_init(&d.tree, 1);
        tree_add(&d.tree, 0, 2, 0.5f);
        d.slot = i % 8;
        policy_observe(&p, &d, 1);
    }
    policy_begin(&p, 0);
    CHECK(p.slot[0].credit >= 1 && p.slot[0].credit <= 4, "%g plain steps", p.slot[0].credit);
}

/* A copy takes the place of a guess that was made ahead; a copy that promises nothing leaves it. */
TEST(policy_copies_instead_of_what_was_foreseen)
{
    for (int good = 0; good < 2; good++) {
        struct policy p = { .costs = GUESS_BY_PASS, .most = 7, .block = 8 };
        struct draft d = { .n_ids = 1, .depth = 20, .foreseen = 4 }, *drafts[] = { &d };
        for (int n = 1; n <= 64; n *= 2) p.cost.seconds[n] = 1e-3 * (1 + 0.1 * n);
        policy_init(&p);
        policy_begin(&p, 0);
        tree_init(&d.tree, 1);
        for (int node = 0; node < 6; node++) tree_add(&d.tree, node, node, good ? 0.95f : 0.01f);
        policy_copied(&p, drafts, 1, 1);
        CHECK_EQ(d.copied, good);
        CHECK_EQ(d.foreseen, good ? 0 : 4);
    }
}

TEST(policy_takes_the_gain_when_guesses_hold)
{
    int pairs = 0;
    for (size_t t = 0; t < COUNT(tables); t++)
        for (size_t g = 0; g < COUNT(drafters); g++) {
            double best = best_speed(&tables[t], &drafters[g]), could = TOKENS * (1 - 1 / best);
            if (best < 2 || guess_time(&drafters[g], 3, 1) > 1) continue;
            for (int ahead = 0; ahead < 2; ahead++) {
                struct sim all = { &tables[t], &drafters[g], ALL, ALL, 1, ahead }, half = all;
                half.first = NONE;
                double share, always = TOKENS - run(&all, &share), later = TOKENS - run(&half, &share);
                CHECK(always >= 0.5 * could, "%s, %s: %.0f of %.0f steps saved", tables[t].name, drafters[g].name,
                      always, could);
                CHECK(later >= could / 2 / 3, "%s, %s: %.0f of %.0f steps saved later", tables[t].name,
                      drafters[g].name, later, could / 2);
            }
            pairs++;
        }
    CHECK(pairs > 20, "%d pairs", pairs);
}
