/* tests/drafter_rig.c - see drafter_rig.h. */
#include "drafter_rig.h"

bool drafter_rig_open(struct drafter_rig *g, const struct drafter_rig_params *p)
{
    luce_error err = { 0 };
    struct model *m = NULL;
    *g = (struct drafter_rig){ .device = p->device, .drafter = drafter_find(p->drafter) };
    struct drafter_env env = { .path = p->path };
    luce_status st = gguf_open(&g->file, fixture(p->target), &err);
    if (!st && !g->device) st = device_open(&g->device, "cpu", &(struct device_params){ .n_threads = 2 }, &err);
    if (!st) st = model_open(&m, g->file, &err);
    struct load_params load = { .device = g->device, .n_slots = p->n_slots, .context = p->context };
    env.model = m;
    if (!st) st = g->drafter->prepare(&env, &load.record, &err);
    if (!st) st = runner_open(&g->target, m, &load, &err);
    env.target = g->target;
    if (!st) st = g->drafter->open(&g->state, &env, &err);
    CHECK_OK(st, err);
    return !st;
}

void drafter_rig_close(struct drafter_rig *g)
{
    if (g->state) g->drafter->close(g->state);
    runner_close(g->target);
    device_close(g->device);
    gguf_close(g->answers);
    gguf_close(g->file);
}

void drafter_rig_feed(struct drafter_rig *g, struct seq *s, const int32_t *ids, int to, int width,
                      enum step_class class)
{
    luce_error err = { 0 };
    for (int at = seq_length(s); at < to; at = seq_length(s)) {
        int n = to - at < width ? to - at : width;
        runner_begin(g->target, class);
        CHECK_OK(runner_add(g->target, s, ids + at, NULL, n, WANT_NONE, NULL, &err), err);
        CHECK_OK(runner_run(g->target, &err), err);
        if (class == STEP_NARROW) seq_accept(s, NULL, n);
        struct observed o = { .slot = seq_slot(s), .ids = ids, .at = at, .first_row = 0, .n = n };
        CHECK_OK(g->drafter->observe(g->state, &o, &err), err);
    }
}
