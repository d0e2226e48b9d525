/* device/cpu/conv.h - CONV: rows of a block mixed with those before, by weights of the row. Groups of columns
 * of all rows are shared out. */

static void K(conv)(const struct job *j, const struct run *r, int thread)
{
    const struct conv_attr *a = j->call->attr;
    int cols = j->out_cols, groups = cols / a->group, dyn_cols = 2 * a->taps * groups;
    const float *base = vector_of(j->call->w[0]) + (int64_t)a->side * a->taps * cols;
    int64_t from, to;
    pool_share((int64_t)r->rows[j->rows] * groups, thread, r->n_threads, &from, &to);
    for (int64_t i = from; i < to; i++) {
        int64_t row = i / groups;
        int g = (int)(i % groups), at = g * a->group;
        int local = (int)row - r->step->seq[r->step->row[row].seq].first_row;
        const float *x = (const float *)j->in[0] + row * cols + at;
        const float *dyn = (const float *)j->in[1] + row * dyn_cols + a->side * a->taps * groups + g;
        float *y = (float *)j->out[0] + row * cols + at;
        memset(y, 0, (size_t)a->group * sizeof *y);
        for (int o = 0; o < a->taps && o <= local; o++)
            for (int c = 0; c < a->group; c++)
                y[c] += (base[(int64_t)o * cols + at + c] + dyn[o * groups]) * x[c - (int64_t)o * cols];
    }
}
