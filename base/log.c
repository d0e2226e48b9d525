/* base/log.c - see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static atomic_int max_level = LOG_WARN;

void log_set_level(enum log_level level)
{
    atomic_store(&max_level, (int)level);
}

void log_write(enum log_level level, const char *format, ...)
{
    static const char *const names[] = { "error", "warning", "info", "debug" };
    if ((int)level > atomic_load(&max_level)) return;
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    line[utf8_tame(line, strlen(line))] = '\0';
    fprintf(stderr, "luce: %s: %s\n", names[level], line);
}
