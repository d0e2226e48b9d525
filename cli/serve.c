/* cli/serve.c - luce serve: the model behind HTTP, until a signal comes. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/generate.h"
#include "cli/terminal.h"

#ifndef LUCE_HAVE_SERVER
luce_status serve_run(const struct options *o, luce_error *err)
{
    (void)o;
    return fail(err, LUCE_E_UNSUPPORTED, "this build has no server: install libmicrohttpd and jansson with their "
                "headers, then build again");
}
#else
#include "chat/chat.h"
#include "server/server.h"

static bool is_loopback(const char *host)
{
    return !strncmp(host, "127.", 4) || !strcmp(host, "localhost") || !strcmp(host, "::1");
}

static enum chat_thinking thinking_of(const char *word)
{
    return !strcmp(word, "on") ? THINKING_ON : !strcmp(word, "off") ? THINKING_OFF : THINKING_DEFAULT;
}

static luce_prefix_reuse reuse_of(const struct options *o)
{
    const char *word = o->prefix_cache_slots ? o->prefix_reuse : "off";
    return !strcmp(word, "off") ? LUCE_REUSE_OFF : !strcmp(word, "fast") ? LUCE_REUSE_FAST : LUCE_REUSE_EXACT;
}

static struct server_params params_of(const struct options *o)
{
    return (struct server_params){
        .name = o->model_name, .path = o->model, .draft_path = o->draft, .template_file = o->chat_template_file,
        .engine = { .queue = (int)o->queue, .gather_ms = (int)o->admission_coalesce_ms },
        .max_tokens = o->default_max_tokens, .think_max = o->think_max_tokens,
        .reply_budget = o->hard_limit_reply_budget, .thinking = thinking_of(o->thinking),
        .effort = { o->effort[0], o->effort[1], o->effort[2], o->effort[3], o->effort[4] },
        .pooling = strcmp(o->pooling, "last") ? LUCE_POOL_MEAN : LUCE_POOL_LAST,
        .temperature = o->temperature, .top_p = o->top_p, .top_k = o->top_k,
        .stream_usage = !strcmp(o->stream_usage, "always"),
        .http = { .host = o->host, .port = (int)o->port, .cert = o->tls_cert, .key = o->tls_key, .cors = !o->no_cors,
                  .keys = o->api_key.at, .n_keys = o->api_key.n, .body_bytes = (size_t)o->max_body_mib << 20,
                  .keep_alive_ms = (int)o->keep_alive * 1000 } };
}

static luce_status check(const struct options *o, luce_error *err)
{
    if (!o->model) return fail(err, LUCE_E_ARG, "no model: give -m FILE");
    if (!o->paged_attention) return fail(err, LUCE_E_ARG, "--paged-attention=no: the cache is always in pages");
    if (!o->agent_turn_cache)
        return fail(err, LUCE_E_ARG, "--agent-turn-cache=no: answers stay in the cache; --prefix-reuse off forgets "
                    "them");
    if (!strcmp(o->draft_residency, "request-scoped"))
        return fail(err, LUCE_E_ARG, "--draft-residency request-scoped: a drafter stays loaded as long as its model");
    if (!o->tls_cert != !o->tls_key) return fail(err, LUCE_E_ARG, "--tls-cert and --tls-key belong together");
    for (int i = 0; i < o->api_key.n; i++)
        if (!*o->api_key.at[i]) return fail(err, LUCE_E_ARG, "--api-key: it is empty");
    return LUCE_OK;
}

static luce_status serve_until_signal(struct server *s, const struct options *o, luce_error *err)
{
    bool v6 = strchr(o->host, ':') != NULL;
    fprintf(stderr, "luce: '%s' at %s://%s%s%s:%d\n", o->model_name, o->tls_cert ? "https" : "http", v6 ? "[" : "",
        o->host,
            v6 ? "]" : "", server_port(s));
    if (!is_loopback(o->host) && o->api_key.n == 0)
        fprintf(stderr, "luce: warning: %s is open to the network and no --api-key is set: anyone who reaches it "
                "can use it\n", o->host);
    while (!interrupted(NULL)) {
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
        if (server_is_lost(s)) return fail(err, LUCE_E_DEVICE, "the device failed; start the server again");
    }
    return LUCE_OK;
}

static luce_status serve_model(const struct options *o, luce_error *err)
{
    struct server *s = NULL;
    luce_model *m = NULL;
    luce_model_params p = model_params(o);
    p.sequences = (int)o->max_concurrency;
    p.text = true;
    p.cache_positions = o->kv_pool_tokens;
    p.prefix_reuse = reuse_of(o);
    p.prefix_cache_bytes = o->prefix_cache_mib << 20;
    struct server_params params = params_of(o);
    interrupt_catch();                  /* the first signal drains; the second one has its usual effect */
    luce_status st = model_load(&m, p, err);
    if (st) return st;
    st = server_open(&s, m, &params, err);
    if (!st) st = serve_until_signal(s, o, err);
    server_close(s);
    return st;
}

luce_status serve_run(const struct options *o, luce_error *err)
{
    struct options mine = *o;
    struct buf found = { 0 };
    if (o->list_devices) return devices_run(o, err);
    luce_status st = check(o, err);
    if (!st) st = draft_find(&mine.draft, &found, err);
    if (!st) st = serve_model(&mine, err);
    buf_drop(&found);
    return st;
}
#endif
