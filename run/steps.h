/* run/steps.h - rows of sequences into a step. Pure: touches the step alone.
 * Threads: any, each its own step. */
#ifndef LUCE_RUN_STEPS_H
#define LUCE_RUN_STEPS_H

#include "base/error.h"
#include "tape/step.h"

enum want { WANT_NONE, WANT_LAST, WANT_ALL, WANT_REST };    /* rows whose logits are wanted; REST: all but
                                                               the first */

struct step_rows {              /* rows of one sequence */
    const int32_t *tokens;
    const int     *parent;      /* local row before row i, lower than i; -1: the last position. NULL: a chain */
    int            n;
    int            length;      /* of the sequence: where its rows begin */
    int            origin;      /* added to the place of a row for its rotary position */
    enum want      want;
};

void step_begin(struct step *s, enum step_class class);
/* Adds an entry to seq[] with these rows; slot, past and commit are filled in when the step runs.
 * max_rows: of the whole step. *end receives the highest position used + 1; *first_out the index of
 * the first wanted row, -1 without one. LUCE_E_ARG when the step is full or a parent is not before its
 * row; the step is unchanged then. */
luce_status step_add(struct step *s, const struct step_rows *rows, int max_rows, int *end, int *first_out,
                     luce_error *err);
/* Takes back the last addition. */
void step_undo(struct step *s);

#endif
