/* device/gpu/values.c - the values of a program: who reads each how, who makes it (a launch of its own, a product that
 * reads it, a product before it), and where activations of products lie. */
#include "device/gpu/program.h"

enum { BLOCK_ALIGN = 1024 };

static bool is_product(const struct call *c)
{
    return c->op == OP_LINEAR || c->op == OP_GLU;
}
static bool takes_table(const struct call *c)
{
    return c->op == OP_MOE_GLU || c->op == OP_MOE_DOWN;
}
static bool writes_forms(int op)
{
    return op == OP_ROUTE || op == OP_NORM || op == OP_GLU || op == OP_GATE || op == OP_ATTN || op == OP_TAKE ||
        op == OP_ADD || op == OP_GATED;
}

struct made program_made(const struct program *p, struct val v)
{
    int producer = p->tape->values[v.id].producer;
    const struct call *c = producer < 0 ? NULL : &p->tape->calls[producer];
    struct made m = { .cols = p->tape->values[v.id].shape.cols };
    if (c && c->op == OP_NORM && c->n_in == 1) {
        m.by = MADE_BY_NORM;
        m.eps = ((const struct norm_attr *)c->attr)->eps;
    }
    if (c && c->op == OP_GATED && c->n_in == 2) {
        const struct gated_attr *a = c->attr;
        m.by = a->scalar || p->places[v.id].f32 ? MADE_APART : MADE_BY_GATED;
        m.eps = a->eps, m.dim = a->dim, m.at = a->at, m.stride = a->stride, m.silu = a->fn == GATE_SILU;
        m.gate_cols = p->tape->values[c->in[1].id].shape.cols;
    }
    return m;
}

/* The first call that reads a value; n_calls: none. */
static int first_use(const struct tape *t, struct val v)
{
    for (int i = t->values[v.id].producer + 1; i < t->n_calls; i++)
        for (int j = 0; j < t->calls[i].n_in; j++)
            if (t->calls[i].in[j].id == v.id) return i;
    return t->n_calls;
}

/* The NORM before call `end` that reads a value; 0: none. */
static int norm_of(const struct tape *t, struct val v, int end)
{
    for (int i = end - 1; v.id && i >= 0; i--)
        if (t->calls[i].op == OP_NORM && t->calls[i].in[0].id == v.id) return t->calls[i].out[0].id;
    return 0;
}
/* Whether NORM is deferred (struct norm_before): the NORM of the residual; 0: it is not. Products alone read it, and
 * what it reads comes from one that adds to a residual. Of several NORMs of a value one is. */
static int norm_before(const struct program *p, int i)
{
    const struct tape *t = p->tape;
    const struct call *c = &t->calls[i];
    if (c->op != OP_NORM || c->n_in > 1 || card_is_small()) return 0;
    const struct place *y = &p->places[c->out[0].id];
    const struct value *x = &t->values[c->in[0].id];
    const struct call *product = x->producer < 0 ? NULL : &t->calls[x->producer];
    if (!y->form || y->f32 || p->places[c->in[0].id].norm || program_wide(p, x->shape.rows) || !product) return 0;
    if (product->op != OP_LINEAR || product->n_in < 2 || x->shape.cols > DEFERRED_COLS) return 0;
    const struct linear_attr *a = product->attr;
    return a->n_mat == 1 && a->softcap == 0 ? norm_of(t, product->in[1], x->producer) : 0;
}
static void defer_norms(struct program *p)
{
    for (int i = 0; i < p->tape->n_calls; i++) {
        const int before = norm_before(p, i);
        if (!before) continue;
        const struct val y = p->tape->calls[i].out[0], x = p->tape->calls[i].in[0];
        p->places[y.id].before = before;
        p->places[y.id].form_from = p->tape->values[x.id].producer;
        p->places[before].factors = true;
        p->places[x.id].norm = y.id;
    }
}

/* Whether products make a value: its first reader is one of them, which writes it for those that want f32, and what it
 * is made of is there as long as it is read. A NORM that begins with a sum over slots stays apart, where its block has
 * the row at hand (norm_follows in emit.c). */
static bool made_inside(const struct program *p, struct val v)
{
    const struct tape *t = p->tape;
    const struct place *place = &p->places[v.id];
    const struct made m = program_made(p, v);
    const int producer = t->values[v.id].producer, rows = p->plan->bucket.rows[t->values[v.id].shape.rows];
    const bool wide = program_wide(p, t->values[v.id].shape.rows);
    if (!place->form || m.by == MADE_APART || wide || !product_can_make(&m, rows)) return false;
    if (place->before || place->factors) return false;
    const struct call *c = &t->calls[producer];
    for (int j = 0; j < c->n_in; j++)
        if (plan_last_use(t, c->in[j].id, &p->plan->bucket) < place->form_to) return false;
    if (producer && c[-1].op == OP_MOE_DOWN && c[-1].out[0].id == c->in[0].id && !place->f32) return false;
    const int first = first_use(t, v);
    if (first == t->n_calls) return false;
    for (int j = 1; j < t->calls[first].n_in; j++)
        if (t->calls[first].in[j].id == v.id) return false;
    return is_product(&t->calls[first]);
}

/* Whether DELTA makes what SHORT_CONV would give it, or MOE_GLU what ROUTE would: what goes into it is still there, and
 * nobody else reads it, or later. */
static bool made_by_reader(const struct program *p, struct val v)
{
    const struct tape *t = p->tape;
    const struct value *x = &t->values[v.id];
    const int rows = p->plan->bucket.rows[x->shape.rows], first = first_use(t, v);
    if (x->producer < 0 || first == t->n_calls || program_wide(p, x->shape.rows)) return false;
    const struct call *c = &t->calls[x->producer], *reader = &t->calls[first];
    if (plan_last_use(t, c->in[0].id, &p->plan->bucket) < first) return false;
    if (c->op == OP_SHORT_CONV)
        return p->cache && reader->op == OP_DELTA && reader->layer == c->layer && reader->in[0].id == v.id &&
            x->last_use == first && delta_can_convolve(p->cache->layout->layer[c->layer].state.taps, rows);
    return c->op == OP_ROUTE && c->out[0].id == v.id && reader->op == OP_MOE_GLU && reader->in[1].id == v.id &&
        first_use(t, c->out[1]) > first && route_can_inside(((const struct route_attr *)c->attr)->experts, rows);
}

/* Who reads each value how. */
static void find_uses(struct program *p)
{
    const struct tape *t = p->tape;
    for (int i = 0; i < t->n_calls; i++)
        for (int j = 0; j < t->calls[i].n_in; j++) {
            struct place *x = &p->places[t->calls[i].in[j].id];
            bool table = j == 1 && takes_table(&t->calls[i]);
            if (table || j || !is_product(&t->calls[i])) x->f32 = true;
            if (!table && (j || !is_product(&t->calls[i]))) continue;
            if (!x->form) x->form_from = i;
            x->form = true;
            x->form_to = i;
        }
    for (int v = 1; v < t->n_values; v++) {
        struct place *x = &p->places[v];
        int producer = t->values[v].producer;
        if (t->values[v].keep || producer < 0 || !writes_forms(t->calls[producer].op)) x->f32 = true;
        if (x->form && producer >= 0 && writes_forms(t->calls[producer].op)) x->form_from = producer;
    }
    defer_norms(p);
    for (int v = 1; v < t->n_values; v++)
        p->places[v].inside = made_inside(p, (struct val){ v }) || made_by_reader(p, (struct val){ v });
}

static uint64_t form_bytes(const struct program *p, int v)
{
    struct shape s = p->tape->values[v].shape;
    if (s.type == DT_I32) {                 /* indices of experts: their table */
        const struct route_attr *a = p->tape->calls[p->tape->values[v].producer].attr;
        uint64_t bytes = moe_table_bytes(p->plan->bucket.rows[s.rows], s.cols, a->experts + a->shared);
        return (bytes + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    }
    uint64_t rows = (uint64_t)p->plan->bucket.rows[s.rows], cols = ((uint64_t)s.cols + 63) / 64 * 64;
    uint64_t step = program_wide(p, s.rows) ? WIDE_ROWS : 64;
    return ((rows + step - 1) / step * step * cols * 2 + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
}

/* Factors of a NORM, and sums of its strips. */
static uint64_t norm_bytes(const struct program *p, int v)
{
    const int sums = p->places[v].before ? norm_stride(p->tape->values[v].shape.cols) : 0;
    return NARROW_ROWS * sizeof(float) * (uint64_t)(1 + sums);
}

/* Forms after the values: each at the lowest place that no form of an overlapping life touches. */
static void place_forms(struct program *p)
{
    uint64_t base = (p->plan->bytes + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN, end = base;
    for (int v = 1; v < p->tape->n_values; v++) {
        struct place *x = &p->places[v];
        if (!x->form) continue;
        x->form_bytes = form_bytes(p, v);
        x->form_at = base;
        for (int u = 1; u < v; u++) {
            const struct place *o = &p->places[u];
            if (!o->form || o->form_to < x->form_from || o->form_from > x->form_to) continue;
            if (x->form_at < o->form_at + o->form_bytes && o->form_at < x->form_at + x->form_bytes) {
                x->form_at = o->form_at + o->form_bytes;
                u = 0;                      /* again: the new place may meet an earlier one */
            }
        }
        if (x->form_at + x->form_bytes > end) end = x->form_at + x->form_bytes;
    }
    for (int v = 1; v < p->tape->n_values; v++) {
        struct place *x = &p->places[v];
        if (!x->before && !x->factors) continue;
        x->norm_at = end;
        end += norm_bytes(p, v);
    }
    p->scratch_at = (end + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
}

void program_values(struct program *p)
{
    find_uses(p);
    place_forms(p);
}
