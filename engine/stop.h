/* engine/stop.h - ends a stream of text before the first of some strings, and holds back what may yet
 * become one. Zeroed state; `stop` is borrowed. Threads: one owner. */
#ifndef LUCE_ENGINE_STOP_H
#define LUCE_ENGINE_STOP_H

#include "base/buf.h"
#include "base/str.h"

struct stopper {
    const struct str *stop;     /* none is empty */
    int n_stop;
    struct buf held;            /* not yet let go */
    int hit;                    /* the string that is complete, once one is */
};

/* Adds text. Returns true when a stop string is complete: held is then cut before it. *ready receives
 * how many bytes at the front of `held` cannot become part of a stop string. */
bool stopper_add(struct stopper *s, struct str text, size_t *ready);
/* Forgets the first n held bytes. */
void stopper_take(struct stopper *s, size_t n);
void stopper_drop(struct stopper *s);

#endif
