/* run/sample.c - see sample.h: logits are changed here, and drawn from as a device does (ops/draw_row.h). */
#include "run/sample.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "ops/draw_row.h"

enum { DEFAULT_WINDOW = 256, STREAM = 0x5a11, INFINITY_BITS = 0x7f800000 };

struct sampler {
    int vocab;
    int *count;                     /* [vocab], zero between calls */
};

luce_status sampler_open(struct sampler **out, int vocab, luce_error *err)
{
    *out = NULL;
    struct sampler *s = mem_zero(sizeof *s);
    if (s) {
        s->vocab = vocab;
        s->count = mem_array((size_t)vocab, sizeof *s->count);
    }
    if (!s || !s->count) {
        sampler_close(s);
        return fail(err, LUCE_E_NOMEM, "out of memory for sampling from %d tokens", vocab);
    }
    *out = s;
    return LUCE_OK;
}

void sampler_close(struct sampler *s)
{
    if (!s) return;
    mem_free(s->count);
    mem_free(s);
}

static void penalise(struct sampler *s, const struct sample_params *p, float *logits, const int32_t *history,
                     int n_history)
{
    float repetition = p->repetition_penalty > 0 ? p->repetition_penalty : 1;
    if (repetition == 1 && p->presence_penalty == 0 && p->frequency_penalty == 0) return;
    int window = p->penalty_window > 0 ? p->penalty_window : DEFAULT_WINDOW;
    int from = n_history > window ? n_history - window : 0;
    for (int i = from; i < n_history; i++) s->count[history[i]]++;
    for (int i = from; i < n_history; i++) {
        int32_t id = history[i];
        if (s->count[id] == 0) continue;            /* done at its first occurrence */
        float *l = &logits[id];
        *l = *l > 0 ? *l / repetition : *l * repetition;
        *l -= p->frequency_penalty * (float)s->count[id] + p->presence_penalty;
        s->count[id] = 0;
    }
}

static void mask_out(const struct sample_params *p, float *logits, int vocab)
{
    for (int i = 0; i < vocab && p->mask; i++)
        if (!(p->mask[i / 32] >> i % 32 & 1)) logits[i] = -INFINITY;
}

/* The largest logit, ties to the lowest id; -1 when none is finite, or one is NaN or +infinity. */
static int32_t largest(const float *logits, int vocab)
{
    int32_t magnitude = 0;
    for (int i = 0; i < vocab; i++) {
        int32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        magnitude = (bits & INT32_MAX) > magnitude ? bits & INT32_MAX : magnitude;
    }
    if (magnitude > INFINITY_BITS) return -1;
    int32_t found = draw_largest(&(struct draw_row){ .x = logits, .n = vocab });
    return isfinite(logits[found]) ? found : -1;
}

struct step_draw sample_draw(const struct sample_params *p, int index)
{
    struct step_draw d = { .scale = 0 };
    if (!(p->temperature > 0)) return d;
    d.scale = fminf(1.44269504f / p->temperature, 0x1p100f);     /* 0 times infinity is no number */
    d.top_k = p->top_k;
    d.top_p = p->top_p;
    d.min_p = p->min_p;
    d.u = rng_uniform(p->seed, STREAM, (uint64_t)index);
    return d;
}

luce_status sampler_choose(struct sampler *s, const struct sample_params *p, float *logits, const int32_t *history,
                           int n_history, int index, int32_t *token, luce_error *err)
{
    for (int i = 0; i < p->n_bias; i++)
        if (p->bias_id[i] >= 0 && p->bias_id[i] < s->vocab) logits[p->bias_id[i]] += p->bias[i];
    penalise(s, p, logits, history, n_history);
    mask_out(p, logits, s->vocab);
    *token = largest(logits, s->vocab);
    if (*token < 0)
        return fail(err, LUCE_E_NUMERIC, "no token can be chosen at position %d: the logits are not finite, or "
                    "all tokens are masked", index);
    struct step_draw d = sample_draw(p, index);
    struct draw_row r = { .x = logits, .n = s->vocab, .max = logits[*token], .scale = d.scale };
    *token = draw_column(&r, &d, *token);
    return LUCE_OK;
}

void sampler_logprobs(const float *logits, int vocab, int32_t token, float *logprob, int n, int32_t *ids,
                      float *logprobs)
{
    int32_t best = largest(logits, vocab);
    double max = best < 0 ? 0 : (double)logits[best], sum = 0;
    for (int i = 0; i < vocab; i++) sum += exp((double)logits[i] - max);
    double base = max + log(sum);
    *logprob = (float)((double)logits[token] - base);
    /* n is small (at most 20 in the APIs): insertion into the list of the best. */
    int found = 0;
    for (int i = 0; i < vocab; i++) {
        if (found == n && (n == 0 || logits[i] <= logits[ids[n - 1]])) continue;
        int at = found < n ? found++ : n - 1;
        for (; at > 0 && logits[i] > logits[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = i;
    }
    for (int i = 0; i < found; i++) logprobs[i] = (float)((double)logits[ids[i]] - base);
    for (int i = found; i < n; i++) ids[i] = -1, logprobs[i] = -INFINITY;
}
