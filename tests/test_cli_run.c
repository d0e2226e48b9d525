/* tests/test_cli_run.c - the commands that load a model, as a user runs them, on the tiny model. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "test.h"
#include "tiny_model.h"

#ifdef LUCE_PROGRAM

/* Runs "luce ARGS" by the shell, with % for the model; both outputs together. Returns the exit code. */
static int run(struct buf *out, const char *args)
{
    struct buf line = { 0 };
    buf_printf(&line, "%s ", LUCE_PROGRAM);
    for (; *args; args++) {
        if (*args == '%') buf_add_text(&line, tiny_model());
        else buf_add_char(&line, *args);
    }
    buf_add_text(&line, " 2>&1");
    int code = test_shell(out, buf_text(&line));
    buf_drop(&line);
    return code;
}

#define TEN(x) x x x x x x x x x x
#define LONG_TEXT TEN(TEN("abcd"))                    /* a token a byte */

static const struct { const char *args; int code; const char *says[4]; } rows[] = {
    { "run -m % -p hello -n 6 --ignore-end --json", 0,
      { "\"finish\":\"length\"", "\"generated_tokens\":6", "\"prompt_tokens\":5", "\"load_seconds\":" } },
    { "run -m % -p hello -n 6 --temperature 1 --seed 7 --top-k 20 --min-p 0.01 --json", 0, { "\"seed\":7" } },
    { "run -m % -n 4 --json < /dev/null", 2, { "the prompt is empty" } },
    { "run -p x", 2, { "no model: give -m FILE" } },
    { "run -m % -p x -f y", 2, { "give one of them" } },
    { "run -m /nowhere.gguf -p x", 1, { "No such file" } },
    { "run -m % -p x -c 401", 1, { "takes up to 400", "; give -c 400 or less, or 0" } },
    { "run -m % -p x -c 100000000", 1, { "this model takes up to 400, and 400 fit the memory" } },
    { "run -m % -p x --device moon", 2, { "there is no device 'moon'" } },
    { "run -m % -p x --cache-type-k q9", 2, { "cache type 'q9'" } },
    { "run -m % -p x -n 500", 1, { "1 prompt tokens and 500 to generate exceed the context of 400" } },
    { "run -m % -n 1 -p " LONG_TEXT, 1, { "400 prompt tokens and 1 to generate exceed the context of 400" } },
    { "run -m % -n 1 --special --bos -p x", 2, { "no option '--bos'" } },
    { "run -m % -p x --top-p 0.9", 2, { "--top-p: it has no effect without --temperature" } },
    { "run -m % -p x --top-k 4 --temperature 0", 2, { "--top-k: it has no effect without --temperature" } },
    { "run -m % -p x --top-p 2", 2, { "from 0 to 1" } },
    { "run -m % -p x --top-p 0x1", 2, { "'0x1' is not a number from 0 to 1" } },
    { "run -m % -p x --top-p +1", 2, { "'+1' is not a number" } },
    { "run -m % -p x --top-p ' 1'", 2, { "' 1' is not a number" } },
    { "run -m % -p x --top-p .", 2, { "'.' is not a number" } },
    { "run -m % -p x --top-p 1e", 2, { "'1e' is not a number" } },
    { "run -m % -p x --temperature nan", 2, { "'nan' is not a number" } },
    { "run -m % -p x --temperature inf", 2, { "'inf' is not a number" } },
    { "run -m % -p x -n +5", 2, { "'+5' is not a whole number" } },
    { "run -m % -p x -n 0x10", 2, { "'0x10' is not a whole number" } },
    { "run -m % -p x -n -", 2, { "'-' is not a whole number" } },
    { "run -m % -p x -n 1 --temperature .5 --min-p 1.e-2 --presence-penalty -1.5 --json", 0, { "\"finish\"" } },
    { "run -m % --chat -p '<|im_end|>' -n 1 --json", 0, { "\"prompt_tokens\":29" } },
    { "run -m % --chat --special -p '<|im_end|>' -n 1 --json", 0, { "\"prompt_tokens\":20" } },
    { "inspect % --check", 0, { "loads it" } },
    { "inspect % --check -c 500", 1, { "takes up to 400" } },
    { "inspect % --tape --width 4", 0, { "token_embd.weight", "rope_kv", "attn", "arena: " } },
    { "inspect % --trace-ops --width 3 --prompt abcdefgh", 0, { "argmax", "3 rows after 5 positions", "GB/s" } },
    { "inspect % --check-against-reference --prompt abcdefgh", 0, { "nmse", "argmax", "linear" } },
    { "inspect % --check-against-reference -c 3", 0, { "argmax" } },
    { "inspect % --trace-ops --width 64 -c 64", 0, { "64 rows after 0 positions" } },
    { "inspect % --trace-ops --width 64 -c 63", 2, { "does not fit a context of 63" } },
    { "inspect % --check --tape", 2, { "one at a time" } },
    { "devices", 0, { "cpu", "cores" } },
    { "devices --json", 0, { "\"id\":\"cpu\"", "\"memory_free\":" } },
    { "bench -m % --only decode --repeat 1 --depth 70 --json", 0,
      { "\"results\":[{\"test\":\"decode\",\"width\":1,\"depth\":70", "\"limit_share\":", "\"read_bytes_per_s\":", "\"commit\":" } },
    { "bench --synthetic qwen3-32b:f32 -c 40960", 1,
      { "too little memory: weights 1", " + cache ", " + scratch ", " MiB free (" } },
    { "run -m % -p x --chunk 8192", 2, { "from 0 to 4096" } },
    { "run -m % -p x --penalty-window 1000000001", 2, { "from 1 to 1000000000" } },
    { "run -m % -p x --penalty-window 1000000000 -n 1", 0, { "\n" } },
    { "run -m % -p x --seed 18446744073709551616", 2, { "--seed: '18446744073709551616' is not a whole number of 64 bits" } },
    { "run -m % -p x --seed -9223372036854775809", 2, { "not a whole number of 64 bits, or -1 for a random one" } },
    { "run -m % -p x --seed 1.5", 2, { "not a whole number of 64 bits" } },
    { "run -m % -p x --seed 18446744073709551615 -n 1 --json", 0, { "\"seed\":18446744073709551615" } },
    { "run -m % -p x --seed -2 -n 1 --json", 0, { "\"seed\":18446744073709551614" } },
    { "run -m % -p x --system y", 2, { "--system: it has no effect without --chat" } },
    { "run -m % -p x --draft-max 4", 2, { "--draft-max: it has no effect without --spec or --draft" } },
    { "bench -m % --only decode --only prefill --repeat 1 --depth 0,70 --prompt-tokens 1,65 --json", 0,
      { "\"depth\":[0,70]", "\"prompt_tokens\":[1,65]", "\"width\":1,\"depth\":70", "\"width\":65,\"depth\":0" } },
    { "bench -m % --only batch --repeat 1 --depth 3 --json", 0,
      { "\"test\":\"batch\",\"width\":1,\"depth\":3", "\"test\":\"batch\",\"width\":64,\"depth\":3" } },
    { "bench -m % --only load --depth 0 --json", 0, { "\"load_seconds\":", "\"results\":[]" } },
    { "bench -m % --only load --depth 0", 0, { "\nload " } },
    { "bench -m % --only load --depth 0 | grep -c best", 1, { "0\n" } },
    { "run -m " LUCE_SOURCE_DIR "/drafters/smollm2-135m-dflash.gguf -p x", 3,
      { "smollm2-135m-dflash.gguf is a drafter, not a model: give it with --draft beside its model" } },
    { "inspect " LUCE_SOURCE_DIR "/drafters/smollm2-135m-dflash.gguf --check", 3, { "is a drafter, not a model" } },
    { "--man no_such_folder", 1, { "--man no_such_folder: No such file or directory; make it first" } },
    { "bench -m % --depth 5,x", 2, { "--depth: 'x' is not a whole number from 0" } },
    { "bench -m % --depth 5,", 2, { "--depth: '' is not a whole number from 0" } },
    { "bench -m % --depth 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", 2, { "a list of more than 16 numbers" } },
    { "bench -m % --draft-right 4", 2, { "--draft-right: it has no effect without --spec" } },
    { "bench -m % --log steps.log", 2, { "--log: it has no effect without --spec" } },
    { "bench -m % --spec ngram --only prose -n 12 --log no_such_folder/steps.log --prompts " LUCE_SOURCE_DIR
      "/bench/prompts", 1, { "no_such_folder/steps.log" } },
    { "bench -m % --spec ngram --depth 4", 2, { "--depth: it has no effect beside --spec or --draft" } },
    { "inspect % --width 4", 2, { "--width: it has no effect without --tape or --trace-ops" } },
    { "inspect % --tape --json", 2, { "--json: it has no effect beside --tape" } },
    { "inspect % --tape --json=no", 0, { "arena: " } },
    { "tokenize -m % --decode --pieces 1", 2, { "--pieces: it has no effect beside --decode" } },
    { "bench -m % --only decode", 1, { "--depth 512: decode needs a context of 513, this model takes up to 400; lower it" } },
    { "bench -m % --only batch --depth 400", 1, { "--depth 400: batch needs a context of 401, this model" } },
    { "bench -m % --only step --depth 337", 1, { "--depth 337: step needs a context of 401, this model" } },
    { "bench -m % --only prefill --prompt-tokens 401", 1, { "--prompt-tokens 401: prefill needs a context of 401, this model" } },
    { "bench -m % --only decode --depth 3 -c 3", 1, { "--depth 3: decode needs a context of 4, --context is 3; lower the one or raise" } },
    { "bench -m % --only prefill --prompt-tokens 4 -c 3", 1, { "--prompt-tokens 4: prefill needs a context of 4, --context is 3" } },
    { "bench -m % --only decode --depth 3 -c 401", 1, { "a context of 401 positions; this model takes up to 400" } },
    { "bench -m % --only decode --only step --only batch --repeat 1 --depth 336", 0, { "decode", "step", "batch" } },
    { "bench -m % --only decode --only batch --repeat 1 --depth 399 --json", 0, { "\"context\":400,", "\"depth\":399" } },
    { "bench -m % --only decode --repeat 1 --depth 3 -c 4 --json", 0, { "\"context\":4," } },
    { "bench -m % --only prefill --repeat 1 --prompt-tokens 400 --json", 0, { "\"context\":400,", "\"width\":400" } },
    { "bench -m % --only load --json", 0, { "\"context\":400," } },
    { "bench -m " LUCE_SOURCE_DIR "/tests/fixtures/oracle/qwen35.gguf --only decode --repeat 1 --depth 70 -c 71", 0, { "decode" } },
    { "doctor nonsense", 2, { "no op 'nonsense'; known: ", "linear", "attn" } },
    { "--help run", 2, { "'run' is too much" } },
    { "--version x", 2, { "'x' is too much" } },
    { "bench --synthetic nothing:q8_0", 2, { "llama-135m" } },
    { "bench", 2, { "--model FILE or --synthetic" } },
    { "bench -m % --only speed", 2, { "load, decode, batch, step, prefill" } },
    { "run -m % -p x --spec scripted", 2, { "which only 'luce bench' does" } },
    { "run -m % -p x --spec crystal-ball", 2, { "known: none, ngram, draft-model, dflash, dflash2" } },
    { "run -m % -p x --draft no_such.gguf", 1, { "no_such.gguf" } },
    { "run -m % -p x --spec ngram --draft-max 64", 2, { "from 0 to 63" } },
    { "run -m % -p x --draft /proc/self/fd", 2, { "holds 0 GGUF files" } },
    { "run % -p x -n 2", 0, { "" } },
    { "run % -m % -p x -n 2", 2, { "two models" } },
    { "run % % -p x -n 2", 2, { "too much; usage: luce run [options] [MODEL]" } },
    { "inspect -m %", 0, { "token_embd.weight" } },
    { "inspect", 2, { "the model is missing; usage: luce inspect [options] MODEL" } },
    { "bench % --only decode --repeat 1 --depth 70 --prompt-tokens 64", 0, { "decode" } },
    { "run -m % -p x -n 2 --ignore-end --draft none --ddtree-tau 3", 0, { "" } },
    { "run -m % -p abababab -n 30 --ignore-end --spec ngram --json", 0,
      { "\"drafter\":\"ngram\"", "\"drafted_tokens\":", "\"accepted_tokens\":", "\"declined_steps\":" } },
    { "bench -m % --spec ngram --only prose -n 12 --prompts " LUCE_SOURCE_DIR "/bench/prompts", 0,
      { "drafter ngram", "prose", "speed-up", "verify" } },
    { "bench -m % --spec scripted --draft-right 3 --only prose -n 12 --json --prompts " LUCE_SOURCE_DIR
      "/bench/prompts", 0, { "\"set\":\"prose\"", "\"tokens_per_step\":", "\"speed_up\":", "\"acceptance\":" } },
    { "bench -m % --spec ngram --only decode", 2, { "code, chat, math, prose, repeat" } },
    { "bench -m % --spec ngram --prompts no_such_folder", 2, { "no set is there" } },
};

TEST(cli_commands_that_load_a_model)
{
    struct buf out = { 0 };
    if (!tiny_model()) return;
    for (size_t i = 0; i < COUNT(rows); i++) {
        int code = run(&out, rows[i].args);
        CHECK(code == rows[i].code, "luce %s: exit %d: %s", rows[i].args, code, buf_text(&out));
        for (int j = 0; j < 4 && rows[i].says[j]; j++)
            CHECK(strstr(buf_text(&out), rows[i].says[j]), "luce %s lacks %s: %s", rows[i].args, rows[i].says[j],
                  buf_text(&out));
    }
    buf_drop(&out);
}

/* A share of the likelihood that is too small for a float is no licence to draw from everything. */
TEST(cli_a_tiny_top_p_leaves_the_likeliest_token)
{
    static const char *const shares[] = { "0", "1e-300", "1e-40", "0.000001" };
    struct buf greedy = { 0 }, drawn = { 0 }, args = { 0 };
    if (!tiny_model()) return;
    CHECK_EQ(run(&greedy, "run -m % -p hello -n 12 --ignore-end"), 0);
    for (size_t i = 0; i < COUNT(shares); i++) {
        buf_clear(&args);
        buf_printf(&args, "run -m %% -p hello -n 12 --ignore-end --temperature 5 --top-p %s", shares[i]);
        CHECK_EQ(run(&drawn, args.data), 0);
        CHECK_STR(buf_text(&drawn), buf_text(&greedy));
    }
    buf_drop(&args);
    buf_drop(&drawn);
    buf_drop(&greedy);
}

/* The names of an object's fields, and "[" and "{" where they begin, in order. */
static void field_names(const char *json, struct buf *out)
{
    for (const char *at = json; *at; at++) {
        if (*at == '{' || *at == '[' || *at == '}' || *at == ']') buf_add_char(out, *at);
        if (*at != '"') continue;
        const char *end = strchr(at + 1, '"');
        if (!end) return;
        if (end[1] == ':') buf_printf(out, "%.*s ", (int)(end - at - 1), at + 1);
        at = end;
    }
}

TEST(cli_bench_makes_the_rounds_that_are_asked_for)
{
    struct buf out = { 0 };
    if (!tiny_model()) return;
    CHECK_EQ(run(&out, "bench -m % --only decode --depth 8 --repeat 20 --json"), 0);
    const char *at = strstr(buf_text(&out), "\"rounds\":");
    CHECK(at && atoi(at + strlen("\"rounds\":")) >= 20, "%s", buf_text(&out));
    buf_drop(&out);
}

/* A recurrent model cuts a prompt so that a state near its end is kept. */
TEST(cli_bench_counts_all_steps_of_a_prompt)
{
    struct buf out = { 0 };
    double ops[2];
    for (int i = 0; i < 2; i++) {
        struct buf args = { 0 };
        buf_printf(&args, "bench -m " LUCE_SOURCE_DIR "/tests/fixtures/oracle/qwen35.gguf --only prefill --depth 0 "
                   "--prompt-tokens 192 --repeat 1 --json%s", i ? " --chunk 64" : "");
        CHECK_EQ(run(&out, buf_text(&args)), 0);
        const char *at = strstr(buf_text(&out), "\"ops\":");
        ops[i] = at ? atof(at + strlen("\"ops\":")) : i;
        buf_drop(&args);
    }
    CHECK(ops[0] == ops[1], "%.0f operations, and %.0f in chunks of a page", ops[0], ops[1]);
    buf_drop(&out);
}

TEST(cli_bench_json_has_these_fields_and_no_others)
{
    struct buf out = { 0 }, names = { 0 };
    if (!tiny_model()) return;
    CHECK_EQ(run(&out, "bench -m % --only decode --only prefill --depth 64 --prompt-tokens 70 --repeat 1 --json"), 0);
    field_names(buf_text(&out), &names);
    CHECK_STR(buf_text(&names),
              "{tool version commit device driver "
              "model {name architecture synthetic parameters product_parameters weight_bytes load_seconds }"
              "settings {threads context chunk cache_type_k cache_type_v depth []prompt_tokens []repeat }"
              "limits {read_bytes_per_s int8_ops_per_s bf16_ops_per_s f32_ops_per_s }"
              "results [{test width depth samples rounds seconds tokens_per_s bytes ops "
              "read_bytes_per_s limit_share joules_per_token }"
              "{test width depth samples rounds seconds tokens_per_s bytes ops "
              "read_bytes_per_s limit_share joules_per_token }]}");
    buf_drop(&names);
    buf_drop(&out);
}

TEST(cli_run_reads_a_prompt_from_anywhere_and_stops_where_told)
{
    struct buf a = { 0 }, b = { 0 };
    if (!tiny_model()) return;
    CHECK_EQ(run(&a, "run -m % -p 'from anywhere' -n 20 --ignore-end"), 0);
    FILE *f = fopen(scratch("prompt.txt"), "w");
    fputs("from anywhere", f);
    fclose(f);
    struct buf args = { 0 };
    buf_printf(&args, "run -m %% -n 20 --ignore-end < %s", scratch("prompt.txt"));
    CHECK_EQ(run(&b, args.data), 0);
    CHECK_STR(buf_text(&a), buf_text(&b));
    buf_clear(&args);
    buf_printf(&args, "run -m %% -n 20 --ignore-end --file %s", scratch("prompt.txt"));
    CHECK_EQ(run(&b, args.data), 0);
    CHECK_STR(buf_text(&a), buf_text(&b));
    CHECK(a.len > 1 && a.data[a.len - 1] == '\n');
    buf_drop(&args);
    buf_drop(&a);
    buf_drop(&b);
}

TEST(cli_chat_answers_each_line_and_forgets_on_reset)
{
    struct buf out = { 0 };
    if (!tiny_model()) return;
    CHECK_EQ(run(&out, "chat -m % -n 8 --ignore-end > /dev/null < /dev/null"), 0);
    CHECK_EQ(out.len, 0);
    FILE *f = fopen(scratch("lines.txt"), "w");
    fputs("hello\n\n/help\n/reset\nhello\n/quit\nnever\n", f);
    fclose(f);
    struct buf args = { 0 };
    buf_printf(&args, "chat -m %% -n 8 --ignore-end 2>/dev/null < %s; cat /dev/null", scratch("lines.txt"));
    CHECK_EQ(run(&out, args.data), 0);
    size_t half = out.len / 2;
    CHECK(out.len > 2 && out.len % 2 == 0 && !memcmp(out.data, out.data + half, half), "\"%s\"", buf_text(&out));
    buf_drop(&args);
    buf_drop(&out);
}

TEST(cli_chat_names_a_command_that_it_does_not_know)
{
    struct buf out = { 0 };
    if (!tiny_model()) return;
    CHECK_EQ(run(&out, "chat -m % 2>&1 <<'END'\n/foo\nEND\ntrue"), 0);
    CHECK(strstr(buf_text(&out), "no command /foo\n  /reset") != NULL, "%s", buf_text(&out));
    CHECK_EQ(run(&out, "chat -m % 2>&1 <<'END'\n/help\nEND\ntrue"), 0);
    CHECK(strstr(buf_text(&out), "no command") == NULL, "%s", buf_text(&out));
    buf_drop(&out);
}

TEST(cli_commands_at_a_terminal_say_what_they_read)
{
    struct buf out = { 0 };
    int terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    bool is = terminal >= 0 && isatty(terminal);
    if (terminal >= 0) close(terminal);
    if (!is) SKIP("there is no pseudo terminal");
    if (!tiny_model()) return;
    CHECK_EQ(run(&out, "perplexity -m % < /dev/ptmx"), 2);
    CHECK(strstr(buf_text(&out), "no text: give --file FILE, or text on standard input") != NULL, "%s", buf_text(&out));
    CHECK_EQ(run(&out, "tokenize -m % < /dev/ptmx"), 2);
    CHECK(strstr(buf_text(&out), "no text: give it as TEXT, in --file FILE") != NULL, "%s", buf_text(&out));
    buf_drop(&out);
}

#endif
