/* device/cpu/rows.h - EMBED, TAKE, ADD, ARGMAX: ops that move rows or look at them once. */

static void K(embed)(const struct job *j, const struct run *r, int thread)
{
    const struct embed_attr *a = j->call->attr;
    const struct packed *table = packed_of(j->call->w[0]);
    float scale = a->scale != 0.0f ? a->scale : 1.0f;
    int64_t from, to;
    pool_share(r->rows[j->rows], thread, r->n_threads, &from, &to);
    for (int64_t row = from; row < to; row++) {
        float *y = (float *)j->out[0] + row * j->out_cols;
        int32_t token = r->step->row[row].token;
        if (token < 0 || token >= table->out) {
            memset(y, 0, (size_t)j->out_cols * sizeof *y);
            continue;
        }
        packed_row(table, token, y);
        for (int i = 0; i < j->out_cols; i++) y[i] *= scale;
    }
}

static void K(take)(const struct job *j, const struct run *r, int thread)
{
    int64_t from, to;
    pool_share(r->rows[j->rows], thread, r->n_threads, &from, &to);
    for (int64_t i = from; i < to; i++)
        memcpy((float *)j->out[0] + i * j->cols, (const float *)j->in[0] + (int64_t)r->step->out[i].row * j->cols,
               (size_t)j->cols * sizeof(float));
}

static void K(add)(const struct job *j, const struct run *r, int thread)
{
    int64_t from, to;
    pool_share((int64_t)r->rows[j->rows] * j->cols, thread, r->n_threads, &from, &to);
    const float *a = j->in[0], *b = j->in[1];
    float *y = j->out[0];
    for (int64_t i = from; i < to; i++) y[i] = a[i] + b[i];
}

/* Lane l keeps the largest of columns l, l + 16, ... and the first place where it stood. */
INLINE int32_t argmax_row(const float *x, int n)
{
    float best[LANES];
    int32_t at[LANES];
    uint32_t nan[LANES] = { 0 };
    for (int l = 0; l < LANES; l++) {
        best[l] = -INFINITY;
        at[l] = INT32_MAX;
    }
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float v = x[i + l];
            bool more = v > best[l];
            best[l] = more ? v : best[l];
            at[l] = more ? i + l : at[l];
            nan[l] |= v != v;
        }
    for (int l = 0; i + l < n; l++) {
        float v = x[i + l];
        if (v > best[l]) {
            best[l] = v;
            at[l] = i + l;
        }
        nan[l] |= v != v;
    }
    int32_t top = INT32_MAX;
    float value = -INFINITY;
    for (int l = 0; l < LANES; l++) {
        if (nan[l]) return -1;
        if (best[l] > value || (best[l] == value && at[l] < top)) {
            value = best[l];
            top = at[l];
        }
    }
    return top == INT32_MAX ? 0 : top;          /* all columns are minus infinity */
}

static void K(argmax)(const struct job *j, const struct run *r, int thread)
{
    int64_t from, to;
    pool_share(r->rows[j->rows], thread, r->n_threads, &from, &to);
    for (int64_t row = from; row < to; row++)
        ((int32_t *)j->out[0])[row] = argmax_row((const float *)j->in[0] + row * j->cols, j->cols);
}
