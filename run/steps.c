/* run/steps.c - see steps.h. */
#include "run/steps.h"

void step_begin(struct step *s, enum step_class class)
{
    s->head = (struct step_head){ .wide = class };
}

static int n_wanted(const struct step_rows *rows)
{
    if (rows->n == 0 || rows->want == WANT_NONE) return 0;
    return rows->want == WANT_LAST ? 1 : rows->n - (rows->want == WANT_REST);
}

static luce_status check(const struct step *s, const struct step_rows *rows, int max_rows, luce_error *err)
{
    int left = max_rows - s->head.n_rows;
    if (rows->n < 0 || rows->n > left)
        return fail(err, LUCE_E_ARG, "step: %d rows more, room for %d of %d", rows->n, left, max_rows);
    if (s->head.n_seqs == STEP_SEQS || n_wanted(rows) > STEP_OUTS - s->head.n_out)
        return fail(err, LUCE_E_ARG, "step: full with %d sequences and %d wanted rows", s->head.n_seqs,
                    s->head.n_out);
    if (!rows->parent) return LUCE_OK;
    if (s->head.wide) return fail(err, LUCE_E_ARG, "step: a wide step takes chains, not trees");
    for (int i = 0; i < rows->n; i++)
        if (rows->parent[i] < -1 || rows->parent[i] >= i)
            return fail(err, LUCE_E_ARG, "step: row %d has parent %d; expected -1 or a row before it", i,
                        rows->parent[i]);
    return LUCE_OK;
}

luce_status step_add(struct step *s, const struct step_rows *rows, int max_rows, int *end, int *first_out,
                     luce_error *err)
{
    luce_status st = check(s, rows, max_rows, err);
    if (st) return st;
    int first = s->head.n_rows, seq = s->head.n_seqs++;
    s->seq[seq] = (struct step_seq){ .first_row = first, .n_rows = rows->n };
    *end = rows->length;
    for (int i = 0; i < rows->n; i++) {
        struct step_row *r = &s->row[first + i];
        int parent = rows->parent ? rows->parent[i] : i - 1;
        int index = parent < 0 ? rows->length : s->row[first + parent].index + 1;
        int at = index + rows->origin;
        *r = (struct step_row){ .token = rows->tokens[i], .index = index, .rope = { at, at, at },
                                .see = s->head.wide ? index : rows->length - 1, .seq = seq };
        if (!s->head.wide)
            r->path = (parent < 0 ? 0 : s->row[first + parent].path) | UINT64_C(1) << i;
        if (index + 1 > *end) *end = index + 1;
    }
    s->head.n_rows += rows->n;
    int wanted = n_wanted(rows);
    *first_out = wanted ? s->head.n_out : -1;
    for (int i = 0; i < wanted; i++)
        s->out[s->head.n_out++] = (struct step_out){ .row = first + rows->n - wanted + i };
    return LUCE_OK;
}

void step_undo(struct step *s)
{
    const struct step_seq *q = &s->seq[--s->head.n_seqs];
    s->head.n_rows = q->first_row;
    while (s->head.n_out > 0 && s->out[s->head.n_out - 1].row >= q->first_row) s->head.n_out--;
}
