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

json_t *take_tools(struct ask *a, struct refusal *why)
{
    size_t i;
    json_t *tool, *tools = json_object_get(a->body, "tools"), *list = json_array();
    (void)why;
    json_array_foreach(tools, i, tool)
        if (!add_tool(list, tool)) a->note = "tools of kinds that this server cannot run were left out";
    if (json_array_size(list)) return list;
    json_decref(list);
    return NULL;
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
