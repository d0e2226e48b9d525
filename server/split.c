/* server/split.c - see split.h. The parser of replies does the work (chat/reply.h); here its events become
 * items of the job. Completions of raw prompts are content as they are. */
#include "server/split.h"

#include "base/mem.h"
#include "chat/reply.h"
#include "server/job.h"

struct splitter {
    struct reply *reply;            /* NULL: all text is content */
    const struct ask *ask;
    bool only_first;                /* one call is enough */
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

static void on_event(void *user, const struct reply_event *e)
{
    struct splitter *s = user;
    struct choice *c = s->choice;
    if (s->only_first && e->call > 0 && e->kind >= REPLY_CALL) return;
    switch (e->kind) {
    case REPLY_REASONING: job_add(c, ITEM_REASONING, e->text, s->out); break;
    case REPLY_CONTENT: job_add(c, ITEM_TEXT, e->text, s->out); break;
    case REPLY_CALL: job_open_call(c, e->text, is_custom(s->ask, e->text), s->out); break;
    case REPLY_ARGUMENTS: job_add(c, ITEM_CALL, e->text, s->out); break;
    case REPLY_CALL_END: job_close_item(c, s->out); break;
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
    else job_add(c, ITEM_TEXT, text, out);
}

bool splitter_end(struct splitter *s, struct choice *c, bool cut, struct buf *out)
{
    luce_error err = { 0 };
    s->choice = c;
    s->out = out;
    if (!s->reply) return false;
    if (reply_end(s->reply, cut, &err)) out->failed = true;
    return reply_called(s->reply);
}
