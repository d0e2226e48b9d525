/* tests/test_calls.c - calls of tools in every dialect: one table of what models write, and what must hold of it
 * however it is cut, broken off, mutilated or varied. A text is a call or content, never both, and never lost;
 * the arguments of a whole call are a JSON object. */
#ifdef LUCE_HAVE_JSON
#include <stdarg.h>

#include "tests/heard.h"

/* The same call of f with s = "Brest" and n = 2, alone and followed by one of g. */
static const struct form {
    const char *dialect, *one, *two, *args;
    bool alone;                 /* no text may stand before it */
} forms[] = {
    { "hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"Brest\", \"n\": 2}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"Brest\", \"n\": 2}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>", "{\"s\": \"Brest\", \"n\": 2}", false },
    { "hermes", "<tool_call>[{\"name\": \"f\", \"arguments\": {\"s\": \"Brest\", \"n\": 2}}]</tool_call>",
      "<tool_call>\n[{\"name\": \"f\", \"arguments\": {\"s\": \"Brest\", \"n\": 2}},\n {\"name\": \"g\"}]\n</tool_call>",
      "{\"s\": \"Brest\", \"n\": 2}", false },
    { "hermes", "{\"name\": \"f\", \"arguments\": {\"s\": \"Brest\", \"n\": 2}}",
      "{\"name\": \"f\", \"arguments\": {\"s\": \"Brest\", \"n\": 2}}; {\"name\": \"g\", \"arguments\": {}}",
      "{\"s\": \"Brest\", \"n\": 2}", true },
    { "xml", "<tool_call>\n<function=f>\n<parameter=s>\nBrest\n</parameter>\n<parameter=n>\n2\n</parameter>\n</function>\n</tool_call>",
      "<tool_call>\n<function=f>\n<parameter=s>\nBrest\n</parameter>\n<parameter=n>\n2\n</parameter>\n</function>\n</tool_call>\n"
      "<tool_call>\n<function=g>\n</function>\n</tool_call>", "{\"s\": \"Brest\", \"n\": 2}", false },
    { "xml", "<function=f>\n<parameter=s>\nBrest\n</parameter>\n<parameter=n>\n2\n</parameter>\n</function>",
      "<function=f>\n<parameter=s>\nBrest\n</parameter>\n<parameter=n>\n2\n</parameter>\n</function>\n<function=g>\n</function>",
      "{\"s\": \"Brest\", \"n\": 2}", false },
    { "laguna", "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>Brest</arg_value>\n<arg_key>n</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
      "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>Brest</arg_value>\n<arg_key>n</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n"
      "<tool_call>g\n</tool_call>", "{\"s\": \"Brest\", \"n\": 2}", false },
    { "laguna", "<tool_call>f<arg_key>s</arg_key><arg_value>Brest</arg_value><arg_key>n</arg_key><arg_value>2</arg_value></tool_call>",
      "<tool_call>f<arg_key>s</arg_key><arg_value>Brest</arg_value><arg_key>n</arg_key><arg_value>2</arg_value></tool_call>"
      "<tool_call>g</tool_call>", "{\"s\": \"Brest\", \"n\": 2}", false },
    { "ling", "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>Brest</arg_value>\n<arg_key>n</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
      "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>Brest</arg_value>\n<arg_key>n</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n"
      "<tool_call>g\n</tool_call>", "{\"s\": \"Brest\", \"n\": 2}", false },
    { "deepseek", "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" string=\"true\">Brest</｜DSML｜parameter>\n"
                  "<｜DSML｜parameter name=\"n\" string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
      "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" string=\"true\">Brest</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"n\" string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n"
      "</｜DSML｜tool_calls>", "{\"s\": \"Brest\", \"n\": 2}", false },
    { "gemma", "<|tool_call>call:f{s:<|\"|>Brest<|\"|>,n:2}<tool_call|>",
      "<|tool_call>call:f{s:<|\"|>Brest<|\"|>,n:2}<tool_call|><|tool_call>call:g{}<tool_call|>", "{\"s\": \"Brest\", \"n\": 2}", false },
    { "mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"s\": \"Brest\", \"n\": 2}}]",
      "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"s\": \"Brest\", \"n\": 2}}, {\"name\": \"g\", \"arguments\": {}}]",
      "{\"s\": \"Brest\", \"n\": 2}", false },
    { "mistral-args", "[TOOL_CALLS]f[ARGS]{\"s\": \"Brest\", \"n\": 2}", "[TOOL_CALLS]f[ARGS]{\"s\": \"Brest\", \"n\": 2}[TOOL_CALLS]g[ARGS]{}",
      "{\"s\": \"Brest\", \"n\": 2}", false },
    { "llama", "{\"name\": \"f\", \"parameters\": {\"s\": \"Brest\", \"n\": 2}}",
      "{\"name\": \"f\", \"parameters\": {\"s\": \"Brest\", \"n\": 2}}; {\"name\": \"g\", \"parameters\": {}}", "{\"s\": \"Brest\", \"n\": 2}", true },
    { "llama", "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"s\": \"Brest\", \"n\": 2}}",
      "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"s\": \"Brest\", \"n\": 2}}<|python_tag|>{\"name\": \"g\", \"parameters\": {}}",
      "{\"s\": \"Brest\", \"n\": 2}", false },
    { "llama", "<|python_tag|>f.call(s=\"Brest\", n=2)", "<|python_tag|>f.call(s='Brest', n=2)<|python_tag|>g.call()",
      "{\"s\": \"Brest\", \"n\": 2}", false },
};

static json_t *object_of(const struct buf *args)
{
    json_t *v = json_loadb(buf_text(args), args->len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    if (json_is_object(v)) return v;
    json_decref(v);
    return NULL;
}

/* A JSON object. Keys may hold NUL, which jansson cannot. */
static bool is_object(const struct buf *args)
{
    json_error_t why = { .text = "" };
    json_t *v = json_loadb(buf_text(args), args->len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    bool good = v ? json_is_object(v) : json_error_code(&why) == json_error_null_byte_in_key;
    json_decref(v);
    return good;
}

/* Whole calls have JSON objects as arguments; a text without calls comes out as it is. */
static void check_sane(const char *dialect, int flags, struct str text)
{
    struct told t = read_any_way(dialect, flags, text);
    bool whole = false;
    for (int i = 0; i < t.n && i < CALLS_MAX; i++) {
        CHECK(t.end[i] == CALL_CUT || is_object(&t.args[i]), "%s: %.*s\n  gives %s", dialect, (int)text.len, text.at, buf_text(&t.all.text));
        CHECK(t.end[i] == CALL_WHOLE || ((flags & CUT) && i == t.n - 1), "%s: cut, but not by a limit: %.*s", dialect, (int)text.len, text.at);
        whole |= t.end[i] == CALL_WHOLE;
    }
    CHECK(t.called == whole, "%s: %.*s", dialect, (int)text.len, text.at);
    CHECK(t.n || (t.content.len == text.len && !memcmp(buf_text(&t.content), text.at, text.len)), "%s: text is lost: %.*s\n  gives %s",
          dialect, (int)text.len, text.at, buf_text(&t.all.text));
    told_drop(&t);
}

static const char *print(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
static const char *print(struct buf *b, const char *format, ...)
{
    char text[4096];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    buf_clear(b);
    buf_add_text(b, text);
    return buf_text(b);
}

TEST(calls_of_each_dialect_alone_in_parallel_and_among_text)
{
    struct buf text = { 0 }, want = { 0 };
    for (size_t i = 0; i < COUNT(forms); i++) {
        const struct form *f = &forms[i];
        const char *d = f->dialect, *close = dialect_reasoning_close(dialect_named(d)), *open = dialect_reasoning_open(dialect_named(d));
        check_text(d, 0, f->one, print(&want, "{f:%s:whole}", f->args));
        check_text(d, 0, f->two, print(&want, "{f:%s:whole}{g:{}:whole}", f->args));
        check_text(d, 0, print(&text, "\n\n%s\n", f->one), print(&want, "{f:%s:whole}", f->args));
        check_text(d, 0, print(&text, "%s\nThat is all.", f->one), print(&want, "{f:%s:whole}C:That is all.", f->args));
        check_text(d, 0, print(&text, "%swhy%s\n\n%s", open, close, f->two), print(&want, "R:why{f:%s:whole}{g:{}:whole}", f->args));
        check_text(d, REASON, print(&text, "why%s%s", close, f->one), print(&want, "R:why{f:%s:whole}", f->args));
        check_text(d, NO_CALLS | REASON, print(&text, "why %s%s", close, "x"), "R:whyC:x");
        if (f->alone) continue;
        check_text(d, 0, print(&text, "I look.\n\n%s", f->two), print(&want, "C:I look.{f:%s:whole}{g:{}:whole}", f->args));
        /* In thinking: mentioned, it is text; after thinking that was never closed it is a call. */
        check_text(d, REASON, print(&text, "I could write %s here%s\n\nNo.", f->one, close), print(&want, "R:I could write %s hereC:No.", f->one));
        check_text(d, REASON, print(&text, "I could write %s here", f->two), print(&want, "R:I could write %s here", f->two));
        check_text(d, REASON, print(&text, "so\n%s", f->two), print(&want, "R:so{f:%s:whole}{g:{}:whole}", f->args));
        check_text(d, REASON, print(&text, "%s%sx", f->two, close), print(&want, "R:%sC:x", f->two));
    }
    buf_drop(&text);
    buf_drop(&want);
}

TEST(calls_that_end_too_soon_are_cut_or_text)
{
    for (size_t i = 0; i < COUNT(forms); i++) {
        const struct form *f = &forms[i];
        json_t *all = json_loads(f->args, 0, NULL);
        for (size_t len = 0; len < strlen(f->one); len++) {
            struct str text = { f->one, len };
            if ((f->one[len] & 0xc0) == 0x80) continue;
            check_sane(f->dialect, 0, text);
            check_sane(f->dialect, CUT, text);
            struct told cut = read_text(f->dialect, CUT, text, 0), ended = read_text(f->dialect, 0, text, 0);
            /* A limit: the arguments are the first bytes of the whole ones. */
            CHECK(cut.n == 0 || !strncmp(f->args, buf_text(&cut.args[0]), cut.args[0].len), "%s: %.*s: %s", f->dialect, (int)len, f->one,
                  buf_text(&cut.args[0]));
            CHECK(cut.n == 0 || cut.end[0] == CALL_CUT || !strcmp(buf_text(&cut.args[0]), f->args), "%s: %.*s", f->dialect, (int)len, f->one);
            /* The model's end: at most closing marks are missing, or a whole parameter. */
            json_t *args = ended.n ? object_of(&ended.args[0]) : NULL, *s = json_object_get(args, "s"), *n = json_object_get(args, "n");
            CHECK(ended.n == 0 || (json_equal(s, json_object_get(all, "s")) && (!n || json_number_value(n) == 2)), "%s: %.*s: %s", f->dialect,
                  (int)len, f->one, buf_text(&ended.args[0]));
            json_decref(args);
            told_drop(&cut);
            told_drop(&ended);
        }
        json_decref(all);
    }
}

/* One to three changes at random places. */
static void mutilate(struct buf *out, struct str text, size_t from)
{
    static const char nul[] = "";
    static const char *const pieces[] = { nul, "{", "}", "[", "]", "\"", "\\", "<", ">", ",", ":", " ", "\n", "x", "é", "=", "1", "'", "", "", "</tool_call>",
                                          "<tool_call>", "</parameter>", "<|\"|>", "[TOOL_CALLS]", "\t", "\\u12", "\\ud800", "null", "|" };
    buf_clear(out);
    buf_add(out, text.at, text.len);
    for (uint64_t n = 1 + test_random() % 3; n > 0; n--) {
        const char *piece = pieces[test_random() % COUNT(pieces)];
        size_t at = from + (size_t)(test_random() % (out->len - from + 1)), gone = (size_t)(test_random() % 3);
        while (at < out->len && (out->data[at] & 0xc0) == 0x80) at++;
        if (gone > out->len - at) gone = out->len - at;
        while (at + gone < out->len && (out->data[at + gone] & 0xc0) == 0x80) gone++;
        char *tail = mem_text(out->data + at + gone, out->len - at - gone);
        size_t left = out->len - at - gone;
        out->len = at;
        buf_add(out, piece, piece == nul ? 1 : strlen(piece));
        buf_add(out, tail, left);
        mem_free(tail);
    }
}

TEST(mutilated_calls_are_calls_or_text_and_nothing_is_lost)
{
    struct buf text = { 0 };
    for (int n = 0; n < 4000; n++) {
        const struct form *f = &forms[test_random() % COUNT(forms)];
        mutilate(&text, str_of(test_random() & 1 ? f->one : f->two), 0);
        check_sane(f->dialect, test_random() & 1 ? CUT : 0, (struct str){ buf_text(&text), text.len });
    }
    buf_drop(&text);
}

/* strchr finds it in every set of characters. The 2 of a form becomes a value with an inside, too. */
TEST(a_nul_byte_between_or_instead_of_others_ends_nothing)
{
    struct buf whole = { 0 }, text = { 0 };
    for (size_t i = 0; i < 4 * COUNT(forms); i++) {
        const struct form *f = &forms[i / 4];
        const char *two = strrchr(f->one, '2');
        print(&whole, "%.*s%s%s", (int)(two - f->one), f->one, i % 2 ? "[{}]" : "2", two + 1);
        for (size_t at = 0; at <= whole.len; at++) {
            if (at < whole.len && whole.data[at] & 0x80) continue;
            buf_clear(&text);
            buf_add(&text, whole.data, at);
            buf_add_char(&text, '\0');
            for (size_t from = at + (i & 2 && at < whole.len); from < whole.len; from++) buf_add_char(&text, whole.data[from]);
            check_sane(f->dialect, 0, (struct str){ buf_text(&text), text.len });
            check_sane(f->dialect, CUT, (struct str){ buf_text(&text), text.len });
        }
    }
    buf_drop(&whole);
    buf_drop(&text);
}

/* ---- long calls are told while they come ---------------------------------------------------------- */

/* The form with a string of n bytes in place of Brest. Returns where the string ends. */
static size_t lengthen(struct buf *out, const struct form *f, size_t n)
{
    const char *at = strstr(f->one, "Brest");
    buf_clear(out);
    buf_add(out, f->one, (size_t)(at - f->one));
    for (size_t i = 0; i < n; i++) buf_add_char(out, i % 37 == 36 ? '.' : (char)('a' + i % 26));
    size_t end = out->len;
    buf_add_text(out, at + 5);
    return end;
}

TEST(long_calls_are_told_while_they_come)
{
    struct buf text = { 0 };
    for (size_t i = 0; i < COUNT(forms); i++) {
        if (strstr(forms[i].one, ".call(")) continue;
        size_t end = lengthen(&text, &forms[i], 3000);
        struct told t = { .all.last = -1 };
        struct reply *r = NULL;
        luce_error err = { 0 };
        struct reply_params p = { .dialect = dialect_named(forms[i].dialect), .tools = known_tools(), .on_event = hear_more, .user = &t };
        CHECK_OK(reply_open(&r, &p, &err), err);
        reply_add(r, (struct str){ text.data, end - 10 });
        CHECK(t.n == 1 && t.args[0].len > 2900, "%s: %d calls, %zu bytes are told", forms[i].dialect, t.n, t.args[0].len);
        reply_add(r, (struct str){ text.data + end - 10, text.len - end + 10 });
        CHECK_OK(reply_end(r, false, &err), err);
        json_t *args = object_of(&t.args[0]);
        CHECK_EQ(json_string_length(json_object_get(args, "s")), 3000);
        json_decref(args);
        reply_close(r);
        told_drop(&t);
    }
    buf_drop(&text);
}

TEST(long_calls_stay_calls_when_they_go_wrong)
{
    struct buf text = { 0 };
    for (int n = 0; n < 1500; n++) {
        const struct form *f = &forms[test_random() % COUNT(forms)];
        size_t end = lengthen(&text, f, 400 + test_random() % 300), from = end - (test_random() % 100);
        struct buf whole = { 0 };
        mutilate(&whole, (struct str){ text.data, text.len }, test_random() % 2 ? from : 0);
        if (test_random() % 4 == 0) whole.len -= test_random() % (whole.len - from < 40 ? whole.len - from + 1 : 40);
        while (whole.len && (whole.data[whole.len - 1] & 0x80)) whole.len--;
        check_sane(f->dialect, test_random() & 1 ? CUT : 0, (struct str){ whole.data, whole.len });
        buf_drop(&whole);
    }
    buf_drop(&text);
}

TEST(calls_with_an_end_tag_left_out_hold_no_markup)
{
    struct buf text = { 0 };
    for (size_t i = 0; i < COUNT(forms); i++) {
        const struct form *f = &forms[i];
        bool tags = strstr(f->one, "<parameter=") || strstr(f->one, "<arg_key>") || strstr(f->one, "invoke");
        for (const char *tag = tags ? strstr(f->two, "</") : NULL; tag; tag = strstr(tag + 2, "</")) {
            /* Where newlines are not the form's, only a value's own end tag tells its end. */
            if (!strncmp(tag, "</arg_key", 9) || !strncmp(tag, "</arg_value", 11) || !strncmp(tag, "</｜DSML｜parameter", 19)) continue;
            print(&text, "%.*s%s\nDone", (int)(tag - f->two), f->two, strchr(tag, '>') + 1);
            struct told t = read_any_way(f->dialect, 0, (struct str){ text.data, text.len });
            for (int k = 0; k < t.n; k++)
                CHECK(!strchr(buf_text(&t.args[k]), '<'), "%s: %s\n  gives %s", f->dialect, buf_text(&text), buf_text(&t.all.text));
            told_drop(&t);
        }
    }
    buf_drop(&text);
}

/* ---- what is written between the marks ------------------------------------------------------------- */

/* Numbers that no machine type holds, put in for numbers that the random calls have. */
static const char *const big[][2] = { { "770001", "9223372036854775808" }, { "770002", "-9223372036854775809" },
                                      { "770003", "123456789012345678901234567890123456789012" }, { "770004", "18446744073709551616" } };

static void put_in(struct buf *b, int from, int to)
{
    for (size_t k = 0; k < COUNT(big); k++)
        for (char *hit; (hit = strstr(buf_text(b), big[k][from]));) {
            size_t at = (size_t)(hit - b->data), len = strlen(big[k][from]);
            char *tail = mem_text(hit + len, b->len - at - len);
            b->len = at;
            buf_add_text(b, big[k][to]);
            buf_add_text(b, tail);
            mem_free(tail);
        }
}

static json_t *random_value(int depth)
{
    static const char *const words[] = { "", "a", "\"", "\\", "\n", " ", "é", "日本", "🙂", "{", "}", "<", "&amp;", "&lt;", "null", "\\n", "\t", "'", "\x7f",
                                         "</p>", "[ARGS]", ", \"b\": 1", "\x01", "\r\n", "True", "\\u00e9", "//", "</parameter>", "</arg_value>" };
    static const char *const keys[] = { "a", "key", "é", "ключ", "k_1", "k-2" };
    static const struct value_parts parts = { words, COUNT(words), keys, COUNT(keys), 770001, 4 };
    return random_json(&parts, depth);
}

static json_t *value_of_type(const char *key, int depth)
{
    static const struct {
        char key;
        json_type type;
    } types[] = { { 's', JSON_STRING }, { 't', JSON_STRING }, { 'n', JSON_INTEGER }, { 'o', JSON_OBJECT }, { 'l', JSON_ARRAY } };
    for (size_t i = 0; i < COUNT(types); i++)
        for (json_t *v = types[i].key == *key ? random_value(depth) : NULL; v; v = random_value(depth)) {
            if (json_typeof(v) == types[i].type) return v;
            json_decref(v);
        }
    return json_boolean(test_random() & 1);
}

TEST(calls_as_a_dialect_prints_them_come_back_exactly)
{
    static const char *const keys[] = { "s", "t", "n", "b", "o", "l" };
    struct buf text = { 0 };
    for (int round = 0; round < 1500; round++) {
        const struct dialect *d = dialect_at((size_t)round % 10);
        json_t *args[3], *calls = json_array();
        int n = 1 + (int)(test_random() % 3);
        for (int i = 0; i < n; i++) {
            args[i] = json_object();
            for (size_t k = 0; k < COUNT(keys); k++)
                if (test_random() & 1) json_object_set_new(args[i], keys[k], value_of_type(keys[k], test_random() % 20 ? 3 : 12));
            json_array_append_new(calls, json_pack("{s:{s:s,s:O}}", "function", "name", "f", "arguments", args[i]));
        }
        luce_error err = { 0 };
        buf_clear(&text);
        CHECK_OK(dialect_print(d, calls, &text, &err), err);
        put_in(&text, 0, 1);
        struct told t = read_any_way(dialect_name(d), 0, (struct str){ text.data, text.len });
        CHECK(t.n == n && t.content.len == 0, "%s: %d of %d calls: %s\n  gives %s", dialect_name(d), t.n, n, buf_text(&text),
              buf_text(&t.all.text));
        for (int i = 0; i < n; i++) {
            put_in(&t.args[i], 1, 0);
            json_t *back = json_loadb(buf_text(&t.args[i]), t.args[i].len, 0, NULL);
            CHECK(json_equal(back, args[i]), "%s: %s\n  gives %s", dialect_name(d), buf_text(&text), buf_text(&t.args[i]));
            json_decref(back);
            json_decref(args[i]);
        }
        told_drop(&t);
        json_decref(calls);
    }
    buf_drop(&text);
}
#endif
