/* chat/call_gemma.c - calls of Gemma 4: call:NAME{key:<|"|>text<|"|>,n:3,flag:true}. Keys are bare,
 * strings stand between marks and are raw, the rest is like JSON; it is rewritten as JSON while it
 * comes. A string's closing mark counts only where a value may end: before , } ] or the end. */
#define _GNU_SOURCE             /* memmem */
#include "chat/reply_private.h"

#define QUOTE "<|\"|>"
enum { QUOTE_BYTES = 5 };
enum { G_CALL, G_NAME, G_VALUE, G_KEY, G_COLON, G_STRING, G_JSON_STRING, G_AFTER, G_CLOSE };

/* `call:NAME{` or `call:NAMESPACE:NAME{`. */
static enum verdict read_name(struct reply *r, bool end)
{
    size_t left = r->in.len - r->at, most = 2 * NAME_MAX_BYTES;
    const char *p = r->in.data + r->at, *brace = memchr(p, '{', left < most ? left : most);
    if (!brace) return left >= most || end ? V_BROKEN : V_MORE;
    size_t len = (size_t)(brace - p), from = 0;
    for (size_t i = 0; i < len; i++)
        if (p[i] == ':') from = i + 1;
    struct str name = { p + from, len - from };
    if (r->opened - r->from > 0 && r->in.data[r->opened - 1] == ':' && !tool_find(r->p.tools, name)) return V_BROKEN;
    if (!call_start(r, name, (struct str){ 0 })) return V_BROKEN;
    r->at += len;
    r->state = G_VALUE;
    return V_DONE;
}

/* The comma before a value or key is passed on with it: a bracket may follow it where none may stand. */
static void add_comma(struct reply *r)
{
    if (r->comma) buf_add_text(&r->args, ", ");
    r->comma = false;
}

static enum verdict open_container(struct reply *r, char c)
{
    if (r->depth == DEPTH_MAX) return V_BROKEN;
    add_comma(r);
    r->stack[r->depth++] = c;
    buf_add_char(&r->args, c);
    r->at++;
    r->state = c == '{' ? G_KEY : G_VALUE;
    return V_DONE;
}

static enum verdict close_container(struct reply *r)
{
    char c = r->in.data[r->at];
    if (r->depth == 0 || r->comma || r->stack[r->depth - 1] != (c == '}' ? '{' : '[')) return V_BROKEN;
    buf_add_char(&r->args, c);
    r->at++;
    r->state = --r->depth ? G_AFTER : G_CLOSE;
    return V_DONE;
}

/* A word or number: JSON if it is, else a string. */
static enum verdict read_word(struct reply *r)
{
    size_t from = r->at, at = from;
    while (at < r->in.len && !is_one_of(r->in.data[at], ",}]")) at++;
    if (at == r->in.len) return V_MORE;
    while (at > from && is_space(r->in.data[at - 1])) at--;
    if (at == from) return V_BROKEN;
    add_comma(r);
    if (is_json_word((struct str){ r->in.data + from, at - from })) {
        buf_add(&r->args, r->in.data + from, at - from);
    } else {
        buf_add_char(&r->args, '"');
        escape_json(&r->args, r->in.data + from, at - from);
        buf_add_char(&r->args, '"');
    }
    r->at = at;
    r->state = G_AFTER;
    return V_DONE;
}

static enum verdict read_value(struct reply *r, bool end)
{
    skip_space(r);
    if (r->at == r->in.len) return V_MORE;
    char c = r->in.data[r->at];
    if (c == '{' || c == '[') return open_container(r, c);
    if (r->depth == 0) return V_BROKEN;
    if (c == ']') return close_container(r);
    int quote = mark_at(r, r->at, QUOTE, end);
    if (quote < 0) return V_MORE;
    if (!quote && c != '"') return read_word(r);
    r->at += quote ? QUOTE_BYTES : 1;
    add_comma(r);
    buf_add_char(&r->args, '"');
    r->state = quote ? G_STRING : G_JSON_STRING;
    r->seen = r->value = r->at;
    return V_DONE;
}

static enum verdict read_key(struct reply *r)
{
    skip_space(r);
    if (r->at == r->in.len) return V_MORE;
    if (r->in.data[r->at] == '}') return close_container(r);
    const char *p = r->in.data + r->at;
    size_t left = r->in.len - r->at, len = 0, from = 0;
    while (len < left && len < 2 * NAME_MAX_BYTES && p[len] && !is_one_of(p[len], ":{}[],\n")) len++;
    if (len == left && len < 2 * NAME_MAX_BYTES) return V_MORE;
    if (len == 2 * NAME_MAX_BYTES || p[len] != ':') return V_BROKEN;
    size_t to = len;
    while (to > 0 && is_space(p[to - 1])) to--;
    if (to >= 2 * QUOTE_BYTES && !memcmp(p, QUOTE, QUOTE_BYTES) && !memcmp(p + to - QUOTE_BYTES, QUOTE, QUOTE_BYTES))
        from = QUOTE_BYTES, to -= QUOTE_BYTES;
    else if (to >= 2 && *p == '"' && p[to - 1] == '"') from = 1, to--;
    if (to <= from) return V_BROKEN;
    add_comma(r);
    buf_add_char(&r->args, '"');
    escape_json(&r->args, p + from, to - from);
    buf_add_text(&r->args, "\": ");
    r->at += len + 1;
    r->state = G_VALUE;
    return V_DONE;
}

/* Raw text up to the closing mark. */
static enum verdict read_string(struct reply *r, bool end)
{
    bool last = end && r->natural;      /* what a limit cut may have been the start of the mark */
    for (; r->seen < r->in.len; r->seen++) {
        if (r->in.data[r->seen] != '<') continue;
        int there = mark_at(r, r->seen, QUOTE, last);
        size_t after = r->seen + QUOTE_BYTES;
        if (there == 1) {
            while (after < r->in.len && is_space(r->in.data[after])) after++;
            there = after == r->in.len ? last ? 1 : -1 : is_one_of(r->in.data[after], ",}]");
        }
        if (there < 0) break;
        if (!there) continue;
        escape_json(&r->args, r->in.data + r->value, r->seen - r->value);
        buf_add_char(&r->args, '"');
        r->at = r->seen + QUOTE_BYTES;
        r->state = G_AFTER;
        return V_DONE;
    }
    size_t to = last ? r->in.len : r->seen;
    escape_json(&r->args, r->in.data + r->value, to - r->value);
    r->value = r->seen = to;
    if (end) r->at = to;
    return V_MORE;
}

static enum verdict read_after(struct reply *r)
{
    skip_space(r);
    if (r->at == r->in.len) return V_MORE;
    if (r->in.data[r->at] != ',') return is_one_of(r->in.data[r->at], "}]") ? close_container(r) : V_BROKEN;
    r->at++;
    r->comma = true;
    r->state = r->stack[r->depth - 1] == '{' ? G_KEY : G_VALUE;
    return V_DONE;
}

static enum verdict read_close(struct reply *r, bool end)
{
    size_t after = r->at;
    skip_space(r);
    int there = mark_at(r, r->at, "<tool_call|>", end);
    if (there < 0) {
        r->at = after;
        return V_MORE;
    }
    r->at = there ? r->at + strlen("<tool_call|>") : after;
    return call_finish(r);
}

enum verdict read_gemma_call(struct reply *r, bool end)
{
    enum verdict v = V_DONE;
    while (v == V_DONE) {
        switch (r->state) {
        case G_CALL: {
            bool named = r->opened - r->from > 0 && r->in.data[r->opened - 1] == ':';
            if (!named) {
                skip_space(r);
                int there = mark_at(r, r->at, "call:", end);
                if (there != 1) return there < 0 ? V_MORE : V_BROKEN;
                r->at += 5;
            }
            r->state = G_NAME;
            break;
        }
        case G_NAME: v = read_name(r, end); break;
        case G_VALUE: v = read_value(r, end); break;
        case G_KEY: v = read_key(r); break;
        case G_STRING: v = read_string(r, end); break;
        case G_JSON_STRING:                     /* as in JSON, which models write now and then */
            if ((v = copy_string(r, false, end)) == V_DONE) r->state = G_AFTER;
            break;
        case G_AFTER: v = read_after(r); break;
        default: return read_close(r, end);
        }
        call_tell(r);
    }
    return v;
}
