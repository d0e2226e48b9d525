/* device/cpu/measure_avx2.c - arithmetic and read loops of AVX2: see measure.c. A round is two halves
 * of 8 lanes, so that its operations are those of a round of 16. */
#include <immintrin.h>

#include "device/cpu/measure.h"

#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

void probe_f32_avx2(long rounds)
{
    __m256 x = _mm256_set1_ps((float)(measure_sink & 1) * 1e-3f);
#define START(i) __m256 a##i = _mm256_set1_ps(i);
#define STEP(i) a##i = _mm256_fmadd_ps(a##i, x, x);
#define END(i) x = _mm256_add_ps(x, a##i);
    CHAINS(START)
    for (long r = 0; r < 2 * rounds; r++) {
        CHAINS(STEP)
    }
    CHAINS(END)
#undef START
#undef STEP
#undef END
    measure_sink = (int)_mm256_cvtss_f32(x);
}

/* Without VNNI: two VPMADDUBSW whose 16-bit sums are added before VPMADDWD, as the products do. */
void probe_int8_avx2(long rounds)
{
    __m256i x = _mm256_set1_epi32(measure_sink), y = _mm256_xor_si256(x, _mm256_set1_epi8(1));
    const __m256i one = _mm256_set1_epi16(1);
#define START(i) __m256i a##i = _mm256_set1_epi32(i);
#define STEP(i)                                                                           \
    a##i = _mm256_add_epi32(a##i, _mm256_madd_epi16(_mm256_add_epi16(_mm256_maddubs_epi16(x, a##i), \
                                                                     _mm256_maddubs_epi16(y, a##i)), one));
#define END(i) x = _mm256_add_epi32(x, a##i);
    CHAINS(START)
    for (long r = 0; r < rounds; r++) {
        CHAINS(STEP)
    }
    CHAINS(END)
    measure_sink = _mm256_extract_epi32(x, 0);
}

void read_avx2(const uint8_t *from, size_t bytes)
{
    __m256i sum = _mm256_setzero_si256(), more = sum;
    for (size_t i = 0; i < bytes; i += 64) {
        _mm_prefetch((const char *)from + i + 2048, _MM_HINT_T0);
        sum = _mm256_or_si256(sum, _mm256_loadu_si256((const __m256i *)(from + i)));
        more = _mm256_or_si256(more, _mm256_loadu_si256((const __m256i *)(from + i + 32)));
    }
    measure_sink = _mm256_extract_epi32(_mm256_or_si256(sum, more), 0);
}
