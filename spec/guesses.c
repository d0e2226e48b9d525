/* spec/guesses.c - see guesses.h. */
#include "spec/guesses.h"

#include <math.h>

#include "base/exp.h"
#include "base/mem.h"

enum {
    SUMS = 16,                      /* side by side */
    BRANCHES = 4,                   /* children of a node, at most */
    OTHER_SPECIALS = 64,            /* special tokens that may differ */
    OTHER_SIZE = 256,               /* ids that one vocabulary may have more (padding) */
};

/* Of one logit; none for NaN. */
INLINE float share_of(float x, float max)
{
    return exp_f32(x == x ? x - max : -INFINITY);
}

/* Sum of exp(x - max). */
static double sum_of_exp(const float *x, int n, float max)
{
    float part[SUMS] = { 0 };
    double sum = 0;
    int i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++) part[j] += share_of(x[i + j], max);
    for (; i < n; i++) part[0] += share_of(x[i], max);
    for (int j = 0; j < SUMS; j++) sum += (double)part[j];
    return sum;
}

int likeliest(const float *logits, int n_logits, const int32_t *token, const struct vocab *v, int n, int32_t *ids,
              float *log_likely)
{
    int found = 0;
    for (int i = 0; i < n_logits; i++) {
        if (isnan(logits[i]) || (found == n && logits[i] <= logits[ids[n - 1]])) continue;
        int32_t id = token ? token[i] : i;
        if (v && (id >= vocab_size(v) || vocab_is_banned(v, id))) continue;
        int at = found < n ? found++ : n - 1;
        for (; at > 0 && logits[i] > logits[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = i;
    }
    if (found == 0) return 0;
    float max = logits[ids[0]];         /* of what is allowed: others may be above */
    double sum = sum_of_exp(logits, n_logits, max);
    for (int i = 0; i < found; i++) {
        log_likely[i] = logits[ids[i]] - max - (float)log(sum);
        if (token) ids[i] = token[ids[i]];
    }
    return found;
}

int guesses_grow(struct draft *d, int node, const float *logits, int n_logits, const struct vocab *v, int32_t *token)
{
    int32_t ids[BRANCHES] = { 0 };
    float likely[BRANCHES], reach = d->tree.likely[node];
    int n = likeliest(logits, n_logits, NULL, v, d->most > d->depth ? BRANCHES : 1, ids, likely), first = -1;
    for (int i = 0; i < n; i++) {
        int child = tree_add(&d->tree, node, ids[i], reach * expf(likely[i]));
        if (i == 0) first = child;
    }
    *token = ids[0];
    return first;
}

static luce_status differ(const struct drafter_env *env, const struct vocab *own, int id, luce_error *err)
{
    struct str a = vocab_text(env->vocab, id), b = vocab_text(own, id);
    return fail(err, LUCE_E_ARG, "%s: the draft model has another vocabulary than the model: token %d is '%.*s' "
                "there and '%.*s' in the model. Use a draft model of the same family.", env->path, id,
                (int)(b.len < 40 ? b.len : 40), b.at, (int)(a.len < 40 ? a.len : 40), a.at);
}

static bool is_special(const struct vocab *v, int id)
{
    enum token_kind kind = vocab_kind(v, id);
    return kind != TOKEN_NORMAL && kind != TOKEN_BYTE;
}

luce_status drafter_check_vocab(const struct drafter_env *env, const struct vocab *own, luce_error *err)
{
    int n = vocab_size(env->vocab), m = vocab_size(own), specials = 0;
    int least = n < m ? n : m;
    for (int id = 0; id < least; id++) {
        if (str_eq(vocab_text(env->vocab, id), vocab_text(own, id))) continue;
        bool special = is_special(env->vocab, id) && is_special(own, id);
        if (!special || ++specials > OTHER_SPECIALS) return differ(env, own, id, err);
    }
    if (n - m > OTHER_SIZE || m - n > OTHER_SIZE)
        return fail(err, LUCE_E_ARG, "%s: the draft model has another vocabulary than the model: %d tokens there, "
                    "%d in the model; token %d is in one of them only. Use a draft model of the same family.",
                    env->path, m, n, least);
    static const struct { const char *name; int role; } roles[] = { { "BOS", ROLE_BOS }, { "EOS", ROLE_EOS } };
    struct vocab_special a = vocab_special(env->vocab), b = vocab_special(own);
    for (size_t i = 0; i < COUNT(roles); i++) {
        int32_t x = a.ids[roles[i].role], y = b.ids[roles[i].role];
        if (x >= 0 && y >= 0 && x != y)
            return fail(err, LUCE_E_ARG, "%s: the draft model's %s token is %d, the model's is %d. Use a draft model "
                        "of the same family.", env->path, roles[i].name, y, x);
    }
    return LUCE_OK;
}
