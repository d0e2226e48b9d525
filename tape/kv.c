/* tape/kv.c - see kv.h. The rounding of the quantised formats is that of quant/; only the place of
 * codes and scales differs. */
#include "tape/kv.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "quant/blocks.h"

enum { QBLOCK = 32 };

static const struct cached {
    uint64_t bits;                  /* of an element, scales apart */
    uint32_t format;
    bool scales;                    /* a half per 32 elements */
} formats[] = {
    { 16, Q_F16, false }, { 16, Q_BF16, false }, { 8, Q_Q8_0, true }, { 4, Q_Q4_0, true },
};

const struct format *kv_format(size_t i)
{
    return i < COUNT(formats) ? format_find(formats[i].format) : NULL;
}

static const struct cached *find(uint32_t format)
{
    for (size_t i = 0; i < COUNT(formats); i++)
        if (formats[i].format == format) return &formats[i];
    return NULL;
}

/* Bytes of `dim` elements, 0 for what is not a cache format. */
uint64_t kv_row_bytes(uint32_t format, int dim)
{
    const struct cached *c = find(format);
    return c ? (uint64_t)dim * c->bits / 8 : 0;
}

static bool has_scales(uint32_t format)
{
    const struct cached *c = find(format);
    return c && c->scales;
}

uint64_t kv_scales_at(uint32_t format, int dim)
{
    return has_scales(format) ? PAGE * kv_row_bytes(format, dim) : 0;
}

static uint64_t head_bytes(uint32_t format, int dim)
{
    uint64_t scales = has_scales(format) ? (uint64_t)PAGE * 2 * (uint64_t)(dim / QBLOCK) : 0;
    return PAGE * kv_row_bytes(format, dim) + scales;
}

luce_status kv_layout_add(struct kv_layout *l, int kv_heads, int k_dim, int v_dim, int window,
                          luce_error *err)
{
    if (l->n_layers == KV_MAX_LAYERS)
        return fail(err, LUCE_E_UNSUPPORTED, "the model has more than %d layers", KV_MAX_LAYERS);
    if (kv_heads < 1 || kv_heads > 1024 || k_dim < 1 || v_dim < 1 || k_dim > 4096 || v_dim > 4096 || window < 0)
        return fail(err, LUCE_E_FORMAT,
                    "layer %d: %d kv heads of %d and %d with window %d; the cache takes 1 to 1024 heads of "
                    "1 to 4096", l->n_layers, kv_heads, k_dim, v_dim, window);
    int kind = 0;
    while (kind < l->n_kinds && l->kind[kind].window != window) kind++;
    if (kind == KV_MAX_KINDS)
        return fail(err, LUCE_E_UNSUPPORTED, "layer %d: window %d is the fifth kind of layer, at most %d are "
                    "supported", l->n_layers, window, KV_MAX_KINDS);
    if (kind == l->n_kinds) l->kind[l->n_kinds++] = (struct kv_kind){ .window = window };
    l->layer[l->n_layers++] = (struct kv_layer){ .kind = kind, .kv_heads = kv_heads, .k_dim = k_dim,
                                                 .v_dim = v_dim };
    return LUCE_OK;
}

luce_status kv_refuse_format(const char *what, const char *name, luce_error *err)
{
    struct buf known = { 0 };
    for (size_t i = 0; i < COUNT(formats); i++) buf_printf(&known, "%s%s", i ? ", " : "", kv_format(i)->name);
    luce_status st = fail(err, LUCE_E_ARG, "%s '%.40s' is not for the cache; known: %s", what, name,
                          buf_text(&known));
    buf_drop(&known);
    return st;
}

luce_status kv_layout_add_state(struct kv_layout *l, const struct kv_state *s, luce_error *err)
{
    if (l->n_layers == KV_MAX_LAYERS)
        return fail(err, LUCE_E_UNSUPPORTED, "the model has more than %d layers", KV_MAX_LAYERS);
    bool heads = s->k_heads >= 1 && s->k_heads <= 1024 && s->v_heads >= 1 && s->v_heads <= 1024 &&
                 s->v_heads % s->k_heads == 0;
    bool dims = s->k_dim >= 1 && s->k_dim <= 256 && s->v_dim >= 1 && s->v_dim <= 4096 && s->v_dim % KV_LANES == 0;
    bool ok = heads && dims && s->taps >= 2 && s->taps <= 16 &&
              s->channels == 2 * s->k_heads * s->k_dim + s->v_heads * s->v_dim;
    if (!ok)
        return fail(err, LUCE_E_UNSUPPORTED, "recurrent layer %d: %d key heads of %d, %d value heads of %d, "
                    "%d channels, %d taps; keys of up to 256 and values of a multiple of %d are supported, with 2 to "
                    "16 taps over their channels", l->n_layers, s->k_heads, s->k_dim, s->v_heads, s->v_dim,
                    s->channels, s->taps, KV_LANES);
    l->layer[l->n_layers++] = (struct kv_layer){ .kind = KV_STATE, .state = *s };
    return LUCE_OK;
}

static void place_state(struct kv_layout *l, struct kv_layer *y)
{
    uint64_t *page = &l->kind[KV_STATE].page_bytes, *journal = &l->kind[KV_JOURNAL].page_bytes;
    y->offset = *page;
    y->journal = *journal;
    *page += (kv_conv_size(&y->state) + kv_memory_size(&y->state)) * sizeof(float);
    *journal += kv_journal_at(&y->state, JOURNAL_PARTS) * sizeof(float);
    *page = (*page + 63) / 64 * 64;
    *journal = (*journal + 63) / 64 * 64;
}

static luce_status check_format(uint32_t format, const char *what, int layer, int dim, luce_error *err)
{
    const struct format *f = format_find(format);
    char asked[40];
    snprintf(asked, sizeof asked, "%s format", what);
    if (!find(format)) return kv_refuse_format(asked, f ? f->name : "?", err);
    if (has_scales(format) && dim % QBLOCK)
        return fail(err, LUCE_E_ARG, "%s format '%s' needs heads of a multiple of %d, those of layer %d have "
                    "%d; use f16", what, f->name, QBLOCK, layer, dim);
    return LUCE_OK;
}

luce_status kv_layout_finish(struct kv_layout *l, uint32_t k_format, uint32_t v_format, luce_error *err)
{
    for (int k = 0; k < KV_POOLS; k++) l->kind[k].page_bytes = 0;
    for (int i = 0; i < l->n_layers; i++) {
        struct kv_layer *y = &l->layer[i];
        if (y->kind < 0) continue;
        if (y->kind == KV_STATE) {
            place_state(l, y);
            continue;
        }
        luce_status st;
        if ((st = check_format(k_format, "key", i, y->k_dim, err))) return st;
        if ((st = check_format(v_format, "value", i, y->v_dim, err))) return st;
        y->k_format = k_format;
        y->v_format = v_format;
        y->k_head = head_bytes(k_format, y->k_dim);
        y->v_head = head_bytes(v_format, y->v_dim);
        uint64_t *page = &l->kind[y->kind].page_bytes;
        y->offset = *page;
        *page += (uint64_t)y->kv_heads * (y->k_head + y->v_head);
    }
    return LUCE_OK;
}

static void encode_q8_0(int dim, uint8_t *at, uint8_t *scales, const float *values)
{
    for (int i = 0; i < dim / QBLOCK; i++) {
        struct block_q8_0 b;
        q8_0_encode_block(values + QBLOCK * i, &b);
        memcpy(at + QBLOCK * i, b.qs, QBLOCK);
        memcpy(scales + 2 * i, &b.d, 2);
    }
}

static void encode_q4_0(int dim, uint8_t *at, uint8_t *scales, const float *values)
{
    const struct format *f = format_find(Q_Q4_0);
    for (int i = 0; i < dim / QBLOCK; i++) {
        struct block_q4_0 b;
        f->encode(values + QBLOCK * i, &b, QBLOCK, NULL);
        memcpy(at + QBLOCK / 2 * i, b.qs, QBLOCK / 2);
        memcpy(scales + 2 * i, &b.d, 2);
    }
}

static void decode_q8_0(int dim, const uint8_t *at, const uint8_t *scales, float *values)
{
    for (int i = 0; i < dim / QBLOCK; i++) {
        struct block_q8_0 b;
        memcpy(b.qs, at + QBLOCK * i, QBLOCK);
        memcpy(&b.d, scales + 2 * i, 2);
        q8_0_decode_block(&b, values + QBLOCK * i);
    }
}

static void decode_q4_0(int dim, const uint8_t *at, const uint8_t *scales, float *values)
{
    const struct format *f = format_find(Q_Q4_0);
    for (int i = 0; i < dim / QBLOCK; i++) {
        struct block_q4_0 b;
        memcpy(b.qs, at + QBLOCK / 2 * i, QBLOCK / 2);
        memcpy(&b.d, scales + 2 * i, 2);
        f->decode(&b, values + QBLOCK * i, QBLOCK);
    }
}

void kv_encode(uint32_t format, int dim, uint8_t *head_block, int pos, const float *values)
{
    uint8_t *at = head_block + (uint64_t)pos * kv_row_bytes(format, dim);
    uint8_t *scales = head_block + kv_scales_at(format, dim) + (size_t)pos * 2 * (size_t)(dim / QBLOCK);
    if (format == Q_Q8_0) encode_q8_0(dim, at, scales, values);
    else if (format == Q_Q4_0) encode_q4_0(dim, at, scales, values);
    else format_find(format)->encode(values, at, dim, NULL);
}

void kv_decode(uint32_t format, int dim, const uint8_t *head_block, int pos, float *values)
{
    const uint8_t *at = head_block + (uint64_t)pos * kv_row_bytes(format, dim);
    const uint8_t *scales = head_block + kv_scales_at(format, dim) + (size_t)pos * 2 * (size_t)(dim / QBLOCK);
    if (format == Q_Q8_0) decode_q8_0(dim, at, scales, values);
    else if (format == Q_Q4_0) decode_q4_0(dim, at, scales, values);
    else format_find(format)->decode(at, values, dim);
}
