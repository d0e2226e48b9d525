/* tape/plan.c - gives every value of a tape its place in one arena.
 * A value lives from the call that makes it to the last that reads it (in steps of one row to the last that reads
 * what was made of it), an input from the start, a kept value to the end. Larger values are placed first (equal ones by
 * id), each into the lowest gap that no value of an overlapping life touches. An output never shares
 * bytes with an input of its call. The result depends on the tape and the bucket alone. */
#include <stdlib.h>

#include "base/mem.h"
#include "tape/tape.h"

enum { ALIGN = 256 };

struct item {
    int id, from, to;           /* life, both ends included */
    uint64_t bytes, offset;
};

static int by_size(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->id - y->id;
}

int plan_last_use(const struct tape *t, int id, const struct bucket *b)
{
    int last = t->values[id].last_use;
    if (b->class != STEP_NARROW || b->rows[DOM_ROWS] > 1) return last;
    for (int i = t->values[id].producer + 1; i <= t->values[id].last_use && i < t->n_calls; i++)
        for (int j = 0; j < t->calls[i].n_in; j++)
            for (int k = 0; t->calls[i].in[j].id == id && k < t->calls[i].n_out; k++) {
                int of = t->values[t->calls[i].out[k].id].last_use;
                if (of > last) last = of;
            }
    return last;
}

static luce_status value_bytes(const struct tape *t, int id, const struct bucket *b, uint64_t *out,
                               luce_error *err)
{
    struct shape s = t->values[id].shape;
    uint64_t rows = (uint64_t)(b->rows[s.rows] > 0 ? b->rows[s.rows] : 0), bytes;
    if (__builtin_mul_overflow(rows, shape_row_bytes(s), &bytes) || bytes > UINT64_MAX / 4096)
        return fail(err, LUCE_E_ARG, "plan: value %d of %d columns and %d rows is too large", id, s.cols,
                    b->rows[s.rows]);
    *out = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return LUCE_OK;
}

/* Finds the lowest gap for `it` among `placed`, n items ordered by offset; returns where it belongs
 * in that order. */
static int first_fit(struct item *it, struct item *const *placed, int n)
{
    uint64_t at = 0;
    int where = 0;
    for (int i = 0; i < n; i++) {
        const struct item *p = placed[i];
        if (p->from > it->to || p->to < it->from) continue;
        if (p->offset >= at && p->offset - at >= it->bytes) break;
        if (p->offset + p->bytes > at) at = p->offset + p->bytes;
    }
    it->offset = at;
    while (where < n && placed[where]->offset <= at) where++;
    return where;
}

static int gather(const struct tape *t, struct item *items, const struct bucket *b, luce_error *err)
{
    int n = 0;
    for (int id = 1; id < t->n_values; id++) {
        const struct value *v = &t->values[id];
        struct item it = { .id = id, .from = v->producer, .to = plan_last_use(t, id, b) };
        if (value_bytes(t, id, b, &it.bytes, err)) return -1;
        if (it.bytes) items[n++] = it;
    }
    qsort(items, (size_t)n, sizeof *items, by_size);
    return n;
}

luce_status plan_make(struct plan *p, const struct tape *t, struct bucket b, luce_error *err)
{
    *p = (struct plan){ .bucket = b, .n_values = t->n_values };
    if (!t->n_values) return LUCE_OK;
    luce_status st = LUCE_OK;
    size_t n_values = (size_t)t->n_values;
    p->offset = mem_array(n_values, sizeof *p->offset);
    struct item *items = mem_array(n_values, sizeof *items);
    struct item **placed = mem_array(n_values, sizeof *placed);
    if (!p->offset || !items || !placed) {
        st = fail(err, LUCE_E_NOMEM, "out of memory for a plan of %d values", t->n_values);
        goto out;
    }
    int n = gather(t, items, &b, err);
    if (n < 0) {
        st = LUCE_E_ARG;
        goto out;
    }
    for (int i = 0; i < n; i++) {
        int where = first_fit(&items[i], placed, i);
        for (int j = i; j > where; j--) placed[j] = placed[j - 1];
        placed[where] = &items[i];
        p->offset[items[i].id] = items[i].offset;
        uint64_t end = items[i].offset + items[i].bytes;
        if (end > p->bytes) p->bytes = end;
    }
out:
    mem_free(items);
    mem_free(placed);
    if (st) plan_drop(p);
    return st;
}

void plan_drop(struct plan *p)
{
    mem_free(p->offset);
    *p = (struct plan){ 0 };
}
