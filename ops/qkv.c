/* ops/qkv.c - QKV: the products q = Wq x + bq, k, v of one layer, then ROPE_KV (ops/rope_kv.c).
 * x [rows, in] f32; Wq [in, heads * head_dim], Wk and Wv [in, kv_heads * head_dim], or one matrix
 * with the rows of q, k and v; returns q [rows, heads * head_dim] f32. Expands into LINEAR (side by
 * side) and ROPE_KV. */
#include <string.h>

#include "base/mem.h"
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"
#include "ops/work.h"
#include "ops/rope_kv.h"
#include "quant/quant.h"

/* Checks the products' shapes; fills matrices and biases of the call. */
static bool record_products(struct tape *t, const struct qkv_weights *w, const struct rope_kv_attr *a,
                            uint64_t in, struct call *c)
{
    uint64_t nq = (uint64_t)a->heads * (uint64_t)a->head_dim, nkv = (uint64_t)a->kv_heads * (uint64_t)a->head_dim;
    bool one = !w->k && !w->v;
    if (a->q_stride) return tape_fail(t, "qkv: q with other columns between its heads needs rope_kv"), false;
    if (one && (w->k_bias || w->v_bias))
        return tape_fail(t, "qkv: one matrix, but separate biases of k and v"), false;
    const struct weight *mat[3] = { w->q, w->k, w->v }, *bias[3] = { w->q_bias, w->k_bias, w->v_bias };
    uint64_t out[3] = { one ? nq + 2 * nkv : nq, nkv, nkv };
    for (int i = 0; i < (one ? 1 : 3); i++) {
        if (!record_matrix(t, "qkv", mat[i], in, out[i]) || !record_vector(t, "qkv", bias[i], out[i]))
            return false;
        c->w[W_QKV_MAT + i] = mat[i];
        c->w[W_QKV_BIAS + i] = bias[i];
    }
    return true;
}

struct val op_qkv(struct tape *t, int layer, struct val x, const struct qkv_weights *w,
                  const struct rope_kv_attr *post)
{
    if (!record_input(t, "qkv", x, "x")) return (struct val){ 0 };
    struct shape s = tape_shape(t, x);
    struct qkv_attr a = { .n_mat = w->k || w->v ? 3 : 1, .post = *post };
    struct call c = { .op = OP_QKV, .layer = layer, .n_in = 1, .in = { x }, .n_w = W_QKV_FREQ + 1, .n_out = 1,
                      .attr = &a, .attr_size = sizeof a };
    if (!record_rope(t, "qkv", layer, w, post) || !record_products(t, w, post, (uint64_t)s.cols, &c))
        return (struct val){ 0 };
    c.w[W_QKV_QNORM] = w->q_norm;
    c.w[W_QKV_KNORM] = w->k_norm;
    c.w[W_QKV_FREQ] = post->layout == ROPE_NONE ? NULL : w->freq;
    c.shape[0] = (struct shape){ s.rows, DT_F32, post->heads * post->head_dim };
    return op_push(t, &c);
}

static struct val expand(struct tape *t, const struct call *c)
{
    const struct qkv_attr *a = c->attr;
    struct linear_parts p = { .x = c->in[0], .attr = { .n_mat = a->n_mat }, .layer = c->layer };
    for (int i = 0; i < a->n_mat; i++) {
        p.mat[i] = c->w[W_QKV_MAT + i];
        p.bias[i] = c->w[W_QKV_BIAS + i];
    }
    struct qkv_weights w = { .q_norm = c->w[W_QKV_QNORM], .k_norm = c->w[W_QKV_KNORM],
                             .freq = c->w[W_QKV_FREQ] };
    return op_rope_kv(t, c->layer, record_linear(t, &p), &w, &a->post);
}

/* Column `at` of the side-by-side products: which matrix and which of its rows. */
static void products(const struct ref_args *a, const double *x, double *y)
{
    const struct qkv_attr *p = a->call->attr;
    for (int m = 0; m < p->n_mat; m++) {
        const struct weight *w = a->call->w[W_QKV_MAT + m];
        for (uint64_t o = 0; o < w->dim[1]; o++) {
            double b = a->call->w[W_QKV_BIAS + m] ? ref_vector_at(a, W_QKV_BIAS + m, o) : 0;
            *y++ = ref_dot(ref_weight_row(a, W_QKV_MAT + m, o), x, (size_t)a->cols[0]) + b;
        }
    }
}

static void reference(const struct ref_args *a)
{
    const struct qkv_attr *p = a->call->attr;
    rope_kv_commit(a);
    for (int r = 0; r < a->rows; r++) {
        double *row = a->scratch2;
        products(a, a->x[0] + (size_t)r * (size_t)a->cols[0], row);
        rope_kv_row(a, &p->post, r, row, a->y[0] + (size_t)r * (size_t)a->out_cols[0]);
    }
}

static void print(const void *attr, struct buf *out)
{
    const struct qkv_attr *p = attr;
    rope_kv_print(&p->post, out);
}

/* p: heads, kv_heads, head_dim, columns of x, one matrix, biases, format of the cache. */
static struct val record_case(struct case_env *env, const struct op_case *c)
{
    struct rope_kv_attr a = { .heads = c->p[0], .kv_heads = c->p[1], .head_dim = c->p[2], .rope_dims = c->p[2],
                              .layout = c->p[4] ? ROPE_NEOX : ROPE_NORM, .eps = 1e-6f };
    int layer = case_cache(env, a.kv_heads, a.head_dim, 0, (uint32_t)c->p[6], (uint32_t)c->p[6]);
    int in = c->p[3], nq = a.heads * a.head_dim, nkv = a.kv_heads * a.head_dim;
    struct val x = case_input(env, DOM_ROWS, in, 1);
    struct qkv_weights w = { .q = case_weight(env, in, c->p[4] ? nq + 2 * nkv : nq, 0, 0.05f) };
    if (!c->p[4]) {                         /* v in another format, as in many files */
        w.k = case_weight(env, in, nkv, 0, 0.05f);
        w.v = case_weight_f32(env, in, nkv, 0, 0.05f);
    }
    if (c->p[5]) w.q_bias = case_weight(env, (int)w.q->dim[1], 0, 0, 0.2f);
    if (c->p[5] && w.v) w.v_bias = case_weight(env, nkv, 0, 0, 0.2f);
    if (!c->p[5]) w.k_norm = case_weight(env, a.head_dim, 0, 1, 0.3f);
    w.freq = case_freq(env, a.rope_dims);
    return op_qkv(case_tape(env), layer, x, &w, &a);
}

static void cases(struct case_list *l)
{
    static const struct op_case shapes[] = {
        { .n_rows = 1, .p = { 3, 1, 32, 256, 0, 1, Q_F16 }, .past = 3, .each_format = true },
        { .n_rows = 8, .p = { 2, 1, 64, 256, 1, 0, Q_F16 }, .past = 66, .n_seqs = 3, .each_format = true },
        { .n_rows = 64, .p = { 2, 2, 32, 256, 0, 0, Q_BF16 }, .past = 30, .each_format = true },
        { .n_rows = 100, .p = { 2, 1, 32, 256, 1, 1, Q_F16 }, .past = 64, .wide = 1, .each_format = true },
        { .n_rows = 5, .p = { 3, 1, 16, 31, 0, 1, Q_F16 }, .past = 9 },
        { .n_rows = 3, .p = { 2, 1, 64, 576, 0, 1, Q_Q8_0 }, .past = 64, .tree = 1 },
    };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        struct op_case c = shapes[i];
        c.record = record_case;
        c.label = c.p[4] ? "one matrix" : "";
        case_add(l, &c);
    }
}

static struct work work(const struct tape *t, const struct call *c, const struct step *s)
{
    struct work w = work_plain(t, c, s);
    w.bytes += work_commit(t, c->layer, s);
    return w;
}

const struct op_def op_def_qkv = { .name = "qkv", .reference = reference, .expand = expand, .cases = cases,
                                   .work = work, .print = print };
