/* cli/options_table.h - the rows of options, for what reads them (options.c) and prints them (options_print.c). */
#ifndef LUCE_CLI_OPTIONS_TABLE_H
#define LUCE_CLI_OPTIONS_TABLE_H

#include <stddef.h>

#include "cli/options.h"

enum option_type {
    OPT_FLAG,           /* bool; --name, or --name=yes or no */
    OPT_TEXT,           /* const char * */
    OPT_INT,            /* int64_t, from min to max */
    OPT_NUMBER,         /* double, from min to max */
    OPT_TEXTS,          /* struct option_texts: each one given is added */
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

enum { NAME_MAX_BYTES = 64 };
extern const struct option options_table[];
extern const int options_count;

/* LUCE_NAME of an option. */
void options_variable(const char *option, char out[NAME_MAX_BYTES]);
/* Adds the names that its value may be: ": none, ngram". */
void options_known(struct buf *out, const struct option *row);
/* Adds ", also --max-ctx" for each other name that the command knows it by. */
void options_aliases(struct buf *out, const struct option *row, enum command_id id);

#endif
