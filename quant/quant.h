/* quant/quant.h - number formats of weights and caches: one row per format.
 * Layouts, formulas and how to add a format: docs/formats.md. The blocks as structs, for kernels:
 * quant/blocks.h. All multi-byte fields are little-endian.
 * Threads: the table is constant; decode, encode and valid are pure. */
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
    /* Private ids: never the type of a tensor in a file. */
    Q_PRIVATE = 1000,
    Q_TQ3_0 = 1042,             /* caches only (its public id is Q2_0's) */
    Q_ROCMFP2_AFFINE = 1107,    /* the other meaning of id 107, chosen by a load option */
};

struct format {
    uint32_t    id;             /* gguf type id, or a private one */
    const char *name;           /* "q4_K", as --synthetic and messages spell it */
    const char *doc;            /* one line */
    int         block;          /* elements of a block */
    int         bytes;          /* bytes of a block */
    /* Decodes `n` elements (a multiple of block) from src to f32. src may be unaligned.
     * Bit for bit what the golden vectors say. NULL: a format that is not a matrix format. */
    void (*decode)(const void *src, float *dst, int64_t n);
    /* Encodes one row of n elements (a multiple of block). importance: n weights, or NULL.
     * NULL where this engine does not encode the format. Values that are not finite never crash;
     * what they become is not defined (valid() finds scales that they spoiled). */
    void (*encode)(const float *src, void *dst, int64_t n, const float *importance);
    /* Checks n elements' scales: false when a block holds a scale that is not finite (or invalid).
     * NULL: every bit pattern is fine. */
    bool (*valid)(const void *src, int64_t n);
    bool        needs_importance; /* encode must be given importance */
    bool        rotate;         /* as a cache, rows are rotated (quant/rotate.h) before encode */
    /* MIX formats: decode is mode 0 (fixed levels). In mode 1 the levels come from the side data of
     * the tensor or expert: books[2][levels], ascending; one bit of each scale byte picks the
     * book. */
    int         levels;
    void (*decode_books)(const void *src, float *dst, int64_t n, const float *books);
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

/* Conversions that everybody needs. Round to nearest even; NaN stays NaN (quiet, payload cut as
 * F16C does); subnormals are exact and do not depend on the flush-to-zero mode. */
static inline float f32_of_bits(uint32_t bits)
{
    union { uint32_t u; float f; } v = { .u = bits };
    return v.f;
}
static inline uint32_t f32_bits(float f)
{
    union { float f; uint32_t u; } v = { .f = f };
    return v.u;
}
static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h & 0x7c00, magnitude = h & 0x7fff;
    uint32_t normal = (magnitude << 13) + (112u << 23);
    uint32_t special = 0x7f800000 | magnitude << 13 | (magnitude > 0x7c00 ? 0x400000 : 0);
    /* 2^-14 * (1 + m/1024) - 2^-14: the mantissa of a subnormal, normalised by the subtraction. */
    uint32_t tiny = f32_bits(f32_of_bits(113u << 23 | (magnitude << 13 & 0x7fffff)) - 0x1p-14f);
    return f32_of_bits(sign | (exp == 0 ? tiny : exp == 0x7c00 ? special : normal));
}
static inline uint16_t f32_to_f16(float f)
{
    uint32_t u = f32_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    uint32_t normal = (a - (112u << 23) + 0xfff + (a >> 13 & 1)) >> 13;
    /* 0.5 has the unit 2^-24 of a subnormal half in its last place: the sum rounds as needed. */
    uint32_t tiny = f32_bits(f32_of_bits(a < 0x38800000 ? a : 0) + 0.5f) - 0x3f000000;
    uint32_t special = a > 0x7f800000 ? 0x7e00 | (a >> 13 & 0x3ff) : 0x7c00;
    return (uint16_t)(sign | (a < 0x38800000 ? tiny : a >= 0x47800000 ? special : normal));
}
static inline float bf16_to_f32(uint16_t h)
{
    return f32_of_bits((uint32_t)h << 16);
}
static inline uint16_t f32_to_bf16(float f)
{
    uint32_t u = f32_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 64);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#endif
