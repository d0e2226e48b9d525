/* text/merge.h - byte-pair merging of one piece. The pair of neighbours with the lowest rank is
 * merged, the leftmost of equals, until no pair has a rank. Short pieces are scanned, long ones
 * use a heap: O(n log n) whatever the text. */
#ifndef LUCE_TEXT_MERGE_H
#define LUCE_TEXT_MERGE_H

#include "text/vocab_private.h"

struct symbol {
    uint32_t from, len;         /* in the piece */
    int32_t id;                 /* -1: no token has these bytes */
    uint32_t prev, next;        /* heap only */
    struct pair pair;           /* with its right neighbour */
};

struct merger {                 /* scratch; zeroed is empty */
    struct symbol *symbols;     /* the result of the last merge */
    size_t n_symbols, cap;
    uint64_t *heap;
    size_t n_heap, heap_cap;
};

/* Fills m->symbols with the tokens of a piece of less than 2 GiB; false when out of memory. */
bool merge_piece(struct merger *m, const struct vocab *v, struct str piece);
/* The same by definition, scanning all pairs for each merge: the reference for tests. */
bool merge_naive(struct merger *m, const struct vocab *v, struct str piece);
void merger_drop(struct merger *m);

/* SPM and gemma4 pieces are long, up to a whole text. They may be cut between any two characters
 * that stand side by side in no token, since no merge can reach across.
 * build_joints marks the neighbours that some token has, joint_end finds where the first part
 * ends. */
luce_status build_joints(struct vocab *v, luce_error *err);
size_t joint_end(const struct vocab *v, struct str text);

#endif
