/* run/likelihood.h - how likely a model finds a text.
 * Threads: the runner's owner. */
#ifndef LUCE_RUN_LIKELIHOOD_H
#define LUCE_RUN_LIKELIHOOD_H

#include "run/runner.h"

struct likelihood {                  /* of -log p of tokens, in nats */
    double   sum, squares;
    uint64_t n;
};
/* Mean, and the standard error of it as of an estimate over independent tokens; 0 for fewer than 2. */
double likelihood_mean(const struct likelihood *s);
double likelihood_error(const struct likelihood *s);

/* Feeds n tokens to an empty sequence and adds -log p(token i | tokens before it) for i = first .. n - 1,
 * first >= 1. Logits are read row by row: memory does not grow with n. LUCE_E_CANCELLED between steps
 * (cancelled may be NULL), LUCE_E_NUMERIC for a logit that is not finite, LUCE_E_ARG for a token outside
 * the vocabulary. */
luce_status runner_score(struct runner *r, struct seq *s, const int32_t *tokens, int n, int first,
                         struct likelihood *out, bool (*cancelled)(void *), void *context, luce_error *err);

#endif
