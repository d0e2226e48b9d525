/* engine/scheduler.c - see scheduler.h. */
#include "engine/scheduler.h"

#include "base/clock.h"
#include "base/mem.h"

luce_status scheduler_init(struct scheduler *s, struct runner *r, luce_error *err)
{
    int vocab = runner_model(r)->c.vocab;
    *s = (struct scheduler){ .runner = r };
    luce_status st = sampler_open(&s->sampler, vocab, err);
    if (st) return st;
    s->logits = mem_array((size_t)vocab, sizeof *s->logits);
    if (s->logits) return LUCE_OK;
    scheduler_drop(s);
    return fail(err, LUCE_E_NOMEM, "out of memory for the logits of %d tokens", vocab);
}

void scheduler_drop(struct scheduler *s)
{
    sampler_close(s->sampler);
    mem_free(s->logits);
    *s = (struct scheduler){ 0 };
}

void scheduler_add(struct scheduler *s, struct request *r, struct seq *seq)
{
    /* Rows that narrow steps computed are computed again in wide ones where the two differ, so that a
     * continued text equals a fresh one. The last token always has to be fed: its logits are wanted. */
    bool equal = runner_device(s->runner)->equal_bits;
    int keep = equal ? seq_length(seq) : seq_wide(seq);
    if (keep > r->n_ids - 1) keep = r->n_ids - 1;
    if (!equal) keep -= keep % PAGE;
    if (keep < seq_length(seq)) seq_truncate(seq, keep);
    r->seq = seq;
    r->n_reused = seq_length(seq);
    r->started = clock_seconds();
    s->active[s->n_active++] = r;
}

static void remove_done(struct scheduler *s)
{
    int kept = 0;
    for (int i = 0; i < s->n_active; i++)
        if (s->active[i]->state != REQUEST_DONE) s->active[kept++] = s->active[i];
    s->n_active = kept;
}

/* What a request would put into the next step. */
static int next_rows(const struct scheduler *s, const struct request *r, enum step_class *class)
{
    int length = seq_length(r->seq), left = r->n_ids - length;
    if (r->state == REQUEST_PROMPT) return runner_prefill_rows(s->runner, length, left, class);
    *class = STEP_NARROW;
    return left;
}

/* The class of the next step: the one that somebody waits for; the other than last when both do. */
static enum step_class choose_class(const struct scheduler *s)
{
    bool waits[2] = { false, false };
    for (int i = 0; i < s->n_active; i++) {
        enum step_class class;
        next_rows(s, s->active[i], &class);
        waits[class] = true;
    }
    if (waits[STEP_WIDE] && waits[STEP_NARROW]) return s->wide_last ? STEP_NARROW : STEP_WIDE;
    return waits[STEP_WIDE] ? STEP_WIDE : STEP_NARROW;
}

struct packed {                     /* who has rows in the step */
    struct request *request[STEP_SEQS];
    int rows[STEP_SEQS], out[STEP_SEQS];    /* out: its wanted row, -1 for none */
    int n;
};

/* Adds rows of r as far as there is room. Running texts come whole; a prompt may give fewer. */
static luce_status pack(struct scheduler *s, struct packed *p, struct request *r, enum step_class class,
                        int room, luce_error *err)
{
    enum step_class wants;
    int n = next_rows(s, r, &wants), at = seq_length(r->seq);
    if (wants != class) return LUCE_OK;
    if (n > room) n = class == STEP_NARROW || runner_device(s->runner)->equal_bits ? room : room / PAGE * PAGE;
    if (n == 0) return LUCE_OK;
    enum want want = at + n == r->n_ids ? WANT_LAST : WANT_NONE;
    luce_status st = runner_add(s->runner, r->seq, r->ids + at, NULL, n, want, &p->out[p->n], err);
    if (st) return st;
    p->request[p->n] = r;
    p->rows[p->n++] = n;
    return LUCE_OK;
}

/* Fills the step: running texts first, then prompts, oldest first. A request that the cache has no
 * pages for waits; if nobody can go on, the youngest of them fails and makes room. */
static void fill(struct scheduler *s, struct packed *p, enum step_class class)
{
    int most = class == STEP_WIDE ? runner_chunk(s->runner) : NARROW_ROWS;
    struct request *starved = NULL;
    luce_error why = { 0 };
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < s->n_active; i++) {
            struct request *r = s->active[i];
            if (r->state != (pass == 0 ? REQUEST_DECODE : REQUEST_PROMPT)) continue;
            luce_error err = { 0 };
            luce_status st = pack(s, p, r, class, most - runner_step(s->runner)->head.n_rows, &err);
            if (st == LUCE_E_DEVMEM) {
                starved = r;
                why = err;
            } else if (st) {
                request_fail(r, st, &err);
            }
        }
    }
    if (p->n == 0 && starved) request_fail(starved, LUCE_E_DEVMEM, &why);
}

static luce_status choose_token(struct scheduler *s, struct request *r, int out, int32_t *token,
                                luce_error *err)
{
    if (request_is_plain(r)) {
        luce_status st = runner_argmax(s->runner, out, token, err);
        const uint32_t *mask = r->sampling.mask;
        if (st || !mask || mask[*token / 32] >> *token % 32 & 1) return st;
    }
    luce_status st = runner_logits(s->runner, out, s->logits, err);
    if (st) return st;
    return sampler_choose(s->sampler, &r->sampling, s->logits, r->ids, r->n_ids, r->n_ids, token, NULL, err);
}

static void fail_all(struct scheduler *s, luce_status st, const luce_error *err)
{
    for (int i = 0; i < s->n_active; i++) request_fail(s->active[i], st, err);
    s->n_active = 0;
}

luce_status scheduler_step(struct scheduler *s, luce_error *err)
{
    for (int i = 0; i < s->n_active; i++)
        if (request_cancelled(s->active[i])) request_finish(s->active[i], LUCE_FINISH_CANCELLED);
    remove_done(s);
    if (s->n_active == 0) return LUCE_OK;
    struct packed p = { .n = 0 };
    enum step_class class = choose_class(s);
    runner_begin(s->runner, class);
    fill(s, &p, class);
    s->wide_last = class == STEP_WIDE;
    luce_error local = { 0 };
    luce_status st = p.n ? runner_run(s->runner, &local) : LUCE_OK;
    if (st) {
        fail_all(s, st, &local);
        return fail(err, st, "%s", local.text);
    }
    for (int i = 0; i < p.n; i++) {
        struct request *r = p.request[i];
        if (class == STEP_NARROW) seq_accept(r->seq, NULL, p.rows[i]);
        if (p.out[i] < 0) continue;
        int32_t token;
        local = (luce_error){ 0 };
        st = choose_token(s, r, p.out[i], &token, &local);
        if (st) request_fail(r, st, &local);
        else request_take(r, token);
    }
    remove_done(s);
    return LUCE_OK;
}
