/* spec/model.c - a small model of the same vocabulary as drafter. It has its own runner on the target's
 * device and one sequence for each of the target's. What its sequence holds is compared with the text
 * before each guess, and what differs (refused guesses) is forgotten; so it keeps in step by itself
 * with whatever happens to a text.
 *
 * All texts of a step are drafted together, one row each and pass. The likeliest token continues the
 * guess; when more nodes are wanted than a chain has, the next likely ones become leaves beside it. */
#include <string.h>

#include "base/mem.h"
#include "model/vocab_gguf.h"
#include "spec/drafter.h"
#include "spec/guesses.h"

enum { BRANCHES = 4 };              /* children of a node, at most */

struct follower {                   /* of one slot of the target */
    struct seq *seq;                /* NULL until its first use */
    int32_t *ids;                   /* [context] what the sequence holds */
    int n;                          /* at least seq_length */
};

struct drafter_state {
    struct gguf *file;
    struct vocab *vocab;
    struct runner *runner;
    struct sayable say;
    int context, n_slots;
    struct follower *slot;
};

static void close_model(struct drafter_state *s)
{
    if (!s) return;
    for (int i = 0; s->slot && i < s->n_slots; i++) {
        seq_close(s->slot[i].seq);
        mem_free(s->slot[i].ids);
    }
    runner_close(s->runner);
    vocab_close(s->vocab);
    gguf_close(s->file);
    mem_free(s->slot);
    mem_free(s);
}

static luce_status open_file(struct drafter_state *s, const struct drafter_env *env, luce_error *err)
{
    struct model *m = NULL;
    luce_status st = gguf_open(&s->file, env->path, err);
    if (!st && gguf_key(s->file, "tokenizer.ggml.model")) st = vocab_from_gguf(&s->vocab, s->file, err);
    if (!st && !s->vocab != !env->vocab)
        st = fail(err, LUCE_E_ARG, "%s: the %s has no vocabulary to compare with the other one's", env->path,
                  s->vocab ? "model" : "draft model");
    if (!st && s->vocab) st = drafter_check_vocab(env, s->vocab, err);
    if (!st) st = model_open(&m, s->file, err);
    if (st) return st;
    int context = cache_max_positions(runner_cache(env->target));
    s->context = context < m->c.context ? context : m->c.context;
    struct load_params p = { .device = runner_device(env->target), .context = s->context, .n_slots = s->n_slots,
                             .chunk = runner_chunk(env->target), .record = { .n_likely = BRANCHES },
                             .reuse = cache_reuse(runner_cache(env->target)),
                             .total_positions = cache_total_positions(runner_cache(env->target)) };
    return runner_open(&s->runner, m, &p, err);
}

static luce_status open_model(struct drafter_state **out, const struct drafter_env *env, luce_error *err)
{
    *out = NULL;
    struct drafter_state *s = mem_zero(sizeof *s);
    if (!s) return fail(err, LUCE_E_NOMEM, "out of memory for the draft model");
    s->n_slots = cache_slots(runner_cache(env->target));
    s->say = (struct sayable){ .n_tokens = runner_model(env->target)->c.vocab, .vocab = env->vocab };
    s->slot = mem_array((size_t)s->n_slots, sizeof *s->slot);
    luce_status st = s->slot ? open_file(s, env, err) : fail(err, LUCE_E_NOMEM, "out of memory for the draft model");
    if (st) close_model(s);
    else *out = s;
    return st;
}

/* A draft in the making. */
struct pass {
    struct draft *draft;
    struct follower *f;
    int32_t token;                  /* fed next, once the text itself is */
    int node;                       /* of the tree, whose children come next */
    int rows, out;
};

/* False when this text cannot be drafted: too long, or a token that the draft model does not have. */
static bool can_draft(const struct drafter_state *s, const struct draft *d, const struct follower *f)
{
    if (d->n_ids > s->context) return false;
    for (int i = f->n; i < d->n_ids; i++)
        if (d->ids[i] >= runner_model(s->runner)->c.vocab) return false;
    return true;
}

/* Makes the follower hold a prefix of the text, all but the last few tokens. */
static luce_status catch_up(struct drafter_state *s, struct draft *d, struct follower *f, int most_left,
                            luce_error *err)
{
    if (!f->ids) f->ids = mem_array((size_t)s->context, sizeof *f->ids);
    if (!f->ids) return fail(err, LUCE_E_NOMEM, "out of memory for %d tokens of a draft", s->context);
    luce_status st = f->seq ? LUCE_OK : seq_open(&f->seq, runner_cache(s->runner), err);
    if (st) return st;
    int same = 0;
    while (same < f->n && same < d->n_ids - 1 && f->ids[same] == d->ids[same]) same++;
    if (same < seq_length(f->seq)) seq_truncate(f->seq, same);
    if (seq_length(f->seq) == same && d->n_ids - same > most_left) {
        int held = seq_claim(f->seq, d->ids, d->n_ids - 1);     /* of a text that another slot had */
        if (held > same) memcpy(f->ids, d->ids, (size_t)held * sizeof *f->ids);
    }
    f->n = same = seq_length(f->seq);
    if (!can_draft(s, d, f)) {
        d->most = 0;
        return LUCE_OK;
    }
    if (d->n_ids - same <= most_left) return LUCE_OK;
    st = runner_prefill(s->runner, f->seq, d->ids + same, d->n_ids - 1 - same, NULL, NULL, err);
    f->n = seq_length(f->seq);
    memcpy(f->ids, d->ids, (size_t)f->n * sizeof *f->ids);
    return st;
}

/* Adds the children of p->node. */
static luce_status grow(struct drafter_state *s, struct pass *p, luce_error *err)
{
    struct candidates c;
    luce_status st = guesses_read(s->runner, &s->say, p->out, 1, &c, err);
    if (!st) p->node = guesses_grow(p->draft, p->node, &c, &p->token);
    return st;
}

/* Rows of the next pass: what the text has more, then the guess before. */
static luce_status add_rows(struct drafter_state *s, struct pass *p, luce_error *err)
{
    struct follower *f = p->f;
    const struct draft *d = p->draft;
    const int32_t *from = p->node == 0 ? d->ids + f->n : &p->token;
    p->rows = p->node == 0 ? d->n_ids - f->n : 1;
    luce_status st = runner_add(s->runner, f->seq, from, NULL, p->rows, WANT_LAST, &p->out, err);
    if (st) return st;
    memcpy(f->ids + f->n, from, (size_t)p->rows * sizeof *from);
    return LUCE_OK;
}

/* One pass for all drafts that go deeper than `depth`. *again: some had rows. */
static luce_status run_pass(struct drafter_state *s, struct pass *pass, int n, int depth, bool *again,
                            luce_error *err)
{
    *again = false;
    runner_begin(s->runner, STEP_NARROW);
    for (int i = 0; i < n; i++) {
        struct pass *p = &pass[i];
        p->rows = 0;
        bool full = p->f->n + 1 > s->context;
        if (p->node < 0 || full || depth >= p->draft->depth || depth >= p->draft->most) continue;
        luce_status st = add_rows(s, p, err);
        if (st) return st;
        *again = true;
    }
    luce_status st = *again ? runner_run(s->runner, err) : LUCE_OK;
    for (int i = 0; i < n && !st; i++) {
        if (pass[i].rows == 0) continue;
        seq_accept(pass[i].f->seq, NULL, pass[i].rows);
        pass[i].f->n += pass[i].rows;
        st = grow(s, &pass[i], err);
    }
    return st;
}

static luce_status propose(struct drafter_state *s, struct draft *const *drafts, int n, luce_error *err)
{
    struct pass pass[STEP_SEQS];
    luce_status st = LUCE_OK;
    bool again = true;
    for (int i = 0; i < n && !st; i++) {
        pass[i] = (struct pass){ .draft = drafts[i], .f = &s->slot[drafts[i]->slot] };
        if (drafts[i]->most > 0) st = catch_up(s, drafts[i], pass[i].f, NARROW_ROWS / n, err);
    }
    for (int depth = 0; again && !st; depth++) st = run_pass(s, pass, n, depth, &again, err);
    for (int i = 0; i < n && !st; i++) tree_prune(&drafts[i]->tree, drafts[i]->most + 1);
    return st;
}

const struct drafter drafter_model = {
    .name = "draft-model", .doc = "a small model with the same vocabulary (--draft FILE)",
    .takes_file = true, .costs = GUESS_BY_DEPTH, .most = 5, .block = 6,
    .open = open_model, .propose = propose, .close = close_model,
};
