/* chat/chat.c - see chat.h. */
#define _GNU_SOURCE             /* memmem */
#include "chat/chat.h"

#include <stdio.h>

#include "base/file.h"
#include "base/mem.h"
#include "chat/history.h"
#include "chat/values.h"

struct chat_template {
    struct jinja *usual, *with_tools;   /* with_tools: the variant tool_use, or NULL */
    const struct dialect *dialect;
    char *bos, *eos, *pad, *unk;
    bool fallback;
};

/* Where the model's file holds no template: what the family's marks in the vocabulary call for. */
static const struct {
    const char *mark, *text;
} fallbacks[] = {
    { "<start_of_turn>",
      "{{ bos_token }}{% set ns = namespace(system='') %}{% for m in messages %}"
      "{% if m.role == 'system' %}{% set ns.system = m.content ~ '\n\n' %}"
      "{% else %}<start_of_turn>{{ 'model' if m.role == 'assistant' else 'user' }}\n"
      "{{ ns.system ~ m.content | trim }}{% set ns.system = '' %}<end_of_turn>\n{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}" },
    { "<|start_header_id|>",
      "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
      "{{ m.content | trim }}<|eot_id|>{% endfor %}"
      "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}" },
    { "<|im_start|>",
      "{% if tools %}<|im_start|>system\n"
      "{% if messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}"
      "# Tools\n\nThe functions that you may call, as JSON:\n"
      "<tools>{% for t in tools %}{{ '\n' ~ (t | tojson) }}{% endfor %}\n</tools>\n\n"
      "For each call, write an object with name and arguments within tags:\n"
      "<tool_call>\n{\"name\": NAME, \"arguments\": OBJECT}\n</tool_call><|im_end|>\n{% endif %}"
      "{% for m in messages %}{% if m.role == 'tool' %}"
      "<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n"
      "{% elif not (tools and loop.first and m.role == 'system') %}<|im_start|>{{ m.role }}\n{{ m.content }}"
      "{% for c in m.tool_calls or [] %}{{ '\n' if m.content or not loop.first else '' }}<tool_call>\n"
      "{\"name\": {{ c.function.name | tojson }}, \"arguments\": {{ c.function.arguments "
      "if c.function.arguments is string else c.function.arguments | tojson }}}\n</tool_call>{% endfor %}"
      "<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}" },
};

static const char *fallback_for(const struct vocab *v)
{
    for (size_t i = 0; v && i < COUNT(fallbacks); i++)
        if (vocab_find(v, str_of(fallbacks[i].mark)) >= 0) return fallbacks[i].text;
    return fallbacks[COUNT(fallbacks) - 1].text;
}

static char *special_text(const struct vocab *v, enum special_role role)
{
    struct str text = { "", 0 };
    int32_t id = v ? vocab_special(v).ids[role] : -1;
    if (id >= 0) text = vocab_text(v, id);
    return mem_text(text.at, text.len);
}

static luce_status open_file(struct chat_template *t, const char *path, luce_error *err)
{
    struct buf text = { 0 };
    luce_status st = file_read(&text, path, JINJA_SOURCE_MAX, err);
    size_t blank = 0;
    while (blank < text.len && is_one_of(text.data[blank], " \t\r\n")) blank++;
    if (!st && blank == text.len)
        st = fail(err, LUCE_E_FORMAT,
                  "%s: line 1, column 1: the chat template is empty. Give a file with a template, or none "
                  "to use the model's own.", path);
    if (!st) st = jinja_parse(&t->usual, (struct str){ text.data, text.len }, path, err);
    buf_drop(&text);
    return st;
}

static luce_status open_gguf(struct chat_template *t, const struct gguf *g, luce_error *err)
{
    static const char *const keys[] = { "tokenizer.chat_template", "tokenizer.chat_template.tool_use" };
    struct jinja **const out[] = { &t->usual, &t->with_tools };
    for (int i = 0; i < 2; i++) {
        struct str text = { 0 };
        luce_status st = gguf_text(g, keys[i], (struct str){ 0 }, &text, err);
        if (st) return st;
        if (text.len == 0) continue;
        char name[300];
        snprintf(name, sizeof name, "%.200s: %s", gguf_path(g), keys[i]);
        if ((st = jinja_parse(out[i], text, name, err))) return st;
    }
    return LUCE_OK;
}

luce_status chat_template_open(struct chat_template **out, const struct chat_source *s, luce_error *err)
{
    *out = NULL;
    struct chat_template *t = mem_zero(sizeof *t);
    if (!t) return fail(err, LUCE_E_NOMEM, "out of memory for a chat template");
    luce_status st = s->file ? open_file(t, s->file, err) : s->gguf ? open_gguf(t, s->gguf, err) : LUCE_OK;
    if (!st && !t->usual) {
        t->fallback = true;
        st = jinja_parse(&t->usual, str_of(fallback_for(s->vocab)), "built-in chat template", err);
    }
    t->bos = special_text(s->vocab, ROLE_BOS);
    t->eos = special_text(s->vocab, ROLE_EOS);
    t->pad = special_text(s->vocab, ROLE_PADDING);
    t->unk = special_text(s->vocab, ROLE_UNKNOWN);
    if (!st && (!t->bos || !t->eos || !t->pad || !t->unk)) st = fail(err, LUCE_E_NOMEM,
                                                                     "out of memory for a chat template");
    if (st) {
        chat_template_close(t);
        return st;
    }
    t->dialect = dialect_for(jinja_source(t->with_tools ? t->with_tools : t->usual));
    *out = t;
    return LUCE_OK;
}

void chat_template_close(struct chat_template *t)
{
    if (!t) return;
    jinja_free(t->usual);
    jinja_free(t->with_tools);
    mem_free(t->bos);
    mem_free(t->eos);
    mem_free(t->pad);
    mem_free(t->unk);
    mem_free(t);
}

const struct dialect *chat_dialect(const struct chat_template *t)
{
    return t->dialect;
}

struct str chat_template_text(const struct chat_template *t)
{
    return jinja_source(t->with_tools ? t->with_tools : t->usual);
}

bool chat_is_fallback(const struct chat_template *t)
{
    return t->fallback;
}

/* ---- variables ----------------------------------------------------------------------------------- */

enum { VARS_MAX = 64 };
struct vars {
    struct jinja_var at[VARS_MAX];
    size_t n;
};

static void set(struct vars *v, const char *name, struct jval value)
{
    if (v->n < VARS_MAX) v->at[v->n++] = (struct jinja_var){ name, value };
}

static bool holds(const struct jinja *t, const char *text)
{
    struct str s = jinja_source(t);
    return memmem(s.at, s.len, text, strlen(text)) != NULL;
}

/* Effort in the template's own words; NULL: it gets none. */
static const char *effort_for(const struct jinja *t, const char *effort)
{
    if (!effort || !strcmp(effort, "none") || !jinja_mentions(t, "reasoning_effort")) return NULL;
    if (!strcmp(effort, "minimal")) return "low";
    bool high = !strcmp(effort, "high") || !strcmp(effort, "xhigh") || !strcmp(effort, "x-high") || !strcmp(effort,
            "max");
    if (!high) return effort;
    if (holds(t, "xhigh")) return "xhigh";
    return strcmp(effort, "max") == 0 && holds(t, "'max'") ? "max" : "high";
}

static luce_status options(struct vars *v, const struct chat_template *t, const struct jinja *j,
                           const struct chat_request *r,
                           struct jheap *h, luce_error *err)
{
    set(v, "add_generation_prompt", jinja_bool(!r->no_generation_prompt && !r->continue_last));
    set(v, "bos_token", jinja_text(h, str_of(t->bos), false));
    set(v, "eos_token", jinja_text(h, str_of(t->eos), false));
    if (*t->pad) set(v, "pad_token", jinja_text(h, str_of(t->pad), false));
    if (*t->unk) set(v, "unk_token", jinja_text(h, str_of(t->unk), false));
    bool off = r->thinking == THINKING_OFF || (r->reasoning_effort && !strcmp(r->reasoning_effort, "none"));
    if (off || r->thinking == THINKING_ON) {
        set(v, "enable_thinking", jinja_bool(!off));
        set(v, "thinking", jinja_bool(!off));
    }
    const char *effort = effort_for(j, r->reasoning_effort);
    if (effort) set(v, "reasoning_effort", jinja_text(h, str_of(effort), false));
    json_t *kwargs = (json_t *)(uintptr_t)r->kwargs;
    for (void *i = json_object_iter(kwargs); i; i = json_object_iter_next(kwargs, i)) {
        static const char *const ours[] = { "messages", "tools", "add_generation_prompt", "bos_token", "eos_token" };
        const char *key = json_object_iter_key(i);
        bool taken = false;
        for (size_t k = 0; k < COUNT(ours); k++) taken |= !strcmp(key, ours[k]);
        if (taken || jinja_mentions(j, key) == false) continue;
        if (v->n + 2 >= VARS_MAX) return fail(err, LUCE_E_ARG, "chat_template_kwargs has too many keys");
        struct jval value;
        luce_status st = value_of_json(h, json_object_iter_value(i), true, &value, err);
        if (st) return st;
        set(v, key, value);
    }
    return LUCE_OK;
}

/* Roles are words of the template: known ones may be part of a control token. */
static void trust_roles(struct jheap *h, struct jval messages)
{
    static const char *const roles[] = { "system", "user", "assistant", "tool", "developer" };
    for (size_t i = 0; i < jinja_len(messages); i++)
        for (size_t k = 0; k < COUNT(roles); k++)
            if (str_is(jinja_str(jinja_get(jinja_at(messages, i), "role")), roles[k]))
                jinja_put(h, jinja_at(messages, i), str_of("role"), false, jinja_text(h, str_of(roles[k]), false));
}

static luce_status render_once(const struct chat_template *t, const struct jinja *j, const struct chat_request *r,
                               const json_t *messages, struct chat_prompt *out, luce_error *err)
{
    struct vars v = { .n = 0 };
    struct jheap *h = &out->heap;
    struct jval list, tools;
    luce_status st = value_of_json(h, messages, true, &list, err);
    if (!st && json_array_size(r->tools)) st = value_of_json(h, r->tools, true, &tools, err);
    if (st) return st;
    trust_roles(h, list);
    set(&v, "messages", list);
    if (json_array_size(r->tools)) set(&v, "tools", tools);
    if ((st = options(&v, t, j, r, h, err))) return st;
    struct jinja_output text;
    struct jinja_render how = { .vars = v.at, .n_vars = v.n, .now = r->now, .from_json = value_from_text };
    if ((st = jinja_render(j, &how, h, &text, err))) return st;
    out->text = text.text;
    out->spans = text.spans;
    out->n_spans = text.n_spans;
    return LUCE_OK;
}

/* ---- rendering ----------------------------------------------------------------------------------- */

/* Where the last words end that are not the template's. */
static size_t words_end(const struct chat_prompt *p)
{
    size_t at = p->text.len, k = p->n_spans;
    for (;;) {
        while (at && is_one_of(p->text.at[at - 1], " \t\r\n")) at--;
        while (k && p->spans[k - 1].from >= at) k--;
        if (k == 0 || p->spans[k - 1].to < at) return at;
        at = p->spans[--k].from;
    }
}

/* Cuts what the template writes after the last message's text. */
static luce_status cut_after_last(struct chat_prompt *p, const json_t *messages, luce_error *err)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1), *content = json_object_get(last,
            "content");
    struct str want = { json_string_value(content), json_string_length(content) };
    const char *role = json_string_value(json_object_get(last, "role"));
    if (!role || strcmp(role, "assistant"))         /* the history has taken another shape */
        return fail(err, LUCE_E_ARG, "the chat template changes the last message, so it cannot be continued");
    while (want.len && is_one_of(want.at[want.len - 1], " \t\r\n")) want.len--;
    while (want.len && is_one_of(*want.at, " \t\r\n")) want.at++, want.len--;
    if (want.len == 0) return fail(err, LUCE_E_ARG, "the last message has no text that could be continued");
    size_t at = words_end(p);
    if (at < want.len || memcmp(p->text.at + at - want.len, want.at, want.len))
        return fail(err, LUCE_E_ARG, "the chat template changes the last message, so it cannot be continued");
    p->text.len = at;
    while (p->n_spans && p->spans[p->n_spans - 1].from >= at) p->n_spans--;
    struct text_span *spans = (struct text_span *)(uintptr_t)p->spans;      /* ours, in the heap */
    if (p->n_spans && spans[p->n_spans - 1].to > at) spans[p->n_spans - 1].to = at;
    return LUCE_OK;
}

/* Tries the history in shapes that give up ever more; the first refusal is what the client hears. */
static luce_status render_any(const struct chat_template *t, const struct jinja *j, const struct chat_request *r,
                              json_t *messages, struct chat_prompt *out, luce_error *err)
{
    static json_t *(*const shapes[])(const json_t *) = { history_fold_system, history_wrap_arguments, history_alternate,
                                                          history_plain };
    luce_error later = { 0 };
    luce_status first = render_once(t, j, r, messages, out, err), st = first;
    json_t *now = json_incref(messages);
    for (size_t i = 0; st == LUCE_E_ARG && i < COUNT(shapes); i++) {
        json_t *next = shapes[i](now);
        json_decref(now);
        now = next;
        chat_prompt_drop(out);
        st = now ? render_once(t, j, r, now, out, &later) : LUCE_E_NOMEM;
        if (!now) first = fail(err, LUCE_E_NOMEM, "out of memory for a conversation");
    }
    if (!st && r->continue_last) st = first = cut_after_last(out, now, err);
    json_decref(now);
    if (st == LUCE_OK) {
        if (err) *err = (luce_error){ 0 };
        return LUCE_OK;
    }
    if (st != LUCE_E_ARG && later.code && err) *err = later;
    return st == LUCE_E_ARG ? first : st;
}

bool chat_shows_tools(const struct chat_template *t)
{
    return t->with_tools || jinja_mentions(t->usual, "tools");
}

bool chat_knows_reasoning(const struct chat_template *t)
{
    static const char *const signs[] = { "think", "reasoning", "<|channel>", "[THINK]" };
    bool any = false;
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) any = any || holds(t->usual, signs[i]);
    return any;
}

/* A message that is written on begins with reasoning that has no end yet. */
static bool begins_to_reason(const struct dialect *d, const json_t *last)
{
    const char *text = json_string_value(json_object_get(last, "content")), *open = dialect_reasoning_open(d);
    if (!text || !open || !*open) return false;
    text += strspn(text, " \t\r\n");
    return !strncmp(text, open, strlen(open)) && !strstr(text, dialect_reasoning_close(d));
}

luce_status chat_render(const struct chat_template *t, const struct chat_request *r, struct chat_prompt *out,
                        luce_error *err)
{
    *out = (struct chat_prompt){ 0 };
    const struct jinja *j = t->with_tools && json_array_size(r->tools) ? t->with_tools : t->usual;
    if (json_array_size(r->messages) == 0) return fail(err, LUCE_E_ARG, "messages: at least one is needed");
    const json_t *last = json_array_get(r->messages, json_array_size(r->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    if (r->continue_last && (!role || strcmp(role, "assistant")))
        return fail(err, LUCE_E_ARG, "only an assistant's message can be continued; the last one is %s's", role
                    ? role : "nobody");
    if (r->continue_last && json_array_size(json_object_get(last, "tool_calls")))
        return fail(err, LUCE_E_ARG, "a message with tool calls cannot be continued");
    struct history_form form = {
        .keep_developer = jinja_mentions(j, "developer"), .keep_parts = holds(j, "image"), .short_ids = holds(j,
                "!= 9"),
    };
    json_t *messages = NULL;
    luce_status st = history_clean(&messages, r->messages, &form, err);
    if (!st && !jinja_mentions(j, "tool_calls")) {      /* it would leave calls out, in silence */
        json_t *told = history_tell_calls(messages);
        json_decref(messages);
        messages = told;
        if (!told) st = fail(err, LUCE_E_NOMEM, "out of memory for a conversation");
    }
    if (!st) st = render_any(t, j, r, messages, out, err);
    json_decref(messages);
    if (st) chat_prompt_drop(out);
    else out->in_reasoning = r->continue_last ? begins_to_reason(t->dialect, last)
                                              : dialect_starts_in_reasoning(t->dialect, out->text);
    return st;
}

void chat_prompt_drop(struct chat_prompt *p)
{
    jinja_heap_drop(&p->heap);
    *p = (struct chat_prompt){ 0 };
}
