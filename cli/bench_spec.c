/* cli/bench_spec.c - luce bench --spec: what a drafter is worth on sets of prompts. Each prompt is
 * continued twice, plain and with guesses, one right after the other, so that both meet the same
 * machine; the two texts must be equal. docs/bench.md says what the columns are. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "cli/bench_spec.h"
#include "cli/generate.h"
#include "cli/terminal.h"

enum { DEFAULT_TOKENS = 128, RANDOM_PROMPTS = 4, RANDOM_TOKENS = 32, SCRIPTED_TOKENS = 15 };
enum { RECENT = 0xffff };           /* the steps that say whether guessing is switched off */

/* A step with guesses: counted and logged here, so that the log says what the figures are of. */
static void take_step(void *user, const luce_step *step)
{
    struct spec_bench *b = user;
    struct spec_sums *sum = &b->text;
    sum->steps++;
    if (b->o->log) bench_spec_log(b, step);
    sum->drafted += (size_t)step->n_nodes - 1;
    sum->accepted += (size_t)step->n_tokens - 1;
    sum->declined += step->declined;
    if (step->declined || step->n_nodes > 1) b->recent = (b->recent << 1 | step->declined) & RECENT;
    sum->off = 2 * __builtin_popcount(b->recent) > 16;
    sum->draft_seconds += step->draft_seconds;
    sum->verify_seconds += step->verify_seconds;
    sum->accept_seconds += step->accept_seconds;
}

static void add_text(struct spec_set *s, const struct spec_sums *x, const luce_result *plain, const luce_result *r)
{
    if (r->n_tokens < 2) return;
    s->prompts++;
    s->tokens += r->n_tokens - 1;
    s->plain_seconds += plain->decode_seconds;
    s->seconds += r->decode_seconds;
    s->sum.steps += x->steps;
    s->sum.drafted += x->drafted;
    s->sum.accepted += x->accepted;
    s->sum.declined += x->declined;
    s->sum.off += x->off;
    s->sum.draft_seconds += x->draft_seconds;
    s->sum.verify_seconds += x->verify_seconds;
    s->sum.accept_seconds += x->accept_seconds;
}

static bool same(const luce_result *a, const luce_result *b)
{
    return a->n_tokens == b->n_tokens &&
           (a->n_tokens == 0 || !memcmp(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens));
}

/* What the log has of this text goes to its file. */
static luce_status write_lines(struct spec_bench *b, luce_error *err)
{
    luce_status st = LUCE_OK;
    if (b->lines.failed) st = fail(err, LUCE_E_NOMEM, "out of memory for the log");
    else if (b->lines.len) st = file_append(&b->log, b->lines.data, b->lines.len, err);
    buf_clear(&b->lines);
    return st;
}

/* Both ways through one prompt. A script is the plain text. */
static luce_status run_prompt(struct spec_bench *b, struct spec_set *s, luce_request *q, luce_error *err)
{
    luce_result plain, guessed = { 0 };
    q->max_tokens = b->o->max_tokens ? (int)b->o->max_tokens : DEFAULT_TOKENS;
    q->cancelled = interrupted;
    q->user = b;
    q->draft = -1;
    q->on_step = NULL;
    luce_status st = luce_generate(b->model, q, &plain, err);
    q->draft = 0;
    q->on_step = take_step;
    if (b->o->draft_right >= 0) {
        q->draft = b->o->draft_max ? (int)b->o->draft_max : SCRIPTED_TOKENS;
        q->script = plain.tokens;
        q->n_script = plain.n_tokens;
        q->script_right = b->o->draft_right;
    }
    b->prompt++;
    b->text = (struct spec_sums){ 0 };
    b->recent = 0;
    if (!st) st = luce_generate(b->model, q, &guessed, err);
    if (!st && interrupted(NULL)) st = fail(err, LUCE_E_CANCELLED, "bench: interrupted");
    if (!st && !same(&plain, &guessed))
        st = fail(err, LUCE_E_NUMERIC, "bench: %s, prompt %d: the text with guesses is another one than without; "
                  "'luce doctor' checks the kernels of this device", s->name, b->prompt);
    if (!st) add_text(s, &b->text, &plain, &guessed);
    luce_status wrote = write_lines(b, st ? NULL : err);
    luce_result_drop(&plain);
    luce_result_drop(&guessed);
    return st ? st : wrote;
}

static luce_status run_text(void *user, const luce_text *text, const struct chat_form *form, luce_error *err)
{
    struct spec_bench *b = user;
    struct spec_set *s = &b->set[b->n];
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
        b->set[b->n] = (struct spec_set){ .name = prompt_sets[i].name };
        b->prompt = 0;
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
    struct spec_set *s = &b->set[b->n];
    luce_status st = LUCE_OK;
    *s = (struct spec_set){ .name = "random" };
    for (int i = 0; i < RANDOM_PROMPTS && !st; i++) {
        int32_t ids[RANDOM_TOKENS];
        for (int k = 0; k < RANDOM_TOKENS; k++)
            ids[k] = (int32_t)(rng_u64(1, (uint64_t)i, (uint64_t)k) % (uint64_t)b->info.vocabulary);
        luce_request q = { .tokens = ids, .n_tokens = RANDOM_TOKENS };
        st = run_prompt(b, s, &q, err);
    }
    b->n++;
    return st;
}

static luce_status run_sets(struct spec_bench *b, luce_error *err)
{
    struct buf out = { 0 };
    luce_status st = b->info.has_text ? run_folder(b, err) : run_random(b, err);
    progress_show("", 1);
    if (st) return st;
    if (b->o->json) bench_spec_print_json(b, &out);
    else bench_spec_print_text(b, &out);
    st = output_write(&out, err);
    buf_drop(&out);
    return st;
}

luce_status bench_spec_run(const struct options *o, luce_error *err)
{
    struct spec_bench b = { .o = o, .log.fd = -1 };
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
    if (o->log) st = file_create(&b.log, o->log, err);
    if (!st) st = run_sets(&b, err);
    if (b.log.fd >= 0) {            /* of a run that failed, too */
        luce_status kept = file_commit(&b.log, st ? NULL : err);
        if (!st) st = kept;
    }
    buf_drop(&b.lines);
    luce_model_close(b.model);
    return st;
}
