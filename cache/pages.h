/* cache/pages.h - the pages of one layer kind: who holds them, by count. Ids run from `first` (the
 * banks of the slots come before). Threads: as the cache. */
#ifndef LUCE_CACHE_PAGES_H
#define LUCE_CACHE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

struct pages {
    int      first, n;
    int      n_free;
    int      n_cold;            /* kept, and nobody else holds them */
    int32_t *holders;           /* [n] */
    bool    *kept;              /* [n] the prefix tree is one of them */
    int32_t *free;              /* stack of ids, n_free of them */
};

/* False when out of memory. */
bool pages_init(struct pages *p, int first, int n);
void pages_drop(struct pages *p);
/* A page with one holder; there must be a free one. */
int32_t page_claim(struct pages *p);
/* One more holder of a page that has one. */
void page_share(struct pages *p, int32_t page);
/* One holder less; the last one frees the page. */
void page_release(struct pages *p, int32_t page);
bool page_shared(const struct pages *p, int32_t page);
/* The prefix tree becomes a holder, and ceases to be one. */
void page_keep(struct pages *p, int32_t page);
void page_let_go(struct pages *p, int32_t page);
/* The prefix tree alone holds it. */
bool page_cold(const struct pages *p, int32_t page);

#endif
