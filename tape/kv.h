/* tape/kv.h - how keys and values lie in pages: shared by ops, devices and the cache.
 *
 * Layers of one kind (full attention, one window size, ...) share page tables and page ids.
 * A page of a kind holds 64 positions of all its layers, in one contiguous block:
 *     page [layer of the kind][kv_head][K: payload, scales; V: payload, scales]
 *     payload of a head  [64 positions][dim] in the format's element size
 *     scales of a head   [64 positions][dim / 32] f16, for q8_0 and q4_0 only
 * q4_0 payload packs elements e and e + 16 of each 32 in one byte (low, high nibble).
 * Every head's block is a multiple of 64 bytes. The page ids 0 .. n_slots-1 of a kind are the
 * staging banks of the slots: bank row r lies where position r of a page would.
 *
 * Recurrent layers have no pages of positions. Their pools, all f32, are KV_STATE and KV_JOURNAL:
 *     state page   [layer][conv: taps - 1 columns, oldest first][channels]
 *                         [memory: v_head][v_dim / 16][k_dim][16]
 *     journal page [layer][64 rows][channels] inputs of the convolution, then [64][k_heads][k_dim] keys,
 *                         [64][v_heads][v_dim] corrections, [64][v_heads] decays
 * State pages 0 .. n_slots-1 are the slots' own (after all committed positions), the others checkpoints.
 * A slot has one journal page: row r is what redoes the update of row r of its narrow step before,
 *     conv: drop the oldest column, add the input;   memory: S = decay * S + key correction^T */
#ifndef LUCE_TAPE_KV_H
#define LUCE_TAPE_KV_H

#include "base/error.h"
#include "quant/quant.h"
#include "tape/step.h"

enum { KV_MAX_KINDS = 4, KV_STATE = KV_MAX_KINDS, KV_JOURNAL, KV_POOLS, KV_MAX_LAYERS = 512, KV_LANES = 16 };

/* What a recurrent layer keeps. */
struct kv_state {
    int channels, taps;         /* of its convolution */
    int k_heads, v_heads, k_dim, v_dim;     /* of its memory; v_dim a multiple of KV_LANES */
};

struct kv_layer {
    int      kind;              /* -1: the layer keeps nothing; KV_STATE: it is recurrent */
    int      kv_heads, k_dim, v_dim;
    uint32_t k_format, v_format; /* Q_F16, Q_BF16, Q_Q8_0, Q_Q4_0 */
    uint64_t offset;            /* of this layer in a page of its kind, bytes */
    uint64_t k_head, v_head;    /* bytes of one head's block */
    struct kv_state state;      /* KV_STATE only, as `journal` */
    uint64_t journal;           /* of this layer in a journal page, bytes */
};

struct kv_kind {
    int      window;            /* positions a row sees including itself; 0: all */
    uint64_t page_bytes;
};

struct kv_layout {
    int n_layers, n_kinds;
    struct kv_layer layer[KV_MAX_LAYERS];
    struct kv_kind  kind[KV_POOLS];     /* [n_kinds] with positions; KV_STATE and KV_JOURNAL have bytes of
                                           a page if some layer is recurrent */
};

/* Row i of the formats that keys and values may have, NULL past the end. */
const struct format *kv_format(size_t i);
/* LUCE_E_ARG: `what` (a cache type) may not be `name`; lists what it may be. */
luce_status kv_refuse_format(const char *what, const char *name, luce_error *err);

/* Adds a layer with the given heads and window (a kind per distinct window); formats come later. */
luce_status kv_layout_add(struct kv_layout *l, int kv_heads, int k_dim, int v_dim, int window,
                          luce_error *err);
/* Adds a recurrent layer. LUCE_E_UNSUPPORTED: a size that the layout does not take. */
luce_status kv_layout_add_state(struct kv_layout *l, const struct kv_state *s, luce_error *err);
/* Whether some layer is recurrent; true from kv_layout_finish on. */
static inline bool kv_recurrent(const struct kv_layout *l)
{
    return l->kind[KV_STATE].page_bytes > 0;
}
/* Fixes the formats of all layers and computes offsets. LUCE_E_ARG names a format that is not a
 * cache format, or whose block does not divide a head's dim. */
luce_status kv_layout_finish(struct kv_layout *l, uint32_t k_format, uint32_t v_format, luce_error *err);

/* Byte offsets inside a page. `scales` is relative to the head's block. */
static inline uint64_t kv_k_at(const struct kv_layer *l, int head)
{
    return l->offset + (uint64_t)head * (l->k_head + l->v_head);
}
static inline uint64_t kv_v_at(const struct kv_layer *l, int head)
{
    return kv_k_at(l, head) + l->k_head;
}
/* Numbers in the parts of a recurrent layer's state and journal. */
static inline uint64_t kv_conv_size(const struct kv_state *s)
{
    return (uint64_t)(s->taps - 1) * (uint64_t)s->channels;
}
static inline uint64_t kv_memory_size(const struct kv_state *s)
{
    return (uint64_t)s->v_heads * (uint64_t)s->v_dim * (uint64_t)s->k_dim;
}
/* The parts of a journal, in f32 from the layer's place in its page. */
enum journal { JOURNAL_INPUT, JOURNAL_KEY, JOURNAL_CORRECTION, JOURNAL_DECAY, JOURNAL_PARTS };
static inline uint64_t kv_journal_cols(const struct kv_state *s, enum journal part)
{
    return (uint64_t)(part == JOURNAL_INPUT ? s->channels : part == JOURNAL_KEY ? s->k_heads * s->k_dim
                      : part == JOURNAL_CORRECTION ? s->v_heads * s->v_dim : s->v_heads);
}
static inline uint64_t kv_journal_at(const struct kv_state *s, enum journal part)
{
    uint64_t at = 0;
    for (int i = 0; i < (int)part; i++) at += NARROW_ROWS * kv_journal_cols(s, (enum journal)i);
    return at;
}

/* Bytes of the payload of one position, and where the scales of a head's block begin (0: none). */
uint64_t kv_row_bytes(uint32_t format, int dim);
uint64_t kv_scales_at(uint32_t format, int dim);

/* One position of one head: dim values to / from a head's block, at position `pos` of the page.
 * These define the rounding: q8_0 and q4_0 as quant/ encodes them, f16 and bf16 to nearest even. */
void kv_encode(uint32_t format, int dim, uint8_t *head_block, int pos, const float *values);
void kv_decode(uint32_t format, int dim, const uint8_t *head_block, int pos, float *values);

#endif
