/* cli/options_table.h - the rows of options, for what reads them (options.c) and prints them (options_print.c). */
#ifndef LUCE_CLI_OPTIONS_TABLE_H
#define LUCE_CLI_OPTIONS_TABLE_H

#include <stddef.h>

#include "cli/options.h"

enum option_type {
    OPT_FLAG,           /* bool; --name, or --name=yes or no */
    OPT_TEXT,           /* const char * */
    OPT_INT,            /* int64_t, from min to max */
    OPT_SEED,           /* struct option_seed: 64 bits, with or without sign; -1: none */
    OPT_NUMBER,         /* double, from min to max */
    OPT_TEXTS,          /* struct option_texts: each one given is added */
    OPT_INTS,           /* struct option_ints: whole numbers from min to max with commas between; the last list wins */
};

struct option {
    const char *name;               /* --name; the variable is LUCE_NAME with '_' for '-' */
    char letter;                    /* -x, or 0 */
    enum option_type type;
    size_t at;                      /* of the field in struct options */
    const char *fallback;           /* the default as text, or NULL: none, off */
    const char *value;              /* what --help calls the value; NULL for a flag */
    double min, max;                /* of numbers */
    unsigned commands;              /* FOR() of each command that takes it */
    const char *help;
};

enum { NAME_MAX_BYTES = 64, OPTIONS_MOST = 128 };
extern const struct option options_table[];
extern const int options_count;

/* option_numbers.c: a value into a field of type OPT_INT or OPT_NUMBER, OPT_SEED, OPT_INTS. `from` is what the user
 * wrote, the flag or the variable. LUCE_E_ARG for what is no number, or out of range. */
luce_status option_number(const struct option *row, void *field, const char *from, const char *text, luce_error *err);
luce_status option_seed(struct option_seed *field, const char *from, const char *text, luce_error *err);
luce_status option_numbers(const struct option *row, struct option_ints *field, const char *from, const char *text,
                           luce_error *err);
/* LUCE_NAME of an option. */
void options_variable(const char *option, char out[NAME_MAX_BYTES]);
/* Adds the names that its value may be with this command: ": none, ngram". */
void options_known(struct buf *out, const struct option *row, enum command_id id);
/* Adds ", also --max-ctx" for each other name that the command knows it by. */
void options_aliases(struct buf *out, const struct option *row, enum command_id id);
/* options_absent.c: why the server has no option of this name (len bytes), which others have, and what to do instead;
 * NULL: nobody has it. And the i-th of these names, NULL past the end. */
const char *option_absent(const char *name, size_t len);
const char *option_absent_name(int i);

#endif
