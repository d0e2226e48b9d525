/* device/cpu/product_avx2.c - strip products of the integer formats with AVX2.
 *
 * A step of 4 k of 16 rows is two vectors of 8 rows. Codes up to 63 are unsigned: VPMADDUBSW with x, whose
 * sums over two steps still fit 16 bits, then VPMADDWD with ones. Codes of 8 bits are taken as signed (the
 * offset 128 removed): |w| times x with the sign of w, 128 * 127 * 2 fits; x is never -128.
 * Integer sums are exact, so that they may be formed in any way; the order of the scale sums is that of
 * product.c. Groups are unpacked once for up to 4 columns. */
#include <immintrin.h>
#include <string.h>

#include "base/inline.h"
#include "device/cpu/product.h"
#include "device/cpu/strips.h"
#include "quant/blocks.h"

enum { HALF = 8, COLS = 4, AHEAD = 4096 };      /* rows of a vector; columns at once; bytes asked for */

/* One group of 8 of the 16 rows. */
struct group {
    __m256i w[8];
    __m256  scale[2], offset;
};

INLINE __m256i load(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

INLINE __m256 load_f16(const uint8_t *at)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
}

INLINE __m128i load8(const uint8_t *at)
{
    return _mm_loadl_epi64((const __m128i *)at);
}

INLINE __m256 from_u8(__m128i v)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v));
}

INLINE __m256 from_i8(__m128i v)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v));
}

INLINE void nibbles(const uint8_t *at, struct group *g)
{
    const __m256i low = _mm256_set1_epi8(15);
    for (int j = 0; j < 4; j++) {
        __m256i v = load(at + j * VEC);
        g->w[j] = _mm256_and_si256(v, low);
        g->w[j + 4] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    }
}

/* Signed values of the codes. */
INLINE void by_table(const uint8_t *at, const int8_t values[16], struct group *g)
{
    const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)values));
    nibbles(at, g);
    for (int j = 0; j < 8; j++) g->w[j] = _mm256_shuffle_epi8(table, g->w[j]);
}

/* Bits `at` of each byte, moved to bit 4 on. */
INLINE __m256i to_bit4(__m256i v, int at, int mask)
{
    __m256i b = at < 4 ? _mm256_slli_epi16(v, 4 - at) : _mm256_srli_epi16(v, at - 4);
    return _mm256_and_si256(b, _mm256_set1_epi8((char)mask));
}

INLINE void fifth_bits(const uint8_t *at, struct group *g)
{
    __m256i v = load(at);
    for (int j = 0; j < 8; j++) g->w[j] = _mm256_or_si256(g->w[j], to_bit4(v, j, 0x10));
}

/* Scales of group i of Q4_K and Q5_K; `at` is their section from d on, at the first of the 8 rows. */
INLINE void k_scales(const uint8_t *at, int half, int i, struct group *g)
{
    const uint8_t *low = at + Q4K_LOW - Q4K_D + i * LANES + half * HALF;
    const uint8_t *high = at + Q4K_HIGH - Q4K_D + i % 4 * LANES + half * HALF;
    const __m128i four = _mm_set1_epi8(15), two = _mm_set1_epi8(0x30);
    __m128i l = load8(low), h = load8(high);
    if (i >= 4) h = _mm_srli_epi16(h, 4);
    __m128i sc = _mm_or_si128(_mm_and_si128(l, four), _mm_and_si128(_mm_slli_epi16(h, 4), two));
    __m128i m = _mm_or_si128(_mm_and_si128(_mm_srli_epi16(l, 4), four), _mm_and_si128(_mm_slli_epi16(h, 2), two));
    at += half * F16S / 2;
    g->scale[0] = _mm256_mul_ps(load_f16(at), from_u8(sc));
    g->offset = _mm256_xor_ps(_mm256_mul_ps(load_f16(at + F16S), from_u8(m)), _mm256_set1_ps(-0.0f));
}

INLINE void q6_k(const uint8_t *block, int half, int i, struct group *g)
{
    nibbles(block + i * NIBBLES + half * VEC / 2, g);
    for (int h = 0; h < 2; h++) {
        __m256i v = load(block + Q6K_BITS + (2 * i + h) * VEC + half * VEC / 2);
        for (int j = 0; j < 4; j++)
            g->w[4 * h + j] = _mm256_or_si256(g->w[4 * h + j], to_bit4(v, 2 * j, 0x30));
        __m128i sc = load8(block + Q6K_SCALES + (2 * i + h) * LANES + half * HALF);
        g->scale[h] = _mm256_mul_ps(load_f16(block + Q6K_D + half * F16S / 2), from_i8(sc));
    }
}

INLINE void iq4_xs(const uint8_t *block, int half, int i, struct group *g)
{
    by_table(block + i * NIBBLES + half * VEC / 2, iq4nl_values, g);
    __m128i l = load8(block + IQ4XS_LOW + i % 4 * LANES + half * HALF);
    __m128i h = load8(block + IQ4XS_HIGH + i / 4 * LANES + half * HALF);
    if (i >= 4) l = _mm_srli_epi16(l, 4);
    l = _mm_and_si128(l, _mm_set1_epi8(15));
    h = _mm_slli_epi16(_mm_and_si128(_mm_srli_epi16(h, 2 * (i % 4)), _mm_set1_epi8(3)), 4);
    __m128i s = _mm_sub_epi8(_mm_or_si128(l, h), _mm_set1_epi8(32));
    g->scale[0] = _mm256_mul_ps(load_f16(block + IQ4XS_D + half * F16S / 2), from_i8(s));
}

INLINE void mxfp4(const uint8_t *block, int half, int n, int i, struct group *g)
{
    by_table(block + i * NIBBLES + half * VEC / 2, fp4_values, g);
    __m256i e = _mm256_cvtepu8_epi32(load8(block + n * NIBBLES + i * LANES + half * HALF));
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    g->scale[0] = _mm256_castsi256_ps(_mm256_blendv_epi8(normal, tiny, small));
}

/* Unpacks group i of a block of n groups, rows 8 half to 8 half + 7. `format` is a constant. */
INLINE void unpack(uint32_t format, const uint8_t *block, int half, int n, int i, struct group *g)
{
    bool fifth = format == Q_Q5_0 || format == Q_Q5_1;
    int rows = half * F16S / 2;
    const uint8_t *codes = block + i * NIBBLES + half * VEC / 2;
    const uint8_t *scales = block + n * (NIBBLES + (fifth ? VEC : 0)) + rows;
    switch (format) {
    case Q_Q8_0:
        for (int j = 0; j < 8; j++)
            g->w[j] = _mm256_xor_si256(load(block + i * BYTES + j * VEC + half * VEC / 2),
                                       _mm256_set1_epi8((char)0x80));
        g->scale[0] = load_f16(block + n * BYTES + i * F16S + rows);
        return;
    case Q_Q4_K:
        nibbles(codes, g);
        k_scales(block + Q4K_D, half, i, g);
        return;
    case Q_Q5_K:
        nibbles(codes, g);
        fifth_bits(block + Q5K_BIT + i * VEC + half * VEC / 2, g);
        k_scales(block + Q5K_D, half, i, g);
        return;
    case Q_Q6_K: q6_k(block, half, i, g); return;
    case Q_IQ4_XS: iq4_xs(block, half, i, g); return;
    case Q_MXFP4: mxfp4(block, half, n, i, g); return;
    case Q_IQ4_NL: by_table(codes, iq4nl_values, g); break;
    default: nibbles(codes, g); break;
    }
    if (fifth) fifth_bits(block + n * NIBBLES + i * VEC + half * VEC / 2, g);
    g->scale[0] = load_f16(scales + i * F16S);
    if (format == Q_Q4_1 || format == Q_Q5_1) g->offset = load_f16(scales + (n + i) * F16S);
}

INLINE bool is_signed(uint32_t format)
{
    return format == Q_Q8_0 || format == Q_IQ4_NL || format == Q_IQ4_XS || format == Q_MXFP4;
}

INLINE int bias_of(uint32_t format)
{
    return format == Q_Q4_0 ? 8 : format == Q_Q5_0 ? 16 : format == Q_Q6_K ? 32 : 0;
}

INLINE bool has_offset(uint32_t format)
{
    return format == Q_Q4_1 || format == Q_Q5_1 || format == Q_Q4_K || format == Q_Q5_K;
}

INLINE __m256i dot4(uint32_t format, __m256i w, const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, 4);
    __m256i v = _mm256_set1_epi32(four);
    if (is_signed(format)) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(v, w));
    return _mm256_maddubs_epi16(w, v);
}

/* Sum of k steps from..to. Two steps of codes up to 63 fit 16 bits (4 * 63 * 127), of 8 bits they do not. */
INLINE __m256i dots(uint32_t format, const struct group *g, const int8_t *x, int from, int to, __m256i sum)
{
    const __m256i one = _mm256_set1_epi16(1);
    bool pairs = !is_signed(format);
    for (int j = from; j < to; j += pairs ? 2 : 1) {
        __m256i s = dot4(format, g->w[j], x + 4 * j);
        if (pairs) s = _mm256_add_epi16(s, dot4(format, g->w[j + 1], x + 4 * j + 4));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(s, one));
    }
    return sum;
}

INLINE __m256 add_group(uint32_t format, const struct group *g, const struct xblock *x, int i, __m256 acc)
{
    const int parts = format == Q_Q6_K ? 2 : 1;
    for (int h = 0; h < parts; h++) {
        __m256i sum = _mm256_set1_epi32(LIFT_BITS);
        if (bias_of(format)) {
            int32_t halves, bias = -bias_of(format) & 0xffff;
            memcpy(&halves, x->half + 2 * i, 4);
            bias = parts == 2 ? (int32_t)((uint32_t)bias << 16 * h) : (int32_t)((uint32_t)bias << 16 | (uint32_t)bias);
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_set1_epi32(halves), _mm256_set1_epi32(bias)));
        }
        sum = dots(format, g, x->q + i * GROUP, h * 8 / parts, (h + 1) * 8 / parts, sum);
        __m256 t = _mm256_fmadd_ps(_mm256_castsi256_ps(sum), _mm256_set1_ps(x->d[i]), _mm256_set1_ps(x->drop[i]));
        acc = _mm256_fmadd_ps(t, g->scale[h], acc);
    }
    if (has_offset(format)) acc = _mm256_fmadd_ps(g->offset, _mm256_set1_ps(x->s[i]), acc);
    return acc;
}

/* A constant number of columns of half a strip. */
INLINE void columns(uint32_t format, int cols, const struct product *p, int strip, int half, int first)
{
    const struct strip_format *f = p->w->strips_as;
    const uint8_t *block = p->strip + (size_t)strip * p->w->strip_bytes;
    const struct xblock *x = (const struct xblock *)p->x + p->first_col + first;
    float *y = p->y + ((size_t)strip * (size_t)p->n_cols + (size_t)first) * LANES + half * HALF;
    __m256 acc[COLS];
    for (int c = 0; c < cols; c++) acc[c] = _mm256_setzero_ps();
    for (int64_t k = 0; k < p->w->in; k += SUPER, x += p->n_rows) {
        int k_here = p->w->in - k < SUPER ? (int)(p->w->in - k) : SUPER, n = k_here / GROUP;
        size_t bytes = f->bytes(p->w->format, k_here);
        for (size_t at = 0; first == 0 && half == 0 && at < bytes; at += VEC)
            _mm_prefetch((const char *)block + AHEAD + at, _MM_HINT_T0);
        for (int i = 0; i < n; i++) {
            struct group g;
            unpack(format, block, half, n, i, &g);
            for (int c = 0; c < cols; c++) acc[c] = add_group(format, &g, x + c, i, acc[c]);
        }
        block += bytes;
    }
    for (int c = 0; c < cols; c++) _mm256_storeu_ps(y + c * LANES, acc[c]);
}

INLINE void product(uint32_t format, const struct product *p)
{
    for (int s = 0; s < p->n_strips; s++)
        for (int c = 0; c < p->n_cols; c += COLS)
            for (int half = 0; half < 2; half++)
                switch (p->n_cols - c) {
                case 1: columns(format, 1, p, s, half, c); break;
                case 2: columns(format, 2, p, s, half, c); break;
                case 3: columns(format, 3, p, s, half, c); break;
                default: columns(format, 4, p, s, half, c); break;
                }
}

#define PRODUCT(name, format)                                                             \
    void product_##name##_avx2(const struct product *p)                                   \
    {                                                                                     \
        product(format, p);                                                               \
    }
INTEGER_FORMATS(PRODUCT)

/* ---- plain numbers ------------------------------------------------------------------------------- */
/* Half a strip of one step of k as f32; bf16 gives the odd k in *odd. */
INLINE __m256 plain(uint32_t format, const uint8_t *at, __m256 *odd)
{
    if (format == Q_F32) return _mm256_loadu_ps((const float *)(const void *)at);
    if (format == Q_F16) return load_f16(at);
    __m256i v = load(at);
    *odd = _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
}

/* BF16: products of a pair are exact, their sums rounded one by one, the odd k first (product.c). */
INLINE __m256 add_plain(uint32_t format, __m256 acc, __m256 w, __m256 odd, const uint8_t *x)
{
    uint32_t v;
    memcpy(&v, x, 4);
    if (format != Q_BF16) return _mm256_fmadd_ps(w, _mm256_castsi256_ps(_mm256_set1_epi32((int)v)), acc);
    acc = _mm256_fmadd_ps(odd, _mm256_castsi256_ps(_mm256_set1_epi32((int)(v & 0xffff0000u))), acc);
    return _mm256_fmadd_ps(w, _mm256_castsi256_ps(_mm256_set1_epi32((int)(v << 16))), acc);
}

/* Both halves of a strip by a constant number of columns. */
INLINE void plain_columns(uint32_t format, int cols, const struct product *p, int strip, int first)
{
    size_t step = format == Q_F16 ? VEC / 2 : VEC;
    size_t n = (size_t)(format == Q_BF16 ? (p->w->in + 1) / 2 : p->w->in);
    const uint8_t *w = p->strip + (size_t)strip * p->w->strip_bytes;
    const uint8_t *x = (const uint8_t *)p->x + (size_t)(p->first_col + first) * n * 4;
    __m256 acc[2 * COLS];
    for (int i = 0; i < 2 * cols; i++) acc[i] = _mm256_setzero_ps();
    for (size_t k = 0; k < n; k++, w += step, x += 4) {
        _mm_prefetch((const char *)w + AHEAD, _MM_HINT_T0);
        for (int h = 0; h < 2; h++) {
            __m256 odd = _mm256_setzero_ps(), v = plain(format, w + (size_t)h * step / 2, &odd);
            for (int c = 0; c < cols; c++)
                acc[2 * c + h] = add_plain(format, acc[2 * c + h], v, odd, x + (size_t)c * n * 4);
        }
    }
    float *y = p->y + ((size_t)strip * (size_t)p->n_cols + (size_t)first) * LANES;
    for (int i = 0; i < 2 * cols; i++) _mm256_storeu_ps(y + i * HALF, acc[i]);
}

INLINE void plain_product(uint32_t format, const struct product *p)
{
    for (int s = 0; s < p->n_strips; s++)
        for (int c = 0; c < p->n_cols; c += COLS)
            switch (p->n_cols - c) {
            case 1: plain_columns(format, 1, p, s, c); break;
            case 2: plain_columns(format, 2, p, s, c); break;
            case 3: plain_columns(format, 3, p, s, c); break;
            default: plain_columns(format, 4, p, s, c); break;
            }
}

void product_f32_avx2(const struct product *p)
{
    plain_product(Q_F32, p);
}

void product_f16_avx2(const struct product *p)
{
    plain_product(Q_F16, p);
}

void product_bf16_avx2(const struct product *p)
{
    plain_product(Q_BF16, p);
}
