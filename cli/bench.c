/* cli/bench.c - luce bench: how fast a model runs here, and what the machine would allow.
 * Decode and steps start behind a cache of random pages, so that a depth costs no prefill. Rates of the
 * device are measured between the tests, by the same threads, and the best of them is the limit; a
 * result above it shows that the probe is wrong, and is an error. docs/bench.md says what counts. */
#include "cli/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/terminal.h"
#include "model/vocab_gguf.h"
#include "quant/quant.h"

enum { SAMPLES_MAX = 1000 };
static const double sample_seconds = 0.5;      /* a test goes on at least that long */
static const uint64_t seed = 1;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One timed repetition; what it prepares is not timed. */
struct probe_env {
    struct bench *b;
    struct seq *seq;
    int32_t *tokens;
    int n;                          /* rows */
    double bytes;                   /* of the last repetition, */
    int steps;                      /* in so many steps */
    double ops;
};
typedef luce_status (*sample_fn)(struct probe_env *e, double *seconds, luce_error *err);

static void add_work(struct probe_env *e)
{
    const struct tape *t = runner_tape(e->b->runner);
    for (int i = 0; i < t->n_calls; i++) {
        struct work w = call_work(t, &t->calls[i], runner_step(e->b->runner));
        e->bytes += w.bytes;
        e->ops += w.ops;
    }
}

/* A step of n rows after the sequence's end; nothing of it is accepted. */
static luce_status sample_step(struct probe_env *e, double *seconds, luce_error *err)
{
    struct runner *r = e->b->runner;
    int32_t token;
    double start = clock_seconds();
    runner_begin(r, STEP_NARROW);
    luce_status st = runner_add(r, e->seq, e->tokens, NULL, e->n, WANT_ALL, NULL, err);
    if (!st) st = runner_run(r, err);
    for (int i = 0; i < e->n && !st; i++) st = runner_argmax(r, i, &token, err);
    *seconds = clock_seconds() - start;
    e->bytes = e->ops = 0;
    e->steps = 1;
    if (!st) add_work(e);
    return st;
}

static luce_status sample_decode(struct probe_env *e, double *seconds, luce_error *err)
{
    luce_status st = sample_step(e, seconds, err);
    if (!st) seq_accept(e->seq, NULL, 1);
    if (!st && seq_length(e->seq) >= e->b->depth + PAGE) seq_truncate(e->seq, e->b->depth);
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
    seq_truncate(e->seq, 0);
    e->bytes = 0;
    e->steps = 0;
    *seconds = 0;
    for (int done = 0, rows; done < e->n; done += rows) {
        enum step_class class;
        rows = runner_prefill_rows(r, e->seq, e->n - done, &class);
        double start = clock_seconds();
        luce_status st = runner_prefill(r, e->seq, e->tokens + done, rows, interrupted, NULL, err);
        *seconds += clock_seconds() - start;
        if (st) return st;
        add_work(e);
        e->steps++;
    }
    e->ops = prefill_ops(e->b, e->n);
    return LUCE_OK;
}

/* Rates vary with the neighbours; the best that is seen is what the machine can do. What a step reads is
 * read again by the next one, at the rate of the caches where they hold it. */
static luce_status measure(struct bench *b, double step_bytes, luce_error *err)
{
    struct device_limits l = { .block = (uint64_t)step_bytes };
    luce_status st = b->device->fns->measure(b->device, &l, err);
    if (st) return st;
    struct device_limits *best = &b->limits;
    best->read_bytes_per_s = fmax(best->read_bytes_per_s, l.read_bytes_per_s);
    best->int8_ops_per_s = fmax(best->int8_ops_per_s, l.int8_ops_per_s);
    best->bf16_ops_per_s = fmax(best->bf16_ops_per_s, l.bf16_ops_per_s);
    best->f32_ops_per_s = fmax(best->f32_ops_per_s, l.f32_ops_per_s);
    return LUCE_OK;
}

static luce_status sample_all(struct probe_env *e, sample_fn fn, struct bench_result *r, luce_error *err)
{
    double times[SAMPLES_MAX], once;
    luce_status st = fn(e, &once, err);         /* compiles, and touches memory for the first time */
    if (!st) st = measure(e->b, r->step_bytes = e->bytes / e->steps, err);
    double begin = clock_seconds();
    int n = 0;
    while (!st && n < SAMPLES_MAX && (n < e->b->repeat || clock_seconds() - begin < sample_seconds)) {
        if (interrupted(NULL)) return fail(err, LUCE_E_CANCELLED, "bench: interrupted");
        st = fn(e, &times[n++], err);
    }
    if (st) return st;
    qsort(times, (size_t)n, sizeof *times, by_size);
    r->samples = n;
    r->seconds = n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
    r->bytes = e->bytes;
    r->ops = e->ops;
    return LUCE_OK;
}

static bool selected(const struct options *o, const char *name)
{
    bool found = o->only.n == 0;
    for (int i = 0; i < o->only.n; i++) found = found || !strcmp(o->only.at[i], name);
    return found;
}

static luce_status test(struct bench *b, const char *name, sample_fn fn, int width, int depth, luce_error *err)
{
    if (!selected(b->o, name)) return LUCE_OK;
    struct bench_result *r = &b->result[b->n_results];
    *r = (struct bench_result){ .test = name, .width = width, .depth = depth };
    struct probe_env e = { .b = b, .n = width };
    progress_show(name, b->n_results / (double)12);
    luce_status st = LUCE_OK;
    e.tokens = mem_array((size_t)width, sizeof *e.tokens);
    if (!e.tokens) st = fail(err, LUCE_E_NOMEM, "out of memory for %d tokens", width);
    uint64_t vocab = (uint64_t)runner_model(b->runner)->c.vocab;
    for (int i = 0; i < width && !st; i++) e.tokens[i] = (int32_t)(rng_u64(seed, 1, (uint64_t)i) % vocab);
    if (!st) st = seq_open(&e.seq, runner_cache(b->runner), err);
    if (!st) st = seq_fill_random(e.seq, depth, seed, err);
    if (!st) st = sample_all(&e, fn, r, err);
    seq_close(e.seq);
    mem_free(e.tokens);
    if (!st) b->n_results++;
    return st;
}

/* The rate that products of this format can reach. */
static double rate_of(const struct device_limits *l, uint32_t type)
{
    double best = l->f32_ops_per_s;
    if (type == Q_F32) return best;
    best = fmax(best, l->bf16_ops_per_s);
    return type == Q_F16 || type == Q_BF16 ? best : fmax(best, l->int8_ops_per_s);
}

static void set_shares(struct bench *b)
{
    const struct model *m = runner_model(b->runner);
    double time = 0, count = 0;
    for (int i = 0; i < m->n_weights; i++) {
        const struct weight *w = &m->weights[i];
        double n = (double)w->dim[0] * (double)w->dim[1] * (double)w->dim[2];
        time += n / rate_of(&b->limits, w->type);
        count += n;
    }
    b->ops_rate = count / time;
    for (int i = 0; i < b->n_results; i++) {
        struct bench_result *r = &b->result[i];
        double least = fmax(r->bytes / b->limits.read_bytes_per_s, r->ops / b->ops_rate);
        r->limit_share = least / r->seconds;
    }
}

/* Neighbours may have disturbed every probe: a rate that is below a result is looked for some more times. */
static luce_status measure_again(struct bench *b, luce_error *err)
{
    luce_status st = LUCE_OK;
    for (int round = 0; round < 20 && !st; round++) {
        const struct bench_result *over = NULL;
        set_shares(b);
        for (int i = 0; i < b->n_results; i++)
            if (b->result[i].limit_share > 1) over = &b->result[i];
        if (!over) break;
        st = measure(b, over->step_bytes, err);
    }
    set_shares(b);
    return st;
}

static luce_status check_shares(const struct bench *b, luce_error *err)
{
    for (int i = 0; i < b->n_results; i++)
        if (b->result[i].limit_share > 1)
            return fail(err, LUCE_E_NUMERIC, "bench: %s at width %d reaches %.2f of the limit, which is more than "
                        "can be: the probe of the limits is wrong for this machine or model", b->result[i].test,
                        b->result[i].width, b->result[i].limit_share);
    return LUCE_OK;
}

static void on_progress(void *context, double share)
{
    (void)context;
    progress_show("loading", share);
}

static luce_status open_model(struct bench *b, struct model **out, luce_error *err)
{
    const struct options *o = b->o;
    *out = NULL;
    if (!o->model == !o->synthetic)
        return fail(err, LUCE_E_ARG, "bench: give either --model FILE or --synthetic PRESET:FORMAT");
    if (o->synthetic) return model_open_synthetic(out, o->synthetic, err);
    luce_status st = gguf_open(&b->file, o->model, err);
    if (!st && gguf_key(b->file, "tokenizer.ggml.model")) st = vocab_from_gguf(&b->vocab, b->file, err);
    return st ? st : model_open(out, b->file, err);
}

static void count_parameters(struct bench *b)
{
    const struct model *m = runner_model(b->runner);
    for (int i = 0; i < m->n_weights; i++) {
        const struct weight *w = &m->weights[i];
        uint64_t n = w->dim[0] * w->dim[1] * w->dim[2];
        b->parameters += n;
        if (w != m->token_embd && w != m->output) b->product_parameters += n;
    }
}

static luce_status open_bench(struct bench *b, luce_error *err)
{
    const struct options *o = b->o;
    double start = clock_seconds();
    struct model *m = NULL;
    struct device_params dp = { .n_threads = (int)o->threads };
    int longest = b->depth + 2 * PAGE;
    if (selected(o, "prefill") && b->prompt_tokens > longest) longest = b->prompt_tokens;
    struct load_params p = { .context = o->context ? (int)o->context : longest, .chunk = (int)o->chunk,
                             .progress = on_progress, .cancelled = interrupted };
    luce_status st = cache_format(o->cache_type_k, &p.k_format, err);
    if (!st) st = cache_format(o->cache_type_v, &p.v_format, err);
    if (!st) st = open_model(b, &m, err);
    if (!st) st = device_open(&b->device, o->device, &dp, err);
    if (!st) st = b->device->fns->info(b->device, &b->info, err);
    if (st) {
        model_close(m);
        return st;
    }
    p.device = b->device;
    int longest_here = m->c.context;            /* the runner takes the model */
    st = runner_open(&b->runner, m, &p, err);
    progress_show("loading", 1);
    if (st == LUCE_E_CONTEXT && !o->context)
        return fail(err, st, "--depth %d and --prompt-tokens %d need a context of %d, this model takes up to %d; "
                    "lower them", b->depth, b->prompt_tokens, longest, longest_here);
    if (st) return st;
    count_parameters(b);
    b->result[b->n_results++] = (struct bench_result){ .test = "load", .samples = 1,
                                                       .seconds = clock_seconds() - start };
    return LUCE_OK;
}

static luce_status run_tests(struct bench *b, luce_error *err)
{
    luce_status st = test(b, "decode", sample_decode, 1, b->depth, err);
    for (int width = 1; width <= NARROW_ROWS && !st; width *= 2)
        st = test(b, "step", sample_step, width, b->depth, err);
    if (!st) st = test(b, "prefill", sample_prefill, b->prompt_tokens, 0, err);
    progress_show("", 1);
    return st;
}

luce_status bench_run(const struct options *o, luce_error *err)
{
    if (o->spec || o->draft) return bench_spec_run(o, err);
    static const char *const names[] = { "decode", "step", "prefill" };
    for (int i = 0; i < o->only.n; i++) {
        bool known = false;
        for (size_t k = 0; k < COUNT(names); k++) known = known || !strcmp(o->only.at[i], names[k]);
        if (!known) return fail(err, LUCE_E_ARG, "--only %s: the tests are decode, step, prefill", o->only.at[i]);
    }
    struct bench b = { .o = o, .depth = (int)o->depth, .prompt_tokens = (int)o->prompt_tokens,
                       .repeat = (int)o->repeat };
    struct buf out = { 0 };
    interrupt_catch();
    luce_status st = open_bench(&b, err);
    if (!st) st = run_tests(&b, err);
    if (!st) st = measure_again(&b, err);
    if (!st) {
        if (o->json) bench_print_json(&b, &out);
        else bench_print_text(&b, &out);
        st = output_write(&out, err);
    }
    if (!st) st = check_shares(&b, err);
    buf_drop(&out);
    runner_close(b.runner);
    device_close(b.device);
    vocab_close(b.vocab);
    gguf_close(b.file);
    return st;
}
