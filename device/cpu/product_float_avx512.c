/* device/cpu/product_float_avx512.c - strip products of F32, F16 and BF16 with AVX-512.
 * A vector holds 16 rows; a column's x is broadcast. An accumulator waits for its own last sum, so 4
 * strips are multiplied at once when there are few columns (chains enough for latency 4 times 2 units).
 * BF16: VDPBF16PS adds the products of a pair of k, the odd one first, each rounded: product.c says the
 * same in two sums. It takes denormal numbers for zero, which bf16 weights and activations do not need. */
#include <immintrin.h>
#include <string.h>

#include "base/inline.h"
#include "device/cpu/product.h"

enum { VEC = 64, TILE = 8, STEPS = 4, AHEAD = 4096 };

/* What one step of k (a pair for bf16) of 16 rows takes in a strip. */
INLINE size_t step_bytes_of(uint32_t format)
{
    return format == Q_F16 ? VEC / 2 : VEC;
}

INLINE __m512 add(uint32_t format, __m512 acc, __m512 w, const uint8_t *x)
{
    if (format == Q_BF16) {
        int32_t pair;
        memcpy(&pair, x, 4);
        return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)_mm512_set1_epi32(pair));
    }
    float v;
    memcpy(&v, x, 4);
    return _mm512_fmadd_ps(w, _mm512_set1_ps(v), acc);
}

/* strips x cols tile; both are constants. */
INLINE void tile(uint32_t format, int strips, int cols, const struct product *p, int first_strip, int first_col)
{
    size_t strip_bytes = p->w->strip_bytes, step = step_bytes_of(format);
    int64_t n = format == Q_BF16 ? (p->w->in + 1) / 2 : p->w->in;      /* steps */
    const uint8_t *w = p->strip + (size_t)first_strip * strip_bytes;
    const uint8_t *x = (const uint8_t *)p->x + (size_t)(p->first_col + first_col) * (size_t)n * 4;
    __m512 acc[STEPS * TILE];
    for (int i = 0; i < strips * cols; i++) acc[i] = _mm512_setzero_ps();
    for (int64_t k = 0; k < n; k++, w += step, x += 4)
        for (int s = 0; s < strips; s++) {
            const uint8_t *at = w + (size_t)s * strip_bytes;
            _mm_prefetch((const char *)at + AHEAD, _MM_HINT_T0);
            __m512 v = format == Q_F16 ? _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at))
                                       : _mm512_loadu_ps(at);
            for (int c = 0; c < cols; c++) acc[s * cols + c] = add(format, acc[s * cols + c], v,
                x + (size_t)c * (size_t)n * 4);
        }
    for (int s = 0; s < strips; s++)
        for (int c = 0; c < cols; c++)
            _mm512_storeu_ps(p->y + ((size_t)(first_strip + s) * (size_t)p->n_cols + (size_t)(first_col + c)) * LANES,
                             acc[s * cols + c]);
}

INLINE void columns(uint32_t format, int strips, const struct product *p, int first_strip)
{
    for (int c = 0; c < p->n_cols;) {
        int left = p->n_cols - c;
        if (left >= 6) tile(format, strips, 6, p, first_strip, c), c += 6;
        else if (left >= 4) tile(format, strips, 4, p, first_strip, c), c += 4;
        else if (left >= 2) tile(format, strips, 2, p, first_strip, c), c += 2;
        else tile(format, strips, 1, p, first_strip, c), c += 1;
    }
}

INLINE void product(uint32_t format, const struct product *p)
{
    int s = 0;
    for (; s + 4 <= p->n_strips; s += 4) columns(format, 4, p, s);
    for (; s < p->n_strips; s++) columns(format, 1, p, s);
}

void product_f32_avx512(const struct product *p)
{
    product(Q_F32, p);
}

void product_f16_avx512(const struct product *p)
{
    product(Q_F16, p);
}

void product_bf16_avx512(const struct product *p)
{
    product(Q_BF16, p);
}
