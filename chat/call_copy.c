/* chat/call_copy.c - arguments that models write as JSON, copied while they come so that what is passed on is
 * the start of valid JSON at any time. Numbers stay as they are written, whatever their size. */
#include "chat/reply_private.h"

enum { WORD_MAX_BYTES = 1024 };         /* of a number: each of its bytes is read again until it ends */
enum { AT_VALUE, AT_FIRST, AT_KEY, IN_KEY, AT_COLON, IN_STRING, AT_AFTER };

static void copy_bytes(struct reply *r, size_t to)
{
    buf_add(&r->args, r->in.data + r->at, to - r->at);
    r->at = to;
}

static size_t after_blanks(const struct reply *r, size_t at)
{
    while (at < r->in.len && is_space(r->in.data[at])) at++;
    return at;
}

/* Whether the quote at r->at ends its string: by what may follow. 1 it does, 0 not, -1 unclear. */
static int string_ends(const struct reply *r, bool is_key, bool end)
{
    if (!call_is_sure(r) || r->depth == 0) return 1;
    char open = r->stack[r->depth - 1];
    size_t next = after_blanks(r, r->at + 1);
    if (next == r->in.len) return end ? 1 : -1;
    char c = r->in.data[next];
    if (is_key) return c == ':';
    if (c == (open == '{' ? '}' : ']')) return 1;
    if (c != ',') return 0;
    next = after_blanks(r, next + 1);
    if (next == r->in.len) return end ? 1 : -1;
    return is_one_of(r->in.data[next], open == '{' ? "\"" : "\"{[-0123456789tfn");
}

/* The code unit of an escape (\u and four digits) at `at`: -1 it is none, -2 the text ends inside. */
static int unit_at(const struct reply *r, size_t at)
{
    int unit = 0;
    for (size_t i = 0; i < 6; i++) {
        if (at + i >= r->in.len) return -2;
        char c = r->in.data[at + i];
        int digit = hex_digit(c);
        if (i < 2 ? c != "\\u"[i] : digit < 0) return -1;
        if (i >= 2) unit = unit * 16 + digit;
    }
    return unit;
}

/* Copies the escape at r->at. */
static enum verdict copy_escape(struct reply *r)
{
    if (r->at + 1 >= r->in.len) return V_MORE;
    char c = r->in.data[r->at + 1];
    int unit = unit_at(r, r->at), low = unit >= 0xd800 && unit < 0xdc00 ? unit_at(r, r->at + 6) : -1;
    if ((unit == -2 && c == 'u') || low == -2) return V_MORE;
    if (low >= 0xdc00 && low < 0xe000) {
        copy_bytes(r, r->at + 12);
    } else if (unit >= 0xd800 && unit < 0xe000) {
        buf_add_text(&r->args, "\\ufffd");
        r->at += 6;
    } else if (unit >= 0) {
        copy_bytes(r, r->at + 6);
    } else if (is_one_of(c, "\"\\/bfnrt")) {
        copy_bytes(r, r->at + 2);
    } else {
        buf_add_text(&r->args, "\\\\");         /* "\d" and the like: the backslash is meant */
        r->at++;
    }
    return V_DONE;
}

enum verdict copy_string(struct reply *r, bool is_key, bool end)
{
    for (;;) {
        size_t to = r->at;
        while (to < r->in.len && (unsigned char)r->in.data[to] >= 0x20 && r->in.data[to] != '"' &&
               r->in.data[to] != '\\')
            to++;
        copy_bytes(r, to);
        if (to == r->in.len) return V_MORE;
        if (r->in.data[to] == '"') {
            int ends = string_ends(r, is_key, end);
            if (ends < 0) return V_MORE;
            buf_add_text(&r->args, ends ? "\"" : "\\\"");
            r->at++;
            if (ends) return V_DONE;
        } else if (r->in.data[to] == '\\') {
            if (copy_escape(r) == V_MORE) return V_MORE;
        } else {
            escape_json(&r->args, r->in.data + r->at++, 1);
        }
    }
}

static size_t digits(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && p[i] >= '0' && p[i] <= '9') i++;
    return i;
}

bool is_json_word(struct str w)
{
    if (str_is(w, "true") || str_is(w, "false") || str_is(w, "null")) return true;
    size_t i = w.len && w.at[0] == '-', n = digits(w.at + i, w.len - i);
    if (n == 0 || (n > 1 && w.at[i] == '0')) return false;
    i += n;
    if (i < w.len && w.at[i] == '.') {
        n = digits(w.at + i + 1, w.len - i - 1);
        if (n == 0) return false;
        i += n + 1;
    }
    if (i < w.len && (w.at[i] | 32) == 'e') {
        i++;
        if (i < w.len && (w.at[i] == '+' || w.at[i] == '-')) i++;
        n = digits(w.at + i, w.len - i);
        if (n == 0) return false;
        i += n;
    }
    return i == w.len;
}

static enum verdict copy_word(struct reply *r)
{
    size_t to = r->at;
    while (to < r->in.len && !is_space(r->in.data[to]) && r->in.data[to] &&
           !is_one_of(r->in.data[to], ",:{}[]\"<"))
        to++;
    if (to - r->at > WORD_MAX_BYTES) return V_BROKEN;
    if (to == r->in.len) return V_MORE;
    if (!is_json_word((struct str){ r->in.data + r->at, to - r->at })) return V_BROKEN;
    copy_bytes(r, to);
    r->step = AT_AFTER;
    return V_DONE;
}

static enum verdict copy_value(struct reply *r)
{
    char c = r->in.data[r->at];
    if (c != '{' && c != '[' && c != '"') return copy_word(r);
    if (c != '"' && r->depth == DEPTH_MAX) return V_BROKEN;
    copy_bytes(r, r->at + 1);
    if (c != '"') r->stack[r->depth++] = c;
    r->step = c == '"' ? IN_STRING : AT_FIRST;
    return V_DONE;
}

static enum verdict copy_after(struct reply *r)
{
    char c = r->in.data[r->at], open = r->stack[r->depth - 1];
    if (c == (open == '{' ? '}' : ']')) {
        copy_bytes(r, r->at + 1);
        r->depth--;
        return V_DONE;
    }
    if (c != ',') return V_BROKEN;
    size_t next = after_blanks(r, r->at + 1);
    if (next == r->in.len) return V_MORE;
    if (is_one_of(r->in.data[next], "}],")) return V_BROKEN;
    copy_bytes(r, r->at + 1);
    r->step = open == '{' ? AT_KEY : AT_VALUE;
    return V_DONE;
}

static enum verdict copy_step(struct reply *r, bool end)
{
    char c = r->in.data[r->at];
    enum verdict v;
    switch (r->step) {
    case AT_VALUE: return copy_value(r);
    case AT_FIRST:
        r->step = c == '}' || c == ']' ? AT_AFTER : r->stack[r->depth - 1] == '{' ? AT_KEY : AT_VALUE;
        return V_DONE;
    case AT_KEY:
        if (c != '"') return V_BROKEN;
        copy_bytes(r, r->at + 1);
        r->step = IN_KEY;
        return V_DONE;
    case AT_COLON:
        if (c != ':') return V_BROKEN;
        copy_bytes(r, r->at + 1);
        r->step = AT_VALUE;
        return V_DONE;
    case IN_KEY:
    case IN_STRING:
        v = copy_string(r, r->step == IN_KEY, end);
        if (v == V_DONE) r->step = r->step == IN_KEY ? AT_COLON : AT_AFTER;
        return v;
    default: return copy_after(r);
    }
}

enum verdict copy_json(struct reply *r, bool end)
{
    for (;;) {
        if (r->step == AT_AFTER && r->depth == 0) return V_DONE;
        if (r->step != IN_KEY && r->step != IN_STRING)
            for (; r->at < r->in.len && is_space(r->in.data[r->at]); r->at++)
                buf_add_char(&r->args, is_one_of(r->in.data[r->at], "\v\f") ? ' ' : r->in.data[r->at]);
        if (r->at == r->in.len) return V_MORE;
        enum verdict v = copy_step(r, end);
        if (v != V_DONE) return v;
    }
}

void json_complete(struct buf *text)
{
    struct buf open = { 0 };            /* containers that are open */
    enum { VALUE, KEY, COLON, AFTER, FIRST } at = VALUE;
    bool in_string = false;
    for (size_t i = 0; i < text->len; i++) {
        char c = text->data[i], top = open.len ? open.data[open.len - 1] : '[';
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
            if (!in_string) at = at == KEY ? COLON : AFTER;
        } else if (c == '"') {
            in_string = true;
            if (at == FIRST) at = top == '{' ? KEY : VALUE;
        } else if (c == '{' || c == '[') {
            buf_add_char(&open, c);
            at = FIRST;
        } else if (c == '}' || c == ']') {
            if (open.len) open.len--;
            at = AFTER;
        } else if (c == ',' || c == ':') {
            at = c == ',' && top == '{' ? KEY : VALUE;
        } else if (!is_space(c)) {
            at = AFTER;
        }
    }
    if (in_string) {
        buf_add_char(text, '"');
        at = at == KEY ? COLON : AFTER;
    }
    if (at == KEY) buf_add_text(text, "\"\": null");
    if (at == COLON) buf_add_text(text, ": null");
    if (at == VALUE) buf_add_text(text, "null");
    while (open.len) buf_add_char(text, open.data[--open.len] == '{' ? '}' : ']');
    text->failed |= open.failed;
    buf_drop(&open);
}
