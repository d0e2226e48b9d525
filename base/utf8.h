/* base/utf8.h - which bytes are characters, and text from outside that a terminal may be shown. */
#ifndef LUCE_BASE_UTF8_H
#define LUCE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/str.h"

/* Bytes of the valid character at `at` (left > 0 bytes are there), or minus the bytes of the longest
 * broken beginning of one (The Unicode Standard, table 3-7, and its advice on U+FFFD). */
int utf8_character(const char *at, size_t left);

/* Is the valid character of n bytes at `at` a control character: C0, DEL, C1? */
bool utf8_is_control(const char *at, int n);

/* Puts '?' in place of each control character (C0, DEL, C1) and of each piece that is not UTF-8, so
 * that names from a hostile file neither drive a terminal nor break a line. Returns the new length,
 * at most len; a text that ends with NUL at `len` does so afterwards only if the caller sets it. */
size_t utf8_tame(char *text, size_t len);
/* Appends text with its control characters (C0 but newline and tab, DEL, C1, bytes that are no UTF-8) as \x1b. */
void utf8_show_controls(struct buf *out, struct str text);

#endif
