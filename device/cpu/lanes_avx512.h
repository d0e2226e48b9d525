/* device/cpu/lanes_avx512.h - lanes_portable.h with AVX-512. */
#ifndef LUCE_DEVICE_CPU_LANES_AVX512_H
#define LUCE_DEVICE_CPU_LANES_AVX512_H

#include <immintrin.h>

#include "device/cpu/vec.h"

typedef __m512 v16;
#define BLOCK 6

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
/* Four rounds of exchanges: blocks of 1, 2, 4 and 8 lanes. */
INLINE void v_transpose(const float *src, int src_stride, float *dst, int dst_stride)
{
    __m512 r[16], s[16];
    for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_ps(src + i * src_stride);
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
        _mm512_storeu_ps(dst + (i % 4 + 4 * (i / 4)) * dst_stride, _mm512_shuffle_f32x4(s[i], s[8 + i], 0x88));
        _mm512_storeu_ps(dst + (8 + i % 4 + 4 * (i / 4)) * dst_stride, _mm512_shuffle_f32x4(s[i], s[8 + i], 0xdd));
    }
}

#endif
