/* device/cpu/lanes_avx512.h - lanes_portable.h with AVX-512. */
#ifndef LUCE_DEVICE_CPU_LANES_AVX512_H
#define LUCE_DEVICE_CPU_LANES_AVX512_H

#include <immintrin.h>

#include "device/cpu/group.h"
#include "device/cpu/vec.h"

typedef __m512 v16;
enum { BLOCK = 6, TALL = 16, FULL_AS = 11, HALF_AS = 7, DELTA_BLOCKS = 2 };

INLINE v16 v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
INLINE void v_store(float *p, v16 v)
{
    _mm512_storeu_ps(p, v);
}
INLINE v16 v_all(float x)
{
    return _mm512_set1_ps(x);
}
INLINE v16 v_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}
INLINE v16 v_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}
#define LANES_TOP
/* The largest lane; none is NaN. */
INLINE float v_top(v16 v)
{
    return _mm512_reduce_max_ps(v);
}
INLINE v16 v_select(uint16_t bits, v16 a, v16 b)
{
    return _mm512_mask_blend_ps(bits, b, a);
}
INLINE v16 v_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}
INLINE v16 v_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
INLINE v16 v_from_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
INLINE v16 v_from_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
INLINE v16 v_from_i4(const uint8_t *p, int part)
{
    __m512i v = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    v = _mm512_and_si512(part ? _mm512_srli_epi32(v, 4) : v, _mm512_set1_epi32(15));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(v, _mm512_set1_epi32(8)));
}
INLINE v16 v_from_bf16(const uint8_t *p)
{
    __m512i h = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(h, 16));
}
INLINE v16 v_pair(const float *p)
{
    double two;
    memcpy(&two, p, sizeof two);
    return _mm512_castpd_ps(_mm512_set1_pd(two));
}
INLINE v16 v_double(v16 v, int part)
{
    return part ? _mm512_movehdup_ps(v) : _mm512_moveldup_ps(v);
}
INLINE v16 v_zip(v16 a, v16 b, int part)
{
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutex2var_ps(a, _mm512_or_si512(low, _mm512_set1_epi32(8 * part)), b);
}
INLINE void v_to_f16(uint8_t *p, v16 v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* quantise_group of quantise.h. The sums of 16 come from a product with ones. */
#define LANES_QUANTISE
INLINE void quantise_group(const float *x, struct xblock *b, int g)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + LANES);
    uint32_t top = _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), magnitude),
                                                            _mm512_and_si512(_mm512_castps_si512(high), magnitude)));
    bool finite = group_finite(top);
    float inverse, d = group_scale(finite ? top : 0, &inverse);
    __mmask16 all = finite ? 0xffff : 0;
    __m512 scale = _mm512_set1_ps(inverse);
    __m128i q0 = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_maskz_mul_ps(all, low, scale)));
    __m128i q1 = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_maskz_mul_ps(all, high, scale)));
    __m256i q = _mm256_inserti128_si256(_mm256_castsi128_si256(q0), q1, 1);
    _mm256_storeu_si256((__m256i *)(b->q + g * GROUP), q);
    __m256i sum = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
    sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0x4e));
    sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0xb1));
    group_finish(b, g, finite ? d : NAN, _mm256_extract_epi32(sum, 0), _mm256_extract_epi32(sum, 4));
}
/* Halves `at` to at + n (at most 32) of 16 rows: to[e * PAGE + i] is the e-th of row i. Three rounds inside 128 bits
 * put 8 rows side by side, the fourth the other 8. */
#define LANES_TURN
INLINE void v_turn_halves(const uint8_t *const *row, int at, int n, uint16_t *to)
{
    const __m512i low = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), high = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    __mmask32 there = n == 32 ? ~0u : (1u << n) - 1;
    __m512i r[16], s[16];
    for (int i = 0; i < 16; i++) r[i] = _mm512_maskz_loadu_epi16(there, row[i] + 2 * at);
    for (int i = 0; i < 8; i++) {
        s[2 * i] = _mm512_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
        s[2 * i + 1] = _mm512_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int h = 0; h < 2; h++) {
            r[i + 2 * h] = _mm512_unpacklo_epi32(s[i + h], s[i + 2 + h]);
            r[i + 2 * h + 1] = _mm512_unpackhi_epi32(s[i + h], s[i + 2 + h]);
        }
    for (int i = 0; i < 16; i += 8)
        for (int h = 0; h < 4; h++) {
            s[i + 2 * h] = _mm512_unpacklo_epi64(r[i + h], r[i + 4 + h]);
            s[i + 2 * h + 1] = _mm512_unpackhi_epi64(r[i + h], r[i + 4 + h]);
        }
    for (int e = 0; e < 8; e++) {
        __m512i two = _mm512_permutex2var_epi64(s[e], low, s[8 + e]);
        _mm256_storeu_si256((__m256i *)(to + e * PAGE), _mm512_castsi512_si256(two));
        _mm256_storeu_si256((__m256i *)(to + (8 + e) * PAGE), _mm512_extracti64x4_epi64(two, 1));
        if (n <= 16) continue;
        two = _mm512_permutex2var_epi64(s[e], high, s[8 + e]);
        _mm256_storeu_si256((__m256i *)(to + (16 + e) * PAGE), _mm512_castsi512_si256(two));
        _mm256_storeu_si256((__m256i *)(to + (24 + e) * PAGE), _mm512_extracti64x4_epi64(two, 1));
    }
}
/* Four rounds of exchanges: blocks of 1, 2, 4 and 8 lanes. */
INLINE void v_transpose(v16 r[LANES])
{
    __m512 s[16];
    for (int i = 0; i < 8; i++) {
        s[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        s[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 4; i++) {
        __m512d a = _mm512_castps_pd(s[4 * i]), b = _mm512_castps_pd(s[4 * i + 1]);
        __m512d c = _mm512_castps_pd(s[4 * i + 2]), d = _mm512_castps_pd(s[4 * i + 3]);
        r[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        r[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        r[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        r[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    for (int i = 0; i < 4; i++) {
        s[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
        s[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
        s[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
        s[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_f32x4(s[i], s[8 + i], 0x88);
        r[8 + i] = _mm512_shuffle_f32x4(s[i], s[8 + i], 0xdd);
    }
}

#endif
