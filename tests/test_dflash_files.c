/* tests/test_dflash_files.c - DFlash drafters with a vocabulary of their own; files that are for another model, or
 * damaged. */
#include <math.h>

#include "base/file.h"
#include "dflash_rig.h"
#include "tiny_model.h"

static void refused(const char *what, const char *target, const char *drafter, const char *path, luce_status status,
                    const char *says)
{
    luce_error err = { 0 };
    luce_model *m = NULL;
    size_t live = mem_live();
    luce_model_params p = { .path = target, .device = "cpu", .threads = 1, .drafter = drafter, .draft_path = path };
    luce_status st = luce_model_open(&m, &p, &err);
    CHECK(st == status, "%s: %d (%s), not %d", what, (int)st, err.text, (int)status);
    CHECK(strstr(err.text, says), "%s: \"%s\" lacks \"%s\"", what, err.text, says);
    CHECK_EQ(m, NULL);
    CHECK_EQ(mem_live(), live);
    luce_model_close(m);
}

/* P03 */
TEST(dflash_refuses_drafters_that_do_not_fit_and_says_why)
{
    static const int64_t few[] = { 3, 96, 5 }, twice[] = { 3, 7, 3 };
    static const struct { const char *file; struct dflash_change c; luce_status status; const char *says; } bad[] = {
        { "dflash/v1_llama.gguf", { .said = few, .n_said = 3 }, LUCE_E_FORMAT, "element 1 of 'd2t' names token 96" },
        { "dflash/v1_llama.gguf", { .said = twice, .n_said = 3 }, LUCE_E_FORMAT, "element 2 of 'd2t' names token 3" },
        { "dflash/v1_llama.gguf", { .said = few, .n_said = 1, .no_head = true }, LUCE_E_FORMAT, "no 'output.weight'" },
        { "dflash/v2_llama.gguf", { .said = few, .n_said = 1, .no_head = true }, LUCE_E_FORMAT, "no 'output.weight'" },
        { "dflash/v1_llama.gguf", { .key = "dflash.embedding_length", .value = 64 }, LUCE_E_ARG,
          "is for another model: rows of 64 there, 32 in the model" },
        { "dflash/v1_llama.gguf", { .key = "dflash.target_layers", .value = 4, .array = true }, LUCE_E_ARG,
          "is for another model: it reads layer 3, the model has 3" },
        { "dflash/v1_lucebox.gguf", { .key = "qwen35-dflash-draft.dflash.target_layer_ids", .value = 3, .array = true },
          LUCE_E_ARG, "is for another model: it reads layer 3, the model has 3" },
        { "dflash/v1_llama.gguf", { .key = "dflash.target_layers", .value = 0, .array = true }, LUCE_E_FORMAT,
          "is 0; it counts from 1" },
        { "dflash/v1_lucebox.gguf", { .key = "qwen35-dflash-draft.vocab_size", .value = 97 }, LUCE_E_ARG,
          "is for another model: the vocabulary has 97 there, 96 in the model" },
        { "dflash/v1_llama.gguf", { .key = "tokenizer.ggml.mask_token_id", .value = 96 }, LUCE_E_ARG,
          "its mask token is 96, the vocabulary of the model has 96" },
        { "dflash/v1_llama.gguf", { .drop = "tokenizer.ggml.mask_token_id" }, LUCE_E_FORMAT, "dflash.mask_token_id" },
        { "dflash/v1_llama.gguf", { .drop = "dflash.target_layers" }, LUCE_E_FORMAT, "no complete drafter" },
        { "dflash/v1_llama.gguf", { .drop = "blk.1.ffn_up.weight" }, LUCE_E_FORMAT,
          "'blk.1.ffn_up.weight' [32, 48] is missing" },
        { "dflash/v2_llama.gguf", { .drop = "selector_predecessor.weight" }, LUCE_E_FORMAT, "is missing" },
        { "dflash/v1_llama.gguf", { .key = "dflash.feed_forward_length", .value = 64 }, LUCE_E_FORMAT,
          "expected [32, 64] by the keys" },
        { "dflash/v1_llama.gguf", { .extra = "markov_w1.weight" }, LUCE_E_UNSUPPORTED,
          "'markov_w1.weight' belongs to a kind of drafter" },
        { "dflash/v1_llama.gguf", { .key = "dflash.attention.head_count", .value = 3 }, LUCE_E_FORMAT, "3 heads over 2" },
        { "dflash/v1_llama.gguf", { .key = "dflash.block_size", .value = 65 }, LUCE_E_FORMAT, "takes 2 to 64" },
    };
    char target[512];
    snprintf(target, sizeof target, "%s", fixture(target_file));
    for (size_t i = 0; i < COUNT(bad); i++)
        refused(bad[i].says, target, NULL, dflash_changed(bad[i].file, &bad[i].c), bad[i].status, bad[i].says);
    refused("kind", target, "dflash", fixture("dflash/v2_llama.gguf"), LUCE_E_ARG, "of the kind dflash2, not dflash:");
    refused("kind", target, "dflash2", fixture("dflash/v1"), LUCE_E_ARG, "of the kind dflash, not dflash2:");
    refused("no file", target, "dflash", NULL, LUCE_E_ARG, "'dflash' needs a file");
    refused("no drafter", target, "dflash", target, LUCE_E_ARG, "is no DFlash drafter");

    char words[512];                /* its own vocabulary is compared where both have one */
    const char *tiny = tiny_model();
    snprintf(words, sizeof words, "%s", tiny_model_with("QQ", TINY_CONTEXT));
    struct dflash_change c = { .vocabulary = words };
    refused("vocabulary", tiny, NULL, dflash_changed("dflash/v1_llama.gguf", &c), LUCE_E_ARG, "token 258 is 'QQ' there");
    refused("embedding", tiny, NULL, fixture("dflash/v1_llama.gguf"), LUCE_E_ARG, "rows of 32 there, 64 in the model");
}

static void shuffled_tokens(int64_t said[VOCAB])
{
    for (int i = 0; i < VOCAB; i++) said[i] = i;
    for (int i = VOCAB - 1; i > 0; i--) {
        int j = (int)(test_random() % (uint64_t)(i + 1));
        int64_t id = said[i];
        said[i] = said[j], said[j] = id;
    }
}

/* A head for some of the tokens, in any order: the guesses are the likeliest of those, with all of them the guesses
 * of the file without. The target rounds features by up to 0.05, which decides near ties. */
TEST(dflash_says_the_tokens_of_its_own_vocabulary)
{
    int64_t said[VOCAB];
    int32_t narrow[VOCAB];
    shuffled_tokens(said);
    for (int i = 0; i < VOCAB; i++) narrow[i] = (int32_t)said[i];
    const struct dflash_change ways[] = { { .said = said, .n_said = VOCAB }, { .said = narrow, .n_said = 40, .narrow = true },
                                   { .said = said, .n_said = 1 } };
    for (size_t w = 0; w < COUNT(ways); w++) {
        struct drafter_rig g;
        struct seq *s;
        luce_error err = { 0 };
        if (!dflash_rig_open(&g, NULL, dflash_changed("dflash/v1_llama.gguf", &ways[w]), false, 1)) return;
        for (int text = 0; text < 2; text++) {
            const struct gguf_tensor *tokens = dflash_answer(&g, "", text, "tokens"), *want = dflash_answer(&g, "v1", text, "logits");
            const int32_t *ids = (const int32_t *)(const void *)tokens->data;
            const float *x = (const float *)(const void *)want->data;
            int n = (int)tokens->dim[0];
            CHECK_OK(seq_open(&s, runner_cache(g.target), &err), err);
            drafter_rig_feed(&g, s, ids, n - 1, 64, STEP_WIDE);
            struct tree t = dflash_guess(&g, seq_slot(s), ids, n, BLOCK - 1);
            CHECK_EQ(t.n, BLOCK);
            for (int k = 0; k + 1 < BLOCK; k++) {
                float best = -INFINITY, got = -INFINITY;
                for (int i = 0; i < ways[w].n_said; i++) {
                    float likely = x[k * VOCAB + narrow[i]];
                    if (likely > best) best = likely;
                    if (narrow[i] == t.token[k + 1]) got = likely;
                }
                CHECK(best - got < 0.1, "way %zu, text %d: guess %d is %d, %g below the best", w, text, k, t.token[k + 1],
                      (double)(best - got));
            }
            seq_close(s);
        }
        drafter_rig_close(&g);
    }
}

/* The trees of a DFlash2 with this change, after both texts of the fixtures. */
static bool second_trees(const struct dflash_change *c, struct tree tree[2])
{
    struct drafter_rig g;
    luce_error err = { 0 };
    if (!dflash_rig_open(&g, NULL, dflash_changed("dflash/v2_llama.gguf", c), true, 1)) return false;
    for (int text = 0; text < 2; text++) {
        struct seq *s;
        const struct gguf_tensor *tokens = dflash_answer(&g, "", text, "tokens");
        const int32_t *ids = (const int32_t *)(const void *)tokens->data;
        int n = (int)tokens->dim[0];
        CHECK_OK(seq_open(&s, runner_cache(g.target), &err), err);
        drafter_rig_feed(&g, s, ids, n - 1, 64, STEP_WIDE);
        tree[text] = dflash_guess(&g, seq_slot(s), ids, n, BLOCK - 1);
        seq_close(s);
    }
    drafter_rig_close(&g);
    return true;
}

/* DFlash2: with all tokens in another order the guesses are those of the file without d2t; with some, the codes of
 * the selector mean the same whether they are those of all tokens or of the head's rows. */
TEST(dflash2_says_the_tokens_of_its_own_vocabulary)
{
    int64_t said[VOCAB];
    struct tree whole[2], shuffled[2], by_token[2], by_row[2];
    shuffled_tokens(said);
    const struct dflash_change none = { 0 }, all = { .said = said, .n_said = VOCAB };
    if (!second_trees(&none, whole) || !second_trees(&all, shuffled)) return;
    for (int text = 0; text < 2; text++) {
        CHECK_EQ(whole[text].n, BLOCK);
        CHECK_EQ(shuffled[text].n, BLOCK);
        for (int i = 0; i < BLOCK; i++) CHECK_EQ(shuffled[text].token[i], whole[text].token[i]);
    }
    for (int i = 0, to = 0; i < VOCAB; i++)             /* the texts' last tokens have codes, so */
        if (said[i] == whole[0].token[0] || said[i] == whole[1].token[0]) {
            int64_t id = said[to];
            said[to++] = said[i], said[i] = id;
        }
    const struct dflash_change some = { .said = said, .n_said = 50 }, own = { .said = said, .n_said = 50, .own_codes = true };
    if (!second_trees(&some, by_token) || !second_trees(&own, by_row)) return;
    for (int text = 0; text < 2; text++) {
        CHECK(by_token[text].n == BLOCK && dflash_same_tree(&by_token[text], &by_row[text]), "text %d", text);
        for (int i = 1; i < BLOCK; i++) {
            int at = 0;
            while (at < 50 && said[at] != by_row[text].token[i]) at++;
            CHECK(at < 50, "token %d is not its own", by_row[text].token[i]);
        }
    }
    const struct dflash_change rest = { .said = said + 60, .n_said = 30, .own_codes = true };
    if (!second_trees(&rest, by_row)) return;
    struct gguf *answers;
    luce_error err = { 0 };
    CHECK_OK(gguf_open(&answers, fixture("dflash/answers.gguf"), &err), err);
    for (int text = 0; text < 2; text++) {              /* a last token without a code: the logits alone decide */
        char name[40];
        snprintf(name, sizeof name, "v2.%d.logits", text);
        const float *x = (const float *)(const void *)gguf_find(answers, name)->data, *got = x + by_row[text].token[1];
        for (int i = 60; i < 90; i++)
            CHECK((double)x[said[i]] - (double)*got < 0.1, "text %d: %d, not %d", text, by_row[text].token[1], (int)said[i]);
    }
    gguf_close(answers);
}

TEST(dflash_refuses_files_that_are_cut_short)
{
    static const char *const whole[] = { "dflash/v1_llama.gguf", "dflash/v2_lucebox.gguf" };
    char target[512];
    luce_error err = { 0 };
    snprintf(target, sizeof target, "%s", fixture(target_file));
    for (size_t i = 0; i < COUNT(whole); i++) {
        struct buf text = { 0 };
        CHECK_OK(file_read(&text, fixture(whole[i]), 1 << 20, &err), err);
        for (int part = 1; part < 8; part++) {
            struct file_writer w = { 0 };
            const char *path = scratch("cut.gguf");
            CHECK_OK(file_create(&w, path, &err), err);
            CHECK_OK(file_append(&w, text.data, text.len * (size_t)part / 8, &err), err);
            CHECK_OK(file_commit(&w, &err), err);
            refused("cut", target, "dflash", path, LUCE_E_FORMAT, "cut short");
        }
        buf_drop(&text);
    }
}
