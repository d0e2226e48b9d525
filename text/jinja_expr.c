/* text/jinja_expr.c - expressions of templates, by recursive descent. From the loosest on:
 * inline if, or, and, not, comparisons, + -, ~, * / // %, **, unary minus, postfix, filters and
 * tests. The tree's depth is limited, since evaluation descends it. */
#include "text/jinja_private.h"

enum { DEPTH_MAX = 400 };       /* of a tree: a chain of + is as deep as it has operands */

struct jnode *node_new(struct jparser *p, enum jop op, const struct jtoken *at)
{
    if (parser_dead(p)) return NULL;
    struct jnode *n = jheap_alloc(&p->lexer.t->heap, sizeof *n);
    if (!n) {
        p->lexer.status = fail(p->lexer.err, LUCE_E_NOMEM, "%s: out of memory", p->lexer.t->name);
        return NULL;
    }
    n->op = op;
    n->at = (uint32_t)at->at;
    return n;
}

struct jnode *node_done(struct jparser *p, struct jnode *n)
{
    if (!n || parser_dead(p)) return NULL;
    struct jnode *children[] = { n->a, n->b, n->c, n->d };
    uint32_t depth = 0;
    for (int i = 0; i < 4; i++)
        for (const struct jnode *k = children[i]; k; k = k->next)
            if (k->depth > depth) depth = k->depth;
    n->depth = depth + 1;
    if (n->depth <= DEPTH_MAX) return n;
    jlex_fail(&p->lexer, n->at, "the expression is nested more than %d deep: split it", DEPTH_MAX);
    return NULL;
}

static struct jnode *binary(struct jparser *p, enum jop op, const struct jtoken *at, struct jnode *a, struct jnode *b)
{
    struct jnode *n = node_new(p, op, at);
    if (n) {
        n->a = a;
        n->b = b;
    }
    return node_done(p, n);
}

static int intern(struct jparser *p, struct str name)
{
    int i = jinja_name(p->lexer.t, name);
    if (i < 0 && !parser_dead(p))
        p->lexer.status = fail(p->lexer.err, LUCE_E_NOMEM, "%s: out of memory", p->lexer.t->name);
    return i;
}

/* ---- primaries ----------------------------------------------------------------------------------- */

/* Elements up to the closing bracket, which is consumed. *tuple: there was a comma. */
static struct jnode *elements(struct jparser *p, const char *close, bool *tuple)
{
    struct jnode *first = NULL, **end = &first;
    while (!parser_dead(p) && !parser_is(p, close)) {
        *end = parse_expression(p, true);
        if (!*end) return NULL;
        end = &(*end)->next;
        if (parser_is(p, close)) break;
        if (!parser_expect(p, ",")) return NULL;
        *tuple = true;
    }
    parser_expect(p, close);
    return first;
}

static struct jnode *dict_literal(struct jparser *p, const struct jtoken *at)
{
    struct jnode *n = node_new(p, N_DICT, at), *last = NULL;
    while (n && !parser_dead(p) && !parser_is(p, "}")) {
        struct jnode *key = parse_expression(p, true);
        if (!parser_expect(p, ":")) return NULL;
        struct jnode *value = parse_expression(p, true);
        if (!key || !value) return NULL;
        key->next = value;
        if (last) last->next = key;
        else n->a = key;
        last = value;
        if (!parser_is(p, "}") && !parser_expect(p, ",")) return NULL;
    }
    parser_expect(p, "}");
    return node_done(p, n);
}

static struct jnode *bracketed(struct jparser *p)
{
    struct jtoken at = p->now;
    if (!parser_deeper(p)) return NULL;
    parser_advance(p);
    struct jnode *n = NULL;
    bool tuple = false;
    if (*at.text.at == '[') {
        n = node_new(p, N_LIST, &at);
        if (n) n->a = elements(p, "]", &tuple);
        n = node_done(p, n);
    } else if (*at.text.at == '{') {
        n = dict_literal(p, &at);
    } else {
        struct jnode *inside = elements(p, ")", &tuple);
        if (inside && !tuple) n = inside;
        else if ((n = node_new(p, N_TUPLE, &at)) != NULL) {
            n->a = inside;
            n = node_done(p, n);
        }
    }
    p->nesting--;
    return n;
}

static struct jnode *name_or_constant(struct jparser *p, const struct jtoken *at)
{
    struct str t = at->text;
    bool yes = str_is(t, "true") || str_is(t, "True"), no = str_is(t, "false") || str_is(t, "False");
    bool none = str_is(t, "none") || str_is(t, "None");
    struct jnode *n = node_new(p, yes || no || none ? N_CONST : N_NAME, at);
    if (!n) return NULL;
    if (n->op == N_CONST) n->value = none ? jinja_none() : jinja_bool(yes);
    else {
        n->name = intern(p, t);
        n->row = jfunction_find(t);
    }
    return node_done(p, n);
}

static struct jnode *primary(struct jparser *p)
{
    struct jtoken at = p->now;
    struct jheap *h = &p->lexer.t->heap;
    if (at.kind == T_PUNCT && is_one_of(*at.text.at, "([{")) return bracketed(p);
    if (at.kind == T_NAME) {
        parser_advance(p);
        return name_or_constant(p, &at);
    }
    if (at.kind != T_STRING && at.kind != T_INT && at.kind != T_FLOAT) {
        parser_fail(p, "a value");
        return NULL;
    }
    struct jnode *n = node_new(p, N_CONST, &at);
    if (!n) return NULL;
    parser_advance(p);
    if (at.kind == T_INT) n->value = jinja_int(at.i);
    else if (at.kind == T_FLOAT) n->value = jinja_float(at.f);
    else {
        struct jout all = { .heap = h };
        jout_add(&all, at.text.at, at.text.len, false);
        for (; p->now.kind == T_STRING; parser_advance(p))      /* neighbours are one string */
            jout_add(&all, p->now.text.at, p->now.text.len, false);
        n->value = jval_string(h, jout_get(&all));
    }
    return node_done(p, n);
}

/* ---- what follows a value ------------------------------------------------------------------------ */

static struct jnode *arguments(struct jparser *p)
{
    struct jnode *first = NULL, **end = &first;
    if (!parser_expect(p, "(") || !parser_deeper(p)) return NULL;
    while (!parser_dead(p) && !parser_is(p, ")")) {
        struct jtoken at = p->now, after = parser_peek(p);
        if (at.kind == T_NAME && after.kind == T_PUNCT && str_is(after.text, "=")) {
            struct jnode *n = node_new(p, N_KEYWORD, &at);
            parser_advance(p);
            parser_advance(p);
            if (n) {
                n->value = jval_words(&p->lexer.t->heap, at.text.at, at.text.len);
                n->a = parse_expression(p, true);
            }
            *end = node_done(p, n);
        } else {
            *end = parse_expression(p, true);
        }
        if (!*end) return NULL;
        end = &(*end)->next;
        if (!parser_is(p, ")") && !parser_expect(p, ",")) return NULL;
    }
    parser_expect(p, ")");
    p->nesting--;
    return first;
}

static struct jnode *call(struct jparser *p, struct jnode *f)
{
    struct jnode *n = node_new(p, N_CALL, &p->now);
    if (!n) return NULL;
    n->a = f;
    n->b = arguments(p);
    return node_done(p, n);
}

/* `[index]` or `[from:to:step]`. */
static struct jnode *subscript(struct jparser *p, struct jnode *object)
{
    struct jtoken at = p->now;
    if (!parser_deeper(p)) return NULL;
    parser_advance(p);
    struct jnode *parts[3] = { 0 };
    int n = 0;
    for (bool slice = false;; n++) {
        if (!parser_is(p, ":") && !parser_is(p, "]")) {
            parts[n] = parse_expression(p, true);
            if (!parts[n]) return NULL;
        }
        if (n < 2 && parser_skip(p, ":")) {
            slice = true;
            continue;
        }
        n = slice ? 3 : 0;
        break;
    }
    if (n == 0 && !parts[0]) {
        parser_fail(p, "an index");
        return NULL;
    }
    parser_expect(p, "]");
    p->nesting--;
    struct jnode *node = node_new(p, n ? N_SLICE : N_INDEX, &at);
    if (!node) return NULL;
    node->a = object;
    node->b = parts[0];
    node->c = parts[1];
    node->d = parts[2];
    return node_done(p, node);
}

static struct jnode *attribute(struct jparser *p, struct jnode *object)
{
    parser_advance(p);
    struct jtoken at = p->now;
    if (at.kind != T_NAME && at.kind != T_INT) {
        parser_fail(p, "a name after '.'");
        return NULL;
    }
    struct jnode *n = node_new(p, at.kind == T_INT ? N_INDEX : N_ATTR, &at);
    if (!n) return NULL;
    parser_advance(p);
    n->a = object;
    if (at.kind == T_INT) {
        n->b = node_new(p, N_CONST, &at);
        if (n->b) n->b->value = jinja_int(at.i);
    } else {
        n->name = intern(p, at.text);
        n->value = jval_words(&p->lexer.t->heap, at.text.at, at.text.len);
    }
    return node_done(p, n);
}

static struct jnode *postfix(struct jparser *p, struct jnode *n)
{
    while (n && !parser_dead(p)) {
        if (parser_is(p, ".")) n = attribute(p, n);
        else if (parser_is(p, "[")) n = subscript(p, n);
        else if (parser_is(p, "(")) n = call(p, n);
        else break;
    }
    return parser_dead(p) ? NULL : n;
}

static struct jnode *filter(struct jparser *p, struct jnode *operand)
{
    struct jtoken at = p->now;
    if (at.kind != T_NAME) {
        parser_fail(p, "the name of a filter");
        return NULL;
    }
    struct jnode *n = node_new(p, N_FILTER, &at);
    if (!n) return NULL;
    n->row = jfilter_find(at.text);
    if (!n->row) {
        jlex_fail(&p->lexer, at.at, "there is no filter '%.*s'", (int)(at.text.len < 60 ? at.text.len : 60),
                  at.text.at);
        return NULL;
    }
    parser_advance(p);
    n->a = operand;
    if (parser_is(p, "(")) n->b = arguments(p);
    return node_done(p, n);
}

struct jnode *parse_filter_names(struct jparser *p, struct jnode *operand)
{
    struct jnode *n = operand;
    do n = filter(p, n);
    while (n && parser_skip(p, "|"));
    return n;
}

static struct jnode *unary(struct jparser *p, bool with_filter);

static struct jnode *test(struct jparser *p, struct jnode *operand)
{
    parser_advance(p);
    bool negated = parser_skip_name(p, "not");
    struct jtoken at = p->now;
    if (at.kind != T_NAME && !parser_is(p, "==")) {
        parser_fail(p, "the name of a test after 'is'");
        return NULL;
    }
    struct jnode *n = node_new(p, N_TEST, &at);
    if (!n) return NULL;
    n->row = jtest_find(at.text);
    if (!n->row) {
        jlex_fail(&p->lexer, at.at, "there is no test '%.*s'", (int)(at.text.len < 60 ? at.text.len : 60), at.text.at);
        return NULL;
    }
    parser_advance(p);
    n->a = operand;
    n->negated = negated;
    struct jtoken next = p->now;
    bool stops = next.kind == T_NAME && (str_is(next.text, "else") || str_is(next.text, "or") ||
                                         str_is(next.text, "and") || str_is(next.text, "is") || str_is(next.text,
                                                 "if"));
    if (parser_is(p, "(")) {
        n->b = arguments(p);
    } else if (!stops && (next.kind == T_NAME || next.kind == T_STRING || next.kind == T_INT || next.kind == T_FLOAT ||
                          parser_is(p, "[") || parser_is(p, "{"))) {
        n->b = postfix(p, primary(p));
        if (!n->b) return NULL;
    }
    return node_done(p, n);
}

struct jnode *parse_filters(struct jparser *p, struct jnode *n)
{
    while (n && !parser_dead(p)) {
        if (parser_skip(p, "|")) n = filter(p, n);
        else if (parser_is_name(p, "is")) n = test(p, n);
        else if (parser_is(p, "(")) n = call(p, n);
        else break;
    }
    return parser_dead(p) ? NULL : n;
}

/* ---- operators ----------------------------------------------------------------------------------- */

static struct jnode *unary(struct jparser *p, bool with_filter)
{
    struct jtoken at = p->now;
    struct jnode *n;
    if (parser_is(p, "-") || parser_is(p, "+")) {
        if (!parser_deeper(p)) return NULL;
        parser_advance(p);
        n = binary(p, *at.text.at == '-' ? N_NEG : N_POS, &at, unary(p, false), NULL);
        p->nesting--;
    } else {
        n = primary(p);
    }
    n = postfix(p, n);
    return with_filter ? parse_filters(p, n) : n;
}

struct level {
    const char *punct[5];
    enum jop op[4];
};
static const struct level levels[] = {          /* the loosest first */
    { { "+", "-" }, { N_ADD, N_SUB } },
    { { "~" }, { N_CONCAT } },
    { { "*", "/", "//", "%" }, { N_MUL, N_DIV, N_FLOORDIV, N_MOD } },
    { { "**" }, { N_POW } },
};

static struct jnode *arithmetic(struct jparser *p, size_t level)
{
    if (level == COUNT(levels)) return unary(p, true);
    const struct level *l = &levels[level];
    struct jnode *n = arithmetic(p, level + 1);
    while (n && !parser_dead(p)) {
        int i = 0;
        while (l->punct[i] && !parser_is(p, l->punct[i])) i++;
        if (!l->punct[i]) break;
        struct jtoken at = p->now;
        parser_advance(p);
        n = binary(p, l->op[i], &at, n, arithmetic(p, level + 1));
    }
    return parser_dead(p) ? NULL : n;
}

/* The comparison at the present token, consumed; N_CONST when there is none. */
static enum jop comparison(struct jparser *p)
{
    static const struct {
        const char *punct;
        enum jop op;
    } known[] = { { "==", N_EQ }, { "!=", N_NE }, { "<", N_LT }, { "<=", N_LE }, { ">", N_GT }, { ">=", N_GE } };
    for (size_t i = 0; i < COUNT(known); i++)
        if (parser_skip(p, known[i].punct)) return known[i].op;
    if (parser_skip_name(p, "in")) return N_IN;
    if (parser_is_name(p, "not")) {
        struct jtoken after = parser_peek(p);
        if (after.kind == T_NAME && str_is(after.text, "in")) {
            parser_advance(p);
            parser_advance(p);
            return N_NOT_IN;
        }
    }
    return N_CONST;
}

static struct jnode *compare(struct jparser *p)
{
    struct jtoken at = p->now;
    struct jnode *first = arithmetic(p, 0), *chain = NULL, **end = &chain;
    for (;;) {
        struct jtoken op_at = p->now;
        enum jop op = first && !parser_dead(p) ? comparison(p) : N_CONST;
        if (op == N_CONST) break;
        *end = binary(p, op, &op_at, arithmetic(p, 0), NULL);
        if (!*end) return NULL;
        end = &(*end)->next;
    }
    return chain ? binary(p, N_COMPARE, &at, first, chain) : first;
}

static struct jnode *not_(struct jparser *p)
{
    struct jtoken at = p->now;
    if (!parser_is_name(p, "not")) return compare(p);
    if (!parser_deeper(p)) return NULL;
    parser_advance(p);
    struct jnode *n = binary(p, N_NOT, &at, not_(p), NULL);
    p->nesting--;
    return n;
}

static struct jnode *and_(struct jparser *p)
{
    struct jnode *n = not_(p);
    while (n && parser_is_name(p, "and")) {
        struct jtoken at = p->now;
        parser_advance(p);
        n = binary(p, N_AND, &at, n, not_(p));
    }
    return n;
}

static struct jnode *or_(struct jparser *p)
{
    struct jnode *n = and_(p);
    while (n && parser_is_name(p, "or")) {
        struct jtoken at = p->now;
        parser_advance(p);
        n = binary(p, N_OR, &at, n, and_(p));
    }
    return n;
}

struct jnode *parse_expression(struct jparser *p, bool with_if)
{
    if (!parser_deeper(p)) return NULL;
    struct jnode *n = or_(p);
    while (with_if && n && parser_is_name(p, "if")) {
        struct jnode *cond = node_new(p, N_COND, &p->now);
        parser_advance(p);
        if (!cond) return NULL;
        cond->b = n;
        cond->a = or_(p);
        if (cond->a && parser_skip_name(p, "else") && !(cond->c = parse_expression(p, true))) return NULL;
        n = node_done(p, cond);
    }
    p->nesting--;
    return parser_dead(p) ? NULL : n;
}

struct jnode *parse_tuple(struct jparser *p, bool with_if)
{
    struct jtoken at = p->now;
    struct jnode *first = parse_expression(p, with_if);
    if (!first || !parser_is(p, ",")) return first;
    struct jnode *n = node_new(p, N_TUPLE, &at), **end = &first->next;
    while (n && parser_skip(p, ",")) {
        if (p->now.kind == T_BLOCK_END || p->now.kind == T_OUTPUT_END) break;
        *end = parse_expression(p, with_if);
        if (!*end) return NULL;
        end = &(*end)->next;
    }
    if (n) n->a = first;
    return node_done(p, n);
}
