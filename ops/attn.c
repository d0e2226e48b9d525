/* ops/attn.c - ATTN: o[r][h] = sum_p softmax_p(scale * q[r][h] . k[p][g]) v[p][g], g = h / (heads / kv_heads)
 * q, o [rows, heads * head_dim] f32; k and v of the layer as its cache holds them. softcap c: scores
 * become c * tanh(score / c) before the softmax. Keys that row r of a sequence sees:
 *   narrow  committed positions p < past with p <= see, and the bank rows named by its path bits;
 *           the j-th of them in order stands at position past + j
 *   wide    positions p <= see
 * block: narrow rows see all bank rows of their sequence in this step, the j-th at past + j
 * and under a window only those with index - position < window. ROPE_KV of the same layer comes
 * before it on the tape. A row that sees nothing gives zeros. */
#include <string.h>

#include "base/mem.h"
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"
#include "ops/work.h"
#include "quant/quant.h"

struct val op_attn(struct tape *t, int layer, struct val q, const struct attn_attr *attr)
{
    if (!record_input(t, "attn", q, "q")) return (struct val){ 0 };
    struct shape s = tape_shape(t, q);
    if (attr->heads < 1 || attr->kv_heads < 1 || attr->heads % attr->kv_heads)
        return tape_fail(t, "attn: layer %d: %d heads over %d kv heads: must be a multiple", layer, attr->heads,
                         attr->kv_heads);
    if (!record_layer_heads(t, "attn", layer, attr->kv_heads, attr->head_dim)) return (struct val){ 0 };
    if (s.cols != attr->heads * attr->head_dim || s.rows != DOM_ROWS)
        return tape_fail(t, "attn: layer %d: q has %d columns, %d heads of %d need %d rows of the step", layer,
                         s.cols, attr->heads, attr->head_dim, attr->heads * attr->head_dim);
    int window = t->kv->kind[t->kv->layer[layer].kind].window;
    if (attr->window != window)
        return tape_fail(t, "attn: layer %d has window %d, its cache %d", layer, attr->window, window);
    return op_push(t, &(struct call){ .op = OP_ATTN, .layer = layer, .n_in = 1, .in = { q }, .n_out = 1,
                                      .attr = attr, .attr_size = sizeof *attr, .shape = { s } });
}

/* The places (ref_k) of the keys that a row sees, in order of position; returns how many. */
static int visible(const struct ref_args *a, const struct step_row *r, int window, bool block, int *places)
{
    const struct step_seq *s = &a->step->seq[r->seq];
    bool wide = a->step->head.wide;
    int n = 0, last = r->see;
    if (!wide && last > s->past - 1) last = s->past - 1;
    for (int p = 0; p <= last; p++)
        if (!window || r->index - p < window) places[n++] = p;
    for (int j = 0, p = s->past; !wide && j < s->n_rows; j++) {
        if (!block && !(r->path >> j & 1)) continue;
        if (!window || r->index - p < window) places[n++] = -1 - j;
        p++;
    }
    return n;
}

static void attend(const struct ref_args *a, const struct attn_attr *p, int slot, int kv_head,
                   const double *q, const int *places, int n, double *o)
{
    double *score = a->scratch, top = -INFINITY, sum = 0;
    size_t dim = (size_t)p->head_dim;
    for (int i = 0; i < n; i++) {
        score[i] = p->scale * ref_dot(q, ref_k(a->cache, a->call->layer, slot, places[i], kv_head), dim);
        if (p->softcap != 0) score[i] = p->softcap * tanh(score[i] / p->softcap);
        if (score[i] > top) top = score[i];
    }
    memset(o, 0, dim * sizeof *o);
    for (int i = 0; i < n; i++) {
        double e = exp(score[i] - top);
        const double *v = ref_v(a->cache, a->call->layer, slot, places[i], kv_head);
        for (size_t d = 0; d < dim; d++) o[d] += e * v[d];
        sum += e;
    }
    for (size_t d = 0; n && d < dim; d++) o[d] /= sum;
}

static void reference(const struct ref_args *a)
{
    const struct attn_attr *p = a->call->attr;
    int group = p->heads / p->kv_heads;
    for (int r = 0; r < a->rows; r++) {
        const struct step_row *row = &a->step->row[r];
        int n = visible(a, row, p->window, p->block, a->places);
        for (int h = 0; h < p->heads; h++) {
            size_t at = (size_t)r * (size_t)a->out_cols[0] + (size_t)h * (size_t)p->head_dim;
            attend(a, p, a->step->seq[row->seq].slot, h / group, a->x[0] + at, a->places, n, a->y[0] + at);
        }
    }
}

static void print(const void *attr, struct buf *out)
{
    const struct attn_attr *p = attr;
    buf_printf(out, "%d heads, %d kv heads of %d, scale %g", p->heads, p->kv_heads, p->head_dim, p->scale);
    if (p->window) buf_printf(out, ", window %d", p->window);
    if (p->softcap != 0) buf_printf(out, ", softcap %g", p->softcap);
    if (p->block) buf_add_text(out, ", whole block");
}

/* p: heads, kv_heads, head_dim, window, format of k, of v. f: softcap. Keys and values come in
 * through a ROPE_KV that changes nothing. */
static struct val record_case(struct case_env *env, const struct op_case *c)
{
    int heads = c->p[0], kv_heads = c->p[1], dim = c->p[2], window = c->p[3];
    uint32_t k = (uint32_t)c->p[4], v = (uint32_t)c->p[5];
    (void)case_cache(env, 1, 32, window, k, v);                 /* a layer before it */
    int layer = case_cache(env, kv_heads, dim, window, k, v);
    struct rope_kv_attr post = { .heads = heads, .kv_heads = kv_heads, .head_dim = dim };
    struct attn_attr a = { .heads = heads, .kv_heads = kv_heads, .head_dim = dim, .window = window,
                           .scale = 1 / sqrtf((float)dim), .softcap = c->f[0], .block = c->block };
    struct val x = case_input(env, DOM_ROWS, (heads + 2 * kv_heads) * dim, 1.5f);
    struct val q = op_rope_kv(case_tape(env), layer, x, &(struct qkv_weights){ 0 }, &post);
    return op_attn(case_tape(env), layer, q, &a);
}

static void cases(struct case_list *l)
{
    static const struct op_case shapes[] = {
        { .n_rows = 1, .p = { 9, 3, 64, 0, Q_F16, Q_F16 } },
        { .n_rows = 1, .p = { 9, 3, 64, 0, Q_F16, Q_F16 }, .past = 63 },
        { .n_rows = 1, .p = { 9, 3, 64, 0, Q_F16, Q_F16 }, .past = 64 },
        { .n_rows = 2, .p = { 9, 3, 64, 0, Q_F16, Q_F16 }, .past = 65 },
        { .n_rows = 1, .p = { 4, 1, 256, 0, Q_F16, Q_F16 }, .past = 200 },
        { .n_rows = 1, .p = { 4, 1, 256, 30, Q_BF16, Q_BF16 }, .past = 200 },
        { .n_rows = 5, .p = { 4, 1, 256, 512, Q_F16, Q_F16 }, .past = 65 },
        { .n_rows = 1, .p = { 16, 8, 128, 0, Q_Q8_0, Q_Q8_0 }, .past = 200 },
        { .n_rows = 8, .p = { 16, 8, 128, 0, Q_Q8_0, Q_Q4_0 }, .past = 130 },
        { .n_rows = 3, .p = { 8, 8, 96, 0, Q_Q4_0, Q_Q4_0 }, .past = 70 },
        { .n_rows = 17, .p = { 8, 8, 16, 0, Q_F16, Q_F16 }, .past = 64 },
        { .n_rows = 33, .p = { 4, 2, 24, 20, Q_BF16, Q_BF16 }, .past = 100 },
        { .n_rows = 64, .p = { 9, 3, 64, 0, Q_F16, Q_F16 }, .past = 200 },
        { .n_rows = 64, .p = { 4, 1, 32, 40, Q_Q8_0, Q_Q8_0 }, .past = 129 },
        { .n_rows = 64, .p = { 2, 1, 64, 0, Q_F16, Q_F16 } },
        { .n_rows = 9, .p = { 6, 2, 32, 0, Q_F16, Q_F16 }, .f = { 20 }, .past = 64 },
        { .n_rows = 12, .p = { 4, 2, 96, 0, Q_F16, Q_F16 }, .past = 100 },
        { .n_rows = 21, .p = { 8, 4, 64, 0, Q_BF16, Q_BF16 }, .past = 70 },
        { .n_rows = 16, .p = { 4, 1, 128, 0, Q_F16, Q_F16 }, .past = 16500 },
        { .n_rows = 16, .p = { 8, 2, 128, 0, Q_F16, Q_F16 }, .past = 1000 },
        { .n_rows = 9, .p = { 4, 1, 256, 0, Q_F16, Q_F16 }, .past = 16400 },
        { .n_rows = 20, .p = { 8, 2, 64, 8300, Q_F16, Q_F16 }, .f = { 20 }, .past = 17000, .n_seqs = 2, .tree = 1 },
        { .n_rows = 30, .p = { 8, 4, 128, 300, Q_F16, Q_F16 }, .past = 700, .n_seqs = 3, .tree = 1 },
        { .n_rows = 24, .p = { 4, 1, 256, 0, Q_F16, Q_F16 }, .past = 600 },
        { .n_rows = 5, .p = { 9, 3, 64, 0, Q_F16, Q_F16 }, .past = 65, .n_seqs = 5 },
        { .n_rows = 2, .p = { 4, 2, 64, 0, Q_F16, Q_F16 }, .past = 64, .n_seqs = 3 },
        { .n_rows = 8, .p = { 4, 2, 64, 1024, Q_F16, Q_F16 }, .past = 2300 },   /* windows begin in two splits */
        /* Rows on both sides of where a kernel may cut what they see in larger pieces. */
        { .n_rows = 17, .p = { 64, 64, 16, 0, Q_F16, Q_F16 }, .past = 2040 },
        { .n_rows = 12, .p = { 64, 64, 8, 0, Q_F16, Q_F16 }, .past = 2557, .n_seqs = 2, .tree = 1 },
        { .n_rows = 9, .p = { 32, 32, 32, 2100, Q_Q8_0, Q_F16 }, .past = 2044 },
        { .n_rows = 16, .p = { 4, 1, 128, 0, Q_F16, Q_F16 }, .past = 17912 },
        { .n_rows = 33, .p = { 4, 1, 64, 50, Q_F16, Q_F16 }, .past = 200, .n_seqs = 4 },
        { .n_rows = 64, .p = { 4, 4, 32, 0, Q_Q4_0, Q_Q8_0 }, .past = 63, .n_seqs = 8 },
        { .n_rows = 8, .p = { 9, 3, 64, 0, Q_F16, Q_F16 }, .past = 65, .tree = 1 },
        { .n_rows = 6, .p = { 8, 2, 48, 0, Q_F16, Q_F16 }, .past = 90, .tree = 1 },
        { .n_rows = 64, .p = { 4, 1, 128, 0, Q_F16, Q_F16 }, .past = 64, .tree = 1 },
        { .n_rows = 40, .p = { 8, 2, 64, 12, Q_Q8_0, Q_Q8_0 }, .past = 130, .n_seqs = 3, .tree = 1 },
        { .n_rows = 65, .p = { 9, 3, 64, 0, Q_F16, Q_F16 }, .wide = 1 },
        { .n_rows = 200, .p = { 4, 2, 64, 0, Q_F16, Q_F16 }, .past = 64, .wide = 1 },
        { .n_rows = 130, .p = { 4, 1, 256, 70, Q_BF16, Q_BF16 }, .past = 65, .wide = 1 },
        { .n_rows = 150, .p = { 8, 8, 32, 0, Q_Q8_0, Q_Q8_0 }, .past = 200, .n_seqs = 2, .wide = 1 },
        { .n_rows = 100, .p = { 4, 2, 96, 33, Q_Q4_0, Q_Q4_0 }, .past = 128, .wide = 1 },
        { .n_rows = 96, .p = { 4, 1, 64, 0, Q_F16, Q_F16 }, .past = 64, .wide = 1, .tree = 1 },
        { .n_rows = 7, .p = { 16, 1, 64, 0, Q_F16, Q_F16 }, .past = 20, .wide = 1 },
        { .n_rows = 16, .p = { 4, 2, 64, 0, Q_F16, Q_F16 }, .past = 70, .block = true },
        { .n_rows = 5, .p = { 4, 2, 16, 0, Q_F16, Q_F16 }, .block = true },
        { .n_rows = 64, .p = { 4, 1, 32, 40, Q_F16, Q_F16 }, .past = 130, .n_seqs = 5, .block = true },
    };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        struct op_case c = shapes[i];
        c.record = record_case;
        c.label = c.block ? "block" : c.tree ? c.wide ? "image run" : "tree" : "";
        case_add(l, &c);
    }
}

/* First position that a row may see under a window. */
static int first_seen(const struct step_row *r, int window)
{
    return window && r->index - window + 1 > 0 ? r->index - window + 1 : 0;
}

/* Keys that a row sees. */
static int seen_by(const struct step *s, const struct step_row *r, int window, bool block)
{
    const struct step_seq *q = &s->seq[r->seq];
    int last = s->head.wide || r->see < q->past ? r->see : q->past - 1;
    int n = last - first_seen(r, window) + 1;
    if (n < 0) n = 0;
    for (int j = 0, at = q->past; !s->head.wide && j < q->n_rows; j++) {
        if (!block && !(r->path >> j & 1)) continue;
        if (!window || r->index - at < window) n++;
        at++;
    }
    return n;
}

static struct work work(const struct tape *t, const struct call *c, const struct step *s)
{
    const struct attn_attr *a = c->attr;
    struct work w = { .bytes = work_values(t, c, s) };
    for (int i = 0; i < s->head.n_seqs; i++) {
        const struct step_seq *q = &s->seq[i];
        int first = INT32_MAX, end = s->head.wide ? 0 : q->past;
        for (int j = q->first_row; j < q->first_row + q->n_rows; j++) {
            const struct step_row *r = &s->row[j];
            w.ops += 4.0 * a->heads * a->head_dim * seen_by(s, r, a->window, a->block);
            if (first_seen(r, a->window) < first) first = first_seen(r, a->window);
            if (s->head.wide && r->see + 1 > end) end = r->see + 1;
        }
        int keys = (end > first ? end - first : 0) + (s->head.wide ? 0 : q->n_rows);
        w.bytes += keys * work_position(t, c->layer);
    }
    return w;
}

const struct op_def op_def_attn = { .name = "attn", .reference = reference, .cases = cases,
                                    .work = work, .print = print };
