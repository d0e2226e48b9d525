/* The CPU device on a small whole model: the same bits with any instruction set and number of threads,
 * in narrow and wide steps, and every allocation failed once. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "quant/quant.h"
#include "tests/cpu_sets.h"
#include "tests/test.h"

enum { EMBD = 256, HEADS = 4, KV_HEADS = 2, HEAD = 64, FF = 512, VOCAB = 120, LAYERS = 2, PAGES = 12 };

/* A decoder whose matrices have one format, uploaded to one device, with its cache and programs. */
struct toy {
    struct device *d;
    struct weight w[16];
    float *freq;
    int n_w;
    struct kv_layout kv;
    struct tape tape;
    struct val logits, token;
    struct plan narrow, wide;
    struct device_cache *cache;
    struct program *p_narrow, *p_wide;
    luce_error err;
};

static struct weight *add_weight(struct toy *t, uint32_t type, int in, int out, float std)
{
    struct weight *w = &t->w[t->n_w];
    *w = (struct weight){ .name = "toy", .dim = { (uint64_t)in, (uint64_t)out, 1 }, .type = type,
                          .seed = (uint64_t)t->n_w + 7, .synthetic_std = std };
    t->n_w++;
    return w;
}

static void record(struct toy *t, uint32_t format)
{
    struct weight *table = add_weight(t, format, EMBD, VOCAB, 1);
    struct weight *norm = add_weight(t, Q_F32, EMBD, 1, 0), *freq = add_weight(t, Q_F32, HEAD / 2, 1, 1);
    t->freq = mem_array(HEAD / 2, sizeof *t->freq);
    for (int i = 0; t->freq && i < HEAD / 2; i++) t->freq[i] = 1.0f / (float)(1 + i * i);
    freq->host = (const uint8_t *)t->freq;
    freq->host_bytes = HEAD / 2 * sizeof *t->freq;
    struct weight *q = add_weight(t, format, EMBD, HEADS * HEAD, 0.05f), *k = add_weight(t, format, EMBD, KV_HEADS * HEAD, 0.05f);
    struct weight *v = add_weight(t, format, EMBD, KV_HEADS * HEAD, 0.05f), *o = add_weight(t, format, HEADS * HEAD, EMBD, 0.05f);
    struct weight *gate = add_weight(t, format, EMBD, FF, 0.05f), *up = add_weight(t, format, EMBD, FF, 0.05f);
    struct weight *down = add_weight(t, format, FF, EMBD, 0.05f);
    tape_begin(&t->tape, device_target(t->d), &t->kv);
    struct val x = op_embed(&t->tape, table, 0);
    for (int l = 0; l < LAYERS; l++) {
        struct val h = op_norm(&t->tape, x, norm, 1e-5f);
        struct val a = op_qkv(&t->tape, l, h, &(struct qkv_weights){ .q = q, .k = k, .v = v, .freq = freq },
                              &(struct rope_kv_attr){ .heads = HEADS, .kv_heads = KV_HEADS, .head_dim = HEAD,
                                                      .layout = ROPE_NEOX, .rope_dims = HEAD, .eps = 1e-5f });
        a = op_attn(&t->tape, l, a, &(struct attn_attr){ .heads = HEADS, .kv_heads = KV_HEADS, .head_dim = HEAD,
                                                         .scale = 0.125f });
        x = op_linear_add(&t->tape, a, o, NULL, x);
        h = op_glu(&t->tape, op_norm(&t->tape, x, norm, 1e-5f), gate, up, ACT_SILU);
        x = op_linear_add(&t->tape, h, down, NULL, x);
    }
    t->logits = op_head(&t->tape, op_take(&t->tape, op_norm(&t->tape, x, norm, 1e-5f)), table, 0);
    t->token = op_argmax(&t->tape, t->logits);
    tape_keep(&t->tape, t->logits, "logits");
    tape_keep(&t->tape, t->token, "token");
}

static luce_status toy_open(struct toy *t, uint32_t format, uint32_t kv_format, const char *isa, int threads)
{
    luce_status st;
    *t = (struct toy){ 0 };
    if ((st = cpu_set_open(&t->d, isa, threads, &t->err))) return st;
    for (int l = 0; l < LAYERS; l++)
        if ((st = kv_layout_add(&t->kv, KV_HEADS, HEAD, HEAD, 0, &t->err))) return st;
    if ((st = kv_layout_finish(&t->kv, kv_format, kv_format, &t->err))) return st;
    record(t, format);
    if ((st = tape_end(&t->tape, &t->err))) return st;
    struct bucket narrow = { .rows = { [DOM_ROWS] = 8, [DOM_OUT] = 8, [DOM_SEQS] = 1 } };
    struct bucket wide = { .rows = { [DOM_ROWS] = 200, [DOM_OUT] = 8, [DOM_SEQS] = 1 }, .class = STEP_WIDE };
    if ((st = plan_make(&t->narrow, &t->tape, narrow, &t->err))) return st;
    if ((st = plan_make(&t->wide, &t->tape, wide, &t->err))) return st;
    for (int i = 0; i < t->n_w; i++)
        if ((st = t->d->fns->upload(t->d, &t->w[i], &t->err))) return st;
    struct cache_params c = { .layout = &t->kv, .n_slots = 1, .n_pages = { PAGES }, .max_pages = { PAGES } };
    if ((st = t->d->fns->cache_open(t->d, &t->cache, &c, &t->err))) return st;
    if ((st = t->d->fns->compile(t->d, &t->p_wide, &t->tape, &t->wide, t->cache, &t->err))) return st;
    return t->d->fns->compile(t->d, &t->p_narrow, &t->tape, &t->narrow, t->cache, &t->err);
}

static void toy_close(struct toy *t)
{
    if (t->d) {
        t->d->fns->program_close(t->d, t->p_narrow);
        t->d->fns->program_close(t->d, t->p_wide);
        t->d->fns->cache_close(t->d, t->cache);
        for (int i = 0; i < t->n_w; i++) t->d->fns->release(t->d, &t->w[i]);
    }
    mem_free(t->freq);
    plan_drop(&t->narrow);
    plan_drop(&t->wide);
    tape_drop(&t->tape);
    device_close(t->d);
}

static void add_rows(struct step *s, int past, int n, bool wide)
{
    s->head = (struct step_head){ .n_rows = n, .n_out = n < 8 ? n : 8, .n_seqs = 1, .wide = wide };
    s->seq[0] = (struct step_seq){ .n_rows = n, .past = past };
    for (int i = 0; i < n; i++)
        s->row[i] = (struct step_row){ .token = (past + i) * 37 % VOCAB, .index = past + i, .see = past + i,
                                       .rope = { past + i }, .path = i < 64 ? (2ull << i) - 1 : 0 };
    for (int i = 0; i < s->head.n_out; i++) s->out[i] = (struct step_out){ .row = n - s->head.n_out + i };
}

/* A prompt of n in one wide step, then 5 narrow rows; the logits of the last rows of both. */
static luce_status toy_run(struct toy *t, int n, float *logits)
{
    struct step *s = mem_zero(sizeof *s);
    if (!s) return fail(&t->err, LUCE_E_NOMEM, "step");
    add_rows(s, 0, n, true);
    for (int i = 0; i < PAGES - 1; i++) s->edit[i] = (struct step_edit){ .at = i, .page = i + 1 };
    s->head.n_edits = PAGES - 1;
    luce_status st = t->d->fns->run(t->d, t->p_wide, s, NULL, NULL, &t->err);
    if (!st) st = t->d->fns->read(t->d, t->p_wide, &(struct rows_read){ t->logits, 0, 8, logits, 0, false, 0 }, 1, &t->err);
    add_rows(s, n, 5, false);
    if (!st) st = t->d->fns->run(t->d, t->p_narrow, s, NULL, NULL, &t->err);
    if (!st) st = t->d->fns->read(t->d, t->p_narrow, &(struct rows_read){ t->logits, 0, 5, logits + 8 * VOCAB, 0, false, 0 }, 1, &t->err);
    mem_free(s);
    return st;
}

TEST(cpu_energy_is_the_sum_of_the_packages_or_unknown)
{
    char folder[600], path[700];
    snprintf(folder, sizeof folder, "%s", scratch("energy"));
    CHECK(cpu_energy_in(folder) < 0);
    static const char *const values[] = { "1500000\n", "250000\n", "no number\n" };
    mkdir(folder, 0700);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/intel-rapl:%d", folder, i);
        mkdir(path, 0700);
        snprintf(path, sizeof path, "%s/intel-rapl:%d/energy_uj", folder, i);
        FILE *f = fopen(path, "w");
        fputs(values[i], f);
        fclose(f);
        double joules = cpu_energy_in(folder);
        CHECK(i < 2 ? joules == (i ? 1.75 : 1.5) : joules < 0, "%g", joules);
    }
}

static const uint32_t formats[] = { Q_F32, Q_F16, Q_BF16, Q_Q4_0, Q_Q4_1, Q_Q5_0, Q_Q5_1, Q_Q8_0, Q_Q4_K, Q_Q5_K,
                                    Q_Q6_K, Q_IQ4_NL, Q_IQ4_XS, Q_MXFP4, Q_Q3_K };

#ifdef LUCE_EMULATED_CPU
enum { MOST_THREADS = 3 };
#else
enum { MOST_THREADS = 5 };
#endif

TEST(cpu_bits_are_the_same_with_any_threads_and_instruction_set)
{
    struct { const char *isa; int threads; } way[16];
    size_t ways = 0;
    for (int i = 0; cpu_set_at(i) && ways + 3 < COUNT(way); i++)
        for (int threads = 1; threads <= (i ? MOST_THREADS : 1); threads += 2) {
            way[ways].isa = cpu_set_at(i);
            way[ways++].threads = threads;
        }
    static const uint32_t kv[] = { Q_F16, Q_BF16, Q_Q8_0, Q_Q4_0 };
    static float first[13 * VOCAB], other[13 * VOCAB];
    for (size_t f = 0; f < COUNT(formats); f++)
        for (size_t i = 0; i < ways; i++) {
            float *to = i ? other : first;
            struct toy t;
            memset(to, 0xff, sizeof first);
            CHECK_OK(toy_open(&t, formats[f], kv[f % 4], way[i].isa, way[i].threads), t.err);
            if (!t.err.code) CHECK_OK(toy_run(&t, 150, to), t.err);
            CHECK(!memcmp(to, first, sizeof first), "%s: %s with %d threads", format_find(formats[f])->name,
                  way[i].isa, way[i].threads);
            for (size_t c = 0; c < COUNT(first); c++)
                if (!(to[c] == to[c])) {
                    test_failed(__FILE__, __LINE__, "%s: logit %zu is NaN", format_find(formats[f])->name, c);
                    break;
                }
            toy_close(&t);
        }
}

TEST(cpu_tokens_of_a_long_prompt_do_not_depend_on_its_cut)
{
    static float a[13 * VOCAB], b[13 * VOCAB];
    struct toy t;
    CHECK_OK(toy_open(&t, Q_Q8_0, Q_F16, NULL, 2), t.err);
    CHECK_OK(toy_run(&t, 155, a), t.err);       /* the last 5 rows wide */
    CHECK_OK(toy_run(&t, 150, b), t.err);       /* and narrow */
    CHECK(!memcmp(a + 3 * VOCAB, b + 8 * VOCAB, 5 * VOCAB * sizeof *a));
    toy_close(&t);
}

TEST(cpu_survives_any_failed_allocation)
{
    size_t before = mem_live();
    for (int n = 0;; n++) {
        struct toy t;
        mem_fail_after(n);
        luce_status st = toy_open(&t, Q_Q4_K, Q_F16, NULL, 2);
        mem_fail_never();
        luce_error err = t.err;
        toy_close(&t);
        CHECK_EQ(mem_live(), before);
        if (!st) break;
        CHECK(st == LUCE_E_NOMEM, "%s", err.text);
        if (n > 1000) break;
    }
}

TEST(cpu_refuses_what_it_does_not_know_and_lists_what_is_there)
{
    static const struct { const char *id, *isa, *says; } bad[] = {
        { "cuda:7", NULL, "this machine has: " }, { "cpu:1", NULL, "cpu" }, { "cpu:x", NULL, "cpu" },
        { "tpu", NULL, "there is no device 'tpu'" }, { "cpu", "mmx", "this processor has: portable" },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct device *d = NULL;
        luce_error err = { 0 };
        CHECK_EQ(device_open(&d, bad[i].id, &(struct device_params){ .isa = bad[i].isa }, &err), LUCE_E_ARG);
        CHECK(strstr(err.text, bad[i].says) != NULL, "%s", err.text);
        CHECK_EQ(d, NULL);
    }
}

TEST(devices_without_a_gpu_say_why)
{
    bool gpu = false;
    for (size_t k = 0; device_kind_at(k); k++)
        gpu = gpu || (strcmp(device_kind_at(k)->name, "cpu") && device_kind_at(k)->count() > 0);
    struct buf why = { 0 };
    device_missing(&why);
    if (gpu) CHECK(why.len == 0, "%s", buf_text(&why));
    else CHECK(!strncmp(buf_text(&why), "no GPU: ", 8), "%s", buf_text(&why));
    struct device *d = NULL;
    luce_error err = { 0 };
    CHECK_EQ(device_open(&d, "cuda:64", &(struct device_params){ 0 }, &err), LUCE_E_ARG);
    CHECK(strstr(err.text, buf_text(&why)) != NULL, "%s", err.text);
    buf_drop(&why);
}

TEST(cpu_measures_rates_that_are_there)
{
    struct device *d = NULL;
    luce_error err = { 0 };
    struct device_limits m;
    struct device_info info;
    CHECK_OK(device_open(&d, "auto", NULL, &err), err);
    CHECK_OK(d->fns->info(d, &info, &err), err);
    CHECK(info.memory_total > 0 && info.memory_free > 0 && info.n_units > 0 && info.name[0]);
    static const uint64_t blocks[] = { 0, 1, 100000, 5u << 20, 1ull << 40 };
    for (size_t i = 0; i < COUNT(blocks); i++) {
        m.block = blocks[i];
        CHECK_OK(d->fns->measure(d, &m, &err), err);
        CHECK(m.read_bytes_per_s > 1e8 && m.f32_ops_per_s > 1e8, "%g bytes/s", m.read_bytes_per_s);
    }
    device_close(d);
}
