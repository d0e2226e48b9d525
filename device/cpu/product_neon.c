/* device/cpu/product_neon.c - strip products with NEON and its dot products of bytes (SDOT).
 *
 * A step of 4 k of 16 rows is four vectors of 4 rows. SDOT takes signed bytes, so that codes lose their
 * offset where they are unpacked; 4 k of x are a quarter of a register, chosen by the instruction. Sums
 * start at LIFT. Groups are unpacked once for up to 4 columns. The order of sums is that of product.c. */
#include "base/inline.h"
#include "device/cpu/port.h"

#ifdef HAVE_NEON
#include <string.h>

#include "device/cpu/product.h"
#include "device/cpu/strips.h"
#include "quant/blocks.h"

enum { COLS = 4, PARTS = 4, PART = VEC / PARTS };       /* columns at once; vectors of a step; their bytes */

/* 16 rows of 32 k: w [step of 4 k][part of 4 rows]. */
struct group {
    int8x16_t   w[8][PARTS];
    float32x4_t scale[2][PARTS], offset[PARTS];
};

/* 16 halves or bytes as f32. */
INLINE void from_f16(const uint8_t *at, float32x4_t to[PARTS])
{
    for (int p = 0; p < PARTS; p++) to[p] = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(at + 8 * p)));
}

INLINE void from_i8(int8x16_t v, float32x4_t to[PARTS])
{
    int16x8_t low = vmovl_s8(vget_low_s8(v)), high = vmovl_s8(vget_high_s8(v));
    to[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
    to[1] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(low)));
    to[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
    to[3] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)));
}

/* Nibbles by a table of their values. */
INLINE void by_table(const uint8_t *at, int8x16_t table, struct group *g)
{
    for (int j = 0; j < 4; j++)
        for (int p = 0; p < PARTS; p++) {
            uint8x16_t v = vld1q_u8(at + j * VEC + p * PART);
            g->w[j][p] = vqtbl1q_s8(table, vandq_u8(v, vdupq_n_u8(15)));
            g->w[j + 4][p] = vqtbl1q_s8(table, vshrq_n_u8(v, 4));
        }
}

/* Nibbles less `bias`. */
INLINE void nibbles(const uint8_t *at, int bias, struct group *g)
{
    static const int8_t plain[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    by_table(at, vsubq_s8(vld1q_s8(plain), vdupq_n_s8((int8_t)bias)), g);
}

/* `mask` (1 or 3) << bit of each byte, moved to bit 4 and added to the codes. */
INLINE void add_bits(uint8x16_t v, int bit, int mask, int8x16_t *w)
{
    uint8x16_t b = vandq_u8(vshlq_u8(v, vdupq_n_s8((int8_t)-bit)), vdupq_n_u8((uint8_t)mask));
    *w = vaddq_s8(*w, vreinterpretq_s8_u8(vshlq_n_u8(b, 4)));
}

INLINE void fifth_bits(const uint8_t *at, struct group *g)
{
    for (int p = 0; p < PARTS; p++)
        for (int j = 0; j < 8; j++) add_bits(vld1q_u8(at + p * PART), j, 1, &g->w[j][p]);
}

/* Scales of group i of Q4_K and Q5_K; `at` is their section from d on. */
INLINE void k_scales(const uint8_t *at, int i, struct group *g)
{
    const uint8x16_t four = vdupq_n_u8(15), two = vdupq_n_u8(0x30);
    uint8x16_t l = vld1q_u8(at + Q4K_LOW - Q4K_D + i * LANES), h = vld1q_u8(at + Q4K_HIGH - Q4K_D + i % 4 * LANES);
    if (i >= 4) h = vshrq_n_u8(h, 4);
    uint8x16_t sc = vorrq_u8(vandq_u8(l, four), vandq_u8(vshlq_n_u8(h, 4), two));
    uint8x16_t m = vorrq_u8(vshrq_n_u8(l, 4), vandq_u8(vshlq_n_u8(h, 2), two));
    float32x4_t d[PARTS], dmin[PARTS], s[PARTS], o[PARTS];
    from_f16(at, d);
    from_f16(at + F16S, dmin);
    from_i8(vreinterpretq_s8_u8(sc), s);
    from_i8(vreinterpretq_s8_u8(m), o);
    for (int p = 0; p < PARTS; p++) {
        g->scale[0][p] = vmulq_f32(d[p], s[p]);
        g->offset[p] = vnegq_f32(vmulq_f32(dmin[p], o[p]));
    }
}

INLINE void q6_k(const uint8_t *block, int i, struct group *g)
{
    float32x4_t d[PARTS], s[PARTS];
    nibbles(block + i * NIBBLES, 32, g);
    from_f16(block + Q6K_D, d);
    for (int h = 0; h < 2; h++) {
        for (int p = 0; p < PARTS; p++) {
            uint8x16_t v = vld1q_u8(block + Q6K_BITS + (2 * i + h) * VEC + p * PART);
            for (int j = 0; j < 4; j++) add_bits(v, 2 * j, 3, &g->w[4 * h + j][p]);
        }
        from_i8(vld1q_s8((const int8_t *)block + Q6K_SCALES + (2 * i + h) * LANES), s);
        for (int p = 0; p < PARTS; p++) g->scale[h][p] = vmulq_f32(d[p], s[p]);
    }
}

INLINE void iq4_xs(const uint8_t *block, int i, struct group *g)
{
    float32x4_t d[PARTS], s[PARTS];
    by_table(block + i * NIBBLES, vld1q_s8(iq4nl_values), g);
    uint8x16_t l = vld1q_u8(block + IQ4XS_LOW + i % 4 * LANES), h = vld1q_u8(block + IQ4XS_HIGH + i / 4 * LANES);
    l = i >= 4 ? vshrq_n_u8(l, 4) : vandq_u8(l, vdupq_n_u8(15));
    h = vandq_u8(vshlq_u8(h, vdupq_n_s8((int8_t)(-2 * (i % 4)))), vdupq_n_u8(3));
    int8x16_t sum = vreinterpretq_s8_u8(vorrq_u8(l, vshlq_n_u8(h, 4)));
    from_f16(block + IQ4XS_D, d);
    from_i8(vsubq_s8(sum, vdupq_n_s8(32)), s);
    for (int p = 0; p < PARTS; p++) g->scale[0][p] = vmulq_f32(d[p], s[p]);
}

INLINE void mxfp4(const uint8_t *block, int n, int i, struct group *g)
{
    by_table(block + i * NIBBLES, vld1q_s8(fp4_values), g);
    const uint8_t *at = block + n * NIBBLES + i * LANES;
    for (int p = 0; p < PARTS; p++) {
        uint32_t bits[4];
        for (int r = 0; r < 4; r++) {
            uint32_t e = at[4 * p + r];
            bits[r] = e < 2 ? 0x00200000u << e : (e - 1) << 23;
        }
        g->scale[0][p] = vreinterpretq_f32_u32(vld1q_u32(bits));
    }
}

INLINE void bytes(const uint8_t *at, struct group *g)
{
    for (int j = 0; j < 8; j++)
        for (int p = 0; p < PARTS; p++)
            g->w[j][p] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(at + j * VEC + p * PART), vdupq_n_u8(0x80)));
}

/* Unpacks group i of a block of n groups. `format` is a constant. */
INLINE void unpack(uint32_t format, const uint8_t *block, int n, int i, struct group *g)
{
    bool fifth = format == Q_Q5_0 || format == Q_Q5_1;
    const uint8_t *codes = block + i * NIBBLES, *scales = block + n * (NIBBLES + (fifth ? VEC : 0));
    switch (format) {
    case Q_Q8_0:
        bytes(block + i * BYTES, g);
        from_f16(block + n * BYTES + i * F16S, g->scale[0]);
        return;
    case Q_Q4_K:
        nibbles(codes, 0, g);
        k_scales(block + Q4K_D, i, g);
        return;
    case Q_Q5_K:
        nibbles(codes, 0, g);
        fifth_bits(block + Q5K_BIT + i * VEC, g);
        k_scales(block + Q5K_D, i, g);
        return;
    case Q_Q6_K: q6_k(block, i, g); return;
    case Q_IQ4_XS: iq4_xs(block, i, g); return;
    case Q_MXFP4: mxfp4(block, n, i, g); return;
    case Q_IQ4_NL: by_table(codes, vld1q_s8(iq4nl_values), g); break;
    default: nibbles(codes, format == Q_Q4_0 ? 8 : format == Q_Q5_0 ? 16 : 0, g); break;
    }
    if (fifth) fifth_bits(block + n * NIBBLES + i * VEC, g);
    from_f16(scales + i * F16S, g->scale[0]);
    if (format == Q_Q4_1 || format == Q_Q5_1) from_f16(scales + (n + i) * F16S, g->offset);
}

/* Four steps of 4 k by 16 k of x. */
INLINE void dots(const int8x16_t w[4][PARTS], const int8_t *x, int32x4_t sum[PARTS])
{
    int8x16_t v = vld1q_s8(x);
    for (int p = 0; p < PARTS; p++) {
        sum[p] = vdotq_laneq_s32(sum[p], w[0][p], v, 0);
        sum[p] = vdotq_laneq_s32(sum[p], w[1][p], v, 1);
        sum[p] = vdotq_laneq_s32(sum[p], w[2][p], v, 2);
        sum[p] = vdotq_laneq_s32(sum[p], w[3][p], v, 3);
    }
}

INLINE void add_sums(const int32x4_t *sum, const float32x4_t *scale, const struct xblock *x, int i, float32x4_t *acc)
{
    for (int p = 0; p < PARTS; p++) {
        float32x4_t t = vfmaq_n_f32(vdupq_n_f32(x->drop[i]), vreinterpretq_f32_s32(sum[p]), x->d[i]);
        acc[p] = vfmaq_f32(acc[p], t, scale[p]);
    }
}

INLINE void add_group(uint32_t format, const struct group *g, const struct xblock *x, int i, float32x4_t acc[PARTS])
{
    bool offset = format == Q_Q4_1 || format == Q_Q5_1 || format == Q_Q4_K || format == Q_Q5_K;
    int32x4_t sum[PARTS];
    for (int p = 0; p < PARTS; p++) sum[p] = vdupq_n_s32(LIFT_BITS);
    dots(g->w, x->q + i * GROUP, sum);
    if (format == Q_Q6_K) {             /* the 16s have a scale each */
        add_sums(sum, g->scale[0], x, i, acc);
        for (int p = 0; p < PARTS; p++) sum[p] = vdupq_n_s32(LIFT_BITS);
    }
    dots(g->w + 4, x->q + i * GROUP + 16, sum);
    add_sums(sum, g->scale[format == Q_Q6_K], x, i, acc);
    for (int p = 0; offset && p < PARTS; p++) acc[p] = vfmaq_n_f32(acc[p], g->offset[p], x->s[i]);
}

/* A constant number of columns of a strip. */
INLINE void columns(uint32_t format, int cols, const struct product *p, int strip, int first)
{
    const struct strip_format *f = p->w->strips_as;
    const uint8_t *block = p->strip + (size_t)strip * p->w->strip_bytes;
    const struct xblock *x = (const struct xblock *)p->x + p->first_col + first;
    float *y = p->y + ((size_t)strip * (size_t)p->n_cols + (size_t)first) * LANES;
    float32x4_t acc[COLS][PARTS];
    for (int c = 0; c < cols; c++)
        for (int q = 0; q < PARTS; q++) acc[c][q] = vdupq_n_f32(0.0f);
    for (int64_t k = 0; k < p->w->in; k += SUPER, x += p->n_rows) {
        int k_here = p->w->in - k < SUPER ? (int)(p->w->in - k) : SUPER, n = k_here / GROUP;
        for (int i = 0; i < n; i++) {
            struct group g;
            unpack(format, block, n, i, &g);
            for (int c = 0; c < cols; c++) add_group(format, &g, x + c, i, acc[c]);
        }
        block += f->bytes(p->w->format, k_here);
    }
    for (int c = 0; c < cols; c++)
        for (int q = 0; q < PARTS; q++) vst1q_f32(y + c * LANES + 4 * q, acc[c][q]);
}

INLINE void product(uint32_t format, const struct product *p)
{
    for (int s = 0; s < p->n_strips; s++)
        for (int c = 0; c < p->n_cols; c += COLS)
            switch (p->n_cols - c) {
            case 1: columns(format, 1, p, s, c); break;
            case 2: columns(format, 2, p, s, c); break;
            case 3: columns(format, 3, p, s, c); break;
            default: columns(format, 4, p, s, c); break;
            }
}

#define PRODUCT(name, format)                                                             \
    void product_##name##_neon(const struct product *p)                                   \
    {                                                                                     \
        product(format, p);                                                               \
    }
INTEGER_FORMATS(PRODUCT)

/* ---- plain numbers ------------------------------------------------------------------------------- */
/* One part of a step of k (a pair for bf16) and x: bf16 products of a pair are exact, their sums rounded
 * one by one, the odd k first (product.c). */
INLINE float32x4_t add_plain(uint32_t format, const uint8_t *w, const uint8_t *x, float32x4_t acc)
{
    float v;
    memcpy(&v, x, 4);
    if (format == Q_F32) return vfmaq_n_f32(acc, vreinterpretq_f32_u8(vld1q_u8(w)), v);
    if (format == Q_F16) return vfmaq_n_f32(acc, vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(w))), v);
    uint32x4_t pair = vreinterpretq_u32_u8(vld1q_u8(w)), xs;
    xs = vreinterpretq_u32_f32(vdupq_n_f32(v));
    const uint32x4_t high = vdupq_n_u32(0xffff0000u);
    acc = vfmaq_f32(acc, vreinterpretq_f32_u32(vandq_u32(pair, high)), vreinterpretq_f32_u32(vandq_u32(xs, high)));
    return vfmaq_f32(acc, vreinterpretq_f32_u32(vshlq_n_u32(pair, 16)), vreinterpretq_f32_u32(vshlq_n_u32(xs, 16)));
}

INLINE void plain_columns(uint32_t format, int cols, const struct product *p, int strip, int first)
{
    size_t step = format == Q_F16 ? VEC / 2 : VEC;
    size_t n = (size_t)(format == Q_BF16 ? (p->w->in + 1) / 2 : p->w->in);
    const uint8_t *w = p->strip + (size_t)strip * p->w->strip_bytes;
    const uint8_t *x = (const uint8_t *)p->x + (size_t)(p->first_col + first) * n * 4;
    float *y = p->y + ((size_t)strip * (size_t)p->n_cols + (size_t)first) * LANES;
    float32x4_t acc[COLS][PARTS];
    for (int c = 0; c < cols; c++)
        for (int q = 0; q < PARTS; q++) acc[c][q] = vdupq_n_f32(0.0f);
    for (size_t k = 0; k < n; k++, w += step, x += 4)
        for (int q = 0; q < PARTS; q++)
            for (int c = 0; c < cols; c++)
                acc[c][q] = add_plain(format, w + (size_t)q * step / PARTS, x + (size_t)c * n * 4, acc[c][q]);
    for (int c = 0; c < cols; c++)
        for (int q = 0; q < PARTS; q++) vst1q_f32(y + c * LANES + 4 * q, acc[c][q]);
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

void product_f32_neon(const struct product *p)
{
    plain_product(Q_F32, p);
}

void product_f16_neon(const struct product *p)
{
    plain_product(Q_F16, p);
}

void product_bf16_neon(const struct product *p)
{
    plain_product(Q_BF16, p);
}
#endif
