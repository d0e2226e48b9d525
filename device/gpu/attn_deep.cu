/* device/gpu/attn_deep.cu - ATTN of narrow steps with many packed rows, over f16 pages (sm_90a).
 *
 * Items, pages and arithmetic are those of attn_narrow.cu, and so are a row's bits; the work is laid out so that
 * memory never waits. One block a multiprocessor takes item after item: two warps feed a ring of keys and values
 * through the ends of items, two bring the rows and queries of the next item, and two groups of four warps work, each
 * without waiting for the other: a group multiplies all rows with two quarters of the keys of each page by warp-group
 * products. While it exponentiates the scores of a page, the values of the page before are added, and so are the
 * other group's. Rows of a page lie by p % 8, then p / 8, so that a quarter is 16 of them that follow each other, in
 * panels of 64 columns whose pieces are swapped (wgmma.cuh). The groups are joined through shared memory.
 * The sums of a quarter take a register a column: of more than 128 values an item has 128, and its neighbour, which
 * the next multiprocessor has meanwhile, the others, and its keys from L2.
 * Traffic: the visible keys and values once per item; the limit is memory up to 64 packed rows. */
#include "device/gpu/attn_narrow.cuh"
#include "device/gpu/wgmma.cuh"

enum { GROUP = 4 * WARP, GROUPS = 2, PER_GROUP = QUARTERS / GROUPS, WORKERS = GROUPS * 4, FEEDERS = 2, BRINGERS = 2,
       DEEP_THREADS = (WORKERS + FEEDERS + BRINGERS) * WARP, DEEP_ROWS = 64 };

template <int DP> struct deep_shape {
    enum {
        COLUMNS = DP < 128 ? DP : 128,                          /* of an item's values */
        SHARES = DP / COLUMNS,                                  /* items of all values */
        KEYS_TILE = DP / 64 * PANEL_BYTES,                      /* the queries' as well */
        VALUES_TILE = COLUMNS / 64 * PANEL_BYTES,
        PAGES = DP == 256 ? 2 : DP == 128 ? 4 : 8,              /* of the ring */
        SLOTS = 2 * PAGES,
        JOIN = DEEP_ROWS * COLUMNS * 4,
        SHARED = 2 * KEYS_TILE + JOIN + PAGES * (KEYS_TILE + VALUES_TILE),
    };
    /* Where tile n lies: keys, values, keys, ... */
    static __device__ uint8_t *tile(uint8_t *ring, uint32_t n)
    {
        return ring + n / 2 % PAGES * (KEYS_TILE + VALUES_TILE) + n % 2 * KEYS_TILE;
    }
};

/* What the workers need of an item, brought while they are at the one before. */
struct deep_record {
    row_view view[DEEP_ROWS];
    int t0, t1;                                 /* pages */
    int all_from, all_to;                       /* positions that all its rows see */
    int part;                                   /* of its rows; -1: there is only this one, the result */
    int share;                                  /* of the values */
};
template <int DP> struct shared_deep {
    enum { SLOTS = deep_shape<DP>::SLOTS };
    deep_record record[2];
    float2 stat[2][QUARTERS][DEEP_ROWS];        /* maximum, sum */
    uint64_t full[SLOTS], empty[SLOTS];         /* of the ring */
    uint64_t ready[2], taken[2];                /* of the records */
    int n_items[STEP_SEQS + 1];                 /* before sequence s, of one share */
    uint8_t bank[FEEDERS][NARROW_ROWS];         /* the feeders': bank rows of the path, in order */
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
    const int split0 = it.split * it.size / PAGE, split1 = split0 + it.size / PAGE;
    reach r;
    r.t0 = max((int)(most - warp_max_whole(most - (uint32_t)low)), split0);
    r.t1 = min((int)warp_max_whole((uint32_t)high), split1);
    if (r.t0 > r.t1) r.t0 = r.t1;               /* no row: no pages */
    r.all_from = (int)warp_max_whole((uint32_t)from);
    r.all_to = (int)(most - warp_max_whole(most - (uint32_t)to));
    return r;
}

/* A feeder's part of a tile: COLUMNS of the rows, from byte `at` of each. What is not there becomes zero. */
template <int DP, int COLUMNS>
__device__ inline void feed_tile(const page_rows &p, int at, uint8_t *tile, int thread)
{
    enum { PIECES = COLUMNS / 8, EACH = FEEDERS * WARP / PIECES };      /* rows at a time: a part of 8 */
    static_assert(EACH > 0 && 8 % EACH == 0, "rows at a time");
    const int c = thread % PIECES, in = thread / PIECES;
    if (p.in_page >= PAGE && p.committed) {
        const uint8_t *from = p.committed + in * DP * 2 + at + 16 * c;
        const shared_t to = shared_place(tile + 8 * in * 128 + c / 8 * PANEL_BYTES);
#pragma unroll
        for (int j = 0; j < PAGE / EACH; j++)   /* row r = j EACH + in lies at 8 (r % 8) + r / 8 */
            copy16(to + (j * EACH % 8 * 8 + j * EACH / 8) * 128 + ((c % 8) ^ (j * EACH / 8)) * 16,
                      from + j * EACH * DP * 2);
        return;
    }
#pragma unroll 1
    for (int r = in; r < PAGE; r += EACH) {
        uint8_t *to = tile + panel_piece(8 * (r % 8) + r / 8, c);
        const int row = p.row(r);
        const uint8_t *from = row < 0 ? p.bank : p.block(r) + (uint64_t)row * (DP * 2) + at + 16 * c;
        copy16_or_zeros(to, from, row >= 0);
    }
}

/* Two warps: keys and values of all the block's items. */
template <int DP>
__device__ inline void feed(const attn_args &a, const step *s, shared_deep<DP> &sh, uint8_t *ring, int n_items,
                            int group)
{
    typedef deep_shape<DP> shape;
    const int thread = threadIdx.x - GROUPS * GROUP, lane = thread % WARP;
    uint8_t *const bank = sh.bank[thread / WARP];
    uint32_t n = 0;                             /* tiles so far: keys, values, keys, ... */
    bool waited = false;
    for (int round = 0; item_of(round) < n_items; round++) {
        const int i = item_of(round);
        const item it = find_item<DEEP_ROWS>(a, s, sh.n_items, quotient(i, shape::SHARES), group);
        const int share = i % shape::SHARES;
        const step_seq q = s->seq[it.seq];
        const reach r = reach_of(a, s, it, group, lane);
        const int mine = r.t0 + lane;
        const int32_t *table = a.kv.table + (int64_t)q.slot * a.kv.max_pages;
        const int page = lane < r.t1 - r.t0 && mine < a.kv.max_pages ? table[mine] : -1;
        __syncwarp();
        put_bank(s, it, bank, lane, group);
        const int n_bank = put_bank(s, it, bank, lane + WARP, group);
        __syncwarp();
#pragma unroll 1
        for (int t = r.t0; t < r.t1; t++) {
            const int at = __shfl_sync(0xffffffffu, page, t - r.t0);
            /* Pages that the step before did not touch are there already. */
            if (!waited && (t + 1) * PAGE > q.past - q.n_commit) {
                wait_predecessor();
                waited = true;
            }
#pragma unroll
            for (int x = 0; x < 2; x++, n++) {
                const uint32_t slot = n % shape::SLOTS;
                if (n >= shape::SLOTS) bar_wait(&sh.empty[slot], (n / shape::SLOTS - 1) & 1);
                const page_rows p = rows_of(a, q, part_of(a.kv, it.head, x), t, at, bank, n_bank);
                uint8_t *tile = shape::tile(ring, n);
                if (x) feed_tile<DP, shape::COLUMNS>(p, share * shape::COLUMNS * 2, tile, thread);
                else feed_tile<DP, DP>(p, 0, tile, thread);
                copy_arrive(&sh.full[slot]);
            }
        }
    }
}

/* An item's queries as f16, by THREADS threads, EACH pieces at a time. */
template <int DP, int THREADS, int EACH>
__device__ inline void put_queries(const attn_args &a, const step_seq &q, const item &it, uint8_t *tile, int thread,
                                   int group)
{
#pragma unroll EACH
    for (int j = thread; j < DEEP_ROWS * (DP / 8); j += THREADS) {
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
        *(uint4 *)(tile + panel_piece(r, c)) = h;
    }
    shared_fence();
}

/* Two warps: rows and queries of all the block's items; the workers bring the first queries themselves, sooner. */
template <int DP>
__device__ inline void bring(const attn_args &a, const step *s, shared_deep<DP> &sh, uint8_t *queries, int n_items,
                             int group)
{
    typedef deep_shape<DP> shape;
    const int thread = threadIdx.x - GROUPS * GROUP - FEEDERS * WARP;
    uint32_t turn = 0;
    for (; item_of(turn) < n_items; turn++) {
        const int i = item_of(turn);
        deep_record &to = sh.record[turn & 1];
        uint8_t *tile = queries + (turn & 1) * shape::KEYS_TILE;
        const item it = find_item<DEEP_ROWS>(a, s, sh.n_items, quotient(i, shape::SHARES), group);
        const step_seq &q = s->seq[it.seq];
        if (turn >= 2) bar_wait(&sh.taken[turn & 1], (turn / 2 - 1) & 1);
        for (int j = thread; j < DEEP_ROWS; j += BRINGERS * WARP) to.view[j] = view_of(a, s, it, j, group);
        if (thread < WARP) {
            const reach r = reach_of(a, s, it, group, thread);
            to.t0 = r.t0, to.t1 = r.t1, to.all_from = r.all_from, to.all_to = r.all_to;
            to.part = part_of_rows(a, q, it);
            to.share = i % shape::SHARES;
        }
        if (turn == 0) wait_predecessor();
        else put_queries<DP, BRINGERS * WARP, 2>(a, q, it, tile, thread, group);
        bar_arrive(&sh.ready[turn & 1]);
    }
    if (turn == 0) wait_idle(true);
}

/* Starts scores of all rows and a group's keys. */
template <int DP> __device__ inline void start_scores(float (&s)[16], uint64_t queries, const uint8_t *keys, int mine)
{
    const uint64_t k = wgmma_operand(shared_place(keys + mine * PER_GROUP * 16 * 128), 0);
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < DP / 16; i++) {
        const int at = (i / 4 * PANEL_BYTES + i % 4 * 32) >> 4;
        wgmma_32(s, queries + at, k + at, i > 0);
    }
    wgmma_commit();
}
/* Starts o += weights x values, of each quarter. */
template <int N>
__device__ inline void start_values(float (&o)[PER_GROUP][N], const uint32_t (&p)[PER_GROUP * 4], const uint8_t *values,
                                    int mine)
{
    const uint64_t v = wgmma_operand(shared_place(values + mine * PER_GROUP * 16 * 128), PANEL_BYTES);
    wgmma_begin();
#pragma unroll
    for (int x = 0; x < PER_GROUP; x++) wgmma_turned(o[x], p + 4 * x, v + (x * 16 * 128 >> 4));
    wgmma_commit();
}

/* Joins the quarters of a group's rows: the first group adds its own, in order, and leaves what they make to the
 * second, which has the results, or the parts of a split. */
template <int DP, int N>
__device__ inline void put_rows(const row_sums (&w)[PER_GROUP], const float (&o)[PER_GROUP][N], const attn_args &a,
                                const deep_record &rec, float2 (*stat)[DEEP_ROWS], float4 *room, int mine, int warp,
                                int lane)
{
    const int row0 = warp * 16 + lane / 4;
    const bool result = rec.part < 0;
    float f[2][PER_GROUP], inv[2];
    float *to[2] = { nullptr, nullptr };        /* parts; columns of results are found again */
#pragma unroll
    for (int x = 0; x < PER_GROUP; x++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float l = lanes_sum(w[x].l[h]);
            if (lane % 4 == 0) stat[mine * PER_GROUP + x][row0 + 8 * h] = make_float2(w[x].m[h], l);
        }
    group_sync(1, GROUPS * GROUP);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row0 + 8 * h;
        float2 st[QUARTERS];
#pragma unroll
        for (int k = 0; k < QUARTERS; k++) st[k] = stat[k][r];
        const joined all = join(st);
#pragma unroll
        for (int x = 0; x < PER_GROUP; x++) f[h][x] = mine ? all.f[PER_GROUP + x] : all.f[x];
        inv[h] = all.l > 0 ? 1.0f / all.l : 0.0f;
        const row_view &v = rec.view[r];
        if (!mine || v.row < 0) continue;
        const uint64_t at = (uint64_t)v.row * a.heads + v.head, part = at * a.max_splits + rec.part;
        to[h] = !result ? a.parts + part * DP : a.y ? a.y + at * DP : nullptr;
        if (!result && rec.share == 0 && lane % 4 == 0) *(float2 *)(a.stats + 2 * part) = make_float2(all.m, all.l);
    }
    if (mine) group_sync(2, GROUPS * GROUP);
#pragma unroll
    for (int d = 0; d < N / 4; d++) {
        float4 &left = room[(warp * (N / 4) + d) * WARP + lane];
        float4 y = mine ? left : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int x = 0; x < PER_GROUP; x++) {
            y.x = __fmaf_rn(f[0][x], o[x][4 * d], y.x), y.y = __fmaf_rn(f[0][x], o[x][4 * d + 1], y.y);
            y.z = __fmaf_rn(f[1][x], o[x][4 * d + 2], y.z), y.w = __fmaf_rn(f[1][x], o[x][4 * d + 3], y.w);
        }
        if (!mine) {
            left = y;
            continue;
        }
        const int col = rec.share * deep_shape<DP>::COLUMNS + 8 * d + 2 * (lane % 4);
        if (result) {
            y.x *= inv[0], y.y *= inv[0], y.z *= inv[1], y.w *= inv[1];
            const row_view *v = rec.view + row0;
            if (a.form.at && v[0].row >= 0) form_put2(a.form, v[0].row, v[0].head * DP + col, y.x, y.y);
            if (a.form.at && v[8].row >= 0) form_put2(a.form, v[8].row, v[8].head * DP + col, y.z, y.w);
        }
        if (to[0]) *(float2 *)(to[0] + col) = make_float2(y.x, y.y);
        if (to[1]) *(float2 *)(to[1] + col) = make_float2(y.z, y.w);
    }
    if (!mine) group_sync(2, GROUPS * GROUP);
}

/* A group's thread. Long: its part of an item from queries to result. */
template <int DP>
__device__ inline void attend(const attn_args &a, const step *s, shared_deep<DP> &sh, uint8_t *queries, float4 *room,
                              uint8_t *ring, int n_items, int group)
{
    typedef deep_shape<DP> shape;
    enum { SUMS = shape::COLUMNS / 2 };
    const int mine = threadIdx.x / GROUP, warp = threadIdx.x % GROUP / WARP, lane = threadIdx.x % WARP;
    uint32_t n = 0, turn = 0;
    auto wait_for = [&](uint32_t k) {
        bar_wait(&sh.full[k % shape::SLOTS], k / shape::SLOTS & 1);
    };
    auto arrive = [&](uint64_t *bar) {
        __syncwarp();
        if (lane == 0) bar_arrive(bar);
    };
    if ((int)blockIdx.x < n_items) {
        const item it = find_item<DEEP_ROWS>(a, s, sh.n_items, quotient((int)blockIdx.x, shape::SHARES), group);
        wait_predecessor();
        put_queries<DP, GROUPS * GROUP, 4>(a, s->seq[it.seq], it, queries, threadIdx.x, group);
        group_sync(1, GROUPS * GROUP);
    }
    for (; item_of(turn) < n_items; turn++) {
        const deep_record &rec = sh.record[turn & 1];
        bar_wait(&sh.ready[turn & 1], turn / 2 & 1);
        const uint64_t q = wgmma_operand(shared_place(queries + (turn & 1) * shape::KEYS_TILE), 0);
        const int t0 = rec.t0, t1 = rec.t1;
        float o[PER_GROUP][SUMS], scores[PER_GROUP * 8], keep[PER_GROUP][2];
        uint32_t p[PER_GROUP * 4];
        row_sums w[PER_GROUP];
        auto weigh_page = [&](int t) {
            const int p0 = t * PAGE;
            const bool all = p0 >= rec.all_from && p0 + PAGE - 1 <= rec.all_to;
#pragma unroll
            for (int x = 0; x < PER_GROUP; x++)
                weigh(w[x], (float (*)[4])(scores + 8 * x), a, all ? nullptr : rec.view + warp * 16, p0,
                      mine * PER_GROUP + x, lane, keep[x]);
        };
        auto round_page = [&] {                 /* products that read what was there before are done */
#pragma unroll
            for (int x = 0; x < PER_GROUP; x++) round_weights(p + 4 * x, (const float (*)[4])(scores + 8 * x));
            wgmma_ready(p);
        };
#pragma unroll
        for (int x = 0; x < PER_GROUP; x++) {
            clear(w[x]);
#pragma unroll
            for (int j = 0; j < SUMS; j++) o[x][j] = 0;
        }
        if (t0 < t1) {
            wait_for(n);
            shared_fence();                     /* copies by threads come before products after it */
            start_scores<DP>(scores, q, shape::tile(ring, n), mine);
            wgmma_wait<0>();
            wgmma_own(scores);
            arrive(&sh.empty[n % shape::SLOTS]);
            weigh_page(t0);
            round_page();
#pragma unroll 1
            for (int t = t0 + 1; t < t1; t++, n += 2) {
                wait_for(n + 1), wait_for(n + 2);
                shared_fence();
                start_scores<DP>(scores, q, shape::tile(ring, n + 2), mine);
                start_values(o, p, shape::tile(ring, n + 1), mine);
                wgmma_wait<1>();
                wgmma_own(scores);
                arrive(&sh.empty[(n + 2) % shape::SLOTS]);
                weigh_page(t);
                wgmma_wait<0>();
#pragma unroll
                for (int x = 0; x < PER_GROUP; x++) wgmma_own(o[x]);
                arrive(&sh.empty[(n + 1) % shape::SLOTS]);
#pragma unroll
                for (int x = 0; x < PER_GROUP; x++) {
                    if (__all_sync(0xffffffffu, keep[x][0] == 1.0f && keep[x][1] == 1.0f)) continue;
#pragma unroll
                    for (int j = 0; j < SUMS; j++) o[x][j] = __fmul_rn(o[x][j], keep[x][j / 2 % 2]);
                }
                round_page();
            }
            wait_for(n + 1);
            shared_fence();
            start_values(o, p, shape::tile(ring, n + 1), mine);
            wgmma_wait<0>();
#pragma unroll
            for (int x = 0; x < PER_GROUP; x++) wgmma_own(o[x]);
            arrive(&sh.empty[(n + 1) % shape::SLOTS]);
            n += 2;
        }
        put_rows<DP>(w, o, a, rec, sh.stat[turn & 1], room, mine, warp, lane);
        arrive(&sh.taken[turn & 1]);
    }
}

template <int DP> __global__ void __launch_bounds__(DEEP_THREADS, 1) deep_attn_kernel(attn_args a)
{
#if HAS_GROUP_PRODUCTS
    typedef deep_shape<DP> shape;
    DYNAMIC_SHARED(uint8_t, tiles);
    __shared__ shared_deep<DP> sh;
    uint8_t *const queries = tiles, *const room = queries + 2 * shape::KEYS_TILE, *const ring = room + shape::JOIN;
    const step *s = a.step;
    const int warp = threadIdx.x / WARP, group = quotient(a.heads, a.kv.kv_heads), n_seqs = s->head.n_seqs;
    launch_dependents();
    for (int i = threadIdx.x; i < n_seqs; i += DEEP_THREADS)
        sh.n_items[i + 1] = count_items<DEEP_ROWS>(a, s->seq[i], a.tree[i] && !a.block, group);
    if (threadIdx.x == 0) {
        for (int i = 0; i < shape::SLOTS; i++) bar_init(&sh.full[i], FEEDERS * WARP), bar_init(&sh.empty[i], WORKERS);
        for (int i = 0; i < 2; i++) bar_init(&sh.ready[i], BRINGERS * WARP), bar_init(&sh.taken[i], WORKERS);
        bar_fence();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        sh.n_items[0] = 0;
        for (int i = 0; i < n_seqs; i++) sh.n_items[i + 1] += sh.n_items[i];
    }
    __syncthreads();
    const int n_items = sh.n_items[n_seqs] * shape::SHARES;
    if (warp < WORKERS) {
        warpgroup_registers_more<208>();
        attend<DP>(a, s, sh, queries, (float4 *)room, ring, n_items, group);
    } else {
        warpgroup_registers_less<88>();
        if (warp < WORKERS + FEEDERS) feed<DP>(a, s, sh, ring, n_items, group);
        else bring<DP>(a, s, sh, queries, n_items, group);
    }
#endif
}

template <int DP> static void launch_shape(launch *l, const attn_args *a, int n_units)
{
    enum { SHARED = deep_shape<DP>::SHARED };
    static_assert((int)SHARED + (int)sizeof(shared_deep<DP>) <= BIG_SHARED, "room in shared memory");
    allow_shared(deep_attn_kernel<DP>, SHARED);
    fill_launch(l, deep_attn_kernel<DP>, dim3(n_units), DEEP_THREADS, SHARED, *a);
}
bool attn_deep_can(const kv_place *kv)
{
    const bool halves = kv->k_format == TYPE_F16 && kv->v_format == TYPE_F16;
    return has_group_products() && halves && (kv->dim == 64 || kv->dim == 128 || kv->dim == 256);
}
void launch_attn_deep(launch *l, const attn_args *a, int n_units)
{
    if (a->kv.dim == 64) launch_shape<64>(l, a, n_units);
    else if (a->kv.dim == 128) launch_shape<128>(l, a, n_units);
    else launch_shape<256>(l, a, n_units);
}
