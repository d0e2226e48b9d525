/* server/sockets.c - clients' sockets: how long one may wait for a request, and who goes when there are many. */
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/inside_http.h"

static struct socket *socket_of(struct MHD_Connection *m)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(m, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void take_out(struct http *h, struct socket *s)
{
    if (!s->idle) return;
    *(s->older ? &s->older->newer : &h->oldest) = s->newer;
    *(s->newer ? &s->newer->older : &h->newest) = s->older;
    s->idle = false;
}

static void put_in(struct http *h, struct socket *s)
{
    if (s->idle) return;
    s->idle = true;
    s->since_ns = clock_ns();
    s->older = h->newest;
    s->newer = NULL;
    *(h->newest ? &h->newest->newer : &h->oldest) = s;
    h->newest = s;
}

/* The library sees the end of it and lets go. */
static void close_oldest(struct http *h)
{
    struct socket *s = h->oldest;
    take_out(h, s);
    shutdown(s->fd, SHUT_RDWR);
}

void socket_notify(void *http, struct MHD_Connection *m, void **slot, enum MHD_ConnectionNotificationCode what)
{
    struct http *h = http;
    struct socket *s = *slot;
    pthread_mutex_lock(&h->lock);
    if (what == MHD_CONNECTION_NOTIFY_STARTED && (*slot = s = mem_zero(sizeof *s))) {
        s->fd = MHD_get_connection_info(m, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        if (++h->n_sockets > h->params.connections / 4 * 3 && h->oldest) close_oldest(h);
        put_in(h, s);
    } else if (what == MHD_CONNECTION_NOTIFY_CLOSED && s) {
        take_out(h, s);
        h->n_sockets--;
        mem_free(s);
        *slot = NULL;
    }
    pthread_mutex_unlock(&h->lock);
}

void socket_busy(struct http *h, struct MHD_Connection *m)
{
    struct socket *s = socket_of(m);
    pthread_mutex_lock(&h->lock);
    if (s) take_out(h, s);
    pthread_mutex_unlock(&h->lock);
}

void socket_idle(struct http *h, struct MHD_Connection *m)
{
    struct socket *s = socket_of(m);
    pthread_mutex_lock(&h->lock);
    if (s) put_in(h, s);
    pthread_mutex_unlock(&h->lock);
}

void socket_look(struct http *h, uint64_t now)
{
    uint64_t most = (uint64_t)h->params.head_seconds * 1000000000;
    while (h->oldest && now > h->oldest->since_ns && now - h->oldest->since_ns > most) close_oldest(h);
}
