/* tests/ref_device.c - see ref_device.h. */
#include "ref_device.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/interp.h"

struct ref {
    struct device base;
    uint64_t memory_free;
    struct ref_counts counts;
};

struct device_cache {
    struct cache_params params;
    struct interp *interp;          /* of the first tape that is compiled; programs share it */
    const struct tape *tape;
};

struct program {
    struct device_cache *cache;
    const struct tape *tape;
    bool nan;
};

static void close_device(struct device *d)
{
    mem_free(d);
}

static luce_status info(struct device *d, struct device_info *out, luce_error *err)
{
    (void)err;
    uint64_t bytes = ((struct ref *)d)->memory_free;
    *out = (struct device_info){ .name = "float64 references", .id = "ref", .memory_free = bytes,
                                 .memory_total = bytes, .n_units = 1 };
    return LUCE_OK;
}

static bool has(const struct device *d, const struct call *c)
{
    (void)d, (void)c;
    return true;
}

static uint64_t weight_bytes(const struct device *d, const struct weight *w)
{
    (void)d;
    return w->host_bytes;
}

static luce_status upload(struct device *d, struct weight *w, luce_error *err)
{
    (void)d, (void)err;
    w->layout = 1;
    return LUCE_OK;
}

static void release(struct device *d, struct weight *w)
{
    (void)d;
    w->layout = 0;
}

static luce_status cache_open_(struct device *d, struct device_cache **out, const struct cache_params *p,
                               luce_error *err)
{
    (void)d;
    *out = mem_zero(sizeof **out);
    if (!*out) return fail(err, LUCE_E_NOMEM, "ref: out of memory");
    (*out)->params = *p;
    return LUCE_OK;
}

static void cache_close_(struct device *d, struct device_cache *c)
{
    (void)d;
    interp_close(c->interp);
    mem_free(c);
}

/* The references keep rows by slot and position: a page that is copied within a slot changes nothing. */
static luce_status page_read(struct device *d, struct device_cache *c, int kind, int page, void *host, luce_error *err)
{
    (void)d, (void)page, (void)err;
    memset(host, 0, c->params.layout->kind[kind].page_bytes);
    return LUCE_OK;
}

static luce_status page_write(struct device *d, struct device_cache *c, int kind, int page, const void *host,
                              luce_error *err)
{
    (void)d, (void)c, (void)kind, (void)page, (void)host, (void)err;
    return LUCE_OK;
}

static luce_status page_copy(struct device *d, struct device_cache *c, int kind, int from, int to, luce_error *err)
{
    (void)d, (void)c, (void)kind, (void)from, (void)to, (void)err;
    return LUCE_OK;
}

static luce_status compile(struct device *d, struct program **out, const struct tape *t, const struct plan *p,
                           struct device_cache *c, luce_error *err)
{
    (void)d, (void)p;
    luce_status st = LUCE_OK;
    *out = NULL;
    if (!c->interp)
        st = interp_open(&c->interp, t, c->params.layout, c->params.n_slots, c->params.max_pages[0] * PAGE, true,
                         err);
    if (st) return st;
    *out = mem_zero(sizeof **out);
    if (!*out) return fail(err, LUCE_E_NOMEM, "ref: out of memory");
    **out = (struct program){ .cache = c, .tape = t };
    return LUCE_OK;
}

static void program_close(struct device *d, struct program *p)
{
    (void)d;
    mem_free(p);
}

static luce_status run(struct device *d, struct program *p, const struct step *s, trace_fn trace, void *context,
                       luce_error *err)
{
    (void)trace, (void)context;
    struct ref_counts *n = &((struct ref *)d)->counts;
    n->steps++;
    n->rows += s->head.n_rows;
    n->wide_rows += s->head.wide ? s->head.n_rows : 0;
    if (s->head.n_rows > n->most_rows) n->most_rows = s->head.n_rows;
    p->nan = n->nan_at == n->steps;
    if (n->fail_at == n->steps) return fail(err, LUCE_E_DEVICE, "ref: the device is lost");
    return interp_run(p->cache->interp, s, err);
}

static luce_status wait_(struct device *d, luce_error *err)
{
    (void)d, (void)err;
    return LUCE_OK;
}

static luce_status read_(struct device *d, struct program *p, const struct rows_read *rows, int n, luce_error *err)
{
    (void)d, (void)err;
    for (int k = 0; k < n; k++) {
        const struct rows_read *r = &rows[k];
        struct shape s = p->tape->values[r->v.id].shape;
        size_t stride = r->stride ? r->stride / 4 : (size_t)s.cols;
        for (int row = 0; row < r->n_rows; row++) {
            const double *from = interp_read(p->cache->interp, r->v) + (size_t)(r->first_row + row) * (size_t)s.cols;
            for (int i = 0; i < s.cols; i++) {
                size_t at = (size_t)row * stride + (size_t)i;
                if (s.type == DT_I32) ((int32_t *)r->to)[at] = p->nan ? -1 : (int32_t)from[i];
                else ((float *)r->to)[at] = p->nan ? NAN : (float)from[i];
            }
        }
    }
    return LUCE_OK;
}

static const struct device_fns fns = {
    .close = close_device, .info = info, .has = has, .weight_bytes = weight_bytes, .upload = upload,
    .release = release, .cache_open = cache_open_, .cache_close = cache_close_, .compile = compile,
    .program_close = program_close, .page_read = page_read,
    .page_write = page_write, .page_copy = page_copy, .run = run, .wait = wait_, .read = read_,
};

struct device *ref_device(bool equal_bits, uint64_t memory_free)
{
    struct ref *r = mem_zero(sizeof *r);
    if (!r) return NULL;
    r->base = (struct device){ .fns = &fns, .equal_bits = equal_bits, .max_wide_rows = 256 };
    r->memory_free = memory_free;
    return &r->base;
}

struct ref_counts *ref_counts(struct device *d)
{
    return &((struct ref *)d)->counts;
}
