/* ops/table.c - the rows of all ops, pushing of calls, and what is derived from the rows. */
#include <inttypes.h>

#include "ops/record.h"
#include "ops/ref.h"
#include "quant/quant.h"

#define OP_EXTERN(NAME, name, doc) extern const struct op_def op_def_##name;
OPS(OP_EXTERN)
#undef OP_EXTERN

const struct op_def *const op_defs[OP_COUNT] = {
#define OP_ROW(NAME, name, doc) [OP_##NAME] = &op_def_##name,
    OPS(OP_ROW)
#undef OP_ROW
};

struct val op_push(struct tape *t, const struct call *c)
{
    if (tape_dead(t)) return (struct val){ 0 };
    const struct op_def *def = op_defs[c->op];
    if (!t->target.has || t->target.has(t->target.context, c)) return tape_push(t, c);
    if (def->expand) return def->expand(t, c);
    const struct weight *w = c->n_w ? c->w[0] : NULL;
    const struct format *f = w ? format_find(w->type) : NULL;
    tape_fail(t, "%s: the device has no kernel for it%s%s%s%s", def->name, w ? " with " : "",
              w ? w->name : "", f ? " in format " : "", f ? f->name : "");
    if (t->error.code) t->error.code = LUCE_E_UNSUPPORTED;
    return (struct val){ 0 };
}

static double weight_bytes_of(const struct weight *w)
{
    const struct format *f = format_find(w->type);
    uint64_t rows = w->dim[1] ? w->dim[1] : 1, experts = w->dim[2] ? w->dim[2] : 1;
    return f ? (double)format_bytes(f, w->dim[0]) * (double)rows * (double)experts : 0;
}

/* Bytes of keys and values of one position of a layer, all heads. */
static double position_bytes(const struct kv_layer *y)
{
    return (double)(y->kv_heads) * ((double)y->k_head + (double)y->v_head) / PAGE;
}

/* First index that a row sees among those up to its own, under a window. */
static int first_seen(const struct step_row *r, int window)
{
    return window && r->index - window + 1 > 0 ? r->index - window + 1 : 0;
}

/* Keys that row r sees. */
static double seen_by(const struct step *s, const struct step_row *r, int window)
{
    const struct step_seq *q = &s->seq[r->seq];
    int last = s->head.wide || r->see < q->past ? r->see : q->past - 1;
    int n = last - first_seen(r, window) + 1;
    if (n < 0) n = 0;
    for (int j = 0, at = q->past; !s->head.wide && j < q->n_rows; j++) {
        if (!(r->path >> j & 1)) continue;
        if (!window || r->index - at < window) n++;
        at++;
    }
    return n;
}

static struct work attn_work(const struct tape *t, const struct call *c, const struct step *s)
{
    const struct attn_attr *a = c->attr;
    struct work w = { 0 };
    for (int i = 0; i < s->head.n_seqs; i++) {
        const struct step_seq *q = &s->seq[i];
        int first = INT32_MAX, end = s->head.wide ? 0 : q->past;
        for (int j = q->first_row; j < q->first_row + q->n_rows; j++) {
            const struct step_row *r = &s->row[j];
            w.ops += 4.0 * a->heads * a->head_dim * seen_by(s, r, a->window);
            if (first_seen(r, a->window) < first) first = first_seen(r, a->window);
            if (s->head.wide && r->see + 1 > end) end = r->see + 1;
        }
        double keys = (end > first ? end - first : 0) + (s->head.wide ? 0 : q->n_rows);
        w.bytes += keys * position_bytes(&t->kv->layer[c->layer]);
    }
    return w;
}

/* Writes of new keys and values, and moves of committed ones. */
static double rope_kv_bytes(const struct tape *t, const struct call *c, const struct step *s)
{
    double positions = s->head.n_rows;
    for (int i = 0; i < s->head.n_seqs; i++) positions += 2.0 * s->seq[i].n_commit;
    return positions * position_bytes(&t->kv->layer[c->layer]);
}

struct work call_work(const struct tape *t, const struct call *c, const struct step *s)
{
    struct work work = { 0 };
    int rows = step_rows_of(s, c->n_out ? c->shape[0].rows : DOM_ROWS);
    if (c->op == OP_ATTN) work = attn_work(t, c, s);
    if (c->op == OP_ROPE_KV || c->op == OP_QKV) work.bytes += rope_kv_bytes(t, c, s);
    for (int i = 0; i < c->n_w; i++) {
        const struct weight *w = c->w[i];
        if (!w) continue;
        if (c->op == OP_EMBED) {
            work.bytes += weight_bytes_of(w) / (double)w->dim[1] * rows;
            continue;
        }
        work.bytes += weight_bytes_of(w);
        if (w->dim[1] > 1) work.ops += 2.0 * (double)w->dim[0] * (double)w->dim[1] * rows;
    }
    for (int i = 0; i < c->n_in; i++) {
        struct shape in = tape_shape(t, c->in[i]);
        int n = c->op == OP_TAKE ? rows : step_rows_of(s, in.rows);
        work.bytes += (double)shape_row_bytes(in) * n;
    }
    for (int i = 0; i < c->n_out; i++)
        work.bytes += (double)shape_row_bytes(c->shape[i]) * step_rows_of(s, c->shape[i].rows);
    return work;
}

static const char *const domain_names[DOM_COUNT] = { "rows", "out", "ctx", "seqs" };
static const char *const dtype_names[DT_COUNT] = { "f32", "i32" };

static void print_value(const struct tape *t, struct val v, const struct plan *p, struct buf *out)
{
    const struct value *x = &t->values[v.id];
    buf_printf(out, "%%%d", v.id);
    if (x->name[0]) buf_printf(out, " '%s'", x->name);
    buf_printf(out, " [%s %d %s]", domain_names[x->shape.rows], x->shape.cols, dtype_names[x->shape.type]);
    if (p && p->offset) buf_printf(out, " at %" PRIu64, p->offset[v.id]);
}

static void print_weight(const struct weight *w, struct buf *out)
{
    const struct format *f = format_find(w->type);
    buf_printf(out, " %s %s [%" PRIu64, w->name, f ? f->name : "?", w->dim[0]);
    if (w->dim[1] > 1) buf_printf(out, ", %" PRIu64, w->dim[1]);
    buf_add_text(out, "]");
}

void tape_print(const struct tape *t, const struct plan *p, struct buf *out)
{
    for (int i = 1; i < t->n_values; i++) {
        if (t->values[i].producer >= 0) continue;
        buf_add_text(out, "       input ");
        print_value(t, (struct val){ i }, p, out);
        buf_add_char(out, '\n');
    }
    for (int i = 0; i < t->n_calls; i++) {
        const struct call *c = &t->calls[i];
        buf_printf(out, "%4d  ", i);
        for (int j = 0; j < c->n_out; j++) print_value(t, c->out[j], p, out), buf_add_text(out, " = ");
        buf_add_text(out, op_defs[c->op]->name);
        if (c->layer >= 0) buf_printf(out, " layer %d", c->layer);
        for (int j = 0; j < c->n_in; j++) buf_printf(out, "%s%%%d", j ? ", " : " ", c->in[j].id);
        bool any = false;
        for (int j = 0; j < c->n_w; j++) {
            if (!c->w[j]) continue;
            buf_add_text(out, any ? "," : " |");
            print_weight(c->w[j], out);
            any = true;
        }
        struct buf attr = { 0 };
        if (op_defs[c->op]->print) op_defs[c->op]->print(c->attr, &attr);
        if (attr.len) buf_printf(out, " | %s", attr.data);
        if (attr.failed) out->failed = true;
        buf_drop(&attr);
        buf_add_char(out, '\n');
    }
    if (p) buf_printf(out, "arena: %" PRIu64 " bytes\n", p->bytes);
}
