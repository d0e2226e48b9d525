/* text/jinja_ops.c - what operators, attributes, indices, slices and calls do, as in Python. */
#define _GNU_SOURCE             /* memmem */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_private.h"

static const struct jval undefined = { 0 };

const char *kind_name(struct jval v)
{
    static const char *const names[] = { "an undefined value", "none", "a boolean", "an integer", "a float", "a number",
                                         "a string", "a list", "a mapping", "a namespace", "a loop", "a macro",
                                         "a function", "a method" };
    return names[v.kind];
}

bool is_number(struct jval v)
{
    return v.kind >= J_BOOL && v.kind <= J_BIG;
}

double number_of(struct jval v)
{
    if (v.kind == J_BIG) return v.s->len < 400 ? strtod(v.s->at, NULL) : *v.s->at == '-' ? -INFINITY : INFINITY;
    return v.kind == J_FLOAT ? v.f : v.kind == J_INT ? (double)v.i : v.kind == J_BOOL ? v.b : 0;
}

/* It fits an int64_t. */
static bool is_exact(struct jval v)
{
    return v.kind == J_BOOL || v.kind == J_INT;
}

static int64_t int_of(struct jval v)
{
    return v.kind == J_INT ? v.i : v.b;
}

bool truth(struct jval v)
{
    switch (v.kind) {
    case J_UNDEFINED:
    case J_NONE: return false;
    case J_BOOL: return v.b;
    case J_INT: return v.i != 0;
    case J_FLOAT: return v.f != 0;
    case J_STRING: return v.s->len != 0;
    case J_LIST: return v.list->lazy || v.list->len != 0;
    case J_DICT: return v.dict->len != 0;
    default: return true;
    }
}

/* ---- comparison ---------------------------------------------------------------------------------- */

static bool same_bytes(const struct jstring *a, const struct jstring *b)
{
    return a->len == b->len && memcmp(a->at, b->at, a->len) == 0;
}

bool same(struct jctx *c, struct jval a, struct jval b)
{
    if (is_number(a) && is_number(b)) {
        if (a.kind == J_BIG && b.kind == J_BIG) return same_bytes(a.s, b.s);
        if (is_exact(a) && is_exact(b)) return int_of(a) == int_of(b);
        return number_of(a) == number_of(b);
    }
    if (a.kind != b.kind) return false;
    if (is_string(a)) return same_bytes(a.s, b.s);
    if (a.kind == J_LIST) {
        bool equal = a.list->len == b.list->len && ctx_deeper(c);
        if (!equal) return false;
        for (size_t i = 0; equal && i < a.list->len; i++)
            equal = ctx_step(c, 0) && same(c, a.list->at[i], b.list->at[i]);
        c->depth--;
        return equal;
    }
    if (a.kind == J_DICT) {
        bool equal = a.dict->len == b.dict->len && ctx_deeper(c);
        if (!equal) return false;
        for (size_t i = 0; equal && i < a.dict->len; i++) {
            const struct jval *v = ctx_step(c, b.dict->len) ? jdict_find(b.dict, a.dict->at[i].key) : NULL;
            equal = v && same(c, a.dict->at[i].value, *v);
        }
        c->depth--;
        return equal;
    }
    return a.kind == J_NONE || a.kind == J_UNDEFINED || a.dict == b.dict;
}

int order(struct jctx *c, struct jval a, struct jval b)
{
    if (is_number(a) && is_number(b)) {
        if (is_exact(a) && is_exact(b)) return (int_of(a) > int_of(b)) - (int_of(a) < int_of(b));
        return (number_of(a) > number_of(b)) - (number_of(a) < number_of(b));
    }
    if (is_string(a) && is_string(b)) {
        size_t n = a.s->len < b.s->len ? a.s->len : b.s->len;
        int d = n ? memcmp(a.s->at, b.s->at, n) : 0;     /* bytes of UTF-8 sort as code points do */
        return d ? d : (a.s->len > b.s->len) - (a.s->len < b.s->len);
    }
    if (a.kind == J_LIST && b.kind == J_LIST) {
        int d = 0;
        for (size_t i = 0; d == 0 && i < a.list->len && i < b.list->len && ctx_deeper(c); i++) {
            if (ctx_step(c, 0) && !same(c, a.list->at[i], b.list->at[i])) d = order(c, a.list->at[i], b.list->at[i]);
            c->depth--;
        }
        return d ? d : (a.list->len > b.list->len) - (a.list->len < b.list->len);
    }
    ctx_fail(c, LUCE_E_ARG, "%s and %s cannot be ordered", kind_name(a), kind_name(b));
    return 0;
}

bool contains(struct jctx *c, struct jval inside, struct jval v)
{
    switch (inside.kind) {
    case J_UNDEFINED: return false;
    case J_STRING:
        if (!is_string(v)) break;
        ctx_step(c, inside.s->len);
        return v.s->len == 0 || memmem(inside.s->at, inside.s->len, v.s->at, v.s->len) != NULL;
    case J_LIST:
        for (size_t i = 0; i < inside.list->len && ctx_step(c, 0); i++)
            if (same(c, inside.list->at[i], v)) return true;
        return false;
    case J_DICT: return ctx_step(c, inside.dict->len) && jdict_find(inside.dict, v) != NULL;
    default: break;
    }
    ctx_fail(c, LUCE_E_ARG, "'in' cannot look for %s in %s", kind_name(v), kind_name(inside));
    return false;
}

static bool compare_one(struct jctx *c, enum jop op, struct jval a, struct jval b)
{
    switch (op) {
    case N_EQ: return same(c, a, b);
    case N_NE: return !same(c, a, b);
    case N_IN: return contains(c, b, a);
    case N_NOT_IN: return !contains(c, b, a);
    case N_LT: return order(c, a, b) < 0;
    case N_LE: return order(c, a, b) <= 0;
    case N_GT: return order(c, a, b) > 0;
    default: return order(c, a, b) >= 0;
    }
}

static struct jval compare(struct jctx *c, const struct jnode *n)
{
    struct jval a = eval(c, n->a);
    for (const struct jnode *k = n->b; k && !ctx_dead(c); k = k->next) {
        struct jval b = eval(c, k->a);
        if (ctx_dead(c) || !compare_one(c, k->op, a, b)) return jinja_bool(false);
        a = b;
    }
    return jinja_bool(true);
}

/* ---- arithmetic ---------------------------------------------------------------------------------- */

static struct jval concat(struct jctx *c, struct jval a, struct jval b)
{
    struct jout o = { .heap = c->heap };
    if (!ctx_step(c, a.s->len + b.s->len)) return undefined;
    jout_string(&o, a.s);
    jout_string(&o, b.s);
    return jval_string(c->heap, jout_get(&o));
}

static struct jval join_lists(struct jctx *c, struct jval a, struct jval b)
{
    struct jlist *l = jlist_new(c->heap, a.list->len + b.list->len);
    if (!ctx_step(c, (a.list->len + b.list->len) * 16)) return undefined;
    for (size_t i = 0; i < a.list->len; i++) jlist_push(c->heap, l, a.list->at[i]);
    for (size_t i = 0; i < b.list->len; i++) jlist_push(c->heap, l, b.list->at[i]);
    if (l) l->tuple = a.list->tuple;
    return jval_list(l);
}

static struct jval repeat(struct jctx *c, struct jval s, int64_t n)
{
    struct jout o = { .heap = c->heap };
    for (int64_t i = 0; i < n && ctx_step(c, s.s->len); i++) jout_string(&o, s.s);
    return jval_string(c->heap, jout_get(&o));
}

static struct jval power(struct jctx *c, int64_t a, int64_t n)
{
    if (n < 0) return jinja_float(pow((double)a, (double)n));
    int64_t out = 1;
    bool over = false;
    for (; n > 0 && !over; n >>= 1) {
        if (n & 1) over |= __builtin_mul_overflow(out, a, &out);
        if (n > 1) over |= __builtin_mul_overflow(a, a, &a);
    }
    if (over) ctx_fail(c, LUCE_E_FORMAT, "an integer becomes larger than 64 bits");
    return jinja_int(out);
}

static struct jval integers(struct jctx *c, enum jop op, int64_t a, int64_t b)
{
    int64_t out = 0;
    bool over = false;
    switch (op) {
    case N_ADD: over = __builtin_add_overflow(a, b, &out); break;
    case N_SUB: over = __builtin_sub_overflow(a, b, &out); break;
    case N_MUL: over = __builtin_mul_overflow(a, b, &out); break;
    case N_POW: return power(c, a, b);
    default:
        if (b == 0) {
            ctx_fail(c, LUCE_E_ARG, "division by zero");
            return undefined;
        }
        if (op == N_DIV) return jinja_float((double)a / (double)b);
        if (b == -1) {
            over = op == N_FLOORDIV && __builtin_sub_overflow(0, a, &out);
            break;
        }
        out = a % b;
        bool down = out != 0 && (out < 0) != (b < 0);
        out = op == N_MOD ? out + (down ? b : 0) : a / b - down;
    }
    if (over) ctx_fail(c, LUCE_E_FORMAT, "an integer becomes larger than 64 bits");
    return jinja_int(out);
}

static struct jval floats(struct jctx *c, enum jop op, double a, double b)
{
    if ((op == N_DIV || op == N_FLOORDIV || op == N_MOD) && b == 0) {
        ctx_fail(c, LUCE_E_ARG, "division by zero");
        return undefined;
    }
    switch (op) {
    case N_ADD: return jinja_float(a + b);
    case N_SUB: return jinja_float(a - b);
    case N_MUL: return jinja_float(a * b);
    case N_DIV: return jinja_float(a / b);
    case N_FLOORDIV: return jinja_float(floor(a / b));
    case N_POW: return jinja_float(pow(a, b));
    default: return jinja_float(a - b * floor(a / b));
    }
}

struct jval eval_arithmetic(struct jctx *c, enum jop op, struct jval a, struct jval b)
{
    static const char *const signs[] = { "+", "-", "*", "/", "//", "%", "**" };
    if (ctx_dead(c)) return undefined;
    if (is_number(a) && is_number(b)) {
        if (!is_exact(a) || !is_exact(b)) return floats(c, op, number_of(a), number_of(b));
        return integers(c, op, int_of(a), int_of(b));
    }
    if (op == N_ADD && is_string(a) && is_string(b)) return concat(c, a, b);
    if (op == N_ADD && a.kind == J_LIST && b.kind == J_LIST) return join_lists(c, a, b);
    if (op == N_MUL && is_string(a) && b.kind == J_INT) return repeat(c, a, b.i);
    if (op == N_MUL && a.kind == J_INT && is_string(b)) return repeat(c, b, a.i);
    ctx_fail(c, LUCE_E_ARG, "'%s' cannot be applied to %s and %s", signs[op - N_ADD], kind_name(a), kind_name(b));
    return undefined;
}

/* ---- parts of values ----------------------------------------------------------------------------- */

static struct jval loop_attr(struct jctx *c, const struct jloop *l, struct jval name)
{
    struct str s = jinja_str(name);
    int64_t i = (int64_t)l->index, n = (int64_t)l->items->len;
    if (str_is(s, "index")) return jinja_int(i + 1);
    if (str_is(s, "index0")) return jinja_int(i);
    if (str_is(s, "revindex")) return jinja_int(n - i);
    if (str_is(s, "revindex0")) return jinja_int(n - i - 1);
    if (str_is(s, "first")) return jinja_bool(i == 0);
    if (str_is(s, "last")) return jinja_bool(i == n - 1);
    if (str_is(s, "length")) return jinja_int(n);
    if (str_is(s, "depth")) return jinja_int(1);
    if (str_is(s, "depth0")) return jinja_int(0);
    if (str_is(s, "previtem")) return i > 0 ? l->items->at[i - 1] : undefined;
    if (str_is(s, "nextitem")) return i + 1 < n ? l->items->at[i + 1] : undefined;
    (void)c;
    return undefined;
}

static struct jval method_of(struct jctx *c, struct jval v, struct jval name)
{
    const struct jmethod_row *row = is_string(name) ? jmethod_find(v.kind, jinja_str(name)) : NULL;
    struct jmethod *m = row ? jheap_alloc(c->heap, sizeof *m) : NULL;
    if (!m) return undefined;
    *m = (struct jmethod){ row, v };
    return (struct jval){ .kind = J_METHOD, .method = m };
}

static struct jval in_dict(struct jctx *c, const struct jdict *d, struct jval key)
{
    const struct jval *found = ctx_step(c, d->len) ? jdict_find(d, key) : NULL;
    return found ? *found : undefined;
}

struct jval get_attr(struct jctx *c, struct jval v, struct jval name)
{
    if (v.kind == J_UNDEFINED) {
        struct str s = jinja_str(name);
        ctx_fail(c, LUCE_E_ARG, "'%.*s' is asked of an undefined value", (int)(s.len < 60 ? s.len : 60), s.at);
        return undefined;
    }
    if (v.kind == J_LOOP && !jmethod_find(J_LOOP, jinja_str(name))) return loop_attr(c, v.loop, name);
    if (v.kind == J_NAMESPACE) return in_dict(c, v.dict, name);
    struct jval m = method_of(c, v, name);
    if (is_defined(m) || v.kind != J_DICT) return m;
    return in_dict(c, v.dict, name);
}

static struct jval item_at(struct jctx *c, struct jval v, int64_t i)
{
    if (v.kind == J_LIST) {
        int64_t n = (int64_t)v.list->len;
        if (i < 0) i += n;
        return i >= 0 && i < n ? v.list->at[i] : undefined;
    }
    ctx_step(c, v.s->len);
    int64_t n = (int64_t)utf8_count(v.s->at, v.s->len);
    if (i < 0) i += n;
    if (i < 0 || i >= n) return undefined;
    size_t from = utf8_offset(v.s->at, v.s->len, (size_t)i), to = utf8_offset(v.s->at, v.s->len, (size_t)i + 1);
    return jval_string(c->heap, jstring_slice(c->heap, v.s, from, to));
}

struct jval get_item(struct jctx *c, struct jval v, struct jval key)
{
    if ((v.kind == J_LIST || is_string(v)) && (key.kind == J_INT || key.kind == J_BOOL)) return item_at(c, v,
            int_of(key));
    if (v.kind == J_DICT) {
        struct jval found = in_dict(c, v.dict, key);
        return is_defined(found) || !is_string(key) ? found : method_of(c, v, key);
    }
    if (is_string(key) || v.kind == J_UNDEFINED) return get_attr(c, v, key);
    return undefined;
}

/* A bound of a slice brought into [low, high]; `usual` when it is none. */
static bool slice_bound(struct jctx *c, struct jval v, int64_t n, int64_t low, int64_t high, int64_t usual,
                        int64_t *out)
{
    *out = usual;
    if (v.kind == J_NONE || v.kind == J_UNDEFINED) return true;
    if (v.kind != J_INT && v.kind != J_BOOL) {
        ctx_fail(c, LUCE_E_ARG, "%s cannot be the bound of a slice", kind_name(v));
        return false;
    }
    int64_t i = int_of(v);
    if (i < 0) i = i < -n ? low : i + n;
    *out = i < low ? low : i > high ? high : i;
    return true;
}

struct jval eval_slice(struct jctx *c, struct jval v, const struct jval bounds[3])
{
    if (v.kind != J_LIST && !is_string(v)) {
        ctx_fail(c, LUCE_E_ARG, "%s cannot be sliced", kind_name(v));
        return undefined;
    }
    int64_t n = (int64_t)(v.kind == J_LIST ? v.list->len : utf8_count(v.s->at, v.s->len));
    int64_t step = bounds[2].kind == J_INT ? bounds[2].i : 1, from, to;
    if (step == 0) {
        ctx_fail(c, LUCE_E_ARG, "the step of a slice is 0");
        return undefined;
    }
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    if (!slice_bound(c, bounds[0], n, low, high, step < 0 ? high : low, &from) ||
        !slice_bound(c, bounds[1], n, low, high, step < 0 ? low : high, &to) || !ctx_step(c, (size_t)n))
        return undefined;
    if (is_string(v) && step == 1) {
        if (to < from) to = from;
        size_t a = utf8_offset(v.s->at, v.s->len, (size_t)from), b = utf8_offset(v.s->at, v.s->len, (size_t)to);
        return jval_string(c->heap, jstring_slice(c->heap, v.s, a, b));
    }
    struct jlist *l = jlist_new(c->heap, 0);
    for (int64_t i = from; (step > 0 ? i < to : i > to) && ctx_step(c, 0); i += step) {
        jlist_push(c->heap, l, item_at(c, v, i));
        if (step > 0 ? step > to - i : step < to - i) break;
    }
    if (l && v.kind == J_LIST) l->tuple = v.list->tuple;
    return v.kind == J_LIST || !l ? jval_list(l) : string_join(c, jval_words(c->heap, "", 0), l);
}

struct jlist *iterate(struct jctx *c, struct jval v)
{
    if (!ctx_heap(c)) return NULL;
    if (v.kind == J_LIST) return v.list;
    struct jlist *l = jlist_new(c->heap, 0);
    if (v.kind == J_UNDEFINED) return l;
    if (v.kind == J_DICT) {
        for (size_t i = 0; i < v.dict->len && ctx_step(c, 0); i++) jlist_push(c->heap, l, v.dict->at[i].key);
        return l;
    }
    if (!is_string(v)) {
        ctx_fail(c, LUCE_E_ARG, "%s has no elements to go through", kind_name(v));
        return NULL;
    }
    for (size_t i = 0; i < v.s->len && ctx_step(c, 0);) {
        int n;
        utf8_look(v.s->at + i, v.s->at + v.s->len, &n);
        jlist_push(c->heap, l, jval_string(c->heap, jstring_slice(c->heap, v.s, i, i + (size_t)n)));
        i += (size_t)n;
    }
    return l;
}

int64_t length_of(struct jctx *c, struct jval v)
{
    switch (v.kind) {
    case J_UNDEFINED: return 0;
    case J_STRING: return ctx_step(c, v.s->len) ? (int64_t)utf8_count(v.s->at, v.s->len) : 0;
    case J_LIST: return (int64_t)v.list->len;
    case J_DICT: return (int64_t)v.dict->len;
    default: ctx_fail(c, LUCE_E_ARG, "%s has no length", kind_name(v)); return 0;
    }
}

/* ---- evaluation ---------------------------------------------------------------------------------- */

struct jval call_value(struct jctx *c, struct jval f, const struct jargs *a)
{
    if (ctx_dead(c)) return undefined;
    switch (f.kind) {
    case J_MACRO: return call_macro(c, f.macro, a);
    case J_FUNCTION: return f.function->run(c, a);
    case J_METHOD: return f.method->row->run(c, f.method->self, a);
    default: ctx_fail(c, LUCE_E_ARG, "%s cannot be called", kind_name(f)); return undefined;
    }
}

static void eval_args(struct jctx *c, const struct jnode *list, struct jargs *a)
{
    a->n = a->n_named = 0;
    for (; list && !ctx_dead(c); list = list->next) {
        bool named = list->op == N_KEYWORD;
        if (a->n == ARGS_MAX || a->n_named == ARGS_MAX) {
            ctx_fail(c, LUCE_E_FORMAT, "a call has more than %d arguments", ARGS_MAX);
            return;
        }
        struct jval v = eval(c, named ? list->a : list);
        if (named) {
            a->keyword[a->n_named] = jinja_str(list->value);
            a->named[a->n_named++] = v;
        } else {
            a->at[a->n++] = v;
        }
    }
}

struct jval arg(const struct jargs *a, int index, const char *name)
{
    if (index < a->n) return a->at[index];
    for (int i = 0; i < a->n_named; i++)
        if (str_is(a->keyword[i], name)) return a->named[i];
    return undefined;
}

bool arg_bool(const struct jargs *a, int index, const char *name, bool usual)
{
    struct jval v = arg(a, index, name);
    return is_defined(v) ? truth(v) : usual;
}

struct jargs args_from(const struct jargs *a, int n)
{
    struct jargs rest = *a;
    if (n > a->n) n = a->n;
    memmove(rest.at, a->at + n, (size_t)(a->n - n) * sizeof *rest.at);
    rest.n = a->n - n;
    return rest;
}

/* A call, a filter or a test: apart from eval, so that its arguments weigh on the stack only here. */
static __attribute__((noinline)) struct jval apply(struct jctx *c, const struct jnode *n)
{
    struct jargs a;
    struct jval operand = eval(c, n->a);
    eval_args(c, n->b, &a);
    if (ctx_dead(c)) return undefined;
    c->at = n;
    if (n->op == N_CALL) return call_value(c, operand, &a);
    if (n->op == N_FILTER) return ((const struct jfilter *)n->row)->run(c, operand, &a);
    return jinja_bool(((const struct jtest *)n->row)->run(c, operand, &a) != n->negated);
}

static struct jval literal(struct jctx *c, const struct jnode *n)
{
    if (n->op == N_DICT) {
        struct jdict *d = jdict_new(c->heap);
        for (const struct jnode *k = n->a; k && !ctx_dead(c); k = k->next->next) {
            struct jval key = eval(c, k), value = eval(c, k->next);
            if (key.kind == J_LIST || key.kind == J_DICT) ctx_fail(c, LUCE_E_ARG, "%s cannot be a key", kind_name(key));
            else if (ctx_step(c, d ? d->len : 0)) jdict_set(c->heap, d, key, value);
        }
        return jval_dict(d);
    }
    struct jlist *l = jlist_new(c->heap, 0);
    for (const struct jnode *k = n->a; k && !ctx_dead(c); k = k->next) jlist_push(c->heap, l, eval(c, k));
    if (l) l->tuple = n->op == N_TUPLE;
    return jval_list(l);
}

static struct jval tilde(struct jctx *c, struct jval a, struct jval b)
{
    a = to_string(c, a);
    b = to_string(c, b);
    return is_string(a) && is_string(b) ? concat(c, a, b) : undefined;
}

static struct jval name(struct jctx *c, const struct jnode *n)
{
    struct jval v = ctx_lookup(c, n->name);
    if (is_defined(v) || !n->row) return v;
    return (struct jval){ .kind = J_FUNCTION, .function = n->row };
}

static struct jval slice(struct jctx *c, const struct jnode *n)
{
    struct jval v = eval(c, n->a);
    struct jval bounds[3] = { n->b ? eval(c, n->b) : undefined, n->c ? eval(c, n->c) : undefined,
                              n->d ? eval(c, n->d) : undefined };
    c->at = n;
    return ctx_dead(c) ? undefined : eval_slice(c, v, bounds);
}

static struct jval negate(struct jctx *c, const struct jnode *n)
{
    struct jval v = eval(c, n->a);
    if (n->op == N_POS && is_number(v)) return v;
    if (is_number(v) && !is_exact(v)) return jinja_float(-number_of(v));
    return eval_arithmetic(c, N_SUB, jinja_int(0), v);
}

static struct jval dispatch(struct jctx *c, const struct jnode *n)
{
    struct jval a, b;
    switch (n->op) {
    case N_CONST: return n->value;
    case N_NAME: return name(c, n);
    case N_ATTR:
        a = eval(c, n->a);
        c->at = n;
        return ctx_dead(c) ? undefined : get_attr(c, a, n->value);
    case N_INDEX:
        a = eval(c, n->a);
        b = eval(c, n->b);
        c->at = n;
        return ctx_dead(c) ? undefined : get_item(c, a, b);
    case N_SLICE: return slice(c, n);
    case N_CALL:
    case N_FILTER:
    case N_TEST: return apply(c, n);
    case N_NEG:
    case N_POS: return negate(c, n);
    case N_NOT: return jinja_bool(!truth(eval(c, n->a)));
    case N_AND: return truth(a = eval(c, n->a)) ? eval(c, n->b) : a;
    case N_OR: return truth(a = eval(c, n->a)) ? a : eval(c, n->b);
    case N_COND: return truth(eval(c, n->a)) ? eval(c, n->b) : n->c ? eval(c, n->c) : undefined;
    case N_LIST:
    case N_TUPLE:
    case N_DICT: return literal(c, n);
    case N_COMPARE: return compare(c, n);
    default:
        a = eval(c, n->a);
        b = eval(c, n->b);
        c->at = n;
        return n->op == N_CONCAT ? tilde(c, a, b) : eval_arithmetic(c, n->op, a, b);
    }
}

struct jval eval(struct jctx *c, const struct jnode *n)
{
    if (n->op == N_CONST) return n->value;
    if (!ctx_deeper(c)) return undefined;
    struct jval v = ctx_step(c, 0) ? dispatch(c, n) : undefined;
    c->depth--;
    return ctx_dead(c) ? undefined : v;
}
