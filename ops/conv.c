/* ops/conv.c - CONV: y[r][c] = sum_o (base[side][o][c] + dyn[r][side][o][c / group]) * x[r - o][c], o < taps
 * x, y [rows, cols] f32; base [2 * taps * cols] f32, the kernel that all rows share; dyn
 * [rows, 2 * taps * cols / group] f32, what each row adds to it for a group of columns. The two sides are the
 * kernels before and after a sublayer, which one product makes together. Rows before the first of the
 * sequence in the step count as zero: the convolution ends at the edge of a drafted block. */
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"
#include "base/mem.h"

struct val op_conv(struct tape *t, struct val x, struct val dyn, const struct weight *base,
                   const struct conv_attr *attr)
{
    if (!record_input(t, "conv", x, "x") || !record_input(t, "conv", dyn, "dyn")) return (struct val){ 0 };
    struct shape s = tape_shape(t, x), d = tape_shape(t, dyn);
    if (attr->taps < 1 || attr->group < 1 || s.cols % attr->group || attr->side < 0 || attr->side > 1)
        return tape_fail(t, "conv: %d taps, groups of %d, side %d: x has %d columns", attr->taps, attr->group,
                         attr->side, s.cols);
    if (d.cols != 2 * attr->taps * (s.cols / attr->group) || d.rows != s.rows || s.rows != DOM_ROWS)
        return tape_fail(t, "conv: dyn has %d columns, two sides of %d taps for %d groups are wanted for rows of the "
                         "step", d.cols, attr->taps, s.cols / attr->group);
    if (!base) return tape_fail(t, "conv: the kernel is missing");
    if (!record_vector(t, "conv", base, 2 * (uint64_t)attr->taps * (uint64_t)s.cols)) return (struct val){ 0 };
    return op_push(t, &(struct call){ .op = OP_CONV, .layer = -1, .n_in = 2, .in = { x, dyn }, .n_w = 1, .w = { base },
                                      .n_out = 1, .attr = attr, .attr_size = sizeof *attr, .shape = { s } });
}

static void reference(const struct ref_args *a)
{
    const struct conv_attr *p = a->call->attr;
    int cols = a->out_cols[0], groups = cols / p->group;
    const double *base = ref_weight_row(a, 0, 0) + (ptrdiff_t)p->side * p->taps * cols;
    for (int r = 0; r < a->rows; r++) {
        int local = r - a->step->seq[a->step->row[r].seq].first_row;
        const double *dyn = a->x[1] + (ptrdiff_t)r * a->cols[1] + (ptrdiff_t)p->side * p->taps * groups;
        for (int c = 0; c < cols; c++) {
            double y = 0;
            for (int o = 0; o < p->taps && o <= local; o++)
                y += (base[o * cols + c] + dyn[o * groups + c / p->group]) * a->x[0][(ptrdiff_t)(r - o) * cols + c];
            a->y[0][(ptrdiff_t)r * cols + c] = y;
        }
    }
}

static void print(const void *attr, struct buf *out)
{
    const struct conv_attr *p = attr;
    buf_printf(out, "%d taps, groups of %d, %s", p->taps, p->group, p->side ? "after" : "before");
}

/* p: cols, taps, group, side. */
static struct val record_case(struct case_env *env, const struct op_case *c)
{
    struct conv_attr a = { .taps = c->p[1], .group = c->p[2], .side = c->p[3] };
    struct val x = case_input(env, DOM_ROWS, c->p[0], 1);
    struct val dyn = case_input(env, DOM_ROWS, 2 * a.taps * (c->p[0] / a.group), 0.5f);
    return op_conv(case_tape(env), x, dyn, case_weight(env, 2 * a.taps * c->p[0], 0, 0.5f, 0.5f), &a);
}

static void cases(struct case_list *l)
{
    static const struct op_case shapes[] = {
        { .n_rows = 1, .p = { 64, 2, 16, 0 } }, { .n_rows = 16, .p = { 320, 2, 16, 1 }, .past = 70 },
        { .n_rows = 13, .p = { 30, 3, 5, 1 }, .n_seqs = 3 }, { .n_rows = 64, .p = { 48, 1, 1, 0 }, .n_seqs = 5 },
    };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        struct op_case c = shapes[i];
        c.record = record_case;
        c.label = "";
        c.block = true;
        case_add(l, &c);
    }
}

const struct op_def op_def_conv = { .name = "conv", .reference = reference, .cases = cases, .print = print };
