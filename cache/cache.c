/* cache/cache.c - the pools, slots and page tables of one device; see cache.h. */
#include <inttypes.h>

#include "base/mem.h"
#include "cache/inside.h"

/* Pages that a sequence can need at once in this kind. With a window, a step's rows see window - 1
 * positions before the first of them, and up to a bank of accepted rows is still to be moved. */
static int64_t most_pages(const struct cache_config *c, int kind)
{
    int64_t all = ((int64_t)c->max_positions + PAGE - 1) / PAGE;
    int window = c->layout->kind[kind].window;
    if (window == 0) return all;
    int64_t before = window > NARROW_ROWS ? window : NARROW_ROWS;
    int64_t rows = c->step_rows > NARROW_ROWS ? c->step_rows : NARROW_ROWS;
    int64_t some = (before + rows) / PAGE + 2;      /* neither end is aligned to a page */
    return some < all ? some : all;
}

static int64_t pool_pages(const struct cache_config *c, int kind)
{
    if (c->layout->kind[kind].window) return most_pages(c, kind) * c->n_slots;
    return (c->total_positions + PAGE - 1) / PAGE;
}

/* States beside those of the slots. */
static int n_checkpoints(const struct cache_config *c)
{
    return kv_recurrent(c->layout) ? CHECKPOINTS * c->n_slots : 0;
}

uint64_t cache_bytes(const struct cache_config *c)
{
    uint64_t bytes = (uint64_t)(c->n_slots + n_checkpoints(c)) * c->layout->kind[KV_STATE].page_bytes +
                     (uint64_t)c->n_slots * c->layout->kind[KV_JOURNAL].page_bytes;
    for (int k = 0; k < c->layout->n_kinds; k++)
        bytes += (uint64_t)(pool_pages(c, k) + c->n_slots) * c->layout->kind[k].page_bytes;
    return bytes;
}

static luce_status check(const struct cache_config *c, luce_error *err)
{
    if (c->n_slots < 1 || c->n_slots > STEP_SEQS)
        return fail(err, LUCE_E_ARG, "cache: %d sequences at once; expected 1 to %d", c->n_slots, STEP_SEQS);
    if (c->max_positions < 1 || c->total_positions < c->max_positions)
        return fail(err, LUCE_E_ARG, "cache: a context of %d positions in a cache of %" PRId64
                    "; expected at least 1, and a cache that holds one context", c->max_positions,
                    c->total_positions);
    if (c->total_positions > (int64_t)INT32_MAX * PAGE / 2)
        return fail(err, LUCE_E_ARG, "cache: %" PRId64 " positions are more than a cache can have; ask for a smaller "
                    "one", c->total_positions);
    for (int k = 0; k < c->layout->n_kinds; k++)
        if (pool_pages(c, k) > INT32_MAX - STEP_SEQS)
            return fail(err, LUCE_E_ARG, "cache: %" PRId64 " positions need more pages than fit a table; "
                        "ask for a smaller context", c->total_positions);
    return LUCE_OK;
}

static luce_status open_tables(struct cache *c, luce_error *err)
{
    for (int k = 0; k < c->config.layout->n_kinds; k++) {
        if (!pages_init(&c->pages[k], c->config.n_slots, (int)pool_pages(&c->config, k))) goto no_memory;
        for (int slot = 0; slot < c->config.n_slots; slot++) {
            struct table *t = &c->table[slot][k];
            t->page = mem_array((size_t)c->max_pages, sizeof *t->page);
            if (!t->page) goto no_memory;
        }
    }
    for (int slot = 0; slot < c->config.n_slots; slot++) {
        c->ids[slot] = mem_array((size_t)c->config.max_positions, sizeof *c->ids[slot]);
        if (!c->ids[slot]) goto no_memory;
    }
    if (!prefix_init(&c->prefix, (int)((c->config.total_positions + PAGE - 1) / PAGE))) goto no_memory;
    if (!pages_init(&c->states, c->config.n_slots, n_checkpoints(&c->config))) goto no_memory;
    return LUCE_OK;
no_memory:
    return fail(err, LUCE_E_NOMEM, "out of memory for the page tables of %d sequences", c->config.n_slots);
}

luce_status cache_open(struct cache **out, const struct cache_config *config, luce_error *err)
{
    *out = NULL;
    luce_status st = check(config, err);
    if (st) return st;
    struct cache *c = mem_zero(sizeof *c);
    if (!c) return fail(err, LUCE_E_NOMEM, "out of memory for the cache");
    c->config = *config;
    c->max_pages = (config->max_positions + PAGE - 1) / PAGE;
    if ((st = open_tables(c, err))) goto bad;
    struct cache_params p = { .layout = config->layout, .n_slots = config->n_slots };
    for (int k = 0; k < config->layout->n_kinds; k++) {
        p.n_pages[k] = config->n_slots + c->pages[k].n;
        p.max_pages[k] = c->max_pages;
    }
    if (kv_recurrent(config->layout)) p.n_pages[KV_STATE] = config->n_slots + n_checkpoints(config);
    st = config->device->fns->cache_open(config->device, &c->on_device, &p, err);
    if (st) goto bad;
    *out = c;
    return LUCE_OK;
bad:
    cache_close(c);
    return st;
}

void cache_close(struct cache *c)
{
    if (!c) return;
    struct device *d = c->config.device;
    if (c->on_device) d->fns->cache_close(d, c->on_device);
    for (int k = 0; k < KV_MAX_KINDS; k++) {
        pages_drop(&c->pages[k]);
        for (int slot = 0; slot < STEP_SEQS; slot++) mem_free(c->table[slot][k].page);
    }
    for (int slot = 0; slot < STEP_SEQS; slot++) mem_free(c->ids[slot]);
    prefix_drop(&c->prefix);
    pages_drop(&c->states);
    mem_free(c);
}

struct device_cache *cache_on_device(const struct cache *c)
{
    return c->on_device;
}

int cache_pages(const struct cache *c, int kind)
{
    return c->pages[kind].n;
}

int cache_free_pages(const struct cache *c, int kind)
{
    return c->pages[kind].n_free + c->pages[kind].n_cold;
}

struct cache_counts cache_count(const struct cache *c)
{
    struct cache_counts n = { .states = c->states.n_cold, .evicted = c->prefix.evicted };
    for (int k = 0; k < c->config.layout->n_kinds; k++) n.pages += c->pages[k].n_cold;
    return n;
}

bool cache_takes_narrow(const struct cache *c)
{
    return c->config.device->equal_bits || c->config.reuse == LUCE_REUSE_FAST;
}

luce_prefix_reuse cache_reuse(const struct cache *c)
{
    return c->config.reuse;
}

int64_t cache_total_positions(const struct cache *c)
{
    return c->config.total_positions;
}

int cache_free_slots(const struct cache *c)
{
    int n = 0;
    for (int slot = 0; slot < c->config.n_slots; slot++) n += !c->taken[slot];
    return n;
}

int cache_slots(const struct cache *c)
{
    return c->config.n_slots;
}

int cache_max_positions(const struct cache *c)
{
    return c->config.max_positions;
}

bool cache_emit_edits(struct cache *c, struct step *step)
{
    for (int slot = 0; slot < c->config.n_slots; slot++) {
        for (int k = 0; k < c->config.layout->n_kinds; k++) {
            struct table *t = &c->table[slot][k];
            for (; t->dirty_from < t->dirty_to; t->dirty_from++) {
                if (step->head.n_edits == STEP_EDITS) return true;
                step->edit[step->head.n_edits++] = (struct step_edit){
                    .kind = k, .slot = slot, .at = t->dirty_from, .page = t->page[t->dirty_from] };
            }
            t->dirty_from = t->dirty_to = 0;
        }
    }
    return false;
}
