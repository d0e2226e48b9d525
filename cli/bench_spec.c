/* cli/bench_spec.c - luce bench --spec: what a drafter is worth on sets of prompts. Each prompt is
 * continued twice, plain and with guesses, one right after the other, so that both meet the same
 * machine; the two texts must be equal. docs/bench.md says what the columns are. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "cli/generate.h"
#include "cli/prompt_sets.h"
#include "cli/terminal.h"

enum { DEFAULT_TOKENS = 128, RANDOM_PROMPTS = 4, RANDOM_TOKENS = 32, SCRIPTED_TOKENS = 15 };

struct set {
    const char *name;
    int prompts;
    size_t tokens;                  /* of each way, after the first of a text */
    double plain_seconds, seconds;
    luce_speculation sum;
};

struct spec_bench {
    const struct options *o;
    luce_model *model;
    luce_model_info info;
    struct set set[PROMPT_SETS + 1];     /* those with prompts */
    int n;
};

static void add_result(struct set *s, const luce_result *plain, const luce_result *r)
{
    const luce_speculation *x = &r->speculation;
    if (r->n_tokens < 2) return;
    s->prompts++;
    s->tokens += r->n_tokens - 1;
    s->plain_seconds += plain->decode_seconds;
    s->seconds += r->decode_seconds;
    s->sum.n_steps += x->n_steps;
    s->sum.n_drafted += x->n_drafted;
    s->sum.n_accepted += x->n_accepted;
    s->sum.n_declined += x->n_declined;
    s->sum.draft_seconds += x->draft_seconds;
    s->sum.verify_seconds += x->verify_seconds;
    s->sum.accept_seconds += x->accept_seconds;
}

static bool same(const luce_result *a, const luce_result *b)
{
    return a->n_tokens == b->n_tokens &&
           (a->n_tokens == 0 || !memcmp(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens));
}

/* Both ways through one prompt. A script is the plain text. */
static luce_status run_prompt(struct spec_bench *b, struct set *s, luce_request *q, luce_error *err)
{
    luce_result plain, guessed = { 0 };
    q->max_tokens = b->o->max_tokens ? (int)b->o->max_tokens : DEFAULT_TOKENS;
    q->cancelled = interrupted;
    q->draft = -1;
    luce_status st = luce_generate(b->model, q, &plain, err);
    q->draft = 0;
    if (b->o->draft_right >= 0) {
        q->draft = b->o->draft_max ? (int)b->o->draft_max : SCRIPTED_TOKENS;
        q->script = plain.tokens;
        q->n_script = plain.n_tokens;
        q->script_right = b->o->draft_right;
    }
    if (!st) st = luce_generate(b->model, q, &guessed, err);
    if (!st && interrupted(NULL)) st = fail(err, LUCE_E_CANCELLED, "bench: interrupted");
    if (!st && !same(&plain, &guessed))
        st = fail(err, LUCE_E_NUMERIC, "bench: %s, prompt %d: the text with guesses is another one than without; "
                  "'luce doctor' checks the kernels of this device", s->name, s->prompts + 1);
    if (!st) add_result(s, &plain, &guessed);
    luce_result_drop(&plain);
    luce_result_drop(&guessed);
    return st;
}

static luce_status run_text(void *user, const luce_text *text, const struct chat_form *form, luce_error *err)
{
    struct spec_bench *b = user;
    struct set *s = &b->set[b->n];
    luce_request q = { .text = *text };
    if (form) {
        q.stop = &form->stop;
        q.n_stop = form->stop != NULL;
    }
    luce_status st = run_prompt(b, s, &q, err);
    progress_show(s->name, s->prompts / 12.0);
    return st;
}

static bool wanted(const struct options *o, const char *name)
{
    bool found = o->only.n == 0;
    for (int i = 0; i < o->only.n; i++) found = found || !strcmp(o->only.at[i], name);
    return found;
}

/* The sets that the folder has. */
static luce_status run_folder(struct spec_bench *b, luce_error *err)
{
    luce_status st = LUCE_OK;
    for (int i = 0; i < PROMPT_SETS && !st; i++) {
        bool found;
        if (!wanted(b->o, prompt_sets[i].name)) continue;
        b->set[b->n] = (struct set){ .name = prompt_sets[i].name };
        st = prompt_set_each(b->o->prompts, &prompt_sets[i], &b->info, run_text, b, &found, err);
        b->n += found;
    }
    if (!st && b->n == 0)
        st = fail(err, LUCE_E_ARG, "--prompts %s: no set is there; expected code.txt, chat.txt, math.txt, prose.txt "
                  "or repeat.txt", b->o->prompts);
    return st;
}

/* A model without a vocabulary continues random ids. */
static luce_status run_random(struct spec_bench *b, luce_error *err)
{
    struct set *s = &b->set[b->n++];
    luce_status st = LUCE_OK;
    *s = (struct set){ .name = "random" };
    for (int i = 0; i < RANDOM_PROMPTS && !st; i++) {
        int32_t ids[RANDOM_TOKENS];
        for (int k = 0; k < RANDOM_TOKENS; k++)
            ids[k] = (int32_t)(rng_u64(1, (uint64_t)i, (uint64_t)k) % (uint64_t)b->info.vocabulary);
        luce_request q = { .tokens = ids, .n_tokens = RANDOM_TOKENS };
        st = run_prompt(b, s, &q, err);
    }
    return st;
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static void print_text(const struct spec_bench *b, struct buf *out)
{
    buf_printf(out, "%s on %s, drafter %s; each text twice in turn, equal token by token\n\n", b->info.architecture,
               b->info.device_name, b->info.drafter);
    buf_printf(out, "set     prompts  tokens  plain/s  spec/s  speed-up  at no cost  accepted  declined  "
                    "draft  verify  accept\n");
    for (int i = 0; i < b->n; i++) {
        const struct set *s = &b->set[i];
        double steps = (double)s->sum.n_steps, tokens = (double)s->tokens;
        buf_printf(out, "%-8s %6d %7zu %8.1f %7.1f %8.2fx %10.2fx %7.1f %% %7.1f %% %5.1f%% %6.1f%% %6.1f%%\n", s->name,
                   s->prompts, s->tokens, ratio(tokens, s->plain_seconds), ratio(tokens, s->seconds),
                   ratio(s->plain_seconds, s->seconds), ratio(tokens, steps),
                   100 * ratio((double)s->sum.n_accepted, (double)s->sum.n_drafted),
                   100 * ratio((double)s->sum.n_declined, steps), 100 * ratio(s->sum.draft_seconds, s->seconds),
                   100 * ratio(s->sum.verify_seconds, s->seconds), 100 * ratio(s->sum.accept_seconds, s->seconds));
    }
}

static void number(struct json *j, const char *key, double value)
{
    json_key(j, key);
    json_number(j, value);
}

static void print_set(struct json *j, const struct set *s)
{
    const luce_speculation *x = &s->sum;
    const struct { const char *key; double value; } rows[] = {
        { "prompts", s->prompts }, { "tokens", (double)s->tokens }, { "plain_seconds", s->plain_seconds },
        { "seconds", s->seconds }, { "steps", (double)x->n_steps }, { "drafted_tokens", (double)x->n_drafted },
        { "accepted_tokens", (double)x->n_accepted }, { "declined_steps", (double)x->n_declined },
        { "draft_seconds", x->draft_seconds }, { "verify_seconds", x->verify_seconds },
        { "accept_seconds", x->accept_seconds },
        { "acceptance", ratio((double)x->n_accepted, (double)x->n_drafted) },
        { "tokens_per_step", ratio((double)s->tokens, (double)x->n_steps) },
        { "speed_up", ratio(s->plain_seconds, s->seconds) },
    };
    json_open_object(j);
    json_key(j, "set");
    json_text(j, s->name);
    for (size_t i = 0; i < COUNT(rows); i++) number(j, rows[i].key, rows[i].value);
    json_close(j);
}

static void print_json(const struct spec_bench *b, struct buf *out)
{
    struct json j;
    json_begin(&j, out);
    json_open_object(&j);
    json_key(&j, "tool");
    json_text(&j, "luce bench --spec");
    json_key(&j, "version");
    json_text(&j, LUCE_VERSION);
    json_key(&j, "architecture");
    json_text(&j, b->info.architecture);
    json_key(&j, "device");
    json_text(&j, b->info.device_name);
    json_key(&j, "drafter");
    json_text(&j, b->info.drafter);
    json_key(&j, "results");
    json_open_array(&j);
    for (int i = 0; i < b->n; i++) print_set(&j, &b->set[i]);
    json_close(&j);
    json_close(&j);
    buf_add_char(out, '\n');
}

luce_status bench_spec_run(const struct options *o, luce_error *err)
{
    struct spec_bench b = { .o = o };
    struct buf out = { 0 };
    for (int i = 0; i < o->only.n; i++) {
        bool known = false;
        for (int k = 0; k < PROMPT_SETS; k++) known = known || !strcmp(o->only.at[i], prompt_sets[k].name);
        if (!known)
            return fail(err, LUCE_E_ARG, "--only %s: the sets of --spec are code, chat, math, prose, repeat",
                        o->only.at[i]);
    }
    interrupt_catch();
    luce_status st = model_load(&b.model, model_params(o), err);
    if (st) return st;
    b.info = luce_model_describe(b.model);
    st = b.info.has_text ? run_folder(&b, err) : run_random(&b, err);
    progress_show("", 1);
    if (!st) {
        if (o->json) print_json(&b, &out);
        else print_text(&b, &out);
        st = output_write(&out, err);
    }
    buf_drop(&out);
    luce_model_close(b.model);
    return st;
}
