/* device/gpu/attn_narrow.cuh - what the kernels of narrow attention share (attn_narrow.cu, attn_deep.cu): items, what a
 * row may see, where a page's rows come from, and the arithmetic, so that a row has the same bits from both. */
#ifndef LUCE_DEVICE_GPU_ATTN_NARROW_CUH
#define LUCE_DEVICE_GPU_ATTN_NARROW_CUH

#include "device/gpu/attn.cuh"

enum { QUARTERS = 4, SPLIT_LEAST = 256, SPLIT_MOST = 2048 };

/* What a row sees is cut into splits of one size, by the row's own position p: about `target` of them, so that all
 * multiprocessors have work behind a short text, and few parts are left behind a long one. Where the rows of a sequence
 * stand on both sides of a border of sizes (every target pages), each size has items of its own. */
__host__ __device__ inline int split_size(int p, int window, int target)
{
    const int seen = window && window <= p ? window : p + 1, pages = (seen - 1) / (target * PAGE) + 1;
    return pages * PAGE < SPLIT_LEAST ? SPLIT_LEAST : pages * PAGE < SPLIT_MOST ? pages * PAGE : SPLIT_MOST;
}

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
    int size;                               /* of the split; only rows that have this size are in the item */
    bool apart;                             /* some have another one */
    bool single;                            /* of one token of a tree, by its own path */
};

__device__ inline int size_at(const attn_args &a, int p)
{
    return split_size(p, a.window, a.target);
}
/* Splits of a size that rows of the sequence see: first, one past the last, and one past those that all see alike. */
struct seq_splits {
    int first, end, common;
    __device__ seq_splits(const attn_args &a, const step_seq &q, bool tree, int size)
    {
        const int low = a.window ? q.past - a.window + 1 : 0;
        first = low > 0 ? low / size : 0;
        end = (q.past + q.n_rows - 1) / size + 1;
        common = tree ? q.past / size : end;
        if (common < first) common = first;
    }
    template <int ROWS> __device__ int items(const attn_args &a, const step_seq &q, int group) const
    {
        return a.kv.kv_heads * ((common - first) * ((q.n_rows * group + ROWS - 1) / ROWS) +
                                (end - common) * q.n_rows * ((group + ROWS - 1) / ROWS));
    }
};

template <int ROWS> __device__ inline int count_items(const attn_args &a, const step_seq &q, bool tree, int group)
{
    if (!q.n_rows) return 0;
    const int low = size_at(a, q.past), high = size_at(a, q.past + q.n_rows - 1);
    const int n = seq_splits(a, q, tree, low).items<ROWS>(a, q, group);
    return high == low ? n : n + seq_splits(a, q, tree, high).items<ROWS>(a, q, group);
}

/* Item i. before: items before sequence s. */
template <int ROWS>
__device__ inline item find_item(const attn_args &a, const step *s, const int *before, int i, int group)
{
    item it;
    it.seq = 0;
    while (before[it.seq + 1] <= i) it.seq++;
    i -= before[it.seq];
    const step_seq &q = s->seq[it.seq];
    const bool tree = a.tree[it.seq] && !a.block;
    const int low = size_at(a, q.past), high = size_at(a, q.past + q.n_rows - 1);
    seq_splits splits(a, q, tree, low);
    it.size = low, it.apart = high != low;
    if (it.apart) {
        const int n = splits.items<ROWS>(a, q, group);
        if (i >= n) i -= n, it.size = high, splits = seq_splits(a, q, tree, high);
    }
    int chunks = (q.n_rows * group + ROWS - 1) / ROWS, first = 0, end = q.n_rows * group;
    const int n_common = (splits.common - splits.first) * chunks * a.kv.kv_heads;
    it.single = i >= n_common;
    int each = chunks;                  /* items of a head in a split */
    if (it.single) {
        i -= n_common;
        chunks = (group + ROWS - 1) / ROWS;
        each = chunks * q.n_rows;
    }
    const int at = quotient(i, each * a.kv.kv_heads);
    it.split = (it.single ? splits.common : splits.first) + at;
    i -= at * each * a.kv.kv_heads;
    it.head = quotient(i, each);
    i -= it.head * each;
    if (it.single) {
        first = quotient(i, chunks) * group;
        end = first + group;
    }
    it.row0 = first + (i - quotient(i, chunks) * chunks) * ROWS;
    it.n_rows = end - it.row0 < ROWS ? end - it.row0 : ROWS;
    return it;
}

/* Row j of the item. */
__device__ inline row_view view_of(const attn_args &a, const step *s, const item &it, int j, int group)
{
    const row_view none = { -1, 0, -1, INT32_MAX, -1, 0 };
    if (j >= it.n_rows) return none;
    const step_seq &q = s->seq[it.seq];
    const int packed = it.row0 + j, token = quotient(packed, group);
    const step_row &r = s->row[q.first_row + token];
    if (it.apart && size_at(a, r.index) != it.size) return none;
    row_view v;
    v.row = q.first_row + token;
    v.head = it.head * group + packed - token * group;
    v.first = a.window && r.index - a.window + 1 > 0 ? r.index - a.window + 1 : 0;
    v.past = q.past;
    v.see = r.see < q.past ? r.see : q.past - 1;
    v.last = q.past + (a.block ? q.n_rows : __popcll(r.path)) - 1;
    return v;
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

/* The item's place among the parts of its rows; -1: there is only this one, the result. */
__device__ inline int part_of_rows(const attn_args &a, const step_seq &q, const item &it)
{
    const seq_splits splits(a, q, false, it.size);
    return splits.end - splits.first == 1 ? -1 : it.split - splits.first;
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

/* Of a warp's 16 rows and a quarter of the keys (p % 8 / 2): running maximum and sum, of rows g and g + 8. Key j of a
 * score's columns g is 8 g + 2 quarter + j. */
struct row_sums {
    float m[2], l[2];
};
__device__ inline void clear(row_sums &w)
{
    w.m[0] = w.m[1] = -INFINITY;
    w.l[0] = w.l[1] = 0;
}

/* Products of 16 rows with the quarter's keys become their weights, not yet divided by their sum. view: of the rows,
 * where some do not see all of the page that begins at p0, else NULL. keep: the factor of what was summed before. */
__device__ inline void weigh(row_sums &w, float s[2][4], const attn_args &a, const row_view *view, int p0, int quarter,
                             int lane, float keep[2])
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

/* attn_deep.cu: where attn_deep_can. Fills one launch. */
void launch_attn_deep(launch *l, const attn_args *a, int n_units);

#endif
