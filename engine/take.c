/* engine/take.c - see take.h. */
#include "engine/take.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

bool device_chooses(const struct scheduler *s, const struct request *r)
{
    return request_given(r) < 0 && request_is_plain(r) && !r->asked->logprobs && !s->hook;
}

luce_status choose_token(struct scheduler *s, struct request *r, int out, luce_error *err)
{
    int32_t given = request_given(r);
    luce_token t = { .id = given };
    int32_t top[MOST_TOP_LOGPROBS];
    float logprob[MOST_TOP_LOGPROBS];
    luce_status st;
    if (device_chooses(s, r) && (st = runner_choice(s->runner, out, &t.id, err))) return st;
    if (t.id < 0 || r->asked->logprobs) {
        int vocab = runner_model(s->runner)->c.vocab;
        if ((st = runner_logits(s->runner, out, s->logits, err))) return st;
        if (s->hook) s->hook->logits(s->hook->context, r, s->logits);
        if (r->asked->logprobs) memcpy(s->raw, s->logits, (size_t)vocab * sizeof *s->raw);
        if (given < 0 && (st = sampler_choose(s->sampler, &r->sampling, s->logits, r->ids, r->n_ids, r->n_ids, &t.id,
                                              err)))
            return st;
        if (r->asked->logprobs) {
            t.n_top = r->asked->top_logprobs;
            t.top_id = top;
            t.top_logprob = logprob;
            sampler_logprobs(s->raw, vocab, t.id, &t.logprob, t.n_top, top, logprob);
        }
    }
    request_take(r, &t);
    return LUCE_OK;
}

/* Adds the hidden states of wanted rows out to out + n - 1. */
static luce_status pool_rows(struct scheduler *s, struct request *r, int out, int n, luce_error *err)
{
    int embd = runner_model(s->runner)->c.embd;
    if (!r->pooled) r->pooled = mem_array((size_t)embd, sizeof *r->pooled);
    if (!r->pooled) return fail(err, LUCE_E_NOMEM, "out of memory for an embedding of %d numbers", embd);
    for (int i = 0; i < n; i++) {
        luce_status st = runner_read(s->runner, runner_record(s->runner)->hidden, out + i, 1, s->raw, err);
        if (st) return st;
        for (int c = 0; c < embd; c++) r->pooled[c] += (double)s->raw[c];
    }
    return LUCE_OK;
}

/* The direction of what was pooled. */
static luce_status write_embedding(struct scheduler *s, struct request *r, luce_error *err)
{
    int embd = runner_model(s->runner)->c.embd;
    double squares = 0;
    for (int c = 0; c < embd; c++) squares += r->pooled[c] * r->pooled[c];
    if (!isfinite(squares))
        return fail(err, LUCE_E_NUMERIC, "a hidden state that is not finite: the model's weights or this device's "
                    "kernels are at fault; 'luce inspect --check' reads the weights");
    double scale = squares > 0 ? 1 / sqrt(squares) : 0;
    for (int c = 0; c < embd; c++) r->asked->embedding[c] = (float)(r->pooled[c] * scale);
    return LUCE_OK;
}

/* Tells the prompt's tokens that follow those of wanted rows out to out + n - 1, the first at position `at`. */
static luce_status tell_prompt(struct scheduler *s, struct request *r, int out, int at, int n, luce_error *err)
{
    int vocab = runner_model(s->runner)->c.vocab;
    int32_t top[MOST_TOP_LOGPROBS];
    float logprob[MOST_TOP_LOGPROBS];
    for (int i = 0; i < n && at + i + 1 < r->n_ids; i++) {
        luce_token t = { .id = r->ids[at + i + 1], .n_top = r->asked->top_logprobs, .top_id = top,
                         .top_logprob = logprob };
        luce_status st = runner_logits(s->runner, out + i, s->raw, err);
        if (st) return st;
        sampler_logprobs(s->raw, vocab, t.id, &t.logprob, t.n_top, top, logprob);
        r->asked->on_prompt(r->asked->user, &t);
    }
    return LUCE_OK;
}

luce_status take_rows(struct scheduler *s, struct request *r, int out, int at, int n, luce_error *err)
{
    luce_status st = LUCE_OK;
    int wanted = request_wants_all(r) ? n : 1;
    if (r->state == REQUEST_PROMPT && r->asked->embedding) st = pool_rows(s, r, out, wanted, err);
    if (!st && r->state == REQUEST_PROMPT && r->asked->on_prompt) st = tell_prompt(s, r, out, at, n, err);
    if (st || at + n < r->n_ids) return st;
    if (!r->asked->prompt_only) return choose_token(s, r, out + wanted - 1, err);
    if (r->asked->embedding) st = write_embedding(s, r, err);
    r->first = r->last = clock_seconds();
    if (!st) request_finish(r, LUCE_FINISH_LENGTH);
    return st;
}
