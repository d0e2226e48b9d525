/* device/gpu/measure.c - the rates that benches compare with: the best of several streaming reads over 4 GiB
 * (or half of what is free), and a bf16 product of 8192 cubed through the vendor's library, opened at run
 * time; 0 where it is not there. A card's rates do not change from second to second: they are measured once for each
 * size that is asked about, and the best of all counts. */
#include <dlfcn.h>

#include "base/mem.h"
#include "device/gpu/gpu.h"

enum { VARIANTS = 8, ROUNDS = 3, SIDE = 8192 };

static luce_status time_reads(struct gpu *g, uint8_t *at, uint64_t bytes, gpu_event t[2], double *best,
                              luce_error *err)
{
    luce_status st = LUCE_OK;
    for (int i = 0; i < VARIANTS * ROUNDS && !st; i++) {
        float ms = 0;
        st = gpu_check(g, GPU(EventRecord)(t[0], g->stream), "measuring", err);
        if (!st) st = gpu_check(g, measure_read(at, bytes, i % VARIANTS, g->n_units, g->tree, g->stream),
                                "measuring", err);
        if (!st) st = gpu_check(g, GPU(EventRecord)(t[1], g->stream), "measuring", err);
        if (!st) st = gpu_check(g, GPU(EventSynchronize)(t[1]), "measuring", err);
        if (!st) st = gpu_check(g, GPU(EventElapsedTime)(&ms, t[0], t[1]), "measuring", err);
        if (!st && ms > 0 && (double)bytes / (ms * 1e-3) > *best) *best = (double)bytes / (ms * 1e-3);
    }
    return st;
}

/* The parts of cuBLAS that this needs, by its documentation. */
struct blas {
    void *library, *handle;
    int (*create)(void **handle), (*destroy)(void *handle), (*set_stream)(void *handle, gpu_stream s);
    int (*gemm)(void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
                int a_type, int lda,
                const void *b, int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                    int compute, int algo);
};
enum { BLAS_BF16 = 14, BLAS_COMPUTE_F32 = 68, BLAS_DEFAULT = -1 };

static bool blas_open(struct blas *b)
{
    static const char *const files[] = { "libcublas.so.13", "libcublas.so.12" };
    for (size_t i = 0; i < COUNT(files) && !b->library; i++) b->library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    if (!b->library) return false;
    *(void **)&b->create = dlsym(b->library, "cublasCreate_v2");
    *(void **)&b->destroy = dlsym(b->library, "cublasDestroy_v2");
    *(void **)&b->set_stream = dlsym(b->library, "cublasSetStream_v2");
    *(void **)&b->gemm = dlsym(b->library, "cublasGemmEx");
    return b->create && b->destroy && b->set_stream && b->gemm && b->create(&b->handle) == 0;
}

static void time_products(struct gpu *g, uint8_t *at, gpu_event t[2], double *best)
{
    struct blas b = { 0 };
    const float one = 1, zero = 0;
    uint64_t matrix = (uint64_t)SIDE * SIDE * 2;
    if (blas_open(&b)) {
        b.set_stream(b.handle, g->stream);
        for (int i = 0; i < 12; i++) {
            float ms = 0;
            (void)GPU(EventRecord)(t[0], g->stream);
            int bad = b.gemm(b.handle, 1, 0, SIDE, SIDE, SIDE, &one, at, BLAS_BF16, SIDE, at + matrix,
                             BLAS_BF16, SIDE, &zero,
                             at + 2 * matrix, BLAS_BF16, SIDE, BLAS_COMPUTE_F32, BLAS_DEFAULT);
            (void)GPU(EventRecord)(t[1], g->stream);
            if (bad || GPU(EventSynchronize)(t[1]) != GPU(Success)) break;
            (void)GPU(EventElapsedTime)(&ms, t[0], t[1]);
            double rate = 2.0 * SIDE * SIDE * SIDE / (ms * 1e-3);
            if (i > 2 && ms > 0 && rate > *best) *best = rate;
        }
        b.destroy(b.handle);
    }
    if (b.library) dlclose(b.library);
}

luce_status gpu_measure(struct device *d, struct device_limits *out, luce_error *err)
{
    struct gpu *g = (struct gpu *)d;
    size_t free = 0, total = 0;
    struct device_limits *kept = &g->limits;
    if (kept->read_bytes_per_s > 0 && kept->block == out->block) return *out = *kept, LUCE_OK;
    kept->block = out->block;
    *out = (struct device_limits){ 0 };
    (void)GPU(MemGetInfo)(&free, &total);
    uint64_t bytes = (uint64_t)4 << 30;
    if (bytes > free / 2) bytes = free / 2 / 4096 * 4096;
    uint8_t *at = NULL;
    gpu_event t[2] = { NULL, NULL };
    luce_status st = gpu_alloc(g, (void **)&at, bytes, "measuring its bandwidth", err);
    for (int i = 0; i < 2 && !st; i++) st = gpu_check(g, GPU(EventCreate)(&t[i]), "measuring", err);
    if (!st) st = gpu_check(g, measure_fill(at, bytes, g->stream), "measuring", err);
    if (!st) st = time_reads(g, at, bytes, t, &out->read_bytes_per_s, err);
    if (!st && bytes >= (uint64_t)3 * SIDE * SIDE * 2) time_products(g, at, t, &out->bf16_ops_per_s);
    if (kept->read_bytes_per_s < out->read_bytes_per_s) kept->read_bytes_per_s = out->read_bytes_per_s;
    if (kept->bf16_ops_per_s < out->bf16_ops_per_s) kept->bf16_ops_per_s = out->bf16_ops_per_s;
    kept->f32_ops_per_s = kept->bf16_ops_per_s;         /* f32 weights multiply on the same units, as f16 */
    *out = *kept;
    for (int i = 0; i < 2; i++)
        if (t[i]) (void)GPU(EventDestroy)(t[i]);
    gpu_free(g, at);
    return st;
}
