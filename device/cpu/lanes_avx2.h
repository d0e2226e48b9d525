/* device/cpu/lanes_avx2.h - lanes_portable.h with AVX2, FMA and F16C. */
#ifndef LUCE_DEVICE_CPU_LANES_AVX2_H
#define LUCE_DEVICE_CPU_LANES_AVX2_H

#include <immintrin.h>

#include "device/cpu/vec.h"

typedef struct {
    __m256 low, high;
} v16;
#define BLOCK 4

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
INLINE void v_to_f16(uint8_t *p, v16 v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i *)(p + 16), _mm256_cvtps_ph(v.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#include "device/cpu/turn.h"

#endif
