/* text/jinja_eval.c - runs a parsed template: statements, scopes, macros, limits. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_private.h"

enum { RECURSION_MAX = 1600 };      /* evaluations within each other, macros included */

/* ---- state --------------------------------------------------------------------------------------- */

void ctx_fail(struct jctx *c, luce_status code, const char *format, ...)
{
    if (c->status) return;
    char words[700];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    uint32_t line = 1, column = 1;
    if (c->at) jinja_position(c->t, c->at->at, &line, &column);
    c->status = fail(c->err, code, "%s: line %u, column %u: %s", c->t->name, line, column, words);
}

bool ctx_heap(struct jctx *c)
{
    if (c->heap->failed && !c->status) {
        if (c->heap->over)
            ctx_fail(c, LUCE_E_FORMAT, "the template needs more than %zu MiB of memory",
                     (c->heap->limit ? c->heap->limit : JINJA_MEMORY_MAX) >> 20);
        else ctx_fail(c, LUCE_E_NOMEM, "out of memory");
    }
    return !c->status;
}

bool ctx_step(struct jctx *c, size_t work)
{
    if (!ctx_heap(c)) return false;
    if ((int64_t)(work / 64) < c->steps) {
        c->steps -= (int64_t)(work / 64) + 1;
        return true;
    }
    ctx_fail(c, LUCE_E_FORMAT, "the template takes more than %lld steps",
             (long long)(c->options->max_steps ? c->options->max_steps : JINJA_STEPS_MAX));
    return false;
}

bool ctx_deeper(struct jctx *c)
{
    if (c->status) return false;
    if (c->depth++ < RECURSION_MAX) return true;
    ctx_fail(c, LUCE_E_FORMAT, "values or calls are nested too deep");
    return false;
}

static const struct jbinding *find(const struct jscope *s, int name)
{
    for (const struct jbinding *b = s->vars; b; b = b->next)
        if (b->name == name) return b;
    return NULL;
}

struct jval ctx_lookup(struct jctx *c, int name)
{
    for (const struct jscope *s = c->scope; s; s = s->up) {
        const struct jbinding *b = find(s, name);
        if (b) return b->value;
    }
    return (struct jval){ 0 };
}

void ctx_bind(struct jctx *c, struct jscope *s, int name, struct jval v)
{
    for (struct jbinding *b = s->vars; b; b = b->next)
        if (b->name == name) {
            b->value = v;
            return;
        }
    struct jbinding *b = jheap_alloc(c->heap, sizeof *b);
    if (!b) return;
    *b = (struct jbinding){ .name = name, .value = v, .next = s->vars };
    s->vars = b;
}

static struct jscope *scope_push(struct jctx *c, struct jscope *up)
{
    struct jscope *s = jheap_alloc(c->heap, sizeof *s);
    if (!s) {
        ctx_heap(c);
        return NULL;
    }
    s->up = up;
    return s;
}

/* ---- statements ---------------------------------------------------------------------------------- */

/* Binds a name, an attribute of a namespace, or several names to the elements of v. */
static void assign(struct jctx *c, struct jscope *s, const struct jnode *target, struct jval v)
{
    if (target->op == N_NAME) {
        ctx_bind(c, s, target->name, v);
    } else if (target->op == N_ATTR) {
        struct jval ns = ctx_lookup(c, target->a->name);
        if (ns.kind != J_NAMESPACE) ctx_fail(c, LUCE_E_FORMAT, "only attributes of a namespace() can be set");
        else jdict_set(c->heap, ns.dict, target->value, v);
    } else {
        struct jlist *items = iterate(c, v);
        size_t n = 0;
        for (const struct jnode *t = target->a; t; t = t->next, n++)
            if (items && n < items->len) ctx_bind(c, s, t->name, items->at[n]);
        if (items && n != items->len)
            ctx_fail(c, LUCE_E_ARG, "%zu values cannot be put into %zu names", items->len, n);
    }
    ctx_heap(c);
}

/* The items that pass the filter of `for ... if`. */
static struct jlist *filtered(struct jctx *c, const struct jnode *n, struct jlist *items)
{
    struct jlist *kept = jlist_new(c->heap, items->len);
    struct jscope *outer = c->scope, *s = scope_push(c, outer);
    for (size_t i = 0; s && kept && i < items->len && ctx_step(c, 0); i++) {
        c->scope = s;
        assign(c, s, n->a, items->at[i]);
        if (truth(eval(c, n->c->a))) jlist_push(c->heap, kept, items->at[i]);
    }
    c->scope = outer;
    return ctx_heap(c) ? kept : NULL;
}

static void run_for(struct jctx *c, const struct jnode *n)
{
    struct jlist *items = iterate(c, eval(c, n->b));
    if (items && n->c->a) items = filtered(c, n, items);
    struct jloop *loop = jheap_alloc(c->heap, sizeof *loop);
    if (!items || !loop) {
        ctx_heap(c);
        return;
    }
    loop->items = items;
    struct jscope *outer = c->scope;
    int name = jinja_name_find(c->t, str_of("loop"));
    size_t count = items->len;
    for (size_t i = 0; i < count && ctx_step(c, 0); i++) {
        struct jscope *s = scope_push(c, outer);
        if (!s) return;
        c->scope = s;
        loop->index = i;
        if (name >= 0) ctx_bind(c, s, name, (struct jval){ .kind = J_LOOP, .loop = loop });
        assign(c, s, n->a, items->at[i]);
        run_body(c, n->c->b);
        c->scope = outer;
        if (c->flow == FLOW_BREAK || ctx_dead(c)) break;
        c->flow = FLOW_NONE;
    }
    c->flow = FLOW_NONE;
    if (count == 0) run_body(c, n->c->c);
}

/* The text that `body` writes. */
static struct jval capture(struct jctx *c, const struct jnode *body)
{
    struct jout text = { .heap = c->heap }, *outer = c->out;
    c->out = &text;
    run_body(c, body);
    c->out = outer;
    return jval_string(c->heap, jout_get(&text));
}

static void add_output(struct jctx *c, struct jval v)
{
    if (is_string(v)) jout_string(c->out, v.s);
    else print_value(c, c->out, v);
    ctx_step(c, is_string(v) ? v.s->len : 0);
    if (c->out->len > JINJA_OUTPUT_MAX)
        ctx_fail(c, LUCE_E_FORMAT, "the output is longer than %d MiB", JINJA_OUTPUT_MAX >> 20);
}

/* Text through the filters of `{% set x | f %}` and `{% filter f %}`; n->d is where the text enters. */
static struct jval through(struct jctx *c, const struct jnode *filter, const struct jnode *text, struct jval v)
{
    if (filter == text) return v;
    struct jnode call = *filter, value = { .op = N_CONST, .value = through(c, filter->a, text, v) };
    call.a = &value;
    return eval(c, &call);
}

static void run_macro_definition(struct jctx *c, const struct jnode *n)
{
    struct jmacro *m = jheap_alloc(c->heap, sizeof *m);
    if (!m) {
        ctx_heap(c);
        return;
    }
    *m = (struct jmacro){ .node = n, .scope = c->scope };
    ctx_bind(c, c->scope, n->name, (struct jval){ .kind = J_MACRO, .macro = m });
}

static void run_if(struct jctx *c, const struct jnode *n)
{
    for (;;) {
        bool yes = truth(eval(c, n->a));
        if (ctx_dead(c)) return;
        if (yes) {
            run_body(c, n->b);
            return;
        }
        if (!n->c || n->c->op != N_IF || n->c->next) break;
        n = n->c;               /* elif; an if that is all of an else is the same */
        c->at = n;
    }
    run_body(c, n->c);
}

static void run(struct jctx *c, const struct jnode *n)
{
    c->at = n;
    if (!ctx_step(c, 0)) return;
    switch (n->op) {
    case N_TEXT: add_output(c, n->value); break;
    case N_OUTPUT: add_output(c, eval(c, n->a)); break;
    case N_IF: run_if(c, n); break;
    case N_FOR: run_for(c, n); break;
    case N_SET: assign(c, c->scope, n->a, eval(c, n->b)); break;
    case N_SET_BLOCK: {
        struct jval text = capture(c, n->b);
        assign(c, c->scope, n->a, n->c ? through(c, n->c, n->d, text) : text);
        break;
    }
    case N_FILTER_BLOCK: add_output(c, through(c, n->c, n->d, capture(c, n->b))); break;
    case N_MACRO: run_macro_definition(c, n); break;
    case N_BODY: run_body(c, n->b); break;
    case N_BREAK: c->flow = FLOW_BREAK; break;
    case N_CONTINUE: c->flow = FLOW_CONTINUE; break;
    default: break;
    }
}

void run_body(struct jctx *c, const struct jnode *list)
{
    if (!ctx_deeper(c)) return;
    for (; list && !ctx_dead(c) && c->flow == FLOW_NONE; list = list->next) run(c, list);
    c->depth--;
}

/* ---- macros -------------------------------------------------------------------------------------- */

static void bind_parameters(struct jctx *c, struct jscope *s, const struct jmacro *m, const struct jargs *a)
{
    int i = 0, used = 0;
    for (const struct jnode *p = m->node->a; p; p = p->next, i++) {
        struct jval v = i < a->n ? a->at[i] : (struct jval){ 0 };
        bool given = i < a->n;
        for (int k = 0; k < a->n_named; k++) {
            if (jinja_name_find(c->t, a->keyword[k]) != p->name) continue;
            if (given) ctx_fail(c, LUCE_E_FORMAT, "a macro's argument is given twice");
            v = a->named[k];
            given = true;
            used++;
        }
        if (!given && p->a) v = eval(c, p->a);
        ctx_bind(c, s, p->name, v);
    }
    if (a->n > i) ctx_fail(c, LUCE_E_FORMAT, "a macro with %d parameters is called with %d", i, a->n);
    if (used < a->n_named) ctx_fail(c, LUCE_E_FORMAT, "a macro is called with a keyword that it does not have");
}

struct jval call_macro(struct jctx *c, const struct jmacro *m, const struct jargs *a)
{
    if (c->calls >= JINJA_CALLS_MAX) {
        ctx_fail(c, LUCE_E_FORMAT, "more than %d macros call each other", JINJA_CALLS_MAX);
        return (struct jval){ 0 };
    }
    struct jscope *caller = c->scope, *s = scope_push(c, m->scope);
    if (!s) return (struct jval){ 0 };
    c->calls++;
    c->scope = s;
    bind_parameters(c, s, m, a);
    struct jval text = ctx_dead(c) ? (struct jval){ 0 } : capture(c, m->node->b);
    c->flow = FLOW_NONE;
    c->scope = caller;
    c->calls--;
    return text;
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static luce_status spans_of(struct jctx *c, const struct jout *o, struct jinja_output *out)
{
    struct text_span *spans = jheap_alloc(c->heap, (o->n_marks + 1) * sizeof *spans);
    if (!spans) {
        ctx_heap(c);
        return c->status;
    }
    size_t at = 0, n = 0;
    for (size_t i = 0; i <= o->n_marks; i++) {
        size_t to = i < o->n_marks ? o->marks[i].from : o->len;
        if (to > at) spans[n++] = (struct text_span){ at, to, SPAN_TEMPLATE };
        at = i < o->n_marks ? o->marks[i].to : to;
    }
    struct jstring text = jout_get(o);
    out->text = (struct str){ text.at, text.len };
    out->spans = spans;
    out->n_spans = n;
    return LUCE_OK;
}

luce_status jinja_render(const struct jinja *t, const struct jinja_render *r, struct jheap *h,
                         struct jinja_output *out, luce_error *err)
{
    *out = (struct jinja_output){ 0 };
    struct jscope globals = { 0 };
    struct jout text = { .heap = h };
    struct jctx c = { .t = t, .options = r, .heap = h, .scope = &globals, .globals = &globals, .out = &text,
                      .err = err, .steps = r->max_steps ? r->max_steps : JINJA_STEPS_MAX };
    for (size_t i = 0; i < r->n_vars; i++) {
        int name = jinja_name_find(t, str_of(r->vars[i].name));
        if (name >= 0) ctx_bind(&c, &globals, name, r->vars[i].value);
    }
    if (ctx_heap(&c)) run_body(&c, t->body);
    if (ctx_heap(&c)) spans_of(&c, &text, out);
    out->raised = c.raised;
    return c.status;
}
