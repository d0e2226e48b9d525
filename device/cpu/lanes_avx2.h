/* device/cpu/lanes_avx2.h - lanes_portable.h with AVX2, FMA and F16C. */
#ifndef LUCE_DEVICE_CPU_LANES_AVX2_H
#define LUCE_DEVICE_CPU_LANES_AVX2_H

#include <immintrin.h>

#include "device/cpu/vec.h"

typedef struct {
    __m256 low, high;
} v16;
enum { BLOCK = 4, TALL = 4, FULL_AS = 3, HALF_AS = 1, DELTA_BLOCKS = 1 };

INLINE v16 v_load(const float *p)
{
    return (v16){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) };
}
INLINE void v_store(float *p, v16 v)
{
    _mm256_storeu_ps(p, v.low);
    _mm256_storeu_ps(p + 8, v.high);
}
INLINE v16 v_all(float x)
{
    __m256 v = _mm256_set1_ps(x);
    return (v16){ v, v };
}
INLINE v16 v_add(v16 a, v16 b)
{
    return (v16){ _mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high) };
}
INLINE v16 v_max(v16 a, v16 b)
{
    return (v16){ _mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high) };
}
INLINE __m256 select_half(int bits, __m256 a, __m256 b)
{
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i m = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits), bit), bit);
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(m));
}
INLINE v16 v_select(uint16_t bits, v16 a, v16 b)
{
    return (v16){ select_half(bits & 255, a.low, b.low), select_half(bits >> 8, a.high, b.high) };
}
INLINE v16 v_mul(v16 a, v16 b)
{
    return (v16){ _mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high) };
}
INLINE v16 v_fma(v16 a, v16 b, v16 c)
{
    return (v16){ _mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high) };
}
INLINE v16 v_from_f16(const uint8_t *p)
{
    return (v16){ _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 16))) };
}
INLINE v16 v_from_i8(const uint8_t *p)
{
    __m128i v = _mm_loadu_si128((const __m128i *)p);
    return (v16){ _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)),
                  _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(v, 8))) };
}
INLINE v16 v_from_i4(const uint8_t *p, int part)
{
    __m128i v = _mm_loadu_si128((const __m128i *)p);
    v = _mm_sub_epi8(_mm_and_si128(part ? _mm_srli_epi16(v, 4) : v, _mm_set1_epi8(15)), _mm_set1_epi8(8));
    return (v16){ _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)),
                  _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(v, 8))) };
}
INLINE __m256 half_from_bf16(const uint8_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
INLINE v16 v_from_bf16(const uint8_t *p)
{
    return (v16){ half_from_bf16(p), half_from_bf16(p + 16) };
}
INLINE v16 v_pair(const float *p)
{
    double two;
    memcpy(&two, p, sizeof two);
    __m256 v = _mm256_castpd_ps(_mm256_set1_pd(two));
    return (v16){ v, v };
}
INLINE v16 v_double(v16 v, int part)
{
    return part ? (v16){ _mm256_movehdup_ps(v.low), _mm256_movehdup_ps(v.high) }
                : (v16){ _mm256_moveldup_ps(v.low), _mm256_moveldup_ps(v.high) };
}
INLINE v16 v_zip(v16 a, v16 b, int part)
{
    __m256 x = part ? a.high : a.low, y = part ? b.high : b.low;
    __m256 even = _mm256_unpacklo_ps(x, y), odd = _mm256_unpackhi_ps(x, y);
    return (v16){ _mm256_permute2f128_ps(even, odd, 0x20), _mm256_permute2f128_ps(even, odd, 0x31) };
}
INLINE void v_to_f16(uint8_t *p, v16 v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i *)(p + 16), _mm256_cvtps_ph(v.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#include "device/cpu/turn.h"

#endif
