/* cache/seq.c - sequences: what a slot holds, position by position; see cache.h.
 *
 * Positions [0, in pages) lie in pages, [in pages, length) are rows of the slot's bank that the next
 * step moves. A page is written only at positions from `in pages` on, so a page that is full is never
 * written, and only full pages are shared (prefix.c). After a truncation the last page may be shared and not
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

int cache_first_seen(const struct cache *c, int kind, int position)
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
        c->seq[slot] = (struct seq){ .cache = c, .slot = slot, .node = -1, .newest = -1, .restore = -1 };
        *out = &c->seq[slot];
        return LUCE_OK;
    }
    return fail(err, LUCE_E_DEVMEM, "all %d slots of the cache are taken by other sequences; wait for one "
                "to end, or load with more slots", c->config.n_slots);
}

void seq_close(struct seq *s)
{
    if (!s) return;
    if (s->cache->config.reuse == LUCE_REUSE_OFF) seq_discard(s);
    checkpoint_forget(s);
    prefix_leave(s, 0);
    release_all(s);
    prefix_trim(s->cache);
    s->cache->taken[s->slot] = false;
}

void seq_forget(struct seq *s, bool forget)
{
    s->forget = forget;
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

int32_t seq_page(const struct seq *s, int kind, int at)
{
    const struct table *t = table(s, kind);
    return at >= t->first && at < t->n ? t->page[at] : -1;
}

void seq_replace_page(struct seq *s, int kind, int at, int32_t page)
{
    struct pages *p = &s->cache->pages[kind];
    page_share(p, page);
    page_release(p, table(s, kind)->page[at]);
    set_page(table(s, kind), at, page);
}

void seq_adopt(struct seq *s, const int32_t *ids, int n)
{
    struct cache *c = s->cache;
    release_all(s);
    for (int k = 0; k < n_kinds(s); k++) {
        struct table *t = table(s, k);
        t->first = cache_first_seen(c, k, n);
        t->n = n / PAGE;
        if (t->first > t->n) t->first = t->n;
        int32_t at = s->node;
        for (int i = t->n - 1; i >= t->first; i--, at = c->prefix.node[at].parent) {
            page_share(&c->pages[k], c->prefix.node[at].page[k]);
            set_page(t, i, c->prefix.node[at].page[k]);
        }
    }
    memcpy(c->ids[s->slot], ids, (size_t)n * sizeof *ids);
    s->length = s->wide = n;
    s->n_pending = s->origin = 0;
    (void)checkpoint_back(s);
}

static void release_unseen(struct seq *s, int kind)
{
    struct table *t = table(s, kind);
    int first = cache_first_seen(s->cache, kind, s->length);
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
    int32_t old = table(s, kind)->page[at], page = page_claim(&c->pages[kind]);
    luce_status st = d->fns->page_copy(d, c->on_device, kind, old, page, err);
    if (st) {
        page_release(&c->pages[kind], page);
    } else {
        page_release(&c->pages[kind], old);
        set_page(table(s, kind), at, page);
    }
    return st;
}

static int pages_wanted(const struct seq *s, int kind, int n)
{
    int more = pages_for(n) - table(s, kind)->n;
    return (more > 0 ? more : 0) + (shared_entry(s, kind) >= 0);
}

/* Evicts as far as it helps. A page that nobody but the tree shares needs no copy once the tree lets it go. */
static bool make_room(struct seq *s, int kind, int n)
{
    struct pages *p = &s->cache->pages[kind];
    if (pages_wanted(s, kind, n) > p->n_free + p->n_cold + (shared_entry(s, kind) >= 0)) return false;
    while (pages_wanted(s, kind, n) > p->n_free)
        if (!prefix_evict(s->cache, kind)) return false;
    return true;
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
        if (!make_room(s, k, n))
            return fail(err, LUCE_E_DEVMEM, "the cache is full: %d more pages of %d positions wanted, %d of "
                        "%d free; end other sequences, or load with a larger cache", pages_wanted(s, k, n), PAGE,
                        cache_free_pages(c, k), c->pages[k].n);
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

void seq_note(struct seq *s, const struct step_row *rows, int n)
{
    for (int i = 0; i < n; i++) s->row[i] = rows[i].token;
}

void seq_accept(struct seq *s, const uint8_t *path, int n)
{
    int32_t *ids = s->cache->ids[s->slot] + s->length;
    assert(s->n_pending == 0 && n >= 0 && n <= NARROW_ROWS);
    for (int i = 0; i < n; i++) {
        s->pending[i] = path ? path[i] : (uint8_t)i;
        ids[i] = s->row[s->pending[i]];
    }
    s->n_pending = n;
    s->length += n;
}

void seq_advance(struct seq *s, const struct step_row *rows, int n)
{
    int32_t *ids = s->cache->ids[s->slot] + s->length;
    assert(s->n_pending == 0);
    for (int i = 0; i < n; i++) ids[i] = rows[i].token;
    if (s->wide == s->length) s->wide += n;
    s->length += n;
    prefix_enter(s);
}

int seq_truncate(struct seq *s, int n)
{
    assert(n >= 0 && n <= s->length);
    int kept = seq_in_pages(s);
    bool lost = false;
    if (n < kept) {
        prefix_leave(s, n / PAGE);
        if (kv_recurrent(s->cache->config.layout)) n = checkpoint_back(s);
    }
    for (int k = 0; k < n_kinds(s); k++)
        lost = lost || cache_first_seen(s->cache, k, n) < table(s, k)->first;
    if (lost) {
        release_all(s);
        checkpoint_forget(s);
        n = kept = 0;
        s->stale = kv_recurrent(s->cache->config.layout);
    }
    prefix_leave(s, n / PAGE);
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
    struct cache *c = s->cache;
    int from = s->length;
    /* In strides, so that the window pools need not hold the whole text at once. */
    while (s->length < to) {
        int n = to - s->length < NARROW_ROWS ? to - s->length : NARROW_ROWS;
        luce_status st = seq_reserve(s, s->length + n, err);
        if (st) return st;
        int32_t *ids = c->ids[s->slot];
        for (int i = s->length / PAGE * PAGE; i < s->length + n; i++) ids[i] = -1 - (int32_t)(seed % 1000000);
        s->length += n;
        s->wide = s->length;
        prefix_enter(s);
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
    prefix_enter(s);
}
