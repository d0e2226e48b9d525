/* tests/test_check.c - the device checker, on a device that is the reference itself and on the same
 * device with a planted fault: the checker must pass the first and name every fault. */
#include <math.h>

#include "device/check.h"
#include "ops/interp.h"
#include "test.h"

enum fault {
    SOUND, WRONG_VALUE, NOT_A_NUMBER, UNWRITTEN, NO_COMMIT, STRAY_WRITE, WRONG_KEY, BY_WIDTH, NO_QKV, NO_Q4_K,
};

/* A device that keeps pages in host memory and computes with the interpreter. */
struct model_device {
    struct device base;
    enum fault fault;
};
struct device_cache {
    struct cache_params p;
    uint8_t *pages[KV_POOLS];
    int *table[KV_MAX_KINDS];       /* [slot][max_pages] */
};
struct program {
    const struct tape *tape;
    struct device_cache *cache;
    float *rows[64];                /* inputs, outputs and poison by value id */
    int room;
};

static enum fault fault_of(const struct device *d)
{
    return ((const struct model_device *)d)->fault;
}

static bool has(const struct device *d, const struct call *c)
{
    if (fault_of(d) == NO_QKV && (c->op == OP_QKV || c->op == OP_GLU)) return false;
    return !(fault_of(d) == NO_Q4_K && c->n_w && c->w[0] && c->w[0]->type == 12);
}

static luce_status upload(struct device *d, struct weight *w, luce_error *err)
{
    (void)d, (void)err;
    w->layout++;
    return LUCE_OK;
}

static void release(struct device *d, struct weight *w)
{
    (void)d;
    w->layout--;
}

static luce_status cache_open(struct device *d, struct device_cache **out, const struct cache_params *p, luce_error *err)
{
    (void)d;
    struct device_cache *c = *out = mem_zero(sizeof *c);
    if (!c) return fail(err, LUCE_E_NOMEM, "cache");
    c->p = *p;
    for (int k = 0; k < p->layout->n_kinds; k++) {
        c->pages[k] = mem_zero((size_t)p->n_pages[k] * p->layout->kind[k].page_bytes);
        c->table[k] = mem_array((size_t)p->n_slots * (size_t)p->max_pages[k], sizeof(int));
        for (int i = 0; c->table[k] && i < p->n_slots * p->max_pages[k]; i++) c->table[k][i] = -1;
    }
    c->p.n_pages[KV_STATE] = p->n_pages[KV_STATE];
    c->p.n_pages[KV_JOURNAL] = kv_recurrent(p->layout) ? p->n_slots : 0;
    for (int k = KV_STATE; k < KV_POOLS; k++)
        c->pages[k] = mem_zero((size_t)c->p.n_pages[k] * p->layout->kind[k].page_bytes + 1);
    return LUCE_OK;
}

static void cache_close(struct device *d, struct device_cache *c)
{
    (void)d;
    for (int k = 0; k < KV_POOLS; k++) mem_free(c->pages[k]);
    for (int k = 0; k < KV_MAX_KINDS; k++) mem_free(c->table[k]);
    mem_free(c);
}

static uint8_t *page_at(struct device_cache *c, int kind, int page)
{
    CHECK(page >= 0 && page < c->p.n_pages[kind]);
    return c->pages[kind] + (size_t)page * c->p.layout->kind[kind].page_bytes;
}

static luce_status page_read(struct device *d, struct device_cache *c, int kind, int page, void *host, luce_error *err)
{
    (void)d, (void)err;
    memcpy(host, page_at(c, kind, page), c->p.layout->kind[kind].page_bytes);
    return LUCE_OK;
}

static luce_status page_write(struct device *d, struct device_cache *c, int kind, int page, const void *host,
                              luce_error *err)
{
    (void)d, (void)err;
    memcpy(page_at(c, kind, page), host, c->p.layout->kind[kind].page_bytes);
    return LUCE_OK;
}

static luce_status compile(struct device *d, struct program **out, const struct tape *t, const struct plan *p,
                           struct device_cache *c, luce_error *err)
{
    (void)d, (void)err;
    struct program *g = *out = mem_zero(sizeof *g);
    *g = (struct program){ .tape = t, .cache = c, .room = p->bucket.rows[DOM_ROWS] };
    for (int i = 1; i < t->n_values; i++)
        g->rows[i] = mem_array((size_t)g->room * (size_t)t->values[i].shape.cols, sizeof(float));
    return LUCE_OK;
}

static void program_close(struct device *d, struct program *p)
{
    (void)d;
    for (int i = 0; i < 64; i++) mem_free(p->rows[i]);
    mem_free(p);
}

static void *rows_at(struct program *p, struct val v, int first, int n, size_t *bytes)
{
    size_t row = shape_row_bytes(p->tape->values[v.id].shape);
    CHECK(first >= 0 && first + n <= p->room);
    *bytes = (size_t)n * row;
    return (char *)p->rows[v.id] + (size_t)first * row;
}

static luce_status read_rows(struct device *d, struct program *p, const struct rows_read *rows, int n, luce_error *err)
{
    (void)d, (void)err;
    for (int i = 0; i < n; i++) {
        size_t bytes;
        const void *at = rows_at(p, rows[i].v, rows[i].first_row, rows[i].n_rows, &bytes);
        rows_put(&rows[i], at, rows[i].n_rows ? bytes / (size_t)rows[i].n_rows : 0);
    }
    return LUCE_OK;
}

static luce_status write_rows(struct device *d, struct program *p, struct val v, int first, int n, const void *host,
                              luce_error *err)
{
    (void)d, (void)err;
    size_t bytes;
    void *at = rows_at(p, v, first, n, &bytes);
    memcpy(at, host, bytes);
    return LUCE_OK;
}

static uint8_t *find_page(struct device_cache *c, int kind, int slot, int pos)
{
    if (pos < 0) return page_at(c, kind, slot);
    int page = c->table[kind][slot * c->p.max_pages[kind] + pos / PAGE];
    return page < 0 ? NULL : page_at(c, kind, page);
}

/* Keys and values of one position between pages and interpreter. */
static void exchange(struct device_cache *c, struct interp *p, int layer, int slot, int pos, bool store, float bias)
{
    const struct kv_layer *y = &c->p.layout->layer[layer];
    uint8_t *page = find_page(c, y->kind, slot, pos);
    int at = pos < 0 ? -1 - pos : pos % PAGE;
    float row[512];
    for (int h = 0; page && h < y->kv_heads; h++)
        for (int v = 0; v < 2; v++) {
            double *x = v ? interp_v(p, layer, slot, pos, h) : interp_k(p, layer, slot, pos, h);
            uint32_t format = v ? y->v_format : y->k_format;
            uint8_t *block = page + (v ? kv_v_at(y, h) : kv_k_at(y, h));
            if (store) {
                for (int i = 0; i < y->k_dim; i++) row[i] = (float)x[i] * (1 + bias);
                kv_encode(format, y->k_dim, block, at, row);
            } else {
                kv_decode(format, y->k_dim, block, at, row);
                for (int i = 0; i < y->k_dim; i++) x[i] = row[i];
            }
        }
}

/* States and journals of a recurrent layer. */
static void exchange_state(struct device_cache *c, struct interp *p, int layer, int slot, bool store)
{
    const struct kv_layer *y = &c->p.layout->layer[layer];
    for (int pool = KV_STATE; pool <= KV_JOURNAL; pool++) {
        uint64_t at = pool == KV_STATE ? y->offset : y->journal;
        uint64_t n = pool == KV_STATE ? kv_conv_size(&y->state) + kv_memory_size(&y->state)
                                      : kv_journal_at(&y->state, JOURNAL_PARTS);
        float *page = (float *)(void *)(page_at(c, pool, slot) + at);
        double *x = pool == KV_STATE ? interp_state(p, layer, slot) : interp_journal(p, layer, slot);
        for (uint64_t i = 0; i < n; i++) {
            if (store) page[i] = (float)x[i];
            else x[i] = page[i];
        }
    }
}

static void store_states(struct device_cache *c, struct interp *p, const struct step *s, int layer, enum fault fault)
{
    for (int i = 0; i < s->head.n_seqs; i++) {
        if (fault == WRONG_KEY) interp_state(p, layer, s->seq[i].slot)[0] += 1;
        if (fault == STRAY_WRITE) page_at(c, KV_STATE, c->p.n_pages[KV_STATE] - 1)[0] ^= 1;
        if (fault != NO_COMMIT) exchange_state(c, p, layer, s->seq[i].slot, true);
    }
}

static void load_pages(struct device_cache *c, struct interp *p, const struct step *s)
{
    for (int l = 0; l < c->p.layout->n_layers; l++)
        for (int slot = 0; c->p.layout->layer[l].kind == KV_STATE && slot < c->p.n_slots; slot++)
            exchange_state(c, p, l, slot, false);
    for (int l = 0; l < c->p.layout->n_layers; l++)
        for (int i = 0; c->p.layout->layer[l].kind != KV_STATE && i < s->head.n_seqs; i++)
            for (int pos = -NARROW_ROWS; pos < s->seq[i].past - s->seq[i].n_commit; pos++)
                exchange(c, p, l, s->seq[i].slot, pos, false, 0);
}

static void store_pages(struct device_cache *c, struct interp *p, const struct step *s, int layer, enum fault fault)
{
    for (int i = 0; i < s->head.n_seqs; i++) {
        const struct step_seq *q = &s->seq[i];
        for (int pos = q->past - q->n_commit; fault != NO_COMMIT && pos < q->past; pos++)
            exchange(c, p, layer, q->slot, pos, true, 0);
        for (int j = 0; j < q->n_rows; j++)
            exchange(c, p, layer, q->slot, s->head.wide ? q->past + j : -1 - j, true, fault == WRONG_KEY ? 1e-2f : 0);
        if (fault == STRAY_WRITE && q->n_rows < NARROW_ROWS && q->n_rows > 0) {
            interp_k(p, layer, q->slot, -1 - q->n_rows, 0)[0] += 1;
            exchange(c, p, layer, q->slot, -1 - q->n_rows, true, 0);
        }
    }
}

static void store_value(struct program *g, struct interp *p, struct val v, const struct step *s, enum fault fault)
{
    struct shape shape = g->tape->values[v.id].shape;
    int rows = shape.rows == DOM_OUT ? s->head.n_out : s->head.n_rows, n = rows * shape.cols;
    const double *x = interp_read(p, v);
    for (int i = 0; i < n; i++) {
        float y = (float)x[i];
        if (fault == WRONG_VALUE && i == n - 1) y = y * 1.5f + 1;
        if (fault == NOT_A_NUMBER && i == n / 2) y = NAN;
        if (fault == UNWRITTEN && i == n - 1) continue;
        if (fault == BY_WIDTH) y *= 1 + 1e-6f * (float)rows;
        int32_t whole = isfinite(y) ? (int32_t)y : INT32_MIN;
        if (shape.type == DT_I32) memcpy(&g->rows[v.id][i], &whole, 4);
        else g->rows[v.id][i] = y;
    }
}

static luce_status run_interp(struct program *g, struct interp *p, const struct step *s, enum fault fault, luce_error *err)
{
    const struct tape *t = g->tape;
    for (int i = 1; i < t->n_values; i++) {
        if (t->values[i].producer >= 0) continue;
        int n = s->head.n_rows * t->values[i].shape.cols;
        double *rows = mem_array((size_t)n, sizeof *rows);
        for (int j = 0; j < n; j++) rows[j] = g->rows[i][j];
        luce_status st = interp_write(p, (struct val){ i }, rows, s->head.n_rows, err);
        mem_free(rows);
        if (st) return st;
    }
    if (g->cache) load_pages(g->cache, p, s);
    luce_status st = interp_run(p, s, err);
    if (st) return st;
    for (int i = 0; i < t->n_calls; i++)
        if (t->calls[i].layer >= 0 && g->cache) {
            int layer = t->calls[i].layer;
            if (g->cache->p.layout->layer[layer].kind == KV_STATE) store_states(g->cache, p, s, layer, fault);
            else store_pages(g->cache, p, s, layer, fault);
            break;
        }
    const struct call *last = &t->calls[t->n_calls - 1];
    for (int i = 0; i < last->n_out; i++) store_value(g, p, last->out[i], s, fault);
    return LUCE_OK;
}

static luce_status run(struct device *d, struct program *g, const struct step *s, trace_fn trace, void *context,
                       luce_error *err)
{
    (void)trace, (void)context;
    struct device_cache *c = g->cache;
    for (int i = 0; c && i < s->head.n_edits; i++) {
        const struct step_edit *e = &s->edit[i];
        CHECK(e->at < c->p.max_pages[e->kind] && e->slot < c->p.n_slots);
        c->table[e->kind][e->slot * c->p.max_pages[e->kind] + e->at] = e->page;
    }
    struct interp *p;
    luce_status st = interp_open(&p, g->tape, c ? c->p.layout : NULL, c ? c->p.n_slots : 1,
                                 c && c->p.layout->n_kinds ? c->p.max_pages[0] * PAGE : 512, true, err);
    if (!st) st = run_interp(g, p, s, fault_of(d), err);
    interp_close(p);
    return st;
}

static double tolerance(const struct device *d, const struct tape *t, const struct call *c)
{
    (void)d, (void)t, (void)c;
    return 1e-9;
}

static const struct device_fns fns = {
    .has = has, .upload = upload, .release = release, .cache_open = cache_open, .cache_close = cache_close,
    .page_read = page_read, .page_write = page_write, .compile = compile, .program_close = program_close,
    .run = run, .read = read_rows, .write = write_rows, .tolerance = tolerance,
};

struct seen {
    int n, n_failed;
    char label[400];                /* of the last failure */
    const char *op;
};

static void note(void *context, const struct check_result *r)
{
    struct seen *s = context;
    s->n++;
    CHECK_EQ(r->passed, r->nmse <= r->allowed);
    if (r->passed) return;
    s->n_failed++;
    s->op = r->op;
    snprintf(s->label, sizeof s->label, "%s", r->label);
}

static struct seen check(enum fault fault, const char *only, bool quick, bool width)
{
    struct model_device d = { .base = { .fns = &fns, .equal_bits = true }, .fault = fault };
    struct check_params p = { .seed = test_random(), .only = only, .quick = quick };
    struct seen seen = { 0 };
    int n_failed = -1;
    luce_error err = { 0 };
    if (width) CHECK_OK(check_width_independence(&d.base, &p, note, &seen, &n_failed, &err), err);
    else CHECK_OK(check_device(&d.base, &p, note, &seen, &n_failed, &err), err);
    CHECK_EQ(n_failed, seen.n_failed);
    CHECK(seen.n > 0);
    return seen;
}

TEST(check_passes_a_sound_device)
{
    static const char *const whole[] = { "embed", "norm", "rope_kv", "attn", "short_conv", "delta", "take", "argmax" };
    struct seen s = check(SOUND, NULL, true, false);
    CHECK(s.n > 50 && s.n_failed == 0, "%d results, %d failed", s.n, s.n_failed);
    for (size_t i = 0; i < COUNT(whole); i++) {
        s = check(SOUND, whole[i], false, false);
        if (s.n_failed) CHECK(false, "%s: %s", s.op, s.label);
    }
    s = check(SOUND, NULL, true, true);
    CHECK_EQ(s.n_failed, 0);
    static const char *const with_cache[] = { "rope_kv", "short_conv", "delta" };
    for (size_t i = 0; i < COUNT(with_cache); i++) {
        s = check(SOUND, with_cache[i], false, true);
        if (s.n_failed) CHECK(false, "%s: %s", s.op, s.label);
    }
}

TEST(check_passes_a_device_that_runs_expansions)
{
    struct seen s = check(NO_QKV, "qkv", true, false);
    CHECK_EQ(s.n_failed, 0);
    CHECK_EQ(s.n, check(SOUND, "qkv", true, false).n);
    s = check(NO_QKV, "qkv", true, true);
    CHECK_EQ(s.n_failed, 0);
}

TEST(check_leaves_out_formats_without_a_kernel)
{
    struct seen all = check(SOUND, "embed", false, false), some = check(NO_Q4_K, "embed", false, false);
    CHECK_EQ(some.n_failed, 0);
    CHECK_EQ(all.n - some.n, 4);
}

static const struct { enum fault fault; const char *op, *says; bool width; } faults[] = {
    { WRONG_VALUE, "linear", "", false },
    { WRONG_VALUE, "argmax", "", false },
    { NOT_A_NUMBER, "norm", "", false },
    { UNWRITTEN, "add", "", false },
    { NO_COMMIT, "rope_kv", "committed", false },
    { STRAY_WRITE, "rope_kv", "committed and other", false },
    { WRONG_KEY, "rope_kv", "new keys", false },
    { NO_COMMIT, "short_conv", "states and journals", false },
    { NO_COMMIT, "delta", "states and journals", false },
    { STRAY_WRITE, "short_conv", "other states", false },
    { STRAY_WRITE, "delta", "other states", false },
    { WRONG_KEY, "short_conv", "states and journals", false },
    { NO_COMMIT, "delta", "in company", true },
    { BY_WIDTH, "add", "in company", true },
    { BY_WIDTH, "take", "in company", true },
};

TEST(check_finds_planted_faults)
{
    for (size_t i = 0; i < COUNT(faults); i++) {
        struct seen s = check(faults[i].fault, faults[i].op, true, faults[i].width);
        CHECK(s.n_failed > 0, "fault %d of %s", faults[i].fault, faults[i].op);
        CHECK(s.op && strcmp(s.op, faults[i].op) == 0 && strstr(s.label, faults[i].says), "%s: %s", s.op, s.label);
    }
}

TEST(check_survives_any_failed_allocation)
{
    /* The model device of this file does not; so the first allocations of a case, which are the checker's. */
    size_t before = mem_live();
    for (int n = 0; n < 12; n++) {
        struct model_device d = { .base = { .fns = &fns } };
        int n_failed;
        luce_error err = { 0 };
        struct check_params p = { .seed = 1, .only = "add", .quick = true };
        mem_fail_after(n);
        luce_status st = check_device(&d.base, &p, NULL, NULL, &n_failed, &err);
        mem_fail_never();
        CHECK_EQ(st, LUCE_E_NOMEM);
        CHECK_EQ(mem_live(), before);
    }
}
