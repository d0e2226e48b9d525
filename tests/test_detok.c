/* tests/test_detok.c - ids to text, streamed: characters are never halved, bad bytes are replaced. */
#include "tests/test.h"
#include "tests/toy_vocab.h"

static struct vocab *open_toy(struct toy *t)
{
    struct vocab *v = NULL;
    luce_error err = { 0 };
    CHECK_OK(vocab_open(&v, &t->source, &err), err);
    return v;
}

/* Byte tokens of a gpt2 toy: token b is byte b. */
static void stream(const struct vocab *v, const char *bytes, size_t len, struct buf *out, bool whole_only)
{
    struct detok d = { 0 };
    for (size_t i = 0; i < len; i++) {
        size_t before = out->len;
        detok_add(&d, v, (unsigned char)bytes[i], 0, out);
        for (size_t at = before; whole_only && at < out->len;) {
            int n = utf8_valid(out->data + at, out->len - at);
            CHECK(n > 0, "after byte %zu a delta holds half a character", i);
            at += n > 0 ? (size_t)n : 1;
        }
        CHECK(d.n_held >= 0 && d.n_held <= 3);
    }
    detok_end(&d, out);
}

TEST(detok_no_delta_holds_half_a_character)
{
    struct toy *t = toy_new("gpt2", "gpt-2");
    struct vocab *v = open_toy(t);
    for (int i = 0; i < 4000; i++) {
        char text[80];
        size_t len = 0;
        for (int n = 0; n < 12; n++) {
            static const uint32_t from[] = { 0, 0x80, 0x800, 0xe000, 0x10000 }, to[] = { 0x80, 0x800, 0xd800, 0x10000, 0x110000 };
            size_t k = test_random() % COUNT(from);
            len += (size_t)utf8_put(text + len, from[k] + (uint32_t)(test_random() % (to[k] - from[k])));
        }
        struct buf out = { 0 };
        stream(v, text, len, &out, true);
        CHECK(out.len == len && memcmp(out.data, text, len) == 0);
        buf_drop(&out);
    }
    vocab_close(v);
    toy_free(t);
}

TEST(detok_a_character_may_come_in_any_pieces)
{
    static const char *const characters[] = { "\xd1\x89", "\xe4\xb8\xad", "\xf0\x9f\x98\x8a" };
    for (size_t c = 0; c < COUNT(characters); c++) {
        size_t len = strlen(characters[c]);
        for (unsigned cuts = 0; cuts < 1u << (len - 1); cuts++) {
            struct toy *t = toy_new("gpt2", "gpt-2");
            for (size_t at = 0, from = 0; at < len; at++)
                if (at + 1 == len || (cuts >> at & 1)) {
                    toy_token(t, toy_alphabet(t, (struct str){ characters[c] + from, at + 1 - from }), TOKEN_NORMAL, 0);
                    from = at + 1;
                }
            struct vocab *v = open_toy(t);
            struct detok d = { 0 };
            struct buf out = { 0 };
            for (int id = 256; id < vocab_size(v); id++) {
                CHECK_EQ(out.len, 0);
                detok_add(&d, v, id, 0, &out);
            }
            CHECK_STR(buf_text(&out), characters[c]);
            CHECK_EQ(d.n_held, 0);
            buf_drop(&out);
            vocab_close(v);
            toy_free(t);
        }
    }
}

static const struct { const char *bytes, *text; } broken[] = {
    { "a\x80z", "a\xef\xbf\xbdz" },
    { "a\xe4\xb8z", "a\xef\xbf\xbdz" },
    { "\xf0\x9f\x98", "\xef\xbf\xbd" },
    { "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd" },
    { "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
    { "\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
    { "\xf0\x9f\xe4\xb8\xad", "\xef\xbf\xbd\xe4\xb8\xad" },
    { "\xff\xfe", "\xef\xbf\xbd\xef\xbf\xbd" },
    { "x\xc3", "x\xef\xbf\xbd" },
};

TEST(detok_bytes_that_cannot_become_valid_are_replaced)
{
    struct toy *t = toy_new("gpt2", "gpt-2");
    struct vocab *v = open_toy(t);
    for (size_t i = 0; i < COUNT(broken); i++) {
        struct buf out = { 0 }, repaired = { 0 };
        struct edits edits = { 0 };
        stream(v, broken[i].bytes, strlen(broken[i].bytes), &out, true);
        CHECK_STR(buf_text(&out), broken[i].text);
        CHECK(utf8_repair(str_of(broken[i].bytes), &repaired, &edits));
        CHECK_STR(buf_text(&repaired), broken[i].text);
        buf_drop(&out);
        buf_drop(&repaired);
        edits_drop(&edits);
    }
    vocab_close(v);
    toy_free(t);
}

TEST(detok_control_tokens_are_hidden_unless_asked_for)
{
    struct toy *t = toy_new("gpt2", "gpt-2");
    int32_t control = toy_token(t, str_of("<|im_end|>"), TOKEN_CONTROL, 0);
    int32_t user = toy_token(t, str_of("<think> \xc4\xa0"), TOKEN_USER_DEFINED, 0);
    int32_t unused = toy_token(t, str_of("<unused0>"), TOKEN_UNUSED, 0);
    int32_t empty = toy_token(t, str_of("[EMPTY_7]"), TOKEN_USER_DEFINED, 0);
    struct vocab *v = open_toy(t);
    int32_t ids[] = { 'a', control, user, unused, empty, -1, 999999, 'b' };
    for (unsigned flags = 0; flags <= DETOK_SPECIAL; flags++) {
        struct detok d = { 0 };
        struct buf out = { 0 };
        for (size_t i = 0; i < COUNT(ids); i++) detok_add(&d, v, ids[i], flags, &out);
        CHECK_STR(buf_text(&out), flags ? "a<|im_end|><think> \xc4\xa0<unused0>b" : "a<think> \xc4\xa0""b");
        buf_drop(&out);
    }
    vocab_close(v);
    toy_free(t);
}

TEST(detok_spm_drops_the_first_space_of_a_fresh_text_only)
{
    struct toy *t = toy_new("llama", "");
    int32_t bos = toy_token(t, str_of("<s>"), TOKEN_CONTROL, 0);
    int32_t word = toy_token(t, str_of("\xe2\x96\x81""a"), TOKEN_NORMAL, 0);
    struct vocab *v = open_toy(t);
    struct detok fresh = { 0 }, more = { .started = true };
    struct buf out = { 0 };
    detok_add(&fresh, v, bos, 0, &out);
    detok_add(&fresh, v, word, 0, &out);
    detok_add(&fresh, v, word, 0, &out);
    CHECK_STR(buf_text(&out), "a a");
    detok_add(&more, v, word, 0, &out);
    CHECK_STR(buf_text(&out), "a a a");
    buf_drop(&out);
    vocab_close(v);
    t->source.add_space_prefix = CHOICE_NO;
    v = open_toy(t);
    fresh = (struct detok){ 0 };
    detok_add(&fresh, v, word, 0, &out);
    CHECK_STR(buf_text(&out), " a");
    buf_drop(&out);
    vocab_close(v);
    toy_free(t);
}
