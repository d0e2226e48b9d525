/* server/job.h - an accepted request on its way: the engine's thread adds raw text to the queues of its
 * choices, the thread that moves bytes takes it out, splits it into items and lets the dialect print
 * them. Streams and whole replies go the same way, so they cannot differ.
 * Threads: `lock` guards what both sides touch; the rest belongs to the side that the comment names. */
#ifndef LUCE_SERVER_JOB_H
#define LUCE_SERVER_JOB_H

#include <pthread.h>

#include "engine/stop.h"
#include "server/ask.h"
#include "server/server.h"
#include "server/split.h"

enum item_kind { ITEM_TEXT, ITEM_REASONING, ITEM_CALL };
struct item {                       /* a piece of the answer */
    enum item_kind kind;
    struct buf text;                /* of a call: its arguments, JSON */
    struct buf name;                /* of a call */
    char id[40];                    /* with the dialect's prefix */
    bool custom;                    /* a call of a custom tool */
    bool closed, cut;               /* cut: a limit ended the reply inside */
};

enum finish { FINISH_END, FINISH_STOP, FINISH_LENGTH, FINISH_CALLS };

struct told {                       /* a token with its logprobs */
    int32_t id;
    bool unknown;                   /* the first of a prompt: there is no logprob */
    float logprob;
    int n_top;
    int32_t top_id[ASK_TOP_LOGPROBS];
    float top_logprob[ASK_TOP_LOGPROBS];
    size_t end;                     /* bytes of text up to its end */
};

struct job;
struct choice {
    struct job *job;
    luce_ticket *ticket;
    double submitted, last_token;   /* clock seconds; the engine's thread writes last_token */
    /* The engine's side, under job.lock. */
    struct buf queue;               /* records, see job.c */
    bool done, overflow;
    luce_status status;
    luce_error error;
    luce_finish engine_finish;
    const char *stop;               /* the string that ended it */
    size_t n_reused;
    double prompt_seconds, decode_seconds;
    uint64_t seed;
    bool thinking_cut, looped;      /* as luce_result */
    float *vector;                  /* of its prompt, for embeddings; owned */
    luce_speculation speculation;
    int n_generated;                /* tokens, the end token included */
    /* The printing side. */
    int index, prompt;
    struct item *items;
    int n_items, cap_items;
    struct told *told;              /* with logprobs: all tokens, n_covered of them with text that went out */
    int n_told, cap_told, n_covered, n_printed;
    size_t raw_bytes, out_bytes;    /* of the tokens; of the text that came */
    size_t gone_bytes;              /* of that, up to what the client has */
    struct stopper stopper;         /* chats: stop strings are looked for in what the client sees */
    enum item_kind held_kind;       /* of the text that it holds back */
    bool stopped;                   /* one was found: nothing counts after it */
    int n_tokens, n_reasoning;
    bool has_content, echoed;
    enum finish finish;
    bool over;                      /* done, seen by this side: what the engine found is fixed */
    bool ended;                     /* the end was printed */
    struct splitter *splitter;
};

struct usage {
    int64_t prompt, cached, generated, reasoning;
    int64_t steps, drafted, accepted, declined;     /* as luce_speculation */
    double prompt_ms, decode_ms;
};

struct wire {
    const char *name;
    const char *id_prefix;          /* of the reply */
    const char *call_prefix;        /* of calls, followed by hex digits */
    const char *prompt;             /* the field that has the prompt */
    /* Streams: the head, before anything is known of the answer; an item begins (calls: with its name);
     * text of the innermost item; it ends; a choice ends; everything has ended. */
    void (*begin)(struct job *j, struct buf *out);
    void (*open_item)(struct job *j, struct choice *c, struct item *i, struct buf *out);
    void (*add)(struct job *j, struct choice *c, struct item *i, struct str text, struct buf *out);
    void (*close_item)(struct job *j, struct choice *c, struct item *i, struct buf *out);
    void (*end_choice)(struct job *j, struct choice *c, struct buf *out);
    void (*end)(struct job *j, struct buf *out);
    void (*broken)(struct job *j, const struct refusal *why, struct buf *out);   /* the stream ends so */
    const char *keep_alive;         /* what a silent stream gets */
    /* The reply as one JSON document. */
    void (*whole)(struct job *j, struct buf *out);
    /* An error as one JSON document. */
    void (*error)(const struct refusal *why, struct buf *out);
};

struct live_job {                   /* what live.h keeps of a job; fixed once it is listed, but for the links, which */
    struct job *before, *after;     /* its lock guards, as it does `going`, and the count */
    int going;                      /* choices that have not ended */
    double began;                   /* clock seconds */
    int max_output;                 /* of a choice */
    atomic_int n_tokens;            /* of all choices */
    atomic_bool cached;             /* a choice began with what the cache had */
    struct buf messages;            /* the beginning of the conversation as JSON text */
    size_t n_excerpt;               /* bytes of the first prompt's beginning */
    char excerpt[200];
};

struct job {
    struct server *server;
    const struct wire *wire;
    struct ask ask;
    struct exchange *exchange;      /* the printing side */
    struct choice *choice;
    int n_choices;
    struct connection *connection;  /* lock; NULL once the reply is over */
    pthread_mutex_t lock;
    int holders;                    /* lock: the reply, each choice in the engine */
    bool left;                      /* lock: the client */
    bool finished;                  /* lock: all of the reply was made */
    /* The printing side. */
    char id[48];
    int64_t created;
    bool begun;
    int sequence;                   /* of events */
    int n_open;                     /* blocks that have begun; dialects count them */
    struct live_job live;
};

/* Renders, tokenises, checks, submits, and makes *x the reply. Takes what *ask holds. False: refused. */
bool job_start(struct server *s, struct exchange *x, const struct wire *d, struct ask *ask, struct refusal *why);
struct usage job_usage(const struct job *j);
/* The splitter hands over what it found. */
void job_open_call(struct choice *c, struct str name, bool custom, struct buf *out);
void job_add(struct choice *c, enum item_kind kind, struct str text, struct buf *out);
/* n bytes of text that came have gone out, or will with the next item. */
void job_cover(struct choice *c, size_t n);
void job_close_item(struct choice *c, struct buf *out);
/* prefix + hex digits that nobody can guess. */
void make_id(char *out, size_t size, const char *prefix);

/* Turns the ask's messages into one prompt. */
bool render_chat(const struct server *s, struct ask *a, struct refusal *why);
/* One prompt of plain text. */
bool add_prompt(const struct server *s, struct ask *a, const luce_text *text, struct refusal *why);

extern const struct wire wire_chat, wire_completions, wire_messages, wire_responses, wire_embeddings;

#endif
