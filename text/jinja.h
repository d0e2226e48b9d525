/* text/jinja.h - chat templates: a Jinja interpreter of what the target models' templates use
 * (docs/chat.md lists it), with the settings of Hugging Face's apply_chat_template: trim_blocks,
 * lstrip_blocks, no autoescape, loop controls, the generation tag.
 * A template comes from a model file and its values from clients, so neither is trusted: a template
 * reaches nothing but its values, and nesting, steps, memory and output have limits.
 * Every string remembers which of its bytes are plain (somebody's words) and which the template
 * wrote; the output has these marks too, so that the two are tokenised apart.
 * Threads: a parsed template is constant, any thread may render it; a heap has one owner at a time. */
#ifndef LUCE_TEXT_JINJA_H
#define LUCE_TEXT_JINJA_H

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "text/vocab.h"

/* ---- values ------------------------------------------------------------------------------------ */
enum jkind {
    J_UNDEFINED, J_NONE, J_BOOL, J_INT, J_FLOAT, J_BIG, J_STRING, J_LIST, J_DICT,
    J_NAMESPACE, J_LOOP, J_MACRO, J_FUNCTION, J_METHOD     /* made by templates only */
};
struct jval {
    enum jkind kind;
    union {
        bool b;
        int64_t i;
        double f;
        const struct jstring *s;        /* of a J_BIG, too: a number that neither int64_t nor double holds */
        struct jlist *list;             /* lists and tuples */
        struct jdict *dict;             /* in the order of insertion; also a namespace */
        struct jloop *loop;
        const struct jmacro *macro;
        const struct jfunction *function;
        const struct jmethod *method;
    };
};

/* Where values live: all that templates and their callers make, until jinja_heap_drop. Zeroed it is
 * empty and has the usual limit. */
struct jheap {
    struct arena arena;
    size_t bytes, limit;        /* limit 0: JINJA_MEMORY_MAX */
    bool failed;                /* out of memory at some value, which is then undefined */
    bool over;                  /* ... because of the limit */
};
void jinja_heap_drop(struct jheap *h);

/* Makers of values. A failure shows in the heap and gives undefined. */
struct jval jinja_text(struct jheap *h, struct str text, bool plain);   /* copies; UTF-8 expected */
struct jval jinja_int(int64_t i);
struct jval jinja_float(double f);
struct jval jinja_big(struct jheap *h, struct str digits);      /* JSON's; copied, printed as they are */
struct jval jinja_bool(bool b);
struct jval jinja_none(void);
struct jval jinja_list(struct jheap *h);
struct jval jinja_dict(struct jheap *h);
/* A float as Python's repr and json.dumps have it: the shortest digits that read back the same. Returns the length. */
int jinja_print_float(char out[40], double f);
/* Adds to a list; does nothing when `list` is undefined. */
void jinja_push(struct jheap *h, struct jval list, struct jval item);
/* Sets the key of a dict; the same for `dict`. The key's bytes are copied; plain as in jinja_text. */
void jinja_put(struct jheap *h, struct jval dict, struct str key, bool plain, struct jval value);
/* The value of a key, or undefined; also when v is not a dict. */
struct jval jinja_get(struct jval v, const char *key);
/* The bytes of a string, else an empty text; borrowed from the heap. */
struct str jinja_str(struct jval v);
/* Elements of a list and the one at i < n; 0 for what is no list. */
size_t jinja_len(struct jval v);
struct jval jinja_at(struct jval v, size_t i);

/* ---- templates --------------------------------------------------------------------------------- */
enum {
    JINJA_NESTING_MAX = 64,             /* blocks and parentheses within each other */
    JINJA_CALLS_MAX = 64,               /* macros that are in progress */
    JINJA_STEPS_MAX = 10000000,
    JINJA_SOURCE_MAX = 1 << 20,         /* bytes of a template */
    JINJA_OUTPUT_MAX = 64 << 20,
    JINJA_MEMORY_MAX = 512 << 20,       /* a heap */
};
struct jinja;
/* Parses `source`, which is copied. `name` is for messages ("FILE: line 3, column 7: ...").
 * LUCE_E_FORMAT with line and column, LUCE_E_NOMEM. An empty template is valid here. */
luce_status jinja_parse(struct jinja **out, struct str source, const char *name, luce_error *err);
void jinja_free(struct jinja *t);
/* The source as given; borrowed. */
struct str jinja_source(const struct jinja *t);
/* Whether the template's text uses this name as a variable (or attribute). */
bool jinja_mentions(const struct jinja *t, const char *name);

struct jinja_var {
    const char *name;
    struct jval value;
};
struct jinja_render {
    const struct jinja_var *vars;       /* of equal names the last one counts */
    size_t n_vars;
    int64_t now;                /* what strftime_now says, seconds of the epoch; 0: the clock */
    /* The from_json filter: text to a value made in the heap. NULL: the filter is refused. */
    luce_status (*from_json)(struct jheap *h, struct str text, struct jval *out, luce_error *err);
    int64_t max_steps;          /* 0: JINJA_STEPS_MAX */
};
struct jinja_output {
    struct str text;            /* borrowed from the heap */
    struct text_span *spans;    /* the template's words (SPAN_TEMPLATE), in order; from the heap */
    size_t n_spans;
    bool raised;                /* after LUCE_E_ARG: the template refused by raise_exception */
};
/* Renders. LUCE_E_ARG when the template calls raise_exception (the message ends with its words) or
 * meets a value that it cannot use; LUCE_E_FORMAT for what no values could mend, and limits;
 * LUCE_E_NOMEM. Messages hold line and column. The values of `vars` are not changed. */
luce_status jinja_render(const struct jinja *t, const struct jinja_render *r, struct jheap *h,
                         struct jinja_output *out, luce_error *err);

#endif
