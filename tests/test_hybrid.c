/* tests/test_hybrid.c - models with recurrent layers: however a text is fed, cut, guessed at, restored from a
 * checkpoint or shared, its logits have the bits of feeding it row by row. */
#include "gguf/writer.h"
#include "model_drive.h"
#include "run/runner.h"

enum { TEXT = 300, SEQS = 5 };

struct rig {
    struct gguf *file;
    struct device *device;
    struct runner *runner;
    int vocab;
    int32_t text[TEXT];
    float *want, *got;              /* [TEXT][vocab], one row */
};

static bool rig_open_file(struct rig *g, const char *path, int n_slots)
{
    struct model *m = NULL;
    luce_error err = { 0 };
    *g = (struct rig){ 0 };
    luce_status st = gguf_open(&g->file, path, &err);
    if (!st) st = device_open(&g->device, "cpu", &(struct device_params){ .n_threads = 2 }, &err);
    if (!st) st = model_open(&m, g->file, &err);
    struct load_params p = { .device = g->device, .context = 400, .n_slots = n_slots, .chunk = 100 };
    if (!st) st = runner_open(&g->runner, m, &p, &err);
    CHECK_OK(st, err);
    if (st) return false;
    g->vocab = runner_model(g->runner)->c.vocab;
    g->want = mem_array(TEXT * (size_t)g->vocab, sizeof(float));
    g->got = mem_array((size_t)g->vocab, sizeof(float));
    for (int i = 0; i < TEXT; i++) g->text[i] = (int32_t)(test_random() % (uint64_t)g->vocab);
    return g->want && g->got;
}

static bool rig_open(struct rig *g, const char *name, int n_slots)
{
    char path[64];
    snprintf(path, sizeof path, "oracle/%s.gguf", name);
    return rig_open_file(g, fixture(path), n_slots);
}

static void rig_close(struct rig *g)
{
    runner_close(g->runner);
    device_close(g->device);
    gguf_close(g->file);
    mem_free(g->want);
    mem_free(g->got);
}

static struct seq *open_seq(struct rig *g)
{
    struct seq *s = NULL;
    luce_error err = { 0 };
    CHECK_OK(seq_open(&s, runner_cache(g->runner), &err), err);
    return s;
}

/* The text row by row: what everything else is compared with. */
static void feed_plain(struct rig *g)
{
    struct seq *s = open_seq(g);
    luce_error err = { 0 };
    for (int i = 0; i < TEXT; i++) {
        runner_begin(g->runner, STEP_NARROW);
        CHECK_OK(runner_add(g->runner, s, g->text + i, NULL, 1, WANT_LAST, NULL, &err), err);
        CHECK_OK(runner_run(g->runner, &err), err);
        CHECK_OK(runner_logits(g->runner, 0, g->want + (size_t)i * (size_t)g->vocab, &err), err);
        seq_accept(s, NULL, 1);
    }
    seq_discard(s);
    seq_close(s);
}

/* Logits of wanted row `out` are those of position `at`. */
static void check_row(struct rig *g, int out, int at, const char *how)
{
    luce_error err = { 0 };
    CHECK_OK(runner_logits(g->runner, out, g->got, &err), err);
    CHECK(!memcmp(g->got, g->want + (size_t)at * (size_t)g->vocab, (size_t)g->vocab * sizeof(float)),
          "%s: position %d", how, at);
}

/* Feeds positions up to `to` in prompt steps. */
static void prefill(struct rig *g, struct seq *s, int to, const char *how)
{
    luce_error err = { 0 };
    int from = seq_length(s);
    if (from == to) return;
    CHECK_OK(runner_prefill(g->runner, s, g->text + from, to - from, NULL, NULL, &err), err);
    check_row(g, 0, to - 1, how);
}

/* One step with a random tree that holds the true text along one path; that path, or a part, is accepted. */
struct guess {
    int32_t token[NARROW_ROWS];
    int parent[NARROW_ROWS], n, depth;
    uint8_t path[NARROW_ROWS];
};

static struct guess make_guess(const struct rig *g, int at, int most)
{
    struct guess t = { .n = 1 };
    t.token[0] = g->text[at];
    t.parent[0] = -1;
    t.depth = 1;
    int n = 1 + (int)(test_random() % (uint64_t)most), tip = 0;
    while (t.n < n) {
        bool right = test_random() % 2 && at + t.depth < TEXT - 1;
        t.parent[t.n] = right ? tip : (int)(test_random() % (uint64_t)t.n);
        t.token[t.n] = right ? g->text[at + t.depth] : (int32_t)(test_random() % (uint64_t)g->vocab);
        if (right) {
            t.path[t.depth++] = (uint8_t)t.n;
            tip = t.n;
        }
        t.n++;
    }
    return t;
}

/* All sequences go on by guesses, together, until they are at `to`. */
static void decode(struct rig *g, struct seq **s, int n, int to, const char *how)
{
    luce_error err = { 0 };
    for (bool again = true; again;) {
        struct guess t[SEQS];
        int out[SEQS];
        again = false;
        runner_begin(g->runner, STEP_NARROW);
        for (int i = 0; i < n; i++) {
            t[i].n = 0;
            if (seq_length(s[i]) >= to) continue;
            t[i] = make_guess(g, seq_length(s[i]), NARROW_ROWS / n);
            CHECK_OK(runner_add(g->runner, s[i], t[i].token, t[i].parent, t[i].n, WANT_ALL, &out[i], &err), err);
            again = true;
        }
        if (!again) break;
        CHECK_OK(runner_run(g->runner, &err), err);
        for (int i = 0; i < n; i++) {
            if (!t[i].n) continue;
            int at = seq_length(s[i]), keep = 1 + (int)(test_random() % (uint64_t)t[i].depth);
            if (keep > to - at) keep = to - at;
            for (int d = 0; d < t[i].depth; d++) check_row(g, out[i] + t[i].path[d], at + d, how);
            seq_accept(s[i], t[i].path, keep);
        }
    }
}

static const char *const cases[] = { "qwen35", "qwen35moe", "qwen3next" };

TEST(hybrid_logits_do_not_depend_on_cuts_guesses_or_company)
{
    for (size_t c = 0; c < COUNT(cases); c++) {
        struct rig g;
        if (!rig_open(&g, cases[c], SEQS)) continue;
        feed_plain(&g);
        struct seq *s[SEQS];
        for (int i = 0; i < SEQS; i++) {
            s[i] = open_seq(&g);
            prefill(&g, s[i], 1 + (int)(test_random() % 150), cases[c]);
        }
        for (int n = SEQS; n > 0; n--) decode(&g, s, n, TEXT - 20 * n, cases[c]);
        prefill(&g, s[0], TEXT, "a prompt after guesses");
        for (int i = 0; i < SEQS; i++) seq_close(s[i]);
        rig_close(&g);
    }
}

TEST(hybrid_sequences_go_back_to_checkpoints_and_give_the_same_bits)
{
    struct rig g;
    if (!rig_open(&g, "qwen35", 2)) return;
    feed_plain(&g);
    struct seq *s = open_seq(&g), *other = open_seq(&g);
    prefill(&g, s, 150, "prompt");
    int at[8], n = seq_checkpoints(s, at, 8);
    CHECK(n == 1 && at[0] == 128, "%d checkpoints, the first at %d", n, at[0]);
    decode(&g, &s, 1, 290, "first turn");
    decode(&g, &s, 1, 291, "one row more, so that no more than it is still to be committed");
    n = seq_checkpoints(s, at, 8);                      /* the prompt's end and the newest boundary */
    CHECK(n == 2 && at[0] == 128 && at[1] == 256, "%d checkpoints at %d and %d", n, at[0], at[1]);
    prefill(&g, other, 77, "another text in between");
    CHECK_EQ(seq_truncate(s, 280), 256);                /* at most a page is computed again */
    prefill(&g, s, TEXT, "the newest checkpoint");
    CHECK_EQ(seq_truncate(s, 140), 128);
    decode(&g, &s, 1, 200, "the prompt's checkpoint");
    CHECK_EQ(seq_truncate(s, 100), 64);                 /* which the other one left */
    prefill(&g, s, 90, "another text's checkpoint");
    CHECK_EQ(seq_truncate(s, 63), 0);
    prefill(&g, s, 80, "from the start");
    seq_close(s);
    seq_close(other);
    rig_close(&g);
}

TEST(hybrid_sequences_share_a_prefix_that_has_a_checkpoint)
{
    struct rig g;
    if (!rig_open(&g, "qwen3next", 2)) return;
    feed_plain(&g);
    struct seq *s = open_seq(&g), *t = open_seq(&g);
    prefill(&g, s, 250, "prompt");
    CHECK_EQ(seq_claim(t, g.text, 191), 0);
    CHECK_EQ(seq_claim(t, g.text, TEXT), 192);
    seq_close(s);
    CHECK_EQ(seq_length(t), 192);
    decode(&g, &t, 1, 280, "after sharing");
    CHECK_EQ(seq_truncate(t, 200), 192);
    prefill(&g, t, TEXT, "the shared checkpoint again");
    seq_close(t);
    rig_close(&g);
}

TEST(hybrid_checkpoints_are_thinned_out_when_there_is_no_room)
{
    struct rig g;
    luce_error err = { 0 };
    if (!rig_open(&g, "qwen35_equal", 1)) return;
    struct seq *s = open_seq(&g);
    for (int i = 0; i < 6; i++) {
        CHECK_OK(runner_prefill(g.runner, s, g.text, PAGE, NULL, NULL, &err), err);
        seq_turn(s);
    }
    int at[8], n = seq_checkpoints(s, at, 8);
    CHECK(n == CHECKPOINTS && at[0] == PAGE && at[n - 1] == 6 * PAGE, "%d from %d to %d", n, at[0], at[n - 1]);
    seq_close(s);
    rig_close(&g);
}

/* Writes the tensor of both halves of each expert's rows, the gate's first; false when t is no gate. */
static bool join_experts(struct gguf_writer *w, const struct gguf *g, const struct gguf_tensor *t, struct buf *both)
{
    char name[64];
    int layer, end = 0;
    if (sscanf(t->name, "blk.%d.ffn_gate_exps.weight%n", &layer, &end) != 1 || t->name[end]) return false;
    snprintf(name, sizeof name, "blk.%d.ffn_up_exps.weight", layer);
    const struct gguf_tensor *up = gguf_find(g, name);
    size_t at = both->len, each = (size_t)(t->bytes / t->dim[2]);
    for (size_t e = 0; up && e < t->dim[2]; e++) {
        buf_add(both, t->data + e * each, each);
        buf_add(both, up->data + e * each, each);
    }
    snprintf(name, sizeof name, "blk.%d.ffn_gate_up_exps.weight", layer);
    gguf_add_tensor(w, &(struct gguf_source){ .name = name, .dim = { t->dim[0], 2 * t->dim[1], t->dim[2] }, .n_dims = 3,
                                              .type = t->type, .data = both->data + at });
    return true;
}

static const char *with_joined_experts(const char *from)
{
    struct gguf *g = NULL;
    struct gguf_writer w = { 0 };
    struct buf both = { 0 };
    luce_error err = { 0 };
    const char *path = scratch("joined.gguf");
    CHECK_OK(gguf_open(&g, from, &err), err);
    CHECK(buf_reserve(&both, 1 << 20));         /* it must not move */
    for (size_t i = 0; g && i < gguf_n_keys(g); i++) gguf_add_key(&w, gguf_key_at(g, i));
    for (size_t i = 0; g && i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (join_experts(&w, g, t, &both) || strstr(t->name, "ffn_up_exps")) continue;
        struct gguf_source s = { .name = t->name, .n_dims = t->n_dims, .type = t->type, .data = t->data };
        memcpy(s.dim, t->dim, sizeof s.dim);
        gguf_add_tensor(&w, &s);
    }
    CHECK_OK(gguf_write(&w, path, &err), err);
    gguf_writer_drop(&w);
    buf_drop(&both);
    gguf_close(g);
    return path;
}

TEST(hybrid_experts_may_have_gate_and_up_in_one_tensor)
{
    struct rig g, j;
    luce_error err = { 0 };
    if (!rig_open(&g, "qwen35moe", 1) || !rig_open_file(&j, with_joined_experts(fixture("oracle/qwen35moe.gguf")), 1)) return;
    CHECK(gguf_find(j.file, "blk.0.ffn_gate_up_exps.weight") && !gguf_find(j.file, "blk.0.ffn_gate_exps.weight"));
    CHECK_OK(model_check_weights(runner_model(j.runner), &err), err);
    memcpy(j.text, g.text, sizeof g.text);
    feed_plain(&g);
    feed_plain(&j);
    CHECK(!memcmp(g.want, j.want, TEXT * (size_t)g.vocab * sizeof *g.want), "other logits");
    rig_close(&j);
    rig_close(&g);
}
