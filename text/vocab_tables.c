/* text/vocab_tables.c - the lookup tables of a vocabulary: pieces by bytes, pairs by ids, ranks by
 * score. All are open addressing over power-of-two arrays, at most three quarters full. */
#include <inttypes.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "text/unicode.h"
#include "text/vocab_private.h"

static uint32_t table_size(size_t n)
{
    uint32_t size = 16;
    while (size / 4 * 3 < n) size *= 2;
    return size;
}

/* Byte of a code point of the byte-level alphabet, or -1. Printable Latin-1 stands for itself,
 * the 68 other bytes are U+0100 and up in ascending order. */
static int alphabet_byte(uint32_t code)
{
    if ((code >= 0x21 && code <= 0x7e) || (code >= 0xa1 && code <= 0xac) ||
        (code >= 0xae && code <= 0xff)) return (int)code;
    if (code < 0x100 || code > 0x143) return -1;
    int i = (int)code - 0x100;
    if (i <= 0x20) return i;
    return i < 67 ? 0x7f + i - 0x21 : 0xad;
}

size_t alphabet_decode(struct str raw, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < raw.len;) {
        int len = utf8_valid(raw.at + i, raw.len - i), byte = -1;
        if (len > 0) byte = alphabet_byte(utf8_at(raw.at + i, &len));
        else len = 1;
        if (byte >= 0) out[n++] = (char)byte;
        else {
            memcpy(out + n, raw.at + i, (size_t)len);
            n += (size_t)len;
        }
        i += (size_t)len;
    }
    return n;
}

size_t spaces_decode(struct str raw, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < raw.len;) {
        if (raw.len - i >= 3 && memcmp(raw.at + i, "\xe2\x96\x81", 3) == 0) {
            out[n++] = ' ';
            i += 3;
        } else out[n++] = raw.at[i++];
    }
    return n;
}

static struct str text_of(const struct vocab *v, const struct text_table *table, int32_t id)
{
    const struct token *t = &v->tokens[id];
    if (table == &v->raws) return (struct str){ t->raw, t->raw_len };
    return (struct str){ t->bytes, t->bytes_len };
}

/* The slot that holds the text, or the free one where it belongs. */
static struct text_slot *slot_of(const struct vocab *v, const struct text_table *table,
                                 struct str text, uint32_t hash)
{
    for (uint32_t i = hash & table->mask;; i = (i + 1) & table->mask) {
        struct text_slot *s = &table->slots[i];
        if (s->id < 0) return s;
        if (s->hash == hash && str_eq(text_of(v, table, s->id), text)) return s;
    }
}

static luce_status table_init(const struct vocab *v, struct text_table *table, luce_error *err)
{
    uint32_t size = table_size((size_t)v->n_tokens);
    table->mask = size - 1;
    table->slots = mem_array(size, sizeof *table->slots);
    if (!table->slots) return fail(err, LUCE_E_NOMEM, "out of memory for %d tokens", v->n_tokens);
    for (uint32_t i = 0; i < size; i++) table->slots[i].id = -1;
    return LUCE_OK;
}

/* Returns whether another token had this text. */
static bool table_add(const struct vocab *v, const struct text_table *table, int32_t id)
{
    struct str text = text_of(v, table, id);
    uint32_t hash = (uint32_t)hash_bytes(text.at, text.len, 0);
    struct text_slot *s = slot_of(v, table, text, hash);
    bool twice = s->id >= 0;
    *s = (struct text_slot){ hash, id };
    return twice;
}

static int32_t table_find(const struct vocab *v, const struct text_table *table, struct str text)
{
    return slot_of(v, table, text, (uint32_t)hash_bytes(text.at, text.len, 0))->id;
}

int32_t piece_find(const struct vocab *v, const char *bytes, size_t len)
{
    return table_find(v, &v->pieces, (struct str){ bytes, len });
}

int32_t vocab_find(const struct vocab *v, struct str text)
{
    return text.len ? table_find(v, &v->raws, text) : -1;
}

luce_status build_raws(struct vocab *v, const struct vocab_source *s, luce_error *err)
{
    luce_status st = table_init(v, &v->raws, err);
    if (st) return st;
    int twice = 0;
    for (int id = 0; id < v->n_tokens; id++)
        if (v->tokens[id].raw_len) twice += table_add(v, &v->raws, id);
    if (twice)
        log_warn("%s: %d tokens have the text of an earlier one; text gives the last", s->path, twice);
    return LUCE_OK;
}

/* Control tokens never come from merging, however the merge list reads: text cannot spell them. */
static bool is_piece(const struct vocab *v, const struct token *t)
{
    if (t->bytes_len == 0) return false;
    if (v->model == MODEL_GPT2) return t->kind == TOKEN_NORMAL;
    return t->kind == TOKEN_NORMAL || t->kind == TOKEN_USER_DEFINED;
}

/* Names of bytes have capitals alone. */
static int capital_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int named_byte(struct str raw)
{
    if (raw.len != 6 || memcmp(raw.at, "<0x", 3) || raw.at[5] != '>') return -1;
    int high = capital_digit(raw.at[3]), low = capital_digit(raw.at[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static void find_bytes(struct vocab *v)
{
    for (int b = 0; b < 256; b++) v->byte_id[b] = -1;
    if (v->model == MODEL_GPT2) {
        for (int b = 0; b < 256; b++) {
            char byte = (char)b;
            v->byte_id[b] = piece_find(v, &byte, 1);
        }
    } else {
        for (int id = 0; id < v->n_tokens; id++) {
            int byte = named_byte(text_of(v, &v->raws, id));
            bool normal = v->tokens[id].kind == TOKEN_NORMAL && v->model == MODEL_GEMMA4;
            if (byte >= 0 && (normal || v->tokens[id].kind == TOKEN_BYTE)) v->byte_id[byte] = id;
        }
    }
    for (int c = 0; c < 128; c++) {
        char byte = (char)c;
        v->first_id[c] = piece_find(v, &byte, 1);
    }
}

luce_status build_pieces(struct vocab *v, luce_error *err)
{
    luce_status st = table_init(v, &v->pieces, err);
    if (st) return st;
    for (int id = 0; id < v->n_tokens; id++) {
        const struct token *t = &v->tokens[id];
        if (!is_piece(v, t)) continue;
        table_add(v, &v->pieces, id);
        if (t->bytes_len > v->max_piece) v->max_piece = t->bytes_len;
    }
    find_bytes(v);
    return LUCE_OK;
}

static void pair_add(struct vocab *v, struct pair_slot pair)
{
    uint64_t key = (uint64_t)(uint32_t)pair.left << 32 | (uint32_t)pair.right;
    uint32_t i = (uint32_t)hash_u64(key) & v->pair_mask;
    for (; v->pairs[i].left >= 0; i = (i + 1) & v->pair_mask)
        if (v->pairs[i].left == pair.left && v->pairs[i].right == pair.right) return;
    v->pairs[i] = pair;
}

/* Bytes of a part of a merge. */
static size_t part_bytes(const struct vocab *v, struct str part, char *out)
{
    if (v->model == MODEL_GPT2) return alphabet_decode(part, out);
    return spaces_decode(part, out);
}

/* Longer parts than any token cannot be tokens; this bounds the buffer for hostile merges. */
static bool add_merge(struct vocab *v, struct str merge, uint32_t rank, struct buf *buf)
{
    const char *space = merge.len > 1 ? memchr(merge.at + 1, ' ', merge.len - 1) : NULL;
    if (!space) return false;
    struct str left = { merge.at, (size_t)(space - merge.at) };
    struct str right = { space + 1, merge.len - left.len - 1 };
    buf_clear(buf);
    char *out = buf_reserve(buf, merge.len);
    if (!out) return false;
    size_t n_left = part_bytes(v, left, out), n = n_left + part_bytes(v, right, out + n_left);
    struct pair_slot s = { .left = piece_find(v, out, n_left),
                           .right = piece_find(v, out + n_left, n - n_left),
                           .pair = { rank, piece_find(v, out, n) } };
    if (s.left < 0 || s.right < 0 || s.pair.id < 0) return false;
    pair_add(v, s);
    return true;
}

luce_status build_pairs(struct vocab *v, const struct vocab_source *s, luce_error *err)
{
    if (s->n_merges >= NO_RANK / 2)
        return fail(err, LUCE_E_FORMAT, "%s: tokenizer.ggml.merges has %zu entries, too many",
                    s->path, s->n_merges);
    uint32_t size = table_size(s->n_merges);
    v->pair_mask = size - 1;
    v->pairs = mem_array(size, sizeof *v->pairs);
    if (!v->pairs)
        return fail(err, LUCE_E_NOMEM, "%s: out of memory for %zu merges", s->path, s->n_merges);
    for (uint32_t i = 0; i < size; i++) v->pairs[i].left = -1;
    struct buf buf = { 0 };
    size_t unusable = 0;
    for (size_t i = 0; i < s->n_merges && !buf.failed; i++)
        unusable += !add_merge(v, s->merges[i], (uint32_t)i, &buf);
    bool failed = buf.failed;
    buf_drop(&buf);
    if (failed) return fail(err, LUCE_E_NOMEM, "%s: out of memory for a merge", s->path);
    if (unusable)
        log_warn("%s: %zu of %zu merges name no tokens and are ignored", s->path, unusable,
                 s->n_merges);
    return LUCE_OK;
}

/* Orders floats as integers, the largest first; NaN counts as the smallest. */
static uint32_t rank_of_score(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, 4);
    if (score != score) bits = 0xff800000u;
    uint32_t ascending = bits >> 31 ? ~bits : bits | 0x80000000u;
    return ~ascending;
}

luce_status build_scores(struct vocab *v, const struct vocab_source *s, luce_error *err)
{
    if (!s->scores)
        return fail(err, LUCE_E_FORMAT, "%s: tokenizer.ggml.scores is missing; a tokenizer of "
                    "model 'llama' needs it. Convert the model again.", s->path);
    v->score_rank = mem_array((size_t)v->n_tokens, sizeof *v->score_rank);
    if (!v->score_rank)
        return fail(err, LUCE_E_NOMEM, "%s: out of memory for %d scores", s->path, v->n_tokens);
    for (int id = 0; id < v->n_tokens; id++) v->score_rank[id] = rank_of_score(s->scores[id]);
    return LUCE_OK;
}
