/* spec/width.h - how much to guess: the nodes that are expected to give more tokens than the text usually gets in the
 * time that they take. Expected tokens are the drafter's likelihoods, put right by how far they came true at each
 * depth; time is the measured cost of a step of that many rows and of the guess. When plain decoding is better,
 * nothing is guessed, but for a small try now and then. Threads: one owner. */
#ifndef LUCE_SPEC_WIDTH_H
#define LUCE_SPEC_WIDTH_H

#include "run/cost.h"
#include "spec/tree.h"

/* What came true, in running means; one for each text, and one for all that begin. */
struct record_of_guesses {
    double expected[NARROW_ROWS], accepted[NARROW_ROWS];    /* texts that reached this depth, by depth */
    double tokens, price;               /* of a step with a guess: its tokens, its time in plain steps of the text */
    int    guesses, memory;             /* that these are of, at most so many */
    int    quiet;                       /* steps since something was last guessed or tried */
    int    pause;                       /* quiet steps before the next try */
    double credit;                      /* plain steps that the text may lose by guesses, see record_account */
    double got, spent;                  /* tokens and price of a step, whether with a guess or not */
};
void record_init(struct record_of_guesses *r);
/* For a text that begins: what is known of all, which its own guesses soon outweigh. */
void record_begin(struct record_of_guesses *r, const struct record_of_guesses *all);
/* A tree was verified; n: rows of its accepted path, the root included. */
void record_observe(struct record_of_guesses *r, const struct tree *t, int n);
/* For drafters that cost time: a step with a guess gave so many tokens for the time of `price` plain ones, whether
 * or not any of the guess was checked. */
void record_paid(struct record_of_guesses *r, int tokens, double price);
/* False when steps with guesses have given fewer tokens than plain ones would have in their time. The accepted
 * depths cannot tell, since only what seems likely is checked. */
bool record_pays(const struct record_of_guesses *r);
/* A step gave so many tokens for the time of `price` plain ones, with or without a guess. What is lost comes off the
 * credit, what is won is added up to a bound, and so is a hundredth of a plain step for each; no guess is made that
 * could lose more than is left. So the loss over a text is bounded, whatever guesses are worth. */
void record_account(struct record_of_guesses *r, int tokens, double price);
/* Tokens in the time of a plain step, as the text has had them of late; never less than plain decoding gives. */
double record_speed(const struct record_of_guesses *r);
/* The likelihood of a node, put right. */
double record_likely(const struct record_of_guesses *r, const struct tree *t, int node);

/* One text of a step. */
struct width_of {
    const struct record_of_guesses *record;
    struct tree *tree;
    double spare;                       /* seconds that its nodes may take, at most */
    double speed;                       /* tokens that the text has in the time of a plain step, see record_speed */
};
/* Prunes the trees to the best size together; base_rows: rows of texts without one. At most `room` nodes
 * beside the roots. What the guess cost is spent, whatever is kept. */
void width_prune(const struct cost *c, const struct width_of *w, int n, int base_rows, int room);
/* For drafters that cost time: how deep a guess pays for one of n texts, 0 for not at all. */
struct guess_time {
    double pass, depth;             /* seconds of the guess for all n texts: at least, and for each depth */
};
int width_depth(const struct cost *c, const struct record_of_guesses *r, int n, int most, struct guess_time g);
/* Whether a guess of any depth would pay if it were right: if not, there is nothing to find out. */
bool width_can_pay(const struct cost *c, int n, int most, struct guess_time g);
/* Counts a step in which nothing was found worth guessing; true when it is time for a try. */
bool record_try(struct record_of_guesses *r);

#endif
