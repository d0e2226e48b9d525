/* run/sample.h - from logits to a token. The chain, in order: logit bias and penalties, then
 * (temperature 0: the largest logit, ties to the lowest id), else top-k, temperature, min-p, top-p,
 * one draw (ops/sample.c). The draw of position i depends on (seed, i) alone, so that text does not depend on
 * company, width or speculation. Without bias and penalties the device does all of it.
 * Threads: pure but for the sampler's own scratch. */
#ifndef LUCE_RUN_SAMPLE_H
#define LUCE_RUN_SAMPLE_H

#include "base/error.h"
#include "tape/step.h"

struct sample_params {
    float    temperature;       /* 0: greedy */
    int      top_k;             /* 0: off */
    float    top_p;             /* 1: off; 0 means 1 */
    float    min_p;             /* 0: off */
    float    repetition_penalty;        /* 1: off; 0 means 1 */
    float    presence_penalty, frequency_penalty;   /* 0: off */
    int      penalty_window;    /* last tokens that penalties see; 0: 256 */
    uint64_t seed;
    const int32_t *bias_id;     /* logit_bias: n_bias ids and what is added to their logits */
    const float   *bias;
    int      n_bias;
    const uint32_t *mask;       /* bit set: allowed; one bit per id; NULL: all */
};
struct sampler;
luce_status sampler_open(struct sampler **out, int vocab, luce_error *err);
void sampler_close(struct sampler *s);
/* The draw of the token of position `index`, for a device. */
struct step_draw sample_draw(const struct sample_params *p, int index);
/* Chooses the token of position `index`. logits [vocab] are overwritten. history: the tokens before,
 * oldest first. LUCE_E_NUMERIC when no finite logit is left. */
luce_status sampler_choose(struct sampler *s, const struct sample_params *p, float *logits, const int32_t *history,
                           int n_history, int index, int32_t *token, luce_error *err);
/* log softmax of the raw logits at `token`, and the n most likely ids with theirs. */
void sampler_logprobs(const float *logits, int vocab, int32_t token, float *logprob, int n, int32_t *ids,
                      float *logprobs);

#endif
