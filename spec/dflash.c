/* spec/dflash.c - DFlash and DFlash2 as drafters (model/dflash.h). The outputs of some layers of the target,
 * for every position of a text, go into the drafter's own cache; a guess is one pass over a block that sees
 * them. Each text has a sequence there (spec/follow.h), filled by the drafter's wide pass. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/dflash.h"
#include "model/vocab_gguf.h"
#include "spec/ddtree.h"
#include "spec/follow.h"
#include "spec/guesses.h"

/* Of a slot: what was guessed behind a step of the target, before it was known what that keeps. */
struct ahead {
    struct foresight of;            /* block 0: nothing */
    int first;                      /* wanted row of depth 1 */
    int n_ids;                      /* of the text if it has come true, until then 0 */
};

struct drafter_state {
    struct runner *runner;
    struct sayable say;
    const struct dflash *d;
    struct followers texts;
    float *code;                    /* [NARROW_ROWS][rank] e of each wanted row, then one row of P and of S */
    struct candidates guess[NARROW_ROWS];   /* of each wanted row */
    int first;                      /* wanted row of depth 1 of the text whose tree is being built */
    struct ahead ahead[STEP_SEQS];
};

static void close_dflash(struct drafter_state *s)
{
    if (!s) return;
    followers_close(&s->texts);
    runner_close(s->runner);
    mem_free(s->code);
    mem_free(s);
}

static luce_status check_kind(const struct gguf *g, bool second, luce_error *err)
{
    bool is_second;
    if (!dflash_is(g, &is_second) || is_second == second) return LUCE_OK;
    return fail(err, LUCE_E_ARG, "%s is a drafter of the kind dflash%s, not dflash%s: leave --spec out, or name the "
                "right one", gguf_path(g), is_second ? "2" : "", second ? "2" : "");
}

/* The model, checked; its tokens too, where it has a vocabulary of its own. */
static luce_status open_checked(struct model **m, const struct drafter_env *env, bool second, luce_error *err)
{
    struct gguf *g;
    struct vocab *own = NULL;
    *m = NULL;
    luce_status st = dflash_file(&g, env->path, err);
    if (st) return st;
    st = check_kind(g, second, err);
    if (!st && env->vocab && gguf_key(g, "tokenizer.ggml.model")) {
        st = vocab_from_gguf(&own, g, err);
        if (!st) st = drafter_check_vocab(env, own, err);
        vocab_close(own);
    }
    if (!st) st = dflash_open_file(m, g, env->model, err);
    if (st) gguf_close(g);
    return st;
}

static luce_status prepare(const struct drafter_env *env, bool second, struct record_params *record, luce_error *err)
{
    struct model *m;
    luce_status st = open_checked(&m, env, second, err);
    if (st) return st;
    const struct dflash *d = dflash_of(m);
    record->ahead = true;
    record->n_taps = d->n_taps;
    memcpy(record->tap_layer, d->tap, sizeof record->tap_layer);
    model_close(m);
    return LUCE_OK;
}

static luce_status load(struct drafter_state *s, struct model *m, luce_error *err)
{
    struct followers *fs = &s->texts;
    s->d = dflash_of(m);
    fs->n_taps = s->d->n_taps;
    fs->embd = m->c.embd;
    fs->held = true;
    size_t codes = (NARROW_ROWS + 2) * (size_t)s->d->rank;
    /* Room for a block behind the last position. */
    struct load_params p = { .device = runner_device(fs->target), .context = fs->context + NARROW_ROWS,
                             .n_slots = fs->n_slots, .chunk = FOLLOW_WAITING,
                             .reuse = cache_reuse(runner_cache(fs->target)),
                             .total_positions = cache_total_positions(runner_cache(fs->target)) +
                                                (int64_t)fs->n_slots * NARROW_ROWS };
    luce_status st = runner_open(&s->runner, m, &p, err);
    fs->runner = s->runner;
    if (!st) st = followers_open(fs, err);
    if (st) return st;
    s->say.token = s->d->ids;
    if (codes) s->code = mem_array(codes, sizeof *s->code);
    if (!codes || s->code) return LUCE_OK;
    return fail(err, LUCE_E_NOMEM, "out of memory for the drafter");
}

/* ---- features ------------------------------------------------------------------------------------ */
/* What waits of these texts goes through the drafter, in one step. */
static luce_status feed(struct drafter_state *s, struct follower *const *f, int n, luce_error *err)
{
    int rows = 0, row[STEP_SEQS];
    luce_status st = LUCE_OK;
    runner_begin(s->runner, STEP_WIDE);
    for (int i = 0; i < n && !st; i++) {
        row[i] = rows;
        if (f[i]->n_waiting == 0) continue;
        st = runner_add(s->runner, f[i]->seq, f[i]->ids + f[i]->end - f[i]->n_waiting, NULL, f[i]->n_waiting, WANT_NONE,
                        NULL, err);
        rows += f[i]->n_waiting;
    }
    if (rows == 0 || st) return st;
    for (int i = 0; i < n && !st; i++)
        if (f[i]->n_waiting)
            st = runner_give_held(s->runner, runner_record(s->runner)->given, row[i], f[i]->n_waiting, f[i]->waiting,
                                  err);
    if (!st) st = runner_queue(s->runner, err);
    for (int i = 0; i < n && !st; i++) f[i]->n_waiting = 0;
    return st;
}

static luce_status feed_one(struct drafter_state *s, struct follower *f, const int32_t *ids, int n, luce_error *err)
{
    (void)ids, (void)n;
    return feed(s, &f, 1, err);
}

/* The same in as many steps as the rows take. */
static luce_status feed_all(struct drafter_state *s, struct draft *const *drafts, int n, luce_error *err)
{
    luce_status st = LUCE_OK;
    for (int from = 0, to; from < n && !st; from = to) {
        struct follower *some[STEP_SEQS];
        int rows = 0;
        for (to = from; to < n; to++) {
            struct follower *f = &s->texts.slot[drafts[to]->slot];
            if (to > from && rows + f->n_waiting > FOLLOW_WAITING) break;
            rows += f->n_waiting;
            some[to - from] = f;
        }
        st = feed(s, some, to - from, err);
    }
    return st;
}

/* ---- opening ------------------------------------------------------------------------------------- */
static luce_status open_dflash(struct drafter_state **out, const struct drafter_env *env, bool second, luce_error *err)
{
    struct model *m = NULL;
    *out = NULL;
    struct drafter_state *s = mem_zero(sizeof *s);
    if (!s) return fail(err, LUCE_E_NOMEM, "out of memory for the drafter");
    s->say = (struct sayable){ .n_tokens = env->model->c.vocab, .vocab = env->vocab };
    s->texts = (struct followers){ .target = env->target, .state = s, .feed = feed_one,
                                   .context = cache_max_positions(runner_cache(env->target)),
                                   .n_slots = cache_slots(runner_cache(env->target)) };
    luce_status st = open_checked(&m, env, second, err);
    if (!st) st = load(s, m, err);
    if (st) close_dflash(s);
    else *out = s;
    return st;
}

static int block_of(const struct drafter_state *s)
{
    return s->d->block;
}

/* ---- guesses ------------------------------------------------------------------------------------- */
/* log of their share in the sum of the candidates. */
static void normalise(struct candidates *c)
{
    double sum = 0;
    float max = c->n ? c->log_likely[0] : 0;
    for (int i = 0; i < c->n; i++) sum += (double)expf(c->log_likely[i] - max);
    for (int i = 0; i < c->n; i++) c->log_likely[i] -= max + (float)log(sum);
}

/* DFlash2: the order of the candidates depends on the token before. */
static void select_after(struct drafter_state *s, int row, int32_t after, struct candidates *out)
{
    const struct dflash *d = s->d;
    const struct candidates *from = &s->guess[row];
    const float *e = s->code + (size_t)row * (size_t)d->rank;
    float *before = s->code + (size_t)NARROW_ROWS * (size_t)d->rank, *code = before + d->rank;
    dflash_code(d, d->before, after, before);
    *out = (struct candidates){ .n = 0 };
    for (int i = 0; i < from->n; i++) {
        float score = from->log_likely[i];
        dflash_code(d, d->after, from->token[i], code);
        for (int r = 0; r < d->rank; r++) score += before[r] * e[r] * code[r];
        int at = out->n++;
        for (; at > 0 && score > out->log_likely[at - 1]; at--) {
            out->log_likely[at] = out->log_likely[at - 1];
            out->token[at] = out->token[at - 1];
        }
        out->log_likely[at] = score;
        out->token[at] = from->token[i];
    }
    normalise(out);
}

static void children(void *context, int depth, int32_t after, struct candidates *out)
{
    struct drafter_state *s = context;
    int row = s->first + depth - 1;
    if (s->d->rank) select_after(s, row, after, out);
    else *out = s->guess[row];
}

/* The tree of a text whose wanted rows begin at `first`. */
static void grow(struct drafter_state *s, struct draft *d, int first)
{
    struct ddtree_source source = { .context = s, .children = children };
    s->first = first;
    ddtree_build(&d->tree, d->most, d->depth < d->block ? d->depth : d->block - 1, d->margin, &source);
}

/* A block after `token`, which stands at position `at` of its text. */
static luce_status add_block(struct drafter_state *s, int slot, int32_t token, int at, int block, int *out,
                             luce_error *err)
{
    struct seq *seq = s->texts.slot[slot].seq;
    int32_t tokens[NARROW_ROWS];
    int origin = seq_origin(seq);           /* of the features; a gap may lie before the block */
    tokens[0] = token;
    for (int i = 1; i < block; i++) tokens[i] = s->d->mask;
    seq_set_origin(seq, at - seq_length(seq));
    luce_status st = runner_add(s->runner, seq, tokens, NULL, block, WANT_REST, out, err);
    seq_set_origin(seq, origin);
    return st;
}

/* What the last step gave, all of it with one wait. */
static luce_status read_blocks(struct drafter_state *s, luce_error *err)
{
    int n = runner_step(s->runner)->head.n_out;
    luce_status st = LUCE_OK;
    if (s->d->rank) st = runner_read(s->runner, runner_record(s->runner)->taps[0], 0, n, s->code, err);
    return st ? st : guesses_read(s->runner, &s->say, 0, n, s->guess, err);
}

/* Blocks of texts from `from` on, as many as one step takes; *to: the first that it does not. */
static luce_status run_blocks(struct drafter_state *s, struct draft *const *drafts, int from, int n, int *to,
                              luce_error *err)
{
    int out[STEP_SEQS], rows = 0;
    luce_status st = LUCE_OK;
    runner_begin(s->runner, STEP_NARROW);
    for (*to = from; *to < n && !st; ++*to) {
        struct draft *d = drafts[*to];
        if (rows + d->block > NARROW_ROWS) break;
        st = add_block(s, d->slot, d->ids[d->n_ids - 1], d->n_ids - 1, d->block, &out[*to - from], err);
        rows += d->block;
    }
    if (!st) st = runner_queue(s->runner, err);
    if (!st) st = read_blocks(s, err);
    for (int i = from; i < *to && !st; i++) grow(s, drafts[i], out[i - from]);
    return st;
}

static void forget_ahead(struct drafter_state *s)
{
    memset(s->ahead, 0, sizeof s->ahead);
}

/* The blocks that were foreseen come first. */
static luce_status propose(struct drafter_state *s, struct draft *const *drafts, int n, luce_error *err)
{
    luce_status st = LUCE_OK;
    for (; n > 0 && drafts[0]->foreseen; n--, drafts++) grow(s, drafts[0], s->ahead[drafts[0]->slot].first);
    forget_ahead(s);
    for (int i = 0; i < n && !st; i++)
        st = follow(&s->texts, drafts[i]->slot, drafts[i]->ids, drafts[i]->n_ids - 1, err);
    if (!st) st = feed_all(s, drafts, n, err);
    for (int from = 0, to = 0; from < n && !st; from = to) st = run_blocks(s, drafts, from, n, &to, err);
    return st;
}

/* ---- guesses behind a step that is queued --------------------------------------------------------- */
/* Texts all of whose features are in the drafter's cache, up to the step; as many as one step of blocks takes. */
static int choose_ahead(struct drafter_state *s, struct foresight *texts, int n, int *slots)
{
    int k = 0, rows = 0;
    for (int i = 0; i < n; i++) {
        const struct follower *f = &s->texts.slot[texts[i].slot];
        if (!f->seq || f->n_waiting || f->end != texts[i].n_ids - 1 || rows + texts[i].block > NARROW_ROWS) {
            texts[i].block = 0;
            continue;
        }
        rows += texts[i].block;
        slots[k++] = texts[i].slot;
        s->ahead[texts[i].slot] = (struct ahead){ .of = texts[i] };
    }
    return k;
}

/* The features of what the target keeps, and zeros for what it does not: those stand where nothing sees them. */
static luce_status feed_ahead(struct drafter_state *s, const int *slots, int n, luce_error *err)
{
    static const int32_t no_tokens[NARROW_ROWS];
    luce_status st = LUCE_OK;
    runner_begin(s->runner, STEP_WIDE);
    for (int i = 0; i < n && !st; i++) {
        const struct foresight *x = &s->ahead[slots[i]].of;
        st = follow_ahead(&s->texts, x, err);
        if (!st)
            st = runner_add(s->runner, s->texts.slot[slots[i]].seq, no_tokens, NULL, x->rows, WANT_NONE, NULL, err);
    }
    for (int i = 0, row = 0; i < n && !st; i++) {
        const struct foresight *x = &s->ahead[slots[i]].of;
        st = runner_give_held(s->runner, runner_record(s->runner)->given, row, x->rows, s->texts.slot[slots[i]].waiting,
                              err);
        row += x->rows;
    }
    return st ? st : runner_queue_open(s->runner, err);
}

/* Blocks that begin after the last row that is kept, with the token that was chosen there. */
static luce_status run_ahead(struct drafter_state *s, const int *slots, int n, luce_error *err)
{
    luce_status st = LUCE_OK;
    runner_begin(s->runner, STEP_NARROW);
    for (int i = 0; i < n && !st; i++) {
        struct ahead *a = &s->ahead[slots[i]];
        st = add_block(s, slots[i], s->d->mask, a->of.n_ids - 1, a->of.block, &a->first, err);
        if (!st) runner_after(s->runner, a->of.seq);
    }
    if (!st) st = runner_queue(s->runner, err);
    return st ? st : read_blocks(s, err);
}

static luce_status foresee(struct drafter_state *s, struct foresight *texts, int n, luce_error *err)
{
    int slots[STEP_SEQS];
    forget_ahead(s);
    int k = choose_ahead(s, texts, n, slots);
    luce_status st = k ? feed_ahead(s, slots, k, err) : LUCE_OK;
    if (k && !st) st = run_ahead(s, slots, k, err);
    if (st) forget_ahead(s);
    for (int i = 0; i < n && st; i++) texts[i].block = 0;
    return st == LUCE_E_DEVMEM ? LUCE_OK : st;          /* later there may be room */
}

static int foreseen(const struct drafter_state *s, int slot, int n_ids)
{
    const struct ahead *a = &s->ahead[slot];
    return a->n_ids == n_ids ? a->of.block : 0;
}

static luce_status observe(struct drafter_state *s, const struct observed *o, luce_error *err)
{
    struct ahead *a = &s->ahead[o->slot];
    bool agrees = false;
    luce_status st = a->of.block && !a->n_ids ? follow_agrees(&s->texts, &a->of, o, &agrees, err) : LUCE_OK;
    if (st) return st;
    if (agrees) {
        follow_keep(&s->texts, o);
        a->n_ids = o->at + o->n + 1;
        return LUCE_OK;
    }
    *a = (struct ahead){ .first = 0 };
    return follow_observe(&s->texts, o, err);
}

static bool claims(const char *path, bool second)
{
    struct gguf *g;
    bool is_second;
    if (dflash_file(&g, path, NULL)) return false;
    bool is = dflash_is(g, &is_second) && is_second == second;
    gguf_close(g);
    return is;
}

static bool claims_first(const char *path)
{
    return claims(path, false);
}

static bool claims_second(const char *path)
{
    return claims(path, true);
}

static luce_status prepare_first(const struct drafter_env *env, struct record_params *record, luce_error *err)
{
    return prepare(env, false, record, err);
}

static luce_status prepare_second(const struct drafter_env *env, struct record_params *record, luce_error *err)
{
    return prepare(env, true, record, err);
}

static luce_status open_first(struct drafter_state **out, const struct drafter_env *env, luce_error *err)
{
    return open_dflash(out, env, false, err);
}

static luce_status open_second(struct drafter_state **out, const struct drafter_env *env, luce_error *err)
{
    return open_dflash(out, env, true, err);
}

const struct drafter drafter_dflash = {
    .name = "dflash", .doc = "a block at once from the model's hidden states, by a network made for it (--draft FILE)",
    .takes_file = true, .trees = true, .costs = GUESS_BY_PASS, .most = 22, .prepare = prepare_first,
    .claims = claims_first, .open = open_first, .block_of = block_of, .observe = observe, .foresee = foresee,
    .foreseen = foreseen, .propose = propose,
    .close = close_dflash,
};
const struct drafter drafter_dflash2 = {
    .name = "dflash2", .doc = "as dflash, with convolutions and a selector of paths (--draft FILE)",
    .takes_file = true, .trees = true, .costs = GUESS_BY_PASS, .most = 22, .prepare = prepare_second,
    .claims = claims_second, .open = open_second, .block_of = block_of, .observe = observe, .foresee = foresee,
    .foreseen = foreseen, .propose = propose,
    .close = close_dflash,
};
