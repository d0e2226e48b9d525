/* tests/test_speculation_long.c - long texts with guesses: each length of guesses, each temperature. */
#include "engine/inside.h"
#include "test.h"
#include "tiny_model.h"

enum { TOKENS = 500, CONTEXT = 640 };

static luce_model *open_model(const char *path, const char *drafter, int block, bool chain)
{
    luce_model *m = NULL;
    luce_error err = { 0 };
    luce_model_params p = { .path = path, .device = "cpu", .threads = 2, .context = CONTEXT, .drafter = drafter,
                            .draft_path = !strcmp(drafter, "draft-model") ? path : NULL, .draft_block_size = block,
                            .draft_chain = chain };
    CHECK_OK(luce_model_open(&m, &p, &err), err);
    return m;
}

static luce_result generate(luce_model *m, const luce_sampling *sampling, int draft, const luce_result *plain)
{
    static const char prompt[] = "the cat and the dog and the cat and the dog";
    luce_result r;
    luce_error err = { 0 };
    luce_request q = { .text = { .at = prompt, .bytes = strlen(prompt) }, .sampling = *sampling, .max_tokens = TOKENS,
                       .ignore_end = true, .draft = draft };
    if (plain) {
        q.script = plain->tokens;
        q.n_script = plain->n_tokens;
        q.script_right = draft > 0 ? draft / 2 : 2;
    }
    CHECK_OK(luce_generate(m, &q, &r, &err), err);
    return r;
}

static void check_same(const luce_result *plain, const luce_result *r, const char *drafter, int draft)
{
    size_t at = 0;
    while (at < plain->n_tokens && at < r->n_tokens && plain->tokens[at] == r->tokens[at]) at++;
    CHECK(at == TOKENS && plain->n_tokens == r->n_tokens, "%s, guesses of %d: token %zu of %zu (%zu) differs", drafter,
          draft, at, plain->n_tokens, r->n_tokens);
}

/* P01: greedy texts of 500 tokens, chains and trees. */
TEST(speculation_keeps_long_greedy_texts_at_each_draft_length)
{
    static const int lengths[] = { 0, 1, 2, 3, 7, 15, 31 };
    static const struct { const char *drafter; int block; bool chain; } ways[] = {
        { "ngram", 0, false }, { "ngram", 4, false }, { "ngram", 0, true }, { "draft-model", 0, false },
        { "scripted", 32, false },
    };
    static const luce_sampling greedy = { .temperature = 0 };
    const char *path = tiny_model_with("th", CONTEXT);
    luce_result plain = { 0 };
    if (!path) return;
    for (size_t w = 0; w < COUNT(ways); w++) {
        luce_model *m = open_model(path, ways[w].drafter, ways[w].block, ways[w].chain);
        if (m && !w) plain = generate(m, &greedy, -1, NULL);
        for (size_t i = 0; m && i < COUNT(lengths); i++) {
            luce_result r = generate(m, &greedy, lengths[i], &plain);
            check_same(&plain, &r, ways[w].drafter, lengths[i]);
            luce_result_drop(&r);
        }
        luce_model_close(m);
    }
    luce_result_drop(&plain);
}

/* P02: guesses that are right are kept at every temperature, and the text is that of the seed. */
TEST(speculation_keeps_right_guesses_at_each_temperature)
{
    static const float temperatures[] = { 0.3f, 0.7f, 1.0f, 1.5f };
    const char *path = tiny_model_with("th", CONTEXT);
    luce_model *m = path ? open_model(path, "scripted", 16, false) : NULL;
    for (size_t i = 0; m && i < COUNT(temperatures); i++) {
        luce_sampling s = { .temperature = temperatures[i], .has_seed = true, .seed = test_random() };
        luce_result plain = generate(m, &s, -1, NULL), r = generate(m, &s, 8, &plain);
        check_same(&plain, &r, "scripted", 8);
        CHECK_EQ(plain.speculation.n_accepted, 0);
        CHECK(r.speculation.n_accepted >= TOKENS / 2, "%zu guesses kept at temperature %g", r.speculation.n_accepted,
              (double)temperatures[i]);
        luce_result_drop(&plain);
        luce_result_drop(&r);
    }
    luce_model_close(m);
}
