/* chat/call_tags.c - calls whose arguments stand between tags: Qwen3-Coder and 3.5 (<function=..>),
 * Laguna and Ling (<arg_key>), DeepSeek V4 (DSML). A closing tag inside a value is told from the real one
 * by what follows: where the format may go on, or end, it is the end of the value; elsewhere it is if the next
 * call or the reply's end comes before a better one, and what is behind it waits for that.
 * Strings are passed on while they come; what the schema calls something else waits for its end. */
#define _GNU_SOURCE             /* memmem */
#include "chat/reply_private.h"

#include "base/mem.h"

enum { S_NAME_OPEN, S_NAME, S_BODY, S_KEY, S_VALUE_OPEN, S_VALUE_START, S_VALUE, S_CLOSE };

/* 1 when at byte `at`, after white space, `mark` stands; 0 not; -1 unclear. *after: behind it. */
static int after_space(const struct reply *r, size_t at, const char *mark, bool end, size_t *after)
{
    while (at < r->in.len && is_space(r->in.data[at])) at++;
    *after = at + strlen(mark);
    return mark_at(r, at, mark, end);
}

/* Whether at `at` the wrapper's end or a further call's opener stands. */
static int other_call(const struct reply *r, size_t at, bool end)
{
    const struct tag_form *f = r->p.dialect->tags;
    const char *marks[] = { f->close, *f->name_open ? f->name_open : NULL, r->p.dialect->open[0] };
    int there = 0;
    for (size_t i = 0; i < COUNT(marks) && there != 1; i++) {
        int one = marks[i] ? mark_at(r, at, marks[i], end) : 0;
        if (one) there = one;
    }
    return there;
}

/* Whether the call's end stands at `at`: its closing tag, and then its wrapper's end, a call or the reply's end. */
static int call_ends(const struct reply *r, size_t at, bool end)
{
    const struct tag_form *f = r->p.dialect->tags;
    size_t after;
    int there = after_space(r, at, f->call_close, end, &after);
    if (there != 1 || !f->close || r->unwrapped) return there;
    while (after < r->in.len && is_space(r->in.data[after])) after++;
    return after == r->in.len ? end ? 1 : -1 : other_call(r, after, end);
}

/* Whether a value ends with the closing tag that ends at `at`. Where not, it still may: see note_maybe. */
static int value_ends(const struct reply *r, size_t at, bool end)
{
    while (at < r->in.len && is_space(r->in.data[at])) at++;
    if (at == r->in.len) return end ? 1 : -1;
    int key = mark_at(r, at, r->p.dialect->tags->key_open, end);
    int close = call_ends(r, at, end), other = other_call(r, at, end);
    if (key == 1 || close == 1 || other == 1) return 1;
    return key < 0 || close < 0 || other < 0 ? -1 : 0;
}

/* The closing tag [at, after) is the value's text if a better one comes before the next call and the reply's
 * end, else the value ended here. One before the call's closing tag is the better guess. */
static void note_maybe(struct reply *r, size_t at, size_t after)
{
    size_t next;
    bool closed = after_space(r, after, r->p.dialect->tags->call_close, true, &next) == 1;
    if (r->maybe && (r->maybe_closed || !closed)) return;
    r->maybe = at;
    r->maybe_closed = closed;
}

enum { T_STRING = 1, T_INTEGER = 2, T_NUMBER = 4, T_BOOLEAN = 8, T_OBJECT = 16, T_ARRAY = 32, T_NULL = 64 };

static int type_bit(const char *name)
{
    static const char *const names[] = { "string", "integer", "number", "boolean", "object", "array", "null" };
    for (int i = 0; name && i < 7; i++)
        if (!strcmp(name, names[i])) return 1 << i;
    return 0;
}

static int bit_of(const json_t *v)
{
    static const int bits[] = { [JSON_OBJECT] = T_OBJECT, [JSON_ARRAY] = T_ARRAY, [JSON_STRING] = T_STRING,
                                [JSON_INTEGER] = T_INTEGER, [JSON_REAL] = T_NUMBER, [JSON_TRUE] = T_BOOLEAN,
                                [JSON_FALSE] = T_BOOLEAN, [JSON_NULL] = T_NULL };
    return v ? bits[json_typeof(v)] : 0;
}

/* The types that a schema allows, as far as it says: 0 when it does not. `root` holds what $ref names. */
static int types_of(const json_t *schema, const json_t *root, int depth)
{
    static const char *const unions[] = { "anyOf", "oneOf", "allOf" }, *const homes[] = { "$defs", "definitions" };
    const json_t *type = json_object_get(schema, "type"), *options = json_object_get(schema, "enum");
    const char *ref = json_string_value(json_object_get(schema, "$ref")), *name = ref ? strrchr(ref, '/') : NULL;
    int types = type_bit(json_string_value(type));
    if (!schema || depth > 8) return 0;
    for (size_t i = 0; i < json_array_size(type); i++) types |= type_bit(json_string_value(json_array_get(type, i)));
    for (int u = 0; u < 3; u++) {
        const json_t *of = json_object_get(schema, unions[u]);
        for (size_t i = 0; i < json_array_size(of); i++) types |= types_of(json_array_get(of, i), root, depth + 1);
    }
    for (int h = 0; h < 2 && name; h++)
        types |= types_of(json_object_get(json_object_get(root, homes[h]), name + 1), root, depth + 1);
    for (size_t i = 0; !types && i < json_array_size(options); i++) types |= bit_of(json_array_get(options, i));
    return types ? types : bit_of(json_object_get(schema, "const"));
}

static int key_types(const struct reply *r)
{
    const json_t *f = tool_find(r->p.tools, (struct str){ buf_text(&r->name), r->name.len });
    return types_of(call_schema(r, buf_text(&r->key)), json_object_get(f, "parameters"), 0);
}

/* The value [from, to) as JSON by its type. A text that does not fit its type stays a string. */
static void convert(struct reply *r, size_t from, size_t to)
{
    const char *p = r->in.data;
    size_t a = from, b = to;
    while (a < b && is_space(p[a])) a++;
    while (b > a && is_space(p[b - 1])) b--;
    struct str word = { p + a, b - a };
    json_t *v = json_of(r, word.at, word.len);
    int types = key_types(r), bit = bit_of(v);
    /* Numbers by their text: jansson knows none that are too large. */
    if (is_json_word(word) && !is_one_of(*word.at, "tfn")) bit = T_INTEGER | T_NUMBER;
    bool fits = r->as_text ? bit : types ? (bit & types & ~T_STRING) != 0 : bit == T_OBJECT || bit == T_ARRAY;
    const char *plain = NULL;
    if ((types || r->as_text) && (str_is(word, "null") || str_is(word, "None"))) plain = "null";
    else if ((types & T_BOOLEAN) && str_is(word, "True")) plain = "true";
    else if ((types & T_BOOLEAN) && str_is(word, "False")) plain = "false";
    json_decref(v);
    if (plain) buf_add_text(&r->args, plain);
    else if (fits) buf_add(&r->args, p + a, b - a);
    else {
        buf_add_char(&r->args, '"');
        escape_json(&r->args, p + from, to - from);
        buf_add_char(&r->args, '"');
    }
}

/* Passes on a string's bytes up to `to`. */
static void pass_string(struct reply *r, size_t to)
{
    if (to <= r->value) return;
    escape_json(&r->args, r->in.data + r->value, to - r->value);
    r->value = to;
}

static void end_value(struct reply *r, size_t to)
{
    if (r->p.dialect->tags->newlines && to > r->value && r->in.data[to - 1] == '\n') to--;
    if (r->is_string) {
        pass_string(r, to);
        buf_add_char(&r->args, '"');
    } else {
        convert(r, r->value, to);
    }
    r->params++;
    r->state = S_BODY;
}

/* Whether after the call's end, which stands at `at`, the reply ends or a further call begins. */
static int nothing_follows(const struct reply *r, size_t at, bool end)
{
    const struct tag_form *f = r->p.dialect->tags;
    size_t after, next;
    after_space(r, at, f->call_close, end, &after);
    int closed = f->close ? after_space(r, after, f->close, end, &next) : 0;
    if (closed < 0) return -1;
    if (closed) after = next;
    while (after < r->in.len && is_space(r->in.data[after])) after++;
    if (after == r->in.len) return end ? 1 : -1;
    int more = mark_at(r, after, r->p.dialect->open[0], end);
    return more == 1 ? after_space(r, after + strlen(r->p.dialect->open[0]), f->name_open, end, &next) : more;
}

/* A value without its closing tag: the next key, if declared and not yet given, or the end of the call. */
static int value_is_left_open(const struct reply *r, size_t at, bool end)
{
    const struct tag_form *f = r->p.dialect->tags;
    if (!f->newlines || at == 0) return 0;
    int close = call_ends(r, at, end);
    if (r->in.data[at - 1] != '\n') return close == 1 ? nothing_follows(r, at, end) : close;
    if (close == 1) return 1;
    int key = mark_at(r, at, f->key_open, end);
    if (key == 1) {
        size_t from = at + strlen(f->key_open);
        const char *stop = memmem(r->in.data + from, r->in.len - from, f->key_close, strlen(f->key_close));
        if (!stop) return r->in.len - from >= NAME_MAX_BYTES + strlen(f->key_close) || end ? 0 : -1;
        char name[NAME_MAX_BYTES + 1];
        size_t len = (size_t)(stop - (r->in.data + from));
        if (len > NAME_MAX_BYTES) return 0;
        memcpy(name, r->in.data + from, len);
        name[len] = 0;
        return call_schema(r, name) && !json_object_get(r->given, name) && strcmp(name, buf_text(&r->key)) ? 1 : 0;
    }
    return close < 0 || key < 0 ? -1 : 0;
}

/* Whether a further call begins at `at`. */
static int call_opens(const struct reply *r, size_t at, bool end)
{
    const char *name = r->p.dialect->tags->name_open, *open = r->p.dialect->open[0];
    size_t after;
    int there = mark_at(r, at, open, end);
    if (there == 1) return after_space(r, at + strlen(open), name, end, &after);
    int bare = *name ? mark_at(r, at, name, end) : 0;
    return bare ? bare : there;
}

static enum verdict end_value_at(struct reply *r, size_t to, size_t next)
{
    end_value(r, to);
    r->at = next;
    return V_DONE;
}

/* Looks for the value's end from r->seen on. V_MORE: not yet. */
static enum verdict find_value_end(struct reply *r, bool last)
{
    size_t n = strlen(r->p.dialect->tags->value_close);
    for (; r->seen < r->in.len; r->seen++) {
        if (r->in.data[r->seen] != '<') continue;
        size_t after = r->seen + n;
        int there = mark_at(r, r->seen, r->p.dialect->tags->value_close, last);
        if (there < 0) break;
        if (there) {
            there = value_ends(r, after, last);
            if (there < 0) break;
            if (there) return end_value_at(r, r->seen, after);
            note_maybe(r, r->seen, after);
            continue;
        }
        int open = value_is_left_open(r, r->seen, last), call = r->maybe ? call_opens(r, r->seen, last) : 0;
        if (call == 1 || (open == 1 && r->maybe_closed)) return end_value_at(r, r->maybe, r->maybe + n);
        if (open == 1) return end_value_at(r, r->seen, r->seen);
        if (open < 0 || call < 0) break;
    }
    return V_MORE;
}

static enum verdict read_value(struct reply *r, bool end)
{
    const struct tag_form *f = r->p.dialect->tags;
    bool last = end && r->natural;      /* what a limit cut may have been the start of a mark */
    if (find_value_end(r, last) == V_DONE) return V_DONE;
    if (r->maybe && (last || (end && r->maybe_closed)))
        return end_value_at(r, r->maybe, r->maybe + strlen(f->value_close));
    size_t safe = r->maybe && !end ? r->maybe : r->seen;
    if (!last && f->newlines && safe > r->value && r->in.data[safe - 1] == '\n') safe--;
    if (last) {                         /* counts if the call was told already */
        end_value(r, r->in.len);
        r->at = r->in.len;
    } else if (r->is_string) {
        pass_string(r, safe);
    } else if (end) {
        buf_add(&r->args, r->in.data + r->value, safe - r->value);      /* a cut value, as it stands */
    }
    return V_MORE;
}

static void begin_value(struct reply *r)
{
    const struct tag_form *f = r->p.dialect->tags;
    int types = r->typed ? 0 : key_types(r);
    if (f->newlines && r->in.data[r->at] == '\n') r->at++;
    r->is_string = r->typed ? !r->as_text : (types & T_STRING) && !(types & ~(T_STRING | T_NULL));
    buf_add_text(&r->args, r->params ? ", \"" : "{\"");
    escape_json(&r->args, buf_text(&r->key), r->key.len);
    buf_add_text(&r->args, r->is_string ? "\": \"" : "\": ");
    if (!r->given) r->given = json_object();
    if (json_object_set_new(r->given, buf_text(&r->key), json_true())) r->failed = true;
    r->value = r->seen = r->at;
    r->maybe = 0;
    r->maybe_closed = false;
    r->state = S_VALUE;
}

/* `port" string="true` of DSML: the key, and whether the value is JSON. */
static void split_attribute(struct reply *r)
{
    const char *key = buf_text(&r->key), *quote = strchr(key, '"');
    r->typed = quote && strstr(quote, "string=");
    r->as_text = quote && strstr(quote, "string=\"false");
    if (!quote) return;
    r->key.len = (size_t)(quote - key);
    if (r->key.data) r->key.data[r->key.len] = 0;
}

static enum verdict read_key(struct reply *r, bool end)
{
    const struct tag_form *f = r->p.dialect->tags;
    const char *p = r->in.data + r->at, *stop = memmem(p, r->in.len - r->at, f->key_close, strlen(f->key_close));
    if (!stop) return r->in.len - r->at >= 2 * NAME_MAX_BYTES + strlen(f->key_close) ? V_BROKEN : V_MORE;
    size_t len = (size_t)(stop - p);
    if (len == 0 || len > 2 * NAME_MAX_BYTES || memchr(p, '\n', len)) return V_BROKEN;
    buf_clear(&r->key);
    buf_add(&r->key, p, len);
    if (f->attribute) split_attribute(r);
    r->at += len + strlen(f->key_close);
    r->state = S_VALUE_OPEN;
    (void)end;
    return V_DONE;
}

static enum verdict read_name(struct reply *r, bool end)
{
    const struct tag_form *f = r->p.dialect->tags;
    const char *p = r->in.data + r->at;
    size_t left = r->in.len - r->at, len = 0;
    if (f->name_close) {
        const char *stop = memmem(p, left, f->name_close, strlen(f->name_close));
        if (!stop) return left >= NAME_MAX_BYTES + strlen(f->name_close) ? V_BROKEN : V_MORE;
        len = (size_t)(stop - p);
    } else {
        while (len < left && !is_space(p[len]) && p[len] != '<') len++;
        if (len == left && !end) return left > NAME_MAX_BYTES ? V_BROKEN : V_MORE;
    }
    /* A name that no tag follows is prose: it must be clear before it is told. */
    if (!f->name_close) {
        size_t at = r->at + len, after;
        while (at < r->in.len && is_space(r->in.data[at])) at++;
        int key = after_space(r, at, f->key_open, end, &after), close = after_space(r, at, f->call_close, end, &after);
        if (key != 1 && close != 1) return key < 0 || close < 0 ? V_MORE : V_BROKEN;
    }
    if (!call_start(r, (struct str){ p, len }, (struct str){ 0 })) return V_BROKEN;
    r->at += len + (f->name_close ? strlen(f->name_close) : 0);
    r->state = S_BODY;
    return V_DONE;
}

/* Between parameters: a further one, or the end of the call, if only by the wrapper's end or the next call. */
static enum verdict read_body(struct reply *r, bool end)
{
    const struct tag_form *f = r->p.dialect->tags;
    skip_space(r);
    if (r->at == r->in.len && !(end && r->natural && r->params)) return V_MORE;
    int key = mark_at(r, r->at, f->key_open, end);
    if (key == 1) {
        r->at += strlen(f->key_open);
        r->state = S_KEY;
        return V_DONE;
    }
    int close = mark_at(r, r->at, f->call_close, end);
    if (r->at < r->in.len) {
        int other = close != 1 && r->params ? other_call(r, r->at, end) : 0;
        if (close != 1 && other != 1) return key < 0 || close < 0 || other < 0 ? V_MORE : V_BROKEN;
        if (close == 1) r->at += strlen(f->call_close);
    }
    buf_add_text(&r->args, r->params ? "}" : "{}");
    enum verdict v = call_finish(r);
    if (v != V_DONE || !f->close) return v;
    r->from = r->opened = r->at;
    r->state = S_CLOSE;
    return V_DONE;
}

/* After a call: its closing tag once more, the wrapper's end, or a further call in it. */
static enum verdict read_close(struct reply *r, bool end, bool *over)
{
    const struct tag_form *f = r->p.dialect->tags;
    size_t after, next;
    int again = after_space(r, r->at, f->call_close, end, &after);
    if (again == 1) {
        r->at = after;
        return V_DONE;
    }
    int close = after_space(r, r->at, f->close, end, &after);
    int more = f->several ? after_space(r, r->at, f->name_open, end, &next) : 0;
    if (close < 0 || more < 0 || again < 0) {
        bool only_space = true;
        for (size_t i = r->at; i < r->in.len; i++) only_space &= is_space(r->in.data[i]);
        if (!end || !only_space) return V_MORE;
    }
    *over = more != 1;
    if (close == 1) r->at = after;
    if (more == 1) {
        r->from = r->opened = r->at = next - strlen(f->name_open);
        r->state = S_NAME_OPEN;
    }
    return V_DONE;
}

enum verdict read_tag_call(struct reply *r, bool end)
{
    const struct tag_form *f = r->p.dialect->tags;
    enum verdict v = V_DONE;
    for (bool over = false; v == V_DONE && !over;) {
        size_t after;
        switch (r->state) {
        case S_NAME_OPEN: {
            /* The opener may be the name's own tag, without its wrapper. */
            size_t n = strlen(f->name_open);
            if (*f->name_open && r->opened >= n && r->at == r->opened && r->opened - r->from >= n &&
                !memcmp(r->in.data + r->opened - n, f->name_open, n)) {
                r->unwrapped = true;
                r->state = S_NAME;
                break;
            }
            int there = after_space(r, r->at, f->name_open, end, &after);
            if (!*f->name_open && after == r->in.len && !end) there = -1;       /* more space may follow */
            v = there == 1 ? V_DONE : there < 0 ? V_MORE : V_BROKEN;
            if (there == 1) r->at = after, r->state = S_NAME;
            break;
        }
        case S_NAME: v = read_name(r, end); break;
        case S_BODY:
            v = read_body(r, end);
            over = v == V_DONE && !f->close && r->state == 0;
            break;
        case S_KEY: v = read_key(r, end); break;
        case S_VALUE_OPEN:
            if (f->value_open) {
                int there = after_space(r, r->at, f->value_open, end, &after);
                v = there == 1 ? V_DONE : there < 0 ? V_MORE : V_BROKEN;
                if (there == 1) r->at = after;
            }
            if (v == V_DONE) r->state = S_VALUE_START;
            break;
        case S_VALUE_START:
            if (r->at == r->in.len) v = V_MORE;
            else begin_value(r);
            break;
        case S_VALUE: v = read_value(r, end); break;
        default: v = read_close(r, end, &over);
        }
        call_tell(r);
    }
    return v;
}
