/* device/check_width.c - whether a row's bits depend on its company (check.h).
 * A case's step is run as it is; then each sequence's rows once more: a narrow path from the root to
 * a leaf in one-row steps, each committing the row before, and a wide sequence in two chunks. Every
 * output row must come out with the same bits. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "device/check_rig.h"

enum { REPLAY_MOST = 70 };      /* rows of a sequence that are run one by one, at most */

struct replay {
    struct rig *r;
    struct rig_program all, one;    /* the whole step; one narrow row */
    const uint8_t *want;            /* output of the whole step */
    uint8_t *got;
    size_t row_bytes;               /* of the output */
    struct step *step;              /* the step under way */
    bool equal;
};

/* Index of the output row that shows row `row` of the whole step; -1: none does. */
static int out_of(const struct replay *p, int row)
{
    const struct step *s = p->r->env->step;
    if (tape_shape(&p->r->tape, p->r->out).rows == DOM_ROWS) return row;
    for (int i = 0; i < s->head.n_out; i++)
        if (s->out[i].row == row) return i;
    return -1;
}

/* The page tables of the case, with one page more at the end of the sequence's table: rows that are
 * committed one by one may need it. */
static void copy_edits(struct replay *p, const struct step_seq *q)
{
    const struct case_env *env = p->r->env;
    struct step *s = p->step;
    s->head.n_edits = env->step->head.n_edits;
    memcpy(s->edit, env->step->edit, (size_t)s->head.n_edits * sizeof *s->edit);
    for (int kind = 0; kind < env->kv.n_kinds; kind++) {
        int at = (q->past + PAGE - 1) / PAGE;
        if (case_page(env, kind, q->slot, at * PAGE) < 0)
            s->edit[s->head.n_edits++] = (struct step_edit){ .kind = kind, .slot = q->slot, .at = at,
                                                             .page = env->n_pages[kind] - 1 };
    }
}

/* Runs rows first .. first + n - 1 of the case as they stand in p->step and compares their outputs. */
static luce_status run_rows(struct replay *p, struct rig_program *program, int first, int n, luce_error *err)
{
    struct step *s = p->step;
    s->head.n_rows = s->head.n_out = n;
    s->head.n_seqs = 1;
    if (n > STEP_OUTS) s->head.n_out = STEP_OUTS;
    for (int i = 0; i < s->head.n_out; i++) s->out[i] = (struct step_out){ .row = i, .draw = case_draw(first + i) };
    luce_status st = rig_run(p->r, program, s, first, n, p->got, err);
    for (int i = 0; !st && i < rig_out_rows(p->r, s); i++) {
        int out = out_of(p, first + i);
        if (out >= 0 && memcmp(p->got + (size_t)i * p->row_bytes, p->want + (size_t)out * p->row_bytes, p->row_bytes))
            p->equal = false;
    }
    return st;
}

/* The rows named by `path` of sequence q, one by one. */
static luce_status one_by_one(struct replay *p, const struct step_seq *q, uint64_t path, int n, luce_error *err)
{
    const struct step *whole = p->r->env->step;
    struct step *s = p->step;
    luce_status st = rig_fill(p->r, err);
    copy_edits(p, q);
    s->head.wide = 0;
    for (int j = 0, depth = 0; !st && j < n; j++) {
        if (j < 64 && !(path >> j & 1)) continue;
        s->row[0] = whole->row[q->first_row + j];
        s->row[0].path = 1;
        s->row[0].see = s->row[0].index;
        s->row[0].seq = 0;
        s->seq[0] = *q;
        s->seq[0].first_row = 0;
        s->seq[0].n_rows = 1;
        if (depth) {
            s->seq[0].past = q->past + depth;
            s->seq[0].n_commit = 1;
            s->seq[0].commit[0] = 0;
        }
        depth++;
        st = run_rows(p, &p->one, q->first_row + j, 1, err);
    }
    return st;
}

/* A wide sequence in two chunks. */
static luce_status in_chunks(struct replay *p, const struct step_seq *q, luce_error *err)
{
    const struct step *whole = p->r->env->step;
    struct step *s = p->step;
    int cut = q->n_rows / 2, last = p->r->tape.n_calls - 1;
    if (op_defs[p->r->tape.calls[last].op]->by_pages && !p->r->d->equal_bits)
        cut = (q->past + cut) / PAGE * PAGE - q->past;
    if (cut < 0) cut = 0;
    luce_status st = rig_fill(p->r, err);
    copy_edits(p, q);
    s->head.wide = 1;
    for (int half = 0; !st && half < 2; half++) {
        int from = half ? cut : 0, n = half ? q->n_rows - cut : cut;
        if (!n) continue;
        memcpy(s->row, &whole->row[q->first_row + from], (size_t)n * sizeof *s->row);
        for (int i = 0; i < n; i++) s->row[i].seq = 0;
        s->seq[0] = *q;
        s->seq[0].first_row = 0;
        s->seq[0].n_rows = n;
        s->seq[0].past = q->past + from;
        if (from) s->seq[0].n_commit = 0;
        st = run_rows(p, &p->all, q->first_row + from, n, err);
    }
    return st;
}

static luce_status replay_seq(struct replay *p, const struct step_seq *q, luce_error *err)
{
    const struct step *whole = p->r->env->step;
    const struct op_case *c = p->r->env->c;
    luce_status st = LUCE_OK;
    if (!q->n_rows) return LUCE_OK;
    if (c->wide && !c->tree) st = in_chunks(p, q, err);
    if (!st && c->wide && !c->tree && p->r->d->equal_bits)
        st = one_by_one(p, q, UINT64_MAX, q->n_rows < REPLAY_MOST ? q->n_rows : REPLAY_MOST, err);
    if (c->wide) return st;
    int last = q->n_rows - 1, middle = q->n_rows / 2;
    st = one_by_one(p, q, whole->row[q->first_row + last].path, q->n_rows, err);
    if (!st && c->tree) st = one_by_one(p, q, whole->row[q->first_row + middle].path, q->n_rows, err);
    return st;
}

static luce_status replay_all(struct check_walk *w, struct rig *r, struct replay *p, uint8_t *want, luce_error *err)
{
    const struct step *s = r->env->step;
    luce_status st = rig_compile(r, &p->all, step_room(s), s->head.wide, err);
    if (!st) st = rig_compile(r, &p->one, 1, false, err);
    if (!st) st = rig_fill(r, err);
    if (!st) st = rig_run(r, &p->all, s, 0, s->head.n_rows, want, err);
    for (int i = 0; !st && i < s->head.n_seqs; i++) st = replay_seq(p, &s->seq[i], err);
    rig_program_close(r, &p->all);
    rig_program_close(r, &p->one);
    if (!st) check_report(w, "alone and in company", p->equal ? 0 : (double)INFINITY, 0);
    return st;
}

static luce_status check_case(struct check_walk *w, struct case_env *env, luce_error *err)
{
    const struct op_case *c = env->c;
    if (env->step->head.n_rows < 2 || c->block || (c->wide && c->tree)) return LUCE_OK;
    struct rig r;
    luce_status st = rig_open(&r, w->d, env, err);
    if (st) return st;
    struct replay p = { .r = &r, .row_bytes = (size_t)shape_row_bytes(tape_shape(&r.tape, r.out)), .equal = true };
    uint8_t *want = mem_array((size_t)env->step->head.n_rows, p.row_bytes);
    p.want = want;
    p.got = mem_array((size_t)env->step->head.n_rows, p.row_bytes);
    p.step = mem_zero(sizeof *p.step);
    if (want && p.got && p.step) st = replay_all(w, &r, &p, want, err);
    else st = fail(err, LUCE_E_NOMEM, "out of memory for the output of a test case");
    mem_free(want);
    mem_free(p.got);
    mem_free(p.step);
    rig_close(&r);
    return st;
}

luce_status check_width_independence(struct device *d, const struct check_params *p, check_fn fn, void *context,
                                     int *n_failed, luce_error *err)
{
    struct check_walk w = { .d = d, .params = p, .fn = fn, .context = context, .n_failed = n_failed };
    return check_walk(&w, check_case, err);
}
