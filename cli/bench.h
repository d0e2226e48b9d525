/* cli/bench.h - what a bench run gives: limits of the device, and results beside them. */
#ifndef LUCE_CLI_BENCH_H
#define LUCE_CLI_BENCH_H

#include "cli/options.h"
#include "run/runner.h"
#include "text/vocab.h"

/* The load; for each depth decode, seven batches and seven steps; the prompts. */
enum { BENCH_RESULTS_MAX = 1 + OPTION_INTS_MAX * 16 };

struct bench_result {
    const char *test;           /* "load", "decode", "batch", "step", "prefill" */
    int    width, depth;        /* rows of the step (prefill: of the prompt); positions before each sequence's */
    int    samples, rounds;
    double seconds;             /* of a sample: median of the rounds' means */
    double bytes, ops;          /* that must move and be done; 0: not counted */
    double read_bytes_per_s;    /* median of its rounds */
    double limit_share;         /* each round's limit over its time, their median; 0: not counted */
    double joules_per_token;    /* a row; NaN: the device cannot tell */
};

struct bench {
    const struct options *o;
    struct device *device;
    struct runner *runner;
    struct gguf *file;          /* NULL: synthetic */
    struct vocab *vocab;        /* not used, but a part of loading */
    struct device_info info;
    struct device_limits limits;        /* the best of all rounds */
    uint64_t parameters;        /* of all weights; products: without embedding and head */
    uint64_t product_parameters;
    struct bench_result result[BENCH_RESULTS_MAX];     /* the first is the load */
    int n_results;
};

/* bench_tests.c: runs the selected tests, adding a result for each. */
luce_status bench_tests_run(struct bench *b, luce_error *err);
bool bench_selected(const struct options *o, const char *name);
/* luce bench --spec: a drafter on sets of prompts. Follows struct command's contract of run. */
luce_status bench_spec_run(const struct options *o, luce_error *err);
/* Rows of tokens a second; 0 for load. */
double bench_tokens_per_s(const struct bench_result *r);
void bench_print_text(const struct bench *b, struct buf *out);
void bench_print_json(const struct bench *b, struct buf *out);

#endif
