/* tests/test_pretokenize.c - the hand-written splitters against samples, against the regular
 * expressions that they stand for (PCRE2), and on long runs. */
#include "base/buf.h"
#include "tests/test.h"
#include "text/pretokenize.h"
#include "text/unicode.h"

#define INPUT_A "I'LL pay 12345 $ for  x2;\r\n\r\n    if a:\n\t}"
#define INPUT_B "na\u00efve e\u0301te\u0301 HTTPServer\u3000東京タワー2024年"
#define INPUT_C "a  1   \n\n b"
#define INPUT_D "foo();\n\n\nbar\r\n"

/* Pieces separated by bars; none of the inputs holds one. */
static const struct { const char *name, *input, *pieces; } samples[] = {
    { "gpt-2", INPUT_A,
      "I|'|LL| pay| 12345| $| for| | x|2|;|\r\n\r\n   | if| a|:|\n|\t|}" },
    { "gpt-2", INPUT_C, "a| | 1|   \n\n| b" },
    { "gpt-2", INPUT_D, "foo|();|\n\n|\n|bar|\r\n" },
    { "smollm", INPUT_A,
      "I|'|LL| pay| |1|2|3|4|5| $| for| | x|2|;|\r\n\r\n   | if| a|:|\n|\t|}" },
    { "smollm", INPUT_C, "a|  |1|   \n\n| b" },
    { "llama-bpe", INPUT_A, "I|'LL| pay| |123|45| $| for| | x|2|;\r\n\r\n|   | if| a|:\n|\t|}" },
    { "llama-bpe", INPUT_B, "na\u00efve| e|\u0301te|\u0301| HTTPServer|\u3000東京タワー|202|4|年" },
    { "llama-bpe", INPUT_D, "foo|();\n\n\n|bar|\r\n" },
    { "qwen2", INPUT_A, "I|'LL| pay| |1|2|3|4|5| $| for| | x|2|;\r\n\r\n|   | if| a|:\n|\t|}" },
    { "qwen2", INPUT_C, "a| | |1|   \n\n| b" },
    { "qwen35", INPUT_A, "I|'LL| pay| |1|2|3|4|5| $| for| | x|2|;\r\n\r\n|   | if| a|:\n|\t|}" },
    { "qwen35", INPUT_B, "na\u00efve| e\u0301te\u0301| HTTPServer|\u3000東京タワー|2|0|2|4|年" },
    { "deepseek-v3", INPUT_A, "I|'LL| pay| |123|45| $| for| | x|2|;\r\n\r\n|   | if| a|:\n|\t|}" },
    { "deepseek-v3", INPUT_B, "na\u00efve| e\u0301te\u0301| HTTPServer|\u3000|東京タワー|202|4|年" },
    { "deepseek-v3", INPUT_C, "a|  |1|   \n\n| b" },
    { "laguna", INPUT_A, "I|'LL| pay| |1|2|3|4|5| $| for| | x|2|;|\r\n\r\n|   | if| a|:|\n|\t|}" },
    { "laguna", INPUT_C, "a| | |1|   |\n\n| b" },
    { "laguna", INPUT_D, "foo|();|\n\n\n|bar|\r\n" },
    { "tekken", INPUT_B, "na\u00efve| e\u0301te\u0301| HTTPServer|\u3000東京タワー|2|0|2|4|年" },
    { "bailingmoe", INPUT_B, "na\u00efve| e|\u0301te|\u0301| HTTPServer|\u3000東京タワー|2|0|2|4|年" },
    { "bailingmoe2", INPUT_C, "a| | |1|   \n\n| b" },
    { "gpt-4o", "HTTPServer's we'LLx 1234 a/b//\n", "HTTPServer's| we'LL|x| |123|4| a|/b|//\n" },
    { "default", "a$+b 12345", "a|$+|b| |123|45" },
    { "gemma4", "a b\n\n\nc d", "a b|\n\n\n|c d" },
};

static void join_pieces(const struct pretokenizer *row, struct str text, char bar, struct buf *out)
{
    struct splitter s = { .row = row, .p = text.at, .end = text.at + text.len };
    struct str piece;
    for (bool first = true; split_next(&s, &piece); first = false) {
        if (!first) buf_add_char(out, bar);
        buf_add(out, piece.at, piece.len);
    }
}

TEST(pretokenize_samples_split_as_their_models_do)
{
    for (size_t i = 0; i < COUNT(samples); i++) {
        const struct pretokenizer *row = pretokenizer_find(str_of(samples[i].name));
        CHECK(row, "%s is not known", samples[i].name);
        if (!row) continue;
        struct buf found = { 0 };
        join_pieces(row, str_of(samples[i].input), '|', &found);
        CHECK(strcmp(buf_text(&found), samples[i].pieces) == 0, "%s: \"%s\", expected \"%s\"", samples[i].name,
              buf_text(&found), samples[i].pieces);
        buf_drop(&found);
    }
}

TEST(pretokenize_knows_rows_by_each_of_their_names_only)
{
    CHECK(pretokenizer_find(str_of("qwen2")) == pretokenizer_find(str_of("megrez")));
    CHECK(pretokenizer_find(str_of("joyai-llm")) == pretokenizer_find(str_of("deepseek-v3")));
    CHECK_EQ(pretokenizer_find(str_of("qwen")), NULL);
    CHECK_EQ(pretokenizer_find(str_of("")), NULL);
    CHECK_EQ(pretokenizer_find(str_of("qwen2 megrez")), NULL);
}

/* A million characters without a break must neither exhaust a stack nor take more than linear time;
 * every step is counted by its piece, so the pieces must add up to the text. */
TEST(pretokenize_long_runs_are_split_without_loss)
{
    static const char *const units[] = { "A", "Z", " ", ".", "\xe4\xb8\xad", "\n", "7", "\xf0\x9f\x98\x80", "\r\n",
                                         "e\xcc\x81", "Ab", "a1", "$x", "\xe6\x9d\xb1Q", "\x01", "'s", "\t" };
    enum { BYTES = 1000000 };
    struct buf text = { 0 };
    for (size_t u = 0; u < COUNT(units); u++) {
        buf_clear(&text);
        while (text.len < BYTES) buf_add_text(&text, units[u]);
        for (size_t r = 0; pretokenizer_at(r); r++) {
            struct splitter s = { .row = pretokenizer_at(r), .p = text.data, .end = text.data + text.len };
            struct str piece;
            size_t total = 0, empty = 0;
            while (split_next(&s, &piece)) {
                total += piece.len;
                empty += piece.len == 0;
            }
            CHECK(total == text.len && empty == 0, "%s on '%s': %zu bytes, %zu empty pieces", s.row->names,
                  units[u], total, empty);
        }
    }
    buf_drop(&text);
}

#ifdef LUCE_HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define WS "\\x09-\\x0D\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define SPACE "[" WS "]"
#define NOT_SPACE "[^" WS "]"
#define SPACES "|" SPACE "+(?!" NOT_SPACE ")|" SPACE "+"
#define LINES "|" SPACE "*[\\r\\n]+"
#define SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+" SPACES
#define WORDS(letters, digits) \
    SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?[" letters "]+|" digits "| ?[^" WS letters "\\p{N}]+[\\r\\n]*" LINES SPACES
#define UPPERS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWERS "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(suffix, digits)                                                                       \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPERS "*" LOWERS "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UPPERS "+" LOWERS \
    "*" suffix "|" digits "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]*" LINES SPACES
#define DEEPSEEK                                                                                    \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"  \
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*" LINES SPACES

/* The rows as regular expressions; '<' before one: cut before its matches, otherwise isolate them. */
static const struct { const char *name, *steps[SPLIT_STEPS]; } oracles[] = {
    { "gpt-2", { GPT2 } },
    { "smollm", { "\\p{N}", GPT2 } },
    { "llama-bpe", { WORDS("\\p{L}", "\\p{N}{1,3}") } },
    { "qwen2", { WORDS("\\p{L}", "\\p{N}") } },
    { "qwen35", { WORDS("\\p{L}\\p{M}", "\\p{N}") } },
    { "laguna", { "<(?:\\r?\\n)+(?!\\r?\\n)", WORDS("\\p{L}", "\\p{N}") } },
    { "deepseek-v3", { "\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+", DEEPSEEK } },
    { "bailingmoe", { "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" WS
                      "\\p{L}\\p{N}]++[\\r\\n]*|" SPACE "*[\\r\\n]" SPACES } },
    { "tekken", { CASED("", "\\p{N}") } },
    { "gpt-4o", { CASED(SUFFIX "?", "\\p{N}{1,3}") } },
    { "default", { "[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]" } },
    { "gemma4", { "[^\\n]+|\\n+" } },
};

struct oracle {
    pcre2_code *code[SPLIT_STEPS];
    bool cut_before[SPLIT_STEPS];
    pcre2_match_data *match;
};

static void oracle_open(struct oracle *o, const char *const steps[SPLIT_STEPS])
{
    *o = (struct oracle){ .match = pcre2_match_data_create(8, NULL) };
    for (int i = 0; i < SPLIT_STEPS && steps[i]; i++) {
        int error;
        PCRE2_SIZE at;
        o->cut_before[i] = *steps[i] == '<';
        o->code[i] = pcre2_compile((PCRE2_SPTR)(steps[i] + o->cut_before[i]), PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
        CHECK(o->code[i], "step %d does not compile at %zu: error %d", i, at, error);
    }
}

static void oracle_close(struct oracle *o)
{
    for (int i = 0; i < SPLIT_STEPS; i++) pcre2_code_free(o->code[i]);
    pcre2_match_data_free(o->match);
}

/* Marks cut[i] where a piece begins at byte base + i of the whole text. */
static void oracle_split(const struct oracle *o, int step, const char *text, size_t len, char *cut)
{
    if (step == SPLIT_STEPS || !o->code[step]) return;
    size_t at = 0, piece = 0;
    char *marks = mem_zero(len + 1);
    while (at < len && pcre2_match(o->code[step], (PCRE2_SPTR)text, len, at, 0, o->match, NULL) > 0) {
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(o->match);
        marks[range[0]] = 1;
        if (!o->cut_before[step]) marks[range[1]] = 1;
        at = range[1];
    }
    marks[len] = 1;
    for (size_t i = 1; i <= len; i++) {
        if (!marks[i]) continue;
        cut[piece] = 1;
        oracle_split(o, step + 1, text + piece, i - piece, cut + piece);
        piece = i;
    }
    mem_free(marks);
}

static void print_text(struct buf *b, const char *text, const char *cut, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (cut[i] && i) buf_add_char(b, '|');
        if (text[i] > ' ' && text[i] < 0x7f) buf_add_char(b, text[i]);
        else buf_printf(b, "\\x%02x", (unsigned char)text[i]);
    }
}

static void compare(const struct oracle *o, const struct pretokenizer *row, const char *text, size_t len)
{
    char *want = mem_zero(len + 1), *found = mem_zero(len + 1);
    oracle_split(o, 0, text, len, want);
    struct splitter s = { .row = row, .p = text, .end = text + len };
    struct str piece;
    while (split_next(&s, &piece)) found[piece.at - text] = 1;
    if (memcmp(want, found, len)) {
        struct buf a = { 0 }, b = { 0 };
        print_text(&a, text, found, len);
        print_text(&b, text, want, len);
        test_failed(__FILE__, __LINE__, "%s: %s, expected %s", row->names, buf_text(&a), buf_text(&b));
        buf_drop(&a);
        buf_drop(&b);
    }
    mem_free(want);
    mem_free(found);
}

/* Characters at which the expressions branch, and long assigned blocks for the rest. */
static size_t random_text(char *out, size_t max)
{
    static const uint32_t codes[] = {
        ' ', ' ', ' ', '\n', '\n', '\r', '\t', '\v', '\f', 0x85, 0xa0, 0x1680, 0x2003, 0x2028, 0x3000, 0x180e,
        0x200b, 0x200d, 0xfeff, '\'', '\'', '\'', 's', 't', 'r', 'e', 'v', 'm', 'l', 'd', 'S', 'L', 'V', 'E',
        0x17f, 'a', 'b', 'A', 'B', 0xe9, 0xc9, 0x1c5, 0x2b0, 0x301, 0x323, 0x93e, 0x20dd, '0', '1', '2', '9',
        0xb2, 0xbd, 0x0663, 0x2167, 0x4e00, 0x9fa5, 0x9fa6, 0x3040, 0x3042, 0x3099, 0x30a2, 0x30fb, 0x30fc, 0x3100,
        0xac00, '.', ',', '!', '-', '/', '/', '$', '+', '<', '=', '|', '~', '^', '`', '_', '(', '"', '@', 0xa7,
        0x2014, 0x20ac, 0x2581, 0x1f600, 0x1f3fd, 0xfe0f, 0, 1, 0x7f, 0xe000, 0xfffd, 0x10ffff,
    };
    static const struct { uint32_t from, to; } blocks[] = {
        { 0x20, 0x7f }, { 0xa0, 0x250 }, { 0x370, 0x378 }, { 0x400, 0x482 }, { 0x5d0, 0x5eb }, { 0x621, 0x64b },
        { 0x905, 0x93a }, { 0xe01, 0xe3b }, { 0x2010, 0x2060 }, { 0x2100, 0x2150 }, { 0x2190, 0x2400 },
        { 0x4e00, 0x9fa6 }, { 0xac00, 0xd7a4 }, { 0x1d400, 0x1d455 }, { 0x1f600, 0x1f640 },
    };
    size_t len = 0, n = test_random() % 24 + 1;
    for (size_t i = 0; i < n && len + 4 <= max; i++) {
        size_t block = test_random() % COUNT(blocks);
        uint32_t code = codes[test_random() % COUNT(codes)];
        if (test_random() % 5 == 0)
            code = blocks[block].from + (uint32_t)(test_random() % (blocks[block].to - blocks[block].from));
        int repeats = test_random() % 6 ? 1 : (int)(test_random() % 5);
        for (int k = 0; k <= repeats - 1 && len + 4 <= max; k++) len += (size_t)utf8_put(out + len, code);
    }
    return len;
}

TEST(pretokenize_equals_the_regular_expressions)
{
    enum { TEXTS = 6000 };
    for (size_t r = 0; r < COUNT(oracles); r++) {
        struct oracle o;
        oracle_open(&o, oracles[r].steps);
        const struct pretokenizer *row = pretokenizer_find(str_of(oracles[r].name));
        for (int i = 0; i < TEXTS; i++) {
            char text[512];
            size_t len = random_text(text, sizeof text);
            compare(&o, row, text, len);
        }
        oracle_close(&o);
    }
    for (size_t r = 0; pretokenizer_at(r); r++) {
        bool found = false;
        for (size_t i = 0; i < COUNT(oracles); i++)
            found |= pretokenizer_find(str_of(oracles[i].name)) == pretokenizer_at(r);
        CHECK(found, "%s has no oracle", pretokenizer_at(r)->names);
    }
}
#endif
