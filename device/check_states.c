/* device/check_states.c - what the calls of a recurrent layer leave behind (check.h). SHORT_CONV owns the columns of
 * the state and the journal's inputs, DELTA the memory and the other parts; calls may touch their own parts of the
 * slots that are in the step, and nothing else. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "device/check_rig.h"

enum { CASE_WRITERS = 2 };       /* calls of a case that write a layer's state: SHORT_CONV, DELTA */

struct part {
    int pool;
    uint64_t at, size;          /* numbers of a page */
};

struct state_error {
    double error, energy;
    bool moved;                 /* something changed that the call must not touch */
};

static bool in_step(const struct step *s, int slot)
{
    for (int i = 0; i < s->head.n_seqs; i++)
        if (s->seq[i].slot == slot) return true;
    return false;
}

static bool within(const struct part *parts, int n, int pool, uint64_t at)
{
    for (int i = 0; i < n; i++)
        if (parts[i].pool == pool && at >= parts[i].at && at - parts[i].at < parts[i].size) return true;
    return false;
}

static bool same_bits(const float *a, const float *b)
{
    uint32_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x == y;
}

static void compare(struct state_error *e, const float *before, const float *after, const double *want, uint64_t n,
                    const struct part *parts, int n_parts, int pool, uint64_t layer_at)
{
    for (uint64_t i = 0; i < n; i++) {
        if (!want || !within(parts, n_parts, pool, i)) {
            e->moved = e->moved || !same_bits(&before[i], &after[i]);
            continue;
        }
        double wanted = want[i - layer_at], diff = after[i] - wanted;
        e->error += isfinite(diff) ? diff * diff : (double)INFINITY;
        e->energy += wanted * wanted;
    }
}

static int parts_of(const struct kv_layer *y, int op, struct part parts[2])
{
    uint64_t conv = kv_conv_size(&y->state), state = y->offset / sizeof(float), journal = y->journal / sizeof(float);
    uint64_t keys = kv_journal_at(&y->state, JOURNAL_KEY), end = kv_journal_at(&y->state, JOURNAL_PARTS);
    bool is_conv = op == OP_SHORT_CONV;
    parts[0] = is_conv ? (struct part){ KV_STATE, state, conv }
                       : (struct part){ KV_STATE, state + conv, kv_memory_size(&y->state) };
    parts[1] = is_conv ? (struct part){ KV_JOURNAL, journal, keys }
                       : (struct part){ KV_JOURNAL, journal + keys, end - keys };
    return 2;
}

luce_status check_states(struct check_walk *w, struct rig *r, struct interp *ref, const struct call *writer,
                         luce_error *err)
{
    const struct case_env *env = r->env;
    const struct kv_layer *y = &env->kv.layer[writer->layer];
    struct part parts[2 * CASE_WRITERS];
    int n_parts = 0;
    for (int i = 0; i < r->tape.n_calls && n_parts < 2 * CASE_WRITERS; i++)
        if (r->tape.calls[i].layer == writer->layer) n_parts += parts_of(y, r->tape.calls[i].op, parts + n_parts);
    struct state_error e = { 0 };
    luce_status st = LUCE_OK;
    for (int pool = KV_STATE; !st && pool <= KV_JOURNAL; pool++) {
        uint64_t bytes = env->kv.kind[pool].page_bytes, layer_at = (pool == KV_STATE ? y->offset : y->journal) / 4;
        float *after = mem_alloc(bytes);
        if (!after) return fail(err, LUCE_E_NOMEM, "out of memory for a state");
        for (int page = 0; !st && page < env->n_pages[pool]; page++) {
            const void *before = env->pages[pool] + (uint64_t)page * bytes;
            const double *want = NULL;
            if (in_step(env->step, page))
                want = pool == KV_STATE ? interp_state(ref, writer->layer, page)
                                        : interp_journal(ref, writer->layer, page);
            st = r->d->fns->page_read(r->d, r->cache, pool, page, after, err);
            if (!st) compare(&e, before, after, want, bytes / sizeof *after, parts, n_parts, pool, layer_at);
        }
        mem_free(after);
    }
    if (st) return st;
    check_report(w, "states and journals", e.energy > 0 ? e.error / e.energy : e.error, rig_tolerance(r));
    check_report(w, "other states", e.moved ? (double)INFINITY : 0, 0);
    return LUCE_OK;
}
