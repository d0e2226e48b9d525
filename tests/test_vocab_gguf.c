/* tests/test_vocab_gguf.c - the tokenizer keys of a GGUF become a vocabulary, or an error that names
 * the key. */
#include <math.h>

#include "gguf/writer.h"
#include "model/vocab_gguf.h"
#include "tests/test.h"

/* A vocabulary of four tokens in a file of its own; `spoil` may add keys first, which then stand. */
struct keys {
    bool tokens, scores, kinds;
    uint32_t bos;
};

static const char *write_file(const struct keys *k, void (*spoil)(struct gguf_writer *w))
{
    struct gguf_writer w = { 0 };
    struct str tokens[] = { str_of("a"), str_of("b"), str_of("ab"), str_of("<s>") };
    struct str merges[] = { str_of("a b") };
    int32_t kinds[] = { 1, 1, 1, 3 };
    float scores[] = { 0, 0, 1, 0 };
    gguf_add_text(&w, "tokenizer.ggml.model", str_of("gpt2"));
    if (k->tokens) gguf_add_texts(&w, "tokenizer.ggml.tokens", tokens, 4);
    gguf_add_texts(&w, "tokenizer.ggml.merges", merges, 1);
    if (k->scores) gguf_add_array(&w, "tokenizer.ggml.scores", GGUF_F32, scores, 4);
    if (k->kinds) gguf_add_array(&w, "tokenizer.ggml.token_type", GGUF_I32, kinds, 4);
    gguf_add_u32(&w, "tokenizer.ggml.bos_token_id", k->bos);
    if (spoil) spoil(&w);
    else gguf_add_text(&w, "tokenizer.ggml.pre", str_of("gpt-2"));
    const char *path = scratch("vocab.gguf");
    luce_error err = { 0 };
    CHECK_OK(gguf_write(&w, path, &err), err);
    gguf_writer_drop(&w);
    return path;
}

TEST(vocab_from_gguf_reads_the_keys)
{
    struct gguf *g = NULL;
    struct vocab *v = NULL;
    luce_error err = { 0 };
    CHECK_OK(gguf_open(&g, write_file(&(struct keys){ true, true, true, 3 }, NULL), &err), err);
    size_t live = mem_live();
    CHECK_OK(vocab_from_gguf(&v, g, &err), err);
    if (v) {
        struct ids ids = { 0 };
        CHECK_OK(vocab_tokenize(v, str_of("abb<s>"), TOKENIZE_SPECIAL, &ids, &err), err);
        CHECK(ids.len == 3 && ids.at[0] == 2 && ids.at[1] == 1 && ids.at[2] == 3);
        CHECK_EQ(vocab_special(v).ids[ROLE_BOS], 3);
        ids_drop(&ids);
    }
    vocab_close(v);
    CHECK_EQ(mem_live(), live);
    int n = 0;
    for (luce_status st = LUCE_E_NOMEM; st && n < 100; n++) {
        mem_fail_after(n);
        st = vocab_from_gguf(&v, g, &err);
        mem_fail_never();
        CHECK(st == LUCE_OK || (st == LUCE_E_NOMEM && !v && mem_live() == live), "allocation %d: %s", n, err.text);
    }
    CHECK(n > 4, "%d allocations", n);
    vocab_close(v);
    gguf_close(g);
}

static void pre_is_a_number(struct gguf_writer *w) { gguf_add_u32(w, "tokenizer.ggml.pre", 7); }
static void flag_is_a_text(struct gguf_writer *w) { gguf_add_text(w, "tokenizer.ggml.add_bos_token", str_of("yes")); }
static void eos_is_a_text(struct gguf_writer *w) { gguf_add_text(w, "tokenizer.ggml.eos_token_id", str_of("2")); }
static void eos_is_far(struct gguf_writer *w) { gguf_add_u32(w, "tokenizer.ggml.eos_token_id", 4); }

static void few_kinds(struct gguf_writer *w)
{
    int32_t kinds[] = { 1, 1 };
    gguf_add_array(w, "tokenizer.ggml.token_type", GGUF_I32, kinds, 2);
}

static void scores_are_ints(struct gguf_writer *w)
{
    int32_t scores[] = { 1, 1, 1, 1 };
    gguf_add_array(w, "tokenizer.ggml.scores", GGUF_I32, scores, 4);
}

static void scores_are_nan(struct gguf_writer *w)
{
    float scores[] = { 0, 1, NAN, 0 };
    gguf_add_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, 4);
}

static void many_scores(struct gguf_writer *w)
{
    float scores[5] = { 0 };
    gguf_add_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, 5);
}

static const struct {
    struct keys keys;
    void (*spoil)(struct gguf_writer *w);
    const char *says;
} bad[] = {
    { { false, false, false, 0 }, NULL, "tokenizer.ggml.tokens is missing or empty" },
    { { true, false, false, 4 }, NULL, "bos_token_id is 4, the vocabulary has 4 tokens" },
    { { true, false, false, 0 }, pre_is_a_number, "tokenizer.ggml.pre" },
    { { true, false, false, 0 }, flag_is_a_text, "tokenizer.ggml.add_bos_token" },
    { { true, false, false, 0 }, eos_is_a_text, "tokenizer.ggml.eos_token_id" },
    { { true, false, false, 0 }, eos_is_far, "eos_token_id is 4" },
    { { true, false, false, 0 }, few_kinds, "token_type has 2 entries, tokenizer.ggml.tokens has 4" },
    { { true, false, false, 0 }, scores_are_ints, "tokenizer.ggml.scores is" },
    { { true, false, false, 0 }, scores_are_nan, "tokenizer.ggml.scores holds NaN for token 2" },
    { { true, false, false, 0 }, many_scores, "scores has 5 entries, tokenizer.ggml.tokens has 4" },
};

TEST(vocab_from_gguf_names_the_key_that_is_wrong)
{
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct gguf *g = NULL;
        struct vocab *v = NULL;
        luce_error err = { 0 };
        CHECK_OK(gguf_open(&g, write_file(&bad[i].keys, bad[i].spoil), &err), err);
        CHECK_EQ(vocab_from_gguf(&v, g, &err), LUCE_E_FORMAT);
        CHECK(strstr(err.text, bad[i].says) != NULL, "row %zu: \"%s\"", i, err.text);
        CHECK_EQ(v, NULL);
        gguf_close(g);
    }
}
