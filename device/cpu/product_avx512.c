/* device/cpu/product_avx512.c - strip products of the integer formats with AVX-512 VNNI.
 *
 * One VPDPBUSD multiplies 16 rows by 4 k of one column; the offset of the codes is the start value of
 * the integer sum. Per group of 32 k, strip and column: 8 VPDPBUSD, a conversion, a product of scales, a
 * fused multiply-add (and one more for formats with offsets).
 * Three ways by the number of columns, each the fastest there: up to 4 a single stream of weights, one
 * strip after the other; up to 15 blocks of 256 k of several strips in turn, so that a block of x stays
 * in the first-level cache; beyond, two strips by up to 6 columns, so that a broadcast of x serves two
 * strips and an unpacked code all columns.
 * The order of sums is that of product.c: per group, upwards. */
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "device/cpu/inline.h"
#include "device/cpu/product.h"
#include "device/cpu/strips.h"
#include "quant/blocks.h"

/* Most columns of one strip at once; most for the stream; fewest for tiles of two strips. */
enum { DIRECT_COLS = 8, STREAM_COLS = 4, MANY_COLS = 16, TILE_STRIPS = 2, TILE_COLS = 6 };
/* Measured on Zen 5: a single stream with 8 KB asked for ahead reads at 90% of the machine's rate, with
 * 2 KB at 60%, four streams at 80%. */
enum { AHEAD = 8192 };

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
    if (i >= 4) h = _mm_srli_epi16(h, 4);
    __m128i sc = _mm_or_si128(_mm_and_si128(l, four), _mm_and_si128(_mm_slli_epi16(h, 4), two));
    __m128i m = _mm_or_si128(_mm_and_si128(_mm_srli_epi16(l, 4), four), _mm_and_si128(_mm_slli_epi16(h, 2), two));
    g->scale[0] = _mm512_mul_ps(load_f16(at), from_u8(sc));
    g->offset = _mm512_xor_ps(_mm512_mul_ps(load_f16(at + F16S), from_u8(m)), _mm512_set1_ps(-0.0f));
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
        if (i >= 4) l = _mm_srli_epi16(l, 4);
        l = _mm_and_si128(l, _mm_set1_epi8(15));
        h = _mm_slli_epi16(_mm_and_si128(_mm_srli_epi16(h, 2 * (i % 4)), _mm_set1_epi8(3)), 4);
        __m128i s = _mm_sub_epi8(_mm_or_si128(l, h), _mm_set1_epi8(32));
        g->scale[0] = _mm512_mul_ps(load_f16(block + IQ4XS_D), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(s)));
        break;
    }
    }
}

INLINE int bias_shift(uint32_t format)
{
    switch (format) {
    case Q_Q4_0: return 3;
    case Q_Q5_0: return 4;
    case Q_Q6_K: return 5;
    case Q_Q8_0:
    case Q_IQ4_NL:
    case Q_IQ4_XS:
    case Q_MXFP4: return 7;
    default: return -1;
    }
}

INLINE bool has_offset(uint32_t format)
{
    return format == Q_Q4_1 || format == Q_Q5_1 || format == Q_Q4_K || format == Q_Q5_K;
}

INLINE __m512i four_x(const int8_t *x)
{
    int32_t v;
    memcpy(&v, x, 4);
    return _mm512_set1_epi32(v);
}

/* Integer sums of k steps from..to of all columns, from their start values. Columns alternate, so that
 * no instruction waits for the one before. */
INLINE void dots(const struct group *g, int cols, const struct xblock *x, int at, int from, int to, __m512i *sum)
{
    for (int j = from; j < to; j++)
        for (int c = 0; c < cols; c++) sum[c] = _mm512_dpbusd_epi32(sum[c], g->w[j], four_x(x[c].q + at + 4 * j));
}

/* Adds group i times each column to its accumulator. */
INLINE void add_group(uint32_t format, const struct group *g, int cols, const struct xblock *x, int i, __m512 *acc)
{
    int shift = bias_shift(format), parts = format == Q_Q6_K ? 2 : 1;
    for (int h = 0; h < parts; h++) {
        __m512i sum[DIRECT_COLS];
        for (int c = 0; c < cols; c++) {
            sum[c] = _mm512_setzero_si512();
            if (parts == 2) sum[c] = _mm512_set1_epi32(x[c].half[2 * i + h] * -(1 << shift));
            else if (shift >= 0) sum[c] = _mm512_slli_epi32(_mm512_set1_epi32(x[c].neg[i]), (unsigned)shift);
        }
        dots(g, cols, x, i * GROUP, h * 8 / parts, (h + 1) * 8 / parts, sum);
        for (int c = 0; c < cols; c++) {
            __m512 s = _mm512_mul_ps(g->scale[h], _mm512_set1_ps(x[c].d[i]));
            acc[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[c]), s, acc[c]);
        }
    }
    for (int c = 0; has_offset(format) && c < cols; c++)
        acc[c] = _mm512_fmadd_ps(g->offset, _mm512_set1_ps(x[c].s[i]), acc[c]);
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

/* Into the second-level cache: the first level's few fill buffers would limit the rate (16 on Golden Cove). */
INLINE void prefetch(const uint8_t *at, int lines)
{
    for (int i = 0; i < lines; i++) _mm_prefetch((const char *)at + i * VEC, _MM_HINT_T1);
}

/* One block of one strip times a constant number of columns; y [col][LANES] is read and written. Asks
 * for the block at `next` meanwhile. */
INLINE void block_columns(uint32_t format, int cols, const uint8_t *block, int n, const struct xblock *x, float *y,
                          const uint8_t *next)
{
    int lines = (int)(block_bytes(format, GROUPS) / GROUPS + VEC - 1) / VEC;
    __m512 acc[DIRECT_COLS];
    for (int c = 0; c < cols; c++) acc[c] = _mm512_loadu_ps(y + c * LANES);
#pragma GCC unroll 8
    for (int i = 0; i < GROUPS; i++) {
        if (i >= n) break;
        struct group g;
        if (next) prefetch(next + i * lines * VEC, lines);
        unpack(format, block, n, i, &g);
        add_group(format, &g, cols, x, i, acc);
    }
    for (int c = 0; c < cols; c++) _mm512_storeu_ps(y + c * LANES, acc[c]);
}

INLINE void block_all(uint32_t format, const struct product *p, const uint8_t *block, int n, const struct xblock *x,
                      float *y, const uint8_t *next)
{
    for (int c = 0; c < p->n_cols; c += DIRECT_COLS, x += DIRECT_COLS, y += DIRECT_COLS * LANES) {
        switch (p->n_cols - c) {
        case 1: block_columns(format, 1, block, n, x, y, next); break;
        case 2: block_columns(format, 2, block, n, x, y, next); break;
        case 3: block_columns(format, 3, block, n, x, y, next); break;
        case 4: block_columns(format, 4, block, n, x, y, next); break;
        case 5: block_columns(format, 5, block, n, x, y, next); break;
        case 6: block_columns(format, 6, block, n, x, y, next); break;
        case 7: block_columns(format, 7, block, n, x, y, next); break;
        default: block_columns(format, 8, block, n, x, y, next); break;
        }
        next = NULL;
    }
}

/* Few columns: one strip after the other, a single stream of weights. */
INLINE void stream(uint32_t format, const struct product *p)
{
    assert(p->strip);
    memset(p->y, 0, (size_t)(p->n_strips * p->n_cols) * LANES * sizeof(float));
    for (int s = 0; s < p->n_strips; s++) {
        const struct xblock *x = (const struct xblock *)p->x + p->first_col;
        const uint8_t *block = p->strip + (size_t)s * p->w->strip_bytes;
        float *y = p->y + (size_t)(s * p->n_cols) * LANES;
        for (int64_t k = 0; k < p->w->in; k += SUPER, x += p->n_rows) {
            int n = p->w->in - k < SUPER ? (int)(p->w->in - k) / GROUP : GROUPS;
            block_all(format, p, block, n, x, y, block + AHEAD);
            block += block_bytes(format, n);
        }
    }
}

/* Blocks of k outside, strips inside: the x of one block stays in the first-level cache. While a strip's
 * block is multiplied, its next block comes from memory; at the end, the first one of the strips after. */
INLINE void some(uint32_t format, const struct product *p)
{
    size_t bytes = p->w->strip_bytes;
    int64_t in = p->w->in;
    memset(p->y, 0, (size_t)(p->n_strips * p->n_cols) * LANES * sizeof(float));
    const struct xblock *x = (const struct xblock *)p->x + p->first_col;
    const uint8_t *block = p->strip;
    for (int64_t k = 0; k < in; k += SUPER, x += p->n_rows) {
        int n = in - k < SUPER ? (int)(in - k) / GROUP : GROUPS;
        size_t size = block_bytes(format, n);
        for (int s = 0; s < p->n_strips; s++) {
            const uint8_t *at = block + (size_t)s * bytes;
            const uint8_t *next = k + SUPER < in ? at + size : p->strip + (size_t)(p->n_strips + s) * bytes;
            block_all(format, p, at, n, x, p->y + (size_t)(s * p->n_cols) * LANES, next);
        }
        block += size;
    }
}

struct tile {
    int strips, cols;                   /* constants where it is used */
    const uint8_t *const *strip;        /* codes of Q8_0 lie in the strip as they are used, */
    struct group (*panel)[GROUPS];      /* other formats' in the panel */
    const struct xblock *x;
};

/* Adds part h of group i (the 16s of Q6_K have a scale each, other formats one part). */
INLINE void tile_part(uint32_t format, const struct tile *t, int i, int h, __m512 acc[TILE_STRIPS][TILE_COLS])
{
    __m512i sum[TILE_STRIPS][TILE_COLS];
    int shift = bias_shift(format), parts = format == Q_Q6_K ? 2 : 1;
    for (int c = 0; c < t->cols; c++) {
        __m512i from = _mm512_setzero_si512();
        if (parts == 2) from = _mm512_set1_epi32(t->x[c].half[2 * i + h] * -(1 << shift));
        else if (shift >= 0) from = _mm512_slli_epi32(_mm512_set1_epi32(t->x[c].neg[i]), (unsigned)shift);
        for (int s = 0; s < t->strips; s++) sum[s][c] = from;
    }
    for (int j = h * 8 / parts; j < (h + 1) * 8 / parts; j++) {
        __m512i w[TILE_STRIPS];
        for (int s = 0; s < t->strips; s++)
            w[s] = format == Q_Q8_0 ? load(t->strip[s] + i * BYTES + j * VEC) : t->panel[s][i].w[j];
        for (int c = 0; c < t->cols; c++) {
            __m512i v = four_x(t->x[c].q + i * GROUP + 4 * j);
            for (int s = 0; s < t->strips; s++) sum[s][c] = _mm512_dpbusd_epi32(sum[s][c], w[s], v);
        }
    }
    for (int c = 0; c < t->cols; c++)
        for (int s = 0; s < t->strips; s++) {
            __m512 d = _mm512_mul_ps(t->panel[s][i].scale[h], _mm512_set1_ps(t->x[c].d[i]));
            acc[s][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[s][c]), d, acc[s][c]);
            if (!has_offset(format)) continue;
            acc[s][c] = _mm512_fmadd_ps(t->panel[s][i].offset, _mm512_set1_ps(t->x[c].s[i]), acc[s][c]);
        }
}

/* One block of n groups of k. y: [strip][column][lane], one strip's columns `stride` floats after the
 * other's. */
INLINE void tile(uint32_t format, const struct tile *t, int n, float *y, size_t stride)
{
    __m512 acc[TILE_STRIPS][TILE_COLS];
    for (int s = 0; s < t->strips; s++)
        for (int c = 0; c < t->cols; c++) acc[s][c] = _mm512_loadu_ps(y + (size_t)s * stride + c * LANES);
    for (int i = 0; i < n; i++)
        for (int h = 0; h < (format == Q_Q6_K ? 2 : 1); h++) tile_part(format, t, i, h, acc);
    for (int s = 0; s < t->strips; s++)
        for (int c = 0; c < t->cols; c++) _mm512_storeu_ps(y + (size_t)s * stride + c * LANES, acc[s][c]);
}

/* Many columns: block of k by block, so that weights come from memory once and are unpacked once; all
 * columns in tiles. */
INLINE void many(uint32_t format, int strips, const struct product *p, const uint8_t *first, float *y)
{
    struct group panel[TILE_STRIPS][GROUPS];
    int64_t in = p->w->in;
    const struct xblock *x = (const struct xblock *)p->x + p->first_col;
    size_t stride = (size_t)p->n_cols * LANES;
    int tiles = (p->n_cols + TILE_COLS - 1) / TILE_COLS;
    const uint8_t *strip[TILE_STRIPS] = { first, first + (strips - 1) * p->w->strip_bytes };
    memset(y, 0, (size_t)strips * stride * sizeof *y);
    for (int64_t k = 0; k < in; k += SUPER, x += p->n_rows) {
        int n = in - k < SUPER ? (int)(in - k) / GROUP : GROUPS, c = 0;
        size_t bytes = block_bytes(format, n);
        int lines = ((int)bytes / VEC + tiles) / tiles;     /* of each strip's next block, a tile */
        for (int s = 0; s < strips; s++)
            for (int i = 0; i < n; i++)
                if (format == Q_Q8_0) panel[s][i].scale[0] = load_f16(strip[s] + n * BYTES + i * F16S);
                else unpack(format, strip[s], n, i, &panel[s][i]);
        for (int t = 0; t < tiles; t++) {
            int cols = (p->n_cols - c + tiles - t - 1) / (tiles - t);
            for (int s = 0; s < strips; s++) prefetch(strip[s] + bytes + (size_t)(t * lines) * VEC, lines);
            struct tile it = { strips, cols, strip, panel, x + c };
            float *at = y + c * LANES;
            switch (cols) {
            case 1: it.cols = 1, tile(format, &it, n, at, stride); break;
            case 2: it.cols = 2, tile(format, &it, n, at, stride); break;
            case 3: it.cols = 3, tile(format, &it, n, at, stride); break;
            case 4: it.cols = 4, tile(format, &it, n, at, stride); break;
            case 5: it.cols = 5, tile(format, &it, n, at, stride); break;
            default: it.cols = 6, tile(format, &it, n, at, stride); break;
            }
            c += cols;
        }
        for (int s = 0; s < strips; s++) strip[s] += bytes;
    }
}

INLINE void product(uint32_t format, const struct product *p)
{
    if (p->n_cols <= STREAM_COLS) {
        stream(format, p);
    } else if (p->n_cols < MANY_COLS) {
        some(format, p);
    } else {
        size_t each = (size_t)p->n_cols * LANES, bytes = p->w->strip_bytes;
        int s = 0;
        for (; s + TILE_STRIPS <= p->n_strips; s += TILE_STRIPS)
            many(format, TILE_STRIPS, p, p->strip + (size_t)s * bytes, p->y + (size_t)s * each);
        for (; s < p->n_strips; s++) many(format, 1, p, p->strip + (size_t)s * bytes, p->y + (size_t)s * each);
    }
}

#define PRODUCT(name, format)                                                             \
    void product_##name##_avx512(const struct product *p)                                 \
    {                                                                                     \
        product(format, p);                                                               \
    }
INTEGER_FORMATS(PRODUCT)
