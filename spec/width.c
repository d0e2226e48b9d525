/* spec/width.c - see width.h. */
#include "spec/width.h"

enum { FIRST_PAUSE = 16, LONGEST_PAUSE = 64, FEW_GUESSES = 8, LONG_MEMORY = 300, SHORT_MEMORY = 25 };
static const double rate = 0.1;             /* weight of the newest guess at a depth, ... */
static const double slow_rate = 0.04;       /* ... and of what steps give, of which one says little */
static const double prior = 0.7;            /* a guessed token comes true, before anything is known */
static const double hope = 1.4;             /* what guesses that take time give for what they cost, likewise */
static const double most_correction = 1.5;
/* Sizes must promise so much more than plain decoding: what cannot be measured well is left. */
static const double least_gain = 1.03;
/* Plain steps that guesses may lose: of the first text, of later ones at the least, and for each step more;
 * what is kept of gains. */
static const double first_credit = 4, least_credit = 1, more_credit = 0.01, most_credit = 8;

void record_init(struct record_of_guesses *r)
{
    double reach = 1;
    for (int d = 0; d < NARROW_ROWS; d++) {
        r->expected[d] = r->accepted[d] = reach;
        reach *= prior;
    }
    r->tokens = r->price = 0;
    r->got = r->spent = 1;
    r->guesses = r->quiet = 0;
    r->pause = FIRST_PAUSE;
    r->memory = LONG_MEMORY;
    r->credit = first_credit;
}

void record_begin(struct record_of_guesses *r, const struct record_of_guesses *all)
{
    *r = *all;
    r->memory = SHORT_MEMORY;
    if (r->credit < least_credit) r->credit = least_credit;
    if (r->guesses > FEW_GUESSES) r->guesses = FEW_GUESSES;
}

void record_account(struct record_of_guesses *r, int tokens, double price)
{
    r->credit += tokens - price + more_credit;
    if (r->credit > most_credit) r->credit = most_credit;
    r->got += slow_rate * (tokens - r->got);
    r->spent += slow_rate * (price - r->spent);
}

double record_speed(const struct record_of_guesses *r)
{
    return r->got > r->spent ? r->got / r->spent : 1;
}

void record_paid(struct record_of_guesses *r, int tokens, double price)
{
    if (r->guesses == 0) {
        r->guesses = FEW_GUESSES;
        r->tokens = hope * price;
        r->price = price;
    }
    if (r->guesses < r->memory) r->guesses++;
    r->tokens += (tokens - r->tokens) / r->guesses;
    r->price += (price - r->price) / r->guesses;
    if (tokens > least_gain * price) r->quiet = r->pause;       /* after a try: another one at once */
    if (record_pays(r)) r->pause = FIRST_PAUSE;
}

bool record_pays(const struct record_of_guesses *r)
{
    return r->guesses == 0 || r->tokens > least_gain * r->price;
}

void record_observe(struct record_of_guesses *r, const struct tree *t, int n)
{
    double expected[NARROW_ROWS] = { 0 };
    int deepest = tree_deepest(t);
    for (int i = 1; i < t->n; i++) expected[t->depth[i]] += (double)t->likely[i];
    for (int d = 1; d <= deepest; d++) {
        r->expected[d] += rate * (expected[d] - r->expected[d]);
        r->accepted[d] += rate * ((n > d) - r->accepted[d]);
    }
    /* All of it came true: what lies deeper was not asked, and is taken to be no worse. */
    for (int d = deepest + 1; n > deepest && d < NARROW_ROWS; d++) {
        double likewise = r->expected[d] * r->accepted[deepest] / r->expected[deepest];
        if (likewise > r->accepted[d]) r->accepted[d] += rate / (d - deepest) * (likewise - r->accepted[d]);
    }
    if (n > 1 && record_pays(r)) r->pause = FIRST_PAUSE;
}

double record_likely(const struct record_of_guesses *r, const struct tree *t, int node)
{
    int d = t->depth[node];
    double by = r->expected[d] > 1e-6 ? r->accepted[d] / r->expected[d] : 1;
    double likely = (double)t->likely[node] * (by < most_correction ? by : most_correction);
    return likely < 1 ? likely : 1;
}

bool record_try(struct record_of_guesses *r)
{
    if (++r->quiet < r->pause) return false;
    r->quiet = 0;
    if (r->pause < LONGEST_PAUSE) r->pause *= 2;        /* an accepted guess shortens it again */
    return true;
}

/* The text whose next node, in its order of likelihood, is the likeliest of all. Corrections differ by
 * depth, so a node counts only once its parent is taken. */
struct candidate {
    int text, node;
    double likely;
};

static struct candidate next_node(const struct width_of *w, int n, const uint64_t *taken, const bool *full)
{
    struct candidate best = { -1, 0, 0 };
    for (int k = 0; k < n; k++) {
        const struct tree *t = w[k].tree;
        if (full[k]) continue;
        for (int i = 1; i < t->n; i++) {
            if (taken[k] >> i & 1 || !(taken[k] >> t->parent[i] & 1)) continue;
            double likely = record_likely(w[k].record, t, i);
            if (best.text < 0 || likely > best.likely) best = (struct candidate){ k, i, likely };
        }
    }
    return best;
}

/* Keeps the nodes of the mask, which is closed towards the root. */
static void keep(struct tree *t, uint64_t mask)
{
    for (int i = 1; i < t->n; i++) t->likely[i] += (float)(mask >> i & 1) * 2;
    int n = 0;
    for (int i = 0; i < t->n; i++) n += (int)(mask >> i & 1);
    tree_prune(t, n);
    for (int i = 1; i < t->n; i++) t->likely[i] -= 2;
}

void width_prune(const struct cost *c, const struct width_of *w, int n, int base_rows, int room)
{
    uint64_t taken[STEP_SEQS], best[STEP_SEQS];
    int own[STEP_SEQS] = { 0 };         /* nodes of each text */
    bool full[STEP_SEQS] = { false };
    double plain = cost_of(c, base_rows + n), speed = base_rows, gain = 0, most = 0;
    for (int k = 0; k < n; k++) {
        taken[k] = best[k] = 1;
        speed += w[k].speed;
    }
    for (int nodes = 1; nodes <= room && plain > 0;) {
        struct candidate next = next_node(w, n, taken, full);
        if (next.text < 0) break;
        double takes = cost_of(c, base_rows + n + nodes) - plain;
        full[next.text] = takes * (own[next.text] + 1) / nodes > w[next.text].spare;
        if (full[next.text]) continue;
        taken[next.text] |= UINT64_C(1) << next.node;
        own[next.text]++;
        nodes++;
        gain += next.likely;
        double more = gain - speed * ((takes / plain + 1) * least_gain - 1);
        if (more <= most) continue;
        most = more;
        for (int k = 0; k < n; k++) best[k] = taken[k];
    }
    for (int k = 0; k < n; k++) keep(w[k].tree, best[k]);
}

/* accepted [depth]: how often a guess is right that deep; NULL: always. */
static int best_depth(const struct cost *c, const double *accepted, int n, int most, struct guess_time g)
{
    double plain = cost_of(c, n), tokens = 1;
    if (!(plain > 0)) return most;
    double gain = least_gain / plain;
    int best = 0;
    for (int d = 1; d <= most && n * (d + 1) <= NARROW_ROWS; d++) {
        tokens += accepted ? accepted[d] : 1;
        double speed = tokens / (cost_of(c, n * (d + 1)) + g.pass + d * g.depth);
        if (speed > gain) gain = speed, best = d;
    }
    return best;
}

int width_depth(const struct cost *c, const struct record_of_guesses *r, int n, int most, struct guess_time g)
{
    return best_depth(c, r->accepted, n, most, g);
}

bool width_can_pay(const struct cost *c, int n, int most, struct guess_time g)
{
    return best_depth(c, NULL, n, most, g) > 0;
}
