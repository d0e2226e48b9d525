/* text/jinja_tests.c - what may follow `is`, and the global functions. */
#define _POSIX_C_SOURCE 200809L /* localtime_r */
#include <time.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "text/jinja_private.h"

#define TEST_ROW(name, condition)                                                         \
    static bool name(struct jctx *c, struct jval v, const struct jargs *a)                \
    {                                                                                     \
        (void)c;                                                                          \
        (void)a;                                                                          \
        return condition;                                                                 \
    }
#define OTHER arg(a, 0, "other")
TEST_ROW(t_defined, v.kind != J_UNDEFINED)
TEST_ROW(t_undefined, v.kind == J_UNDEFINED)
TEST_ROW(t_none, v.kind == J_NONE)
TEST_ROW(t_boolean, v.kind == J_BOOL)
TEST_ROW(t_true, v.kind == J_BOOL && v.b)
TEST_ROW(t_false, v.kind == J_BOOL && !v.b)
TEST_ROW(t_integer, v.kind == J_INT || v.kind == J_BIG)
TEST_ROW(t_float, v.kind == J_FLOAT)
TEST_ROW(t_number, is_number(v))
TEST_ROW(t_string, v.kind == J_STRING)
TEST_ROW(t_mapping, v.kind == J_DICT)
TEST_ROW(t_iterable, v.kind == J_STRING || v.kind == J_LIST || v.kind == J_DICT || v.kind == J_UNDEFINED)
TEST_ROW(t_sequence,
         v.kind == J_STRING || v.kind == J_DICT || v.kind == J_UNDEFINED || (v.kind == J_LIST && !v.list->lazy))
TEST_ROW(t_callable, v.kind == J_MACRO || v.kind == J_FUNCTION || v.kind == J_METHOD)
TEST_ROW(t_eq, same(c, v, OTHER))
TEST_ROW(t_ne, !same(c, v, OTHER))
TEST_ROW(t_lt, order(c, v, OTHER) < 0)
TEST_ROW(t_le, order(c, v, OTHER) <= 0)
TEST_ROW(t_gt, order(c, v, OTHER) > 0)
TEST_ROW(t_ge, order(c, v, OTHER) >= 0)
TEST_ROW(t_in, contains(c, arg(a, 0, "seq"), v))
TEST_ROW(t_sameas,
         v.kind == OTHER.kind && (v.kind == J_NONE || (v.kind >= J_LIST ? v.list == OTHER.list : same(c, v, OTHER))))
TEST_ROW(t_filter, is_string(v) && jfilter_find(jinja_str(v)) != NULL)
TEST_ROW(t_test, is_string(v) && jtest_find(jinja_str(v)) != NULL)

static bool remainder_is(struct jctx *c, struct jval v, struct jval by, int64_t want)
{
    struct jval r = eval_arithmetic(c, N_MOD, v, by);
    return r.kind == J_INT && r.i == want;
}
TEST_ROW(t_even, remainder_is(c, v, jinja_int(2), 0))
TEST_ROW(t_odd, remainder_is(c, v, jinja_int(2), 1))
TEST_ROW(t_divisibleby, remainder_is(c, v, arg(a, 0, "num"), 0))

/* At least one cased letter, and none of the other case. */
static bool cased(struct jctx *c, struct jval v, bool upper)
{
    v = to_string(c, v);
    bool any = false;
    for (size_t i = 0; is_string(v) && i < v.s->len;) {
        int n;
        utf8proc_int32_t code = (utf8proc_int32_t)utf8_look(v.s->at + i, v.s->at + v.s->len, &n);
        bool up = utf8proc_tolower(code) != code, low = utf8proc_toupper(code) != code;
        if (upper ? low : up) return false;
        any |= up || low;
        i += (size_t)n;
    }
    return any;
}
TEST_ROW(t_lower, cased(c, v, false))
TEST_ROW(t_upper, cased(c, v, true))

static const struct jtest tests[] = {
    { "defined", t_defined },
    { "undefined", t_undefined },
    { "none", t_none },
    { "boolean", t_boolean },
    { "true", t_true },
    { "false", t_false },
    { "integer", t_integer },
    { "float", t_float },
    { "number", t_number },
    { "string", t_string },
    { "mapping", t_mapping },
    { "iterable", t_iterable },
    { "sequence", t_sequence },
    { "callable", t_callable },
    { "eq", t_eq },
    { "equalto", t_eq },
    { "==", t_eq },
    { "ne", t_ne },
    { "!=", t_ne },
    { "lt", t_lt },
    { "lessthan", t_lt },
    { "<", t_lt },
    { "le", t_le },
    { "<=", t_le },
    { "gt", t_gt },
    { "greaterthan", t_gt },
    { ">", t_gt },
    { "ge", t_ge },
    { ">=", t_ge },
    { "in", t_in },
    { "sameas", t_sameas },
    { "even", t_even },
    { "odd", t_odd },
    { "divisibleby", t_divisibleby },
    { "lower", t_lower },
    { "upper", t_upper },
    { "filter", t_filter },
    { "test", t_test },
};

const struct jtest *jtest_find(struct str name)
{
    for (size_t i = 0; i < COUNT(tests); i++)
        if (str_is(name, tests[i].name)) return &tests[i];
    return NULL;
}

/* ---- functions ----------------------------------------------------------------------------------- */

static struct jval f_raise(struct jctx *c, const struct jargs *a)
{
    struct jval words = to_string(c, arg(a, 0, "message"));
    struct str s = jinja_str(words);
    if (!ctx_dead(c)) c->raised = true;
    ctx_fail(c, LUCE_E_ARG, "the template refuses this conversation: %.*s", (int)(s.len < 500 ? s.len : 500), s.at);
    return words;
}

static struct jval f_strftime(struct jctx *c, const struct jargs *a)
{
    struct jval format = arg(a, 0, "format");
    char form[128], text[256];
    time_t now = c->options->now ? (time_t)c->options->now : time(NULL);
    struct tm tm;
    if (!is_string(format) || format.s->len >= sizeof form || !localtime_r(&now, &tm)) {
        ctx_fail(c, LUCE_E_FORMAT, "strftime_now() wants a format of at most %zu bytes", sizeof form - 1);
        return format;
    }
    snprintf(form, sizeof form, "%.*s", (int)format.s->len, format.s->at);
    size_t n = strftime(text, sizeof text, form, &tm);
    return jinja_text(c->heap, (struct str){ text, n }, false);
}

static struct jval f_range(struct jctx *c, const struct jargs *a)
{
    int64_t at[3] = { 0, 0, 1 };
    for (int i = 0; i < a->n && i < 3; i++) {
        if (a->at[i].kind != J_INT) ctx_fail(c, LUCE_E_ARG, "range() wants integers, not %s", kind_name(a->at[i]));
        at[i] = a->at[i].i;
    }
    if (a->n == 0 || a->n > 3) ctx_fail(c, LUCE_E_FORMAT, "range() wants 1 to 3 arguments");
    if (a->n == 1) {
        at[1] = at[0];
        at[0] = 0;
    }
    if (at[2] == 0) ctx_fail(c, LUCE_E_ARG, "the step of range() is 0");
    struct jlist *l = jlist_new(c->heap, 0);
    enum { RANGE_MAX = 100000 };        /* as in Jinja's sandbox */
    double count = at[2] ? ((double)at[1] - (double)at[0]) / (double)at[2] : 0;
    if (count > RANGE_MAX) ctx_fail(c, LUCE_E_FORMAT, "range() gives more than %d numbers", RANGE_MAX);
    for (int64_t i = at[0]; !ctx_dead(c) && (at[2] > 0 ? i < at[1] : i > at[1]); i += at[2]) {
        jlist_push(c->heap, l, jinja_int(i));
        if (!ctx_step(c, 0) || (at[2] > 0 ? at[1] - i <= at[2] : i - at[1] <= -at[2])) break;
    }
    return jval_list(l);
}

static struct jval f_dict(struct jctx *c, const struct jargs *a)
{
    struct jdict *d = jdict_new(c->heap);
    struct jval first = a->n ? a->at[0] : (struct jval){ 0 };
    if (first.kind == J_DICT)
        for (size_t i = 0; i < first.dict->len && ctx_step(c, first.dict->len); i++)
            jdict_set(c->heap, d, first.dict->at[i].key, first.dict->at[i].value);
    for (int i = 0; i < a->n_named; i++)
        jdict_set(c->heap, d, jval_words(c->heap, a->keyword[i].at, a->keyword[i].len), a->named[i]);
    return jval_dict(d);
}

static struct jval f_namespace(struct jctx *c, const struct jargs *a)
{
    struct jval v = f_dict(c, a);
    if (v.kind == J_DICT) v.kind = J_NAMESPACE;
    return v;
}

static const struct jfunction functions[] = {
    { "raise_exception", f_raise },
    { "strftime_now", f_strftime },
    { "range", f_range },
    { "dict", f_dict },
    { "namespace", f_namespace },
};

const struct jfunction *jfunction_find(struct str name)
{
    for (size_t i = 0; i < COUNT(functions); i++)
        if (str_is(name, functions[i].name)) return &functions[i];
    return NULL;
}
