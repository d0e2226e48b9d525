/* cli/bench_print.c - the results of luce bench, for people and as JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/bench.h"

#ifndef LUCE_COMMIT
#define LUCE_COMMIT "unknown"
#endif

double bench_tokens_per_s(const struct bench_result *r)
{
    return r->seconds > 0 ? r->width / r->seconds : 0;
}

static const char *model_name(const struct bench *b)
{
    if (b->o->synthetic) return b->o->synthetic;
    const char *name = strrchr(b->o->model, '/');
    return name ? name + 1 : b->o->model;
}

void bench_print_text(const struct bench *b, struct buf *out)
{
    const struct model *m = runner_model(b->runner);
    buf_printf(out, "%s: %s, %.1f M parameters, %.1f MiB of weights\n%s (%s), %s\n", model_name(b),
               m->family->arch, (double)b->parameters * 1e-6, (double)m->bytes / (1 << 20), b->info.name,
               b->info.id, b->info.driver);
    if (b->limits.read_bytes_per_s > 0)             /* not where nothing but the load was timed */
        buf_printf(out, "best rates: read %.2f GB/s, int8 %.0f, bf16 %.0f, f32 %.0f Gop/s\n",
                   b->limits.read_bytes_per_s * 1e-9, b->limits.int8_ops_per_s * 1e-9,
                   b->limits.bf16_ops_per_s * 1e-9, b->limits.f32_ops_per_s * 1e-9);
    buf_add_char(out, '\n');
    buf_printf(out, "test      width   depth        ms    tokens/s     GB/s    of it    Gop/s  of limit    J/token\n");
    for (int i = 0; i < b->n_results; i++) {
        const struct bench_result *r = &b->result[i];
        buf_printf(out, "%-8s %6d %7d %9.3f", r->test, r->width, r->depth, r->seconds * 1e3);
        if (r->bytes > 0)
            buf_printf(out, " %11.2f %8.2f %8.2f %8.1f %8.1f %%", bench_tokens_per_s(r),
                       r->bytes / r->seconds * 1e-9, r->read_bytes_per_s * 1e-9, r->ops / r->seconds * 1e-9,
                       r->limit_share * 100);
        if (r->joules_per_token > 0) buf_printf(out, " %10.4g", r->joules_per_token);
        buf_add_char(out, '\n');
    }
}

static void text(struct json *j, const char *key, const char *value)
{
    json_key(j, key);
    json_text(j, value);
}

static void number(struct json *j, const char *key, double value)
{
    json_key(j, key);
    json_number(j, value);
}

static void integer(struct json *j, const char *key, int64_t value)
{
    json_key(j, key);
    json_int(j, value);
}

static void integers(struct json *j, const char *key, const struct option_ints *list)
{
    json_key(j, key);
    json_open_array(j);
    for (int i = 0; i < list->n; i++) json_int(j, list->at[i]);
    json_close(j);
}

static void print_model(struct json *j, const struct bench *b)
{
    const struct model *m = runner_model(b->runner);
    json_key(j, "model");
    json_open_object(j);
    text(j, "name", model_name(b));
    text(j, "architecture", m->family->arch);
    json_key(j, "synthetic");
    json_bool(j, b->o->synthetic != NULL);
    integer(j, "parameters", (int64_t)b->parameters);
    integer(j, "product_parameters", (int64_t)b->product_parameters);
    integer(j, "weight_bytes", (int64_t)m->bytes);
    number(j, "load_seconds", b->result[0].seconds);
    json_close(j);
    json_key(j, "settings");
    json_open_object(j);
    integer(j, "threads", b->o->threads);
    integer(j, "context", runner_load_plan(b->runner).context);
    integer(j, "chunk", runner_chunk(b->runner));
    text(j, "cache_type_k", b->o->cache_type_k);
    text(j, "cache_type_v", b->o->cache_type_v);
    integers(j, "depth", &b->o->depth);
    integers(j, "prompt_tokens", &b->o->prompt_tokens);
    integer(j, "repeat", b->o->repeat);
    json_close(j);
}

static void print_results(struct json *j, const struct bench *b)
{
    json_key(j, "results");
    json_open_array(j);
    for (int i = 0; i < b->n_results; i++) {
        const struct bench_result *r = &b->result[i];
        if (r->width == 0) continue;            /* the load, which is told with the model */
        json_open_object(j);
        text(j, "test", r->test);
        integer(j, "width", r->width);
        integer(j, "depth", r->depth);
        integer(j, "samples", r->samples);
        integer(j, "rounds", r->rounds);
        number(j, "seconds", r->seconds);
        number(j, "tokens_per_s", bench_tokens_per_s(r));
        number(j, "bytes", r->bytes);
        number(j, "ops", r->ops);
        number(j, "read_bytes_per_s", r->read_bytes_per_s);
        number(j, "limit_share", r->limit_share);
        number(j, "joules_per_token", r->joules_per_token);
        json_close(j);
    }
    json_close(j);
}

void bench_print_json(const struct bench *b, struct buf *out)
{
    struct json j;
    json_begin(&j, out);
    json_open_object(&j);
    text(&j, "tool", "luce bench");
    text(&j, "version", LUCE_VERSION);
    text(&j, "commit", LUCE_COMMIT);
    text(&j, "device", b->info.name);
    text(&j, "driver", b->info.driver);
    print_model(&j, b);
    json_key(&j, "limits");
    json_open_object(&j);
    number(&j, "read_bytes_per_s", b->limits.read_bytes_per_s);
    number(&j, "int8_ops_per_s", b->limits.int8_ops_per_s);
    number(&j, "bf16_ops_per_s", b->limits.bf16_ops_per_s);
    number(&j, "f32_ops_per_s", b->limits.f32_ops_per_s);
    json_close(&j);
    print_results(&j, b);
    json_close(&j);
    buf_add_char(out, '\n');
}
