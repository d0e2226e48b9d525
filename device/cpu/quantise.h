/* device/cpu/quantise.h - activations into the forms that products read, once per distinct input.
 * X_Q8: groups of 32, d = max |x| / 127, q to nearest even. A group that holds NaN, infinity or what no
 * model has (beyond 2^112, where LIFT * d comes near the largest number) gets the scale NaN, so that it
 * shows in the result. Blocks lie [k block][row]. */

#ifndef LANES_QUANTISE                  /* the lanes have one of their own */
INLINE void quantise_group(const float *x, struct xblock *b, int g)
{
    uint32_t top = 0;
    for (int i = 0; i < GROUP; i++) {
        uint32_t u = bits_of(x[i]) & 0x7fffffff;
        top = u > top ? u : top;
    }
    bool finite = group_finite(top);
    float inverse, d = group_scale(finite ? top : 0, &inverse);
    int32_t sum[2] = { 0 };
    int8_t *q = b->q + g * GROUP;
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < GROUP / 2; i++) {
            float t = (finite ? x[h * 16 + i] : 0.0f) * inverse + 12582912.0f;
            int32_t v = (int32_t)(bits_of(t) & 0x7fffff) - 0x400000;
            q[h * 16 + i] = (int8_t)v;
            sum[h] += v;
        }
    group_finish(b, g, finite ? d : NAN, sum[0], sum[1]);
}
#endif

/* Block k of a row of `cols` activations, of `rows` rows. */
INLINE void quantise_block(const float *x, int cols, int64_t row, int64_t k, int rows, struct xblock *to)
{
    int n = cols - (int)k * SUPER < SUPER ? cols - (int)k * SUPER : SUPER;
    for (int g = 0; g < n / GROUP; g++) quantise_group(x + k * SUPER + g * GROUP, to + k * rows + row, g);
}

static void K(quantise_q8)(const struct job *j, const struct run *r, int thread)
{
    int rows = rows_of_job(j, r), blocks = (j->cols + SUPER - 1) / SUPER;
    int64_t from, to;
    pool_share((int64_t)rows * blocks, thread, r->n_threads, &from, &to);
    for (int64_t i = from; i < to; i++)
        quantise_block((const float *)j->in[0] + i % rows * j->cols, j->cols, i % rows, i / rows, rows, j->x[X_Q8]);
}

/* X_BF16: rows of the columns rounded to nearest even, padded to pairs. */
static void K(quantise_bf16)(const struct job *j, const struct run *r, int thread)
{
    int wide = (j->cols + 1) / 2 * 2;
    int64_t from, to;
    pool_share(rows_of_job(j, r), thread, r->n_threads, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *x = (const float *)j->in[0] + row * j->cols;
        uint16_t *y = (uint16_t *)j->x[X_BF16] + row * wide;
        for (int i = 0; i < j->cols; i++) y[i] = f32_to_bf16(x[i]);
        if (wide > j->cols) y[j->cols] = 0;
    }
}
