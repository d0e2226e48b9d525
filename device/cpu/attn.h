/* device/cpu/attn.h - ATTN over paged keys and values.
 * A unit of work is up to 64 columns (rows times the query heads of one kv head) of one sequence, over
 * all splits of 512 positions in turn or, in narrow programs, one split each, folded in order after a
 * barrier. Inside a split, tiles of 64 positions (a page) are turned to f32 once for all columns; the
 * softmax runs along with a maximum that only rises.
 * For up to 24 columns a tile of f16 is read where it lies, but for its keys, which are turned as halves; the next
 * one is asked for meanwhile.
 * Order, whatever the width: a score sums head dims upwards; a tile's weights sum in 16 lanes; values
 * sum positions upwards; splits fold upwards. A bank row stands at the position that it would have:
 * for a chain all columns share such tiles, for a tree each row builds its own. */

enum { COLS = 64, SPLIT = 512, CACHE_LINE = 64 };

/* Up to so many columns a tile of f16 is converted for each block of them: writing it as f32 would take longer. */
enum { NEAR_COLS = 4 * BLOCK };
/* BLOCK (of the lanes): columns that share what is loaded, as many as there are registers for. */
struct attn_work {                      /* in the thread's scratch; dims padded to whole lanes */
    float kt[CPU_HEAD_MAX * PAGE];      /* [dim][position] */
    float v[PAGE * CPU_HEAD_MAX];       /* [position][dim] */
    float k[LANES * CPU_HEAD_MAX];      /* [position][dim] of 16 positions */
    float q[COLS * CPU_HEAD_MAX];       /* [column][dim] */
    float acc[COLS * CPU_HEAD_MAX];     /* of the split */
    float all[COLS * CPU_HEAD_MAX];     /* of the splits before */
    float p[BLOCK * PAGE];              /* scores, then weights, of a block */
    float top[COLS], sum[COLS], all_top[COLS], all_sum[COLS];
};
_Static_assert(sizeof(struct attn_work) <= CPU_SCRATCH, "fits the thread's scratch");

struct attn_unit {
    const struct attn_attr *a;
    const struct device_cache *cache;
    const struct kv_layer *layer;
    const struct step *step;
    const struct step_seq *seq;
    int kv_head, first, n;              /* columns: row first / group.., see column() */
    bool chain;                         /* bank row j stands at past + j for every row that sees it */
    int row[COLS], head[COLS];          /* of the step; of all query heads */
    int lo[COLS], hi[COLS];             /* visible positions, but not those in [gap, past) */
    int gap[COLS];
    int past;                           /* where bank rows begin; INT32_MAX in a wide step */
};
static const float LOWEST = -1e30f;

INLINE bool is_chain(const struct step *s, const struct step_seq *q)
{
    for (int j = 0; j < q->n_rows; j++)
        if (s->row[q->first_row + j].path != (j == 63 ? ~0ull : (2ull << j) - 1)) return false;
    return true;
}

INLINE void unit_columns(struct attn_unit *u)
{
    int group = u->a->heads / u->a->kv_heads, window = u->a->window;
    bool wide = u->step->head.wide;
    u->past = wide ? INT32_MAX : u->seq->past;
    for (int c = 0; c < u->n; c++) {
        u->row[c] = u->seq->first_row + (u->first + c) / group;
        u->head[c] = u->kv_head * group + (u->first + c) % group;
        const struct step_row *r = &u->step->row[u->row[c]];
        u->lo[c] = window && r->index - window + 1 > 0 ? r->index - window + 1 : 0;
        u->gap[c] = r->see < u->past - 1 ? r->see + 1 : u->past;
        int bank = u->a->block ? u->seq->n_rows : __builtin_popcountll(r->path);
        u->hi[c] = wide ? r->see : u->past + bank - 1;
    }
}

/* Bits of positions from..to (inclusive) of the tile at t. */
INLINE uint64_t range_bits(int t, int from, int to)
{
    from = from > t ? from - t : 0;
    to = to - t;
    if (to < 0 || from > 63 || from > to) return 0;
    uint64_t high = to >= 63 ? ~0ull : (2ull << to) - 1;
    return high & (~0ull << from);
}

INLINE uint64_t visible_bits(const struct attn_unit *u, int c, int t)
{
    uint64_t see = range_bits(t, u->lo[c], u->hi[c]);
    if (u->gap[c] < u->past && u->past != INT32_MAX) see &= ~range_bits(t, u->gap[c], u->past - 1);
    return see;
}

/* Where 64 positions lie: their page, the bank, the page of the next 64; NULL: nowhere, or not needed. */
struct attn_place {
    const uint8_t *page, *bank, *next;
};

INLINE struct attn_place place_of(const struct attn_unit *u, int t)
{
    int kind = u->layer->kind, slot = u->seq->slot;
    return (struct attn_place){ .page = t < u->past ? page_of(u->cache, kind, slot, t) : NULL,
                                .bank = u->past < t + PAGE ? bank_of(u->cache, kind, slot) : NULL,
                                .next = t + PAGE < u->past ? page_of(u->cache, kind, slot, t + PAGE) : NULL };
}

/* Where position p of row `row` lies: a page and a place in it, or NULL. */
INLINE const uint8_t *find_position(const struct attn_unit *u, const struct attn_place *at, int row, int p, int *place)
{
    if (p < u->past) {
        *place = p % PAGE;
        return at->page;
    }
    int nth = p - u->past;
    uint64_t path = u->step->row[row].path;
    if (!u->chain)
        for (int i = 0; i < nth; i++) path &= path - 1;
    *place = u->chain ? nth : path ? __builtin_ctzll(path) : 0;
    return at->bank;
}

INLINE int padded(int dim)
{
    return (dim + LANES - 1) / LANES * LANES;
}

/* Position pos of a head's block as kv_decode gives it, faster for whole lanes. */
INLINE void decode_row(uint32_t format, int dim, const uint8_t *block, int pos, float *to)
{
    const uint8_t *at = block + (uint64_t)pos * kv_row_bytes(format, dim);
    if (dim % GROUP || format == Q_Q4_0) {
        kv_decode(format, dim, block, pos, to);
        memset(to + dim, 0, (size_t)(padded(dim) - dim) * sizeof *to);
    } else if (format == Q_F16) {
        for (int d = 0; d < dim; d += LANES) v_store(to + d, v_from_f16(at + 2 * d));
    } else if (format == Q_Q8_0) {
        const uint8_t *scale = block + kv_scales_at(format, dim) + (size_t)pos * 2 * (size_t)(dim / GROUP);
        for (int d = 0; d < dim; d += GROUP) {
            uint16_t h;
            memcpy(&h, scale + d / GROUP * 2, sizeof h);
            v16 m = v_all(f16_to_f32(h));
            v_store(to + d, v_mul(v_from_i8(at + d), m));
            v_store(to + d + LANES, v_mul(v_from_i8(at + d + LANES), m));
        }
    } else {
        for (int d = 0; d < dim; d++) {
            uint16_t h;
            memcpy(&h, at + 2 * d, sizeof h);
            to[d] = float_of((uint32_t)h << 16);
        }
    }
}

/* Asks for bytes of a row. */
INLINE void ask_for(const uint8_t *at, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += CACHE_LINE) __builtin_prefetch(at + i, 0, 2);
}

/* Keys and values of the tile's positions in `need`, as row `row` sees them; zero elsewhere. */
static void K(attn_load)(const struct attn_unit *u, struct attn_work *w, int row, int t, uint64_t need)
{
    int dim = u->a->head_dim, wide = padded(dim);
    uint64_t k_at = kv_k_at(u->layer, u->kv_head), v_at = kv_v_at(u->layer, u->kv_head);
    uint64_t k_row = kv_row_bytes(u->layer->k_format, dim), v_row = kv_row_bytes(u->layer->v_format, dim);
    struct attn_place at = place_of(u, t);
    for (int from = 0; from < PAGE; from += LANES) {
        for (int i = 0; i < LANES; i++) {
            if (at.next) {
                ask_for(at.next + k_at + (uint64_t)(from + i) * k_row, k_row);
                ask_for(at.next + v_at + (uint64_t)(from + i) * v_row, v_row);
            }
            float *k = w->k + i * wide, *v = w->v + (from + i) * wide;
            int place = 0;
            const uint8_t *page = need >> (from + i) & 1 ? find_position(u, &at, row, t + from + i, &place) : NULL;
            if (page) {
                decode_row(u->layer->k_format, dim, page + k_at, place, k);
                decode_row(u->layer->v_format, dim, page + v_at, place, v);
            } else {
                memset(k, 0, (size_t)wide * sizeof *k);
                memset(v, 0, (size_t)wide * sizeof *v);
            }
        }
        for (int d = 0; d < wide; d += LANES) {
            v16 k[LANES];
            for (int i = 0; i < LANES; i++) k[i] = v_load(w->k + i * wide + d);
            v_transpose(k);
            for (int i = 0; i < LANES; i++) v_store(w->kt + (d + i) * PAGE + from, k[i]);
        }
    }
}

/* A tile of f16 rows: values where they lie, keys turned as they are, so that both stay in the first-level cache. */
struct near {
    const uint8_t *k[PAGE], *v[PAGE];   /* rows; of zeros where nobody sees */
    const uint8_t *next_k, *next_v;     /* the tile after, or NULL */
    uint64_t k_row, v_row;
    const uint16_t *kt;                 /* [dim][position] */
};

static void K(near_find)(const struct attn_unit *u, int t, uint64_t need, struct near *r)
{
    static const uint16_t zeros[CPU_HEAD_MAX];
    uint64_t k_at = kv_k_at(u->layer, u->kv_head), v_at = kv_v_at(u->layer, u->kv_head);
    struct attn_place at = place_of(u, t);
    r->k_row = r->v_row = 2 * (uint64_t)u->a->head_dim;
    for (int i = 0; i < PAGE; i++) {
        int place = 0;
        const uint8_t *page = need >> i & 1 ? find_position(u, &at, u->row[0], t + i, &place) : NULL;
        r->k[i] = page ? page + k_at + (uint64_t)place * r->k_row : (const uint8_t *)zeros;
        r->v[i] = page ? page + v_at + (uint64_t)place * r->v_row : (const uint8_t *)zeros;
    }
    r->next_k = at.next ? at.next + k_at : NULL;
    r->next_v = at.next ? at.next + v_at : NULL;
}

#ifndef LANES_TURN                      /* the lanes have one of their own */
INLINE void v_turn_halves(const uint8_t *const *row, int at, int n, uint16_t *to)
{
    for (int i = 0; i < LANES; i++)
        for (int e = 0; e < n; e++) memcpy(to + e * PAGE + i, row[i] + 2 * (at + e), 2);
}
#endif

/* Asks for half of the next tile's keys meanwhile. */
static void K(near_turn)(struct near *r, struct attn_work *w, int dim)
{
    uint16_t *kt = (uint16_t *)(void *)w->kt;
    for (int from = 0; from < PAGE; from += LANES)
        for (int d = 0; d < dim; d += 2 * LANES) {
            int n = dim - d < 2 * LANES ? dim - d : 2 * LANES;
            if (r->next_k) ask_for(r->next_k + (from * r->k_row + (uint64_t)d * 2 * LANES) / 2, LANES * (uint64_t)n);
            v_turn_halves(r->k + from, d, n, kt + d * PAGE + from);
        }
    r->kt = kt;
}

/* Scores of m columns from c on with the tile's positions, into w->p. m is a constant, and whether r is NULL. */
INLINE void block_scores(const struct near *r, struct attn_work *w, int c, int m, int dim, int wide)
{
    v16 s[BLOCK][PAGE / LANES];
    for (int x = 0; x < m; x++)
        for (int i = 0; i < PAGE / LANES; i++) s[x][i] = v_all(0.0f);
    for (int d = 0; d < dim; d++) {
        v16 k[PAGE / LANES];
        for (int i = 0; i < PAGE / LANES; i++) {
            int at = d * PAGE + i * LANES;
            k[i] = r ? v_from_f16((const uint8_t *)(r->kt + at)) : v_load(w->kt + at);
        }
        if (r && c == 0 && r->next_k) ask_for(r->next_k + PAGE / 2 * r->k_row + (uint64_t)d * PAGE, PAGE);
        for (int x = 0; x < m; x++) {
            v16 q = v_all(w->q[(c + x) * wide + d]);
            for (int i = 0; i < PAGE / LANES; i++) s[x][i] = v_fma(k[i], q, s[x][i]);
        }
    }
    for (int x = 0; x < m; x++)
        for (int i = 0; i < PAGE / LANES; i++) v_store(w->p + x * PAGE + i * LANES, s[x][i]);
}

INLINE v16 value_lanes(const struct near *r, const struct attn_work *w, int i, int d, int wide)
{
    return r ? v_from_f16(r->v[i] + 2 * d) : v_load(w->v + i * wide + d);
}

/* acc = acc * f and the tile's values by the weights in w->p, for m columns from c on. */
INLINE void block_values(const struct near *r, struct attn_work *w, int c, int m, const float *f, int wide)
{
    enum { SPAN = 4 };                      /* vectors of dims at a time */
    for (int d = 0; d < wide; d += SPAN * LANES) {
        int n = (wide - d) / LANES < SPAN ? (wide - d) / LANES : SPAN;
        v16 acc[BLOCK][SPAN];
        for (int x = 0; x < m; x++)
            for (int j = 0; j < SPAN; j++)
                acc[x][j] = j < n ? v_mul(v_load(w->acc + (c + x) * wide + d + j * LANES), v_all(f[x])) : v_all(0.0f);
        if (n == SPAN) {
            for (int i = 0; i < PAGE; i++) {
                v16 v[SPAN];
                if (r && c == 0 && r->next_v) ask_for(r->next_v + i * r->v_row + 2 * (uint64_t)d, 2 * SPAN * LANES);
                for (int j = 0; j < SPAN; j++) v[j] = value_lanes(r, w, i, d + j * LANES, wide);
                for (int x = 0; x < m; x++) {
                    v16 p = v_all(w->p[x * PAGE + i]);
                    for (int j = 0; j < SPAN; j++) acc[x][j] = v_fma(p, v[j], acc[x][j]);
                }
            }
        } else {
            for (int i = 0; i < PAGE; i++)
                for (int x = 0; x < m; x++)
                    for (int j = 0; j < SPAN; j++)
                        if (j < n) acc[x][j] = v_fma(v_all(w->p[x * PAGE + i]),
                            value_lanes(r, w, i, d + j * LANES, wide), acc[x][j]);
        }
        for (int x = 0; x < m; x++)
            for (int j = 0; j < SPAN; j++)
                if (j < n) v_store(w->acc + (c + x) * wide + d + j * LANES, acc[x][j]);
    }
}

#ifndef LANES_TOP                       /* the lanes have one of their own */
INLINE float v_top(v16 v)
{
    float top[LANES];
    v_store(top, v);
    for (int n = LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) top[i] = top[i + n] > top[i] ? top[i + n] : top[i];
    return top[0];
}
#endif

/* Scales and masks the scores p of column c; the new maximum goes to w->top. */
INLINE void column_top(const struct attn_unit *u, struct attn_work *w, int c, float *p, uint64_t see)
{
    v16 top = v_all(w->top[c]), scale = v_all(u->a->scale), none = v_all(-INFINITY);
    for (int i = 0; i < PAGE; i += LANES) v_store(p + i, v_mul(v_load(p + i), scale));
    if (u->a->softcap != 0.0f)
        for (int i = 0; i < PAGE; i++) p[i] = u->a->softcap * tanh_f32(p[i] / u->a->softcap);
    for (int i = 0; i < PAGE; i += LANES) {
        if (see != ~0ull) v_store(p + i, v_select((uint16_t)(see >> i), v_load(p + i), none));
        top = v_max(v_load(p + i), top);
    }
    w->top[c] = v_top(top);
}

/* Turns the scores of m columns from c on into weights; f: what each column's sums so far are
 * multiplied by. */
INLINE void block_softmax(const struct attn_unit *u, struct attn_work *w, int c, int m, const uint64_t *see, float *f)
{
    for (int x = 0; x < LANES; x++) f[x] = x < m ? w->top[c + x] : 0.0f;
    for (int x = 0; x < m; x++) column_top(u, w, c + x, w->p + x * PAGE, see[c + x]);
    for (int x = 0; x < m; x++) f[x] -= w->top[c + x];
    for (int x = 0; x < LANES; x++) f[x] = exp_f32(f[x]);
    for (int x = 0; x < m; x++) {
        float *p = w->p + x * PAGE, top = w->top[c + x], lanes[LANES];
        for (int i = 0; i < PAGE; i++) p[i] = exp_f32(p[i] - top);
        if (see[c + x] != ~0ull)
            for (int i = 0; i < PAGE; i += LANES)
                v_store(p + i, v_select((uint16_t)(see[c + x] >> i), v_load(p + i), v_all(0.0f)));
        v16 sum = v_all(0.0f);
        for (int i = 0; i < PAGE; i += LANES) sum = v_add(sum, v_load(p + i));
        v_store(lanes, sum);
        w->sum[c + x] = w->sum[c + x] * f[x] + tree_sum(lanes);
    }
}

INLINE void block_tile(const struct attn_unit *u, const struct near *r, struct attn_work *w, int c, int m,
                       const uint64_t *see)
{
    int dim = u->a->head_dim, wide = padded(dim);
    float f[LANES];
    uint64_t any = 0;
    for (int x = 0; x < m; x++) any |= see[c + x];
    if (!any) return;
    block_scores(r, w, c, m, dim, wide);
    block_softmax(u, w, c, m, see, f);
    block_values(r, w, c, m, f, wide);
}

INLINE void all_blocks(const struct attn_unit *u, const struct near *r, struct attn_work *w, const uint64_t *see)
{
    for (int c = 0; c < u->n; c += BLOCK) {
        switch (u->n - c) {
        case 1: block_tile(u, r, w, c, 1, see); break;
        case 2: block_tile(u, r, w, c, 2, see); break;
        case 3: block_tile(u, r, w, c, 3, see); break;
#if BLOCK > 4
        case 4: block_tile(u, r, w, c, 4, see); break;
        case 5: block_tile(u, r, w, c, 5, see); break;
#endif
        default: block_tile(u, r, w, c, BLOCK, see); break;
        }
    }
}

static void K(attn_tile)(const struct attn_unit *u, struct attn_work *w, int t)
{
    uint64_t see[COLS], any = 0;
    for (int c = 0; c < u->n; c++) any |= see[c] = visible_bits(u, c, t);
    if (!any) return;
    if (!u->chain && t + PAGE > u->past) {
        for (int c = 0; c < u->n; c++) {
            if (!c || u->row[c] != u->row[c - 1]) K(attn_load)(u, w, u->row[c], t, see[c]);
            if (see[c]) block_tile(u, NULL, w, c, 1, see);
        }
        return;
    }
    bool halves = u->layer->k_format == Q_F16 && u->layer->v_format == Q_F16 && u->a->head_dim % LANES == 0;
    if (halves && u->n <= NEAR_COLS) {
        struct near r;
        K(near_find)(u, t, any, &r);
        K(near_turn)(&r, w, u->a->head_dim);
        all_blocks(u, &r, w, see);
    } else {
        K(attn_load)(u, w, u->row[0], t, any);
        all_blocks(u, NULL, w, see);
    }
}

/* all = all and the split's result, in this order. */
INLINE void fold(float *all_top, float *all_sum, float *all, float top, float sum, const float *acc, int dim)
{
    if (top == LOWEST && sum == 0.0f) return;   /* sees nothing there: not even the sign of a zero changes */
    float m = top > *all_top || top != top ? top : *all_top;
    float a = exp_f32(*all_top - m), b = exp_f32(top - m);
    *all_top = m;
    *all_sum = *all_sum * a + sum * b;
    for (int d = 0; d < dim; d++) all[d] = all[d] * a + acc[d] * b;
}

/* A row and head of the output, and its int8 form where the next product reads that. */
INLINE void write_out(const struct job *j, const struct run *r, int row, int head, float sum, const float *acc, int dim)
{
    float inverse = sum != 0.0f ? 1.0f / sum : 0.0f, *o = (float *)j->out[0] + (int64_t)row * j->out_cols + head * dim;
    for (int d = 0; d < dim; d++) o[d] = acc[d] * inverse;
    if (!j->x[X_Q8]) return;
    for (int d = 0; d < dim; d += GROUP) {
        int at = head * dim + d;
        struct xblock *b = (struct xblock *)j->x[X_Q8] + (int64_t)(at / SUPER) * r->rows[j->rows] + row;
        quantise_group(o + d, b, at % SUPER / GROUP);
    }
}

static void K(attn_split)(const struct attn_unit *u, struct attn_work *w, int split)
{
    for (int c = 0; c < u->n; c++) {
        w->top[c] = LOWEST;
        w->sum[c] = 0;
    }
    memset(w->acc, 0, (size_t)(u->n * padded(u->a->head_dim)) * sizeof(float));
    for (int t = split * SPLIT; t < (split + 1) * SPLIT; t += PAGE) K(attn_tile)(u, w, t);
}

/* Splits that some column of the unit sees: [*from, *to). */
INLINE void unit_splits(const struct attn_unit *u, int *from, int *to)
{
    int lo = INT32_MAX, hi = -1;
    for (int c = 0; c < u->n; c++) {
        lo = u->lo[c] < lo ? u->lo[c] : lo;
        hi = u->hi[c] > hi ? u->hi[c] : hi;
    }
    *from = hi < 0 ? 0 : lo / SPLIT;
    *to = hi < 0 ? 0 : hi / SPLIT + 1;
}

/* Where the partial result of a row, head and split lies: dim values, then top and sum. */
INLINE float *partial_at(const struct run *r, const struct attn_attr *a, int row, int head, int split)
{
    size_t at = ((size_t)row * (size_t)a->heads + (size_t)head) * (size_t)r->program->n_splits + (size_t)split;
    return r->program->partial + at * (size_t)(a->head_dim + 2);
}

/* split < 0: all of them in turn. */
static void K(attn_unit)(const struct run *r, const struct job *j, struct attn_unit *u, int split, int thread)
{
    struct attn_work *w = (struct attn_work *)scratch_of(r, thread);
    int dim = u->a->head_dim, wide = padded(dim), from, to;
    unit_splits(u, &from, &to);
    if (split >= 0 && (split < from || split >= to)) return;
    for (int c = 0; c < u->n; c++)
        memcpy(w->q + c * wide, (const float *)j->in[0] + (int64_t)u->row[c] * j->cols + u->head[c] * dim,
               (size_t)dim * sizeof(float));
    if (split >= 0) {
        K(attn_split)(u, w, split);
        for (int c = 0; c < u->n; c++) {
            float *at = partial_at(r, u->a, u->row[c], u->head[c], split);
            memcpy(at, w->acc + c * wide, (size_t)dim * sizeof *at);
            at[dim] = w->top[c];
            at[dim + 1] = w->sum[c];
        }
        return;
    }
    for (int c = 0; c < u->n; c++) {
        w->all_top[c] = LOWEST;
        w->all_sum[c] = 0;
    }
    memset(w->all, 0, (size_t)(u->n * wide) * sizeof(float));
    for (int s = from; s < to; s++) {
        K(attn_split)(u, w, s);
        for (int c = 0; c < u->n; c++)
            fold(&w->all_top[c], &w->all_sum[c], w->all + c * wide, w->top[c], w->sum[c], w->acc + c * wide, dim);
    }
    for (int c = 0; c < u->n; c++)
        write_out(j, r, u->row[c], u->head[c], w->all_sum[c], w->all + c * wide, dim);
}

/* Folds the partial results of one row and head. */
static void K(attn_fold)(const struct run *r, const struct job *j, struct attn_unit *u)
{
    int dim = u->a->head_dim, from, to;
    unit_splits(u, &from, &to);
    float top = LOWEST, sum = 0, all[CPU_HEAD_MAX];
    memset(all, 0, sizeof all);
    for (int s = from; s < to; s++) {
        const float *at = partial_at(r, u->a, u->row[0], u->head[0], s);
        fold(&top, &sum, all, at[dim], at[dim + 1], at, dim);
    }
    write_out(j, r, u->row[0], u->head[0], sum, all, dim);
}

/* Splits that some row of a sequence sees, and the first of them. */
struct splits {
    int first, n;
};

INLINE struct splits splits_of(const struct attn_attr *a, const struct step_seq *q)
{
    int first = a->window && q->past >= a->window ? (q->past - a->window + 1) / SPLIT : 0;
    return (struct splits){ first, (q->past + q->n_rows - 1) / SPLIT + 1 - first };
}

/* How many units the columns of a kv head are cut into: so few that a tile is turned to f32 for many columns at
 * once, but two units for each thread where there are columns enough. */
INLINE int units_of(const struct run *r, const struct attn_attr *a, int cols, int each)
{
    int n = (cols + COLS - 1) / COLS;
    while (n * a->kv_heads * each < 2 * r->n_threads && cols >= (n + 1) * BLOCK) n++;
    return n;
}

/* Whether splits are units of their own: kv heads alone, four for each thread, feed all threads, and texts of one
 * split have nothing to fold. */
INLINE bool spread(const struct run *r, const struct attn_attr *a)
{
    if (!r->program->n_splits || r->step->head.n_seqs * a->kv_heads >= 4 * r->n_threads) return false;
    for (int i = 0; i < r->step->head.n_seqs; i++)
        if (r->step->seq[i].n_rows && splits_of(a, &r->step->seq[i]).n > 1) return true;
    return false;
}

static void K(attn)(const struct job *j, const struct run *r, int thread)
{
    const struct step *s = r->step;
    struct attn_unit u = { .a = j->call->attr, .cache = r->program->cache, .step = s,
                           .layer = &r->program->cache->layout->layer[j->call->layer] };
    int group = u.a->heads / u.a->kv_heads, base = 0;
    bool spreads = spread(r, u.a);
    int mine = atomic_fetch_add_explicit(j->next, 1, memory_order_relaxed);
    for (int i = 0; i < s->head.n_seqs; i++) {
        u.seq = &s->seq[i];
        if (!u.seq->n_rows) continue;
        u.chain = s->head.wide || u.a->block || is_chain(s, u.seq);
        struct splits splits = splits_of(u.a, u.seq);
        int cols = u.seq->n_rows * group, each = spreads ? splits.n : 1, tiles = units_of(r, u.a, cols, each);
        int most = (cols + tiles - 1) / tiles, n = tiles * u.a->kv_heads * each;
        for (; mine < base + n; mine = atomic_fetch_add_explicit(j->next, 1, memory_order_relaxed)) {
            int at = mine - base;
            u.kv_head = at / each % u.a->kv_heads;
            u.first = (tiles - 1 - at / each / u.a->kv_heads) * most;    /* the longest first */
            u.n = cols - u.first < most ? cols - u.first : most;
            if (u.n <= 0) continue;
            unit_columns(&u);
            K(attn_unit)(r, j, &u, spreads ? splits.first + at % each : -1, thread);
        }
        base += n;
    }
    if (!spreads) return;
    pool_barrier(r->cpu->pool, thread);
    int64_t from, to;
    pool_share((int64_t)r->rows[j->rows] * u.a->heads, thread, r->n_threads, &from, &to);
    for (int64_t i = from; i < to; i++) {
        int row = (int)(i / u.a->heads), head = (int)(i % u.a->heads);
        u.seq = &s->seq[s->row[row].seq];
        u.kv_head = head / group;
        u.first = (row - u.seq->first_row) * group + head % group;
        u.n = 1;
        unit_columns(&u);
        K(attn_fold)(r, j, &u);
    }
}
