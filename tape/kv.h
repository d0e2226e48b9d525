/* tape/kv.h - how keys and values lie in pages: shared by ops, devices and the cache.
 *
 * Layers of one kind (full attention, one window size, ...) share page tables and page ids.
 * A page of a kind holds 64 positions of all its layers, in one contiguous block:
 *     page [layer of the kind][K: kv_head][payload, scales] then [V: kv_head][payload, scales]
 *     payload of a head  [64 positions][dim] in the format's element size
 *     scales of a head   [64 positions][dim / 32] f16, for q8_0 and q4_0 only
 * q4_0 payload packs elements e and e + 16 of each 32 in one byte (low, high nibble).
 * Every head's block is a multiple of 64 bytes. The page ids 0 .. n_slots-1 of a kind are the
 * staging banks of the slots: bank row r lies where position r of a page would. */
#ifndef LUCE_TAPE_KV_H
#define LUCE_TAPE_KV_H

#include "base/error.h"
#include "quant/quant.h"
#include "tape/step.h"

enum { KV_MAX_KINDS = 4, KV_MAX_LAYERS = 512 };

struct kv_layer {
    int      kind;              /* -1: the layer keeps no keys and values */
    int      kv_heads, k_dim, v_dim;
    uint32_t k_format, v_format; /* Q_F16, Q_BF16, Q_Q8_0, Q_Q4_0 */
    uint64_t offset;            /* of this layer in a page of its kind, bytes */
    uint64_t k_head, v_head;    /* bytes of one head's block */
};

struct kv_kind {
    int      window;            /* positions a row sees including itself; 0: all */
    uint64_t page_bytes;
};

struct kv_layout {
    int n_layers, n_kinds;
    struct kv_layer layer[KV_MAX_LAYERS];
    struct kv_kind  kind[KV_MAX_KINDS];
};

/* Row i of the formats that keys and values may have, NULL past the end. */
const struct format *kv_format(size_t i);
/* LUCE_E_ARG: `what` (a cache type) may not be `name`; lists what it may be. */
luce_status kv_refuse_format(const char *what, const char *name, luce_error *err);

/* Adds a layer with the given heads and window (a kind per distinct window); formats come later. */
luce_status kv_layout_add(struct kv_layout *l, int kv_heads, int k_dim, int v_dim, int window,
                          luce_error *err);
/* Fixes the formats of all layers and computes offsets. LUCE_E_ARG names a format that is not a
 * cache format, or whose block does not divide a head's dim. */
luce_status kv_layout_finish(struct kv_layout *l, uint32_t k_format, uint32_t v_format, luce_error *err);

/* Byte offsets inside a page. `scales` is relative to the head's block. */
static inline uint64_t kv_k_at(const struct kv_layer *l, int head)
{
    return l->offset + (uint64_t)head * l->k_head;
}
static inline uint64_t kv_v_at(const struct kv_layer *l, int head)
{
    return l->offset + (uint64_t)l->kv_heads * l->k_head + (uint64_t)head * l->v_head;
}
/* Bytes of the payload of one position, and where the scales of a head's block begin (0: none). */
uint64_t kv_row_bytes(uint32_t format, int dim);
uint64_t kv_scales_at(uint32_t format, int dim);

/* One position of one head: dim values to / from a head's block, at position `pos` of the page.
 * These define the rounding: q8_0 and q4_0 as quant/ encodes them, f16 and bf16 to nearest even. */
void kv_encode(uint32_t format, int dim, uint8_t *head_block, int pos, const float *values);
void kv_decode(uint32_t format, int dim, const uint8_t *head_block, int pos, float *values);

#endif
