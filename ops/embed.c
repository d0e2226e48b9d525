/* ops/embed.c - EMBED: y[r][i] = scale * table[token[r]][i]
 * table [embd, vocab] in any matrix format, y [rows, embd] f32. The product is taken in f32: the
 * decoded value times the scale. A token outside the table gives a row of zeros. */
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"
#include "ops/work.h"

struct val op_embed(struct tape *t, const struct weight *table, float scale)
{
    if (tape_dead(t)) return (struct val){ 0 };
    if (!table) return tape_fail(t, "embed: the table is missing");
    if (!record_matrix(t, "embed", table, table->dim[0], 0)) return (struct val){ 0 };
    struct embed_attr a = { .scale = scale };
    return op_push(t, &(struct call){ .op = OP_EMBED, .layer = -1, .n_w = 1, .w = { table }, .n_out = 1,
                                      .attr = &a, .attr_size = sizeof a,
                                      .shape = { { DOM_ROWS, DT_F32, (int)table->dim[0] } } });
}

static void reference(const struct ref_args *a)
{
    const struct embed_attr *p = a->call->attr;
    double scale = p->scale != 0 ? p->scale : 1;
    int cols = a->out_cols[0];
    for (int r = 0; r < a->rows; r++) {
        double *y = a->y[0] + (size_t)r * (size_t)cols;
        int32_t token = a->step->row[r].token;
        bool inside = token >= 0 && (uint64_t)token < a->call->w[0]->dim[1];
        const double *row = inside ? ref_weight_row(a, 0, (uint64_t)token) : NULL;
        for (int i = 0; i < cols; i++) y[i] = inside ? scale * row[i] : 0;
    }
}

static void print(const void *attr, struct buf *out)
{
    const struct embed_attr *p = attr;
    if (p->scale != 0 && p->scale != 1) buf_printf(out, "scale %g", p->scale);
}

static struct val record_case(struct case_env *env, const struct op_case *c)
{
    return op_embed(case_tape(env), case_weight(env, c->p[0], c->p[1], 0, 1), c->f[0]);
}

static void cases(struct case_list *l)
{
    static const int widths[] = { 1, 5, 64, 200 };
    for (int i = 0; i < 4; i++)             /* fewer rows in the table than there are tokens */
        case_add(l, &(struct op_case){ .n_rows = widths[i], .wide = widths[i] > NARROW_ROWS, .each_format = true,
                                       .p = { 256 << i % 2, CASE_TOKENS - 3 }, .f = { i % 2 ? 22.627417f : 0 },
                                       .record = record_case, .label = "table of 37 tokens" });
    case_add(l, &(struct op_case){ .n_rows = 3, .p = { 31, CASE_TOKENS }, .record = record_case,
                                   .label = "31 columns" });
}

static struct work work(const struct tape *t, const struct call *c, const struct step *s)
{
    const struct weight *w = c->w[0];       /* the rows that are asked for */
    return (struct work){ .bytes = work_values(t, c, s) + work_weight(w) / (double)w->dim[1] * s->head.n_rows };
}

const struct op_def op_def_embed = { .name = "embed", .reference = reference, .cases = cases,
                                     .work = work, .print = print };
