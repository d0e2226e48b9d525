/* run/cost.h - what a narrow step of each width costs on this machine: measured at the start, then kept
 * up to date by the steps that run (texts grow, neighbours come and go). A width that no step has had for a while is
 * taken to have changed as the others have: else one that was slow once would be avoided, and never found to be fast
 * again. Times decide how much is guessed, never what is said. Threads: one owner, the runner's. */
#ifndef LUCE_RUN_COST_H
#define LUCE_RUN_COST_H

#include "run/runner.h"

struct cost {
    double seconds[NARROW_ROWS + 1];    /* by rows, as measured at first; 0: not measured */
    double drift, own[NARROW_ROWS + 1]; /* parts of it that all widths, and this one besides, take longer now */
};

/* Times steps of 1, 2, 4, ... up to `most` rows on a sequence of its own, which needs a free slot (a
 * cache without one gives an empty table). Stops widening when a step takes longer than half a second. */
luce_status cost_measure(struct cost *c, struct runner *r, int most, luce_error *err);
/* A step of n rows took so long. */
void cost_observe(struct cost *c, int n, double seconds);
/* Seconds of a step of n rows, between and beyond measured widths by a straight line; 0 when nothing
 * is known. */
double cost_of(const struct cost *c, int n);

#endif
