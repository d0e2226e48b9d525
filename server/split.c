/* server/split.c - see split.h. Without a chat form that has reasoning or calls, all text is content. */
#include "server/split.h"

#include "base/mem.h"
#include "server/job.h"

struct splitter {
    bool reasoning;
};

struct splitter *splitter_new(const struct server *s, const struct ask *a)
{
    (void)s;
    struct splitter *p = mem_zero(sizeof *p);
    if (p) p->reasoning = a->begins_in_reasoning;
    return p;
}

void splitter_free(struct splitter *s)
{
    mem_free(s);
}

bool splitter_wants_special(const struct splitter *s)
{
    (void)s;
    return false;
}

bool splitter_in_reasoning(const struct splitter *s)
{
    return s->reasoning;
}

void splitter_add(struct splitter *s, struct choice *c, struct str text, struct buf *out)
{
    job_add(c, s->reasoning ? ITEM_REASONING : ITEM_TEXT, text, out);
}

bool splitter_end(struct splitter *s, struct choice *c, bool cut, struct buf *out)
{
    (void)s, (void)c, (void)cut, (void)out;
    return false;
}
