/* text/jinja_parse.c - statements of templates, and the parsed template as a whole. */
#include <stdio.h>

#include "text/jinja_private.h"

/* ---- tokens -------------------------------------------------------------------------------------- */

void parser_advance(struct jparser *p)
{
    p->now = p->has_next ? p->next : jlex(&p->lexer);
    p->has_next = false;
}

struct jtoken parser_peek(struct jparser *p)
{
    if (!p->has_next) p->next = jlex(&p->lexer);
    p->has_next = true;
    return p->next;
}

bool parser_is(const struct jparser *p, const char *punct)
{
    return p->now.kind == T_PUNCT && str_is(p->now.text, punct);
}

bool parser_is_name(const struct jparser *p, const char *name)
{
    return p->now.kind == T_NAME && str_is(p->now.text, name);
}

bool parser_skip(struct jparser *p, const char *punct)
{
    if (!parser_is(p, punct)) return false;
    parser_advance(p);
    return true;
}

bool parser_skip_name(struct jparser *p, const char *name)
{
    if (!parser_is_name(p, name)) return false;
    parser_advance(p);
    return true;
}

void parser_fail(struct jparser *p, const char *expected)
{
    static const char *const kinds[] = { "text", "'{{'", "'{%'", "'}}'", "'%}'", "the end of the template" };
    char found[80];
    if (p->now.kind <= T_END) snprintf(found, sizeof found, "%s", kinds[p->now.kind]);
    else snprintf(found, sizeof found, "'%.*s'", (int)(p->now.text.len < 60 ? p->now.text.len : 60),
                  p->now.text.at ? p->now.text.at : "");
    if (p->now.kind == T_INT || p->now.kind == T_FLOAT) snprintf(found, sizeof found, "a number");
    jlex_fail(&p->lexer, p->now.at, "expected %s, found %s", expected, found);
}

bool parser_expect(struct jparser *p, const char *punct)
{
    if (parser_skip(p, punct)) return true;
    char expected[8];
    snprintf(expected, sizeof expected, "'%s'", punct);
    parser_fail(p, expected);
    return false;
}

bool parser_deeper(struct jparser *p)
{
    if (parser_dead(p)) return false;
    if (p->nesting++ < 2 * JINJA_NESTING_MAX) return true;
    jlex_fail(&p->lexer, p->now.at, "blocks and parentheses are nested too deep (more than %d)", JINJA_NESTING_MAX);
    return false;
}

/* ---- statements ---------------------------------------------------------------------------------- */

static struct jnode *statements(struct jparser *p, const char *const *ends);

static bool block_end(struct jparser *p)
{
    if (parser_dead(p)) return false;
    if (p->now.kind == T_BLOCK_END) {
        parser_advance(p);
        return true;
    }
    parser_fail(p, "'%}'");
    return false;
}

/* The statements up to one of `ends`, whose tag is open then: `now` is its name. */
static struct jnode *block(struct jparser *p, const char *const *ends)
{
    if (!block_end(p) || !parser_deeper(p)) return NULL;
    struct jnode *list = statements(p, ends);
    p->nesting--;
    return list;
}

static void end_tag(struct jparser *p, const char *name)
{
    if (parser_dead(p)) return;
    if (!parser_skip_name(p, name)) parser_fail(p, name);
    block_end(p);
}

/* A name, or several in parentheses or bare; with attributes also NAMESPACE.NAME. */
static struct jnode *target(struct jparser *p, bool with_attribute)
{
    struct jtoken at = p->now;
    bool bracket = parser_skip(p, "(");
    struct jnode *first = NULL, **end = &first;
    int n = 0;
    do {
        struct jtoken name = p->now;
        if (name.kind != T_NAME) {
            if (n > 0 && bracket) break;
            parser_fail(p, "a name");
            return NULL;
        }
        struct jnode *v = node_new(p, N_NAME, &name);
        if (!v) return NULL;
        v->name = jinja_name(p->lexer.t, name.text);
        parser_advance(p);
        if (with_attribute && n == 0 && parser_skip(p, ".")) {
            struct jnode *attr = node_new(p, N_ATTR, &p->now);
            if (!attr) return NULL;
            if (p->now.kind != T_NAME) parser_fail(p, "a name after '.'");
            attr->a = v;
            attr->value = jval_words(&p->lexer.t->heap, p->now.text.at, p->now.text.len);
            parser_advance(p);
            v = attr;
        }
        *end = v;
        end = &v->next;
        n++;
    } while (parser_skip(p, ",") && !parser_is(p, "=") && !parser_is_name(p, "in"));
    if (bracket) parser_expect(p, ")");
    if (n == 1 || parser_dead(p)) return first;
    struct jnode *tuple = node_new(p, N_TUPLE, &at);
    if (tuple) tuple->a = first;
    return tuple;
}

static struct jnode *if_(struct jparser *p, struct jnode *n)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL }, *const last[] = { "endif", NULL };
    struct jnode *whole = n;
    for (;;) {
        n->a = parse_tuple(p, true);
        n->b = block(p, ends);
        if (parser_dead(p)) return NULL;
        struct jtoken at = p->now;
        if (parser_skip_name(p, "elif")) {
            n->c = node_new(p, N_IF, &at);
            if (!n->c) return NULL;
            n = n->c;
            continue;
        }
        if (parser_skip_name(p, "else")) n->c = block(p, last);
        end_tag(p, "endif");
        return whole;
    }
}

static struct jnode *for_(struct jparser *p, struct jnode *n)
{
    static const char *const ends[] = { "else", "endfor", NULL }, *const last[] = { "endfor", NULL };
    n->a = target(p, false);
    if (!parser_skip_name(p, "in")) {
        parser_fail(p, "'in'");
        return NULL;
    }
    n->b = parse_tuple(p, false);
    struct jnode *when = parser_skip_name(p, "if") ? parse_expression(p, true) : NULL;
    if (parser_is_name(p, "recursive")) {
        jlex_fail(&p->lexer, p->now.at, "recursive loops are not supported");
        return NULL;
    }
    p->loops++;
    struct jnode *body = block(p, ends), *otherwise = NULL;
    p->loops--;
    if (parser_skip_name(p, "else")) otherwise = block(p, last);
    end_tag(p, "endfor");
    struct jnode *parts = node_new(p, N_BODY, &p->now);     /* when, body, else */
    if (!parts) return NULL;
    parts->a = when;
    parts->b = body;
    parts->c = otherwise;
    n->c = parts;
    return n;
}

static struct jnode *set(struct jparser *p, struct jnode *n)
{
    static const char *const ends[] = { "endset", NULL };
    n->a = target(p, true);
    if (parser_skip(p, "=")) {
        n->b = parse_tuple(p, true);
        block_end(p);
        return n;
    }
    n->op = N_SET_BLOCK;
    if (parser_skip(p, "|")) {
        struct jnode *text = node_new(p, N_CONST, &p->now);
        if (!text) return NULL;
        n->c = parse_filter_names(p, text);
        n->d = text;                /* where the body's text goes */
    }
    n->b = block(p, ends);
    end_tag(p, "endset");
    return n;
}

static struct jnode *macro(struct jparser *p, struct jnode *n)
{
    static const char *const ends[] = { "endmacro", NULL };
    struct jnode **end = &n->a;
    if (p->now.kind != T_NAME) parser_fail(p, "the name of a macro");
    n->name = jinja_name(p->lexer.t, p->now.text);
    parser_advance(p);
    parser_expect(p, "(");
    while (!parser_dead(p) && !parser_is(p, ")")) {
        struct jnode *param = node_new(p, N_KEYWORD, &p->now);
        if (!param) return NULL;
        if (p->now.kind != T_NAME) parser_fail(p, "the name of a parameter");
        param->name = jinja_name(p->lexer.t, p->now.text);
        parser_advance(p);
        if (parser_skip(p, "=")) param->a = parse_expression(p, true);
        *end = param;
        end = &param->next;
        if (!parser_is(p, ")")) parser_expect(p, ",");
    }
    parser_expect(p, ")");
    int loops = p->loops;
    p->loops = 0;
    n->b = block(p, ends);
    p->loops = loops;
    end_tag(p, "endmacro");
    return n;
}

static struct jnode *filter_block(struct jparser *p, struct jnode *n)
{
    static const char *const ends[] = { "endfilter", NULL };
    struct jnode *text = node_new(p, N_CONST, &p->now);
    if (!text) return NULL;
    n->c = parse_filter_names(p, text);
    n->d = text;
    n->b = block(p, ends);
    end_tag(p, "endfilter");
    return n;
}

/* The body of {% generation %}: rendered as if the tag were not there. */
static struct jnode *generation(struct jparser *p, struct jnode *n)
{
    static const char *const ends[] = { "endgeneration", NULL };
    n->b = block(p, ends);
    end_tag(p, "endgeneration");
    return n;
}

static struct jnode *jump(struct jparser *p, struct jnode *n)
{
    if (p->loops == 0) jlex_fail(&p->lexer, n->at, "'break' and 'continue' need a loop around them");
    block_end(p);
    return n;
}

static const struct {
    const char *name;
    enum jop op;
    struct jnode *(*parse)(struct jparser *p, struct jnode *n);
} known[] = {
    { "if", N_IF, if_ },
    { "for", N_FOR, for_ },
    { "set", N_SET, set },
    { "macro", N_MACRO, macro },
    { "filter", N_FILTER_BLOCK, filter_block },
    { "generation", N_BODY, generation },
    { "break", N_BREAK, jump },
    { "continue", N_CONTINUE, jump },
};

/* The statement whose name is `now`. */
static struct jnode *statement(struct jparser *p)
{
    struct jtoken at = p->now;
    for (size_t i = 0; at.kind == T_NAME && i < COUNT(known); i++) {
        if (!str_is(at.text, known[i].name)) continue;
        struct jnode *n = node_new(p, known[i].op, &at);
        if (!n) return NULL;
        parser_advance(p);
        n = known[i].parse(p, n);
        return parser_dead(p) ? NULL : n;
    }
    if (at.kind == T_NAME)
        jlex_fail(&p->lexer, at.at, "'%.*s' is no statement that is known here",
                  (int)(at.text.len < 60 ? at.text.len : 60), at.text.at);
    else parser_fail(p, "the name of a statement");
    return NULL;
}

static struct jnode *output(struct jparser *p)
{
    struct jnode *n = node_new(p, N_OUTPUT, &p->now);
    parser_advance(p);
    if (!n) return NULL;
    n->a = parse_tuple(p, true);
    if (parser_dead(p)) return NULL;
    if (p->now.kind != T_OUTPUT_END) {
        parser_fail(p, "'}}'");
        return NULL;
    }
    parser_advance(p);
    return n;
}

static bool is_end(const struct jparser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (parser_is_name(p, *ends)) return true;
    return false;
}

/* Up to the end of the template, or to a tag whose name is in `ends`. */
static struct jnode *statements(struct jparser *p, const char *const *ends)
{
    struct jnode *first = NULL, **end = &first;
    while (!parser_dead(p)) {
        struct jtoken at = p->now;
        struct jnode *n = NULL;
        if (at.kind == T_END) {
            for (; ends && ends[1]; ends++) continue;       /* the last one closes the block */
            if (ends) jlex_fail(&p->lexer, at.at, "the template ends, but '{%% %s %%}' is missing", *ends);
            break;
        }
        if (at.kind == T_DATA) {
            parser_advance(p);
            if (at.text.len == 0 || !(n = node_new(p, N_TEXT, &at))) continue;
            n->value = jval_words(&p->lexer.t->heap, at.text.at, at.text.len);
        } else if (at.kind == T_OUTPUT_BEGIN) {
            n = output(p);
        } else {
            parser_advance(p);
            if (is_end(p, ends)) break;
            n = statement(p);
        }
        if (!n) break;
        *end = n;
        end = &n->next;
    }
    return first;
}

/* ---- the template -------------------------------------------------------------------------------- */

int jinja_name_find(const struct jinja *t, struct str name)
{
    uint64_t i;
    return map_find(&t->names, name, &i) ? (int)i : -1;
}

int jinja_name(struct jinja *t, struct str name)
{
    uint64_t old, next = (uint64_t)t->names.n;
    int added = map_add(&t->names, name, next, &old);
    return added < 0 ? -1 : added ? (int)next : (int)old;
}

bool jinja_mentions(const struct jinja *t, const char *name)
{
    if (jinja_name_find(t, str_of(name)) >= 0) return true;
    size_t n = strlen(name);
    for (size_t i = 0; i + n + 2 <= t->text.len; i++) {     /* message['name'] */
        const char *p = t->text.at + i;
        if ((*p == '\'' || *p == '"') && p[n + 1] == *p && memcmp(p + 1, name, n) == 0) return true;
    }
    return false;
}

struct str jinja_source(const struct jinja *t)
{
    return t->source;
}

/* Copies the source, once as it is and once with every newline made \n and the last one dropped. */
static bool copy_source(struct jinja *t, struct str source, const char *name)
{
    char *copy = jheap_alloc(&t->heap, source.len + 1), *text = jheap_alloc(&t->heap, source.len + 1);
    t->name = jheap_alloc(&t->heap, strlen(name) + 1);
    if (!copy || !text || !t->name) return false;
    memcpy(t->name, name, strlen(name) + 1);
    if (source.len) memcpy(copy, source.at, source.len);
    size_t n = 0;
    for (size_t i = 0; i < source.len; i++) {
        text[n++] = copy[i] == '\r' ? '\n' : copy[i];
        if (copy[i] == '\r' && i + 1 < source.len && copy[i + 1] == '\n') i++;
    }
    if (n && text[n - 1] == '\n') n--;
    t->source = (struct str){ copy, source.len };
    t->text = (struct str){ text, n };
    return true;
}

luce_status jinja_parse(struct jinja **out, struct str source, const char *name, luce_error *err)
{
    *out = NULL;
    if (source.len > JINJA_SOURCE_MAX)
        return fail(err, LUCE_E_FORMAT, "%s: the template has %zu bytes, more than %d", name, source.len,
                    JINJA_SOURCE_MAX);
    struct jinja *t = mem_zero(sizeof *t);
    if (!t || !copy_source(t, source, name)) {
        jinja_free(t);
        return fail(err, LUCE_E_NOMEM, "%s: out of memory for the template", name);
    }
    struct jparser p = { .lexer = { .t = t, .line_start = true, .err = err } };
    parser_advance(&p);
    t->body = statements(&p, NULL);
    luce_status st = p.lexer.status;
    if (!st && t->heap.failed) st = fail(err, LUCE_E_NOMEM, "%s: out of memory for the template", name);
    if (st) {
        jinja_free(t);
        return st;
    }
    *out = t;
    return LUCE_OK;
}

void jinja_free(struct jinja *t)
{
    if (!t) return;
    map_drop(&t->names);
    jinja_heap_drop(&t->heap);
    mem_free(t);
}
