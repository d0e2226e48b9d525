/* device/gpu/attn.cu - ATTN: attention over pages, staging banks and paths, on the matrix units.
 *
 * Query rows of one kv head (tokens x heads of its group) are packed, 16 to a warp, one warp or four to a
 * block; the keys and values of one page (64 positions) lie in shared memory as f16, whatever their
 * format. The values arrive while scores are computed, the next keys while values are added.
 * A row's scores and sums are its own: rows of a block do not meet, pages that a row does not see change
 * nothing (their weights are exactly 0), and a key stands at its position whether it comes from a page or
 * from the bank. So a row's bits depend on its keys alone.
 *   narrow  positions are cut into splits at multiples of a constant (fixed by the cache); an item is
 *           (sequence, kv head, split, 64 rows). Parts (sum, maximum, weighted values) go to scratch, and
 *           a second kernel adds them in order. In a tree each row has its own ancestors behind `past`:
 *           there an item is one token of it.
 *   wide    an item is (sequence, kv head, 64 rows) with all its pages.
 * Traffic: the visible keys and values once per item; the limit is memory for narrow steps, the matrix
 * units for wide ones. Scores are f16 x f16 in f32, weights f16, sums f32. */
#include "device/gpu/rows.cuh"

enum { KEYS = PAGE, MOST_ROWS = 64 };       /* keys of a tile; packed rows of a block, at most */

bool attn_can(int heads, int kv_heads, int dim)
{
    return dim <= 256 && dim % 8 == 0 && heads / kv_heads <= MOST_ROWS;
}
int attn_split(int max_positions)
{
    return max_positions <= 16384 ? 256 : max_positions <= 65536 ? 512 : 1024;
}
static int room_for(int dim)
{
    return dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
}
uint64_t attn_scratch(int rows, int heads, int dim, int max_splits)
{
    return (uint64_t)rows * heads * max_splits * (room_for(dim) + 2);
}

/* What one query row of the block may see. */
struct row_view {
    int see, past, last, first; /* p <= see, or past <= p <= last; and p >= first */
    int row, head;              /* row -1: none */
};
__device__ inline bool sees(const row_view &v, int p)
{
    return p >= v.first && (p <= v.see || (p >= v.past && p <= v.last));
}

struct item {
    int seq, head, split, row0, n_rows;     /* row0: first packed row (token x group) of the sequence */
    bool single;                            /* one token of a tree, by its own path */
};

struct shared_attn {
    row_view view[MOST_ROWS];
    int n_items[STEP_SEQS + 1];             /* before sequence s */
    uint8_t bank[NARROW_ROWS];                     /* bank rows of the path, in order */
    int n_bank, low, high;                  /* pages of the item */
};

__device__ inline int first_split(const attn_args &a, const step_seq &q)
{
    int low = a.window ? q.past - a.window + 1 : 0;
    return low > 0 ? low / a.split : 0;
}
__device__ inline int count_splits(const attn_args &a, const step_seq &q)
{
    return (q.past + q.n_rows + a.split - 1) / a.split;     /* one past the last */
}

template <int WARPS, bool WIDE> __device__ inline int count_items(const attn_args &a, const step_seq &q,
    bool tree, int group)
{
    if (!q.n_rows) return 0;
    enum { ROWS = 16 * WARPS };
    const int chunks = (q.n_rows * group + ROWS - 1) / ROWS;
    if (WIDE) return a.kv.kv_heads * chunks;
    const int s0 = first_split(a, q), s1 = count_splits(a, q);
    if (!tree) return a.kv.kv_heads * (s1 - s0) * chunks;
    int common = q.past / a.split;          /* splits before it hold committed positions only */
    if (common < s0) common = s0;
    return a.kv.kv_heads * ((common - s0) * chunks + (s1 - common) * q.n_rows);
}

template <int WARPS, bool WIDE>
__device__ inline item find_item(const attn_args &a, const step *s, const shared_attn &sh, int i, int group)
{
    enum { ROWS = 16 * WARPS };
    item it;
    it.seq = 0;
    while (sh.n_items[it.seq + 1] <= i) it.seq++;
    i -= sh.n_items[it.seq];
    const step_seq &q = s->seq[it.seq];
    const int packed = q.n_rows * group, chunks = (packed + ROWS - 1) / ROWS;
    const int each = (sh.n_items[it.seq + 1] - sh.n_items[it.seq]) / a.kv.kv_heads;
    it.head = i / each;
    i %= each;
    it.single = false;
    int chunk;
    if (WIDE) {
        it.split = 0;
        chunk = chunks - 1 - i;             /* the longest first */
    } else {
        const int s0 = first_split(a, q);
        int common = a.tree[it.seq] && !a.block ? q.past / a.split : count_splits(a, q);
        if (common < s0) common = s0;
        it.single = i >= (common - s0) * chunks;
        if (it.single) {
            i -= (common - s0) * chunks;
            it.split = common + i / q.n_rows;
            it.row0 = i % q.n_rows * group;
            it.n_rows = group;
            return it;
        }
        it.split = s0 + i / chunks;
        chunk = i % chunks;
    }
    it.row0 = chunk * ROWS;
    it.n_rows = packed - it.row0 < ROWS ? packed - it.row0 : ROWS;
    return it;
}

/* Fills the views of the block's rows and the range of pages. All threads; ends in a barrier. */
template <int WARPS, bool WIDE>
__device__ inline void view_rows(const attn_args &a, const step *s, const item &it, shared_attn &sh, int group)
{
    const step_seq &q = s->seq[it.seq];
    const int thread = threadIdx.x;
    if (thread == 0) sh.low = INT32_MAX, sh.high = -1;
    __syncthreads();
    if (thread < 16 * WARPS) {
        row_view v = { -1, 0, -1, INT32_MAX, -1, 0 };
        if (thread < it.n_rows) {
            const int packed = it.row0 + thread, row = q.first_row + packed / group;
            const step_row &r = s->row[row];
            v.row = row;
            v.head = it.head * group + packed % group;
            v.first = a.window && r.index - a.window + 1 > 0 ? r.index - a.window + 1 : 0;
            v.see = r.see;
            if (!WIDE) {
                v.past = q.past;
                v.see = r.see < q.past ? r.see : q.past - 1;
                v.last = q.past + (a.block ? q.n_rows : __popcll(r.path)) - 1;
            }
            const int high = v.last > v.see ? v.last : v.see;
            if (high >= v.first) {
                atomicMin(&sh.low, v.first / PAGE);
                atomicMax(&sh.high, high / PAGE);
            }
        }
        sh.view[thread] = v;
    }
    if (!WIDE && thread == 16) {            /* in no warp's way: it holds no row of its own */
        const uint64_t path = it.single ? s->row[q.first_row + it.row0 / group].path : 0;
        sh.n_bank = 0;
        for (int j = 0; j < q.n_rows; j++)
            if (!it.single || (path >> j & 1)) sh.bank[sh.n_bank++] = (uint8_t)j;
    }
    __syncthreads();
}

/* 8 values (dims 8 c ..) of one position as f16, of any format but f16. Out of line: a step with a short
 * context runs every instruction once, and fetching them is what it waits for. */
__device__ __noinline__ uint4 decode8(uint32_t format, const uint8_t *block, int scales, int row_bytes,
                                      int dim, int at, int c)
{
    const uint8_t *row = block + (uint64_t)at * row_bytes;
    __half2 h[4];
    if (format == TYPE_BF16) {
        const uint4 q = *(const uint4 *)(row + 16 * c);
        const uint32_t w[4] = { q.x, q.y, q.z, q.w };
#pragma unroll
        for (int i = 0; i < 4; i++)
            h[i] = __halves2half2(clamped_half(__uint_as_float(w[i] << 16)),
                                  clamped_half(__uint_as_float(w[i] & 0xffff0000u)));
    } else {
        const float d = __half2float(((const __half *)(block + scales))[at * (dim / 32) + c / 4]);
        if (format == TYPE_Q8_0) {
            const uint2 q = *(const uint2 *)(row + 8 * c);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint32_t w = (i < 2 ? q.x : q.y) >> (16 * (i % 2));
                h[i] = __floats2half2_rn((float)(int8_t)(w & 255) * d, (float)(int8_t)(w >> 8 & 255) * d);
            }
        } else {                /* q4_0: the high nibbles are elements 16..31 of a block */
            const uint2 q = *(const uint2 *)(row + 16 * (c / 4) + 8 * (c % 2));
            const int shift = c % 4 / 2 * 4;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint32_t w = (i < 2 ? q.x : q.y) >> (16 * (i % 2));
                h[i] = __floats2half2_rn((float)((int)(w >> shift & 15) - 8) * d,
                                         (float)((int)(w >> 8 >> shift & 15) - 8) * d);
            }
        }
    }
    return make_uint4(as_bits(h[0]), as_bits(h[1]), as_bits(h[2]), as_bits(h[3]));
}

/* Rows of a tile are 16 bytes apart beyond their columns, so that eight of them meet all banks once. */
template <int DP> __host__ __device__ constexpr int row_stride()
{
    return DP * 2 + 16;
}
template <int DP> __device__ inline int piece(int r, int c)
{
    return r * row_stride<DP>() + c * 16;
}

/* Keys or values of page t into a tile. With `full` (f16 rows of DP values, on cards with bulk copies) warp
 * 0 starts a copy a row, which complete on the barrier; else every thread copies pieces. */
template <int DP, int WARPS, bool WIDE, bool VALUES>
__device__ inline void load_tile(const attn_args &a, const step_seq &q, const shared_attn &sh, int head,
                                 int t, uint8_t *tile,
                                 uint64_t *full)
{
    const kv_place &kv = a.kv;
    const uint64_t in_page = VALUES ? kv.v_at + head * kv.v_head : kv.k_at + head * kv.k_head;
    const uint32_t format = VALUES ? kv.v_format : kv.k_format;
    const int row_bytes = VALUES ? kv.v_row : kv.k_row, scales = VALUES ? kv.v_scales : kv.k_scales;
    const int page = t < kv.max_pages ? kv.table[(int64_t)q.slot * kv.max_pages + t] : -1;
    const uint8_t *committed = page < 0 ? nullptr : kv.pages + (uint64_t)page * kv.page_bytes + in_page;
    const uint8_t *bank = kv.pages + (uint64_t)q.slot * kv.page_bytes + in_page;
    const int limit = WIDE ? q.past + q.n_rows : q.past;        /* positions that pages hold */
    auto row_of = [&](int r) -> const uint8_t * {       /* the block's start and the row in it; NULL: zeros */
                                                  const int p = t * PAGE + r;
                                                  if (p < limit) return committed ? committed
                                                      + (uint64_t)r * row_bytes : nullptr;
                                                  return !WIDE && p - limit < sh.n_bank ? bank
                                                      + (uint64_t)sh.bank[p - limit] * row_bytes : nullptr;
    };
    if (full) {
        if (threadIdx.x >= WARP) return;
        const uint8_t *from[2] = { row_of(threadIdx.x), row_of(threadIdx.x + WARP) };
        const int n = __popc(__ballot_sync(0xffffffffu, from[0] != nullptr))
            + __popc(__ballot_sync(0xffffffffu, from[1] != nullptr));
        if (threadIdx.x == 0) bar_expect(full, (uint32_t)n * DP * 2);
        __syncwarp();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint8_t *to = tile + piece<DP>(threadIdx.x + WARP * h, 0);
            if (from[h]) {
                bulk_load(to, from[h], DP * 2, full, false);
                continue;
            }
#pragma unroll 1
            for (int c = 0; c < DP / 8; c++) *(uint4 *)(to + 16 * c) = make_uint4(0, 0, 0, 0);
        }
        return;
    }
    if (format == TYPE_F16) {
#pragma unroll 2
        for (int i = threadIdx.x; i < KEYS * (DP / 8); i += WARPS * WARP) {
            const int r = i / (DP / 8), c = i % (DP / 8);
            const uint8_t *from = row_of(r);
            uint8_t *to = tile + piece<DP>(r, c);
            if (from && c * 8 < kv.dim) copy16(to, from + 16 * c);
            else *(uint4 *)to = make_uint4(0, 0, 0, 0);
        }
        return;
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < KEYS * (DP / 8); i += WARPS * WARP) {
        const int r = i / (DP / 8), c = i % (DP / 8);
        const uint8_t *from = row_of(r), *block = t * PAGE + r < limit ? committed : bank;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (from && c * 8 < kv.dim) x = decode8(format, block, scales, row_bytes, kv.dim,
                                                (int)((from - block) / row_bytes), c);
        *(uint4 *)(tile + piece<DP>(r, c)) = x;
    }
}

/* A warp's 16 rows over one page: scores, running maximum and sum, weighted values. */
template <int DP> struct warp_state {
    float o[DP / 8][4], m[2], l[2];
};

/* Weights of the page's keys, not yet divided by their sum, in s. */
template <int DP>
__device__ inline void weigh(warp_state<DP> &w, float s[8][4], const attn_args &a,
                             const uint8_t *queries, const uint8_t *keys,
                             const row_view v[2], int p0, int lane)
{
#pragma unroll
    for (int j = 0; j < 8; j++) s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
    const int mat = lane / 8, in = lane % 8;
#pragma unroll
    for (int k = 0; k < DP / 16; k++) {
        uint32_t f[4];
        load_matrices(f, queries + piece<DP>(in + 8 * (mat % 2), 2 * k + mat / 2));
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            uint32_t b[4];
            load_matrices(b, keys + piece<DP>(8 * (j + mat / 2) + in, 2 * k + mat % 2));
            mma_f16(s[j], f, b[0], b[1]);
            mma_f16(s[j + 1], f, b[2], b[3]);
        }
    }
    const float log2e = 1.4426950408889634f;
    if (a.softcap > 0) {
        const float in_cap = 2 * log2e * a.scale / a.softcap, out = a.softcap * log2e;
#pragma unroll
        for (int j = 0; j < 8; j++)         /* tanh x = 1 - 2 / (e^2x + 1) */
#pragma unroll
            for (int e = 0; e < 4; e++) s[j][e] = out * (1.0f - __fdividef(2.0f,
                exp2f(fminf(s[j][e] * in_cap, 60.0f)) + 1.0f));
    } else {
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[j][e] *= a.scale * log2e;
    }
    const bool whole = p0 >= v[0].first && p0 + PAGE - 1 <= v[0].see && p0 >= v[1].first && p0 + PAGE - 1 <= v[1].see;
    if (!__all_sync(0xffffffffu, whole)) {
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (!sees(v[e / 2], p0 + 8 * j + 2 * (lane % 4) + e % 2)) s[j][e] = -INFINITY;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {           /* rows g and g + 8 */
        float top = -INFINITY;
#pragma unroll
        for (int j = 0; j < 8; j++) top = fmaxf(top, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        const float m = fmaxf(w.m[h], top), base = m == -INFINITY ? 0.0f : m;
        const float keep = exp2f(w.m[h] - base);        /* 0 for the first page, 1 when m stays */
        w.m[h] = m;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float x = exp2f(s[j][2 * h + e] - base);
                s[j][2 * h + e] = x;
                sum += x;
            }
        w.l[h] = __fmaf_rn(w.l[h], keep, sum);
#pragma unroll
        for (int d = 0; d < DP / 8; d++) w.o[d][2 * h] *= keep, w.o[d][2 * h + 1] *= keep;
    }
}

template <int DP> __device__ inline void add_values(warp_state<DP> &w, const float s[8][4],
                                                    const uint8_t *values, int lane)
{
    const int mat = lane / 8, in = lane % 8;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t p[4];
        p[0] = as_bits(__floats2half2_rn(s[2 * k][0], s[2 * k][1]));
        p[1] = as_bits(__floats2half2_rn(s[2 * k][2], s[2 * k][3]));
        p[2] = as_bits(__floats2half2_rn(s[2 * k + 1][0], s[2 * k + 1][1]));
        p[3] = as_bits(__floats2half2_rn(s[2 * k + 1][2], s[2 * k + 1][3]));
#pragma unroll
        for (int d = 0; d < DP / 8; d += 2) {
            uint32_t b[4];
            load_matrices_turned(b, values + piece<DP>(16 * k + in + 8 * (mat % 2), d + mat / 2));
            mma_f16(w.o[d], p, b[0], b[1]);
            mma_f16(w.o[d + 1], p, b[2], b[3]);
        }
    }
}

/* A warp's rows, results of a whole item or parts of a split, through 16 rows of shared memory. */
template <int DP, bool WIDE>
__device__ inline void put_rows(const warp_state<DP> &w, const attn_args &a, const step_seq &q, const item &it,
                                const row_view *views, float *room, int lane)
{
    float l[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        l[h] = w.l[h];
        l[h] += __shfl_xor_sync(0xffffffffu, l[h], 1);
        l[h] += __shfl_xor_sync(0xffffffffu, l[h], 2);
#pragma unroll
        for (int d = 0; d < DP / 8; d++)
            *(float2 *)(room + (lane / 4 + 8 * h) * DP + 8 * d + 2 * (lane % 4)) =
                make_float2(w.o[d][2 * h], w.o[d][2 * h + 1]);
    }
    __syncwarp();
    const bool result = WIDE || count_splits(a, q) - first_split(a, q) == 1;
#pragma unroll 1
    for (int r = 0; r < 16; r++) {
        const row_view &v = views[r];
        const float sum = __shfl_sync(0xffffffffu, r < 8 ? l[0] : l[1], r % 8 * 4);
        const float top = __shfl_sync(0xffffffffu, r < 8 ? w.m[0] : w.m[1], r % 8 * 4);
        if (v.row < 0) continue;
        const uint64_t at = (uint64_t)v.row * a.heads + v.head;
        const uint64_t part = at * a.max_splits + it.split - first_split(a, q);
        const float inv = sum > 0 ? 1.0f / sum : 0.0f;
        if (!result && lane == 0) *(float2 *)(a.stats + 2 * part) = make_float2(top, sum);
        for (int c = 2 * lane; c < DP; c += 2 * WARP) {
            float2 y = *(const float2 *)(room + r * DP + c);
            if (!result) {
                *(float2 *)(a.parts + part * DP + c) = y;
                continue;
            }
            if (c >= a.kv.dim) continue;
            y.x *= inv, y.y *= inv;
            if (a.y) *(float2 *)(a.y + at * a.kv.dim + c) = y;
            if (a.form.at) form_put2(a.form, v.row, v.head * a.kv.dim + c, y.x, y.y);
        }
    }
}

/* Long: one item from rows to result, in the order in which it happens. */
template <int DP, int WARPS, bool WIDE>
__global__ void __launch_bounds__(WARPS * WARP, WARPS == 1 ? 6 : DP == 256 ? 1 : 3) attn_kernel(attn_args a)
{
    DYNAMIC_SHARED(uint8_t, tiles);
    __shared__ shared_attn sh;
    __shared__ uint64_t arrived[2];         /* keys, values */
    uint8_t *queries = tiles, *keys = queries + 16 * WARPS * row_stride<DP>(), *values =
        keys + KEYS * row_stride<DP>();
    /* On the H200 a copy a row beats pieces for one warp (73 against 86 us at 32k), and loses to four warps. */
    const bool bulk = HAS_BULK_COPY && WARPS == 1 && a.kv.k_format == TYPE_F16
        && a.kv.v_format == TYPE_F16 && a.kv.dim == DP;
    uint64_t *const keys_full = bulk ? &arrived[0] : nullptr, *const values_full = bulk ? &arrived[1] : nullptr;
    uint32_t parity = 0;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, group = a.heads / a.kv.kv_heads;
    const step *s = a.step;
    bool waited = false;
    launch_dependents();
    const int n_seqs = s->head.n_seqs;
    for (int i = threadIdx.x; i < n_seqs; i += WARPS * WARP)
        sh.n_items[i + 1] = count_items<WARPS, WIDE>(a, s->seq[i], a.tree[i] && !a.block, group);
    __syncthreads();
    if (threadIdx.x == 0) {
        bar_init(&arrived[0], 1), bar_init(&arrived[1], 1);
        bar_fence();
        sh.n_items[0] = 0;
        for (int i = 0; i < n_seqs; i++) sh.n_items[i + 1] += sh.n_items[i];
    }
    __syncthreads();
    for (int i = blockIdx.x; i < sh.n_items[n_seqs]; i += gridDim.x) {
        const item it = find_item<WARPS, WIDE>(a, s, sh, i, group);
        const step_seq &q = s->seq[it.seq];
        view_rows<WARPS, WIDE>(a, s, it, sh, group);
        if (!waited) wait_predecessor();    /* the step was there before */
        waited = true;
#pragma unroll 2
        for (int j = threadIdx.x; j < (it.n_rows + 15) / 16 * 16 * (DP / 2); j += WARPS * WARP) {
            const int r = j / (DP / 2), col = j % (DP / 2) * 2;
            const row_view &v = sh.view[r];
            float2 x = make_float2(0, 0);
            if (v.row >= 0 && col < a.kv.dim)
                x = *(const float2 *)(a.q + ((uint64_t)v.row * a.heads + v.head) * a.kv.dim + col);
            *(__half2 *)(queries + piece<DP>(r, col / 8) + col % 8 * 2) =
                __halves2half2(clamped_half(x.x), clamped_half(x.y));
        }
        int t0 = sh.low, t1 = sh.high + 1;
        if (!WIDE) {
            const int s0 = it.split * a.split / PAGE, s1 = (it.split + 1) * a.split / PAGE;
            t0 = t0 > s0 ? t0 : s0;
            t1 = t1 < s1 ? t1 : s1;
        }
        const row_view v[2] = { sh.view[16 * warp + lane / 4], sh.view[16 * warp + lane / 4 + 8] };
        warp_state<DP> w;
        w.m[0] = w.m[1] = -INFINITY;
        w.l[0] = w.l[1] = 0;
#pragma unroll
        for (int d = 0; d < DP / 8; d++) w.o[d][0] = w.o[d][1] = w.o[d][2] = w.o[d][3] = 0;
        const bool busy = 16 * warp < it.n_rows;
        float weights[8][4];
        /* Page t + 1 is on its way while page t is worked on; the loop begins before the first. */
        for (int t = t0 - 1; t < t1; t++) {
            const bool more = t + 1 < t1;
            shared_fence();
            __syncthreads();                /* scores of page t are done with the keys */
            if (more) load_tile<DP, WARPS, WIDE, false>(a, q, sh, it.head, t + 1, keys, keys_full);
            copy_commit();
            if (t >= t0) {                  /* the values of page t */
                if (bulk) bar_wait(&arrived[1], parity ^ 1);
                copy_wait<1>();
                __syncthreads();
                if (busy) add_values<DP>(w, weights, values, lane);
                shared_fence();
                __syncthreads();
            }
            if (more) load_tile<DP, WARPS, WIDE, true>(a, q, sh, it.head, t + 1, values, values_full);
            copy_commit();
            if (!more) break;
            if (bulk) bar_wait(&arrived[0], parity);        /* the keys of page t + 1 */
            copy_wait<1>();
            __syncthreads();
            if (busy) weigh<DP>(w, weights, a, queries + 16 * warp * row_stride<DP>(), keys, v, (t + 1) * PAGE, lane);
            parity ^= 1;
        }
        copy_wait<0>();
        __syncthreads();                    /* the tiles make room for the results */
        if (busy)
            put_rows<DP, WIDE>(w, a, q, it, sh.view + 16 * warp, (float *)keys + 16 * warp * DP, lane);
        __syncthreads();
    }
    if (!waited) wait_predecessor();
}

/* Adds the parts of one (row, head): maximum over all, then splits 0, 4, 8, ...; 1, 5, ...; ... by a group
 * of threads each, and the groups in order. A thread a column. */
enum { COMBINE = 4 };
template <int DP> __global__ void __launch_bounds__(DP * COMBINE) combine_kernel(attn_args a)
{
    __shared__ float sum[COMBINE][DP], weight[COMBINE];
    launch_dependents();
    const int row = blockIdx.y, head = blockIdx.x, col = threadIdx.x % DP, g = threadIdx.x / DP;
    const step *s = a.step;
    if (row >= s->head.n_rows) return wait_predecessor();
    const step_seq &q = s->seq[s->row[row].seq];
    const int n = count_splits(a, q) - first_split(a, q);
    if (n == 1) return wait_predecessor();  /* the split's block has written the result, by the same operations */
    wait_predecessor();
    const uint64_t part = ((uint64_t)row * a.heads + head) * a.max_splits;
    const float2 *stats = (const float2 *)a.stats + part;
    float m = -INFINITY;
    for (int i = threadIdx.x % WARP; i < n; i += WARP) m = fmaxf(m, stats[i].x);
    m = warp_max(m);
    if (m == -INFINITY) m = 0;
    float o = 0, l = 0;
#pragma unroll 4
    for (int i = g; i < n; i += COMBINE) {
        const float2 st = stats[i];
        const float w = exp2f(st.x - m);
        l = __fmaf_rn(w, st.y, l);
        o = __fmaf_rn(w, a.parts[(part + i) * DP + col], o);
    }
    sum[g][col] = o;
    if (col == 0) weight[g] = l;
    __syncthreads();
    if (g || col >= a.kv.dim) return;
    for (int i = 1; i < COMBINE; i++) o += sum[i][col], l += weight[i];
    const float y = o * (l > 0 ? 1.0f / l : 0.0f);
    if (a.y) a.y[((uint64_t)row * a.heads + head) * a.kv.dim + col] = y;
    if (a.form.at) *(__half *)form_at(a.form, row, head * a.kv.dim + col) = clamped_half(y * a.form.scale);
}

template <int DP, int WARPS, bool WIDE> static void launch_one(launch *l, const attn_args *a, int n_units)
{
    const int shared = (16 * WARPS + 2 * KEYS) * row_stride<DP>(), most = 216 * 1024 / (shared + 2048);
    const int blocks = WARPS == 1 ? (most < 6 ? most : 6) : DP == 256 ? 2 : 3;
    allow_shared(attn_kernel<DP, WARPS, WIDE>, shared);
    fill_launch(l, attn_kernel<DP, WARPS, WIDE>, dim3(n_units * blocks), WARPS * WARP, shared, *a);
}
template <int DP> static int launch_dim(launch *l, const attn_args *a, int rows, bool wide, int n_units)
{
    if (wide) {
        launch_one<DP, 4, true>(l, a, n_units);
        return 1;
    }
    if (rows * (a->heads / a->kv.kv_heads) <= 16) launch_one<DP, 1, false>(l, a, n_units);
    else launch_one<DP, 4, false>(l, a, n_units);
    fill_launch(l + 1, combine_kernel<DP>, dim3(a->heads, rows), DP * COMBINE, 0, *a);
    return 2;
}
int launch_attn(launch *l, const attn_args *a, int rows, bool wide, int n_units)
{
    if (wide && attn_wide_can(a)) {
        launch_attn_wide(l, a, n_units);
        return 1;
    }
    if (a->kv.dim <= 64) return launch_dim<64>(l, a, rows, wide, n_units);
    if (a->kv.dim <= 128) return launch_dim<128>(l, a, rows, wide, n_units);
    return launch_dim<256>(l, a, rows, wide, n_units);
}
