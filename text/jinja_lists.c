/* text/jinja_lists.c - filters of lists and mappings. Those that Jinja makes generators of give lists
 * marked lazy: true even when empty, as a generator is. */
#include <string.h>

#include "text/jinja_private.h"

static const struct jval undefined = { 0 };

#define FILTER(name) static struct jval name(struct jctx *c, struct jval v, const struct jargs *a)

/* `a.b.0` of a value; each part a key, an attribute or an index. */
static struct jval path(struct jctx *c, struct jval v, struct jval attribute)
{
    if (attribute.kind == J_INT) return get_item(c, v, attribute);
    struct str s = jinja_str(attribute);
    for (size_t at = 0; at <= s.len && !ctx_dead(c);) {
        size_t end = at;
        int64_t number = 0;
        bool digits = end < s.len;
        for (; end < s.len && s.at[end] != '.'; end++) {
            digits &= s.at[end] >= '0' && s.at[end] <= '9' && end - at < 9;
            number = digits ? number * 10 + (s.at[end] - '0') : 0;
        }
        struct jval key = digits ? jinja_int(number) : jval_words(c->heap, s.at + at, end - at);
        if (!is_defined(v)) return undefined;
        v = get_item(c, v, key);
        at = end + 1;
    }
    return v;
}

/* What sorting and comparing filters look at: an attribute, with lower case for strings unless asked. */
struct by {
    struct jval attribute;
    bool exact;
};

static struct jval key_of(struct jctx *c, struct jval v, const struct by *by)
{
    if (is_defined(by->attribute) && by->attribute.kind != J_NONE) v = path(c, v, by->attribute);
    return is_string(v) && !by->exact ? string_case(c, v, CASE_LOWER) : v;
}

/* Stable merge sort of items by keys, both of length n; tmp of 2 n. */
static void merge_sort(struct jctx *c, struct jval *items, struct jval *keys, struct jval *tmp, size_t n, int sign)
{
    if (n < 2 || ctx_dead(c)) return;
    size_t half = n / 2, i = 0, k = half, out = 0;
    merge_sort(c, items, keys, tmp, half, sign);
    merge_sort(c, items + half, keys + half, tmp, n - half, sign);
    while (out < n && ctx_step(c, 0)) {
        bool left = k == n || (i < half && sign * order(c, keys[i], keys[k]) <= 0);
        size_t from = left ? i++ : k++;
        tmp[2 * out] = items[from];
        tmp[2 * out++ + 1] = keys[from];
    }
    for (i = 0; i < out && out == n; i++) {
        items[i] = tmp[2 * i];
        keys[i] = tmp[2 * i + 1];
    }
}

static struct jval sorted(struct jctx *c, const struct jlist *in, const struct by *by, bool reverse)
{
    struct jlist *l = in ? jlist_new(c->heap, in->len) : NULL;
    struct jval *keys = in ? jheap_alloc(c->heap, (in->len * 3 + 1) * sizeof *keys) : NULL;
    if (!l || !keys) return undefined;
    for (size_t i = 0; i < in->len && ctx_step(c, 0); i++) {
        jlist_push(c->heap, l, in->at[i]);
        keys[i] = key_of(c, in->at[i], by);
    }
    if (ctx_heap(c)) merge_sort(c, l->at, keys, keys + in->len, l->len, reverse ? -1 : 1);
    return jval_list(l);
}

FILTER(x_sort)
{
    struct by by = { .attribute = arg(a, 2, "attribute"), .exact = arg_bool(a, 1, "case_sensitive", false) };
    return sorted(c, iterate(c, v), &by, arg_bool(a, 0, "reverse", false));
}

static struct jval items_of(struct jctx *c, struct jval v, const char *filter)
{
    if (v.kind == J_UNDEFINED) return jinja_list(c->heap);
    if (v.kind == J_DICT) return jmethod_find(J_DICT, str_of("items"))->run(c, v, &(struct jargs){ .n = 0 });
    ctx_fail(c, LUCE_E_ARG, "%s wants a mapping, not %s", filter, kind_name(v));
    return undefined;
}

FILTER(x_items)
{
    (void)a;
    return items_of(c, v, "items");
}

FILTER(x_dictsort)
{
    struct jval pairs = items_of(c, v, "dictsort");
    bool by_value = str_is(jinja_str(arg(a, 1, "by")), "value");
    struct by by = { .attribute = jinja_int(by_value), .exact = arg_bool(a, 0, "case_sensitive", false) };
    return pairs.kind == J_LIST ? sorted(c, pairs.list, &by, arg_bool(a, 2, "reverse", false)) : pairs;
}

FILTER(x_list)
{
    (void)a;
    struct jlist *items = iterate(c, v), *l = items ? jlist_new(c->heap, items->len) : NULL;
    for (size_t i = 0; l && i < items->len && ctx_step(c, 0); i++) jlist_push(c->heap, l, items->at[i]);
    return jval_list(l);
}

FILTER(x_first)
{
    (void)a;
    struct jlist *items = iterate(c, v);
    return items && items->len ? items->at[0] : undefined;
}

FILTER(x_last)
{
    (void)a;
    struct jlist *items = iterate(c, v);
    return items && items->len ? items->at[items->len - 1] : undefined;
}

FILTER(x_reverse)
{
    (void)a;
    struct jlist *items = iterate(c, v), *l = items ? jlist_new(c->heap, items->len) : NULL;
    for (size_t i = items ? items->len : 0; l && i-- > 0 && ctx_step(c, 0);) jlist_push(c->heap, l, items->at[i]);
    if (!l || !is_string(v)) {
        if (l) l->lazy = true;
        return jval_list(l);
    }
    return string_join(c, jval_words(c->heap, "", 0), l);
}

FILTER(x_join)
{
    struct jval sep = arg(a, 0, "d"), attribute = arg(a, 1, "attribute");
    struct jlist *items = iterate(c, v);
    sep = to_string(c, sep);
    if (!items || !is_string(sep)) return undefined;
    if (!is_defined(attribute)) return string_join(c, sep, items);
    struct jlist *l = jlist_new(c->heap, items->len);
    for (size_t i = 0; l && i < items->len && ctx_step(c, 0); i++) jlist_push(c->heap, l, path(c, items->at[i],
            attribute));
    return l ? string_join(c, sep, l) : undefined;
}

FILTER(x_unique)
{
    struct by by = { .attribute = arg(a, 1, "attribute"), .exact = arg_bool(a, 0, "case_sensitive", false) };
    struct jlist *items = iterate(c, v), *l = jlist_new(c->heap, 0);
    struct jdict *seen = jdict_new(c->heap);
    for (size_t i = 0; l && seen && items && i < items->len && ctx_step(c, seen->len); i++) {
        struct jval key = key_of(c, items->at[i], &by);
        if (key.kind >= J_LIST) ctx_fail(c, LUCE_E_ARG, "unique cannot compare %s", kind_name(key));
        else if (!jdict_find(seen, key)) {
            jdict_set(c->heap, seen, key, jinja_none());
            jlist_push(c->heap, l, items->at[i]);
        }
    }
    if (l) l->lazy = true;
    return jval_list(l);
}

static struct jval extreme(struct jctx *c, struct jval v, const struct jargs *a, int sign)
{
    struct by by = { .attribute = arg(a, 1, "attribute"), .exact = arg_bool(a, 0, "case_sensitive", false) };
    struct jlist *items = iterate(c, v);
    struct jval best = undefined, best_key = undefined;
    for (size_t i = 0; items && i < items->len && ctx_step(c, 0); i++) {
        struct jval key = key_of(c, items->at[i], &by);
        if (i && sign * order(c, key, best_key) <= 0) continue;
        best = items->at[i];
        best_key = key;
    }
    return best;
}

FILTER(x_max)
{
    return extreme(c, v, a, 1);
}

FILTER(x_min)
{
    return extreme(c, v, a, -1);
}

FILTER(x_sum)
{
    struct jval attribute = arg(a, 0, "attribute"), sum = arg(a, 1, "start");
    if (!is_defined(sum)) sum = jinja_int(0);
    struct jlist *items = iterate(c, v);
    for (size_t i = 0; items && i < items->len && ctx_step(c, 0); i++)
        sum = eval_arithmetic(c, N_ADD, sum, is_defined(attribute) ? path(c, items->at[i], attribute) : items->at[i]);
    return sum;
}

/* map('filter', ...) or map(attribute='name'). */
FILTER(x_map)
{
    struct jval attribute = arg(a, ARGS_MAX, "attribute"), usual = arg(a, ARGS_MAX, "default");
    const struct jfilter *filter = is_defined(attribute) ? NULL : jfilter_find(jinja_str(arg(a, 0, "filter")));
    if (!truth(v)) v = undefined;       /* none has no items, as in Jinja */
    struct jlist *items = iterate(c, v), *l = items ? jlist_new(c->heap, items->len) : NULL;
    if (!is_defined(attribute) && !filter) ctx_fail(c, LUCE_E_FORMAT, "map wants the name of a filter or attribute=");
    struct jargs rest = args_from(a, 1);
    for (size_t i = 0; l && i < items->len && ctx_step(c, 0) && ctx_deeper(c); i++) {
        struct jval one = filter ? filter->run(c, items->at[i], &rest) : path(c, items->at[i], attribute);
        jlist_push(c->heap, l, !is_defined(one) && !filter ? usual : one);
        c->depth--;
    }
    if (l) l->lazy = true;
    return jval_list(l);
}

/* Items whose value (or attribute, the first argument then) passes the test, or does not. */
static struct jval selected(struct jctx *c, struct jval v, const struct jargs *a, bool attribute, bool want)
{
    if (!truth(v)) v = undefined;       /* none has no items, as in Jinja */
    struct jlist *items = iterate(c, v), *l = jlist_new(c->heap, 0);
    struct jval which = attribute ? arg(a, 0, "attribute") : undefined, name = arg(a, attribute, "test");
    const struct jtest *test = is_string(name) ? jtest_find(jinja_str(name)) : NULL;
    if (is_defined(name) && !test) ctx_fail(c, LUCE_E_FORMAT, "select and reject want the name of a test");
    struct jargs rest = args_from(a, 1 + attribute);
    for (size_t i = 0; l && items && i < items->len && ctx_step(c, 0); i++) {
        struct jval one = attribute ? path(c, items->at[i], which) : items->at[i];
        bool yes = test ? test->run(c, one, &rest) : truth(one);
        if (yes == want) jlist_push(c->heap, l, items->at[i]);
    }
    if (l) l->lazy = true;
    return jval_list(l);
}

FILTER(x_select)
{
    return selected(c, v, a, false, true);
}

FILTER(x_reject)
{
    return selected(c, v, a, false, false);
}

FILTER(x_selectattr)
{
    return selected(c, v, a, true, true);
}

FILTER(x_rejectattr)
{
    return selected(c, v, a, true, false);
}

static const struct jfilter filters[] = {
    { "items", x_items },
    { "list", x_list },
    { "first", x_first },
    { "last", x_last },
    { "join", x_join },
    { "sort", x_sort },
    { "dictsort", x_dictsort },
    { "reverse", x_reverse },
    { "unique", x_unique },
    { "max", x_max },
    { "min", x_min },
    { "sum", x_sum },
    { "map", x_map },
    { "select", x_select },
    { "reject", x_reject },
    { "selectattr", x_selectattr },
    { "rejectattr", x_rejectattr },
};

const struct jfilter *jfilter_list_find(struct str name)
{
    for (size_t i = 0; i < COUNT(filters); i++)
        if (str_is(name, filters[i].name)) return &filters[i];
    return NULL;
}
