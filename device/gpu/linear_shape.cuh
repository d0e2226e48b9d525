/* device/gpu/linear_shape.cuh - a narrow product (linear_narrow.cuh): what a launch is told, which units its blocks
 * take, how it lays out shared memory. */
#ifndef LUCE_DEVICE_GPU_LINEAR_SHAPE_CUH
#define LUCE_DEVICE_GPU_LINEAR_SHAPE_CUH

#include "device/gpu/panel.cuh"

enum { STRIP = 128, ROW_WARPS = STRIP / TILE_ROWS, X_ROW = 128 /* bytes of 64 columns */, X_CHUNK = 8 * X_ROW };

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
    int norm_room;              /* bytes of shared memory for the sums of a deferred NORM, */
    int fit;                    /* and of activations that fit behind them */
    int out_rows, y_stride;     /* rows of the output that exist */
    bool leads, beside;         /* struct product */
    float unit;                 /* undoes the weights' power of two */
    float softcap;
    float form_scale;           /* power of two applied to y_form */
    norm_behind normed;
    norm_before norm;
    enum { MAKES = 0 };
};
/* Of one row that the blocks make themselves: x is not read. */
struct linear_made_args : linear_args {
    made make;
    enum { MAKES = 1 };
};

__device__ inline float act_silu(float x)
{
    return __fdividef(x, 1.0f + __expf(-x));
}
__device__ inline float act_gelu(float x)
{
    float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return __fdividef(x, 1.0f + __expf(-2.0f * u));     /* 0.5 x (1 + tanh u) */
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

/* Tiles that a warp goes through. */
__host__ __device__ inline int tiles_each(int units, int blocks, int k_warps)
{
    return ((units + blocks - 1) / blocks + k_warps - 1) / k_warps;
}
/* Blocks for a matrix, by what they take, in quarters of a microsecond: `turn` for a tile of each warp; about one for a
 * block more that shares a band, whose part is read and added; about four for parts of two bands in a block, each with
 * sums to join. So either each band has its own blocks, or ranges are cut regardless of bands; of both as few blocks as
 * take no longer. */
__host__ __device__ inline int product_blocks(int n_bands, int n_chunks, int k_warps, int turn, int n_units)
{
    enum { CUT = 4 };
    const int units = n_bands * n_chunks, tiles = tiles_each(units, n_units, k_warps);
    int blocks = (units + k_warps * tiles - 1) / (k_warps * tiles), least = turn * tiles + blocks / n_bands + CUT;
    for (int s = n_units / n_bands; s > 0; s--) {
        const int cost = turn * tiles_each(n_chunks, s, k_warps) + s;
        if (cost <= least) least = cost, blocks = n_bands * s;
    }
    return blocks;
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
        LOOKS_UP = F::LUT > 0,          /* then 64 rows need more for activations, beside the table */
        ROOM = (NT == 1 ? LOOKS_UP ? 78 : 110 : NT == 2 ? LOOKS_UP ? 64 : 80 : NT == 8 && LOOKS_UP ? 40 : 64) * 1024,
        LEAST_STAGES = NT < 8 || F::PANELS ? 3 : 2,
        STAGES = SMALL ? 1 : ROOM / (WARPS * F::TILE) < LEAST_STAGES ? LEAST_STAGES : ROOM / (WARPS * F::TILE),
        RING = WARPS * STAGES * F::TILE,
        JOINED = SMALL ? 4 : 8,         /* sums of a lane that are joined at a time */
        SUMS = WARPS * JOINED * WARP * 4,               /* [rw][kw][sum][lane], */
        SLOTS = 2 * ROW_WARPS,                          /* of a deferred NORM: parts of a strip's sum of squares */
        CHUNKS = SMALL && !PAIR ? 0 : NT * X_CHUNK * 2, /* or what becomes of them: chunks of the next product */
        OUTPUT = CHUNKS + (SMALL || PAIR ? 0 : SLOTS * NT * 8 * 4),
        REDUCE = SUMS > OUTPUT ? SUMS : OUTPUT,
        ROWS = 8 * NT,
        DEFERS = !SMALL,                /* NORM, before it and behind it */
        SCALES = SMALL ? 0 : 8 + (ROWS + 2 * NARROW_ROWS) * 4,
        FIXED = (F::LUT + RING + REDUCE + 128 + SCALES + 1023) / 1024 * 1024,
        LEAST = FIXED + KW * NT * X_CHUNK,      /* with a chunk of activations for each warp of a row group */
        VECTOR = 2 * MINE < 4 ? 2 * MINE : 4,   /* words that a lane writes at a time into a part */
        PART = WARPS * 2 * MINE * WARP,         /* words of a part */
        TURN = WARPS * F::TILE / 9216 > 2 ? WARPS * F::TILE / 9216 : 2,     /* product_blocks; 36 bytes a nanosecond */
    };
};
/* A card's code holds one of the two shapes and leaves the other kernels empty. */
template <bool SMALL> __device__ constexpr bool shape_here()
{
    return EVERY_SHAPE || SMALL != HAS_LARGE_SHARED;
}

#endif
