/* tests/test_hybrid_text.c - families with recurrent layers through the engine: tokens with guesses, alone and in
 * company, are the tokens without. */
#include "engine/inside.h"
#include "test.h"

enum { TEXTS = 5, TOKENS = 48, PROMPT_MOST = 160 };

static const struct way {
    const char *drafter;
    bool itself, accepts;           /* the model is its own drafter; some of its guesses are right for certain */
    int most;
} plain_way = { "none", false, false, 0 }, ways[] = {
    { "ngram", false, false, 7 }, { "draft-model", true, true, 7 }, { "scripted", false, true, 15 },
    { "scripted", false, true, 31 }, { "mtp", false, false, 3 }, { "mtp", false, false, 15 },
};

static luce_model *open_model(const char *path, const struct way *way, int sequences)
{
    luce_model *m = NULL;
    luce_error err = { 0 };
    luce_model_params p = { .path = path, .device = "cpu", .threads = 2, .sequences = sequences, .context = 256,
                            .drafter = way->drafter, .draft_path = way->itself ? path : NULL, .draft_max = way->most,
                            .draft_block_size = way->most + (way->most > 0) };
    CHECK_OK(luce_model_open(&m, &p, &err), err);
    return m;
}

/* Prompts are ids, as the files have no vocabulary; some repeat themselves; some texts are drawn. */
static void make_requests(luce_request *q, int32_t ids[TEXTS][PROMPT_MOST], const luce_model *m)
{
    int vocab = luce_model_describe(m).vocabulary;
    for (int i = 0; i < TEXTS; i++) {
        int period = i % 2 ? 7 + i : PROMPT_MOST, n = PROMPT_MOST - 29 * i;
        for (int k = 0; k < n; k++)
            ids[i][k] = k < period ? (int32_t)(test_random() % (unsigned)vocab) : ids[i][k - period];
        q[i] = (luce_request){ .tokens = ids[i], .n_tokens = (size_t)n, .max_tokens = TOKENS, .ignore_end = true };
        if (i > 2) q[i].sampling = (luce_sampling){ .temperature = 0.8f, .has_seed = true, .seed = (uint64_t)i };
    }
}

static void generate(luce_model *m, const luce_request *q, bool together, luce_result *r)
{
    luce_error err = { 0 };
    if (together) CHECK_OK(luce_generate_batch(m, q, TEXTS, r, &err), err);
    for (int i = 0; i < TEXTS && !together; i++) CHECK_OK(luce_generate(m, &q[i], &r[i], &err), err);
}

static void check_way(const char *path, const struct way *way, luce_request *q, const luce_result *plain)
{
    size_t accepted = 0;
    luce_model *m = open_model(path, way, TEXTS);
    if (!m) return;
    for (int i = 0; i < TEXTS; i++) {
        q[i].script = plain[i].tokens;
        q[i].n_script = plain[i].n_tokens;
        q[i].script_right = 2.5;
        q[i].draft = way->most;
    }
    for (int together = 0; together < 2; together++) {
        luce_result got[TEXTS];
        generate(m, q, together, got);
        for (int i = 0; i < TEXTS; i++) {
            CHECK_EQ(got[i].n_tokens, plain[i].n_tokens);
            CHECK(!memcmp(got[i].tokens, plain[i].tokens, TOKENS * sizeof *got[i].tokens), "%s, %s, text %d: other tokens",
                  path, way->drafter, i);
            accepted += got[i].speculation.n_accepted;
            luce_result_drop(&got[i]);
        }
    }
    CHECK(accepted > 0 || !way->accepts, "%s: nothing was accepted", way->drafter);
    luce_model_close(m);
}

TEST(hybrid_tokens_with_guesses_are_those_without)
{
    static const char *const files[] = { "qwen35", "qwen35moe", "qwen3next", "qwen35_mtp" };
    static int32_t ids[TEXTS][PROMPT_MOST];
    for (size_t f = 0; f < COUNT(files); f++) {
        char path[512];
        luce_request q[TEXTS];
        luce_result plain[TEXTS];
        snprintf(path, sizeof path, "%s/tests/fixtures/oracle/%s.gguf", LUCE_SOURCE_DIR, files[f]);
        luce_model *m = open_model(path, &plain_way, 1);
        if (!m) return;
        make_requests(q, ids, m);
        generate(m, q, false, plain);
        luce_model_close(m);
        for (size_t w = 0; w < COUNT(ways); w++) {
            bool has = strcmp(ways[w].drafter, "mtp") != 0 || !strcmp(files[f], "qwen35_mtp");
            if (has) check_way(path, &ways[w], q, plain);
        }
        for (int i = 0; i < TEXTS; i++) luce_result_drop(&plain[i]);
    }
}
