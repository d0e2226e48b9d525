/* device/cpu/product_amx.c - strip products of the integer formats with AMX: of 16 columns and more,
 * taken from AMX_LEAST_COLS on.
 *
 * One TDPBSSD multiplies a group of 32 k of 16 rows by that of 16 columns: codes in the order of the strips are its
 * right operand, activations as they lie its left one, and a row of the sums is a column's 16 lanes. 16 cycles, where
 * VPDPBUSD takes 64. The sums go through the first-level cache; a conversion, a product with the scale of x and a
 * fused multiply-add (one more with offsets) a column take 24 (32) cycles of two ports, the bound.
 * Isum * dx is rounded once, as with LIFT, whose start values would cost more loads than the conversion.
 * So that nothing waits: the sums of a unit (a group, a half one of Q6_K) are stored during the next unit's product and
 * added up during the one after, across strips and columns. A block of 256 k is unpacked to signed codes for all
 * columns of the call; x of 4 units stays in tiles for all strips.
 * The order of sums is that of product.c: per group, upwards. */
#include <assert.h>
#include <string.h>

#include "device/cpu/product_amx.h"
#include "device/cpu/tiles.h"
#include "device/cpu/unpack_avx512.h"

enum { COLS = TILE_ROWS, QUAD = 4, UNITS = 2 * GROUPS };

/* Tiles 0 and 1 hold sums, 2 and 3 codes, 4 to 7 activations. */
static const struct tile_config config = {
    .palette = 1,
    .bytes = { VEC, VEC, VEC, VEC, GROUP, GROUP, GROUP, GROUP },
    .rows = { COLS, COLS, GROUP / 4, GROUP / 4, COLS, COLS, COLS, COLS },
};

void AMX(tiles_enter)(void)
{
    tile_configure(&config);
}

void AMX(tiles_leave)(void)
{
    tile_release();
}

/* A block of a strip, unpacked. Of Q6_K 4 vectors of zeros lie between the halves of a group, so that 8 from the first
 * or the fifth on are one half alone. */
struct panel16 {
    __m512i w[GROUPS][12];
    __m512  scale[UNITS], offset[GROUPS];
};

/* What distinguishes formats once they are unpacked. Constants where it is used, as `skip`. */
enum kind { PLAIN, OFFSETS, HALVES };

INLINE enum kind kind_of(uint32_t format)
{
    return format == Q_Q6_K ? HALVES : has_offset(format) ? OFFSETS : PLAIN;
}

INLINE int parts_of(enum kind kind)
{
    return kind == HALVES ? 2 : 1;
}

/* A block of n groups of one strip. */
INLINE void fill(uint32_t format, const uint8_t *block, int n, struct panel16 *p)
{
    const __m512i bias = _mm512_set1_epi8((char)bias_of(format));
    bool halves = format == Q_Q6_K, negative = format == Q_Q4_K || format == Q_Q5_K;
    for (int i = 0; i < n; i++) {
        struct group g;
        unpack(format, block, n, i, &g);
        for (int j = 0; j < 8; j++) {
            int to = halves && j >= 4 ? j + 4 : j;
            p->w[i][to] = bias_of(format) ? _mm512_sub_epi8(g.w[j], bias) : g.w[j];
        }
        if (halves) p->scale[2 * i] = g.scale[0], p->scale[2 * i + 1] = g.scale[1];
        else p->scale[i] = g.scale[0];
        if (has_offset(format))
            p->offset[i] = negative ? _mm512_xor_ps(g.offset, _mm512_set1_ps(-0.0f)) : g.offset;
    }
}

/* Up to 4 units of one strip and 16 columns. */
struct quad {
    const struct panel16 *panel;
    const struct xblock *x;
    float *y;                           /* [column][lane] */
    int at, n;                          /* the first unit; how many */
};

/* Where the codes of unit u of a quad lie. */
INLINE const void *codes_of(enum kind kind, const struct quad *q, int u)
{
    return kind == HALVES ? &q->panel->w[(q->at + u) / 2][4 * (u & 1)] : &q->panel->w[q->at + u][0];
}

/* A column of a block has 16 accumulators; the first `skip` are left out. */
INLINE void load_sums(int skip, const float *y, __m512 acc[COLS])
{
#pragma GCC unroll 16
    for (int c = skip; c < COLS; c++) acc[c] = _mm512_load_ps(y + c * LANES);
}

INLINE void store_sums(int skip, const __m512 acc[COLS], float *y)
{
#pragma GCC unroll 16
    for (int c = skip; c < COLS; c++) _mm512_store_ps(y + c * LANES, acc[c]);
}

/* Adds the integer sums of unit u of a quad to the accumulators. */
INLINE void add_unit(enum kind kind, int skip, const struct quad *q, int u, const __m512i sums[COLS], __m512 acc[COLS])
{
    int i = (q->at + u) / parts_of(kind);
    const struct xblock *x = q->x;
    __m512 scale = q->panel->scale[q->at + u], offset = kind == OFFSETS ? q->panel->offset[i] : scale;
#pragma GCC unroll 16
    for (int c = skip; c < COLS; c++) {
        __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[c]), _mm512_set1_ps(x[c].d[i]));
        acc[c] = _mm512_fmadd_ps(t, scale, acc[c]);
        if (kind == OFFSETS) acc[c] = _mm512_fmadd_ps(offset, _mm512_set1_ps(x[c].s[i]), acc[c]);
    }
}

/* Memory to ask for meanwhile: the next block of each strip. */
struct asking {
    const uint8_t *next[PRODUCT_STRIPS];
    int line[PRODUCT_STRIPS], lines[PRODUCT_STRIPS];    /* the next line; how many */
    int each;                                           /* of a unit */
};

INLINE void ask(struct asking *a, int s)
{
    for (int i = 0; i < a->each && a->line[s] < a->lines[s]; i++)
        prefetch(false, a->next[s] + (size_t)VEC * (size_t)a->line[s]++, 1);
}

/* Up to 16 columns of all strips. */
struct columns {
    const struct xblock *x;             /* of 16 columns */
    float *y;                           /* [strip][column][lane] */
    size_t stride;                      /* floats from strip to strip */
};

#define MULTIPLY(c, b, a, at)                                                             \
    do {                                                                                  \
        tile_zero(c);                                                                     \
        tile_load(b, at, VEC);                                                            \
        tile_dot(c, a, b);                                                                \
    } while (0)
#define LOAD_X(kind, t, q, u) tile_load(t, (q).x->q + ((q).at + (u)) / parts_of(kind) * GROUP, sizeof(struct xblock))

/* n_columns times 16 columns of a block of `units` of all strips. */
INLINE void block(enum kind kind, int skip, int units, int n_strips, const struct panel16 *panel,
                  const struct columns *cols, int n_columns, struct asking *asking)
{
    __m512i sums[QUAD][COLS];
    __m512 acc[COLS];
    struct quad was = { .y = cols[0].y };       /* whose third and fourth units are not added yet */
    load_sums(skip, was.y, acc);
    for (int b = 0; b < n_columns; b++)
        for (int at = 0; at < units; at += QUAD) {
            struct quad q = { .x = cols[b].x, .at = at, .n = units - at < QUAD ? units - at : QUAD };
            LOAD_X(kind, 4, q, 0);
            if (q.n > 1) LOAD_X(kind, 5, q, 1);
            if (q.n > 2) LOAD_X(kind, 6, q, 2);
            if (q.n > 3) LOAD_X(kind, 7, q, 3);
            for (int s = 0; s < n_strips; s++) {
                q.panel = panel + s;
                q.y = cols[b].y + (size_t)s * cols[b].stride;
                MULTIPLY(0, 2, 4, codes_of(kind, &q, 0));
                if (was.n > 3) tile_store(1, sums[3]);
                if (was.n > 2) add_unit(kind, skip, &was, 2, sums[2], acc);
                ask(asking, s);
                if (q.n > 1) MULTIPLY(1, 3, 5, codes_of(kind, &q, 1));
                tile_store(0, sums[0]);
                if (was.n > 3) add_unit(kind, skip, &was, 3, sums[3], acc);
                store_sums(skip, acc, was.y);
                load_sums(skip, q.y, acc);
                ask(asking, s);
                if (q.n > 2) MULTIPLY(0, 2, 6, codes_of(kind, &q, 2));
                if (q.n > 1) tile_store(1, sums[1]);
                add_unit(kind, skip, &q, 0, sums[0], acc);
                ask(asking, s);
                if (q.n > 3) MULTIPLY(1, 3, 7, codes_of(kind, &q, 3));
                if (q.n > 2) tile_store(0, sums[2]);
                if (q.n > 1) add_unit(kind, skip, &q, 1, sums[1], acc);
                ask(asking, s);
                was = q;
            }
        }
    if (was.n > 3) tile_store(1, sums[3]);
    if (was.n > 2) add_unit(kind, skip, &was, 2, sums[2], acc);
    if (was.n > 3) add_unit(kind, skip, &was, 3, sums[3], acc);
    store_sums(skip, acc, was.y);
}

#define BLOCK(name, kind, skip)                                                                               \
    static __attribute__((noinline)) void name(int units, int n_strips, const struct panel16 *panel,          \
                                               const struct columns *cols, int n_columns, struct asking *asking) \
    {                                                                                                         \
        block(kind, skip, units, n_strips, panel, cols, n_columns, asking);                                   \
    }
BLOCK(block_plain, PLAIN, 0)
BLOCK(block_offsets, OFFSETS, 0)
BLOCK(block_halves, HALVES, 0)
BLOCK(last_plain, PLAIN, COLS / 2)
BLOCK(last_offsets, OFFSETS, COLS / 2)
BLOCK(last_halves, HALVES, COLS / 2)

typedef void (*block_fn)(int units, int n_strips, const struct panel16 *panel, const struct columns *cols,
                         int n_columns, struct asking *asking);
static const block_fn blocks[] = { [PLAIN] = block_plain, [OFFSETS] = block_offsets, [HALVES] = block_halves };
static const block_fn lasts[] = { [PLAIN] = last_plain, [OFFSETS] = last_offsets, [HALVES] = last_halves };

/* What follows block `at` bytes into the strips, whose next block has n groups: in the strips, or at the start of those
 * that this thread reads next. */
INLINE void find_next(uint32_t format, const struct product *p, size_t at, int n, int each, struct asking *a)
{
    size_t size = p->w->strip_bytes;
    bool here = at < size;
    const uint8_t *from = here ? p->strip + at : p->then;
    int first = p->w->in < SUPER ? (int)p->w->in / GROUP : GROUPS;
    a->each = each;
    for (int s = 0; s < PRODUCT_STRIPS; s++) {
        a->next[s] = (const uint8_t *)((uintptr_t)from + (uintptr_t)s * size);
        a->line[s] = 0;
        a->lines[s] = from ? (int)((block_bytes(format, here ? n : first) + VEC - 1) / VEC) : 0;
    }
}

/* 16 columns and more. Those of the last columns that are done already come to a place of their own. */
INLINE void product(uint32_t format, const struct product *p)
{
    enum kind kind = kind_of(format);
    struct panel16 panel[PRODUCT_STRIPS];
    struct columns cols[PRODUCT_COLS / COLS + 1];
    float rest[PRODUCT_STRIPS][COLS][LANES] __attribute__((aligned(64)));
    int whole = p->n_cols / COLS, more = p->n_cols % COLS, parts = parts_of(kind);
    size_t stride = (size_t)p->n_cols * LANES, at = 0;
    const struct xblock *x = (const struct xblock *)p->x + p->first_col;
    for (int s = 0; s < p->n_strips && kind == HALVES; s++) memset(panel[s].w, 0, sizeof panel[s].w);
    memset(p->y, 0, (size_t)p->n_strips * stride * sizeof *p->y);
    memset(rest, 0, sizeof rest);
    for (int64_t k = 0; k < p->w->in; k += SUPER, x += p->n_rows) {
        int n = p->w->in - k < SUPER ? (int)(p->w->in - k) / GROUP : GROUPS;
        int64_t left = (p->w->in - k) / GROUP - n;
        struct asking asking;
        for (int s = 0; s < p->n_strips; s++)
            fill(format, p->strip + (size_t)s * p->w->strip_bytes + at, n, &panel[s]);
        at += block_bytes(format, n);
        int lines = (int)block_bytes(format, GROUPS) / VEC, each = lines / (n * parts * whole) + 1;
        find_next(format, p, at, left < GROUPS ? (int)left : GROUPS, each, &asking);
        for (int b = 0; b < whole; b++) cols[b] = (struct columns){ x + b * COLS, p->y + b * COLS * LANES, stride };
        cols[whole] = (struct columns){ x + p->n_cols - COLS, rest[0][0], COLS * LANES };
        bool full = more > COLS / 2;
        blocks[kind](n * parts, p->n_strips, panel, cols, whole + full, &asking);
        if (more && !full) lasts[kind](n * parts, p->n_strips, panel, cols + whole, 1, &asking);
    }
    for (int s = 0; s < p->n_strips && more; s++)
        memcpy(p->y + (size_t)s * stride + (size_t)whole * COLS * LANES, rest[s][COLS - more],
               (size_t)more * LANES * sizeof(float));
}

/* Codes of 8 bits gain nothing from tiles, those of Q6_K lose: AVX-512 unpacks them in registers. */
static bool pays(int format, int n_cols)
{
    return n_cols >= AMX_LEAST_COLS && (AMX_ALL_FORMATS || (format != Q_Q8_0 && format != Q_Q6_K));
}

#define PRODUCT(name, format)                                                             \
    void AMX(product_##name)(const struct product *p)                                     \
    {                                                                                     \
        if (pays(format, p->n_cols)) product(format, p);                                  \
        else product_##name##_avx512(p);                                                  \
    }
INTEGER_FORMATS(PRODUCT)
