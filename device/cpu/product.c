/* device/cpu/product.c - strip products in portable C: the meaning of those of the instruction sets.
 * Groups are unpacked into a panel and multiplied by all columns; the order of sums is cpu.h's. */
#include "device/cpu/product.h"

#include <math.h>
#include <string.h>

#include "device/cpu/strips.h"
#include "device/cpu/vec.h"
#include "quant/blocks.h"

/* Codes to unsigned bytes by a table. */
static void codes(const uint8_t *at, const uint8_t table[16], struct panel *p)
{
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < VEC; i++) {
            uint8_t q = at[j * VEC + i];
            p->w[j][i / 4][i % 4] = table[q & 15];
            p->w[j + 4][i / 4][i % 4] = table[q >> 4];
        }
}

static const uint8_t plain[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

static void shifted(const int8_t values[16], uint8_t table[16])
{
    for (int i = 0; i < 16; i++) table[i] = (uint8_t)(values[i] + 128);
}

static void fifth_bits(const uint8_t *at, struct panel *p)
{
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < VEC; i++) p->w[j][i / 4][i % 4] |= (uint8_t)((at[i] >> j & 1) << 4);
}

static void halves(const uint8_t *at, float out[LANES])
{
    for (int l = 0; l < LANES; l++) {
        uint16_t h;
        memcpy(&h, at + 2 * l, 2);
        out[l] = f16_to_f32(h);
    }
}

/* `at` is the section from d on. */
static void k_scales(const uint8_t *at, int g, struct panel *p)
{
    const uint8_t *low = at + Q4K_LOW - Q4K_D + g * LANES, *high = at + Q4K_HIGH - Q4K_D + g % 4 * LANES;
    float d[LANES], dmin[LANES];
    halves(at, d);
    halves(at + F16S, dmin);
    for (int l = 0; l < LANES; l++) {
        int h = high[l] >> (g / 4 * 4) & 15;
        p->scale[0][l] = d[l] * (float)((low[l] & 15) | (h & 3) << 4);
        p->offset[l] = -(dmin[l] * (float)(low[l] >> 4 | (h >> 2) << 4));
    }
}

static void unpack_small(uint32_t format, const uint8_t *block, int n, int i, struct panel *p)
{
    bool fifth = format == Q_Q5_0 || format == Q_Q5_1, offset = format == Q_Q4_1 || format == Q_Q5_1;
    uint8_t table[16];
    if (format == Q_IQ4_NL) shifted(iq4nl_values, table);
    codes(block + i * NIBBLES, format == Q_IQ4_NL ? table : plain, p);
    const uint8_t *at = block + n * NIBBLES;
    if (fifth) {
        fifth_bits(at + i * VEC, p);
        at += n * VEC;
    }
    halves(at + i * F16S, p->scale[0]);
    if (offset) halves(at + (n + i) * F16S, p->offset);
}

static void unpack_mxfp4(const uint8_t *block, int n, int i, struct panel *p)
{
    uint8_t table[16];
    shifted(fp4_values, table);
    codes(block + i * NIBBLES, table, p);
    for (int l = 0; l < LANES; l++) {
        uint32_t e = block[n * NIBBLES + i * LANES + l];
        p->scale[0][l] = float_of(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    }
}

static void unpack_q6_k(const uint8_t *block, int i, struct panel *p)
{
    codes(block + i * NIBBLES, plain, p);
    float d[LANES];
    halves(block + Q6K_D, d);
    for (int h = 0; h < 2; h++) {
        const uint8_t *bits = block + Q6K_BITS + (2 * i + h) * VEC;
        const int8_t *sc = (const int8_t *)block + Q6K_SCALES + (2 * i + h) * LANES;
        for (int j = 0; j < 4; j++)
            for (int b = 0; b < VEC; b++)
                p->w[4 * h + j][b / 4][b % 4] |= (uint8_t)((bits[b] >> (2 * j) & 3) << 4);
        for (int l = 0; l < LANES; l++) p->scale[h][l] = d[l] * (float)sc[l];
    }
}

static void unpack_iq4_xs(const uint8_t *block, int i, struct panel *p)
{
    uint8_t table[16];
    shifted(iq4nl_values, table);
    codes(block + i * NIBBLES, table, p);
    float d[LANES];
    halves(block + IQ4XS_D, d);
    for (int l = 0; l < LANES; l++) {
        int low = block[IQ4XS_LOW + i % 4 * LANES + l] >> (i / 4 * 4) & 15;
        int high = block[IQ4XS_HIGH + i / 4 * LANES + l] >> (2 * (i % 4)) & 3;
        p->scale[0][l] = d[l] * (float)((low | high << 4) - 32);
    }
}

void panel_unpack(uint32_t format, const uint8_t *block, int n, int i, struct panel *p)
{
    switch (format) {
    case Q_Q8_0:
        memcpy(p->w, block + i * BYTES, BYTES);
        halves(block + n * BYTES + i * F16S, p->scale[0]);
        return;
    case Q_Q4_K:
        codes(block + i * NIBBLES, plain, p);
        k_scales(block + Q4K_D, i, p);
        return;
    case Q_Q5_K:
        codes(block + i * NIBBLES, plain, p);
        fifth_bits(block + Q5K_BIT + i * VEC, p);
        k_scales(block + Q5K_D, i, p);
        return;
    case Q_Q6_K: unpack_q6_k(block, i, p); return;
    case Q_IQ4_XS: unpack_iq4_xs(block, i, p); return;
    case Q_MXFP4: unpack_mxfp4(block, n, i, p); return;
    default: unpack_small(format, block, n, i, p); return;
    }
}

/* sum over k from 4 * from to 4 * to of w x, for 16 rows. */
static void dots(const struct panel *w, const int8_t *x, int from, int to, int32_t sum[LANES])
{
    for (int j = from; j < to; j++)
        for (int l = 0; l < LANES; l++)
            for (int b = 0; b < 4; b++) sum[l] += w->w[j][l][b] * x[4 * j + b];
}

static void add_group(const struct strip_format *f, const struct panel *w, const struct xblock *x, int g,
                      float acc[LANES])
{
    for (int h = 0; h < 1 + f->halves; h++) {
        int per = f->halves ? 4 : 8;
        int32_t bias = f->bias * (f->halves ? x->half[2 * g + h] : x->half[2 * g] + x->half[2 * g + 1]);
        int32_t sum[LANES];
        for (int l = 0; l < LANES; l++) sum[l] = -bias;
        dots(w, x->q + g * GROUP, h * per, (h + 1) * per, sum);
        /* + 0: no negative zero, as with LIFT. */
        for (int l = 0; l < LANES; l++) acc[l] = fmaf((float)sum[l] * x->d[g] + 0.0f, w->scale[h][l], acc[l]);
    }
    if (f->offsets)
        for (int l = 0; l < LANES; l++) acc[l] = fmaf(w->offset[l], x->s[g], acc[l]);
}

void product_q8_portable(const struct product *p)
{
    const struct strip_format *f = p->w->strips_as;
    const struct xblock *x = p->x;
    for (int s = 0; s < p->n_strips; s++) {
        const uint8_t *block = p->strip + (size_t)s * p->w->strip_bytes;
        float *y = p->y + (size_t)s * (size_t)p->n_cols * LANES;
        memset(y, 0, (size_t)p->n_cols * LANES * sizeof *y);
        for (int64_t k = 0, b = 0; k < p->w->in; k += SUPER, b++) {
            int n = (int)(p->w->in - k < SUPER ? p->w->in - k : SUPER);
            for (int g = 0; g < n / GROUP; g++) {
                struct panel w;
                panel_unpack(f->id, block, n / GROUP, g, &w);
                for (int c = 0; c < p->n_cols; c++)
                    add_group(f, &w, x + b * p->n_rows + p->first_col + c, g, y + c * LANES);
            }
            block += f->bytes(p->w->format, n);
        }
    }
}

/* acc = fma(w, x, acc) for n of k whose weights are [k][row] f32. */
static void add_floats(const float *w, int n, const struct product *p, int64_t k, float *y)
{
    for (int c = 0; c < p->n_cols; c++) {
        const float *x = (const float *)p->x + (int64_t)(p->first_col + c) * p->w->in + k;
        float *acc = y + c * LANES;
        for (int i = 0; i < n; i++)
            for (int l = 0; l < LANES; l++) acc[l] = fmaf(w[i * LANES + l], x[i], acc[l]);
    }
}

/* The plain formats and those without a layout: decoded by up to 256 k of 16 rows, then as f32. */
static void product_floats(const struct product *p, int unit)
{
    const struct strip_format *f = p->w->strips_as;
    for (int s = 0; s < p->n_strips; s++) {
        const uint8_t *block = p->strip + (size_t)s * p->w->strip_bytes;
        float *y = p->y + (size_t)s * (size_t)p->n_cols * LANES;
        memset(y, 0, (size_t)p->n_cols * LANES * sizeof *y);
        for (int64_t k = 0; k < p->w->in; k += unit) {
            int n = (int)(p->w->in - k < unit ? p->w->in - k : unit);
            float *w = p->scratch, *row = w + SUPER * LANES;
            if (f->pack && f->id == p->w->format->id) {
                p->w->format->decode(block, w, (int64_t)n * LANES);
            } else {
                for (int l = 0; l < LANES; l++) {
                    p->w->format->decode(block + (size_t)l * (size_t)p->w->format->bytes, row, n);
                    for (int i = 0; i < n; i++) w[i * LANES + l] = row[i];
                }
            }
            add_floats(w, n, p, k, y);
            block += f->bytes(p->w->format, n);
        }
    }
}

void product_f32_portable(const struct product *p)
{
    product_floats(p, SUPER);
}

void product_f16_portable(const struct product *p)
{
    product_floats(p, SUPER);
}

void product_blocks_portable(const struct product *p)
{
    product_floats(p, p->w->format->block);
}

void product_bf16_portable(const struct product *p)
{
    int64_t pairs = (p->w->in + 1) / 2;
    for (int s = 0; s < p->n_strips; s++) {
        const uint8_t *w = p->strip + (size_t)s * p->w->strip_bytes;
        for (int c = 0; c < p->n_cols; c++) {
            const uint16_t *x = (const uint16_t *)p->x + (int64_t)(p->first_col + c) * 2 * pairs;
            float acc[LANES] = { 0 };
            for (int64_t i = 0; i < pairs; i++) {
                float x0 = bf16_to_f32(x[2 * i]), x1 = bf16_to_f32(x[2 * i + 1]);
                for (int l = 0; l < LANES; l++) {
                    /* One load of both: gcc 12 gets the vectors of two 16-bit loads wrong. */
                    uint32_t pair;
                    memcpy(&pair, w + i * VEC + l * 4, 4);
                    acc[l] = acc[l] + float_of(pair & 0xffff0000u) * x1;
                    acc[l] = acc[l] + float_of(pair << 16) * x0;
                }
            }
            memcpy(p->y + ((size_t)s * (size_t)p->n_cols + (size_t)c) * LANES, acc, sizeof acc);
        }
    }
}
