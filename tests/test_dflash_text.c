/* tests/test_dflash_text.c - texts with DFlash drafters are the texts without, token by token; drafters that
 * were trained guess right now and then; sessions, log probabilities, failures. The target has no vocabulary:
 * requests are ids. */
#include <math.h>

#include "engine/inside.h"
#include "test.h"

enum { PROMPTS = 20, BATCH = 5, PROMPT_MOST = 90, TOKENS = 28, VOCAB = 96 };

static const char *const drafters[] = { "dflash/v1_llama.gguf", "dflash/v2_lucebox.gguf", "dflash/v1", "dflash/v2" };

static int32_t prompts[PROMPTS][PROMPT_MOST];
static int lengths[PROMPTS];

/* From one token to more than a page; each third is drawn, with penalties now and then. */
static void make_requests(luce_request *q, int draft)
{
    for (int i = 0; i < PROMPTS; i++) {
        q[i] = (luce_request){ .tokens = prompts[i], .n_tokens = (size_t)lengths[i], .max_tokens = TOKENS + i % 7,
                               .draft = draft };
        if (i % 3 == 1)
            q[i].sampling = (luce_sampling){ .temperature = 0.3f * (float)(1 + i % 4), .has_seed = true, .seed = (uint64_t)i,
                                             .top_k = i % 2 ? 20 : 0, .presence_penalty = i % 4 ? 0 : 0.4f };
    }
}

static void make_prompts(void)
{
    for (int i = 0; i < PROMPTS; i++) {
        lengths[i] = i ? 2 + (int)(test_random() % (PROMPT_MOST - 2)) : 1;
        for (int k = 0; k < lengths[i]; k++) prompts[i][k] = (int32_t)(test_random() % VOCAB);
    }
}

static luce_model *open_model(const char *drafter, int sequences, int most, int block)
{
    char path[512];
    luce_model *m = NULL;
    luce_error err = { 0 };
    snprintf(path, sizeof path, "%s", fixture("dflash/target.gguf"));
    luce_model_params p = { .path = path, .device = "cpu", .threads = 2, .sequences = sequences, .context = 256,
                            .draft_path = drafter ? fixture(drafter) : NULL, .draft_max = most,
                            .draft_block_size = block };
    CHECK_OK(luce_model_open(&m, &p, &err), err);
    return m;
}

static luce_result generate(luce_model *m, const luce_request *q)
{
    luce_result r;
    luce_error err = { 0 };
    CHECK_OK(luce_generate(m, q, &r, &err), err);
    return r;
}

static void check_same(const luce_result *plain, const luce_result *got, const char *what, int i)
{
    bool same = plain->n_tokens == got->n_tokens &&
                !memcmp(plain->tokens, got->tokens, plain->n_tokens * sizeof *plain->tokens);
    CHECK(same, "%s, text %d: another text", what, i);
    CHECK_EQ(plain->finish, got->finish);
    CHECK_EQ(got->speculation.n_steps + got->speculation.n_accepted, got->n_tokens - 1);
}

static void plain_texts(luce_result *plain)
{
    luce_request q[PROMPTS];
    luce_model *m = open_model(NULL, 1, 0, 0);
    make_requests(q, 0);
    for (int i = 0; m && i < PROMPTS; i++) plain[i] = generate(m, &q[i]);
    luce_model_close(m);
}

static void drop_texts(luce_result *r, int n)
{
    for (int i = 0; i < n; i++) luce_result_drop(&r[i]);
}

/* Alone, then in batches. */
static void check_way(luce_model *m, int draft, const luce_result *plain, const char *what)
{
    luce_request q[PROMPTS];
    luce_result got[BATCH];
    luce_error err = { 0 };
    make_requests(q, draft);
    for (int i = 0; i < PROMPTS; i++) {
        luce_result r = generate(m, &q[i]);
        check_same(&plain[i], &r, what, i);
        luce_result_drop(&r);
    }
    for (int from = 0; from < PROMPTS; from += BATCH) {
        CHECK_OK(luce_generate_batch(m, q + from, BATCH, got, &err), err);
        for (int i = 0; i < BATCH; i++) check_same(&plain[from + i], &got[i], what, from + i);
        drop_texts(got, BATCH);
    }
}

TEST(dflash_keeps_the_text_of_twenty_prompts_in_every_way)
{
    /* Nodes and block of a guess: chains, trees, blocks beyond the trained one; 0: the policy decides. */
    static const struct { int most, block, draft; } ways[] = {
        { 1, 2, 1 }, { 3, 4, 3 }, { 7, 8, 7 }, { 15, 8, 15 }, { 15, 16, 15 }, { 31, 8, 31 }, { 31, 32, 31 }, { 0, 0, 0 },
    };
    luce_result plain[PROMPTS] = { 0 };
    make_prompts();
    plain_texts(plain);
    for (size_t d = 0; d < COUNT(drafters); d++)
        for (size_t w = 0; w < COUNT(ways); w++) {
            char what[100];
            snprintf(what, sizeof what, "%s, max %d, block %d, draft %d", drafters[d], ways[w].most, ways[w].block,
                     ways[w].draft);
            if (d > 1 && w % 3) continue;       /* the checkpoints are the same networks */
            luce_model *m = open_model(drafters[d], BATCH, ways[w].most, ways[w].block);
            if (m) check_way(m, ways[w].draft, plain, what);
            luce_model_close(m);
        }
    drop_texts(plain, PROMPTS);
}

/* The texts that drafter d was trained on: those prompts, 8 tokens each. */
static void trained_prompts(size_t d)
{
    struct gguf *g = NULL;
    luce_error err = { 0 };
    CHECK_OK(gguf_open(&g, fixture("dflash/answers.gguf"), &err), err);
    const struct gguf_tensor *t = g ? gguf_find(g, d % 2 ? "v2.prompts" : "v1.prompts") : NULL;
    CHECK(t && t->dim[0] == 8 && t->dim[1] >= PROMPTS);
    for (int i = 0; t && i < PROMPTS; i++) {
        lengths[i] = 8;
        memcpy(prompts[i], t->data + 32 * i, 32);
    }
    gguf_close(g);
}

/* Where they were trained, drafters are right at a quarter of the guesses; trees begin with the
 * chain, so they lose nothing. */
TEST(dflash_drafters_that_were_trained_are_accepted)
{
    for (size_t d = 0; d < 2; d++) {
        luce_model *m = open_model(drafters[d], 1, 31, 8);
        luce_request q[PROMPTS];
        luce_speculation chain = { 0 }, tree = { 0 };
        trained_prompts(d);
        make_requests(q, 7);
        for (int i = 0; m && i < PROMPTS; i++) {
            q[i].sampling = (luce_sampling){ 0 };
            luce_result a = generate(m, &q[i]);
            q[i].draft = 31;
            luce_result b = generate(m, &q[i]);
            check_same(&a, &b, drafters[d], i);
            chain.n_steps += a.speculation.n_steps, chain.n_accepted += a.speculation.n_accepted;
            chain.n_drafted += a.speculation.n_drafted;
            tree.n_steps += b.speculation.n_steps, tree.n_accepted += b.speculation.n_accepted;
            luce_result_drop(&a);
            luce_result_drop(&b);
        }
        CHECK(4 * chain.n_accepted > chain.n_drafted, "%s: %zu of %zu accepted", drafters[d], chain.n_accepted,
              chain.n_drafted);
        CHECK(tree.n_steps <= chain.n_steps, "%s: %zu steps with trees, %zu with chains", drafters[d], tree.n_steps,
              chain.n_steps);
        CHECK_STR(luce_model_describe(m).drafter, d ? "dflash2" : "dflash");
        luce_model_close(m);
    }
}

enum { TOP = 5 };
struct noted {
    int n;
    int32_t id[TOKENS], top[TOKENS][TOP];
    float logprob[TOKENS], top_logprob[TOKENS][TOP];
};

static void note(void *user, const luce_token *t)
{
    struct noted *x = user;
    if (x->n == TOKENS) return;
    x->id[x->n] = t->id;
    x->logprob[x->n] = t->logprob;
    for (int i = 0; i < TOP && i < t->n_top; i++) {
        x->top[x->n][i] = t->top_id[i];
        x->top_logprob[x->n][i] = t->top_logprob[i];
    }
    x->n++;
}

TEST(dflash_gives_the_log_probabilities_of_plain_decoding)
{
    luce_model *m = open_model(drafters[0], 1, 31, 8);
    luce_request q[PROMPTS];
    size_t accepted = 0;
    trained_prompts(0);
    make_requests(q, -1);
    for (int i = 0; m && i < 8; i++) {
        struct noted plain = { 0 }, got = { 0 };
        q[i].logprobs = true;
        q[i].top_logprobs = TOP;
        q[i].on_token = note;
        q[i].max_tokens = TOKENS;
        q[i].user = &plain;
        luce_result a = generate(m, &q[i]);
        q[i].draft = i % 2 ? 7 : 31;
        q[i].user = &got;
        luce_result b = generate(m, &q[i]);
        check_same(&a, &b, "logprobs", i);
        CHECK_EQ(plain.n, TOKENS);
        CHECK(!memcmp(&plain, &got, sizeof got), "text %d: other log probabilities", i);
        accepted += b.speculation.n_accepted;
        luce_result_drop(&a);
        luce_result_drop(&b);
    }
    CHECK(accepted > 0);
    luce_model_close(m);
}

/* P12: turns of a session reuse what they would without, and the drafter goes on guessing. */
TEST(dflash_sessions_reuse_and_guess_in_every_turn)
{
    luce_error err = { 0 };
    luce_model *m = open_model(drafters[1], 2, 15, 8);
    luce_session *s[2] = { NULL, NULL };
    size_t accepted[4] = { 0 };
    trained_prompts(1);
    for (int i = 0; m && i < 2; i++) CHECK_OK(luce_session_open(&s[i], m, &err), err);
    for (int turn = 0; m && turn < 4; turn++) {
        luce_result r[2];
        size_t n;
        for (int i = 0; i < 2; i++) {
            luce_request q = { .tokens = prompts[turn], .n_tokens = (size_t)lengths[turn], .max_tokens = 30,
                               .fresh = true, .draft = i ? -1 : 15 };
            CHECK_OK(luce_session_generate(s[i], &q, &r[i], &err), err);
            luce_session_tokens(s[i], &n);
            if (turn == 2) luce_session_rewind(s[i], n - 9);
        }
        CHECK(r[0].n_tokens == r[1].n_tokens && !memcmp(r[0].tokens, r[1].tokens, r[0].n_tokens * sizeof *r[0].tokens));
        CHECK_EQ(r[0].n_reused, r[1].n_reused);
        CHECK(turn == 0 || r[0].n_reused > 0);
        accepted[turn] = r[0].speculation.n_accepted;
        drop_texts(r, 2);
    }
    CHECK(accepted[0] + accepted[1] + accepted[2] + accepted[3] > 0);
    for (int i = 0; i < 2; i++) luce_session_close(s[i]);
    luce_model_close(m);
}

static bool stop_later(void *user)
{
    int *left = user;
    return --*left < 0;
}

/* P06, and texts that end inside a block. */
TEST(dflash_survives_texts_that_leave_and_texts_that_end_inside_a_block)
{
    luce_result plain[PROMPTS] = { 0 }, got[BATCH];
    luce_error err = { 0 };
    make_prompts();
    plain_texts(plain);
    luce_model *m = open_model(drafters[0], 3, 15, 8);
    for (int round = 0; m && round < 12; round++) {
        luce_request q[PROMPTS];
        int left[BATCH];
        make_requests(q, 15);
        for (int i = 0; i < BATCH; i++) {
            left[i] = (int)(test_random() % 30);
            q[i].user = &left[i];
            if (i % 2) q[i].cancelled = stop_later;
            else q[i].max_tokens = 1 + round;
        }
        CHECK_OK(luce_generate_batch(m, q, BATCH, got, &err), err);
        for (int i = 0; i < BATCH; i++) {
            size_t n = got[i].n_tokens;
            CHECK(n <= plain[i].n_tokens && (!n || !memcmp(got[i].tokens, plain[i].tokens, n * sizeof *got[i].tokens)),
                  "text %d: another text", i);
            if (i % 2 == 0) CHECK_EQ(got[i].n_tokens, 1 + round);
        }
        drop_texts(got, BATCH);
    }
    luce_model_close(m);
    drop_texts(plain, PROMPTS);
}

/* P16 with a network that was trained: the end token and a stop text fall on each place of a block, as the prompt
 * goes on with more and more of the answer. */
TEST(dflash_ends_inside_a_block_as_plain_decoding_does)
{
    enum { PLACES = 8, STOPS = 4, PROMPT = 16 };
    static const char prompt[] = "Say hello.";
    const char *path = test_model("smollm2-135m-instruct-q4_1.gguf");
    char model[512], drafter[512];
    luce_model *m = NULL;
    luce_error err = { 0 };
    int32_t ids[PROMPT + PLACES], *words = NULL;
    size_t n = 0, accepted = 0;
    if (!path) SKIP("models/smollm2-135m-instruct-q4_1.gguf is not there: make models fetches it");
    snprintf(model, sizeof model, "%s", path);
    snprintf(drafter, sizeof drafter, "%s/drafters/smollm2-135m-dflash.gguf", LUCE_SOURCE_DIR);
    luce_model_params p = { .path = model, .device = "cpu", .threads = 1, .context = 128, .draft_path = drafter };
    CHECK_OK(luce_model_open(&m, &p, &err), err);
    if (!m) return;
    CHECK_OK(luce_tokenize(m, &(luce_text){ .at = prompt, .bytes = strlen(prompt), .flags = LUCE_BOS }, &words, &n, &err),
             err);
    CHECK(n > 0 && n <= PROMPT);
    luce_request q = { .tokens = ids, .max_tokens = 40 };
    memcpy(ids, words, n * sizeof *ids);
    luce_free(words);
    for (int at = 0; at < PLACES + STOPS; at++) {
        q.n_tokens = n + (size_t)at % PLACES;
        luce_request asked = q;
        asked.draft = -1;
        luce_result want = generate(m, &asked);
        size_t from_end = 1 + (size_t)(at % STOPS);
        char stop[2] = { want.text_bytes >= from_end ? want.text[want.text_bytes - from_end] : 'x', 0 };
        const char *stops[] = { stop };
        if (at + 1 < PLACES && want.n_tokens) ids[n + (size_t)at] = want.tokens[0];
        if (at >= PLACES) {
            asked.stop = stops, asked.n_stop = 1;
            luce_result_drop(&want);
            want = generate(m, &asked);
        }
        asked.draft = 7;
        luce_result got = generate(m, &asked);
        check_same(&want, &got, at < PLACES ? "end token" : "stop text", at);
        CHECK_EQ(got.finish, at < PLACES ? LUCE_FINISH_END : LUCE_FINISH_STOP);
        CHECK(want.text_bytes == got.text_bytes && !memcmp(want.text, got.text, got.text_bytes));
        accepted += got.speculation.n_accepted;
        luce_result_drop(&want);
        luce_result_drop(&got);
    }
    CHECK(accepted > PLACES, "%zu guesses were right", accepted);
    luce_model_close(m);
}

TEST(dflash_survives_each_failing_allocation)
{
    int32_t ids[] = { 5, 6, 7, 8 };
    for (size_t d = 0; d < COUNT(drafters); d += 3) {
        size_t live = mem_live();
        for (long n = 0, done = 0; !done; n += n < 200 ? 1 : 7) {
            luce_model *m = NULL;
            luce_result r = { 0 };
            luce_error err = { 0 };
            char path[512];
            snprintf(path, sizeof path, "%s", fixture("dflash/target.gguf"));
            luce_model_params p = { .path = path, .device = "cpu", .threads = 1, .context = 64,
                                    .draft_path = fixture(drafters[d]) };
            luce_request q = { .tokens = ids, .n_tokens = 4, .max_tokens = 6, .draft = 7 };
            mem_fail_after(n);
            luce_status st = luce_model_open(&m, &p, &err);
            if (!st) st = luce_generate(m, &q, &r, &err);
            mem_fail_never();
            CHECK(st == LUCE_OK || *err.text, "allocation %ld says nothing", n);
            luce_result_drop(&r);
            luce_model_close(m);
            if (mem_live() != live) CHECK(false, "allocation %ld leaks %zu blocks", n, mem_live() - live);
            done = st == LUCE_OK || mem_live() != live || n > 20000;
        }
    }
}
