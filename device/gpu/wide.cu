/* device/gpu/wide.cu - products of a wide step: the weights are unpacked to f16 panels and multiplied with the
 * step's rows. In one piece, since every launch ends with a wave of tiles that does not fill the card; the panels
 * leave L2, but all tiles of rows read one tile of weights at about the same time.
 *
 * y[n][row] = sum_k x[n][k] w[row][k]. Both operands lie in panels of 64 columns, 128 bytes a row, in the
 * order that the matrix unit reads from shared memory, so one bulk copy brings a tile. A block multiplies
 * 128 rows of x with 256 rows of w: two groups of four warps, each 64 x 256 sums in registers, and a thread
 * that feeds a ring of four stages. The limit is the matrix unit. f16 weights are kept as panels and read as they lie.
 * Order of a sum: k ascending, 16 at a time, whatever the number of rows: a row's bits are its own.
 * Cards without warp-group products run `wide_plain`: mma.sync from the same panels. */
#include "device/gpu/linear.cuh"
#include "device/gpu/wgmma.cuh"

enum { TILE_M = WIDE_ROWS, TILE_N = 256, ROW_BYTES = 128, STAGES = 4, GROUP = 128,
       A_BYTES = TILE_M * ROW_BYTES, B_BYTES = TILE_N * ROW_BYTES, STAGE = A_BYTES + B_BYTES,
       WIDE_THREADS = 3 * GROUP, WIDE_SHARED = STAGES * STAGE + 256 };

struct wide_args {
    const uint8_t *x, *w;       /* panels */
    float *y;
    form f;
    const float *residual, *bias;
    const int32_t *n_rows;
    int32_t x_rows, n_strips;   /* rows of x's panels; strips of w */
    int32_t n_chunks, out_rows, y_stride, n_tiles, epilogue;
    float unit, softcap;
};

/* One thread's sums of columns c, c + 1 for step row n. */
__device__ inline void put_sums(const wide_args &a, int n, int c, float v0, float v1)
{
    const float v[2] = { v0, v1 };
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int row = c + e;
        if (row >= a.out_rows) continue;
        float y = v[e] * a.unit;
        if (a.bias) y += a.bias[row];
        if (a.softcap > 0) y = a.softcap * tanhf(y / a.softcap);
        if (a.residual) y += a.residual[(uint64_t)n * a.y_stride + row];
        a.y[(uint64_t)n * a.y_stride + row] = y;
    }
}
/* Gate and up sums of output columns row, row + 1. */
__device__ inline void put_gated(const wide_args &a, int n, int row, float g0, float g1, float u0, float u1)
{
    if (row >= a.out_rows) return;
    const bool silu = a.epilogue == PRODUCT_SILU;
    g0 *= a.unit, g1 *= a.unit, u0 *= a.unit, u1 *= a.unit;
    const float y0 = (silu ? act_silu(g0) : act_gelu(g0)) * u0, y1 = (silu ? act_silu(g1) : act_gelu(g1)) * u1;
    if (a.y) {
        a.y[(uint64_t)n * a.y_stride + row] = y0;
        if (row + 1 < a.out_rows) a.y[(uint64_t)n * a.y_stride + row + 1] = y1;
    }
    if (a.f.at) form_put2(a.f, n, row, y0, row + 1 < a.out_rows ? y1 : 0.0f);
}

/* Byte of chunk k of a strip of w. */
__device__ inline uint64_t strip_at(const wide_args &a, int strip, int k)
{
    return ((uint64_t)strip * a.n_chunks + k) * STRIP * ROW_BYTES;
}

/* Long: feeder and multipliers share the ring, and sums must stay in registers. */
__global__ void __launch_bounds__(WIDE_THREADS, 1) wide_kernel(wide_args a)
{
#if HAS_WARPGROUP_MMA
    DYNAMIC_SHARED(uint8_t, ring);
    uint64_t *full = (uint64_t *)(ring + STAGES * STAGE), *empty = full + STAGES;
    const int group = threadIdx.x / GROUP, lane = threadIdx.x % WARP, warp = threadIdx.x % GROUP / WARP;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) bar_init(&full[i], 1), bar_init(&empty[i], 2);
        bar_fence();
    }
    __syncthreads();
    launch_dependents();
    wait_predecessor();
    const int rows = *a.n_rows, m_tiles = (rows + TILE_M - 1) / TILE_M, n_work = m_tiles * a.n_tiles;
    int turn = 0;               /* stages used so far */
    if (group == 2) {           /* the feeder */
        warpgroup_registers_less();
        if (threadIdx.x % GROUP) return;
        for (int i = blockIdx.x; i < n_work; i += gridDim.x) {
            const int m = i % m_tiles, n = i / m_tiles;
            for (int k = 0; k < a.n_chunks; k++, turn++) {
                const int slot = turn % STAGES;
                uint8_t *const x = ring + slot * STAGE, *const w = x + A_BYTES;
                if (turn >= STAGES) bar_wait(&empty[slot], (turn / STAGES - 1) & 1);
                bar_expect(&full[slot], STAGE);
                bulk_load(x, a.x + ((uint64_t)k * a.x_rows + m * TILE_M) * ROW_BYTES, A_BYTES, &full[slot], false);
#pragma unroll
                for (int half = 0; half < 2; half++) {      /* past the last strip: anything, it is not written */
                    const uint8_t *from = a.w + strip_at(a, min(2 * n + half, a.n_strips - 1), k);
                    bulk_load(w + half * B_BYTES / 2, from, B_BYTES / 2, &full[slot], false);
                }
            }
        }
        return;
    }
    warpgroup_registers_more();
    auto give_back = [&](int slot) {
        if (threadIdx.x % GROUP == 0) bar_arrive(&empty[slot]);
    };
    for (int i = blockIdx.x; i < n_work; i += gridDim.x) {
        const int m = i % m_tiles, n = i / m_tiles;
        float d[128];
#pragma unroll
        for (int j = 0; j < 128; j++) d[j] = 0;
        for (int k = 0; k < a.n_chunks; k++, turn++) {
            const int slot = turn % STAGES;
            bar_wait(&full[slot], turn / STAGES & 1);
            const uint64_t x = wgmma_operand(shared_place(ring + slot * STAGE + group * 64 * ROW_BYTES), 0);
            const uint64_t w = wgmma_operand(shared_place(ring + slot * STAGE + A_BYTES), 0);
            wgmma_begin();
#pragma unroll
            for (int s = 0; s < 4; s++) wgmma_256(d, x + 2 * s, w + 2 * s);      /* 32 bytes a step */
            wgmma_commit();
            if (k > 0) {                    /* the products of the stage before are done: give it back */
                wgmma_wait<1>();
                give_back((turn - 1) % STAGES);
            }
        }
        wgmma_wait<0>();
        wgmma_own(d);
        give_back((turn - 1) % STAGES);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = m * TILE_M + group * 64 + warp * 16 + lane / 4 + 8 * h;
            if (row >= rows) continue;
            if (a.epilogue == PRODUCT_STORE) {
#pragma unroll
                for (int j = 0; j < 32; j++)
                    put_sums(a, row, n * TILE_N + 8 * j + 2 * (lane % 4), d[4 * j + 2 * h], d[4 * j + 2 * h + 1]);
            } else {
#pragma unroll
                for (int j = 0; j < 32; j += 4)         /* 16 gate columns, 16 up columns */
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        const int g = 4 * (j + e) + 2 * h;
                        put_gated(a, row, n * (TILE_N / 2) + 4 * j + 8 * e + 2 * (lane % 4), d[g],
                                  d[g + 1], d[g + 8], d[g + 9]);
                    }
            }
        }
    }
#endif
}

/* mma.sync: a block 64 rows of x by 128 rows of w, a warp 16 by 128; operands from L2 and L1. */
enum { PLAIN_M = 64, PLAIN_N = 128 };
__global__ void __launch_bounds__(128) wide_plain(wide_args a)
{
    wait_predecessor();
    launch_dependents();
    const int rows = *a.n_rows, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    const int n0 = blockIdx.y * PLAIN_M + warp * 16, c0 = blockIdx.x * PLAIN_N;
    if (n0 >= rows) return;
    float d[16][4] = {};
    auto w_at = [&](int row, int k) {
        const uint8_t *w = a.w + strip_at(a, row / STRIP, k / TILE_K) + row % STRIP * ROW_BYTES;
        return *(const uint32_t *)(w + ((k % TILE_K / 8) ^ (row % 8)) * 16 + k % 8 * 2);
    };
    for (int k = 0; k < a.n_chunks * TILE_K; k += 16) {
        uint32_t f[4];
        f[0] = *(const uint32_t *)(a.x + panel_place(n0 + g, k + 2 * t, a.x_rows));
        f[1] = *(const uint32_t *)(a.x + panel_place(n0 + g + 8, k + 2 * t, a.x_rows));
        f[2] = *(const uint32_t *)(a.x + panel_place(n0 + g, k + 2 * t + 8, a.x_rows));
        f[3] = *(const uint32_t *)(a.x + panel_place(n0 + g + 8, k + 2 * t + 8, a.x_rows));
#pragma unroll
        for (int j = 0; j < 16; j++)
            mma_f16(d[j], f, w_at(c0 + 8 * j + g, k + 2 * t), w_at(c0 + 8 * j + g, k + 2 * t + 8));
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = n0 + g + 8 * h;
        if (row >= rows) continue;
        if (a.epilogue == PRODUCT_STORE) {
#pragma unroll
            for (int j = 0; j < 16; j++) put_sums(a, row, c0 + 8 * j + 2 * t, d[j][2 * h], d[j][2 * h + 1]);
        } else {
#pragma unroll
            for (int j = 0; j < 16; j += 4)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    put_gated(a, row, c0 / 2 + 4 * j + 8 * e + 2 * t, d[j + e][2 * h], d[j + e][2 * h + 1],
                              d[j + e + 2][2 * h], d[j + e + 2][2 * h + 1]);
        }
    }
}

/* ---- which kernel ------------------------------------------------------------------------------------- */
static const product_fns *const by_format[TILES_COUNT] = { &product_f16, &product_q8_0, &product_q4_0,
                                                           &product_q4_k, &product_q5_k, &product_q6_k,
                                                           &product_iq4_xs };
static bool warpgroups;         /* of the device at hand: set by products_prepare */
static int shared_most;
static bool small, bf16;

int card_shared(void)
{
    return shared_most;
}
bool card_is_small(void)
{
    return small;
}
bool card_has_bf16(void)
{
    return bf16;
}
bool has_warpgroups(void)
{
    return warpgroups;
}
bool has_group_products(void)
{
    return warpgroups || (HAS_GROUP_PRODUCTS && !small);
}

void products_prepare(void)
{
    int device = 0, major = 0;
    (void)GPU(GetDevice)(&device);
    (void)GPU(DeviceGetAttribute)(&major, GPU(DevAttrComputeCapabilityMajor), device);
    (void)GPU(DeviceGetAttribute)(&shared_most, GPU(DevAttrMaxSharedMemoryPerBlockOptin), device);
    const int code = code_of(wide_plain);
    warpgroups = major == 9 && code == 90;
    if (warpgroups) allow_shared(wide_kernel, WIDE_SHARED);
    bf16 = !code || code >= 80;
    small = code ? code < 90 || code >= 120 : shared_most < BIG_SHARED;
}
void launch_product(launch *l, const product *p, int n_units)
{
    by_format[p->format]->fill(l, p, n_units);
}
void launch_moe_product(launch *l, const moe_product *p, int n_units)
{
    by_format[p->format]->moe(l, p, n_units);
}
uint64_t product_parts(const product *p, int n_units)
{
    return by_format[p->format]->parts((p->n_rows_w + STRIP - 1) / STRIP, p->x.rows, p->epilogue != PRODUCT_STORE,
                                       n_units);
}

uint64_t wide_panel_bytes(const product *p)
{
    if (!by_format[p->format]->unpack) return 0;
    const uint64_t strips = (p->n_rows_w + STRIP - 1) / STRIP, chunks = (p->n_cols + TILE_K - 1) / TILE_K;
    return strips * chunks * STRIP * ROW_BYTES;
}
int launch_wide_product(launch *l, const product *p, int n_units)
{
    const product_fns *f = by_format[p->format];
    const int strips = (p->n_rows_w + STRIP - 1) / STRIP;
    int n = 0;
    wide_args a = {};
    a.x = p->x.at, a.w = f->unpack ? p->panel : p->tiles, a.y = p->y, a.f = p->form;
    a.residual = p->residual, a.bias = p->bias, a.n_rows = p->n_rows;
    a.x_rows = p->x.rows, a.n_strips = strips;
    a.n_chunks = (p->n_cols + TILE_K - 1) / TILE_K;
    a.out_rows = p->out_rows, a.y_stride = p->y_stride;
    a.n_tiles = (strips + 1) / 2;
    a.epilogue = p->epilogue;
    a.unit = 1.0f / (p->unit * p->x.scale);
    a.softcap = p->softcap;
    if (f->unpack) f->unpack(l + n++, p, p->panel);
    const int work = a.n_tiles * (p->x.rows / TILE_M), blocks = work < n_units ? work : n_units;
    if (!warpgroups) fill_launch(l + n++, wide_plain, dim3(strips, p->x.rows / PLAIN_M), 128, 0, a);
    else fill_launch(l + n++, wide_kernel, dim3(blocks), WIDE_THREADS, WIDE_SHARED, a);
    return n;
}
