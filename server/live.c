/* server/live.c - see live.h. The lock is held for a few copies only; of the calls under it http_wake alone takes
 * another one. */
#include "server/live.h"

#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "server/print.h"
#include "server/route.h"

enum { MESSAGES_BYTES = 4096, HISTORY = 50, SHOWN = 64, EXCERPT_TOKENS = 40,
       TOKENS_PER_EVENT = 10, BEHIND_BYTES = 256 << 10 };

struct ended {                      /* a choice that ran to its end */
    double prefill, decode, accepted;           /* tokens a second, likewise, share */
    size_t prompt, generated;
    bool cached, guessed;
};

struct watcher {                    /* a client of /status/events */
    struct watcher *next;
    struct server *server;
    struct connection *connection;
    bool trusted;
    bool due;                       /* a status event */
    struct buf out;                 /* token events */
};

struct live {
    pthread_mutex_t lock;           /* guards all but the counts */
    struct job *first, *last;       /* in the order in which they came */
    struct ended history[HISTORY];
    size_t n_ended;
    struct watcher *watchers;
    atomic_int n_watchers;
    atomic_ulong n_tokens;
};

luce_status live_new(struct live **out, luce_error *err)
{
    struct live *l = *out = mem_zero(sizeof *l);
    if (!l) return fail(err, LUCE_E_NOMEM, "out of memory for the server");
    pthread_mutex_init(&l->lock, NULL);
    return LUCE_OK;
}

void live_free(struct live *l)
{
    if (!l) return;
    pthread_mutex_destroy(&l->lock);
    mem_free(l);
}

/* The lock is held. */
static void wake_all(struct live *l)
{
    for (struct watcher *w = l->watchers; w; w = w->next) {
        w->due = true;
        http_wake(w->connection);
    }
}

/* ---- requests ------------------------------------------------------------------------------------- */
/* The longest beginning of at most `most` bytes that ends with a whole character; a broken one is replaced where it
 * is shown. */
static size_t whole_characters(const char *text, size_t n, size_t most)
{
    size_t at = 0;
    while (at < n) {
        int bytes = utf8_character(text + at, n - at);
        size_t step = (size_t)(bytes < 0 ? -bytes : bytes);
        if (at + step > most) break;
        at += step;
    }
    return at;
}

static void take_messages(struct job *j)
{
    struct buf *out = &j->live.messages, text = { 0 };
    const json_t *all = j->ask.messages;
    for (size_t i = 0; i < json_array_size(all) && text.len < MESSAGES_BYTES; i++) {
        buf_add_char(&text, i ? ',' : '[');
        tree_print(&text, json_array_get(all, i), TREE_COMPACT);
        if (i + 1 == json_array_size(all)) buf_add_char(&text, ']');
    }
    buf_add(out, buf_text(&text), whole_characters(buf_text(&text), text.len, MESSAGES_BYTES));
    buf_drop(&text);
}

static void take_excerpt(struct job *j)
{
    const struct prompt *p = &j->ask.prompts[0];
    size_t n = 0;
    char *text = NULL;
    luce_error err = { 0 };
    size_t ids = p->n < EXCERPT_TOKENS ? p->n : EXCERPT_TOKENS;
    if (luce_detokenize(j->server->model, p->ids, ids, LUCE_SPECIAL, &text, &n, &err)) return;
    j->live.n_excerpt = whole_characters(text, n, sizeof j->live.excerpt);
    memcpy(j->live.excerpt, text, j->live.n_excerpt);
    luce_free(text);
}

void live_add(struct job *j)
{
    struct live *l = j->server->live;
    take_excerpt(j);
    take_messages(j);
    j->live.began = clock_seconds();
    j->live.going = j->n_choices;
    pthread_mutex_lock(&l->lock);
    j->live.before = l->last;
    *(l->last ? &l->last->live.after : &l->first) = j;
    l->last = j;
    wake_all(l);
    pthread_mutex_unlock(&l->lock);
}

/* The lock is held. */
static void unlist(struct live *l, struct job *j)
{
    *(j->live.before ? &j->live.before->live.after : &l->first) = j->live.after;
    *(j->live.after ? &j->live.after->live.before : &l->last) = j->live.before;
    wake_all(l);
}

void live_drop(struct job *j)
{
    struct live *l = j->server->live;
    pthread_mutex_lock(&l->lock);
    unlist(l, j);
    pthread_mutex_unlock(&l->lock);
}

static double rate(double n, double seconds)
{
    return seconds > 0 ? round(n / seconds * 10) / 10 : 0;
}

void live_end(struct job *j, const luce_result *r)
{
    struct live *l = j->server->live;
    const luce_speculation *s = &r->speculation;
    pthread_mutex_lock(&l->lock);
    if (!r->status && r->finish != LUCE_FINISH_CANCELLED) {
        l->history[l->n_ended++ % HISTORY] = (struct ended){
            .prefill = rate((double)(r->n_prompt - r->n_reused), r->prompt_seconds),
            .decode = r->n_tokens ? rate((double)(r->n_tokens - 1), r->decode_seconds) : 0,
            .accepted = s->n_drafted ? round((double)s->n_accepted * 1e3 / (double)s->n_drafted) / 1e3 : 0,
            .prompt = r->n_prompt, .generated = r->n_tokens, .cached = r->n_reused > 0, .guessed = s->n_drafted > 0 };
    }
    if (--j->live.going == 0) unlist(l, j);
    pthread_mutex_unlock(&l->lock);
}

void live_token(struct job *j)
{
    struct live *l = j->server->live;
    atomic_fetch_add(&j->live.n_tokens, 1);
    if ((atomic_fetch_add(&l->n_tokens, 1) + 1) % TOKENS_PER_EVENT || !atomic_load(&l->n_watchers)) return;
    pthread_mutex_lock(&l->lock);
    wake_all(l);
    pthread_mutex_unlock(&l->lock);
}

void live_text(struct job *j, struct str text)
{
    struct live *l = j->server->live;
    if (!atomic_load(&l->n_watchers)) return;
    struct json o;
    struct buf event = { 0 };
    event_begin(&o, &event, "token");
    put_text(&o, "id", j->id);
    put_str(&o, "text", text);
    event_end(&o);
    pthread_mutex_lock(&l->lock);
    for (struct watcher *w = l->watchers; w; w = w->next) {
        if (!w->trusted || event.failed || w->out.len > BEHIND_BYTES) continue;
        buf_add(&w->out, event.data, event.len);
        http_wake(w->connection);
    }
    pthread_mutex_unlock(&l->lock);
    buf_drop(&event);
}

/* ---- what is told --------------------------------------------------------------------------------- */
/* Members of the open object. */
static void put_request(struct json *o, const struct job *j, bool trusted)
{
    const struct ask *a = &j->ask;
    const struct live_job *v = &j->live;
    const char *session = field_text(a->body, "session_id");
    int64_t prompt = 0;
    for (int i = 0; i < a->n_prompts; i++) prompt += (int64_t)a->prompts[i].n;
    if (!session) session = field_text(json_object_get(a->body, "extra_body"), "session_id");
    put_text(o, "id", j->id);
    if (trusted) put_str(o, "prompt_excerpt", (struct str){ v->excerpt, v->n_excerpt });
    else put_text(o, "prompt_excerpt", NULL);
    put_int(o, "prompt_tokens", prompt);
    put_int(o, "completion_tokens", atomic_load(&v->n_tokens));
    put_bool(o, "stream", a->stream);
    put_number(o, "elapsed_s", round((clock_seconds() - v->began) * 1e3) / 1e3);
    put_text(o, "model", j->server->params->name);
    put_text(o, "format", j->wire->name);
    put_int(o, "max_output", v->max_output);
    put_number(o, "temperature", round(a->sampling.temperature * 1e6) / 1e6);
    put_number(o, "top_p", a->sampling.top_p > 0 ? round(a->sampling.top_p * 1e6) / 1e6 : 1);
    put_int(o, "top_k", a->sampling.top_k);
    put_bool(o, "thinking_enabled", a->thinks);
    put_text(o, "session_id", trusted ? session : NULL);
    put_bool(o, "cache_hit", atomic_load(&v->cached));
    put_bool(o, "pflash", false);
    put_bool(o, "spec_decode", j->server->info.speculates && a->draft >= 0);
}

static void put_current(struct json *o, const struct job *j, bool trusted)
{
    const struct buf *messages = &j->live.messages;
    json_open_object(o);
    put_request(o, j, trusted);
    if (trusted && messages->len) put_str(o, "messages", str_in(messages));
    else put_text(o, "messages", NULL);
    json_close(o);
}

static void put_history(struct json *o, const struct live *l)
{
    size_t n = l->n_ended < HISTORY ? l->n_ended : HISTORY;
    json_key(o, "perf_history");
    json_open_array(o);
    for (size_t i = l->n_ended - n; i < l->n_ended; i++) {
        const struct ended *e = &l->history[i % HISTORY];
        json_open_object(o);
        put_number(o, "prefill_tok_s", e->prefill);
        put_number(o, "decode_tok_s", e->decode);
        put_number(o, "accept_rate", e->accepted);
        put_int(o, "prompt_tokens", (int64_t)e->prompt);
        put_int(o, "completion_tokens", (int64_t)e->generated);
        put_bool(o, "cache_hit", e->cached);
        put_bool(o, "pflash", false);
        put_bool(o, "spec_decode", e->guessed);
        json_close(o);
    }
    json_close(o);
}

void live_put(struct server *s, struct json *o, bool trusted)
{
    struct live *l = s->live;
    int n = 0;
    pthread_mutex_lock(&l->lock);
    put_text(o, "phase", !l->first ? "idle" : atomic_load(&l->first->live.n_tokens) ? "decode" : "prefill");
    json_key(o, "current");
    if (l->first) put_current(o, l->first, trusted);
    else json_put_null(o);
    json_key(o, "requests");
    json_open_array(o);
    for (const struct job *j = l->first; j && n < SHOWN; j = j->live.after, n++) {
        json_open_object(o);
        put_request(o, j, trusted);
        json_close(o);
    }
    json_close(o);
    put_history(o, l);
    pthread_mutex_unlock(&l->lock);
}

/* ---- those that watch ----------------------------------------------------------------------------- */
static bool pull(void *context, struct buf *out, int silent_ms)
{
    struct watcher *w = context;
    struct server *s = w->server;
    if (atomic_load(&s->draining)) return true;
    pthread_mutex_lock(&s->live->lock);
    struct buf tokens = w->out;
    bool due = w->due;
    w->out = (struct buf){ 0 };
    w->due = false;
    pthread_mutex_unlock(&s->live->lock);
    buf_add(out, buf_text(&tokens), tokens.len);
    buf_drop(&tokens);
    if (!due && silent_ms < s->http_params.keep_alive_ms) return false;
    buf_add_text(out, "event: status\ndata: ");
    status_print(s, out, w->trusted);
    buf_add_text(out, "\n\n");
    return false;
}

static void ignore(void *context)
{
    (void)context;
}

static void close_watcher(void *context)
{
    struct watcher *w = context;
    struct live *l = w->server->live;
    pthread_mutex_lock(&l->lock);
    struct watcher **at = &l->watchers;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    atomic_fetch_sub(&l->n_watchers, 1);
    pthread_mutex_unlock(&l->lock);
    buf_drop(&w->out);
    mem_free(w);
}

bool live_watch(struct server *s, struct exchange *x, struct refusal *why)
{
    static const struct source source = { pull, ignore, close_watcher };
    struct watcher *w = mem_zero(sizeof *w);
    if (!w) return refuse(why, 503, NULL, NULL, "out of memory for the events");
    *w = (struct watcher){ .server = s, .connection = x->connection, .trusted = x->trusted, .due = true };
    pthread_mutex_lock(&s->live->lock);
    w->next = s->live->watchers;
    s->live->watchers = w;
    atomic_fetch_add(&s->live->n_watchers, 1);
    pthread_mutex_unlock(&s->live->lock);
    x->type = "text/event-stream";
    x->source = &source;
    x->context = w;
    return true;
}
