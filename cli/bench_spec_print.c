/* cli/bench_spec_print.c - see bench_spec.h; docs/bench.md says what columns and fields are. */
#include "cli/bench_spec.h"

#include "base/json.h"
#include "base/mem.h"

static void number(struct json *j, const char *key, double value)
{
    json_key(j, key);
    json_number(j, value);
}

static void numbers(struct json *j, const char *key, const int32_t *values, int n)
{
    json_key(j, key);
    json_open_array(j);
    for (int i = 0; i < n; i++) json_int(j, values[i]);
    json_close(j);
}

void bench_spec_log(struct spec_bench *b, const luce_step *step)
{
    struct json j;
    const struct { const char *key; double value; } rows[] = {
        { "prompt", b->prompt }, { "step", (double)b->text.steps }, { "at", (double)step->at }, { "rows", step->rows },
        { "draft_ms", step->draft_seconds * 1e3 }, { "verify_ms", step->verify_seconds * 1e3 },
        { "accept_ms", step->accept_seconds * 1e3 },
    };
    json_begin(&j, &b->lines);
    json_open_object(&j);
    json_key(&j, "set");
    json_text(&j, b->set[b->n].name);
    for (size_t i = 0; i < COUNT(rows); i++) number(&j, rows[i].key, rows[i].value);
    json_key(&j, "declined");
    json_bool(&j, step->declined);
    numbers(&j, "guess", step->node + 1, step->n_nodes - 1);
    numbers(&j, "parent", step->parent + 1, step->n_nodes - 1);
    numbers(&j, "tokens", step->tokens, step->n_tokens);
    json_close(&j);
    buf_add_char(&b->lines, '\n');
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

void bench_spec_print_text(const struct spec_bench *b, struct buf *out)
{
    buf_printf(out, "%s on %s, drafter %s; each text twice in turn, equal token by token\n\n", b->info.architecture,
               b->info.device_name, b->info.drafter);
    buf_printf(out, "set     prompts  tokens  plain/s  spec/s  speed-up  at no cost  accepted  declined  off    "
                    "draft  verify  accept\n");
    for (int i = 0; i < b->n; i++) {
        const struct spec_set *s = &b->set[i];
        double steps = (double)s->sum.steps, tokens = (double)s->tokens;
        buf_printf(out, "%-8s %6d %7zu %8.1f %7.1f %8.2fx %10.2fx %7.1f %% %7.1f %%  %3zu  %5.1f%% %6.1f%% %6.1f%%\n",
                   s->name, s->prompts, s->tokens, ratio(tokens, s->plain_seconds), ratio(tokens, s->seconds),
                   ratio(s->plain_seconds, s->seconds), ratio(tokens, steps),
                   100 * ratio((double)s->sum.accepted, (double)s->sum.drafted),
                   100 * ratio((double)s->sum.declined, steps), s->sum.off,
                   100 * ratio(s->sum.draft_seconds, s->seconds),
                   100 * ratio(s->sum.verify_seconds, s->seconds), 100 * ratio(s->sum.accept_seconds, s->seconds));
    }
}

static void print_set(struct json *j, const struct spec_set *s)
{
    const struct spec_sums *x = &s->sum;
    const struct { const char *key; double value; } rows[] = {
        { "prompts", s->prompts }, { "tokens", (double)s->tokens }, { "plain_seconds", s->plain_seconds },
        { "seconds", s->seconds }, { "steps", (double)x->steps }, { "drafted_tokens", (double)x->drafted },
        { "accepted_tokens", (double)x->accepted }, { "declined_steps", (double)x->declined },
        { "switched_off", (double)x->off },
        { "draft_seconds", x->draft_seconds }, { "verify_seconds", x->verify_seconds },
        { "accept_seconds", x->accept_seconds },
        { "acceptance", ratio((double)x->accepted, (double)x->drafted) },
        { "tokens_per_step", ratio((double)s->tokens, (double)x->steps) },
        { "speed_up", ratio(s->plain_seconds, s->seconds) },
    };
    json_open_object(j);
    json_key(j, "set");
    json_text(j, s->name);
    for (size_t i = 0; i < COUNT(rows); i++) number(j, rows[i].key, rows[i].value);
    json_close(j);
}

void bench_spec_print_json(const struct spec_bench *b, struct buf *out)
{
    struct json j;
    json_begin(&j, out);
    json_open_object(&j);
    json_key(&j, "tool");
    json_text(&j, "luce bench --spec");
    json_key(&j, "version");
    json_text(&j, LUCE_VERSION);
    json_key(&j, "architecture");
    json_text(&j, b->info.architecture);
    json_key(&j, "device");
    json_text(&j, b->info.device_name);
    json_key(&j, "drafter");
    json_text(&j, b->info.drafter);
    json_key(&j, "results");
    json_open_array(&j);
    for (int i = 0; i < b->n; i++) print_set(&j, &b->set[i]);
    json_close(&j);
    json_close(&j);
    buf_add_char(out, '\n');
}
