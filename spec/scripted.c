/* spec/scripted.c - a drafter that is told what comes, and how much of it to get right: for tests, and
 * for measuring what drafting, checking and committing cost at a given acceptance, on weights of any
 * kind. It offers one chain: right tokens first, wrong ones after them. */
#include "base/mem.h"
#include "base/rng.h"
#include "spec/drafter.h"

struct drafter_state {
    int vocab;
};

static luce_status open_scripted(struct drafter_state **out, const struct drafter_env *env, luce_error *err)
{
    *out = NULL;
    *out = mem_zero(sizeof **out);
    if (!*out) return fail(err, LUCE_E_NOMEM, "out of memory for the drafter 'scripted'");
    (*out)->vocab = runner_model(env->target)->c.vocab;
    return LUCE_OK;
}

/* A whole number whose mean over positions is `right`. */
static int right_now(const struct script *s, int n_ids)
{
    int whole = (int)s->right;
    return whole + (rng_uniform(1, 1, (uint64_t)n_ids) < s->right - whole);
}

static luce_status propose(struct drafter_state *s, struct draft *const *drafts, int n, luce_error *err)
{
    (void)err;
    for (int i = 0; i < n; i++) {
        struct draft *d = drafts[i];
        if (!d->script) continue;
        int at = d->n_ids - d->script->from, right = right_now(d->script, d->n_ids), node = 0;
        for (int k = 0; k < d->depth && k < d->most && node >= 0; k++, at++) {
            bool known = at >= 0 && at < d->script->n;
            int32_t token = known ? d->script->tokens[at] : 0;
            if (k >= right) token = (token + 1) % s->vocab;
            node = tree_add(&d->tree, node, token, k < right ? 1 : d->tree.likely[node] / 2);
        }
    }
    return LUCE_OK;
}

static void close_scripted(struct drafter_state *s)
{
    mem_free(s);
}

const struct drafter drafter_scripted = {
    .name = "scripted", .told = true, .doc = "is told the text and how much to get right; for measurements",
    .most = 15, .block = 16, .open = open_scripted, .propose = propose, .close = close_scripted,
};
