/* device/cpu/upload.c - weights into this device's memory: strips, and vectors in f32. */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "device/cpu/cpu.h"
#include "quant/synthetic.h"

enum { UNIT_BYTES_MAX = SUPER * 8 };    /* canonical bytes of one unit of the widest format */

static int unit_of(const struct packed *p)
{
    return p->strips_as->unit ? p->strips_as->unit : p->format->block;
}

/* Shape and sizes; LUCE_E_UNSUPPORTED for what no product could read. */
static luce_status describe(struct packed *p, const struct weight *w, luce_error *err)
{
    const struct format *f = format_find(w->type);
    if (!f || !f->decode)
        return fail(err, LUCE_E_UNSUPPORTED, "%s: format id %" PRIu32 " cannot be decoded", w->name, w->type);
    uint64_t rows = (w->dim[1] ? w->dim[1] : 1) * (w->dim[2] ? w->dim[2] : 1);
    if (!w->dim[0] || w->dim[0] > INT32_MAX || rows > INT32_MAX || w->dim[0] % (uint64_t)f->block)
        return fail(err, LUCE_E_FORMAT, "%s: %" PRIu64 " x %" PRIu64 " elements in format %s: the row must be "
                    "a multiple of %d", w->name, w->dim[0], rows, f->name, f->block);
    *p = (struct packed){ .format = f, .strips_as = strip_format_find(w->type), .in = (int64_t)w->dim[0],
                          .out = (int64_t)rows };
    int unit = unit_of(p);
    size_t whole = (size_t)(p->in / unit) * p->strips_as->bytes(f, unit);
    if (p->in % unit) whole += p->strips_as->bytes(f, (int)(p->in % unit));
    p->strip_bytes = (whole + 63) / 64 * 64;
    p->n_strips = (int)((p->out + LANES - 1) / LANES);
    return LUCE_OK;
}

static uint64_t bytes_of(const struct packed *p)
{
    return (uint64_t)p->n_strips * p->strip_bytes + (p->out == 1 ? (uint64_t)p->in * sizeof(float) : 0);
}

uint64_t cpu_weight_bytes(const struct device *d, const struct weight *w)
{
    (void)d;
    struct packed p = { 0 };
    return describe(&p, w, NULL) ? 0 : bytes_of(&p);
}

struct packing {
    const struct packed *p;
    const struct weight *w;
    size_t row_bytes;
    uint8_t *made;                  /* synthetic rows: room for a strip's, by thread */
    size_t made_bytes;
};

static void pack_strip(const struct packing *k, int strip, int thread)
{
    const struct packed *p = k->p;
    int64_t first = (int64_t)strip * LANES, rows = p->out - first < LANES ? p->out - first : LANES;
    uint8_t *made = k->made ? k->made + (size_t)thread * k->made_bytes : NULL;
    if (!k->w->host)
        synthetic_rows(p->format, k->w->seed, (uint64_t)first, (uint64_t)rows, (uint64_t)p->in, k->w->synthetic_std,
                       made);
    int unit = unit_of(p);
    size_t unit_src = (size_t)(unit / p->format->block) * (size_t)p->format->bytes;
    size_t unit_dst = p->strips_as->bytes(p->format, unit);
    uint8_t *to = p->data + (size_t)strip * p->strip_bytes;
    memset(to, 0, p->strip_bytes);
    for (int lane = 0; lane < rows; lane++) {
        const uint8_t *src = k->w->host ? weight_row(k->w, (uint64_t)(first + lane), k->row_bytes)
                                        : made + (size_t)lane * k->row_bytes;
        for (int64_t at = 0, u = 0; at < p->in; at += unit, u++) {
            int n = p->in - at < unit ? (int)(p->in - at) : unit;
            p->strips_as->pack(p->format, src + (size_t)u * unit_src, n, lane, to + (size_t)u * unit_dst);
        }
    }
}

static void pack_share(void *arg, int thread, int n_threads)
{
    const struct packing *k = arg;
    int64_t from, to;
    pool_share(k->p->n_strips, thread, n_threads, &from, &to);
    for (int64_t s = from; s < to; s++) pack_strip(k, (int)s, thread);
}

void packed_row(const struct packed *p, int64_t row, float *dst)
{
    uint8_t block[UNIT_BYTES_MAX];
    int unit = unit_of(p);
    size_t unit_dst = p->strips_as->bytes(p->format, unit);
    const uint8_t *strip = p->data + (size_t)(row / LANES) * p->strip_bytes;
    for (int64_t at = 0; at < p->in; at += unit, strip += unit_dst) {
        int n = p->in - at < unit ? (int)(p->in - at) : unit;
        p->strips_as->unpack(p->format, strip, n, (int)(row % LANES), block);
        p->format->decode(block, dst + at, n);
    }
}

luce_status cpu_upload(struct device *d, struct weight *w, luce_error *err)
{
    struct cpu *cpu = (struct cpu *)d;
    struct packed *p = mem_zero(sizeof *p);
    if (!p) return fail(err, LUCE_E_NOMEM, "%s: out of memory", w->name);
    luce_status st = describe(p, w, err);
    if (st) goto bad;
    uint64_t need = (uint64_t)p->out * format_bytes(p->format, (uint64_t)p->in);
    if (w->host && w->host_bytes < need) {
        st = fail(err, LUCE_E_ARG, "%s: %" PRIu64 " bytes are there, %" PRIu64 " are needed", w->name,
                  w->host_bytes, need);
        goto bad;
    }
    p->data = slab_take(&cpu->slabs, (size_t)p->n_strips * p->strip_bytes);
    if (p->out == 1) p->vector = mem_aligned((size_t)p->in * sizeof(float), 64);
    if (!p->data || (p->out == 1 && !p->vector)) {
        st = fail(err, LUCE_E_NOMEM, "%s: out of memory for %" PRIu64 " bytes", w->name, bytes_of(p));
        goto bad;
    }
    struct packing k = { .p = p, .w = w, .row_bytes = (size_t)format_bytes(p->format, (uint64_t)p->in) };
    k.made_bytes = w->host ? 0 : (LANES * k.row_bytes + 63) / 64 * 64;
    if (k.made_bytes) {
        k.made = mem_aligned(k.made_bytes * (size_t)cpu->n_threads, 64);
        if (!k.made) {
            st = fail(err, LUCE_E_NOMEM, "%s: out of memory for rows of synthetic weights", w->name);
            goto bad;
        }
    }
    pool_run(cpu->pool, pack_share, &k);
    mem_free(k.made);
    if (p->vector) packed_row(p, 0, p->vector);
    w->dev = p;
    w->layout = 1;
    return LUCE_OK;
bad:
    if (p) {
        slab_give(&cpu->slabs, p->data);
        mem_free(p->vector);
    }
    mem_free(p);
    return st;
}

void cpu_release(struct device *d, struct weight *w)
{
    struct packed *p = w->dev;
    if (!p) return;
    slab_give(&((struct cpu *)d)->slabs, p->data);
    mem_free(p->vector);
    mem_free(p);
    w->dev = NULL;
    w->layout = 0;
}
