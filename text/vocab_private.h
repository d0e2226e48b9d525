/* text/vocab_private.h - the vocabulary as text/ sees it: tokens, lookup tables, special tokens.
 * Three ways to merge share one table of pieces and one engine (merge.h); they differ in what a
 * piece starts as (bytes or characters) and in how a pair's rank is found (merge list or score). */
#ifndef LUCE_TEXT_VOCAB_PRIVATE_H
#define LUCE_TEXT_VOCAB_PRIVATE_H

#include <stdatomic.h>

#include "text/pretokenize.h"
#include "text/vocab.h"

enum vocab_model { MODEL_GPT2, MODEL_SPM, MODEL_GEMMA4 };

struct token {
    const char *raw;            /* in the source */
    const char *bytes;          /* what the token stands for; in vocab.bytes or equal to raw */
    uint32_t raw_len, bytes_len;
    uint8_t kind;               /* enum token_kind, as corrected */
    bool is_end, banned, strip_right;
    /* Whether merging this token's own bytes gives this one token, found out at first use. Then
     * a whole piece that spells the token needs no merging. Any thread may set it, to the same
     * value. */
    _Atomic uint8_t whole;      /* enum whole */
};
enum whole { WHOLE_UNKNOWN, WHOLE_YES, WHOLE_NO };

/* Ids by the tokens' bytes (pieces) or by their raw text. */
struct text_slot {
    uint32_t hash;
    int32_t id;                 /* -1: free */
};
struct text_table {
    struct text_slot *slots;
    uint32_t mask;
};

/* A pair of tokens that merge, or no pair: rank NO_RANK. The smallest rank merges first. */
struct pair {
    uint32_t rank;
    int32_t id;
};
#define NO_RANK UINT32_MAX
struct pair_slot {
    int32_t left, right;        /* left -1: free */
    struct pair pair;
};

struct vocab {
    enum vocab_model model;
    const struct pretokenizer *pre;         /* NULL for SPM */
    struct token *tokens;
    int n_tokens;
    char *bytes;                            /* decoded token bytes */
    struct vocab_special special;
    bool add_space_prefix;

    struct text_table raws;                 /* all tokens, by raw text */
    struct text_table pieces;               /* those that merging may give, by bytes */
    uint32_t max_piece;                     /* longest in bytes */
    int32_t byte_id[256];                   /* the token of a byte that has no other; -1: none */
    int32_t first_id[128];                  /* the piece of one ASCII character; -1: none */
    struct pair_slot *pairs;                /* NULL for SPM */
    uint32_t pair_mask;
    uint32_t *score_rank;                   /* SPM: by id, falling with the score */
    uint32_t *joints;                       /* see merge.c; NULL for MODEL_GPT2 */

    /* Special tokens in byte order of their text. */
    int32_t *specials;
    int n_specials;
    int32_t by_first[257];                  /* specials[by_first[b] ..] begin with byte b */
    uint64_t by_two[1024];                  /* bit b0 * 256 + b1: some special begins so */
};

/* The token that merging may give with these bytes, or -1. */
int32_t piece_find(const struct vocab *v, const char *bytes, size_t len);

/* vocab_tables.c: builds the tables above from the tokens. */
luce_status build_raws(struct vocab *v, const struct vocab_source *s, luce_error *err);
luce_status build_pieces(struct vocab *v, luce_error *err);
luce_status build_pairs(struct vocab *v, const struct vocab_source *s, luce_error *err);
luce_status build_scores(struct vocab *v, const struct vocab_source *s, luce_error *err);
/* Bytes of a raw text in the byte-level alphabet; `out` has room for raw.len. Text outside the
 * alphabet is kept as it is. */
size_t alphabet_decode(struct str raw, char *out);
/* Bytes of a raw text in which U+2581 stands for a space; room as above. */
size_t spaces_decode(struct str raw, char *out);
/* The byte that a text "<0xHH>" names, or -1. */
int named_byte(struct str raw);

/* special.c: roles and kinds by text, end of generation, the sorted list. */
void correct_roles(struct vocab *v);
void mark_ends(struct vocab *v);
luce_status build_specials(struct vocab *v, struct str model_name, luce_error *err);
/* The next special token at or after `from` for which allowed() holds (leftmost, then longest).
 * Returns its place, or text.len; *id is then -1. */
typedef bool special_allowed(void *context, int32_t id, size_t from, size_t to);
size_t special_next(const struct vocab *v, struct str text, size_t from, special_allowed *allowed,
                    void *context, int32_t *id);

#endif
