/* device/cpu/likely.h - LIKELY: one pass for the largest columns of a row, which looks closely only at blocks that
 * hold something larger than the smallest of those so far, and one for the sum, in 16 lanes (column i in lane
 * i % 16) that are combined as a tree. */

/* The finite value or minus infinity. */
INLINE float finite_or_least(float x)
{
    return x <= FLT_MAX ? x : -INFINITY;
}

/* Puts column i among the n largest so far, best first; returns how many there are then. */
INLINE int likely_insert(const float *x, int i, int k, int n, int32_t *ids)
{
    int at = n < k ? n : k - 1;
    for (; at > 0 && x[i] > x[ids[at - 1]]; at--) ids[at] = ids[at - 1];
    ids[at] = i;
    return n < k ? n + 1 : k;
}

INLINE int likely_pick(const float *x, int cols, int k, int32_t *ids)
{
    enum { PIECE = 4 * LANES };
    int n = 0, i = 0;
    float least = -INFINITY;            /* columns must be larger */
    for (int end = 0; i < cols; i = end) {
        end = i + PIECE < cols ? i + PIECE : cols;
        if (end - i == PIECE) {
            float most[LANES];
            bool any = false;
            for (int l = 0; l < LANES; l++) most[l] = -INFINITY;
            for (int b = 0; b < 4; b++)
                for (int l = 0; l < LANES; l++) {
                    float v = finite_or_least(x[i + b * LANES + l]);
                    most[l] = v > most[l] ? v : most[l];
                }
            for (int l = 0; l < LANES; l++) any |= most[l] > least;
            if (!any) continue;
        }
        for (int j = i; j < end; j++) {
            if (!(x[j] > least && x[j] <= FLT_MAX)) continue;
            n = likely_insert(x, j, k, n, ids);
            if (n == k) least = x[ids[k - 1]];
        }
    }
    return n;
}

INLINE float likely_sum(const float *x, int cols, float most, float scale)
{
    float sum[LANES] = { 0 };
    int i = 0;
    for (; i + LANES <= cols; i += LANES)
        for (int l = 0; l < LANES; l++) sum[l] += exp_f32(scale * (finite_or_least(x[i + l]) - most));
    for (int l = 0; i + l < cols; l++) sum[l] += exp_f32(scale * (finite_or_least(x[i + l]) - most));
    return tree_sum(sum);
}

static void K(likely)(const struct job *j, const struct run *r, int thread)
{
    const struct likely_attr *a = j->call->attr;
    float scale = a->scale != 0.0f ? a->scale : 1.0f;
    int64_t from, to;
    pool_share(r->rows[j->rows], thread, r->n_threads, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *x = (const float *)j->in[0] + row * j->cols;
        int32_t *ids = (int32_t *)j->out[0] + row * a->k;
        float *likely = (float *)j->out[1] + row * a->k;
        int n = likely_pick(x, j->cols, a->k, ids);
        float most = n ? x[ids[0]] : 0, total = n ? logf(likely_sum(x, j->cols, most, scale)) : 0;
        for (int i = 0; i < a->k; i++) {
            if (i >= n) ids[i] = -1;
            likely[i] = i < n ? scale * (x[ids[i]] - most) - total : 0;
        }
    }
}
