/* base/buf.h - growable bytes. A buffer remembers its first failed growth and then ignores what is
 * added, so that a writer checks once, at the end. Threads: one owner at a time. */
#ifndef LUCE_BASE_BUF_H
#define LUCE_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data;             /* owned; NUL-terminated whenever len > 0; NULL while empty */
    size_t len, cap;
    bool failed;            /* out of memory at some addition; what came after is lost */
};

/* Add at the end. */
void buf_add(struct buf *b, const void *bytes, size_t len);
void buf_add_char(struct buf *b, char c);
void buf_add_text(struct buf *b, const char *text);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Makes room for `more` further bytes and returns where to write them (then add to len), or NULL. */
char *buf_reserve(struct buf *b, size_t more);
/* Content as a C string ("" while empty); borrowed until the next change. */
const char *buf_text(const struct buf *b);
/* Forgets the content, keeps the memory. */
void buf_clear(struct buf *b);
void buf_drop(struct buf *b);

#endif
