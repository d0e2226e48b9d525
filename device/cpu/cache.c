/* device/cpu/cache.c - page pools and page tables in host memory. */
#include <string.h>

#include "base/mem.h"
#include "device/cpu/cpu.h"

enum { POOL_ALIGN = 4096 };

/* The pools of recurrent layers; false when out of memory. */
static bool open_states(struct device_cache *c, const struct cache_params *p)
{
    if (!kv_recurrent(p->layout)) return true;
    c->n_pages[KV_STATE] = p->n_pages[KV_STATE];
    c->n_pages[KV_JOURNAL] = p->n_slots;
    for (int k = KV_STATE; k <= KV_JOURNAL; k++) {
        size_t bytes;
        if (__builtin_mul_overflow((size_t)c->n_pages[k], (size_t)p->layout->kind[k].page_bytes, &bytes)) return false;
        c->pool[k] = mem_aligned(bytes, POOL_ALIGN);
        if (!c->pool[k]) return false;
    }
    return true;
}

luce_status cpu_cache_open(struct device *d, struct device_cache **out, const struct cache_params *p,
                           luce_error *err)
{
    (void)d;
    *out = NULL;
    struct device_cache *c = mem_zero(sizeof *c);
    if (!c) return fail(err, LUCE_E_NOMEM, "out of memory for the cache");
    c->layout = p->layout;
    c->n_slots = p->n_slots;
    for (int k = 0; k < p->layout->n_kinds; k++) {
        c->n_pages[k] = p->n_pages[k];
        c->max_pages[k] = p->max_pages[k];
        size_t pool, entries;
        if (p->n_pages[k] < p->n_slots || p->max_pages[k] < 1 ||
            __builtin_mul_overflow((size_t)p->n_pages[k], (size_t)p->layout->kind[k].page_bytes, &pool) ||
            __builtin_mul_overflow((size_t)p->n_slots, (size_t)p->max_pages[k], &entries)) {
            cpu_cache_close(d, c);
            return fail(err, LUCE_E_ARG, "cache: kind %d: %d pages and tables of %d for %d slots", k,
                        p->n_pages[k], p->max_pages[k], p->n_slots);
        }
        c->pool[k] = mem_aligned(pool, POOL_ALIGN);
        c->table[k] = mem_array(entries, sizeof *c->table[k]);
        if (!c->pool[k] || !c->table[k]) {
            cpu_cache_close(d, c);
            return fail(err, LUCE_E_NOMEM, "out of memory for %d cache pages of %zu bytes", p->n_pages[k],
                        (size_t)p->layout->kind[k].page_bytes);
        }
        memset(c->table[k], 0xff, entries * sizeof *c->table[k]);
    }
    if (!open_states(c, p)) {
        cpu_cache_close(d, c);
        return fail(err, LUCE_E_NOMEM, "out of memory for %d recurrent states of %zu bytes", p->n_pages[KV_STATE],
                    (size_t)p->layout->kind[KV_STATE].page_bytes);
    }
    *out = c;
    return LUCE_OK;
}

void cpu_cache_close(struct device *d, struct device_cache *c)
{
    (void)d;
    if (!c) return;
    for (int k = 0; k < KV_POOLS; k++) mem_free(c->pool[k]);
    for (int k = 0; k < KV_MAX_KINDS; k++) mem_free(c->table[k]);
    for (struct shared_block *b = c->blocks, *next; b; b = next) {
        next = b->next;
        mem_free(b->at);
        mem_free(b);
    }
    mem_free(c);
}

static luce_status find_page(const struct device_cache *c, int kind, int page, uint8_t **at, luce_error *err)
{
    if (kind < 0 || kind >= KV_POOLS || page < 0 || page >= c->n_pages[kind])
        return fail(err, LUCE_E_ARG, "cache: there is no page %d of kind %d", page, kind);
    *at = c->pool[kind] + (uint64_t)page * c->layout->kind[kind].page_bytes;
    return LUCE_OK;
}

luce_status cpu_page_read(struct device *d, struct device_cache *c, int kind, int page, void *host,
                          luce_error *err)
{
    (void)d;
    uint8_t *at = NULL;
    luce_status st = find_page(c, kind, page, &at, err);
    if (!st) memcpy(host, at, c->layout->kind[kind].page_bytes);
    return st;
}

luce_status cpu_page_write(struct device *d, struct device_cache *c, int kind, int page, const void *host,
                           luce_error *err)
{
    (void)d;
    uint8_t *at = NULL;
    luce_status st = find_page(c, kind, page, &at, err);
    if (!st) memcpy(at, host, c->layout->kind[kind].page_bytes);
    return st;
}

luce_status cpu_page_copy(struct device *d, struct device_cache *c, int kind, int from, int to, luce_error *err)
{
    uint8_t *at = NULL;
    luce_status st = find_page(c, kind, from, &at, err);
    return st ? st : cpu_page_write(d, c, kind, to, at, err);
}

luce_status cache_edit(struct device_cache *c, const struct step *s, luce_error *err)
{
    for (int i = 0; i < s->head.n_edits; i++) {
        const struct step_edit *e = &s->edit[i];
        if (e->kind < 0 || e->kind >= c->layout->n_kinds || e->slot < 0 || e->slot >= c->n_slots || e->at < 0 ||
            e->at >= c->max_pages[e->kind] || e->page < -1 || e->page >= c->n_pages[e->kind])
            return fail(err, LUCE_E_ARG, "step: edit %d names entry %d of slot %d of kind %d, page %d", i, e->at,
                        e->slot, e->kind, e->page);
        c->table[e->kind][(size_t)e->slot * (size_t)c->max_pages[e->kind] + (size_t)e->at] = e->page;
    }
    return LUCE_OK;
}
