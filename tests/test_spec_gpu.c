/* tests/test_spec_gpu.c - texts with guesses on a GPU (emulated where there is none) are the plain ones, and how often
 * the host waits for a step of them. */
#include <string.h>

#include "dflash_rig.h"
#include "gpu_rig.h"
#include "request_rig.h"
#include "test.h"
#include "text/vocab_private.h"
#include "toy_vocab.h"

enum { TEXTS = 3, PROMPT_MOST = 65, TOKENS = 10 };

struct rig {
    const char *model;              /* NULL: the drafters' target */
    bool goes_on;                   /* plain steps are queued behind each other */
    const struct vocab *vocab;      /* NULL: ids only */
    luce_prefix_reuse reuse;
    const uint32_t *allowed;        /* tokens that the target may say; NULL: all */
    bool later;                     /* guesses are made when the step before is known, as where devices take no others */
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
    *g = (struct rig){ .device = open_gpu(), .allowed = g->allowed, .later = g->later, .model = g->model,
                       .goes_on = g->goes_on, .vocab = g->vocab, .reuse = g->reuse };
    if (!g->device) return false;
    if (g->later) g->device->ahead = false;
    struct load_params load = { .record.ahead = g->goes_on, .device = g->device, .n_slots = TEXTS + 1, .context = 256,
                                .reuse = g->reuse };
    CHECK_OK(gguf_open(&g->file, fixture(g->model ? g->model : "dflash/target.gguf"), &err), err);
    CHECK_OK(model_open(&m, g->file, &err), err);
    if (g->allowed) CHECK_OK(model_allow(m, g->allowed, &err), err);
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
    struct request_env env = { .vocab = g->vocab, .vocab_size = VOCAB, .context = 256, .has_drafter = g->speculator,
                               .mask = g->allowed };
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
    struct rig g = { 0 };
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

/* Few tokens, of which a guess holds nearly all, so that many are right, in branches too. */
static const int64_t few[] = { 3, 11, 24, 40, 41, 57, 66, 80, 95 };

struct history {                    /* of a request: what was guessed, and what of it was kept */
    int n, accepted, branches;
    int cancel_at;                  /* steps; 0: none */
    struct {
        int n_nodes, n_tokens, node[16], parent[16];
    } step[64];
};
static void note_step(void *user, const luce_step *s)
{
    struct history *h = user;
    CHECK(h->n < 64 && s->n_nodes <= 16, "%zu nodes", (size_t)s->n_nodes);
    if (h->n == 64 || s->n_nodes > 16) return;
    h->step[h->n].n_nodes = s->n_nodes;
    h->step[h->n].n_tokens = (int)s->n_tokens;
    for (int i = 0; i < s->n_nodes; i++) {
        h->step[h->n].node[i] = s->node[i];
        h->step[h->n].parent[i] = s->parent[i];
    }
    h->n++;
    h->accepted += (int)s->n_tokens - 1;
    for (int k = 0, at = 0, node; k + 1 < s->n_tokens; k++, at = node) {
        for (node = at + 1; node < s->n_nodes && (s->parent[node] != at || s->node[node] != s->tokens[k]); node++) continue;
        h->branches += node != at + 1;
    }
}
static bool cancel_in_time(void *user)
{
    const struct history *h = user;
    return h->cancel_at && h->n >= h->cancel_at;
}

enum { LONG = 16, RUNS = 2 };
struct told {
    struct history of[RUNS][TEXTS];
    int32_t text[RUNS][TEXTS][PROMPT_MOST + LONG];
    int n[RUNS][TEXTS];
};

/* Runs of all texts together: in the first one they are cancelled on their way, and the last finds what the caches have
 * of them. */
static void tell(struct rig *g, int draft, int runs, struct told *out)
{
    luce_error err = { 0 };
    *out = (struct told){ 0 };
    for (int run = RUNS - runs; run < RUNS; run++) {
        luce_request q[TEXTS];
        struct request r[TEXTS];
        make_requests(q, draft);
        for (int i = 0; i < TEXTS; i++) {
            q[i].max_tokens = LONG;
            q[i].on_step = note_step;
            q[i].cancelled = cancel_in_time;
            q[i].user = &out->of[run][i];
            out->of[run][i].cancel_at = run ? 0 : 2 + i;
            begin(g, &r[i], &q[i]);
        }
        while (g->scheduler.n_active) CHECK_OK(scheduler_step(&g->scheduler, &err), err);
        for (int i = 0; i < TEXTS; i++) {
            CHECK_OK(r[i].status, r[i].error);
            out->n[run][i] = r[i].n_ids;
            memcpy(out->text[run][i], r[i].ids, (size_t)r[i].n_ids * sizeof *r[i].ids);
            end_request(&r[i]);
        }
    }
}

static struct told plainly, ahead, later;

/* Guesses that are made behind the step before, from what the device keeps of it, are those that are made when the host
 * knows it, node by node; and the text is the plain one. */
TEST(gpu_guesses_made_ahead_are_those_made_later)
{
    static const struct { const char *file; bool chain; int most, draft; } ways[] = {
        { "dflash/v1_llama.gguf", false, 15, 15 }, { "dflash/v2_llama.gguf", false, 12, 12 },
        { "dflash/v2_llama.gguf", true, 7, 5 }, { "dflash/v1_llama.gguf", false, 15, 0 },
    };
    int accepted = 0, branches = 0;
    uint32_t allowed[(VOCAB + 31) / 32] = { 0 };
    struct rig g = { .allowed = allowed };
    for (size_t i = 0; i < COUNT(few); i++) allowed[few[i] / 32] |= UINT32_C(1) << few[i] % 32;
    make_prompts();
    if (!rig_open(&g, NULL)) SKIP("no GPU");
    tell(&g, -1, 1, &plainly);
    rig_close(&g);
    for (size_t w = 0; w < COUNT(ways); w++) {
        struct dflash_change c = { .said = few, .n_said = COUNT(few) };
        struct speculate_params p = { .path = dflash_changed(ways[w].file, &c), .most = ways[w].most, .chain = ways[w].chain };
        for (int k = 0; k < 2; k++) {
            g.later = k;
            if (!rig_open(&g, &p)) return;
            tell(&g, ways[w].draft, RUNS, k ? &later : &ahead);
            rig_close(&g);
        }
        for (int run = 0; run < RUNS; run++)
            for (int i = 0; i < TEXTS; i++) {
                struct history *a = &ahead.of[run][i], *b = &later.of[run][i];
                accepted += a->accepted;
                branches += a->branches;
                CHECK(!memcmp(ahead.text[run][i], plainly.text[RUNS - 1][i], (size_t)ahead.n[run][i] * sizeof(int32_t)),
                      "way %zu, run %d, text %d: another text", w, run, i);
                if (run == RUNS - 1) CHECK_EQ(ahead.n[run][i], plainly.n[run][i]);
                if (ways[w].draft) CHECK(!memcmp(a, b, sizeof *a), "way %zu, run %d, text %d: other guesses", w, run, i);
            }
    }
    CHECK(accepted > 9 && branches > 2, "%d of the guesses are right, %d in a branch", accepted, branches);
}

/* Two texts whose tokens the device chooses: once for the model's step and for the blocks behind it; but twice at first,
 * when there is no step before, and where guesses are made later. */
TEST(gpu_steps_of_texts_with_guesses_wait_once)
{
    for (int way = 0; way < 4; way++) {
        bool second = way & 1;
        char path[512];
        struct rig g = { .later = way & 2 };
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
            CHECK(step == 0 || waits == (g.later && guess ? 2 : 1), "dflash%d, step %d: %d waits", second + 1, step, waits);
        }
        for (int i = 0; i < 2; i++) end_request(&r[i]);
        rig_close(&g);
    }
}

/* ---- plain steps that are queued behind each other -------------------------------------------------- */
enum { PLAIN_MOST = 34, PLAIN_RUNS = 2 };
struct plain_text {
    int n, left;                    /* ids; tokens until it is cancelled, 0: never */
    luce_finish finish;
    int32_t ids[PROMPT_MOST + PLAIN_MOST];
};
struct plain_texts {
    struct plain_text of[PLAIN_RUNS][TEXTS];
    int steps, queued;              /* that gave tokens alone, and those of them with another one behind them */
};
static void count_token(void *user, const luce_token *t)
{
    (void)t;
    struct plain_text *x = user;
    if (x->left > 1) x->left--;
}
static bool has_enough(void *user)
{
    return ((struct plain_text *)user)->left == 1;
}

/* All texts together, the last one later than the others; and again, with what the caches have of them. */
static void write_plainly(struct rig *g, const luce_request *asked, int n, int cancel_at, struct plain_texts *out)
{
    luce_error err = { 0 };
    *out = (struct plain_texts){ 0 };
    for (int run = 0; run < PLAIN_RUNS; run++) {
        luce_request q[TEXTS];
        struct request r[TEXTS];
        int begun = 0;
        for (int step = 0; begun < n || g->scheduler.n_active; step++) {
            for (; begun < n && (begun < n - 1 || n == 1 || step >= 6 || !g->scheduler.n_active); begun++) {
                struct plain_text *x = &out->of[run][begun];
                q[begun] = asked[begun];
                q[begun].user = x;
                q[begun].on_token = count_token;
                q[begun].cancelled = has_enough;
                x->left = begun == 0 && cancel_at ? cancel_at + 1 : 0;
                begin(g, &r[begun], &q[begun]);
            }
            bool decodes = true;
            for (int i = 0; i < g->scheduler.n_active; i++) decodes &= g->scheduler.active[i]->state == REQUEST_DECODE;
            uint64_t waits = g->device->n_waits;
            CHECK_OK(scheduler_step(&g->scheduler, &err), err);
            if (!decodes || g->scheduler.n_active == 0) continue;
            const int more = (int)(g->device->n_waits - waits), due = 1 + (asked->sampling.presence_penalty != 0);
            if (step > 3) CHECK(more == due, "%d waits", more);
            out->steps++;
            out->queued += g->scheduler.ahead.n > 0;
        }
        for (int i = 0; i < n; i++) {
            struct plain_text *x = &out->of[run][i];
            CHECK_OK(r[i].status, r[i].error);
            x->n = r[i].n_ids;
            x->finish = r[i].finish;
            memcpy(x->ids, r[i].ids, (size_t)r[i].n_ids * sizeof *r[i].ids);
            end_request(&r[i]);
        }
    }
}

static void check_plain(const struct plain_texts *a, const struct plain_texts *b, int n, const char *what)
{
    for (int run = 0; run < PLAIN_RUNS; run++)
        for (int i = 0; i < n; i++) {
            const struct plain_text *x = &a->of[run][i], *y = &b->of[run][i];
            CHECK_EQ(x->n, y->n);
            CHECK_EQ(x->finish, y->finish);
            CHECK(!memcmp(x->ids, y->ids, (size_t)x->n * sizeof *x->ids), "%s, run %d, text %d: another text", what, run, i);
        }
}

/* Greedy and drawn texts, alone and together, that end by their length, an end token, a stop string, or are cancelled,
 * with another one that begins meanwhile: as where every step waits for the one before; over page boundaries, and with
 * layers whose state cannot be taken back. */
TEST(gpu_plain_steps_queued_behind_each_other_give_the_same_texts)
{
    static const char *const models[] = { "dflash/target.gguf", "oracle/qwen35.gguf" };
    static struct plain_texts one, two, ends_one, ends_two;
    struct toy *toy = toy_new("gpt2", "gpt-2");
    struct vocab *v;
    luce_error err = { 0 };
    CHECK_OK(vocab_open(&v, &toy->source, &err), err);
    make_prompts();
    for (size_t m = 0; m < COUNT(models); m++) {
        struct rig waits = { .model = models[m], .vocab = v, .reuse = LUCE_REUSE_FAST }, goes = waits;
        goes.goes_on = true;
        if (!rig_open(&waits, NULL) || !rig_open(&goes, NULL)) SKIP("no GPU");
        luce_request q[TEXTS];
        make_requests(q, 0);
        q[0].max_tokens = PLAIN_MOST;
        q[1].max_tokens = PLAIN_MOST - 1;
        q[2].sampling = (luce_sampling){ 0 };
        for (int n = 1; n <= TEXTS; n += 2) {
            write_plainly(&waits, q, n, 0, &one);
            write_plainly(&goes, q, n, 0, &two);
            check_plain(&one, &two, n, models[m]);
            CHECK_EQ(one.queued, 0);
            CHECK(two.queued > two.steps * 8 / 10, "%d of %d steps have one behind them", two.queued, two.steps);
        }
        /* The first is cancelled, the second stops at two of its tokens, the third at an end token. */
        const int32_t *said = one.of[0][1].ids + q[1].n_tokens + 9, end = one.of[0][2].ids[q[2].n_tokens + 5];
        char stop[3] = { (char)said[0], (char)said[1], 0 };
        q[1].stop = (const char *const[]){ stop };
        q[1].n_stop = 1;
        v->tokens[end].is_end = true;
        write_plainly(&waits, q, TEXTS, 13, &ends_one);
        write_plainly(&goes, q, TEXTS, 13, &ends_two);
        check_plain(&ends_one, &ends_two, TEXTS, "ends");
        CHECK_EQ(ends_two.of[0][2].finish, LUCE_FINISH_END);
        v->tokens[end].is_end = false;
        /* One that ends a token behind a page is settled while the step of the others is queued. */
        make_requests(q, 0);
        q[2].sampling = (luce_sampling){ 0 };
        for (int i = 0; i < TEXTS; i++)
            q[i].max_tokens = i == 1 ? 65 - (int)q[1].n_tokens : PLAIN_MOST;
        write_plainly(&waits, q, TEXTS, 0, &one);
        write_plainly(&goes, q, TEXTS, 0, &two);
        check_plain(&one, &two, TEXTS, "settled");
        /* A penalty needs logits: while that text runs nothing is queued behind a step. */
        q[2].sampling = (luce_sampling){ .presence_penalty = 0.3f };
        write_plainly(&waits, q + 2, 1, 0, &one);
        write_plainly(&goes, q + 2, 1, 0, &two);
        check_plain(&one, &two, 1, "penalty");
        CHECK_EQ(two.queued, 0);
        rig_close(&waits);
        rig_close(&goes);
    }
    vocab_close(v);
    toy_free(toy);
}
