/* ops/work.c - see work.h. */
#include "ops/work.h"

#include <math.h>

#include "ops/ref.h"
#include "quant/quant.h"

double work_weight(const struct weight *w)
{
    const struct format *f = format_find(w->type);
    uint64_t rows = w->dim[1] ? w->dim[1] : 1, experts = w->dim[2] ? w->dim[2] : 1;
    return f ? (double)format_bytes(f, w->dim[0]) * (double)rows * (double)experts : 0;
}

double work_values(const struct tape *t, const struct call *c, const struct step *s)
{
    double bytes = 0;
    for (int i = 0; i < c->n_in; i++) {
        struct shape in = tape_shape(t, c->in[i]);
        bytes += (double)shape_row_bytes(in) * step_rows_of(s, in.rows);
    }
    for (int i = 0; i < c->n_out; i++)
        bytes += (double)shape_row_bytes(c->shape[i]) * step_rows_of(s, c->shape[i].rows);
    return bytes;
}

struct work work_plain(const struct tape *t, const struct call *c, const struct step *s)
{
    struct work work = { .bytes = work_values(t, c, s) };
    int rows = step_rows_of(s, c->shape[0].rows);
    for (int i = 0; i < c->n_w; i++) {
        const struct weight *w = c->w[i];
        if (!w) continue;
        work.bytes += work_weight(w);
        if (w->dim[1] > 1) work.ops += 2.0 * (double)w->dim[0] * (double)w->dim[1] * rows;
    }
    return work;
}

struct work work_experts(const struct tape *t, const struct call *c, const struct step *s, const struct moe_attr *a,
                         int n_each)
{
    int used = a->used - a->shared, experts = a->experts - a->shared;
    struct work work = { .bytes = work_values(t, c, s) };
    int rows = step_rows_of(s, c->shape[0].rows);
    double share = 1 - pow(1 - (double)used / experts, rows);
    for (int i = 0; i < c->n_w; i++) {
        const struct weight *w = c->w[i];
        work.bytes += work_weight(w) * (i < n_each ? share : 1);
        work.ops += 2.0 * (double)w->dim[0] * (double)w->dim[1] * rows * (i < n_each ? used : 1);
    }
    return work;
}

double work_position(const struct tape *t, int layer)
{
    const struct kv_layer *y = &t->kv->layer[layer];
    return (double)y->kv_heads * ((double)y->k_head + (double)y->v_head) / PAGE;
}

double work_commit(const struct tape *t, int layer, const struct step *s)
{
    double positions = s->head.n_rows;
    for (int i = 0; i < s->head.n_seqs; i++) positions += 2.0 * s->seq[i].n_commit;
    return positions * work_position(t, layer);
}
