/* device/gpu/pack.c - tiles of the weights that one product multiplies, made from canonical rows when a
 * tape is first compiled. Scales of codes get a common power of two that puts the largest near f16's
 * upper end (quant/tiles.cuh); f32, bf16 and scaled rows become f16 on the way. */
#include <math.h>

#include "base/mem.h"
#include "device/gpu/gpu.h"
#include "quant/quant.h"

void gpu_pack_free(struct gpu *g, struct gpu_pack *p)
{
    for (int i = 0; i < p->n; i++) {
        struct gpu_weight *x = p->w[i]->dev;
        if (x && x->pack == p) x->pack = NULL;
    }
    gpu_free(g, p->tiles);
    mem_free(p);
}

static bool same(const struct gpu_pack *p, const struct weight *const *w, int n, bool pair)
{
    if (!p || p->n != n || p->pair != pair) return false;
    for (int i = 0; i < n; i++)
        if (p->w[i] != w[i]) return false;
    return true;
}

/* Largest value of all the weights (as they lie on the device), read back. */
static luce_status largest_of(struct gpu *g, const struct weight *const *w, int n, float *out, luce_error *err)
{
    float *at;
    luce_status st = gpu_alloc(g, (void **)&at, sizeof *at, "a weight's range", err);
    if (!st) st = gpu_check(g, GPU(MemsetAsync)(at, 0, sizeof *at, g->stream), "packing weights", err);
    for (int i = 0; i < n && !st; i++) {
        struct rows r = gpu_rows(w[i]);
        r.unit = 1 / ((const struct gpu_weight *)w[i]->dev)->unit;
        st = gpu_check(g, rows_absmax(&r, at, g->stream), "packing weights", err);
    }
    if (!st) st = gpu_check(g, GPU(MemcpyAsync)(out, at, sizeof *out, GPU(MemcpyDeviceToHost),
                                                g->stream), "packing weights", err);
    if (!st) st = gpu_check(g, GPU(StreamSynchronize)(g->stream), "packing weights", err);
    gpu_free(g, at);
    return st;
}

static luce_status choose_unit(struct gpu *g, struct gpu_pack *p, luce_error *err)
{
    const struct gpu_weight *first = p->w[0]->dev;
    bool plain = p->format == TILES_F16;
    p->unit = p->scale_unit = 1;
    for (int i = 0; i < p->n && plain; i++) {
        const struct gpu_weight *x = p->w[i]->dev;
        plain = x->type == Q_F16 && x->unit == first->unit;
    }
    if (plain) {
        p->unit = p->scale_unit = first->unit;
        return LUCE_OK;
    }
    float largest = 0;
    luce_status st = largest_of(g, p->w, p->n, &largest, err);
    if (st || !(largest > 0)) return st;
    if (p->format == TILES_F16 && largest >= 0x1p-6f && largest <= 0x1p14f) return LUCE_OK;
    int e;
    frexpf(largest, &e);
    e = (p->format == TILES_F16 ? 12 : 15) - e;
    p->scale_unit = ldexpf(1, e < -100 ? -100 : e > 100 ? 100 : e);
    p->unit = p->format == TILES_F16 ? p->scale_unit : p->scale_unit * 0x1p-24f;
    return LUCE_OK;
}

/* The rows of w as pack_tiles takes them; *temporary is device memory to be freed, or NULL. */
static luce_status prepare(struct gpu *g, const struct gpu_pack *p, const struct weight *w, struct rows *out,
                           void **temporary, luce_error *err)
{
    const struct gpu_weight *x = w->dev;
    *out = gpu_rows(w);
    *temporary = NULL;
    out->unit = p->scale_unit / x->unit;
    if (p->format != TILES_F16 || (x->type == Q_F16 && out->unit == 1)) return LUCE_OK;
    luce_status st = gpu_alloc(g, temporary, (uint64_t)out->n_rows * (uint64_t)out->n_cols * 2, w->name, err);
    if (!st) st = gpu_check(g, rows_to_f16(out, *temporary, g->stream), "packing weights", err);
    *out = (struct rows){ .at = *temporary, .row_bytes = 2 * (uint64_t)out->n_cols, .type = Q_F16,
                         .n_rows = out->n_rows,
                          .n_cols = out->n_cols, .unit = 1 };
    return st;
}

static int experts_of(const struct weight *w)
{
    return w->dim[2] > 1 ? (int)w->dim[2] : 1;
}

static luce_status fill_pair(struct gpu *g, struct gpu_pack *p, luce_error *err)
{
    struct rows r[2];
    void *temporary[2] = { NULL, NULL };
    luce_status st = prepare(g, p, p->w[0], &r[0], &temporary[0], err);
    if (!st && p->n == 2) st = prepare(g, p, p->w[1], &r[1], &temporary[1], err);
    r[0].n_rows /= p->n_experts;
    r[1].n_rows = r[0].n_rows;
    if (!st && p->n == 1) {                 /* one matrix: the gate's rows first */
        r[0].n_rows /= 2;
        r[1] = r[0];
        r[1].at += (uint64_t)r[0].n_rows * r[0].row_bytes;
    }
    if (!st) st = gpu_check(g, pack_tiles(p->format, p->tiles, &r[0], &r[1], true, p->n_experts, g->stream),
                            "packing weights", err);
    if (!st) st = gpu_check(g, GPU(StreamSynchronize)(g->stream), "packing weights", err);
    gpu_free(g, temporary[0]);
    gpu_free(g, temporary[1]);
    return st;
}

/* Whether a strip of 128 rows has some of two matrices. */
static bool share_strips(const struct weight *const *w, int n)
{
    bool shared = false;
    for (int i = 0; i + 1 < n; i++) shared |= w[i]->dim[1] % 128 != 0;
    return shared;
}

/* All matrices as one: their rows, one after the other, in device memory for a while. */
static luce_status fill_joined(struct gpu *g, struct gpu_pack *p, luce_error *err)
{
    struct rows all = { 0 }, r;
    void *temporary, *joined = NULL;
    uint64_t at = 0;
    luce_status st = LUCE_OK;
    for (int i = 0; i < p->n && !st; i++) {
        st = prepare(g, p, p->w[i], &r, &temporary, err);
        uint64_t bytes = (uint64_t)r.n_rows * r.row_bytes;
        if (!st && i == 0) {
            all = r;
            all.n_rows = p->n_rows;
            st = gpu_alloc(g, &joined, (uint64_t)p->n_rows * r.row_bytes, p->w[0]->name, err);
        }
        if (!st) st = gpu_check(g, GPU(MemcpyAsync)((uint8_t *)joined + at, r.at, bytes, GPU(MemcpyDeviceToDevice),
                                                    g->stream), "packing weights", err);
        if (!st) st = gpu_check(g, GPU(StreamSynchronize)(g->stream), "packing weights", err);
        at += bytes;
        gpu_free(g, temporary);
    }
    all.at = joined;
    if (!st) st = gpu_check(g, pack_tiles(p->format, p->tiles, &all, NULL, false, 1, g->stream), "packing weights",
                            err);
    if (!st) st = gpu_check(g, GPU(StreamSynchronize)(g->stream), "packing weights", err);
    gpu_free(g, joined);
    return st;
}

static luce_status fill_rows(struct gpu *g, struct gpu_pack *p, luce_error *err)
{
    if (share_strips(p->w, p->n)) return fill_joined(g, p, err);
    luce_status st = LUCE_OK;
    uint8_t *to = p->tiles;
    for (int i = 0; i < p->n && !st; i++) {
        struct rows r;
        void *temporary;
        st = prepare(g, p, p->w[i], &r, &temporary, err);
        r.n_rows /= p->n_experts;
        if (!st) st = gpu_check(g, pack_tiles(p->format, to, &r, NULL, false, p->n_experts, g->stream),
                                "packing weights", err);
        if (!st) st = gpu_check(g, GPU(StreamSynchronize)(g->stream), "packing weights", err);
        if (!st) to += tiles_bytes(p->format, (uint64_t)r.n_rows, (uint64_t)r.n_cols) * (uint64_t)p->n_experts;
        gpu_free(g, temporary);
    }
    return st;
}

/* Whether they can share one product: one format; rows of one kind where a strip has rows of two. */
static bool fits(const struct weight *const *w, int n, bool pair)
{
    const struct gpu_weight *first = w[0]->dev;
    for (int i = 0; i < n; i++) {
        const struct gpu_weight *x = w[i]->dev;
        if (tiles_of(x->type) != tiles_of(first->type)) return false;
        if (n > 1 && x->pack && !same(x->pack, w, n, pair)) return false;
        if (!pair && share_strips(w, n) && (x->type != first->type || x->unit != first->unit)) return false;
    }
    return true;
}

luce_status gpu_pack_get(struct gpu *g, const struct weight *const *w, int n, bool pair, unsigned keep,
                         struct gpu_pack **out, luce_error *err)
{
    *out = NULL;
    for (int i = 0; i < n; i++)
        if (!w[i]->dev) return fail(err, LUCE_E_ARG, "%s is not on the device", w[i]->name);
    struct gpu_weight *first = w[0]->dev;
    if (same(first->pack, w, n, pair)) {
        *out = first->pack;
        return LUCE_OK;
    }
    bool fit = fits(w, n, pair);
    if (!fit && !pair) return LUCE_OK;      /* a pair's formats are alike */
    if (!fit || !first->at || first->pack)
        return fail(err, LUCE_E_UNSUPPORTED,
                    "%s is packed for another product on this device; load the model again to "
                    "run another tape", w[0]->name);
    struct gpu_pack *p = mem_zero(sizeof *p);
    if (!p) return fail(err, LUCE_E_NOMEM, "out of memory for %s", w[0]->name);
    p->n = n;
    p->pair = pair;
    p->format = tiles_of(first->type);
    p->n_cols = (int)w[0]->dim[0];
    p->n_experts = experts_of(w[0]);
    for (int i = 0; i < n; i++) {
        p->w[i] = w[i];
        p->n_rows += (int)w[i]->dim[1];
    }
    uint64_t rows = (uint64_t)p->n_rows;
    if (pair) {                             /* 64 rows of each a strip */
        rows = ((uint64_t)p->n_rows / 2 + 63) / 64 * 128;
        p->n_rows = (int)rows;
    }
    luce_status st = choose_unit(g, p, err);
    if (!st) st = gpu_alloc(g, (void **)&p->tiles, tiles_bytes(p->format, rows, (uint64_t)p->n_cols) *
                            (uint64_t)p->n_experts, w[0]->name, err);
    if (!st) st = pair ? fill_pair(g, p, err) : fill_rows(g, p, err);
    if (st) {
        gpu_pack_free(g, p);
        return st;
    }
    for (int i = 0; i < n; i++) {
        struct gpu_weight *x = w[i]->dev;
        x->pack = p;
        if (keep >> i & 1) continue;
        gpu_free(g, x->at);
        x->at = NULL;
    }
    *out = p;
    return LUCE_OK;
}
