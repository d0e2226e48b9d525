/* base/process.h - other programs. Threads: any. */
#ifndef LUCE_BASE_PROCESS_H
#define LUCE_BASE_PROCESS_H

#include "base/error.h"

/* Runs a program with these arguments (the first is its name, searched for in PATH; NULL ends them) and waits for its
 * end. It shares this process's standard files. *code: its exit code, 128 + the signal that ended it.
 * LUCE_E_IO: it could not be started; the message has its name and the reason. */
luce_status process_run(const char *const *args, int *code, luce_error *err);

#endif
