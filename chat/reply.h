/* chat/reply.h - what a model writes, split into reasoning, content and tool calls while it comes.
 * One parser for streams and whole replies: the events of any two ways of cutting the same bytes join to
 * the same texts. It is total: any bytes are taken, what no dialect can read comes out as content, and
 * no text is lost. The ways in which models write calls are rows of the table in dialects.c.
 * Threads: one owner at a time. */
#ifndef LUCE_CHAT_REPLY_H
#define LUCE_CHAT_REPLY_H

#include <jansson.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

struct dialect;                 /* one way of writing calls and reasoning; static storage */
const char *dialect_name(const struct dialect *d);
/* Row by number, NULL after the last one. */
const struct dialect *dialect_at(size_t i);
/* The dialect that a chat template teaches. Never NULL: a template without calls has the dialect "none",
 * which still knows reasoning. */
const struct dialect *dialect_for(struct str template_text);
/* Whether a reply to this rendered prompt begins inside reasoning: the prompt ends, but for white
 * space, with the tag that opens it. */
bool dialect_starts_in_reasoning(const struct dialect *d, struct str prompt);
/* The texts that open and close reasoning ("<think>", "</think>"). */
const char *dialect_reasoning_open(const struct dialect *d);
const char *dialect_reasoning_close(const struct dialect *d);
/* Prints calls (an array of {"function": {"name", "arguments"}}, arguments an object or its JSON text) as
 * the model writes them. LUCE_E_ARG for a call without a name; LUCE_E_UNSUPPORTED for "none". */
luce_status dialect_print(const struct dialect *d, const json_t *calls, struct buf *out, luce_error *err);

enum reply_kind {
    REPLY_REASONING, REPLY_CONTENT,     /* a piece of text */
    REPLY_CALL,                         /* a call begins; text: its name */
    REPLY_ARGUMENTS,                    /* a piece of its arguments, JSON text of an object */
    REPLY_CALL_END,
};
enum call_end {
    CALL_WHOLE,                 /* the arguments are valid JSON */
    CALL_CUT,                   /* a limit ended the reply inside: what came is all there is */
};
/* A call is told once it is whole, or once so much of its arguments is there. Until then its text comes out
 * as content, unchanged, if it turns out to be none. After that it is a call whatever follows: its arguments
 * are closed where they cease to make sense, and the rest is content. */
enum { CALL_SURE_BYTES = 512 };
struct reply_event {
    enum reply_kind kind;
    struct str text;            /* valid UTF-8, borrowed for the time of the event */
    int call;                   /* number of the call, from 0 */
    enum call_end end;
    struct str id;              /* of REPLY_CALL: the model's own id of the call, usually empty */
};
struct reply_params {
    const struct dialect *dialect;
    const json_t *tools;        /* array in OpenAI's form, borrowed; NULL: none declared */
    bool no_calls;              /* markup of calls is text (tool_choice none) */
    bool in_reasoning;          /* dialect_starts_in_reasoning */
    void (*on_event)(void *user, const struct reply_event *event);
    void *user;
};
struct reply;
/* LUCE_E_NOMEM. */
luce_status reply_open(struct reply **out, const struct reply_params *params, luce_error *err);
void reply_close(struct reply *r);      /* NULL is fine */
/* Takes the next bytes of the model's text, special tokens written out. */
void reply_add(struct reply *r, struct str bytes);
/* The reply ends: what was held back comes out. cut: by a limit, not by the model; then a call without its
 * end is never whole. LUCE_E_NOMEM when any text was lost. */
luce_status reply_end(struct reply *r, bool cut, luce_error *err);
/* At least one call is whole: the finish reason is "tool_calls", unless a limit cut the reply. */
bool reply_called(const struct reply *r);
/* Calls that were begun and came out as content, or were closed before their end. */
int reply_malformed(const struct reply *r);
/* Bytes that were taken and not told yet, the text of the event under way included. */
size_t reply_unread(const struct reply *r);
/* Inside reasoning now. */
bool reply_in_reasoning(const struct reply *r);

/* Completes the start of a JSON text: closes what is open; what lacks its value is null. */
void json_complete(struct buf *text);

/* How many bytes at the end of `text` are a proper start of one of n marks, the longest such end: what a
 * stream holds back before stop strings and tags. */
size_t held_back(struct str text, const char *const *marks, size_t n);

#endif
