/* tests/test_call_habits.c - calls as models are known to write them beside the form of their dialect: what is
 * meant without doubt is a call, the rest is text, unchanged. */
#ifdef LUCE_HAVE_JSON
#include "tests/heard.h"

static const struct {
    const char *dialect;
    int flags;
    const char *text, *want;
} habits[] = {
    /* What models are known to write beside their dialect. */
    { "hermes", 0, "{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>",
      "{f:{\"n\": 1}:whole}" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}}\n</tool_call>",
      "{f:{\"n\": 1}:whole}" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}\n</tool_call>",
      "{f:{\"n\": 1}:whole}" },
    { "hermes", 0, "<tool_call>\n{{\"name\": \"f\", \"arguments\": {\"n\": 1}}}\n</tool_call>",
      "{f:{\"n\": 1}:whole}" },
    { "hermes", 0, "<tool_call>\n{{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>",
      "{f:{\"n\": 1}:whole}" },
    { "hermes", 0, "<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 1}}<tool_call>{\"name\": \"g\"}</tool_call>",
      "{f:{\"n\": 1}:whole}{g:{}:whole}" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": null}\n</tool_call>",
      "{f:{}:whole}" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": \"\"}\n</tool_call>",
      "{f:{}:whole}" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": \"{\\\"s\\\": \\\"a\\\\nb\\\", \\\"n\\\": 9223372036854775808}\"}\n</tool_call>",
      "{f:{\"s\": \"a\\nb\", \"n\": 9223372036854775808}:whole}" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": \"n = 1\"}\n</tool_call>",
      "C:<tool_call>\n{\"name\": \"f\", \"arguments\": \"n = 1\"}\n</tool_call>" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": [1]}\n</tool_call>",
      "C:<tool_call>\n{\"name\": \"f\", \"arguments\": [1]}\n</tool_call>" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a\nb	c\"}}\n</tool_call>",
      "{f:{\"s\": \"a\\nb\\tc\"}:whole}" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"\\d+\\.\\'\"}}\n</tool_call>",
      "{f:{\"s\": \"\\\\d+\\\\.\\\\'\"}:whole}" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"\\ud83d\\ude42 \\ud83d x\"}}\n</tool_call>",
      "{f:{\"s\": \"\\ud83d\\ude42 \\ufffd x\"}:whole}" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 18446744073709551617, \"x\": -1.50e+400}}\n</tool_call>",
      "{f:{\"n\": 18446744073709551617, \"x\": -1.50e+400}:whole}" },
    { "hermes", 0, "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"a\" \"n\": 1}}</tool_call>\n<tool_call>\n"
      "{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>",
      "C:<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"a\" \"n\": 1}}</tool_call>{f:{\"n\": 1}:whole}" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1,}}\n</tool_call>",
      "C:<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1,}}\n</tool_call>" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {n: 1}}\n</tool_call>",
      "C:<tool_call>\n{\"name\": \"f\", \"arguments\": {n: 1}}\n</tool_call>" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 01}}\n</tool_call>",
      "C:<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 01}}\n</tool_call>" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": True}}\n</tool_call>",
      "C:<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": True}}\n</tool_call>" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"\", \"arguments\": {}}\n</tool_call>",
      "C:<tool_call>\n{\"name\": \"\", \"arguments\": {}}\n</tool_call>" },
    { "hermes", 0, "<tool_call>\n{\"arguments\": {}}\n</tool_call>",
      "C:<tool_call>\n{\"arguments\": {}}\n</tool_call>" },
    { "hermes", 0, "<tool_call>\n{\"name\": 3, \"arguments\": {}}\n</tool_call>",
      "C:<tool_call>\n{\"name\": 3, \"arguments\": {}}\n</tool_call>" },
    { "hermes", 0, "<tool_call>\n[]\n</tool_call>",
      "C:<tool_call>\n[]\n</tool_call>" },
    { "hermes", 0, "<tool_call>\n{}\n</tool_call>",
      "C:<tool_call>\n{}\n</tool_call>" },
    { "hermes", 0, "<tool_call>\n\"f\"\n</tool_call>",
      "C:<tool_call>\n\"f\"\n</tool_call>" },
    { "hermes", 0, "<tool_call>\n\n</tool_call>",
      "C:<tool_call>\n\n</tool_call>" },
    { "hermes", 0, "<tool_call>\n[{\"name\": \"f\", \"arguments\": {\"n\": 1}}, {\"name\": \"g\"}]\n</tool_call>after",
      "{f:{\"n\": 1}:whole}{g:{}:whole}C:after" },
    { "hermes", 0, "<tool_call>[{\"name\": \"f\", \"arguments\": {\"n\": 1}},\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}</tool_call>",
      "{f:{\"n\": 1}:whole}{f:{\"n\": 1}:whole}" },
    { "hermes", 0, "<tool_call>[{\"name\": \"f\", \"arguments\": {\"n\": 1}}, 3]</tool_call>",
      "{f:{\"n\": 1}:whole}C: 3]</tool_call>" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"made_up\", \"arguments\": {\"a\": 1}}\n</tool_call>",
      "{made_up:{\"a\": 1}:whole}" },
    { "hermes", 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"<tool_call>{\\\"name\\\": \\\"g\\\"}</tool_call> <think> </think>\"}}\n"
      "</tool_call>",
      "{f:{\"s\": \"<tool_call>{\\\"name\\\": \\\"g\\\"}</tool_call> <think> </think>\"}:whole}" },
    { "hermes", 0, "<tool_call>\n{\"id\": \"1\", \"type\": \"function\", \"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>",
      "{f:{\"n\": 1}:whole}" },
    { "xml", 0, "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n</function>\n<function=g>\n</function>\n</tool_call>",
      "{f:{\"n\": 1}:whole}{g:{}:whole}" },
    { "xml", 0, "<function=f>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>",
      "{f:{\"n\": 1}:whole}" },
    { "xml", 0, "<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n</function>",
      "{f:{\"s\": \"a\"}:whole}" },
    { "xml", 0, "<tool_call>\n<function=f>\n<parameter=s>\nBrest\n</function>\n</tool_call>",
      "{f:{\"s\": \"Brest\"}:whole}" },
    { "xml", 0, "<tool_call><function=f><parameter=s>Brest</function></tool_call>",
      "{f:{\"s\": \"Brest\"}:whole}" },
    { "xml", 0, "<tool_call><function=f><parameter=n>1</function></tool_call><tool_call><function=g></function></tool_call>",
      "{f:{\"n\": 1}:whole}{g:{}:whole}" },
    { "xml", 0, "<tool_call>\n<function=f>\n<parameter=n>\n12\n",
      "C:<tool_call>\n<function=f>\n<parameter=n>\n12\n" },
    { "xml", CUT, "<tool_call>\n<function=f>\n<parameter=n>\n12\n",
      "{f:{\"n\": 12:cut}" },
    { "xml", 0, "<tool_call>\n<function=f>\n<parameter=i?>\n3\n</parameter>\n<parameter=s?>\n3\n</parameter>\n<parameter=s|l>\n[\"a\"]\n"
      "</parameter>\n<parameter=e>\n1\n</parameter>\n<parameter=r>\n7\n</parameter>\n</function>\n</tool_call>",
      "{f:{\"i?\": 3, \"s?\": \"3\", \"s|l\": [\"a\"], \"e\": \"1\", \"r\": 7}:whole}" },
    { "xml", 0, "<tool_call>\n<function=f>\n<parameter=i?>\nNone\n</parameter>\n<parameter=s|l>\na b\n</parameter>\n<parameter=o>\n"
      "{\"a\": [18446744073709551617]}\n</parameter>\n</function>\n</tool_call>",
      "{f:{\"i?\": null, \"s|l\": \"a b\", \"o\": {\"a\": [18446744073709551617]}}:whole}" },
    { "xml", 0, "<tool_call>\n<function=f>\n<parameter=n>\n18446744073709551617\n</parameter>\n<parameter=x>\n1e999\n</parameter>\n<parameter=n2>\n"
      "5\n</parameter>\n</function>\n</tool_call>",
      "{f:{\"n\": 18446744073709551617, \"x\": 1e999, \"n2\": \"5\"}:whole}" },
    { "xml", 0, "<tool_call>\n<function=f>\n<parameter=s>\n{\"a\": 1}\n</parameter>\n<parameter=t>\ntrue\n</parameter>\n</function>\n</tool_call>",
      "{f:{\"s\": \"{\\\"a\\\": 1}\", \"t\": \"true\"}:whole}" },
    { "xml", 0, "<tool_call>\n<function=f>\n<parameter=o>\n{'a': 1}\n</parameter>\n</function>\n</tool_call>",
      "{f:{\"o\": \"{'a': 1}\"}:whole}" },
    { "deepseek", 0, "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"n\">2</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"s\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
      "{f:{\"n\": 2, \"s\": \"2\"}:whole}" },
    { "deepseek", 0, "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" string=\"true\"><a href=\"x\">&amp; &lt;</a>\n"
      "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
      "{f:{\"s\": \"<a href=\\\"x\\\">&amp; &lt;</a>\\n\"}:whole}" },
    { "deepseek", 0, "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"n\" string=\"false\">18446744073709551617</｜DSML｜paramete"
      "r>\n<｜DSML｜parameter name=\"o\" string=\"false\">{bad}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
      "{f:{\"n\": 18446744073709551617, \"o\": \"{bad}\"}:whole}" },
    { "gemma", 0, "<|tool_call>call:f{n:18446744073709551617,x:-1.5e3,s:<|\"|>\"q\" {a:1}, [b]<|\"|>}<tool_call|>",
      "{f:{\"n\": 18446744073709551617, \"x\": -1.5e3, \"s\": \"\\\"q\\\" {a:1}, [b]\"}:whole}" },
    { "gemma", 0, "<|tool_call>call:f{s:\"a\\d\n\"}<tool_call|>",
      "{f:{\"s\": \"a\\\\d\\n\"}:whole}" },
    { "gemma", 0, "<|tool_call>call:f{n:1,}<tool_call|>",
      "C:<|tool_call>call:f{n:1,}<tool_call|>" },
    { "gemma", 0, "<|tool_call>call:f{n:1]<tool_call|>",
      "C:<|tool_call>call:f{n:1]<tool_call|>" },
    { "gemma", 0, "<|tool_call>call:f{n:}<tool_call|>",
      "C:<|tool_call>call:f{n:}<tool_call|>" },
    { "gemma", 0, "<|tool_call>call:f{n 1}<tool_call|>",
      "C:<|tool_call>call:f{n 1}<tool_call|>" },
    { "gemma", 0, "<|tool_call>call:f<tool_call|>",
      "C:<|tool_call>call:f<tool_call|>" },
    { "gemma", 0, "<|tool_call>f{n:1}<tool_call|>",
      "C:<|tool_call>f{n:1}<tool_call|>" },
    { "gemma", 0, "<|tool_call>call:f{o:{a:1}<tool_call|>",
      "C:<|tool_call>call:f{o:{a:1}<tool_call|>" },
    { "gemma", 0, "<|tool_call>call:{n:1}<tool_call|>",
      "C:<|tool_call>call:{n:1}<tool_call|>" },
    { "gemma", 0, "<|tool_call>call:f{n:1}",
      "{f:{\"n\": 1}:whole}" },
    { "gemma", 0, "<|tool_call> call:f{ n: 1 , l: [ ] } <tool_call|>",
      "{f:{\"n\": 1, \"l\": []}:whole}" },
    { "laguna", 0, "<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>18446744073709551617</arg_value>\n</tool_call>",
      "{f:{\"n\": 18446744073709551617}:whole}" },
    { "laguna", 0, "<tool_call>f\n<arg_key>n</arg_key>\nx</tool_call>",
      "C:<tool_call>f\n<arg_key>n</arg_key>\nx</tool_call>" },
    { "laguna", 0, "<tool_call>f<arg_value>1</arg_value></tool_call>",
      "C:<tool_call>f<arg_value>1</arg_value></tool_call>" },
    { "laguna", 0, "<tool_call></tool_call>",
      "C:<tool_call></tool_call>" },
    { "laguna", 0, "<tool_call>f\n<arg_key>n</arg_key><arg_value>1",
      "C:<tool_call>f\n<arg_key>n</arg_key><arg_value>1" },
    { "llama", 0, "{\"name\": \"f\", \"parameters\": {\"n\": 1}}\n{\"name\": \"g\", \"parameters\": {}}",
      "{f:{\"n\": 1}:whole}{g:{}:whole}" },
    { "llama", 0, "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"n\": 1}}",
      "{f:{\"n\": 1}:whole}" },
    { "llama", 0, "{\"name\": \"f\", \"arguments\": {\"n\": 1}}",
      "{f:{\"n\": 1}:whole}" },
    { "llama", 0, "{\"name\": \"f\", \"parameters\": {\"n\": 1}}}",
      "{f:{\"n\": 1}:whole}" },
    { "llama", 0, "{\"name\": \"f\", \"parameters\": {\"n\": 1}",
      "{f:{\"n\": 1}:whole}" },
    { "llama", 0, "<|python_tag|>import os\nos.call(x=1)",
      "C:<|python_tag|>import os\nos.call(x=1)" },
    { "llama", 0, "<|python_tag|>f.call(s='it\\'s \"a\"', b=True, x=None, l=[1, {\"a\": 2}])",
      "{f:{\"s\": \"it's \\\"a\\\"\", \"b\": true, \"x\": null, \"l\": [1, {\"a\": 2}]}:whole}" },
    { "llama", 0, "<|python_tag|>f.call(1)",
      "C:<|python_tag|>f.call(1)" },
    { "llama", 0, "<|python_tag|>f.call(s=\"a\"",
      "C:<|python_tag|>f.call(s=\"a\"" },
    { "llama", 0, "<|python_tag|>f.call(s=x)",
      "C:<|python_tag|>f.call(s=x)" },
    { "llama", 0, "<|python_tag|>f.call(,)",
      "C:<|python_tag|>f.call(,)" },
    { "llama", 0, "<|python_tag|>f.call(s=\"a\" n=1)",
      "C:<|python_tag|>f.call(s=\"a\" n=1)" },
    { "llama", 0, "<|python_tag|>f.call(s=\"a\",,n=1)",
      "C:<|python_tag|>f.call(s=\"a\",,n=1)" },
    { "llama", 0, "{\"name\": \"Bob\", \"age\": 3}",
      "C:{\"name\": \"Bob\", \"age\": 3}" },
    { "llama", 0, "{\"type\": \"object\", \"properties\": {}}",
      "C:{\"type\": \"object\", \"properties\": {}}" },
    { "mistral", 0, "[TOOL_CALLS] [{\"arguments\": {\"n\": 1}, \"name\": \"f\"}]",
      "{f:{\"n\": 1}:whole}" },
    { "mistral", 0, "[TOOL_CALLS]{\"name\": \"f\", \"arguments\": {\"n\": 1}}",
      "{f:{\"n\": 1}:whole}" },
    { "mistral", 0, "[TOOL_CALLS]f{\"n\": 1}",
      "{f:{\"n\": 1}:whole}" },
    { "mistral", 0, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"n\": 1}}",
      "{f:{\"n\": 1}:whole}" },
    { "mistral-args", 0, "[TOOL_CALLS]f[ARGS]{\"n\": 18446744073709551617}",
      "{f:{\"n\": 18446744073709551617}:whole}" },
    { "mistral-args", 0, "[TOOL_CALLS]f[ARGS]{\"s\": \"[TOOL_CALLS]g[ARGS]{}\"}after",
      "{f:{\"s\": \"[TOOL_CALLS]g[ARGS]{}\"}:whole}C:after" },
    { "mistral-args", 0, "[TOOL_CALLS]f[ARGS]",
      "C:[TOOL_CALLS]f[ARGS]" },
    { "mistral-args", 0, "[TOOL_CALLS]f[ARGS][1]",
      "C:[TOOL_CALLS]f[ARGS][1]" },
    { "mistral-args", 0, "[TOOL_CALLS]f[ARGS]{\"n\": }",
      "C:[TOOL_CALLS]f[ARGS]{\"n\": }" },
    { "mistral-args", 0, "[TOOL_CALLS][ARGS]{}",
      "C:[TOOL_CALLS][ARGS]{}" },
    { "mistral-args", 0, "[TOOL_CALLS]f[CALL_ID]1",
      "C:[TOOL_CALLS]f[CALL_ID]1" },
    { "mistral-args", 0, "[TOOL_CALLS]a b[ARGS]{}",
      "C:[TOOL_CALLS]a b[ARGS]{}" },
};

TEST(calls_as_models_are_known_to_write_them)
{
    for (size_t i = 0; i < COUNT(habits); i++) check_text(habits[i].dialect, habits[i].flags, habits[i].text, habits[i].want);
}

/* ---- end tags left out ----------------------------------------------------------------------------- */

#define F(value) "<function=f>\n<parameter=s>\n" value "\n</parameter>\n"
#define G "<function=g>\n<parameter=s>\ncd\n</parameter>\n</function>\n</tool_call>"
#define PAIR(value) "<arg_key>s</arg_key>\n<arg_value>" value "</arg_value>\n"
#define D "<｜DSML｜"
#define INVOKE(name, value) D "invoke name=\"" name "\">\n" D "parameter name=\"s\" string=\"true\">" value "</｜DSML｜parameter>\n"
#define ENDED "</｜DSML｜invoke>\n"
#define ALL_ENDED "</｜DSML｜tool_calls>"
#define BOTH "{f:{\"s\": \"ab\"}:whole}{g:{\"s\": \"cd\"}:whole}"

TEST(calls_without_some_end_tag_are_two_calls)
{
    static const struct {
        const char *dialect, *text;
    } cases[] = {
        { "xml", "<tool_call>\n" F("ab") "</function>\n<tool_call>\n" G },
        { "xml", "<tool_call>\n" F("ab") "</function>\n" G },
        { "xml", "<tool_call>\n" F("ab") G },
        { "xml", "<tool_call>\n" F("ab") "<tool_call>\n" G },
        { "xml", "<tool_call>\n" F("ab") "</function>\n</tool_call>\n" G },
        { "xml", "<tool_call>\n" F("ab") "</tool_call>\n<tool_call>\n" G },
        { "xml", "<tool_call>\n" F("ab") "</function></function>\n</tool_call>\n<tool_call>\n" G },
        { "xml", "<tool_call>\n" F("ab") "</function></function>\n<tool_call>\n" G },
        { "xml", "<tool_call>\n<function=f>\n<parameter=s>\nab\n</function>\n<tool_call>\n" G },
        { "xml", F("ab") "</function>\n" G },
        { "laguna", "<tool_call>f\n" PAIR("ab") "<tool_call>g\n" PAIR("cd") "</tool_call>" },
        { "deepseek", D "tool_calls>\n" INVOKE("f", "ab") INVOKE("g", "cd") ENDED ALL_ENDED },
        { "deepseek", D "tool_calls>\n" INVOKE("f", "ab") ENDED D "tool_calls>\n" INVOKE("g", "cd") ENDED ALL_ENDED },
        { "deepseek", D "tool_calls>\n" INVOKE("f", "ab") D "tool_calls>\n" INVOKE("g", "cd") ENDED ALL_ENDED },
        { "deepseek", D "tool_calls>\n" INVOKE("f", "ab") ALL_ENDED "\n" D "tool_calls>\n" INVOKE("g", "cd") ENDED ALL_ENDED },
    };
    for (size_t i = 0; i < COUNT(cases); i++) check_text(cases[i].dialect, 0, cases[i].text, BOTH);
    check_text("xml", 0, "<tool_call>\n" F("ab") "</function>\nNow g.\n<tool_call>\n" G,
               "{f:{\"s\": \"ab\"}:whole}C:Now g.{g:{\"s\": \"cd\"}:whole}");
}

#define LONG_20 "abcdefghijklmnopqrs "
#define LONG_200 LONG_20 LONG_20 LONG_20 LONG_20 LONG_20 LONG_20 LONG_20 LONG_20 LONG_20 LONG_20
#define LONG LONG_200 LONG_200 LONG_200

TEST(prose_after_a_call_without_its_end_tags_is_content)
{
    static const struct {
        const char *dialect, *text, *content;
    } cases[] = {
        { "xml", "<tool_call>\n" F(LONG) "</function>\nNow I wait.", "Now I wait." },
        { "xml", "<tool_call>\n" F(LONG) "</tool_call>\nDone", "Done" },
        { "xml", "<tool_call>\n" F(LONG) "Done", "Done" },
        { "xml", "<tool_call>\n" F(LONG) "</function></function>\n</tool_call>Done", "Done" },
        { "xml", "<tool_call>\n" F(LONG) "</function>\n</tool_calls>\nDone", "</tool_calls>\nDone" },
        { "xml", F(LONG) "</function>\nDone", "Done" },
        { "laguna", "<tool_call>f\n" PAIR(LONG) "Now prose.", "Now prose." },
        { "deepseek", D "tool_calls>\n" INVOKE("f", LONG) ENDED "Now I wait.", "Now I wait." },
        { "deepseek", D "tool_calls>\n" INVOKE("f", LONG) ALL_ENDED "\nprose", "prose" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct told t = read_any_way(cases[i].dialect, 0, str_of(cases[i].text));
        CHECK_EQ(t.n, 1);
        CHECK_STR(buf_text(&t.args[0]), "{\"s\": \"" LONG "\"}");
        CHECK_STR(buf_text(&t.content), cases[i].content);
        told_drop(&t);
    }
    /* A short one, too, where its own end is there; without that it is text. Limits cut prose, not the call. */
    check_text("xml", 0, "<tool_call>\n" F("ab") "</function>\nDone", "{f:{\"s\": \"ab\"}:whole}C:Done");
    check_text("xml", CUT, "<tool_call>\n" F("ab") "</function>\nDo", "{f:{\"s\": \"ab\"}:whole}C:Do");
    check_text("xml", CUT, "<tool_call>\n" F("ab") "Do", "{f:{\"s\": \"ab\\n</parameter>\\nDo:cut}");
    check_text("laguna", 0, "<tool_call>f\n" PAIR("ab") "Done", "C:<tool_call>f\n" PAIR("ab") "Done");
    check_text("xml", 0, "<tool_call>\n" F("a </parameter></function> b") "</function>\n</tool_call>",
               "{f:{\"s\": \"a </parameter></function> b\"}:whole}");
}
#endif
