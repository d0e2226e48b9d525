/* server/print.c - see print.h. */
#include "server/print.h"

#include <math.h>


void put_text(struct json *j, const char *key, const char *text)
{
    json_key(j, key);
    if (text) json_text(j, text);
    else json_put_null(j);
}

void put_str(struct json *j, const char *key, struct str text)
{
    json_key(j, key);
    json_str(j, text);
}

void put_int(struct json *j, const char *key, int64_t value)
{
    json_key(j, key);
    json_int(j, value);
}

void put_number(struct json *j, const char *key, double value)
{
    json_key(j, key);
    json_number(j, value);
}

void put_bool(struct json *j, const char *key, bool value)
{
    json_key(j, key);
    json_bool(j, value);
}

void put_tree(struct json *j, const char *key, const json_t *tree)
{
    json_key(j, key);
    json_raw(j, str_of(""));
    tree_print(j->out, tree, TREE_COMPACT);
}

struct str str_in(const struct buf *b)
{
    return (struct str){ buf_text(b), b->len };
}

static double tenth(double x)
{
    return round(x * 10) / 10;
}

void put_timings(struct json *j, const struct job *job)
{
    struct usage u = job_usage(job);
    put_number(j, "accept_rate", u.drafted ? round((double)u.accepted * 1e3 / (double)u.drafted) / 1e3 : 0);
    put_bool(j, "spec_decode_ran", u.drafted > 0);
    json_key(j, "timings");
    json_open_object(j);
    put_number(j, "prefill_ms", tenth(u.prompt_ms));
    put_number(j, "decode_ms", tenth(u.decode_ms));
    put_number(j, "decode_tokens_per_sec", u.decode_ms > 0 ? tenth((double)(u.generated - 1) * 1e3 / u.decode_ms) : 0);
    put_bool(j, "cache_hit", u.cached > 0);
    put_int(j, "cached_prefix_tokens", u.cached);
    put_int(j, "prefilled_tokens", u.prompt - u.cached);
    put_int(j, "effective_prompt_tokens", u.prompt);
    put_bool(j, "agent_turn_cache_hit", false);
    put_int(j, "draft_tokens", u.drafted);
    put_int(j, "accepted_draft_tokens", u.accepted);
    put_int(j, "decode_steps", u.steps);
    put_int(j, "declined_steps", u.declined);
    json_close(j);
}

void print_openai_error(const struct refusal *why, struct buf *out)
{
    struct json j;
    json_begin(&j, out);
    json_open_object(&j);
    json_key(&j, "error");
    json_open_object(&j);
    put_text(&j, "message", why->text);
    put_text(&j, "type", why->status == 401 ? "authentication_error" : why->status == 429 ? "rate_limit_error"
                         : why->status < 500 ? "invalid_request_error" : "server_error");
    put_text(&j, "param", why->param);
    put_text(&j, "code", why->code);
    json_close(&j);
    json_close(&j);
}

void print_openai_broken(struct job *job, const struct refusal *why, struct buf *out)
{
    (void)job;
    buf_add_text(out, "data: ");
    print_openai_error(why, out);
    buf_add_text(out, "\n\ndata: [DONE]\n\n");
}

void event_begin(struct json *j, struct buf *out, const char *event)
{
    if (event) buf_printf(out, "event: %s\n", event);
    buf_add_text(out, "data: ");
    json_begin(j, out);
    json_open_object(j);
}

void event_end(struct json *j)
{
    json_close(j);
    buf_add_text(j->out, "\n\n");
}

static void put_token(struct json *j, struct choice *c, int32_t id, float logprob)
{
    char *text = NULL;
    size_t n = 0;
    luce_error err = { 0 };
    if (luce_detokenize(c->job->server->model, &id, 1, LUCE_RAW | LUCE_SPECIAL, &text, &n, &err) || !text)
        n = 0;
    put_str(j, "token", (struct str){ text ? text : "", n });
    put_number(j, "logprob", (double)logprob < -9999 ? -9999 : (double)logprob);
    json_key(j, "bytes");
    json_open_array(j);
    for (size_t i = 0; i < n; i++) json_int(j, (unsigned char)text[i]);
    json_close(j);
    luce_free(text);
}

void put_chat_logprobs(struct json *j, struct choice *c)
{
    json_key(j, "logprobs");
    json_open_object(j);
    json_key(j, "content");
    json_open_array(j);
    for (; c->n_printed < c->n_covered; c->n_printed++) {
        const struct told *t = &c->told[c->n_printed];
        json_open_object(j);
        put_token(j, c, t->id, t->logprob);
        json_key(j, "top_logprobs");
        json_open_array(j);
        for (int i = 0; i < t->n_top; i++) {
            json_open_object(j);
            put_token(j, c, t->top_id[i], t->top_logprob[i]);
            json_close(j);
        }
        json_close(j);
        json_close(j);
    }
    json_close(j);
    json_close(j);
}

void join_items(const struct choice *c, enum item_kind kind, struct buf *out)
{
    for (int i = 0; i < c->n_items; i++)
        if (c->items[i].kind == kind) buf_add(out, buf_text(&c->items[i].text), c->items[i].text.len);
}

int count_items(const struct choice *c, enum item_kind kind)
{
    int n = 0;
    for (int i = 0; i < c->n_items; i++) n += c->items[i].kind == kind;
    return n;
}
