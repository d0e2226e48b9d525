/* spec/dflash.c - DFlash and DFlash2 as drafters (model/dflash.h). The outputs of some layers of the target,
 * for every position of a text, go into the drafter's own cache; a guess is one pass over a block that sees
 * them. Each text has a sequence there, by the target's slot.
 *
 * Features come with every step of the target. They wait in host memory, and go through the drafter's wide
 * pass together: when a guess is wanted, or when there is no more room. Where a text begins with what another
 * slot has held (a prefix of the cache), the drafter's pages of it are shared as the target's are. Positions
 * whose features nobody has kept are left out: the block sees less, and guesses worse. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/dflash.h"
#include "model/vocab_gguf.h"
#include "spec/ddtree.h"
#include "spec/drafter.h"
#include "spec/guesses.h"

enum {
    WAITING = 64,                   /* features of a text that wait, at most */
    BRANCHES = 8,                   /* tokens of a depth in a tree that is no chain */
};

struct follower {                   /* of one slot of the target */
    struct seq *seq;                /* NULL until its first use */
    int32_t *ids;                   /* [context] the text whose features it has, from its start */
    float *waiting;                 /* [WAITING][feature] of the last n_waiting of them */
    int n_waiting;
    int end;                        /* features reach to this position */
};

struct drafter_state {
    struct runner *target, *runner;
    const struct vocab *vocab;      /* of the target; NULL: it has ids only */
    const struct dflash *d;
    int embd, context, n_slots;
    struct follower *slot;
    float *logits;                  /* of one row */
    float *code;                    /* [NARROW_ROWS][rank] e of each depth, then one row of P and of S */
    struct candidates depth[NARROW_ROWS];   /* of the text whose tree is being built, by depth */
};

static void close_dflash(struct drafter_state *s)
{
    if (!s) return;
    for (int i = 0; s->slot && i < s->n_slots; i++) {
        seq_close(s->slot[i].seq);
        mem_free(s->slot[i].ids);
        mem_free(s->slot[i].waiting);
    }
    runner_close(s->runner);
    mem_free(s->slot);
    mem_free(s->logits);
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
    record->n_taps = d->n_taps;
    memcpy(record->tap_layer, d->tap, sizeof record->tap_layer);
    model_close(m);
    return LUCE_OK;
}

static luce_status load(struct drafter_state *s, struct model *m, luce_error *err)
{
    s->d = dflash_of(m);
    s->embd = m->c.embd;
    size_t codes = (NARROW_ROWS + 2) * (size_t)s->d->rank;
    /* Room for a block behind the last position. */
    struct load_params p = { .device = runner_device(s->target), .context = s->context + NARROW_ROWS,
                             .n_slots = s->n_slots, .chunk = WAITING };
    luce_status st = runner_open(&s->runner, m, &p, err);
    if (st) return st;
    s->slot = mem_array((size_t)s->n_slots, sizeof *s->slot);
    s->logits = mem_array((size_t)m->c.vocab, sizeof *s->logits);
    if (codes) s->code = mem_array(codes, sizeof *s->code);
    if (s->slot && s->logits && (!codes || s->code)) return LUCE_OK;
    return fail(err, LUCE_E_NOMEM, "out of memory for the drafter");
}

static luce_status open_dflash(struct drafter_state **out, const struct drafter_env *env, bool second, luce_error *err)
{
    struct model *m = NULL;
    *out = NULL;
    struct drafter_state *s = mem_zero(sizeof *s);
    if (!s) return fail(err, LUCE_E_NOMEM, "out of memory for the drafter");
    s->target = env->target;
    s->vocab = env->vocab;
    s->context = cache_max_positions(runner_cache(env->target));
    s->n_slots = cache_slots(runner_cache(env->target));
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

/* ---- features ------------------------------------------------------------------------------------ */
static size_t feature_size(const struct drafter_state *s)
{
    return (size_t)s->d->n_taps * (size_t)s->embd;
}

/* What waits of these texts goes through the drafter, in one step. */
static luce_status feed(struct drafter_state *s, struct follower *const *f, int n, luce_error *err)
{
    static const int32_t no_token[WAITING];
    int rows = 0, row[STEP_SEQS];
    luce_status st = LUCE_OK;
    runner_begin(s->runner, STEP_WIDE);
    for (int i = 0; i < n && !st; i++) {
        row[i] = rows;
        if (f[i]->n_waiting == 0) continue;
        st = runner_add(s->runner, f[i]->seq, no_token, NULL, f[i]->n_waiting, WANT_NONE, NULL, err);
        rows += f[i]->n_waiting;
    }
    if (rows == 0 || st) return st;
    for (int i = 0; i < n && !st; i++)
        if (f[i]->n_waiting)
            st = runner_give(s->runner, runner_record(s->runner)->given, row[i], f[i]->n_waiting, f[i]->waiting, err);
    if (!st) st = runner_run(s->runner, err);
    for (int i = 0; i < n && !st; i++) f[i]->n_waiting = 0;
    return st;
}

/* The same in as many steps as the rows take. */
static luce_status feed_all(struct drafter_state *s, struct draft *const *drafts, int n, luce_error *err)
{
    luce_status st = LUCE_OK;
    for (int from = 0, to; from < n && !st; from = to) {
        struct follower *some[STEP_SEQS];
        int rows = 0;
        for (to = from; to < n; to++) {
            struct follower *f = &s->slot[drafts[to]->slot];
            if (to > from && rows + f->n_waiting > WAITING) break;
            rows += f->n_waiting;
            some[to - from] = f;
        }
        st = feed(s, some, to - from, err);
    }
    return st;
}

/* Forgets what lies behind the first n positions. */
static void forget(struct follower *f, int n)
{
    int origin = seq_origin(f->seq), held = f->end - f->n_waiting;
    if (n >= f->end) return;
    f->n_waiting = n > held ? n - held : 0;
    f->end = n;
    if (n >= held) return;
    int kept = n > origin ? seq_truncate(f->seq, n - origin) : seq_truncate(f->seq, 0);
    f->end = kept ? origin + kept : 0;          /* a window may have moved on: nothing is left */
    if (kept == 0) seq_set_origin(f->seq, 0);
}

static int same_text(const int32_t *a, const int32_t *b, int n)
{
    int same = 0;
    while (same < n && a[same] == b[same]) same++;
    return same;
}

/* A text that another slot has, as far as whole pages go. */
static luce_status adopt(struct drafter_state *s, struct follower *f, const int32_t *ids, int n, luce_error *err)
{
    struct follower *best = NULL;
    int most = f->end;
    for (int i = 0; i < s->n_slots; i++) {
        struct follower *o = &s->slot[i];
        if (o == f || !o->seq || seq_origin(o->seq)) continue;
        int end = o->end - o->n_waiting, same = same_text(o->ids, ids, end < n ? end : n) / PAGE * PAGE;
        if (same > most) most = same, best = o;
    }
    if (!best) return LUCE_OK;
    seq_close(f->seq);
    f->seq = NULL;
    luce_status st = seq_open(&f->seq, runner_cache(s->runner), err);
    f->n_waiting = f->end = 0;
    if (!st && !seq_share(f->seq, best->seq, most, NULL)) f->end = most;    /* a window may have moved on */
    if (!st) memcpy(f->ids, ids, (size_t)f->end * sizeof *ids);
    return st;
}

/* The follower holds features of this text and none at or behind position `at`. */
static luce_status follow(struct drafter_state *s, struct follower *f, const int32_t *ids, int at, luce_error *err)
{
    luce_status st = LUCE_OK;
    if (!f->ids) f->ids = mem_array((size_t)s->context, sizeof *f->ids);
    if (!f->waiting) f->waiting = mem_array(WAITING * feature_size(s), sizeof *f->waiting);
    if (!f->ids || !f->waiting) return fail(err, LUCE_E_NOMEM, "out of memory for the features of a text");
    if (!f->seq) st = seq_open(&f->seq, runner_cache(s->runner), err);
    if (st) return st;
    forget(f, same_text(f->ids, ids, f->end < at ? f->end : at));
    return f->end < at ? adopt(s, f, ids, at, err) : LUCE_OK;
}

/* Copies the target's outputs of one row to the end of what waits. */
static luce_status take_row(struct drafter_state *s, struct follower *f, int row, luce_error *err)
{
    const struct record *r = runner_record(s->target);
    float *to = f->waiting + (size_t)f->n_waiting * feature_size(s);
    luce_status st = LUCE_OK;
    for (int i = 0; i < s->d->n_taps && !st; i++)
        st = runner_read(s->target, r->taps[i], row, 1, to + (size_t)i * (size_t)s->embd, err);
    if (!st) f->n_waiting++;
    return st;
}

static luce_status observe(struct drafter_state *s, const struct observed *o, luce_error *err)
{
    struct follower *f = &s->slot[o->slot];
    luce_status st = follow(s, f, o->ids, o->at, err);
    if (st) return st;
    if (f->end < o->at) {                   /* what lies between is lost: the text begins here */
        forget(f, 0);
        seq_set_origin(f->seq, o->at);
        memcpy(f->ids, o->ids, (size_t)o->at * sizeof *f->ids);
        f->end = o->at;
    }
    for (int i = 0; i < o->n && !st; i++) {
        if (f->n_waiting == WAITING) st = feed(s, &f, 1, err);
        if (!st) st = take_row(s, f, o->first_row + (o->path ? o->path[i] : i), err);
        if (!st) f->ids[f->end++] = o->ids[o->at + i];
    }
    return st;
}

/* ---- guesses ------------------------------------------------------------------------------------- */
static float softcapped(const struct dflash *d, float x)
{
    x *= d->logit_scale;
    return d->softcap != 0.0f ? d->softcap * tanhf(x / d->softcap) : x;
}

/* log of their share in the sum of the candidates. */
static void normalise(struct candidates *c)
{
    double sum = 0;
    float max = c->n ? c->log_likely[0] : 0;
    for (int i = 0; i < c->n; i++) sum += (double)expf(c->log_likely[i] - max);
    for (int i = 0; i < c->n; i++) c->log_likely[i] -= max + (float)log(sum);
}

/* DFlash2: the order of the candidates depends on the token before. */
static void select_after(struct drafter_state *s, int depth, int32_t after, struct candidates *out)
{
    const struct dflash *d = s->d;
    const struct candidates *from = &s->depth[depth];
    const float *e = s->code + (size_t)depth * (size_t)d->rank;
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
    if (s->d->rank) select_after(s, depth, after, out);
    else *out = s->depth[depth];
}

/* The candidates of each depth from the block's logits, row `out` on. */
static luce_status read_block(struct drafter_state *s, const struct draft *d, int out, luce_error *err)
{
    const struct record *r = runner_record(s->runner);
    int vocab = runner_model(s->runner)->c.vocab;
    int wanted = s->d->rank ? s->d->top_k : d->most > d->depth ? BRANCHES : 1;
    luce_status st = LUCE_OK;
    for (int depth = 1; depth <= d->depth && !st; depth++) {
        struct candidates *c = &s->depth[depth];
        st = runner_logits(s->runner, out + depth - 1, s->logits, err);
        if (st) return st;
        if (s->d->logit_scale != 1.0f || s->d->softcap != 0.0f)
            for (int i = 0; i < vocab; i++) s->logits[i] = softcapped(s->d, s->logits[i]);
        c->n = likeliest(s->logits, vocab, s->vocab, wanted < DDTREE_MOST ? wanted : DDTREE_MOST, c->token,
                         c->log_likely);
        if (s->d->rank)
            st = runner_read(s->runner, r->taps[0], out + depth - 1, 1, s->code + (size_t)depth * (size_t)s->d->rank,
                             err);
    }
    return st;
}

/* Blocks of texts from `from` on, as many as one step takes; *to: the first that it does not. */
static luce_status run_blocks(struct drafter_state *s, struct draft *const *drafts, int from, int n, int *to,
                              luce_error *err)
{
    int32_t tokens[NARROW_ROWS];
    int out[STEP_SEQS], rows = 0;
    luce_status st = LUCE_OK;
    runner_begin(s->runner, STEP_NARROW);
    for (int i = 0; i < NARROW_ROWS; i++) tokens[i] = s->d->mask;
    for (*to = from; *to < n && !st; ++*to) {
        struct draft *d = drafts[*to];
        struct seq *seq = s->slot[d->slot].seq;
        if (rows + d->block > NARROW_ROWS) break;
        tokens[0] = d->ids[d->n_ids - 1];
        int origin = seq_origin(seq);           /* of the features; a gap may lie before the block */
        seq_set_origin(seq, d->n_ids - 1 - seq_length(seq));
        st = runner_add(s->runner, seq, tokens, NULL, d->block, WANT_REST, &out[*to - from], err);
        seq_set_origin(seq, origin);
        rows += d->block;
    }
    if (!st) st = runner_run(s->runner, err);
    struct ddtree_source source = { .context = s, .children = children };
    for (int i = from; i < *to && !st; i++) {
        st = read_block(s, drafts[i], out[i - from], err);
        if (!st) ddtree_build(&drafts[i]->tree, drafts[i]->most, drafts[i]->depth, &source);
    }
    return st;
}

static luce_status propose(struct drafter_state *s, struct draft *const *drafts, int n, luce_error *err)
{
    luce_status st = LUCE_OK;
    for (int i = 0; i < n && !st; i++)
        st = follow(s, &s->slot[drafts[i]->slot], drafts[i]->ids, drafts[i]->n_ids - 1, err);
    if (!st) st = feed_all(s, drafts, n, err);
    for (int from = 0, to = 0; from < n && !st; from = to) st = run_blocks(s, drafts, from, n, &to, err);
    return st;
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
    .takes_file = true, .costs = GUESS_BY_PASS, .most = 22, .claims = claims_first, .prepare = prepare_first,
    .open = open_first, .block_of = block_of, .observe = observe, .propose = propose, .close = close_dflash,
};
const struct drafter drafter_dflash2 = {
    .name = "dflash2", .doc = "as dflash, with convolutions and a selector of paths (--draft FILE)",
    .takes_file = true, .costs = GUESS_BY_PASS, .most = 22, .claims = claims_second, .prepare = prepare_second,
    .open = open_second, .block_of = block_of, .observe = observe, .propose = propose, .close = close_dflash,
};
