/* device/gpu/attn.cu - ATTN of wide steps, and which heads there are kernels for.
 *
 * Query rows of one kv head (tokens x heads of its group) are packed, 16 to a warp, up to four warps to a block; an
 * item is (sequence, kv head, 64 rows) with all its pages. The keys and values of one page (64 positions) lie in shared
 * memory as f16, whatever their format. The values arrive while scores are computed, the next keys while values
 * are added.
 * A row's scores and sums are its own: rows of a block do not meet, and pages that a row does not see change
 * nothing (their weights are exactly 0). So a row's bits depend on its keys alone.
 * The limit is the matrix units. Scores are f16 x f16 in f32, weights f16, sums f32. Narrow steps: attn_narrow.cu. */
#include "device/gpu/attn.cuh"

enum { ROWS_MOST = 64 };        /* packed rows of a block: 32 where shared memory is short */
template <int ROWS> struct threads_of {
    enum { THREADS = ROWS / 16 * WARP };
};

/* What one query row of the block may see. */
struct row_view {
    int see, first;             /* first <= p <= see */
    int row, head;              /* row -1: none */
};

struct item {
    int seq, head, row0, n_rows;        /* row0: first packed row (token x group) of the sequence */
};

struct shared_attn {
    row_view view[ROWS_MOST];
    int n_items[STEP_SEQS + 1]; /* before sequence s */
    int low, high;              /* pages of the item */
};

template <int ROWS> __device__ inline int count_chunks(const step_seq &q, int group)
{
    return (q.n_rows * group + ROWS - 1) / ROWS;
}
template <int ROWS>
__device__ inline item find_item(const attn_args &a, const step *s, const shared_attn &sh, int i, int group)
{
    item it;
    it.seq = 0;
    while (sh.n_items[it.seq + 1] <= i) it.seq++;
    i -= sh.n_items[it.seq];
    const step_seq &q = s->seq[it.seq];
    const int chunks = count_chunks<ROWS>(q, group);
    it.head = i / chunks;
    it.row0 = (chunks - 1 - i % chunks) * ROWS;         /* the longest first */
    it.n_rows = q.n_rows * group - it.row0 < ROWS ? q.n_rows * group - it.row0 : ROWS;
    return it;
}

/* Fills the views of the block's rows and the range of pages. All threads; ends in a barrier. */
template <int ROWS>
__device__ inline void view_rows(const attn_args &a, const step *s, const item &it, shared_attn &sh, int group)
{
    const step_seq &q = s->seq[it.seq];
    const int thread = threadIdx.x;
    if (thread == 0) sh.low = INT32_MAX, sh.high = -1;
    __syncthreads();
    if (thread < ROWS) {
        row_view v = { -1, INT32_MAX, -1, 0 };
        if (thread < it.n_rows) {
            const int packed = it.row0 + thread, row = q.first_row + packed / group;
            const step_row &r = s->row[row];
            v.row = row;
            v.head = it.head * group + packed % group;
            v.first = a.window && r.index - a.window + 1 > 0 ? r.index - a.window + 1 : 0;
            v.see = r.see;
            if (v.see >= v.first) {
                atomicMin(&sh.low, v.first / PAGE);
                atomicMax(&sh.high, v.see / PAGE);
            }
        }
        sh.view[thread] = v;
    }
    __syncthreads();
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

/* Keys or values of page t into a tile: every thread copies pieces. */
template <int DP, int ROWS>
__device__ inline void load_tile(const attn_args &a, const step_seq &q, const kv_part &part, int t, uint8_t *tile)
{
    enum { THREADS = threads_of<ROWS>::THREADS };
    const kv_place &kv = a.kv;
    const int page = t < kv.max_pages ? kv.table[(int64_t)q.slot * kv.max_pages + t] : -1;
    const uint8_t *block = page < 0 ? nullptr : kv.pages + (uint64_t)page * kv.page_bytes + part.at;
    const int limit = block ? q.past + q.n_rows - t * PAGE : 0;         /* rows that the page holds */
    if (part.format == TYPE_F16) {
#pragma unroll 2
        for (int i = threadIdx.x; i < KEYS * (DP / 8); i += THREADS) {
            const int r = i / (DP / 8), c = i % (DP / 8);
            uint8_t *to = tile + piece<DP>(r, c);
            if (r < limit && c * 8 < kv.dim) copy16(to, block + (uint64_t)r * part.row_bytes + 16 * c);
            else *(uint4 *)to = make_uint4(0, 0, 0, 0);
        }
        return;
    }
#pragma unroll 1
    for (int i0 = threadIdx.x; i0 < KEYS * (DP / 8); i0 += LOADS * THREADS) {
        stored8 x[LOADS];
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            const int i = i0 + j * THREADS, r = i / (DP / 8), c = i % (DP / 8);
            x[j] = r < limit && c * 8 < kv.dim ? load8(part, block, kv.dim, r, c) : stored8{};
        }
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            const int i = i0 + j * THREADS;
            if (i < KEYS * (DP / 8))
                *(uint4 *)(tile + piece<DP>(i / (DP / 8), i % (DP / 8))) = decode8(part.format, x[j], i % (DP / 8));
        }
    }
}

/* A warp's 16 rows over one page: scores, running maximum and sum, weighted values. */
template <int DP> struct warp_state {
    float o[DP / 8][4], m[2], l[2];
};

/* Weights of the page's keys, not yet divided by their sum, in s. Long: one page's scores, mask and sums. */
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
    const float scale = cap_scores<8>(a, s);
    const bool whole = p0 >= v[0].first && p0 + PAGE - 1 <= v[0].see && p0 >= v[1].first && p0 + PAGE - 1 <= v[1].see;
    if (!__all_sync(0xffffffffu, whole)) {
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                {
                    const int p = p0 + 8 * j + 2 * (lane % 4) + e % 2;
                    if (p < v[e / 2].first || p > v[e / 2].see) s[j][e] = -INFINITY;
                }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {           /* rows g and g + 8 */
        float top = -INFINITY;
#pragma unroll
        for (int j = 0; j < 8; j++) top = fmaxf(top, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
        top = lanes_max(top);
        const float m = fmaxf(w.m[h], top * scale), base = m == -INFINITY ? 0.0f : m;
        const float keep = exp2_fast(w.m[h] - base);    /* 0 for the first page, 1 when m stays */
        w.m[h] = m;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float x = exp2_fast(__fmaf_rn(s[j][2 * h + e], scale, -base));
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

/* A warp's rows through 16 rows of shared memory. */
template <int DP>
__device__ inline void put_rows(const warp_state<DP> &w, const attn_args &a, const row_view *views, float *room,
                                int lane)
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
#pragma unroll 1
    for (int r = 0; r < 16; r++) {
        const row_view &v = views[r];
        const float sum = __shfl_sync(0xffffffffu, r < 8 ? l[0] : l[1], r % 8 * 4), inv = sum > 0 ? 1.0f / sum : 0.0f;
        if (v.row < 0) continue;
        for (int c = 2 * lane; c < a.kv.dim; c += 2 * WARP) {
            float2 y = *(const float2 *)(room + r * DP + c);
            y.x *= inv, y.y *= inv;
            if (a.y) *(float2 *)(a.y + ((uint64_t)v.row * a.heads + v.head) * a.kv.dim + c) = y;
            if (a.form.at) form_put2(a.form, v.row, v.head * a.kv.dim + c, y.x, y.y);
        }
    }
}

/* Long: one item from rows to result, in the order in which it happens. */
template <int DP, int ROWS>
__global__ void __launch_bounds__(threads_of<ROWS>::THREADS, DP == 256 ? 1 : 3) wide_attn_kernel(attn_args a)
{
    enum { THREADS = threads_of<ROWS>::THREADS };
    DYNAMIC_SHARED(uint8_t, tiles);
    __shared__ shared_attn sh;
    uint8_t *queries = tiles, *keys = queries + ROWS * row_stride<DP>(), *values = keys + KEYS * row_stride<DP>();
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, group = a.heads / a.kv.kv_heads;
    const step *s = a.step;
    bool waited = false;
    launch_dependents();
    const int n_seqs = s->head.n_seqs;
    for (int i = threadIdx.x; i < n_seqs; i += THREADS)
        sh.n_items[i + 1] = a.kv.kv_heads * count_chunks<ROWS>(s->seq[i], group);
    __syncthreads();
    if (threadIdx.x == 0) {
        sh.n_items[0] = 0;
        for (int i = 0; i < n_seqs; i++) sh.n_items[i + 1] += sh.n_items[i];
    }
    __syncthreads();
    for (int i = blockIdx.x; i < sh.n_items[n_seqs]; i += gridDim.x) {
        const item it = find_item<ROWS>(a, s, sh, i, group);
        const step_seq &q = s->seq[it.seq];
        const kv_part key = part_of(a.kv, it.head, false), value = part_of(a.kv, it.head, true);
        view_rows<ROWS>(a, s, it, sh, group);
        if (!waited) wait_predecessor();    /* the step was there before */
        waited = true;
#pragma unroll 2
        for (int j = threadIdx.x; j < (it.n_rows + 15) / 16 * 16 * (DP / 2); j += THREADS) {
            const int r = j / (DP / 2), col = j % (DP / 2) * 2;
            const row_view &v = sh.view[r];
            float2 x = make_float2(0, 0);
            if (v.row >= 0 && col < a.kv.dim)
                x = *(const float2 *)(a.q + ((uint64_t)v.row * a.heads + v.head) * a.kv.dim + col);
            *(__half2 *)(queries + piece<DP>(r, col / 8) + col % 8 * 2) =
                __halves2half2(clamped_half(x.x), clamped_half(x.y));
        }
        const int t0 = sh.low, t1 = sh.high + 1;
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
            __syncthreads();                /* scores of page t are done with the keys */
            if (more) load_tile<DP, ROWS>(a, q, key, t + 1, keys);
            copy_commit();
            if (t >= t0) {                  /* the values of page t */
                copy_wait<1>();
                __syncthreads();
                if (busy) add_values<DP>(w, weights, values, lane);
                __syncthreads();
            }
            if (more) load_tile<DP, ROWS>(a, q, value, t + 1, values);
            copy_commit();
            if (!more) break;
            copy_wait<1>();                 /* the keys of page t + 1 */
            __syncthreads();
            if (busy) weigh<DP>(w, weights, a, queries + 16 * warp * row_stride<DP>(), keys, v, (t + 1) * PAGE, lane);
        }
        copy_wait<0>();
        __syncthreads();                    /* the tiles make room for the results */
        if (busy) put_rows<DP>(w, a, sh.view + 16 * warp, (float *)keys + 16 * warp * DP, lane);
        __syncthreads();
    }
    if (!waited) wait_predecessor();
}

template <int DP, int ROWS> constexpr int wide_room()
{
    return (ROWS + 2 * KEYS) * row_stride<DP>();
}
template <int DP, int ROWS> static bool wide_fits()
{
    return wide_room<DP, ROWS>() + (int)sizeof(shared_attn) <= card_shared();
}
template <int DP, int ROWS> static int launch_rows(launch *l, const attn_args *a, int n_units)
{
    void (*kernel)(attn_args) = wide_attn_kernel<DP, ROWS>;
    allow_shared(kernel, wide_room<DP, ROWS>());
    fill_launch(l, kernel, dim3(n_units * (DP == 256 ? 2 : 3)), threads_of<ROWS>::THREADS, wide_room<DP, ROWS>(), *a);
    return 1;
}
template <int DP> static int launch_dim(launch *l, const attn_args *a, int n_units)
{
    return wide_fits<DP, 64>() ? launch_rows<DP, 64>(l, a, n_units) : launch_rows<DP, 32>(l, a, n_units);
}
bool attn_can(int heads, int kv_heads, int dim)
{
    return dim <= 256 && dim % 8 == 0 && heads / kv_heads <= 64 && narrow_attn_fits(dim) &&
           (dim <= 128 || wide_fits<256, 32>());
}
int launch_attn(launch *l, const attn_args *a, int rows, bool wide, attn_depth depth, int n_units)
{
    if (!wide) return launch_narrow_attn(l, a, rows, depth, n_units);
    if (attn_wide_can(a)) {
        launch_attn_wide(l, a, n_units);
        return 1;
    }
    if (a->kv.dim <= 64) return launch_dim<64>(l, a, n_units);
    if (a->kv.dim <= 128) return launch_dim<128>(l, a, n_units);
    return launch_dim<256>(l, a, n_units);
}
