/* tests/test_share.c - prompts that begin alike are read once, and nobody's text changes by it. */
#include "engine/inside.h"
#include "test.h"
#include "tiny_model.h"

enum { REQUESTS = 6, TOKENS = 300 };

static luce_model *open_tiny(int sequences, int chunk)
{
    luce_model *m = NULL;
    luce_error err = { 0 };
    CHECK_OK(luce_model_open(&m, &(luce_model_params){ .path = tiny_model(), .device = "cpu", .sequences = sequences,
                                                        .chunk = chunk }, &err), err);
    return m;
}

struct party {                      /* requests of random tokens, the first `common` of them alike */
    int32_t tokens[REQUESTS][TOKENS];
    luce_request q[REQUESTS];
    int steps;                      /* after which the first one is cancelled; 0: never */
};

static bool gone(void *user)
{
    struct party *p = user;
    return p->steps > 0 && --p->steps == 0;
}

static void make(struct party *p, const luce_model *m, int common)
{
    int vocab = luce_model_describe(m).vocabulary;
    for (int i = 0; i < REQUESTS; i++) {
        for (int k = 0; k < TOKENS; k++)
            p->tokens[i][k] = i > 0 && k < common ? p->tokens[0][k] : (int32_t)(test_random() % (unsigned)vocab);
        if (common < TOKENS) p->tokens[i][common] = i;
        p->q[i] = (luce_request){ .tokens = p->tokens[i], .n_tokens = TOKENS, .max_tokens = 3 + 5 * i,
                                  .ignore_end = true };
        if (i % 2) p->q[i].sampling = (luce_sampling){ .temperature = 1, .has_seed = true, .seed = (uint64_t)i };
    }
}

static bool same(const luce_result *a, const luce_result *b)
{
    return a->n_tokens == b->n_tokens && !memcmp(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens);
}

TEST(share_alike_prompts_are_read_once_and_give_the_same_texts)
{
    static const int commons[] = { 0, 63, 65, 130, 256, TOKENS }, chunks[] = { 64, 128, 512 };
    for (size_t at = 0; at < COUNT(commons) * COUNT(chunks); at++) {
        int common = commons[at % COUNT(commons)];
        struct party p = { .steps = 0 };
        luce_result alone, batch[REQUESTS];
        luce_error err = { 0 };
        luce_model *one = open_tiny(1, 0), *m = open_tiny(REQUESTS, chunks[at / COUNT(commons)]);
        if (!one || !m) return;
        make(&p, one, common);
        CHECK_OK(luce_generate_batch(m, p.q, REQUESTS, batch, &err), err);
        uint64_t all = 0;
        int whole = (common < TOKENS ? common : TOKENS - 1) / PAGE * PAGE;
        for (int i = 0; i < REQUESTS; i++) {
            CHECK_OK(luce_generate(one, &p.q[i], &alone, &err), err);
            CHECK(same(&alone, &batch[i]), "common %d: request %d", common, i);
            CHECK_EQ((int)batch[i].n_reused, i ? whole : 0);
            all += batch[i].n_prompt;
            luce_result_drop(&alone);
            luce_result_drop(&batch[i]);
        }
        CHECK_EQ((long long)m->scheduler.prompt_rows, (long long)all - (REQUESTS - 1) * (long long)whole);
        luce_model_close(one);
        luce_model_close(m);
    }
}

TEST(share_one_that_leaves_while_others_wait_for_its_prompt)
{
    for (int steps = 1; steps < 7; steps++) {
        struct party p;
        luce_result alone, batch[REQUESTS];
        luce_error err = { 0 };
        luce_model *one = open_tiny(1, 0), *m = open_tiny(REQUESTS, 64);
        if (!one || !m) return;
        make(&p, one, TOKENS);
        p.steps = steps;
        p.q[0].cancelled = gone;
        p.q[0].user = &p;
        CHECK_OK(luce_generate_batch(m, p.q, REQUESTS, batch, &err), err);
        for (int i = 1; i < REQUESTS; i++) {
            CHECK_OK(luce_generate(one, &p.q[i], &alone, &err), err);
            CHECK(same(&alone, &batch[i]), "cancelled in step %d: request %d", steps, i);
            luce_result_drop(&alone);
        }
        for (int i = 0; i < REQUESTS; i++) luce_result_drop(&batch[i]);
        struct cache *c = runner_cache(m->runner);
        CHECK_EQ(cache_free_pages(c, 0), cache_pages(c, 0));
        luce_model_close(one);
        luce_model_close(m);
    }
}

/* The fresh one runs all the while; the one that comes when its neighbour has ended finds nothing of it. */
TEST(share_one_that_wants_no_cache_is_not_shared_while_it_runs)
{
    struct party p = { .steps = 0 };
    luce_result got[4];
    luce_error err = { 0 };
    luce_model *m = open_tiny(2, 64);
    if (!m) return;
    make(&p, m, TOKENS);
    memcpy(p.tokens[1], p.tokens[2], sizeof p.tokens[1]);
    p.tokens[1][0] = p.tokens[0][0] ? 0 : 1;
    static const struct { bool fresh; int max_tokens, reused; } asks[] = {
        { true, 100, 0 }, { false, 2, 0 }, { false, 2, 0 }, { true, 2, 0 } };
    for (int i = 0; i < 4; i++) {
        p.q[i].fresh = asks[i].fresh;
        p.q[i].max_tokens = asks[i].max_tokens;
        p.q[i].sampling = (luce_sampling){ 0 };
    }
    CHECK_OK(luce_generate_batch(m, p.q, 4, got, &err), err);
    for (int i = 0; i < 4; i++) {
        CHECK(!got[i].status, "%s", got[i].error.text);
        CHECK_EQ((int)got[i].n_reused, asks[i].reused);
        CHECK(i < 2 || !memcmp(got[i].tokens, got[0].tokens, 2 * sizeof *got[i].tokens), "request %d", i);
    }
    for (int i = 0; i < 4; i++) luce_result_drop(&got[i]);
    luce_model_close(m);
}
