/* text/unicode.h - characters of UTF-8 text: decoding, classes, repair of invalid bytes, NFC.
 * Classes are those that pre-tokenizer patterns ask for; they come from utf8proc's tables, except
 * white space, which is the White_Space property of Unicode. */
#ifndef LUCE_TEXT_UNICODE_H
#define LUCE_TEXT_UNICODE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

enum char_class {
    CLASS_UPPER = 1,            /* Lu Lt */
    CLASS_LOWER = 2,            /* Ll */
    CLASS_UNCASED = 4,          /* Lm Lo */
    CLASS_MARK = 8,
    CLASS_NUMBER = 16,
    CLASS_PUNCT = 32,
    CLASS_SYMBOL = 64,
    CLASS_SPACE = 128,          /* White_Space; everything else has no class */
    CLASS_LETTER = CLASS_UPPER | CLASS_LOWER | CLASS_UNCASED
};

extern const uint8_t ascii_class[128];
/* The classes of any code point; ascii_class is its table for the first 128. */
uint8_t class_of(uint32_t code);

struct character {
    uint32_t code;
    uint8_t len;                /* bytes; 0 at the end of the text */
    uint8_t class;
};
/* Code and length of the character at p < end. The text must be valid UTF-8. */
static inline uint32_t utf8_at(const char *p, int *len)
{
    const unsigned char *u = (const unsigned char *)p;
    if (u[0] < 0x80) return *len = 1, u[0];
    if (u[0] < 0xe0) return *len = 2, (uint32_t)(u[0] & 0x1f) << 6 | (u[1] & 0x3f);
    if (u[0] < 0xf0)
        return *len = 3, (uint32_t)(u[0] & 0x0f) << 12 | (uint32_t)(u[1] & 0x3f) << 6 |
                             (u[2] & 0x3f);
    return *len = 4, (uint32_t)(u[0] & 0x07) << 18 | (uint32_t)(u[1] & 0x3f) << 12 |
                         (uint32_t)(u[2] & 0x3f) << 6 | (u[3] & 0x3f);
}

static inline struct character char_at(const char *p, const char *end)
{
    if (p == end) return (struct character){ 0 };
    if ((unsigned char)*p < 0x80)
        return (struct character){ (unsigned char)*p, 1, ascii_class[(unsigned char)*p] };
    int len;
    uint32_t code = utf8_at(p, &len);
    return (struct character){ code, (uint8_t)len, class_of(code) };
}

/* Writes the character's 1 to 4 bytes and returns their number. */
int utf8_put(char *out, uint32_t code);

/* How many of the first bytes form a valid character (1 to 4). If they do not: 0 when more bytes
 * could complete them, otherwise -n, where n bytes are the longest start that can never become
 * valid. */
int utf8_valid(const char *p, size_t len);

/* Where a changed text came from: sorted stretches that differ; between them it is the same bytes,
 * moved. */
struct edit {
    size_t out, out_len, in, in_len;
};
struct edits {
    struct edit *at;
    size_t len, cap;
    bool failed;                /* out of memory */
};
void edits_add(struct edits *e, struct edit edit);
void edits_drop(struct edits *e);
/* Where in the source the characters that begin (that end) at byte `out` of the changed text begin
 * (end). */
size_t edits_from(const struct edits *e, size_t out);
size_t edits_to(const struct edits *e, size_t out);

/* Copies `text` to *out with each longest invalid start of a character as one U+FFFD. Returns
 * false, and copies nothing, when the text is valid as it stands. */
bool utf8_repair(struct str text, struct buf *out, struct edits *edits);

/* Copies valid `text` to *out in Normalization Form C. Returns false, and copies nothing, when the
 * text is in that form as it stands. Linear: also long runs of marks are. */
bool nfc_apply(struct str text, struct buf *out, struct edits *edits);

#endif
