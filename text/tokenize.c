/* text/tokenize.c - text to ids: repair, special tokens, normalisation, splitting, merging, in that
 * order. Each change of the text is recorded as edits, through which token ranges lead back to the
 * bytes that the caller gave. */
#include "base/log.h"
#include "base/mem.h"
#include "text/merge.h"
#include "text/unicode.h"
#include "text/vocab_private.h"

enum { MAX_TEXT = 1 << 30 };

struct vocab_guard {
    int n_tokens;
    uint64_t bits[];            /* one a token */
};

struct work {
    const struct vocab *v;
    const struct tokenize *t;
    struct ids *out;
    struct buf clean, changed, unescaped;
    struct edits cleaned;       /* clean -> the caller's text */
    struct edits edits;         /* the fragment's subject -> fragment */
    size_t base;                /* where the fragment begins in the clean text */
    size_t span;                /* the first span that may still matter */
    bool after_special;         /* or at the start of the text */
    bool failed;                /* out of memory */
    struct merger merger;
};

void ids_add(struct ids *ids, int32_t id)
{
    if (ids->failed) return;
    if (ids->len == ids->cap) {
        size_t cap = ids->cap ? ids->cap * 2 : 64;
        int32_t *at = cap <= SIZE_MAX / sizeof *at ? mem_resize(ids->at, cap * sizeof *at) : NULL;
        if (!at) {
            ids->failed = true;
            return;
        }
        ids->at = at;
        ids->cap = cap;
    }
    ids->at[ids->len++] = id;
}

void ids_drop(struct ids *ids)
{
    mem_free(ids->at);
    *ids = (struct ids){ 0 };
}

static void range_add(struct token_ranges *r, struct token_range range)
{
    if (r->failed) return;
    if (r->len == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 64;
        struct token_range *at = NULL;
        if (cap <= SIZE_MAX / sizeof *at) at = mem_resize(r->at, cap * sizeof *at);
        if (!at) {
            r->failed = true;
            return;
        }
        r->at = at;
        r->cap = cap;
    }
    r->at[r->len++] = range;
}

void token_ranges_drop(struct token_ranges *r)
{
    mem_free(r->at);
    *r = (struct token_ranges){ 0 };
}

/* from and to are bytes of the clean text. */
static void emit(struct work *w, int32_t id, size_t from, size_t to)
{
    ids_add(w->out, id);
    if (!w->t->ranges) return;
    struct token_range range = { edits_from(&w->cleaned, from), edits_to(&w->cleaned, to) };
    range_add(w->t->ranges, range);
}

/* Whether all bytes [from, to) of the caller's text are the template's. */
static bool is_template(struct work *w, size_t from, size_t to)
{
    const struct tokenize *t = w->t;
    if (!t->n_spans) return t->flags & TOKENIZE_SPECIAL;
    while (w->span < t->n_spans && t->spans[w->span].to <= from) w->span++;
    for (size_t i = w->span; i < t->n_spans && from < to; i++) {
        if (t->spans[i].from > from || t->spans[i].trust != SPAN_TEMPLATE) return false;
        if (t->spans[i].to > from) from = t->spans[i].to;
    }
    return from >= to;
}

static bool is_guarded(const struct vocab_guard *g, int32_t id)
{
    return g && id < g->n_tokens && (g->bits[id / 64] >> (id % 64) & 1);
}

static bool is_allowed(void *context, int32_t id, size_t from, size_t to)
{
    struct work *w = context;
    const struct token *t = &w->v->tokens[id];
    if (is_template(w, edits_from(&w->cleaned, from), edits_to(&w->cleaned, to))) return true;
    return t->kind == TOKEN_USER_DEFINED && !t->is_end && !is_guarded(w->t->guard, id);
}

/* A symbol without a token: each byte by its own token, or the unknown token, or nothing. */
static void emit_bytes(struct work *w, struct str part, size_t from, size_t to)
{
    int32_t unknown = w->v->special.ids[ROLE_UNKNOWN];
    for (size_t i = 0; i < part.len; i++) {
        int32_t id = w->v->byte_id[(unsigned char)part.at[i]];
        if (id < 0) id = unknown;
        if (id >= 0) emit(w, id, from, to);
    }
}

/* The token of a part of a piece; the part begins at byte `at` of the subject. */
static void emit_part(struct work *w, int32_t id, struct str part, size_t at)
{
    size_t from = w->base, to = w->base;
    if (w->t->ranges) {
        from += edits_from(&w->edits, at);
        to += edits_to(&w->edits, at + part.len);
    }
    if (id >= 0) emit(w, id, from, to);
    else emit_bytes(w, part, from, to);
}

/* Whether a piece that spells this token needs no merging. */
static bool is_whole(const struct work *w, const struct token *t, struct str piece)
{
    if (w->v->pre && w->v->pre->ignore_merges) return true;
    if (w->v->model == MODEL_GEMMA4 && piece.at[0] == '\n') return true;
    return atomic_load_explicit(&t->whole, memory_order_relaxed) == WHOLE_YES;
}

static void emit_piece(struct work *w, struct str piece, size_t at)
{
    const struct vocab *v = w->v;
    int32_t id = piece.len <= v->max_piece ? piece_find(v, piece.at, piece.len) : -1;
    if (id >= 0 && is_whole(w, &v->tokens[id], piece)) {
        emit_part(w, id, piece, at);
        return;
    }
    if (!merge_piece(&w->merger, v, piece)) {
        w->failed = true;
        return;
    }
    const struct symbol *s = w->merger.symbols;
    size_t n = w->merger.n_symbols;
    if (id >= 0)
        atomic_store_explicit(&v->tokens[id].whole, n == 1 && s->id == id ? WHOLE_YES : WHOLE_NO,
                              memory_order_relaxed);
    for (size_t i = 0; i < n; i++) {
        struct str part = { piece.at + s[i].from, s[i].len };
        emit_part(w, s[i].id, part, at + s[i].from);
    }
}

/* SPM and gemma4 write spaces as U+2581; tokens are kept with plain spaces, so that only a
 * U+2581 of the text itself has to change. SPM may also begin with a space of its own. */
static struct str escape_spaces(struct work *w, struct str text)
{
    bool prefix = w->v->add_space_prefix && w->after_special;
    struct buf *b = &w->unescaped;
    size_t done = 0;
    buf_clear(b);
    if (prefix) {
        edits_add(&w->edits, (struct edit){ 0, 1, 0, 0 });
        buf_add_char(b, ' ');
    }
    for (size_t i = 0; i + 3 <= text.len; i++) {
        if (memcmp(text.at + i, "\xe2\x96\x81", 3)) continue;
        buf_add(b, text.at + done, i - done);
        edits_add(&w->edits, (struct edit){ b->len, 1, i, 3 });
        buf_add_char(b, ' ');
        done = i + 3;
        i += 2;
    }
    if (!done && !prefix) return text;
    buf_add(b, text.at + done, text.len - done);
    return (struct str){ b->data, b->len };
}

static void split_subject(struct work *w, struct str subject)
{
    const struct vocab *v = w->v;
    struct splitter s = { .row = v->pre, .p = subject.at, .end = subject.at + subject.len };
    struct str piece = subject;
    while (!w->failed && (v->pre ? split_next(&s, &piece) : piece.len > 0)) {
        if (v->model == MODEL_GPT2) {
            emit_piece(w, piece, (size_t)(piece.at - subject.at));
            continue;
        }
        while (piece.len > 0 && !w->failed) {
            struct str part = { piece.at, joint_end(v, piece) };
            if (v->model == MODEL_GEMMA4 && *piece.at == '\n') part.len = piece.len;
            emit_piece(w, part, (size_t)(part.at - subject.at));
            piece.at += part.len;
            piece.len -= part.len;
        }
    }
}

/* The text between two special tokens: bytes [from, to) of the clean text. */
static void tokenize_fragment(struct work *w, struct str text, size_t from, size_t to)
{
    if (from == to) return;
    struct str subject = { text.at + from, to - from };
    w->edits.len = 0;
    buf_clear(&w->changed);
    if (w->v->pre && w->v->pre->nfc && nfc_apply(subject, &w->changed, &w->edits))
        subject = (struct str){ w->changed.data, w->changed.len };
    if (w->v->model != MODEL_GPT2) subject = escape_spaces(w, subject);
    w->failed |= w->changed.failed || w->unescaped.failed || w->edits.failed;
    w->base = from;
    if (!w->failed) split_subject(w, subject);
    w->after_special = false;
}

static void tokenize_text(struct work *w, struct str text)
{
    w->after_special = true;
    for (size_t at = 0; at < text.len && !w->failed;) {
        int32_t id;
        size_t next = special_next(w->v, text, at, is_allowed, w, &id);
        tokenize_fragment(w, text, at, next);
        if (id < 0) break;
        at = next + w->v->tokens[id].raw_len;
        emit(w, id, next, at);
        w->after_special = true;
        if (w->v->tokens[id].strip_right)
            for (struct character c; at < text.len; at += c.len)
                if (!((c = char_at(text.at + at, text.at + text.len)).class & CLASS_SPACE)) break;
    }
}

static void add_empty(struct work *w, int32_t id, size_t at)
{
    ids_add(w->out, id);
    if (w->t->ranges) range_add(w->t->ranges, (struct token_range){ at, at });
}

/* Puts BOS before the ids that begin at `first`. */
static void insert_bos(struct work *w, size_t first)
{
    add_empty(w, w->v->special.ids[ROLE_BOS], 0);
    struct ids *ids = w->out;
    struct token_ranges *r = w->t->ranges;
    if (ids->failed || (r && r->failed)) return;
    memmove(ids->at + first + 1, ids->at + first, (ids->len - 1 - first) * sizeof *ids->at);
    ids->at[first] = w->v->special.ids[ROLE_BOS];
    if (!r) return;
    size_t at = r->len - 1 - (ids->len - 1 - first);
    memmove(r->at + at + 1, r->at + at, (r->len - 1 - at) * sizeof *r->at);
    r->at[at] = (struct token_range){ 0, 0 };
}

luce_status vocab_tokenize_spans(const struct vocab *v, const struct tokenize *t, struct ids *out,
                                 luce_error *err)
{
    if (t->text.len >= MAX_TEXT)
        return fail(err, LUCE_E_ARG, "a text of %zu bytes is too long to tokenise; the limit is %d "
                    "bytes. Cut it into parts.", t->text.len, MAX_TEXT - 1);
    struct work w = { .v = v, .t = t, .out = out };
    size_t first = out->len, first_range = t->ranges ? t->ranges->len : 0;
    int32_t bos = v->special.ids[ROLE_BOS];
    if ((t->flags & TOKENIZE_BOS_EOS) && v->special.add_bos) add_empty(&w, bos, 0);
    size_t begin = out->len;
    struct str text = t->text;
    if (utf8_repair(text, &w.clean, &w.cleaned)) text = (struct str){ w.clean.data, w.clean.len };
    w.failed = w.clean.failed || w.cleaned.failed;
    if (!w.failed) tokenize_text(&w, text);
    bool has_bos = out->len > begin && out->at[begin] == bos;
    if ((t->flags & TOKENIZE_BOS_EOS) && v->special.add_bos && has_bos)
        log_warn("the prompt begins with '%.*s' and gets a second one, as the model's file says",
                 (int)v->tokens[bos].raw_len, v->tokens[bos].raw);
    if ((t->flags & TOKENIZE_CHAT) && v->special.add_bos && !has_bos) insert_bos(&w, begin);
    if ((t->flags & TOKENIZE_BOS_EOS) && v->special.add_eos)
        add_empty(&w, v->special.ids[ROLE_EOS], t->text.len);
    w.failed |= out->failed || (t->ranges && t->ranges->failed);
    buf_drop(&w.clean);
    buf_drop(&w.changed);
    buf_drop(&w.unescaped);
    edits_drop(&w.cleaned);
    edits_drop(&w.edits);
    merger_drop(&w.merger);
    if (!w.failed) return LUCE_OK;
    out->len = first;
    if (t->ranges) t->ranges->len = first_range;
    return fail(err, LUCE_E_NOMEM, "out of memory while tokenising %zu bytes", t->text.len);
}

luce_status vocab_tokenize(const struct vocab *v, struct str text, unsigned flags, struct ids *out,
                           luce_error *err)
{
    return vocab_tokenize_spans(v, &(struct tokenize){ .text = text, .flags = flags }, out, err);
}

/* Marks every special token that it is asked about, and allows none, so that all are found. */
static bool mark_guarded(void *context, int32_t id, size_t from, size_t to)
{
    struct vocab_guard *g = context;
    (void)from, (void)to;
    g->bits[id / 64] |= (uint64_t)1 << (id % 64);
    return false;
}

luce_status vocab_guard_new(struct vocab_guard **out, const struct vocab *v,
                            struct str template_text, luce_error *err)
{
    size_t words = ((size_t)v->n_tokens + 63) / 64;
    *out = mem_zero(sizeof **out + words * sizeof *(*out)->bits);
    if (!*out) return fail(err, LUCE_E_NOMEM, "out of memory for the template's special tokens");
    (*out)->n_tokens = v->n_tokens;
    int32_t id;
    special_next(v, template_text, 0, mark_guarded, *out, &id);
    return LUCE_OK;
}

void vocab_guard_free(struct vocab_guard *g)
{
    mem_free(g);
}
