/* chat/call_json.c - calls written as JSON: Hermes and Qwen2.5/3 (object or list in tags), Llama 3 (bare
 * object), Mistral (list of objects, or NAME[ARGS]object). Arguments are copied as the model writes them
 * (call_copy.c); of other values only the ends are found. */
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
        } else if (r->depth == 0 && is_one_of(c, "<:\\")) {
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

enum { AT_OPEN, AT_KEY, AT_COLON, AT_VALUE, IN_VALUE, IN_ARGUMENTS, AT_COMMA, AT_CLOSE,
       AT_LIST_END, AT_PROGRAM_KEY, AT_PROGRAM_VALUE, AT_NAME, AT_ARGS };

static bool is_arguments(const struct reply *r)
{
    return str_is((struct str){ buf_text(&r->key), r->key.len }, "arguments") ||
           str_is((struct str){ buf_text(&r->key), r->key.len }, "parameters");
}

static bool key_is(const struct reply *r, const char *key)
{
    return str_is((struct str){ buf_text(&r->key), r->key.len }, key);
}

/* A value is complete: takes the name, and arguments that are JSON in a string. */
static bool take_value(struct reply *r)
{
    bool name = key_is(r, "name"), arguments = is_arguments(r);
    if (!name && !arguments) return true;
    json_t *json = value_json(r), *inside = NULL;
    bool good = json_is_string(json) || (arguments && json_is_null(json));
    struct str text = { json_string_value(json), json_string_length(json) };
    while (arguments && text.len && is_space(*text.at)) text.at++, text.len--;
    if (name && good) good = call_start(r, text, (struct str){ 0 });
    if (arguments && text.len) {
        inside = json_of(r, text.at, text.len);
        good = json_is_object(inside);
        if (good) buf_add(&r->args, text.at, text.len);
    }
    json_decref(inside);
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
    if (c == '{' && r->levels == 1 && r->key.len == 0) {     /* one too many, as some templates show it */
        r->state = AT_OPEN;
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
        r->state = c == '{' && is_arguments(r) ? IN_ARGUMENTS : IN_VALUE;
        return V_DONE;
    case IN_ARGUMENTS: {
        enum verdict v = copy_json(r, end);
        if (v == V_DONE) r->state = AT_COMMA;
        return v;
    }
    case IN_VALUE: {
        enum verdict v = find_end(r, end);
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

/* Whether the mark that ends calls stands at `at`: as mark_at. */
static int close_at(const struct reply *r, size_t at, bool end)
{
    return r->p.dialect->close ? mark_at(r, at, r->p.dialect->close, end) : 0;
}

/* Up to the object's closing brace. A model may forget braces at the end of the call. */
static enum verdict read_object(struct reply *r, bool end)
{
    while (r->state < AT_CLOSE) {
        if (r->state != IN_ARGUMENTS) skip_space(r);
        if (r->at == r->in.len && r->state != IN_ARGUMENTS) {
            if (end && r->natural && r->state == AT_COMMA && r->args.len) break;
            return V_MORE;
        }
        if (r->state == AT_COMMA && r->in.data[r->at] == '<' && r->args.len) {
            int there = close_at(r, r->at, end);
            if (there < 0) return V_MORE;
            if (there) break;
        }
        enum verdict v = object_step(r, end);
        if (v != V_DONE) return v;
    }
    r->state = AT_CLOSE;
    return V_DONE;
}

/* The mark that ends a call, if it is there; before it braces too many are dropped. */
static enum verdict read_close(struct reply *r, bool end)
{
    size_t at = r->at;
    while (at < r->in.len && (is_space(r->in.data[at]) || r->in.data[at] == '}')) at++;
    if (at == r->in.len && !end) return V_MORE;
    int there = close_at(r, at, end);
    if (there == 1) r->at = at + strlen(r->p.dialect->close);
    else if (at == r->in.len) r->at = at;
    return there < 0 ? V_MORE : V_DONE;
}

/* An object, or a list of them, then the closing mark. */
static enum verdict read_objects(struct reply *r, bool end)
{
    if (r->state == AT_OPEN && !r->list) {
        skip_space(r);
        if (r->at == r->in.len) return V_MORE;
        r->list = r->in.data[r->at] == '[';
        r->at += r->list;
    }
    enum verdict v = V_DONE;
    while (v == V_DONE && r->list && r->state != AT_LIST_END) {
        if ((v = read_object(r, end)) != V_DONE) return v;
        skip_space(r);
        if (r->at == r->in.len && !end) return V_MORE;
        char c = r->at < r->in.len ? r->in.data[r->at] : ']';
        int close = c == '<' ? close_at(r, r->at, end) : 0;
        if (close < 0) return V_MORE;
        if (c != ',' && c != ']' && !close) return V_BROKEN;
        r->at += r->at < r->in.len && !close;
        if ((v = call_finish(r)) != V_DONE) return v;
        r->list = true;
        r->from = r->opened = r->at;            /* the calls before are given out */
        r->state = c == ',' ? AT_OPEN : AT_LIST_END;
    }
    if (r->list) return read_close(r, end);
    if ((v = read_object(r, end)) != V_DONE || (v = read_close(r, end)) != V_DONE) return v;
    return call_finish(r);
}

/* In tags. Or bare: further ones may follow after ';'. */
enum verdict read_json_call(struct reply *r, bool end)
{
    if (!r->single) return read_objects(r, end);
    enum verdict v = read_object(r, end);
    if (v != V_DONE) return v;
    size_t after = r->at;
    skip_space(r);
    if (r->at == r->in.len && !end) {
        r->at = after;
        return V_MORE;
    }
    if (r->at == r->in.len || r->in.data[r->at] != ';') {
        if (r->at < r->in.len) r->at = after;
        if ((v = read_close(r, end)) != V_DONE) return v;
        return call_finish(r);
    }
    r->at++;
    if ((v = call_finish(r)) != V_DONE) return v;
    r->from = r->opened = r->at;
    r->skip_blank = true;
    return read_json_call(r, end);
}

/* ---- Llama --------------------------------------------------------------------------------------- */

/* A string between single quotes, from r->at on. */
static enum verdict read_single_quoted(struct reply *r)
{
    const char *p = r->in.data;
    size_t to = r->at + 1;
    while (to < r->in.len && p[to] != '\'') to += p[to] == '\\' ? 2 : 1;
    if (to >= r->in.len) return V_MORE;
    buf_add_char(&r->args, '"');
    for (size_t i = r->at + 1; i < to; i++) {
        if (p[i] == '\\' && is_one_of(p[i + 1], "\\\"/bfnrt")) buf_add(&r->args, p + i++, 2);
        else if (p[i] == '\\' && p[i + 1] == '\'') buf_add_char(&r->args, p[++i]);
        else escape_json(&r->args, p + i, 1);
    }
    buf_add_char(&r->args, '"');
    r->at = to + 1;
    return V_DONE;
}

/* The value of key=value: JSON, or as a program writes it. */
static enum verdict read_program_value(struct reply *r, bool end)
{
    static const char *const words[][2] = { { "True", "true" }, { "False", "false" }, { "None", "null" } };
    char c = r->in.data[r->at];
    if (r->step || r->depth || c == '{' || c == '[' || c == '"') return copy_json(r, end);
    if (c == '\'') return read_single_quoted(r);
    size_t to = r->at;
    while (to < r->in.len && !is_space(r->in.data[to]) && !is_one_of(r->in.data[to], ",)")) to++;
    if (to == r->in.len) return V_MORE;
    struct str word = { r->in.data + r->at, to - r->at };
    for (size_t i = 0; i < 3; i++)
        if (str_is(word, words[i][0])) word = str_of(words[i][1]);
    if (!is_json_word(word)) return V_BROKEN;
    buf_add(&r->args, word.at, word.len);
    r->at = to;
    return V_DONE;
}

/* Between `NAME.call(` and `)`: words as keys. */
static enum verdict read_program_key(struct reply *r)
{
    const char *p = r->in.data;
    size_t to = r->at;
    if (p[to] == ',' && r->params && !r->comma) {
        r->comma = true;
        r->at++;
        return V_DONE;
    }
    if (p[to] == ')') {
        r->at++;
        buf_add_text(&r->args, r->params ? "}" : "{}");
        return call_finish(r);
    }
    while (to < r->in.len && to - r->at <= NAME_MAX_BYTES && !is_space(p[to]) && !is_one_of(p[to], "=,()\"'")) to++;
    if (to == r->in.len) return V_MORE;
    if (p[to] != '=' || to == r->at || (r->params && !r->comma)) return V_BROKEN;
    buf_add_text(&r->args, r->params++ ? ", \"" : "{\"");
    escape_json(&r->args, p + r->at, to - r->at);
    buf_add_text(&r->args, "\": ");
    r->at = to + 1;
    r->comma = false;
    r->step = r->depth = 0;
    r->state = AT_PROGRAM_VALUE;
    return V_DONE;
}

/* `<|python_tag|>NAME.call(key="value", ...)`. Or an object after the tag. */
enum verdict read_llama_call(struct reply *r, bool end)
{
    if (r->state == AT_OPEN) skip_space(r);
    if (r->at == r->in.len && r->state == AT_OPEN) return V_MORE;
    bool json = r->list || (r->state == AT_OPEN && (r->in.data[r->at] == '{' || r->in.data[r->at] == '['));
    if (json || (r->state > AT_OPEN && r->state < AT_PROGRAM_KEY)) return read_json_call(r, end);
    if (r->state == AT_OPEN) {
        const char *p = r->in.data + r->at;
        size_t left = r->in.len - r->at, most = NAME_MAX_BYTES + 6;
        const char *call = memmem(p, left < most ? left : most, ".call(", 6);
        const char *line = memchr(p, '\n', left < most ? left : most);
        if (!call) return left >= most || line ? V_BROKEN : V_MORE;
        if (!call_start(r, (struct str){ p, (size_t)(call - p) }, (struct str){ 0 })) return V_BROKEN;
        r->at += (size_t)(call - p) + 6;
        r->state = AT_PROGRAM_KEY;
    }
    enum verdict v = V_DONE;
    while (v == V_DONE && r->started) {
        if (r->state == AT_PROGRAM_KEY || (r->step == 0 && r->depth == 0)) skip_space(r);
        if (r->at == r->in.len) return V_MORE;
        if (r->state == AT_PROGRAM_KEY) {
            v = read_program_key(r);
        } else if ((v = read_program_value(r, end)) == V_DONE) {
            r->state = AT_PROGRAM_KEY;
        }
    }
    return v;
}

/* ---- Mistral ------------------------------------------------------------------------------------- */

/* NAME [CALL_ID]id [ARGS]{...} */
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
        r->state = IN_ARGUMENTS;
    }
    enum verdict v = copy_json(r, end);
    return v == V_DONE ? call_finish(r) : v;
}

enum verdict read_mistral_call(struct reply *r, bool end)
{
    if (r->state == AT_OPEN && !r->list) {
        skip_space(r);
        if (r->at == r->in.len) return V_MORE;
        if (!is_one_of(r->in.data[r->at], "[{")) r->state = AT_NAME;
    }
    bool named = r->state >= AT_NAME || (r->state == IN_ARGUMENTS && r->levels == 0);
    return named ? read_named(r, end) : read_objects(r, end);
}
