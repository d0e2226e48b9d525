/* text/scan.c - see scan.h. A scanner looks at the character at p, and at most one beyond it, to
 * know which alternative of its expression matches; then it runs to the end of that match. Where
 * a greedy expression would have to give characters back, the comment says how the end is found
 * instead. */
#include "text/scan.h"

#include "text/unicode.h"

/* Past all characters that have one of the classes. */
static const char *run(const char *p, const char *end, unsigned classes)
{
    while (p < end) {
        struct character c = char_at(p, end);
        if (!(c.class & classes)) break;
        p += c.len;
    }
    return p;
}

/* Past all characters that have none of the classes. */
static const char *run_without(const char *p, const char *end, unsigned classes)
{
    while (p < end) {
        struct character c = char_at(p, end);
        if (c.class & classes) break;
        p += c.len;
    }
    return p;
}

static bool is_newline(uint32_t code)
{
    return code == '\r' || code == '\n';
}

static const char *run_newlines(const char *p, const char *end)
{
    while (p < end && is_newline((unsigned char)*p)) p++;
    return p;
}

static const char *up_to(const char *p, const char *end, unsigned classes, int max)
{
    for (int n = 0; max == 0 || n < max; n++) {
        struct character c = char_at(p, end);
        if (!(c.class & classes)) break;
        p += c.len;
    }
    return p;
}

/* The end of a contraction that begins at the apostrophe p, or NULL. Without regard to case, U+017F
 * (long s) counts as s, as it does for the engines that define these expressions. */
static const char *contraction(const char *p, const char *end, bool any_case)
{
    if (end - p < 2) return NULL;
    unsigned char a = (unsigned char)p[1], b = end - p > 2 ? (unsigned char)p[2] : 0;
    if (any_case) {
        if (a == 0xc5 && b == 0xbf) return p + 3;
        if (a >= 'A' && a <= 'Z') a |= 0x20;
        if (b >= 'A' && b <= 'Z') b |= 0x20;
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return p + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return p + 3;
    return NULL;
}

/* \s+(?!\S)|\s+ at a white space character: all of the run at the end of the text, otherwise all
 * but its last character, which goes to the word that follows; a run of one stays. */
static const char *spaces(const char *p, const char *end)
{
    const char *stop = run(p, end, CLASS_SPACE);
    if (stop == end) return stop;
    const char *last = stop;
    do last--;
    while (((unsigned char)*last & 0xc0) == 0x80);
    return last > p ? last : stop;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ : a run that holds line ends stops after the last of them. */
static const char *spaces_or_lines(const char *p, const char *end)
{
    const char *stop = run(p, end, CLASS_SPACE);
    for (const char *q = stop; q > p; q--)
        if (is_newline((unsigned char)q[-1])) return q;
    return spaces(p, end);
}

const char *scan_gpt2(const struct split_step *s, const char *p, const char *end)
{
    (void)s;
    struct character c = char_at(p, end);
    const char *stop;
    if (c.code == '\'' && (stop = contraction(p, end, false))) return stop;
    const char *q = c.code == ' ' ? p + 1 : p;
    struct character first = char_at(q, end);
    if (first.class & CLASS_LETTER) return run(q, end, CLASS_LETTER);
    if (first.class & CLASS_NUMBER) return run(q, end, CLASS_NUMBER);
    if (first.len && !(first.class & CLASS_SPACE))
        return run_without(q, end, CLASS_SPACE | CLASS_LETTER | CLASS_NUMBER);
    return spaces(p, end);
}

const char *scan_words(const struct split_step *s, const char *p, const char *end)
{
    unsigned letters = s->letters;
    struct character c = char_at(p, end);
    const char *stop, *next = p + c.len;
    if (c.class & letters) return run(next, end, letters);
    if (c.class & CLASS_NUMBER) return up_to(p, end, CLASS_NUMBER, s->max);
    if (c.code == '\'' && (stop = contraction(p, end, true))) return stop;
    struct character after = char_at(next, end);
    if (!is_newline(c.code) && (after.class & letters)) return run(next, end, letters);
    unsigned not_other = CLASS_SPACE | CLASS_NUMBER | letters;
    if (c.code == ' ' && after.len && !(after.class & not_other))
        return run_newlines(run_without(next, end, not_other), end);
    if (c.class & CLASS_SPACE) return spaces_or_lines(p, end);
    return run_newlines(run_without(p, end, not_other), end);
}

enum {
    CASED_A = CLASS_UPPER | CLASS_UNCASED | CLASS_MARK,
    CASED_B = CLASS_LOWER | CLASS_UNCASED | CLASS_MARK
};

/* A*B+ at p, or NULL. A* takes all it can; if no B follows, it gives back up to its last character
 * that is also a B: that one is then the whole of B+, since what follows it is not. */
static const char *upper_lower(const char *p, const char *end)
{
    const char *after_both = NULL, *q = p;
    while (q < end) {
        struct character c = char_at(q, end);
        if (!(c.class & CASED_A)) break;
        q += c.len;
        if (c.class & CASED_B) after_both = q;
    }
    const char *stop = run(q, end, CASED_B);
    return stop > q ? stop : after_both;
}

/* A+B* at p, or NULL. */
static const char *uppers(const char *p, const char *end)
{
    const char *q = run(p, end, CASED_A);
    return q > p ? run(q, end, CASED_B) : NULL;
}

/* A word at p with or without one character before it: each form is tried with it first. */
static const char *cased_word(const char *p, struct character c, const char *end)
{
    bool prefix = !is_newline(c.code) && !(c.class & (CLASS_LETTER | CLASS_NUMBER));
    bool bare = c.class & (CLASS_LETTER | CLASS_MARK);
    const char *next = p + c.len, *stop = NULL;
    if (!bare && !(char_at(next, end).class & (CLASS_LETTER | CLASS_MARK))) return NULL;
    if (prefix && (stop = upper_lower(next, end))) return stop;
    if (bare && (stop = upper_lower(p, end))) return stop;
    if (prefix && (stop = uppers(next, end))) return stop;
    return bare ? uppers(p, end) : NULL;
}

static const char *run_newlines_slashes(const char *p, const char *end)
{
    while (p < end && (is_newline((unsigned char)*p) || *p == '/')) p++;
    return p;
}

const char *scan_cased(const struct split_step *s, const char *p, const char *end)
{
    enum { NOT_OTHER = CLASS_SPACE | CLASS_LETTER | CLASS_NUMBER };
    struct character c = char_at(p, end);
    if (c.class & CLASS_NUMBER) return up_to(p, end, CLASS_NUMBER, s->max);
    const char *stop = is_newline(c.code) ? NULL : cased_word(p, c, end);
    if (stop) {
        const char *more = s->contractions && stop < end && *stop == '\''
                               ? contraction(stop, end, true) : NULL;
        return more ? more : stop;
    }
    const char *q = c.code == ' ' ? p + 1 : p;
    struct character first = char_at(q, end);
    if (first.len && !(first.class & NOT_OTHER))
        return run_newlines_slashes(run_without(q, end, NOT_OTHER), end);
    return spaces_or_lines(p, end);
}

static bool is_ascii_letter(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

const char *scan_deepseek(const struct split_step *s, const char *p, const char *end)
{
    (void)s;
    enum { WORD = CLASS_LETTER | CLASS_MARK, SIGN = CLASS_PUNCT | CLASS_SYMBOL };
    struct character c = char_at(p, end);
    const char *next = p + c.len;
    if (c.code < 128 && (c.class & SIGN) && next < end && is_ascii_letter(*next)) {
        while (next < end && is_ascii_letter(*next)) next++;
        return next;
    }
    if (c.class & WORD) return run(next, end, WORD);
    struct character after = char_at(next, end);
    bool prefix = !is_newline(c.code) && !(c.class & SIGN);
    if (prefix && (after.class & WORD)) return run(next, end, WORD);
    if (c.class & SIGN) return run_newlines(run(next, end, SIGN), end);
    if (c.code == ' ' && (after.class & SIGN)) return run_newlines(run(next, end, SIGN), end);
    if (c.class & CLASS_SPACE) return spaces_or_lines(p, end);
    /* Digits, controls and unassigned codes match nothing, unless a word follows. */
    while (after.len && !(after.class & (WORD | SIGN | CLASS_SPACE))) {
        struct character beyond = char_at(next + after.len, end);
        if (beyond.class & WORD) break;
        next += after.len;
        after = beyond;
    }
    return next;
}

const char *scan_set(const struct split_step *s, const char *p, const char *end)
{
    const char *stop = up_to(p, end, s->set, s->max);
    return stop > p ? stop : run_without(p, end, s->set);
}

static bool is_han_kana(uint32_t code)
{
    return (code >= 0x4e00 && code <= 0x9fa5) || (code >= 0x3040 && code <= 0x30ff);
}

static bool is_punct(uint32_t code)
{
    if (code < 128 && is_one_of((char)code, "$+<=>^~|")) return true;
    return class_of(code) & CLASS_PUNCT;
}

/* Past all characters for which is() says what it says of the first. */
static const char *run_alike(const char *p, const char *end, bool (*is)(uint32_t code))
{
    int len;
    bool first = is(utf8_at(p, &len));
    for (p += len; p < end; p += len)
        if (is(utf8_at(p, &len)) != first) break;
    return p;
}

const char *scan_han_kana(const struct split_step *s, const char *p, const char *end)
{
    (void)s;
    return run_alike(p, end, is_han_kana);
}

const char *scan_punct(const struct split_step *s, const char *p, const char *end)
{
    (void)s;
    return run_alike(p, end, is_punct);
}

static bool three_digits(const char *p, const char *end)
{
    if (end - p < 3) return false;
    for (int i = 0; i < 3; i++)
        if (p[i] < '0' || p[i] > '9') return false;
    return true;
}

const char *scan_three_digits(const struct split_step *s, const char *p, const char *end)
{
    (void)s;
    if (three_digits(p, end)) return p + 3;
    while (p < end && !three_digits(p, end)) p++;
    return p;
}

/* The end of the line ends that stand at p. */
static const char *skip_lines(const char *p, const char *end)
{
    for (;;) {
        if (p < end && *p == '\n') p++;
        else if (end - p > 1 && p[0] == '\r' && p[1] == '\n') p += 2;
        else return p;
    }
}

const char *scan_before_lines(const struct split_step *s, const char *p, const char *end)
{
    (void)s;
    p = skip_lines(p, end);
    while (p < end && skip_lines(p, end) == p) p++;
    return p;
}

const char *scan_lines(const struct split_step *s, const char *p, const char *end)
{
    (void)s;
    bool first = *p == '\n';
    while (p < end && (*p == '\n') == first) p++;
    return p;
}
