/* engine/text.c - see text.h, and the text functions of luce.h. */
#include "engine/text.h"

#include "base/mem.h"
#include "engine/inside.h"

luce_status text_to_ids(const luce_text *text, const struct vocab *v, struct ids *out, luce_error *err)
{
    if (!v) return fail(err, LUCE_E_UNSUPPORTED, NO_VOCABULARY, "the model");
    struct text_span *spans = NULL;
    if (text->n_special) {
        spans = mem_array(text->n_special, sizeof *spans);
        if (!spans) return fail(err, LUCE_E_NOMEM, "out of memory for %zu spans", text->n_special);
    }
    for (size_t i = 0; i < text->n_special; i++)
        spans[i] = (struct text_span){ text->special[i].from, text->special[i].to, SPAN_TEMPLATE };
    struct tokenize t = {
        .text = { text->at, text->bytes }, .spans = spans, .n_spans = text->n_special,
        .flags = (text->flags & LUCE_SPECIAL ? TOKENIZE_SPECIAL : 0u) |
                 (text->flags & LUCE_BOS ? TOKENIZE_BOS_EOS : 0u) |
                 (text->flags & LUCE_CHAT ? TOKENIZE_CHAT : 0u),
    };
    luce_status st = vocab_tokenize_spans(v, &t, out, err);
    mem_free(spans);
    return st;
}

luce_status luce_tokenize(const luce_model *m, const luce_text *text, int32_t **ids, size_t *n_ids,
                          luce_error *err)
{
    struct ids got = { 0 };
    luce_status st = text_to_ids(text, m->vocab, &got, err);
    if (st) ids_drop(&got);
    *ids = st ? NULL : got.at;
    *n_ids = st ? 0 : got.len;
    return st;
}

luce_status luce_detokenize(const luce_model *m, const int32_t *ids, size_t n_ids, unsigned flags,
                            char **text, size_t *bytes, luce_error *err)
{
    *text = NULL;
    *bytes = 0;
    if (!m->vocab) return fail(err, LUCE_E_UNSUPPORTED, NO_VOCABULARY, "the model");
    struct detok d = { 0 };
    struct buf out = { 0 };
    luce_status st = LUCE_OK;
    for (size_t i = 0; i < n_ids && !st; i++) {
        if (ids[i] < 0 || ids[i] >= vocab_size(m->vocab))
            st = fail(err, LUCE_E_ARG, "token %zu is %d; the model's ids are 0 to %d", i, ids[i],
                      vocab_size(m->vocab) - 1);
        else if (flags & LUCE_RAW)
            token_bytes(m->vocab, ids[i], flags & LUCE_SPECIAL ? DETOK_SPECIAL : 0, &out);
        else detok_add(&d, m->vocab, ids[i], flags & LUCE_SPECIAL ? DETOK_SPECIAL : 0, &out);
    }
    detok_end(&d, &out);
    buf_add(&out, "", 0);                   /* a text, even when it is empty */
    if (!st && out.failed) st = fail(err, LUCE_E_NOMEM, "out of memory for the text of %zu tokens", n_ids);
    if (st) {
        buf_drop(&out);
        return st;
    }
    *text = out.data;
    *bytes = out.len;
    return LUCE_OK;
}

void luce_free(void *p)
{
    mem_free(p);
}
