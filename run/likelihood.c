/* run/likelihood.c - see likelihood.h. Tokens before the first that is scored are prefill; from there on steps of
 * at most STEP_OUTS rows give the logits of all their rows. */
#include "run/likelihood.h"

#include <math.h>

#include "base/mem.h"

double likelihood_mean(const struct likelihood *s)
{
    return s->n ? s->sum / (double)s->n : 0;
}

double likelihood_error(const struct likelihood *s)
{
    if (s->n < 2) return 0;
    double n = (double)s->n, mean = s->sum / n, variance = (s->squares - n * mean * mean) / (n - 1);
    return variance > 0 ? sqrt(variance / n) : 0;
}

static void add(struct likelihood *s, const float *logits, int vocab, int32_t token)
{
    double most = logits[0], sum = 0;
    for (int i = 1; i < vocab; i++) most = logits[i] > most ? logits[i] : most;
    for (int i = 0; i < vocab; i++) sum += exp(logits[i] - most);
    double nll = log(sum) + most - logits[token];
    s->sum += nll;
    s->squares += nll * nll;
    s->n++;
}

/* One step of rows whose next tokens are scored. */
static luce_status score_step(struct runner *r, struct seq *s, const int32_t *tokens, int rows, enum step_class class,
                              float *logits, struct likelihood *out, luce_error *err)
{
    int first, vocab = runner_model(r)->c.vocab;
    runner_begin(r, class);
    luce_status st = runner_add(r, s, tokens, NULL, rows, WANT_ALL, &first, err);
    if (!st) st = runner_run(r, err);
    for (int i = 0; !st && i < rows; i++) {
        st = runner_logits(r, first + i, logits, err);
        if (!st) add(out, logits, vocab, tokens[i + 1]);
    }
    if (!st && class == STEP_NARROW) seq_accept(s, NULL, rows);
    return st;
}

luce_status runner_score(struct runner *r, struct seq *s, const int32_t *tokens, int n, int first,
                         struct likelihood *out, bool (*cancelled)(void *), void *context, luce_error *err)
{
    int vocab = runner_model(r)->c.vocab;
    for (int i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= vocab)
            return fail(err, LUCE_E_ARG, "token %d is %d; the model's ids are 0 to %d", i, (int)tokens[i], vocab - 1);
    float *logits = mem_array((size_t)vocab, sizeof *logits);
    if (!logits) return fail(err, LUCE_E_NOMEM, "out of memory for a row of logits");
    luce_status st = runner_prefill(r, s, tokens, first - 1, cancelled, context, err);
    for (int at = first - 1; !st && at + 1 < n;) {
        enum step_class class;
        int left = n - 1 - at, rows = runner_prefill_rows(r, s, left < STEP_OUTS ? left : STEP_OUTS, &class);
        if (cancelled && cancelled(context)) st = fail(err, LUCE_E_CANCELLED, "cancelled after %d of %d tokens", at, n);
        else st = score_step(r, s, tokens + at, rows, class, logits, out, err);
        at += rows;
    }
    mem_free(logits);
    return st;
}
