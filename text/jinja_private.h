/* text/jinja_private.h - what the files of the interpreter share: strings with marks, the tree, the
 * state of a rendering, and the tables of filters, tests, methods and functions.
 * A rendering keeps its first error (ctx_fail) and goes dead: evaluation then gives undefined, loops
 * end, and jinja_render returns the error once. */
#ifndef LUCE_TEXT_JINJA_PRIVATE_H
#define LUCE_TEXT_JINJA_PRIVATE_H

#include "base/map.h"
#include "base/mem.h"
#include "text/jinja.h"

/* ---- strings: bytes, and which of them are plain ------------------------------------------------ */
struct jmark {
    size_t from, to;            /* plain bytes; sorted, never touching */
};
struct jstring {
    const char *at;
    size_t len;
    const struct jmark *marks;
    size_t n_marks;
};
struct jlist {
    struct jval *at;
    size_t len, cap;
    bool lazy;                  /* stands for a generator: always true */
    bool tuple;                 /* prints with parentheses */
};
struct jentry {
    struct jval key, value;
    uint64_t hash;
};
struct jdict {
    struct jentry *at;
    size_t len, cap;
};

/* Zeroed memory of a heap; NULL after a failure, which the heap keeps. So with what follows: lists and
 * dicts may be NULL then, and adding to NULL does nothing. */
void *jheap_alloc(struct jheap *h, size_t bytes);
struct jlist *jlist_new(struct jheap *h, size_t cap);
void jlist_push(struct jheap *h, struct jlist *l, struct jval v);
struct jdict *jdict_new(struct jheap *h);
/* Sets, replacing an equal key. */
void jdict_set(struct jheap *h, struct jdict *d, struct jval key, struct jval value);
const struct jval *jdict_find(const struct jdict *d, struct jval key);

struct jval jval_list(struct jlist *l);                 /* NULL gives undefined, */
struct jval jval_dict(struct jdict *d);                 /* as here */
struct jval jval_string(struct jheap *h, struct jstring s);
/* A string that the template wrote; the bytes are not copied. */
struct jval jval_words(struct jheap *h, const char *text, size_t len);
static inline bool is_string(struct jval v) { return v.kind == J_STRING; }
static inline bool is_defined(struct jval v) { return v.kind != J_UNDEFINED; }

/* A slice of bytes with its marks. */
struct jstring jstring_slice(struct jheap *h, const struct jstring *s, size_t from, size_t to);
size_t utf8_count(const char *p, size_t len);           /* code points: bytes that start one */
size_t utf8_offset(const char *p, size_t len, size_t index);    /* byte of a code point */
bool is_blank(uint32_t code);                           /* what Python's strip() removes */
/* Code point at p (lenient: a bad byte is itself, of length 1). */
uint32_t utf8_look(const char *p, const char *end, int *len);

/* ---- building strings ---------------------------------------------------------------------------- */
struct jout {                   /* in the heap; zeroed but for `heap` it is empty */
    struct jheap *heap;
    char *at;
    size_t len, cap;
    struct jmark *marks;
    size_t n_marks, cap_marks;
};
void jout_add(struct jout *o, const char *bytes, size_t len, bool plain);
void jout_words(struct jout *o, const char *text);
void jout_string(struct jout *o, const struct jstring *s);
struct jstring jout_get(const struct jout *o);
/* Reads a string byte by byte with its marks: plain_at for increasing positions. */
struct jcursor {
    const struct jstring *s;
    size_t mark;
};
bool plain_at(struct jcursor *c, size_t at);

/* ---- the tree ------------------------------------------------------------------------------------ */
enum jop {
    N_CONST, N_NAME, N_ATTR, N_INDEX, N_SLICE, N_CALL, N_FILTER, N_TEST, N_NEG, N_POS, N_NOT,
    N_AND, N_OR, N_COND, N_LIST, N_TUPLE, N_DICT, N_CONCAT,
    N_ADD, N_SUB, N_MUL, N_DIV, N_FLOORDIV, N_MOD, N_POW,
    N_COMPARE,                  /* a, then a chain of N_EQ... in b, each with its operand in a */
    N_EQ, N_NE, N_LT, N_LE, N_GT, N_GE, N_IN, N_NOT_IN,
    N_KEYWORD,                  /* an argument `name=a` */
    /* statements */
    N_TEXT, N_OUTPUT, N_IF, N_FOR, N_SET, N_SET_BLOCK, N_MACRO, N_BREAK, N_CONTINUE, N_BODY,
    N_FILTER_BLOCK,
};
struct jnode {
    enum jop op;
    bool negated;               /* `is not` */
    uint32_t at, depth;         /* offset in the source, for messages; height of the tree */
    int name;                   /* of N_NAME, N_MACRO and its parameters: number in the table of names */
    struct jnode *a, *b, *c, *d;
    struct jnode *next;         /* in a list of arguments, elements or statements */
    struct jval value;          /* of N_CONST and N_TEXT; the name of N_ATTR and N_KEYWORD */
    const void *row;            /* of N_FILTER, N_TEST, and the function that an N_NAME means by itself */
};
struct jinja {
    struct jheap heap;          /* tree and constants */
    char *name;
    struct str source;
    struct str text;            /* with newlines made \n */
    struct jnode *body;
    struct map names;           /* identifiers -> their numbers; the keys lie in `text` */
};
int jinja_name(struct jinja *t, struct str name);       /* adds it if new; -1: out of memory */
int jinja_name_find(const struct jinja *t, struct str name);    /* -1: not there */

/* ---- the lexer ----------------------------------------------------------------------------------- */
enum jtoken_kind {
    T_DATA, T_OUTPUT_BEGIN, T_BLOCK_BEGIN, T_OUTPUT_END, T_BLOCK_END, T_END,
    T_NAME, T_STRING, T_INT, T_FLOAT, T_PUNCT
};
struct jtoken {
    enum jtoken_kind kind;
    struct str text;            /* a name, data, punctuation, or the value of a string */
    int64_t i;
    double f;
    size_t at;                  /* offset in the source */
};
struct jlexer {
    struct jinja *t;
    size_t pos;
    int inside;                 /* 0: data, else the closing character: '}' of }} or '%' */
    bool begun;                 /* a tag opened: its begin token is next */
    int balance;                /* open brackets */
    bool line_start;            /* data here begins a line */
    luce_status status;
    luce_error *err;
};
/* The next token; T_END after a failure, with the status set. */
struct jtoken jlex(struct jlexer *l);
luce_status jlex_fail(struct jlexer *l, size_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void jinja_position(const struct jinja *t, size_t at, uint32_t *line, uint32_t *column);

struct jparser {
    struct jlexer lexer;
    struct jtoken now, next;
    bool has_next;
    int nesting, loops;
};
/* Expressions, for the parser of statements. NULL after a failure. */
struct jnode *parse_expression(struct jparser *p, bool with_if);        /* no bare tuple */
struct jnode *parse_tuple(struct jparser *p, bool with_if);
struct jnode *parse_filters(struct jparser *p, struct jnode *operand);  /* `|name(...)` and tests */
struct jnode *parse_filter_names(struct jparser *p, struct jnode *operand);     /* name|name(...) */
struct jnode *node_new(struct jparser *p, enum jop op, const struct jtoken *at);
/* Sets the depth of n from its children; fails when the tree becomes too deep. */
struct jnode *node_done(struct jparser *p, struct jnode *n);
void parser_advance(struct jparser *p);
struct jtoken parser_peek(struct jparser *p);           /* the one after `now` */
bool parser_is(const struct jparser *p, const char *punct);
bool parser_is_name(const struct jparser *p, const char *name);
bool parser_skip(struct jparser *p, const char *punct);
bool parser_skip_name(struct jparser *p, const char *name);
bool parser_expect(struct jparser *p, const char *punct);
void parser_fail(struct jparser *p, const char *expected);
bool parser_deeper(struct jparser *p);                  /* false and a failure at the limit */
static inline bool parser_dead(const struct jparser *p) { return p->lexer.status != LUCE_OK; }

/* ---- rendering ----------------------------------------------------------------------------------- */
struct jbinding {
    int name;
    struct jval value;
    struct jbinding *next;
};
struct jscope {
    struct jscope *up;
    struct jbinding *vars;
};
struct jctx {
    const struct jinja *t;
    const struct jinja_render *options;
    struct jheap *heap;
    struct jscope *scope;
    struct jscope *globals;
    struct jout *out;
    luce_status status;
    luce_error *err;
    bool raised;
    int64_t steps;
    int calls, depth;
    const struct jnode *at;     /* evaluated at present, for messages */
    enum { FLOW_NONE, FLOW_BREAK, FLOW_CONTINUE } flow;
};
/* Keeps the first failure; the message gets line and column of c->at. */
void ctx_fail(struct jctx *c, luce_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static inline bool ctx_dead(const struct jctx *c) { return c->status != LUCE_OK; }
/* Counts work (one step for about 64 bytes or one element); false when dead or over the limit. */
bool ctx_step(struct jctx *c, size_t work);
/* Turns a failure of the heap into one of the rendering; false when dead. */
bool ctx_heap(struct jctx *c);
bool ctx_deeper(struct jctx *c);        /* one level of recursion more; false at the limit */
struct jval ctx_lookup(struct jctx *c, int name);
void ctx_bind(struct jctx *c, struct jscope *s, int name, struct jval v);

struct jloop {
    struct jlist *items;
    size_t index;
};
struct jmacro {
    const struct jnode *node;
    struct jscope *scope;       /* where it was defined */
};

enum { ARGS_MAX = 16 };
struct jargs {
    struct jval at[ARGS_MAX];
    int n;                      /* positional ones come first */
    struct str keyword[ARGS_MAX];
    struct jval named[ARGS_MAX];
    int n_named;
};
/* The argument at `index` or of that name; undefined when absent. */
struct jval arg(const struct jargs *a, int index, const char *name);
bool arg_bool(const struct jargs *a, int index, const char *name, bool usual);
/* The rest after the first `n` positional ones. */
struct jargs args_from(const struct jargs *a, int n);

struct jfilter {
    const char *name;
    struct jval (*run)(struct jctx *c, struct jval v, const struct jargs *a);
};
struct jtest {
    const char *name;
    bool (*run)(struct jctx *c, struct jval v, const struct jargs *a);
};
struct jfunction {
    const char *name;
    struct jval (*run)(struct jctx *c, const struct jargs *a);
};
struct jmethod_row {
    const char *name;
    enum jkind kind;            /* of the object */
    struct jval (*run)(struct jctx *c, struct jval self, const struct jargs *a);
};
struct jmethod {
    const struct jmethod_row *row;
    struct jval self;
};
/* NULL when there is no such row. */
const struct jfilter *jfilter_find(struct str name);
const struct jfilter *jfilter_list_find(struct str name);       /* those about lists */
const struct jtest *jtest_find(struct str name);
const struct jfunction *jfunction_find(struct str name);
const struct jmethod_row *jmethod_find(enum jkind kind, struct str name);

/* Evaluation. */
struct jval eval(struct jctx *c, const struct jnode *n);
struct jval eval_arithmetic(struct jctx *c, enum jop op, struct jval a, struct jval b);
struct jval eval_slice(struct jctx *c, struct jval v, const struct jval bounds[3]);
void run_body(struct jctx *c, const struct jnode *list);
struct jval call_macro(struct jctx *c, const struct jmacro *m, const struct jargs *a);
struct jval call_value(struct jctx *c, struct jval f, const struct jargs *a);
struct jval get_attr(struct jctx *c, struct jval v, struct jval name);     /* v.name */
struct jval get_item(struct jctx *c, struct jval v, struct jval key);      /* v[key] */
bool truth(struct jval v);
bool same(struct jctx *c, struct jval a, struct jval b);        /* == */
/* < 0, 0, > 0; fails for kinds without an order. */
int order(struct jctx *c, struct jval a, struct jval b);
bool contains(struct jctx *c, struct jval inside, struct jval v);       /* v in inside */
/* The elements of what can be iterated (keys, characters); NULL and a failure otherwise. */
struct jlist *iterate(struct jctx *c, struct jval v);
/* len(v); fails for what has none. */
int64_t length_of(struct jctx *c, struct jval v);
bool is_number(struct jval v);          /* bool, int, float */
double number_of(struct jval v);
const char *kind_name(struct jval v);

/* str(v) appended, as Python prints it; none for undefined. */
void print_value(struct jctx *c, struct jout *o, struct jval v);
struct jval to_string(struct jctx *c, struct jval v);   /* str(v); a string stays itself */
struct json_form {
    bool ascii, sort;
    int64_t indent;             /* -1: one line */
    struct jval item, key;      /* separators as strings, or undefined */
};
void print_json(struct jctx *c, struct jout *o, struct jval v, const struct json_form *form);

/* String helpers that filters and methods share. chars undefined: white space. */
struct jval string_strip(struct jctx *c, struct jval v, struct jval chars, bool left, bool right);
struct jval string_replace(struct jctx *c, struct jval v, struct jval from, struct jval to, int64_t n);
enum jcase { CASE_LOWER, CASE_UPPER, CASE_CAPITALIZE, CASE_TITLE };
struct jval string_case(struct jctx *c, struct jval v, enum jcase how);
struct jval string_join(struct jctx *c, struct jval sep, const struct jlist *parts);

#endif
