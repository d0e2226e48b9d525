/* tests/test_spec_gpu.c - texts with guesses on a GPU (emulated where there is none) are the plain ones, and how often
 * the host waits for a step of them. */
#include <string.h>

#include "gpu_rig.h"
#include "request_rig.h"
#include "test.h"

enum { TEXTS = 3, PROMPT_MOST = 65, TOKENS = 10, VOCAB = 96 };

struct rig {
    struct gguf *file;
    struct device *device;
    struct runner *runner;
    struct speculator *speculator;
    struct scheduler scheduler;
};

static bool rig_open(struct rig *g, const struct speculate_params *p)
{
    luce_error err = { 0 };
    struct model *m = NULL;
    *g = (struct rig){ .device = open_gpu() };
    if (!g->device) return false;
    struct load_params load = { .device = g->device, .n_slots = TEXTS + 1, .context = 256 };
    CHECK_OK(gguf_open(&g->file, fixture("dflash/target.gguf"), &err), err);
    CHECK_OK(model_open(&m, g->file, &err), err);
    if (p) CHECK_OK(speculator_prepare(p, m, NULL, &load.record, &err), err);
    CHECK_OK(runner_open(&g->runner, m, &load, &err), err);
    if (p) CHECK_OK(speculator_open(&g->speculator, p, g->runner, NULL, &err), err);
    CHECK_OK(scheduler_init(&g->scheduler, g->runner, &err), err);
    CHECK_OK(scheduler_speculate(&g->scheduler, g->speculator, &err), err);
    return err.code == LUCE_OK;
}

static void rig_close(struct rig *g)
{
    scheduler_drop(&g->scheduler);
    speculator_close(g->speculator);
    runner_close(g->runner);
    device_close(g->device);
    gguf_close(g->file);
}

static void begin(struct rig *g, struct request *r, const luce_request *q)
{
    struct request_env env = { .vocab_size = VOCAB, .context = 256, .has_drafter = g->speculator };
    begin_request(&g->scheduler, &env, r, q);
}

/* The texts of n requests that run together. */
static void generate(struct rig *g, const luce_request *q, int n, int32_t (*text)[TOKENS])
{
    struct request r[TEXTS];
    luce_error err = { 0 };
    for (int i = 0; i < n; i++) begin(g, &r[i], &q[i]);
    while (g->scheduler.n_active) CHECK_OK(scheduler_step(&g->scheduler, &err), err);
    for (int i = 0; i < n; i++) {
        CHECK_OK(r[i].status, r[i].error);
        CHECK_EQ(r[i].n_ids - r[i].n_prompt, TOKENS);
        memcpy(text[i], r[i].ids + r[i].n_prompt, sizeof text[i]);
        end_request(&r[i]);
    }
}

static int32_t prompts[TEXTS][PROMPT_MOST];

static void make_prompts(void)
{
    for (int i = 0; i < TEXTS; i++)
        for (int k = 0; k < PROMPT_MOST; k++) prompts[i][k] = (int32_t)(test_random() % (VOCAB - 1));
}

/* Greedy, drawn, and with a penalty, for which the host chooses by logits that a drafter's steps must leave alone. */
static void make_requests(luce_request *q, int draft)
{
    for (int i = 0; i < TEXTS; i++)
        q[i] = (luce_request){ .tokens = prompts[i], .n_tokens = (size_t)(PROMPT_MOST - 30 * i), .max_tokens = TOKENS,
                               .draft = draft };
    q[1].sampling = (luce_sampling){ .temperature = 0.7f, .has_seed = true, .seed = 7 };
    q[2].sampling = (luce_sampling){ .presence_penalty = 0.3f };
}

TEST(gpu_texts_with_guesses_are_plain_ones_alone_and_together)
{
    static const struct { const char *path; bool chain; int most, draft; } ways[] = {
        { "dflash/v1_llama.gguf", false, 7, 7 }, { "dflash/v2_llama.gguf", true, 4, 4 },
    };
    int32_t plain[TEXTS][TOKENS], text[TEXTS][TOKENS];
    luce_request q[TEXTS];
    struct rig g;
    make_prompts();
    if (!rig_open(&g, NULL)) SKIP("no GPU");
    make_requests(q, -1);
    for (int i = 0; i < TEXTS; i++) generate(&g, &q[i], 1, &plain[i]);
    rig_close(&g);
    for (size_t w = 0; w < COUNT(ways); w++) {
        char path[512];
        snprintf(path, sizeof path, "%s", fixture(ways[w].path));
        struct speculate_params p = { .path = path, .most = ways[w].most, .chain = ways[w].chain };
        if (!rig_open(&g, &p)) return;
        make_requests(q, ways[w].draft);
        for (int i = 0; i < TEXTS; i++) {
            generate(&g, &q[i], 1, &text[i]);
            CHECK(!memcmp(text[i], plain[i], sizeof plain[i]), "way %zu, text %d alone: another text", w, i);
        }
        generate(&g, q, TEXTS, text);
        for (int i = 0; i < TEXTS; i++)
            CHECK(!memcmp(text[i], plain[i], sizeof plain[i]), "way %zu, text %d in a batch: another text", w, i);
        rig_close(&g);
    }
}

/* Two texts whose tokens the device chooses: for the model's step, and for the blocks of both. */
TEST(gpu_steps_of_texts_with_guesses_wait_twice)
{
    for (int second = 0; second < 2; second++) {
        char path[512];
        struct rig g;
        luce_error err = { 0 };
        luce_request q[TEXTS];
        struct request r[2];
        make_prompts();
        make_requests(q, 4);
        snprintf(path, sizeof path, "%s", fixture(second ? "dflash/v2_llama.gguf" : "dflash/v1_llama.gguf"));
        if (!rig_open(&g, &(struct speculate_params){ .path = path, .most = 4 })) SKIP("no GPU");
        for (int i = 0; i < 2; i++) begin(&g, &r[i], &q[i]);
        while (r[0].state == REQUEST_PROMPT || r[1].state == REQUEST_PROMPT)
            CHECK_OK(scheduler_step(&g.scheduler, &err), err);
        for (int step = 0; g.scheduler.n_active; step++) {
            uint64_t before = g.device->n_waits;
            bool guess = r[0].most_ids - r[0].n_ids > 1 || r[1].most_ids - r[1].n_ids > 1;
            CHECK_OK(scheduler_step(&g.scheduler, &err), err);
            int waits = (int)(g.device->n_waits - before);      /* at first more, for features of long prompts */
            CHECK(step == 0 || waits == (guess ? 2 : 1), "dflash%d, step %d: %d waits", second + 1, step, waits);
        }
        for (int i = 0; i < 2; i++) end_request(&r[i]);
        rig_close(&g);
    }
}
