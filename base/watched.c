/* base/watched.c - see watched.h and file_map_watch. Reading a page that a file no longer has raises SIGBUS
 * in whatever thread reads. There is no way back from there that every reader could take, so the program
 * ends; the handler finds the file by the address, and its name by the descriptor, with calls that are
 * safe in a handler. */
#define _GNU_SOURCE
#include "base/watched.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 1024, NAME_BYTES = 4096, EXIT_FAILED = 1 };

static struct watched {
    _Atomic(const uint8_t *) from;      /* NULL: not complete */
    _Atomic uint64_t size;
    atomic_int fd;
    atomic_bool taken;
} table[MOST];

void watched_add(const struct file_map *m)
{
    for (int i = 0; i < MOST; i++) {
        struct watched *w = &table[i];
        if (atomic_exchange(&w->taken, true)) continue;
        atomic_store(&w->size, m->size);
        atomic_store(&w->fd, m->fd);
        atomic_store(&w->from, m->data);
        return;
    }
}

void watched_remove(const struct file_map *m)
{
    for (int i = 0; i < MOST; i++) {
        struct watched *w = &table[i];
        if (atomic_load(&w->from) != m->data) continue;
        atomic_store(&w->from, NULL);
        atomic_store(&w->taken, false);
        return;
    }
}

static const struct watched *find(const uint8_t *at)
{
    for (int i = 0; i < MOST; i++) {
        const uint8_t *from = atomic_load(&table[i].from);
        if (from && at >= from && (uint64_t)(at - from) < atomic_load(&table[i].size)) return &table[i];
    }
    return NULL;
}

/* "/proc/self/fd/N" */
static void link_of(int fd, char out[32])
{
    static const char folder[] = "/proc/self/fd/";
    char digits[12];
    int n = 0;
    size_t at = sizeof folder - 1;
    memcpy(out, folder, at);
    do digits[n++] = (char)('0' + fd % 10);
    while ((fd /= 10) > 0);
    while (n > 0) out[at++] = digits[--n];
    out[at] = '\0';
}

static void say(const char *text, size_t n)
{
    while (n > 0) {
        ssize_t done = write(STDERR_FILENO, text, n);
        if (done <= 0) return;
        text += done;
        n -= (size_t)done;
    }
}

static void on_bus_error(int number, siginfo_t *info, void *unused)
{
    (void)unused;
    static const char before[] = "luce: ", after[] = ": the file shrank while it was read, or its disk failed. Let "
                                                     "whatever writes it finish, and start again.\n";
    static char name[NAME_BYTES];
    char link[32];
    const struct watched *w = find(info->si_addr);
    if (!w) {                           /* not ours: the usual end, when the instruction is tried again */
        signal(number, SIG_DFL);
        return;
    }
    link_of(atomic_load(&w->fd), link);
    ssize_t n = readlink(link, name, sizeof name);
    say(before, sizeof before - 1);
    say(n > 0 ? name : "a model file", n > 0 ? (size_t)n : strlen("a model file"));
    say(after, sizeof after - 1);
    _exit(EXIT_FAILED);
}

void file_map_watch(void)
{
    struct sigaction a = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };
    sigemptyset(&a.sa_mask);
    sigaction(SIGBUS, &a, NULL);
}
