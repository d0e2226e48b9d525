/* device/cpu/linear.c - LINEAR and GLU: share strips among threads, call the format's product, and finish
 * its sums: bias, softcap, residual; or the gate, while gate and up are in the first-level cache.
 * Threads take pieces of about 64 KB of weights, so that a thread that the system holds up delays nobody; within a
 * piece the columns of a block stay in the cache while the strips pass. */
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
    int out_at;                         /* its first output column */
    int first, strips;                  /* number of its first piece; strips of each */
};
struct parts {
    struct part part[3];
    int n, pieces;
};

static void find_parts(const struct job *j, int n_threads, struct parts *p)
{
    bool glu = j->call->op == OP_GLU;
    *p = (struct parts){ .n = glu ? 1 : ((const struct linear_attr *)j->call->attr)->n_mat };
    for (int i = 0, at = 0; i < p->n; i++) {
        const struct packed *w = packed_of(j->call->w[(glu ? (int)W_GLU_GATE : (int)W_LINEAR_MAT) + i]);
        int each = piece_strips(w, n_threads), strips = glu ? (j->out_cols + LANES - 1) / LANES : w->n_strips;
        p->part[i] = (struct part){ .w = w, .out_at = at, .first = p->pieces, .strips = each };
        if (!glu) p->part[i].bias = vector_of(j->call->w[W_LINEAR_BIAS + i]);
        p->pieces += (strips + each - 1) / each;
        at += (int)w->out;
    }
}

static const struct part *part_of(const struct parts *p, int piece)
{
    int m = p->n - 1;
    while (piece < p->part[m].first) m--;
    return &p->part[m];
}

static const uint8_t *strip_at(const struct packed *w, int strip)
{
    return w->data + (size_t)strip * w->strip_bytes;
}

/* Every thread begins with the piece of its number and takes the others as they come. It takes one before it
 * works on the last, so that the product can ask memory for it. */
static int take_piece(const struct job *j, const struct run *r)
{
    return r->n_threads + atomic_fetch_add_explicit(j->next, 1, memory_order_relaxed);
}

/* Where a thread reads next: a piece of this job, or its first of the job after. */
static const uint8_t *piece_at(const struct job *j, const struct run *r, const struct parts *p, int piece, int thread)
{
    struct parts after;
    if (piece >= p->pieces) {
        if (!j->after) return NULL;
        find_parts(j->after, r->n_threads, &after);
        p = &after;
        piece = thread;
        if (piece >= p->pieces) return NULL;
    }
    const struct part *m = part_of(p, piece);
    return strip_at(m->w, (piece - m->first) * m->strips);
}

/* n sums of a row to their place. */
static void finish_lanes(const struct linear_attr *a, int n, const float *sum, const float *bias, const float *residual,
                         float *y)
{
    float t[LANES];
    memcpy(t, sum, sizeof t);
    if (bias)
        for (int i = 0; i < n; i++) t[i] += bias[i];
    if (a->softcap != 0.0f)
        for (int i = 0; i < n; i++) t[i] = a->softcap * tanh_f32(t[i] / a->softcap);
    if (residual)
        for (int i = 0; i < n; i++) t[i] += residual[i];
    memcpy(y, t, (size_t)n * sizeof *t);
}

/* Columns outside: the strips of one row are neighbours in memory. */
static void finish(const struct job *j, const struct part *m, const struct product *p, int first_strip)
{
    const struct linear_attr *a = j->call->attr;
    const float *residual = j->in[1];
    bool plain = !m->bias && a->softcap == 0.0f;
    for (int c = 0; c < p->n_cols; c++)
        for (int s = 0; s < p->n_strips; s++) {
            int64_t o = (int64_t)(first_strip + s) * LANES;
            int64_t at = (int64_t)(p->first_col + c) * j->out_cols + m->out_at + o;
            int n = m->w->out - o < LANES ? (int)(m->w->out - o) : LANES;
            const float *sum = p->y + ((size_t)s * (size_t)p->n_cols + (size_t)c) * LANES;
            float *y = (float *)j->out[0] + at;
            if (n < LANES || !plain)
                finish_lanes(a, n, sum, m->bias ? m->bias + o : NULL, residual ? residual + at : NULL, y);
            else if (residual)
                for (int i = 0; i < LANES; i++) y[i] = sum[i] + residual[at + i];
            else memcpy(y, sum, LANES * sizeof *y);
        }
}

static void do_piece(const struct job *j, const struct run *r, const struct part *m, int piece, const uint8_t *then,
                     int thread)
{
    float *y = (float *)scratch_of(r, thread);
    product_fn product = kernels_product(&r->cpu->kernels, m->w->format->id);
    int from = (piece - m->first) * m->strips;
    int to = from + m->strips < m->w->n_strips ? from + m->strips : m->w->n_strips;
    struct product p = { .w = m->w, .x = j->x[m->w->strips_as->x], .n_rows = r->rows[j->rows], .y = y,
                         .scratch = y + PRODUCT_STRIPS * PRODUCT_COLS * LANES };
    for (p.first_col = 0; p.first_col < p.n_rows; p.first_col += PRODUCT_COLS) {
        p.n_cols = p.n_rows - p.first_col < PRODUCT_COLS ? p.n_rows - p.first_col : PRODUCT_COLS;
        for (int s = from; s < to; s += PRODUCT_STRIPS) {
            p.strip = strip_at(m->w, s);
            p.n_strips = to - s < PRODUCT_STRIPS ? to - s : PRODUCT_STRIPS;
            p.then = s + PRODUCT_STRIPS < to ? strip_at(m->w, s + PRODUCT_STRIPS)
                     : p.first_col + PRODUCT_COLS < p.n_rows ? NULL : then;
            product(&p);
            finish(j, m, &p, s);
        }
    }
}

void job_linear(const struct job *j, const struct run *r, int thread)
{
    if (!r->rows[j->rows]) return;
    struct parts p;
    find_parts(j, r->n_threads, &p);
    for (int piece = thread, next; piece < p.pieces; piece = next) {
        next = take_piece(j, r);
        do_piece(j, r, part_of(&p, piece), piece, piece_at(j, r, &p, next, thread), thread);
    }
}

/* Sums of strips s on of one matrix for the columns of p. */
static void multiply(const struct job *j, const struct run *r, const struct packed *w, int s, struct product p)
{
    p.w = w;
    p.x = j->x[w->strips_as->x];
    p.strip = strip_at(w, s);
    kernels_product(&r->cpu->kernels, w->format->id)(&p);
}

/* then: the strips of the gate that follow. */
static void glu_columns(const struct job *j, const struct run *r, int s, struct product p, const uint8_t *then)
{
    const struct glu_attr *a = j->call->attr;
    const struct packed *gate = packed_of(j->call->w[W_GLU_GATE]);
    const struct packed *up = a->n_mat == 2 ? packed_of(j->call->w[W_GLU_UP]) : gate;
    int up_s = a->n_mat == 2 ? s : s + j->out_cols / LANES;
    float *g = p.y, *u = g + PRODUCT_STRIPS * PRODUCT_COLS * LANES;
    p.then = strip_at(up, up_s);
    multiply(j, r, gate, s, p);
    p.y = u;
    p.then = then;
    multiply(j, r, up, up_s, p);
    r->cpu->kernels.gate(a->act, p.n_strips * p.n_cols * LANES, g, u, g);
    for (int c = 0; c < p.n_cols; c++)
        for (int k = 0; k < p.n_strips; k++) {
            int o = (s + k) * LANES, n = j->out_cols - o < LANES ? j->out_cols - o : LANES, at = k * p.n_cols + c;
            float *y = (float *)j->out[0] + (int64_t)(p.first_col + c) * j->out_cols + o;
            if (n == LANES) memcpy(y, g + at * LANES, LANES * sizeof *y);
            else memcpy(y, g + at * LANES, (size_t)n * sizeof *y);
        }
}

void job_glu(const struct job *j, const struct run *r, int thread)
{
    struct parts all;
    find_parts(j, r->n_threads, &all);
    const struct part *gate = &all.part[0];
    int strips = (j->out_cols + LANES - 1) / LANES;
    float *y = (float *)scratch_of(r, thread);
    struct product p = { .n_rows = r->rows[j->rows], .y = y,
                         .scratch = y + 2 * PRODUCT_STRIPS * PRODUCT_COLS * LANES };
    for (int piece = thread, next; piece < all.pieces; piece = next) {
        next = take_piece(j, r);
        const uint8_t *then = piece_at(j, r, &all, next, thread);
        int from = piece * gate->strips, to = from + gate->strips < strips ? from + gate->strips : strips;
        for (p.first_col = 0; p.first_col < p.n_rows; p.first_col += PRODUCT_COLS) {
            p.n_cols = p.n_rows - p.first_col < PRODUCT_COLS ? p.n_rows - p.first_col : PRODUCT_COLS;
            for (int s = from; s < to; s += PRODUCT_STRIPS) {
                p.n_strips = to - s < PRODUCT_STRIPS ? to - s : PRODUCT_STRIPS;
                glu_columns(j, r, s, p, s + PRODUCT_STRIPS < to ? strip_at(gate->w, s + PRODUCT_STRIPS) : then);
            }
        }
    }
}
