/* tests/test_perplexity.c - luce perplexity against the float64 references on the tiny model; what the
 * formats of the cache cost; texts and windows that are refused. */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "model/vocab_gguf.h"
#include "quant/quant.h"
#include "run/likelihood.h"
#include "tests/model_drive.h"
#include "tests/tiny_model.h"

static const char text[] = "The cat sat on the mat, then the other thing that thinks went to the north of the "
                           "threshold; there it thought of nothing but thyme and feathers.";

static void score_row(const float *logits, int vocab, int token, struct likelihood *s)
{
    double sum = 0;
    for (int i = 0; i < vocab; i++) sum += exp(logits[i]);
    double nll = log(sum) - logits[token];
    s->sum += nll;
    s->squares += nll * nll;
    s->n++;
}

/* Likelihood of n tokens in windows of `window` tokens, moved by half of it, with keys and values rounded
 * to the format; by the references, or on a device that holds the weights. */
static struct likelihood by_hand(struct model *m, struct device *device, const int *ids, int n, int window,
                                 uint32_t format)
{
    struct likelihood s = { 0 };
    struct drive d = { 0 };
    int vocab = m->c.vocab, done = 1;
    float *logits = calloc((size_t)vocab * 64, sizeof *logits);
    if (!logits || !(device ? drive_open_device(&d, m, device, format, window + PAGE)
                            : drive_open(&d, m, format, window + PAGE)))
        return s;
    for (int from = 0; done < n; from += window / 2) {
        int rows = n - from < window ? n - from : window;
        drive_restart(&d);
        if (!drive_step(&d, ids + from, rows, STEP_NARROW)) break;
        drive_read(&d, d.rec.logits, rows, logits);
        for (; done < from + rows; done++) score_row(logits + (size_t)(done - from - 1) * (size_t)vocab, vocab, ids[done], &s);
    }
    drive_close(&d);
    free(logits);
    return s;
}

static bool read_ids(struct gguf **g, struct model **m, const char *path, struct str of, struct ids *ids)
{
    struct vocab *v = NULL;
    luce_error err = { 0 };
    if (!model_from_file(g, m, path)) return false;
    CHECK_OK(vocab_from_gguf(&v, *g, &err), err);
    if (v) CHECK_OK(vocab_tokenize(v, of, 0, ids, &err), err);
    vocab_close(v);
    return ids->len > 2;
}

#ifdef LUCE_PROGRAM
/* Runs "luce perplexity -m TINY ARGS" with the text on standard input; both outputs together. */
static int run(struct buf *out, const char *args)
{
    char line[1200];
    snprintf(line, sizeof line, "printf '%%s' '%s' | %s perplexity -m %s %s 2>&1", text, LUCE_PROGRAM, tiny_model(), args);
    return test_shell(out, line);
}

static double field(const struct buf *out, const char *key)
{
    const char *at = strstr(buf_text(out), key);
    return at ? atof(at + strlen(key)) : NAN;
}

TEST(perplexity_is_what_the_references_say)
{
    static const int windows[] = { 32, 64 };
    struct gguf *g = NULL;
    struct model *m = NULL;
    struct ids ids = { 0 };
    struct buf out = { 0 };
    if (!tiny_model() || !read_ids(&g, &m, tiny_model(), str_of(text), &ids)) return;
    for (size_t i = 0; i < COUNT(windows); i++) {
        char args[64];
        snprintf(args, sizeof args, "--json --context %d --chunk %d", windows[i], i ? 5 : 0);
        CHECK_EQ(run(&out, args), 0);
        struct likelihood s = by_hand(m, NULL, ids.at, (int)ids.len, windows[i], Q_F16);
        double nll = field(&out, "\"nll\":"), error = field(&out, "\"nll_error\":");
        CHECK(fabs(nll - likelihood_mean(&s)) < 0.02, "nll %g, references %g", nll, likelihood_mean(&s));
        CHECK(fabs(error - likelihood_error(&s)) < 0.01, "error %g, references %g", error, likelihood_error(&s));
        CHECK(fabs(field(&out, "\"perplexity\":") / exp(nll) - 1) < 1e-6, "%s", buf_text(&out));
        CHECK_EQ((size_t)field(&out, "\"scored_tokens\":"), ids.len - 1);
    }
    ids_drop(&ids);
    buf_drop(&out);
    model_close(m);
    gguf_close(g);
}

TEST(perplexity_refuses_what_cannot_be_scored)
{
    static const struct { const char *args; int code; const char *says; } rows[] = {
        { "--context 4", 2, "too short; give at least 8" },
        { "--context 401", 1, "takes up to 400" },
        { "--file /dev/null", 2, "needs at least 2" },
        { "--file /nowhere.txt", 1, "No such file" },
        { "--cache-type-v q9", 2, "cache type 'q9'" },
        { "extra", 2, "two models" },
    };
    struct buf out = { 0 };
    if (!tiny_model()) return;
    for (size_t i = 0; i < COUNT(rows); i++) {
        CHECK_EQ(run(&out, rows[i].args), rows[i].code);
        CHECK(strstr(buf_text(&out), rows[i].says) != NULL, "row %zu: %s", i, buf_text(&out));
    }
    buf_drop(&out);
}
#endif

/* Nats a token that a format of keys and values may cost, against f16: the tiny model by the references,
 * real ones on the CPU over 128 tokens (the noise of single tokens is a third of the bounds; over 400
 * the costs are 0.01, 0.01 and 0.2). */
static const struct { uint32_t format; double tiny, real; } costs[] = {
    { Q_BF16, 5e-3, 0.06 }, { Q_Q8_0, 1e-2, 0.06 }, { Q_Q4_0, 0.3, 0.8 },
};

static void check_costs(const char *path, bool real)
{
    struct gguf *g = NULL;
    struct model *m = NULL;
    struct ids ids = { 0 };
    struct device *cpu = NULL;
    luce_error err = { 0 };
    struct buf prose = { 0 };
    if (real) CHECK_OK(file_read(&prose, LUCE_SOURCE_DIR "/bench/prompts/prose.txt", 1 << 16, &err), err);
    if (!read_ids(&g, &m, path, real ? (struct str){ buf_text(&prose), prose.len } : str_of(text), &ids)) return;
    if (real) CHECK_OK(device_open(&cpu, "cpu", NULL, &err), err);
    if (cpu && !drive_upload(cpu, m)) return;
    int n = ids.len < 128 ? (int)ids.len : 128;
    struct likelihood s = by_hand(m, cpu, ids.at, n, 64, Q_F16);
    double usual = likelihood_mean(&s);
    for (size_t i = 0; i < COUNT(costs); i++) {
        s = by_hand(m, cpu, ids.at, n, 64, costs[i].format);
        double cost = fabs(likelihood_mean(&s) - usual), most = real ? costs[i].real : costs[i].tiny;
        CHECK(cost <= most, "%s: cache format %u costs %g nats, may cost %g", path, costs[i].format, cost, most);
        CHECK_EQ((int)s.n, n - 1);
    }
    if (cpu) drive_release(cpu, m);
    device_close(cpu);
    ids_drop(&ids);
    buf_drop(&prose);
    model_close(m);
    gguf_close(g);
}

TEST(cache_formats_cost_what_they_may)
{
    static const char *const files[] = { "smollm2-135m-instruct-q4_1.gguf", "gemma-3-270m-q4_k_m.gguf" };
    if (tiny_model()) check_costs(tiny_model(), false);
    for (size_t f = 0; f < COUNT(files); f++) {
        char path[512];
        snprintf(path, sizeof path, "%s/models/%s", LUCE_SOURCE_DIR, files[f]);
        if (!access(path, R_OK)) check_costs(path, true);
    }
}
