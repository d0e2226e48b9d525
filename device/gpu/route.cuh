/* device/gpu/route.cuh - ROUTE of a row, by a warp: in kernels of its own (route.cu) or in blocks of MOE_GLU (moe.cuh).
 *
 * Lane i scores experts i, i + 32, ...; sums and maxima by butterfly; the chosen ones by repeated search for the
 * greatest: each lane knows its own, the warp finds the greatest of them, and the lane that had it looks for its next.
 * More is better, NaN is last, ties go to the lower index. Lane j keeps slot j until all are there. The order depends
 * on the number of experts alone. */
#ifndef LUCE_DEVICE_GPU_ROUTE_CUH
#define LUCE_DEVICE_GPU_ROUTE_CUH

#include "device/gpu/rows.cuh"

enum { ROUTED_MOST = 16 * WARP };       /* experts where MOE_GLU routes */

/* Greater for what is picked first; never 0. */
__device__ inline uint32_t pick_rank(float x)
{
    const uint32_t bits = __float_as_uint(x + 0.0f);        /* one zero */
    return isnan(x) ? 1 : bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* One row, by a warp. N: experts of a lane. seen: of the block, where the row's ids go, too. writes: whether they and
 * the weights go out. */
template <int N> __device__ inline void route_row(const route_args &a, int row, int32_t *seen, bool writes)
{
    const int lane = threadIdx.x % WARP, slots = a.used + a.shared;
    const float *z = a.z + (uint64_t)row * a.z_cols;
    const float own = a.shared ? z[a.experts] : 0.0f;
    float x[N], most = -INFINITY, total = 0;
    uint32_t left[N];                       /* 0: taken, or none */
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
        left[i] = pick_rank(a.bias ? x[i] + a.bias[e] : x[i]);
    }
    uint32_t top;                           /* of this lane: rank, score and expert of its best */
    float score;
    int expert;
    auto look = [&]() {
        top = 0, score = 0, expert = 0;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (left[i] > top) top = left[i], score = x[i], expert = lane + i * WARP;
    };
    look();
    float sum = 0, weight = 0;              /* of slot `lane` */
    int id = a.experts;
    for (int j = 0; j < a.used; j++) {
        const uint32_t greatest = warp_max_whole(top);
        const int e = (int)~warp_max_whole(top == greatest ? ~(uint32_t)expert : 0);
        const float chosen = __shfl_sync(0xffffffffu, score, e % WARP);
        sum += chosen;
        if (lane == j) id = e, weight = chosen;
        if (lane != e % WARP) continue;
#pragma unroll
        for (int i = 0; i < N; i++) left[i] = lane + i * WARP == e ? 0 : left[i];
        look();
    }
    if (lane >= slots) return;
    weight = lane < a.used ? (a.normalise ? weight / sum : weight) * a.scale : 1.0f / (1.0f + expf(-own));
    if (seen) seen[lane] = id;
    if (!writes) return;
    a.ids[(uint64_t)row * slots + lane] = id;
    a.weights[(uint64_t)row * slots + lane] = weight;
}

#endif
