/* device/cpu/moe.c - MOE_GLU and MOE_DOWN: products of experts with the rows that chose them.
 *
 * Jobs of a call: job_group sorts the routes by expert, job_gather copies the activations into that
 * order, so that an expert's columns are neighbours and its strips are read once a step; then threads
 * take pieces of experts from a counter, and MOE_DOWN's slots are summed row by row.
 * The matrix of expert e is rows e * n to (e + 1) * n - 1 of the packed weight; a shared expert, the last, has a weight
 * of its own. A strip of 16 rows may belong to two experts; each then computes it and keeps its own lanes. */
#include <assert.h>

#include "device/cpu/share.h"
#include "device/cpu/vec.h"

void job_group(const struct job *j, const struct run *r, int thread)
{
    if (thread) return;
    const struct moe_attr *a = j->call->attr;
    const struct routes *g = &j->routes;
    const int32_t *ids = j->in[1];
    int32_t *ends = g->ends, n = r->rows[j->rows] * a->used;
    memset(ends, 0, (size_t)(a->experts + 1) * sizeof *ends);
    for (int i = 0; i < n; i++) ends[ids[i]]++;
    *g->n_active = 0;
    for (int e = 0, at = 0; e < a->experts; e++) {
        int count = ends[e];
        if (count) g->active[(*g->n_active)++] = e;
        ends[e] = at;
        at += count;
    }
    for (int i = 0; i < n; i++) g->sorted[ends[ids[i]]++] = i;
    memmove(ends + 1, ends, (size_t)a->experts * sizeof *ends);     /* each is now where the next begins */
    ends[0] = 0;
}

void job_gather(const struct job *j, const struct run *r, int thread)
{
    const struct moe_attr *a = j->call->attr;
    int n = r->rows[j->rows] * a->used, sources = rows_of_job(j, r), per_source = n / (sources ? sources : 1);
    /* Blocks of a form lie [k block][row]; rows of the others are one block. */
    int blocks = j->form == X_Q8 ? (j->cols + SUPER - 1) / SUPER : 1;
    size_t bytes = j->form == X_Q8 ? sizeof(struct xblock) : j->form == X_BF16 ? (size_t)(j->cols + 1) / 2 * 4
                                                           : (size_t)j->cols * sizeof(float);
    int64_t from, to;
    pool_share((int64_t)n * blocks, thread, r->n_threads, &from, &to);
    for (int64_t i = from; i < to; i++) {
        int64_t k = i / n, row = j->routes.sorted[i % n] / per_source;
        memcpy((uint8_t *)j->gathered[j->form] + (size_t)i * bytes,
               (const uint8_t *)j->x[j->form] + (size_t)(k * sources + row) * bytes, bytes);
    }
}

/* Strips of a call that one thread works on at a time. */
struct piece {
    int matrix, from, to;           /* of the packed weights: the expert's place in them, strips */
    int w;                          /* the first of these weights in the call */
    int first, end;                 /* sorted routes */
};
enum { PIECE_STRIPS = 2 * PRODUCT_STRIPS };

/* The next piece that nobody has taken; n: rows an expert; each: weights of an expert. */
static bool take_piece(const struct job *j, int n, int each, struct piece *p)
{
    const struct moe_attr *a = j->call->attr;
    int most = (n + 2 * LANES - 2) / LANES, pieces = (most + PIECE_STRIPS - 1) / PIECE_STRIPS;
    int at = share_next(j);
    if (at >= *j->routes.n_active * pieces) return false;
    int expert = j->routes.active[at / pieces];
    bool shared = a->shared && expert == a->experts - 1;
    p->w = shared ? each : 0;
    p->matrix = shared ? 0 : expert;
    int64_t rows = (int64_t)p->matrix * n;
    int end = (int)((rows + n + LANES - 1) / LANES);
    assert(end <= packed_of(j->call->w[p->w])->n_strips);
    p->from = (int)(rows / LANES) + at % pieces * PIECE_STRIPS;
    p->to = p->from + PIECE_STRIPS < end ? p->from + PIECE_STRIPS : end;
    p->first = j->routes.ends[expert];
    p->end = j->routes.ends[expert + 1];
    return true;
}

/* Sums of strips `s` on of one weight for the columns of `p`, into y [strip][col][LANES]. */
static void multiply(const struct job *j, const struct run *r, const struct packed *w, struct product p, int s)
{
    p.w = w;
    p.strip = w->data + (size_t)s * w->strip_bytes;
    p.x = j->gathered[w->strips_as->x];
    kernels_product(&r->cpu->kernels, w->format->id)(&p);
}

/* Which lanes of strip s belong to the n rows of a matrix. */
static void lanes_of(int matrix, int n, int s, int *first, int *end)
{
    int64_t low = (int64_t)matrix * n - (int64_t)s * LANES, high = low + n;
    *first = low > 0 ? (int)low : 0;
    *end = high < LANES ? (int)high : LANES;
}

void job_moe_glu(const struct job *j, const struct run *r, int thread)
{
    const struct moe_attr *a = j->call->attr;
    int ff = j->out_cols / a->used;
    enum { SUMS = PRODUCT_STRIPS * PRODUCT_COLS * LANES };
    float *g = (float *)scratch_of(r, thread), *u = g + SUMS;
    struct product p = { .n_rows = r->rows[j->rows] * a->used, .scratch = u + SUMS };
    for (struct piece q; take_piece(j, ff, MOE_GLU_W, &q);) {
        const struct weight *const *w = j->call->w + q.w;
        for (p.first_col = q.first; p.first_col < q.end; p.first_col += PRODUCT_COLS) {
            p.n_cols = q.end - p.first_col < PRODUCT_COLS ? q.end - p.first_col : PRODUCT_COLS;
            for (int s = q.from; s < q.to; s += PRODUCT_STRIPS) {
                p.n_strips = q.to - s < PRODUCT_STRIPS ? q.to - s : PRODUCT_STRIPS;
                p.y = g;
                multiply(j, r, packed_of(w[W_MOE_GATE]), p, s);
                p.y = u;
                multiply(j, r, packed_of(w[W_MOE_UP]), p, s);
                for (int i = 0; i < p.n_strips * p.n_cols; i++) {
                    int strip = s + i / p.n_cols, from, to;
                    lanes_of(q.matrix, ff, strip, &from, &to);
                    int64_t o = (int64_t)strip * LANES - (int64_t)q.matrix * ff;
                    float *y = (float *)j->out[0] + (int64_t)j->routes.sorted[p.first_col + i % p.n_cols] * ff + o;
                    r->cpu->kernels.gate(a->act, to - from, g + i * LANES + from, u + i * LANES + from, y + from);
                }
            }
        }
    }
}

void job_moe_down(const struct job *j, const struct run *r, int thread)
{
    const struct moe_attr *a = j->call->attr;
    int n = j->out_cols;
    float *sums = (float *)scratch_of(r, thread);
    struct product p = { .n_rows = r->rows[j->rows] * a->used, .y = sums,
                         .scratch = sums + PRODUCT_STRIPS * PRODUCT_COLS * LANES };
    for (struct piece q; take_piece(j, n, MOE_DOWN_W, &q);)
        for (p.first_col = q.first; p.first_col < q.end; p.first_col += PRODUCT_COLS) {
            p.n_cols = q.end - p.first_col < PRODUCT_COLS ? q.end - p.first_col : PRODUCT_COLS;
            for (int s = q.from; s < q.to; s += PRODUCT_STRIPS) {
                p.n_strips = q.to - s < PRODUCT_STRIPS ? q.to - s : PRODUCT_STRIPS;
                multiply(j, r, packed_of(j->call->w[q.w + W_MOE_DOWN]), p, s);
                for (int i = 0; i < p.n_strips * p.n_cols; i++) {
                    int strip = s + i / p.n_cols, from, to;
                    lanes_of(q.matrix, n, strip, &from, &to);
                    int64_t o = (int64_t)strip * LANES - (int64_t)q.matrix * n;
                    float *y = j->slots + (int64_t)j->routes.sorted[p.first_col + i % p.n_cols] * n + o;
                    for (int l = from; l < to; l++) y[l] = sums[i * LANES + l];
                }
            }
        }
}

void job_moe_sum(const struct job *j, const struct run *r, int thread)
{
    const struct moe_attr *a = j->call->attr;
    int n = j->out_cols, pieces = (n + SUPER - 1) / SUPER;
    const float *residual = j->in[3];
    int64_t from, to;
    pool_share((int64_t)r->rows[j->rows] * pieces, thread, r->n_threads, &from, &to);
    for (int64_t i = from; i < to; i++) {
        int64_t row = i / pieces, at = i % pieces * SUPER;
        int m = n - at < SUPER ? (int)(n - at) : SUPER;
        const float *w = (const float *)j->in[2] + row * a->used;
        float acc[SUPER] = { 0 };
        for (int s = 0; s < a->used; s++) {
            const float *x = j->slots + (row * a->used + s) * n + at;
            for (int c = 0; c < m; c++) acc[c] = acc[c] + w[s] * x[c];
        }
        float *y = (float *)j->out[0] + row * n + at;
        for (int c = 0; c < m; c++) y[c] = residual ? acc[c] + residual[row * n + at + c] : acc[c];
    }
}
