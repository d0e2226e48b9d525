/* device/gpu/route.cu - around the products of experts: ROUTE, the table of who goes where, the sum over slots.
 *
 * ROUTE: a warp a row (route.cuh); of one row inside MOE_GLU, where that comes next.
 * The table is one block's work, in steps of few rows of the block that routes: places within an expert come
 * by atomic counts of whole numbers, and no result depends on them. */
#include "device/gpu/route.cuh"

enum { TABLE_THREADS = 1024, ROUTE_MOST = 4096, ROUTE_ROWS = 16, ROUTE_LEAST = 8 /* warps of a block with a table */ };
bool route_can(int experts, int slots)
{
    return experts <= ROUTE_MOST && slots <= WARP;
}
bool route_can_inside(int experts, int rows)
{
    return rows == 1 && experts <= ROUTED_MOST && !card_is_small();
}

struct table_args {
    route_args route;
    moe_table *table;           /* NULL: none is wanted */
    int32_t width, entries;
};
/* A warp's running sum of x, this lane's included; *all is the sum of all lanes. */
__device__ inline int running_sum(int x, int *all)
{
    const int lane = threadIdx.x % WARP;
    for (int by = 1; by < WARP; by *= 2) {
        const int before = __shfl_up_sync(0xffffffffu, x, by);
        if (lane >= by) x += before;
    }
    *all = __shfl_sync(0xffffffffu, x, WARP - 1);
    return x;
}
/* By all threads of the block, of n ids. count: room for twice the experts, the shared one among them; zeros in the
 * first half. */
__device__ inline void make_table(const table_args &a, const int32_t *ids, int n, int *count)
{
    const int experts = a.route.experts + a.route.shared;
    int *next = count + experts;            /* where the next assignment of each expert goes */
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&count[ids[i]], 1);
    __syncthreads();
    if (threadIdx.x == 0) a.table->entries = a.entries;
    if (threadIdx.x < WARP) {               /* a lane some experts that follow each other */
        const int each = (experts + WARP - 1) / WARP;
        const int e0 = min((int)threadIdx.x * each, experts), e1 = min(e0 + each, experts);
        int mine = 0, parts = 0, all;
        for (int e = e0; e < e1; e++) mine += count[e], parts += (count[e] + a.width - 1) / a.width;
        int at = running_sum(mine, &all) - mine, part = running_sum(parts, &all) - parts;
        if (threadIdx.x == 0) a.table->n_parts = all;
        if (threadIdx.x == 0 && !a.route.shared) a.table->n_routed = all;
        for (int e = e0; e < e1; e++) {
            next[e] = at;
            if (e == a.route.experts) a.table->n_routed = part;
            for (int i = 0; i < count[e]; i += a.width)
                a.table->part[part++] = moe_part{ e, at + i, min(count[e] - i, a.width) };
            at += count[e];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) moe_entries(a.table)[atomicAdd(&next[ids[i]], 1)] = i;
}
__device__ inline void clear_counts(const table_args &a, int *count)
{
    for (int e = threadIdx.x; e < a.route.experts + a.route.shared; e += blockDim.x) count[e] = 0;
}
__global__ void __launch_bounds__(TABLE_THREADS) table_kernel(table_args a)
{
    DYNAMIC_SHARED(int, count);
    launch_dependents();
    clear_counts(a, count);
    const int n = *a.route.n_rows * (a.route.used + a.route.shared);
    wait_predecessor();
    make_table(a, a.route.ids, n, count);
}

/* N: experts of a lane. One block takes all rows and makes the table where there are ROUTE_ROWS at most. */
template <int N> __global__ void __launch_bounds__(ROUTE_ROWS * WARP) route_kernel(table_args a)
{
    __shared__ int32_t ids[ROUTE_ROWS * WARP];
    DYNAMIC_SHARED(int, count);             /* of the table */
    launch_dependents();
    const int row = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, slots = a.route.used + a.route.shared;
    const int n_rows = *a.route.n_rows;
    if (a.table) clear_counts(a, count);
    wait_predecessor();
    if (row < n_rows) route_row<N>(a.route, row, a.table ? ids + row * slots : nullptr, true);
    if (a.table) make_table(a, ids, n_rows * slots, count);
}
static int most_parts(int assignments, int experts, int width)
{
    return assignments / width + (experts < assignments ? experts : assignments);
}
int moe_width(int rows)
{
    return rows <= 8 ? 8 : rows <= NARROW_ROWS ? 16 : 64;
}
static int entries_at(int rows, int slots, int experts)
{
    return (int)(sizeof(moe_table) + most_parts(rows * slots, experts, moe_width(rows)) * sizeof(moe_part));
}
uint64_t moe_table_bytes(int rows, int slots, int experts)
{
    return (uint64_t)entries_at(rows, slots, experts) + 4 * (uint64_t)rows * slots;
}

/* Rows of a block: the block that takes all of them makes the table, too. */
int launch_route(launch *l, const route_args *r, moe_table *table, int rows)
{
    const bool one = rows <= ROUTE_ROWS;
    const int lanes = (r->experts + WARP - 1) / WARP, counts = 2 * (r->experts + r->shared) * (int)sizeof(int);
    const int entries = entries_at(rows, r->used + r->shared, r->experts + r->shared);
    table_args a = { *r, one ? table : nullptr, moe_width(rows), entries };
    const int warps = !one ? ROUTE_ROWS : rows < ROUTE_LEAST && table ? ROUTE_LEAST : rows;
    void (*kernel)(table_args) = lanes <= 4 ? route_kernel<4> : lanes <= 8 ? route_kernel<8>
                               : lanes <= 16 ? route_kernel<16> : route_kernel<ROUTE_MOST / WARP>;
    fill_launch(l, kernel, dim3((rows + warps - 1) / warps), warps * WARP, a.table ? counts : 0, a);
    if (one || !table) return 1;
    a.table = table;
    fill_launch(l + 1, table_kernel, dim3(1), TABLE_THREADS, counts, a);
    return 2;
}

__global__ void __launch_bounds__(256) combine_experts_kernel(moe_sum_args a)
{
    launch_dependents();
    const int row = blockIdx.y;
    if (row >= *a.n_rows) return wait_predecessor();
    wait_predecessor();
    const float *w = a.weights + (uint64_t)row * a.slots;
    for (int c = blockIdx.x * blockDim.x + threadIdx.x; c < a.cols; c += gridDim.x * blockDim.x) {
        const float *z = a.z + (uint64_t)row * a.slots * a.cols + c;
        float sum = 0;
#pragma unroll 8
        for (int j = 0; j < a.slots; j++) sum = __fmaf_rn(w[j], z[(uint64_t)j * a.cols], sum);
        const uint64_t at = (uint64_t)row * a.cols + c;
        a.y[at] = a.residual ? sum + a.residual[at] : sum;
    }
}
void launch_moe_sum(launch *l, const moe_sum_args *a, int rows)
{
    fill_launch(l, combine_experts_kernel, dim3((a->cols + 255) / 256, rows), 256, 0, *a);
}
