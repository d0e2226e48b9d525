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

static const char *const test_names[] = { "load", "decode", "batch", "step", "prefill" };

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

static luce_status open_bench(struct bench *b, luce_error *err)
{
    const struct options *o = b->o;
    double start = clock_seconds();
    struct model *m = NULL;
    struct device_params dp = { .n_threads = (int)o->threads };
    int depth = most_of(&o->depth), prompt = most_of(&o->prompt_tokens), longest = depth + 2 * PAGE;
    if (bench_selected(o, "prefill") && prompt > longest) longest = prompt;
    struct load_params p = { .record.ahead = true, .context = o->context ? (int)o->context : longest,
                             .chunk = (int)o->chunk, .progress = on_progress, .cancelled = interrupted };
    if (bench_selected(o, "batch")) {
        p.n_slots = STEP_SEQS;
        p.total_positions = (int64_t)STEP_SEQS * (depth + 2 * PAGE);
        if (p.total_positions < p.context) p.total_positions = p.context;
    }
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
                    "lower them", depth, prompt, longest, longest_here);
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
        for (size_t k = 0; k < COUNT(test_names); k++) known = known || !strcmp(o->only.at[i], test_names[k]);
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
