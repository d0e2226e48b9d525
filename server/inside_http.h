/* server/inside_http.h - what the files of the HTTP part share. */
#ifndef LUCE_SERVER_INSIDE_HTTP_H
#define LUCE_SERVER_INSIDE_HTTP_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/queue.h"
#include "base/thread.h"
#include "server/http.h"

enum { N_WORKERS = 3, HEAD_BYTES = 64 << 10, REQUEST_SECONDS = 120, STALL_SECONDS = 30, WATCH_MS = 100 };

enum connection_state { READING, QUEUED, HANDLED, REPLYING };

/* One request of a socket: from its first byte to the end of its reply. */
struct connection {
    struct http *http;
    struct MHD_Connection *mhd;
    struct exchange exchange;
    struct buf body, out;           /* out: of the stream, not yet taken by the library */
    size_t out_at;
    bool ended;                     /* the source has nothing more */
    bool refused_body;              /* too large: the rest is read and dropped */
    int fd;

    /* Whoever reads HANDLED or REPLYING may read the exchange's source and context. */
    _Atomic enum connection_state state;
    pthread_mutex_t lock;           /* guards who suspends or resumes */
    bool suspended, woken;
    atomic_bool left;               /* nobody reads */
    atomic_bool half_closed;        /* nothing more will come from the client; it may still read */
    uint64_t started_ns;            /* of the request */
    _Atomic uint64_t last_ns;       /* of the last bytes of the stream; 0: a comment is due at once */
    struct connection *before, *after;      /* in http.all */
    char *path;
};

struct http {
    const struct http_params *params;
    struct MHD_Daemon *daemon;
    struct queue *work;
    struct thread worker[N_WORKERS], watcher;
    pthread_mutex_t lock;           /* guards the list */
    struct connection *all;
    atomic_int busy;
    atomic_bool stopping;
    int watch_fd;                   /* epoll of sockets whose request is under way */
    int wake_fd;                    /* ends the watcher */
    char *cert, *key;
};

/* Looks after all connections until http.stopping; see watch.c. */
void watch_run(void *http);
/* Adds the socket of a request that is complete; removes it. */
void watch_add(struct connection *c);
void watch_remove(struct connection *c);
/* Suspends the connection unless it was woken; the lock is held. True when it sleeps now. */
bool connection_sleep(struct connection *c);
/* Since the last bytes of its stream. */
int connection_silent_ms(const struct connection *c, uint64_t now);
/* 0 when the request may go on, else the status that refuses it. */
int auth_check(const struct http_params *p, struct MHD_Connection *m, const char *path, bool *trusted);

#endif
