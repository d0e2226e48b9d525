/* tests/test_cli_signals.c - Ctrl-C and what else comes from outside while a command runs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "test.h"
#include "tiny_model.h"

/* In the child: these become standard output and standard error. */
static void redirect(int out, const char *err)
{
    int fd = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (dup2(out, 1) < 0 || dup2(fd, 2) < 0) _exit(99);
}

/* Waits until the process catches the signal; false when it has ended before. */
static bool wait_for_handler(pid_t child, int signal_number)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)child);
    for (;;) {
        uint64_t caught = 0;
        bool zombie = true;
        FILE *f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f)) {
            if (!strncmp(line, "SigCgt:", 7)) caught = strtoull(line + 7, NULL, 16);
            if (!strncmp(line, "State:", 6)) zombie = strchr(line, 'Z') != NULL;
        }
        if (f) fclose(f);
        if (caught >> (signal_number - 1) & 1) return true;
        if (zombie) return false;
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}

static int exit_code(pid_t child)
{
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(files_that_shrink_while_they_are_mapped_end_the_program_with_one_line)
{
    char path[512], said[512];
    snprintf(path, sizeof path, "%s", scratch("shrinks.gguf"));
    snprintf(said, sizeof said, "%s", scratch("shrinks.err"));
    luce_error err = { 0 };
    struct buf text = { 0 };
    static const char zeros[3 * 65536];
    struct file_writer w;
    CHECK_OK(file_create(&w, path, &err), err);
    CHECK_OK(file_append(&w, zeros, sizeof zeros, &err), err);
    CHECK_OK(file_commit(&w, &err), err);
    for (int ours = 0; ours < 2; ours++) {
        pid_t child = fork();
        if (child == 0) {
            struct file_map other, m;
            redirect(STDOUT_FILENO, said);
            signal(SIGBUS, SIG_DFL);
            if (file_map_open(&other, path, &err) || file_map_open(&m, path, &err)) _exit(97);
            file_map_watch();
            if (truncate(path, 65536)) _exit(96);
            if (!ours) close(m.fd), dup2(open("/dev/null", O_RDONLY), m.fd); /* its name is gone: still one line */
            _exit(((volatile const uint8_t *)m.data)[2 * 65536] + 95);
        }
        CHECK_EQ(exit_code(child), 1);
        buf_clear(&text);
        CHECK_OK(file_read(&text, said, 1 << 16, &err), err);
        const char *end = strchr(buf_text(&text), '\n');
        CHECK(end && !end[1] && strstr(text.data, "shrank while it was read"), "\"%s\"", buf_text(&text));
        CHECK(!strncmp(buf_text(&text), "luce: /", 7), "\"%s\"", buf_text(&text));
        CHECK_EQ(truncate(path, sizeof zeros), 0);
    }
    buf_drop(&text);
}

#ifdef LUCE_PROGRAM

enum { ARGS_MAX = 12 };

/* Starts luce with its standard output full, so that it cannot end before it is told to. Signals it as
 * soon as it listens, and returns the exit code; *err gets what it said. */
static int interrupt(int signal_number, const char *const *args, struct buf *err)
{
    int ends[2];
    char said[512], part[4096];
    const char *argv[ARGS_MAX + 2] = { "luce" };
    luce_error e = { 0 };
    snprintf(said, sizeof said, "%s", scratch("signal.err"));
    for (int i = 0; i < ARGS_MAX && args[i]; i++) argv[i + 1] = args[i];
    if (pipe(ends)) return -1;
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], "x", 1) == 1) continue;
    fcntl(ends[1], F_SETFL, 0);
    pid_t child = fork();
    if (child == 0) {
        redirect(ends[1], said);
        close(ends[0]);
        close(ends[1]);
        execv(LUCE_PROGRAM, (char **)argv);
        _exit(98);
    }
    close(ends[1]);
    if (wait_for_handler(child, signal_number)) kill(child, signal_number);
    while (read(ends[0], part, sizeof part) > 0) continue;
    close(ends[0]);
    int code = exit_code(child);
    buf_clear(err);
    CHECK_OK(file_read(err, said, 1 << 16, &e), e);
    return code;
}

TEST(cli_ends_with_128_and_the_signal_when_it_is_interrupted)
{
    static const char *const commands[][ARGS_MAX] = {
        { "run", "-p", "hello", "--ignore-end" },
        { "run", "-p", "hello", "--ignore-end", "--spec", "ngram" },
        { "bench", "--repeat", "1000", "--depth", "64", "--prompt-tokens", "128" },
    };
    struct buf err = { 0 };
    if (!tiny_model()) return;
    for (size_t i = 0; i < COUNT(commands); i++)
        for (int term = 0; term < 2; term++) {
            const char *args[ARGS_MAX + 1] = { 0 };
            memcpy(args, commands[i], sizeof commands[i]);
            int n = 0;
            while (args[n]) n++;
            args[n++] = "-m";
            args[n] = tiny_model();
            int code = interrupt(term ? SIGTERM : SIGINT, args, &err);
            CHECK(code == (term ? 143 : 130), "command %zu: exit %d: %s", i, code, buf_text(&err));
            const char *end = strchr(buf_text(&err), '\n');
            CHECK(end && !end[1] && !strncmp(buf_text(&err), "luce: ", 6), "command %zu: \"%s\"", i, buf_text(&err));
        }
    buf_drop(&err);
}

static void check_said(const char *path, const char *want)
{
    struct buf text = { 0 };
    luce_error err = { 0 };
    CHECK_OK(file_read(&text, path, 1 << 16, &err), err);
    CHECK_STR(buf_text(&text), want);
    buf_drop(&text);
}

/* A text of several windows that comes only after the signal. */
TEST(cli_an_interrupted_perplexity_says_how_far_it_came_in_the_text)
{
    enum { BYTES = 1000 };                  /* a token each */
    char text[512], said[512], bytes[BYTES];
    if (!tiny_model()) return;
    snprintf(text, sizeof text, "%s", scratch("text.fifo"));
    snprintf(said, sizeof said, "%s", scratch("text.err"));
    memset(bytes, 'a', sizeof bytes);
    unlink(text);
    CHECK_EQ(mkfifo(text, 0600), 0);
    pid_t child = fork();
    if (child == 0) {
        redirect(STDOUT_FILENO, said);
        execl(LUCE_PROGRAM, "luce", "perplexity", "-m", tiny_model(), "--file", text, (char *)NULL);
        _exit(98);
    }
    int fd;                                 /* of a pipe that is read when the model is loaded */
    while ((fd = open(text, O_WRONLY | O_NONBLOCK)) < 0 && wait_for_handler(child, SIGINT)) continue;
    kill(child, SIGINT);
    CHECK_EQ(write(fd, bytes, sizeof bytes), BYTES);
    close(fd);
    CHECK_EQ(exit_code(child), 130);
    check_said(said, "luce: perplexity: interrupted when 0 of the text's 1000 tokens were scored\n");
}

/* Standard input whose end never comes: more than a pipe holds is gone when somebody reads. */
TEST(cli_waiting_for_standard_input_can_be_interrupted)
{
    char said[512];
    int pipe_to[2];
    if (!tiny_model()) return;
    snprintf(said, sizeof said, "%s", scratch("waiting.err"));
    CHECK_EQ(pipe(pipe_to), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipe_to[0], STDIN_FILENO);
        close(pipe_to[1]);
        redirect(STDOUT_FILENO, said);
        execl(LUCE_PROGRAM, "luce", "perplexity", "-m", tiny_model(), (char *)NULL);
        _exit(98);
    }
    static const char text[80000];
    CHECK_EQ(write(pipe_to[1], text, sizeof text), (int)sizeof text);
    kill(child, SIGTERM);
    close(pipe_to[0]), close(pipe_to[1]);
    CHECK_EQ(exit_code(child), 143);
    check_said(said, "luce: interrupted while standard input was read\n");
}

TEST(cli_a_file_that_may_not_grow_is_an_error)
{
    char said[512];
    snprintf(said, sizeof said, "%s", scratch("grow.err"));
    pid_t child = fork();
    if (child == 0) {
        int out = open(scratch("grow.out"), O_WRONLY | O_CREAT, 0600);
        redirect(out, said);
        struct rlimit none = { 30, 30 };                /* bytes: enough for the error, not for the help */
        if (setrlimit(RLIMIT_FSIZE, &none)) _exit(97);
        execl(LUCE_PROGRAM, "luce", "--help", (char *)NULL);
        _exit(98);
    }
    CHECK_EQ(exit_code(child), 1);
}

TEST(cli_serve_ends_with_0_when_it_is_interrupted)
{
    char said[512], model[512];
    if (!tiny_model()) return;
    snprintf(said, sizeof said, "%s", scratch("serve.err"));
    snprintf(model, sizeof model, "%s", tiny_model());
    struct buf text = { 0 };
    luce_error err = { 0 };
    for (int term = 0; term < 2; term++) {
        pid_t child = fork();
        if (child == 0) {
            redirect(STDOUT_FILENO, said);
            execl(LUCE_PROGRAM, "luce", "serve", "-m", model, "--port", "0", "-c", "64", (char *)NULL);
            _exit(98);
        }
        bool alive = wait_for_handler(child, SIGINT);
        do {                            /* until it serves */
            buf_clear(&text);
            CHECK_OK(file_read(&text, said, 1 << 16, &err), err);
        } while (alive && !strstr(buf_text(&text), "://") && wait_for_handler(child, SIGINT));
        kill(child, term ? SIGTERM : SIGINT);
        int code = exit_code(child);
        if (strstr(buf_text(&text), "has no server")) code = 0;
        CHECK(code == 0, "exit %d: %s", code, buf_text(&text));
    }
    buf_drop(&text);
}

#endif
