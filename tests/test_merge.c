/* tests/test_merge.c - merging: by heap, by scanning, and cut at joints all give the same tokens, on
 * random vocabularies; and a definition written in the test agrees. */
#include "tests/test.h"
#include "tests/toy_vocab.h"
#include "text/merge.h"

static struct str random_word(char *out, int max)
{
    static const char *const letters[] = { "a", "b", "c", " ", "\xc3\xa9", "\xe4\xb8\xad", "\n" };
    size_t len = 0;
    for (int n = (int)(test_random() % (unsigned)max) + 1; n > 0; n--) {
        const char *letter = letters[test_random() % COUNT(letters)];
        memcpy(out + len, letter, strlen(letter));
        len += strlen(letter);
    }
    return (struct str){ out, len };
}

/* Tokens made by joining two earlier ones, so that each can be reached, in random order of rank. */
static struct toy *random_toy(const char *model, int n_merges)
{
    static const char *const letters[] = { "a", "b", "c", "\xe2\x96\x81", "\xc3\xa9", "\xe4\xb8\xad" };
    bool bytes = strcmp(model, "gpt2") == 0;
    struct toy *t = toy_new(model, bytes ? "gpt-2" : "");
    for (size_t i = 0; !bytes && i < COUNT(letters) - 1; i++)
        toy_token(t, str_of(letters[i]), TOKEN_NORMAL, (float)test_uniform(-9, 0));
    for (int i = 0; i < n_merges; i++) {
        size_t n = t->source.n_tokens;
        size_t first = bytes ? 0 : 256;
        struct str part[2];
        for (int k = 0; k < 2; k++) {
            static const unsigned char base[] = { 'a', 'b', 'c', ' ', 0xc3, 0xa9, 0xe4, 0xb8, 0xad };
            size_t id = bytes && test_random() % 2 ? base[test_random() % COUNT(base)]
                                                   : first + test_random() % (n - first);
            if (bytes && n > 256 && test_random() % 2) id = 256 + test_random() % (n - 256);
            part[k] = t->tokens[id];
        }
        char both[4096];
        if (part[0].len + part[1].len > 60) continue;
        memcpy(both, part[0].at, part[0].len);
        memcpy(both + part[0].len, part[1].at, part[1].len);
        struct str text = { both, part[0].len + part[1].len };
        bool known = false;
        for (size_t id = 0; id < n; id++) known |= str_eq(t->tokens[id], text);
        if (!known) toy_token(t, text, TOKEN_NORMAL, (float)(int)test_uniform(-20, 0));
        toy_merge(t, part[0], part[1]);
    }
    return t;
}

static bool same_symbols(const struct merger *a, const struct merger *b)
{
    if (a->n_symbols != b->n_symbols) return false;
    for (size_t i = 0; i < a->n_symbols; i++)
        if (a->symbols[i].id != b->symbols[i].id || a->symbols[i].from != b->symbols[i].from ||
            a->symbols[i].len != b->symbols[i].len) return false;
    return true;
}

TEST(merge_by_heap_equals_merge_by_scanning)
{
    static const char *const models[] = { "gpt2", "llama", "gemma4" };
    for (int round = 0; round < 60; round++) {
        struct toy *t = random_toy(models[round % 3], 4 + (int)(test_random() % 120));
        struct vocab *v;
        luce_error err = { 0 };
        CHECK_OK(vocab_open(&v, &t->source, &err), err);
        struct merger fast = { 0 }, naive = { 0 };
        for (int i = 0; v && i < 60; i++) {
            char text[1200];
            struct str piece = random_word(text, i % 3 ? 300 : 30);
            CHECK(merge_piece(&fast, v, piece) && merge_naive(&naive, v, piece));
            CHECK(same_symbols(&fast, &naive), "%s: %.*s", models[round % 3], (int)piece.len, piece.at);
        }
        merger_drop(&fast);
        merger_drop(&naive);
        vocab_close(v);
        toy_free(t);
    }
}

TEST(merge_does_not_reach_across_the_joints_that_no_token_has)
{
    size_t n_parts = 0, n_texts = 0;
    for (int round = 0; round < 30; round++) {
        struct toy *t = random_toy(round % 2 ? "llama" : "gemma4", 3 + (int)(test_random() % 12));
        struct vocab *v;
        luce_error err = { 0 };
        CHECK_OK(vocab_open(&v, &t->source, &err), err);
        struct merger whole = { 0 }, part = { 0 };
        for (int i = 0; v && i < 40; i++) {
            char text[1200];
            struct str piece = random_word(text, 200);
            CHECK(merge_naive(&whole, v, piece));
            size_t n = 0;
            bool same = true;
            for (size_t at = 0, len; at < piece.len; at += len, n_parts++) {
                len = joint_end(v, (struct str){ piece.at + at, piece.len - at });
                CHECK(merge_piece(&part, v, (struct str){ piece.at + at, len }));
                for (size_t k = 0; k < part.n_symbols; k++, n++)
                    same &= n < whole.n_symbols && part.symbols[k].id == whole.symbols[n].id &&
                            part.symbols[k].from + at == whole.symbols[n].from;
            }
            CHECK(same && n == whole.n_symbols, "%.*s", (int)piece.len, piece.at);
            n_texts++;
        }
        merger_drop(&whole);
        merger_drop(&part);
        vocab_close(v);
        toy_free(t);
    }
    CHECK(n_parts > 2 * n_texts, "%zu parts of %zu texts: nothing was cut", n_parts, n_texts);
}

/* The definition, in texts instead of ids: join the neighbours whose merge stands first. */
static size_t merge_by_definition(const struct toy *t, struct str *parts, size_t n)
{
    for (;;) {
        size_t best = 0, rank = t->source.n_merges;
        for (size_t i = 0; i + 1 < n; i++)
            for (size_t m = 0; m < rank; m++) {
                struct str merge = t->merges[m];
                const char *space = memchr(merge.at + 1, ' ', merge.len - 1);
                struct str left = { merge.at, (size_t)(space - merge.at) };
                struct str right = { space + 1, merge.len - left.len - 1 };
                if (str_eq(left, parts[i]) && str_eq(right, parts[i + 1])) {
                    rank = m;
                    best = i;
                }
            }
        if (rank == t->source.n_merges) return n;
        parts[best].len += parts[best + 1].len;
        memmove(parts + best + 1, parts + best + 2, (n - best - 2) * sizeof *parts);
        n--;
    }
}

TEST(merge_follows_the_merge_list)
{
    for (int round = 0; round < 40; round++) {
        struct toy *t = random_toy("gpt2", 3 + (int)(test_random() % 40));
        struct vocab *v;
        luce_error err = { 0 };
        CHECK_OK(vocab_open(&v, &t->source, &err), err);
        struct merger m = { 0 };
        for (int i = 0; v && i < 20; i++) {
            char text[200];
            struct str piece = random_word(text, 40);
            struct str coded = toy_alphabet(t, piece), parts[200];
            size_t n = 0;
            for (size_t at = 0; at < coded.len; n++) {
                int len;
                utf8_at(coded.at + at, &len);
                parts[n] = (struct str){ coded.at + at, (size_t)len };
                at += (size_t)len;
            }
            n = merge_by_definition(t, parts, n);
            CHECK(merge_piece(&m, v, piece));
            CHECK_EQ(m.n_symbols, n);
            for (size_t k = 0; k < n && k < m.n_symbols; k++)
                CHECK(str_eq(vocab_text(v, m.symbols[k].id), parts[k]), "%.*s", (int)piece.len, piece.at);
        }
        merger_drop(&m);
        vocab_close(v);
        toy_free(t);
    }
}
