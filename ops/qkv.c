/* ops/qkv.c - QKV: the products q = Wq x + bq, k, v of one layer, then ROPE_KV (ops/rope_kv.c).
 * x [rows, in] f32; Wq [in, heads * head_dim], Wk and Wv [in, kv_heads * head_dim], or one matrix
 * with the rows of q, k and v; returns q [rows, heads * head_dim] f32. Expands into LINEAR (side by
 * side) and ROPE_KV. */
#include <string.h>

#include "ops/record.h"
#include "ops/ref.h"
#include "ops/rope_kv.h"

/* Checks the products' shapes; fills matrices and biases of the call. */
static bool record_products(struct tape *t, const struct qkv_weights *w, const struct rope_kv_attr *a,
                            uint64_t in, struct call *c)
{
    uint64_t nq = (uint64_t)a->heads * (uint64_t)a->head_dim, nkv = (uint64_t)a->kv_heads * (uint64_t)a->head_dim;
    bool one = !w->k && !w->v;
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

const struct op_def op_def_qkv = { .name = "qkv", .doc = "q, k, v products, then ROPE_KV",
                                   .reference = reference, .expand = expand, .print = print };
