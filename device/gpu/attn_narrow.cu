/* device/gpu/attn_narrow.cu - ATTN of narrow steps: flash decoding over pages, staging banks and paths.
 *
 * Query rows of one kv head (tokens x heads of its group) are packed, 16 to a tile, one to four tiles to a block.
 * Positions are cut into splits (split_size); an item is (sequence, kv head,
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
 * With several splits parts (maximum, sum, weighted values) go to scratch, and a second kernel adds them in order;
 * steps whose rows all have one do without it (ATTN_SHALLOW).
 * Traffic: the visible keys and values once per item; the limit is memory. Many packed rows over f16 pages, at depth:
 * the same arithmetic in attn_deep.cu. */
#include "device/gpu/attn_narrow.cuh"

int attn_target(const kv_place *kv, int n_units)
{
    enum { LEAST = 8, MOST = 128 };         /* of parts to combine */
    const int blocks = (kv->dim > 128 ? 2 : 4) * n_units / kv->kv_heads;    /* that run at once, or nearly */
    return blocks < LEAST ? LEAST : blocks > MOST ? MOST : blocks;
}
int attn_splits(int positions, int window, int target)
{
    auto most = [=](int n) {
        const int by_least = (n - 1) / SPLIT_LEAST, by_most = (n - 1) / SPLIT_MOST;
        return 1 + (by_least < target ? by_least : by_most < target ? target : by_most);
    };
    return window && window < positions ? most(window) + 2 : most(positions);
}
bool attn_shallow(int positions)
{
    return positions <= SPLIT_LEAST;
}
/* Before that, the longer beginning of attn_deep.cu's only block of a multiprocessor costs more than its ring gains. */
bool attn_far(int rows, int group, int past)
{
    enum { FAR_ROWS = 32, FAR_PAST = 16384 };
    return rows * group > FAR_ROWS && past >= FAR_PAST;
}
static int room_for(int dim)
{
    return dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
}
uint64_t attn_scratch(int rows, int heads, int dim, int max_splits)
{
    return (uint64_t)rows * heads * max_splits * (room_for(dim) + 2);
}

/* A page lies in shared memory as eight regions of eight rows, 16 bytes apart. */
template <int DP> struct page_shape {
    enum {
        QUERY = DP * 2 + 16,                    /* bytes of a query row: eight meet all banks */
        REGION = 8 * DP * 2 + 16,
        TILE = 8 * REGION,                      /* keys or values of a page */
    };
};
/* Byte of 16-byte piece c of row r. */
template <int DP> __device__ inline int piece_at(int r, int c)
{
    return r / 8 * page_shape<DP>::REGION + r % 8 * (DP * 2) + c * 16;
}

template <int DP, int TILES> struct attn_shape {
    enum {
        ROWS = 16 * TILES,
        THREADS = QUARTERS * TILES * WARP,
        QUERY = page_shape<DP>::QUERY,
        TILE = page_shape<DP>::TILE,
        SLOTS = TILES == 4 ? 8 : TILES == 2 ? 4 : DP == 256 ? 2 : 3,
        AHEAD = SLOTS - 1,
        SHARED = ROWS * QUERY + SLOTS * TILE,
        FITS = 227 * 1024 / (SHARED + 1024 + ROWS * 64),     /* with what is not dynamic, roughly */
        REGISTERS = DP == 256 ? 256 / THREADS : 512 / THREADS,  /* blocks whose registers fit, roughly */
        BLOCKS = FITS < REGISTERS ? FITS : REGISTERS > 0 ? REGISTERS : 1,
    };
    static_assert((int)SLOTS * TILE >= QUARTERS * ROWS * DP * 4, "the ring makes room for the quarters' values");
};

template <int ROWS> struct shared_attn {
    row_view view[ROWS];
    float2 stat[QUARTERS][ROWS];            /* maximum, sum */
    uint64_t full[8];                       /* a slot of the ring has come */
    int page[SPLIT_MOST / PAGE];            /* of the split */
    int n_items[STEP_SEQS + 1];             /* before sequence s */
    uint8_t bank[NARROW_ROWS];              /* bank rows of the path, in order */
    int nth;                                /* part_of_rows */
    int n_bank, low, high;                  /* pages of the item */
    int all_from, all_to;                   /* positions that all its rows see */
};

/* No rows yet; a barrier before view_rows. */
template <int ROWS> __device__ inline void forget_rows(shared_attn<ROWS> &sh)
{
    sh.low = sh.all_to = INT32_MAX, sh.high = -1, sh.all_from = 0;
}

/* Fills the views of the block's rows, the pages of the split and the rows of the bank. All threads; ends in a
 * barrier. */
template <int ROWS, int THREADS>
__device__ inline void view_rows(const attn_args &a, const step *s, const step_seq &q, const item &it,
                                 shared_attn<ROWS> &sh, int group)
{
    const int thread = threadIdx.x;
    const int first = it.split * it.size / PAGE;
    if (thread < it.size / PAGE) {
        const int t = first + thread;
        sh.page[thread] = t < a.kv.max_pages ? a.kv.table[(int64_t)q.slot * a.kv.max_pages + t] : -1;
    }
    if (thread < ROWS) {
        const row_view v = view_of(a, s, it, thread, group);
        if (v.row >= 0) {
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
        const int n = put_bank(s, it, sh.bank, j, group);
        if (j == 0) sh.n_bank = n, sh.nth = part_of_rows(a, q, it);
    }
    __syncthreads();
}

/* Rows of a page: those below `in` come from its block, if there is one, those below `end` from the bank. */
struct page_ends {
    int in, end;
    __device__ explicit page_ends(const page_rows &p) : in(clamp(p.in_page)), end(clamp(p.in_page + p.n_bank)) { }
    __device__ static int clamp(int r)
    {
        return r < 0 ? 0 : r < PAGE ? r : PAGE;
    }
};

/* Values that are not there become zero, by THREADS threads; those of other warps are there after a barrier. (Keys that
 * are not there stay as they are: nobody sees them.) */
template <int DP, int THREADS> __device__ inline void clear_missing(const page_rows &p, uint8_t *tile, int thread)
{
    const page_ends ends(p);
    const int first = p.committed ? ends.end : 0;
#pragma unroll 1
    for (int i = first * (DP / 8) + thread; i < KEYS * (DP / 8); i += THREADS) {
        const int r = i / (DP / 8);
        if (r < ends.in || r >= ends.end) *(uint4 *)(tile + piece_at<DP>(r, i % (DP / 8))) = make_uint4(0, 0, 0, 0);
    }
    shared_fence();                         /* a later bulk copy comes after these zeros */
}

/* A page of f16 rows of DP values with bulk copies, by a warp. They complete on `full`, as the first lane's arrival.
 * Copies of a warp start one after the other, so each takes what it can of a region: its rows in the page, or those in
 * the bank, unless a path picks these one by one. */
template <int DP>
__device__ inline void bulk_page(const page_rows &p, uint8_t *tile, bool picked, uint64_t *full, int lane)
{
    enum { ROW = DP * 2 };
    const page_ends ends(p);
    const int in = p.committed ? ends.in : 0, from_bank = picked ? 0 : ends.end - ends.in;
    if (lane == 0) bar_expect(full, (uint32_t)(in + ends.end - ends.in) * ROW);
    __syncwarp();
    if (lane < 2 * (KEYS / 8)) {
        const bool bank = lane >= KEYS / 8;
        const int least = bank ? ends.in : 0, most = bank ? ends.in + from_bank : in, at = lane % (KEYS / 8) * 8;
        const int r = at > least ? at : least, end = at + 8 < most ? at + 8 : most;
        if (r < end)
            bulk_load(tile + piece_at<DP>(r, 0), bank ? p.bank + (r - p.in_page) * ROW : p.committed + r * ROW,
                      (uint32_t)(end - r) * ROW, full, false);
    }
    if (!picked) return;
#pragma unroll 1
    for (int r = ends.in + lane; r < ends.end; r += WARP)
        bulk_load(tile + piece_at<DP>(r, 0), p.bank + p.row(r) * ROW, ROW, full, false);
}

/* Keys or values of page t into a slot. PLAIN (f16 rows of DP values), with bulk copies beside clear_missing; else
 * every thread copies pieces, and what is not there becomes zero. What is not bulk is there after a barrier. */
template <int DP, int ROWS, int THREADS, bool PLAIN>
__device__ inline void load_tile(const attn_args &a, const step_seq &q, const shared_attn<ROWS> &sh, const item &it,
                                 int t, int page, uint8_t *tile, bool values, uint64_t *full)
{
    const kv_part part = part_of(a.kv, it.head, values);
    const page_rows p = rows_of(a, q, part, t, page, sh.bank, sh.n_bank);
    const int thread = threadIdx.x;
    if constexpr (PLAIN && HAS_BULK_COPY) {
        if (thread < WARP) bulk_page<DP>(p, tile, it.single, full, thread);
    } else if (PLAIN || part.format == TYPE_F16) {
#pragma unroll 2
        for (int i = thread; i < KEYS * (DP / 8); i += THREADS) {
            const int r = i / (DP / 8), c = i % (DP / 8), row = p.row(r);
            uint8_t *to = tile + piece_at<DP>(r, c);
            if (row >= 0 && c * 8 < a.kv.dim) copy16(to, p.block(r) + (uint64_t)row * part.row_bytes + 16 * c);
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
                if (r < KEYS && p.row(r) >= 0 && c * 8 < a.kv.dim)
                    x[j] = load8(part, p.block(r), a.kv.dim, p.row(r), c);
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
    row_sums sums;
    float o[DP / 8][4];
};
template <int DP> __device__ inline void clear(warp_state<DP> &w)
{
    clear(w.sums);
#pragma unroll
    for (int d = 0; d < DP / 8; d++) w.o[d][0] = w.o[d][1] = w.o[d][2] = w.o[d][3] = 0;
}

/* Where lanes find the pieces of matrices: of 16 query rows, of the quarter's keys, of its values. */
template <int DP> __device__ inline const uint8_t *query_piece(const uint8_t *queries, int lane)
{
    return queries + lane % 16 * page_shape<DP>::QUERY + lane / 16 * 16;
}
template <int DP> __device__ inline const uint8_t *key_piece(const uint8_t *keys, int quarter, int lane)
{
    return keys + piece_at<DP>(8 * (lane % 8) + 2 * quarter + lane / 16, lane / 8 % 2);
}
template <int DP> __device__ inline const uint8_t *value_piece(const uint8_t *values, int quarter, int lane)
{
    return values + piece_at<DP>(8 * (lane % 8) + 2 * quarter + lane / 8 % 2, lane / 16);
}

/* Products of the tile's rows with the quarter's keys, of which there are DP / 16 steps. */
template <int DP> __device__ inline void multiply(float s[2][4], const uint8_t *queries, const uint8_t *keys)
{
#pragma unroll
    for (int j = 0; j < 2; j++) s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
#pragma unroll
    for (int k = 0; k < DP / 16; k++) {
        uint32_t f[4], b[4];
        load_matrices(f, queries + 32 * k);
        load_matrices(b, keys + 32 * k);
        mma_f16(s[0], f, b[0], b[1]);
        mma_f16(s[1], f, b[2], b[3]);
    }
}

template <int DP> __device__ inline void rescale(warp_state<DP> &w, const float keep[2])
{
#pragma unroll
    for (int d = 0; d < DP / 8; d++) {
        w.o[d][0] = __fmul_rn(w.o[d][0], keep[0]), w.o[d][1] = __fmul_rn(w.o[d][1], keep[0]);
        w.o[d][2] = __fmul_rn(w.o[d][2], keep[1]), w.o[d][3] = __fmul_rn(w.o[d][3], keep[1]);
    }
}

template <int DP> __device__ inline void add_values(warp_state<DP> &w, const float s[2][4], const uint8_t *values)
{
    uint32_t p[4];
    round_weights(p, s);
#pragma unroll
    for (int d = 0; d < DP / 8; d += 2) {
        uint32_t b[4];
        load_matrices_turned(b, values + 16 * d);
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
        const float l = lanes_sum(w.sums.l[h]);
        if (r >= n_rows) continue;
        if (lane % 4 == 0) sh.stat[quarter][r] = make_float2(w.sums.m[h], l);
#pragma unroll
        for (int d = 0; d < DP / 8; d++)
            *(float2 *)(room + room_at<DP, ROWS>(quarter, r, 8 * d + 2 * (lane % 4))) =
                make_float2(w.o[d][2 * h], w.o[d][2 * h + 1]);
    }
}

/* Joins the quarters of each row: results, or the parts of a split. */
template <int DP, int ROWS, int THREADS>
__device__ inline void put_rows(const attn_args &a, const item &it, const shared_attn<ROWS> &sh, const float *room)
{
    const int nth = sh.nth;
#pragma unroll 1
    for (int i = threadIdx.x; i < it.n_rows * (DP / 4); i += THREADS) {
        const int r = i / (DP / 4), c = i % (DP / 4) * 4;
        float2 st[QUARTERS];
#pragma unroll
        for (int k = 0; k < QUARTERS; k++) st[k] = sh.stat[k][r];
        const joined all = join(st);
        float4 y = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int k = 0; k < QUARTERS; k++) {
            const float4 o = *(const float4 *)(room + room_at<DP, ROWS>(k, r, c));
            y.x = __fmaf_rn(all.f[k], o.x, y.x), y.y = __fmaf_rn(all.f[k], o.y, y.y);
            y.z = __fmaf_rn(all.f[k], o.z, y.z), y.w = __fmaf_rn(all.f[k], o.w, y.w);
        }
        const row_view &v = sh.view[r];
        if (v.row < 0) continue;
        const uint64_t at = (uint64_t)v.row * a.heads + v.head, part = at * a.max_splits + nth;
        if (nth >= 0) {
            if (c == 0) *(float2 *)(a.stats + 2 * part) = make_float2(all.m, all.l);
            *(float4 *)(a.parts + part * DP + c) = y;
            continue;
        }
        if (c >= a.kv.dim) continue;
        const float inv = all.l > 0 ? 1.0f / all.l : 0.0f;
        y.x *= inv, y.y *= inv, y.z *= inv, y.w *= inv;
        if (a.y) *(float4 *)(a.y + at * a.kv.dim + c) = y;
        if (a.form.at) form_put4(a.form, v.row, v.head * a.kv.dim + c, y);
    }
}

/* The item's query rows, eight threads a row: loaded, and as f16 in shared memory. Rows that are none become zero. */
template <int DP, int ROWS, int THREADS> struct query_rows {
    enum { EACH = THREADS / ROWS, N = DP / (4 * EACH) };
    float4 x[N];
    __device__ void load(const attn_args &a, const shared_attn<ROWS> &sh)
    {
        const int c0 = threadIdx.x % EACH * 4;
        const row_view &v = sh.view[threadIdx.x / EACH];
        const float *from = a.q + ((uint64_t)(v.row < 0 ? 0 : v.row) * a.heads + v.head) * a.kv.dim;
        const int end = v.row < 0 ? 0 : a.kv.dim;
#pragma unroll
        for (int j = 0; j < N; j++) {
            const int c = c0 + j * 4 * EACH;
            x[j] = c < end ? *(const float4 *)(from + c) : make_float4(0, 0, 0, 0);
        }
    }
    __device__ void put(uint8_t *queries) const
    {
        uint8_t *to = queries + threadIdx.x / EACH * page_shape<DP>::QUERY + threadIdx.x % EACH * 8;
#pragma unroll
        for (int j = 0; j < N; j++)
            *(uint2 *)(to + j * 8 * EACH) =
                make_uint2(as_bits(__halves2half2(clamped_half(x[j].x), clamped_half(x[j].y))),
                           as_bits(__halves2half2(clamped_half(x[j].z), clamped_half(x[j].w))));
    }
};

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
    if (threadIdx.x == 0) forget_rows(sh);
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
    for (int round = 0; item_of(round) < sh.n_items[n_seqs]; round++) {
        const item it = find_item<ROWS>(a, s, sh.n_items, item_of(round), group);
        const step_seq q = s->seq[it.seq];
        view_rows<ROWS, THREADS>(a, s, q, it, sh, group);
        const int split0 = it.split * it.size / PAGE, split1 = split0 + it.size / PAGE;
        const int t0 = sh.low > split0 ? sh.low : split0, t1 = sh.high + 1 < split1 ? sh.high + 1 : split1;
        const int n = t1 > t0 ? 2 * (t1 - t0) : 0;
        /* Tile k of the item: even ones are keys, odd ones values. */
        auto slot_of = [&](int k) { return ring + (turn + k) % SLOTS * shape::TILE; };
        auto page_of = [&](int k) { return sh.page[t0 + k / 2 - split0]; };
        auto clear_tile = [&](int k) {
            if constexpr (PLAIN && HAS_BULK_COPY)
                if (k & 1)
                    clear_missing<DP, THREADS>(rows_of(a, q, part_of(a.kv, it.head, true), t0 + k / 2, page_of(k),
                                                       sh.bank, sh.n_bank), slot_of(k), threadIdx.x);
        };
        auto load = [&](int k) {
            load_tile<DP, ROWS, THREADS, PLAIN>(a, q, sh, it, t0 + k / 2, page_of(k), slot_of(k), k & 1,
                                                &sh.full[(turn + k) % SLOTS]);
        };
#pragma unroll 1
        for (int k = 1; k < AHEAD && k < n; k += 2) clear_tile(k);
        query_rows<DP, ROWS, THREADS> mine;
        bool fetched = false;
#pragma unroll 1
        for (int k = 0; k <= AHEAD; k++) {
            /* Pages that the step before did not touch are there already. The queries come beside the others. */
            if (!fetched && (waited || k == AHEAD || k >= n || (t0 + k / 2 + 1) * PAGE > q.past - q.n_commit)) {
                if (!waited) wait_predecessor();
                mine.load(a, sh);
                if (!PLAIN) mine.put(queries);              /* decoding needs the registers */
                waited = fetched = true;
            }
            if (k == AHEAD) break;
            if (k < n) load(k);
            copy_commit();
        }
        if (PLAIN) mine.put(queries);
        warp_state<DP> w;
        clear(w);
        float weights[2][4];
#pragma unroll 1
        for (int k = 0; k < n; k++) {
            copy_wait<AHEAD - 1>();
            __syncthreads();                /* tile k - 1 is done; tile k is there, unless by bulk copies */
            if (k + AHEAD < n) clear_tile(k + AHEAD), load(k + AHEAD);
            copy_commit();
            const uint32_t at = turn + k;
            const uint8_t *slot = ring + at % SLOTS * shape::TILE;
            if (PLAIN && HAS_BULK_COPY) bar_wait(&sh.full[at % SLOTS], at / SLOTS & 1);
            if (16 * tile >= it.n_rows) continue;
            if (k & 1) {
                add_values<DP>(w, weights, value_piece<DP>(slot, quarter, lane));
                continue;
            }
            const int p0 = (t0 + k / 2) * PAGE;
            const bool all = p0 >= sh.all_from && p0 + PAGE - 1 <= sh.all_to;
            multiply<DP>(weights, query_piece<DP>(queries + 16 * tile * shape::QUERY, lane),
                         key_piece<DP>(slot, quarter, lane));
            float keep[2];
            weigh(w.sums, weights, a, all ? nullptr : sh.view + 16 * tile, p0, quarter, lane, keep);
            if (!__all_sync(0xffffffffu, keep[0] == 1.0f && keep[1] == 1.0f)) rescale(w, keep);
        }
        turn += n;
        __syncthreads();                    /* the ring makes room for the sums */
        if (threadIdx.x == 0) forget_rows(sh);
        if (16 * tile < it.n_rows) leave<DP, ROWS>(w, sh, (float *)ring, it.n_rows, tile, quarter, lane);
        __syncthreads();
        put_rows<DP, ROWS, THREADS>(a, it, sh, (const float *)ring);
        shared_fence();                     /* bulk copies of the next item come after */
        __syncthreads();
    }
    if (!waited) wait_idle(a.leave);
}

/* Adds the parts of one (row, head): maximum over all, then splits 0, 4, 8, ...; 1, 5, ...; ... by a group of threads
 * each, and the groups in order. Splits count from the text's beginning, not the window's: where a step's first row
 * still sees one more, a row's own are added in the same order. A thread a column. */
enum { COMBINE = 4 };
template <int DP> __global__ void __launch_bounds__(DP * COMBINE) combine_kernel(attn_args a)
{
    __shared__ float sum[COMBINE][DP], weight[COMBINE];
    launch_dependents();
    const int row = blockIdx.y, head = blockIdx.x, col = threadIdx.x % DP, g = threadIdx.x / DP;
    const step *s = a.step;
    if (row >= s->head.n_rows) return wait_idle(true);
    const step_seq &q = s->seq[s->row[row].seq];
    const seq_splits splits(a, q, false, size_at(a, s->row[row].index));
    const int s0 = splits.first, n = splits.end - s0;
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
    for (int i = (g + COMBINE - s0 % COMBINE) % COMBINE; i < n; i += COMBINE) {
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

template <int DP, int TILES> static void launch_one(launch *l, const attn_args *a, int most, int n_units)
{
    typedef attn_shape<DP, TILES> shape;
    const int blocks = n_units * shape::BLOCKS < most ? n_units * shape::BLOCKS : most;
    const bool plain = a->kv.k_format == TYPE_F16 && a->kv.v_format == TYPE_F16 && a->kv.dim == DP;
    void (*kernel)(attn_args) = plain ? narrow_attn_kernel<DP, TILES, true> : narrow_attn_kernel<DP, TILES, false>;
    allow_shared(kernel, shape::SHARED);
    fill_launch(l, kernel, dim3(blocks), shape::THREADS, shape::SHARED, *a);
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
/* Packed rows go to as few blocks as have registers for their sums, so that keys are read seldom; those of shallow
 * steps, which have few keys, to as many as run at once. */
template <int DP> static int launch_dim(launch *l, attn_args a, int rows, attn_depth depth, int n_units)
{
    enum { MOST = DP == 256 ? 2 : 4 };      /* tiles whose sums fit in the registers of a block */
    const bool shallow = depth == ATTN_SHALLOW;
    const int group = a.heads / a.kv.kv_heads, packed = rows * group;
    int tiles = (packed - 1) / 16 + 1, most = INT32_MAX;    /* of a block; blocks */
    if (shallow) tiles = (rows * a.heads - 1) / (16 * n_units) + 1;
    if (shallow && packed > 16) most = rows * a.kv.kv_heads * ((group - 1) / 16 + 1);
    a.leave = packed > 16;
    if (depth == ATTN_FAR) launch_attn_deep(l, &a, n_units);
    else if (tiles == 1 || !fits<DP, 2>()) launch_one<DP, 1>(l, &a, most, n_units);
    else if (tiles == 2 || !fits<DP, MOST>()) launch_one<DP, 2>(l, &a, most, n_units);
    else launch_one<DP, MOST>(l, &a, most, n_units);
    if (shallow) return 1;
    fill_launch(l + 1, combine_kernel<DP>, dim3(a.heads, rows), DP * COMBINE, 0, a);
    return 2;
}
int launch_narrow_attn(launch *l, const attn_args *a, int rows, attn_depth depth, int n_units)
{
    if (a->kv.dim <= 64) return launch_dim<64>(l, *a, rows, depth, n_units);
    if (a->kv.dim <= 128) return launch_dim<128>(l, *a, rows, depth, n_units);
    return launch_dim<256>(l, *a, rows, depth, n_units);
}
