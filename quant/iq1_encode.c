/* quant/iq1_encode.c - encoders of IQ1_S and IQ1_M. The three levels of a sub-block follow the
 * order of its values, so the best assignment is one of the ways to cut the sorted values into
 * three runs: all are tried, with each direction of the shift (IQ1_M: of both halves). Groups of 8
 * are then snapped to the grid. Sums run as the golden bytes want them. A sub-block of zeros takes
 * the point whose levels are all zero, and so decodes to an eighth of the smallest scale instead of
 * to that scale itself. */
#include "quant/grids.h"
#include "quant/iq_encode.h"
#include "quant/lattice.h"
#include "quant/rows.h"
#include "quant/search.h"

/* Level values with the shift up [0] and down [1]. */
static const float values[2][3] = { { -0.875f, 0.125f, 1.125f }, { -1.125f, -0.125f, 0.875f } };

enum { ZERO_LEVELS = 0x5555 };  /* level 1 in every place */

/* A sub-block as chosen: halves of 8 (IQ1_M) have shifts of their own, in IQ1_S all are alike. */
struct chosen {
    float    scale;
    uint16_t point[4];
    uint8_t  down[2];           /* the shift's direction in the first and second half */
};

/* Indices of x in ascending order, equal ones by index. */
static void sort_order(int n, const float *x, int *order)
{
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && x[order[at - 1]] > x[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
}

static void set_levels(int n, const int *order, int cut1, int cut2, uint8_t *level)
{
    for (int j = 0; j < n; j++) level[order[j]] = (uint8_t)((j >= cut1) + (j >= cut2));
}

/* The best cuts of 32 elements with one shift for all, by prefix sums. Returns the scale. */
static float cut_one_shift(const float *x, const float *w, uint8_t *level, int *down)
{
    int order[32], best1 = 0, best2 = 0;
    float sumx[33], sumw[33], best = -3.402823466e38f, scale = 0;
    sort_order(32, x, order);
    sumx[0] = sumw[0] = 0;
    for (int j = 0; j < 32; j++) {
        sumx[j + 1] = sumx[j] + w[order[j]] * x[order[j]];
        sumw[j + 1] = sumw[j] + w[order[j]];
    }
    for (int i1 = 0; i1 <= 32; i1++)
        for (int i2 = i1; i2 <= 32; i2++)
            for (int s = 0; s < 2; s++) {
                const float *v = values[s];
                float x0 = sumx[i1] - sumx[0], x1 = sumx[i2] - sumx[i1], x2 = sumx[32] - sumx[i2];
                float w0 = sumw[i1] - sumw[0], w1 = sumw[i2] - sumw[i1], w2 = sumw[32] - sumw[i2];
                float sumqx = x0 * v[0] + x1 * v[1] + x2 * v[2];
                float sumq2 = w0 * v[0] * v[0] + w1 * v[1] * v[1] + w2 * v[2] * v[2];
                if (!(sumq2 > 0 && sumqx * sumqx > best * sumq2)) continue;
                scale = sumqx / sumq2;
                best = scale * sumqx;
                best1 = i1;
                best2 = i2;
                *down = s;
            }
    set_levels(32, order, best1, best2, level);
    return scale;
}

/* The best cuts of 16 elements with a shift for each half; *combination: bit 1 the first half's
 * direction, bit 0 the second's. */
static float cut_two_shifts(const float *x, const float *w, uint8_t *level, int *combination)
{
    int order[16], best1 = 0, best2 = 0;
    float best = -3.402823466e38f, scale = 0;
    sort_order(16, x, order);
    for (int i1 = 0; i1 <= 16; i1++)
        for (int i2 = i1; i2 <= 16; i2++) {
            float sumqx[4] = { 0 }, sumq2[4] = { 0 };
            for (int j = 0; j < 16; j++) {
                int i = order[j], l = (j >= i1) + (j >= i2);
                for (int k = 0; k < 4; k++) {
                    float q = values[i < 8 ? k >> 1 : k & 1][l];
                    sumqx[k] += w[i] * q * x[i];
                    sumq2[k] += w[i] * q * q;
                }
            }
            for (int k = 0; k < 4; k++) {
                if (!(sumq2[k] > 0 && sumqx[k] * sumqx[k] > best * sumq2[k])) continue;
                scale = sumqx[k] / sumq2[k];
                best = scale * sumqx[k];
                best1 = i1;
                best2 = i2;
                *combination = k;
            }
        }
    set_levels(16, order, best1, best2, level);
    return scale;
}

/* Chooses a sub-block of n = 32 or 16 elements; `zero`: largest magnitude that counts as zeros. */
static void choose(int n, const float *x, const float *w, float zero, struct chosen *c)
{
    const struct lattice *g = lattice_get(LATTICE_IQ1);
    uint8_t level[32], on_grid, all = 1;
    int shifts = 0;
    float max = 0, sumqx = 0, sumq2 = 0;
    *c = (struct chosen){ 0 };
    for (int i = 0; i < n; i++) max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    for (int k = 0; k < n / 8; k++) c->point[k] = (uint16_t)g->place[ZERO_LEVELS];
    if (!(max >= zero)) return;
    float scale = n == 32 ? cut_one_shift(x, w, level, &shifts)
                          : cut_two_shifts(x, w, level, &shifts);
    if (n == 32) shifts = shifts ? 3 : 0;
    if (scale < 0) {                             /* mirror the levels and the shifts */
        for (int i = 0; i < n; i++) level[i] = (uint8_t)(2 - level[i]);
        scale = -scale;
        shifts ^= 3;
    }
    c->down[0] = (uint8_t)(shifts >> 1);
    c->down[1] = (uint8_t)(shifts & 1);
    for (int k = 0; k < n / 8; k++) {
        const float *v = values[c->down[k * 16 / n]];
        c->point[k] = (uint16_t)lattice_snap(g, x + 8 * k, w + 8 * k, scale, v, level + 8 * k,
                                             &on_grid);
        all &= on_grid;
        for (int j = 0; j < 8; j++) {
            float q = v[level[8 * k + j]], wi = w[8 * k + j];
            sumqx += wi * q * x[8 * k + j];
            sumq2 += wi * q * q;
        }
    }
    if (!all && sumqx > 0 && sumq2 > 0) scale = sumqx / sumq2;
    c->scale = scale;
}

static void weights_of(int n, const float *x, const float *im, float mean_sq, float *w)
{
    if (im) search_weights(n, x, im, mean_sq, w);
    for (int i = 0; i < n && !im; i++) w[i] = x[i] * x[i];
}

void iq1_s_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    struct block_iq1_s *b = dst;
    for (int64_t k = 0; k < n / QK; k++, b++) {
        const float *x = src + QK * k, *im = importance + QK * k;
        float mean_sq = 2 * search_sum_sq(QK, x) / QK, max = 0, w[32];
        struct chosen c[8];
        for (int s = 0; s < 8; s++) {
            weights_of(32, x + 32 * s, im + 32 * s, mean_sq, w);
            choose(32, x + 32 * s, w, 1e-12f, &c[s]);
            max = c[s].scale > max ? c[s].scale : max;
        }
        memset(b, 0, sizeof *b);
        if (!(max > 0)) continue;
        float d = max / 15, id = 1 / d;
        b->d = f32_to_f16(d * 1.125f);
        for (int s = 0; s < 8; s++) {
            int code = clamp_int(round_even(0.5f * (id * c[s].scale - 1)), 0, 7) | c[s].down[0]
                                                                                       << 3;
            unsigned word = (unsigned)code << 12;
            for (int l = 0; l < 4; l++) {
                b->qs[4 * s + l] = (uint8_t)c[s].point[l];
                word |= (unsigned)(c[s].point[l] >> 8) << 3 * l;
            }
            b->qh[s] = (uint16_t)word;
        }
    }
}

/* Adds what sub-block s with scale code l says about the common scale d. */
static void refit(const float *x, const float *w, const struct chosen *c, int l, float *sumqx,
                  float *sumq2)
{
    for (int i = 0; i < 16; i++) {
        int level = iq1_grid[c->point[i / 8]] >> 2 * (i % 8) & 3;
        float q = values[c->down[i / 8]][level] * (float)(2 * l + 1);
        *sumqx += w[i] * q * x[i];
        *sumq2 += w[i] * q * q;
    }
}

void iq1_m_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    struct block_iq1_m *b = dst;
    for (int64_t k = 0; k < n / QK; k++, b++) {
        const float *x = src + QK * k, *im = importance ? importance + QK * k : NULL;
        float mean_sq = 2 * search_sum_sq(QK, x) / QK, max = 0, w[QK], sumqx = 0, sumq2 = 0;
        struct chosen c[16];
        for (int g = 0; g < 16; g++) {
            weights_of(16, x + 16 * g, im ? im + 16 * g : NULL, mean_sq, w + 16 * g);
            choose(16, x + 16 * g, w + 16 * g, 1e-7f, &c[g]);
            max = c[g].scale > max ? c[g].scale : max;
        }
        memset(b, 0, sizeof *b);
        if (!(max > 0)) continue;
        float d = max / 15, id = 1 / d;
        unsigned words[4] = { 0 };
        for (int g = 0; g < 16; g++) {
            int code = clamp_int(round_even(0.5f * (id * c[g].scale - 1)), 0, 7);
            words[g / 4] |= (unsigned)code << 3 * (g % 4);
            b->qs[2 * g] = (uint8_t)c[g].point[0];
            b->qs[2 * g + 1] = (uint8_t)c[g].point[1];
            b->qh[g] = (uint8_t)(c[g].point[0] >> 8 | c[g].down[0] << 3 | c[g].point[1] >> 8 << 4 |
                                 c[g].down[1] << 7);
            refit(x + 16 * g, w + 16 * g, &c[g], code, &sumqx, &sumq2);
        }
        if (sumq2 > 0) d = sumqx / sumq2;
        unsigned half = f32_to_f16(d * 1.1125f);
        for (int i = 0; i < 4; i++)
            b->scales[i] = (uint16_t)(words[i] | (half >> 4 * i & 15) << 12);
    }
}
