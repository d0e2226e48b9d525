/* device/gpu/gpu.h - inside of the GPU as a device: what its C files share.
 *
 * Weights arrive in canonical rows (upload.c). The first program that uses them packs them into the tiles
 * of its products (pack.c), because only a tape says which belong together: q, k and v in one product,
 * gate and up row by row; rows that are read one by one (EMBED) stay canonical as well.
 * A program (program.c) is a list of launches, captured into a graph, and into others for shallow steps and for steps
 * at depth, where attention takes other kernels (enum attn_depth); all when a step first needs one. Values, activations
 * of products and scratch lie in a block of device memory that all programs of a cache share, as large as the largest
 * needs (a drafter's steps leave the target's results as they are); when it grows, programs build their launches again.
 */
#ifndef LUCE_DEVICE_GPU_GPU_H
#define LUCE_DEVICE_GPU_GPU_H

#include "device/device.h"
#include "device/gpu/kernels.h"

enum { GPU_STAGING = 16 << 20 };    /* bytes of each pinned buffer */

struct gpu_block {              /* memory that grows to what the largest of its programs needs */
    uint8_t *at;
    uint64_t bytes;
};

struct gpu {
    struct device base;
    int index, card;            /* of its id; as the runtime numbers it */
    int n_units, major, minor;
    gpu_stream stream;
    struct nvml *nvml;          /* NULL: not there */
    uint8_t *staging[2];        /* pinned, for uploads */
    gpu_event staged[2];
    struct step *step;          /* on the device */
    int32_t *tree;              /* [STEP_SEQS] on the device */
    struct kept *kept;          /* [STEP_SEQS] on the device: what the last ACCEPT kept */
    struct device_limits limits;        /* the best that was measured; block: for which it was done last */
    struct gpu_block block;     /* of programs without a cache */
    struct gpu_block parts;     /* of products, of all programs; nothing else may touch it (between products it is all
                                   NOT_YET, linear_finish.cuh) */
    unsigned generation;        /* of all blocks */
    uint64_t n_queued, n_done;  /* steps that were launched, and those of them that have surely run */
    bool lost;
};

struct gpu_pack;
struct gpu_weight {             /* weight.dev */
    uint8_t *at;                /* canonical rows, or NULL when only the pack is left */
    uint32_t type;              /* of the rows here: decodable */
    uint64_t row_bytes, bytes;
    float unit;                 /* values here are the weight's times unit */
    struct gpu_pack *pack;
};
enum { PACK_MOST = 3 };
struct gpu_pack {               /* tiles of weights that one product multiplies */
    const struct weight *w[PACK_MOST];
    int n;
    bool pair;                  /* gate and up */
    enum tile_format format;
    uint8_t *tiles;
    float scale_unit;           /* what packing multiplies scales by */
    float unit;                 /* what the tiles' values are multiplied by */
    int n_rows, n_cols;         /* as packed, of an expert */
    int n_experts;              /* 1: no experts */
};

struct device_cache {
    const struct kv_layout *layout;
    int n_slots, n_pages[KV_POOLS], max_pages[KV_MAX_KINDS];
    uint8_t *pages[KV_POOLS];
    int32_t *table[KV_MAX_KINDS];
    int32_t *arrived;           /* of DELTA (struct delta_args) */
    struct gpu_block block;     /* values and scratch of its programs */
};

/* device.c: the status of a runtime call; what: "copying weights to". A lost device is remembered. */
luce_status gpu_check(struct gpu *g, gpu_error e, const char *what, luce_error *err);
luce_status gpu_alloc(struct gpu *g, void **out, uint64_t bytes, const char *what, luce_error *err);
void gpu_free(struct gpu *g, void *p);

/* upload.c */
uint64_t gpu_weight_bytes(const struct device *d, const struct weight *w);
luce_status gpu_upload(struct device *d, struct weight *w, luce_error *err);
void gpu_release(struct device *d, struct weight *w);
struct rows gpu_rows(const struct weight *w);

/* pack.c: the pack of these weights, made when it is not there. keep: bit i set when w[i] must stay
 * canonical as well. *out NULL: they cannot share a product (matrices that are no pair). */
luce_status gpu_pack_get(struct gpu *g, const struct weight *const *w, int n, bool pair, unsigned keep,
                         struct gpu_pack **out, luce_error *err);
void gpu_pack_free(struct gpu *g, struct gpu_pack *p);

/* cache.c */
luce_status gpu_cache_open(struct device *d, struct device_cache **out, const struct cache_params *p,
                           luce_error *err);
void gpu_cache_close(struct device *d, struct device_cache *c);
luce_status gpu_page_read(struct device *d, struct device_cache *c, int kind, int page, void *host,
                          luce_error *err);
luce_status gpu_page_write(struct device *d, struct device_cache *c, int kind, int page, const void *host,
                           luce_error *err);
luce_status gpu_page_copy(struct device *d, struct device_cache *c, int kind, int from, int to, luce_error *err);
struct kv_place gpu_kv_place(const struct device_cache *c, int layer);
struct state_place gpu_state_place(const struct device_cache *c, int layer);

/* program.c */
luce_status gpu_compile(struct device *d, struct program **out, const struct tape *t, const struct plan *p,
                        struct device_cache *c, luce_error *err);
void gpu_program_close(struct device *d, struct program *p);
luce_status gpu_run(struct device *d, struct program *p, const struct step *s, trace_fn trace, void *context,
                    luce_error *err);
luce_status gpu_wait(struct device *d, luce_error *err);
luce_status gpu_hold(struct device *d, void **out, uint64_t bytes, luce_error *err);
void gpu_drop(struct device *d, void *held);
luce_status gpu_read(struct device *d, struct program *p, const struct rows_read *rows, int n, luce_error *err);
luce_status gpu_write(struct device *d, struct program *p, struct val v, int first_row, int n_rows,
                      const void *host, luce_error *err);
luce_status gpu_write_held(struct device *d, struct program *p, struct val v, int first_row, int n_rows,
                           const void *held, luce_error *err);

/* measure.c */
luce_status gpu_measure(struct device *d, struct device_limits *out, luce_error *err);

/* telemetry.c: NVML, opened at run time. */
struct nvml *nvml_open(int index);
void nvml_close(struct nvml *n);
const char *nvml_driver(const struct nvml *n);
/* Since the driver started; negative when unknown. */
double nvml_joules(struct nvml *n);

#endif
