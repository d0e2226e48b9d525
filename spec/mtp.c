/* spec/mtp.c - the model's own block for further tokens (model/mtp.h) as drafter. It attends to all positions of a
 * text, so each text has a sequence there (spec/follow.h): its row of a position takes that position's hidden state
 * and the token that follows. A guess goes on from the last row, one pass a token, with the block's own hidden
 * states; those rows are forgotten when the guess is done. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/mtp.h"
#include "spec/follow.h"
#include "spec/guesses.h"

struct drafter_state {
    struct runner *runner;
    struct sayable say;
    const struct model *target;
    struct followers texts;
    float *hidden;                  /* [STEP_SEQS][embd] the last hidden state of each guess in the making */
};

static void close_mtp(struct drafter_state *s)
{
    if (!s) return;
    followers_close(&s->texts);
    runner_close(s->runner);
    mem_free(s->hidden);
    mem_free(s);
}

/* Checks that there is a block, and asks for what goes into the target's final norm. */
static luce_status prepare(const struct drafter_env *env, struct record_params *record, luce_error *err)
{
    struct model *m;
    luce_status st = mtp_open(&m, env->model, err);
    if (st) return st;
    model_close(m);
    record->n_taps = 1;
    record->tap_layer[0] = env->model->c.n_layers - 1;
    return LUCE_OK;
}

/* ---- rows ---------------------------------------------------------------------------------------- */
/* The target's final norm, in place. */
static void finish_hidden(const struct drafter_state *s, float *x)
{
    const float *w = (const float *)(const void *)s->target->output_norm->host;
    int n = s->target->c.embd;
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    float scale = (float)(1 / sqrt(sum / n + (double)s->target->c.eps));
    for (int i = 0; i < n; i++) x[i] = x[i] * scale * w[i];
}

/* Adds the first n of what waits of a text to the step; *out: its first wanted row there. */
static luce_status add_waiting(struct drafter_state *s, struct follower *f, const int32_t *ids, int n, enum want want,
                               int *out, luce_error *err)
{
    for (int i = 0; i < n; i++) finish_hidden(s, f->waiting + (size_t)i * (size_t)s->texts.embd);
    return runner_add(s->runner, f->seq, ids + f->end - f->n_waiting + 1, NULL, n, want, out, err);
}

static luce_status give(struct drafter_state *s, int row, int n, const float *hidden, luce_error *err)
{
    return runner_give(s->runner, runner_record(s->runner)->given, row, n, hidden, err);
}

static luce_status feed(struct drafter_state *s, struct follower *f, const int32_t *ids, int n, luce_error *err)
{
    size_t row = (size_t)s->texts.embd;
    runner_begin(s->runner, STEP_NARROW);
    luce_status st = add_waiting(s, f, ids, n, WANT_NONE, NULL, err);
    if (!st) st = give(s, 0, n, f->waiting, err);
    if (!st) st = runner_queue(s->runner, err);
    if (st) return st;
    seq_accept(f->seq, NULL, n);
    f->n_waiting -= n;
    memmove(f->waiting, f->waiting + (size_t)n * row, (size_t)f->n_waiting * row * sizeof *f->waiting);
    return LUCE_OK;
}

/* ---- guesses ------------------------------------------------------------------------------------- */
struct pass {                       /* a guess in the making */
    struct draft *draft;
    struct follower *f;
    float *hidden;                  /* of the row before the next one */
    int32_t token;                  /* of the next row */
    int node;                       /* of the tree, whose children come next; -1: done */
    int held;                       /* rows that stay when the guess is done */
    int rows, first, out;           /* in this step */
};

/* Rows of the first pass: what waits, or, where the features of the end are missing, a row without a state. */
static luce_status add_first(struct drafter_state *s, struct pass *p, int *at, luce_error *err)
{
    struct follower *f = p->f;
    const struct draft *d = p->draft;
    bool whole = f->end == d->n_ids - 1 && f->n_waiting;
    int origin = seq_origin(f->seq);
    p->first = *at;
    p->rows = whole ? f->n_waiting : 1;
    p->held = seq_length(f->seq) + (whole ? p->rows : 0);
    *at += p->rows;
    if (whole) return add_waiting(s, f, d->ids, f->n_waiting, WANT_LAST, &p->out, err);
    memset(p->hidden, 0, (size_t)s->texts.embd * sizeof *p->hidden);
    seq_set_origin(f->seq, d->n_ids - 2 - seq_length(f->seq));
    luce_status st = runner_add(s->runner, f->seq, d->ids + d->n_ids - 1, NULL, 1, WANT_LAST, &p->out, err);
    seq_set_origin(f->seq, origin);
    return st;
}

static luce_status add_next(struct drafter_state *s, struct pass *p, int *at, luce_error *err)
{
    p->first = (*at)++;
    p->rows = 1;
    return runner_add(s->runner, p->f->seq, &p->token, NULL, 1, WANT_LAST, &p->out, err);
}

/* Runs the step of these guesses and adds a depth to their trees. */
static luce_status run(struct drafter_state *s, struct pass *pass, int n, bool first, luce_error *err)
{
    const struct record *r = runner_record(s->runner);
    luce_status st = LUCE_OK;
    for (int i = 0; i < n && !st; i++) {
        struct pass *p = &pass[i];
        bool waiting = first && p->f->n_waiting && p->held > seq_length(p->f->seq);
        if (p->rows) st = give(s, p->first, p->rows, waiting ? p->f->waiting : p->hidden, err);
    }
    if (!st) st = runner_queue(s->runner, err);
    for (int i = 0; i < n && !st; i++) {
        struct pass *p = &pass[i];
        if (p->rows == 0) continue;
        seq_accept(p->f->seq, NULL, p->rows);
        if (first && seq_length(p->f->seq) == p->held) p->f->n_waiting = 0;
        struct candidates c;
        st = runner_read(s->runner, r->hidden, p->out, 1, p->hidden, err);      /* waits for the rest, too */
        if (!st) st = guesses_read(s->runner, &s->say, p->out, 1, &c, err);
        if (!st) p->node = guesses_grow(p->draft, p->node, &c, &p->token);
    }
    return st;
}

/* The first pass of guesses from `from` on, as many as one step takes; *to: the first that it does not. */
static luce_status run_first(struct drafter_state *s, struct pass *pass, int from, int n, int *to, luce_error *err)
{
    int rows = 0;
    luce_status st = LUCE_OK;
    runner_begin(s->runner, STEP_NARROW);
    for (*to = from; *to < n && !st; ++*to) {
        if (*to > from && rows + (pass[*to].f->n_waiting ? pass[*to].f->n_waiting : 1) > NARROW_ROWS) break;
        st = add_first(s, &pass[*to], &rows, err);
    }
    return st ? st : run(s, pass + from, *to - from, true, err);
}

static luce_status run_next(struct drafter_state *s, struct pass *pass, int n, int depth, bool *again, luce_error *err)
{
    int rows = 0;
    luce_status st = LUCE_OK;
    runner_begin(s->runner, STEP_NARROW);
    for (int i = 0; i < n && !st; i++) {
        struct pass *p = &pass[i];
        p->rows = 0;
        bool full = seq_origin(p->f->seq) + seq_length(p->f->seq) >= s->texts.context;
        if (p->node < 0 || full || depth >= p->draft->depth || depth >= p->draft->most) continue;
        st = add_next(s, p, &rows, err);
    }
    *again = rows > 0;
    return st || !*again ? st : run(s, pass, n, false, err);
}

static luce_status propose(struct drafter_state *s, struct draft *const *drafts, int n, luce_error *err)
{
    struct pass pass[STEP_SEQS];
    luce_status st = LUCE_OK;
    bool again = true;
    for (int i = 0; i < n && !st; i++) {
        st = follow(&s->texts, drafts[i]->slot, drafts[i]->ids, drafts[i]->n_ids - 1, err);
        if (st) return st;
        struct follower *f = &s->texts.slot[drafts[i]->slot];
        pass[i] = (struct pass){ .draft = drafts[i], .f = f, .held = seq_length(f->seq),
                                 .hidden = s->hidden + (size_t)i * (size_t)s->texts.embd };
    }
    for (int from = 0, to = 0; from < n && !st; from = to) st = run_first(s, pass, from, n, &to, err);
    for (int depth = 1; again && !st; depth++) st = run_next(s, pass, n, depth, &again, err);
    for (int i = 0; i < n; i++) {
        if (seq_length(pass[i].f->seq) > pass[i].held) seq_truncate(pass[i].f->seq, pass[i].held);
        tree_prune(&drafts[i]->tree, drafts[i]->most + 1);
    }
    return st;
}

static luce_status observe(struct drafter_state *s, const struct observed *o, luce_error *err)
{
    return follow_observe(&s->texts, o, err);
}

/* ---- opening ------------------------------------------------------------------------------------- */
static luce_status load(struct drafter_state *s, const struct drafter_env *env, luce_error *err)
{
    struct followers *fs = &s->texts;
    struct model *m;
    luce_status st = mtp_open(&m, env->model, err);
    if (st) return st;
    *fs = (struct followers){ .target = env->target, .state = s, .feed = feed, .n_taps = 1, .ahead = 1,
                              .embd = m->c.embd,
                              .context = cache_max_positions(runner_cache(env->target)),
                              .n_slots = cache_slots(runner_cache(env->target)) };
    struct load_params p = { .device = runner_device(env->target), .context = fs->context, .n_slots = fs->n_slots,
                             .chunk = FOLLOW_WAITING,
                             .reuse = cache_reuse(runner_cache(env->target)),
                             .total_positions = cache_total_positions(runner_cache(env->target)) };
    st = runner_open(&s->runner, m, &p, err);
    fs->runner = s->runner;
    if (!st) st = followers_open(fs, err);
    if (st) return st;
    s->hidden = mem_array((size_t)STEP_SEQS * (size_t)fs->embd, sizeof *s->hidden);
    return s->hidden ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory for the drafter");
}

static luce_status open_mtp(struct drafter_state **out, const struct drafter_env *env, luce_error *err)
{
    *out = NULL;
    struct drafter_state *s = mem_zero(sizeof *s);
    if (!s) return fail(err, LUCE_E_NOMEM, "out of memory for the drafter");
    s->say = (struct sayable){ .n_tokens = env->model->c.vocab, .vocab = env->vocab };
    s->target = env->model;
    luce_status st = load(s, env, err);
    if (st) close_mtp(s);
    else *out = s;
    return st;
}

extern const struct drafter drafter_mtp;
const struct drafter drafter_mtp = {
    .name = "mtp", .doc = "further tokens by the model's own block for them, where its file has one (Qwen3.5)",
    .costs = GUESS_BY_DEPTH, .most = 3, .block = 4, .prepare = prepare, .open = open_mtp, .observe = observe,
    .propose = propose, .close = close_mtp,
};
