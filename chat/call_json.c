/* chat/call_json.c - calls written as JSON: Hermes and Qwen2.5/3 (object in tags), Llama 3 (bare object),
 * Mistral (list of objects, or NAME[ARGS]object). The arguments are passed on as the model writes them;
 * jansson checks them when they are complete. Here only the ends of values are found. */
#define _GNU_SOURCE             /* memmem */
#include "chat/reply_private.h"

/* Moves over one value that begins at r->value, from r->seen on. V_DONE: r->seen is its end. */
static enum verdict find_end(struct reply *r, bool end)
{
    const char *p = r->in.data;
    for (; r->seen < r->in.len; r->seen++) {
        char c = p[r->seen];
        if (r->in_string) {
            if (r->escaped) r->escaped = false;
            else if (c == '\\') r->escaped = true;
            else if (c == '"') r->in_string = false;
            if (!r->in_string && r->depth == 0) return r->seen++, V_DONE;
        } else if (c == '"') {
            r->in_string = true;
        } else if (c == '{' || c == '[') {
            if (r->depth == DEPTH_MAX) return V_BROKEN;
            r->stack[r->depth++] = c;
        } else if (c == '}' || c == ']') {
            if (r->depth == 0) return V_DONE;           /* the end of a number or word */
            if (r->stack[--r->depth] != (c == '}' ? '{' : '[')) return V_BROKEN;
            if (r->depth == 0) return r->seen++, V_DONE;
        } else if (r->depth == 0 && (c == ',' || is_space(c))) {
            return V_DONE;
        } else if (r->depth == 0 && strchr("<:\\", c)) {
            return V_BROKEN;
        }
    }
    (void)end;
    return V_MORE;
}

static void value_starts(struct reply *r)
{
    r->value = r->seen = r->at;
    r->depth = 0;
    r->in_string = r->escaped = false;
}

/* The text of a JSON string at [value, seen), or NULL; json_decref. */
static json_t *value_json(struct reply *r)
{
    return json_of(r, r->in.data + r->value, r->seen - r->value);
}

/* Passes on what is known of arguments that are an object in the text. */
static void pass_arguments(struct reply *r)
{
    if (r->in.data[r->value] != '{' || r->seen <= r->value + r->args.len) return;
    size_t from = r->value + r->args.len;
    buf_add(&r->args, r->in.data + from, r->seen - from);
}

enum { AT_OPEN, AT_KEY, AT_COLON, AT_VALUE, IN_VALUE, AT_COMMA, AT_CLOSE, AT_NAME, AT_ID, AT_ARGS, IN_ARGS, AT_NEXT };

static bool is_arguments(const struct reply *r)
{
    return str_is((struct str){ buf_text(&r->key), r->key.len }, "arguments") ||
           str_is((struct str){ buf_text(&r->key), r->key.len }, "parameters");
}

static bool key_is(const struct reply *r, const char *key)
{
    return str_is((struct str){ buf_text(&r->key), r->key.len }, key);
}

/* A value is complete: takes the name and arguments that are a string or something else than an object. */
static bool take_value(struct reply *r)
{
    bool name = key_is(r, "name"), arguments = is_arguments(r);
    if (!name && !arguments) return true;
    if (arguments && r->in.data[r->value] == '{') {
        pass_arguments(r);
        json_t *json = value_json(r);
        json_decref(json);
        return json != NULL;
    }
    json_t *json = value_json(r);
    bool good = json_is_string(json) || (arguments && json_is_null(json));
    if (name && good) good = call_start(r, (struct str){ json_string_value(json), json_string_length(json) },
                                        (struct str){ 0 });
    if (arguments && json_is_string(json)) buf_add(&r->args, json_string_value(json), json_string_length(json));
    json_decref(json);
    return good;
}

static enum verdict read_key(struct reply *r, bool end)
{
    char c = r->in.data[r->at];
    if (c == '}') {
        r->at++;
        r->state = --r->levels ? AT_COMMA : AT_CLOSE;
        return V_DONE;
    }
    if (c != '"') return V_BROKEN;
    if (r->value != r->at) value_starts(r);
    enum verdict v = find_end(r, end);
    if (v != V_DONE) return v;
    json_t *key = value_json(r);
    buf_clear(&r->key);
    if (key) buf_add(&r->key, json_string_value(key), json_string_length(key));
    json_decref(key);
    if (!key) return V_BROKEN;
    r->at = r->seen;
    r->state = AT_COLON;
    return V_DONE;
}

/* A bare object whose first key is no part of a call is no call: that need not wait for its end. */
static bool key_fits(const struct reply *r)
{
    return key_is(r, "name") || is_arguments(r) || key_is(r, "type") || key_is(r, "function") || key_is(r, "id");
}

/* One step inside the object; V_DONE: go on. */
static enum verdict object_step(struct reply *r, bool end)
{
    char c = r->in.data[r->at];
    switch (r->state) {
    case AT_OPEN:
        if (c != '{') return V_BROKEN;
        r->levels++;
        r->at++;
        r->state = AT_KEY;
        return V_DONE;
    case AT_KEY: return read_key(r, end);
    case AT_COLON:
        if (c != ':' || (r->single && !key_fits(r))) return V_BROKEN;
        r->at++;
        r->state = AT_VALUE;
        return V_DONE;
    case AT_VALUE:
        if (c == '{' && key_is(r, "function") && r->levels == 1) {
            r->state = AT_OPEN;
            return V_DONE;
        }
        value_starts(r);
        if (is_arguments(r) && r->args.len) return V_BROKEN;        /* a second one: part of the first may be told */
        r->state = IN_VALUE;
        return V_DONE;
    case IN_VALUE: {
        enum verdict v = find_end(r, end);
        if (is_arguments(r)) pass_arguments(r);     /* up to the byte that breaks it, however it is cut */
        if (v != V_DONE) return v;
        if (!take_value(r)) return V_BROKEN;
        r->at = r->seen;
        r->state = AT_COMMA;
        return V_DONE;
    }
    case AT_COMMA:
        if (c == ',') r->state = AT_KEY;
        else if (c == '}') r->state = --r->levels ? AT_COMMA : AT_CLOSE;
        else return V_BROKEN;
        r->at++;
        return V_DONE;
    default: return V_BROKEN;
    }
}

/* Up to the object's closing brace. */
static enum verdict read_object(struct reply *r, bool end)
{
    while (r->state < AT_CLOSE) {
        skip_space(r);
        if (r->at == r->in.len) {       /* a model may forget the last braces */
            if (end && r->natural && r->state == AT_COMMA && r->args.len) break;
            return V_MORE;
        }
        enum verdict v = object_step(r, end);
        if (v != V_DONE) return v;
    }
    return V_DONE;
}

/* Hermes: object, then the closing tag. Bare: the object alone; further ones may follow after ';'. */
enum verdict read_json_call(struct reply *r, bool end)
{
    enum verdict v = read_object(r, end);
    if (v != V_DONE) return v;
    size_t after = r->at;
    skip_space(r);
    if (r->single) {
        if (r->at == r->in.len && !end) return V_MORE;
        if (r->at == r->in.len || r->in.data[r->at] != ';') {
            bool tail = r->at < r->in.len;
            if (tail) r->at = after;
            return call_finish(r);
        }
        r->at++;
        if ((v = call_finish(r)) != V_DONE) return v;
        r->from = r->opened = r->at;
        r->skip_blank = true;
        return read_json_call(r, end);
    }
    const char *close = r->p.dialect->tags ? r->p.dialect->tags->close : "</tool_call>";
    int there = mark_at(r, r->at, close, end);
    if (there < 0) return V_MORE;
    if (there) r->at += strlen(close);
    else r->at = after;
    return call_finish(r);
}

/* `<|python_tag|>NAME.call(key="value", ...)`: keys are words, values JSON. Or an object after the tag. */
enum verdict read_llama_call(struct reply *r, bool end)
{
    skip_space(r);
    if (r->at == r->in.len && r->state == AT_OPEN) return V_MORE;
    if (r->state != AT_OPEN || r->in.data[r->at] == '{') return read_json_call(r, end);
    const char *p = r->in.data + r->at;
    size_t left = r->in.len - r->at, most = NAME_MAX_BYTES + 6;
    const char *call = memmem(p, left < most ? left : most, ".call(", 6);
    if (!call) return left >= most || memchr(p, '\n', left) ? V_BROKEN : V_MORE;
    if (memchr(p, '\n', (size_t)(call - p))) return V_BROKEN;
    struct str name = { p, (size_t)(call - p) };
    size_t at = r->at + name.len + 6;
    buf_clear(&r->args);
    buf_add_char(&r->args, '{');
    for (int n = 0;; n++) {
        while (at < r->in.len && (is_space(r->in.data[at]) || (n && r->in.data[at] == ','))) at++;
        if (at == r->in.len) return V_MORE;
        if (r->in.data[at] == ')') break;
        size_t rest = r->in.len - at;
        const char *equal = memchr(r->in.data + at, '=', rest < NAME_MAX_BYTES ? rest : NAME_MAX_BYTES);
        if (!equal) return rest >= NAME_MAX_BYTES ? V_BROKEN : V_MORE;
        size_t key = (size_t)(equal - (r->in.data + at));
        if (n) buf_add_text(&r->args, ", ");
        buf_add_char(&r->args, '"');
        escape_json(&r->args, r->in.data + at, key);
        buf_add_text(&r->args, "\": ");
        size_t from = r->at;
        r->at = at + key + 1;
        value_starts(r);
        r->at = from;
        enum verdict v = V_MORE;
        for (; r->seen < r->in.len && (r->in_string || r->depth || r->in.data[r->seen] != ')');) {
            size_t was = r->in.len;
            r->in.len = r->seen + 1;            /* a byte at a time, so that ')' ends a bare word */
            v = find_end(r, end);
            r->in.len = was;
            if (v != V_MORE) break;
        }
        if (v == V_BROKEN) return v;
        if (r->seen == r->in.len) return V_MORE;
        buf_add(&r->args, r->in.data + r->value, r->seen - r->value);
        at = r->seen;
    }
    buf_add_char(&r->args, '}');
    if (!call_start(r, name, (struct str){ 0 })) return V_BROKEN;
    r->at = at + 1;
    return call_finish(r);
}

/* ---- Mistral ------------------------------------------------------------------------------------- */

/* NAME [CALL_ID]id [ARGS]{...}: the end of what stands before the next mark, or of the object. */
static enum verdict read_named(struct reply *r, bool end)
{
    const char *p = r->in.data;
    if (r->state == AT_NAME) {
        size_t at = r->at;
        while (at < r->in.len && p[at] != '[' && p[at] != '{' && at - r->at <= NAME_MAX_BYTES) at++;
        if (at == r->in.len) return V_MORE;
        size_t len = at - r->at;
        while (len && is_space(p[r->at + len - 1])) len--;
        int id = mark_at(r, at, "[CALL_ID]", end), args = mark_at(r, at, "[ARGS]", end);
        if (id < 0 || args < 0) return V_MORE;
        if (!id && !args && p[at] != '{') return V_BROKEN;
        struct str name = { p + r->at, len }, call_id = { "", 0 };
        if (id) {
            size_t from = at + 9, rest = r->in.len - from;
            const char *next = memchr(p + from, '[', rest < NAME_MAX_BYTES ? rest : NAME_MAX_BYTES);
            if (!next) return rest >= NAME_MAX_BYTES ? V_BROKEN : V_MORE;
            call_id = (struct str){ p + from, (size_t)(next - (p + from)) };
            at = (size_t)(next - p);
            args = mark_at(r, at, "[ARGS]", end);
            if (args < 0) return V_MORE;
            if (!args) return V_BROKEN;
        }
        if (!call_start(r, name, call_id)) return V_BROKEN;
        r->at = at + (args ? 6 : 0);
        r->state = AT_ARGS;
    }
    if (r->state == AT_ARGS) {
        skip_space(r);
        if (r->at == r->in.len) return V_MORE;
        if (p[r->at] != '{') return V_BROKEN;
        value_starts(r);
        r->state = IN_ARGS;
    }
    enum verdict v = find_end(r, end);
    pass_arguments(r);
    if (v != V_DONE) return v;
    r->at = r->seen;
    return call_finish(r);
}

enum verdict read_mistral_call(struct reply *r, bool end)
{
    skip_space(r);
    if (r->at == r->in.len) return V_MORE;
    if (r->params == 0 && !r->started && r->state == AT_OPEN) {
        char c = r->in.data[r->at];
        r->params = c == '[' ? 2 : c == '{' ? 1 : 3;    /* list, object, name */
        if (c == '[') r->at++;
        if (r->params == 3) r->state = AT_NAME;
    }
    if (r->params == 3) return read_named(r, end);
    enum verdict v = read_object(r, end);
    if (v != V_DONE) return v;
    skip_space(r);
    if (r->params == 1) return call_finish(r);
    if (r->at == r->in.len && !end) return V_MORE;
    char c = r->at < r->in.len ? r->in.data[r->at] : ']';
    if (c != ',' && c != ']') return V_BROKEN;
    if (r->at < r->in.len) r->at++;
    if ((v = call_finish(r)) != V_DONE || c == ']') return v;
    r->params = 2;
    r->from = r->opened = r->at;                /* the calls before are given out */
    return read_mistral_call(r, end);
}
