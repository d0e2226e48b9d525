/* engine/thinking.h - bounds how long a text reasons: once that has gone on for so many tokens, the next
 * ones are given instead of chosen, and close it. The given tokens are fed and told like all others, so
 * that the text goes on from the same cache.
 * Zeroed: no bound. Threads: one owner. */
#ifndef LUCE_ENGINE_THINKING_H
#define LUCE_ENGINE_THINKING_H

#include "base/buf.h"
#include "base/str.h"
#include "luce.h"

struct thinking {
    const luce_thinking *asked;     /* borrowed; NULL: no bound */
    enum { THINKING_BEFORE, THINKING_INSIDE, THINKING_OVER } state;
    struct buf seen;                /* text in which an opening or closing may yet be found */
    int  n;                         /* tokens so far */
    size_t given;                   /* tokens of asked->end that were taken */
};

void thinking_begin(struct thinking *t, const luce_thinking *asked);
/* The token that comes next whatever the model says, or -1. */
int32_t thinking_given(const struct thinking *t);
/* A token was taken, with this text (control tokens written out). */
void thinking_take(struct thinking *t, struct str text);
/* All given tokens have been taken. */
bool thinking_was_cut(const struct thinking *t);
/* The last tokens are twice the same 12 to 80: a text that was cut off and goes round in circles. */
bool tokens_repeat(const int32_t *ids, int n);
void thinking_drop(struct thinking *t);

#endif
