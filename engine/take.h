/* engine/take.h - what comes of a text's rows in the step that has run: its next token, or what was asked of a prompt.
 * Threads: the scheduler's owner. */
#ifndef LUCE_ENGINE_TAKE_H
#define LUCE_ENGINE_TAKE_H

#include "engine/scheduler.h"

/* Whether the token that the device chooses is the one that comes next, whatever it is. */
bool device_chooses(const struct scheduler *s, const struct request *r);
/* Chooses the next token of r by wanted row `out`, and lets r have it. */
luce_status choose_token(struct scheduler *s, struct request *r, int out, luce_error *err);
/* What comes of n rows of a text whose first wanted row is `out`: of a prompt perhaps more than a token. */
luce_status take_rows(struct scheduler *s, struct request *r, int out, int at, int n, luce_error *err);

#endif
