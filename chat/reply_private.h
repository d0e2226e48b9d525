/* chat/reply_private.h - the parser of replies and the readers of calls, which share its buffer.
 * A reader looks at r->in from r->at on, moves r->at over what it has understood, and says whether it
 * needs more, is done, or that this is no call. It may be asked again with more bytes at any point. */
#ifndef LUCE_CHAT_REPLY_PRIVATE_H
#define LUCE_CHAT_REPLY_PRIVATE_H

#include "chat/reply.h"

enum verdict { V_MORE, V_DONE, V_BROKEN };
struct reply;

/* Markup of the kind: open [name_open NAME name_close (key_open KEY key_close value value_close)*
 * call_close]+ close. */
struct tag_form {
    const char *name_open, *name_close;     /* name_close NULL: at the first white space or '<' */
    const char *key_open, *key_close;
    const char *value_open;                 /* NULL: right after key_close */
    const char *value_close;
    const char *call_close, *close;         /* close NULL: call_close ends it all */
    bool newlines;              /* one newline after value_open and before value_close is not the value's */
    bool attribute;             /* string="true|false" in the key's tag says the type */
    bool several;               /* calls between open and close */
};
struct dialect {
    const char *name;
    const char *marks[3];       /* of the template's text: all of these that are given are in it */
    const char *open[3];        /* texts that begin a call; the first one is the usual */
    const char *close;          /* text that ends a call written as JSON, or NULL */
    bool bare;                  /* a JSON object that is all of the content is a call, if its name is declared */
    const char *think_open, *think_close;
    const struct tag_form *tags;
    enum verdict (*read)(struct reply *r, bool end);
    void (*print)(const struct dialect *d, struct buf *out, const char *name, const json_t *args, size_t i, size_t n);
};

enum { NAME_MAX_BYTES = 128, DEPTH_MAX = 256 };
struct reply {
    struct reply_params p;
    struct buf in;              /* what is not yet given out, from pos on */
    size_t pos, scan;           /* bytes before scan are known to hold no mark */
    char tail[4];               /* an incomplete character */
    int n_tail;
    enum { IN_CONTENT, IN_REASONING, IN_CALL, IN_TRIAL } mode;
    bool begun;                 /* some text, reasoning or call came */
    bool said;                  /* content that is not white space came */
    bool thought;               /* the newest text was reasoning, of the block that is open */
    bool skip_blank;            /* white space is dropped until text comes */
    size_t immune;              /* openers before this byte are text: a call broke here */
    size_t probed;              /* length of the held text when it was last tried as a call */
    int n_calls, n_whole, n_malformed;
    bool failed;
    bool natural;               /* the model ended the reply itself: it may have left out closing marks */
    /* the call that is read */
    size_t from, opened, at;    /* where its text (white space before it too) and its opener end, cursor */
    int state;
    bool started, single;       /* its name is known; the opener is the object itself */
    bool announced;             /* its name was told */
    struct buf name, id, key, args;     /* args: JSON so far */
    size_t told;                /* bytes of args that were told */
    size_t value;               /* where a value begins */
    size_t seen;                /* how far it was searched for its end */
    size_t maybe;               /* a closing tag that may be the value's, or 0 */
    bool maybe_closed;          /* the call's closing tag stands behind it */
    int depth, levels, params, step;
    bool in_string, escaped, is_string, typed, as_text, unwrapped, comma, list;
    char stack[DEPTH_MAX];
    json_t *given;              /* keys of the arguments so far */
};

void reply_event(struct reply *r, enum reply_kind kind, struct str text);
/* The call's name is known. False when it is no name, or one that must be declared. */
bool call_start(struct reply *r, struct str name, struct str id);
/* It will be a call whatever follows: CALL_SURE_BYTES. */
bool call_is_sure(const struct reply *r);
/* Tells what r->args has gained, if the call is sure. */
void call_tell(struct reply *r);
/* The call is complete: r->args is empty or an object. Tells all of it, prepares for a further one. */
enum verdict call_finish(struct reply *r);
void call_reset(struct reply *r);
/* The schema of the call's parameter, or NULL. The call's declared function, or NULL. */
const json_t *call_schema(const struct reply *r, const char *key);
const json_t *tool_find(const json_t *tools, struct str name);
/* Moves r->at over white space. */
void skip_space(struct reply *r);
bool is_space(char c);
/* The mark at byte `at`: 1 it is there, 0 it is not, -1 the text ends inside it (0 when `end`). */
int mark_at(const struct reply *r, size_t at, const char *mark, bool end);
/* The JSON value that the text spells, or NULL; json_decref. Out of memory is remembered. */
json_t *json_of(struct reply *r, const char *text, size_t len);
/* JSON text of a string's inside (no quotes around). */
void escape_json(struct buf *out, const char *bytes, size_t len);

/* Copies a JSON value (r->step 0 before it, r->depth 0) or, from behind its quote on, a string (is_key: it is
 * one), from r->at to r->args while it comes. Always valid JSON: control characters in strings and backslashes
 * that begin no escape are escaped, halves of characters replaced. In a call that is sure a quote ends a
 * string only where one may end. What is no JSON is V_BROKEN. */
enum verdict copy_json(struct reply *r, bool end);
enum verdict copy_string(struct reply *r, bool is_key, bool end);

/* true, false, null or a number. */
bool is_json_word(struct str word);

/* The readers of calls, one per form of markup: see above. `end`: no more bytes will come. */
enum verdict read_json_call(struct reply *r, bool end);
enum verdict read_mistral_call(struct reply *r, bool end);
enum verdict read_tag_call(struct reply *r, bool end);
enum verdict read_gemma_call(struct reply *r, bool end);
enum verdict read_llama_call(struct reply *r, bool end);

#endif
