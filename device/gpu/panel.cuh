/* device/gpu/panel.cuh - activations of products: where a column lies in a panel, and NORM, which makes them of rows,
 * in a kernel of its own (rows.cu) or inside the products that read them.
 * Order of NORM's sum of squares, the same for both: lane i of NORM_LANES takes columns 4 i .. 4 i + 3, then those
 * 4 NORM_LANES further, ..., in one chain; 32 lanes combine by butterfly, and their sums, too. */
#ifndef LUCE_DEVICE_GPU_PANEL_CUH
#define LUCE_DEVICE_GPU_PANEL_CUH

#include "device/gpu/kernels.h"
#include "device/gpu/quant/tiles.cuh"

/* Byte of row n, place p in panels of `rows` rows: the form of a product's activations. */
__host__ __device__ inline uint64_t panel_place(int n, int p, int rows)
{
    return ((uint64_t)(p / 64) * rows + n) * 128 + (uint64_t)(((p % 64 / 8) ^ (n % 8)) * 16 + p % 8 * 2);
}
/* Of column k; column k + 1 (k even) follows 4 bytes behind, after those k + 2 and k + 3 (k a multiple of four). */
__host__ __device__ inline uint64_t panel_at(int n, int k, int rows)
{
    return panel_place(n, k / 64 * 64 + place_of(k % 64), rows);
}
/* Columns k and k + 1 (k even), at the byte of column k. */
__device__ inline void put_pair_at(uint8_t *at, float v0, float v1)
{
    ((__half *)at)[0] = clamped_half(v0);
    ((__half *)at)[2] = clamped_half(v1);
}
/* Columns k .. k + 3 (k a multiple of four). */
__device__ inline void put_quad_at(uint8_t *at, float4 v)
{
    put_pair_at(at, v.x, v.y);
    put_pair_at(at + 8, v.z, v.w);
}

/* ---- NORM ------------------------------------------------------------------------------------------------ */
enum { NORM_LANES = 512, NORM_QUADS = 3 };      /* quads of a lane that stay in registers */
_Static_assert((int)NORMED_COLS == 4 * (int)NORM_LANES * (int)NORM_QUADS, "rows stay in registers");
__device__ inline float square_sum(float4 v, float sum)
{
    return __fmaf_rn(v.w, v.w, __fmaf_rn(v.z, v.z, __fmaf_rn(v.y, v.y, __fmaf_rn(v.x, v.x, sum))));
}
/* What a row is multiplied by, from the sums of each 32 lanes. */
__device__ inline float norm_factor(const float *sums, int n, int cols, float eps)
{
    const int lane = threadIdx.x % WARP;
    return 1.0f / sqrtf(warp_sum(lane < n ? sums[lane] : 0.0f) / cols + eps);
}
__device__ inline float4 times_norm(float4 v, float4 w, float factor)
{
    return make_float4(v.x * factor * w.x, v.y * factor * w.y, v.z * factor * w.z, v.w * factor * w.w);
}

/* NORM inside a product's block. start: before the wait for the kernel before. fill: chunks c0 .. c0 + n - 1 of
 * n_chunks, wrapping, into the panel, for all threads; block 0 writes y. sums: room for NORMED_ROWS * NORM_WARPS. */
template <int THREADS> struct norm_inside {
    enum { APART = NORM_LANES / THREADS, QUADS = APART * NORM_QUADS, NORM_WARPS = NORM_LANES / WARP };
    float4 w[QUADS];
    int rows;                   /* of the step */
    __device__ static float4 quad(const normed &a, const float *x, int q)
    {
        const int k = 4 * ((int)threadIdx.x + q * THREADS);
        return k < a.cols ? *(const float4 *)(x + k) : make_float4(0, 0, 0, 0);
    }
    __device__ void start(const normed &a, const int32_t *n_rows)
    {
        rows = *n_rows;
#pragma unroll
        for (int q = 0; q < QUADS; q++) w[q] = quad(a, a.w, q);
    }
    __device__ void fill(const normed &a, uint8_t *panel, int c0, int n, int n_chunks, int x_rows, float *sums)
    {
        float4 v[NORMED_ROWS][QUADS];
#pragma unroll
        for (int r = 0; r < NORMED_ROWS; r++) {
            if (r >= rows) break;
#pragma unroll
            for (int q = 0; q < QUADS; q++) v[r][q] = quad(a, a.x + (uint64_t)r * a.cols, q);
        }
#pragma unroll
        for (int r = 0; r < NORMED_ROWS; r++) {
            if (r >= rows) break;
#pragma unroll
            for (int i = 0; i < APART; i++) {
                float sum = 0;
#pragma unroll
                for (int q = i; q < QUADS; q += APART) sum = square_sum(v[r][q], sum);
                sum = warp_sum(sum);
                if (threadIdx.x % WARP == 0) sums[r * NORM_WARPS + (threadIdx.x + i * THREADS) / WARP] = sum;
            }
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < NORMED_ROWS; r++) {
            if (r >= rows) break;
            const float factor = norm_factor(sums + r * NORM_WARPS, NORM_WARPS, a.cols, a.eps);
#pragma unroll
            for (int q = 0; q < QUADS; q++) {
                const int k = 4 * ((int)threadIdx.x + q * THREADS), c = k / TILE_K;
                const int at = c < c0 ? c - c0 + n_chunks : c - c0;
                const float4 out = times_norm(v[r][q], w[q], factor);
                if (c < n_chunks && at < n) put_quad_at(panel + panel_at(r, at * TILE_K + k % TILE_K, x_rows), out);
                if (a.y && blockIdx.x == 0 && k < a.cols) *(float4 *)(a.y + (uint64_t)r * a.cols + k) = out;
            }
        }
        __syncthreads();
    }
};

#endif
