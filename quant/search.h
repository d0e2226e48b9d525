/* quant/search.h - the searches for scales that encoders share. Each minimises a weighted error
 * over a few candidate scales; the exact order of operations is part of the formats' golden bytes.
 * Inputs that are not finite give some codes in range. */
#ifndef LUCE_QUANT_SEARCH_H
#define LUCE_QUANT_SEARCH_H

#include <stdint.h>

enum { SEARCH_MAX = 32 };       /* most elements of a search */

/* x ~ scale * (code - nmax), codes 0 .. 2 nmax - 1; returns the scale. Weights w, or x^2 for NULL.
 * A group of zeros has codes 0 and scale 0. */
float search_symmetric(int n, int nmax, const float *x, const float *w, uint8_t *codes);
/* The same with weights x^2, refined one code at a time (Q3_K without importance). */
float search_symmetric_refined(int n, int nmax, const float *x, uint8_t *codes);
/* x ~ scale * code - *min, codes 0 .. nmax, *min >= 0. */
struct search_steps {
    float first, step;          /* candidates (first + step i + nmax) / range for i = 0 .. count */
    int   count;
    int   absolute;             /* errors by absolute difference, not by square */
};
float search_affine(int n, int nmax, const float *x, const float *w, const struct search_steps *s,
                    uint8_t *codes, float *min);
/* x >= 0, x ~ scale * code, codes 0 .. nmax. */
float search_positive(int n, int nmax, const float *x, const float *w, uint8_t *codes);
/* w[i] = importance[i] * sqrt(factor * mean(x^2) + x[i]^2); mean_sq is the mean times its
 * factor. */
void search_weights(int n, const float *x, const float *importance, float mean_sq, float *w);
/* Sum of squares of n elements, in order. */
float search_sum_sq(int64_t n, const float *x);

#endif
