/* bench/cpu_linear.c - the CPU's matrix products alone: time, bytes, share of the measured limit.
 * bench_cpu_linear [-t threads] [-i isa] [-f format] [-w width] [-m in x out] [-s MB]: prints one line per
 * format, shape and width. The share is max(bytes / read rate, operations / rate) over the time, with
 * bytes of the weights in their file format and rates measured before each format. A matrix is repeated
 * until its copies (256 MB, or as -s says; 0: one copy) are far larger than the caches, so that it comes from memory as
 * in a model. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "device/device.h"
#include "quant/quant.h"

enum { COPIES_MAX = 512, SPREAD_MB = 256, ROUNDS = 9 };

struct shape_row {
    const char *what;
    int in, out;
};
static const struct shape_row shapes[] = {
    { "llama-135m up", 576, 1536 }, { "llama-135m down", 1536, 576 },
    { "qwen3-0.6b up", 1024, 3072 }, { "qwen3-0.6b down", 3072, 1024 },
    { "qwen3-8b up", 4096, 12288 }, { "qwen3-8b down", 12288, 4096 },
};
static const int widths[] = { 1, 2, 4, 8, 16, 32, 64, 512 };
static const char *const format_names[] = { "q8_0", "q4_0", "q4_1", "q5_0", "q4_k", "q5_k", "q6_k", "iq4_xs",
                                            "iq4_nl", "f16", "bf16" };

struct options {
    int threads, width, in, out, spread_mb;
    const char *isa, *format;
};


/* A tape of copies of one product, all of the same input. */
struct load {
    struct device *d;
    int threads, spread_mb;
    struct weight w[COPIES_MAX];
    int n;
    struct tape tape;
    struct plan plan;
    struct program *program;
    struct step *step;
};

static luce_status load_open(struct load *l, const struct format *f, struct shape_row s, int width, luce_error *err)
{
    luce_status st;
    uint64_t bytes = format_bytes(f, (uint64_t)s.in) * (uint64_t)s.out;
    l->n = (int)(((uint64_t)l->spread_mb << 20) / bytes) + 1;
    if (width > 64) l->n = 1 + l->n / 16;
    if (l->n > COPIES_MAX) l->n = COPIES_MAX;
    tape_begin(&l->tape, device_target(l->d), NULL);
    struct val x = tape_input(&l->tape, "x", (struct shape){ DOM_ROWS, DT_F32, s.in });
    for (int i = 0; i < l->n; i++) {
        l->w[i] = (struct weight){ .name = "w", .dim = { (uint64_t)s.in, (uint64_t)s.out, 1 }, .type = f->id,
                                   .seed = (uint64_t)i, .synthetic_std = 0.02f };
        if ((st = l->d->fns->upload(l->d, &l->w[i], err))) return st;
        op_linear(&l->tape, x, &l->w[i], NULL);
    }
    struct bucket b = { .rows = { [DOM_ROWS] = width } };
    if ((st = tape_end(&l->tape, err)) || (st = plan_make(&l->plan, &l->tape, b, err)) ||
        (st = l->d->fns->compile(l->d, &l->program, &l->tape, &l->plan, NULL, err)))
        return st;
    float *rows = mem_array((size_t)width * (size_t)s.in, sizeof *rows);
    if (!rows) return fail(err, LUCE_E_NOMEM, "out of memory for %d rows", width);
    for (int64_t i = 0; i < (int64_t)width * s.in; i++) rows[i] = sinf((float)i * 0.7f);
    st = l->d->fns->write(l->d, l->program, x, 0, width, rows, err);
    mem_free(rows);
    l->step->head.n_rows = width;
    return st;
}

static void load_close(struct load *l)
{
    l->d->fns->program_close(l->d, l->program);
    for (int i = 0; i < l->n; i++) l->d->fns->release(l->d, &l->w[i]);
    plan_drop(&l->plan);
    tape_drop(&l->tape);
}

/* Time of the process for one thread (what others take of a core does not count), else wall clock. */
static double seconds(int threads)
{
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* NAN when the run failed. */
static double load_seconds(struct load *l, luce_error *err)
{
    double start = seconds(l->threads);
    if (l->d->fns->run(l->d, l->program, l->step, NULL, NULL, err)) return NAN;
    return (seconds(l->threads) - start) / l->n;
}

/* The best of several rounds. */
static luce_status figure(struct load *l, const struct format *f, struct shape_row s, int width,
                          const struct device_limits *m, luce_error *err)
{
    luce_status st = load_open(l, f, s, width, err);
    double best = st ? NAN : load_seconds(l, err);
    for (int i = 0; !err->code && i < ROUNDS; i++) best = fmin(best, load_seconds(l, err));
    load_close(l);
    if (err->code) return err->code;
    double bytes = (double)format_bytes(f, (uint64_t)s.in) * s.out, ops = 2.0 * s.in * s.out * width;
    double rate = f->id == Q_BF16 ? m->bf16_ops_per_s : f->id == Q_F16 || f->id == Q_F32 ? m->f32_ops_per_s
                                                                                       : m->int8_ops_per_s;
    double limit = fmax(bytes / m->read_bytes_per_s, ops / rate);
    printf("%-7s %-16s %5d x %-6d width %3d %9.1f us %6.1f GB/s %7.1f Gop/s  %5.1f%%\n", f->name, s.what, s.in,
           s.out, width, best * 1e6, bytes / best * 1e-9, ops / best * 1e-9, 100 * limit / best);
    fflush(stdout);
    return LUCE_OK;
}

static struct options parse(int argc, char **argv)
{
    struct options o = { .threads = 1, .spread_mb = SPREAD_MB };
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "-t")) o.threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "-i")) o.isa = argv[i + 1];
        else if (!strcmp(argv[i], "-f")) o.format = argv[i + 1];
        else if (!strcmp(argv[i], "-w")) o.width = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "-s")) o.spread_mb = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "-m")) sscanf(argv[i + 1], "%dx%d", &o.in, &o.out);
    }
    return o;
}

/* All widths of one shape. */
static luce_status shape_figures(struct device *d, const struct options *o, const struct format *f, struct shape_row s,
                                 struct step *step, const struct device_limits *m, luce_error *err)
{
    for (size_t w = 0; w < COUNT(widths); w++) {
        if (o->width && o->width != widths[w]) continue;
        struct load *l = mem_zero(sizeof *l);
        if (!l) return fail(err, LUCE_E_NOMEM, "out of memory");
        l->d = d;
        l->step = step;
        l->threads = o->threads;
        l->spread_mb = o->spread_mb;
        luce_status st = figure(l, f, s, widths[w], m, err);
        mem_free(l);
        if (st) return st;
    }
    return LUCE_OK;
}

static luce_status format_figures(struct device *d, const struct options *o, const struct format *f,
                                  struct step *step, luce_error *err)
{
    struct device_limits m = { .block = 0 };
    luce_status st = d->fns->measure(d, &m, err);
    if (st) return st;
    printf("%d threads: read %.1f GB/s, int8 %.0f, bf16 %.0f, f32 %.0f Gop/s\n", o->threads, m.read_bytes_per_s * 1e-9,
           m.int8_ops_per_s * 1e-9, m.bf16_ops_per_s * 1e-9, m.f32_ops_per_s * 1e-9);
    if (o->in) return shape_figures(d, o, f, (struct shape_row){ "given", o->in, o->out }, step, &m, err);
    for (size_t s = 0; s < COUNT(shapes) && !st; s++)
        if (shapes[s].in % f->block == 0) st = shape_figures(d, o, f, shapes[s], step, &m, err);
    return st;
}

int main(int argc, char **argv)
{
    struct options o = parse(argc, argv);
    luce_error err = { 0 };
    struct device *d;
    struct device_params p = { .n_threads = o.threads, .isa = o.isa };
    luce_status st = device_open(&d, "cpu", &p, &err);
    struct step *step = mem_zero(sizeof *step);
    if (!step && !st) st = fail(&err, LUCE_E_NOMEM, "out of memory");
    for (size_t i = 0; i < COUNT(format_names) && !st; i++) {
        const struct format *f = format_named(format_names[i]);
        if (f && (!o.format || !strcmp(o.format, format_names[i]))) st = format_figures(d, &o, f, step, &err);
    }
    if (st) fprintf(stderr, "%s\n", err.text);
    mem_free(step);
    device_close(d);
    return st ? 1 : 0;
}
