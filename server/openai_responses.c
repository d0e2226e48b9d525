/* server/openai_responses.c - POST /v1/responses: the request. The reply is in responses_print.c. */
#include "base/mem.h"
#include "server/print.h"
#include "server/route.h"
#include "server/store.h"

static json_t *last_message(struct ask *a)
{
    return json_array_get(a->messages, json_array_size(a->messages) - 1);
}

/* The assistant's turn that calls and reasoning belong to: the last one, or a new one. */
static json_t *assistant_turn(struct ask *a)
{
    json_t *last = last_message(a);
    const char *role = field_text(last, "role");
    if (role && !strcmp(role, "assistant")) return last;
    add_message(a->messages, "assistant", str_of(""));
    return last_message(a);
}

static void take_call(struct ask *a, const json_t *item)
{
    json_t *turn = assistant_turn(a), *calls = json_object_get(turn, "tool_calls");
    json_t *arguments = json_object_get(item, "arguments"), *input = json_object_get(item, "input");
    json_t *call = json_object(), *function = json_object();
    if (!calls) {
        calls = json_array();
        json_object_set_new(turn, "tool_calls", calls);
    }
    if (tree_is_text(arguments)) json_object_set(function, "arguments", arguments);
    else {
        json_t *o = json_object();
        json_object_set(o, input ? "input" : "action", input ? input : json_object_get(item, "action"));
        json_object_set_new(function, "arguments", tree_text(o));
        json_decref(o);
    }
    const char *name = field_text(item, "name");
    json_object_set_new(function, "name", json_string(name ? name : "local_shell"));
    json_object_set(call, "id", json_object_get(item, "call_id"));
    json_object_set_new(call, "type", json_string("function"));
    json_object_set_new(call, "function", function);
    json_array_append_new(calls, call);
}

static bool take_output(struct ask *a, const json_t *item, struct refusal *why)
{
    const json_t *output = json_object_get(item, "output");
    struct buf text = { 0 };
    bool good = true;
    if (tree_is_text(output) || json_is_array(output)) {
        good = content_text(a, output, &text, why);
    } else if (output) {
        tree_print(&text, output, TREE_COMPACT);
    }
    good = good && add_message(a->messages, "tool", str_in(&text));
    json_t *id = json_object_get(item, "call_id");
    if (good && tree_is_text(id)) json_object_set(last_message(a), "tool_call_id", id);
    buf_drop(&text);
    return good;
}

static bool take_reasoning(struct ask *a, const json_t *item, struct refusal *why)
{
    struct buf text = { 0 };
    bool good = content_text(a, json_object_get(item, "content"), &text, why);
    if (good && text.len == 0) good = content_text(a, json_object_get(item, "summary"), &text, why);
    if (good && text.len) {
        add_message(a->messages, "assistant", str_of(""));
        json_object_set_new(last_message(a), "reasoning_content", json_stringn(text.data, text.len));
    }
    buf_drop(&text);
    return good;
}

static bool take_message(struct ask *a, const json_t *item, struct refusal *why)
{
    const char *role = field_text(item, "role");
    struct buf text = { 0 };
    if (!role) role = "user";
    if (!strcmp(role, "developer")) role = "system";
    bool good = content_text(a, json_object_get(item, "content"), &text, why);
    if (good && !strcmp(role, "system")) drop_billing_lines(&text);
    json_t *last = last_message(a);
    const char *before = field_text(last, "role");
    /* The text of a turn whose reasoning came as an item of its own. */
    bool joins = !strcmp(role, "assistant") && before && !strcmp(before, "assistant") &&
                 json_object_get(last, "reasoning_content") && !json_object_get(last, "tool_calls") &&
                 json_string_length(json_object_get(last, "content")) == 0;
    if (good && joins) json_object_set_new(last, "content", json_stringn(buf_text(&text), text.len));
    else if (good) good = add_message(a->messages, role, str_in(&text));
    buf_drop(&text);
    return good;
}

static bool take_item(struct server *s, struct ask *a, const json_t *item, struct refusal *why)
{
    static const char *const calls[] = { "function_call", "custom_tool_call", "local_shell_call" };
    static const char *const outputs[] = { "function_call_output", "custom_tool_call_output",
        "local_shell_call_output" };
    const char *type = field_text(item, "type"), *id = field_text(item, "id");
    if (!type || !strcmp(type, "message")) return json_is_object(item) ? take_message(a, item, why) : true;
    for (int i = 0; i < 3; i++) {
        if (!strcmp(type, calls[i])) return take_call(a, item), true;
        if (!strcmp(type, outputs[i])) return take_output(a, item, why);
    }
    if (!strcmp(type, "reasoning")) return take_reasoning(a, item, why);
    json_t *meant = id && !strcmp(type, "item_reference") ? store_find_item(s->store, id) : NULL;
    bool good = !meant || take_item(s, a, meant, why);
    if (!meant) a->notes |= NOTE_ITEMS;
    json_decref(meant);
    return good;
}

static bool take_previous(struct server *s, struct ask *a, struct refusal *why)
{
    const json_t *previous = json_object_get(a->body, "previous_response_id");
    const char *id = field_text(a->body, "previous_response_id");
    json_t *before = NULL, *m;
    size_t i;
    if (!previous || json_is_null(previous)) return true;
    if (!id) return refuse(why, 400, NULL, "previous_response_id", "previous_response_id must be a string");
    if (!store_get(s->store, id, &before, NULL))
        return refuse(why, 400, "previous_response_not_found", "previous_response_id",
                      "no response '%.60s' is kept; send the whole conversation in input", id);
    json_array_foreach(before, i, m) json_array_append(a->messages, m);
    json_decref(before);
    return true;
}

/* What this server does not keep or do, and silence would lose words of the user. */
static bool check_fields(struct ask *a, struct refusal *why)
{
    static const struct { const char *field, *remedy; } none[] = {
        { "conversation", "this server keeps no conversations; use previous_response_id, or send all of it in input" },
        { "prompt", "this server keeps no prompts; send the text in instructions and input" } };
    size_t i;
    int64_t top = 0;
    bool background = false;
    json_t *v, *instructions = json_object_get(a->body, "instructions");
    for (i = 0; i < sizeof none / sizeof *none; i++) {
        v = json_object_get(a->body, none[i].field);
        if (json_is_object(v) || (i == 0 && v && !json_is_null(v)))
            return refuse(why, 400, "unsupported", none[i].field, "%s: %s", none[i].field, none[i].remedy);
    }
    if (!field_bool(a->body, "background", &background, why) || !field_bool(a->body, "store", &a->store, why) ||
        !field_int(a->body, "top_logprobs", 0, ASK_TOP_LOGPROBS, &top, why))
        return false;
    if (background)
        return refuse(why, 400, "unsupported", "background", "background: this server answers at once only");
    json_array_foreach(json_object_get(a->body, "include"), i, v)
        if (tree_is_text(v) && !strcmp(json_string_value(v), "message.output_text.logprobs")) top = 1;
    if (top)
        return refuse(why, 400, "unsupported", "top_logprobs", "logprobs are not there on /v1/responses; "
                      "/v1/chat/completions has them");
    if (instructions && !json_is_null(instructions) && !tree_is_text(instructions))
        return refuse(why, 400, NULL, "instructions", "instructions: expected a string");
    return true;
}

/* The instructions are for this response alone: they come first, and are not kept. */
static bool add_instructions(struct ask *a)
{
    const json_t *text = json_object_get(a->body, "instructions");
    size_t i;
    json_t *m;
    a->kept = json_incref(a->messages);
    if (!tree_is_text(text)) return true;
    json_t *all = json_array(), *first = json_array_get(a->kept, 0);
    const char *role = field_text(first, "role");
    bool joins = role && !strcmp(role, "system");
    struct buf words = { 0 };
    buf_add(&words, json_string_value(text), json_string_length(text));
    if (joins) {
        buf_add_text(&words, "\n\n");
        content_text(a, json_object_get(first, "content"), &words, NULL);
    }
    bool good = all && !words.failed && add_message(all, "system", (struct str){ buf_text(&words), words.len });
    json_array_foreach(a->kept, i, m) if (i || !joins) good = good && !json_array_append(all, m);
    buf_drop(&words);
    json_decref(a->messages);
    a->messages = all;
    return good;
}

bool responses_read(struct server *s, struct ask *a, struct refusal *why)
{
    json_t *item, *input = json_object_get(a->body, "input");
    size_t i;
    a->chat = true;
    a->store = true;
    a->messages = json_array();
    if (!check_fields(a, why)) return false;
    if (!tree_is_text(input) && !json_is_array(input))
        return refuse(why, 400, NULL, "input", "input: expected a string or a list of items");
    if (!take_previous(s, a, why)) return false;
    if (tree_is_text(input))
        add_message(a->messages, "user", (struct str){ json_string_value(input), json_string_length(input) });
    json_array_foreach(input, i, item) if (!take_item(s, a, item, why)) return false;
    if (!add_instructions(a)) return refuse(why, 503, NULL, NULL, "out of memory for the conversation");
    if (json_array_size(a->messages) == 0) return refuse(why, 400, NULL, "input", "input: it is empty");
    a->variables = json_incref(json_object_get(a->body, "chat_template_kwargs"));
    a->tools = take_tools(a);
    return ask_common(a, s, why);
}

bool responses_parse(struct server *s, struct ask *a, struct refusal *why)
{
    return responses_read(s, a, why) && render_chat(s, a, why);
}

bool response_get(struct server *s, struct exchange *x, struct refusal *why)
{
    const char *id = x->path + strlen("/v1/responses/");
    char *reply = NULL;
    if (!store_get(s->store, id, NULL, &reply)) return refuse(why, 404, NULL, NULL, "no response '%.60s' is kept", id);
    buf_add_text(&x->reply, reply);
    mem_free(reply);
    return true;
}
