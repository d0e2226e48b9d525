/* cli/bench_spec.h - what luce bench --spec counts, and how it is shown. All figures come from the steps
 * that the engine tells (luce_step), which --log writes as they are. Threads: one owner, but for what the engine's
 * thread adds while a text is made. */
#ifndef LUCE_CLI_BENCH_SPEC_H
#define LUCE_CLI_BENCH_SPEC_H

#include "base/file.h"
#include "cli/options.h"
#include "cli/prompt_sets.h"

struct spec_sums {                  /* of steps that guesses were wanted for */
    size_t steps, drafted, accepted, declined;
    size_t off;                     /* texts that guessing was switched off for in the end */
    double draft_seconds, verify_seconds, accept_seconds;
};

struct spec_set {
    const char *name;
    int prompts;
    size_t tokens;                  /* of each way, after the first of a text */
    double plain_seconds, seconds;
    struct spec_sums sum;
};

struct spec_bench {
    const struct options *o;
    luce_model *model;
    luce_model_info info;
    struct spec_set set[PROMPT_SETS + 1];       /* those with prompts */
    int n;
    /* The text that is being made: */
    int prompt;                     /* its number in the set, from 1 */
    struct spec_sums text;
    unsigned recent;                /* its last steps with a guess, or with none because it would not pay (a bit that is
                                       set); the newest is the lowest bit */
    struct file_writer log;         /* fd -1: none is written */
    struct buf lines;               /* of the log, for this text */
};

/* Adds a line to the log's. */
void bench_spec_log(struct spec_bench *b, const luce_step *step);
void bench_spec_print_text(const struct spec_bench *b, struct buf *out);
void bench_spec_print_json(const struct spec_bench *b, struct buf *out);

#endif
