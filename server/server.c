/* server/server.c - see server.h. */
#define _GNU_SOURCE
#include "server/server.h"

#include <jansson.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "chat/chat.h"
#include "chat/values.h"
#include "engine/inside.h"
#include "server/budget.h"
#include "server/live.h"
#include "server/route.h"
#include "server/store.h"

enum { DRAIN_MS = 3000, GOODBYE_MS = 700 };

static luce_status open_chat(struct server *s, luce_error *err)
{
    struct chat_source source = { .gguf = s->model->file, .file = s->params->template_file, .vocab = s->model->vocab };
    if (!s->info.has_text) return fail(err, LUCE_E_UNSUPPORTED, NO_VOCABULARY, s->params->path);
    luce_status st = chat_template_open(&s->chat, &source, err);
    if (st) return st;
    s->dialect = chat_dialect(s->chat);
    return vocab_guard_new(&s->guard, s->model->vocab, chat_template_text(s->chat), err);
}

luce_status server_open(struct server **out, luce_model *m, const struct server_params *params, luce_error *err)
{
    *out = NULL;
    values_use_counted_memory();
    struct server *s = mem_zero(sizeof *s);
    if (!s) {
        luce_model_close(m);
        return fail(err, LUCE_E_NOMEM, "out of memory for the server");
    }
    s->params = params;
    s->http_params = params->http;
    s->http_params.handle = route_handle;
    s->http_params.refuse = route_refuse;
    s->http_params.user = s;
    s->model = m;
    s->info = luce_model_describe(m);
    s->started = time(NULL);
    luce_status st = luce_engine_open(&s->engine, m, &params->engine, err);
    if (!st) st = open_chat(s, err);
    if (!st) st = budget_open(s, err);
    if (!st) st = store_new(&s->store, err);
    if (!st) st = live_new(&s->live, err);
    if (!st) st = http_open(&s->http, &s->http_params, err);
    if (st) server_close(s);
    else *out = s;
    return st;
}

int server_port(const struct server *s)
{
    return http_port(s->http);
}

bool server_is_lost(struct server *s)
{
    return luce_engine_count(s->engine).lost;
}

static void wait_for_jobs(struct server *s, int ms)
{
    uint64_t end = clock_ns() + (uint64_t)ms * 1000000;
    while (clock_ns() < end && http_busy(s->http) > 0) nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
}

void server_close(struct server *s)
{
    if (!s) return;
    atomic_store(&s->draining, true);
    if (s->http) {
        http_quiesce(s->http);
        wait_for_jobs(s, DRAIN_MS);
        luce_engine_stop(s->engine);
        wait_for_jobs(s, GOODBYE_MS);
        http_close(s->http);
    }
    budget_close(s);
    vocab_guard_free(s->guard);
    chat_template_close(s->chat);
    luce_engine_close(s->engine);
    store_free(s->store);
    live_free(s->live);
    mem_free(s);
}
