/* server/admin.c - what the server says about itself, and the small tools: models, props, status, metrics,
 * tokenize, detokenize, apply-template. */
#include <time.h>

#include "base/mem.h"
#include "server/budget.h"
#include "server/live.h"
#include "server/route.h"

bool health_get(struct server *s, struct exchange *x, struct refusal *why)
{
    (void)why;
    bool good = !server_is_lost(s) && !atomic_load(&s->draining);
    x->status = good ? 200 : 503;
    buf_add_text(&x->reply, good ? "{\"status\":\"ok\"}" : server_is_lost(s) ? "{\"status\":\"device lost\"}"
                                                                              : "{\"status\":\"shutting down\"}");
    return true;
}

static void put_model(struct json *j, const struct server *s)
{
    json_open_object(j);
    put_text(j, "id", s->params->name);
    put_text(j, "object", "model");
    put_text(j, "owned_by", "luce");
    put_int(j, "created", s->started);
    put_int(j, "context_length", s->info.context);
    put_int(j, "max_context_length", s->info.trained_context);
    json_close(j);
}

/* The form that Codex asks for. */
static void put_codex_model(struct json *j, const struct server *s)
{
    static const char *const efforts[] = { "low", "medium", "high", "x-high", "max" };
    json_open_object(j);
    put_text(j, "slug", s->params->name);
    put_text(j, "display_name", s->params->name);
    put_text(j, "description", s->info.architecture);
    put_text(j, "default_reasoning_level", "low");
    json_key(j, "supported_reasoning_levels");
    json_open_array(j);
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++) {
        json_open_object(j);
        put_text(j, "effort", efforts[i]);
        put_text(j, "description", efforts[i]);
        json_close(j);
    }
    json_close(j);
    put_text(j, "shell_type", "shell_command");
    put_text(j, "visibility", "list");
    put_bool(j, "supported_in_api", true);
    put_int(j, "priority", 1);
    put_int(j, "context_window", s->info.context);
    put_bool(j, "supports_reasoning_summaries", false);
    put_bool(j, "supports_parallel_tool_calls", false);
    json_close(j);
}

bool models_get(struct server *s, struct exchange *x, struct refusal *why)
{
    struct json j;
    (void)why;
    json_begin(&j, &x->reply);
    json_open_object(&j);
    if (!x->has_client_version) put_text(&j, "object", "list");
    json_key(&j, x->has_client_version ? "models" : "data");
    json_open_array(&j);
    if (x->has_client_version) put_codex_model(&j, s);
    else put_model(&j, s);
    json_close(&j);
    json_close(&j);
    return true;
}

bool model_get(struct server *s, struct exchange *x, struct refusal *why)
{
    struct json j;
    const char *id = x->path + strlen("/v1/models/");
    if (strcmp(id, s->params->name))
        return refuse(why, 404, "model_not_found", "model", "no model '%.100s'; this server has '%s'", id,
            s->params->name);
    json_begin(&j, &x->reply);
    put_model(&j, s);
    return true;
}

static void put_endpoints(struct json *j)
{
    json_key(j, "api");
    json_open_object(j);
    json_key(j, "endpoints");
    json_open_array(j);
    for (size_t i = 0; route_at(i); i++) {
        json_open_object(j);
        put_text(j, "method", route_at(i)->method);
        put_text(j, "path", route_at(i)->path);
        put_text(j, "doc", route_at(i)->doc);
        json_close(j);
    }
    json_close(j);
    json_close(j);
}

static void put_settings(struct json *j, const struct server *s)
{
    json_key(j, "default_generation_settings");
    json_open_object(j);
    put_int(j, "n_ctx", s->info.context);
    put_int(j, "max_tokens", s->params->max_tokens);
    put_number(j, "temperature", s->params->temperature);
    put_number(j, "top_p", s->params->top_p);
    put_int(j, "top_k", s->params->top_k);
    put_number(j, "min_p", 0);
    put_number(j, "repeat_penalty", 1);
    json_close(j);
    json_key(j, "capabilities");
    json_open_object(j);
    put_bool(j, "reasoning_supported", s->chat && chat_knows_reasoning(s->chat));
    put_bool(j, "speculative_supported", s->info.speculates);
    put_bool(j, "tools_supported", s->chat && chat_shows_tools(s->chat));
    put_bool(j, "image_input_supported", false);
    json_close(j);
    json_key(j, "server");
    json_open_object(j);
    put_text(j, "name", "luce");
    put_text(j, "version", LUCE_VERSION);
    put_int(j, "props_schema", 2);
    json_close(j);
}

bool props_get(struct server *s, struct exchange *x, struct refusal *why)
{
    struct json j;
    const luce_model_info *m = &s->info;
    luce_engine_stats n = luce_engine_count(s->engine);
    (void)why;
    json_begin(&j, &x->reply);
    json_open_object(&j);
    put_endpoints(&j);
    put_settings(&j, s);
    put_envelope(&j, s);
    json_key(&j, "model");
    json_open_object(&j);
    put_text(&j, "arch", m->architecture);
    put_text(&j, "draft_path", x->trusted ? s->params->draft_path : NULL);
    put_int(&j, "context", m->context);
    put_int(&j, "trained_context", m->trained_context);
    put_int(&j, "vocabulary", m->vocabulary);
    json_close(&j);
    put_text(&j, "model_alias", s->params->name);
    put_text(&j, "model_path", x->trusted ? s->params->path : NULL);
    if (m->chat_template) put_str(&j, "chat_template", (struct str){ m->chat_template, m->chat_template_bytes });
    else put_text(&j, "chat_template", NULL);
    json_key(&j, "runtime");
    json_open_object(&j);
    put_text(&j, "target_device", m->device);
    put_text(&j, "device_name", m->device_name);
    put_int(&j, "weight_bytes", (int64_t)m->weight_bytes);
    put_int(&j, "cache_bytes", (int64_t)m->cache_bytes);
    put_int(&j, "scratch_bytes", (int64_t)m->scratch_bytes);
    json_close(&j);
    put_text(&j, "speculative_mode", m->speculates ? m->drafter : "off");
    json_key(&j, "speculative");
    json_open_object(&j);
    put_bool(&j, "enabled", m->speculates);
    put_text(&j, "drafter", m->drafter);
    json_close(&j);
    put_int(&j, "waiting", n.waiting);
    put_int(&j, "queue_limit", n.queue);
    put_int(&j, "sequences", n.sequences);
    json_close(&j);
    return true;
}

void status_print(struct server *s, struct buf *out, bool trusted)
{
    struct json j;
    luce_engine_stats n = luce_engine_count(s->engine);
    json_begin(&j, out);
    json_open_object(&j);
    put_text(&j, "model", s->params->name);
    put_int(&j, "running", n.running);
    put_int(&j, "waiting", n.waiting);
    put_int(&j, "capacity", n.sequences);
    put_int(&j, "queue_limit", n.queue);
    put_int(&j, "pages", n.pages);
    put_int(&j, "free_pages", n.free_pages);
    put_int(&j, "kept_pages", n.kept_pages);
    put_int(&j, "kept_states", n.kept_states);
    put_int(&j, "evicted", (int64_t)n.evicted);
    put_int(&j, "prefix_hits", (int64_t)n.prefix_hits);
    put_int(&j, "cached_tokens", (int64_t)n.reused_tokens);
    put_int(&j, "total_requests", (int64_t)atomic_load(&s->metrics.requests));
    put_int(&j, "prompt_tokens", (int64_t)n.prompt_tokens);
    put_int(&j, "generated_tokens", (int64_t)n.generated_tokens);
    put_int(&j, "steps", (int64_t)n.steps);
    put_int(&j, "uptime_s", time(NULL) - s->started);
    live_put(s, &j, trusted);
    json_close(&j);
}

bool status_get(struct server *s, struct exchange *x, struct refusal *why)
{
    (void)why;
    status_print(s, &x->reply, x->trusted);
    return true;
}

bool metrics_get(struct server *s, struct exchange *x, struct refusal *why)
{
    luce_engine_stats n = luce_engine_count(s->engine);
    const struct { const char *name, *type, *help; unsigned long long value; } rows[] = {
        { "luce_http_requests_total", "counter", "requests to all routes", atomic_load(&s->metrics.requests) },
        { "luce_http_refused_total", "counter", "requests answered with an error", atomic_load(&s->metrics.refused) },
        { "luce_http_streams_total", "counter", "streamed replies", atomic_load(&s->metrics.streams) },
        { "luce_http_dropped_total", "counter", "clients that left before the end", atomic_load(&s->metrics.dropped) },
        { "luce_requests_finished_total", "counter", "requests that ran to their end", n.finished },
        { "luce_requests_failed_total", "counter", "requests that failed in the engine", n.failed },
        { "luce_requests_cancelled_total", "counter", "requests that were cancelled", n.cancelled },
        { "luce_prompt_tokens_total", "counter", "tokens of prompts", n.prompt_tokens },
        { "luce_prompt_tokens_computed_total", "counter", "tokens of prompts that were computed", n.prompt_rows },
        { "luce_prompt_tokens_cached_total", "counter", "tokens of prompts that the cache had", n.reused_tokens },
        { "luce_prefix_hits_total", "counter", "requests that began with what the cache had", n.prefix_hits },
        { "luce_evicted_total", "counter", "pages and states of ended texts that gave way to others", n.evicted },
        { "luce_generated_tokens_total", "counter", "tokens that were generated", n.generated_tokens },
        { "luce_drafted_tokens_total", "counter", "tokens that were guessed", n.drafted_tokens },
        { "luce_accepted_tokens_total", "counter", "guessed tokens that were right", n.accepted_tokens },
        { "luce_steps_total", "counter", "steps of the engine", n.steps },
        { "luce_running", "gauge", "requests with a sequence", (unsigned long long)n.running },
        { "luce_waiting", "gauge", "requests in the queue", (unsigned long long)n.waiting },
        { "luce_sequences", "gauge", "requests that can run at once", (unsigned long long)n.sequences },
        { "luce_pages", "gauge", "pages of the cache", (unsigned long long)n.pages },
        { "luce_free_pages", "gauge", "pages that no sequence holds", (unsigned long long)n.free_pages },
        { "luce_kept_pages", "gauge", "pages of all kinds that hold ended texts", (unsigned long long)n.kept_pages },
        { "luce_kept_states", "gauge", "recurrent states of ended texts", (unsigned long long)n.kept_states },
        { "luce_device_lost", "gauge", "1 after the device failed", n.lost },
    };
    (void)why;
    x->type = "text/plain; version=0.0.4";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        buf_printf(&x->reply, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", rows[i].name, rows[i].help, rows[i].name,
                   rows[i].type, rows[i].name, rows[i].value);
    buf_printf(&x->reply, "# HELP luce_cache_usage_ratio share of the cache's pages that sequences hold\n"
               "# TYPE luce_cache_usage_ratio gauge\nluce_cache_usage_ratio %.6f\n",
               n.pages ? (double)(n.pages - n.free_pages) / n.pages : 0);
    histograms_print(s->metrics.histogram, &x->reply);
    return true;
}

static void put_ids(struct json *j, const char *key, const struct prompt *p)
{
    json_key(j, key);
    json_open_array(j);
    for (size_t i = 0; i < p->n; i++) json_int(j, p->ids[i]);
    json_close(j);
}

bool tokenize_post(struct server *s, struct exchange *x, struct refusal *why)
{
    struct ask a = { .body = ask_read_body(x->body, why) };
    bool bos = false, special = false;
    const json_t *content = json_object_get(a.body, "content");
    bool good = a.body && field_bool(a.body, "add_special", &bos, why) && field_bool(a.body, "parse_special", &special,
        why);
    if (good && !tree_is_text(content)) good = refuse(why, 400, NULL, "content", "content: expected a string");
    if (good) {
        luce_text text = { .at = json_string_value(content), .bytes = json_string_length(content),
                           .flags = (bos ? LUCE_BOS : 0u) | (special ? LUCE_SPECIAL : 0u) };
        good = add_prompt(s, &a, &text, why);
    }
    if (good) {
        struct json j;
        json_begin(&j, &x->reply);
        json_open_object(&j);
        put_ids(&j, "tokens", &a.prompts[0]);
        put_int(&j, "count", (int64_t)a.prompts[0].n);
        json_close(&j);
    }
    ask_drop(&a);
    return good;
}

bool detokenize_post(struct server *s, struct exchange *x, struct refusal *why)
{
    struct ask a = { .body = ask_read_body(x->body, why) };
    json_t *tokens = json_object_get(a.body, "tokens");
    bool good = a.body != NULL;
    if (good && !json_is_array(tokens)) good = refuse(why, 400, NULL, "tokens", "tokens: expected a list of ids");
    size_t n = json_array_size(tokens);
    int32_t *ids = good && n ? mem_array(n, sizeof *ids) : NULL;
    for (size_t i = 0; good && i < n; i++) {
        json_int_t id = json_integer_value(json_array_get(tokens, i));
        good = ids && json_is_integer(json_array_get(tokens, i)) && id >= 0 && id <= INT32_MAX;
        if (good) ids[i] = (int32_t)id;
        else refuse(why, 400, NULL, "tokens", "tokens: element %zu is not a token id", i);
    }
    char *text = NULL;
    size_t bytes = 0;
    luce_error err = { 0 };
    luce_status st = good ? luce_detokenize(s->model, ids, n, LUCE_SPECIAL, &text, &bytes, &err) : LUCE_OK;
    if (st) good = refuse_status(why, st, err.text);
    if (good) {
        struct json j;
        json_begin(&j, &x->reply);
        json_open_object(&j);
        put_str(&j, "content", (struct str){ text, bytes });
        json_close(&j);
    }
    luce_free(text);
    mem_free(ids);
    ask_drop(&a);
    return good;
}

bool template_post(struct server *s, struct exchange *x, struct refusal *why)
{
    struct ask a = { .body = ask_read_body(x->body, why) };
    char *text = NULL;
    size_t n = 0;
    luce_error err = { 0 };
    bool good = a.body && chat_parse(s, &a, why);
    luce_status st = good ? luce_detokenize(s->model, a.prompts[0].ids, a.prompts[0].n, LUCE_SPECIAL, &text, &n, &err)
                          : LUCE_OK;
    if (st) good = refuse_status(why, st, err.text);
    if (good) {
        struct json j;
        ask_notes(&a, x->note, sizeof x->note);
        json_begin(&j, &x->reply);
        json_open_object(&j);
        put_str(&j, "prompt", (struct str){ text, n });
        put_ids(&j, "tokens", &a.prompts[0]);
        json_close(&j);
    }
    luce_free(text);
    ask_drop(&a);
    return good;
}
