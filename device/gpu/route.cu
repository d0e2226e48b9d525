/* device/gpu/route.cu - around the products of experts: ROUTE, the table of who goes where, the sum over slots.
 *
 * ROUTE: a warp a row. Lane i scores experts i, i + 32, ...; sums and maxima by butterfly; the chosen ones by
 * repeated search for the greatest whole number made of score and index: more is better, NaN is last, ties go to the
 * lower index. The order depends on the number of experts alone.
 * The table is one block's work, in narrow steps of few rows of the block that routes: places within an expert come
 * by atomic counts of whole numbers, and no result depends on them. */
#include "device/gpu/rows.cuh"

enum { TABLE_THREADS = 1024, ROUTE_MOST = 4096, ROUTE_ROWS = 8 };
/* Bytes: scores of so many rows, and the table's counts of experts, a shared one among them. */
static int route_shared(int rows, int experts)
{
    return (rows * experts + 2 * (experts + 1)) * (int)sizeof(float);
}
bool route_can(int experts)
{
    return experts <= ROUTE_MOST && route_shared(ROUTE_ROWS, experts) <= card_shared();
}

/* Greater for what is picked first. */
__device__ inline uint64_t pick_order(float x, int expert)
{
    const uint32_t bits = __float_as_uint(x + 0.0f);        /* one zero */
    const uint32_t rank = isnan(x) ? 0 : bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)rank << 32 | (uint32_t)~expert;
}

/* One row, by a warp. N: experts of a lane. score: room for all. */
template <int N> __device__ inline void route_row(const route_args &a, int row, float *score)
{
    const int lane = threadIdx.x % WARP;
    const float *z = a.z + (uint64_t)row * a.z_cols;
    float x[N], most = -INFINITY, total = 0;
    uint64_t left[N];                       /* 0: taken, or none */
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int e = lane + i * WARP;
        x[i] = e < a.experts ? z[e] : -INFINITY;
        most = e < a.experts ? fmaxf(most, x[i]) : most;
    }
    most = warp_max(most);
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (lane + i * WARP >= a.experts) continue;
        x[i] = a.sigmoid ? 1.0f / (1.0f + expf(-x[i])) : expf(x[i] - most);
        total += x[i];
    }
    total = warp_sum(total);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int e = lane + i * WARP;
        left[i] = 0;
        if (e >= a.experts) continue;
        if (!a.sigmoid) x[i] = x[i] / total;
        score[e] = x[i];
        left[i] = pick_order(a.bias ? x[i] + a.bias[e] : x[i], e);
    }
    __syncwarp();
    float sum = 0;
    int32_t *ids = a.ids + (uint64_t)row * (a.used + a.shared);
    float *weights = a.weights + (uint64_t)row * (a.used + a.shared);
    if (a.shared && lane == 0) {
        ids[a.used] = a.experts;
        weights[a.used] = 1.0f / (1.0f + expf(-z[a.experts]));
    }
    for (int j = 0; j < a.used; j++) {
        uint64_t best = 0;
#pragma unroll
        for (int i = 0; i < N; i++) best = left[i] > best ? left[i] : best;
        for (int by = 16; by; by /= 2) {
            const uint64_t other = __shfl_xor_sync(0xffffffffu, best, by);
            best = other > best ? other : best;
        }
#pragma unroll
        for (int i = 0; i < N; i++) left[i] = left[i] == best ? 0 : left[i];
        const int e = (int)~(uint32_t)best;
        sum += score[e];
        if (lane == 0) ids[j] = e, weights[j] = score[e];
    }
    __syncwarp();
    for (int j = lane; j < a.used; j += WARP) weights[j] = (a.normalise ? weights[j] / sum : weights[j]) * a.scale;
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
/* By all threads of the block. count: room for twice the experts, the shared one among them. */
__device__ inline void make_table(const table_args &a, int *count)
{
    const int32_t *ids = a.route.ids;
    const int experts = a.route.experts + a.route.shared, n = *a.route.n_rows * (a.route.used + a.route.shared);
    int *next = count + experts;            /* where the next assignment of each expert goes */
    for (int e = threadIdx.x; e < experts; e += blockDim.x) count[e] = 0;
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
__global__ void __launch_bounds__(TABLE_THREADS) table_kernel(table_args a)
{
    DYNAMIC_SHARED(int, count);
    launch_dependents();
    wait_predecessor();
    make_table(a, count);
}

/* N: experts of a lane. One block takes all rows and makes the table where there are ROUTE_ROWS at most. */
template <int N> __global__ void __launch_bounds__(ROUTE_ROWS * WARP) route_kernel(table_args a)
{
    DYNAMIC_SHARED(float, score);           /* [rows of the block][experts]; the table's counts follow */
    launch_dependents();
    const int warp = threadIdx.x / WARP, row = blockIdx.x * (blockDim.x / WARP) + warp;
    wait_predecessor();
    if (row < *a.route.n_rows) route_row<N>(a.route, row, score + warp * a.route.experts);
    if (!a.table) return;
    __syncthreads();
    make_table(a, (int *)score + blockDim.x / WARP * a.route.experts);
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
    const int per = one ? rows : ROUTE_ROWS, lanes = (r->experts + WARP - 1) / WARP;
    const int entries = entries_at(rows, r->used + r->shared, r->experts + r->shared);
    table_args a = { *r, one ? table : nullptr, moe_width(rows), entries };
    void (*kernel)(table_args) = lanes <= 4 ? route_kernel<4> : lanes <= 8 ? route_kernel<8>
                               : lanes <= 16 ? route_kernel<16> : route_kernel<ROUTE_MOST / WARP>;
    allow_shared(kernel, route_shared(ROUTE_ROWS, r->experts));
    fill_launch(l, kernel, dim3((rows + per - 1) / per), per * WARP, route_shared(per, r->experts), a);
    if (one || !table) return 1;
    a.table = table;
    fill_launch(l + 1, table_kernel, dim3(1), TABLE_THREADS, route_shared(0, r->experts), a);
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
