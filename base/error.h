/* base/error.h - how a function says that it failed: a status, and words with cause and remedy. */
#ifndef LUCE_BASE_ERROR_H
#define LUCE_BASE_ERROR_H

#include "luce.h"

/* Formats the message into *err (which may be NULL), marks it with `code` and returns `code`,
 * so that a failure is one line where it is found. Control characters in the text, and bytes that are
 * not UTF-8, become '?'. */
luce_status fail(luce_error *err, luce_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#ifdef __clang_analyzer__
/* The analyzer does not look into another file to see that fail returns its code. */
#define fail(err, code, ...) (fail(err, code, __VA_ARGS__), (code))
#endif

/* The status in words, for logs: "out of memory". Static storage. */
const char *status_name(luce_status code);

#endif
