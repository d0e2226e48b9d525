/* tests/test_model.c - families against the stored answers of HF transformers on tiny random models
 * (scripts/make-oracle-fixtures.py), through the float64 references of the ops. */
#include <math.h>

#include "tests/model_drive.h"

static const char *const cases[] = {
    "llama", "llama3", "llama_linear", "llama_yarn", "qwen2", "qwen3", "gemma3", "phi3", "phi3_long",
};

struct oracle {
    int n, vocab, embd, layers, context;
    const int *tokens;
    const float *logits, *hidden;       /* [position][vocab], [layer][position][embd] or NULL */
};

static bool oracle_get(struct oracle *o, const struct gguf *g, int i)
{
    char name[32];
    luce_error err = { 0 };
    uint32_t context;
    const struct gguf_tensor *t[3];
    static const char *const parts[] = { "tokens", "logits", "hidden" };
    for (int p = 0; p < 3; p++) {
        snprintf(name, sizeof name, "oracle.%d.%s", i, parts[p]);
        t[p] = gguf_find(g, name);
    }
    if (!t[0] || !t[1]) return false;
    snprintf(name, sizeof name, "oracle.%d.context", i);
    CHECK_OK(gguf_u32(g, name, 0, &context, &err), err);
    *o = (struct oracle){ .n = (int)t[0]->dim[0], .vocab = (int)t[1]->dim[0], .context = (int)context,
                          .tokens = (const void *)t[0]->data, .logits = (const void *)t[1]->data };
    if (!t[2]) return true;
    o->embd = (int)t[2]->dim[0];
    o->layers = (int)t[2]->dim[2];
    o->hidden = (const void *)t[2]->data;
    return true;
}

/* Largest difference; infinite when any of the two is NaN. */
static double distance(const double *a, const float *b, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++) {
        double d = fabs(a[i] - b[i]);
        if (!(d <= most)) most = d >= 0 ? d : INFINITY;
    }
    return most;
}

static int highest(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* HF computes in f32: sums of up to 80 terms of size 1 in 3 layers leave a few 1e-6 at the logits. */
static const double close_enough = 1e-4;

static void compare_step(struct drive *d, const struct oracle *o, const char *name, int from, int n)
{
    const double *logits = interp_read(d->interp, d->rec.logits);
    const double *argmax = interp_read(d->interp, d->rec.argmax);
    for (int l = 0; o->hidden && l < o->layers; l++) {
        const double *x = interp_read(d->interp, drive_layer(d, l));
        double off = distance(x, o->hidden + ((size_t)l * (size_t)o->n + (size_t)from) * (size_t)o->embd,
                              n * o->embd);
        CHECK(off < close_enough, "%s: layer %d differs by %g", name, l, off);
    }
    for (int i = 0; i < n; i++) {
        const float *expected = o->logits + (size_t)(from + i) * (size_t)o->vocab;
        double off = distance(logits + (size_t)i * (size_t)o->vocab, expected, o->vocab);
        CHECK(off < close_enough, "%s: logits of position %d differ by %g", name, from + i, off);
        CHECK((int)argmax[i] == highest(expected, o->vocab), "%s: argmax of position %d is %g, not %d", name,
              from + i, argmax[i], highest(expected, o->vocab));
    }
}

static void compare(struct drive *d, const struct oracle *o, const char *name, int width,
                    enum step_class class)
{
    drive_restart(d);
    for (int at = 0; at < o->n; at += width) {
        int n = o->n - at < width ? o->n - at : width;
        if (!drive_step(d, o->tokens + at, n, class)) return;
        compare_step(d, o, name, at, n);
    }
}

static void check_case(const char *name)
{
    char file[64];
    struct gguf *g = NULL;
    struct model *m = NULL;
    struct oracle o;
    luce_error err = { 0 };
    snprintf(file, sizeof file, "oracle/%s.gguf", name);
    /* Sequences from the longest context to the shortest, since a model's limit only falls. */
    if (model_from_file(&g, &m, fixture(file))) {
        CHECK(m->n_unused > 0, "%s: the oracle's own tensors are not counted as unused", name);
        int n = 0;
        while (oracle_get(&o, g, n)) n++;
        CHECK(n > 0, "%s holds no sequence", name);
        while (n-- > 0 && oracle_get(&o, g, n)) {
            struct drive d;
            if (o.context <= m->c.context) CHECK_OK(model_limit_context(m, o.context, &err), err);
            if (drive_open(&d, m, 0, o.n + 1)) {
                compare(&d, &o, name, 64, STEP_WIDE);
                compare(&d, &o, name, 17, STEP_NARROW);
                if (o.n <= 17) compare(&d, &o, name, 1, STEP_NARROW);
                if (o.n <= 17) compare(&d, &o, name, 3, STEP_WIDE);
            }
            drive_close(&d);
        }
    }
    model_close(m);
    gguf_close(g);
}

TEST(families_give_the_logits_and_layers_of_transformers)
{
    for (size_t i = 0; i < COUNT(cases); i++) check_case(cases[i]);
}
