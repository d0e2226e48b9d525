/* server/tools.c - definitions of tools from all APIs, in the form that templates take; and the lines of
 * system texts that would change every prompt. */
#include "server/route.h"

static void add_function(json_t *list, const char *name, const char *description, json_t *parameters)
{
    json_t *tool = json_object(), *function = json_object();
    json_object_set_new(function, "name", json_string(name));
    if (description) json_object_set_new(function, "description", json_string(description));
    json_object_set(function, "parameters", parameters);
    json_object_set_new(tool, "type", json_string("function"));
    json_object_set_new(tool, "function", function);
    json_array_append_new(list, tool);
}

static void add_custom(json_t *list, const char *name, const char *description)
{
    json_t *schema = json_loads("{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},"
                                "\"required\":[\"input\"]}", 0, NULL);
    add_function(list, name, description, schema);
    json_object_set_new(json_array_get(list, json_array_size(list) - 1), "custom", json_true());
    json_decref(schema);
}

/* Adds one definition; false when it is of a kind that this server cannot run. */
static bool add_tool(json_t *list, const json_t *tool)
{
    const char *type = field_text(tool, "type"), *name = field_text(tool, "name");
    json_t *function = json_object_get(tool, "function"), *schema = json_object_get(tool, "input_schema");
    if (type && !strcmp(type, "namespace")) {
        size_t i;
        json_t *inner;
        bool all = true;
        json_array_foreach(json_object_get(tool, "tools"), i, inner) {
            const char *kind = field_text(inner, "type");       /* flat, so that it cannot recurse */
            all &= !(kind && !strcmp(kind, "namespace")) && add_tool(list, inner);
        }
        return all;
    }
    if (json_is_object(function) && field_text(function, "name")) {
        json_t *copy = json_object();
        json_object_set_new(copy, "type", json_string("function"));
        json_object_set(copy, "function", function);
        json_array_append_new(list, copy);
        return true;
    }
    if (!name) return false;
    if (json_is_object(schema) && (!type || !strcmp(type, "custom"))) {
        add_function(list, name, field_text(tool, "description"), schema);
        return true;
    }
    if (type && !strcmp(type, "custom")) {
        add_custom(list, name, field_text(tool, "description"));
        return true;
    }
    if (!type || strcmp(type, "function")) return false;
    json_t *parameters = json_object_get(tool, "parameters");
    json_t *empty = parameters ? NULL : json_pack("{s:s,s:{}}", "type", "object", "properties");
    add_function(list, name, field_text(tool, "description"), parameters ? parameters : empty);
    json_decref(empty);
    return true;
}

json_t *take_tools(struct ask *a)
{
    size_t i;
    json_t *tool, *list = json_array();
    json_array_foreach(json_object_get(a->body, "tools"), i, tool)
        if (!add_tool(list, tool)) a->notes |= NOTE_TOOLS;
    if (json_array_size(list)) return list;
    json_decref(list);
    return NULL;
}

/* ---- tool_choice ---------------------------------------------------------------------------------- */
static const char known[] = "'auto', 'none', and allowed_tools with the mode 'auto'";

static const char *name_of(const json_t *tool)
{
    const char *name = field_text(json_object_get(tool, "function"), "name");
    return name ? name : field_text(tool, "name");
}

static bool has_name(const json_t *tools, const char *name)
{
    size_t i;
    json_t *tool;
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool) {
        const char *other = name_of(tool);
        if (other && !strcmp(other, name)) return true;
    }
    return false;
}

static bool refuse_force(struct refusal *why, const char *word)
{
    return refuse(why, 400, "unsupported", "tool_choice", "tool_choice '%.40s': this server cannot force a call; it "
                  "takes %s", word, known);
}

/* Allowed ones of kinds that cannot be run have no names. */
static bool allow_only(struct ask *a, const json_t *choice, struct refusal *why)
{
    const json_t *inner = json_object_get(choice, "allowed_tools");
    const json_t *allowed = json_object_get(inner ? inner : choice, "tools");
    const char *mode = field_text(inner ? inner : choice, "mode");
    if (mode && strcmp(mode, "auto")) return refuse_force(why, mode);
    if (!json_is_array(allowed))
        return refuse(why, 400, NULL, "tool_choice", "tool_choice: allowed_tools needs the list 'tools'");
    for (size_t i = 0; i < json_array_size(allowed); i++) {
        const json_t *one = json_array_get(allowed, i);
        const char *name = name_of(one), *type = field_text(one, "type");
        if (!name && (!type || !strcmp(type, "function")))
            return refuse(why, 400, NULL, "tool_choice", "tool_choice: allowed_tools[%zu] has no name", i);
        if (name && !has_name(a->tools, name))
            return refuse(why, 400, NULL, "tool_choice", "tool_choice: '%.100s' is allowed but not in tools", name);
    }
    for (size_t i = json_array_size(a->tools); i-- > 0;)
        if (!has_name(allowed, name_of(json_array_get(a->tools, i)))) json_array_remove(a->tools, i);
    return true;
}

bool take_tool_choice(struct ask *a, struct refusal *why)
{
    static const char *const forced[] = { "required", "any", "function", "tool", "custom" };
    const json_t *choice = json_object_get(a->body, "tool_choice");
    const char *word = tree_is_text(choice) ? json_string_value(choice) : field_text(choice, "type");
    if (!choice || json_is_null(choice)) return true;
    a->one_call |= json_is_true(json_object_get(choice, "disable_parallel_tool_use"));
    if (!word) word = json_is_object(choice) ? "(no type)" : "(not a string)";
    for (size_t i = 0; i < sizeof forced / sizeof *forced; i++)
        if (!strcmp(word, forced[i])) return refuse_force(why, word);
    if (!strcmp(word, "allowed_tools") && !allow_only(a, choice, why)) return false;
    if (!strcmp(word, "none") || (a->tools && json_array_size(a->tools) == 0)) {
        json_decref(a->tools);
        a->tools = NULL;
    } else if (strcmp(word, "auto") && strcmp(word, "allowed_tools")) {
        return refuse(why, 400, "unsupported", "tool_choice", "tool_choice '%.40s' is none that this server knows; it "
                      "takes %s", word, known);
    }
    return true;
}

bool take_functions(struct ask *a, struct refusal *why)
{
    size_t i;
    json_t *f, *list = json_array();
    const json_t *choice = json_object_get(a->body, "function_call");
    const char *word = tree_is_text(choice) ? json_string_value(choice) : json_is_object(choice) ? "(a name)"
                     : choice && !json_is_null(choice) ? "(not a string)" : "auto";
    const json_t *tools = json_object_get(a->body, "tool_choice");
    bool none = !strcmp(word, "none") || (tree_is_text(tools) && !strcmp(json_string_value(tools), "none"));
    json_array_foreach(json_object_get(a->body, "functions"), i, f) {
        json_t *tool = json_is_object(f) && !none ? json_copy(f) : NULL;
        json_object_set_new(tool, "type", json_string("function"));
        if (tool) add_tool(list, tool);
        json_decref(tool);
    }
    a->old_calls = json_array_size(list) && !a->tools;
    if (a->old_calls) a->tools = json_incref(list);
    a->one_call |= a->old_calls;
    json_decref(list);
    return !strcmp(word, "none") || !strcmp(word, "auto") ||
           refuse(why, 400, "unsupported", "function_call", "function_call '%.40s': this server cannot force a call; "
                  "it takes 'auto' and 'none'", word);
}

void drop_billing_lines(struct buf *text)
{
    static const char mark[] = "x-anthropic-billing-header:";
    struct buf kept = { 0 };
    const char *at = buf_text(text), *end = at + text->len;
    if (!text->len || !strstr(at, mark)) return;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at)), *first = at;
        line_end = line_end ? line_end + 1 : end;
        while (first < line_end && (*first == ' ' || *first == '\t')) first++;
        bool billing = (size_t)(line_end - first) >= sizeof mark - 1 && !memcmp(first, mark, sizeof mark - 1);
        if (!billing) buf_add(&kept, at, (size_t)(line_end - at));
        at = line_end;
    }
    if (kept.failed) text->failed = true;
    struct buf old = *text;
    *text = kept;
    buf_drop(&old);
}
