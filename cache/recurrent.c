/* cache/recurrent.c - checkpoints of the states of recurrent layers; see cache.h and tape/kv.h.
 * The slot's state on the device stands after seq_in_pages positions, except when `stale`. A checkpoint that
 * another sequence shares is never written again: it is let go, and a new page claimed. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cache/inside.h"

static bool recurrent(const struct cache *c)
{
    return c->state != NULL;
}

static luce_status copy_state(struct cache *c, int32_t from, int32_t to, luce_error *err)
{
    struct device *d = c->config.device;
    luce_status st = d->fns->page_read(d, c->on_device, KV_STATE, from, c->state, err);
    return st ? st : d->fns->page_write(d, c->on_device, KV_STATE, to, c->state, err);
}

static void forget(struct seq *s, int i)
{
    page_release(&s->cache->states, s->checkpoint[i].page);
    s->n_checkpoints--;
    memmove(&s->checkpoint[i], &s->checkpoint[i + 1], (size_t)(s->n_checkpoints - i) * sizeof *s->checkpoint);
}

/* The one whose neighbours are closest to each other; the first and the last only if they are all. */
static int least_missed(const struct seq *s)
{
    int best = 0, least = INT32_MAX;
    for (int i = 1; i + 1 < s->n_checkpoints; i++) {
        int gap = s->checkpoint[i + 1].at - s->checkpoint[i - 1].at;
        if (gap >= least) continue;
        best = i;
        least = gap;
    }
    return best;
}

/* Whether a checkpoint at `at` makes the last one superfluous. */
static bool replaces(const struct seq *s, int at)
{
    const struct checkpoint *last = &s->checkpoint[s->n_checkpoints - 1];
    bool ends_prompt = last->at <= s->wide && at > s->wide;
    return !last->keep && !ends_prompt && last->at % CHECKPOINT_EVERY != 0;
}

luce_status seq_checkpoint(struct seq *s, luce_error *err)
{
    struct cache *c = s->cache;
    int at = seq_in_pages(s), n = s->n_checkpoints;
    if (!recurrent(c) || at == 0 || at % PAGE || (n && s->checkpoint[n - 1].at >= at)) return LUCE_OK;
    if (n && replaces(s, at)) forget(s, n - 1);
    while (s->n_checkpoints && (s->n_checkpoints == MOST_CHECKPOINTS || c->states.n_free == 0))
        forget(s, least_missed(s));
    if (c->states.n_free == 0) return LUCE_OK;          /* other sequences hold them all */
    int32_t page = page_claim(&c->states);
    luce_status st = copy_state(c, s->slot, page, err);
    if (st) page_release(&c->states, page);
    else s->checkpoint[s->n_checkpoints++] = (struct checkpoint){ .at = at, .page = page };
    return st;
}

void seq_keep_checkpoint(struct seq *s)
{
    if (s->n_checkpoints) s->checkpoint[s->n_checkpoints - 1].keep = true;
}

int seq_checkpoints(const struct seq *s, int *at, int most)
{
    for (int i = 0; i < s->n_checkpoints && i < most; i++) at[i] = s->checkpoint[i].at;
    return s->n_checkpoints;
}

int checkpoints_truncate(struct seq *s, int n)
{
    while (s->n_checkpoints && s->checkpoint[s->n_checkpoints - 1].at > n) forget(s, s->n_checkpoints - 1);
    return s->n_checkpoints ? s->checkpoint[s->n_checkpoints - 1].at : 0;
}

bool checkpoints_share(struct seq *s, const struct seq *from, int n)
{
    int k = 0;
    while (k < from->n_checkpoints && from->checkpoint[k].at <= n) k++;
    if (!recurrent(s->cache) || n == 0) return true;
    if (k == 0 || from->checkpoint[k - 1].at != n) return false;
    for (s->n_checkpoints = 0; s->n_checkpoints < k; s->n_checkpoints++) {
        s->checkpoint[s->n_checkpoints] = from->checkpoint[s->n_checkpoints];
        page_share(&s->cache->states, s->checkpoint[s->n_checkpoints].page);
    }
    seq_keep_checkpoint(s);
    s->stale = true;
    return true;
}

luce_status checkpoint_restore(struct seq *s, luce_error *err)
{
    if (!s->stale) return LUCE_OK;
    /* Without a checkpoint the sequence is empty, and kernels begin it at zero. */
    luce_status st = LUCE_OK;
    if (s->n_checkpoints) st = copy_state(s->cache, s->checkpoint[s->n_checkpoints - 1].page, s->slot, err);
    if (!st) s->stale = false;
    return st;
}

int seq_part(const struct seq *s)
{
    int first = seq_in_pages(s), boundary = s->length / PAGE * PAGE;
    return recurrent(s->cache) && boundary > first && boundary < s->length ? boundary - first : 0;
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
}

luce_status state_fill_random(struct seq *s, uint64_t seed, luce_error *err)
{
    struct cache *c = s->cache;
    if (!recurrent(c)) return LUCE_OK;
    float *x = c->state;
    for (uint64_t i = 0; i < c->config.layout->kind[KV_STATE].page_bytes / sizeof *x; i++)
        x[i] = 0.1f * (float)rng_normal(seed, KV_STATE, i);
    luce_status st = c->config.device->fns->page_write(c->config.device, c->on_device, KV_STATE, s->slot, x, err);
    if (!st) st = seq_checkpoint(s, err);
    seq_keep_checkpoint(s);
    return st;
}
