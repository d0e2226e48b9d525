/* cli/perplexity.c - luce perplexity: the mean negative log likelihood of a text under a model.
 * A window of the context moves over the text by half of itself and scores its second half (the first
 * window all of it), so that each token but the first is scored once, and beyond the first window with
 * at least half a window before it. Models that want a BOS get one at the start of every window. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/terminal.h"
#include "model/vocab_gguf.h"
#include "run/likelihood.h"

enum { WINDOW = 512, WINDOW_LEAST = 8 };

struct perplexity {
    const struct options *o;
    struct gguf *file;
    struct vocab *vocab;
    struct device *device;
    struct runner *runner;
    struct ids ids;
    int window;                 /* tokens, the BOS included */
    int n_windows;
    struct likelihood score;
    double seconds;
};

static void on_progress(void *context, double share)
{
    progress_show(context, share);
}

static luce_status open_runner(struct perplexity *p, luce_error *err)
{
    const struct options *o = p->o;
    struct device_params dp = { .n_threads = (int)o->threads };
    struct load_params lp = { .chunk = (int)o->chunk, .progress = on_progress, .progress_context = "loading",
                              .cancelled = interrupted };
    struct model *m = NULL;
    luce_status st = cache_format(o->cache_type_k, &lp.k_format, err);
    if (!st) st = cache_format(o->cache_type_v, &lp.v_format, err);
    if (!st) st = gguf_open(&p->file, o->model, err);
    if (!st) st = vocab_from_gguf(&p->vocab, p->file, err);
    if (!st) st = model_open(&m, p->file, err);
    if (st) return st;
    int usual = m->c.context < WINDOW ? m->c.context : WINDOW;
    p->window = lp.context = o->context ? (int)o->context : usual;
    if (p->window < WINDOW_LEAST)
        st = fail(err, LUCE_E_ARG, "perplexity: --context %d is too short; give at least %d", p->window, WINDOW_LEAST);
    if (!st) st = device_open(&p->device, o->device, &dp, err);
    lp.device = p->device;
    if (st) {
        model_close(m);
        return st;
    }
    st = runner_open(&p->runner, m, &lp, err);
    progress_show("loading", 1);
    return st;
}

static luce_status read_text(struct perplexity *p, luce_error *err)
{
    struct buf text = { 0 };
    luce_status st = input_prompt(p->o, &text, err);
    struct str all = { buf_text(&text), text.len };
    if (!st) st = vocab_tokenize(p->vocab, all, p->o->special ? TOKENIZE_SPECIAL : 0, &p->ids, err);
    buf_drop(&text);
    if (!st && p->ids.len < 2)
        st = fail(err, LUCE_E_ARG, "perplexity: the text has %zu tokens; it needs at least 2", p->ids.len);
    return st;
}

/* All windows; `window` has room for one. */
static luce_status score_windows(struct perplexity *p, int32_t *window, struct seq *seq, luce_error *err)
{
    struct vocab_special special = vocab_special(p->vocab);
    int bos = special.add_bos && special.ids[ROLE_BOS] >= 0, room = p->window - bos, half = room / 2;
    luce_status st = LUCE_OK;
    if (bos) window[0] = special.ids[ROLE_BOS];
    double start = clock_seconds();
    for (size_t from = 0, done = 0; !st && done < p->ids.len; from += (size_t)half, p->n_windows++) {
        size_t n = p->ids.len - from < (size_t)room ? p->ids.len - from : (size_t)room;
        memcpy(window + bos, p->ids.at + from, n * sizeof *window);
        int first = bos + (int)(from ? done - from : 1);      /* the first token has nothing before it */
        seq_truncate(seq, 0);
        st = runner_score(p->runner, seq, window, bos + (int)n, first, &p->score, interrupted, NULL, err);
        done = from + n;
        progress_show("scoring", (double)done / (double)p->ids.len);
    }
    p->seconds = clock_seconds() - start;
    progress_show("scoring", 1);
    if (st == LUCE_E_CANCELLED)             /* of the text: the runner knows the window alone */
        fail(err, st, "perplexity: interrupted when %llu of the text's %zu tokens were scored",
             (unsigned long long)p->score.n, p->ids.len);
    return st;
}

static luce_status score(struct perplexity *p, luce_error *err)
{
    int32_t *window = mem_array((size_t)p->window, sizeof *window);
    struct seq *seq = NULL;
    luce_status st = window ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory for a window of %d tokens", p->window);
    if (!st) st = seq_open(&seq, runner_cache(p->runner), err);
    if (!st) st = score_windows(p, window, seq, err);
    seq_close(seq);
    mem_free(window);
    return st;
}

static void field(struct json *j, const char *key, double value)
{
    json_key(j, key);
    json_number(j, value);
}

static luce_status print(const struct perplexity *p, luce_error *err)
{
    double mean = likelihood_mean(&p->score), error = likelihood_error(&p->score);
    struct buf out = { 0 };
    struct json j;
    if (p->o->json) {
        json_begin(&j, &out);
        json_open_object(&j);
        field(&j, "perplexity", exp(mean));
        field(&j, "perplexity_error", exp(mean) * error);
        field(&j, "nll", mean);
        field(&j, "nll_error", error);
        field(&j, "tokens", (double)p->ids.len);
        field(&j, "scored_tokens", (double)p->score.n);
        field(&j, "windows", p->n_windows);
        field(&j, "window_tokens", p->window);
        field(&j, "seconds", p->seconds);
        json_close(&j);
        buf_add_char(&out, '\n');
    } else {
        buf_printf(&out, "perplexity %.4f +- %.4f (%.6f +- %.6f nats a token)\n", exp(mean),
                   exp(mean) * error, mean, error);
        buf_printf(&out, "%llu of %zu tokens in %d windows of %d, %.1f s\n", (unsigned long long)p->score.n, p->ids.len,
                   p->n_windows, p->window, p->seconds);
    }
    luce_status st = output_write(&out, err);
    buf_drop(&out);
    return st;
}

luce_status perplexity_run(const struct options *o, luce_error *err)
{
    struct perplexity p = { .o = o };
    luce_status st = o->model ? LUCE_OK : fail(err, LUCE_E_ARG, "perplexity: give --model FILE");
    if (!st && !o->file && isatty(STDIN_FILENO))
        st = fail(err, LUCE_E_ARG, "no text: give --file FILE, or text on standard input");
    interrupt_catch();
    if (!st) st = open_runner(&p, err);
    if (!st) st = read_text(&p, err);
    if (!st) st = score(&p, err);
    if (!st) st = print(&p, err);
    ids_drop(&p.ids);
    runner_close(p.runner);
    device_close(p.device);
    vocab_close(p.vocab);
    gguf_close(p.file);
    return st;
}
