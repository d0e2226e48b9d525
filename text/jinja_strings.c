/* text/jinja_strings.c - methods of strings and mappings, and the string helpers of filters. */
#define _GNU_SOURCE             /* memmem */
#include <string.h>
#include <utf8proc.h>

#include "text/jinja_private.h"
#include "text/unicode.h"

static struct jval part(struct jctx *c, struct jval s, size_t from, size_t to)
{
    return jval_string(c->heap, jstring_slice(c->heap, s.s, from, to));
}

/* An argument that must be a string, else a failure and undefined. */
static struct jval text_arg(struct jctx *c, const struct jargs *a, int index, const char *name, const char *method)
{
    struct jval v = arg(a, index, name);
    if (is_string(v)) return v;
    ctx_fail(c, LUCE_E_ARG, "%s() wants a string, not %s", method, kind_name(v));
    return (struct jval){ 0 };
}

static bool in_set(struct jval chars, const char *p, int len, uint32_t code)
{
    if (!is_string(chars)) return is_blank(code);
    return memmem(chars.s->at, chars.s->len, p, (size_t)len) != NULL;
}

struct jval string_strip(struct jctx *c, struct jval v, struct jval chars, bool left, bool right)
{
    const char *at = v.s->at, *end = at + v.s->len;
    size_t from = 0, to = v.s->len;
    int n;
    if (!ctx_step(c, v.s->len)) return v;
    while (left && from < to) {
        uint32_t code = utf8_look(at + from, end, &n);
        if (!in_set(chars, at + from, n, code)) break;
        from += (size_t)n;
    }
    while (right && to > from) {
        size_t start = to - 1;
        while (start > from && ((unsigned char)at[start] & 0xc0) == 0x80) start--;
        uint32_t code = utf8_look(at + start, at + to, &n);
        if (start + (size_t)n != to) start = to - 1;       /* bytes that are no character */
        if (!in_set(chars, at + start, (int)(to - start), code)) break;
        to = start;
    }
    return part(c, v, from, to);
}

struct jval string_replace(struct jctx *c, struct jval v, struct jval from, struct jval to, int64_t n)
{
    struct jout o = { .heap = c->heap };
    size_t at = 0;
    for (; n != 0 && ctx_step(c, from.s->len + to.s->len); n--) {
        const char *found = from.s->len ? memmem(v.s->at + at, v.s->len - at, from.s->at, from.s->len) : NULL;
        if (!found) break;
        size_t hit = (size_t)(found - v.s->at);
        struct jstring before = jstring_slice(c->heap, v.s, at, hit);
        jout_string(&o, &before);
        jout_string(&o, to.s);
        at = hit + from.s->len;
    }
    ctx_step(c, v.s->len);
    struct jstring rest = jstring_slice(c->heap, v.s, at, v.s->len);
    jout_string(&o, &rest);
    return jval_string(c->heap, jout_get(&o));
}

struct jval string_case(struct jctx *c, struct jval v, enum jcase how)
{
    struct jout o = { .heap = c->heap };
    struct jcursor cursor = { .s = v.s };
    bool start = true;
    for (size_t i = 0; i < v.s->len && ctx_step(c, 0);) {
        int n;
        uint32_t code = utf8_look(v.s->at + i, v.s->at + v.s->len, &n);
        bool upper = how == CASE_UPPER || (start && how != CASE_LOWER);
        utf8proc_int32_t other = upper
            ? utf8proc_toupper((utf8proc_int32_t)code) : utf8proc_tolower((utf8proc_int32_t)code);
        char bytes[4];
        bool plain = plain_at(&cursor, i);
        if (code == 0xfffd) jout_add(&o, v.s->at + i, (size_t)n, plain);
        else if (code == 0xdf && upper) jout_add(&o, how == CASE_UPPER ? "SS" : "Ss", 2, plain);
        else jout_add(&o, bytes, (size_t)utf8_put(bytes, (uint32_t)other), plain);
        start = how == CASE_TITLE && !(class_of(code) & CLASS_LETTER);
        i += (size_t)n;
    }
    return jval_string(c->heap, jout_get(&o));
}

struct jval string_join(struct jctx *c, struct jval sep, const struct jlist *parts)
{
    struct jout o = { .heap = c->heap };
    for (size_t i = 0; i < parts->len; i++) {
        struct jval s = to_string(c, parts->at[i]);
        if (!is_string(s) || !ctx_step(c, s.s->len + sep.s->len)) break;
        if (i) jout_string(&o, sep.s);
        jout_string(&o, s.s);
    }
    return jval_string(c->heap, jout_get(&o));
}

/* ---- methods of strings -------------------------------------------------------------------------- */

static struct jval m_strip(struct jctx *c, struct jval v, const struct jargs *a)
{
    return string_strip(c, v, arg(a, 0, "chars"), true, true);
}

static struct jval m_lstrip(struct jctx *c, struct jval v, const struct jargs *a)
{
    return string_strip(c, v, arg(a, 0, "chars"), true, false);
}

static struct jval m_rstrip(struct jctx *c, struct jval v, const struct jargs *a)
{
    return string_strip(c, v, arg(a, 0, "chars"), false, true);
}

/* Words between runs of white space, at most `max` cuts; the rest then keeps its end. */
static struct jval split_blank(struct jctx *c, struct jval v, int64_t max)
{
    struct jlist *l = jlist_new(c->heap, 0);
    const char *at = v.s->at, *end = at + v.s->len;
    size_t i = 0, len = v.s->len;
    int n = 0;
    while (ctx_step(c, 0)) {
        while (i < len && is_blank(utf8_look(at + i, end, &n))) i += (size_t)n;
        if (i == len) break;
        size_t from = i;
        if (max-- == 0) {
            struct jval rest = part(c, v, from, len);
            jlist_push(c->heap, l, is_string(rest) ? string_strip(c, rest, (struct jval){ 0 }, false, true) : rest);
            break;
        }
        while (i < len && !is_blank(utf8_look(at + i, end, &n))) i += (size_t)n;
        jlist_push(c->heap, l, part(c, v, from, i));
        ctx_step(c, i - from);
    }
    return jval_list(l);
}

static int64_t count_arg(const struct jargs *a, int index, const char *name)
{
    struct jval v = arg(a, index, name);
    return v.kind == J_INT && v.i >= 0 ? v.i : INT64_MAX;
}

static struct jval m_split(struct jctx *c, struct jval v, const struct jargs *a)
{
    struct jval sep = arg(a, 0, "sep");
    int64_t max = count_arg(a, 1, "maxsplit");
    if (!is_defined(sep) || sep.kind == J_NONE) return split_blank(c, v, max);
    if (!is_string(sep) || sep.s->len == 0) {
        ctx_fail(c, LUCE_E_ARG, "split() wants a separator that is a string and not empty");
        return (struct jval){ 0 };
    }
    struct jlist *l = jlist_new(c->heap, 0);
    size_t at = 0;
    for (; max > 0 && ctx_step(c, 0); max--) {
        const char *found = memmem(v.s->at + at, v.s->len - at, sep.s->at, sep.s->len);
        if (!found) break;
        size_t hit = (size_t)(found - v.s->at);
        jlist_push(c->heap, l, part(c, v, at, hit));
        at = hit + sep.s->len;
    }
    ctx_step(c, v.s->len);
    jlist_push(c->heap, l, part(c, v, at, v.s->len));
    return jval_list(l);
}

/* The last place of sep in the first `end` bytes, or -1. */
static int64_t find_last(struct jval v, struct jval sep, size_t end)
{
    for (size_t i = end >= sep.s->len ? end - sep.s->len + 1 : 0; i-- > 0;)
        if (memcmp(v.s->at + i, sep.s->at, sep.s->len) == 0) return (int64_t)i;
    return -1;
}

static struct jval m_rsplit(struct jctx *c, struct jval v, const struct jargs *a)
{
    int64_t max = count_arg(a, 1, "maxsplit");
    struct jval sep = text_arg(c, a, 0, "sep", "rsplit");
    if (!is_string(sep) || sep.s->len == 0) return (struct jval){ 0 };
    struct jlist *back = jlist_new(c->heap, 0), *l = jlist_new(c->heap, 0);
    size_t end = v.s->len;
    for (int64_t hit; max > 0 && ctx_step(c, v.s->len) && (hit = find_last(v, sep, end)) >= 0; max--) {
        jlist_push(c->heap, back, part(c, v, (size_t)hit + sep.s->len, end));
        end = (size_t)hit;
    }
    jlist_push(c->heap, back, part(c, v, 0, end));
    for (size_t i = back ? back->len : 0; i-- > 0;) jlist_push(c->heap, l, back->at[i]);
    return jval_list(l);
}

/* One string, or any of a tuple of them, at the start or the end. */
static struct jval at_edge(struct jctx *c, struct jval v, const struct jargs *a, bool start, const char *method)
{
    struct jval what = arg(a, 0, "prefix");
    size_t n = what.kind == J_LIST ? what.list->len : 1;
    for (size_t i = 0; i < n; i++) {
        struct jval s = what.kind == J_LIST ? what.list->at[i] : what;
        if (!is_string(s)) {
            ctx_fail(c, LUCE_E_ARG, "%s() wants a string, not %s", method, kind_name(s));
            break;
        }
        if (s.s->len <= v.s->len && memcmp(v.s->at + (start ? 0 : v.s->len - s.s->len), s.s->at, s.s->len) == 0)
            return jinja_bool(true);
    }
    return jinja_bool(false);
}

static struct jval m_startswith(struct jctx *c, struct jval v, const struct jargs *a)
{
    return at_edge(c, v, a, true, "startswith");
}

static struct jval m_endswith(struct jctx *c, struct jval v, const struct jargs *a)
{
    return at_edge(c, v, a, false, "endswith");
}

static struct jval m_replace(struct jctx *c, struct jval v, const struct jargs *a)
{
    struct jval from = text_arg(c, a, 0, "old", "replace"), to = text_arg(c, a, 1, "new", "replace");
    return is_string(from) && is_string(to) ? string_replace(c, v, from, to, count_arg(a, 2, "count")) : from;
}

static struct jval m_find(struct jctx *c, struct jval v, const struct jargs *a)
{
    struct jval what = text_arg(c, a, 0, "sub", "find");
    if (!is_string(what) || !ctx_step(c, v.s->len)) return what;
    const char *hit = memmem(v.s->at, v.s->len, what.s->at, what.s->len);
    return jinja_int(hit ? (int64_t)utf8_count(v.s->at, (size_t)(hit - v.s->at)) : -1);
}

static struct jval m_count(struct jctx *c, struct jval v, const struct jargs *a)
{
    struct jval what = text_arg(c, a, 0, "sub", "count");
    if (!is_string(what) || !ctx_step(c, v.s->len)) return what;
    int64_t n = 0;
    size_t at = 0;
    for (const char *hit; what.s->len && (hit = memmem(v.s->at + at, v.s->len - at, what.s->at, what.s->len)); n++)
        at = (size_t)(hit - v.s->at) + what.s->len;
    return jinja_int(what.s->len ? n : (int64_t)utf8_count(v.s->at, v.s->len) + 1);
}

static struct jval m_join(struct jctx *c, struct jval v, const struct jargs *a)
{
    struct jlist *parts = iterate(c, arg(a, 0, "iterable"));
    return parts ? string_join(c, v, parts) : v;
}

#define CASE_METHOD(name, how)                                                            \
    static struct jval name(struct jctx *c, struct jval v, const struct jargs *a)         \
    {                                                                                     \
        (void)a;                                                                          \
        return string_case(c, v, how);                                                    \
    }
CASE_METHOD(m_upper, CASE_UPPER)
CASE_METHOD(m_lower, CASE_LOWER)
CASE_METHOD(m_title, CASE_TITLE)
CASE_METHOD(m_capitalize, CASE_CAPITALIZE)

static struct jval m_splitlines(struct jctx *c, struct jval v, const struct jargs *a)
{
    (void)a;
    struct jlist *l = jlist_new(c->heap, 0);
    for (size_t at = 0; at < v.s->len && ctx_step(c, 0);) {
        size_t end = at;
        while (end < v.s->len && v.s->at[end] != '\n' && v.s->at[end] != '\r') end++;
        jlist_push(c->heap, l, part(c, v, at, end));
        ctx_step(c, end - at);
        if (end + 1 < v.s->len && v.s->at[end] == '\r' && v.s->at[end + 1] == '\n') end++;
        at = end + 1;
    }
    return jval_list(l);
}

/* ---- methods of mappings and lists --------------------------------------------------------------- */

static struct jval pairs(struct jctx *c, struct jval v, bool keys, bool values)
{
    struct jlist *l = jlist_new(c->heap, v.dict->len);
    for (size_t i = 0; l && i < v.dict->len && ctx_step(c, 0); i++) {
        struct jval one = keys ? v.dict->at[i].key : v.dict->at[i].value;
        if (keys && values) {
            struct jlist *pair = jlist_new(c->heap, 2);
            jlist_push(c->heap, pair, one);
            jlist_push(c->heap, pair, v.dict->at[i].value);
            if (pair) pair->tuple = true;
            one = jval_list(pair);
        }
        jlist_push(c->heap, l, one);
    }
    return jval_list(l);
}

static struct jval m_items(struct jctx *c, struct jval v, const struct jargs *a)
{
    (void)a;
    return pairs(c, v, true, true);
}

static struct jval m_keys(struct jctx *c, struct jval v, const struct jargs *a)
{
    (void)a;
    return pairs(c, v, true, false);
}

static struct jval m_values(struct jctx *c, struct jval v, const struct jargs *a)
{
    (void)a;
    return pairs(c, v, false, true);
}

static struct jval m_get(struct jctx *c, struct jval v, const struct jargs *a)
{
    const struct jval *found = ctx_step(c, v.dict->len) ? jdict_find(v.dict, arg(a, 0, "key")) : NULL;
    struct jval usual = arg(a, 1, "default");
    return found ? *found : is_defined(usual) || a->n > 1 ? usual : jinja_none();
}

static struct jval m_index(struct jctx *c, struct jval v, const struct jargs *a)
{
    struct jval what = arg(a, 0, "value");
    for (size_t i = 0; i < v.list->len && ctx_step(c, 0); i++)
        if (same(c, v.list->at[i], what)) return jinja_int((int64_t)i);
    ctx_fail(c, LUCE_E_ARG, "index(): the list does not hold this value");
    return what;
}

static struct jval m_list_count(struct jctx *c, struct jval v, const struct jargs *a)
{
    int64_t n = 0;
    for (size_t i = 0; i < v.list->len && ctx_step(c, 0); i++) n += same(c, v.list->at[i], arg(a, 0, "value"));
    return jinja_int(n);
}

static struct jval m_cycle(struct jctx *c, struct jval v, const struct jargs *a)
{
    if (a->n == 0) ctx_fail(c, LUCE_E_FORMAT, "loop.cycle() wants values");
    return a->n ? a->at[v.loop->index % (size_t)a->n] : (struct jval){ 0 };
}

static const struct jmethod_row methods[] = {
    { "split", J_STRING, m_split },
    { "rsplit", J_STRING, m_rsplit },
    { "splitlines", J_STRING, m_splitlines },
    { "strip", J_STRING, m_strip },
    { "lstrip", J_STRING, m_lstrip },
    { "rstrip", J_STRING, m_rstrip },
    { "startswith", J_STRING, m_startswith },
    { "endswith", J_STRING, m_endswith },
    { "replace", J_STRING, m_replace },
    { "upper", J_STRING, m_upper },
    { "lower", J_STRING, m_lower },
    { "title", J_STRING, m_title },
    { "capitalize", J_STRING, m_capitalize },
    { "find", J_STRING, m_find },
    { "count", J_STRING, m_count },
    { "join", J_STRING, m_join },
    { "items", J_DICT, m_items },
    { "keys", J_DICT, m_keys },
    { "values", J_DICT, m_values },
    { "get", J_DICT, m_get },
    { "index", J_LIST, m_index },
    { "count", J_LIST, m_list_count },
    { "cycle", J_LOOP, m_cycle },
};

const struct jmethod_row *jmethod_find(enum jkind kind, struct str name)
{
    for (size_t i = 0; i < COUNT(methods); i++)
        if (methods[i].kind == kind && str_is(name, methods[i].name)) return &methods[i];
    return NULL;
}
