/* server/inside_http.h - what the files of the HTTP part share. */
#ifndef LUCE_SERVER_INSIDE_HTTP_H
#define LUCE_SERVER_INSIDE_HTTP_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/queue.h"
#include "base/thread.h"
#include "server/http.h"

enum { N_WORKERS = 3, HEAD_BYTES = 64 << 10, WATCH_MS = 100 };

enum connection_state { READING, QUEUED, HANDLED, REPLYING };

/* A client's socket, whatever it sends. Those without a request (no whole head has come since the last reply)
 * are in a list, so that neither silence nor a head of one byte a second holds a place for long. */
struct socket {
    int fd;
    bool idle;                      /* in the list */
    uint64_t since_ns;
    struct socket *older, *newer;
};

/* One request of a socket: from its first byte to the end of its reply. */
struct connection {
    struct http *http;
    struct MHD_Connection *mhd;
    struct exchange exchange;
    struct buf body, out;           /* out: of the stream, not yet taken by the library */
    size_t out_at;
    bool ended;                     /* the source has nothing more */
    size_t body_seen;               /* bytes of it, kept or not */
    int refused_body;               /* status, or 0: the rest is read and dropped */
    bool counted;                   /* in http.busy */
    bool interim;                   /* the client understands replies before the one that counts */
    int fd;

    /* Whoever reads HANDLED or REPLYING may read the exchange's source and context. */
    _Atomic enum connection_state state;
    pthread_mutex_t lock;           /* guards who suspends or resumes */
    bool suspended, woken;
    bool asked;                     /* whether the client is still there: the interim reply is out */
    atomic_bool left;               /* nobody reads */
    atomic_bool half_closed;        /* nothing more will come from the client; it may still read */
    uint64_t started_ns;            /* of the request */
    _Atomic uint64_t last_ns;       /* of the last bytes of the stream; 0: a comment is due at once */
    struct connection *before, *after;      /* in http.all */
    char *path;
};

struct http {
    struct http_params params;      /* nothing is 0 that means the usual */
    struct MHD_Daemon *daemon;
    struct queue *work;
    struct thread worker[N_WORKERS], watcher;
    pthread_mutex_t lock;           /* guards the lists */
    struct connection *all;
    struct socket *oldest, *newest; /* those without a request */
    int n_sockets;
    atomic_int busy;
    atomic_size_t held;             /* bytes of bodies */
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
/* The library tells of a socket that comes or goes. */
void socket_notify(void *http, struct MHD_Connection *m, void **slot, enum MHD_ConnectionNotificationCode what);
/* It has a request; it waits for the next. */
void socket_busy(struct http *h, struct MHD_Connection *m);
void socket_idle(struct http *h, struct MHD_Connection *m);
/* Closes those without a request for too long. The lock is held. */
void socket_look(struct http *h, uint64_t now);
/* Suspends the connection unless it was woken; the lock is held. True when it sleeps now. */
bool connection_sleep(struct connection *c);
/* Since the last bytes of its stream. */
int connection_silent_ms(const struct connection *c, uint64_t now);
/* Why a head cannot be taken, with the status, or NULL; the words are those that the library hands over. */
const char *head_check(struct MHD_Connection *m, const char *method, const char *path, const char *version,
                       int *status);
/* The library has read the target of a request: hidden_target when a NUL cuts it short, else NULL. */
void *target_check(void *user, const char *target, struct MHD_Connection *m);
extern char hidden_target[1];
/* Undoes %XX in place, but for %00, which would end the text; the new length. */
size_t target_unescape(void *user, struct MHD_Connection *m, char *text);
/* The path of a target, which may name the server, too. Borrowed. */
const char *target_path(const char *target);
/* 0 when the request may go on, else the status that refuses it. */
int auth_check(const struct http_params *p, struct MHD_Connection *m, const char *path, bool *trusted);

#endif
