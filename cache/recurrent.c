/* cache/recurrent.c - checkpoints of the states of recurrent layers; see cache.h and tape/kv.h.
 * The slot's state on the device stands after seq_in_pages positions, except when `stale`. Checkpoints belong
 * to nodes of the prefix tree. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cache/inside.h"

enum { DRAWN = 1 << 16 };           /* random numbers of a state, again and again */
enum { REOPENED = 8 };              /* last tokens of a prompt, which the next turn may have otherwise */

static bool recurrent(const struct cache *c)
{
    return kv_recurrent(c->config.layout);
}

static luce_status copy_state(struct cache *c, int32_t from, int32_t to, luce_error *err)
{
    struct device *d = c->config.device;
    return d->fns->page_copy(d, c->on_device, KV_STATE, from, to, err);
}

/* Whether a newer checkpoint makes that of node x superfluous. */
static bool replaced(const struct seq *s, const struct node *x)
{
    int at = x->depth * PAGE;
    return !x->end && at != s->prompt_end && at % CHECKPOINT_EVERY != 0;
}

luce_status seq_checkpoint(struct seq *s, luce_error *err)
{
    struct cache *c = s->cache;
    struct prefix *p = &c->prefix;
    int at = seq_in_pages(s);
    if (!recurrent(c) || at == 0 || prefix_depth(s) * PAGE != at || p->node[s->node].state >= 0) return LUCE_OK;
    if (s->newest >= 0 && p->node[s->newest].state >= 0 && replaced(s, &p->node[s->newest])) {
        page_let_go(&c->states, p->node[s->newest].state);
        p->node[s->newest].state = -1;
    }
    s->newest = s->node;
    if (c->states.n_free == 0 && !prefix_evict_state(c)) return LUCE_OK;    /* all are about to be restored */
    int32_t page = page_claim(&c->states);
    luce_status st = copy_state(c, s->slot, page, err);
    if (!st) {
        p->node[s->node].state = page;
        page_keep(&c->states, page);
    }
    page_release(&c->states, page);
    return st;
}

int seq_checkpoints(const struct seq *s, int *at, int most)
{
    const struct prefix *p = &s->cache->prefix;
    int n = 0;
    for (int32_t i = s->node; i >= 0; i = p->node[i].parent) n += p->node[i].state >= 0;
    int k = n;
    for (int32_t i = s->node; i >= 0; i = p->node[i].parent)
        if (p->node[i].state >= 0 && --k < most) at[k] = p->node[i].depth * PAGE;
    return n;
}

void checkpoint_forget(struct seq *s)
{
    if (s->restore >= 0) page_release(&s->cache->states, s->restore);
    s->restore = -1;
    s->stale = false;
}

int checkpoint_back(struct seq *s)
{
    const struct prefix *p = &s->cache->prefix;
    int32_t at = s->node;
    if (!recurrent(s->cache)) return prefix_depth(s) * PAGE;
    checkpoint_forget(s);
    while (at >= 0 && p->node[at].state < 0) at = p->node[at].parent;
    s->stale = true;
    s->newest = -1;
    if (at < 0) return 0;
    s->restore = p->node[at].state;
    page_share(&s->cache->states, s->restore);
    return p->node[at].depth * PAGE;
}

luce_status checkpoint_restore(struct seq *s, luce_error *err)
{
    /* Without a checkpoint the sequence is empty, and kernels begin it at zero. */
    luce_status st = s->restore >= 0 ? copy_state(s->cache, s->restore, s->slot, err) : LUCE_OK;
    if (!st) checkpoint_forget(s);
    return st;
}

int seq_cut(struct seq *s, int n, int left)
{
    int from = s->length, end = from + n, next = (from / CHECKPOINT_EVERY + 1) * CHECKPOINT_EVERY;
    int wanted[] = { s->branch, s->wanted, next };
    if (!recurrent(s->cache)) return n;
    s->prompt_end = (from + left - REOPENED) / PAGE * PAGE;
    int last = end < from + left ? end / PAGE * PAGE : s->prompt_end;       /* a state is kept there */
    if (last > from) end = last;
    for (size_t i = 0; i < COUNT(wanted); i++)
        if (wanted[i] > from && wanted[i] < end) end = wanted[i];
    return end - from;
}

void seq_want_checkpoint(struct seq *s, int at)
{
    if (s->wanted <= s->length || at < s->wanted) s->wanted = at;
}

int seq_part(const struct seq *s, bool last)
{
    int first = seq_in_pages(s), boundary = s->length / PAGE * PAGE;
    bool wanted = last ? cache_takes_narrow(s->cache) : recurrent(s->cache) && boundary < s->length;
    return wanted && boundary > first ? boundary - first : 0;
}

void seq_emit_part(const struct seq *s, struct step *step, int index, int n)
{
    struct step_seq *e = &step->seq[index];
    *e = (struct step_seq){ .slot = s->slot, .past = seq_in_pages(s) + n, .n_commit = n };
    memcpy(e->commit, s->pending, (size_t)n);
}

void seq_emitted_part(struct seq *s, int n)
{
    s->n_pending -= n;
    memmove(s->pending, s->pending + n, (size_t)s->n_pending);
    prefix_enter(s);
}

luce_status state_fill_random(struct seq *s, uint64_t seed, luce_error *err)
{
    struct cache *c = s->cache;
    if (!recurrent(c)) return LUCE_OK;
    uint64_t n = c->config.layout->kind[KV_STATE].page_bytes / sizeof(float);
    float *x = mem_alloc(n * sizeof *x);
    if (!x) return fail(err, LUCE_E_NOMEM, "out of memory for a state");
    for (uint64_t i = 0; i < n; i++)        /* a large model's 40 million would take seconds */
        x[i] = i < DRAWN ? 0.1f * (float)rng_normal(seed, KV_STATE, i) : x[i - DRAWN];
    luce_status st = c->config.device->fns->page_write(c->config.device, c->on_device, KV_STATE, s->slot, x, err);
    mem_free(x);
    if (!st) st = seq_checkpoint(s, err);
    seq_turn(s);
    return st;
}
