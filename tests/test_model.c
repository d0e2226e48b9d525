/* tests/test_model.c - families against the stored answers of HF transformers on tiny random models:
 * through the float64 references of the ops, and on the CPU at several widths. */
#include <math.h>

#include "tests/oracle.h"

#include "quant/quant.h"

static int highest(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* What a run of one sequence gave: logits by position, and every layer's output. */
struct answers {
    float *logits, *hidden;             /* as in struct oracle */
    int *argmax;
};

static bool answers_new(struct answers *a, const struct oracle *o, const struct model *m)
{
    a->logits = mem_array((size_t)o->n * (size_t)o->vocab, sizeof(float));
    a->hidden = mem_array((size_t)m->c.n_layers * (size_t)o->n * (size_t)m->c.embd, sizeof(float));
    a->argmax = mem_array((size_t)o->n, sizeof(int));
    return a->logits && a->hidden && a->argmax;
}

static void answers_drop(struct answers *a)
{
    mem_free(a->logits);
    mem_free(a->hidden);
    mem_free(a->argmax);
}

/* argmax is i32 on a device and a double in the interpreter. */
static void read_argmax(const struct drive *d, int n, int *out)
{
    float raw[64];
    drive_read(d, d->rec.argmax, n, raw);
    for (int i = 0; i < n; i++) {
        if (d->device) memcpy(&out[i], &raw[i], sizeof *out);
        else out[i] = (int)raw[i];
    }
}

/* The sequence from its beginning in steps of `width` rows. */
static bool run(struct drive *d, const struct oracle *o, int width, enum step_class class, struct answers *a)
{
    size_t embd = (size_t)d->model->c.embd;
    drive_restart(d);
    for (int at = 0; at < o->n; at += width) {
        int n = o->n - at < width ? o->n - at : width;
        if (!drive_step(d, o->tokens + at, n, class)) return false;
        drive_read(d, d->rec.logits, n, a->logits + (size_t)at * (size_t)o->vocab);
        read_argmax(d, n, a->argmax + at);
        for (int l = 0; l < d->model->c.n_layers; l++)
            drive_read(d, drive_layer(d, l), n, a->hidden + ((size_t)l * (size_t)o->n + (size_t)at) * embd);
    }
    return true;
}

/* open: argmax may differ where the two highest logits are closer than twice the error. */
static void compare(const struct answers *a, const struct oracle *o, const char *name, const char *how,
                    double close_enough)
{
    size_t n = (size_t)o->n;
    for (int l = 0; o->hidden && l < o->layers; l++) {
        size_t at = (size_t)l * n * (size_t)o->embd;
        double off = oracle_distance(a->hidden + at, o->hidden + at, n * (size_t)o->embd);
        CHECK(off < close_enough, "%s, %s: layer %d differs by %g", name, how, l, off);
    }
    double off = oracle_distance(a->logits, o->logits, n * (size_t)o->vocab);
    CHECK(off < close_enough, "%s, %s: logits differ by %g", name, how, off);
    for (int i = 0; i < o->n; i++) {
        const float *x = o->logits + (size_t)i * (size_t)o->vocab;
        int best = highest(x, o->vocab);
        CHECK(a->argmax[i] >= 0 && a->argmax[i] < o->vocab &&
              (a->argmax[i] == best || x[best] - x[a->argmax[i]] < 2 * off),
              "%s, %s: argmax of position %d is %d, not %d", name, how, i, a->argmax[i], best);
    }
}

/* HF computes in f32: sums of up to 80 terms of size 1 in up to 7 layers move a logit by 1e-5. */
static const double f32_error = 1e-4;

static void by_references(struct model *m, const struct oracle *o, const char *name)
{
    static const struct { int width; enum step_class class; const char *how; int longest; } ways[] = {
        { 64, STEP_WIDE, "wide steps of 64", 512 }, { 17, STEP_NARROW, "narrow steps of 17", 512 },
        { 3, STEP_WIDE, "wide steps of 3", 20 }, { 1, STEP_NARROW, "narrow steps of 1", 20 },
    };
    struct drive d;
    struct answers a = { 0 };
    if (answers_new(&a, o, m) && drive_open(&d, m, 0, o->n + 1)) {
        for (size_t i = 0; i < COUNT(ways); i++)
            if (o->n <= ways[i].longest && run(&d, o, ways[i].width, ways[i].class, &a))
                compare(&a, o, name, ways[i].how, f32_error);
        drive_close(&d);
    }
    answers_drop(&a);
}

/* Runs fn on every sequence of every case, from the longest context to the shortest, since a model's
 * limit only falls. */
static void for_each_sequence(void (*fn)(struct model *m, const struct oracle *o, const char *name))
{
    for (size_t i = 0; oracle_cases[i]; i++) {
        struct gguf *g;
        struct model *m;
        struct oracle o;
        luce_error err = { 0 };
        int n = 0;
        bool ok = oracle_open(&g, &m, oracle_cases[i]);
        while (ok && oracle_get(&o, g, n)) n++;
        CHECK(n == 3, "%s holds %d sequences", oracle_cases[i], n);
        while (ok && n-- > 0 && oracle_get(&o, g, n)) {
            if (o.context <= m->c.context) CHECK_OK(model_limit_context(m, o.context, &err), err);
            fn(m, &o, oracle_cases[i]);
        }
        model_close(m);
        gguf_close(g);
    }
}

TEST(families_give_the_logits_and_layers_of_transformers)
{
    for_each_sequence(by_references);
}

/* Against transformers: keys and values are kept in f16, 2^-11 of their size, and some heads here are
 * sharp enough to turn that into a few hundredths of a logit (of size 2). Against the references, which
 * round keys and values alike, only sums in f32 are left - and now and then a key that rounds the other
 * way, hence the mean. */
static const double f16_cache_error = 0.1, rounded_cache_error = 1e-3;

/* The references with a rounded cache answer as the device does. */
static void compare_rounded(struct model *m, const struct oracle *o, const struct answers *a, const char *name)
{
    struct drive d;
    struct answers exact = { 0 };
    size_t n = (size_t)o->n * (size_t)o->vocab;
    double sum = 0;
    if (answers_new(&exact, o, m) && drive_open(&d, m, Q_F16, o->n + 1)) {
        if (run(&d, o, 1, STEP_NARROW, &exact)) {
            for (size_t i = 0; i < n; i++) sum += fabs((double)a->logits[i] - exact.logits[i]);
            CHECK(sum / (double)n < rounded_cache_error, "%s: logits differ by %g in the mean, %g at most", name,
                  sum / (double)n, oracle_distance(a->logits, exact.logits, n));
        }
        drive_close(&d);
    }
    answers_drop(&exact);
}

static void same_bits(const struct answers *a, const struct answers *b, const struct oracle *o,
                      const struct model *m, const char *name, const char *how)
{
    size_t n = (size_t)o->n;
    CHECK(!memcmp(a->logits, b->logits, n * (size_t)o->vocab * sizeof(float)), "%s: logits of %s", name, how);
    CHECK(!memcmp(a->hidden, b->hidden, (size_t)m->c.n_layers * n * (size_t)m->c.embd * sizeof(float)),
          "%s: layers of %s", name, how);
    CHECK(!memcmp(a->argmax, b->argmax, n * sizeof(int)), "%s: argmax of %s", name, how);
}

static void on_cpu(struct model *m, const struct oracle *o, const char *name)
{
    static const struct { int width; enum step_class class; const char *how; } ways[] = {
        { 3, STEP_NARROW, "narrow 3" }, { 17, STEP_NARROW, "narrow 17" }, { 64, STEP_NARROW, "narrow 64" },
        { 1, STEP_WIDE, "wide 1" }, { 3, STEP_WIDE, "wide 3" }, { 17, STEP_WIDE, "wide 17" },
        { 64, STEP_WIDE, "wide 64" },
    };
    struct device *cpu = NULL;
    struct drive d = { 0 };
    struct answers one = { 0 }, a = { 0 };
    luce_error err = { 0 };
    CHECK_OK(device_open(&cpu, "cpu", &(struct device_params){ .n_threads = 2 }, &err), err);
    if (cpu && answers_new(&one, o, m) && answers_new(&a, o, m) && drive_upload(cpu, m) &&
        drive_open_device(&d, m, cpu, Q_F16, o->n) && run(&d, o, 1, STEP_NARROW, &one)) {
        compare(&one, o, name, "cpu, one row a step", f16_cache_error);
        compare_rounded(m, o, &one, name);
        for (size_t i = 0; i < COUNT(ways); i++) {
            if (ways[i].class == STEP_WIDE && !cpu->equal_bits) continue;
            if (run(&d, o, ways[i].width, ways[i].class, &a)) same_bits(&one, &a, o, m, name, ways[i].how);
        }
    }
    drive_close(&d);
    if (cpu) drive_release(cpu, m);
    device_close(cpu);
    answers_drop(&one);
    answers_drop(&a);
}

TEST(families_on_the_cpu_give_the_same_bits_at_every_width)
{
    for_each_sequence(on_cpu);
}
