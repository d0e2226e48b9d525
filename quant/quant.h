/* quant/quant.h - number formats of weights and caches: one row per format.
 * Layouts and formulas: docs/formats.md. All multi-byte fields are little-endian.
 * Threads: the table is constant; decode and encode are pure. */
#ifndef LUCE_QUANT_QUANT_H
#define LUCE_QUANT_QUANT_H

#include "base/error.h"

/* Ids as GGUF files use them (gguf type ids). */
enum {
    Q_F32 = 0, Q_F16 = 1, Q_Q4_0 = 2, Q_Q4_1 = 3, Q_Q5_0 = 6, Q_Q5_1 = 7, Q_Q8_0 = 8,
    Q_Q2_K = 10, Q_Q3_K = 11, Q_Q4_K = 12, Q_Q5_K = 13, Q_Q6_K = 14,
    Q_IQ2_XXS = 16, Q_IQ2_XS = 17, Q_IQ3_XXS = 18, Q_IQ1_S = 19, Q_IQ4_NL = 20, Q_IQ3_S = 21,
    Q_IQ2_S = 22, Q_IQ4_XS = 23, Q_I8 = 24, Q_I16 = 25, Q_I32 = 26, Q_I64 = 27, Q_F64 = 28,
    Q_IQ1_M = 29, Q_BF16 = 30, Q_TQ1_0 = 34, Q_TQ2_0 = 35, Q_MXFP4 = 39, Q_NVFP4 = 40, Q_Q1_0 = 41,
    Q_Q2_0 = 42, Q_ROCMFP4 = 100, Q_ROCMFP4_FAST = 101, Q_ROCMFP6 = 102, Q_ROCMFP8 = 103,
    Q_ROCMFP3 = 104, Q_ROCMFP3_MIX = 105, Q_ROCMFP2_MIX = 106, Q_ROCMFP2 = 107,
    Q_TQ3_0 = 1042,             /* caches only, never in a file (its public id is Q2_0's) */
};

struct format {
    uint32_t    id;             /* gguf type id */
    const char *name;           /* "q4_K", as --synthetic and messages spell it */
    const char *doc;            /* one line */
    int         block;          /* elements of a block */
    int         bytes;          /* bytes of a block */
    /* Decodes `n` elements (a multiple of block) from src to f32. src may be unaligned.
     * Bit for bit what the golden vectors say. NULL: a format that is not a matrix format. */
    void (*decode)(const void *src, float *dst, int64_t n);
    /* Encodes one row of n elements (a multiple of block). importance: n weights, or NULL.
     * NULL where this engine does not encode the format. */
    void (*encode)(const float *src, void *dst, int64_t n, const float *importance);
    /* Checks n elements' scales: false when a block holds a scale that is not finite (or invalid).
     * NULL: every bit pattern is fine. */
    bool (*valid)(const void *src, int64_t n);
};

/* Borrowed, or NULL for an unknown id or name (names compare without case). */
const struct format *format_find(uint32_t id);
const struct format *format_named(const char *name);
/* Row i of the table, NULL past the end: for docs, tests and messages. */
const struct format *format_at(size_t i);
/* Bytes of n elements; n must be a multiple of the block. */
static inline uint64_t format_bytes(const struct format *f, uint64_t n)
{
    return n / (uint64_t)f->block * (uint64_t)f->bytes;
}

/* Conversions that everybody needs. Round to nearest even; NaN stays NaN. */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
static inline float bf16_to_f32(uint16_t h)
{
    union { uint32_t u; float f; } v = { .u = (uint32_t)h << 16 };
    return v.f;
}
static inline uint16_t f32_to_bf16(float f)
{
    union { float f; uint32_t u; } v = { .f = f };
    if ((v.u & 0x7fffffff) > 0x7f800000) return (uint16_t)(v.u >> 16 | 64);
    return (uint16_t)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}

#endif
