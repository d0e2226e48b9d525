/* server/route.c - see route.h. */
#include "server/route.h"

#include <stdio.h>

#include "server/live.h"
#include "server/print.h"

static bool start(struct server *s, struct exchange *x, const struct wire *d,
                  bool (*parse)(struct server *, struct ask *, struct refusal *), struct refusal *why)
{
    struct ask ask = { .body = ask_read_body(x->body, why), .draft_header = x->speculative };
    bool good = ask.body && parse(s, &ask, why) && job_start(s, x, d, &ask, why);
    ask_drop(&ask);
    return good;
}

static bool chat_post(struct server *s, struct exchange *x, struct refusal *why)
{
    return start(s, x, &wire_chat, chat_parse, why);
}

static bool completions_post(struct server *s, struct exchange *x, struct refusal *why)
{
    return start(s, x, &wire_completions, completions_parse, why);
}

static bool messages_post(struct server *s, struct exchange *x, struct refusal *why)
{
    return start(s, x, &wire_messages, messages_parse, why);
}

static bool responses_post(struct server *s, struct exchange *x, struct refusal *why)
{
    return start(s, x, &wire_responses, responses_parse, why);
}

static const struct route routes[] = {
    { "GET", "/health", NULL, health_get, "200 once requests can be answered" },
    { "GET", "/", NULL, page_get, "the status page, or its JSON" },
    { "GET", "/v1/models", NULL, models_get, "the models that are served" },
    { "GET", "/v1/models/", NULL, model_get, "one of them" },
    { "POST", "/v1/chat/completions", &wire_chat, chat_post, "OpenAI chat completions" },
    { "POST", "/v1/completions", &wire_completions, completions_post, "OpenAI completions of raw prompts" },
    { "POST", "/v1/responses", &wire_responses, responses_post, "OpenAI responses" },
    { "GET", "/v1/responses/", &wire_responses, response_get, "a response that is kept" },
    { "POST", "/v1/messages", &wire_messages, messages_post, "Anthropic messages" },
    { "POST", "/v1/messages/count_tokens", &wire_messages, count_post, "tokens of a message's prompt" },
    { "POST", "/v1/embeddings", NULL, embeddings_post, "vectors for texts" },
    { "POST", "/tokenize", NULL, tokenize_post, "ids of a text" },
    { "POST", "/detokenize", NULL, detokenize_post, "text of ids" },
    { "POST", "/apply-template", NULL, template_post, "the prompt that messages give" },
    { "GET", "/props", NULL, props_get, "what the server can and how it was set up" },
    { "GET", "/metrics", NULL, metrics_get, "counters for Prometheus" },
    { "GET", "/status", NULL, page_get, "the status page" },
    { "GET", "/status/json", NULL, status_get, "what is going on" },
    { "GET", "/status/events", NULL, live_watch, "the same as a stream of events" },
};

const struct route *route_at(size_t i)
{
    return i < sizeof routes / sizeof *routes ? &routes[i] : NULL;
}

static bool fits(const struct route *r, const char *path)
{
    size_t n = strlen(r->path);
    if (n > 1 && r->path[n - 1] == '/') return !strncmp(path, r->path, n) && path[n];
    return !strcmp(path, r->path);
}

static const struct route *find(const char *method, const char *path)
{
    if (!strcmp(method, "HEAD")) method = "GET";
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (fits(&routes[i], path) && !strcmp(routes[i].method, method)) return &routes[i];
    return NULL;
}

/* The route that somebody means who gave a wrong base address: the path ends like it, but for its /v1. Or NULL. */
static const struct route *meant(const char *path)
{
    const struct route *best = NULL;
    size_t len = strlen(path);
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (strncmp(routes[i].path, "/v1/", 4) || routes[i].path[strlen(routes[i].path) - 1] == '/') continue;
        const char *end = routes[i].path + 3;
        size_t n = strlen(end);
        if (n <= len && !strcmp(path + len - n, end) && (!best || n > strlen(best->path) - 3)) best = &routes[i];
    }
    return best;
}

/* What the path takes, or 404. */
static bool refuse_method(struct exchange *x, struct refusal *why)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!fits(&routes[i], x->path)) continue;
        bool get = !strcmp(routes[i].method, "GET");
        snprintf(x->allow, sizeof x->allow, "%s%s", routes[i].method, get ? ", HEAD" : "");
        return refuse(why, 405, "method_not_allowed", NULL, "%.20s is not a method of this path; it takes %s",
                      x->method, x->allow);
    }
    const struct route *r = meant(x->path);
    if (!r) return refuse(why, 404, NULL, NULL, "unknown endpoint; GET /props lists them");
    return refuse(why, 404, NULL, NULL, "unknown endpoint; did you mean %s?", r->path);
}

/* The dialect of errors under a path, whatever the method. */
static const struct wire *wire_of(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (fits(&routes[i], path) && routes[i].wire) return routes[i].wire;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {       /* what lies under one of them */
        size_t n = strlen(routes[i].path);
        if (routes[i].wire && !strncmp(path, routes[i].path, n) && path[n] == '/') return routes[i].wire;
    }
    return &wire_chat;
}

static void answer_refusal(struct server *s, struct exchange *x, const struct refusal *why)
{
    x->status = why->status ? why->status : 500;
    x->type = "application/json";
    x->source = NULL;
    if (x->status == 429 || x->status == 503) x->retry_later = true;
    buf_clear(&x->reply);
    wire_of(x->path)->error(why, &x->reply);
    atomic_fetch_add(&s->metrics.refused, 1);
}

void route_refuse(void *server, struct exchange *x, int status, const char *text)
{
    struct refusal why;
    refuse(&why, status, status == 401 ? "invalid_api_key" : status == 413 ? "request_too_large" : NULL, NULL, "%s",
        text);
    answer_refusal(server, x, &why);
}

void route_handle(void *server, struct exchange *x)
{
    struct server *s = server;
    struct refusal why = { 0 };
    const struct route *r = find(x->method, x->path);
    atomic_fetch_add(&s->metrics.requests, 1);
    if (!r) refuse_method(x, &why);
    else if (atomic_load(&s->draining) && r->wire) refuse(&why, 503, "shutting_down", NULL,
        "the server is shutting down");
    else if (r->handle(s, x, &why)) return;
    answer_refusal(s, x, &why);
}
