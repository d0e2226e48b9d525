/* device/gpu/moe.cuh - products of experts, MOE_GLU and MOE_DOWN, narrow and wide alike.
 *
 * Every row of a step names some experts (route.cu), a shared one among them, whose tiles lie elsewhere; the
 * assignments (row, slot) of an expert are cut into parts of up to 8 NT. An item is one part and one strip of its
 * expert's rows: all columns, by one block, so the weights of a used expert are read once where a part holds all its
 * assignments. Warp (rw, kw) multiplies rows 32 rw .. of chunks kw, kw + KWARPS, ...; its tiles come through its own
 * ring, those of the block's next item behind those of the one at work. Activations are gathered from f32 rows into
 * shared memory, panel after panel, as f16 panels.
 * Order of the sum of one output: per kw over ascending chunks, then kw ascending. It depends on the weight's shape
 * and format alone: never on the width, on the other rows of the part, or on the class of the step. */
#ifndef LUCE_DEVICE_GPU_MOE_CUH
#define LUCE_DEVICE_GPU_MOE_CUH

#include "device/gpu/route.cuh"

struct moe_args {
    const uint8_t *tiles, *shared;      /* [expert][strip][k / 64][rw]; of the shared one */
    const float *x;             /* [row][n_cols], or by assignment */
    float *y;                   /* [assignment][out_rows] */
    const moe_table *table;
    int32_t parts;              /* enum moe_parts */
    int32_t slots;              /* assignments a row */
    int32_t by_assignment;      /* x has a row for each */
    int32_t n_cols, n_chunks, n_strips, out_rows, act;
    int32_t fit;                /* bytes of activations that fit in shared memory */
    float unit, shared_unit, scale;     /* of the sums; of the activations */
    enum { ROUTES = 0 };
};
/* Of one row that every block routes itself: the table is not read. Block 0 writes it, ids and weights for others. */
struct moe_routed_args : moe_args {
    route_args route;
    moe_table *made;
    enum { ROUTES = 1 };
};

/* By all threads. Slot i is part i, with one entry, i; ids: of the block, room for WARP. */
__device__ inline void route_inside(const moe_routed_args &a, int32_t *ids)
{
    const int i = threadIdx.x, n = *a.route.n_rows > 0 ? a.slots : 0;
    const bool writes = blockIdx.x == 0;
    if (i < WARP && n) {
        if (a.route.experts <= 8 * WARP) route_row<8>(a.route, 0, ids, writes);
        else route_row<ROUTED_MOST / WARP>(a.route, 0, ids, writes);
    }
    __syncthreads();
    if (!writes || i >= WARP) return;
    const int entries = (int)sizeof(moe_table) + n * (int)sizeof(moe_part);
    if (i == 0) a.made->n_parts = n, a.made->n_routed = n ? a.route.used : 0, a.made->entries = entries;
    if (i >= n) return;
    a.made->part[i] = moe_part{ ids[i], i, 1 };
    ((int32_t *)((uint8_t *)a.made + entries))[i] = i;
}

/* Fills the panel with chunks c0 .. c1 of the part's activations; columns beyond its count are left as they are:
 * they do not meet the others. */
template <int NT, int THREADS>
__device__ inline void gather(const moe_args &a, uint8_t *panel, const int *entry, int count, int c0, int c1)
{
    const int pairs = (c1 - c0) * (TILE_K / 2);
    const bool even = a.n_cols % 2 == 0;
    for (int i = threadIdx.x; i < count * pairs; i += THREADS) {
        const int n = i / pairs, local = i % pairs * 2, k = c0 * TILE_K + local;
        const int row = a.by_assignment ? entry[n] : entry[n] / a.slots;
        const float *x = a.x + (uint64_t)row * a.n_cols + k;
        float2 v = make_float2(0, 0);
        if (even && k < a.n_cols) v = *(const float2 *)x;
        else if (k < a.n_cols) v = make_float2(x[0], k + 1 < a.n_cols ? x[1] : 0.0f);
        put_pair_at(panel + panel_at(n, local, 8 * NT), v.x * a.scale, v.y * a.scale);
    }
}

template <class F, int NT, bool GLU>
__device__ inline void finish_part(const moe_args &a, int strip, const int *entry, int count, float unit,
                                   const float v[2][NT * 4 / F::KWARPS], int rw, int kw, int lane)
{
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < NT * 4 / F::KWARPS; m++) {
        const int reg = m * F::KWARPS + kw, j = reg / 4, r = reg % 4;
        const int n = j * 8 + 2 * t + (r & 1), in_tile = g + 8 * (r >> 1);
        if (n >= count) continue;
        float *y = a.y + (uint64_t)entry[n] * a.out_rows;
        if constexpr (GLU) {
            const int row = strip * (STRIP / 2) + rw * 16 + in_tile;
            const float gate = v[0][m] * unit, up = v[1][m] * unit;
            if (row < a.out_rows) y[row] = (a.act == PRODUCT_SILU ? act_silu(gate) : act_gelu(gate)) * up;
        } else {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int row = strip * STRIP + rw * TILE_ROWS + i * 16 + in_tile;
                if (row < a.out_rows) y[row] = v[i][m] * unit;
            }
        }
    }
}

/* Long: as multiply_strips, one loop over items reads best. Pass blockIdx.y takes rows 8 NT blockIdx.y .. of a part. */
template <class F, int NT, bool GLU, bool SMALL, class ARGS>
__device__ inline void multiply_experts(const ARGS &a, uint8_t *shared, int *entry, int32_t *ids)
{
    typedef linear_shape<F, NT, SMALL, false> shape;
    const int n0 = blockIdx.y * 8 * NT, fit = a.fit / (NT * X_CHUNK);
    uint8_t *reduce = shared + F::LUT + shape::RING, *panel = shared + shape::FIXED;
    const int warp = threadIdx.x / WARP, lane = pinned(threadIdx.x % WARP);
    const int rw = warp % ROW_WARPS, kw = warp / ROW_WARPS;
    const uint32_t lane_at = lane_in_chunk(lane, 8 * NT);
    tile_ring<F, shape::STAGES> ring;
    typename F::regs regs;
    if constexpr (F::LUT > 0) {
        F::fill((uint32_t *)shared);
        regs.lut = shared_place(shared), regs.column = lane * 4;
    }
    launch_dependents();
    wait_predecessor();
    int n_routed, n_parts;
    if constexpr (ARGS::ROUTES) {
        n_parts = *a.route.n_rows > 0 ? a.slots : 0, n_routed = n_parts ? a.route.used : 0;
        if (blockIdx.x == 0 || (int)blockIdx.x < n_parts * a.n_strips) route_inside(a, ids);
    } else {
        n_parts = a.table->n_parts, n_routed = a.table->n_routed;
    }
    auto part_at = [&](int i) {
        if constexpr (ARGS::ROUTES) return moe_part{ ids[i], i, 1 };
        else return a.table->part[i];
    };
    const int first_part = a.parts == MOE_SHARED ? n_routed : 0;
    const int n_items = ((a.parts == MOE_ROUTED ? n_routed : n_parts) - first_part) * a.n_strips;
    const int each = a.n_chunks > kw ? (a.n_chunks - kw + F::KWARPS - 1) / F::KWARPS : 0;      /* tiles of an item */
    const uint8_t *from = a.tiles;
    int ahead = blockIdx.x, to_fetch = 0;       /* the item after the one whose tiles are fetched */
    const cache_policy policy = read_once();
    auto fetch = [&](shared_t to) {
        while (to_fetch == 0 && ahead < n_items) {
            const int at_part = first_part + ahead / a.n_strips, strip = ahead % a.n_strips;
            const moe_part part = part_at(at_part);
            const bool own = at_part >= n_routed;
            ahead += gridDim.x;
            if (part.count <= n0) continue;
            from = (own ? a.shared : a.tiles) + lane * 16 +
                ((((uint64_t)(own ? 0 : part.expert) * a.n_strips + strip) * a.n_chunks + kw) * ROW_WARPS + rw) *
                F::TILE;
            to_fetch = each;
        }
        fetch_tile<F>(to_fetch > 0, to + lane * 16, from, lane, policy);
        copy_commit();
        from += F::KWARPS * ROW_WARPS * F::TILE;
        to_fetch -= to_fetch > 0;
    };
    ring.start(shared_place(shared + F::LUT + warp * shape::STAGES * F::TILE), fetch);
    for (int item = blockIdx.x; item < n_items; item += gridDim.x) {
        const int at_part = first_part + item / a.n_strips, strip = item % a.n_strips;
        moe_part part = part_at(at_part);
        if (part.count <= n0) continue;
        part.first += n0, part.count = min(part.count - n0, 8 * NT);
        __syncthreads();                    /* everyone is done with the entries of the item before */
        const int of_part = part.first + (int)threadIdx.x;
        if ((int)threadIdx.x < part.count) entry[threadIdx.x] = ARGS::ROUTES ? of_part : moe_entries(a.table)[of_part];
        float acc[2][NT * 4];
        clear<NT>(acc);
        for (int c0 = 0, mine = kw; c0 < a.n_chunks; c0 += fit) {
            const int c1 = min(c0 + fit, a.n_chunks);
            __syncthreads();
            gather<NT, shape::THREADS>(a, panel, entry, part.count, c0, c1);
            shared_fence();                 /* warp groups read it as copies do */
            __syncthreads();
            for (; mine < c1; mine += F::KWARPS) {
                ring.take(regs, lane, fetch);
                multiply_tile<F, NT>(acc, regs, shared_place(panel) + (mine - c0) * NT * X_CHUNK, lane_at);
                ring.done(fetch);
            }
        }
        float v[2][NT * 4 / F::KWARPS];
        sum_warps<shape>(acc, v, (float *)reduce, rw, kw, lane);
        const float unit = at_part >= n_routed ? a.shared_unit : a.unit;
        finish_part<F, NT, GLU>(a, strip, entry, part.count, unit, v, rw, kw, lane);
    }
}

template <class F, int NT, bool GLU, bool SMALL, class ARGS>
__global__ void __launch_bounds__(linear_shape<F, NT, SMALL, false>::THREADS, 1) moe_kernel(ARGS a)
{
    __shared__ int entry[8 * NT];
    __shared__ int32_t ids[WARP];
    DYNAMIC_SHARED(uint8_t, shared);
    if constexpr (shape_here<SMALL>()) multiply_experts<F, NT, GLU, SMALL>(a, shared, entry, ids);
}

template <class F, int NT, bool SMALL, class ARGS>
static void launch_moe_shape(launch *l, ARGS a, bool glu, int width, int n_units)
{
    typedef linear_shape<F, NT, SMALL, false> shape;
    const int all = a.n_chunks * NT * X_CHUNK, room = card_shared() - 1024 - (int)shape::FIXED;
    a.fit = all < room ? all : room;
    void (*kernel)(ARGS) = moe_kernel<F, NT, true, SMALL, ARGS>;
    if constexpr (!ARGS::ROUTES)
        if (!glu) kernel = moe_kernel<F, NT, false, SMALL, ARGS>;
    allow_shared(kernel, card_shared() - 1024);
    fill_launch(l, kernel, dim3(n_units, width / (8 * NT)), shape::THREADS, shape::FIXED + a.fit, a);
}
/* As launch_width. */
template <class F, int NT> static void launch_moe_width(launch *l, const moe_args &a, bool glu, int width, int n_units)
{
    if (!card_is_small()) return launch_moe_shape<F, NT, false>(l, a, glu, width, n_units);
    typedef typename small_form<F>::type small;
    if constexpr (NT > 1)
        if ((int)linear_shape<small, NT, true, false>::LEAST + 1024 > card_shared())
            return launch_moe_width<F, NT / 2>(l, a, glu, width, n_units);
    launch_moe_shape<small, NT, true>(l, a, glu, width, n_units);
}
template <class F> static void launch_moe(launch *l, const moe_product *p, int n_units)
{
    moe_args a = {};
    a.tiles = p->tiles;
    a.shared = p->shared;
    a.parts = p->parts;
    a.x = p->x;
    a.y = p->y;
    a.table = p->table;
    a.slots = p->slots;
    a.by_assignment = p->epilogue == PRODUCT_STORE;
    a.n_cols = p->n_cols;
    a.n_chunks = (p->n_cols + TILE_K - 1) / TILE_K;
    a.n_strips = (p->n_rows_w + STRIP - 1) / STRIP;
    a.out_rows = p->out_rows;
    a.act = p->epilogue;
    a.unit = 1.0f / (p->unit * p->scale);
    a.shared_unit = 1.0f / (p->shared_unit * p->scale);
    a.scale = p->scale;
    const bool glu = p->epilogue != PRODUCT_STORE;
    if (p->route.z) {
        const moe_routed_args routed = { a, p->route, p->table };
        return launch_moe_shape<F, 1, false>(l, routed, glu, p->width, n_units);
    }
    switch (p->width) {
    case 8: launch_moe_width<F, 1>(l, a, glu, p->width, n_units); break;
    case 16: launch_moe_width<F, 2>(l, a, glu, p->width, n_units); break;
    default: launch_moe_width<F, 8>(l, a, glu, p->width, n_units);
    }
}

#endif
