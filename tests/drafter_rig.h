/* tests/drafter_rig.h - a target from a fixture with a drafter beside it that reads its features. */
#ifndef LUCE_TESTS_DRAFTER_RIG_H
#define LUCE_TESTS_DRAFTER_RIG_H

#include "spec/drafter.h"
#include "test.h"

struct drafter_rig {
    struct gguf *file, *answers;    /* of the target; answers: NULL, or what the test has opened */
    struct device *device;
    struct runner *target;
    const struct drafter *drafter;
    struct drafter_state *state;
};

struct drafter_rig_params {
    const char *drafter, *target;   /* name; fixture */
    const char *path;               /* the drafter's file, NULL: it needs none */
    struct device *device;          /* the rig closes it; NULL: the CPU with two threads */
    int n_slots, context;
};
bool drafter_rig_open(struct drafter_rig *g, const struct drafter_rig_params *p);
void drafter_rig_close(struct drafter_rig *g);
/* Feeds tokens at the end of the sequence, in steps of `width`, and shows the drafter their rows. */
void drafter_rig_feed(struct drafter_rig *g, struct seq *s, const int32_t *ids, int to, int width,
                      enum step_class class);

#endif
