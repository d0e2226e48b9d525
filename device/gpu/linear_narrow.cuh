/* device/gpu/linear_narrow.cuh - products of quantised weights with 1 to 64 rows of activations.
 *
 * y[n][row] = sum_k w[row][k] x[n][k]. Weights are read once, as a stream; the limit is memory.
 * Mapping: a strip is 128 rows; a unit is what a block multiplies at a time (a band: below) times 64 columns;
 * the units are cut into one contiguous range a block (one block a multiprocessor), so every block reads the same
 * number of bytes, from one strip on to the next. What a block takes at a time is a band: a strip; or, of gate and up,
 * which are large, two, so that activations are read less often: n_bands apart, so that each warp reads on from one
 * strip to the next.
 * In a block, warp (rw, kw) multiplies rows 32 rw .. of the units u with u % KW == kw: its tiles come through its own
 * ring in shared memory (asynchronous copies, STAGES - 1 ahead, started before the wait for the kernel before),
 * activations in panels from shared memory. From GROUP_FROM column tiles on, the warps of a kw multiply together where
 * the card has products of warp groups: their sums have the same bits as the matrix instruction's.
 * Order of the sum of one output: per kw over ascending u (k ascending within a tile by the matrix
 * instruction), then kw ascending, then blocks ascending. It depends on the weight's shape, its format
 * and the number of multiprocessors alone: never on the width, on other rows, or on timing.
 * Strips that several blocks share: every block but the first writes its part to scratch, which holds NOT_YET until
 * then; the first block, which comes to the strip at the end of its range, reads until every word is something else,
 * sums in order, and puts NOT_YET back. No fences: each word says for itself that it is there. All blocks run at once
 * (one a multiprocessor), so nobody waits for a block not started.
 * Activations that do not fit come panel after panel into two halves of shared memory. */
#ifndef LUCE_DEVICE_GPU_LINEAR_NARROW_CUH
#define LUCE_DEVICE_GPU_LINEAR_NARROW_CUH

#include "device/gpu/panel.cuh"
#include "device/gpu/wgmma.cuh"

enum { STRIP = 128, ROW_WARPS = STRIP / TILE_ROWS, X_ROW = 128 /* bytes of 64 columns */, X_CHUNK = 8 * X_ROW,
       GROUP_FROM = 4 };

enum epilogue { EPI_STORE, EPI_GLU_SILU, EPI_GLU_GELU };

struct linear_args {
    const uint8_t *tiles;       /* packed weights: [strip][k / 64][rw] tiles */
    const uint8_t *x;           /* activations, panels of x_rows rows */
    float *y;                   /* [n][y_stride] f32, or NULL */
    uint8_t *y_form;            /* activations of the next product, in panels of x_rows rows, or NULL */
    const float *residual;      /* [n][y_stride], or NULL */
    const float *bias;          /* [rows], or NULL */
    uint32_t *parts;            /* scratch of shared strips: f32, or NOT_YET */
    const int32_t *n_rows;      /* rows of the step in use */
    int n_chunks, n_strips;     /* columns / 64, rows / 128, rounded up */
    int n_bands;
    int x_rows;                 /* 1, 2, 4 or 8 NT; more: grid.y passes of 8 NT */
    int fit;                    /* bytes of activations that fit in shared memory */
    int out_rows, y_stride;     /* rows of the output that exist */
    float unit;                 /* undoes the weights' power of two */
    float softcap;
    float form_scale;           /* power of two applied to y_form */
    enum { MAKES = 0 };
};
/* Of one row that the blocks make themselves: x is not read. */
struct linear_made_args : linear_args {
    made make;
    enum { MAKES = 1 };
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

/* First unit of block b of n blocks over `units`. Their product stays below 2^32 up to 10^11 weights. */
__host__ __device__ inline int unit_begin(int b, int n, int units)
{
    return (int)((uint32_t)b * (uint32_t)units / (uint32_t)n);
}
__host__ __device__ inline int unit_block(int u, int n, int units)
{
    return (int)((((uint32_t)u + 1) * (uint32_t)n - 1) / (uint32_t)units);
}

/* Blocks for a matrix: the multiprocessors, but a strip by no more than SHARES blocks, since one of them sums the
 * parts of all, each with work for all its warps, and as few as take no longer: warps go through whole tiles. */
enum { SHARES = 16 };
__host__ __device__ inline int product_blocks(int n_strips, int n_chunks, int k_warps, int n_units)
{
    const int each = n_chunks / k_warps < SHARES ? n_chunks / k_warps : SHARES;
    const int most = n_strips * (each > 1 ? each : 1), n = n_units < most ? n_units : most;
    const int units = n_strips * n_chunks, turns = ((units + n - 1) / n + k_warps - 1) / k_warps;
    return (units + k_warps * turns - 1) / (k_warps * turns);
}

/* Shared memory of a launch: table, rings, reduction, activations (panel). SMALL: for cards whose blocks have less of
 * it, which are those with less to read a multiprocessor, too: rings of one tile. */
template <class F, int NT_, bool SMALL, bool PAIR> struct linear_shape {
    typedef F format;
    enum {
        NT = NT_,
        STRIPS = PAIR ? 2 : 1,          /* of a band */
        ROWS_W = ROW_WARPS * STRIPS,    /* warps beside each other in rows, */
        KW = F::KWARPS / STRIPS,        /* and in columns */
        WARPS = ROWS_W * KW,
        THREADS = WARPS * WARP,
        MINE = NT * 4 / KW,             /* sums of a lane in each of its two row tiles, joined over kw */
        ROOM = NT == 1 ? (F::LUT > 0 ? 78 : 110) * 1024 : NT == 2 ? 80 * 1024 : 64 * 1024,
        LEAST_STAGES = NT < 8 || F::PANELS ? 3 : 2,
        STAGES = SMALL ? 1 : ROOM / (WARPS * F::TILE) < LEAST_STAGES ? LEAST_STAGES : ROOM / (WARPS * F::TILE),
        RING = WARPS * STAGES * F::TILE,
        JOINED = SMALL ? 4 : 8,         /* sums of a lane that are joined at a time */
        SUMS = WARPS * JOINED * WARP * 4,               /* [rw][kw][sum][lane], */
        OUTPUT = PAIR ? NT * X_CHUNK * STRIPS : 0,      /* or what becomes of them: chunks of the next product */
        REDUCE = SUMS > OUTPUT ? SUMS : OUTPUT,
        FIXED = (F::LUT + RING + REDUCE + 128 + 1023) / 1024 * 1024,
        LEAST = FIXED + KW * NT * X_CHUNK,      /* with a chunk of activations for each warp of a row group */
        VECTOR = 2 * MINE < 4 ? 2 * MINE : 4,   /* words that a lane writes at a time into a part */
        PART = WARPS * 2 * MINE * WARP,         /* words of a part */
    };
};
/* A card's code holds one of the two shapes and leaves the other kernels empty. */
template <bool SMALL> __device__ constexpr bool shape_here()
{
    return EVERY_SHAPE || SMALL != HAS_LARGE_SHARED;
}

template <int NT> __device__ inline void clear(float acc[2][NT * 4])
{
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int r = 0; r < NT * 4; r++) acc[i][r] = 0;
}
/* Where lane finds its row of a matrix load in a chunk of activations of x_rows rows; beyond them the rows are
 * those before once more: nobody reads the columns that come of it. */
__device__ inline uint32_t lane_in_chunk(int lane, int x_rows)
{
    const int n = lane % 8 % x_rows;
    return n * X_ROW + ((lane / 8) ^ n) * 16;
}
/* A tile's k-steps 2 H and 2 H + 1 with all columns. b: this lane's place in the chunk. */
template <class F, int NT, int H>
__device__ inline void multiply(float acc[2][NT * 4], const typename F::regs &regs, shared_t b)
{
    uint32_t f[2][2][4];
    F::template frag<0, 2 * H>(regs, f[0][0]), F::template frag<0, 2 * H + 1>(regs, f[0][1]);
    F::template frag<1, 2 * H>(regs, f[1][0]), F::template frag<1, 2 * H + 1>(regs, f[1][1]);
#pragma unroll
    for (int j = 0; j < NT; j++) {
        uint32_t x[4];
        load_matrices(x, b + j * X_CHUNK);
        mma_f16(&acc[0][4 * j], f[0][0], x[0], x[1]);
        mma_f16(&acc[1][4 * j], f[1][0], x[0], x[1]);
        mma_f16(&acc[0][4 * j], f[0][1], x[2], x[3]);
        mma_f16(&acc[1][4 * j], f[1][1], x[2], x[3]);
    }
}
/* k-step S by the four warps of a warp group: one instruction for the group's 64 rows of a row tile i. */
template <class F, int NT, int S>
__device__ inline void multiply_step(float (&acc)[2][NT * 4], uint32_t (&f)[2][4], const typename F::regs &regs,
                                     uint64_t x)
{
    if (S >= 2) {               /* f is free: the products of step S - 2 are done */
        wgmma_wait<1>();
    }
    F::template frag<0, S>(regs, f[0]), F::template frag<1, S>(regs, f[1]);
    wgmma_ready(f[0]), wgmma_ready(f[1]);
    wgmma_begin();
    wgmma_rows<NT>(acc[0], f[0], x + 2 * S);
    wgmma_rows<NT>(acc[1], f[1], x + 2 * S);
    wgmma_commit();
}

/* A tile with its chunk of activations; `lane_at` of lane_in_chunk. */
template <class F, int NT>
__device__ inline void multiply_tile(float (&acc)[2][NT * 4], const typename F::regs &regs, shared_t chunk,
                                     uint32_t lane_at)
{
    if constexpr (HAS_WARPGROUP_MMA && NT >= GROUP_FROM) {
        const uint64_t x = wgmma_operand(chunk, 0);
        uint32_t f[2][2][4];
        multiply_step<F, NT, 0>(acc, f[0], regs, x), multiply_step<F, NT, 1>(acc, f[1], regs, x);
        multiply_step<F, NT, 2>(acc, f[0], regs, x), multiply_step<F, NT, 3>(acc, f[1], regs, x);
        wgmma_wait<0>();
        wgmma_own(acc[0]), wgmma_own(acc[1]);
    } else {
        multiply<F, NT, 0>(acc, regs, chunk + lane_at);
        if (NT > 4 && F::IN_REGISTERS) __syncwarp();    /* or later loads come early and sums leave registers */
        multiply<F, NT, 1>(acc, regs, chunk + (lane_at ^ 64));
    }
}

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

/* Output row of register reg of row tile i, and its column. */
__device__ inline int sum_row(int strip, int rw, int i, int reg, int lane)
{
    return strip * STRIP + rw * TILE_ROWS + i * 16 + lane / 4 + 8 * (reg >> 1 & 1);
}
__device__ inline int sum_column(int reg, int lane)
{
    return reg / 4 * 8 + 2 * (lane % 4) + (reg & 1);
}

/* The residuals of this lane's outputs of a strip. */
template <class S>
__device__ inline void load_residual(const linear_args &a, int strip, float to[2][S::MINE], int rows, int rw, int kw,
                                     int lane)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int m = 0; m < S::MINE; m++) {
            const int reg = m * S::KW + kw, n = sum_column(reg, lane), row = sum_row(strip, rw, i, reg, lane);
            to[i][m] = 0;
            if (a.residual && n < rows && row < a.out_rows) to[i][m] = a.residual[(uint64_t)n * a.y_stride + row];
        }
}
/* What becomes of a strip's sums. */
template <class S>
__device__ inline void finish_strip(const linear_args &a, int strip, const float v[2][S::MINE],
                                   const float residual[2][S::MINE], int rows, int rw, int kw, int lane)
{
#pragma unroll
    for (int m = 0; m < S::MINE; m++) {
        const int reg = m * S::KW + kw, n = sum_column(reg, lane);
        if (n >= rows) continue;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = sum_row(strip, rw, i, reg, lane);
            if (row >= a.out_rows) continue;
            float y = v[i][m] * a.unit;
            if (a.bias) y += a.bias[row];
            if (a.softcap > 0) y = a.softcap * tanhf(y / a.softcap);
            if (a.residual) y += residual[i][m];
            if (a.y) a.y[(uint64_t)n * a.y_stride + row] = y;
        }
    }
}
/* The same of gate and up: row tile 0 holds gate rows, row tile 1 the up rows of the same outputs. A strip is one chunk
 * of the next product's activations: they go out in whole lines, by way of shared memory, behind a barrier of the block
 * and before one. */
template <class S, int EPI>
__device__ inline void finish_glu(const linear_args &a, int band, const float v[2][S::MINE], uint8_t *stage,
                                  int rows, int rw, int kw, int lane)
{
    const int strip = rw / ROW_WARPS * a.n_bands + band;
    lane = pinned(lane);        /* places are found here, not kept in registers from the beginning on */
    __syncthreads();
#pragma unroll
    for (int m = 0; m < S::MINE; m++) {
        const int reg = m * S::KW + kw, n = sum_column(reg, lane);
        if (n >= rows) continue;
        const int at = rw * 16 + lane / 4 + 8 * (reg >> 1 & 1), row = strip * (STRIP / 2) + at % (STRIP / 2);
        const float gate = v[0][m] * a.unit, up = v[1][m] * a.unit;
        float y = (EPI == EPI_GLU_SILU ? act_silu(gate) : act_gelu(gate)) * up;
        if (row >= a.out_rows) y = 0;
        else if (a.y) a.y[(uint64_t)n * a.y_stride + row] = y;
        *(__half *)(stage + panel_at(n, at, 8 * S::NT)) = clamped_half(y * a.form_scale);
    }
    __syncthreads();
    if (!a.y_form) return;
    for (int i = threadIdx.x; i < S::STRIPS * rows * (X_ROW / 16); i += S::THREADS) {
        const int n = i / (X_ROW / 16) % rows, s = i / (X_ROW / 16) / rows;
        const int chunk = s * a.n_bands + band;
        if (chunk * TILE_K >= a.out_rows) break;
        const int piece = i % (X_ROW / 16) * 16;
        *(uint4 *)(a.y_form + ((uint64_t)chunk * a.x_rows + n) * X_ROW + piece) =
            *(const uint4 *)(stage + (s * 8 * S::NT + n) * X_ROW + piece);
    }
    __syncthreads();
}

/* Starts the copy of n chunks of activations from chunk c0 on, wrapping with the columns; it ends on bar. */
template <int THREADS>
__device__ inline void load_chunks(const linear_args &a, uint8_t *to, uint32_t chunk, int c0, int n, uint64_t *bar)
{
    const uint32_t step = a.x_rows * X_ROW;
#if HAS_BULK_COPY
    if (threadIdx.x != 0) return;
    const int most = step == chunk ? 16384 / chunk : 1;     /* 16 KB a copy: several at a time */
    bar_expect(bar, n * chunk);
    for (int done = 0; done < n;) {
        int c = (c0 + done) % a.n_chunks, run = min(min(a.n_chunks - c, n - done), most);
        bulk_load(to + done * chunk, a.x + (uint64_t)c * step, run * chunk, bar, false);
        done += run;
    }
#else
    const int pieces = chunk / 16;
    for (int i = threadIdx.x; i < n * pieces; i += THREADS) {
        int c = c0 + i / pieces;
        if (c >= a.n_chunks) c -= a.n_chunks;
        ((uint4 *)to)[i] = ((const uint4 *)(a.x + (uint64_t)c * step))[i % pieces];
    }
#endif
}

/* Begins to copy a tile into shared memory where `on`; both addresses are those of this lane's first 16 bytes. */
template <class F>
__device__ inline void fetch_tile(bool on, shared_t to, const uint8_t *from, int lane, cache_policy policy)
{
#pragma unroll
    for (int i = 0; i < F::TILE; i += WARP * 16)
        copy16_if(on && (i + WARP * 16 <= F::TILE || lane * 16 < F::TILE - i), to + i, from + i, policy);
}
/* A warp's tiles on their way. `fetch(to)` begins to copy the next one there and closes a group of copies, an empty one
 * past the end, so that counting groups counts tiles. The tile taken last is overwritten only behind the wait of
 * the next take, so one wait of the warp serves both; a ring of one tile takes another. */
template <class F, int STAGES> struct tile_ring {
    shared_t first, full, empty;        /* tiles: of the ring; to take next; free */
    template <class FETCH> __device__ void start(shared_t at, FETCH fetch)
    {
        first = full = at;
        empty = at + (STAGES - 1) * F::TILE;
        for (int i = 0; i < (STAGES > 1 ? STAGES - 1 : 1); i++) fetch(at + i * F::TILE);
    }
    template <class FETCH> __device__ void take(typename F::regs &to, int lane, FETCH fetch)
    {
        copy_wait<(STAGES > 1 ? STAGES - 2 : 0)>();
        __syncwarp();
        F::load(to, full, lane);
        if (STAGES == 1 && F::IN_REGISTERS) __syncwarp();
        if (STAGES > 1 || F::IN_REGISTERS) fetch(empty);
        empty = full;
        full = full == first + (STAGES - 1) * F::TILE ? first : full + F::TILE;
    }
    /* After the product with a tile. */
    template <class FETCH> __device__ void done(FETCH fetch)
    {
        if (STAGES > 1 || F::IN_REGISTERS) return;
        __syncwarp();
        fetch(empty);
    }
};

/* Where pass blockIdx.y begins: rows 8 NT blockIdx.y .. of the step are its rows 0 .. */
template <class S> __device__ inline void begin_pass(linear_args &a)
{
    const int n0 = blockIdx.y * 8 * S::NT;
    a.x += n0 * X_ROW;
    if (a.y) a.y += (uint64_t)n0 * a.y_stride;
    if (a.residual) a.residual += (uint64_t)n0 * a.y_stride;
    if (a.y_form) a.y_form += n0 * X_ROW;
    a.parts += (uint64_t)blockIdx.y * (gridDim.x / a.n_bands + 2) * a.n_bands * S::PART;
}

/* Long: a kernel reads best as one loop over units. */
template <class F, int NT, int EPI, bool SMALL, class ARGS>
__device__ inline void multiply_strips(ARGS a, uint8_t *shared)
{
    typedef linear_shape<F, NT, SMALL, EPI != EPI_STORE> shape;
    enum { ROWS = 8 * NT, KW = shape::KW };
    if (SMALL) begin_pass<shape>(a);
    uint32_t *lut = (uint32_t *)shared;
    uint8_t *const reduce = shared + F::LUT + shape::RING, *const panels = shared + shape::FIXED;
    uint64_t *bar = (uint64_t *)(reduce + shape::REDUCE);

    const int warp = threadIdx.x / WARP, lane = pinned(threadIdx.x % WARP);
    const int rw = warp % shape::ROWS_W, kw = warp / shape::ROWS_W;
    const int me = blockIdx.x, n_blocks = gridDim.x;
    const int units = a.n_bands * a.n_chunks;
    const int u0 = unit_begin(me, n_blocks, units), u1 = unit_begin(me + 1, n_blocks, units);
    const int first = u0 + ((kw - u0) % KW + KW) % KW;
    int mine = first;           /* this warp's next unit */
    /* Its tiles, [strip][chunk][rw], one strip after the other; the last band may lack this one. */
    const int strip0 = rw / ROW_WARPS * a.n_bands;
    const uint8_t *from = a.tiles + ((uint64_t)strip0 * a.n_chunks + first) * (ROW_WARPS * F::TILE) +
        rw % ROW_WARPS * F::TILE + lane * 16;
    const int end = min(u1, (a.n_strips - strip0) * a.n_chunks);
    int to_fetch = end > first ? (end - first + KW - 1) / KW : 0;
    const cache_policy policy = read_once();
    auto fetch = [&](shared_t to) {
        fetch_tile<F>(to_fetch > 0, to + lane * 16, from, lane, policy);
        copy_commit();
        from += KW * ROW_WARPS * F::TILE;
        to_fetch--;
    };
    tile_ring<F, shape::STAGES> ring;
    auto take = [&](typename F::regs &to) { ring.take(to, lane, fetch); };
    if (threadIdx.x == 0) {
        bar_init(&bar[0], 1), bar_init(&bar[1], 1);
        bar_fence();
    }
    /* Weights do not depend on the kernel before: start the ring now. */
    ring.start(shared_place(shared + F::LUT + warp * shape::STAGES * F::TILE), fetch);
    launch_dependents();
    typename F::regs regs, after;       /* the tile at work and the one after it */
    if constexpr (F::LUT > 0) {
        F::fill(lut);
        regs.lut = after.lut = shared_place(lut), regs.column = after.column = lane * 4;
    }
    const uint32_t chunk = NT > 1 ? NT * X_CHUNK : min(a.x_rows, ROWS) * X_ROW, lane_at = lane_in_chunk(lane, a.x_rows);
    maker<shape::THREADS> make;
    if constexpr (ARGS::MAKES) make.start(a.make);
    __syncthreads();
    wait_predecessor();

    /* Activations: all that the block needs when they fit (resident), else panel after panel, of as many chunks for
     * each warp. */
    const int fit = a.fit / chunk, halves = SMALL && fit < 2 * KW ? 1 : 2;
    const int half_units = fit / halves / KW * KW;
    const int want = u1 - u0 < a.n_chunks ? u1 - u0 : a.n_chunks;
    const bool resident = want <= fit;
    const int panel_units = resident ? u1 - u0 : half_units;
    /* Of a warp's tile to its next one's activations, which wrap with the columns. */
    const uint32_t x_wrap = a.n_chunks * chunk, x_step = KW % a.n_chunks * chunk;
    /* Starts the copy of the panel of units p .. into half `half` of the panels. */
    auto load_panel = [&](int p, int half) {
        load_chunks<shape::THREADS>(a, panels + half * half_units * chunk, chunk, p % a.n_chunks,
                                    resident ? want : min(panel_units, u1 - p), &bar[half]);
    };
    if constexpr (ARGS::MAKES) {
        const panel_part to = { panels, (uint32_t)(u0 % a.n_chunks), (uint32_t)want, (uint32_t)a.n_chunks };
        make.fill(a.make, to, (float *)reduce);
    } else {
        load_panel(u0, 0);
        if (halves == 2 && u0 + panel_units < u1) load_panel(u0 + panel_units, 1);
    }
    const int rows = SMALL ? min(*a.n_rows - (int)blockIdx.y * ROWS, (int)ROWS) : *a.n_rows;    /* of this pass */
    float acc[2][NT * 4];
    clear<NT>(acc);

    /* Wide buckets need their registers for sums. */
    constexpr bool AHEAD = F::IN_REGISTERS && NT <= 2;
    if (AHEAD) take(regs);
    for (int p0 = u0; p0 < u1; p0 += panel_units) {
        const int p1 = p0 + panel_units < u1 ? p0 + panel_units : u1;
        const int turn = (p0 - u0) / panel_units, half = halves == 2 ? turn & 1 : 0;
        const shared_t panel = shared_place(panels + half * half_units * chunk);
#if HAS_BULK_COPY
        if (!ARGS::MAKES) bar_wait(&bar[half], (halves == 2 ? turn >> 1 : turn) & 1);
#else
        __syncthreads();
#endif
        const shared_t x_end = panel + x_wrap;
        shared_t x = panel + (mine - p0) % a.n_chunks * chunk;

        for (int s0 = p0; s0 < p1;) {
            const int band = s0 / a.n_chunks, band_end = (band + 1) * a.n_chunks;
            const int s1 = band_end < p1 ? band_end : p1;
            auto product = [&](const typename F::regs &r) {
                multiply_tile<F, NT>(acc, r, x, lane_at);
                mine += KW;
                x += x_step;
                if (x >= x_end) x -= x_wrap;
            };
            if constexpr (AHEAD) {
                while (mine < s1) {
                    take(after);
                    product(regs);
                    if (mine >= s1) {
                        regs = after;
                        break;
                    }
                    take(regs);
                    product(after);
                }
            } else {
                while (mine < s1) take(regs), product(regs), ring.done(fetch);
            }
            s0 = s1;
            if (s1 < band_end && s1 < u1) break;        /* the band goes on in the next panel */

            /* The block's part of this band is complete: sum over kw, then over blocks. */
            float v[2][shape::MINE], residual[2][shape::MINE];
            sum_warps<shape>(acc, v, (float *)reduce, rw, kw, lane);
            const int b0 = unit_block(band * a.n_chunks, n_blocks, units);
            const int b1 = unit_block(band_end - 1, n_blocks, units);
            const bool last = me == b0;
            load_residual<shape>(a, band, residual, last && EPI == EPI_STORE ? rows : 0, rw, kw, lane);
            if (b1 > b0) sum_blocks<shape>(a, band, me - b0, b1 - b0, v, warp, lane);
            if constexpr (EPI == EPI_STORE) {
                if (last) finish_strip<shape>(a, band, v, residual, rows, rw, kw, lane);
            } else {
                if (last) finish_glu<shape, EPI>(a, band, v, reduce, rows, rw, kw, lane);
            }
            clear<NT>(acc);         /* here, not before: until then its registers hold parts */
        }
        if (p0 + halves * panel_units < u1) {   /* this half is free once everyone is done with it */
            __syncthreads();
            load_panel(p0 + halves * panel_units, half);
        }
    }
}
template <class F, int NT, int EPI, bool SMALL, class ARGS>
__global__ void __launch_bounds__(linear_shape<F, NT, SMALL, EPI != EPI_STORE>::THREADS, 1) linear_narrow(ARGS a)
{
    DYNAMIC_SHARED(uint8_t, shared);
    if constexpr (shape_here<SMALL>()) multiply_strips<F, NT, EPI, SMALL>(a, shared);
}

#endif
