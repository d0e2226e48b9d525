/* cache/inside.h - the structures that the files of cache/ share. */
#ifndef LUCE_CACHE_INSIDE_H
#define LUCE_CACHE_INSIDE_H

#include "cache/cache.h"
#include "cache/pages.h"

struct table {                  /* pages of one slot in one kind */
    int32_t *page;              /* [max_pages]; -1: none */
    int      first, n;          /* entries held are [first, n); first > 0 only with a window */
    int      dirty_from, dirty_to;      /* entries that the device does not know yet */
};

struct node {                   /* of the prefix tree: a page's worth of tokens behind those of `parent` */
    int32_t  token[PAGE];
    int32_t  page[KV_MAX_KINDS];        /* -1: not kept; only with a window */
    int32_t  state;             /* the recurrent state behind them, a page of KV_STATE; -1: none */
    int32_t  parent;            /* -1: the text begins here */
    int32_t  chain;             /* the next of the same hash, or the next free one */
    int32_t  older, newer;      /* in the order of use */
    uint64_t used;              /* the clock at that time */
    int      depth;             /* nodes of the text up to this one */
    int      n_children, users; /* users: sequences whose last full page this is */
    int      next;              /* scratch of prefix_evict_state */
    bool     end;               /* a text ended or was left here: the state stays */
    bool     seen;              /* from such a place, by a window */
};

struct prefix {
    struct node *node;          /* [n] */
    int32_t *bucket;            /* [n_buckets] */
    int      n, n_buckets;
    int32_t  free, oldest, newest;
    uint64_t clock;             /* claims */
    uint64_t evicted;           /* pages and states */
};

struct seq {
    struct cache *cache;
    int      slot;
    int32_t  node;              /* of its last full page that the tree has; -1: none */
    bool     forget;            /* its pages do not enter the tree */
    int      found;             /* nodes of its path that others made */
    int      prompt_end;        /* a checkpoint is to stay there: the next turn may change what follows */
    int      branch, wanted;    /* a checkpoint is wanted there: it left a known text; others will claim it */
    int      length;            /* positions in pages plus those in `pending` */
    int      origin;            /* rotary position of a row less its place */
    int      wide;              /* positions from the start that wide steps computed */
    int      n_pending;         /* accepted rows that the slot's bank still holds */
    uint8_t  pending[NARROW_ROWS];
    int32_t  row[NARROW_ROWS];  /* tokens of the narrow step before */
    int32_t  newest;            /* the node whose state the next checkpoint replaces; -1: none */
    bool     stale;             /* the slot's state is not the one behind the sequence's positions, */
    int32_t  restore;           /* but this page is, which is held until it is copied; -1: at the start */
};

struct cache {
    struct cache_config config;
    struct device_cache *on_device;
    int max_pages;              /* entries of a table */
    struct pages pages[KV_MAX_KINDS];
    struct table table[STEP_SEQS][KV_MAX_KINDS];
    struct seq   seq[STEP_SEQS];
    int32_t     *ids[STEP_SEQS];        /* [max_positions] the text of each slot's sequence */
    struct prefix prefix;
    bool         taken[STEP_SEQS];
    struct pages states;        /* of KV_STATE, after the slots' */
};

/* Positions that pages and states hold. */
static inline int seq_in_pages(const struct seq *s)
{
    return s->length - s->n_pending;
}
/* The first page that a row at `position` sees. */
int cache_first_seen(const struct cache *c, int kind, int position);

/* ---- seq.c, for prefix.c ---- */
/* The page of a kind that holds the sequence's page number `at`; -1: none. */
int32_t seq_page(const struct seq *s, int kind, int at);
/* Takes another page of the same content for it. */
void seq_replace_page(struct seq *s, int kind, int at, int32_t page);
/* The sequence holds the first n positions of this text, as the path to its node has them. */
void seq_adopt(struct seq *s, const int32_t *ids, int n);

/* ---- prefix.c ---- */
/* False when out of memory. */
bool prefix_init(struct prefix *p, int n);
void prefix_drop(struct prefix *p);
/* Gives up a page of the kind, or a node with one; false: there are no more. */
bool prefix_evict(struct cache *c, int kind);
bool prefix_evict_state(struct cache *c);
/* Evicts down to what may be kept. */
void prefix_trim(struct cache *c);
/* Full pages of the sequence that the tree has. */
int prefix_depth(const struct seq *s);
/* Full pages go into the tree, as far as their rows are what any other text would have computed. */
void prefix_enter(struct seq *s);
/* The sequence ends after `depth` pages at most. */
void prefix_leave(struct seq *s, int depth);

/* ---- recurrent.c, for seq.c ---- */
/* The sequence goes back to the last checkpoint of its path; returns where that is, 0 without. */
int checkpoint_back(struct seq *s);
/* Brings the slot's state to where it should be. */
luce_status checkpoint_restore(struct seq *s, luce_error *err);
void checkpoint_forget(struct seq *s);          /* nothing is to be restored any more */
/* Random numbers for a state (bench). */
luce_status state_fill_random(struct seq *s, uint64_t seed, luce_error *err);

#endif
