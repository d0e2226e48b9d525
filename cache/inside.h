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

enum { MOST_CHECKPOINTS = 32 };
struct checkpoint {
    int     at;                 /* positions that the state has taken in */
    int32_t page;               /* of KV_STATE */
    bool    keep;               /* not replaced by the next one */
};

struct seq {
    struct cache *cache;
    int      slot;
    int      length;            /* positions in pages plus those in `pending` */
    int      origin;            /* rotary position of a row less its place */
    int      wide;              /* positions from the start that wide steps computed */
    int      n_pending;         /* accepted rows that the slot's bank still holds */
    uint8_t  pending[NARROW_ROWS];
    struct checkpoint checkpoint[MOST_CHECKPOINTS];     /* lowest first */
    int      n_checkpoints;
    bool     stale;             /* the slot's state is not the one at the last checkpoint, as it should be */
};

struct cache {
    struct cache_config config;
    struct device_cache *on_device;
    int max_pages;              /* entries of a table */
    struct pages pages[KV_MAX_KINDS];
    struct table table[STEP_SEQS][KV_MAX_KINDS];
    struct seq   seq[STEP_SEQS];
    bool         taken[STEP_SEQS];
    struct pages states;        /* of KV_STATE, after the slots' */
    void        *state;         /* room for one of them, on its way; NULL: no layer is recurrent */
};

/* Positions that pages and states hold. */
static inline int seq_in_pages(const struct seq *s)
{
    return s->length - s->n_pending;
}
/* For seq.c. Forgets checkpoints beyond n; returns where the last one is, 0 without. */
int checkpoints_truncate(struct seq *s, int n);
/* The checkpoints of `from` up to n become this sequence's too; false: none is at n. */
bool checkpoints_share(struct seq *s, const struct seq *from, int n);
/* Brings the slot's state to the last checkpoint where a truncation or sharing asked for it. */
luce_status checkpoint_restore(struct seq *s, luce_error *err);
/* Random numbers for a state (bench). */
luce_status state_fill_random(struct seq *s, uint64_t seed, luce_error *err);

#endif
