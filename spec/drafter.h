/* spec/drafter.h - ways of guessing how a text goes on, one row each. A guess may be anything: the
 * verifier decides, and a bad one costs time only.
 *
 * To add a drafter: a file spec/NAME.c with its row, and a line in drafters.c. Flags, messages and
 * --help take the name from there. Threads: one owner, the one of the target's runner. */
#ifndef LUCE_SPEC_DRAFTER_H
#define LUCE_SPEC_DRAFTER_H

#include "run/runner.h"
#include "spec/tree.h"
#include "spec/verify.h"
#include "text/vocab.h"

struct drafter_state;               /* each drafter's own */

/* What a drafter may know of its target; all borrowed, for as long as it is open. */
struct drafter_env {
    struct runner *target;          /* NULL before it is loaded (prepare) */
    const struct model *model;
    const struct vocab *vocab;      /* of the target; NULL: it has ids only */
    const char *path;               /* file of the drafter, NULL without one */
};

/* The true continuation, for the drafter `scripted`. */
struct script {
    const int32_t *tokens;
    int n, from;                    /* tokens[0] is the text's token number `from` */
    double right;                   /* how many of a guess are to be right, on average */
};

/* One text that wants a guess. */
struct draft {
    int slot;                       /* of its sequence: what a drafter keeps, it keeps by slot */
    const int32_t *ids;             /* all its tokens; the last one is the root of the tree */
    int n_ids;
    int fixed;                      /* nodes that are wanted whether they pay or not; 0: as many as pay */
    int most, depth;                /* nodes beside the root, and how deep they may be */
    double margin;                  /* of drafters of trees: see ddtree_build */
    int block;                      /* rows of a block, the last token included, for drafters that fill blocks */
    int foreseen;                   /* rows of the block that was guessed before the last token was known; 0: none */
    const struct script *script;    /* NULL unless there is one */
    struct tree tree;               /* holds the root; the drafter adds to it */
    bool copied;                    /* what is in it stood in the text before, and the drafter is not asked */
    bool declined;                  /* a guess would not pay, so there is none */
    double seconds;                 /* that the guess took */
    double price;                   /* of the step, guess and check, in plain steps of the text; 0: not known */
};

/* Rows of the target's last step that have become part of a text. */
struct observed {
    int slot;
    const int32_t *ids;             /* the text up to these rows, and further */
    int at;                         /* position of the first of them */
    int first_row, n;               /* rows of the step ... */
    const uint8_t *path;            /* ... first_row + path[i]; NULL: one after the other */
};

/* A text of a step that is queued, and that will be guessed at whatever is kept of its rows. */
struct foresight {
    int slot;
    int n_ids;                      /* of the text; the last one is the root of its tree in the step */
    int seq, first_out;             /* of the step: its sequence, and the wanted row of the root */
    int rows;                       /* that may be kept, at most */
    int depth;                      /* that a guess may have when the root alone is kept */
    int block;                      /* as in struct draft */
};

/* What a guess costs: nothing to speak of; time that grows with its depth; one pass, however deep. */
enum guess_cost { GUESS_FREE, GUESS_BY_DEPTH, GUESS_BY_PASS };

struct drafter {
    const char *name;               /* --spec NAME */
    const char *doc;                /* one line */
    bool takes_file;                /* needs --draft FILE */
    bool trees;                     /* guesses branches as well, where there is room for more than a chain */
    bool told;                      /* guesses what it is told (struct script): tests and luce bench */
    enum guess_cost costs;
    int  most, block;               /* the usual --draft-max and --draft-block-size; block 0: the file says */
    /* Whether the file is one of this drafter's; NULL: any may be. */
    bool (*claims)(const char *path);
    /* Before the target is loaded: checks the file against the model, and asks for the outputs of layers that
     * it reads (taps). NULL: it wants nothing. */
    luce_status (*prepare)(const struct drafter_env *env, struct record_params *record, luce_error *err);
    /* *out is owned by the caller (close). */
    luce_status (*open)(struct drafter_state **out, const struct drafter_env *env, luce_error *err);
    int (*block_of)(const struct drafter_state *s);     /* the file's block, where `block` is 0 */
    /* After each step of the target, for each text that may be guessed at: takes what it needs of the target's
     * taps, which the next step overwrites. NULL: it reads none. */
    luce_status (*observe)(struct drafter_state *s, const struct observed *o, luce_error *err);
    /* Behind a step of the target that is queued: takes what the device will keep of it, and guesses on from there.
     * Texts that it cannot do that for get a block of 0 and are guessed at later, as always. Returns when the step and
     * the guesses are done. NULL: it does not know how. */
    luce_status (*foresee)(struct drafter_state *s, struct foresight *texts, int n, luce_error *err);
    /* Rows of the block that was foreseen for a text of so many tokens, if that has come true; else 0. */
    int (*foreseen)(const struct drafter_state *s, int slot, int n_ids);
    /* Adds up to `most` nodes to each tree; adding none is a fine answer. What was foreseen comes first. */
    luce_status (*propose)(struct drafter_state *s, struct draft *const *drafts, int n, luce_error *err);
    void (*close)(struct drafter_state *s);     /* NULL is fine */
};

/* Asked before drafters that take time, see speculate.c. */
extern const struct drafter drafter_ngram;
/* NULL: nobody has that name. LUCE_E_ARG of drafter_get lists the known ones. */
const struct drafter *drafter_find(const char *name);
luce_status drafter_get(const struct drafter **out, const char *name, luce_error *err);
/* The drafter that this file is for: the one that claims it, else draft-model. */
const struct drafter *drafter_for(const char *path);
/* Row i of the table, NULL past the end. */
const struct drafter *drafter_row(int i);

#endif
