/* device/cpu/route.h - ROUTE: scores of one row in f32, its largest by repeated search. The sum of a
 * softmax runs in 16 lanes (expert e in lane e % 16) that are combined as a tree. Scores of up to
 * CPU_EXPERTS experts lie in the thread's scratch. */

INLINE void route_scores(const struct route_attr *a, const float *z, float *p)
{
    float most = -INFINITY, sum[LANES] = { 0 };
    for (int e = 0; e < a->experts; e++) most = z[e] > most ? z[e] : most;
    for (int e = 0; e < a->experts; e++) {
        p[e] = a->score == SCORE_SIGMOID ? 1.0f / (1.0f + exp_f32(-z[e])) : exp_f32(z[e] - most);
        sum[e % LANES] += p[e];
    }
    float total = tree_sum(sum);
    for (int e = 0; e < a->experts && a->score == SCORE_SOFTMAX; e++) p[e] = p[e] / total;
}

static void K(route)(const struct job *j, const struct run *r, int thread)
{
    const struct route_attr *a = j->call->attr;
    const float *bias = vector_of(j->call->w[0]);
    float scale = a->scale != 0.0f ? a->scale : 1.0f;
    float *p = (float *)scratch_of(r, thread), *pick = p + CPU_EXPERTS;
    uint8_t *chosen = (uint8_t *)(pick + CPU_EXPERTS);
    int slots = a->used + a->shared;
    int64_t from, to;
    pool_share(r->rows[j->rows], thread, r->n_threads, &from, &to);
    for (int64_t row = from; row < to; row++) {
        int32_t *ids = (int32_t *)j->out[0] + row * slots;
        const float *z = (const float *)j->in[0] + row * j->cols;
        float *w = (float *)j->out[1] + row * slots, sum = 0;
        route_scores(a, z, p);
        for (int e = 0; e < a->experts; e++) pick[e] = bias ? p[e] + bias[e] : p[e];
        memset(chosen, 0, (size_t)a->experts);
        for (int s = 0; s < a->used; s++) {
            int best = -1;
            for (int e = 0; e < a->experts; e++) {
                if (chosen[e]) continue;
                bool more = best < 0 || pick[e] > pick[best] || (isnan(pick[best]) && !isnan(pick[e]));
                best = more ? e : best;
            }
            chosen[best] = 1;
            ids[s] = best;
            w[s] = p[best];
            sum += w[s];
        }
        for (int s = 0; s < a->used; s++) w[s] = (a->normalise ? w[s] / sum : w[s]) * scale;
        if (!a->shared) continue;
        ids[a->used] = a->experts;
        w[a->used] = 1.0f / (1.0f + exp_f32(-z[a->experts]));
    }
}
