/* text/vocab.h - a model's vocabulary: token ids from bytes and back.
 * Built once from a model's metadata (untrusted, checked here) and constant after; any thread may
 * use it. Tokenising is linear in the text up to a logarithm, never recursive, and total: any bytes
 * give ids. */
#ifndef LUCE_TEXT_VOCAB_H
#define LUCE_TEXT_VOCAB_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

/* For errors; %s: the model's file. */
#define NO_VOCABULARY "%s is without a vocabulary (key 'tokenizer.ggml.model'): it takes and gives token ids, " \
                      "not text; convert it again with its tokenizer"

struct vocab;

enum token_kind {               /* as in tokenizer.ggml.token_type */
    TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE
};

enum special_role {
    ROLE_BOS, ROLE_EOS, ROLE_EOT, ROLE_EOM, ROLE_UNKNOWN, ROLE_PADDING,
    ROLE_FIM_PREFIX, ROLE_FIM_SUFFIX, ROLE_FIM_MIDDLE, ROLE_FIM_PADDING, ROLE_FIM_REPO,
    ROLE_FIM_FILE, N_ROLES
};

/* What a model file says about its tokenizer. Everything is borrowed for the time of vocab_open,
 * except the bytes of `tokens`, which the vocabulary goes on pointing at. Start from
 * vocab_source_empty(): absent ids are -1, absent arrays NULL, absent strings empty. */
struct vocab_source {
    const char *path;           /* for messages */
    struct str name;            /* general.name */
    struct str model, pre;      /* tokenizer.ggml.model, tokenizer.ggml.pre */
    size_t n_tokens, n_merges, n_suppressed;
    const struct str *tokens, *merges;      /* a merge is "left right" */
    const float *scores;        /* n_tokens of them, or NULL */
    const int32_t *kinds;       /* n_tokens of them, or NULL: all TOKEN_NORMAL */
    const int32_t *suppressed;  /* ids that must not be generated */
    int64_t ids[N_ROLES];
    enum vocab_choice { CHOICE_DEFAULT, CHOICE_NO, CHOICE_YES } add_bos, add_eos, add_space_prefix;
};
struct vocab_source vocab_source_empty(void);

/* LUCE_E_FORMAT for contradictions, LUCE_E_UNSUPPORTED for a model or pre-tokenizer that is not in
 * the tables (the message lists those that are). What can be put right is, with a warning. */
luce_status vocab_open(struct vocab **out, const struct vocab_source *source, luce_error *err);
void vocab_close(struct vocab *v);

int vocab_size(const struct vocab *v);
struct str vocab_text(const struct vocab *v, int32_t id);       /* raw text in the file */
enum token_kind vocab_kind(const struct vocab *v, int32_t id);
/* The id whose raw text is `text`, or -1. Of equal texts the highest id. */
int32_t vocab_find(const struct vocab *v, struct str text);
/* Special ids by role, -1 when there is none; corrected by text where the file is silent. */
struct vocab_special {
    int32_t ids[N_ROLES];
    bool add_bos, add_eos;      /* what a raw prompt gets */
};
struct vocab_special vocab_special(const struct vocab *v);
/* Generation stops after this token (docs/tokenizers.md, "End of generation"). */
bool vocab_is_end(const struct vocab *v, int32_t id);
/* Never to be generated: padding entries of the table and suppressed tokens. */
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
    TOKENIZE_CHAT = 4,          /* a rendered chat: BOS as the file says, unless it is there */
};
/* Appends the ids of `text` to *out. Invalid UTF-8 becomes U+FFFD first. LUCE_E_NOMEM; LUCE_E_ARG
 * for a text of 1 GiB or more. After a failure *out holds what it held before. */
luce_status vocab_tokenize(const struct vocab *v, struct str text, unsigned flags, struct ids *out,
                           luce_error *err);

/* Which bytes of a text may become special tokens. Spans are in order and do not overlap; bytes in
 * no span are plain. Spans only gate the matching of special tokens, they never cut the text: ids
 * merge across their borders as if they were not there. */
struct text_span {
    size_t from, to;
    enum span_trust {
        SPAN_PLAIN,             /* a user's words: no control, guarded or end-of-generation token */
        SPAN_TEMPLATE           /* the template's words: every special token */
    } trust;
};
/* The special tokens that a chat template's own text spells: plain spans never yield them, even
 * where the vocabulary counts them as ordinary user-defined tokens. Free with vocab_guard_free. */
struct vocab_guard;
luce_status vocab_guard_new(struct vocab_guard **out, const struct vocab *v,
                            struct str template_text, luce_error *err);
void vocab_guard_free(struct vocab_guard *g);

/* Bytes of the text that became one token: [from, to). Tokens that share a character share its
 * range; an added BOS or EOS has an empty one. */
struct token_range {
    size_t from, to;
};
struct token_ranges {           /* growable; zeroed is empty */
    struct token_range *at;
    size_t len, cap;
    bool failed;
};
void token_ranges_drop(struct token_ranges *r);

struct tokenize {               /* one call; 0 means the usual */
    struct str text;
    unsigned flags;             /* without TOKENIZE_SPECIAL when there are spans */
    const struct text_span *spans;
    size_t n_spans;             /* 0: the whole text is plain, or template with TOKENIZE_SPECIAL */
    const struct vocab_guard *guard;
    struct token_ranges *ranges;    /* wanted: gets one range for each id that is appended */
};
/* vocab_tokenize with all its inputs. */
luce_status vocab_tokenize_spans(const struct vocab *v, const struct tokenize *t, struct ids *out,
                                 luce_error *err);

/* Ids back to bytes, token by token, never half a character. Zero-initialise for a fresh text; set
 * `started` for the continuation of one (SPM drops the first space of a fresh text only). */
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
