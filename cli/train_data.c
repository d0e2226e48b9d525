/* cli/train_data.c - what a drafter learns from, made by the model itself as luce runs it: its greedy answers to the
 * prompts, all sequences at once, then one pass over each text that keeps some layers' outputs. See train.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/generate.h"
#include "cli/prompt_sets.h"
#include "cli/terminal.h"
#include "cli/train.h"
#include "model/vocab_gguf.h"
#include "quant/quant.h"
#include "run/runner.h"

enum { PROMPT_TOKENS = 256, ANSWER_TOKENS = 256, GROUP = 512, TAPS = 5, MANY_LAYERS = 8 };

struct text {
    struct ids ids;                 /* prompt, then answer with its end token */
    size_t prompt;
};
struct data {
    const struct options *o;
    luce_model *model;              /* while answers are made */
    struct text *text;
    size_t n, cap, of_set;          /* of_set: of those, from the set that is being read */
    int context, prompt_most;       /* tokens of a text, and of its prompt */
    struct gguf *file;
    struct vocab *vocab;
    struct model *m;                /* NULL once the runner owns it */
    struct device *device;
    struct runner *runner;
    struct record_params taps;
    float *rows;                    /* [taps][chunk][embd] */
    uint16_t *feature;              /* [chunk][taps][embd] bf16 */
    struct file_writer out;
    size_t written;                 /* rows of features */
};

/* ---- prompts ------------------------------------------------------------------------------------- */
static luce_status grow(struct data *d, luce_error *err)
{
    if (d->n < d->cap) return LUCE_OK;
    size_t cap = d->cap ? 2 * d->cap : 1024;
    struct text *more = mem_resize(d->text, cap * sizeof *more);
    if (!more) return fail(err, LUCE_E_NOMEM, "out of memory for %zu texts", cap);
    d->text = more;
    d->cap = cap;
    return LUCE_OK;
}

/* A text that goes on may be cut; a question may not, and is left out when it is too long. */
static luce_status add_prompt(void *user, const luce_text *text, const struct chat_form *form, luce_error *err)
{
    struct data *d = user;
    int32_t *ids;
    size_t n;
    if (d->o->most_texts && d->of_set >= (size_t)d->o->most_texts) return LUCE_OK;
    luce_status st = luce_tokenize(d->model, text, &ids, &n, err);
    if (!st) st = grow(d, err);
    size_t most = (size_t)d->prompt_most;
    if (!st && n > 0 && (n <= most || !form)) {
        struct text *t = &d->text[d->n];
        *t = (struct text){ .prompt = n < most ? n : most };
        for (size_t i = 0; i < t->prompt; i++) ids_add(&t->ids, ids[i]);
        d->n++;
        d->of_set++;
        if (t->ids.failed) st = fail(err, LUCE_E_NOMEM, "out of memory for a prompt");
    }
    luce_free(ids);
    return st;
}

static luce_status read_prompts(struct data *d, const char *folder, luce_error *err)
{
    luce_model_info info = luce_model_describe(d->model);
    luce_status st = LUCE_OK;
    for (int i = 0; i < PROMPT_SETS && !st; i++) {
        bool found;
        d->of_set = 0;
        st = prompt_set_each(folder, &prompt_sets[i], &info, add_prompt, d, &found, err);
    }
    if (!st && d->n == 0)
        st = fail(err, LUCE_E_ARG, "%s holds no prompts; expected code.txt, chat.txt, math.txt or prose.txt, prompts "
                  "ended by a line \"%%%%\"", folder);
    return st;
}

/* ---- answers ------------------------------------------------------------------------------------- */
static luce_status answer_group(struct data *d, struct text *t, int n, luce_error *err)
{
    static luce_request q[GROUP];
    static luce_result r[GROUP];
    for (int i = 0; i < n; i++)
        q[i] = (luce_request){ .tokens = t[i].ids.at, .n_tokens = t[i].prompt, .cancelled = interrupted,
                               .max_tokens = d->context - d->prompt_most };
    luce_status st = luce_generate_batch(d->model, q, n, r, err);
    if (!st && interrupted(NULL)) st = fail(err, LUCE_E_CANCELLED, "train-drafter: interrupted");
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < r[i].n_tokens && !st; k++) ids_add(&t[i].ids, r[i].tokens[k]);
        luce_result_drop(&r[i]);
        if (!st && t[i].ids.failed) st = fail(err, LUCE_E_NOMEM, "out of memory for an answer");
    }
    return st;
}

static luce_status answer_all(struct data *d, luce_error *err)
{
    double start = clock_seconds();
    size_t tokens = 0;
    luce_status st = LUCE_OK;
    for (size_t from = 0; from < d->n && !st; from += GROUP) {
        int n = (int)(d->n - from < GROUP ? d->n - from : GROUP);
        st = answer_group(d, d->text + from, n, err);
        for (int i = 0; i < n; i++) tokens += d->text[from + (size_t)i].ids.len - d->text[from + (size_t)i].prompt;
        fprintf(stderr, "answers: %zu of %zu, %zu tokens, %.0f s\n", from + (size_t)n, d->n, tokens,
                clock_seconds() - start);
    }
    return st;
}

static luce_status make_texts(struct data *d, const char *prompts, luce_error *err)
{
    luce_model_params p = model_params(d->o);
    p.path = d->o->model;
    p.text = true;
    p.context = d->context;
    p.sequences = STEP_SEQS;
    luce_status st = model_load(&d->model, p, err);
    if (!st) st = read_prompts(d, prompts, err);
    if (!st) st = answer_all(d, err);
    luce_model_close(d->model);
    d->model = NULL;
    return st;
}

/* ---- what the file says of the model --------------------------------------------------------------- */
/* Layers whose outputs make a feature, spread over the depth; of a deep model without the ends, which say little. */
static void choose_taps(struct data *d, int n_layers)
{
    int low = n_layers < MANY_LAYERS ? 0 : 1, high = n_layers < MANY_LAYERS ? n_layers - 1 : n_layers - 3;
    int n = n_layers < TAPS ? n_layers : TAPS;
    d->taps.n_taps = n;
    for (int i = 0; i < n; i++)
        d->taps.tap_layer[i] = n > 1 ? low + (int)lrint((double)i * (high - low) / (n - 1)) : low;
}

/* A token that texts do not hold, for the places that are to be guessed. */
static int32_t mask_token(const struct data *d)
{
    for (int32_t i = vocab_size(d->vocab) - 1; i >= 0; i--) {
        enum token_kind kind = vocab_kind(d->vocab, i);
        bool unsaid = kind == TOKEN_CONTROL || kind == TOKEN_UNUSED;
        if (i < d->m->c.vocab && unsaid && !vocab_is_end(d->vocab, i)) return i;
    }
    return d->m->c.vocab - 1;
}

static const struct layer_shape *attending(const struct decoder *c)
{
    int l = 0;
    while (l < c->n_layers - 1 && c->layer[l].recurrent) l++;
    return &c->layer[l];
}

static void list(struct json *j, const char *key, const int32_t *values, int n)
{
    struct buf text = { 0 };
    for (int i = 0; i < n; i++) buf_printf(&text, "%s%" PRId32, i ? "," : "", values[i]);
    json_key(j, key);
    json_text(j, buf_text(&text));
    buf_drop(&text);
}

static void about_model(const struct data *d, struct json *j)
{
    const struct decoder *c = &d->m->c;
    const struct layer_shape *l = attending(c);
    const struct { const char *key; double value; } rows[] = {
        { "embd", c->embd }, { "vocab", c->vocab }, { "layers", c->n_layers }, { "heads", l->heads },
        { "kv_heads", l->kv_heads }, { "head_dim", c->head_dim }, { "ff", l->ff }, { "eps", (double)c->eps },
        { "rope_base", (double)c->rope[0].base }, { "mask", mask_token(d) },
        { "embed_scale", c->embed_scale != 0.0f ? (double)c->embed_scale : 1.0 },
    };
    int32_t ends[32], taps[MODEL_MAX_TAPS];
    int n_ends = 0;
    for (int32_t i = 0; i < vocab_size(d->vocab) && n_ends < (int)COUNT(ends); i++)
        if (vocab_is_end(d->vocab, i)) ends[n_ends++] = i;
    for (int i = 0; i < d->taps.n_taps; i++) taps[i] = d->taps.tap_layer[i];
    json_key(j, "__metadata__");
    json_open_object(j);
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[40];
        snprintf(text, sizeof text, "%.9g", rows[i].value);
        json_key(j, rows[i].key);
        json_text(j, text);
    }
    list(j, "ends", ends, n_ends);
    list(j, "taps", taps, d->taps.n_taps);
    json_close(j);
}

/* ---- the file ------------------------------------------------------------------------------------ */
struct entry {
    const char *name, *type;
    uint64_t dim[2];
    unsigned element;               /* bytes */
};

static void describe(struct json *j, const struct entry *e, uint64_t *at)
{
    uint64_t bytes = e->dim[0] * (e->dim[1] ? e->dim[1] : 1) * e->element;
    json_key(j, e->name);
    json_open_object(j);
    json_key(j, "dtype");
    json_text(j, e->type);
    json_key(j, "shape");
    json_open_array(j);
    for (int i = 0; i < 2; i++)
        if (e->dim[i]) json_uint(j, e->dim[i]);
    json_close(j);
    json_key(j, "data_offsets");
    json_open_array(j);
    json_uint(j, *at);
    json_uint(j, *at += bytes);
    json_close(j);
    json_close(j);
}

static luce_status write_head(struct data *d, uint64_t tokens, luce_error *err)
{
    const struct decoder *c = &d->m->c;
    bool tied = d->m->output == d->m->token_embd;
    const struct entry entries[] = {
        { "tokens", "I32", { tokens }, 4 }, { "prompt", "I32", { d->n }, 4 }, { "length", "I32", { d->n }, 4 },
        { "norm", "F32", { (uint64_t)c->embd }, 4 }, { "embed", "F32", { (uint64_t)c->vocab, (uint64_t)c->embd }, 4 },
        { "head", "F32", { (uint64_t)c->vocab, (uint64_t)c->embd }, 4 },
        { "features", "BF16", { tokens, (uint64_t)(d->taps.n_taps * c->embd) }, 2 },
    };
    struct buf text = { 0 };
    struct json j;
    uint64_t at = 0;
    json_begin(&j, &text);
    json_open_object(&j);
    about_model(d, &j);
    for (size_t i = 0; i < COUNT(entries); i++)
        if (!tied || strcmp(entries[i].name, "head")) describe(&j, &entries[i], &at);
    json_close(&j);
    while (text.len % 8 && !text.failed) buf_add_char(&text, ' ');
    uint64_t size = text.len;
    luce_status st = text.failed ? fail(err, LUCE_E_NOMEM, "out of memory for a header") : LUCE_OK;
    if (!st) st = file_append(&d->out, &size, sizeof size, err);
    if (!st) st = file_append(&d->out, text.data, text.len, err);
    buf_drop(&text);
    return st;
}

static luce_status write_texts(struct data *d, luce_error *err)
{
    luce_status st = LUCE_OK;
    for (size_t i = 0; i < d->n && !st; i++)
        st = file_append(&d->out, d->text[i].ids.at, d->text[i].ids.len * sizeof(int32_t), err);
    for (int which = 0; which < 2; which++)
        for (size_t i = 0; i < d->n && !st; i++) {
            int32_t n = (int32_t)(which ? d->text[i].ids.len : d->text[i].prompt);
            st = file_append(&d->out, &n, sizeof n, err);
        }
    return st;
}

static luce_status write_matrix(struct data *d, const struct weight *w, luce_error *err)
{
    const struct format *f = format_find(w->type);
    uint64_t cols = w->dim[0], bytes = format_bytes(f, cols);
    float *row = mem_array(cols, sizeof *row);
    luce_status st = row ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory for a row of %s", w->name);
    for (uint64_t i = 0; i < w->dim[1] && !st; i++) {
        f->decode(w->host + i * bytes, row, (int64_t)cols);
        st = file_append(&d->out, row, cols * sizeof *row, err);
    }
    mem_free(row);
    return st;
}

/* ---- features ------------------------------------------------------------------------------------ */
static luce_status flush(struct data *d, int rows, luce_error *err)
{
    size_t embd = (size_t)runner_model(d->runner)->c.embd, chunk = (size_t)runner_chunk(d->runner);
    size_t taps = (size_t)d->taps.n_taps;
    luce_status st = runner_run(d->runner, err);
    for (size_t t = 0; t < taps && !st; t++)
        st = runner_read(d->runner, runner_record(d->runner)->taps[t], 0, rows, d->rows + t * chunk * embd, err);
    if (st) return st;
    for (size_t r = 0; r < (size_t)rows; r++)
        for (size_t t = 0; t < taps; t++) {
            const float *from = d->rows + (t * chunk + r) * embd;
            uint16_t *to = d->feature + (r * taps + t) * embd;
            for (size_t i = 0; i < embd; i++) to[i] = f32_to_bf16(from[i]);
        }
    d->written += (size_t)rows;
    return file_append(&d->out, d->feature, (size_t)rows * taps * embd * sizeof *d->feature, err);
}

/* Texts go through the layers one after the other, in steps that are as wide as the device takes. A text whose step
 * is full goes on in the next one; the others of a step have ended in it. */
static luce_status write_features(struct data *d, uint64_t tokens, luce_error *err)
{
    struct seq *open[STEP_SEQS] = { 0 };
    int chunk = runner_chunk(d->runner), rows = 0, n = 0;
    double start = clock_seconds();
    luce_status st = LUCE_OK;
    runner_begin(d->runner, STEP_WIDE);
    for (size_t i = 0, at = 0; i < d->n && !st;) {
        const struct ids *ids = &d->text[i].ids;
        int room = chunk - rows, left = (int)(ids->len - at), take = left < room ? left : room;
        if (at == 0 || n == 0) {
            if (!open[n]) st = seq_open(&open[n], runner_cache(d->runner), err);
            n++;
        }
        if (!st) st = runner_add(d->runner, open[n - 1], ids->at + at, NULL, take, WANT_NONE, NULL, err);
        rows += take;
        at = take == left ? 0 : at + (size_t)take;
        i += at == 0;
        if (st || (rows < chunk && n < STEP_SEQS && i < d->n)) continue;
        st = flush(d, rows, err);
        for (int k = 0; k < n - (at > 0); k++) {
            seq_close(open[k]);
            open[k] = NULL;
        }
        if (at > 0 && n > 1) {          /* that text is the first of the next step */
            open[0] = open[n - 1];
            open[n - 1] = NULL;
        }
        rows = n = 0;
        progress_show("features", (double)d->written / (double)tokens);
        if (!st && interrupted(NULL)) st = fail(err, LUCE_E_CANCELLED, "train-drafter: interrupted");
        runner_begin(d->runner, STEP_WIDE);
    }
    for (int k = 0; k < STEP_SEQS; k++) seq_close(open[k]);
    progress_show("features", 1);
    if (!st) fprintf(stderr, "features: %zu positions, %.0f s\n", d->written, clock_seconds() - start);
    return st;
}

static luce_status open_file(struct data *d, luce_error *err)
{
    int answer = d->o->max_tokens ? (int)d->o->max_tokens : ANSWER_TOKENS;
    luce_status st = gguf_open(&d->file, d->o->model, err);
    if (!st) st = vocab_from_gguf(&d->vocab, d->file, err);
    if (!st) st = model_open(&d->m, d->file, err);
    if (st) return st;
    choose_taps(d, d->m->c.n_layers);
    if (answer > d->m->c.context / 2) answer = d->m->c.context / 2;
    d->context = d->m->c.context < PROMPT_TOKENS + answer ? d->m->c.context : PROMPT_TOKENS + answer;
    d->prompt_most = d->context - answer;
    return LUCE_OK;
}

static luce_status open_runner(struct data *d, luce_error *err)
{
    struct device_params dp = { .n_threads = (int)d->o->threads };
    struct load_params lp = { .context = d->context, .n_slots = STEP_SEQS, .chunk = (int)d->o->chunk,
                              .record = d->taps };
    luce_status st = device_open(&d->device, d->o->device, &dp, err);
    if (st) return st;
    lp.device = d->device;
    struct model *m = d->m;
    d->m = NULL;
    st = runner_open(&d->runner, m, &lp, err);
    if (st) return st;
    size_t all = (size_t)runner_chunk(d->runner) * (size_t)d->taps.n_taps * (size_t)m->c.embd;
    d->rows = mem_array(all, sizeof *d->rows);
    d->feature = mem_array(all, sizeof *d->feature);
    return d->rows && d->feature ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory for the features of a step");
}

static luce_status write_file(struct data *d, const char *path, luce_error *err)
{
    uint64_t tokens = 0;
    for (size_t i = 0; i < d->n; i++) tokens += d->text[i].ids.len;
    luce_status st = file_create(&d->out, path, err);
    if (!st) st = write_head(d, tokens, err);
    if (!st) st = write_texts(d, err);
    if (!st) st = write_matrix(d, d->m->output_norm, err);
    if (!st) st = write_matrix(d, d->m->token_embd, err);
    if (!st && d->m->output != d->m->token_embd) st = write_matrix(d, d->m->output, err);
    if (!st) st = open_runner(d, err);
    if (!st) st = write_features(d, tokens, err);
    if (!st) st = file_commit(&d->out, err);
    file_abandon(&d->out);
    return st;
}

luce_status train_data_write(const struct options *o, const char *prompts, const char *path, luce_error *err)
{
    struct data d = { .o = o };
    luce_status st = open_file(&d, err);
    if (!st) st = make_texts(&d, prompts, err);
    if (!st) st = write_file(&d, path, err);
    runner_close(d.runner);
    model_close(d.m);
    device_close(d.device);
    vocab_close(d.vocab);
    gguf_close(d.file);
    for (size_t i = 0; i < d.n; i++) ids_drop(&d.text[i].ids);
    mem_free(d.text);
    mem_free(d.rows);
    mem_free(d.feature);
    return st;
}
