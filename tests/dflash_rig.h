/* tests/dflash_rig.h - a target with a DFlash drafter beside it, and drafters of the fixtures with something changed
 * (scripts/make-dflash-fixtures.py). */
#ifndef LUCE_TESTS_DFLASH_RIG_H
#define LUCE_TESTS_DFLASH_RIG_H

#include "drafter_rig.h"
#include "gguf/writer.h"
#include "model/dflash.h"

enum { VOCAB = 96, BLOCK = 8, TEXT_MOST = 200 };    /* of the fixtures */

extern const char target_file[];

/* On this device, which the rig closes; NULL: the CPU. */
bool dflash_rig_open(struct drafter_rig *g, struct device *device, const char *path, bool second, int n_slots);
const struct gguf_tensor *dflash_answer(const struct drafter_rig *g, const char *kind, int text, const char *what);
/* The guess at a text of n tokens. */
struct tree dflash_guess(struct drafter_rig *g, int slot, const int32_t *ids, int n, int most);
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
