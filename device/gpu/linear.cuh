/* device/gpu/linear.cuh - launches of the products of one weight format; each linear_<format>.cu
 * instantiates one, so that they compile beside each other. */
#ifndef LUCE_DEVICE_GPU_LINEAR_CUH
#define LUCE_DEVICE_GPU_LINEAR_CUH

#include "device/gpu/moe.cuh"

/* What linear.cu and wide.cu know of a format. */
struct product_fns {
    void (*fill)(launch *l, const product *p, int n_units);
    uint64_t (*parts)(int n_strips, int x_rows, bool pairs, int n_units);
    void (*moe)(launch *l, const moe_product *p, int n_units);
    /* All strips as f16 panels: [strip][k / 64][STRIP rows][128 bytes]. NULL: tiles are. */
    void (*unpack)(launch *l, const product *p, uint8_t *panel);
};
extern const product_fns product_f16, product_q8_0, product_q4_0, product_q4_k, product_q5_k, product_q6_k,
                         product_iq4_xs;

template <class F, int NT, bool SMALL, bool PAIR, class ARGS>
static void launch_shape(launch *l, ARGS a, int epilogue, int n_units)
{
    typedef linear_shape<F, NT, SMALL, PAIR> shape;
    const int passes = a.x_rows > 8 * NT ? a.x_rows / (8 * NT) : 1;
    a.norm_room = a.normed.sums ? (a.x_rows * a.normed.stride * 4 + 1023) / 1024 * 1024 : 0;
    const size_t all = (size_t)a.n_chunks * (a.x_rows / passes) * X_ROW;
    const size_t room = card_shared() - 1024 - shape::FIXED - a.norm_room;
    static_assert(!ARGS::MAKES || BIG_SHARED - 1024 - (int)shape::FIXED >= 2 * MADE_COLS,
                  "what a product makes is resident");
    static_assert(SMALL || BIG_SHARED - 1024 - (int)shape::FIXED - shape::ROWS * (DEFERRED_COLS / STRIP) * 4 >=
                      2 * NT * X_CHUNK, "beside the sums of a deferred NORM each half of the panels has a chunk");
    a.fit = (int)(all < room ? all : room);
    a.n_bands = (a.n_strips + shape::STRIPS - 1) / shape::STRIPS;
    void (*kernel)(ARGS);
    if constexpr (!PAIR) kernel = linear_narrow<F, NT, EPI_STORE, SMALL, ARGS>;
    else kernel = epilogue == PRODUCT_SILU ? linear_narrow<F, NT, EPI_GLU_SILU, SMALL, ARGS>
                                           : linear_narrow<F, NT, EPI_GLU_GELU, SMALL, ARGS>;
    allow_shared(kernel, card_shared());
    /* More than half of what there is: two blocks on one multiprocessor would leave another without work. */
    const int shared = shape::FIXED + a.norm_room + a.fit, alone = card_shared() / 2 + 1024;
    const int blocks = product_blocks(a.n_bands, a.n_chunks, shape::KW, shape::TURN, n_units);
    fill_launch(l, kernel, dim3(blocks, passes), shape::THREADS, shared > alone ? shared : alone, a);
}
/* In passes of fewer columns where shared memory is short. */
template <class F, int NT, bool PAIR>
static void launch_rows(launch *l, const linear_args &a, int epilogue, int n_units)
{
    if (!card_is_small()) return launch_shape<F, NT, false, PAIR>(l, a, epilogue, n_units);
    typedef typename small_form<F>::type small;
    if constexpr (NT > 1)
        if ((int)linear_shape<small, NT, true, PAIR>::LEAST + 1024 > card_shared())
            return launch_rows<F, NT / 2, PAIR>(l, a, epilogue, n_units);
    launch_shape<small, NT, true, PAIR>(l, a, epilogue, n_units);
}
template <class F, int NT> static void launch_width(launch *l, const linear_args &a, int epilogue, int n_units)
{
    return epilogue == PRODUCT_STORE ? launch_rows<F, NT, false>(l, a, epilogue, n_units)
                                     : launch_rows<F, NT, true>(l, a, epilogue, n_units);
}
template <class F> static void launch_format(launch *l, const product *p, int n_units)
{
    linear_args a = {};
    a.tiles = p->tiles;
    a.x = p->x.at;
    a.y = p->y;
    a.y_form = p->form.at;
    a.residual = p->residual;
    a.bias = p->bias;
    a.parts = p->parts;
    a.n_rows = p->n_rows;
    a.n_chunks = (p->n_cols + TILE_K - 1) / TILE_K;
    a.n_strips = (p->n_rows_w + STRIP - 1) / STRIP;
    a.out_rows = p->out_rows;
    a.y_stride = p->y_stride;
    a.x_rows = p->x.rows;
    a.unit = 1.0f / (p->unit * p->x.scale);
    a.softcap = p->softcap;
    a.form_scale = p->form.scale;
    a.normed = p->normed;
    a.norm = p->norm;
    a.leads = p->leads, a.beside = p->beside;
    if (p->make.by != MADE_APART) {
        const linear_made_args made = { a, p->make };
        return p->epilogue == PRODUCT_STORE ? launch_shape<F, 1, false, false>(l, made, p->epilogue, n_units)
                                            : launch_shape<F, 1, false, true>(l, made, p->epilogue, n_units);
    }
    switch (a.x_rows) {
    case 64: launch_width<F, 8>(l, a, p->epilogue, n_units); break;
    case 32: launch_width<F, 4>(l, a, p->epilogue, n_units); break;
    case 16: launch_width<F, 2>(l, a, p->epilogue, n_units); break;
    default: launch_width<F, 1>(l, a, p->epilogue, n_units);
    }
}
/* A band is shared by the blocks whose ranges meet it. */
template <class F> static uint64_t parts_of(int n_strips, int x_rows, bool pairs, int n_units)
{
    const int strips = pairs ? 2 : 1, n_bands = (n_strips + strips - 1) / strips, nt = (x_rows + 7) / 8;
    const uint64_t blocks = (uint64_t)n_units / (n_bands > 0 ? n_bands : 1) + 2;
    return blocks * n_bands * strips * ROW_WARPS * 2 * nt * 4 * WARP * sizeof(float);
}

struct unpack_args {
    const uint8_t *tiles;
    uint8_t *panel;
    int32_t n_chunks;
};
/* Block: chunks of a strip; warp rw unpacks its tile into shared memory, in the panel's order, and copies
 * the 32 rows out in whole lines. */
template <class F> __global__ void __launch_bounds__(ROW_WARPS * WARP) unpack_kernel(unpack_args a)
{
    DYNAMIC_SHARED(uint32_t, table);
    __shared__ __align__(128) uint8_t staged[ROW_WARPS][TILE_ROWS * 128];
    const int rw = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4, strip = blockIdx.y;
    uint8_t *room = staged[rw];
    typename F::regs r;
    if constexpr (F::LUT > 0) {
        F::fill(table);
        r.lut = shared_place(table), r.column = lane * 4;
        __syncthreads();
    }
    launch_dependents();
    wait_predecessor();
    for (int c = blockIdx.x; c < a.n_chunks; c += gridDim.x) {
        F::load(r, a.tiles + (((uint64_t)strip * a.n_chunks + c) * ROW_WARPS + rw) * F::TILE, lane);
        uint32_t f[4];
#define UNPACK(I, S)                                                                            \
    F::template frag<I, S>(r, f);                                                                \
    _Pragma("unroll") for (int e = 0; e < 4; e++)                                                \
        *(uint32_t *)(room + panel_at((I) * 16 + slot_row(g, 2 * e), slot_column(S, t, 2 * e), 0)) = f[e];
        UNPACK(0, 0) UNPACK(0, 1) UNPACK(0, 2) UNPACK(0, 3)
        UNPACK(1, 0) UNPACK(1, 1) UNPACK(1, 2) UNPACK(1, 3)
#undef UNPACK
        __syncwarp();
        uint4 *to = (uint4 *)(a.panel + (((uint64_t)strip * a.n_chunks + c) * STRIP + rw * TILE_ROWS) * 128);
#pragma unroll
        for (int i = 0; i < TILE_ROWS * 128 / 16 / WARP; i++)
            to[i * WARP + lane] = ((const uint4 *)room)[i * WARP + lane];
        __syncwarp();
    }
}
template <class F> static void unpack_format(launch *l, const product *p, uint8_t *panel)
{
    unpack_args a = { p->tiles, panel, (p->n_cols + TILE_K - 1) / TILE_K };
    const int per = F::LUT > 0 ? 8 : 2;     /* chunks a block: the table is filled once */
    const dim3 grid((a.n_chunks + per - 1) / per, (p->n_rows_w + STRIP - 1) / STRIP);
    fill_launch(l, unpack_kernel<F>, grid, ROW_WARPS * WARP, F::LUT, a);
}

template <class F> constexpr auto unpack_of() -> void (*)(launch *, const product *, uint8_t *)
{
    if constexpr (F::PANELS) return nullptr;
    else return unpack_format<typename small_form<F>::type>;
}

#define PRODUCT_FORMAT(name, F)                                                                                  \
    HOST_CONSTANT(extern const product_fns product_##name = { launch_format<F>, parts_of<F>, launch_moe<F>,       \
                                                              unpack_of<F>() };)

#endif
