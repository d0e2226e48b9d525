/* run/load.c - what a model takes on its device, and bringing it there.
 * The plan is made of numbers that are known before anything is claimed: weights in the device's
 * layout, page pools, and the arena of the widest step. What does not fit is refused with them. */
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "quant/quant.h"
#include "run/inside.h"

enum { DEFAULT_CHUNK = 512, LONGEST_CONTEXT = 1 << 28 };

luce_status cache_format(const char *name, uint32_t *out, luce_error *err)
{
    const struct format *f = format_named(name);
    for (size_t i = 0; f && kv_format(i); i++)
        if (f == kv_format(i)) {
            *out = f->id;
            return LUCE_OK;
        }
    return kv_refuse_format("cache type", name, err);
}

struct bucket bucket_of(int i, int chunk)
{
    int rows = i == WIDE_BUCKET ? chunk : 1 << i;
    int outs = i == WIDE_BUCKET ? (rows < STEP_OUTS ? rows : STEP_OUTS) : rows;
    int seqs = i == WIDE_BUCKET || rows > STEP_SEQS ? STEP_SEQS : rows;
    return (struct bucket){ .rows = { [DOM_ROWS] = rows, [DOM_OUT] = outs, [DOM_SEQS] = seqs },
                            .class = i == WIDE_BUCKET ? STEP_WIDE : STEP_NARROW };
}

luce_status chunk_of(const struct load_params *p, int *chunk, luce_error *err)
{
    int rows = p->chunk ? p->chunk : p->device->max_wide_rows ? p->device->max_wide_rows : DEFAULT_CHUNK;
    if (rows < 1 || rows > STEP_ROWS)
        return fail(err, LUCE_E_ARG, "a chunk of %d rows; expected 1 to %d", rows, STEP_ROWS);
    if (!p->device->equal_bits) rows = (rows + PAGE - 1) / PAGE * PAGE;
    *chunk = rows;
    return LUCE_OK;
}

static int slots_of(const struct load_params *p)
{
    return p->n_slots ? p->n_slots : 1;
}

struct cache_config cache_config_of(const struct load_params *p, const struct kv_layout *kv, int context,
                                    int chunk)
{
    int64_t each = ((int64_t)context + PAGE - 1) / PAGE * PAGE;
    int64_t total = p->total_positions > each ? p->total_positions : each;
    return (struct cache_config){ .device = p->device, .layout = kv, .n_slots = slots_of(p),
                                  .max_positions = context, .step_rows = chunk,
                                  .reuse = p->reuse, .kept_bytes = p->kept_bytes,
                                  .total_positions = p->total_positions ? total : each * slots_of(p) };
}

/* The largest context, up to `most`, whose cache takes at most `bytes`; 0 when none does. */
static int context_for(const struct load_params *p, const struct kv_layout *kv, int chunk, uint64_t bytes,
                       int most)
{
    int low = 0, high = most;
    while (low < high) {
        int mid = low + (high - low + 1) / 2;
        struct cache_config c = cache_config_of(p, kv, mid, chunk);
        if (cache_bytes(&c) <= bytes) low = mid;
        else high = mid - 1;
    }
    return low;
}

const struct tape *tape_of(const struct model *m, const struct tape *tapes, enum step_class class)
{
    return &tapes[m->family->record ? class : 0];
}

static luce_status scratch_bytes(const struct model *m, const struct tape *tapes, int chunk, uint64_t *out,
                                 luce_error *err)
{
    *out = 0;
    for (int i = WIDE_BUCKET - 1; i <= WIDE_BUCKET; i++) {
        struct plan plan;
        struct bucket b = bucket_of(i, chunk);
        luce_status st = plan_make(&plan, tape_of(m, tapes, b.class), b, err);
        if (!st && plan.bytes > *out) *out = plan.bytes;
        plan_drop(&plan);
        if (st) return st;
    }
    return LUCE_OK;
}

static luce_status refuse(const struct load_plan *plan, const struct device_info *info, uint64_t usable,
                          luce_error *err)
{
    char remedy[120] = "no context fits: use a smaller model or format, or another device";
    if (plan->context_fits)
        snprintf(remedy, sizeof remedy, "the largest context that fits is %d", plan->context_fits);
    double mib = 1 << 20;
    return fail(err, LUCE_E_DEVMEM, "%s (%s) has too little memory: weights %.1f MiB + cache %.1f MiB (context "
                "%d) + scratch %.1f MiB = %.1f MiB wanted, %.1f MiB free (%.1f MiB usable); %s", info->id,
                info->name, (double)plan->weights / mib, (double)plan->cache / mib, plan->context,
                (double)plan->scratch / mib, (double)(plan->weights + plan->cache + plan->scratch) / mib,
                (double)plan->free / mib, (double)usable / mib, remedy);
}

luce_status plan_load(const struct model *m, const struct kv_layout *kv, const struct tape *tapes,
                      const struct load_params *p, struct load_plan *plan, luce_error *err)
{
    struct device_info info = { 0 };
    int chunk = 0;
    *plan = (struct load_plan){ 0 };
    if (p->context < 0 || p->context > LONGEST_CONTEXT || p->total_positions < 0)
        return fail(err, LUCE_E_ARG, "a context of %d; expected 1 to %d, or 0 for what fits", p->context,
                    LONGEST_CONTEXT);
    if (slots_of(p) < 1 || slots_of(p) > STEP_SEQS)
        return fail(err, LUCE_E_ARG, "%d sequences at once; expected 1 to %d", p->n_slots, STEP_SEQS);
    luce_status st = chunk_of(p, &chunk, err);
    if (!st) st = p->device->fns->info(p->device, &info, err);
    if (!st) st = scratch_bytes(m, tapes, chunk, &plan->scratch, err);
    if (st) return st;
    for (int i = 0; i < m->n_weights; i++)
        plan->weights += p->device->fns->weight_bytes(p->device, &m->weights[i]);
    plan->free = info.memory_free;
    uint64_t usable = plan->free - plan->free / 20;     /* the rest of the system lives too */
    uint64_t fixed = plan->weights + plan->scratch;
    uint64_t for_cache = usable > fixed ? usable - fixed : 0;
    plan->context_fits = context_for(p, kv, chunk, for_cache, m->c.context);
    plan->context = p->context ? p->context : plan->context_fits ? plan->context_fits : m->c.context;
    struct cache_config c = cache_config_of(p, kv, plan->context, chunk);
    plan->cache = cache_bytes(&c);
    if (plan->context > m->c.context)
        return fail(err, LUCE_E_CONTEXT, "a context of %d positions; this model takes up to %d, and %d fit the memory; "
                    "give -c %d or less, or 0", plan->context, m->c.context, plan->context_fits,
                    plan->context_fits ? plan->context_fits : m->c.context);
    if (plan->cache > for_cache || fixed > usable) return refuse(plan, &info, usable, err);
    return LUCE_OK;
}

luce_status upload_weights(struct model *m, const struct load_params *p, luce_error *err)
{
    struct device *d = p->device;
    uint64_t total = 0, done = 0;
    for (int i = 0; i < m->n_weights; i++) total += m->weights[i].host_bytes;
    for (int i = 0; i < m->n_weights; i++) {
        struct weight *w = &m->weights[i];
        if (p->cancelled && p->cancelled(p->progress_context))
            return fail(err, LUCE_E_CANCELLED, "cancelled while the weights were loaded");
        luce_status st = d->fns->upload(d, w, err);
        if (st) return st;
        done += w->host_bytes;
        if (w->host && m->file) gguf_release_range(m->file, w->host, w->host_bytes);
        if (p->progress) p->progress(p->progress_context, total ? (double)done / (double)total : 1);
    }
    return LUCE_OK;
}

void release_weights(struct model *m, struct device *d)
{
    for (int i = 0; i < m->n_weights; i++)
        if (m->weights[i].dev || m->weights[i].layout) d->fns->release(d, &m->weights[i]);
}
