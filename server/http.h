/* server/http.h - HTTP/1.1 by libmicrohttpd: one thread moves bytes (epoll, idle connections are
 * suspended), a few workers run handlers, a watcher looks after time limits and clients that leave.
 * Everything from the network is untrusted; sizes, times and keys are checked here.
 * Threads: a handler runs on a worker; the source of a stream on the thread that moves bytes. */
#ifndef LUCE_SERVER_HTTP_H
#define LUCE_SERVER_HTTP_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

struct http;
struct connection;

/* What fills a streamed reply. All calls for one stream come one after the other, except left. */
struct source {
    /* Appends what is ready; true when the stream has ended with it. silent_ms: since the last byte. */
    bool (*pull)(void *context, struct buf *out, int silent_ms);
    /* The client is gone, whatever thread notices: nobody will read the reply. */
    void (*left)(void *context);
    /* The reply is over; the last call. */
    void (*close)(void *context);
};

/* One request and its reply. */
struct exchange {
    const char *method, *path;      /* path without query string */
    struct str body;
    bool trusted;                   /* it has the key, or there is none and it came from this machine, by no proxy or
                                       page of another site */
    bool wants_html;
    bool has_client_version;        /* in the query */
    const char *speculative;        /* the header Luce-Speculative, or NULL */
    struct connection *connection;  /* for http_wake and http_wait */

    /* The reply, filled by the handler: status, type, and either text or a source. */
    int status;                     /* 200 */
    const char *type;               /* "application/json" */
    struct buf reply;
    bool retry_later;               /* adds Retry-After */
    bool last;                      /* the connection ends with it */
    char allow[32];                 /* value of Allow, or "" */
    char note[320];                 /* value of Luce-Note, or "" */
    const struct source *source;    /* NULL: `reply` is all */
    void *context;                  /* of the source */
    bool later;                     /* plain replies: wait until the source's pull ends, then send `reply` */
};

struct http_params {
    const char *host, *cert, *key;  /* cert and key: PEM files, or both NULL */
    int port;                       /* 0: any, see http_port */
    bool cors;
    const char *const *keys;        /* accepted API keys */
    int n_keys;
    size_t body_bytes;              /* most of a body */
    int keep_alive_ms;              /* most silence in a stream */
    /* 0 means the usual. */
    int connections;                /* most sockets; beyond 3/4 of them the oldest without a request are closed */
    int head_seconds;               /* for the head of a request, from when the socket is free for one */
    int body_seconds;               /* for the body */
    int stall_seconds;              /* most without a byte, either way */
    size_t held_bytes;              /* of all bodies together; small ones are taken beyond it, too */
    void (*handle)(void *user, struct exchange *x);
    /* Writes an error in the shape of the path's dialect. */
    void (*refuse)(void *user, struct exchange *x, int status, const char *text);
    void *user;
};
/* Listens. LUCE_E_IO names address and cause. params is borrowed. */
luce_status http_open(struct http **out, const struct http_params *params, luce_error *err);
int http_port(const struct http *h);
/* No new connections; those that are there go on. */
void http_quiesce(struct http *h);
/* Exchanges that have a handler or a reply under way. */
int http_busy(struct http *h);
/* Ends all connections. Sources are closed. NULL is fine. */
void http_close(struct http *h);
/* The source of this connection has something. Any thread, until its close. */
void http_wake(struct connection *c);

#endif
