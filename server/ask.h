/* server/ask.h - one request, whatever API it came by: what to continue, how, and how to answer. The
 * dialects fill it; everything after them knows this form only. Threads: one owner. */
#ifndef LUCE_SERVER_ASK_H
#define LUCE_SERVER_ASK_H

#include <jansson.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "chat/tree.h"

struct server;

/* Why a request gets no answer. */
struct refusal {
    int status;                     /* HTTP; 0: none */
    const char *code;               /* machine-readable, or NULL */
    const char *param;              /* static name of the field, or NULL */
    char text[1000];
};
/* Fills *r and returns false. */
bool refuse(struct refusal *r, int status, const char *code, const char *param, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The refusal that a failure of the engine means. */
bool refuse_status(struct refusal *r, luce_status status, const char *text);

struct prompt {
    int32_t *ids;                   /* owned */
    size_t n;
    struct str text;                /* in the body, when it came as text; for `echo` */
};

/* What was left out of a request; the texts are in content.c. */
enum note { NOTE_TOOLS = 1, NOTE_ITEMS = 2, NOTE_PARTS = 4, NOTE_SEARCH = 8, NOTE_UNSHOWN = 16, NOTE_NEW = 32 };
enum { ASK_STOPS = 64, ASK_CHOICES = 128, ASK_BIAS = 1024, ASK_TOP_LOGPROBS = 20, ASK_DRAFT = 63,
       ASK_INPUTS = 2048,
       JSON_NESTING = 100 };
struct ask {
    json_t *body;                   /* owned; texts below are borrowed from it */
    bool chat;                      /* messages, to be put in the model's form; else prompts as they are */
    json_t *messages;               /* owned: in the form of the chat API, system turn first */
    json_t *kept;                   /* owned: those that a response leaves behind; else NULL */
    json_t *tools;                  /* owned: likewise; NULL: none */
    json_t *variables;              /* owned: for the template; NULL: none */
    struct prompt *prompts;         /* owned, n_prompts */
    int n_prompts;

    bool stream, include_usage;
    bool echo;                      /* the prompt comes before its text */
    bool prompt_only;               /* and nothing after it */
    bool embed;                     /* a vector of each prompt, in place of text */
    bool several;                   /* the API has choices: `n` */
    int choices;                    /* of each prompt */
    int64_t max_tokens;             /* 0: what the context leaves */
    luce_sampling sampling;
    int32_t bias_id[ASK_BIAS];
    float bias[ASK_BIAS];
    const char *stop[ASK_STOPS];
    struct str stop_text[ASK_STOPS];            /* the same */
    int n_stop;
    bool logprobs;
    int top_logprobs;
    int draft;                      /* as luce_request.draft */
    bool fresh;                     /* likewise */
    const char *draft_header;       /* what the header says of it, or NULL; borrowed */
    bool one_call;                  /* parallel_tool_calls: false */
    bool old_calls;                 /* the client knows function_call only: functions in place of tools */
    bool store;                     /* Responses: keep it for previous_response_id */
    enum { NEW_TURN, CONTINUE_IF_POSSIBLE, CONTINUE } turn;     /* the last message, an assistant's, is written on */
    bool thinks_when_asked;         /* reasoning is off unless the request turns it on */
    bool thinks;                    /* reasoning is on, as far as the request and its prompt tell */
    bool begins_in_reasoning;       /* the prompt opened it */
    bool bounded;                   /* reasoning ends after thinking_tokens; */
    bool asked_tokens;              /* the request said how many */
    int64_t thinking_tokens, reply_tokens;      /* reply_tokens: to be kept for the answer; -1: the usual */
    unsigned notes;                 /* bits of enum note */
};

/* Reads the body, which must be an object nested at most JSON_NESTING deep. */
json_t *ask_read_body(struct str body, struct refusal *why);
/* Leaves of the ask's tools what tool_choice allows. In tools.c. */
bool take_tool_choice(struct ask *a, struct refusal *why);
/* The fields that all APIs share: limits, sampling, stops, tools, stream. */
bool ask_common(struct ask *a, const struct server *s, struct refusal *why);
void ask_drop(struct ask *a);
/* The notes as one line, "": none. */
void ask_notes(const struct ask *a, char *out, size_t size);

/* Fields of an object, with the type checked; absent and null leave *out. */
bool field_bool(const json_t *object, const char *key, bool *out, struct refusal *why);
bool field_number(const json_t *object, const char *key, double low, double high, double *out, struct refusal *why);
bool field_int(const json_t *object, const char *key, int64_t low, int64_t high, int64_t *out, struct refusal *why);
const char *field_text(const json_t *object, const char *key);      /* NULL unless it is a string */

/* The text of a content: a string, or a list of parts: text, and files and documents that are text. False for
 * images, sound and video. What else there is is left out, and noted. */
bool content_text(struct ask *a, const json_t *content, struct buf *out, struct refusal *why);
/* The last message is an assistant's with some text and no calls. */
bool ends_in_text(const json_t *messages);
/* Appends {"role", "content"}; a leading system turn takes further ones, parted by a blank line. */
bool add_message(json_t *messages, const char *role, struct str text);

#endif
