/* ops/argmax.c - ARGMAX: y[r] = the lowest i with x[r][i] = max_j x[r][j]; -1 when a column is NaN.
 * x [n, cols] f32, y [n, 1] i32. */
#include "ops/cases.h"
#include "ops/record.h"
#include "ops/ref.h"

struct val op_argmax(struct tape *t, struct val x)
{
    if (!record_input(t, "argmax", x, "x")) return (struct val){ 0 };
    struct shape s = tape_shape(t, x);
    if (s.type != DT_F32) return tape_fail(t, "argmax: x is not f32");
    s.cols = 1;
    s.type = DT_I32;
    return op_push(t, &(struct call){ .op = OP_ARGMAX, .layer = -1, .n_in = 1, .in = { x }, .n_out = 1,
                                      .shape = { s } });
}

static void reference(const struct ref_args *a)
{
    int cols = a->cols[0];
    for (int r = 0; r < a->rows; r++) {
        const double *x = a->x[0] + (size_t)r * (size_t)cols;
        int best = 0;
        for (int i = 0; i < cols; i++) {
            if (isnan(x[i])) {
                best = -1;
                break;
            }
            if (x[i] > x[best]) best = i;
        }
        a->y[0][r] = best;
    }
}

static struct val record_case(struct case_env *env, const struct op_case *c)
{
    struct val x = c->p[1] ? case_input_ties(env, DOM_ROWS, c->p[0]) : case_input(env, DOM_ROWS, c->p[0], 1);
    return op_argmax(case_tape(env), x);
}

static void cases(struct case_list *l)
{
    static const int cols[] = { 1, 31, 64, 2049, 49152 };
    for (int i = 0; i < 5; i++)
        for (int ties = 0; ties < 2; ties++)
            case_add(l, &(struct op_case){ .n_rows = ties ? 3 : i == 4 ? 5 : 33, .p = { cols[i], ties },
                                           .record = record_case, .label = ties ? "ties, NaN, -inf" : "" });
}

const struct op_def op_def_argmax = { .name = "argmax", .reference = reference, .cases = cases };
