/* model/mtp.c - see mtp.h. */
#include "model/mtp.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/bind.h"
#include "ops/record.h"
#include "quant/quant.h"

struct block {                      /* as the file has it */
    struct mtp mtp;
    const struct weight *join;      /* [2 embd, embd]: a row of E, then the row of H */
};
#define AT(f) offsetof(struct block, f)
static const struct bind binds[] = {
    { "nextn.eh_proj.weight",          AT(join),            DIM_EMBD2, DIM_EMBD,  WHOLE,  0 },
    { "nextn.enorm.weight",            AT(mtp.embd_norm),   DIM_EMBD,  DIM_NONE,  WHOLE,  0 },
    { "nextn.hnorm.weight",            AT(mtp.hidden_norm), DIM_EMBD,  DIM_NONE,  WHOLE,  0 },
    { "nextn.shared_head_norm.weight", AT(mtp.norm),        DIM_EMBD,  DIM_NONE,  WHOLE,  OPTIONAL },
    { "nextn.embed_tokens.weight",     AT(mtp.embd),        DIM_EMBD,  DIM_VOCAB, WHOLE,  OPTIONAL },
    { "nextn.shared_head_head.weight", AT(mtp.head),        DIM_EMBD,  DIM_VOCAB, BY_ROW, OPTIONAL },
};
#undef AT

static void record(struct tape *t, const struct model *m, enum step_class class, struct record *out)
{
    const struct decoder *c = &m->c;
    const struct mtp *p = m->mtp;
    (void)class;
    out->given = tape_input(t, "hidden before", (struct shape){ DOM_ROWS, DT_F32, c->embd });
    struct val e = op_norm(t, op_embed(t, p->embd, c->embed_scale), p->embd_norm, c->eps);
    struct val h = op_norm(t, out->given, p->hidden_norm, c->eps);
    struct val x = op_linear_add(t, h, p->join_hidden, NULL, op_linear(t, e, p->join_embd, NULL));
    x = m->family->record_layer(t, m, 0, x);
    out->hidden = op_norm(t, op_take(t, x), p->norm, c->eps);
    tape_keep(t, out->hidden, "hidden");
    out->logits = op_head(t, out->hidden, p->head, c->softcap);
    tape_keep(t, out->logits, "logits");
    out->argmax = op_argmax(t, out->logits);
    tape_keep(t, out->argmax, "argmax");
    record_ids(t, MTP_LIKELY, 0, out);
}

bool mtp_has(const struct model *target)
{
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s", target->c.n_layers, binds[0].tensor);
    return decoder_has_block(&target->c) && !target->synthetic && target->file && gguf_find(target->file, name);
}

/* Half `side` of the columns of a matrix, as one of its own. */
static luce_status half(struct model *m, const struct weight *both, int side, struct weight *out, luce_error *err)
{
    const struct format *f = format_find(both->type);
    uint64_t n = both->dim[0] / 2, bytes = format_bytes(f, n);
    if (n % (uint64_t)f->block)
        return fail(err, LUCE_E_UNSUPPORTED, "%s: tensor '%s' in %s: its halves of %d columns are no whole blocks",
                    gguf_path(m->file), both->name, f->name, m->c.embd);
    uint8_t *rows = arena_alloc(&m->arena, bytes * both->dim[1]);
    if (!rows) return fail(err, LUCE_E_NOMEM, "%s: out of memory for '%s'", gguf_path(m->file), both->name);
    for (uint64_t r = 0; r < both->dim[1]; r++)
        memcpy(rows + r * bytes, both->host + (2 * r + (uint64_t)side) * bytes, bytes);
    *out = (struct weight){ .name = both->name, .dim = { n, both->dim[1], 1 }, .type = both->type, .host = rows,
                            .host_bytes = bytes * both->dim[1] };
    return LUCE_OK;
}

static luce_status bind_all(struct model *m, const struct model *target, luce_error *err)
{
    struct block *b = arena_alloc(&m->arena, sizeof *b);
    if (!b) return fail(err, LUCE_E_NOMEM, "%s: out of memory for the block", gguf_path(m->file));
    luce_status st = bind_block(m, m->file, target->c.n_layers, binds, COUNT(binds), b, 1, err);
    if (st) return st;
    struct weight both = *b->join, *first = &m->weights[b->join - m->weights], *second = &m->weights[m->n_weights++];
    if ((st = half(m, &both, 0, first, err))) return st;
    if ((st = half(m, &both, 1, second, err))) return st;
    b->mtp.join_embd = first;
    b->mtp.join_hidden = second;
    if (!b->mtp.norm) b->mtp.norm = target->output_norm;
    if (!b->mtp.embd) b->mtp.embd = target->token_embd;
    if (!b->mtp.head) b->mtp.head = target->output;
    m->mtp = &b->mtp;
    return kv_layout_add(&m->kv, m->c.layer[0].kv_heads, m->c.head_dim, m->c.head_dim, m->c.layer[0].window, err);
}

luce_status mtp_open(struct model **out, const struct model *target, luce_error *err)
{
    *out = NULL;
    if (!mtp_has(target))
        return fail(err, LUCE_E_ARG, "the model has no block that predicts further tokens (MTP): use another drafter, "
                    "or a file of the model that was converted with it");
    struct model *m = mem_zero(sizeof *m);
    if (!m) return fail(err, LUCE_E_NOMEM, "%s: out of memory for the block", gguf_path(target->file));
    struct family *family = arena_alloc(&m->arena, sizeof *family);
    if (!family) {
        model_close(m);
        return fail(err, LUCE_E_NOMEM, "%s: out of memory for the block", gguf_path(target->file));
    }
    *family = *target->family;
    family->record = record;
    m->family = family;
    m->file = target->file;
    m->c = target->c;
    m->c.layer[0] = target->c.layer[target->c.n_layers];
    m->c.n_layers = 1;
    luce_status st = bind_all(m, target, err);
    if (st) model_close(m);
    else *out = m;
    return st;
}
