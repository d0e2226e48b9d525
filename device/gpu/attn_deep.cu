/* device/gpu/attn_deep.cu - ATTN of narrow steps with many packed rows, over f16 pages (sm_90 and later).
 *
 * Items, pages and arithmetic are those of attn_narrow.cu, and so are a row's bits; the work is laid out so that
 * memory never waits. One block a multiprocessor takes item after item: a warp feeds a ring of keys and values
 * through the ends of items, three warps bring the rows and queries of the next item, and eight warps work, each
 * without waiting for the others of its page: warp (half, quarter) multiplies its rows, two tiles of 16 where registers
 * allow, with 16 keys of each page, so that keys and values leave shared memory half as often. Scores of the next page
 * come before the values of this one, whose weights they do not wait for. The first queries stay in registers.
 * The quarters are joined through shared memory, quarter after quarter, some columns at a time.
 * Traffic: the visible keys and values once per item; the limit is memory up to 64 packed rows. */
#include "device/gpu/attn_narrow.cuh"
#include "device/gpu/wgmma.cuh"

enum { HALVES = 2, WORKERS = HALVES * QUARTERS, BRINGERS = 3, DEEP_THREADS = (WORKERS + 1 + BRINGERS) * WARP,
       COLUMN_PARTS = 4 };

/* TILES: of 16 rows, a warp. */
template <int DP, int TILES> struct deep_shape {
    enum {
        ROWS = HALVES * TILES * 16,
        HELD = DP == 256 ? 8 : DP == 128 ? 5 : 4,               /* steps of the queries in registers */
        TILE = page_shape<DP>::TILE,
        QUERIES = ROWS * page_shape<DP>::QUERY,
        JOIN = ROWS * DP * 4,
        SLOTS = DP == 256 ? 4 : DP == 128 ? 8 : 16,
        SHARED = 2 * QUERIES + JOIN + SLOTS * TILE,
    };
};

/* What the workers need of an item, brought while they are at the one before. */
template <int ROWS> struct deep_record {
    row_view view[ROWS];
    int t0, t1, n_rows;                         /* pages */
    int all_from, all_to;                       /* positions that all its rows see */
    int part;                                   /* of its rows; -1: there is only this one, the result */
};
template <int DP, int TILES> struct shared_deep {
    enum { ROWS = deep_shape<DP, TILES>::ROWS, SLOTS = deep_shape<DP, TILES>::SLOTS };
    deep_record<ROWS> record[2];
    float2 stat[2][QUARTERS][ROWS];             /* maximum, sum */
    uint64_t full[SLOTS], empty[SLOTS];         /* of the ring */
    uint64_t ready[2], taken[2];                /* of the records */
    int n_items[STEP_SEQS + 1];                 /* before sequence s */
    uint8_t bank[NARROW_ROWS];                  /* the feeder's: bank rows of the path, in order */
};

/* Pages of an item, and positions that all its rows see; by a whole warp. */
struct reach {
    int t0, t1, all_from, all_to;
};
__device__ inline reach reach_of(const attn_args &a, const step *s, const item &it, int group, int lane)
{
    int low = INT32_MAX, high = 0, from = 0, to = INT32_MAX;
    for (int j = lane; j < it.n_rows; j += WARP) {
        const row_view v = view_of(a, s, it, j, group);
        const int end = max(v.last, v.see);
        if (end >= v.first) low = min(low, v.first / PAGE), high = max(high, end / PAGE + 1);
        from = max(from, v.first), to = min(to, v.see);
    }
    const uint32_t most = INT32_MAX;
    const int split0 = it.split * (a.split / PAGE);
    reach r;
    r.t0 = max((int)(most - warp_max_whole(most - (uint32_t)low)), split0);
    r.t1 = min((int)warp_max_whole((uint32_t)high), split0 + a.split / PAGE);
    r.all_from = (int)warp_max_whole((uint32_t)from);
    r.all_to = (int)(most - warp_max_whole(most - (uint32_t)to));
    return r;
}

/* The ring's warp: keys and values of all the block's items. */
template <int DP, int TILES>
__device__ inline void feed(const attn_args &a, const step *s, shared_deep<DP, TILES> &sh, uint8_t *ring, int n_items,
                            int group)
{
    typedef deep_shape<DP, TILES> shape;
    const int lane = threadIdx.x % WARP;
    uint32_t n = 0;                             /* tiles so far: keys, values, keys, ... */
    bool waited = false;
    for (int i = blockIdx.x; i < n_items; i += gridDim.x) {
        const item it = find_item<shape::ROWS>(a, s, sh.n_items, i, group);
        const step_seq &q = s->seq[it.seq];
        const reach r = reach_of(a, s, it, group, lane);
        const int mine = r.t0 + lane;
        const int32_t *table = a.kv.table + (int64_t)q.slot * a.kv.max_pages;
        const int page = lane < r.t1 - r.t0 && mine < a.kv.max_pages ? table[mine] : -1;
        __syncwarp();
        put_bank(s, it, sh.bank, lane, group);
        const int n_bank = put_bank(s, it, sh.bank, lane + WARP, group);
        __syncwarp();
#pragma unroll 1
        for (int t = r.t0; t < r.t1; t++) {
            const int at = __shfl_sync(0xffffffffu, page, t - r.t0);
            /* Pages that the step before did not touch are there already. */
            if (!waited && (t + 1) * PAGE > q.past - q.n_commit) {
                wait_predecessor();
                waited = true;
            }
#pragma unroll 1
            for (int x = 0; x < 2; x++, n++) {
                const uint32_t slot = n % shape::SLOTS;
                if (n >= shape::SLOTS) bar_wait(&sh.empty[slot], (n / shape::SLOTS - 1) & 1);
                bulk_page<DP, WARP>(rows_of(a, q, part_of(a.kv, it.head, x), t, at, sh.bank, n_bank),
                                    ring + slot * shape::TILE, x, &sh.full[slot], lane);
            }
        }
    }
}

/* An item's queries as f16, by THREADS threads, EACH pieces at a time. */
template <int DP, int TILES, int THREADS, int EACH>
__device__ inline void put_queries(const attn_args &a, const step_seq &q, const item &it, uint8_t *tile, int thread,
                                   int group)
{
#pragma unroll EACH
    for (int j = thread; j < deep_shape<DP, TILES>::ROWS * (DP / 8); j += THREADS) {
        const int r = j / (DP / 8), c = j % (DP / 8), packed = it.row0 + r, token = quotient(packed, group);
        uint4 h = make_uint4(0, 0, 0, 0);
        if (r < it.n_rows) {
            const float4 *from = (const float4 *)(a.q + ((uint64_t)(q.first_row + token) * a.heads + it.head * group +
                                                         packed - token * group) * DP + 8 * c);
            const float4 x = from[0], y = from[1];
            h.x = as_bits(__halves2half2(clamped_half(x.x), clamped_half(x.y)));
            h.y = as_bits(__halves2half2(clamped_half(x.z), clamped_half(x.w)));
            h.z = as_bits(__halves2half2(clamped_half(y.x), clamped_half(y.y)));
            h.w = as_bits(__halves2half2(clamped_half(y.z), clamped_half(y.w)));
        }
        *(uint4 *)(tile + r * page_shape<DP>::QUERY + 16 * c) = h;
    }
}

/* Three warps: rows and queries of all the block's items; the workers bring the first queries themselves, sooner. */
template <int DP, int TILES>
__device__ inline void bring(const attn_args &a, const step *s, shared_deep<DP, TILES> &sh, uint8_t *queries,
                             int n_items, int group)
{
    typedef deep_shape<DP, TILES> shape;
    const int thread = threadIdx.x - (WORKERS + 1) * WARP;
    uint32_t turn = 0;
    for (int i = blockIdx.x; i < n_items; i += gridDim.x, turn++) {
        deep_record<shape::ROWS> &to = sh.record[turn & 1];
        uint8_t *tile = queries + (turn & 1) * shape::QUERIES;
        const item it = find_item<shape::ROWS>(a, s, sh.n_items, i, group);
        const step_seq &q = s->seq[it.seq];
        if (turn >= 2) bar_wait(&sh.taken[turn & 1], (turn / 2 - 1) & 1);
        for (int j = thread; j < shape::ROWS; j += BRINGERS * WARP) to.view[j] = view_of(a, s, it, j, group);
        if (thread < WARP) {
            const reach r = reach_of(a, s, it, group, thread);
            to.t0 = r.t0, to.t1 = r.t1, to.all_from = r.all_from, to.all_to = r.all_to;
            to.n_rows = it.n_rows;
            to.part = count_splits(a, q) - first_split(a, q) == 1 ? -1 : it.split - first_split(a, q);
        }
        if (turn == 0) wait_predecessor();
        else put_queries<DP, TILES, BRINGERS * WARP, 2>(a, q, it, tile, thread, group);
        bar_arrive(&sh.ready[turn & 1]);
    }
    if (turn == 0) wait_idle(true);
}

/* Joins the quarters of a worker's rows, which the four workers of a half do together: each adds its own to what
 * the quarter before left, and the last has the results, or the parts of a split. */
template <int DP, int TILES>
__device__ inline void put_rows(warp_state<DP> (&w)[TILES], const attn_args &a,
                                const deep_record<deep_shape<DP, TILES>::ROWS> &rec,
                                float2 (*stat)[deep_shape<DP, TILES>::ROWS], float4 *room, int half, int quarter,
                                int lane)
{
    enum { EACH = DP / 8 / COLUMN_PARTS };
    const int row0 = half * TILES * 16 + lane / 4;
    const bool result = rec.part < 0;
    float f[TILES][2], inv[TILES][2];
    float *to[TILES][2];                        /* parts; columns of results are found again */
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float l = lanes_sum(w[i].l[h]);
            if (lane % 4 == 0) stat[quarter][row0 + 16 * i + 8 * h] = make_float2(w[i].m[h], l);
        }
    group_sync(1 + half, QUARTERS * WARP);
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = row0 + 16 * i + 8 * h;
            float2 st[QUARTERS];
#pragma unroll
            for (int k = 0; k < QUARTERS; k++) st[k] = stat[k][r];
            const joined all = join(st);
            f[i][h] = quarter == 0 ? all.f[0] : quarter == 1 ? all.f[1] : quarter == 2 ? all.f[2] : all.f[3];
            inv[i][h] = all.l > 0 ? 1.0f / all.l : 0.0f;
            to[i][h] = nullptr;
            if (quarter < QUARTERS - 1 || r >= rec.n_rows) continue;
            const row_view &v = rec.view[r];
            const uint64_t at = (uint64_t)v.row * a.heads + v.head, part = at * a.max_splits + rec.part;
            to[i][h] = !result ? a.parts + part * DP : a.y ? a.y + at * DP : nullptr;
            if (!result && lane % 4 == 0) *(float2 *)(a.stats + 2 * part) = make_float2(all.m, all.l);
        }
#pragma unroll
    for (int c = 0; c < COLUMN_PARTS; c++) {
        if (quarter > 0) group_sync(2 + half * (QUARTERS - 1) + quarter, 2 * WARP);
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int d = c * EACH; d < (c + 1) * EACH; d++) {
                float4 &left = room[((half * TILES + i) * (DP / 8) + d) * WARP + lane];
                float4 y = quarter > 0 ? left : make_float4(0, 0, 0, 0);
                y.x = __fmaf_rn(f[i][0], w[i].o[d][0], y.x), y.y = __fmaf_rn(f[i][0], w[i].o[d][1], y.y);
                y.z = __fmaf_rn(f[i][1], w[i].o[d][2], y.z), y.w = __fmaf_rn(f[i][1], w[i].o[d][3], y.w);
                if (quarter < QUARTERS - 1) {
                    left = y;
                    continue;
                }
                const int col = 8 * d + 2 * (lane % 4);
                if (result) {
                    y.x *= inv[i][0], y.y *= inv[i][0], y.z *= inv[i][1], y.w *= inv[i][1];
                    const row_view *v = rec.view + row0 + 16 * i;
                    if (a.form.at && v[0].row >= 0) form_put2(a.form, v[0].row, v[0].head * DP + col, y.x, y.y);
                    if (a.form.at && v[8].row >= 0) form_put2(a.form, v[8].row, v[8].head * DP + col, y.z, y.w);
                }
                if (to[i][0]) *(float2 *)(to[i][0] + col) = make_float2(y.x, y.y);
                if (to[i][1]) *(float2 *)(to[i][1] + col) = make_float2(y.z, y.w);
            }
        if (quarter < QUARTERS - 1) group_sync(3 + half * (QUARTERS - 1) + quarter, 2 * WARP);
    }
}

/* A worker. Long: its part of an item from queries to result. */
template <int DP, int TILES>
__device__ inline void attend(const attn_args &a, const step *s, shared_deep<DP, TILES> &sh, uint8_t *queries,
                              float4 *room, const uint8_t *ring, int n_items, int group)
{
    typedef deep_shape<DP, TILES> shape;
    enum { HELD = shape::HELD, STEPS = DP / 16, QUERY = page_shape<DP>::QUERY };
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, quarter = warp % QUARTERS, half = warp / QUARTERS;
    uint32_t n = 0, turn = 0;
    auto wait_for = [&](uint32_t k) {
        bar_wait(&sh.full[k % shape::SLOTS], k / shape::SLOTS & 1);
        return ring + k % shape::SLOTS * shape::TILE;
    };
    auto arrive = [&](uint64_t *bar) {
        __syncwarp();
        if (lane == 0) bar_arrive(bar);
    };
    if ((int)blockIdx.x < n_items) {
        const item it = find_item<shape::ROWS>(a, s, sh.n_items, (int)blockIdx.x, group);
        wait_predecessor();
        put_queries<DP, TILES, WORKERS * WARP, 4>(a, s->seq[it.seq], it, queries, threadIdx.x, group);
        group_sync(1, WORKERS * WARP);
    }
    for (int i = blockIdx.x; i < n_items; i += gridDim.x, turn++) {
        const deep_record<shape::ROWS> &rec = sh.record[turn & 1];
        bar_wait(&sh.ready[turn & 1], turn / 2 & 1);
        const bool busy = half * TILES * 16 < rec.n_rows;
        const uint8_t *mine = query_piece<DP>(queries + (turn & 1) * shape::QUERIES + half * TILES * 16 * QUERY, lane);
        uint32_t held[HELD + 1][TILES][4];
#pragma unroll
        for (int k = 0; k < HELD; k++)
#pragma unroll
            for (int i = 0; i < TILES; i++) load_matrices(held[k][i], mine + 16 * i * QUERY + 32 * k);
        warp_state<DP> w[TILES];
#pragma unroll
        for (int i = 0; i < TILES; i++) clear(w[i]);
        const int t0 = rec.t0, t1 = rec.t1;
        float scores[TILES][2][4];
        auto multiply = [&](uint32_t k) {       /* the queries with the keys in the ring's tile k */
            const uint8_t *keys = key_piece<DP>(wait_for(k), quarter, lane);
            if (busy) {
#pragma unroll
                for (int i = 0; i < TILES; i++)
#pragma unroll
                    for (int e = 0; e < 8; e++) scores[i][e / 4][e % 4] = 0;
#pragma unroll
                for (int step = 0; step < STEPS; step++) {
                    uint32_t b[4];
                    load_matrices(b, keys + 32 * step);
#pragma unroll
                    for (int i = 0; i < TILES; i++) {
                        uint32_t f[4];
                        if (step >= HELD) load_matrices(f, mine + 16 * i * QUERY + 32 * step);
                        const uint32_t *x = step < HELD ? held[step < HELD ? step : 0][i] : f;
                        mma_f16(scores[i][0], x, b[0], b[1]);
                        mma_f16(scores[i][1], x, b[2], b[3]);
                    }
                }
            }
            arrive(&sh.empty[k % shape::SLOTS]);
        };
        if (t0 < t1) multiply(n);
#pragma unroll 1
        for (int t = t0; t < t1; t++, n += 2) {
            uint32_t p[TILES][4];
            if (busy) {
                const int p0 = t * PAGE;
                const bool all = p0 >= rec.all_from && p0 + PAGE - 1 <= rec.all_to;
#pragma unroll
                for (int i = 0; i < TILES; i++) {
                    weigh<DP>(w[i], scores[i], a, all ? nullptr : rec.view + (half * TILES + i) * 16, p0, quarter,
                              lane);
                    round_weights(p[i], scores[i]);
                }
            }
            if (t + 1 < t1) multiply(n + 2);
            const uint8_t *values = value_piece<DP>(wait_for(n + 1), quarter, lane);
            if (busy)
#pragma unroll
                for (int d = 0; d < DP / 8; d += 2) {
                    uint32_t b[4];
                    load_matrices_turned(b, values + 16 * d);
#pragma unroll
                    for (int i = 0; i < TILES; i++) {
                        mma_f16(w[i].o[d], p[i], b[0], b[1]);
                        mma_f16(w[i].o[d + 1], p[i], b[2], b[3]);
                    }
                }
            arrive(&sh.empty[(n + 1) % shape::SLOTS]);
        }
        if (busy) put_rows<DP, TILES>(w, a, rec, sh.stat[turn & 1], room, half, quarter, lane);
        arrive(&sh.taken[turn & 1]);
    }
}

template <int DP, int TILES> __global__ void __launch_bounds__(DEEP_THREADS, 1) deep_attn_kernel(attn_args a)
{
#if HAS_BULK_COPY
    typedef deep_shape<DP, TILES> shape;
    DYNAMIC_SHARED(uint8_t, tiles);
    __shared__ shared_deep<DP, TILES> sh;
    uint8_t *const queries = tiles, *const room = queries + 2 * shape::QUERIES, *const ring = room + shape::JOIN;
    const step *s = a.step;
    const int warp = threadIdx.x / WARP, group = quotient(a.heads, a.kv.kv_heads), n_seqs = s->head.n_seqs;
    launch_dependents();
    for (int i = threadIdx.x; i < n_seqs; i += DEEP_THREADS)
        sh.n_items[i + 1] = count_items<shape::ROWS>(a, s->seq[i], a.tree[i] && !a.block, group);
    if (threadIdx.x == 0) {
        for (int i = 0; i < shape::SLOTS; i++) bar_init(&sh.full[i], 1), bar_init(&sh.empty[i], WORKERS);
        for (int i = 0; i < 2; i++) bar_init(&sh.ready[i], BRINGERS * WARP), bar_init(&sh.taken[i], WORKERS);
        bar_fence();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        sh.n_items[0] = 0;
        for (int i = 0; i < n_seqs; i++) sh.n_items[i + 1] += sh.n_items[i];
    }
    __syncthreads();
    const int n_items = sh.n_items[n_seqs];
    if (warp < WORKERS) {
        warpgroup_registers_more();
        attend<DP, TILES>(a, s, sh, queries, (float4 *)room, ring, n_items, group);
    } else {
        warpgroup_registers_less();
        if (warp == WORKERS) feed<DP, TILES>(a, s, sh, ring, n_items, group);
        else bring<DP, TILES>(a, s, sh, queries, n_items, group);
    }
#endif
}

template <int DP, int TILES> static void launch_shape(launch *l, const attn_args *a, int n_units)
{
    enum { SHARED = deep_shape<DP, TILES>::SHARED };
    static_assert((int)SHARED + (int)sizeof(shared_deep<DP, TILES>) <= BIG_SHARED, "room in shared memory");
    allow_shared(deep_attn_kernel<DP, TILES>, SHARED);
    fill_launch(l, deep_attn_kernel<DP, TILES>, dim3(n_units), DEEP_THREADS, SHARED, *a);
}
bool attn_deep_can(const kv_place *kv)
{
    const bool halves = kv->k_format == TYPE_F16 && kv->v_format == TYPE_F16;
    return !card_is_small() && halves && (kv->dim == 64 || kv->dim == 128 || kv->dim == 256);
}
void launch_attn_deep(launch *l, const attn_args *a, int n_units)
{
    if (a->kv.dim == 64) launch_shape<64, 2>(l, a, n_units);
    else if (a->kv.dim == 128) launch_shape<128, 2>(l, a, n_units);
    else launch_shape<256, 1>(l, a, n_units);
}
