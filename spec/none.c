/* spec/none.c - no guess: plain decoding. */
#include "spec/drafter.h"

static luce_status open_none(struct drafter_state **out, const struct drafter_env *env, luce_error *err)
{
    (void)env, (void)err;
    *out = NULL;
    return LUCE_OK;
}

/* Its steps follow each other, where the device takes such. */
static luce_status prepare(const struct drafter_env *env, struct record_params *record, luce_error *err)
{
    (void)env, (void)err;
    record->ahead = true;
    return LUCE_OK;
}

static luce_status propose(struct drafter_state *s, struct draft *const *drafts, int n, luce_error *err)
{
    (void)s, (void)drafts, (void)n, (void)err;
    return LUCE_OK;
}

static void close_none(struct drafter_state *s)
{
    (void)s;
}

const struct drafter drafter_none = {
    .name = "none", .doc = "plain decoding, one token a step", .prepare = prepare, .open = open_none,
    .propose = propose, .close = close_none,
};
