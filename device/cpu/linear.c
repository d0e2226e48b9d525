/* device/cpu/linear.c - LINEAR and GLU: share strips among threads, call the format's product, and finish
 * its sums: bias, softcap, residual; or the gate, while gate and up are in the first-level cache.
 * Threads take pieces of about 64 KB of weights from a counter, so that a thread that the system holds
 * up delays nobody; within a piece the columns of a block stay in the cache while the strips pass. */
#include <assert.h>

#include "device/cpu/cpu.h"
#include "device/cpu/vec.h"

enum { PIECE_BYTES = 1 << 16 };

/* Strips of a piece: whole calls of the product, fewer when there would be less than 4 pieces each. */
static int piece_strips(const struct packed *w, int n_threads)
{
    int n = (int)(PIECE_BYTES / w->strip_bytes);
    int fair = w->n_strips / (4 * n_threads);
    if (n > fair) n = fair;
    n = n / PRODUCT_STRIPS * PRODUCT_STRIPS;
    return n < PRODUCT_STRIPS ? PRODUCT_STRIPS : n;
}

struct part {                           /* one matrix of the call */
    const struct packed *w;
    const float *bias;
    product_fn product;
    int out_at;                         /* its first output column */
};

/* Columns outside: the strips of one row are neighbours in memory. */
static void finish(const struct job *j, const struct part *m, const struct product *p, int first_strip)
{
    const struct linear_attr *a = j->call->attr;
    const float *residual = j->in[1];
    int64_t o = (int64_t)first_strip * LANES;
    int n = (int)(m->w->out - o < p->n_strips * LANES ? m->w->out - o : p->n_strips * LANES);
    for (int c = 0; c < p->n_cols; c++) {
        int64_t at = (int64_t)(p->first_col + c) * j->out_cols + m->out_at + o;
        float t[PRODUCT_STRIPS * LANES] = { 0 };
        for (int s = 0; s < p->n_strips; s++)
            memcpy(t + s * LANES, p->y + ((size_t)s * (size_t)p->n_cols + (size_t)c) * LANES, LANES * sizeof *t);
        if (m->bias)
            for (int i = 0; i < n; i++) t[i] += m->bias[o + i];
        if (a->softcap != 0.0f)
            for (int i = 0; i < n; i++) t[i] = a->softcap * tanh_f32(t[i] / a->softcap);
        if (residual)
            for (int i = 0; i < n; i++) t[i] += residual[at + i];
        memcpy((float *)j->out[0] + at, t, (size_t)n * sizeof *t);
    }
}

static void do_piece(const struct job *j, const struct run *r, const struct part *m, int from, int to, int thread)
{
    float *y = (float *)scratch_of(r, thread);
    struct product p = { .w = m->w, .x = j->x[m->w->strips_as->x], .n_rows = r->rows[j->rows], .y = y,
                         .scratch = y + PRODUCT_STRIPS * PRODUCT_COLS * LANES };
    for (p.first_col = 0; p.first_col < p.n_rows; p.first_col += PRODUCT_COLS) {
        p.n_cols = p.n_rows - p.first_col < PRODUCT_COLS ? p.n_rows - p.first_col : PRODUCT_COLS;
        for (int s = from; s < to; s += PRODUCT_STRIPS) {
            p.strip = m->w->data + (size_t)s * m->w->strip_bytes;
            p.n_strips = to - s < PRODUCT_STRIPS ? to - s : PRODUCT_STRIPS;
            m->product(&p);
            finish(j, m, &p, s);
        }
    }
}

void job_linear(const struct job *j, const struct run *r, int thread)
{
    const struct linear_attr *a = j->call->attr;
    struct part part[3] = { 0 };
    int first[4] = { 0 }, strips[3] = { 0 }, at = 0;        /* first: piece number of each matrix */
    for (int i = 0; i < a->n_mat; i++) {
        const struct packed *w = packed_of(j->call->w[W_LINEAR_MAT + i]);
        part[i] = (struct part){ .w = w, .bias = vector_of(j->call->w[W_LINEAR_BIAS + i]), .out_at = at,
                                 .product = kernels_product(&r->cpu->kernels, w->format->id) };
        strips[i] = piece_strips(w, r->n_threads);
        first[i + 1] = first[i] + (w->n_strips + strips[i] - 1) / strips[i];
        at += (int)w->out;
    }
    if (!r->rows[j->rows]) return;
    for (int piece; (piece = atomic_fetch_add_explicit(j->next, 1, memory_order_relaxed)) < first[a->n_mat];) {
        int m = 0;
        while (piece >= first[m + 1]) m++;
        assert(part[m].w);
        int from = (piece - first[m]) * strips[m];
        int to = from + strips[m] < part[m].w->n_strips ? from + strips[m] : part[m].w->n_strips;
        do_piece(j, r, &part[m], from, to, thread);
    }
}

/* Sums of strips s on of one matrix for the columns of p. */
static void multiply(const struct job *j, const struct run *r, const struct packed *w, int s, struct product p)
{
    p.w = w;
    p.x = j->x[w->strips_as->x];
    p.strip = w->data + (size_t)s * w->strip_bytes;
    kernels_product(&r->cpu->kernels, w->format->id)(&p);
}

static void glu_columns(const struct job *j, const struct run *r, int s, struct product p)
{
    const struct glu_attr *a = j->call->attr;
    const struct packed *gate = packed_of(j->call->w[W_GLU_GATE]);
    const struct packed *up = a->n_mat == 2 ? packed_of(j->call->w[W_GLU_UP]) : gate;
    float *g = p.y, *u = g + PRODUCT_STRIPS * PRODUCT_COLS * LANES;
    multiply(j, r, gate, s, p);
    p.y = u;
    multiply(j, r, up, a->n_mat == 2 ? s : s + j->out_cols / LANES, p);
    for (int c = 0; c < p.n_cols; c++)
        for (int k = 0; k < p.n_strips; k++) {
            int o = (s + k) * LANES, n = j->out_cols - o < LANES ? j->out_cols - o : LANES, at = k * p.n_cols + c;
            r->cpu->kernels.gate(a->act, n, g + at * LANES, u + at * LANES,
                                 (float *)j->out[0] + (int64_t)(p.first_col + c) * j->out_cols + o);
        }
}

void job_glu(const struct job *j, const struct run *r, int thread)
{
    const struct packed *gate = packed_of(j->call->w[W_GLU_GATE]);
    int each = piece_strips(gate, r->n_threads), strips = (j->out_cols + LANES - 1) / LANES;
    float *y = (float *)scratch_of(r, thread);
    struct product p = { .n_rows = r->rows[j->rows], .y = y,
                         .scratch = y + 2 * PRODUCT_STRIPS * PRODUCT_COLS * LANES };
    for (int at; (at = each * atomic_fetch_add_explicit(j->next, 1, memory_order_relaxed)) < strips;) {
        int to = at + each < strips ? at + each : strips;
        for (p.first_col = 0; p.first_col < p.n_rows; p.first_col += PRODUCT_COLS) {
            p.n_cols = p.n_rows - p.first_col < PRODUCT_COLS ? p.n_rows - p.first_col : PRODUCT_COLS;
            for (int s = at; s < to; s += PRODUCT_STRIPS) {
                p.n_strips = to - s < PRODUCT_STRIPS ? to - s : PRODUCT_STRIPS;
                glu_columns(j, r, s, p);
            }
        }
    }
}
