/* model/dflash_record.c - the forward passes of DFlash (Chen et al. 2026, "DFlash: Block Diffusion for Flash
 * Speculative Decoding") and of DFlash2, its successor with convolutions and a selector.
 *
 * A feature of a position is the outputs of some layers of the target, side by side. A wide step takes
 * features in: each layer's keys and values of a position come from c = norm(fc feature), the same for all
 * layers. A narrow step is a block, at the positions that follow:
 *   x = embedding of (last token, mask, mask, ...)
 *   h = norm(x);  x = x + Wo attn(rope(norm(Wq h)), rope(norm(Wk h)), Wv h)      as qwen3; attention sees
 *   h = norm(x);  x = x + Wdown (silu(Wgate h) * Wup h)                          features and block
 *   logits = head norm(x)
 * DFlash2 puts a convolution over the rows of the block before and after each half: D = Wd h, and
 *   h' = conv_0(h, D) goes into the half, conv_1(half, D) comes out of it. */
#include "model/dflash.h"
#include "ops/record.h"

static struct val mix(struct tape *t, const struct dflash *d, struct val x, struct val dyn, const struct weight *base,
                      int side)
{
    return op_conv(t, x, dyn, base, &(struct conv_attr){ .taps = d->taps, .group = d->group, .side = side });
}

static struct val record_attn(struct tape *t, const struct model *m, int l, struct val x)
{
    const struct decoder *c = &m->c;
    const struct dflash *d = dflash_of(m);
    const struct dflash_layer *w = &d->layer[l];
    struct rope_kv_attr post = decoder_rope_kv(c, l);
    struct attn_attr attn = decoder_attn(c, l);
    attn.block = w->whole_block;
    struct val h = op_norm(t, x, w->attn_norm, c->eps), dyn = { 0 };
    if (d->taps) {
        dyn = op_linear(t, h, w->attn_dyn, NULL);
        h = mix(t, d, h, dyn, w->attn_conv, 0);
    }
    struct val q = op_qkv(t, l, h, &(struct qkv_weights){ .q = w->q, .k = w->k, .v = w->v, .q_norm = w->q_norm,
                                                          .k_norm = w->k_norm, .freq = decoder_freq(c, l) }, &post);
    struct val a = op_attn(t, l, q, &attn);
    if (!d->taps) return op_linear_add(t, a, w->o, NULL, x);
    return op_add(t, x, mix(t, d, op_linear(t, a, w->o, NULL), dyn, w->attn_conv, 1));
}

static struct val record_ffn(struct tape *t, const struct model *m, int l, struct val x)
{
    const struct dflash *d = dflash_of(m);
    const struct dflash_layer *w = &d->layer[l];
    struct val h = op_norm(t, x, w->ffn_norm, m->c.eps), dyn = { 0 };
    if (d->taps) {
        dyn = op_linear(t, h, w->ffn_dyn, NULL);
        h = mix(t, d, h, dyn, w->ffn_conv, 0);
    }
    struct val g = op_glu(t, h, w->gate, w->up, ACT_SILU);
    if (!d->taps) return op_linear_add(t, g, w->down, NULL, x);
    return op_add(t, x, mix(t, d, op_linear(t, g, w->down, NULL), dyn, w->ffn_conv, 1));
}

static void record_block(struct tape *t, const struct model *m, struct record *out)
{
    const struct dflash *d = dflash_of(m);
    struct val x = op_embed(t, d->embd, m->c.embed_scale);
    for (int l = 0; l < m->c.n_layers; l++) x = record_ffn(t, m, l, record_attn(t, m, l, x));
    out->hidden = op_norm(t, op_take(t, x), d->norm, m->c.eps);
    /* c tanh(s x / c) = s (c / s) tanh(x / (c / s)) */
    out->logits = op_head(t, out->hidden, d->head, d->softcap / d->logit_scale);
    tape_keep(t, out->logits, "logits");
    int k = !d->rank ? DFLASH_BRANCHES : d->top_k < LIKELY_MOST ? d->top_k : LIKELY_MOST;
    record_ids(t, k, d->logit_scale, out);
    if (!d->rank) return;
    out->taps[0] = op_linear(t, out->hidden, d->selector, NULL);
    tape_keep(t, out->taps[0], "selector");
}

static void record_features(struct tape *t, const struct model *m, struct record *out)
{
    const struct decoder *c = &m->c;
    const struct dflash *d = dflash_of(m);
    out->given = tape_input(t, "features", (struct shape){ DOM_ROWS, DT_F32, d->n_taps * c->embd });
    struct val x = op_norm(t, op_linear(t, out->given, d->fc, NULL), d->feature_norm, c->eps);
    for (int l = 0; l < c->n_layers; l++) {
        const struct dflash_layer *w = &d->layer[l];
        struct rope_kv_attr post = decoder_rope_kv(c, l);
        post.heads = 0;
        struct val kv = record_linear(t, &(struct linear_parts){ .x = x, .mat = { w->of_feature[0], w->of_feature[1] },
                                                                 .attr = { .n_mat = 2 },
                                                                 .layer = l });
        op_rope_kv(t, l, kv, &(struct qkv_weights){ .k_norm = w->k_norm, .freq = decoder_freq(c, l) }, &post);
    }
}

void dflash_record(struct tape *t, const struct model *m, enum step_class class, struct record *out)
{
    if (class == STEP_WIDE) record_features(t, m, out);
    else record_block(t, m, out);
}
