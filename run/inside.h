/* run/inside.h - what the files of run/ share. */
#ifndef LUCE_RUN_INSIDE_H
#define LUCE_RUN_INSIDE_H

#include "run/runner.h"

enum { N_NARROW = 7, WIDE_BUCKET = N_NARROW, N_BUCKETS };    /* 1, 2, 4, ... 64 rows; a chunk */

struct bucketed {
    struct plan     plan;
    struct program *program[2]; /* of each side; NULL until the first step that needs it */
};

struct runner {
    struct model  *model;
    struct device *device;
    struct cache  *cache;
    struct tape    tape[2];             /* by class; the second only when the family records it */
    struct record  record;
    struct load_plan plan;
    int            chunk;
    struct bucketed bucket[N_BUCKETS];
    struct program *last;       /* whose results are readable */
    struct step   *step;
    int            side;        /* that these two are of (runner_turn), and what the other side has */
    struct program *other_last;
    struct step   *other_step;
    struct step   *edits;       /* a step without rows, for more edits than one step takes */
    struct seq    *seq[STEP_SEQS];      /* of the step, by index */
};

/* Rows of bucket i, and its room in each domain. */
struct bucket bucket_of(int i, int chunk);
/* Rows of a prefill step: what p asks for or the device prefers. */
luce_status chunk_of(const struct load_params *p, int *chunk, luce_error *err);
/* The tape that steps of this class run. */
const struct tape *tape_of(const struct model *m, const struct tape *tapes, enum step_class class);
/* Fills *plan for the tapes of m, recorded with this layout. */
luce_status plan_load(const struct model *m, const struct kv_layout *kv, const struct tape *tapes,
                      const struct load_params *p, struct load_plan *plan, luce_error *err);
struct cache_config cache_config_of(const struct load_params *p, const struct kv_layout *kv, int context,
                                    int chunk);
luce_status upload_weights(struct model *m, const struct load_params *p, luce_error *err);
void release_weights(struct model *m, struct device *d);

#endif
