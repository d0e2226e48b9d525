/* tests/toy_vocab.h - small vocabularies for tests and fuzzing: 256 bytes, words merged from them, and
 * special tokens, as GGUF files describe them. The alphabet is written out here from its definition,
 * apart from the code under test. */
#ifndef LUCE_TESTS_TOY_VOCAB_H
#define LUCE_TESTS_TOY_VOCAB_H

#include "base/arena.h"
#include "base/mem.h"
#include "text/unicode.h"
#include "text/vocab.h"

enum { TOY_MAX = 8192 };

struct toy {
    struct arena arena;
    struct str tokens[TOY_MAX], merges[TOY_MAX];
    int32_t kinds[TOY_MAX];
    float scores[TOY_MAX];
    struct vocab_source source;
};

static inline struct str toy_text(struct toy *t, const char *bytes, size_t len)
{
    return (struct str){ arena_text(&t->arena, bytes, len), len };
}

static inline int32_t toy_token(struct toy *t, struct str text, enum token_kind kind, float score)
{
    size_t id = t->source.n_tokens++;
    t->tokens[id] = toy_text(t, text.at, text.len);
    t->kinds[id] = kind;
    t->scores[id] = score;
    return (int32_t)id;
}

static inline void toy_merge(struct toy *t, struct str left, struct str right)
{
    struct buf b = { 0 };
    buf_add(&b, left.at, left.len);
    buf_add_char(&b, ' ');
    buf_add(&b, right.at, right.len);
    t->merges[t->source.n_merges++] = toy_text(t, b.data, b.len);
    buf_drop(&b);
}

/* The byte-level alphabet: printable Latin-1 is itself, the others count up from U+0100. */
static inline struct str toy_alphabet(struct toy *t, struct str bytes)
{
    struct buf b = { 0 };
    for (size_t i = 0; i < bytes.len; i++) {
        unsigned byte = (unsigned char)bytes.at[i], code = byte;
        bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        if (!printable) {
            code = 0x100;
            for (unsigned c = 0; c < byte; c++)
                code += !((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || c >= 0xae);
        }
        char utf8[4];
        buf_add(&b, utf8, (size_t)utf8_put(utf8, code));
    }
    struct str out = toy_text(t, b.data ? b.data : "", b.len);
    buf_drop(&b);
    return out;
}

/* Starts a vocabulary with a token for each byte: ids 0 to 255. */
static inline struct toy *toy_new(const char *model, const char *pre)
{
    struct toy *t = mem_zero(sizeof *t);
    t->source = vocab_source_empty();
    t->source.path = "toy";
    t->source.model = str_of(model);
    t->source.pre = str_of(pre);
    t->source.tokens = t->tokens;
    t->source.merges = t->merges;
    t->source.kinds = t->kinds;
    t->source.scores = t->scores;
    for (int b = 0; b < 256; b++) {
        char byte = (char)b, name[8];
        if (strcmp(model, "gpt2") == 0) {
            toy_token(t, toy_alphabet(t, (struct str){ &byte, 1 }), TOKEN_NORMAL, 0);
            continue;
        }
        static const char hex[] = "0123456789ABCDEF";
        memcpy(name, "<0x..>", 7);
        name[3] = hex[b >> 4];
        name[4] = hex[b & 15];
        toy_token(t, (struct str){ name, 6 }, TOKEN_BYTE, 0);
    }
    return t;
}

static inline void toy_free(struct toy *t)
{
    arena_drop(&t->arena);
    mem_free(t);
}

#endif
