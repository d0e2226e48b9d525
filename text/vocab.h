/* text/vocab.h - a model's vocabulary: token ids from bytes and back.
 * Built once from GGUF metadata (untrusted, checked here) and constant after; any thread may use it.
 * Tokenising is linear in the text up to a logarithm, never recursive, and total: any bytes give ids. */
#ifndef LUCE_TEXT_VOCAB_H
#define LUCE_TEXT_VOCAB_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "gguf/reader.h"

struct vocab;

enum token_kind {               /* as in tokenizer.ggml.token_type */
    TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE
};

/* Reads the tokenizer keys of g. Token texts stay in the file's mapping: g must outlive the vocab.
 * LUCE_E_FORMAT for contradictions, LUCE_E_UNSUPPORTED for a model or pre-tokenizer that is not in
 * the tables (the message lists those that are). Warnings go to the log. */
luce_status vocab_open(struct vocab **out, const struct gguf *g, luce_error *err);
void vocab_close(struct vocab *v);

int vocab_size(const struct vocab *v);
struct str vocab_text(const struct vocab *v, int32_t id);       /* raw text in the file */
enum token_kind vocab_kind(const struct vocab *v, int32_t id);
/* The id whose raw text is `text`, or -1. */
int32_t vocab_find(const struct vocab *v, struct str text);
/* Special ids, -1 when the file has none. */
struct vocab_special {
    int32_t bos, eos, eot, eom, unk, pad;
    bool add_bos, add_eos;      /* what a raw prompt gets */
};
struct vocab_special vocab_special(const struct vocab *v);
/* Generation stops after this token (tokenizers.md, end-of-generation set). */
bool vocab_is_end(const struct vocab *v, int32_t id);
/* Never to be generated: padding entries and suppressed tokens. */
bool vocab_is_banned(const struct vocab *v, int32_t id);

struct ids {                    /* growable ids; zeroed is empty */
    int32_t *at;
    size_t   len, cap;
    bool     failed;            /* out of memory */
};
void ids_add(struct ids *ids, int32_t id);
void ids_drop(struct ids *ids);

enum tokenize_flags {
    TOKENIZE_SPECIAL = 1,       /* text that spells a control token becomes that token */
    TOKENIZE_BOS_EOS = 2,       /* add BOS and EOS as the file says for a raw prompt */
};
/* Appends the ids of `text` to *out. Invalid UTF-8 becomes U+FFFD first. LUCE_E_NOMEM only. */
luce_status vocab_tokenize(const struct vocab *v, struct str text, unsigned flags, struct ids *out,
                           luce_error *err);

/* Ids back to bytes, token by token, never half a character. Zero-initialise; `first` handling of
 * SPM's leading space follows from the state. */
struct detok {
    char held[4];               /* an incomplete UTF-8 tail */
    int  n_held;
    bool started;
};
enum detok_flags {
    DETOK_SPECIAL = 1,          /* control tokens are written out as their raw text */
};
/* Appends what has become complete. Bytes that can never become valid are written as U+FFFD. */
void detok_add(struct detok *d, const struct vocab *v, int32_t id, unsigned flags, struct buf *out);
/* The text ends: a held tail becomes one U+FFFD. */
void detok_end(struct detok *d, struct buf *out);
/* The bytes of one token, as they stand (may be part of a character). */
void token_bytes(const struct vocab *v, int32_t id, unsigned flags, struct buf *out);

#endif
