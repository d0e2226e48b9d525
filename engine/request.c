/* engine/request.c - see request.h. */
#include "engine/request.h"

#include <math.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/text.h"

enum { MOST_STOPS = 64 };

static luce_status check(const luce_request *q, const struct request_env *env, luce_error *err)
{
    const luce_sampling *s = &q->sampling;
    const struct { const char *name; double value, low, high; } ranges[] = {
        { "temperature", (double)s->temperature, 0, 100 }, { "top_p", (double)s->top_p, 0, 1 },
        { "min_p", (double)s->min_p, 0, 1 }, { "top_k", s->top_k, 0, 1e9 },
        { "repetition_penalty", (double)s->repetition_penalty, 0, 100 },
        { "presence_penalty", (double)s->presence_penalty, -100, 100 },
        { "frequency_penalty", (double)s->frequency_penalty, -100, 100 },
        { "penalty_window", s->penalty_window, 0, 1e9 }, { "max_tokens", q->max_tokens, 0, 1e9 },
        { "stop strings", q->n_stop, 0, MOST_STOPS }, { "draft", q->draft, -1, NARROW_ROWS - 1 },
        { "script_right", q->script_right, 0, NARROW_ROWS }, { "top_logprobs", q->top_logprobs, 0, MOST_TOP_LOGPROBS },
    };
    for (size_t i = 0; i < COUNT(ranges); i++)
        if (!(ranges[i].value >= ranges[i].low && ranges[i].value <= ranges[i].high))
            return fail(err, LUCE_E_ARG, "%s is %g; expected %g to %g", ranges[i].name, ranges[i].value,
                        ranges[i].low, ranges[i].high);
    if (q->embedding && !q->prompt_only)
        return fail(err, LUCE_E_ARG, "an embedding needs prompt_only: no text comes with it");
    if (q->draft > 0 && !env->has_drafter)
        return fail(err, LUCE_E_ARG, "speculative is %d, and the model was loaded without a drafter (--spec, --draft)",
                    q->draft);
    for (int i = 0; i < s->n_bias; i++)
        if (!isfinite(s->bias[i]))
            return fail(err, LUCE_E_ARG, "the bias of token %d is not a number", s->bias_id[i]);
    return LUCE_OK;
}

static uint64_t any_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed) seed = clock_ns();
    return seed >> 11;                              /* exact in JSON, which has doubles */
}

static luce_status copy_stops(struct request *r, luce_error *err)
{
    const luce_request *q = r->asked;
    if (q->n_stop == 0) return LUCE_OK;
    r->stop = mem_array((size_t)q->n_stop, sizeof *r->stop);
    if (!r->stop) return fail(err, LUCE_E_NOMEM, "out of memory for %d stop strings", q->n_stop);
    for (int i = 0; i < q->n_stop; i++)
        if (*q->stop[i]) r->stop[r->stopper.n_stop++] = str_of(q->stop[i]);
    r->stopper.stop = r->stop;
    return LUCE_OK;
}

/* Claims room for all ids that the request can come to have, and says how many. */
static luce_status make_room(struct request *r, const struct request_env *env, const int32_t *prompt, size_t n,
                             luce_error *err)
{
    const luce_request *q = r->asked;
    int64_t have = (int64_t)env->n_before + (int64_t)n;
    int64_t total = have + (q->prompt_only ? 0 : q->max_tokens ? q->max_tokens : 1);
    if (have == 0) return fail(err, LUCE_E_ARG, "the prompt is empty; a text needs at least one token");
    if (n > INT32_MAX / 2 || total > env->context)
        return fail(err, LUCE_E_CONTEXT, "%zu prompt tokens%s and %d to generate exceed the context of %d; shorten "
                    "the prompt, lower max_tokens, or load the model with a larger context", n,
                    env->n_before ? " (after those of the session)" : "", q->max_tokens ? q->max_tokens : 1,
                    env->context);
    r->most_ids = q->max_tokens || q->prompt_only ? (int)total : env->context;
    r->ids = mem_array((size_t)r->most_ids, sizeof *r->ids);
    if (!r->ids) return fail(err, LUCE_E_NOMEM, "out of memory for %d tokens", r->most_ids);
    if (env->n_before) memcpy(r->ids, env->before, (size_t)env->n_before * sizeof *r->ids);
    for (size_t i = 0; i < n; i++) {
        if (prompt[i] < 0 || prompt[i] >= env->vocab_size)
            return fail(err, LUCE_E_ARG, "token %zu of the prompt is %d; the model's ids are 0 to %d", i,
                        prompt[i], env->vocab_size - 1);
        r->ids[env->n_before + (int)i] = prompt[i];
    }
    r->n_before = env->n_before;
    r->n_prompt = (int)n;
    r->n_ids = (int)have;
    return LUCE_OK;
}

static void set_sampling(struct request *r, const struct request_env *env)
{
    const luce_sampling *s = &r->asked->sampling;
    r->sampling = (struct sample_params){
        .temperature = s->temperature, .top_k = s->top_k, .top_p = s->top_p, .min_p = s->min_p,
        .repetition_penalty = s->repetition_penalty, .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty, .penalty_window = s->penalty_window,
        .seed = s->has_seed ? s->seed : any_seed(), .bias_id = s->bias_id, .bias = s->bias,
        .n_bias = s->n_bias, .mask = env->mask };
}

luce_status request_init(struct request *r, const luce_request *asked, const struct request_env *env,
                         luce_error *err)
{
    *r = (struct request){ .asked = asked, .vocab = env->vocab, .queued = clock_seconds() };
    struct ids ids = { 0 };
    const int32_t *prompt = asked->tokens;
    size_t n = asked->n_tokens;
    luce_status st = check(asked, env, err);
    if (!st && !prompt && asked->text.at) {
        st = text_to_ids(&asked->text, env->vocab, &ids, err);
        prompt = ids.at;
        n = ids.len;
    }
    if (!st) st = make_room(r, env, prompt, n, err);
    if (!st) st = copy_stops(r, err);
    ids_drop(&ids);
    if (st) {
        request_drop(r);
        return st;
    }
    set_sampling(r, env);
    r->detok.started = env->n_before > 0;
    thinking_begin(&r->thinking, &asked->thinking);
    r->script = (struct script){ .tokens = asked->script, .n = (int)asked->n_script, .from = r->n_ids,
                                 .right = asked->script_right };
    return LUCE_OK;
}

void request_drop(struct request *r)
{
    mem_free(r->ids);
    mem_free(r->stop);
    stopper_drop(&r->stopper);
    thinking_drop(&r->thinking);
    mem_free(r->pooled);
    buf_drop(&r->piece);
    buf_drop(&r->text);
    *r = (struct request){ 0 };
}

void request_fail(struct request *r, luce_status status, const luce_error *error)
{
    r->state = REQUEST_DONE;
    r->status = status;
    r->error = *error;
    r->finish = LUCE_FINISH_NONE;
}

/* Lets n held bytes go out, unless the caller has had enough. */
static void let_go(struct request *r, size_t n)
{
    if (n == 0 || r->refused) return;
    buf_add(&r->text, r->stopper.held.data, n);
    r->refused = r->asked->on_text && !r->asked->on_text(r->asked->user, r->stopper.held.data, n);
    stopper_take(&r->stopper, n);
}

/* Puts r->piece out as far as no stop string can come of it; true when one is complete. */
static bool put_out(struct request *r)
{
    size_t ready;
    bool stopped = stopper_add(&r->stopper, (struct str){ buf_text(&r->piece), r->piece.len }, &ready);
    let_go(r, ready);
    buf_clear(&r->piece);
    return stopped;
}

static bool out_of_memory(struct request *r)
{
    if (!r->piece.failed && !r->text.failed && !r->stopper.held.failed) return false;
    luce_error err = { 0 };
    luce_status st = fail(&err, LUCE_E_NOMEM, "out of memory for the text after %zu bytes", r->text.len);
    request_fail(r, st, &err);
    return true;
}

void request_finish(struct request *r, luce_finish finish)
{
    if (r->state == REQUEST_DONE) return;
    r->finish = finish;
    if (finish != LUCE_FINISH_STOP) {
        detok_end(&r->detok, &r->piece);
        if (put_out(r)) r->finish = LUCE_FINISH_STOP;
        else let_go(r, r->stopper.held.len);
    }
    if (!out_of_memory(r)) r->state = REQUEST_DONE;
}

void request_take(struct request *r, const luce_token *taken)
{
    int32_t token = taken->id;
    luce_finish reason = LUCE_FINISH_NONE;
    r->state = REQUEST_DECODE;
    r->last = clock_seconds();
    if (r->n_ids == r->n_before + r->n_prompt) r->first = r->last;
    r->ids[r->n_ids++] = token;
    bool end = r->vocab && vocab_is_end(r->vocab, token) && !r->asked->ignore_end;
    if (!end && r->asked->on_token) r->asked->on_token(r->asked->user, taken);
    if (r->vocab && !end) {
        detok_add(&r->detok, r->vocab, token, r->asked->show_special ? DETOK_SPECIAL : 0, &r->piece);
        thinking_take(&r->thinking, (struct str){ buf_text(&r->piece), r->piece.len });
        if (put_out(r)) reason = LUCE_FINISH_STOP;
        if (r->refused) reason = LUCE_FINISH_CANCELLED;
    }
    if (out_of_memory(r)) return;
    if (!reason && end) reason = LUCE_FINISH_END;
    if (!r->cut_at && thinking_was_cut(&r->thinking)) r->cut_at = r->n_ids;
    r->looped = !reason && r->cut_at && tokens_repeat(r->ids + r->cut_at, r->n_ids - r->cut_at);
    if (r->looped) reason = LUCE_FINISH_LENGTH;
    if (!reason && r->n_ids == r->most_ids) reason = LUCE_FINISH_LENGTH;
    if (reason) request_finish(r, reason);
}

bool request_cancelled(const struct request *r)
{
    if (r->cancel && atomic_load_explicit(r->cancel, memory_order_relaxed)) return true;
    return r->asked->cancelled && r->asked->cancelled(r->asked->user);
}

int32_t request_given(const struct request *r)
{
    return thinking_given(&r->thinking);
}

bool request_wants_all(const struct request *r)
{
    return r->state == REQUEST_PROMPT && (r->asked->on_prompt || (r->asked->embedding &&
                                                                  r->asked->pooling == LUCE_POOL_MEAN));
}

bool request_is_plain(const struct request *r)
{
    const struct sample_params *p = &r->sampling;
    bool penalties = (p->repetition_penalty > 0 && p->repetition_penalty != 1) || p->presence_penalty != 0 ||
                     p->frequency_penalty != 0;
    return !penalties && p->n_bias == 0;
}

void request_result(struct request *r, luce_result *out)
{
    int from = r->n_before + r->n_prompt, n = r->n_ids - from;
    *out = (luce_result){ .status = r->status, .error = r->error, .finish = r->finish,
                          .n_prompt = (size_t)r->n_prompt, .n_reused = (size_t)r->n_reused,
                          .seed = r->sampling.seed, .speculation = r->speculation,
                          .thinking_cut = r->cut_at > 0, .looped = r->looped,
                          .prompt_seconds = r->first > 0 ? r->first - r->started : 0,
                          .stop = r->finish == LUCE_FINISH_STOP ? r->stop[r->stopper.hit].at : NULL };
    if (r->started > 0) out->queue_seconds = r->started - r->queued;
    if (n > 0) {
        out->decode_seconds = r->last - r->first;
        memmove(r->ids, r->ids + from, (size_t)n * sizeof *r->ids);
        out->tokens = r->ids;
        out->n_tokens = (size_t)n;
        r->ids = NULL;
    }
    out->text = r->text.data;               /* NULL while empty */
    out->text_bytes = r->text.len;
    r->text = (struct buf){ 0 };
    request_drop(r);
}
