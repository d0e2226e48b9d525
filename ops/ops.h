/* ops/ops.h - the ops: what a tape is made of. One file ops/<name>.c defines each: its record
 * function (checks shapes, once), its float64 reference (this is the meaning), the cases that every
 * backend is tested on, and, for a coarse op, its expansion into simpler ones.
 *
 * Adding an op: a row here, its record function's contract below, ops/<name>.c; a kernel file and a
 * line in the table of each backend that wants speed. */
#ifndef LUCE_OPS_OPS_H
#define LUCE_OPS_OPS_H

#include "tape/tape.h"

/* name, identifier, meaning */
#define OPS(X)                                                                            \
    X(EMBED,   embed,   "rows of a table by token id, scaled")                            \
    X(NORM,    norm,    "x * w / rms(x) (+ residual)")                                    \
    X(LINEAR,  linear,  "W x + b (+ residual), up to 3 W that share x, side by side")     \
    X(GLU,     glu,     "act(Wg x) * (Wu x)")                                             \
    X(GATE,    gate,    "act(left half) * right half")                                    \
    X(ROUTE,   route,   "the experts of each row, best first, and their weights")         \
    X(MOE_GLU, moe_glu, "GLU of each chosen expert, side by side")                        \
    X(MOE_DOWN, moe_down, "weighted sum of the chosen experts' W x (+ residual)")         \
    X(QKV,     qkv,     "q, k, v products, then ROPE_KV")                                 \
    X(ROPE_KV, rope_kv, "norm and rotate q and k per head, commit and write k and v")     \
    X(ATTN,    attn,    "attention over pages, staging bank and path")                    \
    X(SHORT_CONV, short_conv, "causal convolution over time by channel, silu")            \
    X(DELTA,   delta,   "gated delta rule: a memory of keys and values that decays")      \
    X(GATED,   gated,   "norm per head * w * act(gate)")                                  \
    X(TAKE,    take,    "the rows whose logits are wanted")                               \
    X(CONV,    conv,    "each row and those before it in its block, by weights of the row")  \
    X(ADD,     add,     "a + b")                                                          \
    X(ARGMAX,  argmax,  "index of the largest column; ties to the lowest; NaN gives -1")  \
    X(SAMPLE,  sample,  "a column, drawn by its share in the softmax")                      \
    X(LIKELY,  likely,  "the largest columns and the logarithms of their shares in the softmax")    \
    X(ACCEPT,  accept,  "the rows of each tree that are what was chosen before them")

enum op {
#define OP_ENUM(NAME, name, doc) OP_##NAME,
    OPS(OP_ENUM)
#undef OP_ENUM
    OP_COUNT
};

enum act { ACT_SILU, ACT_GELU_TANH, ACT_COUNT };
enum score { SCORE_SOFTMAX, SCORE_SIGMOID, SCORE_COUNT };
enum rope_layout { ROPE_NONE, ROPE_NORM, ROPE_NEOX };    /* pairs (2i, 2i+1) or (i, i + dims/2) */

/* Attributes: plain data, zero means the usual. */
struct embed_attr  { float scale; };                      /* 0: 1 */
struct norm_attr   { float eps; };
struct linear_attr { int n_mat; float softcap; };         /* softcap c: c * tanh(y / c); 0: none */
struct glu_attr    { enum act act; int n_mat; };          /* n_mat 1: one matrix, gate rows first */
struct gate_attr   { enum act act; };
struct route_attr {
    enum score score;
    int   experts, used;        /* how many there are, and how many a row takes */
    bool  normalise;            /* the weights of a row are divided by their sum */
    float scale;                /* then multiplied by this; 0: 1 */
    bool  shared;               /* a row takes one more, behind all others and in its last slot, with the sigmoid of its
                                   logit as its weight, which is neither divided nor multiplied */
};
enum { LIKELY_MOST = 16 };
struct likely_attr { int k; float scale; };               /* columns, at most LIKELY_MOST; of x, 0: 1 */
struct moe_attr    { enum act act; int experts, used; bool shared; };  /* both with the shared one; MOE_DOWN: no act */
struct rope_kv_attr {
    int   heads, kv_heads, head_dim;
    enum rope_layout layout;
    int   rope_dims;            /* rotated dims of a head; the rest passes through */
    float magnitude;            /* of cos and sin; 0: 1 */
    float eps;                  /* of the per-head norms */
    int   q_stride;             /* columns from one head of q to the next; 0: head_dim */
    int   sections[2];          /* pairs i with i % 3 = 1 up to 3 sections[0] turn by rope[1], those with
                                   i % 3 = 2 up to 3 sections[1] by rope[2], the others by rope[0] */
};
struct delta_attr {
    int   k_heads, v_heads, k_dim, v_dim;
    float eps;                  /* least length that q and k are divided by */
    bool  grouped;              /* value head j has key head j / r, r = v_heads / k_heads, and the gates stand by
                                   key head, [beta (r), alpha (r)]; else key head j % k_heads, all alpha, all beta */
};
enum gate_fn { GATE_SILU, GATE_SIGMOID };
struct gated_attr {
    int   heads, dim;
    enum gate_fn fn;
    int   at, stride;           /* the first gate's column, and from one head's to the next */
    bool  scalar;               /* one gate a head; else one a column */
    float eps;                  /* of the norm */
};
struct qkv_attr    { int n_mat; struct rope_kv_attr post; };   /* n_mat 1: rows q, k, v in one */
struct attn_attr {
    int   heads, kv_heads, head_dim;
    float scale;                /* of q . k */
    int   window;               /* key p is visible to row i iff i - p < window; 0: all */
    float softcap;
    bool  block;                /* narrow rows see all rows of their sequence in the step, not their path */
};
struct conv_attr   { int taps, group, side; };

/* ---- record functions. Each checks shapes and returns the output, or "no value" on a dead tape --- */
/* y[r] = scale * table[token[r]]; zeros for a token outside the table. table [embd, vocab]. */
struct val op_embed(struct tape *t, const struct weight *table, float scale);
/* y = x * w / sqrt(mean(x^2) + eps) (+ residual, if it is a value). w [cols] f32. */
struct val op_norm(struct tape *t, struct val x, const struct weight *w, float eps);
struct val op_norm_add(struct tape *t, struct val x, const struct weight *w, float eps, struct val residual);
/* y = W x + b. w [in, out]; bias [out] f32 or NULL. */
struct val op_linear(struct tape *t, struct val x, const struct weight *w, const struct weight *bias);
struct val op_linear_add(struct tape *t, struct val x, const struct weight *w, const struct weight *bias,
                         struct val residual);
/* c * tanh(W x / c); softcap 0: W x. */
struct val op_head(struct tape *t, struct val x, const struct weight *w, float softcap);
/* act(gate x) * (up x); gate NULL: up holds 2 ff rows, the gate's first. */
struct val op_glu(struct tape *t, struct val x, const struct weight *gate, const struct weight *up, enum act act);
/* x [rows, 2 n] -> y [rows, n]. */
struct val op_gate(struct tape *t, struct val x, enum act act);
/* Chooses experts by the router's logits [rows, experts or more]. Score p = softmax over all or sigmoid; the
 * `used` largest p + bias (bias [experts] f32 or NULL), ties to the lower index, NaN last; weights are
 * p without the bias. Returns the indices [rows, slots] i32, the best first; *weights is [rows, slots]. Slots are
 * `used`, and one more with a shared expert, whose index is `experts`. */
struct val op_route(struct tape *t, struct val logits, const struct weight *bias, const struct route_attr *attr,
                    struct val *weights);
/* gate, up [in, ff, experts], down [ff, in, experts]; the shared expert's are [in, ff] and [ff, in], or all NULL: there
 * is none. With one, ids and weights are of a ROUTE that has it. */
struct experts {
    const struct weight *gate, *up, *down, *shared_gate, *shared_up, *shared_down;
};
/* y [rows, slots * ff]: slot j is act(gate_e x) * (up_e x), e = ids[row][j]. */
struct val op_moe_glu(struct tape *t, struct val x, struct val ids, const struct experts *w, enum act act);
/* y = sum over slots j, the first first, of weights[row][j] * down_e x_j, e = ids[row][j], (+ residual,
 * if it is a value). x [rows, slots * ff]. */
struct val op_moe_down(struct tape *t, struct val x, struct val ids, struct val weights, const struct experts *w,
                       struct val residual);
struct qkv_weights {            /* k and v NULL: q holds all rows in order q, k, v. The rest optional. */
    const struct weight *q, *k, *v, *q_bias, *k_bias, *v_bias, *q_norm, *k_norm;
    const struct weight *freq;  /* [rope_dims / 2] f32: radians per position of each pair */
};
/* Returns q [rows, heads * head_dim]; keys and values of `layer` go to bank or pages. ROPE_KV with
 * heads 0 gives no value: its rows are only seen. */
struct val op_qkv(struct tape *t, int layer, struct val x, const struct qkv_weights *w,
                  const struct rope_kv_attr *post);
/* The second half alone: x [rows, (heads + 2 kv_heads) * head_dim], q then k then v. */
struct val op_rope_kv(struct tape *t, int layer, struct val x, const struct qkv_weights *w,
                      const struct rope_kv_attr *post);
/* o [rows, heads * head_dim]; query head h reads kv head h / (heads / kv_heads). */
struct val op_attn(struct tape *t, int layer, struct val q, const struct attn_attr *attr);
/* Recurrent layers (tape/kv.h). y = silu(sum_j w[c][j] * x of the row taps - 1 - j before) for the first
 * columns of x, the layer's channels; w [taps, channels] f32; the rows before the sequence are 0. */
struct val op_short_conv(struct tape *t, int layer, struct val x, const struct weight *w);
/* x [rows, channels]: q, k, v; gates [rows, 2 v_heads]; a, dt [v_heads]. Returns [rows, v_heads * v_dim]. */
struct val op_delta(struct tape *t, int layer, struct val x, struct val gates, const struct weight *a,
                    const struct weight *dt, const struct delta_attr *attr);
/* y [rows, heads * dim] = x / rms(x per head) * w * fn(gate) (+ residual, if it is a value); w [dim], NULL: no norm. */
struct val op_gated(struct tape *t, struct val x, struct val gate, const struct weight *w,
                    const struct gated_attr *attr, struct val residual);
/* y[r][c] = sum over taps o of (base[side][o][c] + dyn[r][side][o][c / group]) * x[r - o][c], without rows
 * before the first of the sequence in the step. base [2 * taps * cols] f32, dyn [rows, 2 * taps * cols / group]. */
struct val op_conv(struct tape *t, struct val x, struct val dyn, const struct weight *base,
                   const struct conv_attr *attr);
/* x [rows, cols] -> [out rows, cols]. */
struct val op_take(struct tape *t, struct val x);
struct val op_add(struct tape *t, struct val a, struct val b);
/* [n, cols] f32 -> [n, 1] i32. */
struct val op_argmax(struct tape *t, struct val x);
/* logits [n, cols] f32, their ARGMAX, allowed [cols] f32: added to the logits, 0 or minus infinity; NULL: none ->
 * [n, 1] i32: as step_out.draw says. */
struct val op_sample(struct tape *t, struct val logits, struct val argmax, const struct weight *allowed);
/* [n, cols] f32 -> [n, k] i32, the largest columns, and *likely [n, k] f32, the logarithms of their shares. */
struct val op_likely(struct tape *t, struct val x, const struct likely_attr *attr, struct val *likely);

/* [out, 1] i32, what was chosen after each wanted row -> [out, 2] i32: of each sequence the rows that were chosen, in
 * order, and what was chosen after them. */
struct val op_accept(struct tape *t, struct val chosen);

/* Weight slots of a call, by op (call.w). */
enum { W_LINEAR_MAT = 0, W_LINEAR_BIAS = 3 };             /* 3 matrices, then 3 biases */
enum { W_GLU_GATE = 0, W_GLU_UP = 1 };                    /* n_mat 1: W_GLU_UP alone, in slot 0 */
enum { W_DELTA_A = 0, W_DELTA_DT = 1 };
/* The shared expert's follow; without one they are not there. */
enum { W_MOE_GATE = 0, W_MOE_UP = 1, W_MOE_DOWN = 0, MOE_GLU_W = 2, MOE_DOWN_W = 1 };
enum { W_QKV_MAT = 0, W_QKV_BIAS = 3, W_QKV_QNORM = 6, W_QKV_KNORM = 7, W_QKV_FREQ = 8 };  /* ROPE_KV too */

/* ---- definitions ------------------------------------------------------------------------------- */
struct ref_cache;               /* keys and values in float64, by slot, layer and position */
struct ref_args {
    const struct call *call;
    const struct kv_layout *kv;
    const struct step *step;
    struct ref_cache *cache;
    const double *x[CALL_IN];   /* inputs, rows x cols */
    double *y[CALL_OUT];
    int rows;                   /* of the output in this step */
    int cols[CALL_IN], out_cols[CALL_OUT];
    double *scratch;            /* one weight row, or a score per visible key */
    double *scratch2;           /* one row of q, k and v, or two of a router's scores */
    int *places;                /* visible keys of one row */
};
/* Row `row` of weight slot i (row-major over experts), decoded exactly, in a->scratch. */
const double *ref_weight_row(const struct ref_args *a, int slot, uint64_t row);

/* Bytes that must move and operations that must be done by one call in this step: weights in their
 * stored format once, inputs and outputs once, visible keys and values once (in cache formats); two
 * operations a multiply-add. For traces and the bench. */
struct work {
    double bytes, ops;
};

struct case_list;
struct op_def {
    const char *name;
    void (*reference)(const struct ref_args *a);
    /* Records the simpler ops that mean the same; NULL for a basic op. */
    struct val (*expand)(struct tape *t, const struct call *c);
    /* What every backend is tested on (ops/cases.h). */
    void (*cases)(struct case_list *l);
    /* Appends the attributes in words; NULL when there are none. */
    void (*print)(const void *attr, struct buf *out);
    /* What call_work says, where it differs from work_plain (ops/work.h); NULL: it does not. */
    struct work (*work)(const struct tape *t, const struct call *c, const struct step *s);
    /* Wide rows of a page may be computed together: bits are equal for sequences that are cut between pages. */
    bool by_pages;
};
extern const struct op_def *const op_defs[OP_COUNT];
/* The meaning of each op in words, as in OPS. */
extern const char *const op_docs[OP_COUNT];

/* Pushes a call, or its expansion when the tape's target has no kernel for it. */
struct val op_push(struct tape *t, const struct call *c);
struct work call_work(const struct tape *t, const struct call *c, const struct step *s);
/* Prints the tape: one line a call. With a plan, offsets too. */
void tape_print(const struct tape *t, const struct plan *p, struct buf *out);

#endif
