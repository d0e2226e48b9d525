/* server/budget.c - see budget.h. */
#include "server/budget.h"

#include "base/mem.h"

enum { USUAL_OUTPUT = 16000 };          /* of which the tiers are shares, where the operator names no other */
static const char *const tiers[EFFORTS] = { "low", "medium", "high", "x-high", "max" };

luce_status budget_open(struct server *s, luce_error *err)
{
    const char *close = s->dialect ? dialect_reasoning_close(s->dialect) : NULL;
    struct buf text = { 0 };
    if (!close) return LUCE_OK;
    buf_printf(&text, "\n%s\n\n", close);
    luce_text t = { .at = buf_text(&text), .bytes = text.len, .flags = LUCE_SPECIAL };
    luce_status st = luce_tokenize(s->model, &t, &s->close_ids, &s->n_close, err);
    buf_drop(&text);
    return st;
}

void budget_close(struct server *s)
{
    luce_free(s->close_ids);
}

/* Unknown efforts are high ones. */
static int tier_of(const char *effort)
{
    if (!strcmp(effort, "minimal")) return 0;
    if (!strcmp(effort, "xhigh")) return 3;
    for (int i = 0; i < EFFORTS; i++)
        if (!strcmp(effort, tiers[i])) return i;
    return 2;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Tokens of reasoning that a tier stands for. */
static int64_t tier_tokens(const struct server *s, int tier)
{
    const struct server_params *p = s->params;
    int64_t most = p->max_tokens ? p->max_tokens : USUAL_OUTPUT;
    int64_t all = most > p->reply_budget ? most - p->reply_budget : most / 2;
    int64_t room = s->info.context > p->reply_budget ? s->info.context - p->reply_budget : s->info.context / 2;
    int64_t n = p->effort[tier] ? p->effort[tier] : tier == 0 ? (all + 4) / 8 : tier == 1 ? (all + 1) / 2 : all;
    return least(n, room);
}

bool budget_read(const struct server *s, struct ask *a, struct chat_request *r, struct refusal *why)
{
    const json_t *reasoning = json_object_get(a->body, "reasoning"), *thinking = json_object_get(a->body, "thinking");
    const char *effort = field_text(reasoning, "effort"), *type = field_text(thinking, "type");
    int64_t tokens = -1;
    bool on_request = true;
    a->reply_tokens = -1;
    if (!field_bool(reasoning, "enabled", &on_request, why) ||
        !field_int(thinking, "budget_tokens", 0, INT32_MAX, &tokens, why) ||
        !field_int(thinking, "reply_budget", 0, INT32_MAX, &a->reply_tokens, why))
        return false;
    if (!effort) effort = field_text(a->body, "reasoning_effort");
    if (!effort) effort = field_text(json_object_get(a->body, "output_config"), "effort");
    if (tokens >= 0 && !type) type = "enabled";
    a->bounded = effort && strcmp(effort, "none");
    if (effort) r->thinking = a->bounded ? THINKING_ON : THINKING_OFF;
    else if (json_is_object(reasoning))
        r->thinking = on_request ? THINKING_ON : THINKING_OFF;
    else if (s->params->thinking) r->thinking = s->params->thinking;
    else if (a->thinks_when_asked) r->thinking = THINKING_OFF;
    if (a->bounded) {
        int tier = tier_of(effort);
        a->thinking_tokens = tier_tokens(s, tier);
        effort = !strcmp(effort, "minimal") ? effort : tier == 3 ? "xhigh" : tiers[tier];
    }
    r->reasoning_effort = effort;
    if (!type) return true;
    bool enabled = !strcmp(type, "enabled"), on = enabled || !strcmp(type, "adaptive");
    r->thinking = on ? THINKING_ON : THINKING_OFF;
    if (!on) r->reasoning_effort = "none";
    if (enabled && !a->bounded) a->thinking_tokens = tier_tokens(s, 2);
    if (enabled && tokens >= 0) a->thinking_tokens = tokens;
    a->asked_tokens = enabled && tokens >= 0;
    a->bounded = enabled || (on && a->bounded);
    return true;
}

/* Tokens that are kept for the answer: what was asked for, else what the budget leaves, else at most half. */
static int64_t reserve(const struct server *s, const struct ask *a, int64_t max_tokens)
{
    int64_t most = s->params->reply_budget;
    if (a->reply_tokens >= 0) return least(a->reply_tokens, most);
    if (a->asked_tokens && max_tokens > a->thinking_tokens) return least(most, max_tokens - a->thinking_tokens);
    return least(most, max_tokens / 2);
}

luce_thinking budget_bound(const struct server *s, const struct ask *a, int max_tokens)
{
    int64_t most = s->params->think_max, n = a->bounded ? a->thinking_tokens : most;
    if (!a->chat || (!a->bounded && !most) || !s->n_close) return (luce_thinking){ 0 };
    if (most) n = least(n, most);
    int64_t left = max_tokens - reserve(s, a, max_tokens);
    if (left < 0) left = 0;
    return (luce_thinking){ .budget = (int)least(n, left), .begun = a->begins_in_reasoning,
                            .open = dialect_reasoning_open(s->dialect), .close = dialect_reasoning_close(s->dialect),
                            .end = s->close_ids, .n_end = s->n_close };
}

void put_finish_details(struct json *j, const struct choice *c)
{
    if (!c->job->ask.bounded && !c->thinking_cut) return;
    json_key(j, "finish_details");
    json_open_object(j);
    put_text(j, "close_kind", c->thinking_cut ? "hard" : "natural");
    put_int(j, "thinking_tokens", c->n_reasoning);
    put_int(j, "content_tokens", c->n_generated - c->n_reasoning);
    put_int(j, "total_tokens", c->n_generated);
    if (c->looped) put_bool(j, "degenerate_decode", true);
    json_close(j);
}

void put_envelope(struct json *j, const struct server *s)
{
    json_key(j, "budget_envelope");
    json_open_object(j);
    put_text(j, "model_card_source", NULL);
    put_int(j, "default_max_tokens", s->params->max_tokens);
    put_int(j, "hard_limit_reply_budget", s->params->reply_budget);
    put_int(j, "think_max_tokens", s->params->think_max);
    json_key(j, "effort_tiers");
    json_open_object(j);
    for (int i = 0; i < EFFORTS; i++) put_int(j, tiers[i], tier_tokens(s, i));
    json_close(j);
    json_close(j);
}
