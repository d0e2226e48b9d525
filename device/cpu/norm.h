/* device/cpu/norm.h - NORM, and the norm of one vector for ROPE_KV, GATED and DELTA. A thread takes whole rows.
 * Order: lane i sums the squares of columns i, i + 16, ...; the lanes combine as a tree. */

INLINE float sum_squares(const float *x, int n)
{
    float ss[LANES] = { 0 };
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) ss[l] += x[i + l] * x[i + l];
    for (int l = 0; i + l < n; l++) ss[l] += x[i + l] * x[i + l];
    return tree_sum(ss);
}

INLINE float rms_scale(const float *x, int n, float eps)
{
    return 1.0f / sqrtf(sum_squares(x, n) / (float)n + eps);
}

static void K(norm)(const struct job *j, const struct run *r, int thread)
{
    const struct norm_attr *a = j->call->attr;
    const float *w = vector_of(j->call->w[0]);
    int64_t from, to;
    pool_share(r->rows[j->rows], thread, r->n_threads, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *x = (const float *)j->in[0] + row * j->cols;
        const float *residual = j->in[1] ? (const float *)j->in[1] + row * j->cols : NULL;
        float *y = (float *)j->out[0] + row * j->cols;
        float scale = rms_scale(x, j->cols, a->eps);
        if (residual)
            for (int i = 0; i < j->cols; i++) y[i] = x[i] * scale * w[i] + residual[i];
        else
            for (int i = 0; i < j->cols; i++) y[i] = x[i] * scale * w[i];
        for (int64_t k = 0; j->x[X_Q8] && k * SUPER < j->cols; k++)     /* for the next product */
            quantise_block(y, j->cols, row, k, r->rows[j->rows], j->x[X_Q8]);
    }
}
