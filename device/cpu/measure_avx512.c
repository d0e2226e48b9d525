/* device/cpu/measure_avx512.c - arithmetic and read loops of AVX-512: see measure.c. */
#include <immintrin.h>

#include "device/cpu/measure.h"

#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

void probe_int8_avx512(long rounds)
{
    __m512i x = _mm512_set1_epi32(measure_sink);
#define START(i) __m512i a##i = _mm512_set1_epi32(i);
#define STEP(i) a##i = _mm512_dpbusd_epi32(a##i, x, x);
#define END(i) x = _mm512_add_epi32(x, a##i);
    CHAINS(START)
    for (long r = 0; r < rounds; r++) {
        CHAINS(STEP)
    }
    CHAINS(END)
#undef START
#undef STEP
#undef END
    measure_sink = _mm512_reduce_add_epi32(x);
}

void probe_f32_avx512(long rounds)
{
    __m512 x = _mm512_set1_ps((float)(measure_sink & 1) * 1e-3f);
#define START(i) __m512 a##i = _mm512_set1_ps(i);
#define STEP(i) a##i = _mm512_fmadd_ps(a##i, x, x);
#define END(i) x = _mm512_add_ps(x, a##i);
    CHAINS(START)
    for (long r = 0; r < rounds; r++) {
        CHAINS(STEP)
    }
    CHAINS(END)
#undef START
#undef STEP
#undef END
    measure_sink = (int)_mm512_reduce_add_ps(x);
}

void probe_bf16_avx512(long rounds)
{
    __m512bh x = (__m512bh)_mm512_set1_epi32((measure_sink & 1) * 0x3c003c00);
#define START(i) __m512 a##i = _mm512_set1_ps(i);
#define STEP(i) a##i = _mm512_dpbf16_ps(a##i, x, x);
    CHAINS(START)
    for (long r = 0; r < rounds; r++) {
        CHAINS(STEP)
    }
    __m512 sum = _mm512_setzero_ps();
#define END(i) sum = _mm512_add_ps(sum, a##i);
    CHAINS(END)
#undef START
#undef STEP
#undef END
    measure_sink = (int)_mm512_reduce_add_ps(sum);
}

static inline __m512i line(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

void read_plain_avx512(const uint8_t *from, size_t bytes)
{
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    for (size_t i = 0; i < bytes; i += 256) {
        a = _mm512_or_si512(a, line(from + i));
        b = _mm512_or_si512(b, line(from + i + 64));
        c = _mm512_or_si512(c, line(from + i + 128));
        d = _mm512_or_si512(d, line(from + i + 192));
    }
    measure_sink = _mm512_reduce_or_epi32(_mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d)));
}

void read_ahead_avx512(const uint8_t *from, size_t bytes)
{
    enum { AHEAD = 4096 };
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    for (size_t i = 0; i < bytes; i += 256) {
        for (int l = 0; l < 4; l++) _mm_prefetch((const char *)from + i + AHEAD + 64 * l, _MM_HINT_T0);
        a = _mm512_or_si512(a, line(from + i));
        b = _mm512_or_si512(b, line(from + i + 64));
        c = _mm512_or_si512(c, line(from + i + 128));
        d = _mm512_or_si512(d, line(from + i + 192));
    }
    measure_sink = _mm512_reduce_or_epi32(_mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d)));
}

/* Four streams, a quarter of the block apart. */
void read_streams_avx512(const uint8_t *from, size_t bytes)
{
    enum { AHEAD = 1024 };
    size_t quarter = bytes / 4;
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    for (size_t i = 0; i < quarter; i += 64) {
        for (int s = 0; s < 4; s++)
            _mm_prefetch((const char *)from + i + (size_t)s * quarter + AHEAD, _MM_HINT_T0);
        a = _mm512_or_si512(a, line(from + i));
        b = _mm512_or_si512(b, line(from + i + quarter));
        c = _mm512_or_si512(c, line(from + i + 2 * quarter));
        d = _mm512_or_si512(d, line(from + i + 3 * quarter));
    }
    measure_sink = _mm512_reduce_or_epi32(_mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d)));
}
