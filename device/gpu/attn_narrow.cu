/* device/gpu/attn_narrow.cu - ATTN of narrow steps: flash decoding over pages, staging banks and paths.
 *
 * Query rows of one kv head (tokens x heads of its group) are packed, 16 to a tile, one to four tiles to a block.
 * Positions are cut into splits at multiples of a constant (fixed by the cache); an item is (sequence, kv head,
 * split, packed rows). In a tree each row has its own ancestors behind `past`: there an item is one token.
 * Keys and values of a page come through a ring in shared memory, pages ahead of the work and, where they are
 * committed since long, before the wait for the kernel before.
 * Mapping: warp (tile, quarter) multiplies its 16 rows with 16 keys of each page and keeps its own maximum, sum
 * and weighted values; the quarters are joined at the end, in order. A page lies as eight regions of eight rows,
 * 16 bytes apart: one copy each, and the eight rows that a matrix of the tensor units takes, one of each region,
 * meet all banks. So quarter w holds the keys p with p % 8 / 2 = w.
 * A row's scores and sums are its own: rows of a block do not meet, pages that a row does not see change nothing
 * (their weights are exactly 0), and a key stands at its position whether it comes from a page or from the bank.
 * So a row's bits depend on its keys alone. Scores are f16 x f16 in f32, weights f16, sums f32.
 * With several splits parts (maximum, sum, weighted values) go to scratch, and a second kernel adds them in order.
 * Traffic: the visible keys and values once per item; the limit is memory. */
#include "device/gpu/attn.cuh"

enum { QUARTERS = 4, SPLIT_MOST = 1024 };

int attn_split(int max_positions)
{
    return max_positions <= 16384 ? 256 : max_positions <= 65536 ? 512 : SPLIT_MOST;
}
static int room_for(int dim)
{
    return dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
}
uint64_t attn_scratch(int rows, int heads, int dim, int max_splits)
{
    return (uint64_t)rows * heads * max_splits * (room_for(dim) + 2);
}

template <int DP, int TILES> struct attn_shape {
    enum {
        ROWS = 16 * TILES,
        THREADS = QUARTERS * TILES * WARP,
        QUERY = DP * 2 + 16,                    /* bytes of a query row: eight meet all banks */
        REGION = 8 * DP * 2 + 16,
        TILE = 8 * REGION,                      /* keys or values of a page */
        SLOTS = TILES == 4 ? 8 : TILES == 2 ? 4 : DP == 256 ? 2 : 3,
        AHEAD = SLOTS - 1,
        SHARED = ROWS * QUERY + SLOTS * TILE,
        FITS = 227 * 1024 / (SHARED + 1024 + ROWS * 64),     /* with what is not dynamic, roughly */
        REGISTERS = DP == 256 ? 256 / THREADS : 512 / THREADS,  /* blocks whose registers fit, roughly */
        BLOCKS = FITS < REGISTERS ? FITS : REGISTERS > 0 ? REGISTERS : 1,
    };
    static_assert((int)SLOTS * TILE >= QUARTERS * ROWS * DP * 4, "the ring makes room for the quarters' values");
};

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
    bool single;                            /* of one token of a tree, by its own path */
};

template <int ROWS> struct shared_attn {
    row_view view[ROWS];
    float2 stat[QUARTERS][ROWS];            /* maximum, sum */
    uint64_t full[8];                       /* a slot of the ring has come */
    int page[SPLIT_MOST / PAGE];            /* of the split */
    int n_items[STEP_SEQS + 1];             /* before sequence s */
    uint8_t bank[NARROW_ROWS];              /* bank rows of the path, in order */
    int n_bank, low, high;                  /* pages of the item */
    int all_from, all_to;                   /* positions that all its rows see */
};

__device__ inline int first_split(const attn_args &a, const step_seq &q)
{
    int low = a.window ? q.past - a.window + 1 : 0;
    return low > 0 ? quotient(low, a.split) : 0;
}
__device__ inline int count_splits(const attn_args &a, const step_seq &q)
{
    return quotient(q.past + q.n_rows + a.split - 1, a.split);      /* one past the last */
}
/* Splits before it hold what all rows of the sequence see alike. */
__device__ inline int common_splits(const attn_args &a, const step_seq &q, bool tree)
{
    const int s0 = first_split(a, q), common = tree ? quotient(q.past, a.split) : count_splits(a, q);
    return common < s0 ? s0 : common;
}

template <int ROWS> __device__ inline int count_items(const attn_args &a, const step_seq &q, bool tree, int group)
{
    if (!q.n_rows) return 0;
    const int s0 = first_split(a, q), s1 = count_splits(a, q), common = common_splits(a, q, tree);
    return a.kv.kv_heads * ((common - s0) * ((q.n_rows * group + ROWS - 1) / ROWS) +
                            (s1 - common) * q.n_rows * ((group + ROWS - 1) / ROWS));
}

template <int ROWS>
__device__ inline item find_item(const attn_args &a, const step *s, const shared_attn<ROWS> &sh, int i, int group)
{
    item it;
    it.seq = 0;
    while (sh.n_items[it.seq + 1] <= i) it.seq++;
    i -= sh.n_items[it.seq];
    const step_seq &q = s->seq[it.seq];
    const int each = quotient(sh.n_items[it.seq + 1] - sh.n_items[it.seq], a.kv.kv_heads);
    it.head = quotient(i, each);
    i -= it.head * each;
    const int s0 = first_split(a, q), common = common_splits(a, q, a.tree[it.seq] && !a.block);
    int chunks = (q.n_rows * group + ROWS - 1) / ROWS, first = 0, end = q.n_rows * group;
    it.single = i >= (common - s0) * chunks;
    it.split = s0;
    if (it.single) {
        i -= (common - s0) * chunks;
        chunks = (group + ROWS - 1) / ROWS;
        it.split = common + quotient(i, chunks * q.n_rows);
        i -= (it.split - common) * chunks * q.n_rows;
        first = quotient(i, chunks) * group;
        end = first + group;
    } else it.split += quotient(i, chunks);
    it.row0 = first + (i - quotient(i, chunks) * chunks) * ROWS;
    it.n_rows = end - it.row0 < ROWS ? end - it.row0 : ROWS;
    return it;
}

/* Fills the views of the block's rows, the pages of the split and the rows of the bank. All threads; ends in a
 * barrier. */
template <int ROWS, int THREADS>
__device__ inline void view_rows(const attn_args &a, const step *s, const item &it, shared_attn<ROWS> &sh, int group)
{
    const step_seq &q = s->seq[it.seq];
    const int thread = threadIdx.x;
    if (thread == 0) sh.low = sh.all_to = INT32_MAX, sh.high = -1, sh.all_from = 0;
    if (thread < a.split / PAGE) {
        const int t = it.split * (a.split / PAGE) + thread;
        sh.page[thread] = t < a.kv.max_pages ? a.kv.table[(int64_t)q.slot * a.kv.max_pages + t] : -1;
    }
    __syncthreads();
    if (thread < ROWS) {
        row_view v = { -1, 0, -1, INT32_MAX, -1, 0 };
        if (thread < it.n_rows) {
            const int packed = it.row0 + thread, token = quotient(packed, group), row = q.first_row + token;
            const step_row &r = s->row[row];
            v.row = row;
            v.head = it.head * group + packed - token * group;
            v.first = a.window && r.index - a.window + 1 > 0 ? r.index - a.window + 1 : 0;
            v.past = q.past;
            v.see = r.see < q.past ? r.see : q.past - 1;
            v.last = q.past + (a.block ? q.n_rows : __popcll(r.path)) - 1;
            const int high = v.last > v.see ? v.last : v.see;
            if (high >= v.first) {
                atomicMin(&sh.low, v.first / PAGE);
                atomicMax(&sh.high, high / PAGE);
            }
            atomicMax(&sh.all_from, v.first);
            atomicMin(&sh.all_to, v.see);
        }
        sh.view[thread] = v;
    }
    const int j = thread - (THREADS - NARROW_ROWS);         /* other warps, where there are */
    if (j >= 0) {
        const uint64_t path = it.single ? s->row[q.first_row + quotient(it.row0, group)].path : ~(uint64_t)0;
        if (j < q.n_rows && (path >> j & 1))
            sh.bank[it.single ? __popcll(path & (((uint64_t)1 << j) - 1)) : j] = (uint8_t)j;
        if (j == 0) sh.n_bank = it.single ? __popcll(path) : q.n_rows;
    }
    __syncthreads();
}

template <int DP> __device__ inline int piece_at(int r, int c)
{
    return r / 8 * attn_shape<DP, 1>::REGION + r % 8 * (DP * 2) + c * 16;
}

/* Keys or values of page t into a slot. PLAIN (f16 rows of DP values), with bulk copies: warp 0 starts one a region,
 * or one a row where the page ends, and they complete on `full`; else every thread copies pieces. Keys that are not
 * there stay as they are, nobody sees them; values become zero. What is not bulk is there after a barrier.
 * Long: three ways to bring the same rows, side by side. */
template <int DP, int ROWS, int THREADS, bool PLAIN>
__device__ inline void load_tile(const attn_args &a, const step_seq &q, const shared_attn<ROWS> &sh, int head, int t,
                                 int page, uint8_t *tile, bool values, uint64_t *full)
{
    const kv_part part = part_of(a.kv, head, values);
    const uint8_t *const committed = page < 0 ? nullptr : a.kv.pages + (uint64_t)page * a.kv.page_bytes + part.at;
    const uint8_t *const bank = a.kv.pages + (uint64_t)q.slot * a.kv.page_bytes + part.at;
    const int in_page = q.past - t * PAGE, thread = threadIdx.x;
    /* Row of the block that holds row r, or of the bank's; -1: none. */
    auto row_of = [&](int r) {
        if (r < in_page) return committed ? r : -1;
        return r - in_page < sh.n_bank ? (int)sh.bank[r - in_page] : -1;
    };
    auto block_of = [&](int r) { return r < in_page ? committed : bank; };
    if constexpr (PLAIN && HAS_BULK_COPY) {
        enum { REGION = attn_shape<DP, 1>::REGION, EACH = THREADS / KEYS };     /* threads of a row */
        if (in_page >= PAGE && committed) {
            if (thread >= WARP) return;
            if (thread == 0) bar_expect(full, KEYS * DP * 2);
            __syncwarp();
            if (thread < 8)
                bulk_load(tile + thread * REGION, committed + thread * 8 * DP * 2, 8 * DP * 2, full, false);
            return;
        }
        if (thread < WARP) {
            const int n = __popc(__ballot_sync(0xffffffffu, row_of(thread) >= 0)) +
                __popc(__ballot_sync(0xffffffffu, row_of(thread + WARP) >= 0));
            if (thread == 0) bar_expect(full, (uint32_t)n * DP * 2);
            __syncwarp();
#pragma unroll 1
            for (int r = thread; r < KEYS; r += WARP)
                if (row_of(r) >= 0)
                    bulk_load(tile + piece_at<DP>(r, 0), block_of(r) + (uint64_t)row_of(r) * (DP * 2), DP * 2, full,
                              false);
        }
        if (values && row_of(thread / EACH) < 0)
#pragma unroll 1
            for (int c = thread % EACH; c < DP / 8; c += EACH)
                *(uint4 *)(tile + piece_at<DP>(thread / EACH, c)) = make_uint4(0, 0, 0, 0);
        shared_fence();                     /* a later bulk copy comes after these zeros */
    } else if (PLAIN || part.format == TYPE_F16) {
#pragma unroll 2
        for (int i = thread; i < KEYS * (DP / 8); i += THREADS) {
            const int r = i / (DP / 8), c = i % (DP / 8), row = row_of(r);
            uint8_t *to = tile + piece_at<DP>(r, c);
            if (row >= 0 && c * 8 < a.kv.dim) copy16(to, block_of(r) + (uint64_t)row * part.row_bytes + 16 * c);
            else *(uint4 *)to = make_uint4(0, 0, 0, 0);
        }
    } else {
#pragma unroll 1
        for (int i0 = thread; i0 < KEYS * (DP / 8); i0 += LOADS * THREADS) {
            stored8 x[LOADS];
#pragma unroll
            for (int j = 0; j < LOADS; j++) {
                const int i = i0 + j * THREADS, r = i / (DP / 8), c = i % (DP / 8);
                x[j] = stored8{ make_uint4(0, 0, 0, 0), 0 };
                if (r < KEYS && row_of(r) >= 0 && c * 8 < a.kv.dim)
                    x[j] = load8(part, block_of(r), a.kv.dim, row_of(r), c);
            }
#pragma unroll
            for (int j = 0; j < LOADS; j++) {
                const int i = i0 + j * THREADS, r = i / (DP / 8), c = i % (DP / 8);
                if (r < KEYS) *(uint4 *)(tile + piece_at<DP>(r, c)) = decode8(part.format, x[j], c);
            }
        }
    }
}

/* A warp's 16 rows and its quarter of the keys: running maximum and sum, weighted values. */
template <int DP> struct warp_state {
    float o[DP / 8][4], m[2], l[2];
};

/* Weights of the quarter's keys of a page, not yet divided by their sum, in s. Long: scores, mask and sums. */
template <int DP, int ROWS>
__device__ inline void weigh(warp_state<DP> &w, float s[2][4], const attn_args &a, const shared_attn<ROWS> &sh,
                             const uint8_t *queries, const uint8_t *keys, int p0, int tile, int quarter, int lane)
{
    enum { QUERY = attn_shape<DP, 1>::QUERY };
#pragma unroll
    for (int j = 0; j < 2; j++) s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
    const int mat = lane / 8, in = lane % 8;
    const uint8_t *row = queries + (in + 8 * (mat % 2)) * QUERY + mat / 2 * 16;
    const uint8_t *key = keys + piece_at<DP>(8 * in + 2 * quarter + mat / 2, mat % 2);
#pragma unroll
    for (int k = 0; k < DP / 16; k++) {
        uint32_t f[4], b[4];
        load_matrices(f, row + 32 * k);
        load_matrices(b, key + 32 * k);
        mma_f16(s[0], f, b[0], b[1]);
        mma_f16(s[1], f, b[2], b[3]);
    }
    scale_scores<2>(a, s);
    if (p0 < sh.all_from || p0 + PAGE - 1 > sh.all_to) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const row_view v = sh.view[16 * tile + lane / 4 + 8 * h];
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (!sees(v, p0 + 8 * (2 * (lane % 4) + e % 2) + 2 * quarter + e / 2))
                    s[e / 2][2 * h + e % 2] = -INFINITY;
        }
    }
    float keep[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {           /* rows g and g + 8 */
        float top = fmaxf(fmaxf(s[0][2 * h], s[0][2 * h + 1]), fmaxf(s[1][2 * h], s[1][2 * h + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        const float m = fmaxf(w.m[h], top), base = m == -INFINITY ? 0.0f : m;
        keep[h] = exp2f(w.m[h] - base);     /* 0 for the first keys, 1 when m stays */
        w.m[h] = m;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float x = exp2f(s[j][2 * h + e] - base);
                s[j][2 * h + e] = x;
                sum += x;
            }
        w.l[h] = __fmaf_rn(w.l[h], keep[h], sum);
    }
    if (__all_sync(0xffffffffu, keep[0] == 1.0f && keep[1] == 1.0f)) return;
#pragma unroll
    for (int d = 0; d < DP / 8; d++) {
        w.o[d][0] *= keep[0], w.o[d][1] *= keep[0];
        w.o[d][2] *= keep[1], w.o[d][3] *= keep[1];
    }
}

template <int DP>
__device__ inline void add_values(warp_state<DP> &w, const float s[2][4], const uint8_t *values, int quarter, int lane)
{
    const int mat = lane / 8, in = lane % 8;
    const uint8_t *value = values + piece_at<DP>(8 * in + 2 * quarter + mat % 2, mat / 2);
    uint32_t p[4];
    p[0] = as_bits(__floats2half2_rn(s[0][0], s[0][1]));
    p[1] = as_bits(__floats2half2_rn(s[0][2], s[0][3]));
    p[2] = as_bits(__floats2half2_rn(s[1][0], s[1][1]));
    p[3] = as_bits(__floats2half2_rn(s[1][2], s[1][3]));
#pragma unroll
    for (int d = 0; d < DP / 8; d += 2) {
        uint32_t b[4];
        load_matrices_turned(b, value + 16 * d);
        mma_f16(w.o[d], p, b[0], b[1]);
        mma_f16(w.o[d + 1], p, b[2], b[3]);
    }
}

/* Floats of row r, column c of a quarter's values: swapped by row, so that rows meet all banks. */
template <int DP, int ROWS> __device__ inline int room_at(int quarter, int r, int c)
{
    return (quarter * ROWS + r) * DP + (c ^ 8 * (r % 4));
}

/* A warp's sums to where the block joins them. */
template <int DP, int ROWS>
__device__ inline void leave(const warp_state<DP> &w, shared_attn<ROWS> &sh, float *room, int n_rows, int tile,
                             int quarter, int lane)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = 16 * tile + lane / 4 + 8 * h;
        float l = w.l[h];
        l += __shfl_xor_sync(0xffffffffu, l, 1);
        l += __shfl_xor_sync(0xffffffffu, l, 2);
        if (r >= n_rows) continue;
        if (lane % 4 == 0) sh.stat[quarter][r] = make_float2(w.m[h], l);
#pragma unroll
        for (int d = 0; d < DP / 8; d++)
            *(float2 *)(room + room_at<DP, ROWS>(quarter, r, 8 * d + 2 * (lane % 4))) =
                make_float2(w.o[d][2 * h], w.o[d][2 * h + 1]);
    }
}

/* Joins the quarters of each row: results, or the parts of a split. */
template <int DP, int ROWS, int THREADS>
__device__ inline void put_rows(const attn_args &a, const step_seq &q, const item &it, const shared_attn<ROWS> &sh,
                                const float *room)
{
    const int s0 = first_split(a, q);
    const bool result = count_splits(a, q) - s0 == 1;
#pragma unroll 1
    for (int i = threadIdx.x; i < it.n_rows * (DP / 4); i += THREADS) {
        const int r = i / (DP / 4), c = i % (DP / 4) * 4;
        float m = sh.stat[0][r].x, l = 0;
#pragma unroll
        for (int k = 1; k < QUARTERS; k++) m = fmaxf(m, sh.stat[k][r].x);
        const float base = m == -INFINITY ? 0.0f : m;
        float4 y = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int k = 0; k < QUARTERS; k++) {
            const float2 st = sh.stat[k][r];
            const float4 o = *(const float4 *)(room + room_at<DP, ROWS>(k, r, c));
            const float f = exp2f(st.x - base);
            l = __fmaf_rn(f, st.y, l);
            y.x = __fmaf_rn(f, o.x, y.x), y.y = __fmaf_rn(f, o.y, y.y);
            y.z = __fmaf_rn(f, o.z, y.z), y.w = __fmaf_rn(f, o.w, y.w);
        }
        const row_view &v = sh.view[r];
        const uint64_t at = (uint64_t)v.row * a.heads + v.head, part = at * a.max_splits + it.split - s0;
        if (!result) {
            if (c == 0) *(float2 *)(a.stats + 2 * part) = make_float2(m, l);
            *(float4 *)(a.parts + part * DP + c) = y;
            continue;
        }
        if (c >= a.kv.dim) continue;
        const float inv = l > 0 ? 1.0f / l : 0.0f;
        y.x *= inv, y.y *= inv, y.z *= inv, y.w *= inv;
        if (a.y) *(float4 *)(a.y + at * a.kv.dim + c) = y;
        if (a.form.at) form_put4(a.form, v.row, v.head * a.kv.dim + c, y);
    }
}

/* The item's query rows as f16, eight threads a row; rows that are none become zero. */
template <int DP, int ROWS, int THREADS>
__device__ inline void load_queries(const attn_args &a, const item &it, const shared_attn<ROWS> &sh, uint8_t *queries)
{
    enum { EACH = THREADS / ROWS };
    const int r = threadIdx.x / EACH, c0 = threadIdx.x % EACH * 4;
    if (r >= (it.n_rows + 15) / 16 * 16) return;
    const row_view &v = sh.view[r];
    const float *from = a.q + ((uint64_t)(v.row < 0 ? 0 : v.row) * a.heads + v.head) * a.kv.dim;
    const int end = v.row < 0 ? 0 : a.kv.dim;
    uint8_t *to = queries + r * attn_shape<DP, 1>::QUERY;
    float4 x[DP / (4 * EACH)];
#pragma unroll
    for (int j = 0; j < DP / (4 * EACH); j++) {
        const int c = c0 + j * 4 * EACH;
        x[j] = c < end ? *(const float4 *)(from + c) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int j = 0; j < DP / (4 * EACH); j++)
        *(uint2 *)(to + (c0 + j * 4 * EACH) * 2) =
            make_uint2(as_bits(__halves2half2(clamped_half(x[j].x), clamped_half(x[j].y))),
                       as_bits(__halves2half2(clamped_half(x[j].z), clamped_half(x[j].w))));
}

/* The end of a block without work. The first of the grid waits, so that this kernel ends after the one before it; of
 * steps of several rows the others leave their room to the next product, which fetches weights there meanwhile. (Beside
 * one row's short attention they would be in its way.) */
__device__ inline void wait_idle(bool leave)
{
    if (!leave || (blockIdx.x == 0 && blockIdx.y == 0)) wait_predecessor();
}

/* Long: one item from rows to result, in the order in which it happens. */
template <int DP, int TILES, bool PLAIN>
__global__ void __launch_bounds__(attn_shape<DP, TILES>::THREADS, attn_shape<DP, TILES>::BLOCKS)
    narrow_attn_kernel(attn_args a)
{
    typedef attn_shape<DP, TILES> shape;
    enum { ROWS = shape::ROWS, THREADS = shape::THREADS, SLOTS = shape::SLOTS, AHEAD = shape::AHEAD };
    DYNAMIC_SHARED(uint8_t, room);
    __shared__ shared_attn<ROWS> sh;
    uint8_t *const queries = room, *const ring = room + ROWS * shape::QUERY;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, quarter = warp % QUARTERS, tile = warp / QUARTERS;
    const int group = quotient(a.heads, a.kv.kv_heads);
    const step *s = a.step;
    launch_dependents();
    const int n_seqs = s->head.n_seqs;
    for (int i = threadIdx.x; i < n_seqs; i += THREADS)
        sh.n_items[i + 1] = count_items<ROWS>(a, s->seq[i], a.tree[i] && !a.block, group);
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 0; i < SLOTS; i++) bar_init(&sh.full[i], 1);
        bar_fence();
        sh.n_items[0] = 0;
        for (int i = 0; i < n_seqs; i++) sh.n_items[i + 1] += sh.n_items[i];
    }
    __syncthreads();
    bool waited = false;
    uint32_t turn = 0;                      /* tiles of the items before */
    for (int i = blockIdx.x; i < sh.n_items[n_seqs]; i += gridDim.x) {
        const item it = find_item<ROWS>(a, s, sh, i, group);
        const step_seq &q = s->seq[it.seq];
        view_rows<ROWS, THREADS>(a, s, it, sh, group);
        const int split0 = it.split * (a.split / PAGE), split1 = split0 + a.split / PAGE;
        const int t0 = sh.low > split0 ? sh.low : split0, t1 = sh.high + 1 < split1 ? sh.high + 1 : split1;
        const int n = t1 > t0 ? 2 * (t1 - t0) : 0;
        /* Tile k of the item: even ones are keys, odd ones values. */
        auto load = [&](int k) {
            const uint32_t slot = (turn + k) % SLOTS;
            load_tile<DP, ROWS, THREADS, PLAIN>(a, q, sh, it.head, t0 + k / 2, sh.page[t0 + k / 2 - split0],
                                                ring + slot * shape::TILE, k & 1, &sh.full[slot]);
        };
#pragma unroll 1
        for (int k = 0; k < AHEAD; k++) {
            /* Pages that the step before did not touch are there already. */
            if (!waited && k < n && (t0 + k / 2 + 1) * PAGE > q.past - q.n_commit) {
                wait_predecessor();
                waited = true;
            }
            if (k < n) load(k);
            copy_commit();
        }
        if (!waited) wait_predecessor();
        waited = true;
        load_queries<DP, ROWS, THREADS>(a, it, sh, queries);
        warp_state<DP> w;
        w.m[0] = w.m[1] = -INFINITY;
        w.l[0] = w.l[1] = 0;
#pragma unroll
        for (int d = 0; d < DP / 8; d++) w.o[d][0] = w.o[d][1] = w.o[d][2] = w.o[d][3] = 0;
        float weights[2][4];
#pragma unroll 1
        for (int k = 0; k < n; k++) {
            copy_wait<AHEAD - 1>();
            __syncthreads();                /* tile k - 1 is done; tile k is there, unless by bulk copies */
            if (k + AHEAD < n) load(k + AHEAD);
            copy_commit();
            const uint32_t at = turn + k;
            const uint8_t *slot = ring + at % SLOTS * shape::TILE;
            if (PLAIN && HAS_BULK_COPY) bar_wait(&sh.full[at % SLOTS], at / SLOTS & 1);
            if (16 * tile >= it.n_rows) continue;
            if (k & 1) add_values<DP>(w, weights, slot, quarter, lane);
            else weigh<DP, ROWS>(w, weights, a, sh, queries + 16 * tile * shape::QUERY, slot, (t0 + k / 2) * PAGE, tile,
                                 quarter, lane);
        }
        turn += n;
        __syncthreads();                    /* the ring makes room for the sums */
        if (16 * tile < it.n_rows) leave<DP, ROWS>(w, sh, (float *)ring, it.n_rows, tile, quarter, lane);
        __syncthreads();
        put_rows<DP, ROWS, THREADS>(a, q, it, sh, (const float *)ring);
        shared_fence();                     /* bulk copies of the next item come after */
        __syncthreads();
    }
    if (!waited) wait_idle(TILES > 1);
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
    if (row >= s->head.n_rows) return wait_idle(true);
    const step_seq &q = s->seq[s->row[row].seq];
    const int n = count_splits(a, q) - first_split(a, q);
    if (n == 1) return wait_idle(gridDim.y > 1);             /* the split's block has written the result */
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

template <int DP, int TILES> static void launch_one(launch *l, const attn_args *a, int n_units)
{
    typedef attn_shape<DP, TILES> shape;
    const bool plain = a->kv.k_format == TYPE_F16 && a->kv.v_format == TYPE_F16 && a->kv.dim == DP;
    void (*kernel)(attn_args) = plain ? narrow_attn_kernel<DP, TILES, true> : narrow_attn_kernel<DP, TILES, false>;
    allow_shared(kernel, shape::SHARED);
    fill_launch(l, kernel, dim3(n_units * shape::BLOCKS), shape::THREADS, shape::SHARED, *a);
}
/* Blocks of fewer rows are for cards with less shared memory. */
template <int DP, int TILES> static bool fits()
{
    typedef attn_shape<DP, TILES> shape;
    return (int)shape::SHARED + (int)sizeof(shared_attn<shape::ROWS>) <= card_shared();
}
bool narrow_attn_fits(int dim)
{
    return dim <= 64 ? fits<64, 1>() : dim <= 128 ? fits<128, 1>() : fits<256, 1>();
}
template <int DP> static int launch_dim(launch *l, const attn_args *a, int rows, int n_units)
{
    enum { MOST = DP == 256 ? 2 : 4 };      /* tiles whose sums fit in the registers of a block */
    const int packed = rows * (a->heads / a->kv.kv_heads);
    if (packed <= 16 || !fits<DP, 2>()) launch_one<DP, 1>(l, a, n_units);
    else if (packed <= 32 || !fits<DP, MOST>()) launch_one<DP, 2>(l, a, n_units);
    else launch_one<DP, MOST>(l, a, n_units);
    fill_launch(l + 1, combine_kernel<DP>, dim3(a->heads, rows), DP * COMBINE, 0, *a);
    return 2;
}
int launch_narrow_attn(launch *l, const attn_args *a, int rows, int n_units)
{
    if (a->kv.dim <= 64) return launch_dim<64>(l, a, rows, n_units);
    if (a->kv.dim <= 128) return launch_dim<128>(l, a, rows, n_units);
    return launch_dim<256>(l, a, rows, n_units);
}
