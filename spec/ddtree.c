/* spec/ddtree.c - see ddtree.h. The open ends are, for each node, its likeliest child that is not in the tree
 * yet: siblings become available one by one, as in a heap of ranks. */
#include "spec/ddtree.h"

#include <math.h>
#include <stdbool.h>

struct builder {
    struct tree *tree;
    const struct ddtree_source *source;
    int most, depth;
    float margin, least;            /* nothing less likely than this is taken (logarithms) */
    struct candidates children[NARROW_ROWS];
    int   next[NARROW_ROWS];        /* rank of the node's first child that is not in the tree */
    float log_likely[NARROW_ROWS];  /* of the path to the node */
};

/* Makes a node's children known. */
static void open_node(struct builder *b, int node, float log_likely)
{
    const struct tree *t = b->tree;
    b->log_likely[node] = log_likely;
    b->next[node] = 0;
    b->children[node].n = 0;
    if (t->depth[node] < b->depth)
        b->source->children(b->source->context, t->depth[node] + 1, t->token[node], &b->children[node]);
}

/* The next child of `node` into the tree; returns it, or -1 without one. */
static int take(struct builder *b, int node)
{
    const struct candidates *c = &b->children[node];
    int rank = b->next[node];
    if (rank >= c->n || b->tree->n > b->most) return -1;
    float log_likely = b->log_likely[node] + c->log_likely[rank];
    if (b->tree->n == 1 && b->margin > 0) b->least = log_likely - b->margin;
    if (log_likely < b->least) return -1;
    b->next[node]++;
    int child = tree_add(b->tree, node, c->token[rank], expf(log_likely));
    if (child >= 0) open_node(b, child, log_likely);
    return child;
}

void ddtree_build(struct tree *t, int most, int depth, double margin, const struct ddtree_source *source)
{
    struct builder b = { .tree = t, .source = source, .most = most < NARROW_ROWS ? most : NARROW_ROWS - 1,
                         .depth = depth, .margin = (float)margin, .least = -INFINITY };
    open_node(&b, 0, 0);
    for (int node = 0; node >= 0;) node = take(&b, node);       /* the greedy chain */
    while (t->n <= b.most) {
        int best = -1;
        float likely = 0;
        for (int i = 0; i < t->n; i++) {
            if (b.next[i] >= b.children[i].n) continue;
            float now = b.log_likely[i] + b.children[i].log_likely[b.next[i]];
            bool better = best < 0 || now > likely || (now == likely && t->depth[i] < t->depth[best]);
            if (better) best = i, likely = now;
        }
        if (best < 0 || take(&b, best) < 0) return;
    }
}
