/* ops/accept.c - ACCEPT: which rows of a tree of guesses are what was chosen after the row that they continue.
 * chosen [out, 1] i32, y [out, 2] i32. Of a narrow sequence whose rows are all wanted, one after the other, row 0 is
 * kept, and after a kept row the first that continues it and has the token that was chosen there. The i-th wanted
 * row's y: the i-th kept row, as a row of the step, and what was chosen after it. All other y are -1.
 * A device that queues steps keeps this for those behind (device.ahead). */
#include "base/mem.h"
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"

struct val op_accept(struct tape *t, struct val chosen)
{
    if (!record_input(t, "accept", chosen, "chosen")) return (struct val){ 0 };
    struct shape s = tape_shape(t, chosen);
    if (s.type != DT_I32 || s.rows != DOM_OUT || s.cols != 1)
        return tape_fail(t, "accept: what was chosen is not one i32 a wanted row");
    s.cols = 2;
    return op_push(t, &(struct call){ .op = OP_ACCEPT, .layer = -1, .n_in = 1, .in = { chosen }, .n_out = 1,
                                      .shape = { s } });
}

/* The first wanted row of the sequence when all are wanted in order, or -1. */
static int first_wanted(const struct step *s, const struct step_seq *q)
{
    int first = 0, n = 0;
    while (first < s->head.n_out && s->out[first].row != q->first_row) first++;
    while (n < q->n_rows && first + n < s->head.n_out && s->out[first + n].row == q->first_row + n) n++;
    return n == q->n_rows && n > 0 && !s->head.wide ? first : -1;
}

/* The first row that continues local row `at` with this token, or -1. */
static int child_of(const struct step *s, const struct step_seq *q, int at, double token)
{
    for (int j = at + 1; j < q->n_rows; j++) {
        const struct step_row *row = &s->row[q->first_row + j];
        uint64_t before = row->path & ~(UINT64_C(1) << j);
        if (row->token == token && before == s->row[q->first_row + at].path) return j;
    }
    return -1;
}

static void reference(const struct ref_args *a)
{
    const struct step *s = a->step;
    for (int o = 0; o < 2 * a->rows; o++) a->y[0][o] = -1;
    for (int i = 0; i < s->head.n_seqs; i++) {
        const struct step_seq *q = &s->seq[i];
        int first = first_wanted(s, q), at = first < 0 ? -1 : 0;
        for (int n = first; at >= 0; n++) {
            double chosen = a->x[0][first + at];
            a->y[0][2 * n] = q->first_row + at;
            a->y[0][2 * n + 1] = chosen;
            at = child_of(s, q, at, chosen);
        }
    }
}

/* p: columns of the logits by which is chosen. */
static struct val record_case(struct case_env *env, const struct op_case *c)
{
    struct tape *t = case_tape(env);
    return op_accept(t, op_argmax(t, op_take(t, case_input_next(env, c->p[0]))));
}

static void cases(struct case_list *l)
{
    static const struct op_case shapes[] = {
        { .n_rows = 1, .all = true },
        { .n_rows = 16, .all = true },
        { .n_rows = 64, .all = true },
        { .n_rows = 23, .tree = 1, .all = true },
        { .n_rows = 64, .tree = 1, .all = true },
        { .n_rows = 64, .tree = 1, .n_seqs = 3, .past = 20, .all = true },
        { .n_rows = 61, .tree = 1, .n_seqs = 7, .all = true },
        { .n_rows = 8, .n_seqs = 8, .all = true },
        { .n_rows = 7, .tree = 1 },             /* not all are wanted */
        { .n_rows = 200, .wide = 1, .n_seqs = 4 },
    };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        struct op_case c = shapes[i];
        c.p[0] = CASE_TOKENS;
        c.block = true;
        c.record = record_case;
        c.label = c.wide ? "no guesses" : !c.all ? "some rows wanted" : c.tree ? "tree" : "chain";
        case_add(l, &c);
    }
}

const struct op_def op_def_accept = { .name = "accept", .reference = reference, .cases = cases };
