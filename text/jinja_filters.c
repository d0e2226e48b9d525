/* text/jinja_filters.c - filters of single values: text, numbers, JSON. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_private.h"

static const struct jval undefined = { 0 };

#define FILTER(name) static struct jval name(struct jctx *c, struct jval v, const struct jargs *a)
#define IGNORE_ARGS (void)a, (void)c

FILTER(x_string)
{
    IGNORE_ARGS;
    return to_string(c, v);
}

/* Nothing is escaped here, so nothing is unsafe. */
FILTER(x_safe)
{
    IGNORE_ARGS;
    return to_string(c, v);
}

FILTER(x_trim)
{
    v = to_string(c, v);
    return is_string(v) ? string_strip(c, v, arg(a, 0, "chars"), true, true) : v;
}

static struct jval with_case(struct jctx *c, struct jval v, enum jcase how)
{
    v = to_string(c, v);
    return is_string(v) ? string_case(c, v, how) : v;
}

FILTER(x_upper)
{
    IGNORE_ARGS;
    return with_case(c, v, CASE_UPPER);
}

FILTER(x_lower)
{
    IGNORE_ARGS;
    return with_case(c, v, CASE_LOWER);
}

FILTER(x_capitalize)
{
    IGNORE_ARGS;
    return with_case(c, v, CASE_CAPITALIZE);
}

FILTER(x_title)
{
    IGNORE_ARGS;
    return with_case(c, v, CASE_TITLE);
}

FILTER(x_replace)
{
    struct jval from = to_string(c, arg(a, 0, "old")), to = to_string(c, arg(a, 1, "new")), n = arg(a, 2, "count");
    v = to_string(c, v);
    if (!is_string(v) || !is_string(from) || !is_string(to)) return v;
    return string_replace(c, v, from, to, n.kind == J_INT && n.i >= 0 ? n.i : INT64_MAX);
}

FILTER(x_default)
{
    if (is_defined(v) && (truth(v) || !arg_bool(a, 1, "boolean", false))) return v;
    struct jval usual = arg(a, 0, "default_value");
    return is_defined(usual) || a->n ? usual : jval_words(c->heap, "", 0);
}

FILTER(x_length)
{
    IGNORE_ARGS;
    return jinja_int(length_of(c, v));
}

FILTER(x_abs)
{
    IGNORE_ARGS;
    if (v.kind == J_FLOAT) return jinja_float(fabs(v.f));
    if (v.kind == J_BIG && *v.s->at != '-') return v;
    if (v.kind == J_BIG) return jinja_big(c->heap, (struct str){ v.s->at + 1, v.s->len - 1 });
    if (v.kind == J_INT && v.i < 0) return eval_arithmetic(c, N_SUB, jinja_int(0), v);
    if (v.kind == J_BOOL) return jinja_int(v.b);
    if (v.kind != J_INT) ctx_fail(c, LUCE_E_ARG, "abs cannot take %s", kind_name(v));
    return v;
}

/* The number that all of the text (without white space around) spells. */
static bool read_number(struct jctx *c, struct jval v, int base, int64_t *i, double *f)
{
    char text[80];
    struct jval s = string_strip(c, v, undefined, true, true);
    if (!is_string(s) || s.s->len == 0 || s.s->len >= sizeof text) return false;
    memcpy(text, s.s->at, s.s->len);
    text[s.s->len] = 0;
    char *end;
    errno = 0;
    if (f) *f = strtod(text, &end);
    else *i = strtoll(text, &end, base);
    return *end == 0 && (f || errno == 0) && !strpbrk(text, "xXpP");
}

FILTER(x_int)
{
    struct jval usual = arg(a, 0, "default"), base = arg(a, 1, "base");
    int64_t i = 0;
    double f = 0;
    if (v.kind == J_INT || v.kind == J_BIG) return v;
    if (v.kind == J_BOOL) return jinja_int(v.b);
    if (is_string(v)) {
        if (read_number(c, v, base.kind == J_INT && base.i >= 2 && base.i <= 36 ? (int)base.i : 10, &i,
                        NULL)) return jinja_int(i);
        if (read_number(c, v, 10, NULL, &f)) v = jinja_float(f);
    }
    if (v.kind == J_FLOAT && fabs(v.f) < 9e18) return jinja_int((int64_t)v.f);
    return is_defined(usual) ? usual : jinja_int(0);
}

FILTER(x_float)
{
    struct jval usual = arg(a, 0, "default");
    double f;
    if (is_number(v)) return jinja_float(number_of(v));
    if (is_string(v) && read_number(c, v, 10, NULL, &f)) return jinja_float(f);
    return is_defined(usual) ? usual : jinja_float(0);
}

FILTER(x_round)
{
    struct jval precision = arg(a, 0, "precision"), method = arg(a, 1, "method");
    if (!is_number(v)) {
        ctx_fail(c, LUCE_E_ARG, "round cannot take %s", kind_name(v));
        return v;
    }
    double scale = pow(10, precision.kind == J_INT ? (double)precision.i : 0), x = number_of(v) * scale;
    if (str_is(jinja_str(method), "ceil")) x = ceil(x);
    else if (str_is(jinja_str(method), "floor")) x = floor(x);
    else x = rint(x);
    return jinja_float(x / scale);
}

/* Lines after the first one moved right. */
FILTER(x_indent)
{
    struct jval width = arg(a, 0, "width"), newline = jval_words(c->heap, "\n", 1);
    bool first = arg_bool(a, 1, "first", false), blank = arg_bool(a, 2, "blank", false);
    const struct jmethod_row *lines_of = jmethod_find(J_STRING, str_of("splitlines"));
    v = to_string(c, v);
    struct jout pad = { .heap = c->heap };
    if (is_string(width)) jout_string(&pad, width.s);
    else for (int64_t i = width.kind == J_INT ? width.i : 4; i > 0 && ctx_step(c, 0); i--) jout_words(&pad, " ");
    struct jstring indent = jout_get(&pad);
    if (!is_string(v) || !is_string(newline) || !ctx_heap(c)) return v;
    struct jargs none = { .n = 0 };
    struct jval text = eval_arithmetic(c, N_ADD, v, newline);
    struct jval lines = is_string(text) ? lines_of->run(c, text, &none) : text;
    struct jout o = { .heap = c->heap };
    for (size_t i = 0; i < jinja_len(lines) && ctx_step(c, 0); i++) {
        struct jval line = jinja_at(lines, i);
        if (i) jout_words(&o, "\n");
        if (i == 0 ? first : blank || line.s->len) jout_string(&o, &indent);
        jout_string(&o, line.s);
    }
    return jval_string(c->heap, jout_get(&o));
}

FILTER(x_tojson)
{
    struct json_form form = { .ascii = arg_bool(a, 0, "ensure_ascii", false), .indent = -1,
                              .sort = arg_bool(a, 3, "sort_keys", false) };
    struct jval indent = arg(a, 1, "indent"), separators = arg(a, 2, "separators");
    if (indent.kind == J_INT && indent.i >= 0) form.indent = indent.i < 1000 ? indent.i : 1000;
    if (jinja_len(separators) == 2) {
        form.item = jinja_at(separators, 0);
        form.key = jinja_at(separators, 1);
    }
    struct jout o = { .heap = c->heap };
    print_json(c, &o, v, &form);
    return jval_string(c->heap, jout_get(&o));
}

FILTER(x_from_json)
{
    (void)a;
    struct jval out = undefined;
    luce_error err = { 0 };
    if (!is_string(v)) ctx_fail(c, LUCE_E_ARG, "from_json wants a string, not %s", kind_name(v));
    else if (!c->options->from_json) ctx_fail(c, LUCE_E_UNSUPPORTED, "from_json needs a build with JSON");
    else if (ctx_step(c, v.s->len) && c->options->from_json(c->heap, jinja_str(v), &out, &err))
        ctx_fail(c, err.code, "from_json: %s", err.text);
    return out;
}

static const struct jfilter filters[] = {
    { "string", x_string },
    { "safe", x_safe },
    { "trim", x_trim },
    { "upper", x_upper },
    { "lower", x_lower },
    { "capitalize", x_capitalize },
    { "title", x_title },
    { "replace", x_replace },
    { "default", x_default },
    { "d", x_default },
    { "length", x_length },
    { "count", x_length },
    { "abs", x_abs },
    { "int", x_int },
    { "float", x_float },
    { "round", x_round },
    { "indent", x_indent },
    { "tojson", x_tojson },
    { "from_json", x_from_json },
};

const struct jfilter *jfilter_find(struct str name)
{
    for (size_t i = 0; i < COUNT(filters); i++)
        if (str_is(name, filters[i].name)) return &filters[i];
    return jfilter_list_find(name);
}
