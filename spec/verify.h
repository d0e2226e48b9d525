/* spec/verify.h - which part of a tree the target says itself. One piece of code for chains and trees,
 * greedy and sampled: the target chooses the token after each node of the path as it would without a
 * guess (greedy, or by the random number of that position), and goes on while the choice is a child.
 * So the text is the one of plain decoding, token by token, whatever was guessed.
 * Threads: any. */
#ifndef LUCE_SPEC_VERIFY_H
#define LUCE_SPEC_VERIFY_H

#include <stdbool.h>

#include "base/error.h"
#include "spec/tree.h"

struct accepted {
    int     n;                      /* rows of the step that are part of the text, the root included */
    uint8_t path[NARROW_ROWS];      /* their numbers, in order */
};

struct chooser {                    /* the target and the text that grows */
    void *context;
    /* The token after `node`, by the logits of its row and all tokens before; it is part of the text
     * from here on. *more: false when the text ends with it. */
    luce_status (*choose)(void *context, int node, int32_t *token, bool *more, luce_error *err);
};

/* Walks the tree; a->n tokens are chosen. After a failure of choose, which is returned, the row that it was
 * asked about is the last of the path. */
luce_status verify(const struct tree *t, const struct chooser *c, struct accepted *a, luce_error *err);

#endif
