/* tests/test_cache.c - pages, slots and commits, by random walks against a device that remembers a tag
 * for every position that it was told to write. */
#include "base/hash.h"
#include "cache/inside.h"
#include "test.h"

enum { KINDS = 3, SLOTS = 5, MOST = 700, WALK = 3000 };
static const int layouts[][KINDS] = { { 0, 100, 8 }, { 200, 100, 8 }, { 0, 0, 0 } };
static const int *windows = layouts[0];

struct fake {
    struct device base;
    int n_pages[KINDS], max_pages[KINDS];
    int64_t (*tag[KINDS])[PAGE];        /* [page][position]; the first pages are the banks */
    int32_t *table[KINDS];              /* [slot][max_pages] */
};
struct device_cache { struct fake *fake; };

static void fake_cache_close(struct device *d, struct device_cache *c)
{
    struct fake *f = (struct fake *)d;
    for (int k = 0; k < KINDS; k++) {
        mem_free(f->tag[k]);
        mem_free(f->table[k]);
        f->tag[k] = NULL;
        f->table[k] = NULL;
    }
    mem_free(c);
}

static luce_status fake_cache_open(struct device *d, struct device_cache **out, const struct cache_params *p,
                                   luce_error *err)
{
    struct fake *f = (struct fake *)d;
    *out = mem_zero(sizeof **out);
    bool ok = *out != NULL;
    for (int k = 0; k < KINDS; k++) {
        f->n_pages[k] = p->n_pages[k];
        f->max_pages[k] = p->max_pages[k];
        f->tag[k] = mem_array((size_t)p->n_pages[k], sizeof *f->tag[k]);
        f->table[k] = mem_array((size_t)(p->n_slots * p->max_pages[k]), sizeof(int32_t));
        ok = ok && f->tag[k] && f->table[k];
    }
    if (ok) return LUCE_OK;
    fake_cache_close(d, *out);
    *out = NULL;
    return fail(err, LUCE_E_NOMEM, "fake: out of memory");
}

static luce_status fake_page_read(struct device *d, struct device_cache *c, int kind, int page, void *host,
                                  luce_error *err)
{
    (void)c, (void)err;
    memcpy(host, ((struct fake *)d)->tag[kind][page], PAGE * sizeof(int64_t));
    return LUCE_OK;
}

static luce_status fake_page_write(struct device *d, struct device_cache *c, int kind, int page,
                                   const void *host, luce_error *err)
{
    (void)c, (void)err;
    memcpy(((struct fake *)d)->tag[kind][page], host, PAGE * sizeof(int64_t));
    return LUCE_OK;
}

static luce_status fake_page_copy(struct device *d, struct device_cache *c, int kind, int from, int to,
                                  luce_error *err)
{
    return fake_page_write(d, c, kind, to, ((struct fake *)d)->tag[kind][from], err);
}

static const struct device_fns fake_fns = {
    .cache_open = fake_cache_open, .cache_close = fake_cache_close, .page_read = fake_page_read,
    .page_write = fake_page_write, .page_copy = fake_page_copy,
};

static struct fake fake;
static struct kv_layout layout;

static luce_status open_cache(struct cache **out, int64_t total, luce_error *err)
{
    fake = (struct fake){ .base = { .fns = &fake_fns } };
    layout = (struct kv_layout){ .n_kinds = KINDS };
    for (int k = 0; k < KINDS; k++)
        layout.kind[k] = (struct kv_kind){ .window = windows[k], .page_bytes = PAGE * sizeof(int64_t) };
    return cache_open(out, &(struct cache_config){ .device = &fake.base, .layout = &layout, .n_slots = SLOTS,
                                                   .max_positions = MOST, .total_positions = total,
                                                   .step_rows = 128 }, err);
}

/* What a sequence must hold: at each position a tag of the text up to there. */
struct truth {
    struct seq *seq;
    int n;
    int32_t id[MOST];
    int64_t tag[MOST];
};

/* The text goes on: a page is one of two, so that texts meet often. */
static void go_on(struct truth *t)
{
    int at = t->n++;
    if (at % PAGE == 0) t->id[at] = (int32_t)(test_random() % 2);
    else t->id[at] = t->id[at / PAGE * PAGE] * 1000 + at % PAGE;
    t->tag[at] = (int64_t)(hash_u64((at ? (uint64_t)t->tag[at - 1] : 1) * 3 + (uint64_t)t->id[at] + 1) >> 1);
}

/* The device's part of a step: edits, the commit, then n new rows with these tags. */
static void run_step(struct cache *c, struct truth *t, const int64_t *tags, int n, bool wide)
{
    static struct step step;
    step.head = (struct step_head){ .wide = wide };
    seq_emit(t->seq, &step, 0);
    CHECK(!cache_emit_edits(c, &step));
    for (int i = 0; i < step.head.n_edits; i++) {
        struct step_edit e = step.edit[i];
        CHECK(e.at >= 0 && e.at < fake.max_pages[e.kind] && e.page < fake.n_pages[e.kind] && e.page >= SLOTS);
        fake.table[e.kind][e.slot * fake.max_pages[e.kind] + e.at] = e.page;
    }
    const struct step_seq *s = &step.seq[0];
    for (int k = 0; k < KINDS; k++) {
        const int32_t *table = fake.table[k] + s->slot * fake.max_pages[k];
        for (int i = 0; i < s->n_commit + (wide ? n : 0); i++) {
            int pos = s->past - s->n_commit + i;
            int32_t page = table[pos / PAGE];
            CHECK(!page_shared(&c->pages[k], page), "position %d writes a shared page", pos);
            fake.tag[k][page][pos % PAGE] = i < s->n_commit ? fake.tag[k][s->slot][s->commit[i]]
                                                            : tags[i - s->n_commit];
        }
        for (int i = 0; i < n && !wide; i++) fake.tag[k][s->slot][i] = tags[i];
    }
    seq_emitted(t->seq);
}

static void check_content(struct cache *c, const struct truth *t)
{
    int in_pages = t->seq->length - t->seq->n_pending;
    CHECK_EQ(seq_length(t->seq), t->n);
    for (int k = 0; k < KINDS; k++) {
        const struct table *table = &c->table[t->seq->slot][k];
        int first = windows[k] && t->n >= windows[k] ? t->n - windows[k] + 1 : 0;
        for (int pos = first; pos < in_pages; pos++) {
            int at = pos / PAGE;
            CHECK(at >= table->first && at < table->n, "position %d of %d has no page", pos, t->n);
            if (at < table->first || at >= table->n) return;
            if (fake.tag[k][table->page[at]][pos % PAGE] != t->tag[pos])
                CHECK(false, "kind %d position %d of %d holds another's row", k, pos, t->n);
        }
    }
    for (int i = 0; i < t->seq->n_pending; i++)
        CHECK_EQ(fake.tag[0][t->seq->slot][t->seq->pending[i]], t->tag[in_pages + i]);
}

static void check_counts(const struct cache *c)
{
    for (int k = 0; k < KINDS; k++) {
        int held = 0, total = 0, used = 0, cold = 0;
        for (int slot = 0; slot < SLOTS; slot++)
            if (c->taken[slot]) held += c->table[slot][k].n - c->table[slot][k].first;
        for (int i = 0; i < c->pages[k].n; i++) {
            total += c->pages[k].holders[i] - c->pages[k].kept[i];
            used += c->pages[k].holders[i] > 0;
            cold += c->pages[k].holders[i] == 1 && c->pages[k].kept[i];
        }
        CHECK_EQ(total, held);
        CHECK_EQ(used + c->pages[k].n_free, c->pages[k].n);
        CHECK_EQ(cold, c->pages[k].n_cold);
    }
}

/* Children, users and the order of use of the tree's nodes. */
static void check_tree(const struct cache *c)
{
    const struct prefix *p = &c->prefix;
    int sum = 0, users = 0, pinned = 0, n = 0;
    for (int32_t i = p->oldest; i >= 0; i = p->node[i].newer, n++) {
        const struct node *x = &p->node[i];
        CHECK_EQ(x->depth, x->parent < 0 ? 1 : p->node[x->parent].depth + 1);
        CHECK(x->newer < 0 || p->node[x->newer].used >= x->used);
        sum += x->n_children - (x->parent >= 0);
        users += x->users;
        for (int k = 0; k < KINDS; k++)
            CHECK(windows[k] ? x->page[k] < 0 || c->pages[k].kept[x->page[k] - SLOTS] : x->page[k] >= 0);
    }
    for (int slot = 0; slot < SLOTS; slot++) pinned += c->taken[slot] && c->seq[slot].node >= 0;
    CHECK_EQ(sum, 0);
    CHECK_EQ(users, pinned);
    CHECK(n <= p->n);
}

static void grow(struct cache *c, struct truth *t)
{
    bool wide = test_random() % 2;
    int n = 1 + (int)(test_random() % (wide ? 128 : 64));
    luce_error err = { 0 };
    luce_status st = seq_reserve(t->seq, t->n + n, &err);
    if (t->n + n > MOST) CHECK_EQ(st, LUCE_E_ARG);
    else if (st) CHECK_EQ(st, LUCE_E_DEVMEM);
    if (st) return;
    int64_t tags[128];
    struct step_row rows[128] = { 0 };
    uint8_t path[NARROW_ROWS];
    int accepted = 0;
    for (int i = 0; i < n; i++) {
        tags[i] = -1;
        if (!wide && test_random() % 3 == 0) continue;
        if (!wide) path[accepted++] = (uint8_t)i;
        go_on(t);
        tags[i] = t->tag[t->n - 1];
        rows[i].token = t->id[t->n - 1];
    }
    run_step(c, t, tags, n, wide);
    if (wide) seq_advance(t->seq, rows, n);
    else seq_note(t->seq, rows, n);
    if (!wide) seq_accept(t->seq, path, accepted);
}

static void shrink(struct truth *t)
{
    int back = (int)(test_random() % (test_random() % 2 ? 20 : 300));
    int n = t->n > back ? t->n - back : 0;
    int got = seq_truncate(t->seq, n);
    CHECK(got == n || got == 0);
    t->n = got;
}

/* The text is to be that of `like`, as far as the cache has it. */
static void claim(struct cache *c, struct truth *t, const struct truth *like)
{
    int n = (int)(test_random() % (uint64_t)(like->n + 1)), found = cache_find(c, like->id, n);
    int got = seq_claim(t->seq, like->id, n);
    CHECK_EQ(got, found > t->n ? found : t->n);
    if (got == t->n) return;
    CHECK(got % PAGE == 0 && got <= n);
    t->n = got;
    memcpy(t->id, like->id, sizeof t->id);
    memcpy(t->tag, like->tag, sizeof t->tag);
}

static void change(struct cache *c, struct truth *t, const struct truth *like)
{
    struct truth before;
    luce_error err = { 0 };
    int what = (int)(test_random() % 10);
    if (!t->seq) {
        CHECK_OK(seq_open(&t->seq, c, &err), err);
        t->n = 0;
        if (what > 3) claim(c, t, like);
    } else if (what == 0) {
        seq_close(t->seq);
        t->seq = NULL;
    } else if (what < 3) {
        before = *t;
        shrink(t);
        if (test_random() % 2) claim(c, t, &before);
    } else if (what == 3 && test_random() % 4 == 0) {
        seq_discard(t->seq);
        t->n = seq_length(t->seq);
    } else {
        grow(c, t);
        if (test_random() % 8 == 0) seq_turn(t->seq);
    }
}

TEST(cache_random_walks_keep_every_row_and_every_count)
{
    for (size_t l = 0; l < COUNT(layouts); l++) {
        struct cache *c;
        luce_error err = { 0 };
        static struct truth all[SLOTS];
        memset(all, 0, sizeof all);
        windows = layouts[l];
        CHECK_OK(open_cache(&c, MOST * 2, &err), err);
        for (int i = 0; i < WALK; i++) {
            change(c, &all[test_random() % SLOTS], &all[test_random() % SLOTS]);
            for (int j = 0; j < SLOTS; j++)
                if (all[j].seq) check_content(c, &all[j]);
            check_counts(c);
            check_tree(c);
        }
        CHECK(c->prefix.evicted > 0, "nothing was evicted");
        for (int j = 0; j < SLOTS; j++) seq_close(all[j].seq);
        for (int k = 0; k < KINDS; k++) CHECK_EQ(cache_free_pages(c, k), cache_pages(c, k));
        CHECK_EQ(cache_free_slots(c), SLOTS);
        cache_close(c);
        windows = layouts[0];
    }
}

TEST(cache_says_why_a_sequence_cannot_grow)
{
    struct cache *c;
    struct seq *s[SLOTS], *more;
    luce_error err = { 0 };
    CHECK_OK(open_cache(&c, MOST, &err), err);
    for (int i = 0; i < SLOTS; i++) CHECK_OK(seq_open(&s[i], c, &err), err);
    CHECK_EQ(seq_open(&more, c, &err), LUCE_E_DEVMEM);
    CHECK(strstr(err.text, "all 5 slots"), "%s", err.text);
    CHECK_EQ(seq_reserve(s[0], MOST + 1, &err), LUCE_E_ARG);
    CHECK(strstr(err.text, "beyond the context of 700"), "%s", err.text);
    CHECK_OK(seq_reserve(s[0], MOST, &err), err);
    CHECK_EQ(seq_reserve(s[1], 65, &err), LUCE_E_DEVMEM);
    CHECK(strstr(err.text, "the cache is full: 2 more pages"), "%s", err.text);
    for (int i = 0; i < SLOTS; i++) seq_close(s[i]);
    cache_close(c);
}

TEST(cache_windows_do_not_need_more_pages_as_a_text_grows)
{
    struct cache *c;
    struct truth t = { 0 };
    luce_error err = { 0 };
    static int64_t tags[128];
    static const struct step_row rows[128];
    CHECK_OK(open_cache(&c, MOST, &err), err);
    CHECK_OK(seq_open(&t.seq, c, &err), err);
    int least = cache_pages(c, 1);
    for (int n = 0; n + 128 <= MOST; n += 128) {
        CHECK_OK(seq_reserve(t.seq, n + 128, &err), err);
        if (cache_free_pages(c, 1) < least) least = cache_free_pages(c, 1);
        run_step(c, &t, tags, 128, true);
        seq_advance(t.seq, rows, 128);
    }
    CHECK(cache_pages(c, 1) - least <= (100 + 128) / PAGE + 2, "%d of %d", least, cache_pages(c, 1));
    CHECK_EQ(seq_truncate(t.seq, 10), 0);       /* its window is gone */
    seq_close(t.seq);
    cache_close(c);
}

TEST(cache_open_fails_cleanly_without_memory)
{
    size_t live = mem_live();
    for (long n = 0; n < 100; n++) {
        struct cache *c = NULL;
        luce_error err = { 0 };
        mem_fail_after(n);
        luce_status st = open_cache(&c, MOST, &err);
        mem_fail_never();
        if (!st) {
            cache_close(c);
            CHECK_EQ(mem_live(), live);
            return;
        }
        CHECK_EQ(st, LUCE_E_NOMEM);
        CHECK_EQ(c, NULL);
        CHECK_EQ(mem_live(), live);
    }
    CHECK(false, "never enough memory");
}
