/* ops/table.c - the rows of all ops, pushing of calls, printing of tapes. */
#include <inttypes.h>

#include "ops/record.h"
#include "ops/work.h"
#include "quant/quant.h"

#define OP_EXTERN(NAME, name, doc) extern const struct op_def op_def_##name;
OPS(OP_EXTERN)
#undef OP_EXTERN

const struct op_def *const op_defs[OP_COUNT] = {
#define OP_ROW(NAME, name, doc) [OP_##NAME] = &op_def_##name,
    OPS(OP_ROW)
#undef OP_ROW
};

const char *const op_docs[OP_COUNT] = {
#define OP_DOC(NAME, name, doc) [OP_##NAME] = doc,
    OPS(OP_DOC)
#undef OP_DOC
};

static void refuse(struct tape *t, const struct call *c)
{
    const struct op_def *def = op_defs[c->op];
    const struct weight *w = c->n_w ? c->w[0] : NULL;
    const struct format *f = w ? format_find(w->type) : NULL;
    struct buf what = { 0 };
    if (def->print) def->print(c->attr, &what);
    tape_fail(t, "%s: the device has no kernel for it%s%s%s%s%s%s%s%s", def->name, what.len ? " with " : "",
              what.len ? buf_text(&what) : "", w ? ", weights " : "", w ? w->name : "", f ? " in format " : "",
              f ? f->name : "", t->target.takes ? ". It takes " : "", t->target.takes ? t->target.takes : "");
    if (t->error.code) t->error.code = LUCE_E_UNSUPPORTED;
    buf_drop(&what);
}

struct val op_push(struct tape *t, const struct call *c)
{
    if (tape_dead(t)) return (struct val){ 0 };
    const struct op_def *def = op_defs[c->op];
    if (!t->target.has || t->target.has(t->target.context, c)) return tape_push(t, c);
    if (def->expand) return def->expand(t, c);
    return refuse(t, c), (struct val){ 0 };
}

struct work call_work(const struct tape *t, const struct call *c, const struct step *s)
{
    const struct op_def *def = op_defs[c->op];
    return def->work ? def->work(t, c, s) : work_plain(t, c, s);
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
