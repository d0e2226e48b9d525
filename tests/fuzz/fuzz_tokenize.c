/* tests/fuzz/fuzz_tokenize.c - any text under every pre-tokenizer and merge model: pieces add up to the
 * text, the heap merges as the scan does, ranges lead back in order, and ids give the text again (in
 * its normal form). The first byte chooses the vocabulary, the rest is text.
 * Seeds: tests/fuzz/corpus/tokenize, dictionary: tests/fuzz/tokenize.dict. */
#include <stdlib.h>

#include "base/log.h"
#include "tests/toy_vocab.h"
#include "text/merge.h"

enum { MAX_VOCABS = 32, NAIVE_MAX = 400 };

static struct toy *toys[MAX_VOCABS];      /* the vocabularies point into their texts */
static struct vocab *vocabs[MAX_VOCABS];
static size_t n_vocabs;

static void need(bool condition)
{
    if (!condition) abort();
}

static void add_vocab(const char *model, const char *names)
{
    static const char *const words[] = {
        "a", "b", "ab", "the", "in", "ing", "\n\n", "  ", "    ", " a", " the", "\r\n", "'s", "12", "123", "\xc3\xa9",
        "e\xcc\x81", "\xe4\xb8\xad", "\xe4\xb8\xad\xe6\x96\x87", "\xf0\x9f\x98\x80", "AAAA", "...", "--", "();",
    };
    char name[64] = { 0 };
    memcpy(name, names, strcspn(names, " "));
    struct toy *t = toys[n_vocabs] = toy_new(model, name);
    bool bytes = strcmp(model, "gpt2") == 0;
    for (size_t i = 0; i < COUNT(words); i++) {
        /* Each word's prefixes too, with the merges that lead to them. */
        struct str last = { "", 0 };
        for (size_t n = 1; n <= strlen(words[i]); n++) {
            struct buf raw = { 0 };
            struct str text = { words[i], n }, coded = toy_alphabet(t, text), unit;
            if (bytes) buf_add(&raw, coded.at, coded.len);
            else for (size_t k = 0; k < n; k++)
                    buf_add(&raw, words[i][k] == ' ' ? "\xe2\x96\x81" : &words[i][k], words[i][k] == ' ' ? 3 : 1);
            if (!bytes && utf8_valid(words[i], n) <= 0) {
                buf_drop(&raw);
                continue;
            }
            struct str whole = toy_text(t, raw.data, raw.len);
            unit = (struct str){ whole.at + last.len, whole.len - last.len };
            bool known = false;
            for (size_t id = 0; id < t->source.n_tokens; id++) known |= str_eq(t->tokens[id], whole);
            if (!known) toy_token(t, whole, TOKEN_NORMAL, -(float)(i * 8 + n));
            if (last.len) toy_merge(t, last, unit);
            last = whole;
            buf_drop(&raw);
        }
    }
    toy_token(t, str_of("<|im_end|>"), TOKEN_CONTROL, 0);
    toy_token(t, str_of("<|im_"), TOKEN_USER_DEFINED, 0);
    toy_token(t, str_of("<think>"), TOKEN_USER_DEFINED, 0);
    t->source.add_space_prefix = CHOICE_NO;
    luce_error err = { 0 };
    need(vocab_open(&vocabs[n_vocabs++], &t->source, &err) == LUCE_OK);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    log_set_level(LOG_ERROR);
    add_vocab("llama", "");
    add_vocab("gemma4", "");
    for (size_t i = 0; pretokenizer_at(i); i++)
        if (strcmp(pretokenizer_at(i)->names, "gemma4")) add_vocab("gpt2", pretokenizer_at(i)->names);
    return 0;
}

/* What the ids of `text` must give back. Marks that decompose across a special token's border are
 * normalised apart, so rows that normalise are only checked where no special text stands. */
static void check_text(const struct vocab *v, struct str text, const struct ids *ids, unsigned flags)
{
    struct buf clean = { 0 }, normal = { 0 }, spaced = { 0 }, back = { 0 };
    struct edits edits = { 0 };
    bool marked = false;
    for (size_t i = 0; i < ids->len; i++) marked |= vocab_kind(v, ids->at[i]) != TOKEN_NORMAL;
    if (utf8_repair(text, &clean, &edits)) text = (struct str){ clean.data, clean.len };
    bool nfc = v->pre && v->pre->nfc;
    if (nfc && nfc_apply(text, &normal, &edits)) text = (struct str){ normal.data, normal.len };
    if (v->model != MODEL_GPT2) {
        char *out = buf_reserve(&spaced, text.len);
        need(out);
        text = (struct str){ out, spaces_decode(text, out) };
    }
    struct detok d = { 0 };
    for (size_t i = 0; i < ids->len; i++) detok_add(&d, v, ids->at[i], flags, &back);
    need(d.n_held == 0);
    detok_end(&d, &back);
    need((nfc && marked) || str_eq(text, (struct str){ back.data ? back.data : "", back.len }));
    buf_drop(&clean);
    buf_drop(&normal);
    buf_drop(&spaced);
    buf_drop(&back);
    edits_drop(&edits);
}

static void check_pieces(const struct vocab *v, struct str text)
{
    struct buf clean = { 0 };
    struct edits edits = { 0 };
    if (utf8_repair(text, &clean, &edits)) text = (struct str){ clean.data, clean.len };
    struct splitter s = { .row = v->pre, .p = text.at, .end = text.at + text.len };
    struct str piece = text;
    struct merger fast = { 0 }, naive = { 0 };
    size_t total = 0;
    while (v->pre ? split_next(&s, &piece) : total < text.len) {
        need(piece.len > 0 && piece.at == text.at + total);
        total += piece.len;
        if (piece.len > NAIVE_MAX) piece.len = 0;
        need(merge_piece(&fast, v, piece) && merge_naive(&naive, v, piece) && fast.n_symbols == naive.n_symbols);
        for (size_t i = 0; i < fast.n_symbols; i++) need(fast.symbols[i].id == naive.symbols[i].id);
    }
    need(total == text.len);
    merger_drop(&fast);
    merger_drop(&naive);
    buf_drop(&clean);
    edits_drop(&edits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    const struct vocab *v = vocabs[data[0] % n_vocabs];
    unsigned special = data[1] & 1;
    /* A copy of its own, so that a byte beyond the text is seen by the address sanitizer. */
    char *copy = malloc(size - 1);
    memcpy(copy, data + 2, size - 2);
    struct str text = { copy, size - 2 };
    struct ids ids = { 0 };
    struct token_ranges ranges = { 0 };
    struct text_span spans[2] = { { 0, text.len / 2, SPAN_TEMPLATE }, { text.len / 2, text.len, SPAN_PLAIN } };
    struct tokenize t = { .text = text, .flags = special ? TOKENIZE_SPECIAL : 0, .ranges = &ranges,
                          .spans = spans, .n_spans = data[1] & 2 ? 2 : 0 };
    luce_error err = { 0 };
    need(vocab_tokenize_spans(v, &t, &ids, &err) == LUCE_OK && ids.len == ranges.len);
    size_t at = 0;
    for (size_t i = 0; i < ids.len; i++) {
        need(ranges.at[i].from <= at && ranges.at[i].to >= at && ranges.at[i].to <= text.len);
        need(ids.at[i] >= 0 && ids.at[i] < vocab_size(v));
        at = ranges.at[i].to;
    }
    need(at == text.len);
    check_text(v, text, &ids, DETOK_SPECIAL);
    check_pieces(v, text);
    ids_drop(&ids);
    token_ranges_drop(&ranges);
    free(copy);
    return 0;
}
