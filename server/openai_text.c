/* server/openai_text.c - POST /v1/completions: raw prompts, without a chat form. */
#include "base/mem.h"
#include "server/print.h"
#include "server/route.h"

static bool add_ids(struct ask *a, const char *key, const json_t *ids, struct refusal *why)
{
    size_t i, n = json_array_size(ids);
    json_t *v;
    struct prompt p = { .ids = mem_array(n, sizeof *p.ids), .n = n };
    struct prompt *more = mem_resize(a->prompts, ((size_t)a->n_prompts + 1) * sizeof *more);
    if (more) a->prompts = more;
    if (!p.ids || !more) {
        mem_free(p.ids);
        return n ? refuse(why, 503, NULL, key, "out of memory for the prompt") : refuse(why, 400, NULL, key,
                                                                                       "%s: it is empty", key);
    }
    a->prompts[a->n_prompts++] = p;
    json_array_foreach(ids, i, v) {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
            return refuse(why, 400, NULL, key, "%s: element %zu is not a token id", key, i);
        p.ids[i] = (int32_t)json_integer_value(v);
    }
    return true;
}

static bool add_one(struct server *s, struct ask *a, const char *key, const json_t *p, struct refusal *why)
{
    if (json_is_array(p)) return add_ids(a, key, p, why);
    if (!tree_is_text(p)) return refuse(why, 400, NULL, key, "%s: expected a string, strings, or token ids", key);
    luce_text text = { .at = json_string_value(p), .bytes = json_string_length(p), .flags = LUCE_BOS };
    if (!add_prompt(s, a, &text, why)) return false;
    return a->prompts[a->n_prompts - 1].n > 0 || refuse(why, 400, NULL, key, "%s: it is empty", key);
}

bool take_prompts(struct server *s, struct ask *a, const char *key, size_t most, struct refusal *why)
{
    const json_t *all = json_object_get(a->body, key), *first = json_array_get(all, 0);
    bool several = json_is_array(all) && (tree_is_text(first) || json_is_array(first));
    if (!all || json_is_null(all)) return refuse(why, 400, NULL, key, "%s: it is missing", key);
    if (!several) return add_one(s, a, key, all, why);
    if (json_array_size(all) > most) return refuse(why, 400, NULL, key, "%s: more than %zu of them", key, most);
    for (size_t i = 0; i < json_array_size(all); i++)
        if (!add_one(s, a, key, json_array_get(all, i), why)) return false;
    return true;
}

/* What this server does not do is refused; the values that ask for nothing are fine. */
static bool check_old_fields(const struct ask *a, struct refusal *why)
{
    const json_t *suffix = json_object_get(a->body, "suffix");
    int64_t n = 1, best = 1;
    if (suffix && !json_is_null(suffix) && json_string_length(suffix) + !tree_is_text(suffix))
        return refuse(why, 400, "unsupported", "suffix", "suffix: this server does not fill in the middle; write the "
                      "model's own marks into the prompt");
    if (!field_int(a->body, "n", 1, ASK_CHOICES, &n, why)) return false;
    best = n;
    if (!field_int(a->body, "best_of", 1, ASK_CHOICES, &best, why)) return false;
    return best == n || refuse(why, 400, "unsupported", "best_of", "best_of is %lld and n %lld; this server returns "
                               "each text that it makes: ask for n of them with logprobs, and choose",
                               (long long)best, (long long)n);
}

bool completions_parse(struct server *s, struct ask *a, struct refusal *why)
{
    int64_t top = -1;
    a->several = true;
    if (!take_prompts(s, a, "prompt", ASK_CHOICES, why) || !check_old_fields(a, why)) return false;
    if (json_is_true(json_object_get(a->body, "logprobs"))) top = 0;
    else if (!json_is_boolean(json_object_get(a->body, "logprobs")) &&
             !field_int(a->body, "logprobs", 0, ASK_TOP_LOGPROBS, &top, why))
        return false;
    a->logprobs = top >= 0;
    a->top_logprobs = top > 0 ? (int)top : 0;
    if (!field_bool(a->body, "echo", &a->echo, why)) return false;
    const json_t *most = json_object_get(a->body, "max_tokens");
    a->prompt_only = a->echo && json_is_integer(most) && json_integer_value(most) == 0;
    return ask_common(a, s, why);
}

/* ---- reply ---------------------------------------------------------------------------------------- */
static void token_text(const struct job *job, int32_t id, struct buf *out)
{
    char *text = NULL;
    size_t n = 0;
    luce_error err = { 0 };
    if (!luce_detokenize(job->server->model, &id, 1, LUCE_RAW | LUCE_SPECIAL, &text, &n, &err)) buf_add(out, text, n);
    luce_free(text);
}

static void put_token_text(struct json *j, const struct job *job, int32_t id)
{
    struct buf text = { 0 };
    token_text(job, id, &text);
    json_str(j, str_in(&text));
    buf_drop(&text);
}

static void put_top(struct json *j, const struct job *job, const struct told *t)
{
    json_open_object(j);
    for (int k = 0; k < t->n_top; k++) {
        struct buf text = { 0 };
        token_text(job, t->top_id[k], &text);
        put_number(j, buf_text(&text), (double)t->top_logprob[k]);
        buf_drop(&text);
    }
    json_close(j);
}

/* The four lists of the old form, of the tokens that have not been printed. */
static void put_logprobs(struct json *j, struct choice *c)
{
    static const char *const lists[] = { "tokens", "token_logprobs", "top_logprobs", "text_offset" };
    json_key(j, "logprobs");
    json_open_object(j);
    for (int l = 0; l < 4; l++) {
        json_key(j, lists[l]);
        json_open_array(j);
        for (int i = c->n_printed; i < c->n_covered; i++) {
            const struct told *t = &c->told[i];
            if (l == 0) put_token_text(j, c->job, t->id);
            if (t->unknown && (l == 1 || l == 2)) json_put_null(j);
            else if (l == 1) json_number(j, (double)t->logprob);
            else if (l == 2) put_top(j, c->job, t);
            if (l == 3) json_uint(j, i ? c->told[i - 1].end : 0);
        }
        json_close(j);
    }
    json_close(j);
    c->n_printed = c->n_covered;
}

static void put_choice(struct json *j, struct choice *c, struct str text, bool ended)
{
    static const char *const names[] = { "stop", "stop", "length", "stop" };
    json_open_object(j);
    put_int(j, "index", c->index);
    put_str(j, "text", text);
    if (c->job->ask.logprobs) put_logprobs(j, c);
    else put_text(j, "logprobs", NULL);
    put_text(j, "finish_reason", ended ? names[c->finish] : NULL);
    json_close(j);
}

static void put_head(struct json *j, const struct job *job)
{
    put_text(j, "id", job->id);
    put_text(j, "object", "text_completion");
    put_int(j, "created", job->created);
    put_text(j, "model", job->server->params->name);
    json_key(j, "choices");
    json_open_array(j);
}

static void put_usage(struct json *j, const struct job *job)
{
    struct usage u = job_usage(job);
    json_key(j, "usage");
    json_open_object(j);
    put_int(j, "prompt_tokens", u.prompt);
    put_int(j, "completion_tokens", u.generated);
    put_int(j, "total_tokens", u.prompt + u.generated);
    json_key(j, "prompt_tokens_details");
    json_open_object(j);
    put_int(j, "cached_tokens", u.cached);
    json_close(j);
    put_timings(j, job);
    json_close(j);
}

static void whole(struct job *job, struct buf *out)
{
    struct json j;
    json_begin(&j, out);
    json_open_object(&j);
    put_head(&j, job);
    for (int i = 0; i < job->n_choices; i++) {
        struct buf text = { 0 };
        join_items(&job->choice[i], ITEM_TEXT, &text);
        put_choice(&j, &job->choice[i], str_in(&text), true);
        buf_drop(&text);
    }
    json_close(&j);
    put_usage(&j, job);
    json_close(&j);
}

/* ---- stream --------------------------------------------------------------------------------------- */
static void chunk(struct job *job, struct choice *c, struct str text, bool ended, struct buf *out)
{
    struct json j;
    event_begin(&j, out, NULL);
    put_head(&j, job);
    put_choice(&j, c, text, ended);
    json_close(&j);
    event_end(&j);
}

static void begin(struct job *job, struct buf *out)
{
    (void)job;
    buf_add_text(out, ": the answer follows\n\n");
}

static void mark(struct job *job, struct choice *c, struct item *i, struct buf *out)
{
    (void)job, (void)c, (void)i, (void)out;
}

static void add(struct job *job, struct choice *c, struct item *i, struct str text, struct buf *out)
{
    (void)i;
    chunk(job, c, text, false, out);
}

static void end_choice(struct job *job, struct choice *c, struct buf *out)
{
    chunk(job, c, str_of(""), true, out);
}

static void end(struct job *job, struct buf *out)
{
    if (job->ask.include_usage) {
        struct json j;
        event_begin(&j, out, NULL);
        put_head(&j, job);
        json_close(&j);
        put_usage(&j, job);
        event_end(&j);
    }
    buf_add_text(out, "data: [DONE]\n\n");
}

const struct wire wire_completions = {
    .name = "completions", .id_prefix = "cmpl_", .call_prefix = "call_", .begin = begin, .open_item = mark,
    .add = add, .close_item = mark, .end_choice = end_choice, .end = end, .broken = print_openai_broken,
    .keep_alive = ": keep-alive\n\n", .whole = whole, .error = print_openai_error,
    .prompt = "prompt",
};
