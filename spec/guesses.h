/* spec/guesses.h - what drafters that are models share: tokens from logits, and whether two vocabularies are
 * the same. Threads: any. */
#ifndef LUCE_SPEC_GUESSES_H
#define LUCE_SPEC_GUESSES_H

#include "spec/drafter.h"

/* The n likeliest tokens that the vocabulary lets be said (NULL: all), and the logarithms of their probabilities,
 * the likeliest first; returns how many there are. Logit i is that of token token[i], NULL: of token i. NaN is never
 * chosen. */
int likeliest(const float *logits, int n_logits, const int32_t *token, const struct vocab *v, int n, int32_t *ids,
              float *log_likely);
/* Adds the likeliest tokens as children of a node of the tree: one where a chain is wanted, a few where more nodes
 * are (d->most > d->depth). The likeliest is *token; returns its node, -1 when no room was left or nothing is
 * likely. */
int guesses_grow(struct draft *d, int node, const float *logits, int n_logits, const struct vocab *v, int32_t *token);
/* LUCE_E_ARG with the first id that differs: ordinary tokens, BOS and EOS must be the same, a few special tokens
 * and padding at the end need not. */
luce_status drafter_check_vocab(const struct drafter_env *env, const struct vocab *own, luce_error *err);

#endif
