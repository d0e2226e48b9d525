/* text/jinja_lex.c - the tokens of a template, with Jinja's rules for white space: '-' strips all of
 * it on its side, a block or comment tag that is first on its line loses the blanks before it
 * (unless '+'), and one newline right after such a tag goes. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/jinja_private.h"
#include "text/unicode.h"

void jinja_position(const struct jinja *t, size_t at, uint32_t *line, uint32_t *column)
{
    *line = 1;
    size_t start = 0;
    for (size_t i = 0; i < at && i < t->text.len; i++)
        if (t->text.at[i] == '\n') {
            (*line)++;
            start = i + 1;
        }
    *column = (uint32_t)utf8_count(t->text.at + start, at > start ? at - start : 0) + 1;
}

luce_status jlex_fail(struct jlexer *l, size_t at, const char *format, ...)
{
    if (l->status) return l->status;
    char words[400];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    uint32_t line, column;
    jinja_position(l->t, at, &line, &column);
    return l->status = fail(l->err, LUCE_E_FORMAT, "%s: line %u, column %u: %s", l->t->name, line, column, words);
}

static bool begins(const struct jlexer *l, size_t at, const char *what)
{
    size_t n = strlen(what);
    return l->t->text.len - at >= n && memcmp(l->t->text.at + at, what, n) == 0;
}

/* Where the white space from `at` on ends. */
static size_t skip_blank(const struct jlexer *l, size_t at)
{
    const char *end = l->t->text.at + l->t->text.len;
    int len;
    while (at < l->t->text.len && is_blank(utf8_look(l->t->text.at + at, end, &len))) at += (size_t)len;
    return at;
}

/* The end of data [from, to) without the white space at its end; blanks of the last line only when
 * `line` is set, and then nothing unless they are all of the line. */
static size_t strip_end(const struct jlexer *l, size_t from, size_t to, bool line)
{
    const char *p = l->t->text.at, *limit = p + to;
    size_t at = to, start = from;
    if (line) {
        while (at > from && p[at - 1] != '\n') at--;
        if (at == from && !l->line_start) return to;
        start = at;
    }
    size_t end = start;         /* after the last character that stays */
    for (at = start; at < to;) {
        int len;
        bool blank = is_blank(utf8_look(p + at, limit, &len));
        at += (size_t)len;
        if (!blank) end = at;
    }
    return line && end != start ? to : end;
}

/* Where a comment, or the body of a raw block, ends: at the first `{%- endraw` or `#}`. */
static size_t find_text(const struct jlexer *l, size_t at, const char *what)
{
    while (at < l->t->text.len && !begins(l, at, what)) at++;
    return at;
}

/* After a tag whose end is at l->pos (2 bytes), `sign` before it: what follows is white space to drop. */
static void after_tag(struct jlexer *l, char sign, bool block)
{
    l->pos += 2;
    if (sign == '-') l->pos = skip_blank(l, l->pos);
    else if (block && sign != '+' && l->pos < l->t->text.len && l->t->text.at[l->pos] == '\n') l->pos++;
    l->line_start = l->pos > 0 && l->t->text.at[l->pos - 1] == '\n';
}

static bool skip_comment(struct jlexer *l, size_t at)
{
    size_t end = find_text(l, at + 2, "#}");
    if (end == l->t->text.len) {
        jlex_fail(l, at, "a comment is not closed by '#}'");
        return false;
    }
    char sign = end > at + 2 ? l->t->text.at[end - 1] : 0;
    l->pos = end;
    after_tag(l, sign, true);
    return true;
}

/* `{% raw %}` at `at`: sets *from and *to to its text and moves behind its end. False: no raw tag. */
static bool raw_block(struct jlexer *l, size_t at, size_t *from, size_t *to)
{
    const char *p = l->t->text.at;
    size_t name = at + 2;
    if (begins(l, name, "-") || begins(l, name, "+")) name++;
    name = skip_blank(l, name);
    if (!begins(l, name, "raw")) return false;
    size_t close = skip_blank(l, name + 3);
    char sign = begins(l, close, "-") || begins(l, close, "+") ? p[close++] : 0;
    if (!begins(l, close, "%}")) return false;
    l->pos = close;
    after_tag(l, sign, true);
    *from = l->pos;
    for (size_t i = find_text(l, l->pos, "{%"); i < l->t->text.len; i = find_text(l, i + 2, "{%")) {
        size_t word = i + 2;
        char left = begins(l, word, "-") || begins(l, word, "+") ? p[word++] : 0;
        word = skip_blank(l, word);
        if (!begins(l, word, "endraw")) continue;
        size_t end = skip_blank(l, word + 6);
        char right = begins(l, end, "-") || begins(l, end, "+") ? p[end++] : 0;
        if (!begins(l, end, "%}")) continue;
        *to = left == '-' ? strip_end(l, *from, i, false) : left == '+' ? i : strip_end(l, *from, i, true);
        l->pos = end;
        after_tag(l, right, true);
        return true;
    }
    jlex_fail(l, at, "a raw block is not closed by '{%% endraw %%}'");
    return true;
}

/* Data up to the next tag; may be empty, then the caller goes on with what follows. */
static struct jtoken data(struct jlexer *l)
{
    const char *p = l->t->text.at;
    size_t from = l->pos, at = from;
    while (at < l->t->text.len && !begins(l, at, "{{") && !begins(l, at, "{%") && !begins(l, at, "{#")) at++;
    struct jtoken token = { .kind = T_DATA, .at = from, .text = { p + from, at - from } };
    if (at == l->t->text.len) {
        l->pos = at;
        if (from == at) token.kind = T_END;
        return token;
    }
    char sign = at + 2 < l->t->text.len ? p[at + 2] : 0;
    size_t to = sign == '-' ? strip_end(l, from, at, false)
                : sign != '+' && p[at + 1] != '{' ? strip_end(l, from, at, true)
                                                  : at;
    token.text.len = to - from;
    size_t raw_from = 0, raw_to = 0;
    if (p[at + 1] == '#') {
        skip_comment(l, at);
    } else if (p[at + 1] == '%' && raw_block(l, at, &raw_from, &raw_to)) {
        if (raw_to < raw_from) raw_to = raw_from;
        char *joined = jheap_alloc(&l->t->heap, token.text.len + (raw_to - raw_from));
        if (!joined) {
            l->status = fail(l->err, LUCE_E_NOMEM, "%s: out of memory", l->t->name);
            return (struct jtoken){ .kind = T_END };
        }
        memcpy(joined, token.text.at, token.text.len);
        memcpy(joined + token.text.len, p + raw_from, raw_to - raw_from);
        token.text = (struct str){ joined, token.text.len + (raw_to - raw_from) };
    } else {
        l->inside = p[at + 1] == '{' ? '}' : '%';
        l->begun = true;
        l->balance = 0;
        l->pos = at + 2 + (sign == '-' || sign == '+');
    }
    return token;
}

/* ---- inside a tag -------------------------------------------------------------------------------- */

static bool name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static struct jtoken number(struct jlexer *l, struct jtoken token)
{
    const char *p = l->t->text.at;
    size_t at = l->pos, end = l->t->text.len;
    char text[64];
    size_t n = 0;
    bool real = false;
    for (; at < end && n < sizeof text - 1; at++) {
        char c = p[at];
        if (c == '.' && !real && at + 1 < end && digit(p[at + 1])) real = true;
        else if ((c == 'e' || c == 'E') && at + 1 < end &&
                 (digit(p[at + 1]) || ((p[at + 1] == '-' || p[at + 1] == '+') && at + 2 < end && digit(p[at + 2])))) {
            real = true;
            text[n++] = c;
            if (n < sizeof text - 1) text[n++] = p[++at];
            continue;
        } else if (c == '_' && at + 1 < end && digit(p[at + 1])) continue;
        else if (!digit(c) && c != '.') break;
        if (c == '.' && !(at + 1 < end && digit(p[at + 1]))) break;
        text[n++] = c;
    }
    text[n] = 0;
    l->pos = at;
    token.kind = real ? T_FLOAT : T_INT;
    errno = 0;
    if (real) token.f = strtod(text, NULL);
    else token.i = strtoll(text, NULL, 10);
    if (n == sizeof text - 1 || (errno == ERANGE && !real)) jlex_fail(l, token.at, "the number %s is too large", text);
    return token;
}

static int hex_digits(const char *p, const char *end, int n, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < n; i++) {
        int v = p + i < end ? hex_digit(p[i]) : -1;
        if (v < 0) return 0;
        *code = *code << 4 | (uint32_t)v;
    }
    return n;
}

/* The escape at p (after the backslash) written to out; the number of bytes read. */
static int unescape(const char *p, const char *end, struct jout *out)
{
    static const char plain[] = "n\nt\tr\rb\bf\fv\va\a\\\\''\"\"";
    for (size_t i = 0; plain[i]; i += 2)
        if (*p == plain[i]) {
            jout_add(out, plain + i + 1, 1, false);
            return 1;
        }
    if (*p == '\n') return 1;
    uint32_t code = 0;
    int n = *p == 'x' ? 2 : *p == 'u' ? 4 : *p == 'U' ? 8 : 0;
    if (n && (n = hex_digits(p + 1, end, n, &code)) > 0) {
        n++;
    } else if (*p >= '0' && *p <= '7') {
        for (n = 0; n < 3 && p + n < end && p[n] >= '0' && p[n] <= '7'; n++) code = code * 8 + (uint32_t)(p[n] - '0');
    } else {
        jout_add(out, "\\", 1, false);
        return 0;
    }
    char bytes[4];
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) code = 0xfffd;
    jout_add(out, bytes, (size_t)utf8_put(bytes, code), false);
    return n;
}

static struct jtoken string(struct jlexer *l, struct jtoken token)
{
    const char *p = l->t->text.at + l->pos, *end = l->t->text.at + l->t->text.len;
    char quote = *p++;
    const char *q = p;
    while (q < end && *q != quote) q += *q == '\\' && q + 1 < end ? 2 : 1;
    if (q >= end) {
        jlex_fail(l, token.at, "a string is not closed by %c", quote);
        return token;
    }
    struct jout out = { .heap = &l->t->heap };
    for (const char *s = p; s < q;) {
        const char *back = memchr(s, '\\', (size_t)(q - s));
        jout_add(&out, s, (size_t)((back ? back : q) - s), false);
        s = back ? back + 1 : q;
        if (back) s += unescape(s, q, &out);
    }
    l->pos = (size_t)(q + 1 - l->t->text.at);
    token.kind = T_STRING;
    struct jstring got = jout_get(&out);
    token.text = (struct str){ got.at, got.len };
    if (l->t->heap.failed) l->status = fail(l->err, LUCE_E_NOMEM, "%s: out of memory", l->t->name);
    return token;
}

/* The end of the tag at `at`: `}}`, `-}}`, `%}`, ...; 0 bytes when it is not there. */
static bool tag_end(struct jlexer *l, struct jtoken *token)
{
    const char *p = l->t->text.at + l->pos;
    size_t left = l->t->text.len - l->pos;
    bool block = l->inside == '%';
    char sign = left > 2 && (*p == '-' || (block && *p == '+')) ? *p : 0;
    if (left < 2u + (sign != 0) || p[sign != 0] != (char)l->inside || p[1 + (sign != 0)] != '}') return false;
    if (l->balance) return false;
    token->kind = block ? T_BLOCK_END : T_OUTPUT_END;
    token->text = (struct str){ p, 2u + (sign != 0) };
    l->pos += sign != 0;
    l->inside = 0;
    after_tag(l, sign, block);
    return true;
}

static struct jtoken punct(struct jlexer *l, struct jtoken token)
{
    static const char *const known[] = { "**", "//", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[", "]",
                                         "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";" };
    for (size_t i = 0; i < COUNT(known); i++) {
        if (!begins(l, l->pos, known[i])) continue;
        char c = *known[i];
        l->balance += c == '(' || c == '[' || c == '{';
        l->balance -= (c == ')' || c == ']' || c == '}') && l->balance > 0;
        token.kind = T_PUNCT;
        token.text = str_of(known[i]);
        l->pos += token.text.len;
        return token;
    }
    jlex_fail(l, l->pos, "the character '%.1s' means nothing here", l->t->text.at + l->pos);
    return token;
}

struct jtoken jlex(struct jlexer *l)
{
    struct jtoken token = { .kind = T_END, .at = l->pos };
    if (l->status) return token;
    if (!l->inside) {
        token = data(l);
        if (l->status) return (struct jtoken){ .kind = T_END, .at = l->pos };
        if (token.kind == T_END || token.text.len || !l->begun) return token;
    }
    if (l->begun) {
        l->begun = false;
        return (struct jtoken){ .kind = l->inside == '}' ? T_OUTPUT_BEGIN : T_BLOCK_BEGIN, .at = l->pos };
    }
    l->pos = skip_blank(l, l->pos);
    token.at = l->pos;
    if (l->pos == l->t->text.len) {
        jlex_fail(l, l->pos, "the template ends inside a tag: '%s' is missing", l->inside == '}' ? "}}" : "%}");
        return token;
    }
    if (tag_end(l, &token)) return token;
    const char *p = l->t->text.at + l->pos;
    if (name_start(*p)) {
        size_t end = l->pos;
        while (end < l->t->text.len && (name_start(l->t->text.at[end]) || digit(l->t->text.at[end]))) end++;
        token.kind = T_NAME;
        token.text = (struct str){ p, end - l->pos };
        l->pos = end;
        return token;
    }
    if (digit(*p)) return number(l, token);
    if (*p == '"' || *p == '\'') return string(l, token);
    return punct(l, token);
}
