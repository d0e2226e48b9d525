/* device/cpu/attn_many.h - tiles of ATTN for many columns: lane = column, in vectors of 16.
 * Keys and values become f32 a piece at a time, which stays in the first-level cache, and are broadcast: nothing is
 * turned but q and the result, maxima and sums need no lanes combined, and a tile costs what it has of positions.
 * A vector costs two instructions each position and dim, however many columns it has; so where the last one has up to
 * 8, it is a half: lanes 2c and 2c + 1 are column c, for scores with two positions, for values with two dims. */

/* Positions whose keys are f32 at a time (a half has twice as many for its sums), dims whose values are. */
enum { KEYS = 16, DIMS = 32 };

/* Up to 2 vectors of columns that are treated alike, or a half. */
struct many_run {
    int from, m;                        /* vectors */
    int n;                              /* positions, in eights */
    bool half;
    bool masked;                        /* not every column sees all positions */
};

/* A position's row of keys or values, and of its scales. */
struct many_row {
    const uint8_t *at, *scale;
};

struct many_tile {
    struct many_row k[PAGE], v[PAGE];   /* of zeros where nobody sees */
    uint16_t bits[PAGE][COLS / LANES];  /* of each position: lanes that see it; of a half: of two at even ones */
    struct many_run run[COLS / LANES];
    int n_runs, n;                      /* positions that some run takes */
};

/* Whether the last vector of n columns is a half. */
INLINE bool many_half(int n)
{
    return (n - 1) % LANES < LANES / 2;
}

/* Time that n columns take, in columns of attn_few.h. */
INLINE int many_cost(int n)
{
    int vectors = (n + LANES - 1) / LANES;
    return many_half(n) ? (vectors - 1) * FULL_AS + HALF_AS : vectors * FULL_AS;
}

/* The lane, counted over all vectors, where column c has its sums. */
INLINE int many_lane(const struct attn_unit *u, int c)
{
    int full = u->n / LANES * LANES;
    return many_half(u->n) && c >= full ? full + 2 * (c - full) : c;
}

/* The last n of a row's 16-bit floats, from d on, and zeros. */
static v16 K(many_rest)(uint32_t format, struct many_row r, int d, int n)
{
    uint16_t h[LANES] = { 0 };
    const uint8_t *at = memcpy(h, r.at + 2 * d, 2 * (size_t)n);
    return format == Q_F16 ? v_from_f16(at) : v_from_bf16(at);
}

/* Elements d to d + 31 of a row, as kv_decode gives them; behind its end 0. `whole`: all are there. */
INLINE void many_group(uint32_t format, struct many_row r, int d, int dim, bool whole, v16 x[2])
{
    if (format == Q_F16 || format == Q_BF16) {
        for (int i = 0; i < 2; i++) {
            const uint8_t *at = r.at + 2 * d + 32 * i;
            int there = dim - d - LANES * i;
            if (!whole && there <= 0) x[i] = v_all(0.0f);
            else if (!whole && there < LANES) x[i] = K(many_rest)(format, r, d + LANES * i, there);
            else x[i] = format == Q_F16 ? v_from_f16(at) : v_from_bf16(at);
        }
        return;
    }
    uint16_t h;
    memcpy(&h, r.scale + d / GROUP * 2, sizeof h);
    v16 scale = v_all(f16_to_f32(h));
    for (int i = 0; i < 2; i++)         /* low halves of the bytes are elements 0 to 15 of the group */
        x[i] = v_mul(format == Q_Q8_0 ? v_from_i8(r.at + d + LANES * i) : v_from_i4(r.at + d / 2, i), scale);
}

/* Elements from..to of n rows, as [d / 16][row][16], or [d / 16][row / 2][16][2] in pairs. */
INLINE void many_load(uint32_t format, const struct many_row *row, int n, int from, int to, int dim, bool whole,
                      bool pairs, float *at_x)
{
    for (int i = 0; i < n; i += 1 + pairs)
        for (int d = from; d < to; d += GROUP) {
            v16 x[2], y[2];
            many_group(format, row[i], d, dim, whole, x);
            if (pairs) many_group(format, row[i + 1], d, dim, whole, y);
            for (int e = 0; e < 2 && (whole || d + e * LANES < to); e++) {
                float *at = at_x + (d - from + e * LANES) * n + i * LANES;
                v_store(at, pairs ? v_zip(x[e], y[e], 0) : x[e]);
                if (pairs) v_store(at + LANES, v_zip(x[e], y[e], 1));
            }
        }
}

INLINE void many_load_as(uint32_t format, const struct many_row *row, int n, int from, int to, int dim, bool pairs,
                         float *x)
{
    bool whole = dim % GROUP == 0;
    if (format == Q_F16 && whole) many_load(Q_F16, row, n, from, to, dim, true, pairs, x);
    else if (format == Q_F16) many_load(Q_F16, row, n, from, to, dim, false, pairs, x);
    else if (format == Q_BF16 && whole) many_load(Q_BF16, row, n, from, to, dim, true, pairs, x);
    else if (format == Q_BF16) many_load(Q_BF16, row, n, from, to, dim, false, pairs, x);
    else if (format == Q_Q8_0) many_load(Q_Q8_0, row, n, from, to, dim, true, pairs, x);
    else many_load(Q_Q4_0, row, n, from, to, dim, true, pairs, x);
}

static void K(load_keys)(const struct attn_unit *u, const struct many_tile *tile, int first, bool pairs, float *x)
{
    int dim = u->a->head_dim, wide = padded(dim);
    if (pairs) many_load_as(u->layer->k_format, tile->k + first, 2 * KEYS, 0, wide, dim, true, x);
    else many_load_as(u->layer->k_format, tile->k + first, KEYS, 0, wide, dim, false, x);
}

static void K(load_values)(const struct attn_unit *u, const struct many_tile *tile, int d, int to, float *x)
{
    many_load_as(u->layer->v_format, tile->v, tile->n, d, to, u->a->head_dim, false, x);
}

/* What is asked for meanwhile, of the next tile: keys, `bytes` each 16 dims, then values, `bytes` each position and
 * pass over them; NULL: nothing. */
struct many_ask {
    const uint8_t *at;
    uint64_t bytes;
};

/* n sums of scores (positions, or pairs of them for a half), from position `at` of the piece in w->x on, by m vectors
 * of columns. n, m, half and pairs are constants. */
INLINE void many_scores(struct attn_work *w, int first, int at, int n, int from, int m, bool half, bool pairs,
                        int stride, int dim, struct many_ask ask)
{
    v16 s[TALL][2];
    for (int x = 0; x < n; x++)
        for (int j = 0; j < m; j++) s[x][j] = v_all(0.0f);
    for (int part = 0; part < dim; part += LANES) {
        const float *k = w->x + part * (pairs ? 2 * KEYS : KEYS) + at * LANES;
        int last = dim - part < LANES ? dim - part : LANES;
        if (ask.at) ask_for(ask.at + (uint64_t)(part / LANES) * ask.bytes, ask.bytes);
        for (int d = 0; d < last; d++) {
            v16 q[2];
            for (int j = 0; j < m; j++) q[j] = v_load(w->q + (part + d) * stride + (from + j) * LANES);
            for (int x = 0; x < n; x++) {
                v16 one = half ? v_pair(k + x * 2 * LANES + 2 * d)
                               : v_all(pairs ? k[x / 2 * 2 * LANES + 2 * d + x % 2] : k[x * LANES + d]);
                for (int j = 0; j < m; j++) s[x][j] = v_fma(one, q[j], s[x][j]);
            }
        }
    }
    for (int x = 0; x < n; x++)
        for (int j = 0; j < m; j++)
            v_store(w->p + (first + at + x * (1 + half)) * stride + (from + j) * LANES, s[x][j]);
}

INLINE void full_scores(struct attn_work *w, const struct many_run *r, int first, int n, bool pairs, int stride,
                        int dim, struct many_ask ask)
{
    for (int at = 0, more; at < n; at += more, ask.at = NULL) {
        more = r->m == 1 && n - at >= TALL ? TALL : TALL / 2;
        if (r->m == 2) many_scores(w, first, at, TALL / 2, r->from, 2, false, pairs, stride, dim, ask);
        else if (more == TALL) many_scores(w, first, at, TALL, r->from, 1, false, pairs, stride, dim, ask);
        else many_scores(w, first, at, TALL / 2, r->from, 1, false, pairs, stride, dim, ask);
    }
}

/* Scores of the run with the positions of the piece, from `first` on; `pairs`: keys lie so. */
static void K(run_scores)(struct attn_work *w, const struct many_run *r, int first, bool pairs, int stride, int dim,
                          struct many_ask ask)
{
    int piece = pairs ? 2 * KEYS : KEYS, n = r->n - first < piece ? r->n - first : piece;
    if (!r->half && !pairs) full_scores(w, r, first, n, false, stride, dim, ask);
    else if (!r->half) full_scores(w, r, first, n, true, stride, dim, ask);
    else
        for (int at = 0, more; at < n; at += more, ask.at = NULL) {
            more = n - at >= 2 * TALL ? 2 * TALL : 8;
            if (more == 8) many_scores(w, first, at, 4, r->from, 1, true, true, stride, dim, ask);
            else many_scores(w, first, at, TALL, r->from, 1, true, true, stride, dim, ask);
        }
}

/* acc = acc * f and the values of sums x.. of the dims from d on in w->v, by the weights. n: how many sums (dims, or
 * pairs of them for a half). m, n and half are constants. */
INLINE void many_values(struct attn_work *w, int rows, int held, int d, int x, int n, int from, int m, bool half,
                        int stride, struct many_ask ask)
{
    v16 acc[TALL][2];
    float *to = w->acc + ((half ? d / 2 : d) + x) * stride + from * LANES;
    const float *v = half ? w->v + 2 * x / LANES * LANES * held + 2 * x % LANES
                          : w->v + x / LANES * LANES * held + x % LANES;
    int next = LANES * held - LANES;            /* from a vector of dims to the next */
    for (int e = 0; e < n; e++)
        for (int j = 0; j < m; j++)
            acc[e][j] = v_mul(v_load(to + e * stride + j * LANES), v_load(w->f + (from + j) * LANES));
    for (int i = 0; i < rows; i++) {
        v16 p[2];
        if (ask.at && (half || i % 2 == 0)) __builtin_prefetch(ask.at + (uint64_t)i * ask.bytes, 0, 2);
        for (int j = 0; j < m; j++) p[j] = v_load(w->p + i * stride + (from + j) * LANES);
        for (int e = 0; e < n; e++) {
            const float *at = v + i * LANES;
            v16 one = half ? v_pair(at + 2 * e + (e >= LANES / 2 ? next : 0)) : v_all(at[e]);
            for (int j = 0; j < m; j++) acc[e][j] = v_fma(p[j], one, acc[e][j]);
        }
    }
    for (int e = 0; e < n; e++)
        for (int j = 0; j < m; j++) v_store(to + e * stride + j * LANES, acc[e][j]);
}

/* The run's values of n dims from d on. */
static void K(run_values)(struct attn_work *w, const struct many_run *r, int held, int d, int n, int stride,
                          struct many_ask ask)
{
    int sums = r->half ? n / 2 : n, each = r->m == 2 || sums % TALL ? TALL / 2 : TALL;
    ask.bytes = ask.bytes * (uint64_t)each / (uint64_t)sums / PAGE;
    for (int x = 0; x < sums; x += each) {
        if (r->m == 2) many_values(w, r->n, held, d, x, TALL / 2, r->from, 2, false, stride, ask);
        else if (!r->half) many_values(w, r->n, held, d, x, TALL, r->from, 1, false, stride, ask);
        else if (each == TALL) many_values(w, r->n, held, d, x, TALL, r->from, 1, true, stride, ask);
        else many_values(w, r->n, held, d, x, TALL / 2, r->from, 1, true, stride, ask);
        if (ask.at) ask.at += ask.bytes * PAGE;
    }
}

/* The tree of tree_sum over 16 lanes' sums, of which lane l adds positions l, l + 16, ... */
INLINE v16 many_sum(const float *p, int n, int stride)
{
    v16 s[LANES];
    for (int l = 0; l < LANES; l++) {
        s[l] = v_all(0.0f);
        for (int i = l; i < n; i += LANES) s[l] = v_add(s[l], v_load(p + i * stride));
    }
    for (int apart = 8; apart > 2; apart /= 2)
        for (int l = 0; l < apart; l++) s[l] = v_add(s[l], s[l + apart]);
    return v_add(v_add(s[0], s[2]), v_add(s[1], s[3]));
}

/* Caps the scores of a vector of columns; they are scaled by 1 later. */
static void K(many_cap)(const struct attn_attr *a, float *p, int n, int stride)
{
    for (int i = 0; i < n; i++)
        for (int l = 0; l < LANES; l++)
            p[i * stride + l] = a->softcap * tanh_f32(p[i * stride + l] * a->scale / a->softcap);
}

/* Turns the scores of a vector of columns into weights; w->f: what their sums so far are multiplied by. `masked` and
 * `half` are constants. */
INLINE void many_softmax(struct attn_work *w, const struct many_tile *tile, int j, int n, float factor, bool masked,
                         bool half, int stride)
{
    enum { CHAINS = 4 };
    int step = 1 + half;
    float *p = w->p + j * LANES, *f = w->f + j * LANES, most[LANES];
    v16 before = v_load(w->top + j * LANES), scale = v_all(factor), top[CHAINS];
    for (int e = 0; e < CHAINS; e++) top[e] = before;
    for (int i = 0; i < n; i += CHAINS * step)
        for (int e = 0; e < CHAINS; e++) {
            float *at = p + (i + e * step) * stride;
            v16 s = v_mul(v_load(at), scale);
            if (masked) s = v_select(tile->bits[i + e * step][j], s, v_all(-INFINITY));
            v_store(at, s);
            top[e] = v_max(s, top[e]);
        }
    v16 all = v_max(v_max(top[0], top[1]), v_max(top[2], top[3]));
    v_store(most, half ? v_max(v_double(all, 0), v_double(all, 1)) : all);
    for (int i = 0; i < n; i += step) {
        float *at = p + i * stride;
        for (int l = 0; l < LANES; l++) at[l] = exp_f32(at[l] - most[l]);
        v16 weight = v_load(at);
        if (masked) weight = v_select(tile->bits[i][j], weight, v_all(0.0f));
        if (masked || half) v_store(at, half ? v_double(weight, 0) : weight);
        if (half) v_store(at + stride, v_double(weight, 1));
    }
    for (int l = 0; l < LANES; l++) f[l] = exp_f32(w->top[j * LANES + l] - most[l]);
    v_store(w->top + j * LANES, v_load(most));
    v_store(w->sum + j * LANES, v_add(v_mul(v_load(w->sum + j * LANES), v_load(f)), many_sum(p, n, stride)));
}

static void K(run_softmax)(const struct attn_unit *u, struct attn_work *w, const struct many_tile *tile,
                           const struct many_run *r, int stride)
{
    for (int j = r->from; j < r->from + r->m; j++) {
        float scale = u->a->scale;
        if (u->a->softcap != 0.0f) {
            K(many_cap)(u->a, w->p + j * LANES, r->n, stride);
            scale = 1.0f;
        }
        if (r->half && r->masked) many_softmax(w, tile, j, r->n, scale, true, true, stride);
        else if (r->half) many_softmax(w, tile, j, r->n, scale, false, true, stride);
        else if (r->masked) many_softmax(w, tile, j, r->n, scale, true, false, stride);
        else many_softmax(w, tile, j, r->n, scale, false, false, stride);
    }
}

/* Columns of a vector that see position i of the tile. */
INLINE uint16_t lanes_of(const uint64_t *see, int n, int i)
{
    unsigned bits = 0;
    for (int c = 0; c < n; c++) bits |= (unsigned)(see[c] >> i & 1) << c;
    return (uint16_t)bits;
}

/* Lanes of a half that see position i or, the odd ones, i + 1. */
INLINE uint16_t pairs_of(const uint64_t *see, int n, int i)
{
    unsigned bits = 0;
    for (int c = 0; c < n; c++) bits |= (unsigned)(see[c] >> i & 3) << 2 * c;
    return (uint16_t)bits;
}

/* Cuts the vectors of columns that see something of the tile into runs. */
static void K(many_runs)(const struct attn_unit *u, struct many_tile *tile, const uint64_t *see)
{
    tile->n_runs = tile->n = 0;
    for (int j = 0, vectors = padded(u->n) / LANES; j < vectors; j++) {
        uint64_t any = 0, all = ~0ull;
        int end = u->n - j * LANES < LANES ? u->n - j * LANES : LANES;
        for (int c = 0; c < end; c++) {
            any |= see[j * LANES + c];
            all &= see[j * LANES + c];
        }
        if (!any) continue;
        bool half = j == vectors - 1 && many_half(u->n);
        for (int i = 0; i < PAGE; i += 1 + half)
            tile->bits[i][j] = all == ~0ull ? 0xffff
                               : half ? pairs_of(see + j * LANES, end, i) : lanes_of(see + j * LANES, end, i);
        int n = (PAGE - __builtin_clzll(any) + 7) / 8 * 8;
        struct many_run *last = tile->n_runs ? &tile->run[tile->n_runs - 1] : NULL;
        if (last && last->m == 1 && last->from + 1 == j && !half) {
            last->m = 2;
            last->masked = last->masked || all != ~0ull;
            last->n = n > last->n ? n : last->n;
        } else {
            tile->run[tile->n_runs++] = (struct many_run){ j, 1, n, half, all != ~0ull };
        }
        tile->n = n > tile->n ? n : tile->n;
    }
}

/* Finds the rows of the positions in `need`, as row `row` sees them. */
static void K(many_find)(const struct attn_unit *u, int row, int t, uint64_t need, const struct attn_place *at,
                         struct many_tile *tile)
{
    static const uint16_t zeros[CPU_HEAD_MAX];
    const struct kv_layer *y = u->layer;
    int dim = u->a->head_dim;
    uint64_t k_row = kv_row_bytes(y->k_format, dim), v_row = kv_row_bytes(y->v_format, dim);
    uint64_t k_at = kv_k_at(y, u->kv_head), v_at = kv_v_at(y, u->kv_head), scales = 2 * (uint64_t)(dim / GROUP);
    for (int i = 0; i < tile->n + 2 * KEYS && i < PAGE; i++) {
        int place = 0;
        const uint8_t *page = need >> i & 1 ? find_position(u, at, row, t + i, &place) : NULL;
        if (!page) {
            tile->k[i] = tile->v[i] = (struct many_row){ (const uint8_t *)zeros, (const uint8_t *)zeros };
            continue;
        }
        const uint8_t *k = page + k_at, *v = page + v_at;
        uint64_t p = (uint64_t)place;
        tile->k[i] = (struct many_row){ k + p * k_row, k + PAGE * k_row + p * scales };
        tile->v[i] = (struct many_row){ v + p * v_row, v + PAGE * v_row + p * scales };
    }
}

/* The tile at t as row `row` sees it, for the columns with bits in `see`; any: all those bits. */
static void K(many_tile)(const struct attn_unit *u, struct attn_work *w, int row, int t, const uint64_t *see,
                         uint64_t any)
{
    struct many_tile tile;
    K(many_runs)(u, &tile, see);
    const struct kv_layer *y = u->layer;
    int dim = u->a->head_dim, wide = padded(dim), stride = padded(u->n);
    struct attn_place at = place_of(u, t);
    K(many_find)(u, row, t, any, &at, &tile);
    bool pairs = many_half(u->n);
    int piece = pairs ? 2 * KEYS : KEYS;
    struct many_ask ask = { NULL, y->k_head / (uint64_t)(PAGE / piece * wide / LANES) };
    for (int first = 0; first < tile.n; first += piece) {
        if (at.next_k) ask.at = at.next_k + (uint64_t)(first / piece * wide / LANES) * ask.bytes;
        K(load_keys)(u, &tile, first, pairs, w->x);
        for (int i = 0; i < tile.n_runs; i++) {
            if (tile.run[i].n <= first) continue;
            K(run_scores)(w, &tile.run[i], first, pairs, stride, dim, ask);
            ask.at = NULL;
        }
    }
    for (int i = 0; i < tile.n_runs; i++) K(run_softmax)(u, w, &tile, &tile.run[i], stride);
    for (int d = 0; d < wide; d += DIMS) {
        int to = d + DIMS < wide ? d + DIMS : wide;
        ask.bytes = y->v_head * (uint64_t)(to - d) / (uint64_t)wide;
        if (at.next_v) ask.at = at.next_v + y->v_head * (uint64_t)d / (uint64_t)wide;
        K(load_values)(u, &tile, d, to, w->v);
        for (int i = 0; i < tile.n_runs; i++) {
            K(run_values)(w, &tile.run[i], tile.n, d, to - d, stride, ask);
            ask.at = NULL;
        }
    }
}

/* Rows of `rows` numbers at `from` become columns of `to`: to[j * to_stride + i] = from[i * from_stride + j]. */
static void K(many_turn)(const float *from, int rows, int from_stride, int cols, float *to, int to_stride)
{
    for (int i = 0; i < rows; i += LANES)
        for (int j = 0; j < cols; j += LANES) {
            v16 v[LANES];
            for (int e = 0; e < LANES; e++) v[e] = v_load(from + (i + e) * from_stride + j);
            v_transpose(v);
            for (int e = 0; e < LANES; e++) v_store(to + (j + e) * to_stride + i, v[e]);
        }
}

/* As fold(), of all columns. */
static void K(many_fold)(const struct attn_unit *u, struct attn_work *w)
{
    int stride = padded(u->n), wide = padded(u->a->head_dim);
    float a[COLS], b[COLS];
    for (int c = 0; c < stride; c++) {
        float m = w->top[c] > w->all_top[c] ? w->top[c] : w->all_top[c];
        a[c] = exp_f32(w->all_top[c] - m);
        b[c] = exp_f32(w->top[c] - m);
        w->all_top[c] = m;
        w->all_sum[c] = w->all_sum[c] * a[c] + w->sum[c] * b[c];
    }
    for (int d = 0; d < wide; d++)
        for (int c = 0; c < stride; c++) {
            float *all = w->all + d * stride + c;
            *all = *all * a[c] + w->acc[d * stride + c] * b[c];
        }
}

/* The half's queries, by lane: both of a column's lanes hold it. */
static void K(double_queries)(const struct attn_unit *u, const float *q, float *to)
{
    int wide = padded(u->a->head_dim), stride = padded(u->n), first = u->n / LANES * LANES;
    for (int c = 0; c < LANES; c++)
        for (int d = 0; d < wide; d++) to[d * stride + first + c] = q[(first + c / 2) * wide + d];
}

/* The half's results by column: pairs of dims, one below the other. */
static void K(half_columns)(const struct attn_unit *u, const float *from, float *to)
{
    int wide = padded(u->a->head_dim), stride = padded(u->n), first = u->n / LANES * LANES;
    for (int c = first; c < u->n; c++)
        for (int d = 0; d < wide; d += 2)
            memcpy(to + c * wide + d, from + d / 2 * stride + first + 2 * (c - first), 2 * sizeof *to);
}
