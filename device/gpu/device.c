/* device/gpu/device.c - a CUDA or HIP GPU as a device: open, describe, promise. */
#include "device/gpu/device.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "device/gpu/program.h"

luce_status gpu_check(struct gpu *g, gpu_error e, const char *what, luce_error *err)
{
    if (e == GPU(Success)) return LUCE_OK;
    (void)GPU(GetLastError)();
    if (e == GPU(ErrorMemoryAllocation))
        return fail(err, LUCE_E_DEVMEM, GPU_NAME ":%d: out of device memory for %s", g->index, what);
    g->lost = true;
    return fail(err, LUCE_E_DEVICE, GPU_NAME ":%d failed while %s: %s. The device cannot be used any more by this "
                "process: start it again", g->index, what, GPU(GetErrorString)(e));
}

luce_status gpu_alloc(struct gpu *g, void **out, uint64_t bytes, const char *what, luce_error *err)
{
    *out = NULL;
    gpu_error e = GPU(Malloc)(out, bytes ? bytes : 256);
    if (e == GPU(Success)) return LUCE_OK;
    *out = NULL;
    if (e != GPU(ErrorMemoryAllocation)) return gpu_check(g, e, what, err);
    (void)GPU(GetLastError)();
    size_t free = 0, total = 0;
    (void)GPU(MemGetInfo)(&free, &total);
    return fail(err, LUCE_E_DEVMEM, GPU_NAME ":%d: out of device memory: %s takes %.1f MiB, %.1f of %.1f MiB are free. "
                "A shorter context, fewer slots or a smaller format needs less", g->index, what,
                (double)bytes / 1048576, (double)free / 1048576, (double)total / 1048576);
}

void gpu_free(struct gpu *g, void *p)
{
    (void)g;
    if (p) (void)GPU(Free)(p);              /* of a lost card it fails at once */
}

static void close_gpu(struct device *d)
{
    struct gpu *g = (struct gpu *)d;
    if (!g) return;
    nvml_close(g->nvml);
    if (!g->lost && g->stream) (void)GPU(StreamSynchronize)(g->stream);
    for (int i = 0; i < 2; i++) {
        if (g->staging[i]) (void)GPU(FreeHost)(g->staging[i]);
        if (g->staged[i]) (void)GPU(EventDestroy)(g->staged[i]);
    }
    gpu_free(g, g->step);
    gpu_free(g, g->tree);
    gpu_free(g, g->kept);
    gpu_free(g, g->block.at);
    gpu_free(g, g->parts.at);
    if (g->stream) (void)GPU(StreamDestroy)(g->stream);
    mem_free(g);
}

static luce_status info(struct device *d, struct device_info *out, luce_error *err)
{
    struct gpu *g = (struct gpu *)d;
    struct GPU(DeviceProp) p;
    size_t free = 0, total = 0;
    int runtime = 0;
    luce_status st = gpu_check(g, GPU(GetDeviceProperties)(&p, g->card), "asking for its properties", err);
    if (!st) st = gpu_check(g, GPU(MemGetInfo)(&free, &total), "asking for its memory", err);
    if (st) return st;
    (void)GPU(RuntimeGetVersion)(&runtime);
    *out = (struct device_info){ .memory_total = total, .memory_free = free, .n_units = g->n_units };
    snprintf(out->name, sizeof out->name, "%.120s", p.name);
    snprintf(out->id, sizeof out->id, GPU_NAME ":%d", g->index);
    snprintf(out->driver, sizeof out->driver, "driver %s, runtime %d.%d", nvml_driver(g->nvml), runtime / 1000,
             runtime % 1000 / 10);
    return LUCE_OK;
}

/* QKV runs as LINEAR and ROPE_KV; a GLU of unlike formats as LINEAR and GATE. */
static bool has(const struct device *d, const struct call *c)
{
    (void)d;
    switch (c->op) {
    case OP_GLU: return ((const struct glu_attr *)c->attr)->n_mat == 1 ||
                        (tiles_of(c->w[0]->type) == tiles_of(c->w[1]->type));
    case OP_ROUTE: return route_can(((const struct route_attr *)c->attr)->experts, c->shape[0].cols);
    case OP_MOE_GLU:
        for (int i = 0; i < c->n_w; i += MOE_GLU_W)
            if (tiles_of(c->w[i]->type) != tiles_of(c->w[i + 1]->type)) return false;
        return true;
    case OP_ROPE_KV: {
        const struct rope_kv_attr *a = c->attr;
        return a->head_dim <= 256;
    }
    case OP_ATTN: {
        const struct attn_attr *a = c->attr;
        return attn_can(a->heads, a->kv_heads, a->head_dim);
    }
    case OP_SHORT_CONV: return short_conv_can((int)c->w[0]->dim[0]);
    case OP_DELTA: return delta_can(((const struct delta_attr *)c->attr)->k_dim);
    default: return program_has(c->op);
    }
}

/* A weight that is a difference (q4_K: d q - m): both terms are rounded to f16, and their errors are common
 * to the 32 weights of a block, which shows where an output happens to be small. */
static bool has_mins(const struct call *c)
{
    for (int i = 0; i < c->n_w; i++)
        if (c->w[i] && c->w[i]->dim[1] > 1 &&
            (tiles_of(c->w[i]->type) == TILES_Q4_K || tiles_of(c->w[i]->type) == TILES_Q5_K))
            return true;
    return false;
}

/* Normalised squared errors. Activations and weights of products are f16, 2^-24 / 3 each, more where an
 * output of few terms is small. Attention rounds q, its weights and its output to f16. */
static double tolerance(const struct device *d, const struct tape *t, const struct call *c)
{
    (void)d, (void)t;
    switch (c->op) {
    case OP_LINEAR: return has_mins(c) ? 4e-5 : 4e-6;
    case OP_GLU: case OP_MOE_GLU: return has_mins(c) ? 4e-5 : 1e-5;
    case OP_MOE_DOWN: return has_mins(c) ? 4e-5 : 4e-6;
    case OP_ATTN: return 4e-6;
    case OP_ARGMAX: case OP_SAMPLE: case OP_ACCEPT: case OP_TAKE: return 0;
    case OP_ROUTE: return 1e-10;
    case OP_EMBED: return rows_decodable(c->w[0]->type) ? 1e-9 : 1e-6;
    default: return 1e-9;
    }
}

static double joules(struct device *d)
{
    return nvml_joules(((struct gpu *)d)->nvml);
}

static const struct device_fns fns = {
    .close = close_gpu, .info = info, .has = has, .weight_bytes = gpu_weight_bytes, .upload = gpu_upload,
    .release = gpu_release, .cache_open = gpu_cache_open, .cache_close = gpu_cache_close,
    .page_read = gpu_page_read, .page_write = gpu_page_write, .page_copy = gpu_page_copy, .compile = gpu_compile,
    .program_close = gpu_program_close, .run = gpu_run, .wait = gpu_wait, .hold = gpu_hold, .drop = gpu_drop,
    .read = gpu_read,
    .write = gpu_write, .write_held = gpu_write_held, .measure = gpu_measure, .joules = joules, .tolerance = tolerance,
};

static luce_status claim(struct gpu *g, luce_error *err)
{
    luce_status st = LUCE_OK;
    for (int i = 0; i < 2 && !st; i++) {
        st = gpu_check(g, GPU(MallocHost)((void **)&g->staging[i], GPU_STAGING), "claiming pinned memory", err);
        if (!st) st = gpu_check(g, GPU(EventCreateWithFlags)(&g->staged[i], GPU(EventDisableTiming)),
                                "making an event", err);
    }
    if (!st) st = gpu_alloc(g, (void **)&g->step, sizeof *g->step, "the step", err);
    if (!st) st = gpu_alloc(g, (void **)&g->tree, STEP_SEQS * sizeof *g->tree, "the step", err);
    if (!st) st = gpu_alloc(g, (void **)&g->kept, STEP_SEQS * sizeof *g->kept, "the step", err);
    return st;
}

/* What the smallest shapes of the kernels want. */
enum { SHARED_NEEDED = 64 * 1024, DEVICES_MOST = 64 };

/* Cards that this build can run on, as the runtime numbers them; *seen: all cards; *why none, if it is an error. */
static int usable_cards(int cards[DEVICES_MOST], int *seen, gpu_error *why)
{
    int n = 0;
    *seen = 0;
    if ((*why = GPU(GetDeviceCount)(seen)) != GPU(Success)) *seen = 0;
    for (int i = 0; i < *seen && n < DEVICES_MOST; i++) {
        int shared = 0;
        if (GPU(DeviceGetAttribute)(&shared, GPU(DevAttrMaxSharedMemoryPerBlockOptin), i) != GPU(Success)) continue;
        if (shared >= SHARED_NEEDED) cards[n++] = i;
    }
    (void)GPU(GetLastError)();
    return n;
}
/* What has() refuses, in words. */
static const char takes[] = "attention heads of 8 to 256 dims in multiples of 8 (to 128 on cards with 64 KiB of shared "
                            "memory a block), up to 64 of them on a kv head, and up to 4096 experts; --device cpu "
                            "takes any";

static luce_status open_gpu(struct device **out, int index, const struct device_params *p, luce_error *err)
{
    (void)p;
    *out = NULL;
    int cards[DEVICES_MOST], seen;
    gpu_error why;
    const int n = usable_cards(cards, &seen, &why);
    if (index >= n)
        return fail(err, LUCE_E_ARG, "there is no device '" GPU_NAME ":%d': this build can use %d of %d cards here",
                    index, n, seen);
    const int card = cards[index];
    struct gpu *g = mem_zero(sizeof *g);
    if (!g) return fail(err, LUCE_E_NOMEM, "out of memory for the device");
    g->base = (struct device){ .fns = &fns, .max_wide_rows = STEP_ROWS, .takes = takes, .ahead = true };
    g->index = index;
    g->card = card;
    luce_status st = gpu_check(g, GPU(SetDevice)(card), "being opened", err);
    if (!st) (void)GPU(SetDeviceFlags)(GPU(DeviceScheduleSpin));
    (void)GPU(DeviceGetAttribute)(&g->n_units, GPU(DevAttrMultiProcessorCount), card);
    (void)GPU(DeviceGetAttribute)(&g->major, GPU(DevAttrComputeCapabilityMajor), card);
    (void)GPU(DeviceGetAttribute)(&g->minor, GPU(DevAttrComputeCapabilityMinor), card);
    if (!st) st = gpu_check(g, GPU(StreamCreateWithFlags)(&g->stream, GPU(StreamNonBlocking)),
                            "making a stream", err);
    if (!st) st = claim(g, err);
    if (!st) products_prepare();
    if (!st) st = gpu_check(g, GPU(GetLastError)(), "loading its kernels (this build may not hold code for it)", err);
    if (!st && !card_is_small() && card_shared() < BIG_SHARED)
        st = fail(err, LUCE_E_UNSUPPORTED, GPU_NAME ":%d: this build's code wants cards with %d KiB of shared memory a "
                  "block: build it for this card (LUCE_CUDA_ARCHS, see docs/hardware.md)", index, BIG_SHARED / 1024);
    if (st) {
        close_gpu(&g->base);
        return st;
    }
    g->nvml = nvml_open(card);
    *out = &g->base;
    return LUCE_OK;
}

static int count(void)
{
    int cards[DEVICES_MOST], seen;
    gpu_error why;
    return usable_cards(cards, &seen, &why);
}

static void missing(struct buf *out)
{
    int cards[DEVICES_MOST], seen = 0;
    gpu_error why;
    (void)usable_cards(cards, &seen, &why);
    if (why != GPU(Success))
        buf_printf(out, "%s; for a card that is there, install its driver or a newer one", GPU(GetErrorString)(why));
    else
        buf_printf(out, "of %d cards none has %d KiB of shared memory a block, which this build wants", seen,
                   SHARED_NEEDED / 1024);
}

const struct device_kind device_kind_gpu = {
    .name = GPU_NAME, .doc = "a GPU", .count = count, .open = open_gpu, .missing = missing,
};
