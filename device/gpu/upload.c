/* device/gpu/upload.c - weights to the GPU in canonical rows, through two pinned buffers.
 * Formats that the GPU cannot decode are decoded here by quant/ and go as f16 times a power of two (exact
 * where f16's 11 bits hold the value). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "device/gpu/gpu.h"
#include "quant/quant.h"
#include "quant/synthetic.h"

/* Synthetic rows beyond this many bytes repeat those before: made once on the host, copied on the card. */
static const uint64_t synthetic_pool = 256 << 20;

static uint64_t rows_of(const struct weight *w)
{
    uint64_t n = w->dim[1] ? w->dim[1] : 1;
    return w->dim[2] > 1 ? n * w->dim[2] : n;
}

uint64_t gpu_weight_bytes(const struct device *d, const struct weight *w)
{
    (void)d;
    const struct format *f = format_find(w->type);
    uint64_t canonical = rows_of(w) * (rows_decodable(w->type) ? format_bytes(f, w->dim[0]) : 2 * w->dim[0]);
    if (rows_of(w) == 1) return canonical;
    uint64_t experts = w->dim[2] > 1 ? w->dim[2] : 1;
    uint64_t packed = tiles_bytes(tiles_of(w->type), rows_of(w) / experts, w->dim[0]) * experts;
    return packed > canonical ? packed : canonical;
}

struct rows gpu_rows(const struct weight *w)
{
    const struct gpu_weight *g = w->dev;
    return (struct rows){ .at = g->at, .row_bytes = g->row_bytes, .type = g->type, .n_rows = (int)rows_of(w),
                          .n_cols = (int)w->dim[0], .unit = 1 };
}

/* Fills one staging buffer after the other and sends it. */
struct sender {
    struct gpu *g;
    uint8_t *to;
    int turn;
};

static luce_status next_buffer(struct sender *s, uint8_t **out, luce_error *err)
{
    *out = s->g->staging[s->turn % 2];
    if (s->turn < 2) return LUCE_OK;
    return gpu_check(s->g, GPU(EventSynchronize)(s->g->staged[s->turn % 2]), "copying weights to it", err);
}

static luce_status send(struct sender *s, uint64_t bytes, luce_error *err)
{
    struct gpu *g = s->g;
    int i = s->turn++ % 2;
    luce_status st = gpu_check(g, GPU(MemcpyAsync)(s->to, g->staging[i], bytes, GPU(MemcpyHostToDevice), g->stream),
                               "copying weights to it", err);
    s->to += bytes;
    if (!st) st = gpu_check(g, GPU(EventRecord)(g->staged[i], g->stream), "copying weights to it", err);
    return st;
}

static luce_status send_bytes(struct sender *s, const uint8_t *from, uint64_t bytes, luce_error *err)
{
    luce_status st = LUCE_OK;
    for (uint64_t at = 0; at < bytes && !st; at += GPU_STAGING) {
        uint8_t *buffer;
        uint64_t n = bytes - at < GPU_STAGING ? bytes - at : GPU_STAGING;
        if ((st = next_buffer(s, &buffer, err))) return st;
        memcpy(buffer, from + at, n);
        st = send(s, n, err);
    }
    return st;
}

static luce_status send_groups(struct sender *s, const struct weight *w, uint64_t row_bytes, luce_error *err)
{
    uint64_t total = rows_of(w), group = w->group ? w->group : total;
    luce_status st = LUCE_OK;
    for (uint64_t r = 0; r < total && !st; r += group)
        st = send_bytes(s, weight_row(w, r, row_bytes), group * row_bytes, err);
    return st;
}

static luce_status too_long(const struct weight *w, uint64_t bytes, luce_error *err)
{
    return fail(err, LUCE_E_UNSUPPORTED, "%s: a row takes %llu bytes, too many", w->name, (unsigned long long)bytes);
}

static luce_status send_synthetic(struct sender *s, const struct weight *w, const struct format *f, uint64_t total,
                                  luce_error *err)
{
    uint64_t row = format_bytes(f, w->dim[0]), per = GPU_STAGING / row, pool = synthetic_pool / row, n = rows_of(w);
    luce_status st = LUCE_OK;
    uint8_t *start = s->to;
    if (!per) return too_long(w, row, err);
    for (uint64_t r = 0; r < n && r < pool && !st; r += per) {
        uint8_t *buffer;
        uint64_t count = n - r < per ? n - r : per;
        if ((st = next_buffer(s, &buffer, err))) return st;
        synthetic_rows(f, w->seed, r, count, w->dim[0], w->synthetic_std, buffer);
        st = send(s, count * row, err);
    }
    for (uint64_t have = (uint64_t)(s->to - start); have < total && !st;) {
        uint64_t count = total - have < have ? total - have : have;
        st = gpu_check(s->g, GPU(MemcpyAsync)(start + have, start, count, GPU(MemcpyDeviceToDevice), s->g->stream),
                       "making weights on it", err);
        have += count;
    }
    return st;
}

/* Largest power of two with largest * unit <= 2^12; 1 for values of a usual size. */
static float unit_for(float largest)
{
    if (!(largest > 0) || (largest >= 0x1p-6f && largest <= 0x1p14f)) return 1;
    int e;
    frexpf(largest, &e);
    e = 12 - e;
    return ldexpf(1, e < -100 ? -100 : e > 100 ? 100 : e);
}

/* Decodes `n` rows from `first` to f32 in out. `raw` has room for them. */
static void decode_rows(const struct weight *w, const struct format *f, uint64_t first, uint64_t n, uint8_t *raw,
                        float *out)
{
    uint64_t row = format_bytes(f, w->dim[0]);
    if (!w->host) synthetic_rows(f, w->seed, first, n, w->dim[0], w->synthetic_std, raw);
    for (uint64_t i = 0; i < n; i++)
        f->decode(w->host ? weight_row(w, first + i, row) : raw + i * row, out + i * w->dim[0], (int64_t)w->dim[0]);
}

/* Sends the decoded weights as f16; `unit` comes from a first pass over all of them. */
static luce_status send_decoded(struct sender *s, const struct weight *w, const struct format *f, float *unit,
                                luce_error *err)
{
    uint64_t cols = w->dim[0], per = GPU_STAGING / 4 / cols, total = rows_of(w);
    if (2 * cols > GPU_STAGING) return too_long(w, 2 * cols, err);
    if (!per) per = 1;
    float *values = mem_array(per * cols, sizeof *values), largest = 0;
    uint8_t *raw = mem_alloc(per * format_bytes(f, cols));
    luce_status st = values && raw ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory for decoding %s", w->name);
    for (uint64_t r = 0; r < total && !st; r += per) {
        uint64_t n = total - r < per ? total - r : per;
        decode_rows(w, f, r, n, raw, values);
        for (uint64_t i = 0; i < n * cols; i++)
            if (isfinite(values[i]) && fabsf(values[i]) > largest) largest = fabsf(values[i]);
    }
    *unit = unit_for(largest);
    for (uint64_t r = 0; r < total && !st; r += per) {
        uint64_t n = total - r < per ? total - r : per;
        uint8_t *buffer;
        if ((st = next_buffer(s, &buffer, err))) break;
        decode_rows(w, f, r, n, raw, values);
        for (uint64_t i = 0; i < n * cols; i++) ((uint16_t *)buffer)[i] = f32_to_f16(values[i] * *unit);
        st = send(s, 2 * n * cols, err);
    }
    mem_free(values);
    mem_free(raw);
    return st;
}

luce_status gpu_upload(struct device *d, struct weight *w, luce_error *err)
{
    struct gpu *g = (struct gpu *)d;
    const struct format *f = format_find(w->type);
    if (rows_of(w) > INT32_MAX / 2 || w->dim[0] > INT32_MAX / 2)
        return fail(err, LUCE_E_UNSUPPORTED, "%s: %llu rows of %llu are too many", w->name,
                    (unsigned long long)rows_of(w), (unsigned long long)w->dim[0]);
    struct gpu_weight *x = mem_zero(sizeof *x);
    if (!x) return fail(err, LUCE_E_NOMEM, "out of memory for %s", w->name);
    bool plain = rows_decodable(w->type);
    *x = (struct gpu_weight){ .type = plain ? w->type : Q_F16, .unit = 1,
                              .row_bytes = plain ? format_bytes(f, w->dim[0]) : 2 * w->dim[0] };
    x->bytes = x->row_bytes * rows_of(w);
    luce_status st = gpu_alloc(g, (void **)&x->at, x->bytes + 16, w->name, err);
    struct sender s = { .g = g, .to = x->at };
    if (!st && !plain) st = send_decoded(&s, w, f, &x->unit, err);
    else if (!st && w->host) st = send_groups(&s, w, x->row_bytes, err);
    else if (!st) st = send_synthetic(&s, w, f, x->bytes, err);
    if (!st) st = gpu_check(g, GPU(StreamSynchronize)(g->stream), "copying weights to it", err);
    if (st) {
        gpu_free(g, x->at);
        mem_free(x);
        return st;
    }
    w->dev = x;
    w->layout = 1;
    return LUCE_OK;
}

void gpu_release(struct device *d, struct weight *w)
{
    struct gpu *g = (struct gpu *)d;
    struct gpu_weight *x = w->dev;
    if (!x) return;
    if (x->pack) gpu_pack_free(g, x->pack);
    gpu_free(g, x->at);
    mem_free(x);
    w->dev = NULL;
    w->layout = 0;
}
