/* tests/test_ops.c - the meaning of the ops: their references against hand-computed values and
 * independent formulas, expansions, printing. Shape rules: test_ops_shapes.c. */
#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "ops/cases.h"
#include "ops/interp.h"
#include "quant/quant.h"
#include "test.h"

static const struct target everything = { 0 };

static struct weight f32_weight(const char *name, int in, int out, const float *values)
{
    return (struct weight){ .name = name, .dim = { (uint64_t)in, (uint64_t)out, 1 }, .type = Q_F32,
                            .host = (const uint8_t *)values };
}

/* A step of n narrow rows of one sequence, a chain from `past` on. */
static struct step *chain(int n, int past)
{
    struct step *s = mem_zero(sizeof *s);
    s->head = (struct step_head){ .n_rows = n, .n_out = 1, .n_seqs = 1 };
    s->seq[0] = (struct step_seq){ .n_rows = n, .past = past };
    s->out[0].row = n - 1;
    for (int i = 0; i < n; i++)
        s->row[i] = (struct step_row){ .index = past + i, .see = past + i, .rope = { past + i, past + i, past + i },
                                       .path = ((uint64_t)2 << i) - 1 };
    return s;
}

/* One call with one input, run for the given rows. */
struct one {
    struct tape t;
    struct interp *p;
    struct step *s;
    struct val y;
};

static const double *run_one(struct one *o, struct val x, const double *rows, int n)
{
    luce_error err = { 0 };
    CHECK_OK(tape_end(&o->t, &err), err);
    CHECK_OK(interp_open(&o->p, &o->t, o->t.kv, 1, 64, false, &err), err);
    if (rows) CHECK_OK(interp_write(o->p, x, rows, n, &err), err);
    o->s = o->s ? o->s : chain(n, 0);
    CHECK_OK(interp_run(o->p, o->s, &err), err);
    return interp_read(o->p, o->y);
}

static void drop_one(struct one *o)
{
    interp_close(o->p);
    tape_drop(&o->t);
    mem_free(o->s);
}

static void near_at(int line, double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * (1 + fabs(b)))) test_failed(__FILE__, line, "%.12g, not %.12g", a, b);
}
#define NEAR(a, b) near_at(__LINE__, a, b)

TEST(embed_takes_and_scales_rows_of_the_table)
{
    static const float table[] = { 1, 2, 3, 4, 5, 6 };
    struct weight w = f32_weight("table", 2, 3, table);
    struct one o = { 0 };
    tape_begin(&o.t, everything, NULL);
    o.y = op_embed(&o.t, &w, 10);
    o.s = chain(4, 0);
    static const int tokens[] = { 2, 0, 3, -1 };
    for (int i = 0; i < 4; i++) o.s->row[i].token = tokens[i];
    const double *y = run_one(&o, o.y, NULL, 4);
    static const double want[] = { 50, 60, 10, 20, 0, 0, 0, 0 };
    for (int i = 0; i < 8; i++) NEAR(y[i], want[i]);
    drop_one(&o);
}

TEST(norm_divides_by_the_root_mean_square)
{
    static const float w[] = { 1, 2 };
    struct weight v = f32_weight("w", 2, 1, w);
    struct one o = { 0 };
    tape_begin(&o.t, everything, NULL);
    struct val x = tape_input(&o.t, "x", (struct shape){ DOM_ROWS, DT_F32, 2 });
    o.y = op_norm_add(&o.t, x, &v, 0, x);
    const double *y = run_one(&o, x, (double[]){ 1, 7, 0.5, 0 }, 2);    /* mean of squares 25, 0.125 */
    NEAR(y[0], 1 / 5.0 + 1);
    NEAR(y[1], 14 / 5.0 + 7);
    NEAR(y[2], sqrt(2) + 0.5);
    NEAR(y[3], 0);
    drop_one(&o);
}

TEST(linear_multiplies_adds_and_caps)
{
    static const float a[] = { 1, 2, 3, 4, 5, 6 }, b[] = { 0.5f, 0, -1 };
    struct weight w = f32_weight("w", 2, 3, a), bias = f32_weight("b", 3, 1, b);
    struct one o = { 0 };
    tape_begin(&o.t, everything, NULL);
    struct val x = tape_input(&o.t, "x", (struct shape){ DOM_ROWS, DT_F32, 2 });
    struct val y1 = op_linear(&o.t, x, &w, &bias);
    o.y = op_linear_add(&o.t, x, &w, NULL, y1);
    struct val capped = op_head(&o.t, x, &w, 2);
    const double *y = run_one(&o, x, (double[]){ 1, -1 }, 1);
    NEAR(y[0], -1 + -1 + 0.5);
    NEAR(y[1], -2);
    NEAR(y[2], -3);
    NEAR(interp_read(o.p, capped)[0], 2 * tanh(-0.5));
    drop_one(&o);
}

TEST(linear_decodes_quantised_rows_exactly)
{
    uint8_t rows[2 * 34] = { 0 };
    uint16_t d[2] = { f32_to_f16(0.5f), f32_to_f16(-2) };
    for (int r = 0; r < 2; r++) {
        memcpy(rows + 34 * r, &d[r], 2);
        for (int i = 0; i < 32; i++) rows[34 * r + 2 + i] = (uint8_t)(i - 10);
    }
    struct weight w = { .name = "w", .dim = { 32, 2, 1 }, .type = Q_Q8_0, .host = rows };
    struct one o = { 0 };
    tape_begin(&o.t, everything, NULL);
    struct val x = tape_input(&o.t, "x", (struct shape){ DOM_ROWS, DT_F32, 32 });
    o.y = op_linear(&o.t, x, &w, NULL);
    double in[32], sum = 0;
    for (int i = 0; i < 32; i++) in[i] = test_normal(), sum += in[i] * (i - 10);
    const double *y = run_one(&o, x, in, 1);
    NEAR(y[0], 0.5 * sum);
    NEAR(y[1], -2 * sum);
    drop_one(&o);
}

TEST(glu_and_gate_apply_the_activation_to_the_gate)
{
    static const float g[] = { 1, 0 }, u[] = { 0, 1 }, both[] = { 1, 0, 0, 1 };
    struct weight gate = f32_weight("g", 2, 1, g), up = f32_weight("u", 2, 1, u), one = f32_weight("gu", 2, 2, both);
    struct one o = { 0 };
    tape_begin(&o.t, everything, NULL);
    struct val x = tape_input(&o.t, "x", (struct shape){ DOM_ROWS, DT_F32, 2 });
    o.y = op_glu(&o.t, x, &gate, &up, ACT_SILU);
    struct val fused = op_glu(&o.t, x, NULL, &one, ACT_GELU_TANH), alone = op_gate(&o.t, x, ACT_GELU_TANH);
    const double *y = run_one(&o, x, (double[]){ 1.5, 3, -2, 0.5 }, 2);
    NEAR(y[0], 3 * 1.5 * 0.81757447619364365);          /* the logistic function of 1.5 */
    NEAR(y[1], 0.5 * -2 * 0.11920292202211755);
    CHECK(fabs(interp_read(o.p, fused)[0] - 3 * 1.3995715769802328) < 1e-6);
    CHECK(fabs(interp_read(o.p, fused)[1] + 0.5 * 0.045402305912) < 1e-6);
    NEAR(interp_read(o.p, alone)[0], interp_read(o.p, fused)[0]);
    NEAR(interp_read(o.p, alone)[1], interp_read(o.p, fused)[1]);
    drop_one(&o);
}

TEST(argmax_takes_the_lowest_of_equals_and_refuses_nan)
{
    struct one o = { 0 };
    tape_begin(&o.t, everything, NULL);
    struct val x = tape_input(&o.t, "x", (struct shape){ DOM_ROWS, DT_F32, 3 });
    o.y = op_argmax(&o.t, x);
    double rows[] = { 1, 5, 5, -INFINITY, -INFINITY, -INFINITY, 9, NAN, 1, -3, -2, INFINITY };
    const double *y = run_one(&o, x, rows, 4);
    CHECK_EQ(y[0], 1);
    CHECK_EQ(y[1], 0);
    CHECK_EQ(y[2], -1);
    CHECK_EQ(y[3], 2);
    CHECK_EQ(tape_shape(&o.t, o.y).type, DT_I32);
    drop_one(&o);
}

/* Row 4 has the right token behind a row that is none, row 5 another one than was chosen. */
TEST(accept_follows_what_was_chosen_through_a_tree)
{
    enum { N = 6 };
    static const int parent[N] = { -1, 0, 0, 2, 1, 3 };
    static const int32_t token[N] = { 5, 7, 8, 1, 9, 4 };
    static const double want[N][2] = { { 0, 8 }, { 2, 1 }, { 3, 3 }, { -1, -1 }, { -1, -1 }, { -1, -1 } };
    struct one o = { 0 };
    tape_begin(&o.t, everything, NULL);
    struct val x = tape_input(&o.t, "chosen", (struct shape){ DOM_OUT, DT_I32, 1 });
    o.y = op_accept(&o.t, x);
    o.s = chain(N, 0);
    o.s->head.n_out = N;
    for (int i = 0; i < N; i++) {
        o.s->out[i].row = i;
        o.s->row[i].token = token[i];
        o.s->row[i].path = (i ? o.s->row[parent[i]].path : 0) | UINT64_C(1) << i;
    }
    const double *y = run_one(&o, x, (double[]){ 8, 9, 1, 3, 0, 0 }, N);
    for (int i = 0; i < N; i++) CHECK(y[2 * i] == want[i][0] && y[2 * i + 1] == want[i][1], "entry %d", i);
    drop_one(&o);
}

TEST(take_and_add_move_rows)
{
    struct one o = { 0 };
    tape_begin(&o.t, everything, NULL);
    struct val x = tape_input(&o.t, "x", (struct shape){ DOM_ROWS, DT_F32, 2 });
    o.y = op_take(&o.t, op_add(&o.t, x, x));
    o.s = chain(3, 0);
    o.s->head.n_out = 2;
    o.s->out[0].row = 2;
    o.s->out[1].row = 0;
    const double *y = run_one(&o, x, (double[]){ 1, 2, 3, 4, 5, 6 }, 3);
    NEAR(y[0], 10);
    NEAR(y[1], 12);
    NEAR(y[2], 2);
    NEAR(y[3], 4);
    drop_one(&o);
}

static struct kv_layout *small_cache(int kv_heads, int dim, int window)
{
    struct kv_layout *l = mem_zero(sizeof *l);
    luce_error err = { 0 };
    CHECK_OK(kv_layout_add(l, kv_heads, dim, dim, window, &err), err);
    CHECK_OK(kv_layout_finish(l, Q_F16, Q_F16, &err), err);
    return l;
}

/* Rotation as a product of complex numbers, pair by pair. */
TEST(rope_kv_rotates_pairs_of_both_layouts)
{
    static const float freq[] = { 1, 0.01f };
    static const float norm[] = { 1, 2, 1, 1, 1, 1 };
    struct weight f = f32_weight("freq", 2, 1, freq), w = f32_weight("norm", 6, 1, norm);
    for (int neox = 0; neox < 2; neox++) {
        struct kv_layout *kv = small_cache(1, 6, 0);
        struct one o = { 0 };
        tape_begin(&o.t, everything, kv);
        struct val x = tape_input(&o.t, "x", (struct shape){ DOM_ROWS, DT_F32, 18 });
        struct rope_kv_attr a = { .heads = 1, .kv_heads = 1, .head_dim = 6, .rope_dims = 4, .magnitude = 1.5f,
                                  .layout = neox ? ROPE_NEOX : ROPE_NORM };
        o.y = op_rope_kv(&o.t, 0, x, &(struct qkv_weights){ .freq = &f, .k_norm = &w }, &a);
        double in[36];
        for (int i = 0; i < 36; i++) in[i] = i % 7 - 3 + 0.25 * i;
        o.s = chain(2, 3);
        const double *y = run_one(&o, x, in, 2);
        for (int row = 0; row < 2; row++) {
            const double *q = in + 18 * row, *k = q + 6;
            double ss = 0;
            for (int i = 0; i < 6; i++) ss += k[i] * k[i] / 6;
            for (int pair = 0; pair < 2; pair++) {
                int u = neox ? pair : 2 * pair, v = neox ? pair + 2 : 2 * pair + 1;
                double angle = (double)(freq[pair] * (float)(3 + row));
                NEAR(y[6 * row + u], 1.5 * (q[u] * cos(angle) - q[v] * sin(angle)));
                NEAR(y[6 * row + v], 1.5 * (q[v] * cos(angle) + q[u] * sin(angle)));
                double ku = k[u] * norm[u] / sqrt(ss), kv_ = k[v] * norm[v] / sqrt(ss);
                NEAR(interp_k(o.p, 0, 0, -1 - row, 0)[u], 1.5 * (ku * cos(angle) - kv_ * sin(angle)));
            }
            NEAR(y[6 * row + 4], q[4]);
            NEAR(interp_v(o.p, 0, 0, -1 - row, 0)[5], q[17]);
        }
        drop_one(&o);
        mem_free(kv);
    }
}

TEST(rope_kv_commits_before_it_writes)
{
    struct kv_layout *kv = small_cache(1, 2, 0);
    struct one o = { 0 };
    luce_error err = { 0 };
    tape_begin(&o.t, everything, kv);
    struct val x = tape_input(&o.t, "x", (struct shape){ DOM_ROWS, DT_F32, 6 });
    struct rope_kv_attr a = { .heads = 1, .kv_heads = 1, .head_dim = 2 };
    o.y = op_rope_kv(&o.t, 0, x, &(struct qkv_weights){ 0 }, &a);
    double in[] = { 0, 0, 1, 2, 3, 4, 0, 0, 5, 6, 7, 8, 0, 0, 9, 10, 11, 12 };
    (void)run_one(&o, x, in, 3);
    o.s->head.n_rows = o.s->seq[0].n_rows = 1;          /* rows 0 and 2 were accepted */
    o.s->seq[0].past = 2;
    o.s->seq[0].n_commit = 2;
    o.s->seq[0].commit[1] = 2;
    CHECK_OK(interp_write(o.p, x, (double[]){ 0, 0, -1, -2, -3, -4 }, 1, &err), err);
    CHECK_OK(interp_run(o.p, o.s, &err), err);
    NEAR(interp_k(o.p, 0, 0, 0, 0)[0], 1);
    NEAR(interp_k(o.p, 0, 0, 1, 0)[0], 9);
    NEAR(interp_v(o.p, 0, 0, 1, 0)[1], 12);
    NEAR(interp_k(o.p, 0, 0, -1, 0)[0], -1);
    drop_one(&o);
    mem_free(kv);
}

/* Attention with all scores equal is the mean of the visible values. */
static double mean_seen(int window, int past, int rows, const uint64_t *path, int row)
{
    struct kv_layout *kv = small_cache(1, 1, window);
    struct one o = { 0 };
    luce_error err = { 0 };
    tape_begin(&o.t, everything, kv);
    struct val x = tape_input(&o.t, "x", (struct shape){ DOM_ROWS, DT_F32, 4 });
    struct rope_kv_attr a = { .heads = 2, .kv_heads = 1, .head_dim = 1 };
    struct val q = op_rope_kv(&o.t, 0, x, &(struct qkv_weights){ 0 }, &a);
    o.y = op_attn(&o.t, 0, q, &(struct attn_attr){ .heads = 2, .kv_heads = 1, .head_dim = 1, .scale = 1,
                                                   .window = window });
    CHECK_OK(tape_end(&o.t, &err), err);
    CHECK_OK(interp_open(&o.p, &o.t, kv, 1, 64, false, &err), err);
    for (int i = 0; i < past; i++) interp_v(o.p, 0, 0, i, 0)[0] = 1 << i;
    double in[4 * 64] = { 0 };
    o.s = chain(rows, past);
    for (int i = 0; i < rows; i++) {
        in[4 * i + 3] = 1 << (past + i);
        if (!path) continue;
        o.s->row[i].path = path[i];
        o.s->row[i].index = past + __builtin_popcountll(path[i]) - 1;
        o.s->row[i].see = o.s->row[i].index;
    }
    CHECK_OK(interp_write(o.p, x, in, rows, &err), err);
    CHECK_OK(interp_run(o.p, o.s, &err), err);
    double y = interp_read(o.p, o.y)[2 * row + 1];
    drop_one(&o);
    mem_free(kv);
    return y;
}

TEST(attn_sees_the_past_the_path_and_the_window)
{
    NEAR(mean_seen(0, 0, 1, NULL, 0), 1);
    NEAR(mean_seen(0, 3, 2, NULL, 0), (1 + 2 + 4 + 8) / 4.0);
    NEAR(mean_seen(0, 3, 2, NULL, 1), (1 + 2 + 4 + 8 + 16) / 5.0);
    NEAR(mean_seen(2, 3, 2, NULL, 0), (4 + 8) / 2.0);
    NEAR(mean_seen(2, 3, 2, NULL, 1), (8 + 16) / 2.0);
    NEAR(mean_seen(1, 3, 2, NULL, 1), 16);
    static const uint64_t tree[] = { 1, 3, 5, 13 };     /* row 3 continues row 2, which continues row 0 */
    NEAR(mean_seen(0, 1, 4, tree, 3), (1 + 2 + 8 + 16) / 4.0);
    NEAR(mean_seen(0, 1, 4, tree, 1), (1 + 2 + 4) / 3.0);
    NEAR(mean_seen(3, 1, 4, tree, 3), (2 + 8 + 16) / 3.0);
    NEAR(mean_seen(2, 1, 4, tree, 3), (8 + 16) / 2.0);
}

TEST(attn_weighs_by_softmax_of_capped_scores)
{
    struct kv_layout *kv = small_cache(1, 2, 0);
    struct one o = { 0 };
    tape_begin(&o.t, everything, kv);
    struct val x = tape_input(&o.t, "x", (struct shape){ DOM_ROWS, DT_F32, 6 });
    struct rope_kv_attr a = { .heads = 1, .kv_heads = 1, .head_dim = 2 };
    struct val q = op_rope_kv(&o.t, 0, x, &(struct qkv_weights){ 0 }, &a);
    o.y = op_attn(&o.t, 0, q, &(struct attn_attr){ .heads = 1, .kv_heads = 1, .head_dim = 2, .scale = 0.5f,
                                                   .softcap = 4 });
    double in[] = { 1, 0, 2, 1, 10, 20, 3, -1, 4, 2, 30, 40 };
    const double *y = run_one(&o, x, in, 2);
    NEAR(y[0], 10);
    double s0 = 4 * tanh(0.5 * (3 * 2 - 1) / 4), s1 = 4 * tanh(0.5 * (3 * 4 - 2) / 4);
    double p = 1 / (1 + exp(s0 - s1));
    NEAR(y[2], 10 * (1 - p) + 30 * p);
    NEAR(y[3], 20 * (1 - p) + 40 * p);
    drop_one(&o);
    mem_free(kv);
}

/* ---- expansions ------------------------------------------------------------------------------------ */
static bool lacks(const void *context, const struct call *c)
{
    const int *without = context;
    return c->op != without[0] && c->op != without[1];
}

static double difference(const double *a, const double *b, size_t n)
{
    double d = 0, e = 0;
    for (size_t i = 0; i < n; i++) d += (a[i] - b[i]) * (a[i] - b[i]), e += b[i] * b[i];
    return sqrt(d / (e + 1e-300));
}

static void compare_expansion(const struct op_case *c, int op)
{
    struct case_env *env;
    luce_error err = { 0 };
    CHECK_OK(case_open(&env, c, c->each_format ? (uint32_t)Q_Q8_0 : c->format, test_random(), &err), err);
    struct tape whole, parts;
    struct val y[2];
    struct interp *p[2];
    int without[2] = { op, op };
    CHECK_OK(case_record(env, &whole, everything, &y[0], &err), err);
    CHECK_OK(case_interp(env, &whole, &p[0], &err), err);
    CHECK_OK(case_record(env, &parts, (struct target){ .has = lacks, .context = without }, &y[1], &err), err);
    CHECK_OK(case_interp(env, &parts, &p[1], &err), err);
    CHECK_OK(interp_run(p[0], env->step, &err), err);
    CHECK_OK(interp_run(p[1], env->step, &err), err);
    CHECK_EQ(whole.n_calls, 1);
    CHECK_EQ(parts.n_calls, 2);
    struct shape s = tape_shape(&whole, y[0]);
    size_t n = (size_t)env->step->head.n_rows * (size_t)s.cols;
    double d = difference(interp_read(p[1], y[1]), interp_read(p[0], y[0]), n);
    CHECK(d < 1e-12, "%s (%s): %g", op_defs[op]->name, c->label, d);
    for (int i = 0; i < 2; i++) interp_close(p[i]);
    tape_drop(&whole);
    tape_drop(&parts);
    case_close(env);
}

TEST(expansions_mean_the_same_as_their_ops)
{
    int n = 0;
    for (int op = 0; op < OP_COUNT; op++) {
        if (!op_defs[op]->expand) continue;
        struct case_list l = { 0 };
        op_defs[op]->cases(&l);
        for (int i = 0; i < l.n; i++, n++) compare_expansion(&l.cases[i], op);
        case_list_drop(&l);
    }
    CHECK(n > 10);
}

TEST(op_push_says_what_the_device_lacks)
{
    static const float values[64] = { 0 };
    struct weight w = f32_weight("blk.0.weight", 8, 8, values);
    int without[2] = { OP_GLU, OP_LINEAR };
    struct tape t;
    luce_error err = { 0 };
    tape_begin(&t, (struct target){ .has = lacks, .context = without, .takes = "no products" }, NULL);
    op_glu(&t, tape_input(&t, "x", (struct shape){ DOM_ROWS, DT_F32, 8 }), &w, &w, ACT_SILU);
    CHECK_EQ(tape_end(&t, &err), LUCE_E_UNSUPPORTED);
    CHECK(strstr(err.text, "linear") && strstr(err.text, "blk.0.weight") && strstr(err.text, "f32") &&
          strstr(err.text, "It takes no products"), "%s", err.text);
    tape_drop(&t);
}

TEST(every_op_has_a_reference_and_cases_that_run)
{
    for (int op = 0; op < OP_COUNT; op++) {
        CHECK(op_defs[op]->reference && op_defs[op]->cases && op_docs[op], "%s", op_defs[op]->name);
        struct case_list l = { 0 };
        op_defs[op]->cases(&l);
        CHECK(l.n > 0 && !l.failed);
        for (int i = 0; i < l.n; i++) {
            struct case_env *env;
            struct tape t;
            struct val y;
            struct interp *p;
            luce_error err = { 0 };
            uint32_t format = l.cases[i].each_format ? (uint32_t)Q_Q4_K : l.cases[i].format;
            CHECK_OK(case_open(&env, &l.cases[i], format, test_random(), &err), err);
            CHECK_OK(case_record(env, &t, everything, &y, &err), err);
            CHECK_OK(case_interp(env, &t, &p, &err), err);
            CHECK_OK(interp_run(p, env->step, &err), err);
            const double *v = interp_read(p, y);
            struct shape s = tape_shape(&t, y);
            int rows = s.rows == DOM_OUT ? env->step->head.n_out : env->step->head.n_rows;
            for (int j = 0; j < rows * s.cols; j++)
                if (!isfinite(v[j])) CHECK(false, "%s case %d: value %d is %g", op_defs[op]->name, i, j, v[j]);
            interp_close(p);
            tape_drop(&t);
            case_close(env);
        }
        case_list_drop(&l);
    }
}

TEST(cases_make_weights_of_every_format)
{
    struct case_list l = { 0 };
    op_defs[OP_EMBED]->cases(&l);
    const struct format *f;
    for (size_t i = 0; (f = format_at(i)); i++) {
        if (!f->decode) continue;
        struct case_env *env;
        struct tape t;
        struct val y;
        luce_error err = { 0 };
        CHECK_OK(case_open(&env, &l.cases[0], f->id, test_random(), &err), err);
        CHECK_OK(case_record(env, &t, everything, &y, &err), err);
        float row[256];
        double sum = 0;
        for (int r = 0; env->n_weights && r < 37; r++) {
            f->decode(env->weight[0]->host + (size_t)r * format_bytes(f, 256), row, 256);
            for (int j = 0; j < 256; j++) sum += (double)row[j] * row[j];
        }
        CHECK(sum > 1 && isfinite(sum), "%s: %g", f->name, sum);
        tape_drop(&t);
        case_close(env);
    }
    case_list_drop(&l);
}

TEST(tape_print_shows_one_line_a_call)
{
    static const float values[64] = { 0 };
    struct weight w = f32_weight("blk.0.ffn_norm.weight", 8, 1, values), up = f32_weight("blk.0.up.weight", 8, 4, values);
    struct tape t;
    luce_error err = { 0 };
    tape_begin(&t, everything, NULL);
    struct val x = tape_input(&t, "x", (struct shape){ DOM_ROWS, DT_F32, 8 });
    struct val h = op_norm(&t, x, &w, 1e-6f);
    struct val y = op_take(&t, op_glu(&t, h, NULL, &up, ACT_GELU_TANH));
    tape_keep(&t, y, "y");
    CHECK_OK(tape_end(&t, &err), err);
    struct plan p;
    CHECK_OK(plan_make(&p, &t, (struct bucket){ .rows = { 8, 8 } }, &err), err);
    struct buf out = { 0 };
    tape_print(&t, &p, &out);
    CHECK_STR(buf_text(&out),
              "       input %1 'x' [rows 8 f32] at 0\n"
              "   0  %2 [rows 8 f32] at 256 = norm %1 | blk.0.ffn_norm.weight f32 [8] | eps 1e-06\n"
              "   1  %3 [rows 2 f32] at 512 = glu %2 | blk.0.up.weight f32 [8, 4] | gelu_tanh\n"
              "   2  %4 'y' [out 2 f32] at 256 = take %3\n"
              "arena: 768 bytes\n");
    buf_drop(&out);
    plan_drop(&p);
    tape_drop(&t);
}

TEST(call_work_counts_what_must_move)
{
    static const float values[64] = { 0 };
    struct weight w = f32_weight("w", 8, 4, values);
    struct kv_layout *kv = small_cache(1, 8, 4);
    struct tape t;
    tape_begin(&t, everything, kv);
    struct val x = tape_input(&t, "x", (struct shape){ DOM_ROWS, DT_F32, 8 });
    op_linear(&t, x, &w, NULL);
    op_embed(&t, &w, 1);
    op_attn(&t, 0, x, &(struct attn_attr){ .heads = 1, .kv_heads = 1, .head_dim = 8, .window = 4 });
    struct step *s = chain(3, 10);
    struct work a = call_work(&t, &t.calls[0], s), b = call_work(&t, &t.calls[1], s), c = call_work(&t, &t.calls[2], s);
    CHECK_EQ(a.bytes, 8 * 4 * 4 + 3 * 8 * 4 + 3 * 4 * 4);
    CHECK_EQ(a.ops, 2 * 8 * 4 * 3);
    CHECK_EQ(b.bytes, 3 * 8 * 4 * 2);
    CHECK_EQ(c.ops, 4 * 8 * (4 + 4 + 4));
    CHECK_EQ(c.bytes, 2 * 3 * 8 * 4 + (3 + 3) * 2 * 8 * 2);
    mem_free(s);
    tape_drop(&t);
    mem_free(kv);
}

TEST(docs_list_every_op_as_the_table_does)
{
    struct buf text = { 0 };
    luce_error err = { 0 };
    CHECK_OK(file_read(&text, LUCE_SOURCE_DIR "/docs/ops.md", 1 << 20, &err), err);
#define IN_DOCS(NAME, name, doc) \
    CHECK(strstr(buf_text(&text), "| " #NAME " | " doc " |") != NULL, "docs/ops.md lacks the row of %s", #NAME);
    OPS(IN_DOCS)
#undef IN_DOCS
    buf_drop(&text);
}

TEST(cases_survive_any_failed_allocation)
{
    struct case_list l = { 0 };
    op_defs[OP_ATTN]->cases(&l);
    size_t before = mem_live();
    for (int n = 0;; n++) {
        struct case_env *env = NULL;
        struct tape t = { 0 };
        struct val y;
        struct interp *p = NULL;
        luce_error err = { 0 };
        mem_fail_after(n);
        luce_status st = case_open(&env, &l.cases[3], Q_F32, 1, &err);
        if (!st) st = case_record(env, &t, everything, &y, &err);
        if (!st) st = case_interp(env, &t, &p, &err);
        if (!st) st = interp_run(p, env->step, &err);
        mem_fail_never();
        interp_close(p);
        tape_drop(&t);
        case_close(env);
        CHECK_EQ(mem_live(), before);
        if (st == LUCE_OK) break;
        CHECK_EQ(st, LUCE_E_NOMEM);
    }
    case_list_drop(&l);
}
