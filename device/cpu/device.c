/* device/cpu/device.c - the CPU as a device: open, describe, promise. */
#include "device/cpu/device.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/thread.h"
#include "device/cpu/cpu.h"

enum { WIDE_ROWS = 512 };

/* Normalised squared errors. 8-bit activations: (step / sqrt 12)^2 over the mean square of normal
 * values, 3e-5, with room for rows with outliers; bf16 activations: 2^-18 / 3. */
static const double tolerance_of[X_COUNT] = { [X_F32] = 1e-9, [X_BF16] = 3e-5, [X_Q8] = 5e-4 };

static void close_cpu(struct device *d)
{
    struct cpu *cpu = (struct cpu *)d;
    if (!cpu) return;
    pool_free(cpu->pool);
    for (int i = 0; cpu->scratch && i < cpu->n_threads; i++) mem_free(cpu->scratch[i]);
    mem_free(cpu->scratch);
    mem_free(cpu->probe.at);
    mem_free(cpu);
}

static void read_model_name(char *out, size_t size)
{
    snprintf(out, size, "CPU");
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f) return;
    char line[256];
    while (fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, size, "%s", colon + 1 + strspn(colon + 1, " \t"));
        break;
    }
    fclose(f);
}

static luce_status info(struct device *d, struct device_info *out, luce_error *err)
{
    (void)err;
    struct cpu *cpu = (struct cpu *)d;
    *out = (struct device_info){ .id = "cpu", .n_units = cpu->n_threads };
    read_model_name(out->name, sizeof out->name);
    snprintf(out->driver, sizeof out->driver, "%s", cpu->kernels.name);
    struct sysinfo s;
    if (!sysinfo(&s)) {
        out->memory_total = (uint64_t)s.totalram * s.mem_unit;
        out->memory_free = memory_available();
        if (out->memory_free == 0) out->memory_free = (uint64_t)s.freeram * s.mem_unit;
    }
    return LUCE_OK;
}

static bool has(const struct device *d, const struct call *c)
{
    if (c->op == OP_ATTN && ((const struct attn_attr *)c->attr)->head_dim > CPU_HEAD_MAX) return false;
    if (c->op == OP_ROPE_KV && ((const struct rope_kv_attr *)c->attr)->head_dim > CPU_HEAD_MAX) return false;
    if (c->op == OP_ROUTE && ((const struct route_attr *)c->attr)->experts > CPU_EXPERTS) return false;
    if (c->op == OP_GLU && ((const struct glu_attr *)c->attr)->n_mat == 1 && c->shape[0].cols % LANES) return false;
    return ((const struct cpu *)d)->kernels.op[c->op] != NULL;
}

static double tolerance(const struct device *d, const struct tape *t, const struct call *c)
{
    (void)d, (void)t;
    double most = tolerance_of[X_F32];
    if (c->op != OP_LINEAR && c->op != OP_GLU && c->op != OP_MOE_GLU && c->op != OP_MOE_DOWN) return most;
    int n = c->op == OP_LINEAR ? ((const struct linear_attr *)c->attr)->n_mat : c->n_w;
    for (int i = 0; i < n; i++) {
        double e = tolerance_of[strip_format_find(c->w[i]->type)->x];
        most = e > most ? e : most;
    }
    return most;
}

static const struct device_fns fns = {
    .close = close_cpu, .info = info, .has = has,
    .weight_bytes = cpu_weight_bytes, .upload = cpu_upload, .release = cpu_release,
    .cache_open = cpu_cache_open, .cache_close = cpu_cache_close,
    .page_read = cpu_page_read, .page_write = cpu_page_write, .page_copy = cpu_page_copy,
    .compile = cpu_compile, .program_close = cpu_program_close, .run = cpu_run, .wait = cpu_wait,
    .hold = cpu_hold, .drop = cpu_drop, .read = cpu_read, .write = cpu_write, .write_held = cpu_write,
    .measure = cpu_measure, .joules = cpu_joules, .tolerance = tolerance,
};

static luce_status pick_isa(const struct device_params *p, enum isa *out, luce_error *err)
{
    *out = isa_here();
    enum isa asked;
    if (!p || !p->isa) return LUCE_OK;
    if (!isa_named(p->isa, &asked)) {
        char known[64] = "";
        for (int i = 0; isa_at(i); i++)
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", isa_at(i));
        return fail(err, LUCE_E_ARG, "cpu: instruction set '%s' is not known, this processor has: %s", p->isa, known);
    }
    if (asked < *out) *out = asked;
    return LUCE_OK;
}

static int count(void)
{
    return 1;
}

static luce_status open_cpu(struct device **out, int index, const struct device_params *p, luce_error *err)
{
    (void)index;
    *out = NULL;
    enum isa isa;
    luce_status st = pick_isa(p, &isa, err);
    if (st) return st;
    struct cpu *cpu = mem_zero(sizeof *cpu);
    if (!cpu) return fail(err, LUCE_E_NOMEM, "out of memory for the device");
    cpu->device = (struct device){ .fns = &fns, .equal_bits = true, .max_wide_rows = WIDE_ROWS };
    cpu->n_threads = p && p->n_threads > 0 ? p->n_threads : cores_count(true);
    kernels_pick(&cpu->kernels, isa);
    if ((st = pool_new(&cpu->pool, cpu->n_threads, err))) goto bad;
    pool_pin(cpu->pool);
    st = LUCE_E_NOMEM;
    cpu->scratch = mem_array((size_t)cpu->n_threads, sizeof *cpu->scratch);
    for (int i = 0; cpu->scratch && i < cpu->n_threads; i++) {
        cpu->scratch[i] = mem_aligned(CPU_SCRATCH, 4096);
        if (!cpu->scratch[i]) goto bad;
    }
    if (!cpu->scratch) goto bad;
    *out = &cpu->device;
    return LUCE_OK;
bad:
    if (st == LUCE_E_NOMEM) fail(err, st, "out of memory for %d threads", cpu->n_threads);
    close_cpu(&cpu->device);
    return st;
}

const struct device_kind device_kind_cpu = {
    .name = "cpu", .doc = "the processors of this machine", .count = count, .open = open_cpu,
};
