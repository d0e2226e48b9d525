/* device/cpu/attn_few.h - tiles of ATTN for few columns over f16 or bf16: lane = position for scores, lane = dim for
 * values. Values are read where they lie, keys turned as halves, so that both stay in the first-level cache. */

INLINE bool few_can(const struct kv_layer *y, int dim)
{
    return (y->k_format == Q_F16 || y->k_format == Q_BF16) && y->v_format == y->k_format && dim % LANES == 0;
}

/* Rows of a tile. */
struct few_tile {
    int n;                              /* up to the last that is seen */
    const uint8_t *k[PAGE], *v[PAGE];   /* rows; of zeros where nobody sees */
    const uint8_t *next_k, *next_v;     /* the tile after, or NULL */
    uint64_t k_row, v_row;
    const uint16_t *kt;                 /* [dim][position] */
};

static void K(few_find)(const struct attn_unit *u, int row, int t, uint64_t need, struct few_tile *r)
{
    static const uint16_t zeros[CPU_HEAD_MAX];
    uint64_t k_at = kv_k_at(u->layer, u->kv_head), v_at = kv_v_at(u->layer, u->kv_head);
    struct attn_place at = place_of(u, t);
    r->n = PAGE - __builtin_clzll(need);
    r->k_row = r->v_row = 2 * (uint64_t)u->a->head_dim;
    for (int i = 0; i < PAGE; i++) {
        int place = 0;
        const uint8_t *page = need >> i & 1 ? find_position(u, &at, row, t + i, &place) : NULL;
        r->k[i] = page ? page + k_at + (uint64_t)place * r->k_row : (const uint8_t *)zeros;
        r->v[i] = page ? page + v_at + (uint64_t)place * r->v_row : (const uint8_t *)zeros;
    }
    r->next_k = at.next_k;
    r->next_v = at.next_v;
}

#ifndef LANES_TURN                      /* the lanes have one of their own */
INLINE void v_turn_halves(const uint8_t *const *row, int at, int n, uint16_t *to)
{
    for (int i = 0; i < LANES; i++)
        for (int e = 0; e < n; e++) memcpy(to + e * PAGE + i, row[i] + 2 * (at + e), 2);
}
#endif

/* Asks for half of the next tile's keys meanwhile. */
static void K(few_turn)(struct few_tile *r, struct attn_work *w, int dim)
{
    uint16_t *kt = (uint16_t *)(void *)w->x;
    for (int from = 0; from < r->n; from += LANES)
        for (int d = 0; d < dim; d += 2 * LANES) {
            int n = dim - d < 2 * LANES ? dim - d : 2 * LANES;
            if (r->next_k) ask_for(r->next_k + (from * r->k_row + (uint64_t)d * 2 * LANES) / 2, LANES * (uint64_t)n);
            v_turn_halves(r->k + from, d, n, kt + d * PAGE + from);
        }
    r->kt = kt;
}

/* 16 elements of the cache's format, which is a constant here and below. */
INLINE v16 from_half(uint32_t format, const uint8_t *p)
{
    return format == Q_F16 ? v_from_f16(p) : v_from_bf16(p);
}

/* As block_scores, of a tile with few positions, such as a step's own rows: 16 at a time. Nobody sees the rest. */
INLINE void few_scores(uint32_t format, const struct few_tile *r, struct attn_work *w, int c, int m, int dim, int wide)
{
    for (int i = 0; i < PAGE; i += LANES) {
        v16 s[BLOCK];
        for (int x = 0; x < m; x++) s[x] = v_all(0.0f);
        for (int d = 0; i < r->n && d < dim; d++) {
            v16 k = from_half(format, (const uint8_t *)(r->kt + d * PAGE + i));
            for (int x = 0; x < m; x++) s[x] = v_fma(k, v_all(w->q[(c + x) * wide + d]), s[x]);
        }
        for (int x = 0; x < m; x++) v_store(w->p + x * PAGE + i, s[x]);
    }
}

/* Scores of m columns from c on with the tile's positions, into w->p. m is a constant. */
INLINE void block_scores(uint32_t format, const struct few_tile *r, struct attn_work *w, int c, int m, int dim,
                         int wide)
{
    v16 s[BLOCK][PAGE / LANES];
    for (int x = 0; x < m; x++)
        for (int i = 0; i < PAGE / LANES; i++) s[x][i] = v_all(0.0f);
    for (int d = 0; d < dim; d++) {
        v16 k[PAGE / LANES];
        for (int i = 0; i < PAGE / LANES; i++)
            k[i] = from_half(format, (const uint8_t *)(r->kt + d * PAGE + i * LANES));
        if (c == 0 && r->next_k) ask_for(r->next_k + PAGE / 2 * r->k_row + (uint64_t)d * PAGE, PAGE);
        for (int x = 0; x < m; x++) {
            v16 q = v_all(w->q[(c + x) * wide + d]);
            for (int i = 0; i < PAGE / LANES; i++) s[x][i] = v_fma(k[i], q, s[x][i]);
        }
    }
    for (int x = 0; x < m; x++)
        for (int i = 0; i < PAGE / LANES; i++) v_store(w->p + x * PAGE + i * LANES, s[x][i]);
}

/* acc = acc * f and the tile's values by the weights in w->p, for m columns from c on. */
INLINE void block_values(uint32_t format, const struct few_tile *r, struct attn_work *w, int c, int m, const float *f,
                         int wide)
{
    enum { SPAN = 4 };                      /* vectors of dims at a time */
    for (int d = 0; d < wide; d += SPAN * LANES) {
        int n = (wide - d) / LANES < SPAN ? (wide - d) / LANES : SPAN;
        v16 acc[BLOCK][SPAN];
        for (int x = 0; x < m; x++)
            for (int j = 0; j < SPAN; j++)
                acc[x][j] = j < n ? v_mul(v_load(w->acc + (c + x) * wide + d + j * LANES), v_all(f[x])) : v_all(0.0f);
        if (n == SPAN) {
            for (int i = 0; i < r->n; i++) {
                v16 v[SPAN];
                if (c == 0 && r->next_v)        /* in order, not row by row: half rows are no stream */
                    ask_for(r->next_v + (uint64_t)(d * PAGE + i * SPAN * LANES) * 2, 2 * SPAN * LANES);
                for (int j = 0; j < SPAN; j++) v[j] = from_half(format, r->v[i] + 2 * (d + j * LANES));
                for (int x = 0; x < m; x++) {
                    v16 p = v_all(w->p[x * PAGE + i]);
                    for (int j = 0; j < SPAN; j++) acc[x][j] = v_fma(p, v[j], acc[x][j]);
                }
            }
        } else {
            for (int i = 0; i < r->n; i++)
                for (int x = 0; x < m; x++)
                    for (int j = 0; j < SPAN; j++)
                        if (j < n) acc[x][j] = v_fma(v_all(w->p[x * PAGE + i]),
                            from_half(format, r->v[i] + 2 * (d + j * LANES)), acc[x][j]);
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

INLINE void block_tile(uint32_t format, const struct attn_unit *u, const struct few_tile *r, struct attn_work *w, int c,
                       int m, const uint64_t *see)
{
    int dim = u->a->head_dim, wide = padded(dim);
    float f[LANES];
    uint64_t any = 0;
    for (int x = 0; x < m; x++) any |= see[c + x];
    if (!any) return;
    if (r->n > PAGE / 2) block_scores(format, r, w, c, m, dim, wide);
    else few_scores(format, r, w, c, m, dim, wide);
    block_softmax(u, w, c, m, see, f);
    block_values(format, r, w, c, m, f, wide);
}

INLINE void all_blocks(uint32_t format, const struct attn_unit *u, const struct few_tile *r, struct attn_work *w,
                       const uint64_t *see)
{
    for (int c = 0; c < u->n; c += BLOCK) {
        switch (u->n - c) {
        case 1: block_tile(format, u, r, w, c, 1, see); break;
        case 2: block_tile(format, u, r, w, c, 2, see); break;
        case 3: block_tile(format, u, r, w, c, 3, see); break;
        case 4: block_tile(format, u, r, w, c, 4, see); break;
        case 5: block_tile(format, u, r, w, c, BLOCK < 5 ? BLOCK : 5, see); break;
        default: block_tile(format, u, r, w, c, BLOCK, see); break;
        }
    }
}

/* The tile at t as row `row` sees it, for the columns with bits in `see`. */
static void K(few_tile)(const struct attn_unit *u, struct attn_work *w, int row, int t, const uint64_t *see,
                        uint64_t any)
{
    struct few_tile r;
    K(few_find)(u, row, t, any, &r);
    K(few_turn)(&r, w, u->a->head_dim);
    if (u->layer->k_format == Q_F16) all_blocks(Q_F16, u, &r, w, see);
    else all_blocks(Q_BF16, u, &r, w, see);
}
