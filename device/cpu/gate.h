/* device/cpu/gate.h - GATE: act(left half) * right half, columns of all rows shared out in pieces of 256;
 * gate_lanes is what GLU and MOE_GLU do with the sums of a strip. GATED: (norm of) a head times its gates, a head at
 * a time. */

static void K(gate_lanes)(enum act act, int n, const float *g, const float *u, float *y)
{
    if (act == ACT_SILU)
        for (int i = 0; i < n; i++) y[i] = silu_f32(g[i]) * u[i];
    else
        for (int i = 0; i < n; i++) y[i] = gelu_tanh_f32(g[i]) * u[i];
}

static void K(gate)(const struct job *j, const struct run *r, int thread)
{
    const struct gate_attr *a = j->call->attr;
    int n = j->out_cols, pieces = (n + SUPER - 1) / SUPER;
    int64_t from, to;
    pool_share((int64_t)r->rows[j->rows] * pieces, thread, r->n_threads, &from, &to);
    for (int64_t i = from; i < to; i++) {
        int64_t row = i / pieces;
        int at = (int)(i % pieces) * SUPER, m = n - at < SUPER ? n - at : SUPER;
        const float *g = (const float *)j->in[0] + row * j->cols + at, *u = g + n;
        K(gate_lanes)(a->act, m, g, u, (float *)j->out[0] + row * n + at);
    }
}

/* What n gates multiply by. */
INLINE void gate_factors(int fn, int n, const float *g, float *f)
{
    if (fn == GATE_SILU)
        for (int i = 0; i < n; i++) f[i] = silu_f32(g[i]);
    else
        for (int i = 0; i < n; i++) f[i] = 1.0f / (1.0f + exp_f32(-g[i]));
}

/* A head in pieces whose every loop is one of vectors. w: its norm, or NULL; add: what is added, or NULL. */
INLINE void gated_head(const struct gated_attr *a, const float *x, const float *w, const float *g, const float *add,
                       float *y)
{
    enum { PIECE = 4 * LANES };
    float f[PIECE], t[PIECE], scale = w ? rms_scale(x, a->dim, a->eps) : 1.0f, one = 0;
    if (a->scalar) gate_factors(a->fn, 1, g, &one);
    for (int from = 0; from < a->dim; from += PIECE) {
        int n = a->dim - from < PIECE ? a->dim - from : PIECE;
        memcpy(t, x + from, (size_t)n * sizeof *t);
        if (w)
            for (int i = 0; i < n; i++) t[i] = t[i] * scale * w[from + i];
        if (!a->scalar) gate_factors(a->fn, n, g + from, f);
        if (a->scalar)
            for (int i = 0; i < n; i++) t[i] *= one;
        else
            for (int i = 0; i < n; i++) t[i] *= f[i];
        if (add)
            for (int i = 0; i < n; i++) t[i] += add[from + i];
        memcpy(y + from, t, (size_t)n * sizeof *t);
    }
}

static void K(gated)(const struct job *j, const struct run *r, int thread)
{
    const struct gated_attr *a = j->call->attr;
    const float *w = vector_of(j->call->w[0]);
    int gate_cols = tape_shape(r->program->tape, j->call->in[1]).cols;
    int64_t from, to;
    pool_share((int64_t)r->rows[j->rows] * a->heads, thread, r->n_threads, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const float *g = (const float *)j->in[1] + i / a->heads * gate_cols + a->at + i % a->heads * a->stride;
        const float *add = j->call->n_in > 2 ? (const float *)j->in[2] + i * a->dim : NULL;
        gated_head(a, (const float *)j->in[0] + i * a->dim, w, g, add, (float *)j->out[0] + i * a->dim);
    }
}
