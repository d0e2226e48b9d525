/* device/gpu/route.cu - around the products of experts: ROUTE, the table of who goes where, the sum over slots.
 *
 * ROUTE: a warp a row. Lane i scores experts i, i + 32, ...; sums and maxima by butterfly; the chosen ones by
 * repeated search: more is better, NaN is last, ties go to the lower index. The order depends on the number of
 * experts alone.
 * The table is one block's work: places within an expert come by atomic counts of whole numbers, and no result
 * depends on them. */
#include "device/gpu/rows.cuh"

enum { TABLE_THREADS = 1024, ROUTE_MOST = 4096 };
bool route_can(int experts)
{
    return experts <= ROUTE_MOST;
}

__device__ inline bool beats(float a, int at_a, float b, int at_b)
{
    if (isnan(a) || isnan(b)) return isnan(a) == isnan(b) ? at_a < at_b : isnan(b);
    return a > b || (a == b && at_a < at_b);
}

__global__ void __launch_bounds__(WARP) route_kernel(route_args a)
{
    DYNAMIC_SHARED(float, score);           /* [experts]; then what they are picked by */
    launch_dependents();
    wait_predecessor();
    const int row = blockIdx.x, lane = threadIdx.x;
    if (row >= *a.n_rows) return;
    float *pick = score + a.experts;
    const float *z = a.z + (uint64_t)row * a.experts;
    float most = -INFINITY, total = 0;
    for (int e = lane; e < a.experts; e += WARP) most = fmaxf(most, z[e]);
    most = warp_max(most);
    for (int e = lane; e < a.experts; e += WARP) {
        score[e] = a.sigmoid ? 1.0f / (1.0f + expf(-z[e])) : expf(z[e] - most);
        total += score[e];
    }
    total = warp_sum(total);
    for (int e = lane; e < a.experts; e += WARP) {
        if (!a.sigmoid) score[e] = score[e] / total;
        pick[e] = a.bias ? score[e] + a.bias[e] : score[e];
    }
    float sum = 0;
    uint32_t taken[ROUTE_MOST / WARP / 32] = { 0 };     /* of this lane's experts */
    for (int j = 0; j < a.used; j++) {
        int best = -1;
        float top = 0;
        for (int i = 0, e = lane; e < a.experts; i++, e += WARP)
            if (!(taken[i / 32] >> (i % 32) & 1) && (best < 0 || beats(pick[e], e, top, best))) best = e, top = pick[e];
        for (int by = 16; by; by /= 2) {
            const float other = __shfl_xor_sync(0xffffffffu, top, by);
            const int at = __shfl_xor_sync(0xffffffffu, best, by);
            if (at >= 0 && (best < 0 || beats(other, at, top, best))) best = at, top = other;
        }
        if (best % WARP == lane) taken[best / WARP / 32] |= 1u << (best / WARP % 32);
        const float w = score[best];
        sum += w;
        if (lane == 0) {
            a.ids[(uint64_t)row * a.used + j] = best;
            a.weights[(uint64_t)row * a.used + j] = w;
        }
    }
    __syncwarp();
    for (int j = lane; j < a.used; j += WARP) {
        float *w = a.weights + (uint64_t)row * a.used + j;
        *w = (a.normalise ? *w / sum : *w) * a.scale;
    }
}
void launch_route(launch *l, const route_args *a, int rows)
{
    fill_launch(l, route_kernel, dim3(rows), WARP, 2 * a->experts * sizeof(float), *a);
}

struct table_args {
    const int32_t *ids, *n_rows;
    moe_table *table;
    int32_t used, experts, width, entries;
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
__global__ void __launch_bounds__(TABLE_THREADS) table_kernel(table_args a)
{
    DYNAMIC_SHARED(int, count);             /* [experts]; then where the next assignment of each goes */
    int *next = count + a.experts;
    launch_dependents();
    wait_predecessor();
    const int n = *a.n_rows * a.used;
    for (int e = threadIdx.x; e < a.experts; e += blockDim.x) count[e] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&count[a.ids[i]], 1);
    __syncthreads();
    if (threadIdx.x == 0) a.table->entries = a.entries;
    if (threadIdx.x < WARP) {
        int first = 0, part = 0;
        for (int e0 = 0; e0 < a.experts; e0 += WARP) {
            const int e = e0 + threadIdx.x, mine = e < a.experts ? count[e] : 0, parts = (mine + a.width - 1) / a.width;
            int all, all_parts;
            const int at = first + running_sum(mine, &all) - mine, p = part + running_sum(parts, &all_parts) - parts;
            if (e < a.experts) next[e] = at;
            for (int i = 0; i < parts; i++)
                a.table->part[p + i] = moe_part{ e, at + i * a.width, min(mine - i * a.width, a.width) };
            first += all;
            part += all_parts;
        }
        if (threadIdx.x == 0) a.table->n_parts = part;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) moe_entries(a.table)[atomicAdd(&next[a.ids[i]], 1)] = i;
}
static int most_parts(int assignments, int experts, int width)
{
    return assignments / width + (experts < assignments ? experts : assignments);
}
int moe_width(int rows)
{
    return rows <= 8 ? 8 : rows <= NARROW_ROWS ? 16 : 64;
}
static int entries_at(int rows, int used, int experts)
{
    return (int)(sizeof(moe_table) + most_parts(rows * used, experts, moe_width(rows)) * sizeof(moe_part));
}
uint64_t moe_table_bytes(int rows, int used, int experts)
{
    return (uint64_t)entries_at(rows, used, experts) + 4 * (uint64_t)rows * used;
}
void launch_moe_table(launch *l, moe_table *table, const route_args *r, int rows)
{
    table_args a = { r->ids, r->n_rows, table, r->used, r->experts, moe_width(rows),
                     entries_at(rows, r->used, r->experts) };
    fill_launch(l, table_kernel, dim3(1), rows * r->used > 256 ? TABLE_THREADS : 256, 2 * r->experts * sizeof(int), a);
}

__global__ void __launch_bounds__(256) combine_experts_kernel(moe_sum_args a)
{
    launch_dependents();
    wait_predecessor();
    const int row = blockIdx.y;
    if (row >= *a.n_rows) return;
    const float *w = a.weights + (uint64_t)row * a.used;
    for (int c = blockIdx.x * blockDim.x + threadIdx.x; c < a.cols; c += gridDim.x * blockDim.x) {
        const float *z = a.z + (uint64_t)row * a.used * a.cols + c;
        float sum = 0;
#pragma unroll 4
        for (int j = 0; j < a.used; j++) sum = __fmaf_rn(w[j], z[(uint64_t)j * a.cols], sum);
        const uint64_t at = (uint64_t)row * a.cols + c;
        a.y[at] = a.residual ? sum + a.residual[at] : sum;
    }
}
void launch_moe_sum(launch *l, const moe_sum_args *a, int rows)
{
    fill_launch(l, combine_experts_kernel, dim3((a->cols + 255) / 256, rows), 256, 0, *a);
}
