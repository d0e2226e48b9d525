/* quant/search.c - see search.h. Sums run in index order in f32: other orders give other bytes. */
#include "quant/search.h"

#include "quant/rows.h"

static const float all_zero = 1e-15f;    /* below this a group counts as zeros */

static void zero_codes(int n, uint8_t *codes)
{
    for (int i = 0; i < n; i++) codes[i] = 0;
}

/* The element of the largest magnitude, with its sign; the first of several. */
static float extreme(int n, const float *x)
{
    float amax = 0, max = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > amax) amax = fabsf(x[i]), max = x[i];
    return max;
}

float search_symmetric(int n, int nmax, const float *x, const float *w, uint8_t *codes)
{
    float max = extreme(n, x), scale = 0, best = 0;
    zero_codes(n, codes);
    if (fabsf(max) < all_zero) return 0;
    for (int k = -10; k <= 9; k++) { /* -10 stands for the candidate 0, which is tried first */
        int is = k == -10 ? 0 : k;
        if (k == 0) continue;
        float iscale = -((float)nmax + 0.1f * (float)is) / max, sumlx = 0, suml2 = 0;
        for (int i = 0; i < n; i++) {
            float l = (float)clamp_int(round_even(iscale * x[i]), -nmax, nmax - 1);
            float wi = w ? w[i] : x[i] * x[i];
            sumlx += wi * x[i] * l;
            suml2 += wi * l * l;
        }
        if (k > -10 && !(suml2 > 0 && sumlx * sumlx > best * suml2)) continue;
        for (int i = 0; i < n; i++)
            codes[i] = (uint8_t)(nmax + clamp_int(round_even(iscale * x[i]), -nmax, nmax - 1));
        scale = suml2 != 0 ? sumlx / suml2 : 0;
        best = scale * sumlx;
    }
    return scale;
}

float search_symmetric_refined(int n, int nmax, const float *x, uint8_t *codes)
{
    float max = extreme(n, x), sumlx = 0, suml2 = 0;
    int l[SEARCH_MAX];
    zero_codes(n, codes);
    if (fabsf(max) < all_zero) return 0;
    float iscale = (float)-nmax / max;
    for (int i = 0; i < n; i++) {
        l[i] = clamp_int(round_even(iscale * x[i]), -nmax, nmax - 1);
        float w = x[i] * x[i];
        sumlx += w * x[i] * (float)l[i];
        suml2 += w * (float)l[i] * (float)l[i];
    }
    for (int sweep = 0, changed = 1; sweep < 5 && changed; sweep++) {
        changed = 0;
        for (int i = 0; i < n; i++) {
            float w = x[i] * x[i], slx = sumlx - w * x[i] * (float)l[i];
            if (!(slx > 0)) continue;
            float sl2 = suml2 - w * (float)l[i] * (float)l[i];
            int next = clamp_int(round_even(x[i] * sl2 / slx), -nmax, nmax - 1);
            if (next == l[i]) continue;
            slx += w * x[i] * (float)next;
            sl2 += w * (float)next * (float)next;
            if (!(sl2 > 0 && slx * slx * suml2 > sumlx * sumlx * sl2)) continue;
            l[i] = next;
            sumlx = slx;
            suml2 = sl2;
            changed = 1;
        }
    }
    for (int i = 0; i < n; i++) codes[i] = (uint8_t)(l[i] + nmax);
    return suml2 > 0 ? sumlx / suml2 : 0;
}

/* Weighted error of scale * codes + min against x. */
static float affine_error(int n, const float *x, const float *w, const uint8_t *codes, float scale,
                          float min, int absolute)
{
    float sum = 0;
    for (int i = 0; i < n; i++) {
        float diff = scale * (float)codes[i] + min - x[i];
        sum += w[i] * (absolute ? fabsf(diff) : diff * diff);
    }
    return sum;
}

static void affine_codes(int n, int nmax, const float *x, float iscale, float min, uint8_t *codes)
{
    for (int i = 0; i < n; i++)
        codes[i] = (uint8_t)clamp_int(round_even(iscale * (x[i] - min)), 0, nmax);
}

float search_affine(int n, int nmax, const float *x, const float *w, const struct search_steps *s,
                    uint8_t *codes, float *min_out)
{
    float min = x[0], max = x[0], sum_w = w[0], sum_x = sum_w * x[0];
    for (int i = 1; i < n; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
        sum_w += w[i];
        sum_x += w[i] * x[i];
    }
    if (min > 0) min = 0;
    *min_out = -min;
    zero_codes(n, codes);
    if (!(max > min)) return 0;
    float iscale = (float)nmax / (max - min), scale = 1 / iscale;
    affine_codes(n, nmax, x, iscale, min, codes);
    float best = affine_error(n, x, w, codes, scale, min, s->absolute);
    for (int is = 0; is <= s->count; is++) {
        uint8_t next[SEARCH_MAX];
        float sum_l = 0, sum_l2 = 0, sum_xl = 0;
        affine_codes(n, nmax, x, (s->first + s->step * (float)is + (float)nmax) / (max - min), min,
                     next);
        for (int i = 0; i < n; i++) {
            float l = (float)next[i];
            sum_l += w[i] * l;
            sum_l2 += w[i] * l * l;
            sum_xl += w[i] * l * x[i];
        }
        float det = sum_w * sum_l2 - sum_l * sum_l;
        if (!(det > 0)) continue;
        float new_scale = (sum_w * sum_xl - sum_x * sum_l) / det;
        float new_min = (sum_l2 * sum_x - sum_l * sum_xl) / det;
        if (new_min > 0) new_min = 0, new_scale = sum_xl / sum_l2;
        float error = affine_error(n, x, w, next, new_scale, new_min, s->absolute);
        if (!(error < best)) continue;
        for (int i = 0; i < n; i++) codes[i] = next[i];
        best = error;
        scale = new_scale;
        min = new_min;
    }
    *min_out = -min;
    return scale;
}

/* The factor 1 / scale for codes of x >= 0 that has the least weighted squared error. */
static float positive_start(int n, int nmax, const float *x, const float *w, float max)
{
    float iscale = (float)nmax / max, best = 0, scale = 1 / iscale;
    for (int i = 0; i < n; i++) {
        float diff = x[i] - scale * (float)round_even(iscale * x[i]);
        best += w[i] * diff * diff;
    }
    for (int is = -4; is <= 4; is++) {
        if (is == 0) continue;
        float candidate = (0.1f * (float)is + (float)nmax) / max, error = 0;
        scale = 1 / candidate;
        for (int i = 0; i < n; i++) {
            float diff = x[i] - scale * (float)clamp_int(round_even(candidate * x[i]), 0, nmax);
            error += w[i] * diff * diff;
        }
        if (error < best) best = error, iscale = candidate;
    }
    return iscale;
}

float search_positive(int n, int nmax, const float *x, const float *w, uint8_t *codes)
{
    float max = 0, sumlx = 0, suml2 = 0;
    for (int i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
    zero_codes(n, codes);
    if (max < all_zero) return 0;
    float iscale = positive_start(n, nmax, x, w, max);
    for (int i = 0; i < n; i++) {
        codes[i] = (uint8_t)clamp_int(round_even(iscale * x[i]), 0, nmax);
        sumlx += w[i] * x[i] * (float)codes[i];
        suml2 += w[i] * (float)codes[i] * (float)codes[i];
    }
    for (int sweep = 0, changed = 1; sweep < 5 && changed; sweep++) {
        changed = 0;
        for (int i = 0; i < n; i++) {
            float slx = sumlx - w[i] * x[i] * (float)codes[i];
            float sl2 = suml2 - w[i] * (float)codes[i] * (float)codes[i];
            if (!(slx > 0 && sl2 > 0)) continue;
            int next = clamp_int(round_even(x[i] * sl2 / slx), 0, nmax);
            if (next == codes[i]) continue;
            slx += w[i] * x[i] * (float)next;
            sl2 += w[i] * (float)next * (float)next;
            if (!(slx * slx * suml2 > sumlx * sumlx * sl2)) continue;
            codes[i] = (uint8_t)next;
            sumlx = slx;
            suml2 = sl2;
            changed = 1;
        }
    }
    return suml2 > 0 ? sumlx / suml2 : 0;
}

void search_weights(int n, const float *x, const float *importance, float mean_sq, float *w)
{
    for (int i = 0; i < n; i++) w[i] = importance[i] * sqrtf(mean_sq + x[i] * x[i]);
}

float search_sum_sq(int64_t n, const float *x)
{
    float sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sum;
}
