/* cache/pages.c - see pages.h. */
#include "cache/pages.h"

#include <assert.h>

#include "base/mem.h"

bool pages_init(struct pages *p, int first, int n)
{
    *p = (struct pages){ .first = first, .n = n, .n_free = n };
    if (n == 0) return true;
    p->holders = mem_array((size_t)n, sizeof *p->holders);
    p->free = mem_array((size_t)n, sizeof *p->free);
    p->kept = mem_array((size_t)n, sizeof *p->kept);
    if (!p->holders || !p->free || !p->kept) return false;
    for (int i = 0; i < n; i++) p->free[i] = first + n - 1 - i;     /* the lowest id is on top */
    return true;
}

void pages_drop(struct pages *p)
{
    mem_free(p->holders);
    mem_free(p->free);
    mem_free(p->kept);
    *p = (struct pages){ 0 };
}

static int32_t *holders(const struct pages *p, int32_t page)
{
    assert(page >= p->first && page < p->first + p->n);
    return &p->holders[page - p->first];
}

int32_t page_claim(struct pages *p)
{
    assert(p->n_free > 0);
    int32_t page = p->free[--p->n_free];
    *holders(p, page) = 1;
    return page;
}

void page_share(struct pages *p, int32_t page)
{
    assert(*holders(p, page) > 0);
    p->n_cold -= page_cold(p, page);
    ++*holders(p, page);
}

void page_release(struct pages *p, int32_t page)
{
    assert(*holders(p, page) > 0);
    if (--*holders(p, page) == 0) p->free[p->n_free++] = page;
    else p->n_cold += page_cold(p, page);
}

bool page_shared(const struct pages *p, int32_t page)
{
    return *holders(p, page) > 1;
}

bool page_cold(const struct pages *p, int32_t page)
{
    return p->kept[page - p->first] && *holders(p, page) == 1;
}

void page_keep(struct pages *p, int32_t page)
{
    page_share(p, page);
    p->kept[page - p->first] = true;
}

void page_let_go(struct pages *p, int32_t page)
{
    p->n_cold -= page_cold(p, page);
    p->kept[page - p->first] = false;
    page_release(p, page);
}
