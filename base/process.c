/* base/process.c - see process.h. */
#define _POSIX_C_SOURCE 200809L
#include "base/process.h"

#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

luce_status process_run(const char *const *args, int *code, luce_error *err)
{
    pid_t child;
    int status = 0;
    *code = -1;
    int failed = posix_spawnp(&child, args[0], NULL, NULL, (char *const *)(uintptr_t)args, environ);
    if (failed) return fail(err, LUCE_E_IO, "%s: %s", args[0], strerror(failed));
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return fail(err, LUCE_E_IO, "%s: %s", args[0], strerror(errno));
    *code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return LUCE_OK;
}
