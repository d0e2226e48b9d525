/* device/cpu/recur.h - SHORT_CONV and DELTA: the ops of recurrent layers.
 *
 * SHORT_CONV. A piece of work is 256 channels of one sequence: channels do not see each other, so commit, rows and
 * the new state follow each other without a barrier. Sum: taps upwards, acc = fma(w, x, acc).
 *
 * DELTA. The memory of a value head is held in blocks of 16 columns, [k_dim][16]; columns do not see each other, so a
 * block, or DELTA_BLOCKS neighbours (of the lanes), goes through all rows of its sequence while it lies in the nearest
 * cache (8 KB at k_dim 128). Three rounds:
 * redo what was accepted; norm keys and queries, make the gates; run the rows. Narrow rows work on a copy that follows
 * the path: where a row does not continue the one before, the copy starts again from the state and redoes the row's
 * ancestors, which gives the bits that they gave. Sums over k_dim: element i in accumulator i % 4, (0 + 1) + (2 + 3).
 * Wide rows are run by the same loop, which on a CPU costs less than the products by far. */

enum { CONV_STRIPS = 16, TAPS_MAX = 16, KEY_MAX = 256 };

INLINE v16 load_some(const float *p, int n)
{
    float t[LANES] = { 0 };
    memcpy(t, p, (size_t)n * sizeof *t);
    return v_load(t);
}

struct conv_piece {
    const struct kv_state *k;
    const struct step_seq *seq;
    float *state, *journal;         /* of the layer and slot */
    int from, to;                   /* channels */
};

INLINE float *layer_state(const struct device_cache *c, const struct kv_layer *y, int slot)
{
    return (float *)(void *)(c->pool[KV_STATE] + (uint64_t)slot * c->layout->kind[KV_STATE].page_bytes + y->offset);
}
INLINE float *layer_journal(const struct device_cache *c, const struct kv_layer *y, int slot)
{
    uint64_t bytes = c->layout->kind[KV_JOURNAL].page_bytes;
    return (float *)(void *)(c->pool[KV_JOURNAL] + (uint64_t)slot * bytes + y->journal);
}

/* A column newer than all that the state holds. */
INLINE void conv_shift(const struct conv_piece *p, const float *column)
{
    size_t bytes = (size_t)(p->to - p->from) * sizeof *column;
    float *at = p->state + p->from;
    for (int i = 0; i + 2 < p->k->taps; i++, at += p->k->channels) memcpy(at, at + p->k->channels, bytes);
    memcpy(at, column + p->from, bytes);
}

INLINE void conv_commit(const struct conv_piece *p)
{
    size_t bytes = (size_t)(p->to - p->from) * sizeof *p->state;
    for (int i = 0; p->seq->past == p->seq->n_commit && i + 1 < p->k->taps; i++)
        memset(p->state + (size_t)i * (size_t)p->k->channels + p->from, 0, bytes);
    for (int i = 0; i < p->seq->n_commit; i++)
        conv_shift(p, p->journal + (size_t)p->seq->commit[i] * (size_t)p->k->channels);
}

/* Asks for the lines of the journal that a row will be written to: they lie in memory, and stores wait for one line
 * after the other. */
INLINE void conv_ask(const struct conv_piece *p, int row)
{
    const float *at = p->journal + (size_t)row * (size_t)p->k->channels;
    for (int c = p->from; c < p->to; c += LANES) __builtin_prefetch(at + c, 1);
}

/* Row j of the sequence: what it sees, then its channels. */
INLINE void conv_row(const struct job *j, const struct run *r, const struct conv_piece *p, int row)
{
    const float *window[TAPS_MAX], *x = (const float *)j->in[0] + (int64_t)p->seq->first_row * j->cols;
    uint64_t path = r->step->head.wide ? UINT64_MAX : r->step->row[p->seq->first_row + row].path;
    int at = p->k->taps - 1;
    for (int i = row; i >= 0 && at >= 0; i--)
        if (i >= NARROW_ROWS || path >> i & 1) window[at--] = x + (int64_t)i * j->cols;
    for (int i = p->k->taps - 2; at >= 0; i--) window[at--] = p->state + (size_t)i * (size_t)p->k->channels;
    const struct packed *w = packed_of(j->call->w[0]);
    float *y = (float *)j->out[0] + (int64_t)(p->seq->first_row + row) * j->out_cols;
    for (int c = p->from; c < p->to; c += LANES) {
        const float *taps = (const float *)(const void *)(w->data + (size_t)(c / LANES) * w->strip_bytes);
        int n = p->to - c < LANES ? p->to - c : LANES;
        v16 sum = v_all(0);
        float t[LANES];
        if (n == LANES)
            for (int i = 0; i < p->k->taps; i++) sum = v_fma(v_load(taps + i * LANES), v_load(window[i] + c), sum);
        else
            for (int i = 0; i < p->k->taps; i++)
                sum = v_fma(v_load(taps + i * LANES), load_some(window[i] + c, n), sum);
        v_store(t, sum);
        for (int l = 0; l < LANES; l++) t[l] = silu_f32(t[l]);
        if (n == LANES) memcpy(y + c, t, sizeof t);
        else memcpy(y + c, t, (size_t)n * sizeof *t);
    }
}

static void K(short_conv)(const struct job *j, const struct run *r, int thread)
{
    const struct device_cache *c = r->program->cache;
    const struct kv_layer *y = &c->layout->layer[j->call->layer];
    int width = CONV_STRIPS * LANES, pieces = (j->out_cols + width - 1) / width;
    int64_t first, end;
    pool_share((int64_t)r->step->head.n_seqs * pieces, thread, r->n_threads, &first, &end);
    for (int64_t i = first; i < end; i++) {
        const struct step_seq *s = &r->step->seq[i / pieces];
        int from = (int)(i % pieces) * width;
        struct conv_piece p = { &y->state, s, layer_state(c, y, s->slot), layer_journal(c, y, s->slot), from,
                                from + width < j->out_cols ? from + width : j->out_cols };
        const float *x = (const float *)j->in[0] + (int64_t)s->first_row * j->cols;
        conv_commit(&p);
        for (int row = 0; row < s->n_rows; row++) {
            if (!r->step->head.wide) conv_ask(&p, row);
            conv_row(j, r, &p, row);
        }
        for (int row = 0; row < s->n_rows; row++, x += j->cols) {
            size_t bytes = (size_t)(p.to - p.from) * sizeof *x;
            if (r->step->head.wide && s->n_rows - row < y->state.taps) conv_shift(&p, x);
            if (!r->step->head.wide) memcpy(p.journal + (size_t)row * (size_t)j->out_cols + p.from, x + p.from, bytes);
        }
    }
}

/* What DELTA's rounds share. In job.work: [row][k_heads][k_dim] queries, then keys, [row][v_heads] decays, then
 * betas. */
struct delta {
    const struct job *j;
    const struct run *r;
    const struct delta_attr *a;
    const struct kv_layer *layer;
    float *q, *k, *decay, *beta;
    int blocks, pieces;             /* of a head; in pieces of up to DELTA_BLOCKS */
};

INLINE int delta_key_head(const struct delta_attr *a, int head)
{
    return a->grouped ? head / (a->v_heads / a->k_heads) : head % a->k_heads;
}

/* One row's update of a block: s = decay * s + key d. */
INLINE void delta_redo(float *s, int n, const float *key, const float *correction, float decay)
{
    v16 d = v_load(correction), f = v_all(decay);
    for (int i = 0; i < n; i++, s += LANES) v_store(s, v_fma(v_all(key[i]), d, v_mul(f, v_load(s))));
}

INLINE v16 delta_sum(const v16 acc[4])
{
    return v_add(v_add(acc[0], acc[1]), v_add(acc[2], acc[3]));
}

/* acc += k s for element i of m blocks of n; e is its accumulator. */
INLINE void delta_dot(const float *s, int n, int m, const float *k, int i, int e, v16 acc[][4])
{
    v16 key = v_all(k[i]);
    for (int x = 0; x < m; x++) acc[x][e] = v_fma(key, v_load(s + (x * n + i) * LANES), acc[x][e]);
}

/* s = decay s + k d and acc += q s, likewise. */
INLINE void delta_step(float *s, int n, int m, const float *q, const float *k, int i, int e, v16 decay, const v16 *d,
                       v16 acc[][4])
{
    v16 key = v_all(k[i]), query = v_all(q[i]);
    for (int x = 0; x < m; x++) {
        float *at = s + (x * n + i) * LANES;
        v16 z = v_fma(key, d[x], v_mul(decay, v_load(at)));
        v_store(at, z);
        acc[x][e] = v_fma(query, z, acc[x][e]);
    }
}

/* One row of m neighbouring blocks, a constant: the correction and the output, 16 columns of each. */
INLINE void delta_row(float *s, int n, int m, const float *q, const float *k, const float *v, float decay, float beta,
                      float *correction, float *o)
{
    v16 acc[DELTA_BLOCKS][4], d[DELTA_BLOCKS];
    for (int x = 0; x < m; x++)
        for (int e = 0; e < 4; e++) acc[x][e] = v_all(0);
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int e = 0; e < 4; e++) delta_dot(s, n, m, k, i + e, e, acc);
    for (int e = 0; i + e < n; e++) delta_dot(s, n, m, k, i + e, e, acc);
    for (int x = 0; x < m; x++) {
        d[x] = v_mul(v_all(beta), v_fma(v_all(-decay), delta_sum(acc[x]), v_load(v + x * LANES)));
        v_store(correction + x * LANES, d[x]);
        for (int e = 0; e < 4; e++) acc[x][e] = v_all(0);
    }
    for (i = 0; i + 4 <= n; i += 4)
        for (int e = 0; e < 4; e++) delta_step(s, n, m, q, k, i + e, e, v_all(decay), d, acc);
    for (int e = 0; i + e < n; e++) delta_step(s, n, m, q, k, i + e, e, v_all(decay), d, acc);
    for (int x = 0; x < m; x++) v_store(o + x * LANES, delta_sum(acc[x]));
}

struct delta_block {
    const struct step_seq *seq;
    int head, key_head, column, m;                  /* m neighbouring blocks */
    float *state, *keys, *corrections, *decays;     /* of this block; the journal's from row 0 on */
};

INLINE struct delta_block delta_block_of(const struct delta *d, int64_t number)
{
    const struct device_cache *c = d->r->program->cache;
    const struct kv_state *k = &d->layer->state;
    int block = (int)(number % d->pieces) * DELTA_BLOCKS, head = (int)(number / d->pieces % d->a->v_heads);
    const struct step_seq *s = &d->r->step->seq[number / d->pieces / d->a->v_heads];
    float *state = layer_state(c, d->layer, s->slot) + kv_conv_size(k), *journal = layer_journal(c, d->layer, s->slot);
    int key_head = delta_key_head(d->a, head);
    return (struct delta_block){
        .seq = s, .head = head, .key_head = key_head, .column = block * LANES,
        .m = d->blocks - block < DELTA_BLOCKS ? d->blocks - block : DELTA_BLOCKS,
        .state = state + ((size_t)head * (size_t)d->blocks + (size_t)block) * (size_t)(k->k_dim * LANES),
        .keys = journal + kv_journal_at(k, JOURNAL_KEY) + (size_t)key_head * (size_t)k->k_dim,
        .corrections = journal + kv_journal_at(k, JOURNAL_CORRECTION) + (size_t)head * (size_t)k->v_dim + block * LANES,
        .decays = journal + kv_journal_at(k, JOURNAL_DECAY) + head };
}

/* Row `row` of the journal, once more. */
INLINE void delta_replay(const struct delta *d, const struct delta_block *b, float *s, int row)
{
    const struct delta_attr *a = d->a;
    for (int x = 0; x < b->m; x++)
        delta_redo(s + x * a->k_dim * LANES, a->k_dim, b->keys + (size_t)row * (size_t)(a->k_heads * a->k_dim),
                   b->corrections + (size_t)row * (size_t)(a->v_heads * a->v_dim) + x * LANES,
                   b->decays[(size_t)row * (size_t)a->v_heads]);
}

INLINE void delta_commit(const struct delta *d, const struct delta_block *b)
{
    if (b->seq->past == b->seq->n_commit) memset(b->state, 0, (size_t)(b->m * d->a->k_dim) * LANES * sizeof *b->state);
    for (int i = 0; i < b->seq->n_commit; i++) delta_replay(d, b, b->state, b->seq->commit[i]);
}

/* Asks for a part of the piece that follows: its state, and where its correction of row i goes. */
INLINE void delta_ask(const struct delta_block *b, size_t size, int m, int i, size_t values)
{
    size_t rows = (size_t)b->seq->n_rows, from = size * (size_t)i / rows, to = size * ((size_t)i + 1) / rows;
    for (from = from / LANES * LANES; from < to; from += LANES) __builtin_prefetch(b->state + size + from);
    for (int x = 0; x < m; x++) __builtin_prefetch(b->corrections + (size_t)i * values + (m + x) * LANES, 1);
}

/* m: b->m, a constant. */
INLINE void delta_run_block(const struct delta *d, const struct delta_block *b, int m)
{
    const struct delta_attr *a = d->a;
    const struct step *step = d->r->step;
    bool wide = step->head.wide;
    float copy[DELTA_BLOCKS * KEY_MAX * LANES], unused[DELTA_BLOCKS * LANES], *s = wide ? b->state : copy;
    size_t bytes = (size_t)(m * a->k_dim) * LANES * sizeof *copy, keys = (size_t)(a->k_heads * a->k_dim);
    size_t values = (size_t)(a->v_heads * a->v_dim), key_at = (size_t)b->key_head * (size_t)a->k_dim;
    size_t value_at = (size_t)b->head * (size_t)a->v_dim + (size_t)b->column;
    uint64_t holds = 0;             /* path of the row that the copy stands after */
    if (!wide && b->seq->n_rows) memcpy(copy, b->state, bytes);
    for (int i = 0; i < b->seq->n_rows; i++) {
        size_t row = (size_t)(b->seq->first_row + i), gate = row * (size_t)a->v_heads + (size_t)b->head;
        uint64_t path = step->row[row].path, before = path & ~((uint64_t)1 << i % 64);
        if (!wide && before != holds) {
            memcpy(copy, b->state, bytes);
            for (int e = 0; e < i; e++)
                if (before >> e & 1) delta_replay(d, b, copy, e);
        }
        holds = path;
        const float *x = (const float *)d->j->in[0] + (int64_t)row * d->j->cols;
        if (!wide) delta_ask(b, (size_t)(m * a->k_dim) * LANES, m, i, values);
        delta_row(s, a->k_dim, m, d->q + row * keys + key_at, d->k + row * keys + key_at, x + 2 * keys + value_at,
                  d->decay[gate], d->beta[gate], wide ? unused : b->corrections + (size_t)i * values,
                  (float *)d->j->out[0] + row * values + value_at);
    }
}

/* The second round for a key head of a row. */
INLINE void delta_keys(const struct delta *d, int row, int head)
{
    int n = d->a->k_dim, keys = d->a->k_heads * n;
    const struct step_seq *s = &d->r->step->seq[d->r->step->row[row].seq];
    const float *x = (const float *)d->j->in[0] + (int64_t)row * d->j->cols + head * n;
    float *out[2] = { d->q + (int64_t)row * keys + head * n, d->k + (int64_t)row * keys + head * n };
    for (int i = 0; i < 2; i++, x += keys) {
        float length = sqrtf(sum_squares(x, n)), least = length > d->a->eps ? length : d->a->eps;
        float scale = 1.0f / (i ? least : least * sqrtf((float)n));
        for (int e = 0; e < n; e++) out[i][e] = x[e] * scale;
    }
    if (d->r->step->head.wide) return;
    float *journal = layer_journal(d->r->program->cache, d->layer, s->slot);
    journal += kv_journal_at(&d->layer->state, JOURNAL_KEY);
    memcpy(journal + (int64_t)(row - s->first_row) * keys + head * n, out[1], (size_t)n * sizeof *journal);
}

INLINE void delta_gates(const struct delta *d, int row)
{
    const struct delta_attr *a = d->a;
    const struct step_seq *s = &d->r->step->seq[d->r->step->row[row].seq];
    const float *g = (const float *)d->j->in[1] + (int64_t)row * 2 * a->v_heads;
    const float *w = vector_of(d->j->call->w[W_DELTA_A]), *dt = vector_of(d->j->call->w[W_DELTA_DT]);
    float *decay = d->decay + (int64_t)row * a->v_heads, *beta = d->beta + (int64_t)row * a->v_heads;
    int per = a->v_heads / a->k_heads;
    for (int h = 0; h < a->v_heads; h++) {
        int in_group = h / per * 2 * per + h % per;
        float z = g[a->grouped ? in_group + per : h] + dt[h];
        decay[h] = expf((z > 20 ? z : log1pf(expf(z))) * w[h]);
        beta[h] = 1.0f / (1.0f + expf(-g[a->grouped ? in_group : a->v_heads + h]));
    }
    if (d->r->step->head.wide) return;
    float *journal = layer_journal(d->r->program->cache, d->layer, s->slot);
    journal += kv_journal_at(&d->layer->state, JOURNAL_DECAY);
    memcpy(journal + (int64_t)(row - s->first_row) * a->v_heads, decay, (size_t)a->v_heads * sizeof *decay);
}

static void K(delta)(const struct job *j, const struct run *r, int thread)
{
    const struct delta_attr *a = j->call->attr;
    int64_t rows = r->rows[j->rows], keys = rows * a->k_heads * a->k_dim, blocks = a->v_dim / LANES, from, to;
    struct delta d = { .j = j, .r = r, .a = a, .layer = &r->program->cache->layout->layer[j->call->layer],
                       .q = j->work, .k = j->work + keys, .decay = j->work + 2 * keys,
                       .beta = j->work + 2 * keys + rows * a->v_heads, .blocks = (int)blocks,
                       .pieces = (int)(blocks + DELTA_BLOCKS - 1) / DELTA_BLOCKS };
    bool commits = false;
    for (int i = 0; i < r->step->head.n_seqs; i++)
        commits |= r->step->seq[i].n_commit > 0 || r->step->seq[i].past == 0;
    int64_t pieces = (int64_t)r->step->head.n_seqs * a->v_heads * d.pieces;
    if (commits) {
        pool_share(pieces, thread, r->n_threads, &from, &to);
        for (int64_t i = from; i < to; i++) {
            struct delta_block b = delta_block_of(&d, i);
            delta_commit(&d, &b);
        }
        pool_barrier(r->cpu->pool, thread);         /* the journal is written below */
    }
    pool_share(rows * (a->k_heads + 1), thread, r->n_threads, &from, &to);
    for (int64_t i = from; i < to; i++) {
        int row = (int)(i / (a->k_heads + 1)), head = (int)(i % (a->k_heads + 1));
        if (head < a->k_heads) delta_keys(&d, row, head);
        else delta_gates(&d, row);
    }
    pool_barrier(r->cpu->pool, thread);
    pool_share(pieces, thread, r->n_threads, &from, &to);
    for (int64_t i = from; i < to; i++) {
        struct delta_block b = delta_block_of(&d, i);
        _Static_assert(DELTA_BLOCKS <= 2, "one block, or all");
        if (b.m == DELTA_BLOCKS) delta_run_block(&d, &b, DELTA_BLOCKS);
        else delta_run_block(&d, &b, 1);
    }
}
