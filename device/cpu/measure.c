/* device/cpu/measure.c - what the machine can do: the limits that the bench compares with.
 * Read rate: the best of the read kernels over a block far larger than the caches, or as large as what is
 * asked about, on 2 MB pages, all threads at once, each over its own share again and again. Arithmetic: loops
 * of independent chains in registers. */
#include "device/cpu/measure.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/cpu/cpu.h"

/* Rounds are short, so that some of them run undisturbed beside other work: a block far above the caches as a
 * whole, smaller ones until CACHED_BYTES are read. */
enum { READ_BYTES = 256 << 20, CACHED_BYTES = 16 << 20, SHARE_BYTES = 1024, ROUNDS = 64, PROBE_ROUNDS = 1 << 16 };

volatile int measure_sink;

void probe_f32_portable(long rounds)
{
    float acc[PROBE_VECTORS * 16];
    for (int i = 0; i < PROBE_VECTORS * 16; i++) acc[i] = (float)i;
    float a = 1.0f + 1e-7f * (float)(measure_sink & 1), b = 1e-7f;
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < PROBE_VECTORS * 16; i++) acc[i] = acc[i] * a + b;
    float sum = 0;
    for (int i = 0; i < PROBE_VECTORS * 16; i++) sum += acc[i];
    measure_sink = (int)sum;
}

void read_portable(const uint8_t *from, size_t bytes)
{
    uint64_t sum[16] = { 0 };
    for (size_t i = 0; i < bytes; i += sizeof sum)
        for (int l = 0; l < 16; l++) {
            uint64_t v;
            memcpy(&v, from + i + 8 * l, 8);
            sum[l] += v;
        }
    for (int l = 0; l < 16; l++) measure_sink += (int)sum[l];
}

struct reading {
    read_fn fn;
    const uint8_t *data;
    size_t bytes;
    int times;
};

static void read_share(void *arg, int thread, int n_threads)
{
    const struct reading *x = arg;
    size_t each = x->bytes / (size_t)n_threads / SHARE_BYTES * SHARE_BYTES;
    for (int i = 0; i < x->times; i++) x->fn(x->data + (size_t)thread * each, each);
}

static void probe_all(void *arg, int thread, int n_threads)
{
    (void)thread, (void)n_threads;
    ((const struct probe *)arg)->run(PROBE_ROUNDS);
}

static double rate_of(struct cpu *cpu, const struct probe *p)
{
    double best = 0;
    for (int i = 0; i < ROUNDS && p->run; i++) {
        uint64_t start = clock_ns();
        pool_run(cpu->pool, probe_all, (void *)p);
        double seconds = (double)(clock_ns() - start) * 1e-9;
        best = fmax(best, p->ops * PROBE_ROUNDS * cpu->n_threads / seconds);
    }
    return best;
}

struct filling {
    uint8_t *data;
    size_t bytes;
};

/* Each thread touches the share that it will read. */
static void fill_share(void *arg, int thread, int n_threads)
{
    const struct filling *f = arg;
    int64_t from, to;
    pool_share((int64_t)f->bytes, thread, n_threads, &from, &to);
    memset(f->data + from, 1, (size_t)(to - from));
}

luce_status cpu_measure(struct device *d, struct device_limits *out, luce_error *err)
{
    struct cpu *cpu = (struct cpu *)d;
    uint64_t bytes = out->block;
    size_t unit = SHARE_BYTES * (size_t)cpu->n_threads;
    size_t block = bytes && bytes < READ_BYTES ? (size_t)bytes / unit * unit : READ_BYTES;
    if (block == 0) block = unit;
    int times = block < CACHED_BYTES ? (int)(CACHED_BYTES / block) : 1;
    int rounds = (int)(4 * (READ_BYTES / block / (size_t)times));
    if (rounds > ROUNDS) rounds = ROUNDS;
    *out = (struct device_limits){ 0 };
    struct filling f = { mem_aligned(block, 4096), block };
    if (!f.data) return fail(err, LUCE_E_NOMEM, "out of memory for the measurement of read bandwidth");
    pool_run(cpu->pool, fill_share, &f);
    for (int i = 0; i < rounds; i++)
        for (int k = 0; k < 3; k++) {
            struct reading x = { cpu->kernels.read[k], f.data, f.bytes, times };
            if (!x.fn) continue;
            uint64_t start = clock_ns();
            pool_run(cpu->pool, read_share, &x);
            double seconds = (double)(clock_ns() - start) * 1e-9;
            out->read_bytes_per_s = fmax(out->read_bytes_per_s, (double)f.bytes * times / seconds);
        }
    mem_free(f.data);
    out->int8_ops_per_s = rate_of(cpu, &cpu->kernels.int8);
    out->bf16_ops_per_s = rate_of(cpu, &cpu->kernels.bf16);
    out->f32_ops_per_s = rate_of(cpu, &cpu->kernels.f32);
    return LUCE_OK;
}
