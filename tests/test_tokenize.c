/* tests/test_tokenize.c - text to ids: special tokens and who may spell them, BOS and EOS, repair,
 * normalisation, ranges, and the way back. */
#include <stdlib.h>
#include <utf8proc.h>

#include "tests/test.h"
#include "tests/toy_vocab.h"

static struct vocab *open_toy(struct toy *t)
{
    struct vocab *v = NULL;
    luce_error err = { 0 };
    CHECK_OK(vocab_open(&v, &t->source, &err), err);
    return v;
}

/* Tokenises and compares with `want`, ids in decimal. */
static void expect(const struct vocab *v, const struct tokenize *t, const char *want)
{
    struct ids ids = { 0 };
    luce_error err = { 0 };
    CHECK_OK(vocab_tokenize_spans(v, t, &ids, &err), err);
    struct buf found = { 0 };
    for (size_t i = 0; i < ids.len; i++) buf_printf(&found, i ? " %d" : "%d", ids.at[i]);
    CHECK(strcmp(buf_text(&found), want) == 0, "\"%.*s\": %s, expected %s", (int)t->text.len, t->text.at,
          buf_text(&found), want);
    buf_drop(&found);
    ids_drop(&ids);
}

/* ids: 256 <|im_end|>, 257 <|im_end|>x, 258 <think> (user-defined), 259 <user> (user-defined),
 * 260 <unk>, 261 >W, 262 "ab" */
static struct toy *special_toy(void)
{
    struct toy *t = toy_new("gpt2", "gpt-2");
    toy_token(t, str_of("<|im_end|>"), TOKEN_CONTROL, 0);
    toy_token(t, str_of("<|im_end|>x"), TOKEN_CONTROL, 0);
    toy_token(t, str_of("<think>"), TOKEN_USER_DEFINED, 0);
    toy_token(t, str_of("<user>"), TOKEN_USER_DEFINED, 0);
    toy_token(t, str_of("<unk>"), TOKEN_UNKNOWN, 0);
    toy_token(t, str_of(">W"), TOKEN_NORMAL, 0);
    toy_token(t, str_of("ab"), TOKEN_NORMAL, 0);
    toy_merge(t, str_of(">"), str_of("W"));
    toy_merge(t, str_of("a"), str_of("b"));
    t->source.ids[ROLE_UNKNOWN] = 260;
    return t;
}

TEST(tokenize_control_tokens_need_the_flag_user_defined_do_not)
{
    struct toy *t = special_toy();
    struct vocab *v = open_toy(t);
    expect(v, &(struct tokenize){ .text = str_of("a<|im_end|>b"), .flags = TOKENIZE_SPECIAL }, "97 256 98");
    expect(v, &(struct tokenize){ .text = str_of("a<|im_end|>") }, "97 60 124 105 109 95 101 110 100 124 62");
    expect(v, &(struct tokenize){ .text = str_of("<think>a") }, "258 97");
    expect(v, &(struct tokenize){ .text = str_of("<unk>") }, "60 117 110 107 62");
    expect(v, &(struct tokenize){ .text = str_of("<unk>"), .flags = TOKENIZE_SPECIAL }, "260");
    expect(v, &(struct tokenize){ .text = str_of("") }, "");
    vocab_close(v);
    toy_free(t);
}

TEST(tokenize_matches_the_leftmost_then_the_longest_special)
{
    struct toy *t = special_toy();
    struct vocab *v = open_toy(t);
    expect(v, &(struct tokenize){ .text = str_of("<|im_end|>x<|im_end|>y"), .flags = TOKENIZE_SPECIAL }, "257 256 121");
    expect(v, &(struct tokenize){ .text = str_of("<<think><thin"), .flags = TOKENIZE_SPECIAL },
           "60 258 60 116 104 105 110");
    vocab_close(v);
    /* "aab" would win by length, "xa" by place. */
    toy_token(t, str_of("xa"), TOKEN_CONTROL, 0);
    toy_token(t, str_of("aab"), TOKEN_CONTROL, 0);
    v = open_toy(t);
    expect(v, &(struct tokenize){ .text = str_of("xaab"), .flags = TOKENIZE_SPECIAL }, "263 262");
    vocab_close(v);
    toy_free(t);
}

TEST(tokenize_spans_gate_special_tokens)
{
    struct toy *t = special_toy();
    struct vocab *v = open_toy(t);
    struct vocab_guard *guard = NULL;
    luce_error err = { 0 };
    CHECK_OK(vocab_guard_new(&guard, v, str_of("<user>{{ m }}<|im_end|>"), &err), err);
    /* template "<user>", user's words, template "<|im_end|>" */
    const char text[] = "<user>a<|im_end|><user><think><|im_end|>";
    struct text_span spans[] = { { 0, 6, SPAN_TEMPLATE }, { 6, 30, SPAN_PLAIN }, { 30, 40, SPAN_TEMPLATE } };
    struct tokenize call = { .text = str_of(text), .spans = spans, .n_spans = 3, .guard = guard };
    expect(v, &call, "259 97 60 124 105 109 95 101 110 100 124 62 60 117 115 101 114 62 258 256");
    call.guard = NULL;      /* then user-defined tokens stay tokens */
    expect(v, &call, "259 97 60 124 105 109 95 101 110 100 124 62 259 258 256");
    vocab_guard_free(guard);
    /* Half of a control token by the template, half by the user: no token. */
    struct text_span half[] = { { 0, 4, SPAN_TEMPLATE }, { 4, 10, SPAN_PLAIN } };
    expect(v, &(struct tokenize){ .text = str_of("<|im_end|>"), .spans = half, .n_spans = 2 },
           "60 124 105 109 95 101 110 100 124 62");
    /* Two spans of the template side by side are one; bytes in no span are plain. */
    struct text_span both[] = { { 0, 4, SPAN_TEMPLATE }, { 4, 10, SPAN_TEMPLATE } };
    expect(v, &(struct tokenize){ .text = str_of("<|im_end|>x"), .spans = both, .n_spans = 2 }, "256 120");
    both[1].to = 9;
    expect(v, &(struct tokenize){ .text = str_of("<|im_end|>"), .spans = both, .n_spans = 2 },
           "60 124 105 109 95 101 110 100 124 62");
    vocab_close(v);
    toy_free(t);
}

TEST(tokenize_spans_never_cut_the_text)
{
    struct toy *t = special_toy();
    struct vocab *v = open_toy(t);
    struct text_span spans[] = { { 0, 3, SPAN_TEMPLATE }, { 3, 6, SPAN_PLAIN } };
    expect(v, &(struct tokenize){ .text = str_of("<u>Wab"), .spans = spans, .n_spans = 2 }, "60 117 62 87 262");
    spans[0].to = spans[1].from = 2;        /* "<u", then ">W" merges */
    expect(v, &(struct tokenize){ .text = str_of("<u>>ab"), .spans = spans, .n_spans = 2 }, "60 117 62 62 262");
    spans[0].to = spans[1].from = 5;        /* within "ab" */
    expect(v, &(struct tokenize){ .text = str_of("<u> ab"), .spans = spans, .n_spans = 2 }, "60 117 62 32 262");
    vocab_close(v);
    toy_free(t);
}

TEST(tokenize_ends_of_generation_are_never_spelled_by_plain_text)
{
    struct toy *t = toy_new("gpt2", "laguna");
    int32_t end = toy_token(t, str_of("</assistant>"), TOKEN_USER_DEFINED, 0);
    struct vocab *v = open_toy(t);
    struct ids ids = { 0 };
    luce_error err = { 0 };
    CHECK_OK(vocab_tokenize(v, str_of("</assistant>"), 0, &ids, &err), err);
    CHECK_EQ(ids.len, 12);
    CHECK_OK(vocab_tokenize(v, str_of("</assistant>"), TOKENIZE_SPECIAL, &ids, &err), err);
    CHECK(ids.len == 13 && ids.at[12] == end);
    ids_drop(&ids);
    vocab_close(v);
    toy_free(t);
}

TEST(tokenize_adds_bos_and_eos_as_asked)
{
    struct toy *t = toy_new("gpt2", "gpt-2");
    t->source.ids[ROLE_BOS] = toy_token(t, str_of("<s>"), TOKEN_CONTROL, 0);
    t->source.ids[ROLE_EOS] = toy_token(t, str_of("</s>"), TOKEN_CONTROL, 0);
    t->source.add_bos = t->source.add_eos = CHOICE_YES;
    struct vocab *v = open_toy(t);
    expect(v, &(struct tokenize){ .text = str_of("a") }, "97");
    expect(v, &(struct tokenize){ .text = str_of("a"), .flags = TOKENIZE_BOS_EOS }, "256 97 257");
    expect(v, &(struct tokenize){ .text = str_of(""), .flags = TOKENIZE_BOS_EOS }, "256 257");
    expect(v, &(struct tokenize){ .text = str_of("<s>a"), .flags = TOKENIZE_CHAT | TOKENIZE_SPECIAL }, "256 97");
    expect(v, &(struct tokenize){ .text = str_of("a"), .flags = TOKENIZE_CHAT | TOKENIZE_SPECIAL }, "256 97");
    expect(v, &(struct tokenize){ .text = str_of(""), .flags = TOKENIZE_CHAT }, "256");
    struct token_ranges ranges = { 0 };
    expect(v, &(struct tokenize){ .text = str_of("ab"), .flags = TOKENIZE_CHAT, .ranges = &ranges }, "256 97 98");
    CHECK(ranges.len == 3 && ranges.at[0].to == 0 && ranges.at[1].from == 0 && ranges.at[2].to == 2);
    token_ranges_drop(&ranges);
    vocab_close(v);
    toy_free(t);
}

TEST(tokenize_invalid_bytes_become_replacement_characters_and_keep_their_ranges)
{
    struct toy *t = toy_new("gpt2", "gpt-2");
    int32_t sign = toy_token(t, toy_alphabet(t, str_of("\xef\xbf\xbd")), TOKEN_NORMAL, 0);
    toy_merge(t, toy_alphabet(t, str_of("\xef")), toy_alphabet(t, str_of("\xbf")));
    toy_token(t, toy_alphabet(t, str_of("\xef\xbf")), TOKEN_NORMAL, 0);
    toy_merge(t, toy_alphabet(t, str_of("\xef\xbf")), toy_alphabet(t, str_of("\xbd")));
    struct vocab *v = open_toy(t);
    /* A lone continuation, a cut sequence of two bytes, an overlong form (two), a cut end. */
    static const char text[] = "a\x80" "b\xe4\xb8" "c\xc0\xaf" "d\xf0\x9f\x98";
    static const size_t from[] = { 0, 1, 2, 3, 5, 6, 7, 8, 9 }, to[] = { 1, 2, 3, 5, 6, 7, 8, 9, 12 };
    struct token_ranges ranges = { 0 };
    char want[100];
    snprintf(want, sizeof want, "97 %d 98 %d 99 %d %d 100 %d", sign, sign, sign, sign, sign);
    /* Neighbouring signs are one piece of the splitter, but two tokens. */
    expect(v, &(struct tokenize){ .text = str_of(text), .ranges = &ranges }, want);
    CHECK_EQ(ranges.len, 9);
    for (size_t i = 0; i < ranges.len && i < 9; i++)
        CHECK(ranges.at[i].from == from[i] && ranges.at[i].to == to[i], "token %zu: %zu to %zu", i,
              ranges.at[i].from, ranges.at[i].to);
    token_ranges_drop(&ranges);
    vocab_close(v);
    toy_free(t);
}

static size_t random_text(char *out, size_t max, bool low_only)
{
    static const struct { uint32_t from, to; } blocks[] = {
        { 0x20, 0x7f }, { 0x00, 0x20 }, { 0xa0, 0x250 }, { 0x300, 0x345 }, { 0x1100, 0x1200 }, { 0x3040, 0x3100 },
        { 0x4e00, 0x5000 }, { 0x93c, 0x94e }, { 0x1e00, 0x1fff }, { 0xac00, 0xac80 }, { 0xf900, 0xfa00 },
        { 0x212a, 0x212c }, { 0x1d15e, 0x1d165 }, { 0x1f600, 0x1f640 }, { 0x9be, 0x9d8 }, { 0x340, 0x345 },
        { 0x2000, 0x2010 }, { 0x2126, 0x2127 },
    };
    size_t len = 0;
    for (size_t n = test_random() % 40 + 1; n > 0 && len + 4 <= max; n--) {
        size_t b = test_random() % (low_only ? 3 : COUNT(blocks));
        len += (size_t)utf8_put(out + len, blocks[b].from + (uint32_t)(test_random() % (blocks[b].to - blocks[b].from)));
    }
    return len;
}

TEST(nfc_equals_the_library_and_maps_back)
{
    for (int i = 0; i < 20000; i++) {
        char text[256];
        size_t len = random_text(text, sizeof text - 1, false);
        for (size_t k = 0; k < len; k++)
            if (!text[k]) text[k] = 'x';
        text[len] = '\0';
        utf8proc_uint8_t *want = utf8proc_NFC((const utf8proc_uint8_t *)text);
        struct buf out = { 0 };
        struct edits edits = { 0 };
        bool changed = nfc_apply((struct str){ text, len }, &out, &edits);
        struct str found = changed ? (struct str){ out.data, out.len } : (struct str){ text, len };
        CHECK(str_eq(found, str_of((const char *)want)), "text %d", i);
        CHECK_EQ(changed, !str_eq((struct str){ text, len }, str_of((const char *)want)));
        CHECK(edits_from(&edits, 0) == 0 && edits_to(&edits, found.len) == len);
        for (size_t k = 0; k < found.len; k++) {
            size_t from = edits_from(&edits, k), to = edits_to(&edits, k + 1);
            CHECK(from < to && to <= len, "byte %zu comes from %zu to %zu of %zu", k, from, to, len);
        }
        free(want);
        buf_drop(&out);
        edits_drop(&edits);
    }
}

TEST(nfc_of_a_long_run_of_marks_is_linear)
{
    enum { MARKS = 300000 };
    struct buf text = { 0 }, out = { 0 };
    struct edits edits = { 0 };
    buf_add_char(&text, 'a');
    for (int i = 0; i < MARKS; i++) buf_add_text(&text, i % 2 ? "\xcc\xa3" : "\xcc\x81");   /* U+0323, U+0301 */
    CHECK(nfc_apply((struct str){ text.data, text.len }, &out, &edits));
    /* a with dot below (U+1EA1), the other dots, then the accents */
    CHECK_EQ(out.len, 3 + 2 * (MARKS - 1));
    CHECK(memcmp(out.data, "\xe1\xba\xa1\xcc\xa3", 5) == 0 && memcmp(out.data + out.len - 2, "\xcc\x81", 2) == 0);
    buf_drop(&text);
    buf_drop(&out);
    edits_drop(&edits);
}

/* What a vocabulary must give back for `text`: the text itself, in its normal form. */
static void check_round_trip(const struct vocab *v, struct str text, struct str want, bool show)
{
    struct ids ids = { 0 };
    struct token_ranges ranges = { 0 };
    luce_error err = { 0 };
    struct tokenize call = { .text = text, .ranges = &ranges };
    CHECK_OK(vocab_tokenize_spans(v, &call, &ids, &err), err);
    struct detok d = { 0 };
    struct buf out = { 0 };
    for (size_t i = 0; i < ids.len; i++) detok_add(&d, v, ids.at[i], 0, &out);
    detok_end(&d, &out);
    if (show) CHECK(str_eq((struct str){ out.data ? out.data : "", out.len }, want), "\"%.*s\"", (int)text.len, text.at);
    CHECK_EQ(ranges.len, ids.len);
    size_t at = 0;
    for (size_t i = 0; i < ranges.len; i++) {
        CHECK(ranges.at[i].from <= at && ranges.at[i].to >= at, "token %zu: %zu to %zu after %zu", i,
              ranges.at[i].from, ranges.at[i].to, at);
        at = ranges.at[i].to;
    }
    CHECK_EQ(at, text.len);
    ids_drop(&ids);
    token_ranges_drop(&ranges);
    buf_drop(&out);
}

TEST(tokenize_and_back_gives_the_text)
{
    static const struct { const char *model, *pre; enum vocab_choice prefix; } kinds[] = {
        { "gpt2", "gpt-2", 0 }, { "gpt2", "smollm", 0 }, { "gpt2", "llama-bpe", 0 }, { "gpt2", "qwen2", 0 },
        { "gpt2", "qwen35", 0 }, { "gpt2", "laguna", 0 }, { "gpt2", "deepseek-v3", 0 }, { "gpt2", "bailingmoe", 0 },
        { "gpt2", "tekken", 0 }, { "gpt2", "gpt-4o", 0 }, { "gpt2", "default", 0 }, { "gemma4", "", 0 },
        { "llama", "", CHOICE_NO }, { "llama", "", CHOICE_YES },
    };
    for (size_t k = 0; k < COUNT(kinds); k++) {
        struct toy *t = toy_new(kinds[k].model, kinds[k].pre);
        bool bytes = strcmp(kinds[k].model, "gpt2") == 0;
        struct str space = str_of(bytes ? "\xc4\xa0" : "\xe2\x96\x81");
        for (char c = 'a'; !bytes && c <= 'z'; c++) toy_token(t, (struct str){ &c, 1 }, TOKEN_NORMAL, -1);
        if (!bytes) toy_token(t, space, TOKEN_NORMAL, -1);
        toy_token(t, str_of("ab"), TOKEN_NORMAL, 0);
        toy_token(t, str_of(bytes ? "\xc4\xa0""a" : "\xe2\x96\x81""a"), TOKEN_NORMAL, 0);
        toy_merge(t, str_of("a"), str_of("b"));
        toy_merge(t, space, str_of("a"));
        t->source.add_space_prefix = kinds[k].prefix;
        struct vocab *v = open_toy(t);
        bool nfc = strncmp(kinds[k].pre, "qwen", 4) == 0;
        for (int i = 0; v && i < 1500; i++) {
            char text[256];
            struct str s = { text, random_text(text, sizeof text, i % 3 == 0) };
            struct buf normal = { 0 };
            struct edits edits = { 0 };
            struct str want = s;
            if (nfc && nfc_apply(s, &normal, &edits)) want = (struct str){ normal.data, normal.len };
            check_round_trip(v, s, want, true);
            buf_drop(&normal);
            edits_drop(&edits);
        }
        vocab_close(v);
        toy_free(t);
    }
}

TEST(tokenize_any_bytes_give_ids_and_ranges)
{
    struct toy *t = toy_new("gpt2", "qwen2");
    struct vocab *v = open_toy(t);
    for (int i = 0; i < 3000; i++) {
        char text[64];
        struct str s = { text, test_random() % sizeof text };
        for (size_t k = 0; k < s.len; k++)
            text[k] = test_random() % 3 ? (char)test_random() : "\xe4\xcc\x81 a"[test_random() % 5];
        check_round_trip(v, s, s, false);
    }
    vocab_close(v);
    toy_free(t);
}

TEST(tokenize_spm_prefixes_a_space_and_falls_back_to_bytes)
{
    struct toy *t = toy_new("llama", "");
    int32_t s = toy_token(t, str_of("<s>"), TOKEN_CONTROL, 0);
    t->source.ids[ROLE_BOS] = s;
    int32_t space = toy_token(t, str_of("\xe2\x96\x81"), TOKEN_NORMAL, -5);
    int32_t a = toy_token(t, str_of("a"), TOKEN_NORMAL, -4);
    int32_t space_a = toy_token(t, str_of("\xe2\x96\x81""a"), TOKEN_NORMAL, -3);
    int32_t aa = toy_token(t, str_of("aa"), TOKEN_NORMAL, -2);
    struct vocab *v = open_toy(t);
    char want[80];
    snprintf(want, sizeof want, "%d %d", space_a, s);
    expect(v, &(struct tokenize){ .text = str_of("a<s>"), .flags = TOKENIZE_SPECIAL }, want);
    snprintf(want, sizeof want, "%d %d", space, aa);        /* "aa" scores higher than " a" */
    expect(v, &(struct tokenize){ .text = str_of("aa") }, want);
    snprintf(want, sizeof want, "%d %d %d %d", space_a, s, space_a, 'z');
    expect(v, &(struct tokenize){ .text = str_of("a<s>az"), .flags = TOKENIZE_SPECIAL }, want);
    snprintf(want, sizeof want, "%d %d %d", space_a, space, space_a);
    expect(v, &(struct tokenize){ .text = str_of("a \xe2\x96\x81""a") }, want);
    snprintf(want, sizeof want, "%d %d %d %d", space, 0xe4, 0xb8, 0xad);
    expect(v, &(struct tokenize){ .text = str_of("\xe4\xb8\xad") }, want);
    vocab_close(v);
    t->source.add_space_prefix = CHOICE_NO;
    v = open_toy(t);
    snprintf(want, sizeof want, "%d", a);
    expect(v, &(struct tokenize){ .text = str_of("a") }, want);
    /* Text that names a byte token is text. */
    expect(v, &(struct tokenize){ .text = str_of("<0x0A>") }, "60 48 120 48 65 62");
    vocab_close(v);
    toy_free(t);
}

/* Thousands of equals and of matches: each place looks at two tokens, not at all. */
TEST(tokenize_of_equal_specials_the_last_that_is_allowed_counts)
{
    enum { MATCHES = 20000 };
    struct toy *t = toy_new("gpt2", "gpt-2");
    char want[40];
    int32_t plain = -1, last = -1;
    for (int i = 0; i < 7000; i++) {
        int kind = test_random() % 2 || i == 7 ? TOKEN_USER_DEFINED : TOKEN_CONTROL;
        last = toy_token(t, str_of("<x>"), kind, 0);
        if (kind == TOKEN_USER_DEFINED) plain = last;
    }
    struct vocab *v = open_toy(t);
    snprintf(want, sizeof want, "97 %d 98", plain);
    expect(v, &(struct tokenize){ .text = str_of("a<x>b") }, want);
    snprintf(want, sizeof want, "97 %d 98", last);
    expect(v, &(struct tokenize){ .text = str_of("a<x>b"), .flags = TOKENIZE_SPECIAL }, want);
    struct buf many = { 0 };
    for (int i = 0; i < MATCHES; i++) buf_add_text(&many, "<x>");
    struct ids ids = { 0 };
    luce_error err = { 0 };
    CHECK_OK(vocab_tokenize(v, (struct str){ many.data, many.len }, 0, &ids, &err), err);
    CHECK_EQ(ids.len, MATCHES);
    ids_drop(&ids);
    buf_drop(&many);
    vocab_close(v);
    toy_free(t);
}

TEST(tokenize_phi3_specials_swallow_the_space_after_them)
{
    struct toy *t = toy_new("gpt2", "gpt-2");
    int32_t end = toy_token(t, str_of("<|end|>"), TOKEN_CONTROL, 0);
    int32_t s = toy_token(t, str_of("<s>"), TOKEN_CONTROL, 0);
    char want[40];
    t->source.name = str_of("My Phi-3 mini");
    struct vocab *v = open_toy(t);
    snprintf(want, sizeof want, "%d 97 %d 32 98", end, s);
    expect(v, &(struct tokenize){ .text = str_of("<|end|> \n\xe3\x80\x80""a<s> b"), .flags = TOKENIZE_SPECIAL }, want);
    vocab_close(v);
    toy_free(t);
}

TEST(tokenize_survives_each_failing_allocation)
{
    static const char *const models[] = { "gpt2", "llama", "gemma4" };
    for (size_t m = 0; m < COUNT(models); m++) {
        struct toy *t = toy_new(models[m], "qwen2");
        t->source.ids[ROLE_BOS] = toy_token(t, str_of("<s>"), TOKEN_CONTROL, 0);
        t->source.add_bos = CHOICE_YES;
        struct vocab *v = open_toy(t);
        size_t live = mem_live();
        int n = 0;
        for (luce_status st = LUCE_E_NOMEM; st; n++) {
            luce_error err = { 0 };
            struct ids ids = { 0 };
            struct token_ranges ranges = { 0 };
            struct vocab_guard *guard;
            struct tokenize call = {
                .text = str_of("\xff e\xcc\x81\xe2\x96\x81 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
                .flags = TOKENIZE_CHAT, .ranges = &ranges };
            mem_fail_after(n);
            st = vocab_tokenize_spans(v, &call, &ids, &err);
            if (!st) st = vocab_guard_new(&guard, v, str_of("<s>"), &err);
            mem_fail_never();
            if (!st) vocab_guard_free(guard);
            else CHECK(st == LUCE_E_NOMEM && (ids.len == 0 || strstr(err.text, "template")), "%s", err.text);
            ids_drop(&ids);
            token_ranges_drop(&ranges);
            CHECK_EQ(mem_live(), live);
            if (n > 100) break;
        }
        CHECK(n > 4 && n < 100, "%s: %d allocations", models[m], n);
        vocab_close(v);
        toy_free(t);
    }
}

TEST(tokenize_long_runs_with_merges_end)
{
    static const char *const models[] = { "gpt2", "llama", "gemma4" };
    enum { BYTES = 1000000 };
    for (size_t m = 0; m < COUNT(models); m++) {
        struct toy *t = toy_new(models[m], "qwen2");
        if (m) toy_token(t, str_of("A"), TOKEN_NORMAL, -9);
        char run[65];
        memset(run, 'A', sizeof run);
        for (size_t len = 2; len <= 64; len *= 2) {
            toy_token(t, (struct str){ run, len }, TOKEN_NORMAL, -(float)len);
            toy_merge(t, (struct str){ run, len / 2 }, (struct str){ run, len / 2 });
        }
        t->source.add_space_prefix = CHOICE_NO;
        struct vocab *v = open_toy(t);
        struct buf text = { 0 };
        char *at = buf_reserve(&text, BYTES);
        if (at) memset(at, 'A', BYTES);
        struct ids ids = { 0 };
        luce_error err = { 0 };
        CHECK_OK(vocab_tokenize(v, (struct str){ at, BYTES }, 0, &ids, &err), err);
        CHECK_EQ(ids.len, BYTES / 64);
        ids_drop(&ids);
        buf_drop(&text);
        vocab_close(v);
        toy_free(t);
    }
}
