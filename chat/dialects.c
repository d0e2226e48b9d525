/* chat/dialects.c - the table of dialects: how each model family marks reasoning and calls. The only
 * place that knows them all; chat.md in docs says where each was read. */
#define _GNU_SOURCE             /* memmem */
#include "base/mem.h"
#include "chat/reply_private.h"
#include "chat/tree.h"

#define BAR "\xef\xbd\x9c"      /* U+FF5C, the full-width bar of DeepSeek */

/* ---- printing ------------------------------------------------------------------------------------ */

/* With ", " and ": ", as models are trained. */
static void add_json(struct buf *out, const json_t *v)
{
    tree_print(out, v, TREE_SPACED);
}

static void add_name(struct buf *out, const char *name)
{
    buf_add_char(out, '"');
    escape_json(out, name, strlen(name));
    buf_add_char(out, '"');
}

static void print_object(struct buf *out, const char *name, const char *key, const json_t *args)
{
    buf_add_text(out, "{\"name\": ");
    add_name(out, name);
    buf_printf(out, ", \"%s\": ", key);
    add_json(out, args);
    buf_add_char(out, '}');
}

static void print_hermes(const struct dialect *d, struct buf *out, const char *name, const json_t *args, size_t i,
                         size_t n)
{
    (void)n;
    buf_printf(out, "%s%s\n", i ? "\n" : "", d->open[0]);
    print_object(out, name, "arguments", args);
    buf_add_text(out, "\n</tool_call>");
}

static void print_llama(const struct dialect *d, struct buf *out, const char *name, const json_t *args, size_t i,
                        size_t n)
{
    (void)d, (void)n;
    buf_add_text(out, i ? "; " : "");
    print_object(out, name, "parameters", args);
}

static void print_mistral_list(const struct dialect *d, struct buf *out, const char *name, const json_t *args, size_t i,
                               size_t n)
{
    if (i == 0) buf_printf(out, "%s[", d->open[0]);
    else buf_add_text(out, ", ");
    print_object(out, name, "arguments", args);
    if (i + 1 == n) buf_add_char(out, ']');
}

static void print_mistral_named(const struct dialect *d, struct buf *out, const char *name, const json_t *args,
                                size_t i,
                                size_t n)
{
    (void)i, (void)n;
    buf_printf(out, "%s%s[ARGS]", d->open[0], name);
    add_json(out, args);
}

static void print_value(struct buf *out, const json_t *v)
{
    if (tree_is_text(v)) buf_add(out, json_string_value(v), json_string_length(v));
    else add_json(out, v);
}

/* Entries of an object; jansson's iterators take no const. */
#define EACH(object, key, value)                                                          \
    for (void *it = json_object_iter((json_t *)(uintptr_t)(object));                      \
         it && ((key) = json_object_iter_key(it), (value) = json_object_iter_value(it));  \
         it = json_object_iter_next((json_t *)(uintptr_t)(object), it))

static void print_xml(const struct dialect *d, struct buf *out, const char *name, const json_t *args, size_t i,
                      size_t n)
{
    const char *key;
    const json_t *value;
    (void)n;
    buf_printf(out, "%s%s\n<function=%s>\n", i ? "\n" : "", d->open[0], name);
    EACH(args, key, value)
    {
        buf_printf(out, "<parameter=%s>\n", key);
        print_value(out, value);
        buf_add_text(out, "\n</parameter>\n");
    }
    buf_add_text(out, "</function>\n</tool_call>");
}

static void print_pairs(struct buf *out, const char *name, const json_t *args, const char *line)
{
    const char *key;
    const json_t *value;
    buf_printf(out, "<tool_call>%s%s", name, line);
    EACH(args, key, value)
    {
        buf_printf(out, "<arg_key>%s</arg_key>%s<arg_value>", key, line);
        print_value(out, value);
        buf_printf(out, "</arg_value>%s", line);
    }
    buf_add_text(out, "</tool_call>");
}

static void print_laguna(const struct dialect *d, struct buf *out, const char *name, const json_t *args, size_t i,
                         size_t n)
{
    (void)d, (void)n;
    buf_add_text(out, i ? "\n" : "");
    print_pairs(out, name, args, "\n");
}

static void print_dsml(const struct dialect *d, struct buf *out, const char *name, const json_t *args, size_t i,
                       size_t n)
{
    const char *key;
    const json_t *value;
    if (i == 0) buf_printf(out, "%s\n", d->open[0]);
    buf_printf(out, "<" BAR "DSML" BAR "invoke name=\"%s\">\n", name);
    EACH(args, key, value)
    {
        buf_printf(out, "<" BAR "DSML" BAR "parameter name=\"%s\" string=\"%s\">", key, tree_is_text(value)
                   ? "true" : "false");
        print_value(out, value);
        buf_add_text(out, "</" BAR "DSML" BAR "parameter>\n");
    }
    buf_add_text(out, "</" BAR "DSML" BAR "invoke>\n");
    if (i + 1 == n) buf_add_text(out, "</" BAR "DSML" BAR "tool_calls>");
}

static void gemma_value(struct buf *out, const json_t *v)
{
    const char *key;
    const json_t *value;
    if (tree_is_text(v)) {
        buf_add_text(out, "<|\"|>");
        print_value(out, v);
        buf_add_text(out, "<|\"|>");
    } else if (json_is_array(v)) {
        buf_add_char(out, '[');
        for (size_t i = 0; i < json_array_size(v); i++) {
            if (i) buf_add_char(out, ',');
            gemma_value(out, json_array_get(v, i));
        }
        buf_add_char(out, ']');
    } else if (json_is_object(v)) {
        bool first = true;
        buf_add_char(out, '{');
        EACH(v, key, value)
        {
            buf_printf(out, "%s%s:", first ? "" : ",", key);
            gemma_value(out, value);
            first = false;
        }
        buf_add_char(out, '}');
    } else {
        add_json(out, v);
    }
}

static void print_gemma(const struct dialect *d, struct buf *out, const char *name, const json_t *args, size_t i,
                        size_t n)
{
    (void)i, (void)n;
    buf_printf(out, "%scall:%s", d->open[0], name);
    gemma_value(out, args);
    buf_add_text(out, "<tool_call|>");
}

/* ---- the table ----------------------------------------------------------------------------------- */

static const struct tag_form xml_tags = {
    .name_open = "<function=", .name_close = ">", .key_open = "<parameter=", .key_close = ">",
        .value_close = "</parameter>",
    .call_close = "</function>", .close = "</tool_call>", .newlines = true, .several = true,
};
static const struct tag_form laguna_tags = {
    .name_open = "", .key_open = "<arg_key>", .key_close = "</arg_key>", .value_open = "<arg_value>",
    .value_close = "</arg_value>", .call_close = "</tool_call>",
};
static const struct tag_form dsml_tags = {
    .name_open = "<" BAR "DSML" BAR "invoke name=\"", .name_close = "\">",
        .key_open = "<" BAR "DSML" BAR "parameter name=\"",
    .key_close = "\">", .value_close = "</" BAR "DSML" BAR "parameter>", .call_close = "</" BAR "DSML" BAR "invoke>",
    .close = "</" BAR "DSML" BAR "tool_calls>", .attribute = true, .several = true,
};

static enum verdict read_nothing(struct reply *r, bool end)
{
    (void)r, (void)end;
    return V_BROKEN;
}

#define THINK .think_open = "<think>", .think_close = "</think>"
#define MISTRAL_THINK .think_open = "[THINK]", .think_close = "[/THINK]"
/* In the order of the search: what a template's text must hold. */
static const struct dialect dialects[] = {
    { .name = "gemma", .marks = { "<|tool_call>call:" }, .open = { "<|tool_call>", "call:" },
      .think_open = "<|channel>thought", .think_close = "<channel|>", .read = read_gemma_call, .print = print_gemma },
    { .name = "deepseek", .marks = { BAR "DSML" },
      .open = { "<" BAR "DSML" BAR "tool_calls>", "<" BAR "DSML" BAR "invoke name=\"" }, THINK, .tags = &dsml_tags,
      .read = read_tag_call, .print = print_dsml },
    { .name = "xml", .marks = { "<function=" }, .open = { "<tool_call>", "<function=" }, THINK,
      .tags = &xml_tags, .read = read_tag_call, .print = print_xml },
    { .name = "ling", .marks = { "<arg_key>", "<role>" }, .open = { "<tool_call>" }, THINK, .tags = &laguna_tags,
      .read = read_tag_call, .print = print_laguna },
    { .name = "laguna", .marks = { "<arg_key>" }, .open = { "<tool_call>" }, THINK, .tags = &laguna_tags,
      .read = read_tag_call, .print = print_laguna },
    { .name = "mistral-args", .marks = { "[TOOL_CALLS]", "[ARGS]" }, .open = { "[TOOL_CALLS]" }, MISTRAL_THINK,
      .read = read_mistral_call, .print = print_mistral_named },
    { .name = "mistral", .marks = { "[TOOL_CALLS]" }, .open = { "[TOOL_CALLS]" }, MISTRAL_THINK,
      .read = read_mistral_call, .print = print_mistral_list },
    { .name = "hermes", .marks = { "<tool_call>" }, .open = { "<tool_call>" }, .close = "</tool_call>",
      .bare = true, THINK, .read = read_json_call, .print = print_hermes },
    { .name = "llama", .marks = { "<|start_header_id|>", "\"parameters\"" }, .open = { "<|python_tag|>" },
     .bare = true, THINK,
      .read = read_llama_call, .print = print_llama },
    { .name = "llama", .marks = { "<|python_tag|>" }, .open = { "<|python_tag|>" }, .bare = true, THINK,
      .read = read_llama_call, .print = print_llama },
    { .name = "none", THINK, .read = read_nothing },
};

const struct dialect *dialect_at(size_t i)
{
    return i < COUNT(dialects) ? &dialects[i] : NULL;
}

const char *dialect_name(const struct dialect *d)
{
    return d->name;
}

const char *dialect_reasoning_open(const struct dialect *d)
{
    return d->think_open;
}

const char *dialect_reasoning_close(const struct dialect *d)
{
    return d->think_close;
}

const struct dialect *dialect_for(struct str template_text)
{
    for (size_t i = 0; i < COUNT(dialects); i++) {
        bool all = dialects[i].marks[0] != NULL;
        for (int k = 0; k < 3 && dialects[i].marks[k]; k++)
            all &= template_text.len && memmem(template_text.at, template_text.len, dialects[i].marks[k],
                                               strlen(dialects[i].marks[k]));
        if (all) return &dialects[i];
    }
    return &dialects[COUNT(dialects) - 1];
}

bool dialect_starts_in_reasoning(const struct dialect *d, struct str prompt)
{
    size_t n = strlen(d->think_open);
    while (prompt.len && is_space(prompt.at[prompt.len - 1])) prompt.len--;
    return prompt.len >= n && memcmp(prompt.at + prompt.len - n, d->think_open, n) == 0;
}

luce_status dialect_print(const struct dialect *d, const json_t *calls, struct buf *out, luce_error *err)
{
    if (!d->print) return fail(err, LUCE_E_UNSUPPORTED, "the model's chat template knows no tool calls");
    size_t n = json_array_size(calls);
    for (size_t i = 0; i < n; i++) {
        const json_t *call = json_array_get(calls, i), *f = json_object_get(call, "function");
        const json_t *args = json_object_get(f ? f : call, "arguments");
        const char *name = json_string_value(json_object_get(f ? f : call, "name"));
        if (!name) return fail(err, LUCE_E_ARG, "tool call %zu has no name", i);
        json_t *parsed = json_is_string(args) ? tree_read_object((struct str){ json_string_value(args),
                                                                               json_string_length(args) }) : NULL;
        json_t *raw = !json_is_object(args) && !parsed ? json_object() : NULL;
        if (raw && args && !json_is_null(args)) json_object_set(raw, "_raw", (json_t *)(uintptr_t)args);
        d->print(d, out, name, raw ? raw : parsed ? parsed : args, i, n);
        json_decref(parsed);
        json_decref(raw);
    }
    return out->failed ? fail(err, LUCE_E_NOMEM, "out of memory for tool calls") : LUCE_OK;
}
