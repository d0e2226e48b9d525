/* spec/speculate.h - guessing for the texts of a step: one drafter, what its guesses have been worth, and
 * what steps cost. The scheduler asks for trees before a step and tells afterwards what came of them.
 * Threads: one owner, the one of the target's runner. */
#ifndef LUCE_SPEC_SPECULATE_H
#define LUCE_SPEC_SPECULATE_H

#include "spec/drafter.h"

struct speculator;

struct speculate_params {
    const char *name;               /* of the drafter; NULL: the one that the file is for, without one none */
    const char *path;               /* its file, or NULL */
    int most, block;                /* nodes of a guess; positions of a guessed block, the last token of
                                       the text included; 0: the drafter's own */
    bool chain;                     /* no branches */
    double margin;                  /* of trees, see ddtree_build; 0: none */
};
/* Before the target is loaded: what its tape must yield for the drafter goes into *record. LUCE_E_ARG and errors
 * of reading the file as speculator_open. */
luce_status speculator_prepare(const struct speculate_params *p, const struct model *target,
                               const struct vocab *vocab, struct record_params *record, luce_error *err);
/* *out is NULL for the drafter `none`. LUCE_E_ARG: no such drafter, a number out of range, a file that is
 * missing or too much, or another vocabulary. Also errors of loading the file. The target keeps a free
 * slot while its steps are timed here. */
luce_status speculator_open(struct speculator **out, const struct speculate_params *p, struct runner *target,
                            const struct vocab *vocab, luce_error *err);
void speculator_close(struct speculator *s);        /* NULL is fine; before the target's runner */
const char *speculator_name(const struct speculator *s);       /* "none" for NULL */

/* A new text is in this slot. */
void speculator_begin(struct speculator *s, int slot);
/* Fills the trees of n texts: slot, ids, n_ids, fixed, depth and script are set; depth is lowered to what
 * the block allows. base_rows: rows of the step that belong to texts without a guess. room: nodes beside
 * the roots. declined: the policy found that a guess does not pay. */
luce_status speculator_draft(struct speculator *s, struct draft *const *drafts, int n, int base_rows, int room,
                             luce_error *err);
/* Whether guesses can be made behind a step that is queued. */
bool speculator_foresees(const struct speculator *s);
/* Behind a step of so many texts that is queued: guesses at n of them, whose trees in the step are now[i]->tree, as far
 * as that is worth it; returns when the step has run. All but `block` of each foresight is set. */
luce_status speculator_foresee(struct speculator *s, struct foresight *of, struct draft *const *now, int n, int texts,
                               luce_error *err);
/* Of the `took` seconds of a step of n rows and of what was guessed behind it, the part of the guesses. */
double speculator_part(struct speculator *s, int n, double took);
/* Whether the drafter reads the target's steps (speculator_features). */
bool speculator_reads(const struct speculator *s);
/* Rows of the step have become text; before the next step of the target. */
luce_status speculator_features(struct speculator *s, const struct observed *o, luce_error *err);
/* n rows of the tree, the root included, have become text. */
void speculator_observe(struct speculator *s, const struct draft *d, int n);
/* A step of n rows took so long. */
void speculator_time(struct speculator *s, int n, double seconds);

#endif
