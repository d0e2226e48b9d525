/* tests/test_scheduler.c - requests on a device that fails on demand, and the stream of stop strings. */
#include "engine/scheduler.h"
#include "engine/stop.h"
#include "ref_device.h"
#include "request_rig.h"
#include "test.h"

struct rig {
    struct gguf *file;
    struct device *device;
    struct runner *runner;
    struct scheduler scheduler;
};

static bool rig_open(struct rig *g, const struct load_params *params)
{
    luce_error err = { 0 };
    struct model *m;
    struct load_params p = *params;
    *g = (struct rig){ 0 };
    p.device = g->device = ref_device(true, 1u << 30);
    CHECK_OK(gguf_open(&g->file, fixture("oracle/llama.gguf"), &err), err);
    CHECK_OK(model_open(&m, g->file, &err), err);
    CHECK_OK(runner_open(&g->runner, m, &p, &err), err);
    CHECK_OK(scheduler_init(&g->scheduler, g->runner, &err), err);
    return err.code == LUCE_OK;
}

static void rig_close(struct rig *g)
{
    scheduler_drop(&g->scheduler);
    runner_close(g->runner);
    g->device->fns->close(g->device);
    gguf_close(g->file);
}

static const int32_t prompt[] = { 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };

static void begin(struct rig *g, struct request *r, const luce_request *q)
{
    struct request_env env = { .vocab_size = 96, .context = runner_load_plan(g->runner).context };
    begin_request(&g->scheduler, &env, r, q);
}

TEST(scheduler_a_nan_ends_its_request_with_its_position)
{
    struct rig g;
    luce_error err = { 0 };
    luce_request q = { .tokens = prompt, .n_tokens = 12, .max_tokens = 20 };
    if (!rig_open(&g, &(struct load_params){ .context = 64, .n_slots = 2, .chunk = 64 })) return;
    for (int sampled = 0; sampled < 2; sampled++) {
        struct request r;
        q.sampling.temperature = (float)sampled;
        begin(&g, &r, &q);
        ref_counts(g.device)->nan_at = ref_counts(g.device)->steps + 4;
        while (r.state != REQUEST_DONE) CHECK_OK(scheduler_step(&g.scheduler, &err), err);
        CHECK_EQ(r.status, LUCE_E_NUMERIC);
        CHECK(strstr(r.error.text, "non-finite logits at position 14"), "%s", r.error.text);
        CHECK_EQ(r.n_ids, 15);
        end_request(&r);
    }
    /* The next request is not touched by it. */
    struct request r;
    begin(&g, &r, &q);
    while (r.state != REQUEST_DONE) CHECK_OK(scheduler_step(&g.scheduler, &err), err);
    CHECK(r.status == LUCE_OK && r.finish == LUCE_FINISH_LENGTH);
    end_request(&r);
    rig_close(&g);
}

TEST(scheduler_a_lost_device_ends_all_requests)
{
    struct rig g;
    luce_error err = { 0 };
    luce_request q = { .tokens = prompt, .n_tokens = 12, .max_tokens = 20 };
    if (!rig_open(&g, &(struct load_params){ .context = 64, .n_slots = 2, .chunk = 64 })) return;
    struct request r[2];
    begin(&g, &r[0], &q);
    begin(&g, &r[1], &q);
    ref_counts(g.device)->fail_at = 5;
    luce_status st = LUCE_OK;
    for (int i = 0; i < 9 && !st; i++) st = scheduler_step(&g.scheduler, &err);
    CHECK_EQ(st, LUCE_E_DEVICE);
    for (int i = 0; i < 2; i++) {
        CHECK(r[i].state == REQUEST_DONE && r[i].status == LUCE_E_DEVICE, "%s", r[i].error.text);
        end_request(&r[i]);
    }
    rig_close(&g);
}

/* Every look at the clock is a second later: a step takes one, whatever its rows. */
static double next_second(void)
{
    static double now;
    return now++;
}

TEST(scheduler_packs_running_texts_into_shared_steps)
{
    struct rig g;
    luce_error err = { 0 };
    luce_request q = { .tokens = prompt, .n_tokens = 12, .max_tokens = 11 };
    if (!rig_open(&g, &(struct load_params){ .context = 64, .n_slots = 8, .chunk = 64 })) return;
    struct request r[8];
    g.scheduler.clock = next_second;
    for (int i = 0; i < 8; i++) begin(&g, &r[i], &q);
    while (g.scheduler.n_active) CHECK_OK(scheduler_step(&g.scheduler, &err), err);
    /* Five prompts fit the first chunk; they have two steps of their own, since they keep a little more than half of
     * their speed, then the other three prompts come; ten more tokens of all eight. Alone they would take 88 steps. */
    CHECK_EQ(ref_counts(g.device)->steps, 14);
    for (int i = 0; i < 8; i++) CHECK(r[i].n_ids == 23 && !memcmp(r[i].ids, r[0].ids, 23 * sizeof *r[i].ids));
    for (int i = 0; i < 8; i++) end_request(&r[i]);
    rig_close(&g);
}

/* A step takes a tenth of a second, or 2 ms for each row of a prompt. */
static double pretended;
static bool cold;
static int wide_rows[64], n_wide, n_narrow;

static double pretended_clock(void)
{
    return pretended;
}

static void pretend_step(void *context, enum step_class class, int n_rows)
{
    (void)context;
    pretended += class == STEP_WIDE ? 5e-3 * n_rows : cold ? 0.25 : 0.1;
    cold = class == STEP_WIDE;
    if (class == STEP_NARROW) n_narrow++;
    else if (n_wide < 64) wide_rows[n_wide++] = n_rows;
}

static bool leave_logits(void *context, const struct request *r, float *logits)
{
    (void)context, (void)r, (void)logits;
    return false;
}

TEST(scheduler_running_texts_keep_half_of_their_speed_beside_a_long_prompt)
{
    struct rig g;
    luce_error err = { 0 };
    int32_t ids[500];
    for (int i = 0; i < 500; i++) ids[i] = 5 + (int32_t)(test_random() % 80);
    luce_request text = { .tokens = prompt, .n_tokens = 12, .max_tokens = 200 };
    luce_request lone = { .tokens = ids, .n_tokens = 500, .max_tokens = 1 };
    if (!rig_open(&g, &(struct load_params){ .context = 512, .n_slots = 2, .chunk = 128 })) return;
    struct step_hook hook = { .step = pretend_step, .logits = leave_logits };
    struct request r[2];
    g.scheduler.hook = &hook;
    g.scheduler.clock = pretended_clock;
    begin(&g, &r[1], &lone);                /* nobody runs: whole chunks */
    n_wide = n_narrow = 0;
    CHECK_OK(scheduler_step(&g.scheduler, &err), err);
    CHECK_EQ(wide_rows[0], 128);
    begin(&g, &r[0], &text);
    while (r[0].state != REQUEST_DECODE) CHECK_OK(scheduler_step(&g.scheduler, &err), err);
    n_wide = n_narrow = 0;
    double start = pretended;
    while (r[1].state == REQUEST_PROMPT) CHECK_OK(scheduler_step(&g.scheduler, &err), err);
    double share = 0.1 * n_narrow / (pretended - start);
    for (int i = 0; i < n_wide; i++) CHECK(wide_rows[i] <= PAGE, "a running text waited for %d rows", wide_rows[i]);
    CHECK(n_wide >= 4 && share > 0.42 && share < 0.6, "the text kept %.2f of its speed", share);
    while (g.scheduler.n_active) CHECK_OK(scheduler_step(&g.scheduler, &err), err);
    for (int i = 0; i < 2; i++) end_request(&r[i]);
    rig_close(&g);
}

/* Runs these requests to their ends. */
static void run_all(struct rig *g, struct request *r, const luce_request *q, int n)
{
    luce_error err = { 0 };
    for (int i = 0; i < n; i++) begin(g, &r[i], &q[i]);
    for (int steps = 0; g->scheduler.n_active && steps < 5000; steps++) {
        CHECK_OK(scheduler_step(&g->scheduler, &err), err);
        for (int i = 0; i < n; i++)
            if (r[i].state == REQUEST_DONE && r[i].seq) seq_close(r[i].seq), r[i].seq = NULL;
    }
    CHECK_EQ(g->scheduler.n_active, 0);
}

/* Each fits alone, no two do: they block each other in their prompts and in their texts, and all end as alone. */
TEST(scheduler_texts_that_find_no_room_wait_and_end_as_alone)
{
    enum { N = 4, LONG = 150 };
    static int32_t ids[N][LONG], want[N][256];
    struct rig g;
    struct request r[N];
    luce_request q[N];
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < LONG; k++) ids[i][k] = 5 + (int32_t)(test_random() % 80);
        q[i] = (luce_request){ .tokens = ids[i], .n_tokens = i % 2 ? LONG : 12, .max_tokens = i % 2 ? 5 : 100 };
        if (i > 1) q[i].sampling = (luce_sampling){ .temperature = 0.8f, .has_seed = true, .seed = (uint64_t)i };
        if (!rig_open(&g, &(struct load_params){ .context = 192, .n_slots = 1, .chunk = 64 })) return;
        run_all(&g, &r[i], &q[i], 1);
        CHECK_EQ(r[i].status, LUCE_OK);
        memcpy(want[i], r[i].ids, (size_t)r[i].n_ids * sizeof *want[i]);
        request_drop(&r[i]);
        rig_close(&g);
    }
    if (!rig_open(&g, &(struct load_params){ .context = 192, .n_slots = N, .total_positions = 192, .chunk = 64 })) return;
    run_all(&g, r, q, N);
    bool restarted = false;
    for (int i = 0; i < N; i++) {
        restarted = restarted || r[i].restarts;
        CHECK(r[i].status == LUCE_OK && r[i].finish == LUCE_FINISH_LENGTH, "text %d: %s", i, r[i].error.text);
        CHECK_EQ(r[i].n_ids, (int)(q[i].n_tokens + q[i].max_tokens));
        CHECK(!memcmp(r[i].ids, want[i], (size_t)r[i].n_ids * sizeof *want[i]), "text %d is another one", i);
        request_drop(&r[i]);
    }
    CHECK(restarted);
    rig_close(&g);
}

/* Behind prompts that take many chunks, one of a few tokens gets its rows in the next step. */
TEST(scheduler_a_short_prompt_does_not_wait_for_long_ones)
{
    enum { N = 4, LONG = 500 };
    static int32_t ids[N][LONG];
    struct rig g;
    struct request r[N];
    luce_request q[N];
    luce_error err = { 0 };
    if (!rig_open(&g, &(struct load_params){ .context = 512, .n_slots = N, .chunk = 64 })) return;
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < LONG; k++) ids[i][k] = 5 + (int32_t)(test_random() % 80);
        q[i] = (luce_request){ .tokens = ids[i], .n_tokens = i == N - 1 ? 10 : LONG, .max_tokens = 1 };
        begin(&g, &r[i], &q[i]);
    }
    for (int steps = 0; steps < 2; steps++) CHECK_OK(scheduler_step(&g.scheduler, &err), err);
    CHECK_EQ(r[N - 1].state, REQUEST_DONE);
    CHECK(seq_length(r[0].seq) >= 64, "the oldest has %d positions", seq_length(r[0].seq));
    while (g.scheduler.n_active) CHECK_OK(scheduler_step(&g.scheduler, &err), err);
    for (int i = 0; i < N; i++) end_request(&r[i]);
    rig_close(&g);
}

/* What goes out for a text that arrives in pieces of random sizes. */
static void stream(const struct str *stops, int n, struct str text, struct buf *out, bool *stopped)
{
    struct stopper s = { .stop = stops, .n_stop = n };
    *stopped = false;
    for (size_t at = 0, len; at < text.len && !*stopped; at += len) {
        size_t ready;
        len = 1 + test_random() % 4;
        if (len > text.len - at) len = text.len - at;
        *stopped = stopper_add(&s, (struct str){ text.at + at, len }, &ready);
        buf_add(out, s.held.data ? s.held.data : "", ready);
        stopper_take(&s, ready);
    }
    if (!*stopped) buf_add(out, s.held.data ? s.held.data : "", s.held.len);
    stopper_drop(&s);
}

TEST(stop_strings_end_a_text_however_it_is_cut_into_pieces)
{
    for (int round = 0; round < 3000; round++) {
        char text[40], words[3][6];
        struct str stops[3];
        int n = 1 + (int)(test_random() % 3);
        for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + test_random() % 2);
        for (int i = 0; i < n; i++) {
            size_t len = 1 + test_random() % 6;
            for (size_t j = 0; j < len; j++) words[i][j] = (char)('a' + test_random() % 2);
            stops[i] = (struct str){ words[i], len };
        }
        /* The first end of any stop string; of those that end there the longest. */
        size_t cut = sizeof text;
        bool found = false;
        for (size_t end_at = 1; end_at <= sizeof text && !found; end_at++)
            for (int i = 0; i < n; i++)
                if (stops[i].len <= end_at && !memcmp(text + end_at - stops[i].len, stops[i].at, stops[i].len)) {
                    size_t from = end_at - stops[i].len;
                    if (!found || from < cut) cut = from;
                    found = true;
                }
        struct buf out = { 0 };
        bool stopped;
        stream(stops, n, (struct str){ text, sizeof text }, &out, &stopped);
        CHECK_EQ(stopped, found);
        CHECK(out.len == cut && !memcmp(buf_text(&out), text, cut), "%zu, not %zu", out.len, cut);
        buf_drop(&out);
    }
}
