/* spec/ddtree.h - a tree from a block of guesses: for each depth the likeliest tokens are known, and a tree
 * takes the paths whose product of probabilities is largest (Ringel et al. 2026, "DDTree"). It always begins
 * with the greedy chain: what lies deep is never given up for what lies beside. Threads: any. */
#ifndef LUCE_SPEC_DDTREE_H
#define LUCE_SPEC_DDTREE_H

#include "ops/ops.h"
#include "spec/tree.h"

enum { DDTREE_MOST = LIKELY_MOST }; /* children of a node, at most */

struct candidates {                 /* of one depth after one token, the likeliest first */
    int     n;
    int32_t token[DDTREE_MOST];
    float   log_likely[DDTREE_MOST];
};
struct ddtree_source {
    void *context;
    /* Tokens at `depth` (1 is the first after the root), after a node with this token. */
    void (*children)(void *context, int depth, int32_t after, struct candidates *out);
};

/* Adds up to `most` nodes to the tree, which holds the root alone, none deeper than `depth`. Equally likely
 * nodes: the shallower one, then the one that was found first. margin above 0: nodes whose path is less likely than
 * e^-margin times the likeliest one are left out. */
void ddtree_build(struct tree *t, int most, int depth, double margin, const struct ddtree_source *source);

#endif
