/* base/str.h - a slice of bytes that somebody else owns; may hold any byte, is not terminated. */
#ifndef LUCE_BASE_STR_H
#define LUCE_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct str {
    const char *at;
    size_t len;
};

static inline struct str str_of(const char *text)
{
    return (struct str){ text, strlen(text) };
}

/* Whether c is one of the characters. strchr finds NUL in every set; this does not. */
static inline bool is_one_of(char c, const char *set)
{
    return c && strchr(set, c);
}

/* 0 to 15, -1: c is no hexadecimal digit. */
static inline int hex_digit(char c)
{
    int low = c | 32;
    return c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

/* The byte that "%XX" at `at` stands for, -1: there is none. */
static inline int percent_byte(const char *at, const char *end)
{
    int high = end - at > 2 && *at == '%' ? hex_digit(at[1]) : -1, low = high < 0 ? -1 : hex_digit(at[2]);
    return low < 0 ? -1 : high << 4 | low;
}

static inline bool str_eq(struct str a, struct str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

static inline bool str_is(struct str a, const char *text)
{
    return str_eq(a, str_of(text));
}

#endif
