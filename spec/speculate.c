/* spec/speculate.c - see speculate.h. */
#include "spec/speculate.h"

#include "base/clock.h"
#include "base/mem.h"
#include "spec/width.h"

enum { TRY_NODES = 2, TRY_DEPTH = 3, TIMED_DEPTH = 3 };
static const double rate = 0.1;             /* weight of the newest time of a guess, ... */
static const double slower = 1.5;           /* ... which counts as at most this much longer than usual */

struct speculator {
    const struct drafter *drafter;
    struct drafter_state *state;
    int most, block;
    bool chain;
    double margin;
    struct cost cost;
    struct guess_time unit;         /* of one text, running mean; by depth: of one pass, however many texts */
    struct record_of_guesses all, slot[STEP_SEQS];
};

void speculator_close(struct speculator *s)
{
    if (!s) return;
    if (s->drafter) s->drafter->close(s->state);
    mem_free(s);
}

const char *speculator_name(const struct speculator *s)
{
    return s ? s->drafter->name : "none";
}

static luce_status check(const struct speculate_params *p, const struct drafter *d, luce_error *err)
{
    if (p->most < 0 || p->most >= NARROW_ROWS)
        return fail(err, LUCE_E_ARG, "%d drafted tokens a step; expected 1 to %d, or 0 for the drafter's own", p->most,
                    NARROW_ROWS - 1);
    if (p->block < 0 || p->block == 1 || p->block > NARROW_ROWS)
        return fail(err, LUCE_E_ARG, "a draft block of %d; expected 2 to %d, or 0 for the drafter's own", p->block,
                    NARROW_ROWS);
    if (p->margin > 0 && d->most && (!d->trees || p->chain))
        return fail(err, LUCE_E_ARG, "a margin of trees (--ddtree-tau), and %s%s guesses chains", p->chain ? "" :
                    "the drafter ", p->chain ? "--ddtree=no" : d->name);
    if (d->takes_file && !p->path) return fail(err, LUCE_E_ARG, "the drafter '%s' needs a file (--draft)", d->name);
    if (!d->takes_file && p->path)
        return fail(err, LUCE_E_ARG, "the drafter '%s' takes no file, and there is %s", d->name, p->path);
    return LUCE_OK;
}

static luce_status choose(const struct speculate_params *p, const struct drafter **d, luce_error *err)
{
    luce_status st = LUCE_OK;
    if (p->name || !p->path) st = drafter_get(d, p->name ? p->name : "none", err);
    else *d = drafter_for(p->path);
    return st ? st : check(p, *d, err);
}

luce_status speculator_prepare(const struct speculate_params *p, const struct model *target,
                               const struct vocab *vocab, struct record_params *record, luce_error *err)
{
    const struct drafter *d;
    struct drafter_env env = { .model = target, .vocab = vocab, .path = p->path };
    luce_status st = choose(p, &d, err);
    return st || !d->prepare ? st : d->prepare(&env, record, err);
}

/* The guess of n texts. */
static struct guess_time time_of(const struct speculator *s, int n)
{
    if (s->drafter->costs == GUESS_BY_PASS)
        return (struct guess_time){ .pass = s->unit.pass * n, .depth = s->unit.depth * n };
    return (struct guess_time){ .depth = s->unit.depth / n };
}

/* How long a guess of this depth takes, at a text of two tokens; the second time, as the first one compiles. */
static luce_status time_guess(struct speculator *s, int depth, double *seconds, luce_error *err)
{
    static const int32_t ids[] = { 0, 0 };
    struct draft d = { .ids = ids, .n_ids = 2, .most = depth, .depth = depth, .block = depth + 1 };
    struct draft *drafts[] = { &d };
    luce_status st = LUCE_OK;
    for (int i = 0; i < 2 && !st; i++) {
        tree_init(&d.tree, ids[1]);
        double start = clock_seconds();
        st = s->drafter->propose(s->state, drafts, 1, err);
        *seconds = clock_seconds() - start;
    }
    return st;
}

/* A pass is timed for the narrowest block and for the widest, and taken to grow evenly. */
static luce_status time_drafter(struct speculator *s, luce_error *err)
{
    bool pass = s->drafter->costs == GUESS_BY_PASS;
    int depth = pass ? s->block - 1 : TIMED_DEPTH;
    double whole = 0, least = 0;
    luce_status st = time_guess(s, depth, &whole, err);
    if (!st && pass && depth > 1) st = time_guess(s, 1, &least, err);
    s->unit.depth = pass && depth > 1 ? (whole - least) / (depth - 1) : pass ? 0 : whole / depth;
    if (s->unit.depth < 0) s->unit.depth = 0;
    s->unit.pass = pass ? whole - depth * s->unit.depth : 0;
    return st;
}

luce_status speculator_open(struct speculator **out, const struct speculate_params *p, struct runner *target,
                            const struct vocab *vocab, luce_error *err)
{
    const struct drafter *d;
    struct drafter_state *state;
    struct drafter_env env = { .target = target, .model = runner_model(target), .vocab = vocab, .path = p->path };
    *out = NULL;
    luce_status st = choose(p, &d, err);
    if (!st) st = d->open(&state, &env, err);
    if (st || d->most == 0) return st;
    struct speculator *s = mem_zero(sizeof *s);
    if (!s) {
        d->close(state);
        return fail(err, LUCE_E_NOMEM, "out of memory for speculation");
    }
    s->drafter = d;
    s->state = state;
    s->most = p->most ? p->most : d->most;
    s->chain = p->chain;
    s->margin = p->margin;
    s->block = p->block ? p->block : d->block ? d->block : d->block_of(state);
    record_init(&s->all);
    int rows = (s->most + 1) * cache_slots(runner_cache(target));
    st = cost_measure(&s->cost, target, rows < NARROW_ROWS ? rows : NARROW_ROWS, err);
    if (!st && d->costs) st = time_drafter(s, err);
    if (st) speculator_close(s);
    else *out = s;
    return st;
}

void speculator_begin(struct speculator *s, int slot)
{
    if (s) s->slot[slot] = s->all;
}

/* Texts that begin go on with the pause that the ones before have come to. */
static bool try_now(struct speculator *s, struct record_of_guesses *r)
{
    bool now = record_try(r);
    s->all.quiet = r->quiet;
    s->all.pause = r->pause;
    return now;
}

/* Decides before the guess how large it may be; `share` is the room of one text. */
static void set_limits(struct speculator *s, struct draft *d, int n, int share)
{
    struct record_of_guesses *r = &s->slot[d->slot];
    if (d->depth > s->block - 1) d->depth = s->block - 1;
    d->declined = false;
    d->margin = s->margin;
    d->most = d->fixed ? d->fixed : s->most;
    if (d->fixed && d->most > share) d->most = share;
    if (s->chain && d->most > d->depth) d->most = d->depth;
    if (d->depth <= 0) d->most = 0;
    if (d->most <= 0 || d->fixed || !s->drafter->costs) return;
    int deep = d->depth < d->most ? d->depth : d->most, shy = TRY_NODES;
    int depth = record_pays(r) ? width_depth(&s->cost, r, n, deep, time_of(s, n)) : 0;
    bool by_pass = s->drafter->costs == GUESS_BY_PASS;
    if (by_pass) shy = TRY_DEPTH;
    bool open = depth == 0 && width_can_pay(&s->cost, n, deep, time_of(s, n));
    if (open && try_now(s, r)) d->most = depth = deep < shy ? deep : shy;
    d->declined = depth == 0;
    d->depth = depth;
    if (by_pass) d->block = depth + 1;          /* no more places than will be looked at */
    if (depth == 0) d->most = 0;
}

static luce_status guess(struct speculator *s, struct draft *const *drafts, int n, luce_error *err)
{
    struct draft *wanted[STEP_SEQS];
    bool by_pass = s->drafter->costs == GUESS_BY_PASS;
    int k = 0, deepest = 0;
    double expected = 0;
    for (int i = 0; i < n; i++)
        if (drafts[i]->most > 0) wanted[k++] = drafts[i];
    if (k == 0) return LUCE_OK;
    double start = clock_seconds();
    luce_status st = s->drafter->propose(s->state, wanted, k, err);
    double took = clock_seconds() - start;
    for (int i = 0; i < k; i++) {
        int deep = tree_deepest(&wanted[i]->tree);
        wanted[i]->seconds = took;
        deepest = deep > deepest ? deep : deepest;
        expected += s->unit.pass + s->unit.depth * (wanted[i]->block - 1);
    }
    if (deepest == 0) return st;
    if (!by_pass) expected = s->unit.depth * deepest;
    double ratio = expected > 0 ? took / expected : 1;
    if (ratio > slower) ratio = slower;     /* a prompt was fed, or a pause */
    s->unit.pass *= 1 + rate * (ratio - 1);
    s->unit.depth *= 1 + rate * (ratio - 1);
    for (int i = 0; i < k; i++)
        wanted[i]->price = by_pass ? s->unit.pass + s->unit.depth * (wanted[i]->block - 1)
            : s->unit.depth * deepest / k;
    return st;
}

/* Decides after the guess what of it is worth checking. */
static void prune(struct speculator *s, struct draft *const *drafts, int n, int base_rows, int room)
{
    struct width_of w[STEP_SEQS];
    struct draft *open[STEP_SEQS];
    struct tree tried;
    int k = 0;
    for (int i = 0; i < n; i++) {
        struct draft *d = drafts[i];
        if (d->fixed || d->tree.n == 1) {
            base_rows += d->tree.n;
            room -= d->tree.n - 1;
        } else {
            open[k] = d;
            w[k++] = (struct width_of){ &s->slot[d->slot], &d->tree };
        }
    }
    if (k == 0) return;
    for (int i = 0; i < k; i++) tree_prune(&open[i]->tree, open[i]->most + 1);
    tried = open[0]->tree;
    width_prune(&s->cost, w, k, base_rows, room);
    for (int i = 0; i < k; i++) {
        open[i]->declined = open[i]->tree.n == 1;
        room -= open[i]->tree.n - 1;
    }
    if (!open[0]->declined || room < TRY_NODES || !try_now(s, &s->slot[open[0]->slot])) return;
    open[0]->tree = tried;
    open[0]->declined = false;
    tree_prune(&open[0]->tree, TRY_NODES + 1);
}

/* The price of each guess, which holds its own seconds so far: its part of what the check takes beyond a plain step
 * comes to it, as many times as there are texts that wait for it. */
static void set_prices(const struct speculator *s, struct draft *const *drafts, int n, int base_rows)
{
    int nodes = 0, texts = base_rows + n;
    for (int i = 0; i < n; i++) nodes += drafts[i]->tree.n - 1;
    double plain = cost_of(&s->cost, texts), check = cost_of(&s->cost, texts + nodes) - plain;
    for (int i = 0; i < n; i++) {
        struct draft *d = drafts[i];
        if (nodes) d->price += check * (d->tree.n - 1) / nodes;
        d->price = d->seconds > 0 && plain > 0 ? 1 + texts * d->price / plain : 0;
    }
}

luce_status speculator_draft(struct speculator *s, struct draft *const *drafts, int n, int base_rows, int room,
                             luce_error *err)
{
    if (n == 0) return LUCE_OK;
    for (int i = 0; i < n; i++) {
        drafts[i]->seconds = drafts[i]->price = 0;
        drafts[i]->block = s->block;
        tree_init(&drafts[i]->tree, drafts[i]->ids[drafts[i]->n_ids - 1]);
        set_limits(s, drafts[i], n, room / n);
    }
    luce_status st = guess(s, drafts, n, err);
    if (!st) prune(s, drafts, n, base_rows, room);
    if (!st && s->drafter->costs) set_prices(s, drafts, n, base_rows);
    return st;
}

bool speculator_reads(const struct speculator *s)
{
    return s && s->drafter->observe;
}

luce_status speculator_features(struct speculator *s, const struct observed *o, luce_error *err)
{
    return s->drafter->observe(s->state, o, err);
}

void speculator_observe(struct speculator *s, const struct draft *d, int n)
{
    if (d->price > 0 && !d->fixed) {
        record_paid(&s->slot[d->slot], n, d->price);
        record_paid(&s->all, n, d->price);
    }
    if (d->tree.n == 1) return;
    record_observe(&s->slot[d->slot], &d->tree, n);
    record_observe(&s->all, &d->tree, n);
}

void speculator_time(struct speculator *s, int n, double seconds)
{
    cost_observe(&s->cost, n, seconds);
}
