/* device/cpu/unpack_avx512.h - strip blocks of the integer formats into vectors, for the products that use them. */
#ifndef LUCE_DEVICE_CPU_UNPACK_AVX512_H
#define LUCE_DEVICE_CPU_UNPACK_AVX512_H

#include <immintrin.h>

#include "base/inline.h"
#include "device/cpu/strips.h"
#include "quant/blocks.h"

/* What a group of a format looks like unpacked. */
struct group {
    __m512i w[8];
    __m512  scale[2], offset;
};

INLINE __m512i load(const void *at)
{
    return _mm512_loadu_si512(at);
}

INLINE __m512 load_f16(const uint8_t *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
}

INLINE __m512 from_u8(__m128i v)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(v));
}

INLINE __m128i load16(const uint8_t *at)
{
    return _mm_loadu_si128((const __m128i *)at);
}

INLINE void nibbles(const uint8_t *at, struct group *g)
{
    const __m512i low = _mm512_set1_epi8(15);
    for (int j = 0; j < 4; j++) {
        __m512i v = load(at + j * VEC);
        g->w[j] = _mm512_and_si512(v, low);
        g->w[j + 4] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
    }
}

INLINE void by_table(const uint8_t *at, const int8_t values[16], struct group *g)
{
    const __m512i table = _mm512_xor_si512(_mm512_broadcast_i32x4(load16((const uint8_t *)values)),
                                           _mm512_set1_epi8((char)0x80));
    nibbles(at, g);
    for (int j = 0; j < 8; j++) g->w[j] = _mm512_shuffle_epi8(table, g->w[j]);
}

/* Bit j of each byte becomes bit 4 of vector j. */
INLINE void fifth_bits(const uint8_t *at, struct group *g)
{
    const __m512i bit = _mm512_set1_epi8(16);
    __m512i v = load(at);
    for (int j = 0; j < 8; j++) {
        __m512i b = j < 4 ? _mm512_slli_epi16(v, 4 - j) : _mm512_srli_epi16(v, j - 4);
        g->w[j] = _mm512_ternarylogic_epi64(g->w[j], b, bit, 0xf8);     /* w | (b & bit) */
    }
}

/* Scales of group i of Q4_K and Q5_K; `at` is their section from d on. */
INLINE void k_scales(const uint8_t *at, int i, struct group *g)
{
    const uint8_t *low = at + Q4K_LOW - Q4K_D + i * LANES, *high = at + Q4K_HIGH - Q4K_D + i % 4 * LANES;
    const __m128i four = _mm_set1_epi8(15), two = _mm_set1_epi8(0x30);
    __m128i l = load16(low), h = load16(high);
    h = _mm_srli_epi16(h, i / 4 * 4);
    __m128i sc = _mm_or_si128(_mm_and_si128(l, four), _mm_and_si128(_mm_slli_epi16(h, 4), two));
    __m128i m = _mm_or_si128(_mm_and_si128(_mm_srli_epi16(l, 4), four), _mm_and_si128(_mm_slli_epi16(h, 2), two));
    g->scale[0] = _mm512_mul_ps(load_f16(at), from_u8(sc));
    g->offset = _mm512_mul_ps(load_f16(at + F16S), from_u8(m));
}

/* Unpacks group i of a block of n groups. `format` is a constant: one branch is compiled.
 * Long: one switch over the formats, a few lines each. */
INLINE void unpack(uint32_t format, const uint8_t *block, int n, int i, struct group *g)
{
    switch (format) {
    case Q_Q4_0:
        nibbles(block + i * NIBBLES, g);
        g->scale[0] = load_f16(block + n * NIBBLES + i * F16S);
        break;
    case Q_IQ4_NL:
        by_table(block + i * NIBBLES, iq4nl_values, g);
        g->scale[0] = load_f16(block + n * NIBBLES + i * F16S);
        break;
    case Q_Q4_1:
        nibbles(block + i * NIBBLES, g);
        g->scale[0] = load_f16(block + n * NIBBLES + i * F16S);
        g->offset = load_f16(block + n * NIBBLES + (n + i) * F16S);
        break;
    case Q_Q5_0:
        nibbles(block + i * NIBBLES, g);
        fifth_bits(block + n * NIBBLES + i * VEC, g);
        g->scale[0] = load_f16(block + n * (NIBBLES + VEC) + i * F16S);
        break;
    case Q_Q5_1:
        nibbles(block + i * NIBBLES, g);
        fifth_bits(block + n * NIBBLES + i * VEC, g);
        g->scale[0] = load_f16(block + n * (NIBBLES + VEC) + i * F16S);
        g->offset = load_f16(block + n * (NIBBLES + VEC) + (n + i) * F16S);
        break;
    case Q_Q8_0:
        for (int j = 0; j < 8; j++) g->w[j] = load(block + i * BYTES + j * VEC);
        g->scale[0] = load_f16(block + n * BYTES + i * F16S);
        break;
    case Q_MXFP4: {
        by_table(block + i * NIBBLES, fp4_values, g);
        __m512i e = _mm512_cvtepu8_epi32(load16(block + n * NIBBLES + i * LANES));
        __m512i one = _mm512_set1_epi32(1);
        __mmask16 small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
        __m512i s = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23);
        s = _mm512_mask_sllv_epi32(s, small, _mm512_set1_epi32(0x00200000), e);
        g->scale[0] = _mm512_castsi512_ps(s);
        break;
    }
    case Q_Q4_K:
        nibbles(block + i * NIBBLES, g);
        k_scales(block + Q4K_D, i, g);
        break;
    case Q_Q5_K:
        nibbles(block + i * NIBBLES, g);
        fifth_bits(block + Q5K_BIT + i * VEC, g);
        k_scales(block + Q5K_D, i, g);
        break;
    case Q_Q6_K:
        nibbles(block + i * NIBBLES, g);
        for (int h = 0; h < 2; h++) {
            const __m512i two = _mm512_set1_epi8(0x30);
            __m512i v = load(block + Q6K_BITS + (2 * i + h) * VEC);
            for (int j = 0; j < 4; j++) {
                __m512i b = j < 2 ? _mm512_slli_epi16(v, 4 - 2 * j) : _mm512_srli_epi16(v, 2 * j - 4);
                g->w[4 * h + j] = _mm512_ternarylogic_epi64(g->w[4 * h + j], b, two, 0xf8);
            }
            __m512i sc = _mm512_cvtepi8_epi32(load16(block + Q6K_SCALES + (2 * i + h) * LANES));
            g->scale[h] = _mm512_mul_ps(load_f16(block + Q6K_D), _mm512_cvtepi32_ps(sc));
        }
        break;
    default: {      /* Q_IQ4_XS */
        by_table(block + i * NIBBLES, iq4nl_values, g);
        __m128i l = load16(block + IQ4XS_LOW + i % 4 * LANES), h = load16(block + IQ4XS_HIGH + i / 4 * LANES);
        l = _mm_and_si128(_mm_srli_epi16(l, i / 4 * 4), _mm_set1_epi8(15));
        h = _mm_slli_epi16(_mm_and_si128(_mm_srli_epi16(h, 2 * (i % 4)), _mm_set1_epi8(3)), 4);
        __m128i s = _mm_sub_epi8(_mm_or_si128(l, h), _mm_set1_epi8(32));
        g->scale[0] = _mm512_mul_ps(load_f16(block + IQ4XS_D), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(s)));
        break;
    }
    }
}

INLINE int bias_of(uint32_t format)
{
    switch (format) {
    case Q_Q4_0: return 8;
    case Q_Q5_0: return 16;
    case Q_Q6_K: return 32;
    case Q_Q8_0:
    case Q_IQ4_NL:
    case Q_IQ4_XS:
    case Q_MXFP4: return 128;
    default: return 0;
    }
}

INLINE bool has_offset(uint32_t format)
{
    return format == Q_Q4_1 || format == Q_Q5_1 || format == Q_Q4_K || format == Q_Q5_K;
}

INLINE size_t block_bytes(uint32_t format, int groups)
{
    switch (format) {
    case Q_Q4_0:
    case Q_IQ4_NL: return (size_t)groups * LANES * 18;
    case Q_Q4_1: return (size_t)groups * LANES * 20;
    case Q_Q5_0: return (size_t)groups * LANES * 22;
    case Q_Q5_1: return (size_t)groups * LANES * 24;
    case Q_Q8_0: return (size_t)groups * LANES * 34;
    case Q_MXFP4: return (size_t)groups * LANES * 17;
    case Q_Q4_K: return Q4K_SIZE;
    case Q_Q5_K: return Q5K_SIZE;
    case Q_Q6_K: return Q6K_SIZE;
    default: return IQ4XS_SIZE;
    }
}

/* near: into the first-level cache, which is the faster way on Zen 5; elsewhere into the second level, since the first
 * level's few fill buffers would limit the rate (16 on Golden Cove). A constant where it is used. */
INLINE void prefetch(bool near, const uint8_t *at, int lines)
{
    for (int i = 0; i < lines; i++) {
        if (near) _mm_prefetch((const char *)at + i * VEC, _MM_HINT_T0);
        else _mm_prefetch((const char *)at + i * VEC, _MM_HINT_T1);
    }
}

#endif
