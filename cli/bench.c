/* cli/bench.c - luce bench: how fast a model runs here, and what the machine would allow.
 * Decode and steps start behind a cache of random pages, so that a depth costs no prefill. A test is rounds of a
 * measurement of the device's rates and of samples right after it, by the same threads. A result above the limit
 * shows that the probe is wrong, and is an error. docs/bench.md says what counts. */
#include "cli/bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/terminal.h"
#include "model/vocab_gguf.h"
#include "quant/quant.h"

/* The first needs no positions. */
static const struct {
    const char *name, *option;      /* what says how many positions it needs, */
    int more;                       /* at least so many more, */
    int room;                       /* and without --context, where the model takes them, so many */
} tests[] = {
    { "load", "depth", 0, 2 * PAGE }, { "decode", "depth", 1, 2 * PAGE }, { "batch", "depth", 1, 2 * PAGE },
    { "step", "depth", NARROW_ROWS, 2 * PAGE }, { "prefill", "prompt-tokens", 0, 0 },
};

bool bench_selected(const struct options *o, const char *name)
{
    bool found = o->only.n == 0 && strcmp(name, "batch") != 0;
    for (int i = 0; i < o->only.n; i++) found = found || !strcmp(o->only.at[i], name);
    return found;
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

static int most_of(const struct option_ints *list)
{
    int64_t most = list->at[0];
    for (int i = 1; i < list->n; i++)
        if (list->at[i] > most) most = list->at[i];
    return (int)most;
}

static int most_of_test(const struct options *o, size_t i)
{
    return most_of(!strcmp(tests[i].option, "depth") ? &o->depth : &o->prompt_tokens);
}

/* The context for the selected tests, and that each of them fits into it. */
static luce_status choose_context(const struct options *o, int models, int *context, luce_error *err)
{
    *context = (int)o->context;
    for (size_t i = 0; i < COUNT(tests) && !o->context; i++) {
        int wanted = most_of_test(o, i) + tests[i].room;
        if (bench_selected(o, tests[i].name) && wanted > *context) *context = wanted < models ? wanted : models;
    }
    for (size_t i = 1; i < COUNT(tests); i++) {
        int most = most_of_test(o, i), need = most + tests[i].more;
        if (!bench_selected(o, tests[i].name) || need <= *context) continue;
        if (o->context)
            return fail(err, LUCE_E_CONTEXT, "--%s %d: %s needs a context of %d, --context is %d; lower the one or "
                        "raise the other", tests[i].option, most, tests[i].name, need, *context);
        return fail(err, LUCE_E_CONTEXT, "--%s %d: %s needs a context of %d, this model takes up to %d; lower it",
                    tests[i].option, most, tests[i].name, need, models);
    }
    return LUCE_OK;
}

static luce_status open_bench(struct bench *b, luce_error *err)
{
    const struct options *o = b->o;
    double start = clock_seconds();
    struct model *m = NULL;
    struct device_params dp = { .n_threads = (int)o->threads };
    struct load_params p = { .record.ahead = true, .chunk = (int)o->chunk, .progress = on_progress,
                             .cancelled = interrupted };
    luce_status st = cache_format(o->cache_type_k, &p.k_format, err);
    if (!st) st = cache_format(o->cache_type_v, &p.v_format, err);
    if (!st) st = open_model(b, &m, err);
    if (!st) st = choose_context(o, m->c.context, &p.context, err);
    if (bench_selected(o, "batch")) {
        p.n_slots = STEP_SEQS;
        p.total_positions = (int64_t)STEP_SEQS * (most_of(&o->depth) + 2 * PAGE);
        if (p.total_positions < p.context) p.total_positions = p.context;
    }
    if (!st) st = device_open(&b->device, o->device, &dp, err);
    if (!st) st = b->device->fns->info(b->device, &b->info, err);
    if (st) {
        model_close(m);
        return st;
    }
    p.device = b->device;
    st = runner_open(&b->runner, m, &p, err);   /* which takes the model */
    progress_show("loading", 1);
    if (st) return st;
    count_parameters(b);
    b->result[b->n_results++] = (struct bench_result){ .test = "load", .samples = 1,
                                                       .seconds = clock_seconds() - start };
    return LUCE_OK;
}

luce_status bench_run(const struct options *o, luce_error *err)
{
    if (o->spec || o->draft) return bench_spec_run(o, err);
    for (int i = 0; i < o->only.n; i++) {
        bool known = false;
        for (size_t k = 0; k < COUNT(tests); k++) known = known || !strcmp(o->only.at[i], tests[k].name);
        if (!known)
            return fail(err, LUCE_E_ARG, "--only %s: the tests are load, decode, batch, step, prefill", o->only.at[i]);
    }
    static struct bench b;
    b = (struct bench){ .o = o };
    struct buf out = { 0 };
    interrupt_catch();
    luce_status st = open_bench(&b, err);
    if (!st) st = bench_tests_run(&b, err);
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
