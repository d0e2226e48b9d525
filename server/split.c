/* server/split.c - see split.h. The parser of replies does the work (chat/reply.h); here its events become
 * items of the job. Completions of raw prompts are content as they are. */
#include "server/split.h"

#include "base/log.h"
#include "base/mem.h"
#include "chat/reply.h"
#include "server/print.h"

struct splitter {
    struct reply *reply;            /* NULL: all text is content */
    const struct ask *ask;
    bool only_first;                /* a whole call ends the reply */
    bool called;                    /* there were whole calls before it stopped */
    /* While bytes are taken: */
    struct choice *choice;
    struct buf *out;
};

static bool is_custom(const struct ask *a, struct str name)
{
    size_t i;
    json_t *tool;
    json_array_foreach(a->tools, i, tool) {
        const char *known = field_text(json_object_get(tool, "function"), "name");
        if (known && str_is(name, known)) return json_is_true(json_object_get(tool, "custom"));
    }
    return false;
}

/* Lets go what was held back because a stop string might have come of it. */
static void let_go(struct splitter *s)
{
    struct choice *c = s->choice;
    size_t n = c->stopper.held.len;
    if (n == 0) return;
    job_add(c, c->held_kind, str_in(&c->stopper.held), s->out);
    stopper_take(&c->stopper, n);
}

/* Text of an item, up to a stop string. They are looked for in reasoning and in content, each for itself,
 * and never in calls. */
static void say(struct splitter *s, enum item_kind kind, struct str text)
{
    struct choice *c = s->choice;
    struct stopper *stopper = &c->stopper;
    size_t came = c->out_bytes - reply_unread(s->reply), ready;
    if (stopper->n_stop == 0) {
        job_cover(c, came + text.len);
        job_add(c, kind, text, s->out);
        return;
    }
    if (c->held_kind != kind) let_go(s);
    c->held_kind = kind;
    size_t held = stopper->held.len;
    bool hit = stopper_add(stopper, text, &ready);
    if (stopper->held.failed) s->out->failed = true;
    if (came + ready >= held) job_cover(c, came + ready - held);
    job_add(c, kind, (struct str){ stopper->held.data, ready }, s->out);
    stopper_take(stopper, ready);
    if (!hit) return;
    c->stopped = true;
    s->called = reply_called(s->reply);
}

static void on_event(void *user, const struct reply_event *e)
{
    struct splitter *s = user;
    struct choice *c = s->choice;
    if (c->stopped) return;
    if (e->kind == REPLY_CALL) let_go(s);
    switch (e->kind) {
    case REPLY_REASONING: say(s, ITEM_REASONING, e->text); break;
    case REPLY_CONTENT: say(s, ITEM_TEXT, e->text); break;
    case REPLY_CALL: job_open_call(c, e->text, is_custom(s->ask, e->text), s->out); break;
    case REPLY_ARGUMENTS: job_add(c, ITEM_CALL, e->text, s->out); break;
    case REPLY_CALL_END:
        if (e->end != CALL_WHOLE) break;                        /* it ends with the choice */
        job_close_item(c, s->out);
        if (s->only_first) c->stopped = s->called = true;
        break;
    }
}

struct splitter *splitter_new(const struct server *s, const struct ask *a)
{
    struct splitter *p = mem_zero(sizeof *p);
    if (!p) return NULL;
    p->ask = a;
    p->only_first = a->one_call;
    struct reply_params params = { .dialect = s->dialect, .tools = a->tools, .no_calls = !a->tools,
                                   .in_reasoning = a->begins_in_reasoning, .on_event = on_event, .user = p };
    luce_error err = { 0 };
    if (!a->chat || !reply_open(&p->reply, &params, &err)) return p;
    mem_free(p);
    return NULL;
}

void splitter_free(struct splitter *s)
{
    if (s) reply_close(s->reply);
    mem_free(s);
}

bool splitter_wants_special(const struct splitter *s)
{
    return s->reply != NULL;
}

bool splitter_in_reasoning(const struct splitter *s)
{
    return s->reply && reply_in_reasoning(s->reply);
}

void splitter_add(struct splitter *s, struct choice *c, struct str text, struct buf *out)
{
    s->choice = c;
    s->out = out;
    if (s->reply) reply_add(s->reply, text);
    else {
        job_cover(c, c->out_bytes);
        job_add(c, ITEM_TEXT, text, out);
    }
}

bool splitter_end(struct splitter *s, struct choice *c, bool cut, struct buf *out)
{
    luce_error err = { 0 };
    s->choice = c;
    s->out = out;
    if (!s->reply) return false;
    if (reply_end(s->reply, cut, &err)) out->failed = true;
    if (reply_malformed(s->reply))
        log_warn("%d malformed tool calls of the model were given out as text, or ended early",
                 reply_malformed(s->reply));
    if (c->stopped) return s->called;
    let_go(s);
    return reply_called(s->reply);
}
