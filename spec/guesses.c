/* spec/guesses.c - see guesses.h. */
#include "spec/guesses.h"

#include <math.h>

#include "base/mem.h"

enum {
    OTHER_SPECIALS = 64,            /* special tokens that may differ */
    OTHER_SIZE = 256,               /* ids that one vocabulary may have more (padding) */
};

luce_status guesses_read(struct runner *r, const struct sayable *say, int out, int n, struct candidates *c,
                         luce_error *err)
{
    const struct record *rec = runner_record(r);
    int k = tape_shape(runner_tape(r), rec->ids).cols;
    int32_t ids[STEP_OUTS * LIKELY_MOST];
    float likely[STEP_OUTS * LIKELY_MOST];
    luce_status st = runner_read(r, rec->ids, out, n, ids, err);
    if (!st) st = runner_read(r, rec->likely, out, n, likely, err);
    for (int i = 0; i < n && !st; i++) {
        c[i].n = 0;
        for (int j = i * k; j < (i + 1) * k && ids[j] >= 0; j++) {
            int32_t id = say->token ? say->token[ids[j]] : ids[j];
            if (id >= say->n_tokens || (say->vocab && vocab_is_banned(say->vocab, id))) continue;
            c[i].token[c[i].n] = id;
            c[i].log_likely[c[i].n++] = likely[j];
        }
    }
    return st;
}

int guesses_grow(struct draft *d, int node, const struct candidates *c, int32_t *token)
{
    float reach = d->tree.likely[node];
    int n = d->most > d->depth ? c->n : c->n < 1 ? 0 : 1, first = -1;
    for (int i = 0; i < n; i++) {
        int child = tree_add(&d->tree, node, c->token[i], reach * expf(c->log_likely[i]));
        if (i == 0) first = child;
    }
    *token = n ? c->token[0] : 0;
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
