/* device/cpu/linear.c - LINEAR and GLU: share strips among threads, call the format's product, and finish
 * its sums: bias, softcap, residual; or the gate, while gate and up are in the first-level cache.
 * A thread's part is about the same number of bytes (share.h); it takes about 64 KB of weights at a time, 128 for few
 * rows, and within those the columns of a block stay in the cache while the strips pass. A stream of weights is best
 * where it is long: GLU reads as many strips of the gate as have room for their sums, then those of up. */
#include "device/cpu/share.h"
#include "device/cpu/vec.h"

/* Strips of a part come in pairs, as products of 4 to 8 columns take them. Of parts below STEAL_BYTES nobody else takes
 * any: to look costs more than it could gain. */
enum { PIECE_BYTES = 1 << 16, FEW_ROWS = 8, FEW_PIECE_BYTES = 1 << 17, STEAL_BYTES = 1 << 18, PAIR = 2 };

struct part {                           /* one matrix of the call */
    const struct packed *w;
    const float *bias;
    int out_at;                         /* its first output column */
    int first, strips;                  /* number of its first strip; how many it has */
    int64_t bytes_at;                   /* of the matrices before */
};
struct parts {
    struct part part[3];
    int n, strips;
    int64_t bytes;
};

static void find_parts(const struct job *j, struct parts *p)
{
    bool glu = j->call->op == OP_GLU;
    *p = (struct parts){ .n = glu ? 1 : ((const struct linear_attr *)j->call->attr)->n_mat };
    int i = 0, at = 0;
    do {
        const struct packed *w = packed_of(j->call->w[(glu ? (int)W_GLU_GATE : (int)W_LINEAR_MAT) + i]);
        int strips = glu ? (j->out_cols + LANES - 1) / LANES : w->n_strips;
        p->part[i] = (struct part){ .w = w, .out_at = at, .first = p->strips, .strips = strips, .bytes_at = p->bytes };
        if (!glu) p->part[i].bias = vector_of(j->call->w[W_LINEAR_BIAS + i]);
        p->strips += strips;
        p->bytes += (int64_t)strips * (int64_t)w->strip_bytes;
        at += (int)w->out;
    } while (++i < p->n);
}

/* Where the part of a thread begins, by bytes. */
static int cut(const struct parts *p, int thread, int n_threads)
{
    if (thread >= n_threads) return p->strips;
    int64_t at = p->bytes * thread / n_threads;
    int m = p->n - 1;
    while (at < p->part[m].bytes_at) m--;
    const struct part *x = &p->part[m];
    return x->first + (int)((at - x->bytes_at) / (int64_t)x->w->strip_bytes) / PAIR * PAIR;
}

static struct share own_part(const struct parts *p, int thread, int n_threads)
{
    return (struct share){ cut(p, thread, n_threads), cut(p, thread + 1, n_threads) };
}

static const struct part *part_of(const struct parts *p, int strip)
{
    int m = p->n - 1;
    while (strip < p->part[m].first) m--;
    return &p->part[m];
}

/* Strips to take at a time: whole calls of the product, fewer when there would be less than 4 pieces each. */
static int piece_strips(const struct parts *p, int rows, int n_threads)
{
    int64_t bytes = rows <= FEW_ROWS ? FEW_PIECE_BYTES : PIECE_BYTES;
    int n = (int)(bytes * p->strips / p->bytes), fair = p->strips / (4 * n_threads);
    if (n > fair) n = fair;
    n = n / PRODUCT_STRIPS * PRODUCT_STRIPS;
    return n < PRODUCT_STRIPS ? PRODUCT_STRIPS : n;
}

/* The strips that a thread works on next. It takes them before it works on the last, so that the product can ask memory
 * for them. */
static bool take_piece(const struct job *j, const struct run *r, const struct parts *p, int thread, struct share *out)
{
    int n = r->n_threads, each = piece_strips(p, r->rows[j->rows], n);
    if (share_take(j, r, thread, true, own_part(p, thread, n), each, out)) return true;
    if (p->bytes < (int64_t)STEAL_BYTES * n) return false;
    for (int i = 1; i < n; i++)
        if (share_take(j, r, (thread + i) % n, false, own_part(p, (thread + i) % n, n), each, out)) return true;
    return false;
}

static const uint8_t *strip_at(const struct packed *w, int strip)
{
    return w->data + (size_t)strip * w->strip_bytes;
}

static const uint8_t *strip_in(const struct parts *p, int strip)
{
    const struct part *m = part_of(p, strip);
    return strip_at(m->w, strip - m->first);
}

/* Where a thread reads first in the job after, or NULL. */
static const uint8_t *after_at(const struct job *j, const struct run *r, int thread)
{
    struct parts after;
    if (!j->after) return NULL;
    find_parts(j->after, &after);
    struct share own = own_part(&after, thread, r->n_threads);
    return own.from < own.to ? strip_in(&after, own.from) : NULL;
}

/* n sums of a row to their place. Where all is known to be there (n a constant, no bias or cap) these are vectors. */
INLINE void finish_lanes(float softcap, int n, const float *sum, const float *bias, const float *residual, float *y)
{
    float t[LANES];
    memcpy(t, sum, sizeof t);
    if (bias)
        for (int i = 0; i < n; i++) t[i] += bias[i];
    if (softcap != 0.0f)
        for (int i = 0; i < n; i++) t[i] = softcap * tanh_f32(t[i] / softcap);
    if (residual)
        for (int i = 0; i < n; i++) t[i] += residual[i];
    memcpy(y, t, (size_t)n * sizeof *t);
}

/* Columns outside: the strips of one row are neighbours in memory. */
static void finish(const struct job *j, const struct part *m, const struct product *p, int first_strip)
{
    const struct linear_attr *a = j->call->attr;
    bool plain = !m->bias && a->softcap == 0.0f;
    int64_t first = (int64_t)first_strip * LANES;
    size_t stride = (size_t)p->n_cols * LANES;
    for (int c = 0; c < p->n_cols; c++) {
        int64_t at = (int64_t)(p->first_col + c) * j->out_cols + m->out_at + first;
        const float *sum = p->y + c * LANES, *residual = j->in[1] ? (const float *)j->in[1] + at : NULL;
        float *y = (float *)j->out[0] + at;
        for (int o = 0; o < p->n_strips * LANES; o += LANES, sum += stride) {
            int n = m->w->out - first - o < LANES ? (int)(m->w->out - first - o) : LANES;
            const float *bias = m->bias ? m->bias + first + o : NULL;
            if (n < LANES || !plain) finish_lanes(a->softcap, n, sum, bias, residual ? residual + o : NULL, y + o);
            else if (residual) finish_lanes(0, LANES, sum, NULL, residual + o, y + o);
            else finish_lanes(0, LANES, sum, NULL, NULL, y + o);
        }
    }
}

/* Strips [from, to) of one matrix. */
static void do_strips(const struct job *j, const struct run *r, const struct part *m, int from, int to,
                      const uint8_t *then, int thread)
{
    float *y = (float *)scratch_of(r, thread);
    product_fn product = kernels_product(&r->cpu->kernels, m->w->format->id);
    struct product p = { .w = m->w, .x = j->x[m->w->strips_as->x], .n_rows = r->rows[j->rows], .y = y,
                         .out_cols = j->out_cols,
                         .scratch = y + PRODUCT_STRIPS * PRODUCT_COLS * LANES };
    for (p.first_col = 0; p.first_col < p.n_rows; p.first_col += PRODUCT_COLS) {
        p.n_cols = p.n_rows - p.first_col < PRODUCT_COLS ? p.n_rows - p.first_col : PRODUCT_COLS;
        for (int s = from; s < to; s += PRODUCT_STRIPS) {
            p.strip = strip_at(m->w, s);
            p.n_strips = to - s < PRODUCT_STRIPS ? to - s : PRODUCT_STRIPS;
            p.out = (float *)j->out[0] + (int64_t)p.first_col * j->out_cols + m->out_at + s * LANES;
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
    struct share mine, next;
    find_parts(j, &p);
    for (bool more = take_piece(j, r, &p, thread, &mine); more; mine = next) {
        more = take_piece(j, r, &p, thread, &next);
        const uint8_t *then = more ? strip_in(&p, next.from) : after_at(j, r, thread);
        for (int s = mine.from; s < mine.to;) {
            const struct part *m = part_of(&p, s);
            int end = m->first + m->strips < mine.to ? m->first + m->strips : mine.to;
            do_strips(j, r, m, s - m->first, end - m->first, end < mine.to ? strip_in(&p, end) : then, thread);
            s = end;
        }
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

/* Sums of strips [from, to) of one matrix; then: what is read after them. */
static void glu_strips(const struct job *j, const struct run *r, const struct packed *w, int from, int to,
                       struct product p, const uint8_t *then)
{
    for (int s = from; s < to; s += PRODUCT_STRIPS) {
        p.n_strips = to - s < PRODUCT_STRIPS ? to - s : PRODUCT_STRIPS;
        p.then = s + PRODUCT_STRIPS < to ? strip_at(w, s + PRODUCT_STRIPS) : then;
        multiply(j, r, w, s, p);
        p.y += p.n_strips * p.n_cols * LANES;
        if (p.out) p.out += p.n_strips * LANES;
    }
}

/* Outputs of strips [from, to), so few that their sums have room. then: the strips of the gate that follow. */
static void glu_columns(const struct job *j, const struct run *r, int from, int to, struct product p,
                        const uint8_t *then)
{
    const struct glu_attr *a = j->call->attr;
    const struct packed *gate = packed_of(j->call->w[W_GLU_GATE]);
    const struct packed *up = a->n_mat == 2 ? packed_of(j->call->w[W_GLU_UP]) : gate;
    int behind = a->n_mat == 2 ? 0 : j->out_cols / LANES;       /* strips of up begin there */
    float *g = p.y, *u = g + PRODUCT_STRIPS * PRODUCT_COLS * LANES;
    glu_strips(j, r, gate, from, to, p, strip_at(up, from + behind));
    p.y = u;
    p.out = (float *)j->out[0] + (int64_t)p.first_col * j->out_cols + from * LANES;
    p.out_cols = j->out_cols;
    glu_strips(j, r, up, from + behind, to + behind, p, then);
    r->cpu->kernels.gate(a->act, (to - from) * p.n_cols * LANES, g, u, g);
    for (int s = from; s < to; s++)
        for (int c = 0; c < p.n_cols; c++, g += LANES) {
            int o = s * LANES, n = j->out_cols - o < LANES ? j->out_cols - o : LANES;
            float *y = (float *)j->out[0] + (int64_t)(p.first_col + c) * j->out_cols + o;
            if (n == LANES) memcpy(y, g, LANES * sizeof *y);
            else memcpy(y, g, (size_t)n * sizeof *y);
        }
}

void job_glu(const struct job *j, const struct run *r, int thread)
{
    struct parts all;
    struct share mine, next;
    find_parts(j, &all);
    const struct packed *gate = all.part[0].w;
    float *y = (float *)scratch_of(r, thread);
    struct product p = { .n_rows = r->rows[j->rows], .y = y,
                         .scratch = y + 2 * PRODUCT_STRIPS * PRODUCT_COLS * LANES };
    for (bool more = take_piece(j, r, &all, thread, &mine); more; mine = next) {
        more = take_piece(j, r, &all, thread, &next);
        const uint8_t *then = more ? strip_at(gate, next.from) : after_at(j, r, thread);
        for (p.first_col = 0; p.first_col < p.n_rows; p.first_col += PRODUCT_COLS) {
            p.n_cols = p.n_rows - p.first_col < PRODUCT_COLS ? p.n_rows - p.first_col : PRODUCT_COLS;
            int most = PRODUCT_COLS / p.n_cols * PRODUCT_STRIPS;
            for (int s = mine.from; s < mine.to; s += most) {
                int end = mine.to - s < most ? mine.to : s + most;
                glu_columns(j, r, s, end, p, end < mine.to ? strip_at(gate, end) : then);
            }
        }
    }
}
