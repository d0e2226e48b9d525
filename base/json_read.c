/* base/json_read.c - see json_read.h. */
#include "base/json_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_DIGITS = 400 };

void json_read(struct json_in *in, struct str text)
{
    *in = (struct json_in){ .start = text.at, .at = text.at, .end = text.at + text.len };
}

static bool bad(struct json_in *in)
{
    in->bad = true;
    return false;
}

static int peek(struct json_in *in)
{
    while (in->at < in->end && (*in->at == ' ' || *in->at == '\t' || *in->at == '\n' || *in->at == '\r')) in->at++;
    return in->bad || in->at == in->end ? -1 : (unsigned char)*in->at;
}

static bool take(struct json_in *in, int c)
{
    if (peek(in) != c) return bad(in);
    in->at++;
    return true;
}

enum json_kind json_next_kind(struct json_in *in)
{
    int c = peek(in);
    switch (c) {
    case '{': return SEEN_OBJECT;
    case '[': return SEEN_ARRAY;
    case '"': return SEEN_TEXT;
    case 't': return SEEN_TRUE;
    case 'f': return SEEN_FALSE;
    case 'n': return SEEN_NULL;
    default: return c == '-' || (c >= '0' && c <= '9') ? SEEN_NUMBER : SEEN_NONE;
    }
}

bool json_enter(struct json_in *in, enum json_kind kind)
{
    if (json_next_kind(in) != kind || in->depth == JSON_IN_DEPTH) return bad(in);
    in->at++;
    uint64_t bit = UINT64_C(1) << in->depth % 64, *word = &in->arrays[in->depth / 64];
    *word = kind == SEEN_ARRAY ? *word | bit : *word & ~bit;
    in->depth++;
    return true;
}

bool json_more(struct json_in *in, bool *first)
{
    int c = peek(in);
    if (in->depth == 0) return bad(in);
    int close = in->arrays[(in->depth - 1) / 64] >> (in->depth - 1) % 64 & 1 ? ']' : '}';
    if (c == close) {
        in->at++;
        in->depth--;
        return false;
    }
    if (!*first && !take(in, ',')) return false;
    *first = false;
    c = peek(in);
    return c < 0 || c == ']' || c == '}' ? bad(in) : true;
}

static int hex4(const char *at)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(at[i]);
        if (digit < 0) return -1;
        v = v * 16 + digit;
    }
    return v;
}

static void add_utf8(struct buf *b, int c)
{
    if (c >= 0x10000) buf_add_char(b, (char)(0xf0 | c >> 18)), buf_add_char(b, (char)(0x80 | (c >> 12 & 63)));
    else if (c >= 0x800) buf_add_char(b, (char)(0xe0 | c >> 12));
    else if (c >= 0x80) buf_add_char(b, (char)(0xc0 | c >> 6));
    if (c >= 0x800) buf_add_char(b, (char)(0x80 | (c >> 6 & 63)));
    buf_add_char(b, (char)(c >= 0x80 ? 0x80 | (c & 63) : c));
}

/* Behind a backslash. */
static bool read_escape(struct json_in *in, struct buf *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (in->at == in->end) return bad(in);
    char c = *in->at++;
    if (c != 'u') {
        const char *found = c ? strchr(from, c) : NULL;
        if (!found) return bad(in);
        buf_add_char(out, to[found - from]);
        return true;
    }
    int v = in->end - in->at >= 4 ? hex4(in->at) : -1;
    if (v < 0) return bad(in);
    in->at += 4;
    if (v >= 0xd800 && v < 0xdc00 && in->end - in->at >= 6 && in->at[0] == '\\' && in->at[1] == 'u') {
        int low = hex4(in->at + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            v = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
            in->at += 6;
        }
    }
    add_utf8(out, v >= 0xd800 && v < 0xe000 ? 0xfffd : v);
    return true;
}

bool json_read_text(struct json_in *in, struct buf *text)
{
    buf_clear(text);
    if (!take(in, '"')) return false;
    while (in->at < in->end && *in->at != '"') {
        const char *from = in->at;
        while (in->at < in->end && *in->at != '"' && *in->at != '\\' && (unsigned char)*in->at >= 0x20) in->at++;
        if (in->at > from) {
            buf_add(text, from, (size_t)(in->at - from));
            continue;
        }
        if (*in->at++ != '\\') return bad(in);
        if (!read_escape(in, text)) return false;
    }
    return take(in, '"');
}

bool json_read_name(struct json_in *in, struct buf *name)
{
    return json_read_text(in, name) && take(in, ':');
}

/* Digits of a number as the grammar has them; 0: it is none. */
static size_t number_length(struct json_in *in, bool *whole)
{
    const char *p = in->at, *end = in->end;
    *whole = true;
    if (p < end && *p == '-') p++;
    const char *digits = p;
    while (p < end && *p >= '0' && *p <= '9') p++;
    if (p == digits || (*digits == '0' && p - digits > 1)) return 0;
    if (p < end && *p == '.') {
        *whole = false;
        const char *from = ++p;
        while (p < end && *p >= '0' && *p <= '9') p++;
        if (p == from) return 0;
    }
    if (p < end && (*p | 32) == 'e') {
        *whole = false;
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        const char *from = p;
        while (p < end && *p >= '0' && *p <= '9') p++;
        if (p == from) return 0;
    }
    return (size_t)(p - in->at);
}

/* Its value; as a whole one, too, where 64 bits hold it. */
static void evaluate(struct json_number *n, const char *text)
{
    n->d = strtod(text, NULL);
    if (!n->whole) return;
    errno = 0;
    n->i = strtoll(text, NULL, 10);
    n->whole = errno == 0;
}

bool json_read_number(struct json_in *in, struct json_number *n)
{
    char text[USUAL_DIGITS + 1];
    *n = (struct json_number){ 0 };
    if (json_next_kind(in) != SEEN_NUMBER) return bad(in);
    size_t len = number_length(in, &n->whole);
    if (len == 0) return bad(in);
    n->digits = (struct str){ in->at, len };
    in->at += len;
    if (len <= USUAL_DIGITS) {
        memcpy(text, n->digits.at, len);
        text[len] = '\0';
        evaluate(n, text);
        return true;
    }
    struct buf more = { 0 };
    buf_add(&more, n->digits.at, len);
    evaluate(n, buf_text(&more));
    bool good = !more.failed;
    buf_drop(&more);
    return good || bad(in);
}

static bool skip_word(struct json_in *in, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(in->end - in->at) < len || memcmp(in->at, word, len)) return bad(in);
    in->at += len;
    return true;
}

bool json_skip(struct json_in *in)
{
    enum json_kind kind = json_next_kind(in);
    struct json_number n;
    struct buf text = { 0 };
    bool first = true, good = true;
    switch (kind) {
    case SEEN_OBJECT: case SEEN_ARRAY:
        if (!json_enter(in, kind)) return false;
        while (good && json_more(in, &first)) {
            if (kind == SEEN_OBJECT) good = json_read_name(in, &text);
            buf_drop(&text);
            good = good && json_skip(in);
        }
        return !in->bad;
    case SEEN_TEXT:
        good = json_read_text(in, &text);
        buf_drop(&text);
        return good;
    case SEEN_NUMBER: return json_read_number(in, &n);
    case SEEN_TRUE:   return skip_word(in, "true");
    case SEEN_FALSE:  return skip_word(in, "false");
    case SEEN_NULL:   return skip_word(in, "null");
    case SEEN_NONE:   break;
    }
    return bad(in);
}

bool json_done(struct json_in *in)
{
    return peek(in) < 0 && !in->bad && in->depth == 0;
}
