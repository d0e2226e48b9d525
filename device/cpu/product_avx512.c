/* device/cpu/product_avx512.c - strip products of the integer formats with AVX-512 VNNI.
 *
 * One VPDPBUSD multiplies 16 rows by 4 k of one column; the sum starts at LIFT less what the offset of
 * the codes adds. Per group of 32 k, strip and column: 8 VPDPBUSD and two fused multiply-adds (one more
 * for formats with offsets), and where codes are off by 8, 16 or 32 a quarter of the start.
 * Up to 3 columns are a single stream of weights, one strip after the other; up to 8 tiles of 2 strips by
 * 4 columns, more tiles of 4 by 3: that is as many sums and accumulators as there are registers for. A
 * block's first tile unpacks it, group by group, and tiles ask for the next block evenly.
 * The order of sums is that of product.c: per group, upwards. */
#include <assert.h>
#include <string.h>

#include "device/cpu/product.h"
#include "device/cpu/unpack_avx512.h"

/* Most columns of the stream and of pairs of strips; tiles of the others. */
enum { STREAM_COLS = 4, PAIR_COLS = 4, PAIR_MOST = 8, TILE_STRIPS = 4, TILE_COLS = 3 };
_Static_assert((int)TILE_STRIPS == (int)PRODUCT_STRIPS, "a call of the product is one tile high");
/* Measured on Zen 5: a single stream with 8 KB asked for ahead reads at 90% of the machine's rate, with
 * 2 KB at 60%, four streams at 80%. */
enum { AHEAD = 8192 };

INLINE __m512i all_of(const void *four_bytes)
{
    int32_t v;
    memcpy(&v, four_bytes, 4);
    return _mm512_set1_epi32(v);
}

/* What the sum of part h of group i starts with: LIFT less the bias of the codes times the sum of x. */
INLINE __m512i start_of(uint32_t format, const struct xblock *x, int i, int h)
{
    const __m512i lift = _mm512_set1_epi32(LIFT_BITS);
    if (!bias_of(format)) return lift;
    if (bias_of(format) == 128) return all_of(x->start + i);
    uint32_t bias = (uint32_t)-bias_of(format) & 0xffff;
    bias = format == Q_Q6_K ? bias << 16 * h : bias << 16 | bias;
    return _mm512_dpwssd_epi32(lift, all_of(x->half + 2 * i), _mm512_set1_epi32((int32_t)bias));
}

/* acc and the offset of group i; the big formats hold it with the other sign. */
INLINE __m512 add_offset(uint32_t format, __m512 offset, const struct xblock *x, int i, __m512 acc)
{
    if (format == Q_Q4_K || format == Q_Q5_K) return _mm512_fnmadd_ps(offset, _mm512_set1_ps(x->s[i]), acc);
    return _mm512_fmadd_ps(offset, _mm512_set1_ps(x->s[i]), acc);
}

/* acc and a sum of group i times its scales. */
INLINE __m512 add_sum(__m512i sum, const struct xblock *x, int i, __m512 scale, __m512 acc)
{
    __m512 t = _mm512_fmadd_ps(_mm512_castsi512_ps(sum), _mm512_set1_ps(x->d[i]), _mm512_set1_ps(x->drop[i]));
    return _mm512_fmadd_ps(t, scale, acc);
}

/* In a register from here on: the compiler would load it again for each use. */
INLINE __m512i keep(__m512i v)
{
    __asm__("" : "+v"(v));
    return v;
}

/* Integer sums of k steps from..to of all columns, from their start values. Columns alternate, so that
 * no instruction waits for the one before. */
INLINE void dots(const struct group *g, int cols, const struct xblock *x, int at, int from, int to, __m512i *sum)
{
    for (int j = from; j < to; j++)
        for (int c = 0; c < cols; c++) sum[c] = _mm512_dpbusd_epi32(sum[c], g->w[j], all_of(x[c].q + at + 4 * j));
}

/* The same of one column and a group of plain nibbles, on Zen 5, which has fewer loads than shuffles to spare: 16 k of
 * x are one load. */
INLINE __m512i dots_spread(const struct group *g, const struct xblock *x, int at, __m512i sum)
{
    for (int j = 0; j < 8; j += 4) {
        __m512i v = keep(_mm512_broadcast_i32x4(load16((const uint8_t *)x->q + at + 4 * j)));
        sum = _mm512_dpbusd_epi32(sum, g->w[j], _mm512_shuffle_epi32(v, 0x00));
        sum = _mm512_dpbusd_epi32(sum, g->w[j + 1], _mm512_shuffle_epi32(v, 0x55));
        sum = _mm512_dpbusd_epi32(sum, g->w[j + 2], _mm512_shuffle_epi32(v, 0xaa));
        sum = _mm512_dpbusd_epi32(sum, g->w[j + 3], _mm512_shuffle_epi32(v, 0xff));
    }
    return sum;
}

/* Adds group i times each column to its accumulator. */
INLINE void add_group(uint32_t format, bool near, const struct group *g, int cols, const struct xblock *x, int i,
                      __m512 *acc)
{
    int parts = format == Q_Q6_K ? 2 : 1;
    for (int h = 0; h < parts; h++) {
        __m512i sum[STREAM_COLS];
        for (int c = 0; c < cols; c++) sum[c] = start_of(format, x + c, i, h);
        if (near && cols == 1 && (format == Q_Q4_0 || format == Q_Q4_1 || format == Q_Q4_K))
            sum[0] = dots_spread(g, x, i * GROUP, sum[0]);
        else dots(g, cols, x, i * GROUP, h * 8 / parts, (h + 1) * 8 / parts, sum);
        for (int c = 0; c < cols; c++) acc[c] = add_sum(sum[c], x + c, i, g->scale[h], acc[c]);
    }
    for (int c = 0; has_offset(format) && c < cols; c++)
        acc[c] = add_offset(format, g->offset, x + c, i, acc[c]);
}

/* One block of one strip times a constant number of columns; y [col][LANES] is read and written. Asks
 * for the block at `next` meanwhile. */
INLINE void block_columns(uint32_t format, bool near, int cols, const uint8_t *block, int n, const struct xblock *x,
                          float *y, const uint8_t *next)
{
    int lines = (int)(block_bytes(format, GROUPS) / GROUPS + VEC - 1) / VEC;
    __m512 acc[STREAM_COLS];
    for (int c = 0; c < cols; c++) acc[c] = _mm512_loadu_ps(y + c * LANES);
#pragma GCC unroll 8
    for (int i = 0; i < GROUPS; i++) {
        if (i >= n) break;
        struct group g;
        prefetch(near, next + i * lines * VEC, lines);
        unpack(format, block, n, i, &g);
        add_group(format, near, &g, cols, x, i, acc);
    }
    for (int c = 0; c < cols; c++) _mm512_storeu_ps(y + c * LANES, acc[c]);
}

/* Few columns: one strip after the other, a single stream of weights. */
INLINE void stream(uint32_t format, bool near, const struct product *p)
{
    assert(p->strip);
    memset(p->y, 0, (size_t)(p->n_strips * p->n_cols) * LANES * sizeof(float));
    size_t all = (size_t)p->n_strips * p->w->strip_bytes, whole = block_bytes(format, GROUPS);
    size_t ahead = (AHEAD + whole - 1) / whole * whole;
    for (int s = 0; s < p->n_strips; s++) {
        const struct xblock *x = (const struct xblock *)p->x + p->first_col;
        const uint8_t *block = p->strip + (size_t)s * p->w->strip_bytes;
        float *y = p->y + (size_t)(s * p->n_cols) * LANES;
        for (int64_t k = 0; k < p->w->in; k += SUPER, x += p->n_rows) {
            int n = p->w->in - k < SUPER ? (int)(p->w->in - k) / GROUP : GROUPS;
            size_t at = (size_t)(block - p->strip) + ahead;
            const uint8_t *next = at < all ? p->strip + at : p->then ? p->then + (at - all) : block;
            switch (p->n_cols) {
            case 1: block_columns(format, near, 1, block, n, x, y, next); break;
            case 2: block_columns(format, near, 2, block, n, x, y, next); break;
            case 3: block_columns(format, near, 3, block, n, x, y, next); break;
            default: block_columns(format, near, 4, block, n, x, y, next); break;
            }
            block += block_bytes(format, n);
        }
    }
}

struct tile {
    int strips, cols;                   /* constants where it is used, as first and near */
    bool first;                         /* of its block: fills the panel */
    bool near;                          /* see prefetch */
    const uint8_t *strip[TILE_STRIPS];  /* codes of Q8_0 lie in the strip as they are used, */
    struct group (*panel)[GROUPS];      /* other formats' in the panel */
    const struct xblock *x;
    intptr_t ahead;                     /* memory to ask for meanwhile: so many bytes behind each strip's block, */
    int line, asks;                     /* from this line on, so many times a group; */
    int wrap;                           /* from this line on, where the strips end, the strips that follow are */
    intptr_t jump;                      /* so far off */
};

/* Adds part h of group i (the 16s of Q6_K have a scale each, other formats one part). */
INLINE void tile_part(uint32_t format, const struct tile *t, int i, int h, __m512 acc[TILE_STRIPS][PAIR_COLS])
{
    __m512i sum[TILE_STRIPS][PAIR_COLS];
    int parts = format == Q_Q6_K ? 2 : 1;
    for (int c = 0; c < t->cols; c++) {
        __m512i from = start_of(format, t->x + c, i, h);
        for (int s = 0; s < t->strips; s++) sum[s][c] = from;
    }
    for (int j = h * 8 / parts; j < (h + 1) * 8 / parts; j++) {
        __m512i w[TILE_STRIPS];
        for (int s = 0; s < t->strips; s++)
            w[s] = keep(format == Q_Q8_0 ? load(t->strip[s] + i * BYTES + j * VEC) : t->panel[s][i].w[j]);
        for (int c = 0; c < t->cols; c++) {
            __m512i v = all_of(t->x[c].q + i * GROUP + 4 * j);
            if (t->strips > 1) v = keep(v);
            for (int s = 0; s < t->strips; s++) sum[s][c] = _mm512_dpbusd_epi32(sum[s][c], w[s], v);
        }
    }
    for (int c = 0; c < t->cols; c++)
        for (int s = 0; s < t->strips; s++) {
            acc[s][c] = add_sum(sum[s][c], t->x + c, i, t->panel[s][i].scale[h], acc[s][c]);
            if (!has_offset(format)) continue;
            acc[s][c] = add_offset(format, t->panel[s][i].offset, t->x + c, i, acc[s][c]);
        }
}

/* Group i of each strip, for all tiles of the block. */
INLINE void fill(uint32_t format, const struct tile *t, int n, int i)
{
    for (int s = 0; s < t->strips; s++)
        if (format == Q_Q8_0) t->panel[s][i].scale[0] = load_f16(t->strip[s] + n * BYTES + i * F16S);
        else unpack(format, t->strip[s], n, i, &t->panel[s][i]);
}

/* A block's lines are asked for during its first tiles, a few a group. */
INLINE int ask_tiles(int strips)
{
    return strips == TILE_STRIPS ? 6 : 2;
}

INLINE int ask_lines(uint32_t format, int strips)
{
    int each = ask_tiles(strips) * GROUPS * VEC;
    return ((int)block_bytes(format, GROUPS) + each - 1) / each;
}

INLINE void ask(const struct tile *t, int line, int lines)
{
    uintptr_t off = (uintptr_t)(t->ahead + (intptr_t)line * VEC + (line >= t->wrap ? t->jump : 0));
    for (int s = 0; s < t->strips; s++) prefetch(t->near, (const uint8_t *)((uintptr_t)t->strip[s] + off), lines);
}

/* One block of n groups of k. y: [strip][column][lane], one strip's columns `stride` floats after the
 * other's. */
INLINE void tile(uint32_t format, const struct tile *t, int n, float *y, size_t stride)
{
    __m512 acc[TILE_STRIPS][PAIR_COLS];
    for (int s = 0; s < t->strips; s++)
        for (int c = 0; c < t->cols; c++) acc[s][c] = _mm512_loadu_ps(y + (size_t)s * stride + c * LANES);
    const int lines = ask_lines(format, t->strips);
    int line = t->line;
    for (int i = 0; i < n; i++) {
        if (t->asks) ask(t, line, lines);
        if (t->asks > 1) ask(t, line + lines, lines);
        line += t->asks * lines;
        for (int c = 0; t->strips == TILE_STRIPS && c < t->cols; c++)       /* of the next tile */
            _mm_prefetch((const char *)(t->x + TILE_COLS + c) + i * VEC, _MM_HINT_T0);
        if (t->first) fill(format, t, n, i);
        for (int h = 0; h < (format == Q_Q6_K ? 2 : 1); h++) tile_part(format, t, i, h, acc);
    }
    for (int s = 0; s < t->strips; s++)
        for (int c = 0; c < t->cols; c++) _mm512_storeu_ps(y + (size_t)s * stride + c * LANES, acc[s][c]);
}

/* As tile, with the number of columns as a constant. */
INLINE void tile_of(uint32_t format, struct tile t, int n, float *y, size_t stride)
{
    switch (t.cols) {
    case 1: t.cols = 1, tile(format, &t, n, y, stride); break;
    case 2: t.cols = 2, tile(format, &t, n, y, stride); break;
    case 3: t.cols = 3, tile(format, &t, n, y, stride); break;
    default:
        if (t.strips < TILE_STRIPS) t.cols = PAIR_COLS, tile(format, &t, n, y, stride);
        break;
    }
}

/* What to ask for beside the block at byte `at` of the strips from `first` on: after them those that follow in this
 * call or, if they are known, in the next. */
INLINE void find_next(struct tile *t, const struct product *p, int first, size_t at)
{
    size_t size = p->w->strip_bytes;
    const uint8_t *here = p->strip + (size_t)(first + 1) * size;    /* where the first strip ends */
    const uint8_t *then = first + t->strips < p->n_strips ? here + (size_t)(t->strips - 1) * size : p->then;
    t->wrap = (int)(((intptr_t)(size - at) - t->ahead) / VEC);
    t->jump = then ? (intptr_t)((uintptr_t)then - (uintptr_t)here) : 0;
}

/* Asks for the lines that sums of the strips from `first` on and `cols` columns go to from y: the caller's stores would
 * wait for one after the other. */
INLINE void ask_out(const struct product *p, int first, int strips, int col, int cols)
{
    for (int c = col; p->out && c < col + cols; c++)
        for (int s = first; s < first + strips; s++) __builtin_prefetch(p->out + c * p->out_cols + s * LANES, 1);
}

/* Strips from `first` on times all columns: block of k by block, so that weights come from memory once and are
 * unpacked once, in tiles of 4 strips by 3 columns or fewer strips by 4. A tile's operands: a load of weights
 * serves its columns, a broadcast of x its strips. */
INLINE void many(uint32_t format, bool near, int strips, const struct product *p, int first)
{
    struct group panel[TILE_STRIPS][GROUPS];
    int most = strips == TILE_STRIPS ? TILE_COLS : PAIR_COLS, tiles = (p->n_cols + most - 1) / most;
    int asks = (ask_tiles(strips) + tiles - 1) / tiles, lines = asks * ask_lines(format, strips);
    size_t stride = (size_t)p->n_cols * LANES, size = p->w->strip_bytes, whole = block_bytes(format, GROUPS);
    float *y = p->y + (size_t)first * stride;
    const struct xblock *x = (const struct xblock *)p->x + p->first_col;
    memset(y, 0, (size_t)strips * stride * sizeof *y);
    size_t at = 0;
    for (int64_t k = 0; k < p->w->in; k += SUPER, x += p->n_rows) {
        int n = p->w->in - k < SUPER ? (int)(p->w->in - k) / GROUP : GROUPS, c = 0;
        size_t bytes = block_bytes(format, n);
        struct tile it = { .strips = strips, .near = near, .panel = panel };
        it.ahead = (intptr_t)(strips == TILE_STRIPS ? whole : (AHEAD + whole - 1) / whole * whole);
        for (int s = 0; s < strips; s++) it.strip[s] = p->strip + (size_t)(first + s) * size + at;
        find_next(&it, p, first, at);
        for (int t = 0; t < tiles; t++, it.line += n * lines) {
            it.asks = (size_t)it.line * VEC < bytes ? asks : 0;
            it.cols = (p->n_cols - c + tiles - t - 1) / (tiles - t);
            it.x = x + c;
            float *to = y + c * LANES;
            if (k + SUPER >= p->w->in) ask_out(p, first, strips, c, it.cols);
            c += it.cols;
            if (t) it.first = false, tile_of(format, it, n, to, stride);
            else it.first = true, tile_of(format, it, n, to, stride);
        }
        at += bytes;
    }
}

/* Up to how many columns a single stream is the fastest. Two strips of Q8_0 at a time are slow on Zen 5. */
INLINE int stream_most(uint32_t format, bool near)
{
    return near && format == Q_Q8_0 ? STREAM_COLS : 3;
}

INLINE void product(uint32_t format, bool near, const struct product *p)
{
    if (p->n_cols <= stream_most(format, near)) {
        stream(format, near, p);
        return;
    }
    int s = 0;
    if (p->n_cols > PAIR_MOST && p->n_strips == TILE_STRIPS) many(format, near, TILE_STRIPS, p, 0), s = TILE_STRIPS;
    for (; s + 2 <= p->n_strips; s += 2) many(format, near, 2, p, s);
    if (s < p->n_strips) many(format, near, 1, p, s);
}

#define PRODUCT(name, format)                                                             \
    void product_##name##_avx512(const struct product *p)                                 \
    {                                                                                     \
        if (__builtin_cpu_is("amd")) product(format, true, p);                            \
        else product(format, false, p);                                                   \
    }
INTEGER_FORMATS(PRODUCT)
