/* spec/speculate.c - see speculate.h. */
#include "spec/speculate.h"

#include "base/clock.h"
#include "base/mem.h"
#include "spec/policy.h"

enum { TIMED_DEPTH = 3 };

struct speculator {
    const struct drafter *drafter;
    struct drafter_state *state;
    struct drafter_state *copier;   /* of a drafter that takes time: what stood in the text before costs nothing */
    int copied;                     /* the most tokens of a copy, and how far it reaches */
    double margin;
    bool ahead;                     /* the device takes steps that depend on others */
    double foreseen;                /* seconds that the guesses behind the step under way should take */
    double ratio;                   /* what those of the step before have taken, over what they should have */
    struct policy policy;
};

void speculator_close(struct speculator *s)
{
    if (!s) return;
    if (s->drafter) s->drafter->close(s->state);
    drafter_ngram.close(s->copier);
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
    struct guess_time *unit = &s->policy.unit;
    int depth = pass ? s->policy.block - 1 : TIMED_DEPTH;
    double whole = 0, least = 0;
    luce_status st = time_guess(s, depth, &whole, err);
    if (!st && pass && depth > 1) st = time_guess(s, 1, &least, err);
    unit->depth = pass && depth > 1 ? (whole - least) / (depth - 1) : pass ? 0 : whole / depth;
    if (unit->depth < 0) unit->depth = 0;
    unit->pass = pass ? whole - depth * unit->depth : 0;
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
    s->margin = p->margin;
    s->ahead = runner_device(target)->ahead;
    s->policy.costs = d->costs;
    s->policy.most = p->most ? p->most : d->most;
    s->policy.block = p->block ? p->block : d->block ? d->block : d->block_of(state);
    s->policy.chain = p->chain;
    policy_init(&s->policy);
    int rows = (s->policy.most + 1) * cache_slots(runner_cache(target));
    st = cost_measure(&s->policy.cost, target, rows < NARROW_ROWS ? rows : NARROW_ROWS, err);
    if (!st && d->costs) st = time_drafter(s, err);
    if (!st && d->costs) st = drafter_ngram.open(&s->copier, &env, err);
    s->copied = drafter_ngram.most < s->policy.most ? drafter_ngram.most : s->policy.most;
    if (p->block && s->copied > p->block - 1) s->copied = p->block - 1;
    if (st) speculator_close(s);
    else *out = s;
    return st;
}

void speculator_begin(struct speculator *s, int slot)
{
    if (s) policy_begin(&s->policy, slot);
}

/* What stood in the text before, where that promises more than the text has as a rule. */
static luce_status copy(struct speculator *s, struct draft *const *drafts, int n, int texts, luce_error *err)
{
    struct draft *wanted[STEP_SEQS];
    int k = 0, depth[STEP_SEQS];
    for (int i = 0; i < n && s->copier; i++) {
        struct draft *d = drafts[i];
        if (d->fixed || d->depth <= 0) continue;
        depth[k] = d->depth;
        d->most = s->copied;
        d->depth = d->depth < s->copied ? d->depth : s->copied;
        wanted[k++] = d;
    }
    if (k == 0) return LUCE_OK;
    luce_status st = drafter_ngram.propose(s->copier, wanted, k, err);
    if (!st) policy_copied(&s->policy, wanted, k, texts);
    for (int i = 0; i < k; i++) wanted[i]->depth = depth[i];
    return st;
}

/* Those that were foreseen come first. */
static luce_status guess(struct speculator *s, struct draft *const *drafts, int n, luce_error *err)
{
    struct draft *wanted[STEP_SEQS];
    int k = 0, first = 0;
    double took = 0;
    for (int i = 0; i < n; i++)
        if (drafts[i]->most > 0 && drafts[i]->foreseen) {
            took += s->ratio * policy_block_time(&s->policy, drafts[i]->block);
            wanted[k++] = drafts[i];
        }
    first = k;
    for (int i = 0; i < n; i++)
        if (drafts[i]->most > 0 && !drafts[i]->foreseen && !drafts[i]->copied) wanted[k++] = drafts[i];
    if (k == 0) return LUCE_OK;
    double start = clock_seconds();
    luce_status st = s->drafter->propose(s->state, wanted, k, err);
    double now = clock_seconds() - start;
    if (first) policy_guessed(&s->policy, wanted, first, k > first ? took : took + now);
    if (k > first) policy_guessed(&s->policy, wanted + first, k - first, now);
    return st;
}

luce_status speculator_draft(struct speculator *s, struct draft *const *drafts, int n, int base_rows, int room,
                             luce_error *err)
{
    if (n == 0) return LUCE_OK;
    for (int i = 0; i < n; i++) {
        drafts[i]->margin = s->margin;
        if (s->drafter->foreseen)
            drafts[i]->foreseen = s->drafter->foreseen(s->state, drafts[i]->slot, drafts[i]->n_ids);
        tree_init(&drafts[i]->tree, drafts[i]->ids[drafts[i]->n_ids - 1]);
    }
    luce_status st = copy(s, drafts, n, n + base_rows, err);
    if (st) return st;
    policy_limit(&s->policy, drafts, n, base_rows, room);
    st = guess(s, drafts, n, err);
    if (!st) policy_prune(&s->policy, drafts, n, base_rows, room);
    return st;
}

bool speculator_foresees(const struct speculator *s)
{
    return s && s->drafter->foresee && s->ahead;
}

luce_status speculator_foresee(struct speculator *s, struct foresight *of, struct draft *const *now, int n, int texts,
                               luce_error *err)
{
    int k = 0;
    for (int i = 0; i < n; i++) {
        int block = policy_foresee(&s->policy, now[i], of[i].depth, n, texts);
        if (block == 0) continue;
        of[k] = of[i];
        of[k++].block = block;
    }
    luce_status st = k ? s->drafter->foresee(s->state, of, k, err) : LUCE_OK;
    for (int i = 0; i < k; i++)
        if (of[i].block) s->foreseen += policy_block_time(&s->policy, of[i].block);
    return st;
}

double speculator_part(struct speculator *s, int n, double took)
{
    if (!s) return 0;
    double guess = s->foreseen;
    s->foreseen = 0;
    if (!(guess > 0)) return 0;
    double step = cost_of(&s->policy.cost, n);
    s->ratio = step > 0 ? took / (step + guess) : 1;
    return s->ratio * guess < took ? s->ratio * guess : took;
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
    policy_observe(&s->policy, d, n);
}

void speculator_time(struct speculator *s, int n, double seconds)
{
    cost_observe(&s->policy.cost, n, seconds);
}
