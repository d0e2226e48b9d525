/* text/nfc.c - Normalization Form C (Unicode Standard Annex 15), only where the text needs it.
 * Most characters are inert: they neither decompose nor join the character before them. The text
 * is cut before inert characters; a stretch that holds others is decomposed, its marks are
 * sorted and it is composed again. The sort is a counting sort, because a hostile text may hold
 * a million marks. */
#include <utf8proc.h>

#include "base/mem.h"
#include "text/unicode.h"

/* Below U+0300 nothing changes, and nothing joins what stands before it. */
static const char *skip_low(const char *p, const char *end)
{
    while (p < end && (unsigned char)*p < 0xcc) p++;
    return p;
}

static bool is_inert(uint32_t code)
{
    if (code < 0x300) return true;
    if (code >= 0x1100 && code <= 0x11ff) return false;         /* Hangul jamo compose by rule */
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)code);
    if (p->combining_class != 0 || p->category == UTF8PROC_CATEGORY_MN ||
        p->category == UTF8PROC_CATEGORY_MC || p->category == UTF8PROC_CATEGORY_ME) return false;
    return p->decomp_seqindex == UINT16_MAX || p->decomp_type != 0;
}

struct codes {
    int32_t *at;
    size_t len, cap;
    bool failed;
};

static bool codes_reserve(struct codes *c, size_t more)
{
    if (c->failed) return false;
    if (c->cap - c->len >= more) return true;
    size_t cap = (c->len + more) * 2;
    int32_t *at = mem_resize(c->at, cap * sizeof *at);
    if (!at) return c->failed = true, false;
    c->at = at;
    c->cap = cap;
    return true;
}

static int combining_class(int32_t code)
{
    return utf8proc_get_property(code)->combining_class;
}

/* Sorts code[0 .. n-1] by combining class, equal ones in order. `spare` has room for n. */
static void sort_marks(int32_t *code, size_t n, int32_t *spare)
{
    if (n < 2) return;
    size_t start[257] = { 0 };
    for (size_t i = 0; i < n; i++) start[combining_class(code[i]) + 1]++;
    for (int c = 0; c < 256; c++) start[c + 1] += start[c];
    for (size_t i = 0; i < n; i++) spare[start[combining_class(code[i])]++] = code[i];
    memcpy(code, spare, n * sizeof *code);
}

static void order_marks(int32_t *code, size_t n, int32_t *spare)
{
    for (size_t i = 0; i < n;) {
        size_t from = i;
        while (i < n && combining_class(code[i]) != 0) i++;
        sort_marks(code + from, i - from, spare);
        if (i < n) i++;
    }
}

/* Normalises one stretch and appends it; the stretch is recorded as an edit if it changed. */
static void compose(struct str stretch, size_t in, struct codes *codes, struct buf *out,
                    struct edits *edits)
{
    codes->len = 0;
    for (const char *p = stretch.at, *end = p + stretch.len; p < end;) {
        int len, boundary = 0;
        uint32_t code = utf8_at(p, &len);
        p += len;
        /* A canonical decomposition has at most 4 characters. */
        if (!codes_reserve(codes, 8)) return;
        utf8proc_ssize_t n =
            utf8proc_decompose_char((utf8proc_int32_t)code, codes->at + codes->len, 8,
                                    UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
        if (n > 0 && n <= 8) codes->len += (size_t)n;
    }
    size_t n = codes->len;
    if (!codes_reserve(codes, n + 1)) return;
    order_marks(codes->at, n, codes->at + n);
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(codes->at, (utf8proc_ssize_t)n,
                                                         UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    size_t begin = out->len;
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        char bytes[4];
        buf_add(out, bytes, (size_t)utf8_put(bytes, (uint32_t)codes->at[i]));
    }
    if (out->failed) return;
    size_t len = out->len - begin;
    if (len != stretch.len || memcmp(out->data + begin, stretch.at, len))
        edits_add(edits, (struct edit){ begin, len, in, stretch.len });
}

bool nfc_apply(struct str text, struct buf *out, struct edits *edits)
{
    const char *p = text.at, *end = p + text.len, *copied = p;
    size_t first_edit = edits->len, first_out = out->len;
    struct codes codes = { 0 };
    while ((p = skip_low(p, end)) < end) {
        int len;
        uint32_t code = utf8_at(p, &len);
        if (is_inert(code)) {
            p += len;
            continue;
        }
        /* The character before may be the base that this one joins. */
        const char *from = p, *to = p + len;
        if (from > copied) {
            do from--;
            while (((unsigned char)*from & 0xc0) == 0x80);
        }
        while (to < end && !is_inert(utf8_at(to, &len))) to += len;
        buf_add(out, copied, (size_t)(from - copied));
        struct str stretch = { from, (size_t)(to - from) };
        compose(stretch, (size_t)(from - text.at), &codes, out, edits);
        copied = p = to;
    }
    if (codes.failed) out->failed = true;
    mem_free(codes.at);
    if (edits->len == first_edit && !out->failed && !edits->failed) {
        out->len = first_out;
        return false;
    }
    buf_add(out, copied, (size_t)(end - copied));
    return true;
}
