/* tests/test_dialects.c - replies are split into reasoning, content and calls the same way however they
 * are cut, for every dialect; nothing that is said is lost. */
#ifdef LUCE_HAVE_JSON
#include "chat/values.h"
#include "tests/heard.h"

/* Before any test: jansson's memory is counted and fails as luce's own. */
__attribute__((constructor)) static void count_memory(void)
{
    values_use_counted_memory();
}

static const struct {
    const char *dialect;
    int flags;
    const char *text, *want;
} samples[] = {
    /* reasoning and content */
    { "hermes", 0, "Hello\nyou \n", "C:Hello\nyou \n" },
    { "hermes", 0, "<think>\nwhy\n</think>\n\nAnswer.", "R:whyC:Answer." },
    { "hermes", REASON, "\nwhy\nso\n</think>\n\nAnswer.\n", "R:why\nsoC:Answer.\n" },
    { "hermes", REASON, "<think>a</think>b", "R:<think>aC:b" },
    { "hermes", REASON, "never ends \n", "R:never ends" },
    { "hermes", 0, "</think>\n\nx", "C:x" },
    { "hermes", 0, "say <think> and </think> done", "C:say <think> and </think> done" },
    { "none", 0, "a <tool_call>{\"name\": \"f\"}</tool_call>", "C:a <tool_call>{\"name\": \"f\"}</tool_call>" },
    { "mistral", 0, "[THINK]hm[/THINK]ok", "R:hmC:ok" },
    { "gemma", 0, "<|channel>thought\nhm\n<channel|>ok", "R:hmC:ok" },
    { "hermes", 0, "a < b, a <t and <tool_", "C:a < b, a <t and <tool_" },
    /* Hermes */
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"x\", \"n\": 2}}\n</tool_call>",
      "{f:{\"s\": \"x\", \"n\": 2}:whole}" },
    { "hermes", 0, "I look.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"h\", \"arguments\": "
                   "{\"a\": [1, {\"b\": \"}\"}]}}\n</tool_call>\n",
      "C:I look.{f:{}:whole}{h:{\"a\": [1, {\"b\": \"}\"}]}:whole}" },
    { "hermes", 0, "a<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call> b <tool_call>{\"name\":\"g\"}</tool_call>",
      "C:a{f:{}:whole}C:b{g:{}:whole}" },
    { "hermes", 0, "<tool_call>{\"arguments\": {\"s\": 1}, \"name\": \"f\"}</tool_call>", "{f:{\"s\": 1}:whole}" },
    { "hermes", 0, "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"s\\\": 1}\"}}</tool_call>",
      "{f:{\"s\": 1}:whole}" },
    { "hermes", 0, "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"ends with </tool_call> here\"}}</tool_call>",
      "{f:{\"s\": \"ends with </tool_call> here\"}:whole}" },
    { "hermes", CUT, "<tool_call>{\"name\":\"f\",\"arguments\":{\"q\":\"ab", "{f:{\"q\":\"ab:cut}" },
    { "hermes", CUT, "<tool_call>{\"name\":\"f", "C:<tool_call>{\"name\":\"f" },
    { "hermes", 0, "<tool_call>{\"name\":\"f\",\"arguments\":{\"q\":1}", "{f:{\"q\":1}:whole}" },
    { "hermes", CUT, "<tool_call>{\"name\":\"f\",\"arguments\":{\"q\":1}", "{f:{\"q\":1}:cut}" },
    { "hermes", 0, "so <tool_call> it is", "C:so <tool_call> it is" },
    { "hermes", 0, "x\n<tool_call>\n{\"name\": f}\n</tool_call>\ny", "C:x\n<tool_call>\n{\"name\": f}\n</tool_call>\ny" },
    { "hermes", 0, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": tru}}</tool_call>",
      "C:<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": tru}}</tool_call>" },
    { "hermes", 0, "{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}}", "{f:{\"s\": \"x\"}:whole}" },
    { "hermes", 0, "{\"name\": \"nope\", \"arguments\": {}}", "C:{\"name\": \"nope\", \"arguments\": {}}" },
    { "hermes", 0, "{\"a\": \"f\"}", "C:{\"a\": \"f\"}" },
    { "hermes", NO_TOOLS, "{\"name\": \"f\", \"arguments\": {}}", "C:{\"name\": \"f\", \"arguments\": {}}" },
    { "hermes", NO_CALLS, "<tool_call>{\"name\": \"f\"}</tool_call>", "C:<tool_call>{\"name\": \"f\"}</tool_call>" },
    /* calls and mentions inside reasoning */
    { "hermes", REASON, "I could write <tool_call> here</think>No call needed.", "R:I could write <tool_call> hereC:No call needed." },
    { "hermes", REASON, "so\n<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 1}}</tool_call>", "R:so{f:{\"n\": 1}:whole}" },
    { "hermes", REASON, "so <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call></think>done",
      "R:so <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>C:done" },
    { "hermes", REASON, "so <tool_call>{\"name\": \"nope\", \"arguments\": {}}</tool_call>",
      "R:so <tool_call>{\"name\": \"nope\", \"arguments\": {}}</tool_call>" },
    { "hermes", REASON, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> would do",
      "R:<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> would do" },
    { "xml", REASON, "try <function=f> or\n<tool_call>\n<function=f>\n</function>\n</tool_call>", "R:try <function=f> or{f:{}:whole}" },
    /* Qwen3-Coder */
    { "xml", 0, "Now:\n\n<tool_call>\n<function=f>\n<parameter=s>\nBrest\n</parameter>\n<parameter=n>\n2\n</parameter>\n</function>\n</tool_call>",
      "C:Now:{f:{\"s\": \"Brest\", \"n\": 2}:whole}" },
    { "xml", 0, "<tool_call>\n<function=f>\n<parameter=s>\n  a\n\n</parameter>\n</function>\n</tool_call>\n",
      "{f:{\"s\": \"  a\\n\"}:whole}" },
    { "xml", 0, "<tool_call><function=f><parameter=s></parameter><parameter=t>\n\n\n</parameter></function></tool_call>",
      "{f:{\"s\": \"\", \"t\": \"\\n\"}:whole}" },
    { "xml", 0, "<tool_call>\n<function=f>\n<parameter=s>\nends with </parameter> here.\n</parameter>\n</function>\n</tool_call>",
      "{f:{\"s\": \"ends with </parameter> here.\"}:whole}" },
    { "xml", 0, "<tool_call>\n<function=f>\n<parameter=s>\na </function> b\n</tool_call>\nc </parameter>\nd\n</parameter>\n</function>\n</tool_call>",
      "{f:{\"s\": \"a </function> b\\n</tool_call>\\nc </parameter>\\nd\"}:whole}" },
    { "xml", 0, "<tool_call>\n<function=f>\n<parameter=n>\n3\n</parameter>\n<parameter=b>\ntrue\n</parameter>\n<parameter=o>\n{\"a\":1}\n</parameter>\n"
                "<parameter=s>\n3\n</parameter>\n<parameter=u>\n3\n</parameter>\n<parameter=v>\n[1]\n</parameter>\n<parameter=x>\nNone\n</parameter>\n"
                "</function>\n</tool_call>",
      "{f:{\"n\": 3, \"b\": true, \"o\": {\"a\":1}, \"s\": \"3\", \"u\": \"3\", \"v\": [1], \"x\": null}:whole}" },
    { "xml", 0, "<function=f>\n<parameter=b>\nTrue\n</parameter>\n</function>", "{f:{\"b\": true}:whole}" },
    { "xml", 0, "<function=f>\n<parameter=n>\nabc\n</parameter>\n</function> tail", "{f:{\"n\": \"abc\"}:whole}C:tail" },
    { "xml", 0, "<tool_call>\n<function=f>\n<parameter=s>\na\n<parameter=t>\nb\n</function>\n</tool_call>",
      "{f:{\"s\": \"a\", \"t\": \"b\"}:whole}" },
    { "xml", 0, "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>",
      "{f:{\"s\": \"x\"}:whole}{g:{}:whole}" },
    { "xml", CUT, "<tool_call>\n<function=f>\n<parameter=s>\nab\n", "{f:{\"s\": \"ab:cut}" },
    { "xml", CUT, "<tool_call>\n<function=f>\n<parameter=n>\n12", "{f:{\"n\": 12:cut}" },
    { "xml", 0, "<tool_call>\n<function=f>\n<parameter=s>\nab\n</parameter>", "{f:{\"s\": \"ab\"}:whole}" },
    { "xml", 0, "<tool_call>\nno function</tool_call>", "C:<tool_call>\nno function</tool_call>" },
    { "xml", 0, "<tool_call>\n<function=f>\nprose\n</function>\n</tool_call>",
      "C:<tool_call>\n<function=f>\nprose\n</function>\n</tool_call>" },
    /* Laguna, Ling */
    { "laguna", 0, "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>Brest</arg_value>\n<arg_key>n</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
      "{f:{\"s\": \"Brest\", \"n\": 2}:whole}" },
    { "ling", 0, "x<tool_call>f<arg_key>s</arg_key><arg_value> a\n</arg_value></tool_call><tool_call>g</tool_call>",
      "C:x{f:{\"s\": \" a\\n\"}:whole}{g:{}:whole}" },
    { "laguna", 0, "<tool_call>f<arg_key>s</arg_key><arg_value>a </arg_value> b</tool_call> c</arg_value></tool_call>",
      "{f:{\"s\": \"a </arg_value> b</tool_call> c\"}:whole}" },
    { "laguna", 0, "a <tool_call> is a tag", "C:a <tool_call> is a tag" },
    { "laguna", CUT, "<tool_call>f<arg_key>s</arg_key><arg_value>ab", "{f:{\"s\": \"ab:cut}" },
    /* DeepSeek */
    { "deepseek", 0, "ok\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" string=\"true\">a &lt; \"b\"</｜DSML｜parameter>\n"
                     "<｜DSML｜parameter name=\"n\" string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n"
                     "</｜DSML｜tool_calls>",
      "C:ok{f:{\"s\": \"a &lt; \\\"b\\\"\", \"n\": 2}:whole}{g:{}:whole}" },
    { "deepseek", 0, "<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" string=\"true\">x </｜DSML｜parameter> y & z</｜DSML｜parameter>\n</｜DSML｜invoke>",
      "{f:{\"s\": \"x </｜DSML｜parameter> y & z\"}:whole}" },
    /* Gemma */
    { "gemma", 0, "<|tool_call>call:f{n:2,s:<|\"|>Brest<|\"|>}<tool_call|>", "{f:{\"n\": 2, \"s\": \"Brest\"}:whole}" },
    { "gemma", 0, "<|tool_call>call:f{l:[1,<|\"|>a, b<|\"|>,{k:true}],x:null,o:{}}<tool_call|><|tool_call>call:g{}<tool_call|>",
      "{f:{\"l\": [1, \"a, b\", {\"k\": true}], \"x\": null, \"o\": {}}:whole}{g:{}:whole}" },
    { "gemma", 0, "<|tool_call>call:f{s:<|\"|>a <|\"|> b\n\"c\" \\<|\"|>}<tool_call|>", "{f:{\"s\": \"a <|\\\"|> b\\n\\\"c\\\" \\\\\"}:whole}" },
    { "gemma", REASON, "x>call:f{n:2}<tool_call|>", "R:x>call:f{n:2}<tool_call|>" },
    { "gemma", 0, "Now\ncall:ns:f{s:word}", "C:Now{f:{\"s\": \"word\"}:whole}" },
    { "gemma", 0, "call:nope{s:1}", "C:call:nope{s:1}" },
    { "gemma", 0, "I call: you", "C:I call: you" },
    { "gemma", CUT, "<|tool_call>call:f{s:<|\"|>ab<|", "{f:{\"s\": \"ab:cut}" },
    { "gemma", 0, "<|tool_call>call:f{s}<tool_call|>", "C:<|tool_call>call:f{s}<tool_call|>" },
    /* Llama */
    { "llama", 0, "{\"name\": \"f\", \"parameters\": {\"s\": \"x\"}}", "{f:{\"s\": \"x\"}:whole}" },
    { "llama", 0, "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"s\": \"x\"}}", "{f:{\"s\": \"x\"}:whole}" },
    { "llama", 0, "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}", "{f:{}:whole}{g:{}:whole}" },
    { "llama", 0, "{\"name\": \"f\", \"parameters\": {}};é", "{f:{}:whole}C:é" },
    { "llama", 0, "<|python_tag|>f.call(s=\"a)b\", n=3)", "{f:{\"s\": \"a)b\", \"n\": 3}:whole}" },
    { "llama", 0, "{\"answer\": 1}", "C:{\"answer\": 1}" },
    { "llama", 0, "It is {\"name\": \"f\"}", "C:It is {\"name\": \"f\"}" },
    /* Mistral */
    { "mistral", 0, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}, \"id\": \"k3v9x0a1b\"}, {\"name\": \"g\", \"arguments\": {}}]",
      "{f:{\"s\": \"x\"}:whole}{g:{}:whole}" },
    { "mistral-args", 0, "a[TOOL_CALLS]f[CALL_ID]k3v9x0a1b[ARGS]{\"s\": \"x\"}[TOOL_CALLS]g[ARGS]{}", "C:a{f#k3v9x0a1b:{\"s\": \"x\"}:whole}{g:{}:whole}" },
    { "mistral", CUT, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"s\": \"x", "{f:{\"s\": \"x:cut}" },
    { "mistral", 0, "[TOOL_CALLS] of nothing", "C:[TOOL_CALLS] of nothing" },
    { "mistral", 0, "an [item] and [TOOL", "C:an [item] and [TOOL" },
};

TEST(replies_are_split_the_same_at_every_cut)
{
    json_t *tools = json_loads(tools_text, 0, NULL);
    for (size_t i = 0; i < COUNT(samples); i++) {
        struct str text = str_of(samples[i].text);
        for (size_t cut = 0; cut <= text.len; cut++) {
            struct heard h = feed(samples[i].dialect, samples[i].flags, text, (size_t[]){ cut, text.len }, 2, tools);
            CHECK(!strcmp(buf_text(&h.text), samples[i].want), "%s cut at %zu: %s\n  gives    %s\n  expected %s", samples[i].dialect,
                  cut, samples[i].text, buf_text(&h.text), samples[i].want);
            bool same = !strcmp(buf_text(&h.text), samples[i].want);
            buf_drop(&h.text);
            if (!same) break;
        }
        size_t all[2048];
        for (size_t k = 0; k < text.len; k++) all[k] = k + 1;
        struct heard h = feed(samples[i].dialect, samples[i].flags, text, all, text.len, tools);
        CHECK(!strcmp(buf_text(&h.text), samples[i].want), "%s byte by byte: %s\n  gives    %s\n  expected %s", samples[i].dialect,
              samples[i].text, buf_text(&h.text), samples[i].want);
        buf_drop(&h.text);
    }
    json_decref(tools);
}
/* ---- what models write, from random calls -------------------------------------------------------- */

static json_t *random_value(int depth)
{
    static const char *const words[] = { "", "a", "</parameter>", "\"", "\\", "\n", " ", "é", "日本", "🙂", "</function>", "{", "}", "<", "null",
                                         "3", "</arg_value>", "&", "\t", "x\ny", "[ARGS]", "'", ", \"b\": 1" };
    static const char *const keys[] = { "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8" };
    static const struct value_parts parts = { words, COUNT(words), keys, COUNT(keys), -1000, 2000 };
    return random_json(&parts, depth);
}

/* Arguments for f of the tools above, each of its declared type. */
static json_t *random_arguments(void)
{
    json_t *args = json_object(), *v = NULL;
    static const char *const keys[] = { "s", "t", "n", "b", "o", "l" };
    for (size_t i = 0; i < COUNT(keys); i++) {
        if (test_random() & 1) continue;
        json_type want[] = { JSON_STRING, JSON_STRING, JSON_INTEGER, JSON_TRUE, JSON_OBJECT, JSON_ARRAY };
        do {
            json_decref(v);
            v = random_value(3);
        } while (json_typeof(v) != want[i] && !(want[i] == JSON_TRUE && json_is_boolean(v)));
        json_object_set_new(args, keys[i], v);
        v = NULL;
    }
    return args;
}

struct gathered {
    struct buf args[4];
    int n, whole;
};

static void gather(void *user, const struct reply_event *e)
{
    struct gathered *g = user;
    if (e->kind == REPLY_ARGUMENTS) buf_add(&g->args[e->call % 4], e->text.at, e->text.len);
    if (e->kind == REPLY_CALL_END) g->n++, g->whole += e->end == CALL_WHOLE;
}

TEST(printed_calls_come_back_as_they_were_at_random_cuts)
{
    json_t *tools = json_loads(tools_text, 0, NULL);
    for (int seed = 0; seed < 1000; seed++) {
        const struct dialect *d = dialect_at((size_t)seed % 10);
        json_t *calls = json_array(), *args[2];
        int n = 1 + (int)(test_random() % 2);
        for (int i = 0; i < n; i++) {
            args[i] = random_arguments();
            json_array_append_new(calls, json_pack("{s:{s:s,s:O}}", "function", "name", "f", "arguments", args[i]));
        }
        struct buf text = { 0 };
        luce_error err = { 0 };
        CHECK_OK(dialect_print(d, calls, &text, &err), err);
        struct gathered g = { 0 };
        struct reply *r = NULL;
        struct reply_params p = { .dialect = d, .tools = tools, .on_event = gather, .user = &g };
        CHECK_OK(reply_open(&r, &p, &err), err);
        for (size_t at = 0; at < text.len;) {
            size_t step = 1 + (size_t)(test_random() % 9);
            if (step > text.len - at) step = text.len - at;
            reply_add(r, (struct str){ text.data + at, step });
            at += step;
        }
        CHECK_OK(reply_end(r, false, &err), err);
        CHECK(g.n == n && g.whole == n && reply_called(r), "%s: %d of %d calls, %d whole: %s", dialect_name(d), g.n, n, g.whole,
              buf_text(&text));
        for (int i = 0; i < n; i++) {
            json_t *back = json_loadb(buf_text(&g.args[i]), g.args[i].len, 0, NULL);
            CHECK(json_equal(back, args[i]), "%s: %s\n  gives %s", dialect_name(d), buf_text(&text), buf_text(&g.args[i]));
            json_decref(back);
            json_decref(args[i]);
            buf_drop(&g.args[i]);
        }
        reply_close(r);
        json_decref(calls);
        buf_drop(&text);
    }
    json_decref(tools);
}

/* ---- any bytes ----------------------------------------------------------------------------------- */

TEST(replies_of_any_bytes_are_split_the_same_at_random_cuts)
{
    static const char *const pieces[] = {
        "<tool_call>", "</tool_call>", "<function=f>", "</function>", "<parameter=s>", "</parameter>", "\n", " ", "<think>", "</think>",
        "{", "}", "\"name\"", ":", "\"f\"", ",", "\"arguments\"", "[TOOL_CALLS]", "[ARGS]", "[", "]", "<arg_key>", "</arg_key>", "<arg_value>",
        "</arg_value>", "f", "s", "1", "<|tool_call>", "call:f{", "<|\"|>", "<tool_call|>", "<｜DSML｜tool_calls>", "<｜DSML｜invoke name=\"f\">",
        "</｜DSML｜invoke>", "\x80", "\xe2\x82", "é", "a", "\"", "\\", "<|python_tag|>", ".call(", ")", "=", "<", "[THINK]", "[/THINK]",
        "<|channel>thought", "<channel|>",
    };
    json_t *tools = json_loads(tools_text, 0, NULL);
    for (int n = 0; n < 3000; n++) {
        struct buf text = { 0 };
        for (uint64_t k = test_random() % 24; k > 0; k--) buf_add_text(&text, pieces[test_random() % COUNT(pieces)]);
        const char *name = dialect_name(dialect_at(test_random() % 11));
        struct str s = { buf_text(&text), text.len };
        int flags = (int)(test_random() % 16);
        size_t cuts[3] = { 0, 0, s.len };
        cuts[1] = s.len ? test_random() % (s.len + 1) : 0;
        cuts[0] = cuts[1] ? test_random() % (cuts[1] + 1) : 0;
        struct heard whole = feed(name, flags, s, cuts + 2, 1, tools), cut = feed(name, flags, s, cuts, 3, tools);
        CHECK(!strcmp(buf_text(&whole.text), buf_text(&cut.text)), "%s, flags %d, cut at %zu, %zu: %s\n  whole %s\n  cut   %s", name, flags,
              cuts[0], cuts[1], s.at, buf_text(&whole.text), buf_text(&cut.text));
        buf_drop(&whole.text);
        buf_drop(&cut.text);
        buf_drop(&text);
    }
    json_decref(tools);
}

TEST(invalid_bytes_of_a_model_become_replacement_characters)
{
    struct heard h = feed("hermes", 0, str_of("Belgium.\x80 rest"), (size_t[]){ 3, 9, 14 }, 3, NULL);
    CHECK_STR(buf_text(&h.text), "C:Belgium.\xef\xbf\xbd rest");
    buf_drop(&h.text);
    h = feed("hermes", 0, str_of("a\xe2\x82"), (size_t[]){ 2, 3 }, 2, NULL);
    CHECK_STR(buf_text(&h.text), "C:a\xef\xbf\xbd");
    buf_drop(&h.text);
}

TEST(dialects_follow_the_template)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        { "x <tool_call>\n{\"name\": .., \"arguments\": ..}", "hermes" },
        { "<tool_call><function=a><parameter=b>", "xml" },
        { "<tool_call>a<arg_key>", "laguna" },
        { "<role>HUMAN</role>hi<|role_end|> <tool_call>a<arg_key>", "ling" },
        { "<role>HUMAN</role>hi<|role_end|> <tool_call>", "hermes" },
        { "<｜DSML｜tool_calls>", "deepseek" },
        { "{{ '<|tool_call>call:' + name }}", "gemma" },
        { "[TOOL_CALLS] [ARGS]", "mistral-args" },
        { "[TOOL_CALLS]", "mistral" },
        { "<|start_header_id|> \"parameters\"", "llama" },
        { "<|im_start|>", "none" },
        { "", "none" },
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        CHECK_STR(dialect_name(dialect_for(str_of(rows[i].text))), rows[i].want);
    const struct dialect *d = dialect_for(str_of("<tool_call>"));
    CHECK(dialect_starts_in_reasoning(d, str_of("<|im_start|>assistant\n<think>\n")));
    CHECK(!dialect_starts_in_reasoning(d, str_of("<think>\n\n</think>\n\n")));
}

TEST(held_back_text_is_the_longest_start_of_a_mark)
{
    static const char *const marks[] = { "</stop>", "STOP", "" };
    CHECK_EQ(held_back(str_of("abc </st"), marks, 3), 4);
    CHECK_EQ(held_back(str_of("abc STO"), marks, 3), 3);
    CHECK_EQ(held_back(str_of("abc STOP"), marks, 3), 0);
    CHECK_EQ(held_back(str_of(""), marks, 3), 0);
}

static void count(void *user, const struct reply_event *e)
{
    *(size_t *)user += e->text.len;
}

TEST(replies_survive_any_failed_allocation)
{
    static const char text[] = "hm</think>\nsay\n<tool_call>\n<function=f>\n<parameter=s>\nBrest and more of it\n</parameter>\n</function>\n</tool_call>";
    json_t *tools = json_loads(tools_text, 0, NULL);
    size_t before = mem_live();
    for (int n = 0;; n++) {
        struct reply *r = NULL;
        size_t bytes = 0;
        luce_error err = { 0 };
        struct reply_params p = { .dialect = dialect_named("xml"), .tools = tools, .in_reasoning = true, .on_event = count, .user = &bytes };
        mem_fail_after(n);
        luce_status st = reply_open(&r, &p, &err);
        if (!st) {
            for (size_t i = 0; text[i]; i++) reply_add(r, (struct str){ text + i, 1 });
            st = reply_end(r, false, &err);
        }
        mem_fail_never();
        reply_close(r);
        CHECK_EQ(mem_live(), before);
        if (st == LUCE_OK) break;
        CHECK_EQ(st, LUCE_E_NOMEM);
    }
    json_decref(tools);
}
#endif
