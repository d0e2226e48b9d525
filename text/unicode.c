/* text/unicode.c - classes, UTF-8 and edits; see unicode.h. */
#include "text/unicode.h"

#include <utf8proc.h>

#include "base/mem.h"

#define U CLASS_UPPER
#define L CLASS_LOWER
#define N CLASS_NUMBER
#define P CLASS_PUNCT
#define S CLASS_SYMBOL
#define W CLASS_SPACE
const uint8_t ascii_class[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, W, W, W, W, W, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    W, P, P, P, S, P, P, P, P, P, P, S, P, P, P, P,     /*   ! " # $ % & ' ( ) * + , - . / */
    N, N, N, N, N, N, N, N, N, N, P, P, S, S, S, P,     /* 0 to 9 : ; < = > ? */
    P, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U,
    U, U, U, U, U, U, U, U, U, U, U, P, P, P, S, P,     /* [ \ ] ^ _ */
    S, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,
    L, L, L, L, L, L, L, L, L, L, L, P, S, P, S, 0,     /* { | } ~ */
};
#undef U
#undef L
#undef N
#undef P
#undef S
#undef W

static bool is_white_space(uint32_t code)
{
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

uint8_t class_of(uint32_t code)
{
    static const uint8_t of_category[] = {
        [UTF8PROC_CATEGORY_LU] = CLASS_UPPER,   [UTF8PROC_CATEGORY_LT] = CLASS_UPPER,
        [UTF8PROC_CATEGORY_LL] = CLASS_LOWER,   [UTF8PROC_CATEGORY_LM] = CLASS_UNCASED,
        [UTF8PROC_CATEGORY_LO] = CLASS_UNCASED, [UTF8PROC_CATEGORY_MN] = CLASS_MARK,
        [UTF8PROC_CATEGORY_MC] = CLASS_MARK,    [UTF8PROC_CATEGORY_ME] = CLASS_MARK,
        [UTF8PROC_CATEGORY_ND] = CLASS_NUMBER,  [UTF8PROC_CATEGORY_NL] = CLASS_NUMBER,
        [UTF8PROC_CATEGORY_NO] = CLASS_NUMBER,  [UTF8PROC_CATEGORY_PC] = CLASS_PUNCT,
        [UTF8PROC_CATEGORY_PD] = CLASS_PUNCT,   [UTF8PROC_CATEGORY_PS] = CLASS_PUNCT,
        [UTF8PROC_CATEGORY_PE] = CLASS_PUNCT,   [UTF8PROC_CATEGORY_PI] = CLASS_PUNCT,
        [UTF8PROC_CATEGORY_PF] = CLASS_PUNCT,   [UTF8PROC_CATEGORY_PO] = CLASS_PUNCT,
        [UTF8PROC_CATEGORY_SM] = CLASS_SYMBOL,  [UTF8PROC_CATEGORY_SC] = CLASS_SYMBOL,
        [UTF8PROC_CATEGORY_SK] = CLASS_SYMBOL,  [UTF8PROC_CATEGORY_SO] = CLASS_SYMBOL,
        [UTF8PROC_CATEGORY_CO] = 0,
    };
    if (code < 128) return ascii_class[code];
    if (is_white_space(code)) return CLASS_SPACE;
    return of_category[utf8proc_get_property((utf8proc_int32_t)code)->category];
}

int utf8_put(char *out, uint32_t code)
{
    return (int)utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)out);
}

int utf8_valid(const char *p, size_t len)
{
    const unsigned char *u = (const unsigned char *)p;
    if (!len) return 0;
    if (u[0] < 0x80) return 1;
    if (u[0] < 0xc2 || u[0] > 0xf4) return -1;
    int need = u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;
    /* The second byte's limits rule out overlong forms, surrogates and codes above U+10FFFF. */
    unsigned low = u[0] == 0xe0 ? 0xa0 : u[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = u[0] == 0xed ? 0x9f : u[0] == 0xf4 ? 0x8f : 0xbf;
    for (int i = 1; i < need; i++, low = 0x80, high = 0xbf) {
        if ((size_t)i == len) return 0;
        if (u[i] < low || u[i] > high) return -i;
    }
    return need;
}

void edits_add(struct edits *e, struct edit edit)
{
    if (e->failed) return;
    if (e->len == e->cap) {
        size_t cap = e->cap ? e->cap * 2 : 8;
        struct edit *at = cap < SIZE_MAX / sizeof *at ? mem_resize(e->at, cap * sizeof *at) : NULL;
        if (!at) {
            e->failed = true;
            return;
        }
        e->at = at;
        e->cap = cap;
    }
    e->at[e->len++] = edit;
}

void edits_drop(struct edits *e)
{
    mem_free(e->at);
    *e = (struct edits){ 0 };
}

/* The number of edits that begin before byte `out` (or at it, with `also_at`). */
static size_t edits_before(const struct edits *e, size_t out, bool also_at)
{
    size_t low = 0, high = e->len;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (e->at[mid].out < out || (also_at && e->at[mid].out == out)) low = mid + 1;
        else high = mid;
    }
    return low;
}

size_t edits_from(const struct edits *e, size_t out)
{
    size_t n = edits_before(e, out, true);
    if (n == 0) return out;
    const struct edit *d = &e->at[n - 1];
    if (out < d->out + d->out_len) return d->in;
    return out - d->out - d->out_len + d->in + d->in_len;
}

size_t edits_to(const struct edits *e, size_t out)
{
    size_t n = edits_before(e, out, false);
    if (n == 0) return out;
    const struct edit *d = &e->at[n - 1];
    if (out < d->out + d->out_len) return d->in + d->in_len;
    return out - d->out - d->out_len + d->in + d->in_len;
}

/* The length of the valid start of the text. */
static size_t valid_prefix(struct str text)
{
    size_t i = 0;
    while (i < text.len) {
        uint64_t word;
        while (i + 8 <= text.len) {
            memcpy(&word, text.at + i, 8);
            if (word & 0x8080808080808080u) break;
            i += 8;
        }
        if (i == text.len) break;
        int n = utf8_valid(text.at + i, text.len - i);
        if (n <= 0) break;
        i += (size_t)n;
    }
    return i;
}

bool utf8_repair(struct str text, struct buf *out, struct edits *edits)
{
    size_t done = valid_prefix(text);
    if (done == text.len) return false;
    buf_add(out, text.at, done);
    while (done < text.len) {
        int n = utf8_valid(text.at + done, text.len - done);
        size_t bad = n < 0 ? (size_t)-n : text.len - done;
        edits_add(edits, (struct edit){ out->len, 3, done, bad });
        buf_add(out, "\xef\xbf\xbd", 3);
        done += bad;
        struct str rest = { text.at + done, text.len - done };
        size_t good = valid_prefix(rest);
        buf_add(out, rest.at, good);
        done += good;
    }
    return true;
}
