/* base/utf8.c - see utf8.h. */
#include "base/utf8.h"

#include <string.h>

int utf8_character(const char *at, size_t left)
{
    const unsigned char *s = (const unsigned char *)at;
    if (s[0] < 0x80) return 1;
    int need = s[0] >= 0xc2 && s[0] <= 0xdf ? 2 : (s[0] & 0xf0) == 0xe0 ? 3
             : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4 : 0;
    unsigned char low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    if (!need) return -1;
    for (int i = 1; i < need; i++) {
        if ((size_t)i >= left || s[i] < low || s[i] > high) return -i;
        low = 0x80;
        high = 0xbf;
    }
    return need;
}

/* The C1 controls are C2 80 to C2 9F. */
bool utf8_is_control(const char *at, int n)
{
    unsigned char first = (unsigned char)at[0];
    return n == 1 ? first < 0x20 || first == 0x7f : n == 2 && first == 0xc2 && (unsigned char)at[1] < 0xa0;
}

size_t utf8_tame(char *text, size_t len)
{
    size_t to = 0;
    for (size_t at = 0; at < len;) {
        int n = utf8_character(text + at, len - at);
        size_t bytes = (size_t)(n < 0 ? -n : n);
        if (n < 0 || utf8_is_control(text + at, n)) {
            text[to++] = '?';
        } else {
            memmove(text + to, text + at, bytes);
            to += bytes;
        }
        at += bytes;
    }
    return to;
}

void utf8_show_controls(struct buf *out, struct str text)
{
    size_t n;
    for (size_t at = 0; at < text.len; at += n) {
        const char *s = text.at + at;
        int whole = utf8_character(s, text.len - at);
        n = whole > 0 ? (size_t)whole : 1;
        bool plain = whole > 0 && (!utf8_is_control(s, whole) || *s == '\n' || *s == '\t');
        if (plain) buf_add(out, s, n);
        else buf_printf(out, "\\x%02x", (unsigned char)s[n - 1]);
    }
}
