/* run/sample.c - see sample.h. Probabilities are computed in double from logits relative to the
 * largest one; candidates are ordered by logit, equal ones by id, so that a choice depends on the
 * logits, the parameters and (seed, position) alone. */
#include "run/sample.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

enum { DEFAULT_WINDOW = 256, STREAM = 0x5a11, INFINITY_BITS = 0x7f800000 };

struct candidate {
    float   logit;
    int32_t id;
};

struct sampler {
    int vocab;
    int *count;                     /* [vocab], zero between calls */
    struct candidate *candidate;    /* [vocab] */
};

luce_status sampler_open(struct sampler **out, int vocab, luce_error *err)
{
    *out = NULL;
    struct sampler *s = mem_zero(sizeof *s);
    if (s) {
        s->vocab = vocab;
        s->count = mem_array((size_t)vocab, sizeof *s->count);
        s->candidate = mem_array((size_t)vocab, sizeof *s->candidate);
    }
    if (!s || !s->count || !s->candidate) {
        sampler_close(s);
        return fail(err, LUCE_E_NOMEM, "out of memory for sampling from %d tokens", vocab);
    }
    *out = s;
    return LUCE_OK;
}

void sampler_close(struct sampler *s)
{
    if (!s) return;
    mem_free(s->candidate);
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

/* The largest logit, ties to the lowest id; -1 when none is finite, or one is NaN or +infinity. Floats are compared as
 * the integers that have their order, which compilers turn into vectors. */
static int32_t largest(const float *logits, int vocab)
{
    int32_t most = INT32_MIN, magnitude = 0;
    for (int i = 0; i < vocab; i++) {
        int32_t bits, order;
        memcpy(&bits, &logits[i], sizeof bits);
        order = bits ^ (bits >> 31 & INT32_MAX);
        most = order > most ? order : most;
        magnitude = (bits & INT32_MAX) > magnitude ? bits & INT32_MAX : magnitude;
    }
    int32_t found = 0, bits = most ^ (most >> 31 & INT32_MAX);
    float max;
    memcpy(&max, &bits, sizeof max);
    if (magnitude > INFINITY_BITS || !isfinite(max)) return -1;
    while (logits[found] != max) found++;
    return found;
}

static bool before(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sink(struct candidate *heap, int n, int i)
{
    struct candidate x = heap[i];
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], x)) break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

static void heapify(struct candidate *c, int n)
{
    for (int i = n / 2 - 1; i >= 0; i--) sink(c, n, i);
}

/* Takes the first of a heap of n and leaves it behind the others, at c[n - 1]. */
static struct candidate pop(struct candidate *c, int n)
{
    struct candidate top = c[0];
    c[0] = c[n - 1];
    c[n - 1] = top;
    sink(c, n - 1, 0);
    return top;
}

static double weight(struct candidate c, float max, double temperature)
{
    return exp(((double)c.logit - (double)max) / temperature);
}

static double mass(const struct candidate *c, int n, float max, double temperature)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += weight(c[i], max, temperature);
    return sum;
}

/* Moves the n_top first ones, in order, to the front. */
static void top_first(struct candidate *c, int n, int n_top)
{
    heapify(c, n);
    for (int i = 0; i < n_top; i++) pop(c, n - i);
    /* They stand at the end, the first one last. */
    for (int i = 0; i < n / 2; i++) {
        struct candidate t = c[i];
        c[i] = c[n - 1 - i];
        c[n - 1 - i] = t;
    }
}

/* Reduces the candidates to those that may be drawn; returns how many. */
static int truncate_candidates(const struct sample_params *p, struct candidate *c, int n, float max)
{
    double t = p->temperature;
    if (p->top_k > 0 && p->top_k < n) {
        top_first(c, n, p->top_k);
        n = p->top_k;
    }
    if (p->min_p > 0) {
        int kept = 0;
        for (int i = 0; i < n; i++)
            if (c[i].logit == max || weight(c[i], max, t) >= (double)p->min_p) c[kept++] = c[i];
        n = kept;
    }
    if (p->top_p > 0 && p->top_p < 1) {
        double wanted = (double)p->top_p * mass(c, n, max, t), sum = 0;
        int kept = 0;
        heapify(c, n);
        while (kept < n && (kept == 0 || sum < wanted)) sum += weight(pop(c, n - kept++), max, t);
        memmove(c, c + n - kept, (size_t)kept * sizeof *c);
        n = kept;
    }
    return n;
}

static int32_t draw(const struct sample_params *p, const struct candidate *c, int n, float max, int index,
                    float *probability)
{
    double total = mass(c, n, max, p->temperature);
    double u = rng_uniform(p->seed, STREAM, (uint64_t)index) * total, sum = 0;
    int chosen = 0;                 /* rounding may leave u at the total: then the last one counts */
    for (int i = 0; i < n; i++) {
        double w = weight(c[i], max, p->temperature);
        if (w == 0) continue;
        chosen = i;
        sum += w;
        if (u < sum) break;
    }
    if (probability) *probability = (float)(weight(c[chosen], max, p->temperature) / total);
    return c[chosen].id;
}

luce_status sampler_choose(struct sampler *s, const struct sample_params *p, float *logits,
                           const int32_t *history, int n_history, int index, int32_t *token,
                           float *probability, luce_error *err)
{
    *token = -1;
    for (int i = 0; i < p->n_bias; i++)
        if (p->bias_id[i] >= 0 && p->bias_id[i] < s->vocab) logits[p->bias_id[i]] += p->bias[i];
    penalise(s, p, logits, history, n_history);
    mask_out(p, logits, s->vocab);
    int32_t best = largest(logits, s->vocab);
    if (best < 0)
        return fail(err, LUCE_E_NUMERIC, "no token can be chosen at position %d: the logits are not finite, or "
                    "all tokens are masked", index);
    if (!(p->temperature > 0)) {
        *token = best;
        if (probability) *probability = 1;
        return LUCE_OK;
    }
    float max = logits[best];
    int n = 0;
    for (int i = 0; i < s->vocab; i++)
        if (logits[i] > -INFINITY) s->candidate[n++] = (struct candidate){ logits[i], i };
    n = truncate_candidates(p, s->candidate, n, max);
    *token = draw(p, s->candidate, n, max, index, probability);
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
