/* spec/follow.h - what drafters keep that read the target's own states: for each of the target's slots a sequence of
 * the drafter, whose positions stand for those of the text.
 *
 * Features (the outputs of some layers of the target, side by side) come with every step of the target. They wait
 * in memory of the device (`held`) or of the host and go through the drafter together: when a guess is wanted, when
 * there is no more room, or when another text comes. The drafter's cache keeps texts as the target's does, and has room
 * for as many: what is claimed there is claimed here. Positions whose features are lost are left out: the drafter sees
 * less, and guesses worse.
 * Threads: one owner, the drafter. */
#ifndef LUCE_SPEC_FOLLOW_H
#define LUCE_SPEC_FOLLOW_H

#include "spec/drafter.h"

enum { FOLLOW_WAITING = NARROW_ROWS };  /* features of a text that wait, at most */

struct follower {                   /* of one slot of the target */
    struct seq *seq;                /* of the drafter; NULL until its first use */
    int32_t *ids;                   /* [context] the text whose features it has, from its start */
    float *waiting;                 /* [FOLLOW_WAITING][feature] of the last n_waiting of them; see `held` */
    int n_waiting;
    int end;                        /* features reach to this position */
};

/* Puts the first n of what waits of one text into the drafter's sequence; ids: the text, as many tokens further than
 * those features as `ahead` says. The rest goes on waiting. */
typedef luce_status (*follow_feed)(struct drafter_state *s, struct follower *f, const int32_t *ids, int n,
                                   luce_error *err);

struct followers {
    struct runner *target, *runner;
    int n_taps, embd, context, n_slots;
    bool held;                      /* features wait where the target's device computes, and never come to the host */
    int ahead;                      /* a drafter's row holds a feature and the token so many places further: 0, 1 */
    follow_feed feed;
    struct drafter_state *state;    /* given to feed */
    struct follower *slot;
};

/* All fields but `slot` are set; the runner may be. followers_close frees slots and sequences, before the
 * runner is closed; it is fine on what was never opened. */
luce_status followers_open(struct followers *fs, luce_error *err);
void followers_close(struct followers *fs);
/* Floats of a feature. */
size_t followers_feature(const struct followers *fs);
/* The follower of the slot holds features of this text and none at or behind position `at`; it may hold fewer. */
luce_status follow(struct followers *fs, int slot, const int32_t *ids, int at, luce_error *err);
/* What the device will keep of a text's rows in the target's step that is queued goes behind what waits, x->rows of
 * features with zeros at the end, and does not count until follow_keep. `held` only. */
luce_status follow_ahead(struct followers *fs, const struct foresight *x, luce_error *err);
/* Whether the device has kept just these rows, and chosen what the text has after each. */
luce_status follow_agrees(struct followers *fs, const struct foresight *x, const struct observed *o, bool *agrees,
                          luce_error *err);
/* Then: they are in the drafter's sequence already. */
void follow_keep(struct followers *fs, const struct observed *o);
/* What a step of the target has added to a text. */
luce_status follow_observe(struct followers *fs, const struct observed *o, luce_error *err);

#endif
