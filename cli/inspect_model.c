/* cli/inspect_model.c - see inspect_model.h. */
#include "cli/inspect_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "cli/generate.h"
#include "cli/terminal.h"
#include "model/vocab_gguf.h"
#include "ops/interp.h"
#include "ops/ref.h"
#include "run/runner.h"

enum { SHORT_TEXT = NARROW_ROWS };
static const char default_prompt[] = "The sun rises in the east and sets in the west. The capital of France is";

struct view {
    const struct options *o;
    struct gguf *file;
    struct device *device;
    struct runner *runner;
    struct ids tokens;
    struct buf out;
};

static void on_progress(void *context, double share)
{
    (void)context;
    progress_show("loading", share);
}

/* The prompt as ids; 0, 1, 2, ... for a file without a vocabulary. At least `least`, at most a step and
 * what the context holds. */
static luce_status find_tokens(struct view *v, int least, luce_error *err)
{
    const char *prompt = v->o->prompt ? v->o->prompt : default_prompt;
    int vocab = runner_model(v->runner)->c.vocab, context = runner_load_plan(v->runner).context;
    size_t most = (size_t)(context < SHORT_TEXT ? context : SHORT_TEXT);
    if (context < least - 1)
        return fail(err, LUCE_E_ARG, "--width %d: a step of so many rows does not fit a context of %d", least - 1,
                    context);
    bool has_text = gguf_key(v->file, "tokenizer.ggml.model") != NULL;
    if (v->o->prompt && !has_text) return fail(err, LUCE_E_UNSUPPORTED, NO_VOCABULARY, gguf_path(v->file));
    if (has_text) {
        struct vocab *words = NULL;
        luce_status st = vocab_from_gguf(&words, v->file, err);
        if (!st) st = vocab_tokenize(words, str_of(prompt), TOKENIZE_BOS_EOS, &v->tokens, err);
        vocab_close(words);
        if (st) return st;
    }
    while (v->tokens.len < (size_t)least && !v->tokens.failed) ids_add(&v->tokens, (int32_t)v->tokens.len % vocab);
    if (v->tokens.len > most) v->tokens.len = most;
    return v->tokens.failed ? fail(err, LUCE_E_NOMEM, "out of memory for the tokens") : LUCE_OK;
}

static luce_status open_view(struct view *v, bool keep_values, int least_tokens, luce_error *err)
{
    const struct options *o = v->o;
    struct device_params dp = { .n_threads = (int)o->threads };
    struct load_params p = { .context = o->context ? (int)o->context : 4 * SHORT_TEXT,
                             .chunk = o->chunk ? (int)o->chunk : SHORT_TEXT, .keep_values = keep_values,
                             .progress = on_progress, .cancelled = interrupted };
    struct model *m = NULL;
    luce_status st = cache_format(o->cache_type_k, &p.k_format, err);
    if (!st) st = cache_format(o->cache_type_v, &p.v_format, err);
    if (!st) st = gguf_open(&v->file, o->model, err);
    if (!st) st = model_open(&m, v->file, err);
    if (!st) st = device_open(&v->device, o->device, &dp, err);
    if (st) {
        model_close(m);
        return st;
    }
    if (!o->context && p.context > m->c.context) p.context = m->c.context;
    p.device = v->device;
    st = runner_open(&v->runner, m, &p, err);
    progress_show("loading", 1);
    return st ? st : find_tokens(v, least_tokens, err);
}

static luce_status show_tape(struct view *v, luce_error *err)
{
    const struct plan *plan;
    luce_status st = runner_bucket(v->runner, STEP_NARROW, (int)v->o->width, &plan, err);
    if (!st) tape_print(runner_tape(v->runner), plan, &v->out);
    return st;
}

/* Ops that use nothing of a layer's do not know theirs. */
static const char *layer_name(int layer, char out[12])
{
    if (layer < 0) return "-";
    snprintf(out, 12, "%d", layer);
    return out;
}

struct tracing {
    struct view *v;
    const struct step *step;
    double seconds, bytes;
};

static void trace_call(void *context, const struct trace *t)
{
    struct tracing *x = context;
    const struct call *c = t->call;
    struct work w = call_work(t->tape, c, x->step);
    char shape[32] = "", layer[12];
    if (c->n_out) snprintf(shape, sizeof shape, "%d x %d", step_rows_of(x->step, c->shape[0].rows), c->shape[0].cols);
    buf_printf(&x->v->out, "%5d %-8s %5s %14s %10.1f %8.2f %9.1f  %016" PRIx64 "\n", t->index, op_defs[c->op]->name,
               layer_name(c->layer, layer), shape, t->seconds * 1e6, w.bytes / t->seconds * 1e-9,
               w.ops / t->seconds * 1e-9, t->hash);
    x->seconds += t->seconds;
    x->bytes += w.bytes;
}

/* Feeds all but the last `width` tokens, then traces a step of those. */
static luce_status show_trace(struct view *v, luce_error *err)
{
    struct seq *s;
    int width = (int)v->o->width, before = (int)v->tokens.len - width;
    luce_status st = seq_open(&s, runner_cache(v->runner), err);
    if (st) return st;
    /* The first step of a bucket compiles it and touches its memory; the second one is shown. */
    for (int round = 0; round < 2 && !st; round++) {
        struct tracing x = { .v = v, .step = runner_step(v->runner) };
        buf_clear(&v->out);
        seq_truncate(s, 0);
        st = runner_prefill(v->runner, s, v->tokens.at, before, NULL, NULL, err);
        runner_begin(v->runner, STEP_NARROW);
        if (!st) st = runner_add(v->runner, s, v->tokens.at + before, NULL, width, WANT_ALL, NULL, err);
        buf_printf(&v->out, "%5s %-8s %5s %14s %10s %8s %9s  %s\n", "call", "op", "layer", "output", "us", "GB/s",
                   "Gop/s", "hash of the output");
        if (!st) st = runner_trace(v->runner, trace_call, &x, err);
        buf_printf(&v->out, "total %.3f ms, %.2f GB/s; %d rows after %d positions\n", x.seconds * 1e3,
                   x.bytes / x.seconds * 1e-9, width, before);
    }
    seq_close(s);
    return st;
}

struct difference {
    double nmse;                /* sum of squared errors over sum of squares */
    double worst;               /* largest error */
    int worst_row, worst_col;
};

static struct difference compare(const double *want, const void *got, struct shape s, int rows)
{
    struct difference d = { .worst_row = -1 };
    double error = 0, square = 0;
    for (int i = 0; i < rows * s.cols; i++) {
        double is = s.type == DT_I32 ? ((const int32_t *)got)[i] : (double)((const float *)got)[i];
        double off = fabs(is - want[i]);
        error += off * off;
        square += want[i] * want[i];
        if (off <= d.worst) continue;           /* NaN goes on */
        d.worst = off;
        d.worst_row = i / s.cols;
        d.worst_col = i % s.cols;
    }
    d.nmse = error == 0 ? 0 : error / square;
    return d;
}

static luce_status compare_call(struct view *v, struct interp *p, int index, luce_error *err)
{
    const struct tape *t = runner_tape(v->runner);
    const struct call *c = &t->calls[index];
    if (!c->n_out) return LUCE_OK;
    struct shape s = c->shape[0];
    int rows = step_rows_of(runner_step(v->runner), s.rows);
    float *got = mem_array((size_t)(rows * s.cols) + 1, sizeof *got);
    if (!got) return fail(err, LUCE_E_NOMEM, "out of memory for %d rows", rows);
    luce_status st = runner_read(v->runner, c->out[0], 0, rows, got, err);
    const double *want = interp_read(p, c->out[0]);
    if (!st) {
        struct difference d = compare(want, got, s, rows);
        char layer[12];
        buf_printf(&v->out, "%5d %-8s %5s %10.2e %10.2e", index, op_defs[c->op]->name,
                   layer_name(c->layer, layer), d.nmse, d.worst);
        if (d.worst_row >= 0) {
            int at = d.worst_row * s.cols + d.worst_col;
            buf_printf(&v->out, "  row %d column %d: %.6g, reference %.6g", d.worst_row, d.worst_col,
                       s.type == DT_I32 ? ((int32_t *)got)[at] : (double)got[at], want[at]);
        }
        buf_add_char(&v->out, '\n');
    }
    mem_free(got);
    return st;
}

/* One narrow step over the prompt, by the device and by the definitions in float64. Errors add up from
 * call to call: look for the call where they jump. */
static luce_status show_reference(struct view *v, luce_error *err)
{
    const struct tape *t = runner_tape(v->runner);
    struct interp *p = NULL;
    struct seq *s = NULL;
    luce_status st = interp_open(&p, t, t->kv, 1, SHORT_TEXT, true, err);
    if (!st) st = seq_open(&s, runner_cache(v->runner), err);
    runner_begin(v->runner, STEP_NARROW);
    if (!st) st = runner_add(v->runner, s, v->tokens.at, NULL, (int)v->tokens.len, WANT_ALL, NULL, err);
    if (!st) st = runner_run(v->runner, err);
    if (!st) st = interp_run(p, runner_step(v->runner), err);
    buf_printf(&v->out, "%5s %-8s %5s %10s %10s  %s\n", "call", "op", "layer", "nmse", "worst", "where");
    for (int i = 0; i < t->n_calls && !st; i++) st = compare_call(v, p, i, err);
    seq_close(s);
    interp_close(p);
    return st;
}

static luce_status check_vocabulary(const char *path, luce_error *err)
{
    struct gguf *g = NULL;
    luce_status st = gguf_open(&g, path, err);
    if (!st && !gguf_key(g, "tokenizer.ggml.model"))
        st = fail(err, LUCE_E_UNSUPPORTED, NO_VOCABULARY, path);
    gguf_close(g);
    return st;
}

static luce_status check_only(const struct options *o, luce_error *err)
{
    luce_model_params p = model_params(o);
    luce_model *none;
    struct buf out = { 0 };
    p.path = o->model;
    p.check_only = true;
    luce_status st = luce_model_open(&none, &p, err);
    if (!st) st = check_vocabulary(p.path, err);
    buf_printf(&out, "%s: a run with these options loads it\n", o->model);
    if (!st) st = output_write(&out, err);
    buf_drop(&out);
    return st;
}

luce_status inspect_model(const struct options *o, luce_error *err)
{
    if (o->check) return check_only(o, err);
    struct view v = { .o = o };
    interrupt_catch();
    luce_status st = open_view(&v, o->check_against_reference, o->trace_ops ? (int)o->width + 1 : 1, err);
    if (!st) st = o->tape ? show_tape(&v, err) : o->trace_ops ? show_trace(&v, err) : show_reference(&v, err);
    if (!st) st = output_write(&v.out, err);
    buf_drop(&v.out);
    ids_drop(&v.tokens);
    runner_close(v.runner);
    device_close(v.device);
    gguf_close(v.file);
    return st;
}
