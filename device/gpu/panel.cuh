/* device/gpu/panel.cuh - activations of products: where a column lies in a panel, and what makes them of rows, in
 * kernels of their own (rows.cu) or inside the products that read them.
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

/* a / b for 0 <= a < 2^21 and b > 0: the half keeps the quotient off whole numbers by more than its error. */
__device__ inline int quotient(int a, int b)
{
    return (int)__fdividef((float)a + 0.5f, (float)b);
}

/* ---- NORM ------------------------------------------------------------------------------------------------ */
enum { NORM_LANES = 512, NORM_QUADS = 3 };      /* quads of a lane that stay in registers */
_Static_assert((int)MADE_COLS == 4 * (int)NORM_LANES * (int)NORM_QUADS, "rows stay in registers");
__device__ inline float square_sum(float4 v, float sum)
{
    return __fmaf_rn(v.w, v.w, __fmaf_rn(v.z, v.z, __fmaf_rn(v.y, v.y, __fmaf_rn(v.x, v.x, sum))));
}
/* What n numbers with such a sum of squares are multiplied by. */
__device__ inline float rms_factor(float sum, int n, float eps)
{
    return 1.0f / sqrtf(sum / n + eps);
}
/* What a row is multiplied by, from the sums of each 32 lanes. */
__device__ inline float norm_factor(const float *sums, int n, int cols, float eps)
{
    const int lane = threadIdx.x % WARP;
    return rms_factor(warp_sum(lane < n ? sums[lane] : 0.0f), cols, eps);
}
/* The power of two for the activations of a deferred NORM (kernels.h), by the row's factor at the NORM before: an
 * element of usual size becomes some 2^-5, so that f16 takes rows that have grown 2^9 times and hold one element alone,
 * or have shrunk 2^8 times, and what small elements lose does not count beside the large ones. */
__device__ inline float deferred_scale(float before)
{
    return __uint_as_float(__float_as_uint(before) & 0x7f800000u) * 0x1p-5f;
}
__device__ inline float4 times_norm(float4 v, float4 w, float factor)
{
    return make_float4(v.x * factor * w.x, v.y * factor * w.y, v.z * factor * w.z, v.w * factor * w.w);
}

/* ---- GATED: a warp a head; lane i has columns 2 i, 2 i + 1, then those 64 further, ... --------------------------- */
enum { GATED_PAIRS = 4, GATED_COLS = 2 * WARP * GATED_PAIRS };  /* pairs of a lane that stay in registers */
_Static_assert((int)MADE_HEAD == (int)GATED_COLS, "heads stay in registers");
__device__ inline float square_sum(float2 v, float sum)
{
    return __fmaf_rn(v.y, v.y, __fmaf_rn(v.x, v.x, sum));
}
__device__ inline float gate_of(float z, bool silu)
{
    return (silu ? z : 1.0f) / __fadd_rn(1.0f, expf(-z));
}

/* ---- both inside a product's block, of one row ----------------------------------------------------------- */
/* Chunks first .. first + n - 1 of `all`, wrapping, in a panel of one row. */
struct panel_part {
    uint8_t *at;
    uint32_t first, n, all;
    __device__ uint32_t place(uint32_t chunk) const
    {
        return chunk < first ? chunk - first + all : chunk - first;
    }
    __device__ bool has(uint32_t chunk) const
    {
        return chunk < all && place(chunk) < n;
    }
    /* Whether one of chunks low .. high is here. */
    __device__ bool meets(uint32_t low, uint32_t high) const
    {
        return place(low) < n || place(low) + high - low >= all;
    }
    /* Column k, of a chunk that is here. */
    __device__ uint8_t *column(uint32_t k) const
    {
        return at + place(k / TILE_K) * (TILE_K * 2) + place_of(k % TILE_K) * 2;
    }
};
/* start: before the wait for the kernel before. fill: the panel's part, for all threads; block 0 writes y.
 * sums: room for NORM_WARPS. */
template <int THREADS> struct maker {
    enum { APART = NORM_LANES / THREADS, QUADS = APART * NORM_QUADS, NORM_WARPS = NORM_LANES / WARP };
    float4 w[QUADS];            /* of GATED: pairs */
    __device__ static float4 quad(const made &a, const float *x, int q)
    {
        const int k = 4 * ((int)threadIdx.x + q * THREADS);
        return k < a.cols ? *(const float4 *)(x + k) : make_float4(0, 0, 0, 0);
    }
    __device__ static float2 pair(const made &a, const float *x, int i)
    {
        const int c = 2 * ((int)threadIdx.x % WARP + i * WARP);
        return c < a.dim ? *(const float2 *)(x + c) : make_float2(0, 0);
    }
    __device__ void start(const made &a)
    {
        if (a.by == MADE_BY_NORM) {
#pragma unroll
            for (int q = 0; q < QUADS; q++) w[q] = quad(a, a.w, q);
        } else if (a.w) {
#pragma unroll
            for (int i = 0; i < GATED_PAIRS / 2; i++) {
                const float2 low = pair(a, a.w, 2 * i), high = pair(a, a.w, 2 * i + 1);
                w[i] = make_float4(low.x, low.y, high.x, high.y);
            }
        }
    }
    __device__ void norm(const made &a, const panel_part &to, float *sums) const
    {
        float4 v[QUADS];
#pragma unroll
        for (int q = 0; q < QUADS; q++) v[q] = quad(a, a.x, q);
#pragma unroll
        for (int i = 0; i < APART; i++) {
            float sum = 0;
#pragma unroll
            for (int q = i; q < QUADS; q += APART) sum = square_sum(v[q], sum);
            sum = warp_sum(sum);
            if (threadIdx.x % WARP == 0) sums[(threadIdx.x + i * THREADS) / WARP] = sum;
        }
        __syncthreads();
        const float factor = norm_factor(sums, NORM_WARPS, a.cols, a.eps);
#pragma unroll
        for (int q = 0; q < QUADS; q++) {
            const int k = 4 * ((int)threadIdx.x + q * THREADS);
            const float4 out = times_norm(v[q], w[q], factor);
            if (to.has(k / TILE_K)) put_quad_at(to.column(k), out);
            if (a.y && blockIdx.x == 0 && k < a.cols) *(float4 *)(a.y + k) = out;
        }
    }
    /* A warp a head that meets the part. */
    __device__ void gated(const made &a, const panel_part &to) const
    {
        const uint32_t heads = quotient(a.cols, a.dim), lane = threadIdx.x % WARP;
#pragma unroll 1
        for (uint32_t head = threadIdx.x / WARP; head < heads; head += THREADS / WARP) {
            const uint32_t k0 = head * a.dim;
            if (!to.meets(k0 / TILE_K, (k0 + a.dim - 1) / TILE_K)) continue;
            const float *x = a.x + k0, *gate = a.gate + a.at + head * a.stride;
            float2 v[GATED_PAIRS], z[GATED_PAIRS];
            float sum = 0, factor = 1;
#pragma unroll
            for (int j = 0; j < GATED_PAIRS; j++) v[j] = pair(a, x, j), z[j] = pair(a, gate, j);
#pragma unroll
            for (int j = 0; j < GATED_PAIRS; j++) sum = square_sum(v[j], sum);
            if (a.w) factor = rms_factor(warp_sum(sum), a.dim, a.eps);
#pragma unroll
            for (int j = 0; j < GATED_PAIRS; j++) {
                const uint32_t c = 2 * (lane + j * WARP), k = k0 + c;
                if (c >= (uint32_t)a.dim || !to.has(k / TILE_K)) continue;
                if (a.w) {
                    v[j].x = v[j].x * factor * (j % 2 ? w[j / 2].z : w[j / 2].x);
                    v[j].y = v[j].y * factor * (j % 2 ? w[j / 2].w : w[j / 2].y);
                }
                put_pair_at(to.column(k), v[j].x * gate_of(z[j].x, a.silu), v[j].y * gate_of(z[j].y, a.silu));
            }
        }
        const uint32_t k = a.cols + 2 * threadIdx.x;       /* zeros behind the columns */
        if (k < to.all * TILE_K && to.has(to.all - 1)) put_pair_at(to.column(k), 0, 0);
    }
    __device__ void fill(const made &a, const panel_part &to, float *sums) const
    {
        if (a.by == MADE_BY_NORM) norm(a, to, sums);
        else gated(a, to);
        __syncthreads();
    }
};

#endif
