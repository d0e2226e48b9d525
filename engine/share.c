/* engine/share.c - prompts that begin alike are read once. A request without rows waits for an older one
 * that reads the same tokens, and then shares its pages; rows that wide steps computed only, which are what
 * it would have computed itself. */
#include "engine/scheduler.h"

/* Positions of whole pages that r can share with an older request, which has or will have them. The last
 * token of r is fed in any case: its logits are wanted. */
static int alike(const struct request *r, const struct request *older)
{
    int most = older->n_before + older->n_prompt, n = 0;
    if (most > r->n_ids - 1) most = r->n_ids - 1;
    while (n < most && r->ids[n] == older->ids[n]) n++;
    return n - n % PAGE;
}

/* A drafter that reads the model's features needs the rows of its text to be computed. */
static bool needs_rows(const struct scheduler *s)
{
    const struct drafter *d = s->speculator ? drafter_find(speculator_name(s->speculator)) : NULL;
    return d && d->takes_file;
}

void scheduler_share(struct scheduler *s)
{
    if (needs_rows(s)) return;
    for (int i = 0; i < s->n_active; i++) {
        struct request *r = s->active[i], *from = NULL;
        int most = 0;
        r->waits = false;
        if (r->state != REQUEST_PROMPT || seq_length(r->seq) > 0 || request_wants_all(r)) continue;
        for (int j = 0; j < i; j++) {
            int n = alike(r, s->active[j]);
            if (n > most) {
                most = n;
                from = s->active[j];
            }
        }
        if (!from) continue;
        int have = seq_wide(from->seq) / PAGE * PAGE;
        if (have > most) have = most;
        r->waits = have < most && from->state == REQUEST_PROMPT;
        /* Where it cannot be shared (a window has moved on), r reads for itself. */
        if (!r->waits && have > 0 && !seq_share(r->seq, from->seq, have, NULL)) r->n_reused = have;
    }
}
