/* server/server.h - one model behind the HTTP APIs of OpenAI and Anthropic.
 * Threads: server_open, server_run and server_close are the main thread's; everything else says so. */
#ifndef LUCE_SERVER_SERVER_H
#define LUCE_SERVER_SERVER_H

#include <stdatomic.h>

#include "server/histogram.h"
#include "server/http.h"

enum { EFFORTS = 5 };               /* low, medium, high, x-high, max */
struct server_params {
    const char *name;               /* of the model, in replies */
    const char *path;               /* of its file, for /props */
    const char *draft_path;         /* of the drafter's file, or NULL; likewise */
    luce_engine_params engine;      /* how many requests may wait */
    int64_t max_tokens;             /* when a request does not say; 0: what the context leaves */
    double temperature, top_p;      /* likewise */
    int64_t top_k;
    int64_t think_max;              /* tokens of reasoning of any reply; 0: no bound */
    int64_t reply_budget;           /* tokens that a bounded reasoning leaves to the answer */
    int64_t effort[EFFORTS];        /* tokens of reasoning by effort; 0: a share of max_tokens */
    int thinking;                   /* enum chat_thinking of requests that do not say */
    luce_pooling pooling;           /* of embeddings */
    const char *template_file;      /* in place of the model's own; NULL: that one */
    bool stream_usage;              /* usage in every stream, also when not asked for */
    struct http_params http;        /* handler and user are set by server_open */
};

struct metrics {
    atomic_ulong requests, refused, streams, dropped;
    struct histogram histogram[HISTOGRAMS];
};

struct chat_template;
struct dialect;
struct live;
struct store;
struct vocab_guard;
struct server {
    const struct server_params *params;
    struct http_params http_params;
    luce_engine *engine;
    const luce_model *model;
    luce_model_info info;
    struct chat_template *chat;     /* how messages become a prompt; NULL: the model has no text */
    struct vocab_guard *guard;
    int32_t *close_ids;             /* what ends reasoning that has gone on too long */
    size_t n_close;
    const struct dialect *dialect;  /* in which the model writes calls and reasoning */
    struct http *http;
    struct store *store;            /* of the Responses API */
    struct live *live;              /* what goes on */
    struct metrics metrics;
    atomic_bool draining;
    atomic_int jobs;                /* under way */
    int64_t started;                /* unix seconds */
};

/* Takes the model, also on failure. params is borrowed. Listens when it returns. */
luce_status server_open(struct server **out, luce_model *m, const struct server_params *params, luce_error *err);
int server_port(const struct server *s);
/* Lets requests end for at most 3 seconds, then cancels them, and closes everything. NULL is fine. */
void server_close(struct server *s);
/* The device failed: nothing can be answered any more. Any thread. */
bool server_is_lost(struct server *s);

#endif
