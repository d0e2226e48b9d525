/* server/anthropic.c - POST /v1/messages and its count_tokens: the request, the reply, the stream. */
#include "base/mem.h"
#include "server/budget.h"
#include "server/route.h"

/* ---- request -------------------------------------------------------------------------------------- */
static bool take_system(struct ask *a, const json_t *system, struct refusal *why)
{
    struct buf text = { 0 };
    size_t i;
    json_t *block;
    bool good = true;
    if (tree_is_text(system)) good = content_text(a, system, &text, why);
    json_array_foreach(system, i, block) {
        struct buf one = { 0 };
        json_t *alone = json_pack("[O]", block);
        good = good && content_text(a, alone, &one, why);
        json_decref(alone);
        drop_billing_lines(&one);
        if (one.len && text.len) buf_add_text(&text, "\n\n");
        buf_add(&text, buf_text(&one), one.len);
        buf_drop(&one);
    }
    if (tree_is_text(system)) drop_billing_lines(&text);
    if (good && text.len) good = add_message(a->messages, "system", str_in(&text));
    buf_drop(&text);
    return good;
}

static void add_call(json_t *calls, const json_t *block)
{
    json_t *input = json_object_get(block, "input");
    json_t *arguments = tree_is_text(input) ? json_incref(input) : input ? tree_text(input) : json_string("{}");
    json_t *function = json_object(), *call = json_object();
    json_object_set(function, "name", json_object_get(block, "name"));
    json_object_set_new(function, "arguments", arguments);
    json_object_set(call, "id", json_object_get(block, "id"));
    json_object_set_new(call, "type", json_string("function"));
    json_object_set_new(call, "function", function);
    json_array_append_new(calls, call);
}

static bool add_result(struct ask *a, const json_t *block, struct refusal *why)
{
    struct buf text = { 0 };
    bool good = content_text(a, json_object_get(block, "content"), &text, why) &&
                add_message(a->messages, "tool", str_in(&text));
    json_t *last = json_array_get(a->messages, json_array_size(a->messages) - 1);
    json_t *id = json_object_get(block, "tool_use_id");
    if (good && tree_is_text(id)) json_object_set(last, "tool_call_id", id);
    buf_drop(&text);
    return good;
}

static bool take_message(struct ask *a, const json_t *m, struct refusal *why)
{
    const char *role = field_text(m, "role");
    const json_t *content = json_object_get(m, "content");
    struct buf text = { 0 }, thinking = { 0 };
    json_t *calls = json_array(), *block;
    size_t i;
    bool good = role ? true : refuse(why, 400, NULL, "messages", "messages: each one is an object with a role");
    json_array_foreach(content, i, block) {
        const char *type = field_text(block, "type");
        if (!type) continue;
        if (!strcmp(type, "tool_result")) good = good && add_result(a, block, why);
        if (!strcmp(type, "tool_use")) add_call(calls, block);
        if (!strcmp(type, "thinking") && field_text(block, "thinking"))
            buf_add_text(&thinking, field_text(block, "thinking"));
    }
    good = good && content_text(a, content, &text, why);
    bool only_results = text.len == 0 && json_is_array(content) && json_array_size(content) &&
        !json_array_size(calls) &&
                        thinking.len == 0;
    if (good && !only_results) {
        good = add_message(a->messages, role, str_in(&text));
        json_t *last = json_array_get(a->messages, json_array_size(a->messages) - 1);
        if (json_array_size(calls)) json_object_set(last, "tool_calls", calls);
        if (thinking.len) json_object_set_new(last, "reasoning_content", json_stringn(thinking.data, thinking.len));
    }
    json_decref(calls);
    buf_drop(&text);
    buf_drop(&thinking);
    return good;
}

bool messages_read(struct server *s, struct ask *a, struct refusal *why)
{
    size_t i;
    json_t *m, *messages = json_object_get(a->body, "messages");
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return refuse(why, 400, NULL, "messages", "messages: expected a list with at least one message");
    a->chat = true;
    a->thinks_when_asked = true;
    a->messages = json_array();
    if (!take_system(a, json_object_get(a->body, "system"), why)) return false;
    json_array_foreach(messages, i, m) if (!take_message(a, m, why)) return false;
    if (ends_in_text(a->messages)) a->turn = CONTINUE_IF_POSSIBLE;      /* a prefill */
    a->variables = json_incref(json_object_get(a->body, "chat_template_kwargs"));
    a->tools = take_tools(a);
    return ask_common(a, s, why);
}

bool messages_parse(struct server *s, struct ask *a, struct refusal *why)
{
    return messages_read(s, a, why) && render_chat(s, a, why);
}

bool count_post(struct server *s, struct exchange *x, struct refusal *why)
{
    struct ask ask = { .body = ask_read_body(x->body, why) };
    bool good = ask.body && messages_parse(s, &ask, why);
    if (good) {
        struct json j;
        ask_notes(&ask, x->note, sizeof x->note);
        json_begin(&j, &x->reply);
        json_open_object(&j);
        put_int(&j, "input_tokens", (int64_t)ask.prompts[0].n);
        json_close(&j);
    }
    ask_drop(&ask);
    return good;
}

/* ---- reply ---------------------------------------------------------------------------------------- */
static void put_usage(struct json *j, const struct job *job, bool ended)
{
    struct usage u = job_usage(job);
    json_key(j, "usage");
    json_open_object(j);
    put_int(j, "input_tokens", u.prompt - u.cached);
    put_int(j, "cache_read_input_tokens", u.cached);
    put_int(j, "cache_creation_input_tokens", 0);
    put_int(j, "output_tokens", ended ? u.generated : 0);
    if (ended) put_timings(j, job);
    json_close(j);
}

static void put_stop(struct json *j, const struct choice *c)
{
    static const char *const names[] = { "end_turn", "stop_sequence", "max_tokens", "tool_use" };
    put_text(j, "stop_reason", c ? names[c->finish] : NULL);
    put_text(j, "stop_sequence", c && c->finish == FINISH_STOP ? c->stop : NULL);
    if (c) put_finish_details(j, c);
}

static void put_head(struct json *j, const struct job *job)
{
    put_text(j, "id", job->id);
    put_text(j, "type", "message");
    put_text(j, "role", "assistant");
    put_text(j, "model", job->server->params->name);
    json_key(j, "content");
    json_open_array(j);
}

/* A call's arguments as an object. What a limit cut is none: it is kept as text. */
static void put_input(struct json *j, const struct item *i)
{
    json_key(j, "input");
    json_t *tree = i->cut ? json_loadb(buf_text(&i->text), i->text.len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL)
                          : NULL;
    bool object = !i->cut || json_is_object(tree);
    json_decref(tree);
    if (object && i->text.len) {
        json_raw(j, str_in(&i->text));      /* as the model wrote it: numbers of any size stay exact */
        return;
    }
    json_open_object(j);
    if (i->text.len) put_str(j, "_raw", str_in(&i->text));
    json_close(j);
}

static void put_block(struct json *j, const struct item *i, bool filled)
{
    struct str text = filled ? str_in(&i->text) : str_of("");
    static const char *const types[] = { "text", "thinking", "tool_use" };
    json_open_object(j);
    put_text(j, "type", types[i->kind]);
    if (i->kind == ITEM_TEXT) put_str(j, "text", text);
    if (i->kind == ITEM_REASONING) {
        put_str(j, "thinking", text);
        put_text(j, "signature", filled ? i->id : "");
    }
    if (i->kind == ITEM_CALL) {
        put_text(j, "id", i->id);
        put_str(j, "name", str_in(&i->name));
        if (filled) put_input(j, i);
        else json_key(j, "input"), json_open_object(j), json_close(j);
    }
    json_close(j);
}

static void whole(struct job *job, struct buf *out)
{
    const struct choice *c = &job->choice[0];
    static const struct item nothing = { .kind = ITEM_TEXT };
    struct json j;
    json_begin(&j, out);
    json_open_object(&j);
    put_head(&j, job);
    for (int i = 0; i < c->n_items; i++) put_block(&j, &c->items[i], true);
    if (c->n_items == 0) put_block(&j, &nothing, true);
    json_close(&j);
    put_stop(&j, c);
    put_usage(&j, job, true);
    json_close(&j);
}

/* ---- stream --------------------------------------------------------------------------------------- */
static void event(struct json *j, struct buf *out, const char *type)
{
    event_begin(j, out, type);
    put_text(j, "type", type);
}

static void begin(struct job *job, struct buf *out)
{
    struct json j;
    event(&j, out, "message_start");
    json_key(&j, "message");
    json_open_object(&j);
    put_head(&j, job);
    json_close(&j);
    put_stop(&j, NULL);
    put_usage(&j, job, false);
    json_close(&j);
    event_end(&j);
    buf_add_text(out, wire_messages.keep_alive);
}

static void open_item(struct job *job, struct choice *c, struct item *i, struct buf *out)
{
    struct json j;
    event(&j, out, "content_block_start");
    put_int(&j, "index", i - c->items);
    json_key(&j, "content_block");
    put_block(&j, i, false);
    event_end(&j);
    job->n_open++;
}

static void delta(const struct choice *c, const struct item *i, const char *type, const char *key, struct str text,
                  struct buf *out)
{
    struct json j;
    event(&j, out, "content_block_delta");
    put_int(&j, "index", i - c->items);
    json_key(&j, "delta");
    json_open_object(&j);
    put_text(&j, "type", type);
    put_str(&j, key, text);
    json_close(&j);
    event_end(&j);
}

static void add(struct job *job, struct choice *c, struct item *i, struct str text, struct buf *out)
{
    static const char *const types[] = { "text_delta", "thinking_delta", "input_json_delta" };
    static const char *const keys[] = { "text", "thinking", "partial_json" };
    (void)job;
    delta(c, i, types[i->kind], keys[i->kind], text, out);
}

static void close_item(struct job *job, struct choice *c, struct item *i, struct buf *out)
{
    struct json j;
    (void)job;
    if (i->kind == ITEM_REASONING) delta(c, i, "signature_delta", "signature", str_of(i->id), out);
    event(&j, out, "content_block_stop");
    put_int(&j, "index", i - c->items);
    event_end(&j);
}

static void end_choice(struct job *job, struct choice *c, struct buf *out)
{
    if (c->n_items) return;             /* a message has at least one block */
    static struct item nothing = { .kind = ITEM_TEXT };
    struct choice empty = { .items = &nothing };
    open_item(job, &empty, &nothing, out);
    close_item(job, &empty, &nothing, out);
}

static void end(struct job *job, struct buf *out)
{
    struct json j;
    event(&j, out, "message_delta");
    json_key(&j, "delta");
    json_open_object(&j);
    put_stop(&j, &job->choice[0]);
    json_close(&j);
    put_usage(&j, job, true);
    event_end(&j);
    event(&j, out, "message_stop");
    event_end(&j);
}

static void put_error(struct json *j, const struct refusal *why)
{
    int s = why->status;
    put_text(j, "type", "error");
    json_key(j, "error");
    json_open_object(j);
    put_text(j, "type", s == 401 ? "authentication_error" : s == 404 ? "not_found_error" : s == 413
        ? "request_too_large"
                      : s == 429 ? "rate_limit_error" : s == 503 ? "overloaded_error" : s < 500
                          ? "invalid_request_error"
                      : "api_error");
    put_text(j, "message", why->text);
    json_close(j);
}

static void broken(struct job *job, const struct refusal *why, struct buf *out)
{
    struct json j;
    (void)job;
    event_begin(&j, out, "error");
    put_error(&j, why);
    event_end(&j);
}

static void error(const struct refusal *why, struct buf *out)
{
    struct json j;
    char id[48];
    make_id(id, sizeof id, "req_");
    json_begin(&j, out);
    json_open_object(&j);
    put_error(&j, why);
    put_text(&j, "request_id", id);
    json_close(&j);
}

const struct wire wire_messages = {
    .name = "messages", .id_prefix = "msg_", .call_prefix = "toolu_", .begin = begin, .open_item = open_item,
    .add = add, .close_item = close_item, .end_choice = end_choice, .end = end, .broken = broken,
    .keep_alive = "event: ping\ndata: {\"type\":\"ping\"}\n\n", .whole = whole, .error = error,
    .prompt = "messages",
};
