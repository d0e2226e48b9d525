/* run/cost.c - see cost.h. */
#include "run/cost.h"

#include "base/clock.h"

enum { REPEATS = 3 };
static const double long_step = 0.5;        /* seconds; wider ones are not tried */
static const double rate = 0.1;             /* weight of a new time of this width ... */
static const double common = 0.03;          /* ... and for all others */
static const double most_ratio = 1.5;       /* a time beyond it is an interruption */
static const double forget = 0.01;          /* of what one width differs by, with each step */

static luce_status time_step(struct runner *r, struct seq *s, int n, double *seconds, luce_error *err)
{
    int32_t tokens[NARROW_ROWS], chosen;
    for (int i = 0; i < n; i++) tokens[i] = (7 * i + 1) % runner_model(r)->c.vocab;
    *seconds = 0;
    for (int k = 0; k <= REPEATS; k++) {    /* the first one compiles */
        double start = clock_seconds();
        runner_begin(r, STEP_NARROW);
        luce_status st = runner_add(r, s, tokens, NULL, n, WANT_ALL, NULL, err);
        if (!st) st = runner_run(r, err);
        for (int i = 0; i < n && !st; i++) st = runner_choice(r, i, &chosen, err);
        if (st) return st;
        double took = clock_seconds() - start;
        if (k == 1 || (k > 1 && took < *seconds)) *seconds = took;
    }
    return LUCE_OK;
}

luce_status cost_measure(struct cost *c, struct runner *r, int most, luce_error *err)
{
    struct seq *s;
    *c = (struct cost){ .seconds = { 0 } };
    struct cache *cache = runner_cache(r);
    if (cache_free_slots(cache) == 0) return LUCE_OK;
    if (most > cache_max_positions(cache)) most = cache_max_positions(cache);
    luce_status st = seq_open(&s, cache, err);
    if (st) return st;
    for (int n = 1; n <= NARROW_ROWS && !st && n < 2 * most; n *= 2) {
        int rows = n < most ? n : most;
        st = time_step(r, s, rows, &c->seconds[rows], err);
        if (c->seconds[rows] > long_step) break;
    }
    seq_close(s);
    return st;
}

/* As measured at first. */
static double first_cost(const struct cost *c, int n)
{
    int low = n < NARROW_ROWS ? n : NARROW_ROWS, high = n;
    while (low > 0 && !(c->seconds[low] > 0)) low--;
    while (high <= NARROW_ROWS && !(c->seconds[high] > 0)) high++;
    if (low == n) return c->seconds[n];
    if (high > NARROW_ROWS) {               /* beyond: the line through the last two */
        if (low == 0) return 0;
        int before = low - 1;
        while (before > 0 && !(c->seconds[before] > 0)) before--;
        double slope = before ? (c->seconds[low] - c->seconds[before]) / (low - before) : c->seconds[low] / low;
        return c->seconds[low] + (slope > 0 ? slope : 0) * (n - low);
    }
    if (low == 0) return c->seconds[high];
    return c->seconds[low] + (c->seconds[high] - c->seconds[low]) * (n - low) / (high - low);
}

double cost_of(const struct cost *c, int n)
{
    double own = n <= NARROW_ROWS ? c->own[n] : 0;
    return first_cost(c, n) * (1 + c->drift) * (1 + own);
}

void cost_observe(struct cost *c, int n, double seconds)
{
    if (n < 1 || n > NARROW_ROWS || !(seconds > 0)) return;
    double expected = cost_of(c, n);
    if (!(expected > 0)) {
        c->seconds[n] = seconds;
        return;
    }
    double ratio = seconds / expected;
    if (ratio > most_ratio) ratio = most_ratio;
    for (int i = 1; i <= NARROW_ROWS; i++) c->own[i] *= 1 - forget;
    c->own[n] += (rate - common) * (1 + c->own[n]) * (ratio - 1);
    c->drift += common * (1 + c->drift) * (ratio - 1);
}
