/* device/gpu/sample.cu - SAMPLE on the GPU: a block a row. Sums are of whole numbers, so that their order does not
 * matter. A cut (top_k, top_p) is a pass that sums by bucket in shared memory, and one that lists the bucket in which
 * the sum is reached; there each column counts those before it.
 * Traffic: 4 bytes a column from L2, two passes a cut and one or two to draw; none when the row is greedy. */
#include "device/gpu/rows.cuh"
#include "ops/draw.h"

enum { SAMPLE_THREADS = 1024, SAMPLE_WARPS = SAMPLE_THREADS / WARP, SAMPLE_LIST = SAMPLE_THREADS };

struct sample_shared {
    union {
        uint64_t bucket[DRAW_BUCKETS];
        struct {
            uint64_t key[SAMPLE_LIST], weight[SAMPLE_LIST];
        };
    };
    uint64_t sum[SAMPLE_WARPS], before;
    int32_t n, found;
};

__device__ static inline void add_shared(uint64_t *at, uint64_t x)
{
    atomicAdd((unsigned long long *)at, (unsigned long long)x);
}

__device__ static inline uint64_t warp_total(uint64_t x)
{
#pragma unroll
    for (int i = WARP / 2; i; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

/* Of the lanes up to this one. */
__device__ static inline uint64_t warp_total_so_far(uint64_t x)
{
#pragma unroll
    for (int i = 1; i < WARP; i *= 2) {
        const uint64_t left = __shfl_up_sync(0xffffffffu, x, i);
        if ((int)threadIdx.x % WARP >= i) x += left;
    }
    return x;
}

/* Of all threads; every thread gets it. */
__device__ static uint64_t block_total(sample_shared *s, uint64_t x)
{
    x = warp_total(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0) s->sum[threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_total(s->sum[threadIdx.x % WARP]);
}

__device__ static uint64_t block_least(sample_shared *s, uint64_t x)
{
#pragma unroll 1
    for (int round = 0; round < 2; round++) {
#pragma unroll
        for (int i = WARP / 2; i; i /= 2) {
            const uint64_t other = __shfl_xor_sync(0xffffffffu, x, i);
            x = other < x ? other : x;
        }
        if (round) break;
        __syncthreads();
        if (threadIdx.x % WARP == 0) s->sum[threadIdx.x / WARP] = x;
        __syncthreads();
        x = s->sum[threadIdx.x % WARP];
    }
    return x;
}

__device__ static uint64_t row_total(sample_shared *s, const draw_row *r, const draw_cut *c, draw_measure m)
{
    uint64_t mine = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < r->n; i += SAMPLE_THREADS) mine += draw_measured(r, c, m, i);
    return block_total(s, mine);
}

/* The first column up to which the sum reaches the target, which the whole row does: a warp a part of the row, then
 * one warp column by column through its part. */
__device__ static int locate(sample_shared *s, const draw_row *r, const draw_cut *c, draw_measure m, uint64_t target)
{
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int part = (r->n + SAMPLE_WARPS - 1) / SAMPLE_WARPS;
    const int from = warp * part, to = from + part < r->n ? from + part : r->n;
    uint64_t mine = 0, before = 0;
    for (int i = from + lane; i < to; i += WARP) mine += draw_measured(r, c, m, i);
    mine = warp_total(mine);
    __syncthreads();
    if (lane == 0) s->sum[warp] = mine;
    __syncthreads();
#pragma unroll 1
    for (int w = 0; w < warp; w++) before += s->sum[w];
    if (before < target && before + mine >= target) {
#pragma unroll 1
        for (int at = from; at < to; at += WARP) {
            const uint64_t sum = warp_total_so_far(at + lane < to ? draw_measured(r, c, m, at + lane) : 0);
            const unsigned reached = __ballot_sync(0xffffffffu, before + sum >= target);
            if (reached) {
                if (lane == 0) s->found = at + __ffs((int)reached) - 1;
                break;
            }
            before += __shfl_sync(0xffffffffu, sum, WARP - 1);
        }
    }
    __syncthreads();
    return s->found;
}

/* Cuts to the first columns, as few as sum to the target. */
__device__ static void bisect(sample_shared *s, const draw_row *r, draw_cut *c, draw_measure m, uint64_t target)
{
    int64_t low = c->order, high = draw_order(r->max);
#pragma unroll 1
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        const draw_cut at = { c->least, (int32_t)middle, INT32_MAX };
        if (row_total(s, r, &at, m) >= target) low = middle;
        else high = middle - 1;
    }
    draw_cut at = { c->least, (int32_t)low, -1 };
    const uint64_t above = row_total(s, r, &at, m);
    const uint64_t each = m == DRAW_MASS ? draw_weight(draw_value_of(at.order), r->max, r->scale) : 1;
    at.last = at.order == c->order ? c->last : INT32_MAX;
    at.last = locate(s, r, &at, DRAW_TIED, (target - above + each - 1) / each);
    *c = at;
}

/* The sums by bucket, in s->bucket; returns that of all. */
__device__ static uint64_t sum_buckets(sample_shared *s, const draw_row *r, const draw_cut *c, draw_measure m)
{
    uint64_t all = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < DRAW_BUCKETS; i += SAMPLE_THREADS) s->bucket[i] = 0;
    __syncthreads();
#pragma unroll 4
    for (int i = threadIdx.x; i < r->n; i += SAMPLE_THREADS) {
        const uint64_t mine = draw_measured(r, c, m, i);
        all += mine;
        if (mine) add_shared(&s->bucket[draw_bucket(draw_steps(draw_value(r, i), r->max, r->scale))], mine);
    }
    return block_total(s, all);         /* the others have added theirs, too */
}

/* The bucket in which the sum reaches the target, and in *before the sum of those before it: a warp, a few buckets a
 * lane, then bucket by bucket. */
__device__ static int find_bucket(sample_shared *s, uint64_t target, uint64_t *before)
{
    enum { EACH = (DRAW_BUCKETS + WARP - 1) / WARP };
    const int first = threadIdx.x * EACH, end = first + EACH < DRAW_BUCKETS ? first + EACH : DRAW_BUCKETS;
    if (threadIdx.x < WARP) {
        uint64_t mine = 0;
        for (int i = first; i < end; i++) mine += s->bucket[i];
        uint64_t sum = warp_total_so_far(mine);
        if (sum >= target && sum - mine < target) {
            int at = first;
            for (sum -= mine; sum + s->bucket[at] < target; at++) sum += s->bucket[at];
            s->found = at;
            s->before = sum;
        }
    }
    __syncthreads();
    *before = s->before;
    return s->found;
}

/* Lists the columns of a bucket; returns how many there are, of which SAMPLE_LIST are listed. */
__device__ static int list_bucket(sample_shared *s, const draw_row *r, const draw_cut *c, int bucket)
{
    __syncthreads();
    if (threadIdx.x == 0) s->n = 0;
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < r->n; i += SAMPLE_THREADS) {
        const float x = draw_value(r, i);
        const int32_t steps = draw_steps(x, r->max, r->scale);
        const uint64_t w = draw_weight_of(steps);
        if (draw_bucket(steps) != bucket || !draw_kept(c, draw_order(x), w, i)) continue;
        const int at = atomicAdd(&s->n, 1);
        if (at >= SAMPLE_LIST) continue;
        s->key[at] = draw_key(draw_order(x), i);
        s->weight[at] = w;
    }
    __syncthreads();
    return s->n;
}

/* Cuts to the first of the n listed columns, as few as sum to the target. */
__device__ static void cut_list(sample_shared *s, draw_cut *c, draw_measure m, uint64_t target, int n)
{
    const bool listed = (int)threadIdx.x < n;
    const uint64_t key = listed ? s->key[threadIdx.x] : 0;
    uint64_t before = 0;
#pragma unroll 4
    for (int i = 0; i < n; i++)
        if (s->key[i] > key) before += m == DRAW_MASS ? s->weight[i] : 1;
    const uint64_t last = block_least(s, listed && before < target ? key : UINT64_MAX);
    c->order = draw_key_order(last);
    c->last = draw_key_column(last);
}

/* Cuts to the first columns, as few as sum to `most`, or to this share of all. */
__device__ static void cut_to(sample_shared *s, const draw_row *r, draw_cut *c, draw_measure m, uint64_t most,
                              float share)
{
    const uint64_t all = sum_buckets(s, r, c, m), target = m == DRAW_MASS ? draw_wanted(share, all) : most;
    if (target >= all) return;
    uint64_t before;
    const int bucket = find_bucket(s, target, &before), n = list_bucket(s, r, c, bucket);
    if (n <= SAMPLE_LIST) cut_list(s, c, m, target - before, n);
    else bisect(s, r, c, m, target);
}

/* The first of the largest columns. */
__device__ static int largest(sample_shared *s, const draw_row *r)
{
    uint64_t most = 0;
    for (int i = threadIdx.x; i < r->n; i += SAMPLE_THREADS) {
        const uint64_t key = draw_key(draw_order(draw_value(r, i)), i);
        most = key > most ? key : most;
    }
    return draw_key_column(~block_least(s, ~most));
}

__global__ void __launch_bounds__(SAMPLE_THREADS) sample_kernel(sample_args a)
{
    __shared__ sample_shared s;
    launch_dependents();
    const int row = blockIdx.x;
    wait_predecessor();
    if (row >= *a.n_rows) return;
    const step_draw d = a.out[row].draw;
    draw_row r = { a.x + (uint64_t)row * a.cols, a.allowed, a.cols, 0, d.scale };
    int best = a.argmax[row];
    if (best >= 0 && a.allowed && a.allowed[best] != 0.0f) best = largest(&s, &r);
    if (best >= 0) {
        r.max = draw_value(&r, best);
        if (!isfinite(r.max)) best = -1;
    }
    if (best >= 0 && d.scale > 0 && d.top_k != 1) {
        draw_cut c = { draw_least(d.min_p), INT32_MIN, 0 };
        if (d.top_k > 0 && d.top_k < a.cols) cut_to(&s, &r, &c, DRAW_COUNT, d.top_k, 0);
        if (draw_is_top_p(&d)) cut_to(&s, &r, &c, DRAW_MASS, 0, d.top_p);
        const uint64_t all = row_total(&s, &r, &c, DRAW_MASS);
        best = locate(&s, &r, &c, DRAW_MASS, draw_target(d.u, all) + 1);
    }
    if (threadIdx.x) return;
    a.y[row] = best;
    if (a.host) a.host[row] = best;
}

int launch_sample(launch *l, const sample_args *a, int rows)
{
    fill_launch(l, sample_kernel, dim3(rows), SAMPLE_THREADS, 0, *a);
    return 1;
}
