/* tests/test_interp.c - the reference interpreter on a small decoder: the cut of a text into steps
 * changes nothing beyond the last digits of float64. */
#include <math.h>

#include "ops/interp.h"
#include "quant/quant.h"
#include "test.h"

enum { EMBD = 12, HEADS = 3, DIM = 4, FF = 10, VOCAB = 20, LAYERS = 2, MOST = 96 };

/* A decoder of two layers, the second with a window. */
struct small {
    struct weight w[LAYERS * 12 + 4];
    int n_w;
    struct kv_layout kv;
    struct tape t;
    struct val logits, best;
};

static struct weight *make(struct small *m, int in, int out, double mean, double std)
{
    struct weight *w = &m->w[m->n_w++];
    float *values = mem_array((size_t)in * (size_t)out, sizeof *values);
    for (int i = 0; i < in * out; i++) values[i] = (float)(mean + std * test_normal());
    *w = (struct weight){ .name = "w", .dim = { (uint64_t)in, (uint64_t)out, 1 }, .type = Q_F32,
                          .host = (const uint8_t *)values };
    return w;
}

static struct val record_layer(struct small *m, int l, struct val x)
{
    struct tape *t = &m->t;
    struct weight *freq = make(m, DIM / 2, 1, 0.3, 0.2);
    struct qkv_weights w = { .q = make(m, EMBD, HEADS * DIM, 0, 0.4), .k = make(m, EMBD, DIM, 0, 0.4),
                             .v = make(m, EMBD, DIM, 0, 0.4), .k_norm = make(m, DIM, 1, 1, 0.2), .freq = freq };
    struct rope_kv_attr post = { .heads = HEADS, .kv_heads = 1, .head_dim = DIM, .layout = ROPE_NEOX,
                                 .rope_dims = DIM, .eps = 1e-6f };
    struct attn_attr attn = { .heads = HEADS, .kv_heads = 1, .head_dim = DIM, .scale = 0.5f,
                              .window = m->kv.kind[m->kv.layer[l].kind].window };
    struct val h = op_norm(t, x, make(m, EMBD, 1, 1, 0.2), 1e-6f);
    struct val a = op_attn(t, l, op_qkv(t, l, h, &w, &post), &attn);
    x = op_linear_add(t, a, make(m, HEADS * DIM, EMBD, 0, 0.4), NULL, x);
    h = op_norm(t, x, make(m, EMBD, 1, 1, 0.2), 1e-6f);
    struct weight *gate = make(m, EMBD, FF, 0, 0.4), *up = make(m, EMBD, FF, 0, 0.4);
    return op_linear_add(t, op_glu(t, h, gate, up, ACT_SILU), make(m, FF, EMBD, 0, 0.4), NULL, x);
}

static struct small *small_open(void)
{
    struct small *m = mem_zero(sizeof *m);
    luce_error err = { 0 };
    CHECK_OK(kv_layout_add(&m->kv, 1, DIM, DIM, 0, &err), err);
    CHECK_OK(kv_layout_add(&m->kv, 1, DIM, DIM, 6, &err), err);
    CHECK_OK(kv_layout_finish(&m->kv, Q_F16, Q_F16, &err), err);
    tape_begin(&m->t, (struct target){ 0 }, &m->kv);
    struct weight *table = make(m, EMBD, VOCAB, 0, 1);
    struct val x = op_embed(&m->t, table, 0);
    for (int l = 0; l < LAYERS; l++) x = record_layer(m, l, x);
    m->logits = op_head(&m->t, op_take(&m->t, op_norm(&m->t, x, make(m, EMBD, 1, 1, 0.2), 1e-6f)), table, 5);
    m->best = op_argmax(&m->t, m->logits);
    tape_keep(&m->t, m->logits, "logits");
    CHECK_OK(tape_end(&m->t, &err), err);
    return m;
}

static void small_close(struct small *m)
{
    tape_drop(&m->t);
    for (int i = 0; i < m->n_w; i++) mem_free((void *)(uintptr_t)m->w[i].host);
    mem_free(m);
}

static int tokens[MOST];

static void random_tokens(void)
{
    for (int i = 0; i < MOST; i++) tokens[i] = (int)(test_random() % VOCAB);
}

static void begin(struct step *s, int slot, int past, int wide)
{
    s->head = (struct step_head){ .n_seqs = 1, .wide = wide };
    s->seq[0] = (struct step_seq){ .slot = slot, .past = past };
}

/* Appends a row at `index` with the token that stands there, and asks for its logits. */
static struct step_row *add_row(struct step *s, int index)
{
    int n = s->head.n_rows++;
    s->seq[0].n_rows = s->head.n_rows;
    s->out[s->head.n_out++] = (struct step_out){ .row = n };
    s->row[n] = (struct step_row){ .token = tokens[index], .index = index, .see = index,
                                   .rope = { index, index, index }, .path = ((uint64_t)2 << n) - 1 };
    return &s->row[n];
}

static void commit_all(struct step *s, int n)
{
    s->seq[0].n_commit = n;
    for (int i = 0; i < n; i++) s->seq[0].commit[i] = (uint8_t)i;
}

static void check_rows(const char *what, const double *a, const double *b, int n)
{
    for (int i = 0; i < n * VOCAB; i++)
        if (!(fabs(a[i] - b[i]) < 1e-11)) {
            CHECK(false, "%s: logit %d of row %d is %.15g, not %.15g", what, i % VOCAB, i / VOCAB, a[i], b[i]);
            return;
        }
}

/* Logits of positions 0 .. n - 1, one row a step. */
static void one_by_one(struct interp *p, const struct small *m, struct step *s, int n, double *logits)
{
    luce_error err = { 0 };
    for (int i = 0; i < n; i++) {
        begin(s, 1, i, 0);
        if (i) commit_all(s, 1);
        add_row(s, i);
        CHECK_OK(interp_run(p, s, &err), err);
        memcpy(logits + i * VOCAB, interp_read(p, m->logits), VOCAB * sizeof *logits);
    }
}

TEST(interp_gives_the_same_logits_for_any_cut_into_steps)
{
    enum { N = 30 };
    static double want[N * VOCAB], best[N];
    struct small *m = small_open();
    struct step *s = mem_zero(sizeof *s);
    struct interp *p;
    luce_error err = { 0 };
    random_tokens();
    CHECK_OK(interp_open(&p, &m->t, &m->kv, 2, MOST, false, &err), err);
    one_by_one(p, m, s, N, want);
    for (int wide = 0; wide < 2; wide++) {
        begin(s, 0, 0, wide);
        for (int i = 0; i < N; i++) add_row(s, i);
        CHECK_OK(interp_run(p, s, &err), err);
        check_rows(wide ? "one wide step" : "one narrow step", interp_read(p, m->logits), want, N);
        memcpy(best, interp_read(p, m->best), sizeof best);
        for (int i = 0; i < N; i++)
            for (int j = 0; j < VOCAB; j++) CHECK(want[i * VOCAB + (int)best[i]] >= want[i * VOCAB + j] - 1e-11);
    }
    /* wide, then narrow, then narrow again with a commit */
    begin(s, 0, 0, 1);
    for (int i = 0; i < 11; i++) add_row(s, i);
    CHECK_OK(interp_run(p, s, &err), err);
    begin(s, 0, 11, 0);
    for (int i = 11; i < 20; i++) add_row(s, i);
    CHECK_OK(interp_run(p, s, &err), err);
    check_rows("narrow after wide", interp_read(p, m->logits), want + 11 * VOCAB, 9);
    begin(s, 0, 20, 0);
    commit_all(s, 9);
    for (int i = 20; i < N; i++) add_row(s, i);
    CHECK_OK(interp_run(p, s, &err), err);
    check_rows("narrow after a commit", interp_read(p, m->logits), want + 20 * VOCAB, N - 20);
    interp_close(p);
    mem_free(s);
    small_close(m);
}

TEST(interp_tree_rows_equal_the_chain_along_their_path)
{
    enum { PAST = 9, ROWS = 24 };
    static double want[MOST * VOCAB], tree[ROWS * VOCAB];
    struct small *m = small_open();
    struct step *s = mem_zero(sizeof *s);
    struct interp *p;
    luce_error err = { 0 };
    int token_of[ROWS];
    uint64_t path[ROWS];
    random_tokens();
    CHECK_OK(interp_open(&p, &m->t, &m->kv, 2, MOST, false, &err), err);
    begin(s, 0, 0, 1);
    for (int i = 0; i < PAST; i++) add_row(s, i);
    CHECK_OK(interp_run(p, s, &err), err);
    begin(s, 0, PAST, 0);
    for (int i = 0; i < ROWS; i++) {
        int parent = (int)(test_random() % (unsigned)(i + 1)) - 1;
        path[i] = (parent >= 0 ? path[parent] : 0) | (uint64_t)1 << i;
        struct step_row *r = add_row(s, PAST + __builtin_popcountll(path[i]) - 1);
        token_of[i] = r->token = (int)(test_random() % VOCAB);
        r->path = path[i];
    }
    CHECK_OK(interp_run(p, s, &err), err);
    memcpy(tree, interp_read(p, m->logits), sizeof tree);
    for (int leaf = 0; leaf < ROWS; leaf++) {
        int n = PAST;
        for (int j = 0; j <= leaf; j++)
            if (path[leaf] >> j & 1) tokens[n++] = token_of[j];
        one_by_one(p, m, s, n, want);
        check_rows("tree row", tree + leaf * VOCAB, want + (n - 1) * VOCAB, 1);
    }
    interp_close(p);
    mem_free(s);
    small_close(m);
}

TEST(interp_commits_the_accepted_path_of_a_tree)
{
    static double want[4 * VOCAB];
    struct small *m = small_open();
    struct step *s = mem_zero(sizeof *s);
    struct interp *p;
    luce_error err = { 0 };
    random_tokens();
    CHECK_OK(interp_open(&p, &m->t, &m->kv, 2, MOST, false, &err), err);
    one_by_one(p, m, s, 4, want);
    begin(s, 0, 0, 0);                      /* rows 0, 2 and 4 are the text; 1 and 3 are wrong guesses */
    static const int index[] = { 0, 1, 1, 2, 2 };
    static const uint64_t path[] = { 1, 3, 5, 13, 21 };
    for (int i = 0; i < 5; i++) {
        struct step_row *r = add_row(s, index[i]);
        r->path = path[i];
        if (i % 2) r->token = (r->token + 1) % VOCAB;
    }
    CHECK_OK(interp_run(p, s, &err), err);
    begin(s, 0, 3, 0);
    s->seq[0].n_commit = 3;
    for (int i = 0; i < 3; i++) s->seq[0].commit[i] = (uint8_t)(2 * i);
    add_row(s, 3);
    CHECK_OK(interp_run(p, s, &err), err);
    check_rows("after a tree", interp_read(p, m->logits), want + 3 * VOCAB, 1);
    interp_close(p);
    mem_free(s);
    small_close(m);
}

TEST(interp_keeps_sequences_apart)
{
    static double want[6 * VOCAB];
    struct small *m = small_open();
    struct step *s = mem_zero(sizeof *s);
    struct interp *p;
    luce_error err = { 0 };
    random_tokens();
    CHECK_OK(interp_open(&p, &m->t, &m->kv, 3, MOST, false, &err), err);
    one_by_one(p, m, s, 6, want);
    begin(s, 2, 0, 0);
    for (int i = 0; i < 6; i++) add_row(s, i);
    for (int i = 0; i < 4; i++) {           /* other rows of another sequence behind them */
        struct step_row *r = add_row(s, i);
        r->token = (int)(test_random() % VOCAB);
        r->seq = 1;
        r->path = ((uint64_t)2 << i) - 1;
    }
    s->head.n_seqs = 2;
    s->seq[0].n_rows = 6;
    s->seq[1] = (struct step_seq){ .slot = 0, .first_row = 6, .n_rows = 4 };
    CHECK_OK(interp_run(p, s, &err), err);
    check_rows("in company", interp_read(p, m->logits), want, 6);
    interp_close(p);
    mem_free(s);
    small_close(m);
}

TEST(interp_rounds_keys_and_values_when_asked)
{
    struct small *m = small_open();
    struct step *s = mem_zero(sizeof *s);
    struct interp *p, *exact;
    luce_error err = { 0 };
    random_tokens();
    CHECK_OK(interp_open(&p, &m->t, &m->kv, 1, MOST, true, &err), err);
    CHECK_OK(interp_open(&exact, &m->t, &m->kv, 1, MOST, false, &err), err);
    begin(s, 0, 0, 1);
    for (int i = 0; i < 5; i++) add_row(s, i);
    CHECK_OK(interp_run(p, s, &err), err);
    CHECK_OK(interp_run(exact, s, &err), err);
    for (int i = 0; i < DIM; i++) {
        double k = interp_k(exact, 0, 0, 4, 0)[i], v = interp_v(exact, 0, 0, 4, 0)[i];
        CHECK(interp_k(p, 0, 0, 4, 0)[i] == (double)f16_to_f32(f32_to_f16((float)k)));
        CHECK(interp_v(p, 0, 0, 4, 0)[i] == (double)f16_to_f32(f32_to_f16((float)v)));
    }
    interp_close(p);
    interp_close(exact);
    mem_free(s);
    small_close(m);
}

TEST(interp_refuses_steps_outside_its_room)
{
    struct small *m = small_open();
    struct step *s = mem_zero(sizeof *s);
    struct interp *p;
    luce_error err = { 0 };
    CHECK_OK(interp_open(&p, &m->t, &m->kv, 2, 8, false, &err), err);
    begin(s, 2, 0, 0);
    CHECK_EQ(interp_run(p, s, &err), LUCE_E_ARG);
    CHECK(strstr(err.text, "slot 2") && strstr(err.text, "8 positions"), "%s", err.text);
    begin(s, 0, 7, 1);
    add_row(s, 7);
    add_row(s, 8);
    CHECK_EQ(interp_run(p, s, &err), LUCE_E_ARG);
    begin(s, 0, 1, 0);
    commit_all(s, 2);
    CHECK_EQ(interp_run(p, s, &err), LUCE_E_ARG);
    interp_close(p);
    const uint8_t *host = m->w[3].host;
    m->w[3].host = NULL;
    CHECK_EQ(interp_open(&p, &m->t, &m->kv, 2, 8, false, &err), LUCE_E_ARG);
    CHECK(strstr(err.text, "no bytes") != NULL, "%s", err.text);
    CHECK_EQ(p, NULL);
    m->w[3].host = host;
    mem_free(s);
    small_close(m);
}

TEST(interp_survives_any_failed_allocation)
{
    struct small *m = small_open();
    struct step *s = mem_zero(sizeof *s);
    random_tokens();
    begin(s, 0, 0, 0);
    add_row(s, 0);
    size_t before = mem_live();
    for (int n = 0;; n++) {
        struct interp *p = NULL;
        luce_error err = { 0 };
        mem_fail_after(n);
        luce_status st = interp_open(&p, &m->t, &m->kv, 2, 16, true, &err);
        if (!st) st = interp_run(p, s, &err);
        mem_fail_never();
        interp_close(p);
        CHECK_EQ(mem_live(), before);
        if (st == LUCE_OK) break;
        CHECK_EQ(st, LUCE_E_NOMEM);
    }
    mem_free(s);
    small_close(m);
}
