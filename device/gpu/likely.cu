/* device/gpu/likely.cu - LIKELY on the GPU: a block a row and 4096 columns finds its largest by k searches over what
 * its threads hold, and the sum of its exponentials; then a warp a row joins these parts in their order.
 * Traffic: 4 bytes a column, once. The order of the sums follows from the columns alone. */
#include "device/gpu/rows.cuh"

struct likely_part {            /* of 4096 columns: best first */
    best top[LIKELY_PICKS];
    float sum;                  /* of exp(scale * (x - top[0])) */
    int32_t pad;
};

enum { LIKELY_THREADS = 256, LIKELY_LOADS = 16, LIKELY_COLS = LIKELY_THREADS * LIKELY_LOADS,
       LIKELY_WARPS = LIKELY_THREADS / WARP };
static int likely_blocks(int cols)
{
    return (cols + LIKELY_COLS - 1) / LIKELY_COLS;
}
uint64_t likely_scratch(int rows, int cols)
{
    return (uint64_t)rows * likely_blocks(cols) * sizeof(likely_part);
}

__global__ void __launch_bounds__(LIKELY_THREADS) likely_kernel(likely_args a)
{
    __shared__ best found[LIKELY_WARPS];
    __shared__ float sums[LIKELY_WARPS];
    launch_dependents();
    const int row = blockIdx.y, first = blockIdx.x * LIKELY_COLS + threadIdx.x;
    wait_predecessor();
    if (row >= *a.n_rows) return;
    const float *x = a.x + (uint64_t)row * a.cols;
    likely_part *part = (likely_part *)a.scratch + (uint64_t)row * gridDim.x + blockIdx.x;
    float v[LIKELY_LOADS];                  /* what is left to choose from; minus infinity: nothing */
#pragma unroll
    for (int i = 0; i < LIKELY_LOADS; i++) {
        const float at = first + i * LIKELY_THREADS < a.cols ? x[first + i * LIKELY_THREADS] : -INFINITY;
        v[i] = isfinite(at) ? at : -INFINITY;
    }
#pragma unroll 1
    for (int j = 0; j < a.k; j++) {
        best mine = { -INFINITY, INT32_MAX };
#pragma unroll
        for (int i = 0; i < LIKELY_LOADS; i++)
            if (v[i] > mine.value) mine = best{ v[i], first + i * LIKELY_THREADS };
        mine = best_of_warp(mine);
        if (threadIdx.x % WARP == 0) found[threadIdx.x / WARP] = mine;
        __syncthreads();
        best top = found[0];
#pragma unroll 1
        for (int i = 1; i < LIKELY_WARPS; i++) top = better(top, found[i]);
        if (threadIdx.x == 0) part->top[j] = top;
        if (j == 0) {
            float sum = 0;
#pragma unroll
            for (int i = 0; i < LIKELY_LOADS; i++)
                if (v[i] > -INFINITY) sum += expf(a.scale * (v[i] - top.value));
            sum = warp_sum(sum);
            if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = sum;
        }
#pragma unroll
        for (int i = 0; i < LIKELY_LOADS; i++)
            if (first + i * LIKELY_THREADS == top.index) v[i] = -INFINITY;
        __syncthreads();
    }
    if (threadIdx.x) return;
    float sum = sums[0];
#pragma unroll 1
    for (int i = 1; i < LIKELY_WARPS; i++) sum += sums[i];
    part->sum = sum;
}

__global__ void __launch_bounds__(WARP) join_kernel(likely_args a)
{
    launch_dependents();
    const int row = blockIdx.x, n = (a.cols + LIKELY_COLS - 1) / LIKELY_COLS, lane = threadIdx.x;
    wait_predecessor();
    if (row >= *a.n_rows) return;
    const likely_part *part = (const likely_part *)a.scratch + (uint64_t)row * n;
    int32_t *ids = a.ids + (uint64_t)row * a.k;
    float *likely = a.likely + (uint64_t)row * a.k;
    best last = { INFINITY, -1 };
    float most = 0, total = 0;
#pragma unroll 1
    for (int j = 0; j < a.k; j++) {
        best mine = { -INFINITY, INT32_MAX };
#pragma unroll 1
        for (int b = lane; b < n; b += WARP)
#pragma unroll 1
            for (int i = 0; i < a.k; i++) {
                const best at = part[b].top[i];
                const bool behind = at.value < last.value || (at.value == last.value && at.index > last.index);
                if (!behind) continue;      /* the first one behind is the best of this part */
                mine = better(mine, at);
                break;
            }
        last = best_of_warp(mine);
        const bool none = last.index == INT32_MAX;
        if (j == 0 && !none) {
            most = last.value;
#pragma unroll 1
            for (int b = lane; b < n; b += WARP)
                if (part[b].top[0].index != INT32_MAX)
                    total += part[b].sum * expf(a.scale * (part[b].top[0].value - most));
            total = logf(warp_sum(total));
        }
        if (lane) continue;
        const int32_t id = none ? -1 : last.index;
        const float share = none ? 0.0f : a.scale * (last.value - most) - total;
        ids[j] = id;
        likely[j] = share;
        if (a.host_ids) a.host_ids[(uint64_t)row * a.k + j] = id;
        if (a.host_likely) a.host_likely[(uint64_t)row * a.k + j] = share;
    }
}

int launch_likely(launch *l, const likely_args *a, int rows)
{
    fill_launch(l, likely_kernel, dim3(likely_blocks(a->cols), rows), LIKELY_THREADS, 0, *a);
    fill_launch(l + 1, join_kernel, dim3(rows), WARP, 0, *a);
    return 2;
}
