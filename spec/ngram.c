/* spec/ngram.c - guesses that a text goes on as it did before: finds the earlier places whose last
 * tokens are those of the end (prompt and output alike), the longest match first, and offers what
 * followed there. Places that disagree become branches.
 *
 * Each slot keeps, for two lengths of key, the last place of each key (by hash) and a list from every
 * place to the one before with the same hash. A token is entered once, when it is first seen; a text
 * that is not the one that was entered is entered afresh. */
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "spec/drafter.h"

enum {
    KEYS = 2,
    LONG_KEY = 6, SHORT_KEY = 2,    /* tokens that a place must share with the end */
    MOST_PLACES = 8,                /* that are offered, of at most */
    MOST_LOOKS = 64,                /* that are looked at */
    MOST_MATCH = 32,                /* a longer match says no more */
};
static const int key_length[KEYS] = { LONG_KEY, SHORT_KEY };

struct index {                      /* of one slot; all NULL until its first use */
    int32_t *ids;                   /* [cap] entered tokens */
    int32_t *last[KEYS];            /* [n_last] place after the key, by hash; 0: none */
    int32_t *before[KEYS];          /* [cap] the place before with the same hash */
    int n;
};

struct drafter_state {
    int cap, n_last, n_slots;
    struct index *slot;
};

static void close_ngram(struct drafter_state *s)
{
    if (!s) return;
    for (int i = 0; s->slot && i < s->n_slots; i++) {
        mem_free(s->slot[i].ids);
        for (int k = 0; k < KEYS; k++) {
            mem_free(s->slot[i].last[k]);
            mem_free(s->slot[i].before[k]);
        }
    }
    mem_free(s->slot);
    mem_free(s);
}

static luce_status open_ngram(struct drafter_state **out, const struct drafter_env *env, luce_error *err)
{
    *out = NULL;
    struct cache *cache = runner_cache(env->target);
    struct drafter_state *s = mem_zero(sizeof *s);
    if (s) {
        s->cap = cache_max_positions(cache) + 1;
        s->n_slots = cache_slots(cache);
        for (s->n_last = 64; s->n_last < s->cap; s->n_last *= 2) continue;
        s->slot = mem_array((size_t)s->n_slots, sizeof *s->slot);
    }
    if (!s || !s->slot) {
        close_ngram(s);
        return fail(err, LUCE_E_NOMEM, "out of memory for the drafter 'ngram'");
    }
    *out = s;
    return LUCE_OK;
}

static luce_status make_room(const struct drafter_state *s, struct index *x, luce_error *err)
{
    if (!x->ids) x->ids = mem_array((size_t)s->cap, sizeof *x->ids);
    bool good = x->ids;
    for (int k = 0; k < KEYS; k++) {
        if (!x->last[k]) x->last[k] = mem_array((size_t)s->n_last, sizeof **x->last);
        if (!x->before[k]) x->before[k] = mem_array((size_t)s->cap, sizeof **x->before);
        good = good && x->last[k] && x->before[k];
    }
    return good ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory to look up a text of %d tokens", s->cap);
}

static size_t hash_key(const struct drafter_state *s, const int32_t *end, int n)
{
    return (size_t)hash_bytes(end - n, (size_t)n * sizeof *end, 0) & (size_t)(s->n_last - 1);
}

/* Enters the places up to, and not including, the end: the end is what is looked up. */
static void enter(const struct drafter_state *s, struct index *x, const int32_t *ids, int n)
{
    int same = 0;
    while (same < x->n && same < n && ids[same] == x->ids[same]) same++;
    if (same < x->n) {
        for (int k = 0; k < KEYS; k++) memset(x->last[k], 0, (size_t)s->n_last * sizeof **x->last);
        x->n = 0;
    }
    for (; x->n < n; x->n++) {
        for (int k = 0; k < KEYS; k++) {
            if (x->n < key_length[k]) continue;
            int32_t *last = &x->last[k][hash_key(s, ids + x->n, key_length[k])];
            x->before[k][x->n] = *last;
            *last = x->n;
        }
        x->ids[x->n] = ids[x->n];
    }
}

struct place {
    int at, match;                  /* what followed begins there; tokens before it that agree */
};

static int match_length(const int32_t *ids, int at, int n)
{
    int length = 0;
    while (length < at && length < MOST_MATCH && ids[at - 1 - length] == ids[n - 1 - length]) length++;
    return length;
}

/* The best places, longest match first, later ones before earlier ones. */
static int find_places(const struct drafter_state *s, const struct index *x, const struct draft *d,
                       struct place *best)
{
    int found = 0;
    for (int k = 0; k < KEYS && found == 0; k++) {
        if (d->n_ids < key_length[k]) continue;
        int at = x->last[k][hash_key(s, d->ids + d->n_ids, key_length[k])];
        for (int looks = 0; at > 0 && looks < MOST_LOOKS; looks++, at = x->before[k][at]) {
            struct place p = { at, match_length(d->ids, at, d->n_ids) };
            if (p.match < key_length[k]) continue;      /* another key with the same hash */
            int i = found < MOST_PLACES ? found++ : MOST_PLACES;
            for (; i > 0 && p.match > best[i - 1].match; i--)
                if (i < MOST_PLACES) best[i] = best[i - 1];
            if (i < MOST_PLACES) best[i] = p;
        }
    }
    return found;
}

/* What followed at the place; past the end of the text it follows itself, as in a period. */
static void add_path(struct draft *d, const struct place *p, float share)
{
    int32_t path[NARROW_ROWS];
    float likely = share, again = (float)p->match / (float)(p->match + 1);
    for (int i = 0, node = 0; i < d->depth && node >= 0; i++) {
        int from = p->at + i;
        path[i] = from < d->n_ids ? d->ids[from] : path[from - d->n_ids];
        likely *= again;
        node = tree_add(&d->tree, node, path[i], likely);
    }
}

static luce_status propose(struct drafter_state *s, struct draft *const *drafts, int n, luce_error *err)
{
    for (int i = 0; i < n; i++) {
        struct draft *d = drafts[i];
        struct index *x = &s->slot[d->slot];
        struct place place[MOST_PLACES];
        luce_status st = make_room(s, x, err);
        if (st) return st;
        enter(s, x, d->ids, d->n_ids);
        int found = find_places(s, x, d, place);
        float sum = 0;
        for (int p = 0; p < found; p++) sum += (float)(place[p].match * place[p].match);
        for (int p = 0; p < found; p++) add_path(d, &place[p], (float)(place[p].match * place[p].match) / sum);
        tree_prune(&d->tree, d->most + 1);
    }
    return LUCE_OK;
}

const struct drafter drafter_ngram = {
    .name = "ngram", .doc = "what followed when the last tokens stood in the text before",
    .most = 15, .block = 16, .open = open_ngram, .propose = propose, .close = close_ngram,
};
