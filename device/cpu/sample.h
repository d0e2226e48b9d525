/* device/cpu/sample.h - SAMPLE: a thread a row (ops/draw_row.h). */
#include "ops/draw_row.h"

/* What may be drawn of the row whose largest column is `best`. */
INLINE int32_t sample_row(const float *x, const float *allowed, int cols, int32_t best, const struct step_draw *d)
{
    struct draw_row r = { .x = x, .allowed = allowed, .n = cols, .scale = d->scale };
    if (best < 0) return -1;
    if (allowed && allowed[best] != 0.0f) best = draw_largest(&r);
    r.max = draw_value(&r, best);
    return isfinite(r.max) ? draw_column(&r, d, best) : -1;
}

static void K(sample)(const struct job *j, const struct run *r, int thread)
{
    const float *allowed = vector_of(j->call->w[0]);
    int64_t from, to;
    pool_share(r->rows[j->rows], thread, r->n_threads, &from, &to);
    for (int64_t row = from; row < to; row++)
        ((int32_t *)j->out[0])[row] = sample_row((const float *)j->in[0] + row * j->cols, allowed, j->cols,
                                                 ((const int32_t *)j->in[1])[row], &r->step->out[row].draw);
}
