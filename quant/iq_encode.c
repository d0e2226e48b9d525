/* quant/iq_encode.c - encoders of IQ2 and IQ3. Magnitudes and signs are apart: each sub-block of 32
 * (or 16) magnitudes tries some scales; for each, levels are rounded, snapped to the grid in
 * groups, and scored by what a least-squares scale explains. Levels stand for 2 level + 1 in these
 * sums. The formats with 7-bit signs flip the least important element of a group with an odd number
 * of negatives. Sub-block scales get 4 bits: scale ~ d * (2 code + 1). */
#include "quant/iq_encode.h"

#include "quant/lattice.h"
#include "quant/rows.h"
#include "quant/search.h"

static const float odd[8] = { 1, 3, 5, 7, 9, 11, 13, 15 };

/* How one format searches. */
struct plan {
    enum lattice_id lattice;
    int   n;                    /* elements of a sub-block */
    int   tries;                /* candidates -tries .. tries */
    float step;
    float zero;                 /* largest magnitude of a sub-block that counts as zeros */
    float stored;               /* factor on the stored d */
    bool  parity;               /* 7-bit signs */
    bool  positive_start;       /* the range of the candidates comes from search_positive */
    bool  resnap_all;           /* after the search also groups that were on the grid */
};

/* A sub-block as chosen. */
struct chosen {
    float    scale;
    uint16_t point[8];          /* n / size grid indices */
    uint8_t  signs[4];          /* per 8 elements */
};

/* Magnitudes (one of a group may be negative for parity) and sign masks of n elements. */
static void split_signs(int n, const float *x, const float *w, bool parity, float *mag,
                        uint8_t *signs)
{
    for (int k = 0; k < n / 8; k++) {
        int flips = 0, least = 0;
        float low = w[8 * k] * x[8 * k] * x[8 * k];
        signs[k] = 0;
        for (int i = 0; i < 8; i++) {
            float v = x[8 * k + i], cost = w[8 * k + i] * v * v;
            bool negative = !(v >= 0);
            mag[8 * k + i] = negative ? -v : v;
            flips += negative;
            signs[k] |= (uint8_t)(negative << i);
            if (cost < low) low = cost, least = i;
        }
        if (!parity || flips % 2 == 0) continue;
        mag[8 * k + least] = -mag[8 * k + least];
        signs[k] ^= (uint8_t)(1 << least);
    }
}

static void round_levels(int n, int top, float id, const float *mag, uint8_t *level)
{
    for (int i = 0; i < n; i++)
        level[i] = (uint8_t)clamp_int(round_even(0.5f * (id * mag[i] - 1)), 0, top);
}

static void score(int n, const float *mag, const float *w, const uint8_t *level, float *sumqx,
                  float *sumq2)
{
    *sumqx = *sumq2 = 0;
    for (int i = 0; i < n; i++) {
        float q = odd[level[i]];
        *sumqx += w[i] * mag[i] * q;
        *sumq2 += w[i] * q * q;
    }
}

/* Levels of all groups for candidate scale 1 / id. */
static void snap_all(const struct plan *p, const struct lattice *g, float id, float scale,
                     const float *mag, const float *root, uint8_t *level, uint8_t *on_grid)
{
    round_levels(p->n, g->levels - 1, id, mag, level);
    for (int at = 0; at < p->n; at += g->size)
        lattice_snap(g, mag + at, root + at, scale, odd, level + at, on_grid + at / g->size);
}

static void choose(const struct plan *p, const float *x, const float *w, struct chosen *c)
{
    const struct lattice *g = lattice_get(p->lattice);
    float mag[32], root[32], max = 0, best = 0, sumqx, sumq2, top = (float)(2 * g->levels - 1);
    uint8_t level[32] = { 0 }, next[32] = { 0 }, on_grid[8] = { 0 }, next_on_grid[8] = { 0 };
    memset(c, 0, sizeof *c);
    split_signs(p->n, x, w, p->parity, mag, c->signs);
    for (int i = 0; i < p->n; i++) {
        root[i] = sqrtf(w[i]);
        max = mag[i] > max ? mag[i] : max;
    }
    if (!(max >= p->zero)) { /* point 0 has the least magnitudes of every grid */
        memset(c->signs, 0, sizeof c->signs);
        return;
    }
    float scale = max / top;
    if (p->positive_start) {
        scale = search_positive(p->n, g->levels + 1, mag, w, next);
        max = scale * (float)g->levels;
        if (!(max > 0)) return;
    }
    for (int is = -p->tries; is <= p->tries; is++) {
        float id = (top + (float)is * p->step) / max;
        snap_all(p, g, id, 1 / id, mag, root, next, next_on_grid);
        score(p->n, mag, w, next, &sumqx, &sumq2);
        if (!(sumq2 > 0 && sumqx * sumqx > best * sumq2)) continue;
        scale = sumqx / sumq2;
        best = scale * sumqx;
        memcpy(level, next, sizeof level);
        memcpy(on_grid, next_on_grid, sizeof on_grid);
    }
    if (scale > 0) {
        round_levels(p->n, g->levels - 1, 1 / scale, mag, next);
        for (int at = 0; at < p->n; at += g->size) {
            if (on_grid[at / g->size] && !p->resnap_all) continue;
            memcpy(level + at, next + at, (size_t)g->size);
            lattice_snap(g, mag + at, root + at, scale, odd, level + at, NULL);
        }
        score(p->n, mag, w, level, &sumqx, &sumq2);
        if (sumq2 > 0) scale = sumqx / sumq2;
    }
    for (int k = 0; k < p->n / 8 && scale < 0; k++) c->signs[k] = (uint8_t)~c->signs[k];
    c->scale = fabsf(scale);
    for (int at = 0; at < p->n; at += g->size)
        c->point[at / g->size] = (uint16_t)lattice_snap(g, mag + at, root + at, scale, odd,
                                                        level + at, NULL);
}

/* Chooses all sub-blocks of 256 elements and codes their scales; returns the half d. A block of
 * zeros has d 0 and nothing else. factor: of mean(x^2) in the weights. */
static uint16_t choose_block(const struct plan *p, const float *x, const float *im, float factor,
                             float plain, struct chosen *c, uint8_t code[16])
{
    float mean_sq = factor * search_sum_sq(QK, x) / QK, max = 0, w[32];
    int n = QK / p->n;
    for (int s = 0; s < n; s++) {
        const float *xs = x + s * p->n;
        if (im) search_weights(p->n, xs, im + s * p->n, mean_sq, w);
        for (int i = 0; i < p->n && !im; i++) w[i] = plain * mean_sq + xs[i] * xs[i];
        choose(p, xs, w, &c[s]);
        max = c[s].scale > max ? c[s].scale : max;
    }
    float d = max / 31, id = inverse(d);
    for (int s = 0; s < n; s++)
        code[s] = (uint8_t)clamp_int(round_even(0.5f * (id * c[s].scale - 1)), 0, 15);
    if (max > 0) return f32_to_f16(d * p->stored);
    memset(c, 0, (size_t)n * sizeof *c);
    memset(code, 0, 16);
    return 0;
}

void iq2_xxs_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    static const struct plan plan = { .lattice = LATTICE_IQ2_XXS,
                                      .n = 32,
                                      .tries = 6,
                                      .step = 0.1f,
                                      .zero = 1e-15f,
                                      .stored = 1,
                                      .parity = true,
                                      .positive_start = true };
    struct block_iq2_xxs *b = dst;
    for (int64_t k = 0; k < n / QK; k++, b++) {
        struct chosen c[8];
        uint8_t code[16];
        b->d = choose_block(&plan, src + QK * k, importance + QK * k, 1, 0, c, code);
        for (int s = 0; s < 8; s++) {
            uint32_t points = 0, rest = (uint32_t)code[s] << 28;
            for (int l = 0; l < 4; l++) {
                points |= (uint32_t)c[s].point[l] << 8 * l;
                rest |= (uint32_t)(c[s].signs[l] & 127) << 7 * l;
            }
            b->qs[2 * s] = points;
            b->qs[2 * s + 1] = rest;
        }
    }
}

void iq2_xs_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    static const struct plan plan = { .lattice = LATTICE_IQ2_XS, .n = 16, .tries = 9, .step = 0.1f,
                                      .zero = 1e-15f, .stored = 1, .parity = true };
    struct block_iq2_xs *b = dst;
    for (int64_t k = 0; k < n / QK; k++, b++) {
        struct chosen c[16];
        uint8_t code[16];
        b->d = choose_block(&plan, src + QK * k, importance + QK * k, 1, 0, c, code);
        for (int g = 0; g < 32; g++)
            b->qs[g] = (uint16_t)(c[g / 2].point[g % 2] | (c[g / 2].signs[g % 2] & 127) << 9);
        for (int i = 0; i < 8; i++) b->scales[i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
    }
}

void iq2_s_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    static const struct plan plan = { .lattice = LATTICE_IQ2_S, .n = 16, .tries = 9, .step = 0.1f,
                                      .zero = 1e-8f, .stored = 0.9875f };
    struct block_iq2_s *b = dst;
    for (int64_t k = 0; k < n / QK; k++, b++) {
        struct chosen c[16];
        uint8_t code[16];
        const float *im = importance ? importance + QK * k : NULL;
        memset(b, 0, sizeof *b);
        b->d = choose_block(&plan, src + QK * k, im, 2, 0.25f, c, code);
        for (int g = 0; g < 32; g++) {
            unsigned point = c[g / 2].point[g % 2];
            b->qs[g] = (uint8_t)point;
            b->qh[g / 4] |= (uint8_t)(point >> 8 << 2 * (g % 4));
            b->signs[g] = c[g / 2].signs[g % 2];
        }
        for (int i = 0; i < 8; i++) b->scales[i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
    }
}

void iq3_xxs_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    static const struct plan plan = { .lattice = LATTICE_IQ3_XXS,
                                      .n = 32,
                                      .tries = 15,
                                      .step = 0.2f,
                                      .zero = 1e-8f,
                                      .stored = 1.0125f,
                                      .parity = true };
    struct block_iq3_xxs *b = dst;
    for (int64_t k = 0; k < n / QK; k++, b++) {
        struct chosen c[8];
        uint8_t code[16];
        const float *im = importance ? importance + QK * k : NULL;
        b->d = choose_block(&plan, src + QK * k, im, 2, 0, c, code);
        for (int t = 0; t < 64; t++) b->qs[t] = (uint8_t)c[t / 8].point[t % 8];
        for (int s = 0; s < 8; s++) {
            uint32_t word = (uint32_t)code[s] << 28;
            for (int l = 0; l < 4; l++) word |= (uint32_t)(c[s].signs[l] & 127) << 7 * l;
            b->signs[s] = word;
        }
    }
}

void iq3_s_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    static const struct plan plan = { .lattice = LATTICE_IQ3_S, .n = 32, .tries = 9, .step = 0.2f,
                                      .zero = 1e-30f, .stored = 1.033f, .resnap_all = true };
    struct block_iq3_s *b = dst;
    for (int64_t k = 0; k < n / QK; k++, b++) {
        struct chosen c[8];
        uint8_t code[16];
        const float *im = importance ? importance + QK * k : NULL;
        memset(b, 0, sizeof *b);
        b->d = choose_block(&plan, src + QK * k, im, 2, 0, c, code);
        for (int t = 0; t < 64; t++) {
            b->qs[t] = (uint8_t)c[t / 8].point[t % 8];
            b->qh[t / 8] |= (uint8_t)(c[t / 8].point[t % 8] >> 8 << t % 8);
        }
        for (int g = 0; g < 32; g++) b->signs[g] = c[g / 4].signs[g % 4];
        for (int i = 0; i < 4; i++) b->scales[i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
    }
}
