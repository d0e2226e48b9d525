/* chat/tree.c - see tree.h. */
#include "chat/tree.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/json_read.h"
#include "base/utf8.h"
#include "text/jinja.h"

enum { USUAL_DEPTH = JSON_IN_DEPTH, MARK = 0xff };

struct tree {
    struct json_in in;
    int most;
    struct buf text;                /* the string that was read last */
    const char *bad;
    bool too_deep, no_memory;
};

static json_t *value(struct tree *t);

static json_t *no(struct tree *t, const char *why)
{
    if (!t->bad) t->bad = why;
    return NULL;
}

static json_t *made(struct tree *t, json_t *v)
{
    if (!v) t->no_memory = true;
    return v;
}

static bool is_utf8(const struct buf *b)
{
    for (size_t i = 0; i < b->len;) {
        int n = utf8_character(b->data + i, b->len - i);
        if (n < 0) return false;
        i += (size_t)n;
    }
    return true;
}

/* What was read into t->text, if it is text. */
static bool check_text(struct tree *t, bool read)
{
    if (t->text.failed) t->no_memory = true;
    else if (!read) no(t, "a string that does not end, or an escape or byte that JSON does not know");
    else if (!is_utf8(&t->text)) no(t, "a string that is not UTF-8");
    return !t->bad && !t->no_memory;
}

static json_t *read_text(struct tree *t)
{
    if (!check_text(t, json_read_text(&t->in, &t->text))) return NULL;
    return made(t, json_stringn_nocheck(buf_text(&t->text), t->text.len));
}

static json_t *read_number(struct tree *t)
{
    struct json_number n;
    if (!json_read_number(&t->in, &n)) return no(t, "a number that JSON does not know");
    if (n.whole) return made(t, json_integer(n.i));
    bool integer = true;
    for (size_t i = 0; i < n.digits.len; i++) integer &= !is_one_of(n.digits.at[i], ".eE");
    if (!integer && isfinite(n.d)) return made(t, json_real(n.d));
    buf_clear(&t->text);
    buf_add_char(&t->text, (char)MARK);
    buf_add(&t->text, n.digits.at, n.digits.len);
    if (t->text.failed) return made(t, NULL);
    return made(t, json_stringn_nocheck(t->text.data, t->text.len));
}

/* Jansson's names end at a NUL. */
static json_t *add_member(struct tree *t, json_t *object)
{
    if (!check_text(t, json_read_name(&t->in, &t->text))) return NULL;
    struct buf name = { 0 };
    for (size_t i = 0; i < t->text.len; i++)
        if (t->text.data[i]) buf_add_char(&name, t->text.data[i]);
        else buf_add_text(&name, "\xef\xbf\xbd");
    json_t *v = name.failed ? made(t, NULL) : value(t);
    bool good = v && !json_object_set_new_nocheck(object, buf_text(&name), v);
    if (v && !good) t->no_memory = true;
    buf_drop(&name);
    return good ? object : NULL;
}

static json_t *read_container(struct tree *t, enum json_kind kind)
{
    bool first = true, object = kind == SEEN_OBJECT;
    if (t->in.depth == t->most) return t->too_deep = true, no(t, "it nests too deep");
    json_t *out = made(t, object ? json_object() : json_array());
    bool good = out && json_enter(&t->in, kind);
    while (good && json_more(&t->in, &first)) {
        if (object) {
            good = add_member(t, out) != NULL;
            continue;
        }
        json_t *v = value(t);
        good = v && !json_array_append_new(out, v);
        if (v && !good) t->no_memory = true;
    }
    if (good && !t->in.bad) return out;
    json_decref(out);
    return no(t, "a comma, a value or the end of an object or array is missing");
}

static json_t *value(struct tree *t)
{
    enum json_kind kind = json_next_kind(&t->in);
    switch (kind) {
    case SEEN_OBJECT: case SEEN_ARRAY: return read_container(t, kind);
    case SEEN_TEXT: return read_text(t);
    case SEEN_NUMBER: return read_number(t);
    case SEEN_TRUE: case SEEN_FALSE: case SEEN_NULL:
        if (!json_skip(&t->in)) break;
        return kind == SEEN_NULL ? json_null() : json_boolean(kind == SEEN_TRUE);
    case SEEN_NONE: break;
    }
    return no(t, t->in.at == t->in.end ? "it ends before its time" : "a value is expected");
}

json_t *tree_read(struct str text, int depth, struct tree_error *why)
{
    struct tree t = { .most = depth };
    json_read(&t.in, text);
    json_t *v = value(&t);
    if (v && !json_done(&t.in)) {
        json_decref(v);
        v = no(&t, "something follows its end");
    }
    if (why)
        *why = (struct tree_error){ .at = (size_t)(t.in.at - t.in.start), .too_deep = t.too_deep,
                                    .no_memory = t.no_memory, .text = t.no_memory ? "out of memory" : t.bad };
    buf_drop(&t.text);
    return v;
}

json_t *tree_read_object(struct str text)
{
    json_t *v = tree_read(text, USUAL_DEPTH, NULL);
    if (json_is_object(v)) return v;
    json_decref(v);
    return NULL;
}

/* ---- printing ------------------------------------------------------------------------------------ */

static void print_scalar(struct buf *out, const json_t *v)
{
    struct json j;
    char number[40];
    json_begin(&j, out);
    if (tree_digits(v)) buf_add_text(out, tree_digits(v));
    else if (json_is_string(v)) json_str(&j, (struct str){ json_string_value(v), json_string_length(v) });
    else if (json_is_integer(v)) json_int(&j, json_integer_value(v));
    else if (json_is_real(v)) jinja_print_float(number, json_real_value(v)), buf_add_text(out, number);
    else if (json_is_boolean(v)) json_bool(&j, json_is_true(v));
    else json_put_null(&j);
}

void tree_print(struct buf *out, const json_t *tree, enum tree_form form)
{
    const char *comma = form == TREE_SPACED ? ", " : ",", *colon = form == TREE_SPACED ? ": " : ":";
    if (json_is_array(tree)) {
        buf_add_char(out, '[');
        for (size_t i = 0; i < json_array_size(tree); i++) {
            if (i) buf_add_text(out, comma);
            tree_print(out, json_array_get(tree, i), form);
        }
        buf_add_char(out, ']');
    } else if (json_is_object(tree)) {
        json_t *object = (json_t *)(uintptr_t)tree;     /* jansson's iterators take no const */
        buf_add_char(out, '{');
        for (void *i = json_object_iter(object); i; i = json_object_iter_next(object, i)) {
            struct json j;
            if (i != json_object_iter(object)) buf_add_text(out, comma);
            json_begin(&j, out);
            json_text(&j, json_object_iter_key(i));
            buf_add_text(out, colon);
            tree_print(out, json_object_iter_value(i), form);
        }
        buf_add_char(out, '}');
    } else {
        print_scalar(out, tree);
    }
}

json_t *tree_text(const json_t *tree)
{
    struct buf text = { 0 };
    tree_print(&text, tree, TREE_COMPACT);
    json_t *out = text.failed ? NULL : json_stringn_nocheck(buf_text(&text), text.len);
    buf_drop(&text);
    return out;
}

const char *tree_digits(const json_t *v)
{
    const char *text = json_string_value(v);
    return text && (unsigned char)*text == MARK ? text + 1 : NULL;
}

bool tree_is_text(const json_t *v)
{
    return json_is_string(v) && !tree_digits(v);
}
