/* base/json.c - see json.h. */
#include "base/json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

void json_begin(struct json *j, struct buf *out)
{
    *j = (struct json){ .out = out };
}

/* The comma, if one is due. */
static void before_value(struct json *j)
{
    uint64_t here = j->depth ? (uint64_t)1 << (j->depth - 1) : 0;
    if (!j->after_key && (j->filled & here)) buf_add_char(j->out, ',');
    j->filled |= here;
    j->after_key = false;
}

static void open(struct json *j, bool is_array)
{
    assert(j->depth < JSON_DEPTH_MAX);
    before_value(j);
    uint64_t here = (uint64_t)1 << j->depth++;
    j->filled &= ~here;
    j->is_array = is_array ? j->is_array | here : j->is_array & ~here;
    buf_add_char(j->out, is_array ? '[' : '{');
}

void json_open_object(struct json *j)
{
    open(j, false);
}

void json_open_array(struct json *j)
{
    open(j, true);
}

void json_close(struct json *j)
{
    assert(j->depth > 0);
    j->depth--;
    buf_add_char(j->out, j->is_array >> j->depth & 1 ? ']' : '}');
}

void json_key(struct json *j, const char *key)
{
    json_text(j, key);
    buf_add_char(j->out, ':');
    j->after_key = true;
}

static void add_escaped(struct buf *out, unsigned char c)
{
    static const char named[] = "\"\"\\\\\bb\ff\nn\rr\tt";     /* pairs: byte, letter */
    for (size_t i = 0; i + 1 < sizeof named; i += 2)
        if ((unsigned char)named[i] == c) {
            buf_add_char(out, '\\');
            buf_add_char(out, named[i + 1]);
            return;
        }
    buf_printf(out, "\\u%04x", c);
}

void json_str(struct json *j, struct str text)
{
    before_value(j);
    buf_add_char(j->out, '"');
    const unsigned char *s = (const unsigned char *)text.at;
    size_t plain = 0, at = 0;               /* plain: start of the bytes to copy as they are */
    while (at < text.len) {
        int n = utf8_character(text.at + at, text.len - at);
        if (n > 0 && !utf8_is_control(text.at + at, n) && s[at] != '"' && s[at] != '\\') {
            at += (size_t)n;
            continue;
        }
        buf_add(j->out, text.at + plain, at - plain);
        if (n > 0) add_escaped(j->out, s[at + (size_t)n - 1]);      /* the second byte of C1 is its number */
        else buf_add_text(j->out, "\xef\xbf\xbd");
        at += (size_t)abs(n);
        plain = at;
    }
    if (at > plain) buf_add(j->out, text.at + plain, at - plain);
    buf_add_char(j->out, '"');
}

void json_text(struct json *j, const char *text)
{
    json_str(j, str_of(text));
}

void json_int(struct json *j, int64_t value)
{
    before_value(j);
    buf_printf(j->out, "%" PRId64, value);
}

void json_uint(struct json *j, uint64_t value)
{
    before_value(j);
    buf_printf(j->out, "%" PRIu64, value);
}

/* Writes value with the fewest digits that read back the same, as a float or as a double. */
static void add_number(struct json *j, double value, bool single)
{
    if (!isfinite(value)) {
        json_put_null(j);
        return;
    }
    char text[40];
    int least = single ? 6 : 15, most = single ? 9 : 17;
    for (int digits = least; digits <= most; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value) break;
    }
    char *comma = strchr(text, ',');        /* a program may have set another locale */
    if (comma) *comma = '.';
    json_raw(j, str_of(text));
}

void json_number(struct json *j, double value)
{
    add_number(j, value, false);
}

void json_float(struct json *j, float value)
{
    add_number(j, value, true);
}

void json_bool(struct json *j, bool value)
{
    json_raw(j, str_of(value ? "true" : "false"));
}

void json_put_null(struct json *j)
{
    json_raw(j, str_of("null"));
}

void json_raw(struct json *j, struct str text)
{
    before_value(j);
    buf_add(j->out, text.at, text.len);
}
