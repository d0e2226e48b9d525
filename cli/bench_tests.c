/* cli/bench_tests.c - the tests of luce bench: what each repetition does, and how many there are.
 * Rates change from minute to minute where other guests share the machine's memory, so limit and figure are measured in
 * turn: a round measures the device, then takes samples for ROUND_SECONDS, and compares them with what it measured. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "cli/terminal.h"

/* --repeat takes up to 1000; MORE_ROUNDS when the probes were disturbed so that the result lies above the limit. */
enum { MORE_ROUNDS = 20, ROUNDS_MAX = 1000 + MORE_ROUNDS };
static const double test_seconds = 0.5;        /* a test goes on at least that long, */
static const double round_seconds = 0.05;      /* a round's samples too */
static const uint64_t seed = 1;

/* The arithmetic that operations can use. */
enum rate { RATE_INT8, RATE_BF16, RATE_F32, RATES };

/* One timed repetition; what it prepares is not timed. */
struct probe_env {
    struct bench *b;
    struct seq *seq[STEP_SEQS];
    int n_seqs;
    int32_t *tokens;
    int n, depth;                   /* rows, all sequences together; positions before them, */
    int end;                        /* and where decode begins again there */
    bool under_way;                 /* decode: the next step was queued behind the last one, */
    double done;                    /* which was done at that time */
    double bytes;                   /* of the last repetition, */
    int steps;                      /* in so many steps */
    double ops[RATES];
};
typedef luce_status (*sample_fn)(struct probe_env *e, double *seconds, luce_error *err);

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Products by the format of their weights, all else is f32. */
static enum rate rate_of(const struct call *c)
{
    for (int i = 0; i < c->n_w; i++) {
        const struct weight *w = c->w[i];
        if (!w || w->dim[1] <= 1 || w->type == Q_F32) continue;
        return w->type == Q_F16 || w->type == Q_BF16 ? RATE_BF16 : RATE_INT8;
    }
    return RATE_F32;
}

static void add_work(struct probe_env *e)
{
    const struct tape *t = runner_tape(e->b->runner);
    for (int i = 0; i < t->n_calls; i++) {
        struct work w = call_work(t, &t->calls[i], runner_step(e->b->runner));
        e->bytes += w.bytes;
        e->ops[rate_of(&t->calls[i])] += w.ops;
    }
    e->steps++;
}

static void no_work(struct probe_env *e)
{
    e->bytes = e->steps = 0;
    for (int i = 0; i < RATES; i++) e->ops[i] = 0;
}

/* The least time of the last repetition. Work that has no faster rate of its own uses the next one. */
static double limit_of(const struct probe_env *e, const struct device_limits *l)
{
    double rate[RATES] = { l->int8_ops_per_s, l->bf16_ops_per_s, l->f32_ops_per_s }, seconds = 0;
    rate[RATE_BF16] = fmax(rate[RATE_BF16], rate[RATE_F32]);
    rate[RATE_INT8] = fmax(rate[RATE_INT8], rate[RATE_BF16]);
    for (int i = 0; i < RATES; i++)
        if (e->ops[i] > 0) seconds += e->ops[i] / rate[i];
    return fmax(e->bytes / l->read_bytes_per_s, seconds);
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
    for (int i = 0; i < e->n && !st; i++) st = runner_choice(r, i, &token, err);
    *seconds = clock_seconds() - start;
    no_work(e);
    if (!st) add_work(e);
    return st;
}

/* Queues one row of each sequence, accepted; follows: of the other side's step. */
static luce_status queue_decode(struct probe_env *e, bool follows, luce_error *err)
{
    struct runner *r = e->b->runner;
    luce_status st = LUCE_OK;
    runner_begin(r, STEP_NARROW);
    for (int i = 0; i < e->n_seqs && !st; i++) {
        if (seq_length(e->seq[i]) >= e->end) seq_truncate(e->seq[i], e->depth);
        st = runner_add(r, e->seq[i], e->tokens + i, NULL, 1, WANT_ALL, NULL, err);
        if (!st && follows) runner_follow(r, i);
    }
    if (!st) st = runner_queue(r, err);
    for (int i = 0; i < e->n_seqs && !st; i++) seq_accept(e->seq[i], NULL, 1);
    return st;
}

/* One row of each sequence; where the device takes it, the next step is queued first, as the engine does it. */
static luce_status sample_decode(struct probe_env *e, double *seconds, luce_error *err)
{
    struct runner *r = e->b->runner;
    double start = e->under_way ? e->done : clock_seconds();
    luce_status st = e->under_way ? LUCE_OK : queue_decode(e, false, err);
    int side = runner_side(r);
    e->under_way = !st && runner_goes_on(r);
    if (e->under_way) {
        runner_turn(r, !side);
        st = queue_decode(e, true, err);
        runner_turn(r, side);
    }
    int32_t token;
    for (int i = 0; i < e->n && !st; i++) st = runner_choice(r, i, &token, err);
    e->done = clock_seconds();
    *seconds = e->done - start;
    no_work(e);
    if (!st) add_work(e);
    if (e->under_way) runner_turn(r, !side);
    return st;
}

static luce_status sample_prefill(struct probe_env *e, double *seconds, luce_error *err)
{
    struct runner *r = e->b->runner;
    seq_truncate(e->seq[0], 0);
    no_work(e);
    *seconds = 0;
    for (int done = 0, rows; done < e->n; done += rows) {
        if (interrupted(NULL)) return fail(err, LUCE_E_CANCELLED, "bench: interrupted");
        double start = clock_seconds();
        luce_status st = runner_prefill_step(r, e->seq[0], e->tokens + done, e->n - done, &rows, err);
        *seconds += clock_seconds() - start;
        if (st) return st;
        add_work(e);
    }
    return LUCE_OK;
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* What the rounds of a test have measured so far. */
struct rounds {
    double seconds[ROUNDS_MAX];     /* the mean of its samples */
    double share[ROUNDS_MAX], read[ROUNDS_MAX];
    int n, samples;
    double last;                    /* seconds of the last repetition, timed or not */
    double joules;
};

/* The measurement leaves its own data in the caches, so that a short repetition is made once untimed. */
static luce_status sample_round(struct probe_env *e, sample_fn fn, double step_bytes, struct rounds *s,
                                luce_error *err)
{
    struct bench *b = e->b;
    struct device *d = b->device;
    struct device_limits l = { .block = (uint64_t)step_bytes }, *best = &b->limits;
    luce_status st = d->fns->measure(d, &l, err);
    e->under_way = false;
    if (!st && s->last < round_seconds) st = fn(e, &s->last, err);
    double joules = d->fns->joules(d), sum = 0, limit = 0;
    int n = 0;
    while (!st && (n == 0 || sum < round_seconds)) {
        if (interrupted(NULL)) return fail(err, LUCE_E_CANCELLED, "bench: interrupted");
        st = fn(e, &s->last, err);
        sum += s->last;
        limit += limit_of(e, &l);
        n++;
    }
    if (st) return st;
    double used = d->fns->joules(d) - joules;   /* not above 0: unknown, or the counter began anew */
    s->joules = joules >= 0 && used > 0 ? s->joules + used : NAN;
    s->samples += n;
    s->seconds[s->n] = sum / n;
    s->share[s->n] = limit / sum;
    s->read[s->n++] = l.read_bytes_per_s;
    best->read_bytes_per_s = fmax(best->read_bytes_per_s, l.read_bytes_per_s);
    best->int8_ops_per_s = fmax(best->int8_ops_per_s, l.int8_ops_per_s);
    best->bf16_ops_per_s = fmax(best->bf16_ops_per_s, l.bf16_ops_per_s);
    best->f32_ops_per_s = fmax(best->f32_ops_per_s, l.f32_ops_per_s);
    return LUCE_OK;
}

static luce_status sample_all(struct probe_env *e, sample_fn fn, struct bench_result *r, luce_error *err)
{
    struct rounds s = { 0 };
    luce_status st = fn(e, &s.last, err);       /* compiles, and touches memory for the first time */
    double begin = clock_seconds(), step_bytes = st ? 0 : e->bytes / e->steps;
    int64_t least = e->b->o->repeat, most = least + MORE_ROUNDS;
    while (!st && s.n < ROUNDS_MAX && (s.n < least || clock_seconds() - begin < test_seconds)) {
        st = sample_round(e, fn, step_bytes, &s, err);
        if (!st && s.n >= least && s.n < most && median(s.share, s.n) > 1) least = s.n + 1;
    }
    if (st) return st;
    r->joules_per_token = s.joules / s.samples / r->width;
    r->samples = s.samples;
    r->rounds = s.n;
    r->seconds = median(s.seconds, s.n);
    r->read_bytes_per_s = median(s.read, s.n);
    r->limit_share = median(s.share, s.n);
    r->bytes = e->bytes;
    for (int i = 0; i < RATES; i++) r->ops += e->ops[i];
    return LUCE_OK;
}

static luce_status test(struct bench *b, const char *name, sample_fn fn, int width, int n_seqs, int depth,
                        luce_error *err)
{
    if (!bench_selected(b->o, name)) return LUCE_OK;
    struct bench_result *r = &b->result[b->n_results];
    *r = (struct bench_result){ .test = name, .width = width, .depth = depth };
    struct probe_env e = { .b = b, .n = width, .n_seqs = n_seqs, .depth = depth };
    int context = runner_load_plan(b->runner).context;
    e.end = depth + PAGE < context ? depth + PAGE : context;
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
