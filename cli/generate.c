/* cli/generate.c - see generate.h. */
#include "cli/generate.h"

#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/terminal.h"

static bool on_progress(void *user, double share)
{
    progress_show(user, share);
    return !interrupted(NULL);
}

luce_model_params model_params(const struct options *o)
{
    return (luce_model_params){
        .path = o->model, .synthetic = o->synthetic, .device = o->device, .threads = (int)o->threads,
        .context = (int)o->context, .chunk = (int)o->chunk, .cache_type_k = o->cache_type_k,
        .cache_type_v = o->cache_type_v, .drafter = o->spec, .draft_path = o->draft,
        .draft_max = (int)o->draft_max, .draft_block_size = (int)o->draft_block_size, .draft_chain = !o->ddtree,
        .draft_margin = o->ddtree_tau };
}

luce_status draft_find(const char **draft, struct buf *found, luce_error *err)
{
    DIR *folder = *draft ? opendir(*draft) : NULL;
    int n = 0;
    bool published = false;             /* a checkpoint: the drafter reads the folder itself */
    if (!folder) return LUCE_OK;
    for (const struct dirent *e; (e = readdir(folder));) {
        size_t len = strlen(e->d_name);
        if (!strcmp(e->d_name, "config.json")) published = true;
        if (len < 5 || strcmp(e->d_name + len - 5, ".gguf")) continue;
        if (n++ == 0) buf_printf(found, "%s/%s", *draft, e->d_name);
    }
    closedir(folder);
    if (n == 0 && published) return LUCE_OK;
    if (n != 1) return fail(err, LUCE_E_ARG, "--draft: %s holds %d GGUF files; name one of them", *draft, n);
    if (found->failed) return fail(err, LUCE_E_NOMEM, "out of memory for a path");
    *draft = buf_text(found);
    return LUCE_OK;
}

luce_status model_load(luce_model **out, luce_model_params p, luce_error *err)
{
    struct buf found = { 0 };
    if (!p.path && !p.synthetic) return fail(err, LUCE_E_ARG, "no model: give -m FILE");
    luce_status st = draft_find(&p.draft_path, &found, err);
    p.progress = on_progress;
    p.user = "loading";
    if (!st) st = luce_model_open(out, &p, err);
    progress_show("loading", 1);
    buf_drop(&found);
    return st;
}

luce_request request_from_options(const struct options *o, const char **stops, const char *more_stop)
{
    int n = 0;
    for (int i = 0; i < o->stop.n; i++) stops[n++] = o->stop.at[i];
    if (more_stop) stops[n++] = more_stop;
    return (luce_request){
        .sampling = { .temperature = (float)o->temperature, .top_k = (int)o->top_k,
                      .top_p = (float)fmax(o->top_p, (double)FLT_MIN),     /* 0 would be off */
                      .min_p = (float)o->min_p, .repetition_penalty = (float)o->repetition_penalty,
                      .presence_penalty = (float)o->presence_penalty,
                      .frequency_penalty = (float)o->frequency_penalty,
                      .penalty_window = (int)o->penalty_window, .has_seed = o->seed.given,
                      .seed = o->seed.value },
        .max_tokens = (int)o->max_tokens, .stop = stops, .n_stop = n, .ignore_end = o->ignore_end,
        .show_special = o->special, .cancelled = interrupted };
}

/* Nothing was guessed and nothing declined: not a word. */
static void show_speculation(const luce_speculation *s)
{
    if (s->n_drafted)
        fprintf(stderr, "; %zu of %zu guesses right, %.2f tokens a step", s->n_accepted, s->n_drafted,
                (double)(s->n_steps + s->n_accepted) / (double)s->n_steps);
    if (2 * s->n_declined > s->n_steps) fprintf(stderr, "; guessing does not pay here and was off in %zu of %zu steps",
                                                s->n_declined, s->n_steps);
}

void show_speed(const struct options *o, const luce_result *r)
{
    if ((!error_is_terminal() && !o->timings) || r->n_tokens == 0) return;
    fprintf(stderr, "[prompt %zu tokens, %.1f/s", r->n_prompt, (double)r->n_prompt / r->prompt_seconds);
    if (r->n_tokens > 1)
        fprintf(stderr, "; text %zu tokens, %.1f/s", r->n_tokens, (double)(r->n_tokens - 1) / r->decode_seconds);
    show_speculation(&r->speculation);
    fprintf(stderr, "; %s]\n", luce_finish_name(r->finish));
}
