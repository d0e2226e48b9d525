/* spec/tree.c - see tree.h. */
#include "spec/tree.h"

#include <stdbool.h>

void tree_init(struct tree *t, int32_t token)
{
    t->n = 1;
    t->token[0] = token;
    t->parent[0] = -1;
    t->depth[0] = 0;
    t->likely[0] = 1;
}

int tree_child(const struct tree *t, int node, int32_t token)
{
    for (int i = node + 1; i < t->n; i++)
        if (t->parent[i] == node && t->token[i] == token) return i;
    return -1;
}

int tree_add(struct tree *t, int parent, int32_t token, float likely)
{
    int i = tree_child(t, parent, token);
    if (i >= 0) {
        t->likely[i] += likely;
        return i;
    }
    if (t->n == NARROW_ROWS) return -1;
    i = t->n++;
    t->token[i] = token;
    t->parent[i] = parent;
    t->depth[i] = t->depth[parent] + 1;
    t->likely[i] = likely;
    return i;
}

void tree_prune(struct tree *t, int n)
{
    bool keep[NARROW_ROWS] = { true };
    int number[NARROW_ROWS], kept = 1;
    if (n >= t->n) return;
    for (; kept < n; kept++) {
        int best = -1;
        for (int i = 1; i < t->n; i++)
            if (!keep[i] && keep[t->parent[i]] && (best < 0 || t->likely[i] > t->likely[best])) best = i;
        keep[best] = true;
    }
    kept = 0;
    for (int i = 0; i < t->n; i++) {
        if (!keep[i]) continue;
        int k = number[i] = kept++;
        t->token[k] = t->token[i];
        t->parent[k] = i ? number[t->parent[i]] : -1;
        t->depth[k] = t->depth[i];
        t->likely[k] = t->likely[i];
    }
    t->n = kept;
}

int tree_deepest(const struct tree *t)
{
    int deepest = 0;
    for (int i = 1; i < t->n; i++)
        if (t->depth[i] > deepest) deepest = t->depth[i];
    return deepest;
}

uint64_t tree_path(const struct tree *t, int node)
{
    uint64_t bits = 0;
    for (; node >= 0; node = t->parent[node]) bits |= UINT64_C(1) << node;
    return bits;
}
