/* The GPU device, on a card where there is one, else on one that the CPU emulates: every op against the
 * references, bits that do not depend on company, and memory that is not there. */
#include <math.h>

#include "device/check.h"
#ifdef LUCE_EMULATED_GPU
#include "device/gpu/device.h"
#include "device/gpu/emulate.h"
#endif
#include "dflash_rig.h"
#include "gpu_rig.h"
#include "model/open.h"
#include "quant/quant.h"
#include "run/runner.h"
#include "tests/test.h"

static void report(void *context, const struct check_result *r)
{
    (void)context;
    if (!r->passed)
        test_failed(__FILE__, __LINE__, "%s: %s: error %g, allowed %g", r->op, r->label, r->nmse, r->allowed);
}

/* An emulated card takes a sample of the formats only: most of them are the same to the GPU. */
TEST(gpu_kernels_are_close_to_the_references)
{
    struct device *d = open_gpu();
    if (!d) SKIP("no GPU");
    int failed = -1;
    luce_error err = { 0 };
    struct check_params p = { .seed = test_random(), .sample = gpu_is_emulated(d) ? 2 : 0 };
    CHECK_OK(check_device(d, &p, report, NULL, &failed, &err), err);
    CHECK_EQ(failed, 0);
    device_close(d);
}

TEST(gpu_rows_do_not_depend_on_their_company)
{
    struct device *d = open_gpu();
    if (!d) SKIP("no GPU");
    int failed = -1;
    luce_error err = { 0 };
    struct check_params p = { .seed = test_random(), .sample = gpu_is_emulated(d) ? 5 : 0 };
    CHECK_OK(check_width_independence(d, &p, report, NULL, &failed, &err), err);
    CHECK_EQ(failed, 0);
    device_close(d);
}

TEST(gpu_says_what_does_not_fit_and_goes_on)
{
    struct device *d = open_gpu();
    if (!d) SKIP("no GPU");
    struct kv_layout kv = { 0 };
    struct device_cache *c = NULL;
    luce_error err = { 0 };
    CHECK_OK(kv_layout_add(&kv, 8, 128, 128, 0, &err), err);
    CHECK_OK(kv_layout_finish(&kv, Q_F16, Q_F16, &err), err);
    struct cache_params p = { .layout = &kv, .n_slots = 1, .n_pages = { 1 << 24 }, .max_pages = { 1 << 24 } };
    CHECK_EQ(d->fns->cache_open(d, &c, &p, &err), LUCE_E_DEVMEM);
    CHECK(strstr(err.text, "MiB are free") != NULL, "%s", err.text);
    CHECK(c == NULL);
    p.n_pages[0] = p.max_pages[0] = 4;
    CHECK_OK(d->fns->cache_open(d, &c, &p, &err), err);
    d->fns->cache_close(d, c);
    device_close(d);
}

/* Of a format that goes to the card as f16, by way of a buffer. */
TEST(gpu_refuses_rows_that_no_buffer_holds)
{
    enum { COLS = 9 << 20 };
    struct device *d = open_gpu();
    if (!d) SKIP("no GPU");
    luce_error err = { 0 };
    void *row = mem_zero(COLS);
    struct weight w = { .name = "long", .type = Q_Q2_K, .dim = { COLS, 1 }, .host = row };
    CHECK(row != NULL, "memory");
    CHECK_EQ(d->fns->upload(d, &w, &err), LUCE_E_UNSUPPORTED);
    CHECK(strstr(err.text, "long: a row takes 18874368 bytes") != NULL, "%s", err.text);
    mem_free(row);
    device_close(d);
}

#ifdef LUCE_EMULATED_GPU
/* Two steps of a small model. */
static luce_status load_and_run(struct device *d, int lose_at, luce_error *err)
{
    static const int32_t text[2] = { 1, 2 };
    struct gguf *file = NULL;
    struct model *m = NULL;
    struct runner *r = NULL;
    struct seq *s = NULL;
    luce_status st = gguf_open(&file, fixture("oracle/qwen3.gguf"), err);
    if (!st) st = model_open(&m, file, err);
    if (!st) st = runner_open(&r, m, &(struct load_params){ .device = d, .context = 200, .chunk = 64 }, err);
    if (!st) st = seq_open(&s, runner_cache(r), err);
    emulated_fail(EMULATED_LAUNCH, lose_at);
    for (int i = 0; !st && i < 2; i++) {
        runner_begin(r, STEP_NARROW);
        st = runner_add(r, s, text, NULL, 1 + i, WANT_ALL, NULL, err);
        if (!st) st = runner_run(r, err);
        if (!st) seq_accept(s, NULL, 1 + i);
    }
    emulated_fail(EMULATED_LAUNCH, -1);
    if (s) seq_close(s);
    runner_close(r);
    gguf_close(file);
    return st;
}

TEST(gpu_ids_count_the_cards_that_can_be_used)
{
    struct device *d = NULL;
    struct device_info info = { 0 };
    luce_error err = { 0 };
    CHECK_EQ(device_kind_gpu.count(), 1);
    CHECK_OK(device_kind_gpu.open(&d, 0, &(struct device_params){ 0 }, &err), err);
    CHECK_OK(d->fns->info(d, &info, &err), err);
    CHECK_STR(info.id, "emulated:0");
    CHECK_STR(info.name, "emulated GPU");
    device_close(d);
    CHECK_EQ(device_kind_gpu.open(&d, 1, &(struct device_params){ 0 }, &err), LUCE_E_ARG);
    CHECK(strstr(err.text, "'emulated:1': this build can use 1 of 2 cards here") != NULL, "%s", err.text);
    CHECK_EQ(d, NULL);
}

/* Of a narrow step. */
static luce_status count_launches(struct device *d, const char *name, int rows, int *n, luce_error *err)
{
    static const int32_t text[16] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };
    struct gguf *file = NULL;
    struct model *m = NULL;
    struct runner *r = NULL;
    struct seq *s = NULL;
    char path[64];
    snprintf(path, sizeof path, "oracle/%s.gguf", name);
    luce_status st = gguf_open(&file, fixture(path), err);
    if (!st) st = model_open(&m, file, err);
    if (!st) st = runner_open(&r, m, &(struct load_params){ .device = d, .context = 200, .chunk = 64 }, err);
    if (!st) st = seq_open(&s, runner_cache(r), err);
    if (!st) runner_begin(r, STEP_NARROW);
    if (!st) st = runner_add(r, s, text, NULL, rows, WANT_ALL, NULL, err);
    int before = emulated_launches();
    if (!st) st = runner_run(r, err);
    *n = emulated_launches() - before;
    if (s) seq_close(s);
    runner_close(r);
    gguf_close(file);
    return st;
}

/* Some of the allocations of opening, loading and running, at random; the same device goes on afterwards. */
TEST(gpu_without_memory_fails_the_load_or_the_step_and_goes_on)
{
    struct device *d = NULL;
    luce_error err = { 0 };
    size_t before = mem_live();
    luce_status st = LUCE_E_DEVMEM;
    for (int n = 0; st == LUCE_E_DEVMEM; n += 1 + (int)(test_random() % 16)) {
        emulated_fail(EMULATED_MALLOC, n);
        st = device_kind_gpu.open(&d, 0, &(struct device_params){ 0 }, &err);
        if (!st) st = load_and_run(d, -1, &err);
        emulated_fail(EMULATED_MALLOC, -1);
        if (st) CHECK(st == LUCE_E_DEVMEM && strstr(err.text, "out of device memory"), "%d: %s", n, err.text);
        if (st && d) CHECK_OK(load_and_run(d, -1, &err), err);
        device_close(d);
        d = NULL;
        CHECK_EQ(mem_live(), before);
    }
    CHECK_EQ(st, LUCE_OK);
}

/* A step of a loaded model that finds no memory: the model answers the next one as if nothing had been. */
TEST(gpu_without_memory_for_a_step_answers_the_next_one)
{
    enum { ROWS_BEFORE = 1, ROWS_MORE = 9, LOGITS = 512 };
    static const int32_t text[ROWS_BEFORE + ROWS_MORE] = { 7, 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    static float logits[2][ROWS_MORE][LOGITS];
    struct device *d = NULL;
    luce_error err = { 0 };
    int failed = 0;
    CHECK_OK(device_kind_gpu.open(&d, 0, &(struct device_params){ 0 }, &err), err);
    for (int n = -1; n < 8; n++) {
        struct gguf *file = NULL;
        struct model *m = NULL;
        struct runner *r = NULL;
        struct seq *s = NULL;
        luce_status st = gguf_open(&file, fixture("oracle/qwen3.gguf"), &err);
        if (!st) st = model_open(&m, file, &err);
        if (!st) st = runner_open(&r, m, &(struct load_params){ .device = d, .context = 200, .chunk = 64 }, &err);
        if (!st) st = seq_open(&s, runner_cache(r), &err);
        if (!st) runner_begin(r, STEP_NARROW);
        if (!st) st = runner_add(r, s, text, NULL, ROWS_BEFORE, WANT_ALL, NULL, &err);
        if (!st) st = runner_run(r, &err);
        if (!st) seq_accept(s, NULL, ROWS_BEFORE);
        CHECK_OK(st, err);
        for (int again = 0; again < 2; again++) {
            if (!again && n < 0) continue;
            runner_begin(r, STEP_NARROW);
            CHECK_OK(runner_add(r, s, text + ROWS_BEFORE, NULL, ROWS_MORE, WANT_ALL, NULL, &err), err);
            if (!again) emulated_fail(EMULATED_MALLOC, n);
            st = runner_run(r, &err);
            emulated_fail(EMULATED_MALLOC, -1);
            if (!st) break;
            failed++;
            CHECK(!again && st == LUCE_E_DEVMEM, "%d: %s", n, err.text);
        }
        for (int i = 0; i < ROWS_MORE; i++) CHECK_OK(runner_logits(r, i, logits[n >= 0][i], &err), err);
        CHECK(n < 0 || !memcmp(logits[0], logits[1], sizeof logits[0]), "%d: other bits", n);
        if (s) seq_close(s);
        runner_close(r);
        gguf_close(file);
    }
    CHECK(failed > 0, "no step lacked memory");
    device_close(d);
}

/* What consumer cards have: 99 KiB, older ones and AMD's 64. */
TEST(gpu_with_less_shared_memory_is_as_right)
{
    static const struct { int shared; const char *op; } runs[] = {
        { 99 * 1024, "attn" }, { 99 * 1024, "moe_glu" }, { 64 * 1024, "linear" }, { 64 * 1024, "glu" },
        { 64 * 1024, "moe_down" },
    };
    for (size_t i = 0; i < COUNT(runs); i++) {
        emulated_card(runs[i].shared);
        struct device *d = open_gpu();
        emulated_card(0);
        int failed = -1;
        luce_error err = { 0 };
        struct check_params p = { .seed = test_random(), .only = runs[i].op, .sample = 16 };
        CHECK_OK(check_device(d, &p, report, NULL, &failed, &err), err);
        CHECK_EQ(failed, 0);
        CHECK_OK(check_width_independence(d, &p, report, NULL, &failed, &err), err);
        CHECK_EQ(failed, 0);
        device_close(d);
    }
}

/* Small models of as many layers, of which one in four attends: their launches take longer than their bytes
 * (docs/performance.md). Around the layers: begin, EMBED, TAKE, NORM, the head, ARGMAX twice, SAMPLE. PAD: zeros behind
 * a product's columns where they are no multiple of 64, which they are in real models. The NORM behind experts makes
 * their sum; behind the last of them is TAKE. Between products NORM is deferred, all but the first, which gives its
 * factors, and the one behind TAKE. Products of one row make the other NORMs, and GATED, without zeros; DELTA of at most
 * eight rows makes SHORT_CONV, and MOE_GLU of one ROUTE. */
TEST(gpu_layers_take_few_launches)
{
    enum { AROUND = 8, PAD = 1, DEFERRED = 2 * 4 - 1 };
    static const struct { const char *name; int rows, launches; } runs[] = {
        { "qwen3next", 1, AROUND - 2 + 3 * 8 + 9 }, { "qwen3next", 16, AROUND + 3 * 12 + 12 + PAD },
        { "qwen35", 1, AROUND + 3 * (6 + PAD) + 6 + PAD },
        { "qwen35", 2, AROUND - DEFERRED + 3 * (9 + 2 * PAD) + 9 + 2 * PAD },
        { "qwen35", 8, AROUND - DEFERRED + 3 * (9 + 2 * PAD) + 9 + 2 * PAD },
        { "qwen35", 9, AROUND - DEFERRED + 3 * (10 + 2 * PAD) + 9 + 2 * PAD },
    };
    struct device *d = NULL;
    luce_error err = { 0 };
    CHECK_OK(device_kind_gpu.open(&d, 0, &(struct device_params){ 0 }, &err), err);
    for (size_t i = 0; i < COUNT(runs); i++) {
        int n = 0;
        CHECK_OK(count_launches(d, runs[i].name, runs[i].rows, &n, &err), err);
        CHECK(n == runs[i].launches, "%s, %d rows: %d launches, expected %d", runs[i].name, runs[i].rows, n,
              runs[i].launches);
    }
    device_close(d);
}

TEST(gpu_matrix_instructions_have_a_replacement)
{
    uint16_t halves[512];
    for (size_t i = 0; i < COUNT(halves); i++) halves[i] = f32_to_f16((float)(test_random() % 2049) / 1024 - 1);
    CHECK_EQ(emulated_check_matrices(halves), 0);
}

TEST(gpu_that_is_lost_says_so_and_stays_lost)
{
    for (int at = 0; at < 2; at++) {
        struct device *d = NULL;
        luce_error err = { 0 };
        size_t before = mem_live();
        CHECK_OK(device_kind_gpu.open(&d, 0, &(struct device_params){ 0 }, &err), err);
        CHECK_EQ(load_and_run(d, at, &err), LUCE_E_DEVICE);
        CHECK(strstr(err.text, "cannot be used any more") != NULL, "%s", err.text);
        CHECK_EQ(load_and_run(d, -1, &err), LUCE_E_DEVICE);
        CHECK(strstr(err.text, "failed before") != NULL, "%s", err.text);
        device_close(d);
        CHECK_EQ(mem_live(), before);
    }
}
#endif

/* ---- whole models ---------------------------------------------------------------------------------------- */
/* DEEP: behind such a prompt the last rows come to have two splits of attention (attn_shallow). */
enum { PROMPT = 70, DEEP = 252, ROWS = 10, TEXT = DEEP + ROWS, VOCAB_MOST = 512 };

struct answer {
    int vocab;
    float logits[ROWS * VOCAB_MOST];
};

/* The logits of the last ROWS of a text, its prompt fed as such, the rest in steps of `width`. */
static void answer(struct answer *a, struct device *d, const char *name, const int32_t *text, int prompt, int width)
{
    char path[64];
    luce_error err = { 0 };
    struct gguf *file = NULL;
    struct model *m = NULL;
    struct runner *r = NULL;
    struct seq *s = NULL;
    snprintf(path, sizeof path, "oracle/%s.gguf", name);
    luce_status st = gguf_open(&file, fixture(path), &err);
    if (!st) st = model_open(&m, file, &err);
    if (!st) st = runner_open(&r, m, &(struct load_params){ .device = d, .context = DEEP + ROWS, .chunk = 64 }, &err);
    if (!st) st = seq_open(&s, runner_cache(r), &err);
    if (!st) st = runner_prefill(r, s, text, prompt, NULL, NULL, &err);
    a->vocab = r ? runner_model(r)->c.vocab : 0;
    CHECK(a->vocab <= VOCAB_MOST, "%s: %d tokens", name, a->vocab);
    for (int at = 0; !st && at < ROWS; at += width) {
        int n = ROWS - at < width ? ROWS - at : width;
        runner_begin(r, STEP_NARROW);
        st = runner_add(r, s, text + prompt + at, NULL, n, WANT_ALL, NULL, &err);
        if (!st) st = runner_run(r, &err);
        for (int i = 0; !st && i < n; i++) st = runner_logits(r, i, a->logits + (at + i) * a->vocab, &err);
        if (!st) seq_accept(s, NULL, n);
    }
    CHECK_OK(st, err);
    if (s) seq_close(s);
    runner_close(r);
    gguf_close(file);
}

static double distance(const struct answer *a, const struct answer *b)
{
    double off = 0, size = 0;
    for (int i = 0; i < ROWS * a->vocab; i++) {
        off += pow((double)a->logits[i] - (double)b->logits[i], 2);
        size += pow((double)b->logits[i], 2);
    }
    return off / size < INFINITY ? off / size : INFINITY;
}

static void ignore(void *context, const struct trace *t)
{
    (void)context, (void)t;
}

/* Call by call, no launch does the work of two calls. */
TEST(gpu_steps_have_the_bits_of_their_calls_one_by_one)
{
    static const char *const names[] = { "qwen35moe", "qwen3next", "qwen3moe", "qwen35" };
    struct device *d = open_gpu();
    static float logits[2][ROWS][VOCAB_MOST];
    if (!d) SKIP("no GPU");
    for (size_t i = 0; i < COUNT(names); i++) {
        char path[64];
        int32_t text[TEXT];
        int rows = 1 + (int)(test_random() % ROWS);
        for (int t = 0; t < TEXT; t++) text[t] = (int32_t)(test_random() % 64);
        snprintf(path, sizeof path, "oracle/%s.gguf", names[i]);
        for (int traced = 0; traced < 2; traced++) {
            luce_error err = { 0 };
            struct gguf *file = NULL;
            struct model *m = NULL;
            struct runner *r = NULL;
            struct seq *s = NULL;
            luce_status st = gguf_open(&file, fixture(path), &err);
            if (!st) st = model_open(&m, file, &err);
            if (!st) st = runner_open(&r, m, &(struct load_params){ .device = d, .context = 200, .chunk = 64 }, &err);
            if (!st) st = seq_open(&s, runner_cache(r), &err);
            if (!st) st = runner_prefill(r, s, text, PROMPT, NULL, NULL, &err);
            if (!st) runner_begin(r, STEP_NARROW);
            if (!st) st = runner_add(r, s, text + PROMPT, NULL, rows, WANT_ALL, NULL, &err);
            if (!st) st = traced ? runner_trace(r, ignore, NULL, &err) : runner_run(r, &err);
            for (int j = 0; !st && j < rows; j++) st = runner_logits(r, j, logits[traced][j], &err);
            CHECK_OK(st, err);
            if (s) seq_close(s);
            runner_close(r);
            gguf_close(file);
        }
        CHECK(!memcmp(logits[0], logits[1], sizeof *logits[0] * (size_t)rows), "%s, %d rows: other bits", names[i], rows);
    }
    device_close(d);
}

TEST(gpu_refuses_heads_that_it_has_no_kernel_for)
{
    struct device *d = open_gpu();
    struct gguf *file = NULL;
    struct model *m = NULL;
    struct runner *r = NULL;
    luce_error err = { 0 };
    if (!d) SKIP("no GPU");
    CHECK_OK(gguf_open(&file, fixture("oracle/llama3.gguf"), &err), err);
    CHECK_OK(model_open(&m, file, &err), err);
    CHECK_EQ(runner_open(&r, m, &(struct load_params){ .device = d, .context = 200, .chunk = 64 }, &err),
             LUCE_E_UNSUPPORTED);
    CHECK(strstr(err.text, "2 kv heads of 12") && strstr(err.text, "multiples of 8"), "%s", err.text);
    CHECK_EQ(r, NULL);
    gguf_close(file);
    device_close(d);
}

/* Another device rounds otherwise: about 1e-5 of the logits' size, more where a memory keeps errors; a wrong kernel
 * gives about 2. Rounding may turn over which experts a row takes: then only the bits are compared. */
static const struct { const char *name; bool experts; } models[] = {
    { "llama_yarn", false }, { "qwen3", false },  { "gemma3", false },     { "phi3_long", false },
    { "qwen35", false },     { "qwen3moe", true }, { "qwen35moe", true }, { "qwen3next", true },
};

TEST(gpu_models_answer_as_on_the_cpu_and_alike_at_every_width)
{
    struct device *d = open_gpu(), *cpu = NULL;
    static struct answer one, wide, want;
    luce_error err = { 0 };
    if (!d) SKIP("no GPU");
    CHECK_OK(device_open(&cpu, "cpu", &(struct device_params){ .n_threads = 2 }, &err), err);
    for (size_t i = 0; i < COUNT(models); i++) {
        int32_t text[TEXT];
        for (int t = 0; t < TEXT; t++) text[t] = (int32_t)(test_random() % 64);
        int prompt = i % 4 ? PROMPT : DEEP;
        answer(&one, d, models[i].name, text, prompt, 1);
        answer(&wide, d, models[i].name, text, prompt, 2 + (int)(test_random() % 9));
        answer(&want, cpu, models[i].name, text, prompt, 4);
        double off = distance(&one, &want);
        CHECK(off < (models[i].experts ? INFINITY : 1e-2), "%s: %g", models[i].name, off);
        CHECK(!memcmp(one.logits, wide.logits, sizeof(float) * (size_t)(ROWS * one.vocab)), "%s: other bits",
              models[i].name);
    }
    device_close(cpu);
    device_close(d);
}

/* Features that stay on the device: rows of two layers with a gap, side by side, and back in one piece. */
static void check_held(struct device *d)
{
    enum { STEP = 8, EMBD = 32, TAPS = 2, KEPT = 3 };
    static const int kept[KEPT] = { 0, 2, 3 };
    struct drafter_rig g;
    struct seq *s;
    luce_error err = { 0 };
    int32_t ids[STEP];
    float rows[TAPS][STEP][EMBD], got[KEPT][TAPS][EMBD];
    struct rows_read reads[KEPT * TAPS];
    void *held = NULL;
    int k = 0;
    for (int i = 0; i < STEP; i++) ids[i] = (int32_t)(test_random() % (VOCAB - 1));
    if (!dflash_rig_open(&g, d, fixture("dflash/v1_llama.gguf"), 0, 1)) return;
    const struct val *taps = runner_record(g.target)->taps;
    CHECK_OK(d->fns->hold(d, &held, sizeof got, &err), err);
    CHECK_OK(seq_open(&s, runner_cache(g.target), &err), err);
    runner_begin(g.target, STEP_NARROW);
    CHECK_OK(runner_add(g.target, s, ids, NULL, STEP, WANT_NONE, NULL, &err), err);
    CHECK_OK(runner_run(g.target, &err), err);
    for (int t = 0; t < TAPS; t++) CHECK_OK(runner_read(g.target, taps[t], 0, STEP, rows[t], &err), err);
    for (int i = 0; i < KEPT; i += i ? 2 : 1)           /* rows 2 and 3 in one piece */
        for (int t = 0; t < TAPS; t++)
            reads[k++] = (struct rows_read){ .v = taps[t], .first_row = kept[i], .n_rows = i ? 2 : 1, .held = true,
                                             .to = (float *)held + (i * TAPS + t) * EMBD, .stride = sizeof got[0] };
    uint64_t before = d->n_waits;
    CHECK_OK(runner_read_all(g.target, reads, k, &err), err);
    CHECK_EQ(d->n_waits, before);
    CHECK_OK(runner_give_held(g.target, taps[1], 1, KEPT * TAPS, held, &err), err);
    CHECK_OK(runner_read(g.target, taps[1], 1, KEPT * TAPS, got, &err), err);
    for (int i = 0; i < KEPT; i++)
        for (int t = 0; t < TAPS; t++) CHECK(!memcmp(got[i][t], rows[t][kept[i]], sizeof got[i][t]), "row %d, layer %d", i, t);
    d->fns->drop(d, held);
    seq_close(s);
    drafter_rig_close(&g);
}

TEST(devices_hold_rows_from_step_to_step)
{
    struct device *cpu = NULL, *gpu = open_gpu();
    luce_error err = { 0 };
    CHECK_OK(device_open(&cpu, "cpu", &(struct device_params){ .n_threads = 2 }, &err), err);
    check_held(cpu);
    if (!gpu) SKIP("no GPU");
    check_held(gpu);
}

/* A guess by DFlash: the host waits for the step of the target and for the block with what a selector needs, not for
 * the features of the accepted rows (they never leave the device) nor the pass that takes them in. In the second step
 * another guess is made ahead, which the host throws away since it keeps other rows than the device. */
TEST(gpu_guesses_wait_for_the_model_and_for_the_block)
{
    static const int parent[] = { -1, 0, 0, 2, 3, 4, 0, 6 };    /* accepted rows with a gap */
    static const uint8_t path[] = { 0, 2, 3 };
    enum { NODES = COUNT(parent), KEPT = 3 };
    for (int second = 0; second < 2; second++) {
        struct device *d = open_gpu();
        struct drafter_rig g;
        struct seq *s;
        luce_error err = { 0 };
        char file[512];
        int32_t ids[TEXT_MOST], tokens[NODES];
        struct tree queued = { 0 };
        if (!d) SKIP("no GPU");
        snprintf(file, sizeof file, "%s", fixture(second ? "dflash/v2_llama.gguf" : "dflash/v1_llama.gguf"));
        if (!dflash_rig_open(&g, d, file, second, 1)) return;
        for (int i = 0; i < TEXT_MOST; i++) ids[i] = (int32_t)(test_random() % (VOCAB - 1));
        dflash_guess(&g, 0, (const int32_t[]){ 0, 0 }, 2, BLOCK - 1);      /* as it is timed when it is opened */
        CHECK_OK(seq_open(&s, runner_cache(g.target), &err), err);
        drafter_rig_feed(&g, s, ids, 39, 64, STEP_WIDE);
        dflash_guess(&g, seq_slot(s), ids, 40, BLOCK - 1);
        for (int step = 0; step < 3; step++) {
            uint64_t before = d->n_waits;
            int at = seq_length(s);
            for (int i = 0; i < NODES; i++) tokens[i] = i ? (int32_t)(test_random() % (VOCAB - 1)) : ids[at];
            runner_begin(g.target, STEP_NARROW);
            CHECK_OK(runner_add(g.target, s, tokens, parent, NODES, WANT_ALL, NULL, &err), err);
            CHECK_OK(runner_queue(g.target, &err), err);
            struct foresight x = { .slot = seq_slot(s), .n_ids = at + 1, .rows = 5, .block = BLOCK };
            if (step == 1) CHECK_OK(g.drafter->foresee(g.state, &x, 1, &err), err);
            int32_t said;
            for (int i = 0; i < NODES; i++) CHECK_OK(runner_choice(g.target, i, &said, &err), err);
            seq_accept(s, path, KEPT);
            for (int i = 0; i < KEPT; i++) ids[at + i] = tokens[path[i]];
            struct observed o = { .slot = seq_slot(s), .ids = ids, .at = at, .first_row = 0, .n = KEPT, .path = path };
            CHECK_OK(g.drafter->observe(g.state, &o, &err), err);
            CHECK_EQ(g.drafter->foreseen(g.state, seq_slot(s), at + KEPT + 1), 0);
            queued = dflash_guess(&g, seq_slot(s), ids, at + KEPT + 1, BLOCK - 1);
            CHECK_EQ(d->n_waits - before, 2);
        }
        int n = seq_length(s);
        seq_close(s);
        CHECK_OK(seq_open(&s, runner_cache(g.target), &err), err);          /* the same text, fed with waits */
        drafter_rig_feed(&g, s, ids, 39, 64, STEP_WIDE);
        drafter_rig_feed(&g, s, ids, n, 1, STEP_NARROW);
        struct tree waited = dflash_guess(&g, seq_slot(s), ids, n + 1, BLOCK - 1);
        CHECK(dflash_same_tree(&queued, &waited), "dflash%d: another guess", second + 1);
        seq_close(s);
        drafter_rig_close(&g);
    }
}

/* The host stops before a row that the device keeps, as where a text ends inside a block: the guess behind that row is
 * forgotten. When it keeps both, the guess is there. */
TEST(gpu_guesses_are_taken_where_host_and_device_keep_the_same)
{
    for (int n = 1; n <= 2; n++) {
        struct device *d = open_gpu();
        struct drafter_rig g;
        struct seq *s;
        luce_error err = { 0 };
        int32_t ids[TEXT_MOST];
        if (!d) SKIP("no GPU");
        if (!dflash_rig_open(&g, d, fixture("dflash/v1_llama.gguf"), 0, 1)) return;
        for (int i = 0; i < 40; i++) ids[i] = (int32_t)(test_random() % (VOCAB - 1));
        CHECK_OK(seq_open(&s, runner_cache(g.target), &err), err);
        drafter_rig_feed(&g, s, ids, 39, 64, STEP_WIDE);
        dflash_guess(&g, seq_slot(s), ids, 40, BLOCK - 1);
        for (int rows = 1; rows <= 2; rows++) {         /* the first step shows what the model says after the root */
            runner_begin(g.target, STEP_NARROW);
            CHECK_OK(runner_add(g.target, s, ids + 39, NULL, rows, WANT_ALL, NULL, &err), err);
            CHECK_OK(runner_queue(g.target, &err), err);
            struct foresight x = { .slot = seq_slot(s), .n_ids = 40, .rows = 2, .block = BLOCK };
            if (rows == 2) CHECK_OK(g.drafter->foresee(g.state, &x, 1, &err), err);
            CHECK_OK(runner_choice(g.target, rows - 1, &ids[39 + rows], &err), err);
        }
        static const uint8_t path[] = { 0, 1 };
        struct observed o = { .slot = seq_slot(s), .ids = ids, .at = 39, .n = n, .path = path };
        seq_accept(s, path, n);
        CHECK_OK(g.drafter->observe(g.state, &o, &err), err);
        CHECK_EQ(g.drafter->foreseen(g.state, seq_slot(s), 40 + n), n == 2 ? BLOCK : 0);
        seq_close(s);
        drafter_rig_close(&g);
    }
}
