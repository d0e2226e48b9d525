/* ops/rope_kv.c - ROPE_KV: norm and rotate q and k per head; commit and write k and v.
 * x [rows, heads * q_stride + 2 kv_heads * head_dim] f32: q, k, v side by side, a head of q in the first
 * head_dim of its q_stride columns; returns q [rows, heads * head_dim]. Per head of q and k, in this order:
 *   norm (optional)  z = z * w / sqrt(mean(z^2) + eps)
 *   rotation         pair i of the first rope_dims dims by a = rope[axis of i] * freq[i] (a product in f32):
 *                    (u, v) -> m * (u cos a - v sin a, v cos a + u sin a)
 * Before anything is written, the accepted bank rows of the step before move into pages (step.h,
 * commit). heads 0: the rows are only seen, and there is no q. A narrow row then goes to the bank row of its
 * number in its sequence, a wide row to position `index`. Su et al. 2021, "RoFormer". */
#include "ops/rope_kv.h"

#include <string.h>

#include "base/mem.h"
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"
#include "ops/work.h"
#include "quant/quant.h"

struct val op_rope_kv(struct tape *t, int layer, struct val x, const struct qkv_weights *w,
                      const struct rope_kv_attr *post)
{
    if (!record_input(t, "rope_kv", x, "x")) return (struct val){ 0 };
    struct shape s = tape_shape(t, x);
    if (!record_rope(t, "rope_kv", layer, w, post)) return (struct val){ 0 };
    int64_t need = (int64_t)post->heads * rope_q_stride(post) + (int64_t)2 * post->kv_heads * post->head_dim;
    if (s.cols != need || s.rows != DOM_ROWS)
        return tape_fail(t, "rope_kv: layer %d: x has %d columns in domain %d, %d heads and %d kv heads of %d "
                         "need %lld rows of the step", layer, s.cols, (int)s.rows, post->heads,
                         post->kv_heads, post->head_dim, (long long)need);
    struct call c = { .op = OP_ROPE_KV, .layer = layer, .n_in = 1, .in = { x }, .n_w = W_QKV_FREQ + 1,
                      .n_out = post->heads > 0, .attr = post, .attr_size = sizeof *post };
    c.w[W_QKV_QNORM] = w->q_norm;
    c.w[W_QKV_KNORM] = w->k_norm;
    c.w[W_QKV_FREQ] = post->layout == ROPE_NONE ? NULL : w->freq;
    c.shape[0] = (struct shape){ s.rows, DT_F32, post->heads * post->head_dim };
    return op_push(t, &c);
}

void rope_kv_commit(const struct ref_args *a)
{
    for (int i = 0; i < a->step->head.n_seqs; i++) ref_commit(a->cache, a->call->layer, &a->step->seq[i]);
}

static void norm_head(const struct ref_args *a, int slot, double *z, int dim, double eps)
{
    if (!a->call->w[slot]) return;
    const double *w = ref_weight_row(a, slot, 0);
    double sum = 0;
    for (int i = 0; i < dim; i++) sum += z[i] * z[i];
    double scale = 1 / sqrt(sum / dim + eps);
    for (int i = 0; i < dim; i++) z[i] *= scale * w[i];
}

static void rotate_head(const struct ref_args *a, const struct rope_kv_attr *p, const int32_t *pos, double *z)
{
    if (p->layout == ROPE_NONE) return;
    const double *freq = ref_weight_row(a, W_QKV_FREQ, 0);
    double m = p->magnitude != 0 ? p->magnitude : 1;
    for (int i = 0; i < p->rope_dims / 2; i++) {
        float angle = (float)pos[rope_axis(p, i)] * (float)freq[i];
        double c = m * cos((double)angle), s = m * sin((double)angle);
        int at = p->layout == ROPE_NEOX ? i : 2 * i;
        int pair = p->layout == ROPE_NEOX ? i + p->rope_dims / 2 : 2 * i + 1;
        double u = z[at], v = z[pair];
        z[at] = u * c - v * s;
        z[pair] = v * c + u * s;
    }
}

void rope_kv_row(const struct ref_args *a, const struct rope_kv_attr *p, int row, double *x, double *q)
{
    const struct step_row *r = &a->step->row[row];
    const struct step_seq *s = &a->step->seq[r->seq];
    int dim = p->head_dim, place = a->step->head.wide ? r->index : -1 - (row - s->first_row);
    size_t bytes = (size_t)dim * sizeof *x, stride = (size_t)rope_q_stride(p);
    double *keys = x + (size_t)p->heads * stride;
    for (int h = 0; h < p->heads + p->kv_heads; h++) {
        double *z = h < p->heads ? x + (size_t)h * stride : keys + (size_t)(h - p->heads) * (size_t)dim;
        norm_head(a, h < p->heads ? W_QKV_QNORM : W_QKV_KNORM, z, dim, p->eps);
        rotate_head(a, p, r->rope, z);
    }
    for (int h = 0; h < p->heads; h++) memcpy(q + (size_t)h * (size_t)dim, x + (size_t)h * stride, bytes);
    for (int h = 0; h < p->kv_heads; h++) {
        const double *k = keys + (size_t)h * (size_t)dim;
        memcpy(ref_k(a->cache, a->call->layer, s->slot, place, h), k, bytes);
        memcpy(ref_v(a->cache, a->call->layer, s->slot, place, h), k + (size_t)p->kv_heads * (size_t)dim, bytes);
        ref_round(a->cache, a->call->layer, s->slot, place, h);
    }
}

static void reference(const struct ref_args *a)
{
    const struct rope_kv_attr *p = a->call->attr;
    rope_kv_commit(a);
    for (int r = 0; r < a->rows; r++) {
        memcpy(a->scratch2, a->x[0] + (size_t)r * (size_t)a->cols[0], (size_t)a->cols[0] * sizeof(double));
        rope_kv_row(a, p, r, a->scratch2, p->heads ? a->y[0] + (size_t)r * (size_t)a->out_cols[0] : a->scratch2);
    }
}

void rope_kv_print(const struct rope_kv_attr *p, struct buf *out)
{
    static const char *const layouts[] = { "no rotation", "rope norm", "rope neox" };
    buf_printf(out, "%d heads, %d kv heads of %d, %s", p->heads, p->kv_heads, p->head_dim, layouts[p->layout]);
    if (p->layout != ROPE_NONE) buf_printf(out, " %d", p->rope_dims);
    if (p->q_stride) buf_printf(out, ", q every %d", p->q_stride);
    if (p->sections[0]) buf_printf(out, ", sections %d %d", p->sections[0], p->sections[1]);
    if (p->magnitude != 0 && p->magnitude != 1) buf_printf(out, " magnitude %g", p->magnitude);
}

static void print(const void *attr, struct buf *out)
{
    rope_kv_print(attr, out);
}

/* p: heads, kv_heads, head_dim, rope_dims, layout, norms, format of k and v, q_stride. f: magnitude; sections. */
static struct val record_case(struct case_env *env, const struct op_case *c)
{
    struct rope_kv_attr a = { .heads = c->p[0], .kv_heads = c->p[1], .head_dim = c->p[2], .rope_dims = c->p[3],
                              .layout = (enum rope_layout)c->p[4], .eps = 1e-6f, .magnitude = c->f[0],
                              .q_stride = c->p[7], .sections = { (int)c->f[1], (int)c->f[1] } };
    (void)case_cache(env, 2, 32, 0, (uint32_t)c->p[6], (uint32_t)c->p[6]);     /* a layer before it */
    int layer = case_cache(env, a.kv_heads, a.head_dim, 0, (uint32_t)c->p[6], (uint32_t)c->p[6]);
    int cols = a.heads * rope_q_stride(&a) + 2 * a.kv_heads * a.head_dim;
    struct val x = case_input(env, DOM_ROWS, cols, 1);
    struct qkv_weights w = { 0 };
    if (c->p[5]) {
        w.q_norm = case_weight(env, a.head_dim, 0, 1, 0.3f);
        w.k_norm = case_weight(env, a.head_dim, 0, 1, 0.3f);
    }
    if (a.layout != ROPE_NONE) w.freq = case_freq(env, a.rope_dims);
    struct val q = op_rope_kv(case_tape(env), layer, x, &w, &a);
    return a.heads ? q : x;
}

static void cases(struct case_list *l)
{
    static const struct op_case shapes[] = {
        { .n_rows = 1, .p = { 9, 3, 64, 64, ROPE_NORM, 0, Q_F16 }, .past = 5 },
        { .n_rows = 64, .p = { 9, 3, 64, 64, ROPE_NORM, 0, Q_F16 }, .past = 63 },
        { .n_rows = 5, .p = { 4, 1, 256, 256, ROPE_NEOX, 1, Q_BF16 }, .past = 64, .n_seqs = 3 },
        { .n_rows = 17, .p = { 4, 2, 128, 64, ROPE_NEOX, 1, Q_Q8_0 }, .past = 65, .n_seqs = 4, .tree = 1 },
        { .n_rows = 8, .p = { 8, 8, 32, 32, ROPE_NORM, 0, Q_Q4_0 }, .past = 130, .n_seqs = 2 },
        { .n_rows = 3, .p = { 2, 2, 24, 16, ROPE_NEOX, 1, Q_F16 }, .f = { 1.19f }, .past = 64 },
        { .n_rows = 2, .p = { 2, 1, 16, 16, ROPE_NORM, 0, Q_BF16 }, .past = 64, .n_seqs = 3 },
        { .n_rows = 33, .p = { 4, 4, 64, 0, ROPE_NONE, 0, Q_Q8_0 }, .past = 66 },
        { .n_rows = 7, .p = { 4, 2, 96, 0, ROPE_NONE, 0, Q_Q4_0 }, .past = 64 },
        { .n_rows = 6, .p = { 4, 4, 128, 128, ROPE_NEOX, 0, Q_F16 }, .past = 10, .rope = 200000 },
        { .n_rows = 5, .p = { 4, 2, 64, 32, ROPE_NEOX, 1, Q_F16, 128 }, .f = { 0, 5 }, .past = 65, .n_seqs = 2 },
        { .n_rows = 70, .p = { 2, 1, 256, 64, ROPE_NEOX, 1, Q_F16, 512 }, .f = { 0, 11 }, .past = 3, .wide = 1 },
        { .n_rows = 200, .p = { 9, 3, 64, 64, ROPE_NORM, 0, Q_F16 }, .wide = 1 },
        { .n_rows = 130, .p = { 4, 1, 128, 128, ROPE_NEOX, 1, Q_Q8_0 }, .past = 64, .n_seqs = 2, .wide = 1 },
        { .n_rows = 65, .p = { 2, 1, 32, 32, ROPE_NEOX, 0, Q_Q4_0 }, .past = 66, .wide = 1 },
        { .n_rows = 40, .p = { 0, 2, 32, 32, ROPE_NEOX, 1, Q_F16 }, .past = 30, .wide = 1, .block = true },
    };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        struct op_case c = shapes[i];
        c.record = record_case;
        c.label = !c.p[0] ? "keys and values alone" : c.tree ? "tree" : c.rope ? "far positions" : "";
        case_add(l, &c);
    }
}

static struct work work(const struct tape *t, const struct call *c, const struct step *s)
{
    struct work w = work_plain(t, c, s);
    w.bytes += work_commit(t, c->layer, s);
    return w;
}

const struct op_def op_def_rope_kv = { .name = "rope_kv", .reference = reference, .cases = cases,
                                       .work = work, .print = print };
