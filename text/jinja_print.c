/* text/jinja_print.c - values as text: Python's str and repr, and json.dumps (tojson). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/jinja_private.h"
#include "text/unicode.h"

/* The shortest digits that read back the same; with an exponent below 1e-4 and from 1e16 on. */
int jinja_print_float(char out[40], double f)
{
    if (isnan(f)) return snprintf(out, 40, "nan");
    if (isinf(f)) return snprintf(out, 40, f < 0 ? "-inf" : "inf");
    char digits[40];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision, f);
        if (strtod(digits, NULL) == f) break;
    }
    char *e = strchr(digits, 'e');
    int exponent = atoi(e + 1), n = (int)(e - digits);
    if (exponent < -4 || exponent >= 16)
        return snprintf(out, 40, "%.*se%c%02d", n, digits, exponent < 0 ? '-' : '+', abs(exponent));
    int decimals = n - 2 - (*digits == '-') - exponent;
    if (n - (*digits == '-') == 1) decimals = -exponent;
    return snprintf(out, 40, "%.*f", decimals < 1 ? 1 : decimals, f);
}

static void print_scalar(struct jctx *c, struct jout *o, struct jval v)
{
    char text[40];
    switch (v.kind) {
    case J_UNDEFINED: return;
    case J_NONE: jout_words(o, "None"); return;
    case J_BOOL: jout_words(o, v.b ? "True" : "False"); return;
    case J_INT: snprintf(text, sizeof text, "%lld", (long long)v.i); break;
    case J_FLOAT: jinja_print_float(text, v.f); break;
    case J_BIG: jout_string(o, v.s); return;
    default: ctx_fail(c, LUCE_E_ARG, "%s cannot be written out", kind_name(v)); return;
    }
    jout_words(o, text);
}

static bool printable(uint32_t code)
{
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return code == ' ';
    default: return true;
    }
}

static void repr_string(struct jout *o, const struct jstring *s)
{
    bool single = memchr(s->at, '\'', s->len) != NULL, twice = memchr(s->at, '"', s->len) != NULL;
    char quote[2] = { single && !twice ? '"' : '\'', 0 };
    struct jcursor cursor = { .s = s };
    jout_words(o, quote);
    for (size_t i = 0; i < s->len;) {
        int n;
        uint32_t code = utf8_look(s->at + i, s->at + s->len, &n);
        bool plain = plain_at(&cursor, i);
        char text[12] = { '\\', (char)code, 0 };
        if (code == '\n') text[1] = 'n';
        else if (code == '\r') text[1] = 'r';
        else if (code == '\t') text[1] = 't';
        else if (code != '\\' && code != (unsigned char)*quote) {
            if (printable(code)) text[0] = 0;
            else snprintf(text, sizeof text, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
        }
        if (*text) jout_add(o, text, strlen(text), plain);
        else jout_add(o, s->at + i, (size_t)n, plain);
        i += (size_t)n;
    }
    jout_words(o, quote);
}

static void repr(struct jctx *c, struct jout *o, struct jval v)
{
    if (is_string(v)) {
        if (ctx_step(c, v.s->len)) repr_string(o, v.s);
        return;
    }
    if (v.kind != J_LIST && v.kind != J_DICT) {
        if (v.kind == J_UNDEFINED) jout_words(o, "Undefined");
        else print_scalar(c, o, v);
        return;
    }
    if (!ctx_deeper(c)) return;
    size_t n = v.kind == J_LIST ? v.list->len : v.dict->len;
    bool tuple = v.kind == J_LIST && v.list->tuple;
    jout_words(o, tuple ? "(" : v.kind == J_LIST ? "[" : "{");
    for (size_t i = 0; i < n && ctx_step(c, 0); i++) {
        if (i) jout_words(o, ", ");
        if (v.kind == J_DICT) {
            repr(c, o, v.dict->at[i].key);
            jout_words(o, ": ");
        }
        repr(c, o, v.kind == J_LIST ? v.list->at[i] : v.dict->at[i].value);
    }
    jout_words(o, tuple ? n == 1 ? ",)" : ")" : v.kind == J_LIST ? "]" : "}");
    c->depth--;
}

void print_value(struct jctx *c, struct jout *o, struct jval v)
{
    if (is_string(v)) jout_string(o, v.s);
    else if (v.kind == J_LIST || v.kind == J_DICT) repr(c, o, v);
    else print_scalar(c, o, v);
}

struct jval to_string(struct jctx *c, struct jval v)
{
    if (is_string(v)) return v;
    struct jout o = { .heap = c->heap };
    print_value(c, &o, v);
    return jval_string(c->heap, jout_get(&o));
}

/* ---- json.dumps ---------------------------------------------------------------------------------- */

static void json_string(struct jout *o, const struct jstring *s, bool ascii)
{
    struct jcursor cursor = { .s = s };
    jout_words(o, "\"");
    for (size_t i = 0; i < s->len;) {
        size_t start = i;           /* a stretch that stays as it is */
        bool plain = plain_at(&cursor, i);
        while (i < s->len && (unsigned char)s->at[i] >= 0x20 && s->at[i] != '"' && s->at[i] != '\\' &&
               !(ascii && (unsigned char)s->at[i] >= 0x7f) && plain_at(&cursor, i) == plain)
            i++;
        jout_add(o, s->at + start, i - start, plain);
        if (i > start) continue;
        int n;
        uint32_t code = utf8_look(s->at + i, s->at + s->len, &n);
        char text[16] = { '\\', (char)code, 0 };
        static const char short_form[] = "\nn\rr\tt\bb\ff";
        const char *known = code && code < 0x20 ? strchr(short_form, (int)code) : NULL;
        if (known) text[1] = known[1];
        else if (code >= 0x10000)
            snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
        else if (code != '"' && code != '\\' && code != 0x7f) snprintf(text, sizeof text, "\\u%04x", code);
        else if (code == 0x7f) snprintf(text, sizeof text, "\x7f");
        jout_add(o, text, strlen(text), plain);
        i += (size_t)n;
    }
    jout_words(o, "\"");
}

static void json_scalar(struct jctx *c, struct jout *o, struct jval v, bool ascii)
{
    switch (v.kind) {
    case J_STRING:
        if (ctx_step(c, v.s->len)) json_string(o, v.s, ascii);
        return;
    case J_NONE: jout_words(o, "null"); return;
    case J_BOOL: jout_words(o, v.b ? "true" : "false"); return;
    case J_FLOAT:
        if (isnan(v.f)) jout_words(o, "NaN");
        else if (isinf(v.f)) jout_words(o, v.f < 0 ? "-Infinity" : "Infinity");
        else print_scalar(c, o, v);
        return;
    case J_INT: case J_BIG: print_scalar(c, o, v); return;
    default: ctx_fail(c, LUCE_E_ARG, "tojson cannot write %s", kind_name(v));
    }
}

static void newline(struct jout *o, const struct json_form *form, int level)
{
    if (form->indent < 0) return;
    jout_words(o, "\n");
    for (int64_t i = 0; i < form->indent * level && !o->heap->failed; i++) jout_words(o, " ");
}

static int by_key(struct jctx *c, const struct jentry *a, const struct jentry *b)
{
    return order(c, a->key, b->key);
}

/* The entries in the order of their keys (insertion sort: schemas are small). */
static const struct jentry *sorted(struct jctx *c, const struct jdict *d)
{
    struct jentry *at = jheap_alloc(c->heap, d->len * sizeof *at);
    for (size_t i = 0; at && i < d->len; i++) {
        size_t k = i;
        for (; k > 0 && ctx_step(c, 0) && by_key(c, &at[k - 1], &d->at[i]) > 0; k--) at[k] = at[k - 1];
        at[k] = d->at[i];
    }
    return at;
}

static void json_value(struct jctx *c, struct jout *o, struct jval v, const struct json_form *form, int level)
{
    if (v.kind != J_LIST && v.kind != J_DICT) {
        json_scalar(c, o, v, form->ascii);
        return;
    }
    if (!ctx_deeper(c)) return;
    bool dict = v.kind == J_DICT;
    size_t n = dict ? v.dict->len : v.list->len;
    const struct jentry *entries = !dict ? NULL : form->sort ? sorted(c, v.dict) : v.dict->at;
    jout_words(o, dict ? "{" : "[");
    for (size_t i = 0; i < n && (!dict || entries) && ctx_step(c, 0); i++) {
        if (i && is_string(form->item)) jout_string(o, form->item.s);
        else if (i) jout_words(o, form->indent < 0 ? ", " : ",");
        newline(o, form, level + 1);
        if (dict) {
            struct jval key = entries[i].key;
            bool text = is_string(key);
            if (!text) jout_words(o, "\"");
            json_scalar(c, o, key, form->ascii);
            if (!text) jout_words(o, "\"");
            if (is_string(form->key)) jout_string(o, form->key.s);
            else jout_words(o, ": ");
        }
        json_value(c, o, dict ? entries[i].value : v.list->at[i], form, level + 1);
    }
    if (n) newline(o, form, level);
    jout_words(o, dict ? "}" : "]");
    c->depth--;
}

void print_json(struct jctx *c, struct jout *o, struct jval v, const struct json_form *form)
{
    json_value(c, o, v, form, 0);
}
