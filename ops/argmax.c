/* ops/argmax.c - ARGMAX: y[r] = the lowest i with x[r][i] = max_j x[r][j]; -1 when a column is NaN.
 * x [n, cols] f32, y [n, 1] i32. */
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

const struct op_def op_def_argmax = { .name = "argmax",
                                      .doc = "index of the largest column; ties to the lowest; NaN gives -1",
                                      .reference = reference };
