/* spec/guesses.h - what drafters that are models share: their likeliest tokens, and whether two vocabularies are
 * the same. Threads: any. */
#ifndef LUCE_SPEC_GUESSES_H
#define LUCE_SPEC_GUESSES_H

#include "spec/ddtree.h"
#include "spec/drafter.h"

struct sayable {                    /* which tokens a guess may name */
    const int32_t *token;           /* the target's token of each of the drafter's; NULL: the same */
    int n_tokens;                   /* tokens that the target has */
    const struct vocab *vocab;      /* of the target, which lets some never be said; NULL: it has ids only */
};

/* What the last step gave for its n wanted rows from `out` on (record.ids), the likeliest first: into c [n]. A row
 * whose logits are not finite names nothing. */
luce_status guesses_read(struct runner *r, const struct sayable *say, int out, int n, struct candidates *c,
                         luce_error *err);
/* Adds the candidates as children of a node of the tree: one where a chain is wanted, all where more nodes are
 * (d->most > d->depth). The likeliest is *token; returns its node, -1 when no room was left or nothing is
 * likely. */
int guesses_grow(struct draft *d, int node, const struct candidates *c, int32_t *token);
/* LUCE_E_ARG with the first id that differs: ordinary tokens, BOS and EOS must be the same, a few special tokens
 * and padding at the end need not. */
luce_status drafter_check_vocab(const struct drafter_env *env, const struct vocab *own, luce_error *err);

#endif
