/* cli/terminal.c - see terminal.h. */
#define _POSIX_C_SOURCE 200809L
#include "cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/utf8.h"

enum { TEXT_MAX = 1 << 28, BAR = 30 };      /* bytes: a token a byte, and the longest context */

static void catch_one(int signal_number, void (*handler)(int))
{
    struct sigaction a = { .sa_handler = handler };
    sigemptyset(&a.sa_mask);
    sigaction(signal_number, &a, NULL);
}

void standard_files_prepare(void)
{
    catch_one(SIGPIPE, SIG_IGN);
    catch_one(SIGXFSZ, SIG_IGN);                                /* a file that may not grow: a write error */
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)      /* the lowest free number is taken */
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
}

luce_status input_read(struct buf *out, luce_error *err)
{
    for (;;) {
        char *at = buf_reserve(out, 1 << 16);
        if (!at) return fail(err, LUCE_E_NOMEM, "standard input: out of memory");
        size_t n = fread(at, 1, 1 << 16, stdin);
        out->len += n;
        if (out->len > TEXT_MAX)
            return fail(err, LUCE_E_ARG, "standard input: more than %d bytes; give less at once", TEXT_MAX);
        if (n) continue;
        if (interrupted(NULL)) return fail(err, LUCE_E_CANCELLED, "interrupted while standard input was read");
        if (ferror(stdin)) return fail(err, LUCE_E_IO, "standard input: %s", strerror(errno));
        return LUCE_OK;
    }
}

bool input_line(struct buf *out)
{
    char part[4096];
    buf_clear(out);
    while (fgets(part, sizeof part, stdin)) {
        buf_add_text(out, part);
        if (!out->len || out->data[out->len - 1] != '\n') continue;
        out->data[--out->len] = '\0';
        return true;
    }
    return out->len > 0;
}

luce_status input_prompt(const struct options *o, struct buf *out, luce_error *err)
{
    if (o->prompt && o->file)
        return fail(err, LUCE_E_ARG, "--prompt and --file together; give one of them");
    if (o->file) return file_read(out, o->file, TEXT_MAX, err);
    if (!o->prompt && isatty(STDIN_FILENO))
        return fail(err, LUCE_E_ARG, "no prompt: give --prompt TEXT, --file FILE, or text on standard input");
    if (!o->prompt) return input_read(out, err);
    buf_add_text(out, o->prompt);
    return out->failed ? fail(err, LUCE_E_NOMEM, "out of memory for the prompt") : LUCE_OK;
}

static volatile sig_atomic_t marked;

static void on_signal(int signal_number)
{
    marked = signal_number;
    signal(signal_number, SIG_DFL);
}

void interrupt_catch(void)
{
    catch_one(SIGINT, on_signal);
    catch_one(SIGTERM, on_signal);
}

bool interrupted(void *unused)
{
    (void)unused;
    return marked != 0;
}

int interrupt_signal(void)
{
    return marked;
}

void interrupt_clear(void)
{
    if (marked != SIGINT) return;
    marked = 0;
    catch_one(SIGINT, on_signal);
}

bool error_is_terminal(void)
{
    return isatty(STDERR_FILENO);
}

void progress_show(const char *what, double share)
{
    static double last;
    double now = clock_seconds();
    if (!error_is_terminal() || (share < 1 && now - last < 0.1)) return;
    last = now;
    if (share >= 1) {
        fprintf(stderr, "\r\033[K");
        return;
    }
    int full = (int)(share * BAR);
    fprintf(stderr, "\r%s  [%.*s%*s] %3.0f %%", what, full, "==============================", BAR - full, "",
            share * 100);
}

bool show_text(const char *bytes, size_t n)
{
    struct buf shown = { 0 };
    bool plain = !isatty(STDOUT_FILENO);
    if (!plain) utf8_show_controls(&shown, (struct str){ bytes, n });
    bool good = !shown.failed && (plain ? fwrite(bytes, 1, n, stdout) == n
                                        : fwrite(buf_text(&shown), 1, shown.len, stdout) == shown.len);
    buf_drop(&shown);
    return good && fflush(stdout) == 0;
}
