/* server/render.c - from messages to the ids of a prompt. */
#include "base/mem.h"
#include "server/job.h"

struct rendered {
    struct buf text;
    luce_span *span;
    size_t n, cap;
};

static void add_own(struct rendered *r, const char *text)
{
    size_t from = r->text.len;
    buf_add_text(&r->text, text);
    if (r->n == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 16;
        luce_span *span = mem_resize(r->span, cap * sizeof *span);
        if (!span) {
            r->text.failed = true;
            return;
        }
        r->span = span;
        r->cap = cap;
    }
    r->span[r->n++] = (luce_span){ from, r->text.len };
}

bool add_prompt(const struct server *s, struct ask *a, const luce_text *text, struct refusal *why)
{
    luce_error err = { 0 };
    struct prompt p = { 0 };
    luce_status st = luce_tokenize(s->model, text, &p.ids, &p.n, &err);
    if (st) return refuse_status(why, st, err.text);
    struct prompt *more = mem_resize(a->prompts, ((size_t)a->n_prompts + 1) * sizeof *more);
    if (!more) {
        luce_free(p.ids);
        return refuse(why, 503, NULL, NULL, "out of memory for the prompt");
    }
    a->prompts = more;
    a->prompts[a->n_prompts++] = p;
    return true;
}

bool render_chat(const struct server *s, struct ask *a, struct refusal *why)
{
    struct rendered r = { 0 };
    size_t i;
    json_t *m;
    bool good = true;
    json_array_foreach(a->messages, i, m) {
        const char *role = field_text(m, "role");
        add_own(&r, "<|im_start|>");
        buf_add_text(&r.text, role ? role : "user");
        add_own(&r, "\n");
        good = good && content_text(json_object_get(m, "content"), &r.text, why);
        add_own(&r, "<|im_end|>\n");
    }
    add_own(&r, "<|im_start|>assistant\n");
    if (good && r.text.failed) good = refuse(why, 503, NULL, NULL, "out of memory for the prompt");
    luce_text text = { .at = buf_text(&r.text), .bytes = r.text.len, .flags = LUCE_CHAT, .special = r.span,
                       .n_special = r.n };
    if (good) good = add_prompt(s, a, &text, why);
    buf_drop(&r.text);
    mem_free(r.span);
    return good;
}
