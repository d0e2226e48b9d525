/* device/gpu/attn_narrow.cuh - what the kernels of narrow attention share (attn_narrow.cu, attn_deep.cu): items, what a
 * row may see, the place of a page in shared memory, and the arithmetic, so that a row has the same bits from both. */
#ifndef LUCE_DEVICE_GPU_ATTN_NARROW_CUH
#define LUCE_DEVICE_GPU_ATTN_NARROW_CUH

#include "device/gpu/attn.cuh"

enum { QUARTERS = 4, SPLIT_MOST = 1024 };

/* The end of a block without work. The first of the grid waits, so that this kernel ends after the one before it; of
 * steps of several rows the others leave their room to the next product, which fetches weights there meanwhile. (Beside
 * one row's short attention they would be in its way.) */
__device__ inline void wait_idle(bool leave)
{
    if (!leave || (blockIdx.x == 0 && blockIdx.y == 0)) wait_predecessor();
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
    bool single;                            /* of one token of a tree, by its own path */
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

/* before: items before sequence s. */
template <int ROWS>
__device__ inline item find_item(const attn_args &a, const step *s, const int *before, int i, int group)
{
    item it;
    it.seq = 0;
    while (before[it.seq + 1] <= i) it.seq++;
    i -= before[it.seq];
    const step_seq &q = s->seq[it.seq];
    const int each = quotient(before[it.seq + 1] - before[it.seq], a.kv.kv_heads);
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

/* Row j of the item. */
__device__ inline row_view view_of(const attn_args &a, const step *s, const item &it, int j, int group)
{
    if (j >= it.n_rows) return row_view{ -1, 0, -1, INT32_MAX, -1, 0 };
    const step_seq &q = s->seq[it.seq];
    const int packed = it.row0 + j, token = quotient(packed, group);
    const step_row &r = s->row[q.first_row + token];
    row_view v;
    v.row = q.first_row + token;
    v.head = it.head * group + packed - token * group;
    v.first = a.window && r.index - a.window + 1 > 0 ? r.index - a.window + 1 : 0;
    v.past = q.past;
    v.see = r.see < q.past ? r.see : q.past - 1;
    v.last = q.past + (a.block ? q.n_rows : __popcll(r.path)) - 1;
    return v;
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

/* Bank rows of the item's path into bank[], by threads j of 0 .. NARROW_ROWS - 1 in any order. Returns how many. */
__device__ inline int put_bank(const step *s, const item &it, uint8_t *bank, int j, int group)
{
    const step_seq &q = s->seq[it.seq];
    const uint64_t path = it.single ? s->row[q.first_row + quotient(it.row0, group)].path : ~(uint64_t)0;
    if (j < q.n_rows && (path >> j & 1))
        bank[it.single ? __popcll(path & (((uint64_t)1 << j) - 1)) : j] = (uint8_t)j;
    return it.single ? __popcll(path) : q.n_rows;
}

/* Where the rows of page t come from: its block in the cache (NULL: none), then rows of the bank. */
struct page_rows {
    const uint8_t *committed, *bank;
    const uint8_t *order;       /* bank rows of the path */
    int in_page, n_bank;
    __device__ int row(int r) const     /* of the block that holds row r; -1: none */
    {
        if (r < in_page) return committed ? r : -1;
        return r - in_page < n_bank ? (int)order[r - in_page] : -1;
    }
    __device__ const uint8_t *block(int r) const
    {
        return r < in_page ? committed : bank;
    }
};
__device__ inline page_rows rows_of(const attn_args &a, const step_seq &q, const kv_part &part, int t, int page,
                                    const uint8_t *order, int n_bank)
{
    return page_rows{ page < 0 ? nullptr : a.kv.pages + (uint64_t)page * a.kv.page_bytes + part.at,
                      a.kv.pages + (uint64_t)q.slot * a.kv.page_bytes + part.at, order, q.past - t * PAGE, n_bank };
}

/* A page of f16 rows of DP values with bulk copies, by THREADS threads of which the first warp starts them: one a
 * region, or one a row where the page ends. They complete on `full`, as the first thread's arrival. Keys that are not
 * there stay as they are, nobody sees them; values become zero (those of other warps are there after a barrier). */
template <int DP, int THREADS>
__device__ inline void bulk_page(const page_rows &p, uint8_t *tile, bool values, uint64_t *full, int thread)
{
    enum { REGION = page_shape<DP>::REGION, EACH = THREADS > KEYS ? THREADS / KEYS : 1 };       /* threads of a row */
    if (p.in_page >= PAGE && p.committed) {
        if (thread >= WARP) return;
        if (thread == 0) bar_expect(full, KEYS * DP * 2);
        __syncwarp();
        if (thread < 8) bulk_load(tile + thread * REGION, p.committed + thread * 8 * DP * 2, 8 * DP * 2, full, false);
        return;
    }
    if (values)
#pragma unroll 1
        for (int r = thread / EACH; r < KEYS; r += THREADS / EACH)
            if (p.row(r) < 0)
#pragma unroll 1
                for (int c = thread % EACH; c < DP / 8; c += EACH)
                    *(uint4 *)(tile + piece_at<DP>(r, c)) = make_uint4(0, 0, 0, 0);
    shared_fence();                         /* a later bulk copy comes after these zeros */
    if (thread >= WARP) return;
    const int n = __popc(__ballot_sync(0xffffffffu, p.row(thread) >= 0)) +
        __popc(__ballot_sync(0xffffffffu, p.row(thread + WARP) >= 0));
    __syncwarp();                           /* the zeros */
    if (thread == 0) bar_expect(full, (uint32_t)n * DP * 2);
    __syncwarp();
#pragma unroll 1
    for (int r = thread; r < KEYS; r += WARP)
        if (p.row(r) >= 0)
            bulk_load(tile + piece_at<DP>(r, 0), p.block(r) + (uint64_t)p.row(r) * (DP * 2), DP * 2, full, false);
}

/* A warp's 16 rows and its quarter of the keys: running maximum and sum, weighted values. */
template <int DP> struct warp_state {
    float o[DP / 8][4], m[2], l[2];
};
template <int DP> __device__ inline void clear(warp_state<DP> &w)
{
    w.m[0] = w.m[1] = -INFINITY;
    w.l[0] = w.l[1] = 0;
#pragma unroll
    for (int d = 0; d < DP / 8; d++) w.o[d][0] = w.o[d][1] = w.o[d][2] = w.o[d][3] = 0;
}

/* Where lanes find the pieces of matrices: of 16 query rows, of the quarter's keys, of its values. Key j of a score's
 * columns g is 8 g + 2 quarter + j. */
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

/* Products of 16 rows with the quarter's keys become their weights, not yet divided by their sum. view: of the rows,
 * where some do not see all of the page that begins at p0, else NULL. Long: mask and sums. */
template <int DP>
__device__ inline void weigh(warp_state<DP> &w, float s[2][4], const attn_args &a, const row_view *view, int p0,
                             int quarter, int lane)
{
    const float scale = cap_scores<2>(a, s);
    if (view) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const row_view v = view[lane / 4 + 8 * h];
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
        top = lanes_max(top);
        const float m = fmaxf(w.m[h], __fmul_rn(top, scale)), base = m == -INFINITY ? 0.0f : m;
        keep[h] = exp2_fast(w.m[h] - base); /* 0 for the first keys, 1 when m stays */
        w.m[h] = m;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float x = exp2_fast(__fmaf_rn(s[j][2 * h + e], scale, -base));
                s[j][2 * h + e] = x;
                sum = __fadd_rn(sum, x);
            }
        w.l[h] = __fmaf_rn(w.l[h], keep[h], sum);
    }
    if (__all_sync(0xffffffffu, keep[0] == 1.0f && keep[1] == 1.0f)) return;
#pragma unroll
    for (int d = 0; d < DP / 8; d++) {
        w.o[d][0] = __fmul_rn(w.o[d][0], keep[0]), w.o[d][1] = __fmul_rn(w.o[d][1], keep[0]);
        w.o[d][2] = __fmul_rn(w.o[d][2], keep[1]), w.o[d][3] = __fmul_rn(w.o[d][3], keep[1]);
    }
}
/* The weights as the first operand of their product with the values. */
__device__ inline void round_weights(uint32_t p[4], const float s[2][4])
{
    p[0] = as_bits(__floats2half2_rn(s[0][0], s[0][1]));
    p[1] = as_bits(__floats2half2_rn(s[0][2], s[0][3]));
    p[2] = as_bits(__floats2half2_rn(s[1][0], s[1][1]));
    p[3] = as_bits(__floats2half2_rn(s[1][2], s[1][3]));
}

/* The quarters of a row together: maximum, sum, and the factor of each. */
struct joined {
    float m, l, f[QUARTERS];
};
__device__ inline joined join(const float2 st[QUARTERS])
{
    joined j;
    j.m = st[0].x, j.l = 0;
#pragma unroll
    for (int k = 1; k < QUARTERS; k++) j.m = fmaxf(j.m, st[k].x);
    const float base = j.m == -INFINITY ? 0.0f : j.m;
#pragma unroll
    for (int k = 0; k < QUARTERS; k++) {
        j.f[k] = exp2_fast(st[k].x - base);
        j.l = __fmaf_rn(j.f[k], st[k].y, j.l);
    }
    return j;
}

/* attn_deep.cu: on cards with bulk copies and much shared memory. Fills one launch. */
void launch_attn_deep(launch *l, const attn_args *a, int n_units);

#endif
