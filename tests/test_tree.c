/* tests/test_tree.c - JSON text becomes trees and text again without loss, and what is no JSON is refused. */
#ifdef LUCE_HAVE_JSON
#include "base/json_read.h"
#include "chat/tree.h"
#include "chat/values.h"
#include "tests/test.h"

static struct buf again(const char *text, enum tree_form form)
{
    struct tree_error why;
    struct buf out = { 0 };
    json_t *v = tree_read(str_of(text), 100, &why);
    CHECK(v != NULL, "%s: %s at %zu", text, why.text, why.at);
    tree_print(&out, v, form);
    json_decref(v);
    return out;
}

static const struct { const char *text, *want; } kept[] = {
    { "12345678901234567890", NULL }, { "-9223372036854775809", NULL }, { "9223372036854775807", NULL },
    { "[18446744073709551616,-1,0]", NULL }, { "1e400", NULL }, { "-1.5E+999", NULL }, { "1e-400", "0.0" },
    { "{\"id\":123456789012345678901234567890123}", NULL }, { "1.0", "1.0" }, { "1e5", "100000.0" }, { "0.1", "0.1" },
    { "\"\\ud800\"", "\"\xef\xbf\xbd\"" }, { "\"a\\udfff\\ud83d\\ude00\"", "\"a\xef\xbf\xbd\xf0\x9f\x98\x80\"" },
    { "\"\\ud800\\ud83d\\ude00\\ud83dx\"", "\"\xef\xbf\xbd\xf0\x9f\x98\x80\xef\xbf\xbdx\"" },
    { "{\"a\\u0000b\":\"c\\u0000d\"}", "{\"a\xef\xbf\xbd" "b\":\"c\\u0000d\"}" }, { "{\"\\ud800\":1}", "{\"\xef\xbf\xbd\":1}" },
    { "{\"b\":1,\"a\":2,\"b\":3}", "{\"b\":3,\"a\":2}" }, { "\"12345678901234567890\"", NULL }, { " [ ] ", "[]" },
    { "[true,false,null,{}]", NULL },
};

TEST(tree_keeps_what_jansson_refuses)
{
    for (size_t i = 0; i < COUNT(kept); i++) {
        struct buf out = again(kept[i].text, TREE_COMPACT);
        CHECK_STR(buf_text(&out), kept[i].want ? kept[i].want : kept[i].text);
        buf_drop(&out);
    }
    struct buf out = again("{\"a\":[1,\"x\"],\"b\":{\"c\":99999999999999999999}}", TREE_SPACED);
    CHECK_STR(buf_text(&out), "{\"a\": [1, \"x\"], \"b\": {\"c\": 99999999999999999999}}");
    buf_drop(&out);
}

TEST(tree_tells_digits_from_texts)
{
    json_t *v = tree_read(str_of("[99999999999999999999, \"99999999999999999999\", 7, 1e999]"), 100, NULL);
    CHECK_STR(tree_digits(json_array_get(v, 0)), "99999999999999999999");
    CHECK(!tree_is_text(json_array_get(v, 0)) && tree_is_text(json_array_get(v, 1)));
    CHECK(!tree_digits(json_array_get(v, 1)) && !tree_digits(json_array_get(v, 2)) && !tree_digits(NULL));
    CHECK_STR(tree_digits(json_array_get(v, 3)), "1e999");
    json_decref(v);
}

TEST(tree_refuses_what_is_no_json)
{
    static const char *const bad[] = { "", " ", "{", "[1,]", "{\"a\":1,}", "[1 2]", "{a:1}", "{\"a\" 1}", "{\"a\":}", "01", "1.", "-",
                                       "\"\\x\"", "\"\\u12g4\"", "\"open", "\"\\", "\"\\u12", "[}", "{]", "tru", "[1]]", "{} {}",
                                       "\"\n\"", "\"\xff\"", "\"\xed\xa0\x80\"", "\"\xf0\x9f\"", "NaN", "+1", "{\"\xff\":1}" };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct tree_error why = { 0 };
        json_t *v = tree_read(str_of(bad[i]), 100, &why);
        CHECK(!v && why.text && !why.no_memory && !why.too_deep && why.at <= strlen(bad[i]), "'%s': %s", bad[i],
              why.text ? why.text : "taken");
        json_decref(v);
    }
    for (int most = 1; most <= JSON_IN_DEPTH; most += 51)
        for (int depth = most; depth <= most + 1; depth++) {
            struct tree_error why = { 0 };
            struct buf text = { 0 };
            for (int i = 0; i < depth; i++) buf_add_text(&text, i % 2 ? "{\"a\":" : "[");
            if (depth % 2 == 0) buf_add_char(&text, '1');
            for (int i = depth; i-- > 0;) buf_add_char(&text, i % 2 ? '}' : ']');
            json_t *v = tree_read((struct str){ text.data, text.len }, most, &why);
            CHECK((v != NULL) == (depth == most) && why.too_deep == (depth > most), "%d of %d: %s", depth, most, why.text);
            json_decref(v);
            buf_drop(&text);
        }
}

TEST(tree_survives_any_failed_allocation)
{
    size_t before = mem_live();
    for (int n = 0;; n++) {
        struct tree_error why = { 0 };
        struct buf out = { 0 };
        mem_fail_after(n);
        json_t *v = tree_read(str_of("{\"a\": [\"text\", 99999999999999999999, 1.5, {\"b\": null}], \"c\": \"\\u00e9\"}"), 100, &why);
        if (v) tree_print(&out, v, TREE_COMPACT);
        mem_fail_never();
        bool done = v && !out.failed;
        CHECK(v || why.no_memory, "%d: %s", n, why.text);
        json_decref(v);
        buf_drop(&out);
        CHECK_EQ(mem_live(), before);
        if (done || n > 1000) break;
    }
}

/* What a template makes of numbers that are beyond 64 bits. */
static void check_template(const char *source, const char *x, const char *want)
{
    struct jheap heap = { 0 };
    struct jinja *t = NULL;
    struct jinja_output out;
    luce_error err = { 0 };
    struct jinja_var var = { .name = "x" };
    json_t *v = tree_read(str_of(x), 100, NULL);
    CHECK_OK(value_of_json(&heap, v, true, &var.value, &err), err);
    CHECK_OK(jinja_parse(&t, str_of(source), "test", &err), err);
    struct jinja_render r = { .vars = &var, .n_vars = 1, .from_json = value_from_text };
    CHECK_OK(jinja_render(t, &r, &heap, &out, &err), err);
    if (!err.text[0]) CHECK(str_is(out.text, want), "%s of %s: %.*s", source, x, (int)out.text.len, out.text.at);
    jinja_free(t);
    jinja_heap_drop(&heap);
    json_decref(v);
}

TEST(templates_print_big_numbers_exactly)
{
    static const char big[] = "12345678901234567890", minus[] = "-12345678901234567890";
    check_template("{{ x }} {{ x|string }} {{ x|tojson }}", big, "12345678901234567890 12345678901234567890 12345678901234567890");
    check_template("{{ x|tojson }}", "{\"id\": [99999999999999999999, 1e400]}", "{\"id\": [99999999999999999999, 1e400]}");
    check_template("{{ ('{\"a\": ' ~ x ~ '}')|from_json|tojson }}", big, "{\"a\": 12345678901234567890}");
    check_template("{{ x is number }}{{ x is integer }}{{ x is string }}{{ x is float }}", big, "TrueTrueFalseFalse");
    check_template("{{ x > 1 }}{{ x < 1 }}{{ x == x }}{{ x == 1 }}{{ 1 if x else 2 }}", big, "TrueFalseTrueFalse1");
    check_template("{{ x|abs }} {{ x|int }} {{ (-x) > 0 }}", minus, "12345678901234567890 -12345678901234567890 True");
    check_template("{{ x + 1 }} {{ x|float }}", big, "1.2345678901234567e+19 1.2345678901234567e+19");
    check_template("{% set d = {x: 1} %}{{ d[x] }} {{ [x, 1]|sort|first }}", big, "1 1");
}
#endif
