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
 * Activations that do not fit come panel after panel into two halves of shared memory; the warp that is last to be done
 * with a half starts the copies of its next panel, so that nobody waits for the others.
 * Products of the same activations, one launch after the other, run beside each other (struct product): when the next
 * one starts, what the first waits for is done, so it waits for nobody before its end; there it waits, so that what
 * comes after it finds both done. */
#ifndef LUCE_DEVICE_GPU_LINEAR_NARROW_CUH
#define LUCE_DEVICE_GPU_LINEAR_NARROW_CUH

#include "device/gpu/linear_finish.cuh"
#include "device/gpu/wgmma.cuh"

/* From so many column tiles on warps multiply in groups. */
enum { GROUP_FROM = 4 };

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

/* Starts the copy of n chunks of activations from chunk c0 on, wrapping with the columns; it ends on bar. Where there
 * are bulk copies by one thread, else by all. */
template <int THREADS>
__device__ inline void load_chunks(const linear_args &a, uint8_t *to, uint32_t chunk, int c0, int n, uint64_t *bar)
{
    const uint32_t step = a.x_rows * X_ROW;
#if HAS_BULK_COPY
    const int most = step == chunk ? 16384 / chunk : 1;     /* 16 KB a copy: several at a time */
    bar_expect(bar, n * chunk);
    for (int done = 0, c = c0; done < n;) {
        const int run = min(min(a.n_chunks - c, n - done), most);
        bulk_load(to + done * chunk, a.x + (uint64_t)c * step, run * chunk, bar, false);
        done += run;
        c = c + run == a.n_chunks ? 0 : c + run;
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

/* Whether this is the first lane of the last of WARPS warps to come here: copies that it starts may overwrite what all
 * of them have read. */
template <int WARPS> __device__ inline bool last_warp(int *done, int lane)
{
    static_assert((WARPS & (WARPS - 1)) == 0, "counted in turns");
    __syncwarp();
    return lane == 0 && count_shared(done) % WARPS == WARPS - 1;
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
    uint8_t *const reduce = shared + F::LUT + shape::RING, *const panels = shared + shape::FIXED + a.norm_room;
    uint64_t *bar = (uint64_t *)(reduce + shape::REDUCE);
    int *const done = (int *)(bar + 2);         /* warps that are done with a half of the panels */
    row_scales<shape> &scales = *(row_scales<shape> *)(bar + 4);
    float *const norm_sums = (float *)(shared + shape::FIXED);

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
        done[0] = done[1] = 0;
        if (!SMALL) scales.init();
        bar_fence();
    }
    /* Weights do not depend on the kernel before: start the ring now. */
    ring.start(shared_place(shared + F::LUT + warp * shape::STAGES * F::TILE), fetch);
    if (!a.leads) launch_dependents();
    typename F::regs regs, after;       /* the tile at work and the one after it */
    if constexpr (F::LUT > 0) {
        F::fill(lut);
        regs.lut = after.lut = shared_place(lut), regs.column = after.column = lane * 4;
    }
    const uint32_t chunk = NT > 1 ? NT * X_CHUNK : min(a.x_rows, ROWS) * X_ROW, lane_at = lane_in_chunk(lane, a.x_rows);
    maker<shape::THREADS> make;
    if constexpr (ARGS::MAKES) make.start(a.make);
    __syncthreads();
    if (!a.beside) wait_predecessor();
    if (a.leads) launch_dependents();

    /* Activations: all that the block needs when they fit (resident), else panel after panel, of as many chunks for
     * each warp. */
    const int fit = a.fit / chunk, halves = SMALL && fit < 2 * KW ? 1 : 2;
    const int half_units = fit / halves;
    const int want = u1 - u0 < a.n_chunks ? u1 - u0 : a.n_chunks;
    const bool resident = want <= fit;
    const int panel_units = resident ? u1 - u0 : half_units;
    /* Of a warp's tile to its next one's activations, which wrap with the columns. */
    const uint32_t x_wrap = a.n_chunks * chunk, x_step = KW % a.n_chunks * chunk;
    int next_chunk = u0 % a.n_chunks;   /* of the panel that is loaded next */
    /* Starts the copy of the panel of units p .. into a half of the panels. */
    auto load_panel = [&](int p, int half, bool starts) {
        if (starts || !HAS_BULK_COPY)
            load_chunks<shape::THREADS>(a, panels + half * half_units * chunk, chunk, next_chunk,
                                        resident ? want : min(panel_units, u1 - p), &bar[half]);
        next_chunk += panel_units;
        if (next_chunk >= a.n_chunks) next_chunk -= a.n_chunks;
    };
    if constexpr (ARGS::MAKES) {
        const panel_part to = { panels, (uint32_t)(u0 % a.n_chunks), (uint32_t)want, (uint32_t)a.n_chunks };
        make.fill(a.make, to, (float *)reduce);
    } else {
        load_panel(u0, 0, threadIdx.x == 0);
        if (halves == 2 && u0 + panel_units < u1) load_panel(u0 + panel_units, 1, threadIdx.x == 0);
    }
    const int rows = SMALL ? min(*a.n_rows - (int)blockIdx.y * ROWS, (int)ROWS) : *a.n_rows;    /* of this pass */
    const bool finishes = (u0 + a.n_chunks - 1) / a.n_chunks * a.n_chunks < u1;    /* a band */
    if (!SMALL && finishes && threadIdx.x == 0) scales.fetch(a, norm_sums);
    bool found = false;         /* scales */
    float acc[2][NT * 4];
    clear<NT>(acc);

    /* Wide buckets need their registers for sums. */
    constexpr bool AHEAD = F::IN_REGISTERS && NT <= 2;
    if (AHEAD) take(regs);
    int band = u0 / a.n_chunks, turn = 0;       /* of halves; of one: twice as fast */
    for (int p0 = u0; p0 < u1; p0 += panel_units, turn += 3 - halves) {
        const int half = turn & 1;
        const int p1 = p0 + panel_units < u1 ? p0 + panel_units : u1;
        const shared_t panel = shared_place(panels + half * half_units * chunk);
#if HAS_BULK_COPY
        if (!ARGS::MAKES) bar_wait(&bar[half], turn >> 1 & 1);
#else
        __syncthreads();
#endif
        const shared_t x_end = panel + x_wrap;
        shared_t x = panel + (mine - p0) * chunk;
        while (x >= x_end) x -= x_wrap;     /* of fewer columns than warps */

        for (int s0 = p0; s0 < p1; band++) {
            const int band_end = (band + 1) * a.n_chunks, s1 = band_end < p1 ? band_end : p1;
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

            finish_band<shape, EPI>(a, band, acc, scales, found, reduce, norm_sums, rows, rw, kw, lane);
            clear<NT>(acc);         /* here, not before: until then its registers hold parts */
        }
        if (p0 + halves * panel_units < u1) {   /* who is last to be done with this half loads its next panel */
#if HAS_BULK_COPY
            load_panel(p0 + halves * panel_units, half, last_warp<shape::WARPS>(&done[half], lane));
#else
            __syncthreads();
            load_panel(p0 + halves * panel_units, half, true);
#endif
        }
    }
    if (a.beside) wait_predecessor();
}
template <class F, int NT, int EPI, bool SMALL, class ARGS>
__global__ void __launch_bounds__(linear_shape<F, NT, SMALL, EPI != EPI_STORE>::THREADS, 1) linear_narrow(ARGS a)
{
    DYNAMIC_SHARED(uint8_t, shared);
    if constexpr (shape_here<SMALL>()) multiply_strips<F, NT, EPI, SMALL>(a, shared);
}

#endif
