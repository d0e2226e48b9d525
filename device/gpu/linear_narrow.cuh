/* device/gpu/linear_narrow.cuh - products of quantised weights with 1 to 64 rows of activations.
 *
 * y[n][row] = sum_k w[row][k] x[n][k]. Weights are read once, as a stream; the limit is memory.
 * Mapping: a strip is 128 rows; a unit is one strip times 64 columns; the units, strip after strip, are
 * cut into one contiguous range a block (one block a multiprocessor), so every block reads the same
 * number of consecutive bytes. In a block, warp (rw, kw) multiplies rows 32 rw .. of the units u with
 * u % KWARPS == kw: its tiles come through its own ring in shared memory (bulk copies, STAGES ahead,
 * started before the wait for the kernel before), activations in B-fragment order from shared memory.
 * Order of the sum of one output: per kw over ascending u (k ascending within a tile by the matrix
 * instruction), then kw ascending, then blocks ascending. It depends on the weight's shape, its format
 * and the number of multiprocessors alone: never on the width, on other rows, or on timing.
 * Strips that several blocks share: each writes its part to scratch, the last to arrive sums all parts
 * in order. */
#ifndef LUCE_DEVICE_GPU_LINEAR_NARROW_CUH
#define LUCE_DEVICE_GPU_LINEAR_NARROW_CUH

#include "device/gpu/quant/tiles.cuh"

enum { STRIP = 128, ROW_WARPS = STRIP / TILE_ROWS, X_CHUNK = 1024 /* bytes of 64 columns x 8 rows */ };

/* Byte of activation (n, k) in B-fragment order, NT tiles of eight rows:
 * [k / 64][n / 8][k-step pair][lane][k-step % 2][register][half] */
__host__ __device__ inline uint64_t x_at(int n, int k, int nt)
{
    int s = k % 64 / 16, r = k % 16 / 8, t = k % 8 / 2, e = k & 1, lane = n % 8 * 4 + t;
    return (uint64_t)(k / 64) * nt * X_CHUNK + n / 8 * X_CHUNK + s / 2 * 512 + lane * 16 + s % 2 * 8 + r * 4 + e * 2;
}

enum epilogue { EPI_STORE, EPI_GLU_SILU, EPI_GLU_GELU };

struct linear_args {
    const uint8_t *tiles;       /* packed weights: [strip][k / 64][rw] tiles */
    const uint8_t *x;           /* activations, B-fragment order */
    float *y;                   /* [n][y_stride] f32, or NULL */
    uint8_t *y_frag;            /* activations of the next product (B-fragment order), or NULL */
    const float *residual;      /* [n][y_stride], or NULL */
    const float *bias;          /* [rows], or NULL */
    float *parts;               /* scratch of shared strips */
    uint32_t *arrived;          /* a counter per (strip, rw), 0 between launches */
    const int32_t *n_rows;      /* rows of the step in use */
    int n_chunks, n_strips;     /* columns / 64, rows / 128, rounded up */
    int out_rows, y_stride;     /* rows of the output that exist */
    float unit;                 /* undoes the weights' power of two */
    float softcap;
    float frag_scale;           /* power of two applied to y_frag */
    const uint8_t *next;        /* what the next product will read: its first bytes go to L2 */
    uint32_t next_bytes;        /* a block */
};

__device__ inline float act_silu(float x)
{
    return x / (1.0f + __expf(-x));
}
__device__ inline float act_gelu(float x)
{
    float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return x / (1.0f + __expf(-2.0f * u));      /* 0.5 x (1 + tanh u) */
}

/* First unit of block b of n blocks over `units`. */
__host__ __device__ inline int unit_begin(int b, int n, int units)
{
    return (int)((int64_t)b * units / n);
}
__host__ __device__ inline int unit_block(int u, int n, int units)
{
    return (int)((((int64_t)u + 1) * n - 1) / units);
}

/* Shared memory of a launch: barriers, table, rings, activations (panel), reduction. */
template <class F, int NT> struct linear_shape {
    enum {
        WARPS = ROW_WARPS * F::KWARPS,          /* that multiply; one more feeds the ring */
        THREADS = (WARPS + 1) * WARP,
        UNIT = ROW_WARPS * F::TILE,
        STAGES = 72 * 1024 / UNIT,              /* units in flight */
        RING = STAGES * UNIT,
        /* One row tile at a time: [kw][rw][register][lane] */
        REDUCE = F::KWARPS * ROW_WARPS * NT * 4 * WARP * 4,
        HEAD = 1024,            /* barriers */
        FIXED = HEAD + RING + REDUCE + F::LUT,
        LIMIT = 227 * 1024,
        PANEL = (LIMIT - FIXED) / (NT * X_CHUNK),       /* chunks of activations that fit */
    };
};

template <class F, int NT, int EPI>
__global__ void __launch_bounds__(linear_shape<F, NT>::THREADS, 1) linear_narrow(linear_args a)
{
    typedef linear_shape<F, NT> shape;
    extern __shared__ __align__(1024) uint8_t shared[];
    /* The table, when there is one, comes first: its 32 KB must not cross a 32 KB border. */
    uint32_t *lut = (uint32_t *)shared;
    uint8_t *ring_all = shared + F::LUT, *reduce_all = ring_all + shape::RING;
    uint64_t *bars = (uint64_t *)(reduce_all + shape::REDUCE);
    uint8_t *panel = (uint8_t *)bars + shape::HEAD;

    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int rw = warp % ROW_WARPS, kw = warp / ROW_WARPS;
    const int units = a.n_strips * a.n_chunks;
    const int u0 = unit_begin(blockIdx.x, gridDim.x, units), u1 = unit_begin(blockIdx.x + 1, gridDim.x, units);
    uint64_t *full = bars + 2, *empty = full + shape::STAGES;

    if (threadIdx.x == 0) {
        bar_init(&bars[0], 1);
        for (int i = 0; i < shape::STAGES; i++) bar_init(&full[i], 1), bar_init(&empty[i], ROW_WARPS);
        bar_fence();
    }
    __syncthreads();
    launch_dependents();
    if (warp == shape::WARPS) {         /* the feeder: weights do not depend on the kernel before */
        if (lane == 0) {
            for (int u = u0; u < u1; u++) {
                const int slot = (u - u0) % shape::STAGES, turn = (u - u0) / shape::STAGES;
                if (turn > 0) bar_wait(&empty[slot], (turn - 1) & 1);
                bar_expect(&full[slot], shape::UNIT);
                bulk_load(ring_all + slot * shape::UNIT, a.tiles + (uint64_t)u * shape::UNIT, shape::UNIT,
                          &full[slot], true);
            }
            if (a.next_bytes) bulk_prefetch(a.next + (uint64_t)blockIdx.x * a.next_bytes, a.next_bytes);
        }
        return;
    }
    typename F::regs regs;
    if constexpr (F::LUT > 0) {
        F::fill(lut);
        regs.lut = (const uint8_t *)lut;
        regs.column = lane * 4;
    }
    wait_predecessor();

    /* Activations: all that the block needs when they fit (resident), else panel after panel. */
    const int want = u1 - u0 < a.n_chunks ? u1 - u0 : a.n_chunks;
    const bool resident = want <= shape::PANEL;
    const int panel_units = resident ? u1 - u0 : shape::PANEL;
    const bool whole = want == a.n_chunks;
    const int c0 = u0 % a.n_chunks;
    if constexpr (F::LUT > 0) group_sync(14, shape::WARPS * WARP);
    uint32_t panel_parity = 0;

    float acc[2][NT][4];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int r = 0; r < 4; r++) acc[i][j][r] = 0;

    int mine = u0 + ((kw - u0) % F::KWARPS + F::KWARPS) % F::KWARPS;      /* this warp's next unit */
    for (int p0 = u0; p0 < u1; p0 += panel_units) {
        const int p1 = p0 + panel_units < u1 ? p0 + panel_units : u1;
        if (p0 != u0) group_sync(15, shape::WARPS * WARP);      /* everyone is done with the panel */
        if (threadIdx.x == 0) {
            int n = resident ? want : p1 - p0, from = resident && whole ? 0 : p0 % a.n_chunks;
            bar_expect(&bars[0], (uint32_t)n * NT * X_CHUNK);
            for (int done = 0; done < n;) {
                int c = (from + done) % a.n_chunks, run = a.n_chunks - c < n - done ? a.n_chunks - c : n - done;
                for (int k = 0; k < run; k += 16) {
                    int part = run - k < 16 ? run - k : 16;
                    bulk_load(panel + (done + k) * NT * X_CHUNK, a.x + (uint64_t)(c + k) * NT * X_CHUNK,
                              (uint32_t)part * NT * X_CHUNK, &bars[0], false);
                }
                done += run;
            }
        }
        bar_wait(&bars[0], panel_parity);
        panel_parity ^= 1;

        for (int s0 = p0; s0 < p1;) {
            const int strip = s0 / a.n_chunks, strip_end = (strip + 1) * a.n_chunks;
            const int s1 = strip_end < p1 ? strip_end : p1;
            for (; mine < s1; mine += F::KWARPS) {
                const int slot = (mine - u0) % shape::STAGES;
                bar_wait(&full[slot], (mine - u0) / shape::STAGES & 1);
                F::load(regs, ring_all + slot * shape::UNIT + rw * F::TILE, lane);
                const int c = mine - strip * a.n_chunks;
                int at = !resident ? mine - p0 : whole ? c : c - c0 + (c < c0 ? a.n_chunks : 0);
                const uint4 *b = (const uint4 *)(panel + at * NT * X_CHUNK) + lane;
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    uint32_t f[2][2][4];        /* [i][s % 2] */
                    if (h == 0) {
                        F::template frag<0, 0>(regs, f[0][0]), F::template frag<0, 1>(regs, f[0][1]);
                        F::template frag<1, 0>(regs, f[1][0]), F::template frag<1, 1>(regs, f[1][1]);
                    } else {
                        F::template frag<0, 2>(regs, f[0][0]), F::template frag<0, 3>(regs, f[0][1]);
                        F::template frag<1, 2>(regs, f[1][0]), F::template frag<1, 3>(regs, f[1][1]);
                    }
#pragma unroll
                    for (int j = 0; j < NT; j++) {
                        uint4 x = b[j * 64 + h * 32];
                        mma_f16(acc[0][j], f[0][0], x.x, x.y);
                        mma_f16(acc[1][j], f[1][0], x.x, x.y);
                        mma_f16(acc[0][j], f[0][1], x.z, x.w);
                        mma_f16(acc[1][j], f[1][1], x.z, x.w);
                    }
                }
                __syncwarp();
                if (lane == 0) bar_arrive(&empty[slot]);
            }
            s0 = s1;
            if (s1 < strip_end && s1 < u1) break;       /* the strip goes on in the next panel */

            /* The block's part of this strip is complete: sum over kw, then over blocks. */
            float v[2][(NT * 4 + F::KWARPS - 1) / F::KWARPS];
            enum { MINE = NT * 4 / F::KWARPS };
            float *reduce = (float *)reduce_all + rw * F::KWARPS * NT * 4 * WARP;
#pragma unroll
            for (int i = 0; i < 2; i++) {
#pragma unroll
                for (int j = 0; j < NT; j++)
#pragma unroll
                    for (int r = 0; r < 4; r++) {
                        reduce[(kw * NT * 4 + j * 4 + r) * WARP + lane] = acc[i][j][r];
                        acc[i][j][r] = 0;
                    }
                group_sync(1 + rw, F::KWARPS * WARP);
                /* This warp finishes registers kw, kw + KWARPS, ... */
#pragma unroll
                for (int m = 0; m < MINE; m++) {
                    float sum = 0;
#pragma unroll
                    for (int k = 0; k < F::KWARPS; k++)
                        sum += reduce[(k * NT * 4 + m * F::KWARPS + kw) * WARP + lane];
                    v[i][m] = sum;
                }
                group_sync(1 + rw, F::KWARPS * WARP);
            }
            const int b0 = unit_block(strip * a.n_chunks, gridDim.x, units);
            const int b1 = unit_block(strip_end - 1, gridDim.x, units);
            bool finish = true;
            if (b1 > b0) {
                const uint64_t each = (uint64_t)a.n_strips * ROW_WARPS * 2 * NT * 4 * WARP;
                float *part = a.parts + ((uint64_t)strip * ROW_WARPS + rw) * 2 * NT * 4 * WARP + lane;
#pragma unroll
                for (int i = 0; i < 2; i++)
#pragma unroll
                    for (int m = 0; m < MINE; m++)
                        __stcg(part + (blockIdx.x - b0) * each + (i * NT * 4 + m * F::KWARPS + kw) * WARP, v[i][m]);
                __threadfence();
                group_sync(1 + rw, F::KWARPS * WARP);
                uint32_t *flag = (uint32_t *)(bars + 120) + rw;
                if (kw == 0 && lane == 0) {
                    uint32_t n = atomicAdd(a.arrived + strip * ROW_WARPS + rw, 1);
                    if (n == (uint32_t)(b1 - b0)) a.arrived[strip * ROW_WARPS + rw] = 0;
                    *flag = n;
                }
                group_sync(1 + rw, F::KWARPS * WARP);
                finish = *flag == (uint32_t)(b1 - b0);
                if (finish) {
                    __threadfence();
#pragma unroll
                    for (int i = 0; i < 2; i++)
#pragma unroll
                        for (int m = 0; m < MINE; m++) v[i][m] = 0;
                    for (int q = 0; q <= b1 - b0; q++)
#pragma unroll
                        for (int i = 0; i < 2; i++)
#pragma unroll
                            for (int m = 0; m < MINE; m++)
                                v[i][m] += __ldcg(part + q * each + (i * NT * 4 + m * F::KWARPS + kw) * WARP);
                }
            }
            if (finish) {
                const int g = lane / 4, t = lane % 4, rows = *a.n_rows;
#pragma unroll
                for (int m = 0; m < MINE; m++) {
                    const int reg = m * F::KWARPS + kw, j = reg / 4, r = reg % 4;
                    const int n = j * 8 + 2 * t + (r & 1), in_tile = g + 8 * (r >> 1);
                    if (n >= rows) continue;
                    if (EPI == EPI_STORE) {
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                            const int row = strip * STRIP + rw * TILE_ROWS + i * 16 + in_tile;
                            if (row >= a.out_rows) continue;
                            float y = v[i][m] * a.unit;
                            if (a.bias) y += a.bias[row];
                            if (a.softcap > 0) y = a.softcap * tanhf(y / a.softcap);
                            if (a.residual) y += a.residual[(uint64_t)n * a.y_stride + row];
                            if (a.y) a.y[(uint64_t)n * a.y_stride + row] = y;
                        }
                    } else {
                        /* Row tile 0 holds gate rows, row tile 1 the up rows of the same outputs. */
                        const int row = strip * (STRIP / 2) + rw * 16 + in_tile;
                        if (row >= a.out_rows) continue;
                        float gate = v[0][m] * a.unit, up = v[1][m] * a.unit;
                        float y = (EPI == EPI_GLU_SILU ? act_silu(gate) : act_gelu(gate)) * up;
                        if (a.y) a.y[(uint64_t)n * a.y_stride + row] = y;
                        if (a.y_frag) {
                            float h = fminf(fmaxf(y * a.frag_scale, -65504.0f), 65504.0f);
                            *(__half *)(a.y_frag + x_at(n, row, NT)) = __float2half_rn(h);
                        }
                    }
                }
            }
        }
    }
}

#endif
