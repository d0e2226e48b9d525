/* spec/policy.c - see policy.h. */
#include "spec/policy.h"

enum { TRY_NODES = 2, TRY_DEPTH = 3 };
static const double rate = 0.1;             /* weight of the newest time of a guess, ... */
static const double slower = 1.5;           /* ... which counts as at most this much longer than usual */

void policy_init(struct policy *p)
{
    record_init(&p->all);
    record_init(&p->all_copied);
}

void policy_begin(struct policy *p, int slot)
{
    record_begin(&p->slot[slot], &p->all);
    record_begin(&p->copied[slot], &p->all_copied);
}

/* The guess of n texts. */
static struct guess_time time_of(const struct policy *p, int n)
{
    if (p->costs == GUESS_BY_PASS)
        return (struct guess_time){ .pass = p->unit.pass * n, .depth = p->unit.depth * n };
    return (struct guess_time){ .depth = p->unit.depth / n };
}

/* Texts that begin go on with the pause that the ones before have come to. */
static bool try_now(struct policy *p, struct record_of_guesses *r)
{
    bool now = record_try(r);
    p->all.quiet = r->quiet;
    p->all.pause = r->pause;
    return now;
}

/* What a guess of this depth may lose, its check of some nodes included, in plain steps of a text. */
static double risk(const struct policy *p, int depth, int nodes, int n, int texts)
{
    double plain = cost_of(&p->cost, texts), check = cost_of(&p->cost, texts + nodes) - plain;
    struct guess_time g = time_of(p, n);
    double guess = p->costs == GUESS_BY_PASS ? p->unit.pass + p->unit.depth * depth : g.depth * depth;
    return plain > 0 ? texts * (guess + check) / plain : 0;
}

/* How deep it may be for what the text may lose. */
static int affordable(const struct policy *p, const struct record_of_guesses *r, int depth, int n, int texts)
{
    while (depth > 0 && risk(p, depth, depth < TRY_NODES ? depth : TRY_NODES, n, texts) > r->credit) depth--;
    return depth;
}

/* Of drafters that take time: how deep a guess pays, or a try, 0 for none. */
static int depth_of(struct policy *p, struct record_of_guesses *r, int deep, int n, int texts, bool *try)
{
    struct guess_time g = time_of(p, n);
    int shy = p->costs == GUESS_BY_PASS ? TRY_DEPTH : TRY_NODES;
    int depth = record_pays(r) ? width_depth(&p->cost, r, n, deep, g) : 0;
    if (depth > 0) return affordable(p, r, depth, n, texts);
    if (!width_can_pay(&p->cost, n, deep, g)) return 0;
    while (shy < deep && shy <= risk(p, shy, shy, n, texts)) shy++;         /* so deep that it could pay */
    if (deep > shy) deep = shy;
    *try = affordable(p, r, deep, n, texts) == deep && try_now(p, r);
    return *try ? deep : 0;
}

/* `share` is the room of one text, `texts` are all that the step serves. */
static void limit(struct policy *p, struct draft *d, int n, int texts, int share)
{
    d->seconds = d->price = 0;
    d->block = d->foreseen ? d->foreseen : p->block;
    d->declined = false;
    if (d->copied) d->most = d->tree.n - 1;
    if (d->copied) return;
    if (d->depth > d->block - 1) d->depth = d->block - 1;
    d->most = d->fixed ? d->fixed : p->most;
    if (d->fixed && d->most > share) d->most = share;
    if (p->chain && d->most > d->depth) d->most = d->depth;
    if (d->depth <= 0) d->most = 0;
    if (d->most <= 0 || d->fixed || !p->costs || d->foreseen) return;       /* it is paid for */
    int deep = d->depth < d->most ? d->depth : d->most;
    bool try = false;
    int depth = depth_of(p, &p->slot[d->slot], deep, n, texts, &try);
    if (try || depth == 0) d->most = depth;
    d->declined = depth == 0;
    d->depth = depth;
    if (p->costs == GUESS_BY_PASS) d->block = depth + 1;        /* no more places than will be looked at */
}

void policy_limit(struct policy *p, struct draft *const *drafts, int n, int base_rows, int room)
{
    for (int i = 0; i < n; i++) limit(p, drafts[i], n, n + base_rows, room / n);
}

/* What the step may lose is not there for the guess any more. Behind a copy the next step may go on copying. */
int policy_foresee(struct policy *p, const struct draft *now, int depth, int n, int texts)
{
    struct record_of_guesses *r = &p->slot[now->slot];
    int most = now->fixed ? now->fixed : p->most, room = (NARROW_ROWS - texts) / n;
    double credit = r->credit;
    if (depth > p->block - 1) depth = p->block - 1;
    if (depth > most) depth = most;
    if (depth <= 0 || room <= 0 || now->copied) return 0;
    if (now->fixed) return p->block;
    if (now->price > 1) r->credit -= now->price - 1;
    depth = record_pays(r) ? width_depth(&p->cost, r, n, depth, time_of(p, n)) : 0;
    depth = affordable(p, r, depth, n, texts);
    r->credit = credit;
    return depth > 0 ? depth + 1 : 0;
}

double policy_block_time(const struct policy *p, int block)
{
    return p->unit.pass + p->unit.depth * (block - 1);
}

/* Seconds of the guess at one text, as it should be. */
static double expected_time(const struct policy *p, const struct draft *d, int deepest, int k)
{
    if (p->costs == GUESS_BY_PASS) return policy_block_time(p, d->block);
    return p->unit.depth * deepest / k;
}

void policy_guessed(struct policy *p, struct draft *const *drafts, int k, double took)
{
    int deepest = 0;
    double expected = 0;
    for (int i = 0; i < k; i++) {
        int deep = tree_deepest(&drafts[i]->tree);
        drafts[i]->seconds = took;
        deepest = deep > deepest ? deep : deepest;
    }
    if (deepest == 0) return;
    for (int i = 0; i < k; i++) expected += expected_time(p, drafts[i], deepest, k);
    double ratio = expected > 0 ? took / expected : 1;
    if (ratio > slower) ratio = slower;     /* a prompt was fed, or a pause */
    p->unit.pass *= 1 + rate * (ratio - 1);
    p->unit.depth *= 1 + rate * (ratio - 1);
    for (int i = 0; i < k; i++) drafts[i]->price = expected_time(p, drafts[i], deepest, k);
}

static struct width_of width_of(const struct policy *p, struct draft *d, int texts)
{
    const struct record_of_guesses *r = &p->slot[d->slot];
    return (struct width_of){ .record = d->copied ? &p->copied[d->slot] : r, .tree = &d->tree,
                              .spare = r->credit * cost_of(&p->cost, texts) / texts - d->price,
                              .speed = record_speed(r) };
}

/* Without branches: the path that was added first, which is the best one. */
static void first_path(struct tree *t)
{
    int n = 1;
    while (n < t->n && t->parent[n] == n - 1) n++;
    t->n = n;
}

void policy_copied(struct policy *p, struct draft *const *drafts, int n, int texts)
{
    for (int i = 0; i < n; i++) {
        struct draft *d = drafts[i];
        if (p->chain) first_path(&d->tree);
        d->copied = true;
        d->price = 0;
        struct width_of w = width_of(p, d, texts);
        width_prune(&p->cost, &w, 1, texts - 1, NARROW_ROWS - texts);
        d->copied = d->tree.n > 1;
        if (d->copied) d->foreseen = 0;     /* what it took is lost, and less than the copy gives */
    }
}

/* Decides after the guess what of it is worth checking. */
static void prune(struct policy *p, struct draft *const *drafts, int n, int base_rows, int room)
{
    struct width_of w[STEP_SEQS];
    struct draft *open[STEP_SEQS];
    struct tree tried;
    int k = 0, texts = base_rows + n;
    for (int i = 0; i < n; i++) {
        struct draft *d = drafts[i];
        if (d->fixed || d->tree.n == 1) {
            base_rows += d->tree.n;
            room -= d->tree.n - 1;
        } else {
            open[k] = d;
            w[k++] = width_of(p, d, texts);
        }
    }
    if (k == 0) return;
    for (int i = 0; i < k; i++) tree_prune(&open[i]->tree, open[i]->most + 1);
    tried = open[0]->tree;
    width_prune(&p->cost, w, k, base_rows, room);
    for (int i = 0; i < k; i++) {
        open[i]->declined = open[i]->tree.n == 1;
        room -= open[i]->tree.n - 1;
    }
    struct record_of_guesses *first = &p->slot[open[0]->slot];
    if (!open[0]->declined || room < TRY_NODES || risk(p, 0, TRY_NODES, 1, texts) > first->credit || !try_now(p, first))
        return;
    open[0]->tree = tried;
    open[0]->declined = false;
    tree_prune(&open[0]->tree, TRY_NODES + 1);
}

/* The price of each guess, which holds its own seconds so far: its part of what the check takes beyond a plain step
 * comes to it, as many times as there are texts that wait for it. */
void policy_prune(struct policy *p, struct draft *const *drafts, int n, int base_rows, int room)
{
    int nodes = 0, texts = base_rows + n;
    prune(p, drafts, n, base_rows, room);
    for (int i = 0; i < n; i++) nodes += drafts[i]->tree.n - 1;
    double plain = cost_of(&p->cost, texts), check = cost_of(&p->cost, texts + nodes) - plain;
    for (int i = 0; i < n; i++) {
        struct draft *d = drafts[i];
        if (nodes) d->price += check * (d->tree.n - 1) / nodes;
        d->price = plain > 0 ? 1 + texts * d->price / plain : 0;
    }
}

void policy_observe(struct policy *p, const struct draft *d, int n)
{
    struct record_of_guesses *r = &p->slot[d->slot];
    struct record_of_guesses *both[] = { r, &p->all };
    for (int i = 0; i < 2; i++) {
        if (d->price > 0 && !d->fixed) record_account(both[i], n, d->price);
        if (p->all.credit < 0) p->all.credit = 0;           /* no text pays for what many lost at once */
        if (d->price > 0 && !d->fixed && p->costs && d->seconds > 0) record_paid(both[i], n, d->price);
        if (d->tree.n > 1 && !d->copied) record_observe(both[i], &d->tree, n);
    }
    if (!d->copied || d->tree.n == 1) return;
    record_observe(&p->copied[d->slot], &d->tree, n);
    record_observe(&p->all_copied, &d->tree, n);
}
