/* server/openai_chat.c - POST /v1/chat/completions: the request, the reply, the stream. */
#include "server/budget.h"
#include "server/route.h"

static const char *finish_name(const struct ask *a, enum finish f)
{
    static const char *const names[] = { "stop", "stop", "length", "tool_calls" };
    return f == FINISH_CALLS && a->old_calls ? "function_call" : names[f];
}

/* ---- request -------------------------------------------------------------------------------------- */
static bool take_message(struct ask *a, const json_t *m, struct refusal *why)
{
    const char *role = field_text(m, "role");
    if (!role) return refuse(why, 400, NULL, "messages", "messages: each one is an object with a role");
    if (!strcmp(role, "developer")) role = "system";
    struct buf text = { 0 };
    bool good = content_text(a, json_object_get(m, "content"), &text, why);
    if (good && !strcmp(role, "system")) drop_billing_lines(&text);
    good = good && add_message(a->messages, role, str_in(&text));
    json_t *last = json_array_get(a->messages, json_array_size(a->messages) - 1);
    static const char *const kept[] = { "tool_calls", "tool_call_id", "name", "reasoning_content" };
    for (size_t i = 0; good && i < sizeof kept / sizeof *kept; i++) {
        json_t *v = json_object_get(m, kept[i]);
        if (v && !json_is_null(v) && !(json_is_array(v) && json_array_size(v) == 0)) json_object_set(last, kept[i], v);
    }
    json_t *old = json_object_get(m, "function_call");
    if (good && json_is_object(old) && !json_object_get(last, "tool_calls"))
        json_object_set_new(last, "tool_calls", json_pack("[{s:s,s:O}]", "type", "function", "function", old));
    json_t *reasoning = json_object_get(m, "reasoning");        /* the other name that replies have for it */
    if (good && tree_is_text(reasoning) && !json_object_get(last, "reasoning_content"))
        json_object_set(last, "reasoning_content", reasoning);
    buf_drop(&text);
    return good;
}

bool chat_read(struct server *s, struct ask *a, struct refusal *why)
{
    size_t i;
    json_t *m, *messages = json_object_get(a->body, "messages");
    int64_t top = 0;
    bool go_on = false;
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return refuse(why, 400, NULL, "messages", "messages: expected a list with at least one message");
    a->chat = true;
    a->messages = json_array();
    json_array_foreach(messages, i, m) if (!take_message(a, m, why)) return false;
    m = json_array_get(messages, json_array_size(messages) - 1);
    a->variables = json_incref(json_object_get(a->body, "chat_template_kwargs"));
    a->tools = take_tools(a);
    a->several = true;
    if (!ask_common(a, s, why) || !take_functions(a, why) || !field_bool(a->body, "logprobs", &a->logprobs, why) ||
        !field_bool(m, "prefix", &go_on, why) || !field_bool(a->body, "continue_final_message", &go_on, why) ||
        !field_int(a->body, "top_logprobs", 0, ASK_TOP_LOGPROBS, &top, why))
        return false;
    a->top_logprobs = (int)top;
    a->turn = go_on ? CONTINUE : NEW_TURN;
    return true;
}

bool chat_parse(struct server *s, struct ask *a, struct refusal *why)
{
    return chat_read(s, a, why) && render_chat(s, a, why);
}

/* ---- reply ---------------------------------------------------------------------------------------- */
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
    json_key(j, "completion_tokens_details");
    json_open_object(j);
    put_int(j, "reasoning_tokens", u.reasoning);
    json_close(j);
    put_timings(j, job);
    json_close(j);
}

static void put_head(struct json *j, const struct job *job, const char *object)
{
    put_text(j, "id", job->id);
    put_text(j, "object", object);
    put_int(j, "created", job->created);
    put_text(j, "model", job->server->params->name);
}

static void put_reasoning(struct json *j, struct str text)
{
    put_str(j, "reasoning_content", text);
    put_str(j, "reasoning", text);
}

/* A call; NULL: only a piece of its arguments. */
static void put_function(struct json *j, const struct item *call, struct str arguments)
{
    json_open_object(j);
    if (call) put_str(j, "name", str_in(&call->name));
    put_str(j, "arguments", arguments);
    json_close(j);
}

static void put_calls(struct json *j, const struct choice *c)
{
    if (c->job->ask.old_calls) {
        const struct item *call = c->items;
        while (call->kind != ITEM_CALL) call++;
        json_key(j, "function_call");
        put_function(j, call, str_in(&call->text));
        return;
    }
    json_key(j, "tool_calls");
    json_open_array(j);
    for (int i = 0; i < c->n_items; i++) {
        const struct item *call = &c->items[i];
        if (call->kind != ITEM_CALL) continue;
        json_open_object(j);
        put_text(j, "id", call->id);
        put_text(j, "type", "function");
        json_key(j, "function");
        put_function(j, call, str_in(&call->text));
        json_close(j);
    }
    json_close(j);
}

static void put_choice(struct json *j, struct choice *c)
{
    struct buf text = { 0 }, reasoning = { 0 };
    int calls = count_items(c, ITEM_CALL);
    join_items(c, ITEM_TEXT, &text);
    join_items(c, ITEM_REASONING, &reasoning);
    json_open_object(j);
    put_int(j, "index", c->index);
    json_key(j, "message");
    json_open_object(j);
    put_text(j, "role", "assistant");
    if (text.len || !calls) put_str(j, "content", str_in(&text));
    else put_text(j, "content", NULL);
    if (reasoning.len) {
        put_reasoning(j, str_in(&reasoning));
        json_key(j, "reasoning_details");
        json_open_array(j);
        json_open_object(j);
        put_text(j, "type", "reasoning.text");
        put_str(j, "text", str_in(&reasoning));
        json_close(j);
        json_close(j);
    }
    if (calls) put_calls(j, c);
    json_close(j);
    if (c->job->ask.logprobs) put_chat_logprobs(j, c);
    put_text(j, "finish_reason", finish_name(&c->job->ask, c->finish));
    put_finish_details(j, c);
    json_close(j);
    buf_drop(&text);
    buf_drop(&reasoning);
}

static void whole(struct job *job, struct buf *out)
{
    struct json j;
    json_begin(&j, out);
    json_open_object(&j);
    put_head(&j, job, "chat.completion");
    json_key(&j, "choices");
    json_open_array(&j);
    for (int i = 0; i < job->n_choices; i++) put_choice(&j, &job->choice[i]);
    json_close(&j);
    put_usage(&j, job);
    json_close(&j);
}

/* ---- stream --------------------------------------------------------------------------------------- */
/* A chunk up to the inside of its delta; chunk_end takes what stands beside the delta. */
static void chunk_begin(struct json *j, const struct job *job, int index, struct buf *out)
{
    event_begin(j, out, NULL);
    put_head(j, job, "chat.completion.chunk");
    json_key(j, "choices");
    json_open_array(j);
    json_open_object(j);
    put_int(j, "index", index);
    json_key(j, "delta");
    json_open_object(j);
}

static void chunk_end(struct json *j, struct choice *c, const char *finish)
{
    json_close(j);
    if (c && c->job->ask.logprobs && (c->n_printed < c->n_covered)) put_chat_logprobs(j, c);
    put_text(j, "finish_reason", finish);
    if (c && c->ended) put_finish_details(j, c);
    json_close(j);
    json_close(j);
    event_end(j);
}

static void begin(struct job *job, struct buf *out)
{
    struct json j;
    for (int i = 0; i < job->n_choices; i++) {
        chunk_begin(&j, job, i, out);
        put_text(&j, "role", "assistant");
        chunk_end(&j, NULL, NULL);
    }
}

static int call_index(const struct choice *c, const struct item *call)
{
    int n = 0;
    for (const struct item *i = c->items; i < call; i++) n += i->kind == ITEM_CALL;
    return n;
}

/* A call begins, or its arguments go on. */
static void put_call_delta(struct json *j, const struct choice *c, const struct item *i, bool begins, struct str text)
{
    bool old = c->job->ask.old_calls;
    json_key(j, old ? "function_call" : "tool_calls");
    if (!old) {
        json_open_array(j);
        json_open_object(j);
        put_int(j, "index", call_index(c, i));
        if (begins) put_text(j, "id", i->id);
        if (begins) put_text(j, "type", "function");
        json_key(j, "function");
    }
    put_function(j, begins ? i : NULL, text);
    if (old) return;
    json_close(j);
    json_close(j);
}

static void open_item(struct job *job, struct choice *c, struct item *i, struct buf *out)
{
    struct json j;
    if (i->kind != ITEM_CALL) return;
    chunk_begin(&j, job, c->index, out);
    put_call_delta(&j, c, i, true, str_of(""));
    chunk_end(&j, c, NULL);
}

static void add(struct job *job, struct choice *c, struct item *i, struct str text, struct buf *out)
{
    struct json j;
    chunk_begin(&j, job, c->index, out);
    if (i->kind == ITEM_TEXT) put_str(&j, "content", text);
    if (i->kind == ITEM_REASONING) put_reasoning(&j, text);
    if (i->kind == ITEM_CALL) put_call_delta(&j, c, i, false, text);
    chunk_end(&j, c, NULL);
}

static void close_item(struct job *job, struct choice *c, struct item *i, struct buf *out)
{
    (void)job, (void)c, (void)i, (void)out;
}

static void end_choice(struct job *job, struct choice *c, struct buf *out)
{
    struct json j;
    chunk_begin(&j, job, c->index, out);
    chunk_end(&j, c, finish_name(&c->job->ask, c->finish));
}

static void end(struct job *job, struct buf *out)
{
    if (job->ask.include_usage) {
        struct json j;
        event_begin(&j, out, NULL);
        put_head(&j, job, "chat.completion.chunk");
        json_key(&j, "choices");
        json_open_array(&j);
        json_close(&j);
        put_usage(&j, job);
        event_end(&j);
    }
    buf_add_text(out, "data: [DONE]\n\n");
}

const struct wire wire_chat = {
    .name = "chat", .id_prefix = "chatcmpl_", .call_prefix = "call_", .begin = begin, .open_item = open_item,
    .add = add, .close_item = close_item, .end_choice = end_choice, .end = end, .broken = print_openai_broken,
    .keep_alive = ": keep-alive\n\n", .whole = whole, .error = print_openai_error,
    .prompt = "messages",
};
