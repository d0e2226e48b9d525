/* engine/share.c - what the cache has of a prompt is not read again. A request claims it before its first row;
 * while an older one reads the same tokens it waits, and claims them then. */
#include "engine/scheduler.h"

/* Positions of whole pages that r has in common with the prompt of an older request. The last token of r is fed in
 * any case: its logits are wanted. */
static int alike(const struct request *r, const struct request *older)
{
    int most = older->n_before + older->n_prompt, n = 0;
    if (most > r->n_ids - 1) most = r->n_ids - 1;
    while (n < most && r->ids[n] == older->ids[n]) n++;
    return n - n % PAGE;
}

/* An older request is still to read what r begins with, beyond what can be claimed now. */
static bool worth_waiting(struct scheduler *s, const struct request *r, int i)
{
    struct request *from = NULL;
    int most = seq_length(r->seq);
    for (int j = 0; j < i; j++) {
        struct request *older = s->active[j];
        int n = older->state == REQUEST_PROMPT && !older->asked->fresh ? alike(r, older) : 0;
        if (n <= most || seq_length(older->seq) >= n) continue;
        most = n;
        from = older;
    }
    if (!from || cache_find(runner_cache(s->runner), r->ids, most) >= most) return false;
    seq_want_checkpoint(from->seq, most);
    return true;
}

void scheduler_share(struct scheduler *s)
{
    for (int i = 0; i < s->n_active; i++) {
        struct request *r = s->active[i];
        if (r->begun) continue;
        bool may = !request_wants_all(r) && !r->asked->fresh;
        r->waits = (i > 0 && s->n_left < r->waits_until) || (may && worth_waiting(s, r, i));
        if (r->waits) continue;
        r->begun = true;
        int reused = may ? seq_claim(r->seq, r->ids, r->n_ids - 1) : seq_length(r->seq);
        if (!r->restarts) r->n_reused = reused;
        if (!r->restarts && r->asked->on_begin) r->asked->on_begin(r->asked->user, (size_t)reused);
        seq_turn(r->seq);
    }
}
