/* device/gpu/linear_finish.cuh - a narrow product (linear_narrow.cuh) behind its loop: sums over warps and blocks, and
 * what becomes of them, with the NORMs before and behind it that are deferred. */
#ifndef LUCE_DEVICE_GPU_LINEAR_FINISH_CUH
#define LUCE_DEVICE_GPU_LINEAR_FINISH_CUH

#include "device/gpu/linear_shape.cuh"

/* Sums over the warps kw of a row group, in order: this warp gets registers kw, kw + KW, ... of the fragments. */
template <class S>
__device__ inline void sum_warps(const float acc[2][S::NT * 4], float v[2][S::MINE], float *reduce, int rw, int kw,
                                 int lane)
{
    enum { JOINED = S::JOINED, EACH = S::NT * 4, KW = S::KW };
    reduce += rw * KW * JOINED * WARP;
#pragma unroll
    for (int r0 = 0; r0 < 2 * EACH; r0 += JOINED) {
#pragma unroll
        for (int x = 0; x < JOINED; x++)
            reduce[(kw * JOINED + x) * WARP + lane] = acc[(r0 + x) / EACH][(r0 + x) % EACH];
        group_sync(1 + rw, KW * WARP);
#pragma unroll
        for (int m = 0; m < JOINED / KW; m++) {
            float sum = 0;
#pragma unroll
            for (int k = 0; k < KW; k++) sum += reduce[(k * JOINED + m * KW + kw) * WARP + lane];
            v[(r0 + m * KW) / EACH][(r0 + m * KW) % EACH / KW] = sum;
        }
        group_sync(1 + rw, KW * WARP);
    }
}

/* A word of a part that is not there; no sum has these bits, since what is not a number is written as another one. */
enum : uint32_t { NOT_YET = 0xffffffffu };

/* Sums over the blocks 0 .. `last` that share a band, of which this is number `nth`. Only block 0 has the whole sum
 * afterwards. */
template <class S>
__device__ inline void sum_blocks(const linear_args &a, int band, int nth, int last, float v[2][S::MINE], int warp,
                                  int lane)
{
    enum { MINE = S::MINE, V = S::VECTOR, N = 2 * MINE / V, GROUP = N < 4 ? N : 4, BATCH = GROUP > 2 ? 2 : 8 / GROUP };
    const uint64_t each = (uint64_t)a.n_bands * S::PART;
    uint32_t *const part = a.parts + (uint64_t)band * S::PART + warp * 2 * MINE * WARP + lane * V;
    if (nth > 0) {
#pragma unroll
        for (int n = 0; n < N; n++) {
            words<V> x;
#pragma unroll
            for (int e = 0; e < V; e++) {
                const uint32_t bits = __float_as_uint(v[(n * V + e) / MINE][(n * V + e) % MINE]);
                x.at[e] = bits == NOT_YET ? bits >> 1 : bits;
            }
            put_relaxed(part + nth * each + n * V * WARP, x);
        }
        return;
    }
    words<V> none, nothing = {};
#pragma unroll
    for (int e = 0; e < V; e++) none.at[e] = NOT_YET;
#pragma unroll
    for (int n0 = 0; n0 < N; n0 += GROUP)
        for (int q0 = 1; q0 <= last; q0 += BATCH) {
            words<V> got[BATCH][GROUP];             /* all at once: one round trip, not one each */
            bool all;
            do {
                all = true;
#pragma unroll
                for (int q = 0; q < BATCH; q++)
#pragma unroll
                    for (int n = 0; n < GROUP; n++)
                        got[q][n] = q0 + q > last ? nothing
                            : get_relaxed<V>(part + (q0 + q) * each + (n0 + n) * V * WARP);
#pragma unroll
                for (int q = 0; q < BATCH; q++)
#pragma unroll
                    for (int n = 0; n < GROUP; n++)
#pragma unroll
                        for (int e = 0; e < V; e++) all &= got[q][n].at[e] != NOT_YET;
                if (!all) spin_pause();
            } while (!all);
#pragma unroll
            for (int q = 0; q < BATCH; q++) {
                if (q0 + q > last) break;
#pragma unroll
                for (int n = 0; n < GROUP; n++) {
#pragma unroll
                    for (int e = 0; e < V; e++) {
                        const int at = (n0 + n) * V + e;
                        v[at / MINE][at % MINE] += __uint_as_float(got[q][n].at[e]);
                    }
                    put_relaxed(part + (q0 + q) * each + (n0 + n) * V * WARP, none);
                }
            }
        }
}

/* Where in the strip warp kw has its number m of row tile i, after the sum over warps: of the registers m KW + kw. */
template <class S> struct own {
    enum { KW = S::KW, HALVES = KW == 4 ? 1 : 2 };      /* of a row tile that a warp has, in turn */
    __device__ static int column(int m, int kw, int lane)
    {
        return group(m) * 8 + 2 * (lane % 4) + (KW == 1 ? m & 1 : kw & 1);
    }
    /* Eight columns each. */
    __device__ static int group(int m)
    {
        return m * KW / 4;
    }
    __device__ static int half(int m, int kw)
    {
        return KW == 4 ? kw >> 1 : KW == 2 ? m & 1 : m >> 1 & 1;
    }
    __device__ static int row(int m, int rw, int kw, int i, int lane)
    {
        return rw * TILE_ROWS + i * 16 + 8 * half(m, kw) + lane / 4;
    }
};
/* The residuals of this lane's outputs of a strip. */
template <class S>
__device__ inline void load_residual(const linear_args &a, int strip, float to[2][S::MINE], int rows, int rw, int kw,
                                     int lane)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int m = 0; m < S::MINE; m++) {
            const int n = own<S>::column(m, kw, lane), row = strip * STRIP + own<S>::row(m, rw, kw, i, lane);
            to[i][m] = 0;
            if (a.residual && n < rows && row < a.out_rows) to[i][m] = a.residual[(uint64_t)n * a.y_stride + row];
        }
}
/* The weights of a deferred NORM at this lane's rows of a strip, where it defers one. */
template <class S>
__device__ inline void load_norm(const linear_args &a, int strip, float to[2][own<S>::HALVES], bool on, int rw, int kw,
                                 int lane)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int m = 0; m < own<S>::HALVES; m++) {
            const int row = strip * STRIP + own<S>::row(m, rw, kw, i, lane);
            to[i][m] = on && a.norm.w && row < a.out_rows ? a.norm.w[row] : 0;
        }
}

/* ---- NORM that is deferred (struct norm_before in kernels.h) ------------------------------------------------- */
/* What rows of a step are multiplied by: sums of a product behind such a NORM; activations before one. What follows
 * from kernels before comes by bulk copies and is looked at when sums are joined. In shared memory. */
template <class S> struct row_scales {
    enum { EACH = 8 };          /* lanes that add the parts of a row: lane i parts i, i + EACH, ..., then a butterfly */
    float behind[NARROW_ROWS], before[NARROW_ROWS], sums[S::ROWS];
    uint64_t bar;
    /* One thread, before a barrier of the block. */
    __device__ void init()
    {
        bar_init(&bar, 1);
    }
    /* One thread, behind the wait for the kernel before. */
    __device__ void fetch(const linear_args &a, float *parts)
    {
        const uint32_t all = a.x_rows * a.normed.stride * 4, some = NARROW_ROWS * 4;
        if (!a.normed.sums && !a.norm.w) return;
        bar_expect(&bar, (a.normed.sums ? all + some : 0) + (a.norm.w ? some : 0));
        if (a.normed.sums) bulk_load(parts, a.normed.sums, all, &bar, false);
        if (a.normed.sums) bulk_load(behind, a.normed.before, some, &bar, false);
        if (a.norm.w) bulk_load(before, a.norm.before, some, &bar, false);
    }
    /* All threads, before a barrier of the block. */
    __device__ void find(const linear_args &a, const float *parts, int rows)
    {
        if (a.normed.sums || a.norm.w) bar_wait(&bar, 0);
        if (!a.normed.sums) return;
        const int lane = threadIdx.x % WARP;
#pragma unroll 1
        for (int n0 = threadIdx.x / WARP * (WARP / EACH); n0 < rows; n0 += S::THREADS / EACH) {
            const int n = min(n0 + lane / EACH, rows - 1);
            float sum = 0;
            for (int i = lane % EACH; i * STRIP < a.normed.cols; i += EACH) sum += parts[n * a.normed.stride + i];
#pragma unroll
            for (int i = 1; i < EACH; i *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
            const float factor = rms_factor(sum, a.normed.cols, a.normed.eps);
            if (lane % EACH) continue;
            sums[n] = factor / deferred_scale(behind[n]);
            if (a.normed.factors && blockIdx.x == 0) a.normed.factors[n] = factor;
        }
    }
    __device__ float unit(const linear_args &a, int n) const
    {
        return S::DEFERS && a.normed.sums ? a.unit * sums[n] : a.unit;
    }
};

/* ---- what becomes of sums ------------------------------------------------------------------------------------ */
/* Chunks of the next product's activations go out in whole lines, by way of shared memory. */
template <class S>
__device__ inline void store_chunks(const linear_args &a, const uint8_t *stage, int first, int step, int rows)
{
#pragma unroll 1
    for (int i = threadIdx.x; i < 2 * S::ROWS * (X_ROW / 16); i += S::THREADS) {
        const int n = i / (X_ROW / 16) % S::ROWS, s = i / (X_ROW / 16) / S::ROWS, chunk = first + s * step;
        if (n >= rows || chunk * TILE_K >= a.out_rows) continue;
        const int piece = i % (X_ROW / 16) * 16;
        *(uint4 *)(a.y_form + ((uint64_t)chunk * a.x_rows + n) * X_ROW + piece) =
            *(const uint4 *)(stage + (s * S::ROWS + n) * X_ROW + piece);
    }
}
/* What becomes of a strip's sums. */
template <class S>
__device__ inline void finish_strip(const linear_args &a, int strip, const float v[2][S::MINE],
                                    const float residual[2][S::MINE], const row_scales<S> &scales, int rows, int rw,
                                    int kw, int lane)
{
    lane = pinned(lane);        /* places are found once more, not kept in registers since load_residual */
    if (S::DEFERS && a.normed.sums) __syncthreads();
#pragma unroll
    for (int m = 0; m < S::MINE; m++) {
        const int n = own<S>::column(m, kw, lane);
        if (n >= rows) continue;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = strip * STRIP + own<S>::row(m, rw, kw, i, lane);
            if (row >= a.out_rows) continue;
            float y = v[i][m] * scales.unit(a, n);
            if (a.bias) y += a.bias[row];
            if (a.softcap > 0) y = a.softcap * tanhf(y / a.softcap);
            if (a.residual) y += residual[i][m];
            if (a.y) a.y[(uint64_t)n * a.y_stride + row] = y;
        }
    }
}

/* The same before a deferred NORM, of whose weights this lane has w. Behind a barrier of the block and before one.
 * Order of a row's sum of squares: a lane's two row tiles, lanes, slots ascending. */
template <class S>
__device__ inline void finish_normed(const linear_args &a, int strip, const float v[2][S::MINE],
                                     const float residual[2][S::MINE], const float w[2][own<S>::HALVES],
                                     const row_scales<S> &scales, uint8_t *stage, int rows, int rw, int kw, int lane)
{
    enum { HALVES = own<S>::HALVES };
    float *const slots = (float *)(stage + S::CHUNKS), *y[2][HALVES], bias[2][HALVES], square[S::MINE];
    uint8_t *to[2][HALVES];
    bool there[2][HALVES];
    lane = pinned(lane);
    const int n0 = own<S>::column(0, kw, lane);
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int m = 0; m < HALVES; m++) {
            const int at = own<S>::row(m, rw, kw, i, lane), row = strip * STRIP + at;
            y[i][m] = a.y + (int64_t)n0 * a.y_stride + row;
            to[i][m] = stage + panel_at(n0, at, S::ROWS);
            there[i][m] = row < a.out_rows;
            bias[i][m] = a.bias && there[i][m] ? a.bias[row] : 0;
        }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < S::MINE; m++) {
        const int at = own<S>::group(m), n = n0 + 8 * at;
        square[m] = 0;
        if (n >= rows) continue;
        const float unit = scales.unit(a, n), scale = deferred_scale(scales.before[n]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int h = m % HALVES;
            float out = v[i][m] * unit;
            if (a.bias) out += bias[i][h];
            out = there[i][h] ? out + residual[i][m] : 0;      /* zeros up to the end of the chunk */
            if (there[i][h]) *y[i][h] = out;
            y[i][h] += 8 * a.y_stride;
            square[m] = __fmaf_rn(out, out, square[m]);
            *(__half *)(to[i][h] + at * X_CHUNK) = clamped_half(out * scale * w[i][h]);
        }
    }
    const int first = sum_lanes(square, lane);
#pragma unroll
    for (int j = 0; j < (S::MINE + 7) / 8; j++) {
        const int m = first + j;
        slots[(2 * rw + own<S>::half(m, kw)) * S::ROWS + own<S>::column(m, kw, lane)] = square[j];
    }
    __syncthreads();
    store_chunks<S>(a, stage, 2 * strip, 1, rows);
    if ((int)threadIdx.x < rows) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < S::SLOTS; i++) sum += slots[i * S::ROWS + threadIdx.x];
        a.norm.sums[threadIdx.x * a.norm.stride + strip] = sum;
    }
    __syncthreads();
}

/* The same of gate and up: row tile 0 holds gate rows, row tile 1 the up rows of the same outputs. A strip is one chunk
 * of the next product's activations. Behind a barrier of the block and before one. */
template <class S, int EPI>
__device__ inline void finish_glu(const linear_args &a, int band, const float v[2][S::MINE],
                                  const row_scales<S> &scales, uint8_t *stage, int rows, int rw, int kw, int lane)
{
    enum { ODD = S::KW == 1 ? 2 : 1 };      /* columns of a group that a lane has */
    lane = pinned(lane);        /* places are found here, not kept in registers from the beginning on */
    const int strip = rw / ROW_WARPS * a.n_bands + band, n0 = own<S>::column(0, kw, lane);
    uint32_t to[ODD][2];        /* of stage */
    int row[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int at = rw * 16 + lane / 4 + 8 * h;
        row[h] = strip * (STRIP / 2) + at % (STRIP / 2);
#pragma unroll
        for (int e = 0; e < ODD; e++) to[e][h] = (uint32_t)panel_at(n0 + e, at, S::ROWS);
    }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < S::MINE; m++) {
        const int g = own<S>::group(m), h = own<S>::half(m, kw), n = n0 + 8 * g + m % ODD;
        if (n >= rows) continue;
        const float unit = scales.unit(a, n), gate = v[0][m] * unit, up = v[1][m] * unit;
        float y = (EPI == EPI_GLU_SILU ? act_silu(gate) : act_gelu(gate)) * up;
        if (row[h] >= a.out_rows) y = 0;
        else if (a.y) a.y[(uint64_t)n * a.y_stride + row[h]] = y;
        *(__half *)(stage + to[m % ODD][h] + g * X_CHUNK) = clamped_half(y * a.form_scale);
    }
    __syncthreads();
    if (!a.y_form) return;
    store_chunks<S>(a, stage, band, a.n_bands, rows);
    __syncthreads();
}

/* A block's part of a band is complete: its sum over warps, then over the blocks that share the band, and what becomes
 * of it, in the first of them. found: scales are. */
template <class S, int EPI>
__device__ inline void finish_band(const linear_args &a, int band, const float acc[2][S::NT * 4], row_scales<S> &scales,
                                   bool &found, uint8_t *reduce, const float *norm_sums, int rows, int rw, int kw,
                                   int lane)
{
    const int me = blockIdx.x, n_blocks = gridDim.x, units = a.n_bands * a.n_chunks;
    float v[2][S::MINE], residual[2][S::MINE], w[2][own<S>::HALVES];
    sum_warps<S>(acc, v, (float *)reduce, rw, kw, lane);
    const int b0 = unit_block(band * a.n_chunks, n_blocks, units);
    const int b1 = unit_block((band + 1) * a.n_chunks - 1, n_blocks, units);
    const bool last = me == b0;
    load_residual<S>(a, band, residual, last && EPI == EPI_STORE ? rows : 0, rw, kw, lane);
    if constexpr (EPI == EPI_STORE && S::DEFERS) load_norm<S>(a, band, w, last, rw, kw, lane);
    if (S::DEFERS && last && !found) scales.find(a, norm_sums, rows);
    found |= last;
    if (b1 > b0) sum_blocks<S>(a, band, me - b0, b1 - b0, v, threadIdx.x / WARP, lane);
    if (!last) return;
    if constexpr (EPI != EPI_STORE) {
        finish_glu<S, EPI>(a, band, v, scales, reduce, rows, rw, kw, lane);
    } else {
        if constexpr (S::DEFERS)
            if (a.norm.w) return finish_normed<S>(a, band, v, residual, w, scales, reduce, rows, rw, kw, lane);
        finish_strip<S>(a, band, v, residual, scales, rows, rw, kw, lane);
    }
}

#endif
