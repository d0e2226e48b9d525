/* cache/seq.c - sequences: what a slot holds, position by position; see cache.h.
 *
 * Positions [0, in pages) lie in pages, [in pages, length) are rows of the slot's bank that the next
 * step moves. A page is written only at positions from `in pages` on, so a page that is full is never
 * written, and only full pages are shared. After a truncation the last page may be shared and not
 * full any more; it is copied before the sequence continues in it.
 * Table entries that no row can see are left as they are: no kernel reads them. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cache/inside.h"

static int pages_for(int positions)
{
    return (positions + PAGE - 1) / PAGE;
}

static struct table *table(const struct seq *s, int kind)
{
    return &s->cache->table[s->slot][kind];
}

static int n_kinds(const struct seq *s)
{
    return s->cache->config.layout->n_kinds;
}

/* The first page that a row at `position` sees. */
static int first_seen(const struct cache *c, int kind, int position)
{
    int window = c->config.layout->kind[kind].window;
    return window == 0 || position < window ? 0 : (position - window + 1) / PAGE;
}

static void set_page(struct table *t, int at, int32_t page)
{
    t->page[at] = page;
    if (t->dirty_from == t->dirty_to) t->dirty_from = t->dirty_to = at;
    if (at < t->dirty_from) t->dirty_from = at;
    if (at + 1 > t->dirty_to) t->dirty_to = at + 1;
}

static void release_from(struct seq *s, int kind, int n)
{
    struct table *t = table(s, kind);
    int keep = n > t->first ? n : t->first;
    while (t->n > keep) page_release(&s->cache->pages[kind], t->page[--t->n]);
    if (t->dirty_to > t->n) t->dirty_to = t->n;
    if (t->dirty_from >= t->dirty_to) t->dirty_from = t->dirty_to = 0;
}

static void release_all(struct seq *s)
{
    for (int k = 0; k < n_kinds(s); k++) {
        release_from(s, k, 0);
        table(s, k)->first = table(s, k)->n = 0;
    }
}

luce_status seq_open(struct seq **out, struct cache *c, luce_error *err)
{
    *out = NULL;
    for (int slot = 0; slot < c->config.n_slots; slot++) {
        if (c->taken[slot]) continue;
        c->taken[slot] = true;
        c->seq[slot] = (struct seq){ .cache = c, .slot = slot };
        *out = &c->seq[slot];
        return LUCE_OK;
    }
    return fail(err, LUCE_E_DEVMEM, "all %d slots of the cache are taken by other sequences; wait for one "
                "to end, or load with more slots", c->config.n_slots);
}

void seq_close(struct seq *s)
{
    if (!s) return;
    release_all(s);
    (void)checkpoints_truncate(s, 0);
    s->cache->taken[s->slot] = false;
}

int seq_slot(const struct seq *s)
{
    return s->slot;
}

int seq_length(const struct seq *s)
{
    return s->length;
}

void seq_set_origin(struct seq *s, int origin)
{
    s->origin = origin;
}

int seq_origin(const struct seq *s)
{
    return s->origin;
}

int seq_wide(const struct seq *s)
{
    return s->wide;
}

luce_status seq_share(struct seq *s, const struct seq *from, int n, luce_error *err)
{
    if (s->length || n < 0 || n % PAGE || n > seq_in_pages(from) || s->cache != from->cache)
        return fail(err, LUCE_E_ARG, "cannot share %d positions of a sequence that has %d in pages; only "
                    "whole pages of %d are shared, with an empty sequence", n, seq_in_pages(from), PAGE);
    for (int k = 0; k < n_kinds(s); k++)
        if (first_seen(s->cache, k, n) < table(from, k)->first)
            return fail(err, LUCE_E_ARG, "cannot share %d positions: the window of %d has moved on",
                        n, s->cache->config.layout->kind[k].window);
    if (!checkpoints_share(s, from, n))
        return fail(err, LUCE_E_ARG, "cannot share %d positions: no checkpoint of the recurrent state is there", n);
    for (int k = 0; k < n_kinds(s); k++) {
        struct table *t = table(s, k);
        release_from(s, k, 0);
        t->first = first_seen(s->cache, k, n);
        t->n = n / PAGE;
        if (t->first > t->n) t->first = t->n;
        for (int i = t->first; i < t->n; i++) {
            page_share(&s->cache->pages[k], table(from, k)->page[i]);
            set_page(t, i, table(from, k)->page[i]);
        }
    }
    s->length = n;
    s->origin = from->origin;
    s->wide = from->wide < n ? from->wide : n;
    return LUCE_OK;
}

static void release_unseen(struct seq *s, int kind)
{
    struct table *t = table(s, kind);
    int first = first_seen(s->cache, kind, s->length);
    int written = seq_in_pages(s) / PAGE;       /* the commit writes there, seen or not */
    if (first > written) first = written;
    for (; t->first < first && t->first < t->n; t->first++)
        page_release(&s->cache->pages[kind], t->page[t->first]);
}

/* The table's entry that will be written although another sequence holds the page, or -1. */
static int shared_entry(const struct seq *s, int kind)
{
    const struct table *t = table(s, kind);
    int at = seq_in_pages(s) / PAGE;
    if (at < t->first || at >= t->n || !page_shared(&s->cache->pages[kind], t->page[at])) return -1;
    return at;
}

static luce_status copy_page(struct seq *s, int kind, int at, luce_error *err)
{
    struct cache *c = s->cache;
    struct device *d = c->config.device;
    int32_t old = table(s, kind)->page[at];
    void *bytes = mem_alloc(c->config.layout->kind[kind].page_bytes);
    if (!bytes) return fail(err, LUCE_E_NOMEM, "out of memory to copy a page of the cache");
    luce_status st = d->fns->page_read(d, c->on_device, kind, old, bytes, err);
    if (!st) {
        int32_t page = page_claim(&c->pages[kind]);
        st = d->fns->page_write(d, c->on_device, kind, page, bytes, err);
        if (st) {
            page_release(&c->pages[kind], page);
        } else {
            page_release(&c->pages[kind], old);
            set_page(table(s, kind), at, page);
        }
    }
    mem_free(bytes);
    return st;
}

luce_status seq_reserve(struct seq *s, int n, luce_error *err)
{
    struct cache *c = s->cache;
    luce_status restored = checkpoint_restore(s, err);
    if (restored) return restored;
    if (n > c->config.max_positions)
        return fail(err, LUCE_E_ARG, "position %d is beyond the context of %d; load the model with a larger "
                    "--context, or shorten the text", n, c->config.max_positions);
    for (int k = 0; k < n_kinds(s); k++) {
        release_unseen(s, k);
        int more = pages_for(n) - table(s, k)->n;
        int wanted = (more > 0 ? more : 0) + (shared_entry(s, k) >= 0);
        if (wanted > c->pages[k].n_free)
            return fail(err, LUCE_E_DEVMEM, "the cache is full: %d more pages of %d positions wanted, %d of "
                        "%d free; end other sequences, or load with a larger cache", wanted, PAGE,
                        c->pages[k].n_free, c->pages[k].n);
    }
    for (int k = 0; k < n_kinds(s); k++) {
        int at = shared_entry(s, k);
        luce_status st = at >= 0 ? copy_page(s, k, at, err) : LUCE_OK;
        if (st) return st;
    }
    for (int k = 0; k < n_kinds(s); k++)
        for (struct table *t = table(s, k); t->n < pages_for(n); t->n++)
            set_page(t, t->n, page_claim(&c->pages[k]));
    return LUCE_OK;
}

void seq_accept(struct seq *s, const uint8_t *path, int n)
{
    assert(s->n_pending == 0 && n >= 0 && n <= NARROW_ROWS);
    for (int i = 0; i < n; i++) s->pending[i] = path ? path[i] : (uint8_t)i;
    s->n_pending = n;
    s->length += n;
}

void seq_advance(struct seq *s, int n)
{
    assert(s->n_pending == 0);
    if (s->wide == s->length) s->wide += n;
    s->length += n;
}

int seq_truncate(struct seq *s, int n)
{
    assert(n >= 0 && n <= s->length);
    int kept = seq_in_pages(s);
    bool lost = false;
    if (s->cache->state && n < kept) {
        n = checkpoints_truncate(s, n);
        s->stale = true;
    }
    for (int k = 0; k < n_kinds(s); k++)
        lost = lost || first_seen(s->cache, k, n) < table(s, k)->first;
    if (lost) {
        release_all(s);
        n = kept = checkpoints_truncate(s, 0);
    }
    s->n_pending = n > kept ? n - kept : 0;
    s->length = n;
    if (s->wide > n) s->wide = n;
    for (int k = 0; k < n_kinds(s); k++) release_from(s, k, pages_for(n));
    return n;
}

/* Fills a page of the kind with normal values, rounded as the cache rounds. */
static void random_page(const struct kv_layout *l, int kind, uint64_t seed, float *row, uint8_t *page)
{
    uint64_t draw = 0;
    for (int i = 0; i < l->n_layers; i++) {
        const struct kv_layer *y = &l->layer[i];
        for (int j = 0; y->kind == kind && j < 2 * y->kv_heads; j++) {
            bool is_k = j < y->kv_heads;
            int dim = is_k ? y->k_dim : y->v_dim;
            uint8_t *block = page + (is_k ? kv_k_at(y, j) : kv_v_at(y, j - y->kv_heads));
            for (int pos = 0; pos < PAGE; pos++) {
                for (int e = 0; e < dim; e++)
                    row[e] = (float)rng_normal(seed, (uint64_t)kind, draw++);
                kv_encode(is_k ? y->k_format : y->v_format, dim, block, pos, row);
            }
        }
    }
}

static luce_status fill_kind(struct seq *s, int kind, int from, uint64_t seed, luce_error *err)
{
    struct cache *c = s->cache;
    const struct kv_layout *l = c->config.layout;
    int widest = 0;
    for (int i = 0; i < l->n_layers; i++) {
        if (l->layer[i].k_dim > widest) widest = l->layer[i].k_dim;
        if (l->layer[i].v_dim > widest) widest = l->layer[i].v_dim;
    }
    uint8_t *page = mem_zero(l->kind[kind].page_bytes);
    float *row = mem_array((size_t)widest, sizeof *row);
    luce_status st = page && row ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory for a random page");
    if (!st) random_page(l, kind, seed, row, page);
    struct table *t = table(s, kind);
    for (int i = from > t->first ? from : t->first; i < t->n && !st; i++)
        st = c->config.device->fns->page_write(c->config.device, c->on_device, kind, t->page[i], page, err);
    mem_free(row);
    mem_free(page);
    return st;
}

luce_status seq_fill_random(struct seq *s, int to, uint64_t seed, luce_error *err)
{
    assert(s->n_pending == 0 && to >= s->length);
    int from = s->length;
    /* In strides, so that the window pools need not hold the whole text at once. */
    while (s->length < to) {
        int n = to - s->length < NARROW_ROWS ? to - s->length : NARROW_ROWS;
        luce_status st = seq_reserve(s, s->length + n, err);
        if (st) return st;
        seq_advance(s, n);
    }
    for (int k = 0; k < n_kinds(s); k++) {
        luce_status st = fill_kind(s, k, from / PAGE, seed, err);
        if (st) return st;
    }
    return state_fill_random(s, seed, err);
}

void seq_emit(const struct seq *s, struct step *step, int index)
{
    struct step_seq *e = &step->seq[index];
    *e = (struct step_seq){ .slot = s->slot, .past = s->length, .n_commit = s->n_pending };
    memcpy(e->commit, s->pending, (size_t)s->n_pending);
}

void seq_emitted(struct seq *s)
{
    s->n_pending = 0;
}
