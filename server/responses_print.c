/* server/responses_print.c - the reply of POST /v1/responses, whole and streamed, and what is kept of it. */
#include <stdio.h>

#include "chat/reply.h"
#include "server/print.h"
#include "server/store.h"

static void put_usage(struct json *j, const struct job *job)
{
    struct usage u = job_usage(job);
    json_key(j, "usage");
    json_open_object(j);
    put_int(j, "input_tokens", u.prompt);
    json_key(j, "input_tokens_details");
    json_open_object(j);
    put_int(j, "cached_tokens", u.cached);
    json_close(j);
    put_int(j, "output_tokens", u.generated);
    json_key(j, "output_tokens_details");
    json_open_object(j);
    put_int(j, "reasoning_tokens", u.reasoning);
    json_close(j);
    put_int(j, "total_tokens", u.prompt + u.generated);
    put_timings(j, job);
    json_close(j);
}

static void put_part(struct json *j, const struct item *i, struct str text)
{
    json_open_object(j);
    put_text(j, "type", i->kind == ITEM_TEXT ? "output_text" : "reasoning_text");
    put_str(j, "text", text);
    if (i->kind == ITEM_TEXT) {
        json_key(j, "annotations");
        json_open_array(j);
        json_close(j);
    }
    json_close(j);
}

/* The id of a call's item, made from that of the call. */
static const char *item_id(const struct item *i, char out[48])
{
    snprintf(out, 48, "%s%s", i->kind == ITEM_CALL ? "fc_" : "", i->kind == ITEM_CALL ? i->id + 5 : i->id);
    return out;
}

static struct str custom_input(const struct item *i, json_t **tree)
{
    struct buf text = { 0 };
    buf_add(&text, buf_text(&i->text), i->text.len);
    if (i->cut) json_complete(&text);
    *tree = tree_read_object((struct str){ buf_text(&text), text.len });
    buf_drop(&text);
    const json_t *input = json_object_get(*tree, "input");
    if (!tree_is_text(input)) return str_in(&i->text);
    return (struct str){ json_string_value(input), json_string_length(input) };
}

static void put_item(struct json *j, const struct item *i, bool ended)
{
    static const char *const types[] = { "message", "reasoning", "function_call" };
    char id[48];
    json_open_object(j);
    put_text(j, "id", item_id(i, id));
    put_text(j, "type", i->custom ? "custom_tool_call" : types[i->kind]);
    put_text(j, "status", !ended ? "in_progress" : i->cut ? "incomplete" : "completed");
    if (i->kind == ITEM_TEXT) put_text(j, "role", "assistant");
    if (i->kind == ITEM_CALL) {
        json_t *tree = NULL;
        put_text(j, "call_id", i->id);
        put_str(j, "name", str_in(&i->name));
        struct str text = ended && i->custom ? custom_input(i, &tree) : ended ? str_in(&i->text) : str_of("");
        put_str(j, i->custom ? "input" : "arguments", text);
        json_decref(tree);
    } else {
        if (i->kind == ITEM_REASONING) {
            json_key(j, "summary");
            json_open_array(j);
            json_close(j);
        }
        json_key(j, "content");
        json_open_array(j);
        if (ended) put_part(j, i, str_in(&i->text));
        json_close(j);
    }
    json_close(j);
}

/* A field of the request; objects with what they lack, else the usual value in place of none. */
static void put_echoed(struct json *j, const json_t *body, const char *key, const char *usual)
{
    json_t *given = json_object_get(body, key), *filled = tree_read(str_of(usual), JSON_NESTING, NULL);
    if (json_is_object(given) && json_is_object(filled)) json_object_update(filled, given);
    else if (given && !json_is_null(given)) json_decref(filled), filled = json_incref(given);
    put_tree(j, key, filled);
    json_decref(filled);
}

/* What clients expect to get back of their request. */
static void put_echo(struct json *j, const struct job *job)
{
    static const struct { const char *key, *usual; } echoed[] = {
        { "instructions", "null" }, { "tool_choice", "\"auto\"" }, { "text", "{\"format\":{\"type\":\"text\"}}" },
        { "reasoning", "{\"effort\":null,\"summary\":null}" }, { "previous_response_id", "null" },
        { "max_output_tokens", "null" }, { "max_tool_calls", "null" }, { "truncation", "\"disabled\"" },
        { "tools", "[]" }, { "metadata", "{}" }, { "user", "null" }, { "prompt_cache_key", "null" },
        { "safety_identifier", "null" } };
    for (size_t i = 0; i < sizeof echoed / sizeof *echoed; i++)
        put_echoed(j, job->ask.body, echoed[i].key, echoed[i].usual);
    put_text(j, "service_tier", "default");
    put_bool(j, "background", false);
    put_int(j, "top_logprobs", 0);
    put_bool(j, "parallel_tool_calls", !job->ask.one_call);
    put_number(j, "temperature", (double)job->ask.sampling.temperature);
    put_number(j, "top_p", (double)job->ask.sampling.top_p);
    put_bool(j, "store", job->ask.store);
}

static void put_failure(struct json *j, const struct refusal *why)
{
    json_key(j, "error");
    if (!why) {
        json_put_null(j);
        return;
    }
    json_open_object(j);
    put_text(j, "code", why->code ? why->code : "server_error");
    put_text(j, "message", why->text);
    json_close(j);
}

static void put_response(struct json *j, const struct job *job, const char *status, const struct refusal *why)
{
    const struct choice *c = &job->choice[0];
    bool ended = c->ended && !why;
    struct buf text = { 0 };
    json_open_object(j);
    put_text(j, "id", job->id);
    put_text(j, "object", "response");
    put_int(j, "created_at", job->created);
    put_text(j, "status", status);
    put_text(j, "model", job->server->params->name);
    put_failure(j, why);
    json_key(j, "incomplete_details");
    if (ended && c->finish == FINISH_LENGTH) {
        json_open_object(j);
        put_text(j, "reason", "max_output_tokens");
        json_close(j);
    } else {
        json_put_null(j);
    }
    json_key(j, "output");
    json_open_array(j);
    for (int i = 0; ended && i < c->n_items; i++) put_item(j, &c->items[i], true);
    json_close(j);
    if (ended) join_items(c, ITEM_TEXT, &text);
    put_str(j, "output_text", str_in(&text));
    buf_drop(&text);
    put_echo(j, job);
    if (ended) put_usage(j, job);
    else put_text(j, "usage", NULL);
    json_close(j);
}

static const char *final_status(const struct job *job)
{
    return job->choice[0].finish == FINISH_LENGTH ? "incomplete" : "completed";
}

/* The answer as a message in the chat form. */
static json_t *answer_message(const struct choice *c)
{
    struct buf text = { 0 }, reasoning = { 0 };
    json_t *m = json_object(), *calls = json_array();
    join_items(c, ITEM_TEXT, &text);
    join_items(c, ITEM_REASONING, &reasoning);
    json_object_set_new(m, "role", json_string("assistant"));
    json_object_set_new(m, "content", json_stringn(buf_text(&text), text.len));
    if (reasoning.len) json_object_set_new(m, "reasoning_content", json_stringn(reasoning.data, reasoning.len));
    for (int i = 0; i < c->n_items; i++) {
        const struct item *call = &c->items[i];
        if (call->kind != ITEM_CALL) continue;
        json_t *function = json_object(), *one = json_object();
        json_object_set_new(function, "name", json_string(buf_text(&call->name)));
        json_object_set_new(function, "arguments", json_stringn(buf_text(&call->text), call->text.len));
        json_object_set_new(one, "id", json_string(call->id));
        json_object_set_new(one, "type", json_string("function"));
        json_object_set_new(one, "function", function);
        json_array_append_new(calls, one);
    }
    if (json_array_size(calls)) json_object_set(m, "tool_calls", calls);
    json_decref(calls);
    buf_drop(&text);
    buf_drop(&reasoning);
    return m;
}

static void keep(struct job *job)
{
    const struct choice *c = &job->choice[0];
    struct buf reply = { 0 }, ids = { 0 };
    struct json j;
    char id[48];
    if (!job->ask.store) return;
    json_array_append_new(job->ask.kept, answer_message(c));
    json_begin(&j, &reply);
    put_response(&j, job, final_status(job), NULL);
    for (int i = 0; i < c->n_items; i++) buf_printf(&ids, " %s ", item_id(&c->items[i], id));
    if (!reply.failed && !ids.failed)
        store_put(job->server->store, job->id, &(struct kept){ job->ask.kept, buf_text(&reply), buf_text(&ids) });
    buf_drop(&reply);
    buf_drop(&ids);
}

static void whole(struct job *job, struct buf *out)
{
    struct json j;
    json_begin(&j, out);
    put_response(&j, job, final_status(job), NULL);
    keep(job);
}

/* ---- stream --------------------------------------------------------------------------------------- */
static void event(struct json *j, struct job *job, struct buf *out, const char *type)
{
    event_begin(j, out, type);
    put_text(j, "type", type);
    put_int(j, "sequence_number", job->sequence++);
}

static void response_event(struct job *job, struct buf *out, const char *type, const char *status,
                           const struct refusal *why)
{
    struct json j;
    event(&j, job, out, type);
    json_key(&j, "response");
    put_response(&j, job, status, why);
    event_end(&j);
}

static void begin(struct job *job, struct buf *out)
{
    response_event(job, out, "response.created", "in_progress", NULL);
    response_event(job, out, "response.in_progress", "in_progress", NULL);
}

/* An event of an item, up to its own fields. */
static void item_event(struct json *j, struct job *job, const struct choice *c, const struct item *i, const char *type,
                       struct buf *out)
{
    char id[48];
    event(j, job, out, type);
    put_text(j, "item_id", item_id(i, id));
    put_int(j, "output_index", i - c->items);
    if (i->kind != ITEM_CALL) put_int(j, "content_index", 0);
}

static void whole_item(struct job *job, const struct choice *c, const struct item *i, const char *type, bool ended,
                       struct buf *out)
{
    struct json j;
    event(&j, job, out, type);
    put_int(&j, "output_index", i - c->items);
    json_key(&j, "item");
    put_item(&j, i, ended);
    event_end(&j);
}

static void part_event(struct job *job, const struct choice *c, const struct item *i, const char *type, struct str text,
                       struct buf *out)
{
    struct json j;
    item_event(&j, job, c, i, type, out);
    json_key(&j, "part");
    put_part(&j, i, text);
    event_end(&j);
}

static void open_item(struct job *job, struct choice *c, struct item *i, struct buf *out)
{
    whole_item(job, c, i, "response.output_item.added", false, out);
    if (i->kind == ITEM_TEXT) part_event(job, c, i, "response.content_part.added", str_of(""), out);
}

static void add(struct job *job, struct choice *c, struct item *i, struct str text, struct buf *out)
{
    static const char *const types[] = { "response.output_text.delta", "response.reasoning_text.delta",
                                         "response.function_call_arguments.delta" };
    struct json j;
    if (i->custom) return;              /* its input is known once the arguments are whole */
    item_event(&j, job, c, i, types[i->kind], out);
    put_str(&j, "delta", text);
    event_end(&j);
}

static void close_item(struct job *job, struct choice *c, struct item *i, struct buf *out)
{
    static const char *const types[] = { "response.output_text.done", "response.reasoning_text.done",
                                         "response.function_call_arguments.done" };
    struct json j;
    json_t *tree = NULL;
    struct str text = i->custom ? custom_input(i, &tree) : str_in(&i->text);
    if (i->custom) {
        item_event(&j, job, c, i, "response.custom_tool_call_input.delta", out);
        put_str(&j, "delta", text);
        event_end(&j);
    }
    item_event(&j, job, c, i, i->custom ? "response.custom_tool_call_input.done" : types[i->kind], out);
    if (i->kind == ITEM_CALL) put_str(&j, "name", str_in(&i->name));
    put_str(&j, i->custom ? "input" : i->kind == ITEM_CALL ? "arguments" : "text", text);
    event_end(&j);
    json_decref(tree);
    if (i->kind == ITEM_TEXT) part_event(job, c, i, "response.content_part.done", str_in(&i->text), out);
    whole_item(job, c, i, "response.output_item.done", true, out);
}

static void end_choice(struct job *job, struct choice *c, struct buf *out)
{
    (void)job, (void)c, (void)out;
}

static void end(struct job *job, struct buf *out)
{
    bool cut = job->choice[0].finish == FINISH_LENGTH;
    response_event(job, out, cut ? "response.incomplete" : "response.completed", final_status(job), NULL);
    keep(job);
}

static void broken(struct job *job, const struct refusal *why, struct buf *out)
{
    response_event(job, out, "response.failed", "failed", why);
}

const struct wire wire_responses = {
    .name = "responses", .id_prefix = "resp_", .call_prefix = "call_", .begin = begin, .open_item = open_item,
    .add = add, .close_item = close_item, .end_choice = end_choice, .end = end, .broken = broken,
    .keep_alive = ": keep-alive\n\n", .whole = whole, .error = print_openai_error,
    .prompt = "input",
};
