/* tests/test_chat_templates.c - templates render byte for byte as Hugging Face's apply_chat_template
 * does, over the histories of tests/fixtures/chat (scripts/make-chat-fixtures.py); templates of others
 * where they are in models/. */
#define _POSIX_C_SOURCE 200809L
#ifdef LUCE_HAVE_JSON
#include <stdlib.h>
#include <time.h>

#include "base/file.h"
#include "chat/values.h"
#include "gguf/reader.h"
#include "tests/test.h"

enum { NOW = 1700000000, VARS_MAX = 32 };

static json_t *load(const char *name)
{
    char path[80];
    json_error_t why;
    snprintf(path, sizeof path, "chat/%s", name);
    json_t *json = json_load_file(fixture(path), 0, &why);
    CHECK(json != NULL, "%s: %s", name, why.text);
    return json;
}

/* The variables of a case; `tools` is the number of the declared ones. */
static size_t variables(struct jheap *h, const json_t *all, json_t *test, struct jinja_var *vars)
{
    size_t n = 0;
    luce_error err = { 0 };
    const char *key;
    json_t *value;
    const char *history = json_string_value(json_object_get(test, "name"));
    json_t *messages = json_object_get(json_object_get(all, "messages"), history);
    vars[n].name = "messages";
    CHECK_OK(value_of_json(h, messages, true, &vars[n++].value, &err), err);
    json_object_foreach(test, key, value)
    {
        if (!strcmp(key, "name") || n == VARS_MAX) continue;
        json_t *tools = NULL;
        if (!strcmp(key, "tools")) {
            tools = json_array();
            for (json_int_t i = 0; i < json_integer_value(value); i++)
                json_array_append(tools, json_array_get(json_object_get(all, "tools"), (size_t)i));
        }
        vars[n].name = key;
        CHECK_OK(value_of_json(h, tools ? tools : value, tools != NULL, &vars[n++].value, &err), err);
        json_decref(tools);
    }
    return n;
}

static void print_first_difference(const char *name, const char *history, struct str want, struct str got)
{
    size_t at = 0;
    while (at < want.len && at < got.len && want.at[at] == got.at[at]) at++;
    size_t from = at > 40 ? at - 40 : 0;
    test_failed(__FILE__, __LINE__, "%s, %s: byte %zu: expected \"%.*s\", found \"%.*s\"", name, history, at,
                (int)(want.len - from < 100 ? want.len - from : 100), want.at + from,
                (int)(got.len - from < 100 ? got.len - from : 100), got.at + from);
}

static void check_case(const struct jinja *t, const char *name, const json_t *all, json_t *test, json_t *want,
                       struct buf *last)
{
    struct jheap heap = { 0 };
    struct jinja_var vars[VARS_MAX];
    struct jinja_render r = { .vars = vars, .now = NOW, .from_json = value_from_text };
    struct jinja_output out;
    luce_error err = { 0 };
    r.n_vars = variables(&heap, all, test, vars);
    luce_status st = jinja_render(t, &r, &heap, &out, &err);
    const char *history = json_string_value(json_object_get(test, "name"));
    if (json_is_null(want)) {
        CHECK(st == LUCE_E_ARG, "%s, %s: %s: %s", name, history, status_name(st), err.text);
        CHECK(strstr(err.text, "line ") != NULL, "%s", err.text);
    } else {
        last->len = (size_t)json_integer_value(json_array_get(want, 0));
        json_t *rest = json_array_get(want, 1);
        buf_add(last, json_string_value(rest), json_string_length(rest));
        struct str text = { buf_text(last), last->len };
        CHECK(st == LUCE_OK, "%s, %s: %s", name, history, err.text);
        if (!st && !str_eq(text, out.text)) print_first_difference(name, history, text, out.text);
    }
    jinja_heap_drop(&heap);
}

static void check_template(const char *name, struct str source)
{
    char file[64];
    struct jinja *t = NULL;
    luce_error err = { 0 };
    setenv("TZ", "UTC0", 1);
    tzset();
    snprintf(file, sizeof file, "%s.json", name);
    json_t *all = load("cases.json"), *expected = load(file);
    CHECK_OK(jinja_parse(&t, source, name, &err), err);
    json_t *cases = json_object_get(all, "cases"), *texts = json_object_get(expected, "texts");
    CHECK(json_array_size(cases) > 100 && json_array_size(cases) == json_array_size(texts), "%s is of other cases", file);
    struct buf last = { 0 };
    for (size_t i = 0; t && i < json_array_size(cases); i++)
        check_case(t, name, all, json_array_get(cases, i), json_array_get(texts, i), &last);
    buf_drop(&last);
    jinja_free(t);
    json_decref(all);
    json_decref(expected);
}

static void check_file(const char *name, const char *path)
{
    struct buf source = { 0 };
    luce_error err = { 0 };
    CHECK_OK(file_read(&source, path, JINJA_SOURCE_MAX, &err), err);
    check_template(name, (struct str){ buf_text(&source), source.len });
    buf_drop(&source);
}

TEST(own_templates_render_as_the_reference)
{
    static const char *const names[] = { "constructs", "markup", "strict", "plain" };
    for (size_t i = 0; i < COUNT(names); i++) {
        char path[64];
        snprintf(path, sizeof path, "chat/%s.jinja", names[i]);
        check_file(names[i], fixture(path));
    }
}

static void check_published(const char *name)
{
    char file[64];
    snprintf(file, sizeof file, "%s.jinja", name);
    const char *path = test_model(file);
    if (!path) SKIP("the template is not in models/ (make models)");
    check_file(name, path);
}

TEST(qwen3_template_renders_as_the_reference)
{
    check_published("template-qwen3");
}

TEST(llama3_template_renders_as_the_reference)
{
    check_published("template-llama3");
}

TEST(gemma3_template_renders_as_the_reference)
{
    check_published("template-gemma3");
}

TEST(smollm2_template_renders_as_the_reference)
{
    const char *path = test_model("smollm2-135m-instruct-q4_1.gguf");
    if (!path) SKIP("the model is not in models/ (make models)");
    struct gguf *g = NULL;
    struct str source = { 0 };
    luce_error err = { 0 };
    CHECK_OK(gguf_open(&g, path, &err), err);
    if (g) CHECK_OK(gguf_text(g, "tokenizer.chat_template", (struct str){ 0 }, &source, &err), err);
    if (source.len) check_template("smollm2", source);
    gguf_close(g);
}
#endif
