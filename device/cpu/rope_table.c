/* device/cpu/rope_table.c - cos and sin of all rows of the step, once per frequency table: layers share
 * them. The angle is a product in f32; its cosine and sine are those of the C library. */
#include <math.h>

#include "device/cpu/cpu.h"
#include "ops/rope_kv.h"

void job_rope_table(const struct job *j, const struct run *r, int thread)
{
    const struct rope_table *t = j->rope;
    const float *freq = vector_of(t->freq);
    int64_t from, to;
    pool_share((int64_t)r->rows[DOM_ROWS] * t->pairs, thread, r->n_threads, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const struct step_row *row = &r->step->row[i / t->pairs];
        float angle = (float)row->rope[rope_axis(t->attr, (int)(i % t->pairs))] * freq[i % t->pairs];
        t->at[2 * i] = cosf(angle) * t->magnitude;
        t->at[2 * i + 1] = sinf(angle) * t->magnitude;
    }
}
