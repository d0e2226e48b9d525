/* model/open.c - from a file's header to a model: which kind of file, which family, keys, tensors. */
#include <inttypes.h>

#include "base/mem.h"
#include "model/bind.h"
#include "model/dflash.h"
#include "model/open.h"
#include "model/rope.h"
#include "quant/quant.h"

/* Kinds of GGUF that are no language model, by general.type or architecture. */
static const struct { const char *key, *value, *what; } not_models[] = {
    { "general.type", "adapter", "an adapter (LoRA): it changes another model and cannot run alone" },
    { "general.type", "imatrix", "an importance matrix: it is for the quantize command" },
    { "general.type", "mmproj",  "a vision or audio encoder (mmproj): load the language model it belongs to" },
    { "general.type", "vocab",   "a vocabulary without weights" },
    { "general.architecture", "clip", "a vision or audio encoder (mmproj): load the language model it "
                                      "belongs to" },
};

static luce_status find_family(const struct gguf *g, const struct family **out, luce_error *err)
{
    struct str value;
    luce_status st;
    for (size_t i = 0; i < COUNT(not_models); i++) {
        if ((st = gguf_text(g, not_models[i].key, str_of(""), &value, err))) return st;
        if (str_is(value, not_models[i].value))
            return fail(err, LUCE_E_UNSUPPORTED, "%s is %s", gguf_path(g), not_models[i].what);
    }
    bool second;
    if (dflash_is(g, &second))
        return fail(err, LUCE_E_UNSUPPORTED, "%s is a drafter, not a model: give it with --draft beside its model",
                    gguf_path(g));
    if (!gguf_key(g, "general.architecture"))
        return fail(err, LUCE_E_FORMAT, "%s: key 'general.architecture' is missing: the file is no model",
                    gguf_path(g));
    if ((st = gguf_text(g, "general.architecture", str_of(""), &value, err))) return st;
    if ((*out = family_named(value))) return LUCE_OK;
    struct buf known = { 0 };
    for (size_t i = 0; family_at(i); i++) buf_printf(&known, "%s%s", i ? ", " : "", family_at(i)->arch);
    st = fail(err, LUCE_E_UNSUPPORTED, "%s: architecture '%.*s' is not supported; known: %s", gguf_path(g),
              (int)(value.len < 64 ? value.len : 64), value.at, buf_text(&known));
    buf_drop(&known);
    return st;
}

static luce_status add_caches(struct model *m, luce_error *err)
{
    for (int l = 0; l < m->c.n_layers; l++) {
        const struct layer_shape *s = &m->c.layer[l];
        luce_status st = s->recurrent ? kv_layout_add_state(&m->kv, &m->c.state, err)
                         : kv_layout_add(&m->kv, s->kv_heads, m->c.head_dim, m->c.head_dim, s->window, err);
        if (st) return st;
    }
    return LUCE_OK;
}

luce_status model_open_planned(struct model **out, const struct gguf *g, const struct synthetic_plan *plan,
                               luce_error *err)
{
    const struct family *family = NULL;
    luce_status st = find_family(g, &family, err);
    *out = NULL;
    if (st) return st;
    struct model *m = mem_zero(sizeof *m);
    if (!m) return fail(err, LUCE_E_NOMEM, "%s: out of memory for the model", gguf_path(g));
    m->family = family;
    m->file = g;
    if (plan) {
        struct synthetic_plan *copy = arena_alloc(&m->arena, sizeof *copy);
        if (!copy) {
            st = fail(err, LUCE_E_NOMEM, "%s: out of memory for the model", gguf_path(g));
            goto bad;
        }
        *copy = *plan;
        m->synthetic = copy;
    }
    if ((st = family->configure(m, g, err))) goto bad;
    if ((st = bind_model(m, g, err))) goto bad;
    if ((st = add_caches(m, err))) goto bad;
    *out = m;
    return LUCE_OK;
bad:
    model_close(m);
    return st;
}

luce_status model_open(struct model **out, const struct gguf *g, luce_error *err)
{
    return model_open_planned(out, g, NULL, err);
}

void model_close(struct model *m)
{
    if (!m) return;
    arena_drop(&m->arena);
    gguf_close(m->own);
    buf_drop(&m->header);
    mem_free(m);
}

luce_status model_limit_context(struct model *m, int positions, luce_error *err)
{
    if (positions < 1 || positions > m->c.context)
        return fail(err, LUCE_E_ARG, "a context of %d positions: this model takes 1 to %d", positions,
                    m->c.context);
    m->c.context = positions;
    rope_choose(m, positions);
    return LUCE_OK;
}

static bool is_finite(const struct weight *w, uint64_t *row)
{
    const struct format *f = format_find(w->type);
    uint64_t rows = w->dim[1] * w->dim[2];
    if (!w->host || !f || !f->valid) return true;
    for (*row = 0; *row < rows; ++*row)
        if (!f->valid(weight_row(w, *row, format_bytes(f, w->dim[0])), (int64_t)w->dim[0])) return false;
    return true;
}

luce_status model_check_weights(const struct model *m, luce_error *err)
{
    for (int i = 0; i < m->n_weights; i++) {
        const struct weight *w = &m->weights[i];
        uint64_t row;
        if (!is_finite(w, &row))
            return fail(err, LUCE_E_FORMAT, "%s: tensor '%s' holds values that are not finite, first in row %" PRIu64
                        " of %" PRIu64 ". The file is damaged, or was converted wrongly: fetch or make it again.",
                        gguf_path(m->file), w->name, row, w->dim[1] * w->dim[2]);
    }
    return LUCE_OK;
}
