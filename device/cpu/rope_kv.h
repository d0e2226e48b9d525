/* device/cpu/rope_kv.h - ROPE_KV: norm and rotate q and k per head, move accepted bank rows into pages,
 * write k and v. A piece of work is one head of one row; commits come first, shared out by sequence and
 * kv head, with a barrier before the first write because a bank row may be overwritten. */

/* One position of one head's block, between places of two pages. */
INLINE void kv_copy(uint32_t format, int dim, const uint8_t *from, int from_pos, uint8_t *to, int to_pos)
{
    size_t row = (size_t)kv_row_bytes(format, dim);
    memcpy(to + (size_t)to_pos * row, from + (size_t)from_pos * row, row);
    size_t scales = (size_t)kv_scales_at(format, dim), each = (size_t)dim / 32 * 2;
    if (scales)
        memcpy(to + scales + (size_t)to_pos * each, from + scales + (size_t)from_pos * each, each);
}

INLINE void commit_head(const struct device_cache *c, const struct kv_layer *y, const struct step_seq *s, int head)
{
    const uint8_t *bank = bank_of(c, y->kind, s->slot);
    uint64_t k = kv_k_at(y, head), v = kv_v_at(y, head);
    for (int i = 0; i < s->n_commit; i++) {
        int pos = s->past - s->n_commit + i;
        uint8_t *page = page_of(c, y->kind, s->slot, pos);
        if (!page) continue;            /* outside a window: nobody reads it */
        kv_copy(y->k_format, y->k_dim, bank + k, s->commit[i], page + k, pos % PAGE);
        kv_copy(y->v_format, y->v_dim, bank + v, s->commit[i], page + v, pos % PAGE);
    }
}

/* u c - v s and v c + u s. Beside each other in one loop over neighbours GCC makes them one instruction that adds and
 * subtracts in turn and, where the processor has it, fuses the products into it, -ffp-contract or not: other bits. So
 * first parts and second parts are made apart. */
INLINE void rotate_halves(float *u, float *v, int half, const float *cs)
{
    for (int i = 0; i < half; i++) {
        float x = u[i], y = v[i], c = cs[2 * i], s = cs[2 * i + 1];
        u[i] = x * c - y * s;
        v[i] = y * c + x * s;
    }
}
INLINE void rotate(float *z, const struct rope_kv_attr *a, const float *cs)
{
    int half = a->rope_dims / 2;
    if (a->layout == ROPE_NEOX) {
        rotate_halves(z, z + half, half, cs);
        return;
    }
    float u[CPU_HEAD_MAX / 2], v[CPU_HEAD_MAX / 2];
    for (int i = 0; i < half; i++) u[i] = z[2 * i], v[i] = z[2 * i + 1];
    rotate_halves(u, v, half, cs);
    for (int i = 0; i < half; i++) z[2 * i] = u[i], z[2 * i + 1] = v[i];
}

/* As kv_encode, faster for whole lanes of f16. */
INLINE void encode_row(uint32_t format, int dim, uint8_t *block, int pos, const float *x)
{
    if (format != Q_F16 || dim % LANES) {
        kv_encode(format, dim, block, pos, x);
        return;
    }
    uint8_t *at = block + (uint64_t)pos * kv_row_bytes(format, dim);
    for (int d = 0; d < dim; d += LANES) v_to_f16(at + 2 * d, v_load(x + d));
}

/* Where the key of a row goes: its page, or NULL, and the place in it. */
INLINE uint8_t *row_page(const struct job *j, const struct run *r, int row, int *place)
{
    const struct device_cache *c = r->program->cache;
    const struct step_row *sr = &r->step->row[row];
    const struct step_seq *s = &r->step->seq[sr->seq];
    int kind = c->layout->layer[j->call->layer].kind;
    *place = r->step->head.wide ? sr->index % PAGE : row - s->first_row;
    return r->step->head.wide ? page_of(c, kind, s->slot, sr->index) : bank_of(c, kind, s->slot);
}

/* Asks for the lines that key head `head` of a row will be written to. They lie in memory, and stores wait for one line
 * after the other. */
INLINE void ask_to_write(const struct job *j, const struct run *r, int row, int head)
{
    const struct kv_layer *y = &r->program->cache->layout->layer[j->call->layer];
    int place;
    const uint8_t *page = row_page(j, r, row, &place);
    if (!page) return;
    uint64_t k_row = kv_row_bytes(y->k_format, y->k_dim), v_row = kv_row_bytes(y->v_format, y->v_dim);
    const uint8_t *k = page + kv_k_at(y, head) + (uint64_t)place * k_row;
    const uint8_t *v = page + kv_v_at(y, head) + (uint64_t)place * v_row;
    for (uint64_t i = 0; i < k_row; i += 64) __builtin_prefetch(k + i, 1);
    for (uint64_t i = 0; i < v_row; i += 64) __builtin_prefetch(v + i, 1);
}

/* Head h of row `row`: q heads, then k heads (with the v head beside). */
INLINE void rope_head(const struct job *j, const struct run *r, int row, int h)
{
    const struct rope_kv_attr *a = j->call->attr;
    int dim = a->head_dim, place;
    bool key = h >= a->heads;
    int stride = a->q_stride ? a->q_stride : dim, at = key ? a->heads * stride + (h - a->heads) * dim : h * stride;
    const float *x = (const float *)j->in[0] + (int64_t)row * j->cols + at;
    float k[CPU_HEAD_MAX];
    float *z = key ? k : (float *)j->out[0] + (int64_t)row * j->out_cols + h * dim;
    const float *w = vector_of(j->call->w[key ? W_QKV_KNORM : W_QKV_QNORM]);
    if (w) {
        float scale = rms_scale(x, dim, a->eps);
        for (int i = 0; i < dim; i++) z[i] = x[i] * scale * w[i];
    } else {
        memcpy(z, x, (size_t)dim * sizeof *z);
    }
    if (a->layout != ROPE_NONE) rotate(z, a, j->rope->at + (int64_t)row * j->rope->pairs * 2);
    if (!key) return;
    const struct kv_layer *y = &r->program->cache->layout->layer[j->call->layer];
    uint8_t *page = row_page(j, r, row, &place);
    if (!page) return;
    int head = h - a->heads;
    encode_row(y->k_format, dim, page + kv_k_at(y, head), place, z);
    encode_row(y->v_format, dim, page + kv_v_at(y, head), place, x + a->kv_heads * dim);
}

/* Asks for the first 64 positions of the kv head that this thread attends to first in the next job, as a rule. */
INLINE void ask_to_read(const struct job *j, const struct run *r, int thread)
{
    const struct kv_layer *y = &r->program->cache->layout->layer[j->call->layer];
    bool attends = j[1].call && j[1].call->op == OP_ATTN;       /* the list ends with an empty job */
    const uint8_t *at = attends ? attn_begin(j + 1, r, thread) : NULL;
    for (uint64_t i = 0; at && i < y->k_head + y->v_head; i += 64) __builtin_prefetch(at + i, 0, 2);
}

static void K(rope_kv)(const struct job *j, const struct run *r, int thread)
{
    const struct rope_kv_attr *a = j->call->attr;
    const struct device_cache *c = r->program->cache;
    const struct kv_layer *y = &c->layout->layer[j->call->layer];
    int64_t from, to;
    bool commits = false;
    for (int i = 0; i < r->step->head.n_seqs; i++) commits |= r->step->seq[i].n_commit > 0;
    if (commits) {
        pool_share((int64_t)r->step->head.n_seqs * a->kv_heads, thread, r->n_threads, &from, &to);
        for (int64_t i = from; i < to; i++)
            commit_head(c, y, &r->step->seq[i / a->kv_heads], (int)(i % a->kv_heads));
        pool_barrier(r->cpu->pool, thread);
    }
    int heads = a->heads + a->kv_heads;
    ask_to_read(j, r, thread);
    pool_share((int64_t)r->rows[j->rows] * heads, thread, r->n_threads, &from, &to);
    for (int64_t i = from; i < to && !r->step->head.wide; i++)
        if (i % heads >= a->heads) ask_to_write(j, r, (int)(i / heads), (int)(i % heads) - a->heads);
    for (int64_t i = from; i < to; i++) rope_head(j, r, (int)(i / heads), (int)(i % heads));
}
