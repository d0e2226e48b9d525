/* tests/test_real_text.c - the text of the two real models is the same for any threads, chunk and company,
 * greedy and drawn, and every time: the promise of luce.h on weights that were not made for a test. */
#include "test.h"

enum { TOKENS = 8,
       TEXTS = 3 };
static const char words[] =
    "The history of the lighthouse begins long before electric lamps were known. Sailors depended on fires that "
    "were lit on hills and on towers, and keepers had to carry wood and oil up the stairs every night. In the "
    "eighteenth century engineers began to build towers on rocks far from the shore, where the waves broke";

static void ask_all(const char *path, int sequences, int chunk, int threads, luce_result *results)
{
    luce_model *m = NULL;
    luce_error err = { 0 };
    luce_request q[TEXTS];
    for (int i = 0; i < TEXTS; i++) /* 1, 2 or 3 thirds of the words */
        q[i] = (luce_request){ .text = { .at = words, .bytes = (sizeof words - 1) / TEXTS * (size_t)(i + 1), .flags = LUCE_BOS }, .max_tokens = TOKENS,
            .ignore_end = true };
    q[1].sampling = (luce_sampling){ .temperature = 0.9f, .top_k = 50, .has_seed = true, .seed = 5 };
    memset(results, 0, TEXTS * sizeof *results);
    CHECK_OK(luce_model_open(&m, &(luce_model_params){ .path = path, .device = "cpu", .threads = threads, .context = 256, .sequences = sequences, .chunk
        = chunk }, &err), err);
    if (m) CHECK_OK(luce_generate_batch(m, q, TEXTS, results, &err), err);
    luce_model_close(m);
}

static void check_model(const char *name)
{
    static const struct {
        int sequences, chunk, threads;
    } ways[] = { { 1, 0, 1 }, { 3, 7, 2 }, { 2, 64, 3 }, { 1, 1, 2 } };
    const char *found = test_model(name);
    luce_result first[TEXTS], got[TEXTS];
    if (!found) SKIP("the model is not here; make models fetches it");
    char path[512];
    snprintf(path, sizeof path, "%s", found);
    ask_all(path, 1, 512, 2, first);
    for (size_t w = 0; w < COUNT(ways); w++) {
        ask_all(path, ways[w].sequences, ways[w].chunk, ways[w].threads, got);
        for (int i = 0; i < TEXTS; i++) {
            CHECK(first[i].n_tokens == TOKENS && got[i].n_tokens == TOKENS &&
                      !memcmp(first[i].tokens, got[i].tokens, TOKENS * sizeof *got[i].tokens),
                  "way %zu: text %d", w, i);
            luce_result_drop(&got[i]);
        }
    }
    for (int i = 0; i < TEXTS; i++) luce_result_drop(&first[i]);
}

TEST(smollm2_text_does_not_depend_on_company_chunks_or_threads)
{
    check_model("smollm2-135m-instruct-q4_1.gguf");
}

TEST(gemma3_270m_text_does_not_depend_on_company_chunks_or_threads)
{
    check_model("gemma-3-270m-q4_k_m.gguf");
}
