/* tests/test_vocab.c - opening vocabularies: roles, kinds, ends of generation, defaults, bad sources. */
#include "tests/test.h"
#include "tests/toy_vocab.h"

static struct vocab *open_toy(struct toy *t)
{
    struct vocab *v = NULL;
    luce_error err = { 0 };
    CHECK_OK(vocab_open(&v, &t->source, &err), err);
    return v;
}

TEST(vocab_byte_tokens_give_their_bytes)
{
    static const char *const models[] = { "gpt2", "llama", "gemma4" };
    for (size_t m = 0; m < COUNT(models); m++) {
        struct toy *t = toy_new(models[m], "gpt-2");
        struct vocab *v = open_toy(t);
        for (int b = 0; v && b < 256; b++) {
            struct buf out = { 0 };
            token_bytes(v, b, 0, &out);
            /* gemma4 keeps its byte tokens as normal or byte; here they are bytes. */
            CHECK(out.len == 1 && (unsigned char)out.data[0] == b, "%s byte %d", models[m], b);
            buf_drop(&out);
        }
        vocab_close(v);
        toy_free(t);
    }
}

TEST(vocab_finds_tokens_by_raw_text_and_the_last_of_equals)
{
    struct toy *t = toy_new("gpt2", "gpt-2");
    int32_t word = toy_token(t, str_of("\xc4\xa0the"), TOKEN_NORMAL, 0);
    int32_t control = toy_token(t, str_of("<|im_end|>"), TOKEN_CONTROL, 0);
    int32_t first = toy_token(t, str_of("twice"), TOKEN_NORMAL, 0);
    int32_t last = toy_token(t, str_of("twice"), TOKEN_NORMAL, 0);
    toy_token(t, str_of(""), TOKEN_NORMAL, 0);
    struct vocab *v = open_toy(t);
    CHECK_EQ(vocab_find(v, str_of("\xc4\xa0the")), word);
    CHECK_EQ(vocab_find(v, str_of(" the")), -1);
    CHECK_EQ(vocab_find(v, str_of("<|im_end|>")), control);
    CHECK(first != last && vocab_find(v, str_of("twice")) == last);
    CHECK_EQ(vocab_find(v, str_of("")), -1);
    CHECK_EQ(vocab_find(v, str_of("absent")), -1);
    CHECK(str_is(vocab_text(v, control), "<|im_end|>"));
    CHECK_EQ(vocab_kind(v, control), TOKEN_CONTROL);
    CHECK_EQ(vocab_size(v), 261);
    CHECK_EQ(vocab_text(v, -1).len + vocab_text(v, 261).len, 0);
    CHECK(vocab_is_banned(v, 260) && vocab_is_banned(v, 261) && vocab_is_banned(v, -1) && !vocab_is_banned(v, word));
    vocab_close(v);
    toy_free(t);
}

TEST(vocab_roles_come_from_the_file_then_from_texts)
{
    struct toy *t = toy_new("gpt2", "qwen2");
    int32_t end = toy_token(t, str_of("<|im_end|>"), TOKEN_NORMAL, 0);
    int32_t text_end = toy_token(t, str_of("<|endoftext|>"), TOKEN_CONTROL, 0);
    int32_t fim = toy_token(t, str_of("<|fim_prefix|>"), TOKEN_USER_DEFINED, 0);
    int32_t repo = toy_token(t, str_of("<|repo_name|>"), TOKEN_USER_DEFINED, 0);
    t->source.ids[ROLE_EOS] = text_end;
    struct vocab *v = open_toy(t);
    struct vocab_special s = vocab_special(v);
    CHECK_EQ(s.ids[ROLE_BOS], -1);
    CHECK_EQ(s.ids[ROLE_EOS], text_end);
    CHECK_EQ(s.ids[ROLE_EOT], end);
    CHECK_EQ(s.ids[ROLE_FIM_PREFIX], fim);
    CHECK_EQ(s.ids[ROLE_FIM_REPO], repo);
    CHECK_EQ(s.ids[ROLE_EOM], -1);
    CHECK_EQ(vocab_kind(v, end), TOKEN_CONTROL);
    CHECK(vocab_is_end(v, end) && vocab_is_end(v, text_end) && vocab_is_end(v, repo) && !vocab_is_end(v, fim));
    CHECK(!vocab_is_end(v, -1) && !vocab_is_end(v, 'a') && !vocab_is_end(v, 1 << 20));
    vocab_close(v);
    toy_free(t);
}

TEST(vocab_ends_of_generation_have_their_exceptions)
{
    struct toy *t = toy_new("gpt2", "gpt-4o");
    int32_t end = toy_token(t, str_of("<|end|>"), TOKEN_CONTROL, 0);
    int32_t slash = toy_token(t, str_of("</s>"), TOKEN_CONTROL, 0);
    int32_t assistant = toy_token(t, str_of("</assistant>"), TOKEN_USER_DEFINED, 0);
    int32_t role_end = toy_token(t, str_of("<|role_end|>"), TOKEN_CONTROL, 0);
    struct vocab *v = open_toy(t);
    CHECK(vocab_is_end(v, end) && vocab_is_end(v, slash) && vocab_is_end(v, role_end) && !vocab_is_end(v, assistant));
    vocab_close(v);
    int32_t ret = toy_token(t, str_of("<|return|>"), TOKEN_CONTROL, 0);
    int32_t call = toy_token(t, str_of("<|call|>"), TOKEN_CONTROL, 0);
    int32_t response = toy_token(t, str_of("<|tool_response>"), TOKEN_CONTROL, 0);
    t->source.pre = str_of("laguna");
    v = open_toy(t);
    CHECK(!vocab_is_end(v, end) && !vocab_is_end(v, slash) && vocab_is_end(v, ret) && vocab_is_end(v, call));
    CHECK(vocab_is_end(v, response) && vocab_is_end(v, assistant));
    vocab_close(v);
    toy_free(t);
}

TEST(vocab_unused_padding_and_suppressed_tokens_are_told_apart)
{
    struct toy *t = toy_new("gpt2", "gpt-2");
    int32_t unused = toy_token(t, str_of("<unused7>"), TOKEN_CONTROL, 0);
    int32_t padding = toy_token(t, str_of("[PAD258]"), TOKEN_UNUSED, 0);
    int32_t word = toy_token(t, str_of("[PAD]"), TOKEN_CONTROL, 0);
    int32_t suppressed[] = { 'x', -4, 99999 };
    t->source.suppressed = suppressed;
    t->source.n_suppressed = COUNT(suppressed);
    struct vocab *v = open_toy(t);
    CHECK_EQ(vocab_kind(v, unused), TOKEN_UNUSED);
    CHECK(vocab_is_banned(v, padding) && !vocab_is_banned(v, word) && vocab_is_banned(v, 'x') && !vocab_is_banned(v, 'y'));
    vocab_close(v);
    toy_free(t);
}

TEST(vocab_bos_and_eos_defaults_follow_model_and_row)
{
    static const struct {
        const char *model, *pre;
        enum vocab_choice choice;
        bool add_bos;
    } rows[] = {
        { "gpt2", "qwen2", CHOICE_DEFAULT, false },  { "gpt2", "qwen2", CHOICE_YES, true },
        { "gpt2", "llama-bpe", CHOICE_DEFAULT, true }, { "gpt2", "llama-bpe", CHOICE_NO, false },
        { "gpt2", "tekken", CHOICE_DEFAULT, true },  { "gpt2", "laguna", CHOICE_DEFAULT, true },
        { "llama", "", CHOICE_DEFAULT, true },       { "llama", "", CHOICE_NO, false },
        { "gemma4", "", CHOICE_NO, true },           { "gpt2", "smollm", CHOICE_DEFAULT, false },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct toy *t = toy_new(rows[i].model, rows[i].pre);
        t->source.ids[ROLE_BOS] = toy_token(t, str_of("<s>"), TOKEN_CONTROL, 0);
        t->source.add_bos = rows[i].choice;
        struct vocab *v = open_toy(t);
        CHECK_EQ(vocab_special(v).add_bos, rows[i].add_bos);
        CHECK_EQ(vocab_special(v).add_eos, false);
        vocab_close(v);
        t->source.ids[ROLE_BOS] = -1;
        t->source.add_bos = CHOICE_DEFAULT;
        v = open_toy(t);
        CHECK_EQ(vocab_special(v).add_bos, strcmp(rows[i].model, "llama") == 0);    /* SPM: id 1 */
        vocab_close(v);
        toy_free(t);
    }
}

static void no_model(struct toy *t) { t->source.model = str_of(""); }
static void bert(struct toy *t) { t->source.model = str_of("bert"); }
static void bad_pre(struct toy *t) { t->source.pre = str_of("deepseek-llm"); }
static void gemma_pre(struct toy *t) { t->source.pre = str_of("gemma4"); }
static void no_tokens(struct toy *t) { t->source.n_tokens = 0; }
static void bad_kind(struct toy *t) { t->kinds[7] = 9; }
static void bad_eos(struct toy *t) { t->source.ids[ROLE_EOS] = 256; }
static void bad_fim(struct toy *t) { t->source.ids[ROLE_FIM_REPO] = 1 << 30; }
static void no_scores(struct toy *t) { t->source.model = str_of("llama"), t->source.scores = NULL; }

static const struct {
    void (*spoil)(struct toy *t);
    luce_status status;
    const char *says;
} bad[] = {
    { no_model, LUCE_E_UNSUPPORTED, "known: gpt2, llama, gemma4" },
    { bert, LUCE_E_UNSUPPORTED, "toy: tokenizer.ggml.model is 'bert'" },
    { bad_pre, LUCE_E_UNSUPPORTED, "tokenizer.ggml.pre is 'deepseek-llm'; known: gpt-2" },
    { gemma_pre, LUCE_E_UNSUPPORTED, "tokenizer.ggml.pre is 'gemma4'" },
    { no_tokens, LUCE_E_FORMAT, "tokens has 0 entries" },
    { bad_kind, LUCE_E_FORMAT, "token_type[7] is 9, expected 1 to 6" },
    { bad_eos, LUCE_E_FORMAT, "eos_token_id is 256, the vocabulary has 256 tokens" },
    { bad_fim, LUCE_E_FORMAT, "fim_rep_token_id is 1073741824" },
    { no_scores, LUCE_E_FORMAT, "tokenizer.ggml.scores is missing" },
};

TEST(vocab_refuses_bad_sources_and_says_why)
{
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct toy *t = toy_new("gpt2", "gpt-2");
        bad[i].spoil(t);
        struct vocab *v = (struct vocab *)t;
        luce_error err = { 0 };
        CHECK_EQ(vocab_open(&v, &t->source, &err), bad[i].status);
        CHECK(strstr(err.text, bad[i].says) != NULL, "row %zu: \"%s\"", i, err.text);
        CHECK_EQ(v, NULL);
        toy_free(t);
    }
}

/* Merges that are no merges, name no tokens, or are there twice are ignored; the first counts. */
TEST(vocab_ignores_unusable_merges)
{
    struct toy *t = toy_new("gpt2", "gpt-2");
    int32_t ab = toy_token(t, str_of("ab"), TOKEN_NORMAL, 0);
    int32_t control = toy_token(t, str_of("cd"), TOKEN_CONTROL, 0);
    static const char *const merges[] = { "", " ", "a", "a ", " b", "xx yy", "c d", "a b", "a b" };
    for (size_t i = 0; i < COUNT(merges); i++) t->merges[t->source.n_merges++] = str_of(merges[i]);
    struct vocab *v = open_toy(t);
    struct ids ids = { 0 };
    luce_error err = { 0 };
    CHECK_OK(vocab_tokenize(v, str_of("abcd"), 0, &ids, &err), err);
    CHECK(ids.len == 3 && ids.at[0] == ab && ids.at[1] != control, "%zu ids", ids.len);
    ids_drop(&ids);
    vocab_close(v);
    toy_free(t);
}

TEST(vocab_open_survives_each_failing_allocation)
{
    static const char *const models[] = { "gpt2", "llama", "gemma4" };
    for (size_t m = 0; m < COUNT(models); m++) {
        struct toy *t = toy_new(models[m], "gpt-2");
        toy_token(t, str_of("<|im_end|>"), TOKEN_CONTROL, 0);
        toy_token(t, str_of("ab"), TOKEN_NORMAL, 0);
        toy_merge(t, str_of("a"), str_of("b"));
        size_t live = mem_live();
        struct vocab *v = NULL;
        int n = 0;
        for (luce_status st = LUCE_E_NOMEM; st; n++) {
            luce_error err = { 0 };
            mem_fail_after(n);
            st = vocab_open(&v, &t->source, &err);
            mem_fail_never();
            CHECK(st == LUCE_OK || (st == LUCE_E_NOMEM && !v && mem_live() == live), "%s: allocation %d: %s",
                  models[m], n, err.text);
            if (n > 100) break;
        }
        CHECK(v && n > 4, "%d allocations", n);
        vocab_close(v);
        CHECK_EQ(mem_live(), live);
        toy_free(t);
    }
}
