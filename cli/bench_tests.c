/* cli/bench_tests.c - the tests of luce bench: what each repetition does, and how many there are. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "cli/terminal.h"

enum { SAMPLES_MAX = 1000 };
static const double sample_seconds = 0.5;      /* a test goes on at least that long */
static const uint64_t seed = 1;

/* One timed repetition; what it prepares is not timed. */
struct probe_env {
    struct bench *b;
    struct seq *seq[STEP_SEQS];
    int n_seqs;
    int32_t *tokens;
    int n, depth;                   /* rows, all sequences together; positions before them */
    double bytes;                   /* of the last repetition, */
    int steps;                      /* in so many steps */
    double ops;
};
typedef luce_status (*sample_fn)(struct probe_env *e, double *seconds, luce_error *err);

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void add_work(struct probe_env *e)
{
    const struct tape *t = runner_tape(e->b->runner);
    for (int i = 0; i < t->n_calls; i++) {
        struct work w = call_work(t, &t->calls[i], runner_step(e->b->runner));
        e->bytes += w.bytes;
        e->ops += w.ops;
    }
}

/* A step of n rows after the sequences' ends; nothing of it is accepted. */
static luce_status sample_step(struct probe_env *e, double *seconds, luce_error *err)
{
    struct runner *r = e->b->runner;
    int32_t token;
    luce_status st = LUCE_OK;
    double start = clock_seconds();
    runner_begin(r, STEP_NARROW);
    for (int i = 0, rows = e->n / e->n_seqs; i < e->n_seqs && !st; i++)
        st = runner_add(r, e->seq[i], e->tokens + i * rows, NULL, rows, WANT_ALL, NULL, err);
    if (!st) st = runner_run(r, err);
    for (int i = 0; i < e->n && !st; i++) st = runner_argmax(r, i, &token, err);
    *seconds = clock_seconds() - start;
    e->bytes = e->ops = 0;
    e->steps = 1;
    if (!st) add_work(e);
    return st;
}

/* One row of each sequence, accepted. */
static luce_status sample_decode(struct probe_env *e, double *seconds, luce_error *err)
{
    luce_status st = sample_step(e, seconds, err);
    for (int i = 0; i < e->n_seqs && !st; i++) {
        seq_accept(e->seq[i], NULL, 1);
        if (seq_length(e->seq[i]) >= e->depth + PAGE) seq_truncate(e->seq[i], e->depth);
    }
    return st;
}

/* Operations of a prompt of n tokens from an empty cache: two per parameter of the products and token,
 * and causal attention. */
static double prefill_ops(const struct bench *b, int n)
{
    const struct decoder *c = &runner_model(b->runner)->c;
    double ops = 2.0 * (double)b->product_parameters * n;
    for (int l = 0; l < c->n_layers; l++) {
        double seen = 0;
        int window = c->layer[l].window;
        for (int i = 0; i < n; i++) seen += window && i + 1 > window ? window : i + 1;
        ops += 4.0 * c->layer[l].heads * c->head_dim * seen;
    }
    return ops;
}

static luce_status sample_prefill(struct probe_env *e, double *seconds, luce_error *err)
{
    struct runner *r = e->b->runner;
    seq_truncate(e->seq[0], 0);
    e->bytes = 0;
    e->steps = 0;
    *seconds = 0;
    for (int done = 0, rows; done < e->n; done += rows) {
        enum step_class class;
        rows = runner_prefill_rows(r, e->seq[0], e->n - done, &class);
        double start = clock_seconds();
        luce_status st = runner_prefill(r, e->seq[0], e->tokens + done, rows, interrupted, NULL, err);
        *seconds += clock_seconds() - start;
        if (st) return st;
        add_work(e);
        e->steps++;
    }
    e->ops = prefill_ops(e->b, e->n);
    return LUCE_OK;
}

static luce_status sample_all(struct probe_env *e, sample_fn fn, struct bench_result *r, luce_error *err)
{
    double times[SAMPLES_MAX], once;
    struct device *d = e->b->device;
    luce_status st = fn(e, &once, err);         /* compiles, and touches memory for the first time */
    if (!st) st = bench_measure(e->b, r->step_bytes = e->bytes / e->steps, err);
    double begin = clock_seconds(), joules = d->fns->joules(d);
    int n = 0;
    while (!st && n < SAMPLES_MAX && (n < e->b->o->repeat || clock_seconds() - begin < sample_seconds)) {
        if (interrupted(NULL)) return fail(err, LUCE_E_CANCELLED, "bench: interrupted");
        st = fn(e, &times[n++], err);
    }
    if (st) return st;
    double used = d->fns->joules(d) - joules;   /* not above 0: unknown, or the counter began anew */
    r->joules_per_token = joules >= 0 && used > 0 ? used / n / r->width : NAN;
    qsort(times, (size_t)n, sizeof *times, by_size);
    r->samples = n;
    r->seconds = n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
    r->bytes = e->bytes;
    r->ops = e->ops;
    return LUCE_OK;
}

static luce_status test(struct bench *b, const char *name, sample_fn fn, int width, int n_seqs, int depth,
                        luce_error *err)
{
    if (!bench_selected(b->o, name)) return LUCE_OK;
    struct bench_result *r = &b->result[b->n_results];
    *r = (struct bench_result){ .test = name, .width = width, .depth = depth };
    struct probe_env e = { .b = b, .n = width, .n_seqs = n_seqs, .depth = depth };
    progress_show(name, 0.5);
    luce_status st = LUCE_OK;
    e.tokens = mem_array((size_t)width, sizeof *e.tokens);
    if (!e.tokens) st = fail(err, LUCE_E_NOMEM, "out of memory for %d tokens", width);
    uint64_t vocab = (uint64_t)runner_model(b->runner)->c.vocab;
    for (int i = 0; i < width && !st; i++) e.tokens[i] = (int32_t)(rng_u64(seed, 1, (uint64_t)i) % vocab);
    for (int i = 0; i < n_seqs && !st; i++) {
        st = seq_open(&e.seq[i], runner_cache(b->runner), err);
        if (!st) st = seq_fill_random(e.seq[i], depth, seed + (uint64_t)i, err);
    }
    if (!st) st = sample_all(&e, fn, r, err);
    for (int i = 0; i < n_seqs; i++) seq_close(e.seq[i]);
    mem_free(e.tokens);
    if (!st) b->n_results++;
    return st;
}

luce_status bench_tests_run(struct bench *b, luce_error *err)
{
    luce_status st = LUCE_OK;
    for (int i = 0; i < b->o->depth.n && !st; i++) {
        int depth = (int)b->o->depth.at[i];
        st = test(b, "decode", sample_decode, 1, 1, depth, err);
        for (int n = 1; n <= STEP_SEQS && !st; n *= 2) st = test(b, "batch", sample_decode, n, n, depth, err);
        for (int n = 1; n <= NARROW_ROWS && !st; n *= 2) st = test(b, "step", sample_step, n, 1, depth, err);
    }
    for (int i = 0; i < b->o->prompt_tokens.n && !st; i++)
        st = test(b, "prefill", sample_prefill, (int)b->o->prompt_tokens.at[i], 1, 0, err);
    progress_show("", 1);
    return st;
}
