/* spec/policy.h - whether to guess at a text, how deep, and what of a guess is worth checking: spec/width.h with what
 * steps and guesses cost, and what each text may lose. No clock and no model: those who run steps tell what they took.
 * Threads: one owner. */
#ifndef LUCE_SPEC_POLICY_H
#define LUCE_SPEC_POLICY_H

#include "spec/drafter.h"
#include "spec/width.h"

struct policy {
    enum guess_cost costs;
    int most, block;                /* nodes of a guess; positions of a guessed block */
    bool chain;                     /* no branches */
    struct cost cost;               /* of a step */
    struct guess_time unit;         /* of one text, running mean; by depth: of one pass, however many texts */
    struct record_of_guesses all, slot[STEP_SEQS];      /* of the drafter's guesses; the accounts and speeds of texts */
    struct record_of_guesses all_copied, copied[STEP_SEQS];     /* of copied ones */
};

/* cost, unit, costs, most, block and chain are the caller's. */
void policy_init(struct policy *p);
/* A new text is in this slot. */
void policy_begin(struct policy *p, int slot);
/* Copies of what stood in the text before are in the trees: leaves what gives more than the text has as a rule. */
void policy_copied(struct policy *p, struct draft *const *drafts, int n, int texts);
/* Before the guess: most, depth, block and declined of each of n drafts, whose depth is what the text has room for;
 * base_rows: rows of the step that belong to texts without a guess; room: nodes beside the roots. */
void policy_limit(struct policy *p, struct draft *const *drafts, int n, int base_rows, int room);
/* The guess at k of these texts took so long. */
void policy_guessed(struct policy *p, struct draft *const *drafts, int k, double took);
/* While a step with the guess `now` is under way: rows of the block to guess behind it, 0 for none yet. depth: what
 * the text has room for; n texts are asked about. */
int policy_foresee(struct policy *p, const struct draft *now, int depth, int n, int texts);
/* Seconds that the guess of a block takes, as it should be. */
double policy_block_time(const struct policy *p, int block);
/* After it: prunes the trees to what is worth checking, and says what each text pays. */
void policy_prune(struct policy *p, struct draft *const *drafts, int n, int base_rows, int room);
/* n rows of the tree, the root included, have become text. */
void policy_observe(struct policy *p, const struct draft *d, int n);

#endif
