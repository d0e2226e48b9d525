/* server/watch.c - clients that leave, requests that do not arrive, streams that are silent too long.
 * A suspended socket is not watched by the library. A client that closes or half-closes its side shows
 * here, and what it is shows only when something is sent: a client that is gone answers with a reset. A stream is
 * woken and writes a comment; a request without a reply gets an interim one, where the protocol has such (HTTP/1.1
 * without TLS; else it ends). */
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "server/inside_http.h"

void watch_add(struct connection *c)
{
    struct epoll_event e = { .events = EPOLLRDHUP | EPOLLET, .data.ptr = c };
    epoll_ctl(c->http->watch_fd, EPOLL_CTL_ADD, c->fd, &e);
}

void watch_remove(struct connection *c)
{
    epoll_ctl(c->http->watch_fd, EPOLL_CTL_DEL, c->fd, NULL);
}

/* Asks a client that will say nothing more whether it is still there: one that is gone answers with a reset. False
 * when it cannot even be asked. While the library may write, nothing is asked: look_at does it later. */
static bool ask_client(struct connection *c)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    ssize_t n = sizeof interim - 1;
    pthread_mutex_lock(&c->lock);           /* the library does not write while the connection is suspended */
    bool now = c->suspended && !c->asked;
    bool sent = !now || send(c->fd, interim, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) == n;
    c->asked |= now;
    pthread_mutex_unlock(&c->lock);
    return sent;
}

/* The list's lock is held, so that c stays. Its client is gone. */
static void has_left(struct connection *c)
{
    atomic_store(&c->left, true);
    if (c->state != QUEUED && c->exchange.source) c->exchange.source->left(c->exchange.context);
    http_wake(c);
}

/* The list's lock is held, so that c stays. */
static void look_at(struct http *h, struct connection *c, uint64_t now)
{
    const struct http_params *p = &h->params;
    if (c->state == READING && now - c->started_ns > (uint64_t)p->body_seconds * 1000000000) shutdown(c->fd, SHUT_RDWR);
    if (c->state == REPLYING && c->exchange.source && !c->exchange.later &&
        connection_silent_ms(c, now) >= p->keep_alive_ms)
        http_wake(c);
    if (atomic_load(&c->half_closed) && c->interim && c->state != REPLYING && !ask_client(c)) has_left(c);
}

static void on_hangup(struct http *h, struct connection *gone, uint32_t events)
{
    pthread_mutex_lock(&h->lock);
    for (struct connection *c = h->all; c; c = c->after) {
        if (c != gone) continue;        /* it may have ended since */
        bool known = c->state != QUEUED && c->exchange.source;      /* else the handler is not done */
        bool streams = c->state == REPLYING || (known && !c->exchange.later), left = events & (EPOLLHUP | EPOLLERR);
        atomic_store(&c->half_closed, true);
        if (!left && !streams) left = c->interim ? !ask_client(c) : known;
        if (left) {
            has_left(c);
        } else if (streams) {
            c->last_ns = 0;
            http_wake(c);
        }
        break;
    }
    pthread_mutex_unlock(&h->lock);
}

void watch_run(void *arg)
{
    struct http *h = arg;
    struct epoll_event got[64];
    uint64_t looked = 0;
    while (!atomic_load(&h->stopping)) {
        int n = epoll_wait(h->watch_fd, got, 64, WATCH_MS);
        for (int i = 0; i < n; i++) on_hangup(h, got[i].data.ptr, got[i].events);
        uint64_t now = clock_ns();
        if (now - looked < 1000000ull * WATCH_MS) continue;
        looked = now;
        pthread_mutex_lock(&h->lock);
        for (struct connection *c = h->all; c; c = c->after) look_at(h, c, now);
        socket_look(h, now);
        pthread_mutex_unlock(&h->lock);
    }
}
