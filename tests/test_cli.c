/* tests/test_cli.c - the commands, run as a user runs them: output, exit code, one line on failure. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "gguf/writer.h"
#include "test.h"
#include "tiny_model.h"

#ifdef LUCE_PROGRAM

enum { ARGS_MAX = 8, PATH_BYTES = 512 };
/* A path of the harness, kept beyond its eighth successor. */
#define KEEP(name, path)                                                                  \
    char name[PATH_BYTES];                                                                \
    snprintf(name, sizeof name, "%s", path)

struct result {
    int code;                       /* exit code, or 128 + signal */
    struct buf out, err;
};

static void drop(struct result *r)
{
    buf_drop(&r->out);
    buf_drop(&r->err);
}

/* Instead of a path of standard input or output. */
static const char closed[] = "closed", broken_pipe[] = "broken pipe";

/* In the child: file descriptor `to` becomes the file. */
static void redirect(int to, const char *path, int flags)
{
    int ends[2];
    if (path == closed) {
        close(to);
        return;
    }
    if (path == broken_pipe && pipe(ends) == 0) close(ends[0]);
    int fd = path == broken_pipe ? ends[1] : open(path, flags, 0600);
    if (fd < 0 || dup2(fd, to) < 0) _exit(99);
    if (fd != to) close(fd);
}

/* Runs luce with these arguments (up to a NULL); `variable` is NAME=VALUE or NULL, `input` the path of
 * standard input, `output` that of standard output or NULL to read it. */
static struct result run_with(const char *variable, const char *input, const char *output,
                              const char *const *args)
{
    struct result r = { 0 };
    KEEP(out, scratch("stdout"));
    KEEP(err, scratch("stderr"));
    const char *argv[ARGS_MAX + 2] = { "luce" };
    for (int i = 0; i < ARGS_MAX && args[i]; i++) argv[i + 1] = args[i];
    pid_t child = fork();
    if (child == 0) {
        redirect(2, err, O_WRONLY | O_CREAT | O_TRUNC);
        redirect(1, output ? output : out, O_WRONLY | O_CREAT | O_TRUNC);
        redirect(0, input ? input : "/dev/null", O_RDONLY);
        if (variable) putenv((char *)variable);
        signal(SIGPIPE, SIG_DFL);
        execv(LUCE_PROGRAM, (char **)argv);
        _exit(98);
    }
    int status = 0;
    waitpid(child, &status, 0);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    luce_error e = { 0 };
    if (!output) CHECK_OK(file_read(&r.out, out, 1 << 26, &e), e);
    CHECK_OK(file_read(&r.err, err, 1 << 20, &e), e);
    return r;
}

#define ARGS(...) ((const char *const[ARGS_MAX + 1]){ __VA_ARGS__ })
#define RUN(...) run_with(NULL, NULL, NULL, ARGS(__VA_ARGS__))

static void check_refused(struct result r, int code, const char *says)
{
    CHECK_EQ(r.code, code);
    CHECK_EQ(r.out.len, 0);
    const char *end = strchr(buf_text(&r.err), '\n');
    CHECK(end && !end[1], "not one line: \"%s\"", buf_text(&r.err));
    CHECK(strncmp(buf_text(&r.err), "luce: ", 6) == 0, "\"%s\"", buf_text(&r.err));
    CHECK(strstr(buf_text(&r.err), says) != NULL, "\"%s\" lacks \"%s\"", buf_text(&r.err), says);
    drop(&r);
}

static void check_says(struct result r, const char *says)
{
    CHECK_EQ(r.code, 0);
    CHECK_STR(buf_text(&r.err), "");
    CHECK(strstr(buf_text(&r.out), says) != NULL, "\"%s\" lacks \"%s\"", buf_text(&r.out), says);
    drop(&r);
}

TEST(cli_refuses_wrong_usage_with_one_line_and_code_2)
{
    static const struct { const char *args[ARGS_MAX + 1]; const char *says; } bad[] = {
        { { NULL }, "no command" },
        { { "frobnicate" }, "no command 'frobnicate'" },
        { { "--frobnicate" }, "no command '--frobnicate'" },
        { { "inspect" }, "the model is missing; usage: luce inspect [options] MODEL" },
        { { "inspect", "a", "b" }, "'b' is too much" },
        { { "inspect", "--jsn", "a" }, "no option '--jsn'; 'luce inspect --help' lists them" },
        { { "inspect", "--jsn=yes", "a" }, "no option '--jsn'" },
        { { "inspect", "-z", "a" }, "no option '-z'" },
        { { "inspect", "--chat", "a" }, "no option '--chat'" },      /* another command's */
        { { "inspect", "--model", "x", "a" }, "two models: --model x and a" },
        { { "inspect", "--json=maybe", "a" }, "--json: 'maybe' is not yes or no" },
        { { "inspect", "a", "--values" }, "--values: the value is missing; expected N" },
        { { "inspect", "--values=", "a" }, "--values: the value is empty; expected N" },
        { { "inspect", "--values=x", "a" }, "--values: 'x' is not a whole number from 0 to 2147483647" },
        { { "inspect", "--values=3x", "a" }, "'3x' is not a whole number" },
        { { "inspect", "--values=1.5", "a" }, "'1.5' is not a whole number" },
        { { "inspect", "--values", "-1", "a" }, "'-1' is not a whole number" },
        { { "inspect", "--values=99999999999999999999", "a" }, "is not a whole number" },
        { { "tokenize" }, "--model is missing" },
        { { "tokenize", "-m" }, "-m: the value is missing; expected FILE" },
        { { "tokenize", "a\nb", "c\x1b[2J" }, "'c?[2J' is too much" },
        { { "tokenize", "model.gguf", "a" }, "'a' is too much; usage: luce tokenize [options] [TEXT]; the model is -m" },
        { { "run", "model.gguf", "hi" }, "'hi' is too much; usage: luce run [options] [MODEL]; a prompt is -p TEXT" },
        { { "run", "-p", "hi" }, "no model: give -m FILE" },
        { { "chat" }, "no model: give -m FILE" },
        { { "help", "frobnicate" }, "no command 'frobnicate'; 'luce --help' lists them" },
        { { "help", "frobnicate", "x" }, "no command 'frobnicate'" },
        { { "help", "run", "x" }, "help: 'x' is too much; usage: luce help [COMMAND]" },
        { { "--help", "run" }, "'run' is too much after --help" },
        { { "version", "x" }, "'x' is too much after version" },
    };
    for (size_t i = 0; i < COUNT(bad); i++)
        check_refused(run_with(NULL, NULL, NULL, bad[i].args), 2, bad[i].says);
    check_refused(run_with("LUCE_VALUES=many", NULL, NULL, ARGS("inspect", "x")), 2,
                  "LUCE_VALUES: 'many' is not a whole number");
}

TEST(cli_refuses_files_it_cannot_use_with_code_1)
{
    KEEP(cut, scratch("cut.gguf"));
    KEEP(text, scratch("text.gguf"));
    KEEP(empty, scratch("empty.gguf"));
    struct buf whole = { 0 };
    luce_error err = { 0 };
    CHECK_OK(file_read(&whole, fixture("oracle.gguf"), 1 << 24, &err), err);
    struct { const char *path; const char *bytes; size_t len; } make[] = {
        { cut, whole.data, whole.len / 2 }, { text, "just some text, not a model", 27 }, { empty, "", 0 },
    };
    for (size_t i = 0; i < COUNT(make); i++) {
        struct file_writer w;
        CHECK_OK(file_create(&w, make[i].path, &err), err);
        CHECK_OK(file_append(&w, make[i].bytes, make[i].len, &err), err);
        CHECK_OK(file_commit(&w, &err), err);
    }
    buf_drop(&whole);
    const struct { const char *path, *says; } bad[] = {
        { "/nonexistent/model.gguf", "/nonexistent/model.gguf" }, { "/", "directory" },
        { cut, "cut.gguf" }, { text, "text.gguf" }, { empty, "empty.gguf" },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        check_refused(RUN("inspect", bad[i].path), 1, bad[i].says);
        check_refused(RUN("inspect", bad[i].path, "--json"), 1, bad[i].says);
        check_refused(RUN("tokenize", "-m", bad[i].path, "text"), 1, bad[i].says);
    }
}

TEST(cli_failing_output_is_a_failure)
{
    struct result r = run_with(NULL, NULL, "/dev/full", ARGS("--help"));
    CHECK_EQ(r.code, 1);
    CHECK(strstr(buf_text(&r.err), "standard output: No space left") != NULL, "%s", buf_text(&r.err));
    drop(&r);
    r = run_with(NULL, NULL, "/dev/full", ARGS("inspect", fixture("oracle.gguf")));
    CHECK_EQ(r.code, 1);
    drop(&r);
}

/* A broken pipe ends no command by a signal and is told to nobody, and no other file takes the place of a closed one. */
TEST(cli_closed_standard_files_are_failures)
{
    KEEP(model, fixture("oracle.gguf"));
    KEEP(words, tiny_model());
    const struct { const char *input, *output, *args[ARGS_MAX + 1], *says; } rows[] = {
        { NULL, broken_pipe, { "--help" }, NULL },
        { NULL, broken_pipe, { "inspect", model }, NULL },
        { NULL, broken_pipe, { "inspect", words, "--tape" }, NULL },
        { NULL, broken_pipe, { "devices" }, NULL },
        { NULL, broken_pipe, { "tokenize", "-m", words, "text" }, NULL },
        { NULL, broken_pipe, { "run", "-m", words, "-p", "text", "--max-tokens=5" }, NULL },
        { NULL, closed, { "inspect", model }, "standard output: Bad file" },
        { NULL, closed, { "run", "-m", words, "-p", "text", "--max-tokens=5" }, "standard output: Bad file" },
        { closed, NULL, { "tokenize", "-m", words }, "standard input: Bad file" },
        { closed, NULL, { "run", "-m", words }, "standard input: Bad file" },
        { closed, closed, { "run", "-m", words }, "standard input: Bad file" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct result r = run_with(NULL, rows[i].input, rows[i].output, rows[i].args);
        CHECK(r.code == 1, "row %zu: exit %d: %s", i, r.code, buf_text(&r.err));
        if (rows[i].says) CHECK(strstr(buf_text(&r.err), rows[i].says), "row %zu: %s", i, buf_text(&r.err));
        else CHECK_STR(buf_text(&r.err), "");
        drop(&r);
    }
}

TEST(cli_help_and_version_are_for_every_command)
{
    static const char *const commands[] = { "inspect", "tokenize" };
    check_says(RUN("--version"), "luce " LUCE_VERSION "\n");
    check_says(RUN("version"), "luce " LUCE_VERSION "\n");
    check_says(RUN("-V"), "luce " LUCE_VERSION "\n");
    check_says(RUN("help"), "Usage: luce COMMAND");
    check_says(RUN("help", "run"), "Usage: luce run ");
    check_says(RUN("doctor", "--help"), "without it, all (LUCE_DEVICE");
    check_says(RUN("run", "--help"), "  -m, --model FILE             the model");
    check_says(RUN("bench", "--help"), "      --synthetic PRESET:FORMAT\n                               a model of");
    check_says(RUN("--help"), "Usage: luce COMMAND");
    for (size_t i = 0; i < COUNT(commands); i++) {
        char usage[64];
        snprintf(usage, sizeof usage, "Usage: luce %s ", commands[i]);
        check_says(RUN("--help"), commands[i]);
        check_says(RUN(commands[i], "--help"), usage);
        check_says(RUN(commands[i], "--no-such-option", "-h"), usage);
    }
    check_says(RUN("bench", "--help"), ", scripted (is told the text");    /* no other command can tell it */
    check_says(RUN("serve", "--help"), "dflash2, mtp (LUCE_SPEC)");
    check_says(RUN("inspect", "--help"), "at most N elements of an array (default 8, LUCE_VALUES)");
}

TEST(cli_options_come_from_variable_then_flag_and_the_last_wins)
{
    KEEP(model, fixture("oracle.gguf"));
    struct result text = RUN("inspect", model), json = RUN("inspect", "--json", model);
    CHECK_EQ(text.code, 0);
    CHECK_EQ(json.code, 0);
    const struct { const char *variable; const char *args[ARGS_MAX + 1]; const struct buf *same; } rows[] = {
        { "LUCE_JSON=1", { "inspect", model }, &json.out },
        { "LUCE_JSON=", { "inspect", model }, &text.out },
        { "LUCE_JSON=on", { "inspect", model, "--json=no" }, &text.out },
        { NULL, { "inspect", model, "--json", "--json=no" }, &text.out },
        { NULL, { "inspect", "--json=no", "--json", "--", model }, &json.out },
        { NULL, { "inspect", "--values", "3", "--values=8", model }, &text.out },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct result r = run_with(rows[i].variable, NULL, NULL, rows[i].args);
        CHECK_EQ(r.code, 0);
        CHECK_STR(buf_text(&r.out), buf_text(rows[i].same));
        drop(&r);
    }
    drop(&text);
    drop(&json);
}

/* A model file of keys only, with texts that would drive a terminal. */
static luce_status write_hostile(const char *path, luce_error *err)
{
    struct gguf_writer w = { 0 };
    gguf_add_text(&w, "general.architecture", str_of("x\x1b[31m\n\xc2\x9b" "2J\x7f"));
    gguf_add_u32(&w, "the.number", 4294967295u);
    luce_status st = gguf_write(&w, path, err);
    gguf_writer_drop(&w);
    return st;
}

TEST(cli_inspect_shows_no_control_characters_of_the_file)
{
    luce_error err = { 0 };
    KEEP(path, scratch("hostile.gguf"));
    CHECK_OK(write_hostile(path, &err), err);
    struct result r = RUN("inspect", path);
    CHECK_EQ(r.code, 0);
    CHECK(strstr(buf_text(&r.out), "\"x\\u001b[31m\\n\\u009b2J\\u007f\"") != NULL, "%s", buf_text(&r.out));
    for (size_t i = 0; i < r.out.len; i++)
        if (r.out.data[i] != '\n' && (unsigned char)r.out.data[i] < 0x20) CHECK(false, "byte %zu", i);
    CHECK(strstr(buf_text(&r.out), "the.number  u32  4294967295") != NULL, "%s", buf_text(&r.out));
    drop(&r);
}

TEST(cli_tokenize_gives_ids_and_takes_them_back)
{
    const char *found = test_model("smollm2-135m-instruct-q4_1.gguf");
    if (!found) SKIP("models/ is empty: make models");
    KEEP(model, found);
    check_says(RUN("tokenize", "-m", model, "Hello, w\xc3\xb6rld"), "19556 28 267 29989 400\n");
    check_says(RUN("tokenize", "-m", model, "--pieces", "Hello,"), "19556\t\"Hello\"\n28\t\",\"\n");
    check_says(RUN("tokenize", "-m", model, "--json", "--pieces", "Hello,"),
               "{\"count\":2,\"ids\":[19556,28],\"pieces\":[\"Hello\",\",\"]}\n");
    check_says(RUN("tokenize", "-m", model, ""), "\n");
    check_says(RUN("tokenize", "-m", model, "--special", "<|im_start|>"), "1\n");
    struct result plain = RUN("tokenize", "-m", model, "<|im_start|>");
    CHECK(plain.code == 0 && strcmp(buf_text(&plain.out), "1\n") != 0, "%s", buf_text(&plain.out));
    drop(&plain);
    check_says(RUN("tokenize", "-m", model, "--decode", "[19556, 28] 267 29989 400"), "Hello, w\xc3\xb6rld");
    check_says(RUN("tokenize", "-m", model, "--decode", "--special", "--json", "1"),
               "{\"text\":\"<|im_start|>\"}\n");

    static const char *const bad[] = { "49152", "-1", "1x", "x", "99999999999999999999", "1;2" };
    for (size_t i = 0; i < COUNT(bad); i++)
        check_refused(RUN("tokenize", "-m", model, "--decode", "--", bad[i]), 2,
                      "expected a number from 0 to 49151; between numbers stand commas");
    check_refused(RUN("tokenize", "-m", model, "-f", "/nonexistent", "text"), 2, "give one of them");
    check_refused(RUN("tokenize", "-m", model, "-f", "/nonexistent"), 1, "/nonexistent");
}

TEST(cli_tokenize_reads_files_and_standard_input_of_any_bytes)
{
    const char *found = test_model("smollm2-135m-instruct-q4_1.gguf");
    if (!found) SKIP("models/ is empty: make models");
    KEEP(model, found);
    KEEP(path, scratch("input.txt"));
    KEEP(ids, scratch("ids.txt"));
    struct file_writer w;
    luce_error err = { 0 };
    CHECK_OK(file_create(&w, path, &err), err);
    struct buf text = { 0 };
    for (int i = 0; i < 20000; i++) buf_printf(&text, "%d \xe2\x82\xac%c", i, i % 7 ? ' ' : 0);
    CHECK_OK(file_append(&w, text.data, text.len, &err), err);
    CHECK_OK(file_commit(&w, &err), err);
    struct result from_file = RUN("tokenize", "-m", model, "--file", path);
    struct result from_stdin = run_with(NULL, path, NULL, ARGS("tokenize", "-m", model));
    CHECK_EQ(from_file.code, 0);
    CHECK(from_file.out.len > 100000);
    CHECK_STR(buf_text(&from_file.out), buf_text(&from_stdin.out));
    CHECK_OK(file_create(&w, ids, &err), err);
    CHECK_OK(file_append(&w, from_file.out.data, from_file.out.len, &err), err);
    CHECK_OK(file_commit(&w, &err), err);
    struct result back = RUN("tokenize", "-m", model, "--decode", "--file", ids);
    CHECK_EQ(back.out.len, text.len);
    CHECK(back.out.len == text.len && memcmp(back.out.data, text.data, text.len) == 0);
    drop(&back);
    drop(&from_file);
    drop(&from_stdin);
    buf_drop(&text);
}

#endif
