/* device/gpu/attn_wide.cu - ATTN of wide steps by warp groups (sm_90a), over f16 pages of up to 256 dims.
 *
 * An item is (sequence, kv head, 128 packed rows: tokens x heads of the group), with all its pages. Two
 * groups of four warps hold 64 rows each: scores of a page (64 keys) and weighted values are warp-group
 * products, queries, keys and values lie in shared memory in panels of 64 columns, 128 bytes a row, the
 * 16-byte pieces swapped by row % 8. A third group feeds rings of keys and of values. While a group
 * exponentiates the scores of a page, its products with the values of the page before run, and so do the
 * other group's.
 * Order of a row's sums: pages ascending, keys of a page by the matrix instruction. Pages that a row does not
 * see change nothing (their weights are exactly 0), so a row's bits depend on its keys alone.
 * Traffic: keys and values of the visible pages once an item, from L2; the limit is the matrix unit. Scores
 * are f16 x f16 in f32, weights f16, sums f32, as in attn.cu, which does what this does not. */
#include "device/gpu/rows.cuh"
#include "device/gpu/wgmma.cuh"

enum { GROUP = 128, GROUPS = 2, GROUP_ROWS = 64, ITEM_ROWS = GROUPS * GROUP_ROWS, THREADS = (GROUPS + 1) * GROUP,
       KEYS = PAGE, LAG = 2 /* copies of tiles on their way at a time, less one */ };

template <int DP> struct wide_shape {
    enum {
        TILE = DP / 64 * PANEL_BYTES,           /* keys or values of a page; queries of a group */
        STAGES = DP == 256 ? 2 : DP == 128 ? 3 : 4,
        SHARED = (GROUPS + 2 * STAGES) * TILE + 4 * STAGES * 8,
    };
};

#if HAS_WARPGROUP_MMA
struct wide_item {
    int seq, head, row0, n_rows;                /* row0: first packed row of the sequence */
    int t0, t1;                                 /* pages */
};
struct row_range {
    int first, see;                             /* positions, both included */
};

__device__ inline row_range range_of(const attn_args &a, const step *s, const wide_item &it, int packed, int group)
{
    if (packed >= it.n_rows) return row_range{ INT32_MAX, -1 };
    const step_row &r = s->row[s->seq[it.seq].first_row + (it.row0 + packed) / group];
    const int first = a.window ? r.index - a.window + 1 : 0;
    return row_range{ first > 0 ? first : 0, r.see };
}

/* Item i; by a whole warp. The longest of a sequence come first. */
__device__ inline wide_item find_wide(const attn_args &a, const step *s, const int *before, int i, int group, int lane)
{
    wide_item it;
    it.seq = 0;
    while (before[it.seq + 1] <= i) it.seq++;
    i -= before[it.seq];
    const int packed = s->seq[it.seq].n_rows * group, chunks = (packed + ITEM_ROWS - 1) / ITEM_ROWS;
    it.head = i % a.kv.kv_heads;
    it.row0 = (chunks - 1 - i / a.kv.kv_heads) * ITEM_ROWS;
    it.n_rows = min(packed - it.row0, (int)ITEM_ROWS);
    int low = INT32_MAX, high = -1;
    for (int j = lane; j < it.n_rows; j += WARP) {
        const row_range v = range_of(a, s, it, j, group);
        if (v.see >= v.first) low = min(low, v.first / PAGE), high = max(high, v.see / PAGE);
    }
    low = __reduce_min_sync(0xffffffffu, low), high = __reduce_max_sync(0xffffffffu, high);
    it.t0 = high < 0 ? 0 : low, it.t1 = high + 1;
    return it;
}

/* The feeder's thread starts its copies of a page's keys or values (rows of them exist). */
template <int DP>
__device__ inline void feed_tile(const kv_place &kv, uint8_t *tile, const uint8_t *from, int row_bytes, int rows)
{
    const int thread = threadIdx.x % GROUP;
#pragma unroll
    for (int j = 0; j < KEYS * (DP / 8) / GROUP; j++) {
        const int i = thread + j * GROUP, r = i / (DP / 8), c = i % (DP / 8);
        const bool real = r < rows && c * 8 < kv.dim;
        copy16_or_zeros(tile + panel_piece(r, c), real ? from + (uint64_t)r * row_bytes + 16 * c : kv.pages, real);
    }
    copy_commit();
}

/* Queries of a group's rows as f16. */
template <int DP>
__device__ inline void put_queries(const attn_args &a, const step *s, const wide_item &it, uint8_t *tile, int base,
                                   int group)
{
    const int first = s->seq[it.seq].first_row;
#pragma unroll 2
    for (int i = threadIdx.x % GROUP; i < GROUP_ROWS * (DP / 8); i += GROUP) {
        const int r = i / (DP / 8), c = i % (DP / 8), packed = it.row0 + base + r;
        uint4 h = make_uint4(0, 0, 0, 0);
        if (base + r < it.n_rows && c * 8 < a.kv.dim) {
            const float4 *q = (const float4 *)(a.q + ((uint64_t)(first + packed / group) * a.heads + it.head * group
                + packed % group) * a.kv.dim + 8 * c);
            const float4 x = q[0], y = q[1];
            h.x = as_bits(__halves2half2(clamped_half(x.x), clamped_half(x.y)));
            h.y = as_bits(__halves2half2(clamped_half(x.z), clamped_half(x.w)));
            h.z = as_bits(__halves2half2(clamped_half(y.x), clamped_half(y.y)));
            h.w = as_bits(__halves2half2(clamped_half(y.z), clamped_half(y.w)));
        }
        *(uint4 *)(tile + panel_piece(r, c)) = h;
    }
}

/* Starts scores of 64 rows and 64 keys. */
template <int DP> __device__ inline void start_scores(float (&s)[32], const uint8_t *queries, const uint8_t *keys)
{
    const uint64_t q = wgmma_operand(shared_place(queries), 0), k = wgmma_operand(shared_place(keys), 0);
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < DP / 16; i++) {
        const int at = (i / 4 * PANEL_BYTES + i % 4 * 32) >> 4;
        wgmma_64(s, q + at, k + at, i > 0);
    }
    wgmma_commit();
}
/* Starts o += weights x values. */
template <int DP>
__device__ inline void start_values(float (&o)[DP / 2], const uint32_t (&p)[16], const uint8_t *values)
{
    const uint64_t v = wgmma_operand(shared_place(values), PANEL_BYTES);
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) wgmma_turned(o, p + 4 * i, v + (i * 16 * 128 >> 4));
    wgmma_commit();
}

struct running {
    float m[2], l[2], keep[2];                  /* of rows g and g + 8: maximum, sum; factor of what was summed */
};
/* Scores become weights of the page's keys, not yet divided by their sum. */
__device__ inline void weigh_page(float (&s)[32], running &w, const attn_args &a,
                                  const row_range v[2], int p0, int lane)
{
    const float log2e = 1.4426950408889634f;
    float scale = a.scale * log2e;
    if (a.softcap > 0) {                        /* tanh x = 1 - 2 / (e^2x + 1) */
        const float in_cap = 2 * scale / a.softcap, out = a.softcap * log2e;
#pragma unroll
        for (int i = 0; i < 32; i++)
            s[i] = out * (1.0f - __fdividef(2.0f, exp2_fast(fminf(s[i] * in_cap, 60.0f)) + 1.0f));
        scale = 1;
    }
    const int low = max(v[0].first, v[1].first), high = min(v[0].see, v[1].see);
    if (!__all_sync(0xffffffffu, p0 >= low && p0 + PAGE - 1 <= high)) {
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int at = p0 + 8 * (i / 4) + 2 * (lane % 4) + i % 2;
            const row_range &x = v[i / 2 % 2];
            if (at < x.first || at > x.see) s[i] = -INFINITY;
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = fmaxf(s[2 * h], s[2 * h + 1]);
#pragma unroll
        for (int j = 1; j < 8; j++) top = fmaxf(top, fmaxf(s[4 * j + 2 * h], s[4 * j + 2 * h + 1]));
        top = lanes_max(top);
        const float m = fmaxf(w.m[h], top * scale), base = m == -INFINITY ? 0.0f : m;
        w.keep[h] = exp2_fast(w.m[h] - base);   /* 0 for the first page, 1 when m stays */
        w.m[h] = m;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &x = s[4 * j + 2 * h + e];
                x = exp2_fast(__fmaf_rn(x, scale, -base));
                sum += x;
            }
        w.l[h] = __fmaf_rn(w.l[h], w.keep[h], sum);
    }
}
/* The weights as the first operand of their product with the values. Products that read what was there before
 * must be done: the compiler would make all products wait otherwise. */
__device__ inline void round_weights(uint32_t (&p)[16], const float (&s)[32])
{
#pragma unroll
    for (int i = 0; i < 16; i++) p[i] = as_bits(__floats2half2_rn(s[2 * i], s[2 * i + 1]));
    wgmma_ready(p);
}

template <int DP>
__device__ inline void put_result(const float (&o)[DP / 2], const running &w, const attn_args &a, const step *s,
                                  const wide_item &it, int base, int group, int lane)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float l = w.l[h];
        l += __shfl_xor_sync(0xffffffffu, l, 1);
        l += __shfl_xor_sync(0xffffffffu, l, 2);
        const float inv = l > 0 ? 1.0f / l : 0.0f;
        const int in = base + lane / 4 + 8 * h, packed = it.row0 + in;
        if (in >= it.n_rows) continue;
        const int row = s->seq[it.seq].first_row + packed / group, head = it.head * group + packed % group;
        const uint64_t at = ((uint64_t)row * a.heads + head) * a.kv.dim;
#pragma unroll
        for (int d = 0; d < DP / 8; d++) {
            const int c = 8 * d + 2 * (lane % 4);
            if (c >= a.kv.dim) break;
            const float y0 = o[4 * d + 2 * h] * inv, y1 = o[4 * d + 2 * h + 1] * inv;
            if (a.y) *(float2 *)(a.y + at + c) = make_float2(y0, y1);
            if (a.form.at) form_put2(a.form, row, head * a.kv.dim + c, y0, y1);
        }
    }
}

/* Rings of keys (0) and values (1). */
template <int DP> struct wide_rings {
    enum { STAGES = wide_shape<DP>::STAGES };
    uint64_t *bars;
    uint8_t *tiles;
    __device__ uint64_t *full(int x, int n) const
    {
        return bars + x * 2 * STAGES + n % STAGES;
    }
    __device__ uint64_t *empty(int x, int n) const
    {
        return bars + (x * 2 + 1) * STAGES + n % STAGES;
    }
    __device__ uint8_t *tile(int x, int n) const
    {
        return tiles + (x * STAGES + n % STAGES) * wide_shape<DP>::TILE;
    }
};

/* The third group: keys and values of all the block's items. */
template <int DP>
__device__ inline void feed(const attn_args &a, const step *s, const int *before, int n_items, const wide_rings<DP> &r,
                            int group)
{
    typedef wide_shape<DP> shape;
    int n = 0;                                  /* tiles so far: keys, values, keys, ... */
    auto arrived = [&](int tile) {
        shared_fence();
        bar_arrive(r.full(tile % 2, tile / 2));
    };
    for (int turn = 0, i; (i = item_of(turn)) < n_items; turn++) {
        const wide_item it = find_wide(a, s, before, i, group, threadIdx.x % WARP);
        const step_seq &q = s->seq[it.seq];
        const kv_place &kv = a.kv;
        const int32_t *table = kv.table + (int64_t)q.slot * kv.max_pages;
        const int limit = q.past + q.n_rows;    /* positions that pages hold */
        int next = it.t0 < it.t1 && it.t0 < kv.max_pages ? table[it.t0] : -1;
        for (int t = it.t0; t < it.t1; t++) {
            const int page = next, round = n / 2 / shape::STAGES;
            next = t + 1 < it.t1 && t + 1 < kv.max_pages ? table[t + 1] : -1;
            const uint8_t *at = kv.pages + (uint64_t)max(page, 0) * kv.page_bytes;
            const int rows = page < 0 ? 0 : min(limit - t * PAGE, (int)PAGE);
#pragma unroll
            for (int x = 0; x < 2; x++, n++) {
                if (round > 0) bar_wait(r.empty(x, n / 2), (round - 1) & 1);
                feed_tile<DP>(kv, r.tile(x, n / 2),
                              at + (x ? kv.v_at : kv.k_at) + it.head * kv.head,
                              x ? kv.v_row : kv.k_row, rows);
                copy_wait<LAG>();
                if (n >= LAG) arrived(n - LAG);
            }
        }
    }
    copy_wait<0>();
    for (int i = max(n - LAG, 0); i < n; i++) arrived(i);
}

/* A group of four warps: its 64 rows of all the block's items. */
template <int DP>
__device__ inline void attend(const attn_args &a, const step *s, const int *before, int n_items,
                              const wide_rings<DP> &r, uint8_t *queries, int group)
{
    typedef wide_shape<DP> shape;
    const int mine = threadIdx.x / GROUP, warp = threadIdx.x % GROUP / WARP, lane = threadIdx.x % WARP;
    const bool first_thread = threadIdx.x % GROUP == 0;
    int n = 0;                                  /* pages so far */
    auto wait_for = [&](int x, int page) {
        bar_wait(r.full(x, page), page / shape::STAGES & 1);
        return r.tile(x, page);
    };
    auto give_back = [&](int x, int page) {
        if (first_thread) bar_arrive(r.empty(x, page));
    };
    for (int turn = 0, i; (i = item_of(turn)) < n_items; turn++) {
        const wide_item it = find_wide(a, s, before, i, group, lane);
        const int base = mine * GROUP_ROWS + warp * 16;
        group_sync(1 + mine, GROUP);            /* products with the queries before are done */
        put_queries<DP>(a, s, it, queries, mine * GROUP_ROWS, group);
        shared_fence();
        group_sync(1 + mine, GROUP);
        const row_range v[2] = { range_of(a, s, it, base + lane / 4, group),
                                 range_of(a, s, it, base + lane / 4 + 8, group) };
        float o[DP / 2], scores[32];
        uint32_t p[16];
        running w = { { -INFINITY, -INFINITY }, { 0, 0 }, { 0, 0 } };
#pragma unroll
        for (int j = 0; j < DP / 2; j++) o[j] = 0;
        if (it.t0 < it.t1) {
            start_scores<DP>(scores, queries, wait_for(0, n));
            wgmma_wait<0>();
            wgmma_own(scores);
            give_back(0, n);
            weigh_page(scores, w, a, v, it.t0 * PAGE, lane);
            round_weights(p, scores);
            for (int t = it.t0 + 1; t < it.t1; t++, n++) {
                start_scores<DP>(scores, queries, wait_for(0, n + 1));
                start_values<DP>(o, p, wait_for(1, n));
                wgmma_wait<1>();
                wgmma_own(scores);
                give_back(0, n + 1);
                weigh_page(scores, w, a, v, t * PAGE, lane);
                wgmma_wait<0>();
                wgmma_own(o);
                give_back(1, n);
#pragma unroll
                for (int j = 0; j < DP / 2; j++) o[j] *= w.keep[j / 2 % 2];
                round_weights(p, scores);
            }
            start_values<DP>(o, p, wait_for(1, n));
            wgmma_wait<0>();
            wgmma_own(o);
            give_back(1, n++);
        }
        put_result<DP>(o, w, a, s, it, base, group, lane);
    }
}
#endif

template <int DP> __global__ void __launch_bounds__(THREADS, 1) attn_wide_kernel(attn_args a)
{
#if HAS_WARPGROUP_MMA
    typedef wide_shape<DP> shape;
    DYNAMIC_SHARED(uint8_t, tiles);
    __shared__ int before[STEP_SEQS + 1];       /* items before sequence s */
    const wide_rings<DP> r = { (uint64_t *)(tiles + (GROUPS + 2 * shape::STAGES) * shape::TILE),
                               tiles + GROUPS * shape::TILE };
    const step *s = a.step;
    const int group = a.heads / a.kv.kv_heads, n_seqs = s->head.n_seqs;
    launch_dependents();
    for (int i = threadIdx.x; i < n_seqs; i += THREADS)
        before[i + 1] = (s->seq[i].n_rows * group + ITEM_ROWS - 1) / ITEM_ROWS * a.kv.kv_heads;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int x = 0; x < 2; x++)
            for (int i = 0; i < shape::STAGES; i++) bar_init(r.full(x, i), GROUP), bar_init(r.empty(x, i), GROUPS);
        bar_fence();
        before[0] = 0;
        for (int i = 0; i < n_seqs; i++) before[i + 1] += before[i];
    }
    __syncthreads();
    wait_predecessor();
    if (threadIdx.x / GROUP == GROUPS) {
        warpgroup_registers_less();
        feed<DP>(a, s, before, before[n_seqs], r, group);
    } else {
        warpgroup_registers_more();
        attend<DP>(a, s, before, before[n_seqs], r, tiles + threadIdx.x / GROUP * shape::TILE, group);
    }
#endif
}

bool attn_wide_can(const attn_args *a)
{
    return has_warpgroups() && a->kv.k_format == TYPE_F16 && a->kv.v_format == TYPE_F16;
}
template <int DP> static void launch_dim(launch *l, const attn_args *a, int n_units)
{
    allow_shared(attn_wide_kernel<DP>, wide_shape<DP>::SHARED);
    fill_launch(l, attn_wide_kernel<DP>, dim3(n_units), THREADS, wide_shape<DP>::SHARED, *a);
}
void launch_attn_wide(launch *l, const attn_args *a, int n_units)
{
    if (a->kv.dim <= 64) launch_dim<64>(l, a, n_units);
    else if (a->kv.dim <= 128) launch_dim<128>(l, a, n_units);
    else launch_dim<256>(l, a, n_units);
}
