/* server/http.c - see http.h. A connection that waits for a worker or for the engine is suspended, so that
 * it costs its buffers only; the library does not watch a suspended socket, so watch.c does. */
#define _GNU_SOURCE
#include "server/inside_http.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <netdb.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

enum { DRAINED_BYTES = 1 << 28, BLOCK_BYTES = 8 << 10, WORK_QUEUE = 4096, SMALL_BODY = 256 << 10 };

bool connection_sleep(struct connection *c)
{
    if (c->woken || atomic_load(&c->http->stopping)) {
        c->woken = false;
        return false;
    }
    c->suspended = true;
    MHD_suspend_connection(c->mhd);
    return true;
}

int connection_silent_ms(const struct connection *c, uint64_t now)
{
    uint64_t last = c->last_ns, ms = last < now ? (now - last) / 1000000 : 0;
    return ms < INT_MAX ? (int)ms : INT_MAX;
}

/* The lock is held. Once it is given back, c may be gone. */
static void wake(struct connection *c)
{
    if (c->suspended && c->state != QUEUED) {   /* a worker has it: only the worker may */
        c->suspended = false;
        MHD_resume_connection(c->mhd);
    } else {
        c->woken = true;
    }
}

void http_wake(struct connection *c)
{
    pthread_mutex_lock(&c->lock);
    wake(c);
    pthread_mutex_unlock(&c->lock);
}

/* ---- the reply ------------------------------------------------------------------------------------ */
static ssize_t read_stream(void *context, uint64_t at, char *to, size_t most)
{
    (void)at;
    struct connection *c = context;
    struct exchange *x = &c->exchange;
    pthread_mutex_lock(&c->lock);
    c->woken = false;
    pthread_mutex_unlock(&c->lock);
again:
    if (c->out_at == c->out.len && !c->ended) {
        uint64_t now = clock_ns();
        buf_clear(&c->out);
        c->out_at = 0;
        c->ended = x->source->pull(x->context, &c->out, connection_silent_ms(c, now));
        if (c->out.len) c->last_ns = now;
    }
    size_t n = c->out.len - c->out_at;
    if (n > most) n = most;
    if (n) memcpy(to, c->out.data + c->out_at, n);
    c->out_at += n;
    if (n) return (ssize_t)n;
    if (c->ended) return MHD_CONTENT_READER_END_OF_STREAM;
    if (atomic_load(&c->left) || c->out.failed) return MHD_CONTENT_READER_END_WITH_ERROR;
    pthread_mutex_lock(&c->lock);
    bool asleep = connection_sleep(c);
    pthread_mutex_unlock(&c->lock);
    if (!asleep && !atomic_load(&c->http->stopping)) goto again;
    return 0;
}

static void free_text(void *data)
{
    mem_free(data);
}

static void add_headers(const struct connection *c, struct MHD_Response *r)
{
    const struct http *h = c->http;
    const struct exchange *x = &c->exchange;
    if (h->params.cors) {
        MHD_add_response_header(r, "Access-Control-Allow-Origin", "*");
        MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
        MHD_add_response_header(r, "Access-Control-Allow-Headers", "*, Authorization");     /* * does not cover it */
        MHD_add_response_header(r, "Access-Control-Expose-Headers", "Luce-Note, Retry-After");
    }
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (x->type) MHD_add_response_header(r, "Content-Type", x->type);
    if (x->source && !x->later) MHD_add_response_header(r, "Cache-Control", "no-cache");
    if (x->retry_later) MHD_add_response_header(r, "Retry-After", "2");
    if (*x->note) MHD_add_response_header(r, "Luce-Note", x->note);
    if (x->status == 401) MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (*x->allow) MHD_add_response_header(r, "Allow", x->allow);
    if (x->last || x->status == 413 || atomic_load(&c->half_closed)) MHD_add_response_header(r, "Connection", "close");
}

/* Sends what the handler made. */
static enum MHD_Result send_reply(struct connection *c)
{
    struct exchange *x = &c->exchange;
    struct MHD_Response *r;
    bool stream = x->source && !x->later;
    c->state = REPLYING;
    c->last_ns = clock_ns();
    if (x->reply.failed) {
        x->status = 500;
        buf_drop(&x->reply);
    }
    if (stream) {
        r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, c, NULL);
    } else {
        r = MHD_create_response_from_buffer_with_free_callback(x->reply.len, x->reply.data, free_text);
        if (r) x->reply = (struct buf){ 0 };
    }
    if (!r) return MHD_NO;
    add_headers(c, r);
    enum MHD_Result result = MHD_queue_response(c->mhd, (unsigned)x->status, r);
    MHD_destroy_response(r);
    return result;
}

/* ---- the request ---------------------------------------------------------------------------------- */
static void drop_body(struct connection *c)
{
    atomic_fetch_sub(&c->http->held, c->body.len);
    buf_drop(&c->body);
    c->exchange.body = (struct str){ 0 };
}

static void run_worker(void *arg)
{
    struct http *h = arg;
    for (struct connection *c; (c = queue_pop(h->work));) {
        h->params.handle(h->params.user, &c->exchange);
        drop_body(c);
        pthread_mutex_lock(&c->lock);
        c->state = HANDLED;
        wake(c);
        pthread_mutex_unlock(&c->lock);
    }
}

static struct connection *connection_new(struct http *h, struct MHD_Connection *m, const char *method,
                                         const char *path)
{
    struct connection *c = mem_zero(sizeof *c);
    if (!c || !(c->path = mem_text(target_path(path), strlen(target_path(path))))) {
        mem_free(c);
        return NULL;
    }
    c->http = h;
    c->mhd = m;
    c->fd = MHD_get_connection_info(m, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    c->started_ns = clock_ns();
    pthread_mutex_init(&c->lock, NULL);
    const char *accept = MHD_lookup_connection_value(m, MHD_HEADER_KIND, "Accept");
    c->exchange = (struct exchange){ .method = method, .path = c->path, .connection = c, .status = 200,
                                     .type = "application/json",
                                     .speculative = MHD_lookup_connection_value(m, MHD_HEADER_KIND,
                                                                                "Luce-Speculative"),
                                     .wants_html = accept && strstr(accept, "text/html"),
                                     .has_client_version = MHD_lookup_connection_value(
                                         m, MHD_GET_ARGUMENT_KIND, "client_version") != NULL };
    pthread_mutex_lock(&h->lock);
    c->after = h->all;
    if (c->after) c->after->before = c;
    h->all = c;
    pthread_mutex_unlock(&h->lock);
    socket_busy(h, m);
    return c;
}

static enum MHD_Result refuse(struct connection *c, int status, const char *text)
{
    c->http->params.refuse(c->http->params.user, &c->exchange, status, text);
    return send_reply(c);
}

/* The head is complete: what can be refused without the body. 0: go on. */
static enum MHD_Result check_head(struct connection *c, const char *path, const char *version, bool hidden)
{
    struct http *h = c->http;
    struct exchange *x = &c->exchange;
    int status = 400;
    const char *bad = hidden ? "a NUL in the target of the request"
                             : head_check(c->mhd, x->method, path, version, &status);
    x->last = bad != NULL;
    if (bad) return refuse(c, status, bad);
    if (!strcmp(x->method, "OPTIONS")) {
        x->status = 204;
        x->type = NULL;
        return send_reply(c);
    }
    status = auth_check(&h->params, c->mhd, x->path, &x->trusted);
    if (*path != '/' && !h->params.n_keys) x->trusted = false;      /* a whole URL is what proxies are asked for */
    if (status) return refuse(c, status, "an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY");
    const char *length = MHD_lookup_connection_value(c->mhd, MHD_HEADER_KIND, "Content-Length");
    unsigned long long bytes = length ? strtoull(length, NULL, 10) : 0;
    c->refused_body = bytes > h->params.body_bytes ? 413 : 0;   /* a client that sends does not listen: let it finish */
    bool listens = MHD_lookup_connection_value(c->mhd, MHD_HEADER_KIND, "Expect") != NULL;
    if ((listens || bytes > DRAINED_BYTES) && c->refused_body)
        return refuse(c, 413, "the body is larger than the server takes");
    return MHD_YES;
}

static enum MHD_Result take_body(struct connection *c, const char *data, size_t *n)
{
    struct http *h = c->http;
    size_t bytes = c->body_seen += *n;
    if (bytes > h->params.body_bytes) c->refused_body = 413;
    else if (bytes > SMALL_BODY && atomic_load(&h->held) + *n > h->params.held_bytes) c->refused_body = 503;
    if (c->refused_body) drop_body(c);
    if (c->refused_body && bytes > DRAINED_BYTES + h->params.body_bytes) return MHD_NO;     /* it has no end */
    if (!c->refused_body) {
        size_t before = c->body.len;
        buf_add(&c->body, data, *n);
        atomic_fetch_add(&h->held, c->body.len - before);
    }
    *n = 0;
    return MHD_YES;
}

static enum MHD_Result begin_work(struct connection *c)
{
    struct http *h = c->http;
    if (c->refused_body == 413) return refuse(c, 413, "the body is larger than the server takes");
    if (c->refused_body) return refuse(c, c->refused_body, "too many large bodies at once");
    if (c->body.failed) return refuse(c, 503, "out of memory for the body");
    c->exchange.body = (struct str){ buf_text(&c->body), c->body.len };
    pthread_mutex_lock(&c->lock);
    c->state = QUEUED;
    c->woken = false;
    c->suspended = true;
    MHD_suspend_connection(c->mhd);
    pthread_mutex_unlock(&c->lock);
    atomic_fetch_add(&h->busy, 1);
    c->counted = true;
    watch_add(c);
    if (queue_try_push(h->work, c)) return MHD_YES;
    c->exchange.retry_later = true;
    h->params.refuse(h->params.user, &c->exchange, 429, "too many requests at once");
    c->state = HANDLED;
    http_wake(c);
    return MHD_YES;
}

/* The handler is done. A plain reply that is to come later: pull until it is there. */
static enum MHD_Result continue_work(struct connection *c)
{
    struct exchange *x = &c->exchange;
    pthread_mutex_lock(&c->lock);
    c->woken = false;
    pthread_mutex_unlock(&c->lock);
    if (x->later && atomic_load(&c->half_closed) && !c->interim) return MHD_NO;    /* it has most likely left */
    while (x->later && !x->source->pull(x->context, &x->reply, 0)) {
        if (atomic_load(&c->left) || atomic_load(&c->http->stopping)) return MHD_NO;
        pthread_mutex_lock(&c->lock);
        bool asleep = connection_sleep(c);
        pthread_mutex_unlock(&c->lock);
        if (asleep) return MHD_YES;
    }
    return atomic_load(&c->left) && !x->source ? MHD_NO : send_reply(c);
}

static enum MHD_Result on_access(void *user, struct MHD_Connection *m, const char *path, const char *method,
                                 const char *version, const char *data, size_t *n, void **slot)
{
    bool hidden = *slot == hidden_target;
    struct connection *c = hidden ? NULL : *slot;
    if (!c) {
        *slot = c = connection_new(user, m, method, path);
        if (!c) return MHD_NO;
        c->interim = !strcmp(version, MHD_HTTP_VERSION_1_1) && !c->http->params.cert;
        return check_head(c, path, version, hidden);
    }
    if (c->state == READING && *n) return take_body(c, data, n);
    if (c->state == READING) return begin_work(c);
    if (c->state == HANDLED) return continue_work(c);
    return c->state == QUEUED ? MHD_YES : MHD_NO;
}

static void on_completed(void *user, struct MHD_Connection *m, void **slot, enum MHD_RequestTerminationCode how)
{
    struct http *h = user;
    struct connection *c = *slot == hidden_target ? NULL : *slot;
    *slot = NULL;
    if (!c) return;
    watch_remove(c);
    socket_idle(h, m);
    struct exchange *x = &c->exchange;
    pthread_mutex_lock(&h->lock);           /* first of all: the watcher calls sources of those in the list */
    if (c->before) c->before->after = c->after;
    else h->all = c->after;
    if (c->after) c->after->before = c->before;
    pthread_mutex_unlock(&h->lock);
    if (x->source) {
        if (how != MHD_REQUEST_TERMINATED_COMPLETED_OK) x->source->left(x->context);
        x->source->close(x->context);
    }
    pthread_mutex_lock(&c->lock);           /* whoever resumed it may still hold it */
    pthread_mutex_unlock(&c->lock);
    if (c->counted) atomic_fetch_sub(&h->busy, 1);
    pthread_mutex_destroy(&c->lock);
    drop_body(c);
    buf_drop(&c->out);
    buf_drop(&x->reply);
    mem_free(c->path);
    mem_free(c);
}

/* ---- start and end -------------------------------------------------------------------------------- */
static luce_status read_pem(char **out, const char *path, luce_error *err)
{
    struct buf text = { 0 };
    if (!path) return LUCE_OK;
    luce_status st = file_read(&text, path, 1 << 20, err);
    *out = text.data;
    return st;
}

static int raise_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files)) return 256;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    return files.rlim_cur > 20000 ? 10000 : (int)files.rlim_cur / 2;
}

static void set_usual(struct http_params *p)
{
    int connections = raise_limit();
    if (!p->connections) p->connections = connections;
    if (!p->head_seconds) p->head_seconds = 60;
    if (!p->body_seconds) p->body_seconds = 120;
    if (!p->stall_seconds) p->stall_seconds = 30;
    if (!p->held_bytes) p->held_bytes = 4 * p->body_bytes;
}

static const char *listen_remedy(int why, bool tls)
{
    switch (why) {
    case EADDRINUSE: return "; give another --port (0: a free one)";
    case EACCES: return "; ports below 1024 are root's as a rule: give a higher --port";
    case EADDRNOTAVAIL: return "; --host is an address of this machine, or 0.0.0.0 for all of them";
    default: return tls ? "; --tls-cert is to be a certificate (PEM), and --tls-key its key" : "";
    }
}

static luce_status start_daemon(struct http *h, luce_error *err)
{
    const struct http_params *p = &h->params;
    char port[16];
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV }, *found = NULL;
    struct buf text = { 0 };
    buf_printf(&text, "%d", p->port);
    memcpy(port, buf_text(&text), text.len < sizeof port ? text.len + 1 : 1);
    buf_drop(&text);
    int bad = getaddrinfo(p->host, port, &hints, &found);
    if (bad) return fail(err, LUCE_E_ARG, "--host %s: %s; give an address of this machine", p->host, gai_strerror(bad));
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC;
    if (found->ai_family == AF_INET6) flags |= MHD_USE_IPv6;
    if (p->cert) flags |= MHD_USE_TLS;
    static char versions[] = "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1";          /* RFC 8996 */
    struct MHD_OptionItem tls[] = { { MHD_OPTION_HTTPS_MEM_CERT, 0, h->cert }, { MHD_OPTION_HTTPS_MEM_KEY, 0, h->key },
                                    { MHD_OPTION_HTTPS_PRIORITIES, 0, versions }, { MHD_OPTION_END, 0, NULL } };
    if (!p->cert) tls[0] = (struct MHD_OptionItem){ MHD_OPTION_END, 0, NULL };
    errno = 0;
    h->daemon = MHD_start_daemon(
        flags, (uint16_t)p->port, NULL, NULL, on_access, h, MHD_OPTION_SOCK_ADDR, found->ai_addr,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_BYTES,
        MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)4096, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)p->stall_seconds,
        MHD_OPTION_NOTIFY_CONNECTION, socket_notify, h, MHD_OPTION_CONNECTION_LIMIT, (unsigned)p->connections,
        MHD_OPTION_UNESCAPE_CALLBACK, target_unescape, NULL, MHD_OPTION_LISTEN_BACKLOG_SIZE, 1024u,
        MHD_OPTION_URI_LOG_CALLBACK, target_check, NULL,
        MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
    int why = errno;
    freeaddrinfo(found);
    if (h->daemon) return LUCE_OK;
    return fail(err, LUCE_E_IO, "cannot listen on %s port %d: %s%s", p->host, p->port,
                why ? strerror(why) : "the library refuses", listen_remedy(why, p->cert != NULL));
}

luce_status http_open(struct http **out, const struct http_params *params, luce_error *err)
{
    *out = NULL;
    struct http *h = mem_zero(sizeof *h);
    if (!h) return fail(err, LUCE_E_NOMEM, "out of memory for the server");
    h->params = *params;
    set_usual(&h->params);
    pthread_mutex_init(&h->lock, NULL);
    h->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    h->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    luce_status st = h->watch_fd < 0 || h->wake_fd < 0 ? fail(err, LUCE_E_IO, "epoll: %s", strerror(errno)) : LUCE_OK;
    if (!st) st = read_pem(&h->cert, params->cert, err);
    if (!st) st = read_pem(&h->key, params->key, err);
    if (!st) st = queue_new(&h->work, WORK_QUEUE, err);
    for (int i = 0; i < N_WORKERS && !st; i++) st = thread_start(&h->worker[i], "luce-http", run_worker, h, err);
    if (!st) st = thread_start(&h->watcher, "luce-watch", watch_run, h, err);
    if (!st) st = start_daemon(h, err);
    if (st) http_close(h);
    else *out = h;
    return st;
}

int http_port(const struct http *h)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_BIND_PORT);
    return info ? info->port : 0;
}

void http_quiesce(struct http *h)
{
    int fd = MHD_quiesce_daemon(h->daemon);
    if (fd >= 0) close(fd);
}

int http_busy(struct http *h)
{
    return atomic_load(&h->busy);
}

void http_close(struct http *h)
{
    if (!h) return;
    atomic_store(&h->stopping, true);
    if (h->work) queue_close(h->work);
    for (int i = 0; i < N_WORKERS; i++) thread_join(&h->worker[i]);
    eventfd_write(h->wake_fd, 1);
    thread_join(&h->watcher);
    pthread_mutex_lock(&h->lock);           /* the library wants no suspended connection at its end */
    for (struct connection *c = h->all; c; c = c->after) http_wake(c);
    pthread_mutex_unlock(&h->lock);
    if (h->daemon) MHD_stop_daemon(h->daemon);
    queue_free(h->work);
    if (h->watch_fd >= 0) close(h->watch_fd);
    if (h->wake_fd >= 0) close(h->wake_fd);
    pthread_mutex_destroy(&h->lock);
    mem_free(h->cert);
    mem_free(h->key);
    mem_free(h);
}
