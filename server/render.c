/* server/render.c - from messages to the ids of a prompt, by the model's chat template. */
#include <time.h>

#include "base/mem.h"
#include "engine/inside.h"
#include "server/budget.h"

static bool append(struct ask *a, struct prompt p, struct refusal *why)
{
    struct prompt *more = mem_resize(a->prompts, ((size_t)a->n_prompts + 1) * sizeof *more);
    if (!more) {
        luce_free(p.ids);
        return refuse(why, 503, NULL, NULL, "out of memory for the prompt");
    }
    a->prompts = more;
    a->prompts[a->n_prompts++] = p;
    return true;
}

bool add_prompt(const struct server *s, struct ask *a, const luce_text *text, struct refusal *why)
{
    luce_error err = { 0 };
    struct prompt p = { 0 };
    luce_status st = luce_tokenize(s->model, text, &p.ids, &p.n, &err);
    p.text = (struct str){ text->at, text->bytes };
    return st ? refuse_status(why, st, err.text) : append(a, p, why);
}

bool render_chat(const struct server *s, struct ask *a, struct refusal *why)
{
    struct chat_request r = { .messages = a->messages, .tools = a->tools, .kwargs = a->variables, .now = time(NULL) };
    struct chat_prompt p = { .n_spans = 0 };
    luce_error err = { 0 };
    struct ids ids = { 0 };
    if (!budget_read(s, a, &r, why)) return false;
    if (json_array_size(a->tools) && !chat_shows_tools(s->chat)) a->notes |= NOTE_UNSHOWN;
    r.continue_last = a->turn != NEW_TURN;
    luce_status st = chat_render(s->chat, &r, &p, &err);
    if (st == LUCE_E_ARG && a->turn == CONTINUE_IF_POSSIBLE) {
        r.continue_last = false;
        a->notes |= NOTE_NEW;
        st = chat_render(s->chat, &r, &p, &err);
    }
    if (!st) {
        struct tokenize t = { .text = p.text, .flags = TOKENIZE_CHAT, .spans = p.spans, .n_spans = p.n_spans,
                              .guard = s->guard };
        a->begins_in_reasoning = p.in_reasoning;
        const json_t *asked = json_object_get(a->variables, "enable_thinking");
        a->thinks = p.in_reasoning || (asked ? json_is_true(asked) : r.thinking == THINKING_ON);
        st = vocab_tokenize_spans(s->model->vocab, &t, &ids, &err);
    }
    chat_prompt_drop(&p);
    if (!st) return append(a, (struct prompt){ .ids = ids.at, .n = ids.len }, why);
    ids_drop(&ids);
    return refuse_status(why, st, err.text);
}
