/* base/error.c - see error.h. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#undef fail                     /* error.h's words to the analyzer */
luce_status fail(luce_error *err, luce_status code, const char *format, ...)
{
    if (!err) return code;
    err->code = code;
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    err->text[utf8_tame(err->text, strlen(err->text))] = '\0';
    return code;
}

const char *status_name(luce_status code)
{
    static const char *const names[] = {
        [LUCE_OK] = "ok",
        [LUCE_E_ARG] = "bad argument",
        [LUCE_E_IO] = "input or output failed",
        [LUCE_E_FORMAT] = "bad file format",
        [LUCE_E_NOMEM] = "out of memory",
        [LUCE_E_DEVMEM] = "out of device memory",
        [LUCE_E_DEVICE] = "device failed",
        [LUCE_E_UNSUPPORTED] = "not supported",
        [LUCE_E_CANCELLED] = "cancelled",
        [LUCE_E_NUMERIC] = "result is not finite",
        [LUCE_E_BUSY] = "busy",
        [LUCE_E_CONTEXT] = "too long for the context",
    };
    return (unsigned)code < sizeof names / sizeof *names ? names[code] : "unknown status";
}
