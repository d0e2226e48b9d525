/* device/gpu/kernels.h - launches of the GPU's kernels, for C: the arguments of each and a function that
 * fills a launch. A launch is data (kernel, grid, arguments), so a program keeps a list of them, captures
 * it into a graph or runs it call by call. Pointers in arguments are device addresses.
 *
 * The activations of a product are f16 (struct form) in panels [k / 64][row][128 bytes], the 16-byte pieces of a
 * row swapped by row % 8, as matrix units read them from shared memory; the columns of a row in the order of
 * quant/tiles.cuh. Columns up to the next multiple of 64 are written as zeros. */
#ifndef LUCE_DEVICE_GPU_KERNELS_H
#define LUCE_DEVICE_GPU_KERNELS_H

#include <stdbool.h>
#ifdef __cplusplus
#define _Static_assert static_assert
#endif
#include "device/gpu/port.h"
#include "tape/step.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LAUNCH_ARGS = 384, KINDS = 4 };

struct launch {
    const void *kernel;
    unsigned grid[3], block, shared;
    bool     overlap;           /* may start before its predecessor ends (it waits by itself) */
    int      call;              /* of the tape; -1: none */
    uint64_t args[LAUNCH_ARGS / 8];
};

/* Where a value also goes as the activations of products. at NULL: nowhere. */
struct form {
    uint8_t *at;
    int32_t  rows;              /* of a panel: 1, 2, 4, .. NARROW_ROWS, or wide: a multiple of WIDE_ROWS */
    float    scale;             /* power of two that keeps the values in f16's range */
};

/* Rows of a matrix as the GPU can decode them: f32, f16, bf16, and those that have tiles (tiles_of). */
struct rows {
    const uint8_t *at;
    uint64_t row_bytes;
    uint32_t type;              /* id of quant/ */
    int32_t  n_rows, n_cols;
    float    unit;              /* values are multiplied by it */
};
bool rows_decodable(uint32_t type);

/* Keys and values of one layer. */
struct kv_place {
    uint8_t *pages;             /* of the kind */
    const int32_t *table;       /* [slot][max_pages] */
    uint64_t page_bytes, k_at, v_at, head;      /* head: bytes from one head to the next */
    uint32_t k_format, v_format;
    int32_t  k_row, v_row, k_scales, v_scales;  /* bytes of a position; where scales begin, 0: none */
    int32_t  max_pages, kv_heads, dim;
};

/* The step comes from host memory; its edits change the tables. tree[s]: the rows of sequence s are no
 * chain. */
struct begin_args {
    const struct step *host;
    struct step *step;
    int32_t *tree;
    const struct kept *kept;    /* what a sequence of this step may come after */
    int32_t *table[KINDS];
    int32_t max_pages[KINDS], n_kinds, n_slots;
    struct {
        int32_t rows, outs, seqs;
    } bucket;                   /* most that a step has */
};
void launch_begin(struct launch *l, const struct begin_args *a);

struct embed_args {
    struct rows table;
    const struct step *step;
    float *y;
    float scale;
};
/* One block a row, as all below unless they say otherwise. `rows`: of the bucket. */
void launch_embed(struct launch *l, const struct embed_args *a, int rows);

/* MOE_DOWN's end: y = sum over slots of weights * z, the first first, (+ residual). */
struct moe_sum_args {
    const float *z, *weights, *residual;
    float *y;
    const int32_t *n_rows;
    int32_t slots, cols;
};
struct norm_args {
    struct moe_sum_args sum;    /* z NULL: none; else x is y of this sum, which is made first */
    const float *x, *w, *residual;
    float *y;                   /* may be NULL */
    float *factors;             /* what each row was multiplied by, besides w; or NULL */
    struct form form;
    const int32_t *n_rows;
    int32_t cols;
    float eps;
};
void launch_norm(struct launch *l, const struct norm_args *a, int rows);
/* Whether it can make a sum of so many columns. */
bool norm_can_sum(int cols);

enum map_kind { MAP_COPY, MAP_ADD, MAP_SILU, MAP_GELU, MAP_TAKE };
struct map_args {               /* copy (into a form), a + b, act(a[i]) a[cols + i], rows of out[] */
    const float *a, *b;
    float *y;
    struct form form;
    const int32_t *n_rows;
    const struct step *step;
    int32_t cols, kind;
};
void launch_map(struct launch *l, const struct map_args *a, int rows);
/* Zeros in the columns from cols to the next multiple of 64. */
void launch_pad(struct launch *l, struct form f, int cols, int rows);

struct argmax_args {
    const float *x;
    int32_t *y, *host;          /* host: pinned memory that also gets the result, or NULL */
    const int32_t *n_rows;
    int32_t cols;
    void *scratch;              /* argmax_scratch bytes */
};
uint64_t argmax_scratch(int rows, int cols);
/* Returns how many launches it filled: 2. */
int launch_argmax(struct launch *l, const struct argmax_args *a, int rows);

struct sample_args {
    const float *x, *allowed;   /* allowed: added to x, or NULL */
    const int32_t *argmax, *n_rows;
    const struct step_out *out; /* of the step, on the device */
    int32_t *y, *host;          /* host: pinned memory that also gets the result, or NULL */
    int32_t cols;
};
/* Returns how many launches it filled: 1. */
int launch_sample(struct launch *l, const struct sample_args *a, int rows);

/* What ACCEPT kept of a sequence, for steps and copies behind it. */
struct kept {
    int32_t n, chosen;          /* rows; what was chosen after the last of them */
    int32_t row[NARROW_ROWS];   /* of the step */
};
struct accept_args {
    const int32_t *chosen;
    int32_t *y, *host;          /* host: pinned memory that also gets the result, or NULL */
    const struct step *step;
    struct kept *kept;          /* by sequence */
};
/* A block a sequence. */
void launch_accept(struct launch *l, const struct accept_args *a, int seqs);

/* Rows of a value that were kept, and zeros for those that were not, on their way to memory of the device. */
struct gather_args {
    const uint8_t *from;
    uint8_t *to;
    const struct kept *kept;
    uint64_t row_bytes, stride; /* a multiple of 4; from one row to the next there */
};
void launch_gather(struct launch *l, const struct gather_args *a, int rows);

enum { LIKELY_PICKS = 16 };     /* k, at most */
struct likely_args {
    const float *x;
    int32_t *ids, *host_ids;    /* host: pinned memory that also gets the result, or NULL */
    float *likely, *host_likely;
    const int32_t *n_rows;
    int32_t cols, k;
    float scale;
    void *scratch;              /* likely_scratch bytes */
};
uint64_t likely_scratch(int rows, int cols);
/* Returns how many launches it filled: 2. */
int launch_likely(struct launch *l, const struct likely_args *a, int rows);

struct rope_kv_args {
    const float *x, *q_norm, *k_norm, *freq;
    float *q;
    const struct step *step;
    struct kv_place kv;
    int32_t heads, dims, layout, bucket_rows;
    int32_t q_stride, sections[2];      /* of rope_kv_attr; q_stride is never 0 */
    float magnitude, eps;
};
/* Rows of the bucket, then rows of blocks for the commits of at most `seqs` sequences. */
void launch_rope_kv(struct launch *l, const struct rope_kv_args *a, int rows, int seqs);

struct attn_args {
    int32_t block;              /* narrow rows see all rows of their sequence, not their path */
    const float *q;
    float *y;                   /* may be NULL */
    struct form form;
    const struct step *step;
    const int32_t *tree;
    struct kv_place kv;
    float *parts, *stats;       /* [row][head][split][dim], [..][2]: of narrow steps */
    int32_t heads, window, target, max_splits;  /* target: splits of a row, about (attn_target) */
    int32_t leave;              /* launch_attn's: blocks without work end at once (wait_idle) */
    float scale, softcap;
};
bool attn_can(int heads, int kv_heads, int dim);
/* Of narrow steps. Shallow: no row has more than one split. Far: by the kernel for many packed rows at depth
 * (attn_deep.cu), which the layer must have. A row has the same bits at each. */
enum attn_depth { ATTN_SHALLOW, ATTN_NEAR, ATTN_FAR, ATTN_DEPTHS };
/* Narrow: the splits, and but for shallow steps their combination. Returns how many launches it filled (1 or 2). */
int launch_attn(struct launch *l, const struct attn_args *a, int rows, bool wide, enum attn_depth depth, int n_units);
bool attn_deep_can(const struct kv_place *kv);
/* Whether a sequence with so many positions is shallow; whether `rows` rows behind `past` ones are far: worth it. */
bool attn_shallow(int positions);
bool attn_far(int rows, int group, int past);
/* Wide steps by warp groups (attn_wide.cu), where they can; one launch. launch_attn chooses. */
bool attn_wide_can(const struct attn_args *a);
void launch_attn_wide(struct launch *l, const struct attn_args *a, int n_units);
/* How many splits a row should have; how many it can see behind so many positions; floats of scratch. */
int attn_target(const struct kv_place *kv, int n_units);
int attn_splits(int positions, int window, int target);
uint64_t attn_scratch(int rows, int heads, int dim, int max_splits);

/* ---- recurrent layers ----------------------------------------------------------------------------------- */
struct state_place {            /* one layer's parts of page 0, and from one page to the next, in f32 */
    float *state, *journal;
    uint64_t state_page, journal_page;
};
struct conv_state_args {
    const float *x, *w;         /* [rows][x_cols], of which the first are the channels; [channels][taps] */
    float *y;
    const struct step *step;
    struct state_place place;
    int32_t channels, taps, x_cols;
};
bool short_conv_can(int taps);
void launch_short_conv(struct launch *l, const struct conv_state_args *a, int rows, int seqs, bool wide);

struct delta_args {
    const float *x, *gates, *a, *dt;    /* x: [rows][x_cols], of which the first are the channels */
    float *y;
    const struct step *step;
    struct state_place place;
    uint64_t memory_at, keys_at, corrections_at, decays_at;     /* in the layer's state; in its journal */
    int32_t channels, x_cols, k_heads, v_heads, k_dim, v_dim, grouped;
    float eps;
    struct conv_state_args conv;        /* w not NULL: x is what goes into this SHORT_CONV */
    int32_t *arrived;           /* [slot][k_heads]: blocks that have read the old keys; 0 between launches */
    void *scratch;              /* of wide steps: delta_wide_scratch bytes */
};
bool delta_can(int k_dim);
/* Whether steps of so many rows can do SHORT_CONV's work, too. */
bool delta_can_convolve(int taps, int rows);
/* Returns how many launches it filled (1 or 2). */
int launch_delta(struct launch *l, const struct delta_args *a, int rows, int seqs, bool wide, int n_units);
/* Wide steps in chunks (delta_wide.cu), where they can; two launches. launch_delta chooses. */
bool delta_wide_can(const struct delta_args *a);
uint64_t delta_wide_scratch(const struct delta_args *a, int rows, int seqs);
int launch_delta_wide(struct launch *l, const struct delta_args *a, int rows, int seqs);

struct gated_args {
    const float *x, *gate, *w;  /* w NULL: no norm */
    const float *residual;      /* may be NULL */
    float *y;                   /* may be NULL */
    struct form form;
    const int32_t *n_rows;
    int32_t heads, dim, gate_cols, at, stride, silu, scalar;
    float eps;
    int32_t pieces;             /* of a head, a warp each; set by launch_gated */
};
void launch_gated(struct launch *l, const struct gated_args *a, int rows);

struct mix_args {               /* CONV */
    const float *x, *dyn, *base;        /* base: of the side */
    float *y;
    const struct step *step;
    int32_t cols, taps, group, dyn_cols, dyn_at;
};
void launch_mix(struct launch *l, const struct mix_args *a, int rows);

/* ---- products ------------------------------------------------------------------------------------- */
enum tile_format { TILES_F16, TILES_Q8_0, TILES_Q4_0, TILES_Q4_K, TILES_Q5_K, TILES_Q6_K, TILES_IQ4_XS, TILES_COUNT };
/* The tile format of rows of this type; f16 for those that have none of their own. */
enum tile_format tiles_of(uint32_t type);
uint64_t tiles_bytes(enum tile_format f, uint64_t n_rows, uint64_t n_cols);

/* One row of activations that the products which read it make themselves, each block what it needs, instead of NORM or
 * GATED: of so many columns and columns of a head at most. */
enum { MADE_COLS = 6144, MADE_HEAD = 256 };
enum made_by { MADE_APART, MADE_BY_NORM, MADE_BY_GATED };
struct made {
    int32_t by, cols;           /* enum made_by */
    const float *x, *w;
    float *y;                   /* of NORM: who reads it in f32; or NULL */
    float eps;
    int32_t dim, gate_cols, at, stride, silu;   /* as in struct gated_args */
    const float *gate;
};
/* Whether they can: m without addresses. */
bool product_can_make(const struct made *m, int rows);

/* A deferred NORM, of what a product with a residual gives: no launch of its own. The product before it writes x w as
 * activations, times a power of two that f16's range needs, which follows from how large the row was at the NORM before
 * (`before`: its factors), and of each strip the sum of x^2. The products after it find the factors of the rows from
 * these sums, and multiply what they give by them. Of at most so many columns: sums take room of activations. */
enum { DEFERRED_COLS = 32768 };
struct norm_before {
    const float *w, *before;    /* w NULL: none */
    float *sums;                /* [row][stride]: by strips of 128 columns */
    int32_t stride;             /* a multiple of four */
};
struct norm_behind {
    const float *sums, *before; /* sums NULL: none */
    float *factors;             /* [NARROW_ROWS], for the NORM after this one */
    int32_t cols, stride;
    float eps;
};

enum product_epilogue { PRODUCT_STORE, PRODUCT_SILU, PRODUCT_GELU };
struct product {
    enum tile_format format;
    enum product_epilogue epilogue;     /* not STORE: 16 gate rows, 16 up rows, ... */
    const uint8_t *tiles;
    struct form x;
    struct made make;           /* not MADE_APART: x is one row, and not read */
    struct norm_behind normed;  /* x is of this NORM */
    float *y;                   /* may be NULL with a form */
    struct form form;           /* SILU, GELU; STORE: of the deferred NORM that reads y */
    struct norm_before norm;
    const float *residual, *bias;
    const int32_t *n_rows;
    int32_t n_cols, n_rows_w;   /* of the matrix: columns; rows as packed, gate and up both */
    int32_t out_rows, y_stride;
    float unit, softcap;        /* unit: what the weights are multiplied by, as the tiles give them */
    uint32_t *parts;            /* scratch (product_parts bytes), all bits set whenever no product runs */
    uint8_t *panel;             /* wide: room for the weights in f16 (wide_panel_bytes) */
    /* Narrow: the next launch is a product of the same x, beside this one: it starts when what this one waits for is
     * done; and this is such a product: it waits for the one before at its end. Their parts lie apart. */
    bool leads, beside;
};
void launch_product(struct launch *l, const struct product *p, int n_units);
uint64_t product_parts(const struct product *p, int n_units);
/* Wide: unpacked where they are packed, and multiplied. Returns how many launches it filled (1 or 2). */
enum { WIDE_ROWS = 128 };
int launch_wide_product(struct launch *l, const struct product *p, int n_units);
uint64_t wide_panel_bytes(const struct product *p);
void products_prepare(void);    /* once a device: attributes of the kernels */
int card_shared(void);          /* after that: bytes of shared memory that a block may have */
bool card_is_small(void);       /* after that: its code has the shapes for less than BIG_SHARED of it */
enum { BIG_SHARED = 227 * 1024 };
bool card_has_bf16(void);       /* after that: mma_bf16 does something (from sm_80 on, and on AMD cards) */
bool has_warpgroups(void);      /* after that: the device has warp-group products (sm_90a) */
bool has_group_products(void);  /* after that: those of attention at depth, which the emulated card has, too */

/* ---- experts (moe.cuh, route.cu) --------------------------------------------------------------------- */
struct route_args {
    const float *z, *bias;      /* [rows][z_cols]; [experts] or NULL */
    int32_t *ids;               /* [rows][used + shared], the best first */
    float *weights;
    const int32_t *n_rows;
    int32_t experts, used, z_cols, sigmoid, normalise;
    int32_t shared;             /* 1: an expert behind them that each row has in a slot behind the used ones; else 0 */
    float scale;
};
/* slots: of a row. */
bool route_can(int experts, int slots);
/* Whether MOE_GLU can route such steps itself. */
bool route_can_inside(int experts, int rows);

/* Assignments (row * slots + slot) by expert, in parts of at most moe_width; the entries follow the parts' room. */
struct moe_part {
    int32_t expert, first, count;       /* entries first .. first + count - 1 */
};
struct moe_table {
    int32_t n_parts, n_routed, entries; /* parts, the shared expert's behind the n_routed; byte where entries begin */
    struct moe_part part[];
};
int moe_width(int rows);
uint64_t moe_table_bytes(int rows, int slots, int experts);
/* Routes, and fills the table when it is not NULL: one or two launches. */
int launch_route(struct launch *l, const struct route_args *a, struct moe_table *table, int rows);

enum moe_parts { MOE_ALL, MOE_ROUTED, MOE_SHARED };     /* whose parts are multiplied */
struct moe_product {            /* STORE: x and y by assignment; else x by row, and 16 gate rows, 16 up rows, ... */
    enum tile_format format;
    enum product_epilogue epilogue;
    enum moe_parts parts;
    const uint8_t *tiles;       /* of one expert after the other */
    const uint8_t *shared;      /* of the shared one */
    const float *x;
    float *y;
    struct moe_table *table;
    struct route_args route;    /* z not NULL: of one row, which this launch routes; it makes the table, too */
    int32_t n_cols, n_rows_w, out_rows; /* of an expert; as packed; that exist */
    int32_t slots, width;
    float unit, shared_unit, scale;     /* as in struct product; of x in f16 */
};
void launch_moe_product(struct launch *l, const struct moe_product *p, int n_units);

/* The sum alone. */
void launch_moe_sum(struct launch *l, const struct moe_sum_args *a, int rows);

/* ---- loading (run at once on a stream) ---------------------------------------------------------------- */
/* Packs rows into tiles. pair: `a` and `b` are gate and up, interleaved. n: so many matrices, whose rows follow each
 * other; n_rows are of one. */
gpu_error pack_tiles(enum tile_format f, uint8_t *tiles, const struct rows *a, const struct rows *b, bool pair, int n,
                     gpu_stream s);
/* Largest absolute scale (value, in formats without codes), by atomic maximum into *out (zero before). */
gpu_error rows_absmax(const struct rows *r, float *out, gpu_stream s);
/* f16 values times r->unit, row after row. */
gpu_error rows_to_f16(const struct rows *r, uint16_t *out, gpu_stream s);

/* ---- measuring --------------------------------------------------------------------------------------- */
/* Random bf16 numbers. */
gpu_error measure_fill(void *p, uint64_t bytes, gpu_stream s);
/* Reads all of it once. */
gpu_error measure_read(const void *p, uint64_t bytes, int variant, int n_units, void *sink, gpu_stream s);

#ifdef __cplusplus
}
#endif
#endif
