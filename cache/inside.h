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

struct seq {
    struct cache *cache;
    int      slot;
    int      length;            /* positions in pages plus those in `pending` */
    int      origin;            /* rotary position of a row less its place */
    int      wide;              /* positions from the start that wide steps computed */
    int      n_pending;         /* accepted rows that the slot's bank still holds */
    uint8_t  pending[NARROW_ROWS];
};

struct cache {
    struct cache_config config;
    struct device_cache *on_device;
    int max_pages;              /* entries of a table */
    struct pages pages[KV_MAX_KINDS];
    struct table table[STEP_SEQS][KV_MAX_KINDS];
    struct seq   seq[STEP_SEQS];
    bool         taken[STEP_SEQS];
};

#endif
