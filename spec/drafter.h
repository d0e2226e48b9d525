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
    struct runner *target;
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
    const struct script *script;    /* NULL unless there is one */
    struct tree tree;               /* holds the root; the drafter adds to it */
    bool declined;                  /* a guess would not pay, so there is none */
    double seconds;                 /* that the guess took */
};

struct drafter {
    const char *name;               /* --spec NAME */
    const char *doc;                /* one line */
    bool takes_file;                /* needs --draft FILE */
    bool costs;                     /* guessing takes time that grows with its depth */
    int  most, block;               /* the usual --draft-max and --draft-block-size */
    /* *out is owned by the caller (close). */
    luce_status (*open)(struct drafter_state **out, const struct drafter_env *env, luce_error *err);
    /* Adds up to `most` nodes to each tree; adding none is a fine answer. */
    luce_status (*propose)(struct drafter_state *s, struct draft *const *drafts, int n, luce_error *err);
    void (*close)(struct drafter_state *s);     /* NULL is fine */
};

/* NULL: nobody has that name. LUCE_E_ARG of drafter_get lists the known ones. */
const struct drafter *drafter_find(const char *name);
luce_status drafter_get(const struct drafter **out, const char *name, luce_error *err);
/* Row i of the table, NULL past the end. */
const struct drafter *drafter_row(int i);

#endif
