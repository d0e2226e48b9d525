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
#include "server/server.h"

static bool is_loopback(const char *host)
{
    return !strncmp(host, "127.", 4) || !strcmp(host, "localhost") || !strcmp(host, "::1");
}

static struct server_params params_of(const struct options *o, const char *path)
{
    return (struct server_params){
        .name = o->model_name, .path = path, .draft_path = o->draft, .template_file = o->chat_template_file, .queue = (int)o->queue,
            .max_tokens = o->default_max_tokens,
        .temperature = o->temperature, .top_p = o->top_p, .top_k = o->top_k, .stream_usage = o->stream_usage,
        .http = { .host = o->host, .port = (int)o->port, .cert = o->tls_cert, .key = o->tls_key, .cors = !o->no_cors,
                  .keys = o->api_key.at, .n_keys = o->api_key.n, .body_bytes = (size_t)o->max_body_mib << 20,
                  .keep_alive_ms = (int)o->keep_alive * 1000 } };
}

static luce_status check(const struct options *o, const char *path, luce_error *err)
{
    if (!path) return fail(err, LUCE_E_ARG, "no model; usage: luce serve [options] MODEL");
    if (o->model && o->n_operands) return fail(err, LUCE_E_ARG, "two models: --model %s and %s", o->model,
        o->operands[0]);
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

luce_status serve_run(const struct options *o, luce_error *err)
{
    struct server *s = NULL;
    luce_model *m = NULL;
    struct options mine = *o;
    if (!mine.model && o->n_operands) mine.model = o->operands[0];
    luce_status st = check(o, mine.model, err);
    if (st) return st;
    luce_model_params p = model_params(&mine);
    p.sequences = (int)o->max_concurrency;
    p.text = true;
    struct server_params params = params_of(o, mine.model);
    interrupt_catch();                  /* the first signal drains; the second one has its usual effect */
    if ((st = model_load(&m, p, err))) return st;
    st = server_open(&s, m, &params, err);
    if (!st) st = serve_until_signal(s, o, err);
    server_close(s);
    return st;
}
#endif
