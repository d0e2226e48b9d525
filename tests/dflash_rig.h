/* tests/dflash_rig.h - a target with a DFlash drafter beside it, and drafters of the fixtures with something changed
 * (scripts/make-dflash-fixtures.py). */
#ifndef LUCE_TESTS_DFLASH_RIG_H
#define LUCE_TESTS_DFLASH_RIG_H

#include "gguf/writer.h"
#include "model/dflash.h"
#include "spec/drafter.h"
#include "test.h"

enum { VOCAB = 96, BLOCK = 8, TEXT_MOST = 200 };    /* of the fixtures */

extern const char target_file[];

/* A target with a drafter beside it. */
struct dflash_rig {
    struct gguf *file, *answers;
    struct device *device;
    struct runner *target;
    const struct drafter *drafter;
    struct drafter_state *state;
};

bool dflash_rig_open(struct dflash_rig *g, const char *path, bool second, int n_slots);
/* The same on this device, which the rig closes. */
bool dflash_rig_open_on(struct dflash_rig *g, struct device *device, const char *path, bool second, int n_slots);
void dflash_rig_close(struct dflash_rig *g);
const struct gguf_tensor *dflash_answer(const struct dflash_rig *g, const char *kind, int text, const char *what);
/* Feeds tokens at the end of the sequence, in steps of `width`, and shows the drafter their rows. */
void dflash_feed(struct dflash_rig *g, struct seq *s, const int32_t *ids, int to, int width, enum step_class class);
/* The guess at a text of n tokens. */
struct tree dflash_guess(struct dflash_rig *g, int slot, const int32_t *ids, int n, int most);
bool dflash_same_tree(const struct tree *a, const struct tree *b);

struct dflash_change {
    const char *drop;               /* key or tensor that is left out */
    const char *key;                /* of this u32 value, or of an array of one */
    uint32_t value;
    bool array;
    const char *extra;              /* a tensor more */
    const char *vocabulary;         /* file whose tokenizer keys are added */
    const void *said;               /* tokens of a head of its own (i64, or i32), with the target's rows */
    int n_said;
    bool narrow, no_head;
    bool own_codes;                 /* the selector's codes, too, are those of `said` in its order */
};
/* The fixture `file` with the change, as a file of its own, until the next one. */
const char *dflash_changed(const char *file, const struct dflash_change *c);

#endif
