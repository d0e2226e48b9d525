/* text/pretokenize.h - the splitters: text to the pieces inside which tokens may merge. A
 * pre-tokenizer is a row: the names that files use for it, and up to four steps, each of which
 * cuts the pieces of the step before. Models state the steps as regular expressions; here each
 * kind of expression is a hand-written scanner, linear and without recursion or limits, so that
 * no text can exhaust a stack and none is split differently because it is long. */
#ifndef LUCE_TEXT_PRETOKENIZE_H
#define LUCE_TEXT_PRETOKENIZE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

enum { SPLIT_STEPS = 4 };

struct split_step {
    /* The end of the piece that begins at p < end; `end` is the end of the piece of the step
     * before. */
    const char *(*next)(const struct split_step *s, const char *p, const char *end);
    uint8_t letters;            /* classes that make a word */
    uint8_t set;                /* classes that are isolated as a run */
    int max;                    /* characters in one run of digits (of the set); 0: any number */
    bool contractions;          /* words end before or with 's, 't, 're, 've, 'm, 'll, 'd */
};

struct pretokenizer {
    const char *names;          /* separated by blanks; the first is the row's own */
    struct split_step steps[SPLIT_STEPS];   /* up to the first without `next` */
    bool ignore_merges;         /* a piece that is a token stays whole */
    bool add_bos;               /* when the file does not say */
    bool nfc;                   /* text is brought into Normalization Form C first */
};

/* The row that has this name, or NULL. */
const struct pretokenizer *pretokenizer_find(struct str name);
/* Row i, or NULL after the last. */
const struct pretokenizer *pretokenizer_at(size_t i);

/* Cuts a text: zeroed but for row, p and end. False at the end of the text. The text must be valid
 * UTF-8. */
struct splitter {
    const struct pretokenizer *row;
    const char *p, *end;
    const char *ends[SPLIT_STEPS];          /* where the piece of each step ends */
};
bool split_next(struct splitter *s, struct str *piece);

#endif
