/* base/buf.c - see buf.h. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

char *buf_reserve(struct buf *b, size_t more)
{
    if (b->failed) return NULL;
    if (more < SIZE_MAX / 2 && b->cap - b->len > more) return b->data + b->len;
    size_t need = b->len + more + 1, cap = b->cap ? b->cap * 2 : 64;
    if (cap < need) cap = need;
    char *data = more < SIZE_MAX / 2 ? mem_resize(b->data, cap) : NULL;
    if (!data) {
        b->failed = true;
        return NULL;
    }
    b->data = data;
    b->cap = cap;
    return data + b->len;
}

void buf_add(struct buf *b, const void *bytes, size_t len)
{
    char *at = buf_reserve(b, len);
    if (!at) return;
    if (len) memcpy(at, bytes, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void buf_add_char(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_add_text(struct buf *b, const char *text)
{
    buf_add(b, text, strlen(text));
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    char *at = n >= 0 ? buf_reserve(b, (size_t)n) : NULL;
    if (at) {
        vsnprintf(at, (size_t)n + 1, format, again);
        b->len += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

const char *buf_text(const struct buf *b)
{
    return b->len ? b->data : "";
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = false;
}

void buf_drop(struct buf *b)
{
    mem_free(b->data);
    *b = (struct buf){ 0 };
}
