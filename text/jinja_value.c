/* text/jinja_value.c - values of templates: their heap, strings with marks, lists and dicts.
 * Strings are flat bytes; their marks are few, since neighbours of one kind melt together. */
#include <string.h>

#include "base/hash.h"
#include "text/jinja_private.h"
#include "text/unicode.h"

void *jheap_alloc(struct jheap *h, size_t bytes)
{
    size_t limit = h->limit ? h->limit : JINJA_MEMORY_MAX;
    if (h->failed) return NULL;
    if (bytes > limit - h->bytes) {
        h->failed = h->over = true;
        return NULL;
    }
    void *p = arena_alloc(&h->arena, bytes ? bytes : 1);
    if (!p) h->failed = true;
    else h->bytes += bytes;
    return p;
}

void jinja_heap_drop(struct jheap *h)
{
    arena_drop(&h->arena);
    *h = (struct jheap){ .limit = h->limit };
}

struct jval jval_string(struct jheap *h, struct jstring s)
{
    struct jstring *copy = jheap_alloc(h, sizeof *copy);
    if (!copy) return (struct jval){ 0 };
    *copy = s;
    return (struct jval){ .kind = J_STRING, .s = copy };
}

struct jval jval_words(struct jheap *h, const char *text, size_t len)
{
    return jval_string(h, (struct jstring){ .at = text, .len = len });
}

struct jval jinja_text(struct jheap *h, struct str text, bool plain)
{
    struct jout o = { .heap = h };
    jout_add(&o, text.at, text.len, plain);
    return jval_string(h, jout_get(&o));
}

struct jval jinja_int(int64_t i)
{
    return (struct jval){ .kind = J_INT, .i = i };
}

struct jval jinja_float(double f)
{
    return (struct jval){ .kind = J_FLOAT, .f = f };
}

struct jval jinja_big(struct jheap *h, struct str digits)
{
    struct jout o = { .heap = h };
    jout_add(&o, digits.at, digits.len, false);
    jout_add(&o, "", 1, false);                 /* number_of wants an end */
    struct jstring s = jout_get(&o);
    s.len -= s.len > 0;
    struct jval v = jval_string(h, s);
    if (is_string(v)) v.kind = J_BIG;
    return v;
}

struct jval jinja_bool(bool b)
{
    return (struct jval){ .kind = J_BOOL, .b = b };
}

struct jval jinja_none(void)
{
    return (struct jval){ .kind = J_NONE };
}

/* ---- lists --------------------------------------------------------------------------------------- */

struct jlist *jlist_new(struct jheap *h, size_t cap)
{
    struct jlist *l = jheap_alloc(h, sizeof *l);
    if (!l || cap == 0) return l;
    if (cap > SIZE_MAX / sizeof *l->at) cap = SIZE_MAX / sizeof *l->at;
    l->at = jheap_alloc(h, cap * sizeof *l->at);
    l->cap = l->at ? cap : 0;
    return l;
}

void jlist_push(struct jheap *h, struct jlist *l, struct jval v)
{
    if (!l) return;
    if (l->len == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 4;
        struct jval *at = jheap_alloc(h, cap * sizeof *at);
        if (!at) return;
        if (l->len) memcpy(at, l->at, l->len * sizeof *at);
        l->at = at;
        l->cap = cap;
    }
    l->at[l->len++] = v;
}

struct jval jval_list(struct jlist *l)
{
    return l ? (struct jval){ .kind = J_LIST, .list = l } : (struct jval){ 0 };
}

struct jval jinja_list(struct jheap *h)
{
    return jval_list(jlist_new(h, 0));
}

void jinja_push(struct jheap *h, struct jval list, struct jval item)
{
    if (list.kind == J_LIST) jlist_push(h, list.list, item);
}

size_t jinja_len(struct jval v)
{
    return v.kind == J_LIST ? v.list->len : 0;
}

struct jval jinja_at(struct jval v, size_t i)
{
    return v.list->at[i];
}

/* ---- dicts --------------------------------------------------------------------------------------- */

struct jdict *jdict_new(struct jheap *h)
{
    return jheap_alloc(h, sizeof(struct jdict));
}

static uint64_t hash_of(struct jval v)
{
    if (v.kind == J_STRING) return hash_bytes(v.s->at, v.s->len, 1);
    if (v.kind == J_BIG) return J_BIG;
    if (is_number(v)) return hash_u64((uint64_t)(int64_t)number_of(v));     /* 1, 1.0 and true agree */
    return v.kind;
}

static bool same_key(struct jval a, struct jval b)
{
    if (a.kind == J_STRING && b.kind == J_STRING)
        return a.s->len == b.s->len && memcmp(a.s->at, b.s->at, a.s->len) == 0;
    if (is_number(a) && is_number(b)) return number_of(a) == number_of(b);
    return a.kind == b.kind && a.kind == J_NONE;
}

static struct jentry *find_entry(const struct jdict *d, struct jval key, uint64_t hash)
{
    for (size_t i = 0; i < d->len; i++)
        if (d->at[i].hash == hash && same_key(d->at[i].key, key)) return &d->at[i];
    return NULL;
}

const struct jval *jdict_find(const struct jdict *d, struct jval key)
{
    const struct jentry *e = find_entry(d, key, hash_of(key));
    return e ? &e->value : NULL;
}

void jdict_set(struct jheap *h, struct jdict *d, struct jval key, struct jval value)
{
    if (!d) return;
    uint64_t hash = hash_of(key);
    struct jentry *e = find_entry(d, key, hash);
    if (e) {
        e->value = value;
        return;
    }
    if (d->len == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        struct jentry *at = jheap_alloc(h, cap * sizeof *at);
        if (!at) return;
        if (d->len) memcpy(at, d->at, d->len * sizeof *at);
        d->at = at;
        d->cap = cap;
    }
    d->at[d->len++] = (struct jentry){ .key = key, .value = value, .hash = hash };
}

struct jval jval_dict(struct jdict *d)
{
    return d ? (struct jval){ .kind = J_DICT, .dict = d } : (struct jval){ 0 };
}

struct jval jinja_dict(struct jheap *h)
{
    return jval_dict(jdict_new(h));
}

void jinja_put(struct jheap *h, struct jval dict, struct str key, bool plain, struct jval value)
{
    struct jval k = dict.kind == J_DICT ? jinja_text(h, key, plain) : (struct jval){ 0 };
    if (is_string(k)) jdict_set(h, dict.dict, k, value);
}

struct jval jinja_get(struct jval v, const char *key)
{
    struct jstring s = { .at = key, .len = strlen(key) };
    const struct jval *found =
        v.kind == J_DICT ? jdict_find(v.dict, (struct jval){ .kind = J_STRING, .s = &s }) : NULL;
    return found ? *found : (struct jval){ 0 };
}

struct str jinja_str(struct jval v)
{
    return is_string(v) ? (struct str){ v.s->at, v.s->len } : (struct str){ "", 0 };
}

/* ---- strings ------------------------------------------------------------------------------------- */

static bool grow_bytes(struct jout *o, size_t more)
{
    if (o->cap - o->len >= more) return true;
    size_t cap = o->cap ? o->cap * 2 : 48;
    if (cap < o->len + more) cap = o->len + more;
    char *at = jheap_alloc(o->heap, cap);
    if (!at) return false;
    if (o->len) memcpy(at, o->at, o->len);
    o->at = at;
    o->cap = cap;
    return true;
}

static bool add_mark(struct jout *o, size_t from, size_t to)
{
    if (o->n_marks && o->marks[o->n_marks - 1].to == from) {
        o->marks[o->n_marks - 1].to = to;
        return true;
    }
    if (o->n_marks == o->cap_marks) {
        size_t cap = o->cap_marks ? o->cap_marks * 2 : 1;
        struct jmark *marks = jheap_alloc(o->heap, cap * sizeof *marks);
        if (!marks) return false;
        if (o->n_marks) memcpy(marks, o->marks, o->n_marks * sizeof *marks);
        o->marks = marks;
        o->cap_marks = cap;
    }
    o->marks[o->n_marks++] = (struct jmark){ from, to };
    return true;
}

void jout_add(struct jout *o, const char *bytes, size_t len, bool plain)
{
    if (len == 0 || o->heap->failed || !grow_bytes(o, len)) return;
    if (plain && !add_mark(o, o->len, o->len + len)) return;
    memcpy(o->at + o->len, bytes, len);
    o->len += len;
}

void jout_words(struct jout *o, const char *text)
{
    jout_add(o, text, strlen(text), false);
}

void jout_string(struct jout *o, const struct jstring *s)
{
    size_t at = 0;
    for (size_t i = 0; i < s->n_marks; i++) {
        jout_add(o, s->at + at, s->marks[i].from - at, false);
        jout_add(o, s->at + s->marks[i].from, s->marks[i].to - s->marks[i].from, true);
        at = s->marks[i].to;
    }
    jout_add(o, s->at + at, s->len - at, false);
}

struct jstring jout_get(const struct jout *o)
{
    return (struct jstring){ .at = o->len ? o->at : "", .len = o->len, .marks = o->marks, .n_marks = o->n_marks };
}

struct jstring jstring_slice(struct jheap *h, const struct jstring *s, size_t from, size_t to)
{
    struct jstring out = { .at = s->at + from, .len = to - from };
    size_t first = 0;
    while (first < s->n_marks && s->marks[first].to <= from) first++;
    size_t last = first;
    while (last < s->n_marks && s->marks[last].from < to) last++;
    if (last == first || to == from) return out;
    struct jmark *marks = jheap_alloc(h, (last - first) * sizeof *marks);
    if (!marks) return out;
    for (size_t i = first; i < last; i++) {
        struct jmark m = s->marks[i];
        marks[i - first].from = m.from > from ? m.from - from : 0;
        marks[i - first].to = (m.to < to ? m.to : to) - from;
    }
    out.marks = marks;
    out.n_marks = last - first;
    return out;
}

bool plain_at(struct jcursor *c, size_t at)
{
    while (c->mark < c->s->n_marks && c->s->marks[c->mark].to <= at) c->mark++;
    return c->mark < c->s->n_marks && c->s->marks[c->mark].from <= at;
}

size_t utf8_count(const char *p, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) n += ((unsigned char)p[i] & 0xc0) != 0x80;
    return n;
}

size_t utf8_offset(const char *p, size_t len, size_t index)
{
    size_t i = 0;
    for (; i < len; i++)
        if (((unsigned char)p[i] & 0xc0) != 0x80 && index-- == 0) break;
    return i;
}

uint32_t utf8_look(const char *p, const char *end, int *len)
{
    int n = utf8_valid(p, (size_t)(end - p));
    if (n > 0) return utf8_at(p, len);
    *len = 1;
    return (unsigned char)*p < 0x80 ? (unsigned char)*p : 0xfffd;
}

bool is_blank(uint32_t code)
{
    return (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20) || code == 0x85 || code == 0xa0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
           code == 0x202f || code == 0x205f || code == 0x3000;
}
