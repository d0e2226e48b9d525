/* device/cpu/measure.c - what the machine can do: the limits that the bench compares with.
 * Read rate: a block as large as what is asked about, on 2 MB pages, all threads at once, each over its own share, by
 * the read kernel that was the fastest when this size was first asked about. It is read once untimed, so that the
 * caches hold of it what they keep from one pass to the next. Arithmetic: loops of independent chains in registers. */
#include "device/cpu/measure.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "device/cpu/cpu.h"

/* A larger block than MOST_BYTES is read no slower; a small one is read until LEAST_BYTES have come. Rounds of
 * arithmetic are short, so that some of them run undisturbed beside other work. */
enum { MOST_BYTES = 512 << 20, LEAST_BYTES = 256 << 20, SHARE_BYTES = 1024, ROUNDS = 16, PROBE_ROUNDS = 1 << 16,
       TRIES = 2 };

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

/* Bytes a second of read kernel k over the first bytes of the block. */
static double read_rate(struct cpu *cpu, int k)
{
    struct reading x = { cpu->kernels.read[k], cpu->probe.at, cpu->probe.bytes, 1 };
    pool_run(cpu->pool, read_share, &x);
    if (x.bytes < LEAST_BYTES) x.times = (int)(LEAST_BYTES / x.bytes);
    uint64_t start = clock_ns();
    pool_run(cpu->pool, read_share, &x);
    return (double)x.bytes * x.times / ((double)(clock_ns() - start) * 1e-9);
}

/* Makes a block of `asked` bytes (0: MOST_BYTES), at most half of the free memory, and finds its fastest kernel. */
static luce_status probe_block(struct cpu *cpu, uint64_t asked, luce_error *err)
{
    uint64_t unit = SHARE_BYTES * (uint64_t)cpu->n_threads, free = memory_available(), bytes = asked;
    if (bytes == 0 || bytes > MOST_BYTES) bytes = MOST_BYTES;
    if (free && bytes > free / 2) bytes = free / 2;
    bytes = bytes < unit ? unit : bytes / unit * unit;
    mem_free(cpu->probe.at);
    cpu->probe.asked = asked;
    cpu->probe.bytes = (size_t)bytes;
    cpu->probe.at = mem_aligned(cpu->probe.bytes, 4096);
    if (!cpu->probe.at) return fail(err, LUCE_E_NOMEM, "out of memory for the measurement of read bandwidth");
    struct filling f = { cpu->probe.at, cpu->probe.bytes };
    pool_run(cpu->pool, fill_share, &f);
    double best = 0;
    for (int i = 0; i < TRIES; i++)
        for (int k = 0; k < 3; k++) {
            double rate = cpu->kernels.read[k] ? read_rate(cpu, k) : 0;
            if (rate > best) best = rate, cpu->probe.kernel = k;
        }
    return LUCE_OK;
}

luce_status cpu_measure(struct device *d, struct device_limits *out, luce_error *err)
{
    struct cpu *cpu = (struct cpu *)d;
    if (!cpu->probe.at || cpu->probe.asked != out->block) {
        luce_status st = probe_block(cpu, out->block, err);
        if (st) return st;
    }
    out->read_bytes_per_s = read_rate(cpu, cpu->probe.kernel);
    out->int8_ops_per_s = rate_of(cpu, &cpu->kernels.int8);
    out->bf16_ops_per_s = rate_of(cpu, &cpu->kernels.bf16);
    out->f32_ops_per_s = rate_of(cpu, &cpu->kernels.f32);
    return LUCE_OK;
}
