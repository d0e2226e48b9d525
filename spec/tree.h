/* spec/tree.h - a tree of guessed tokens: node 0 is the last token of the text, a path from there is a
 * guess at how it goes on. A parent has a lower number than its children, so the nodes in order are the
 * rows of a narrow step; a chain is the tree in which every node has one child.
 * Threads: any, each its own tree. */
#ifndef LUCE_SPEC_TREE_H
#define LUCE_SPEC_TREE_H

#include "tape/step.h"

struct tree {
    int     n;                          /* nodes, the root included */
    int32_t token[NARROW_ROWS];
    int     parent[NARROW_ROWS];        /* -1 of the root */
    int     depth[NARROW_ROWS];         /* 0 of the root */
    /* The drafter's idea of how likely the text takes the path to this node; 1 of the root. It never
     * grows along a path, so the likeliest nodes are a tree. */
    float   likely[NARROW_ROWS];
};

/* The root alone. */
void tree_init(struct tree *t, int32_t token);
/* Adds a child and returns its number. A child that is there with this token becomes more likely by
 * `likely` instead. -1 when the tree is full. */
int tree_add(struct tree *t, int parent, int32_t token, float likely);
/* The child of `node` with this token, or -1. */
int tree_child(const struct tree *t, int node, int32_t token);
/* Keeps the n likeliest nodes (at least the root), equally likely ones by number, in their order. */
void tree_prune(struct tree *t, int n);
/* The depth of the deepest node. */
int tree_deepest(const struct tree *t);
/* Nodes on the way to `node`, itself included, as bits. */
uint64_t tree_path(const struct tree *t, int node);

#endif
