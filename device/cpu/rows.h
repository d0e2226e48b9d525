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

/* The first row after `at` that continues it with this token, or -1. */
INLINE int accept_next(const struct step_row *row, int n, int at, int32_t token)
{
    int j = at + 1;
    while (j < n && (row[j].token != token || row[j].path != (row[at].path | (uint64_t)1 << j))) j++;
    return j < n ? j : -1;
}

static void K(accept)(const struct job *j, const struct run *r, int thread)
{
    const struct step *s = r->step;
    const int32_t *chosen = j->in[0];
    int32_t(*y)[2] = j->out[0];
    if (thread) return;
    for (int o = 0; o < s->head.n_out; o++) y[o][0] = y[o][1] = -1;
    for (int o = 0; o < s->head.n_out && !s->head.wide; o++) {
        const struct step_seq *q = &s->seq[s->row[s->out[o].row].seq];
        int n = 0;
        while (n < q->n_rows && o + n < s->head.n_out && s->out[o + n].row == q->first_row + n) n++;
        if (n < q->n_rows) continue;
        for (int at = 0, k = o; at >= 0; k++) {
            y[k][0] = q->first_row + at;
            y[k][1] = chosen[o + at];
            at = accept_next(&s->row[q->first_row], n, at, chosen[o + at]);
        }
        o += n - 1;
    }
}

static void K(add)(const struct job *j, const struct run *r, int thread)
{
    int64_t from, to;
    pool_share((int64_t)r->rows[j->rows] * j->cols, thread, r->n_threads, &from, &to);
    const float *a = j->in[0], *b = j->in[1];
    float *y = j->out[0];
    for (int64_t i = from; i < to; i++) y[i] = a[i] + b[i];
}

/* The largest of n columns; NaN if there is one. */
INLINE float most_of(const float *x, int n)
{
    enum { CHAINS = 4 };
    float most[CHAINS * LANES], top = -INFINITY;
    uint32_t nan = 0;
    int i = 0;
    for (int l = 0; l < CHAINS * LANES; l++) most[l] = -INFINITY;
    for (; i + CHAINS * LANES <= n; i += CHAINS * LANES)
        for (int l = 0; l < CHAINS * LANES; l++) {
            float v = x[i + l];
            most[l] = v > most[l] ? v : most[l];
            nan |= v != v;
        }
    for (; i < n; i++) {
        top = x[i] > top ? x[i] : top;
        nan |= x[i] != x[i];
    }
    for (int l = 0; l < CHAINS * LANES; l++) top = most[l] > top ? most[l] : top;
    return nan ? NAN : top;
}

/* The first place of the largest column, -1 if one is NaN: of each piece the largest, then its place in the first
 * piece that has it. */
INLINE int32_t argmax_row(const float *x, int n)
{
    enum { PIECE = 1024 };
    float most = -INFINITY;
    int at = 0;
    for (int i = 0; i < n; i += PIECE) {
        float top = most_of(x + i, n - i < PIECE ? n - i : PIECE);
        if (top != top) return -1;
        if (top > most) {
            most = top;
            at = i;
        }
    }
    while (at < n && x[at] != most) at++;
    return at < n ? at : 0;
}

static void K(argmax)(const struct job *j, const struct run *r, int thread)
{
    int64_t from, to;
    pool_share(r->rows[j->rows], thread, r->n_threads, &from, &to);
    for (int64_t row = from; row < to; row++)
        ((int32_t *)j->out[0])[row] = argmax_row((const float *)j->in[0] + row * j->cols, j->cols);
}
