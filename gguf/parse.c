/* gguf/parse.c - one file's header, byte by byte, from hostile bytes to a checked view.
 *   magic, version, n_tensors, n_keys | keys | tensor infos | pad to alignment | tensor data
 * All sums and products are either tested for overflow or written so that they cannot (a length is
 * compared with what is left of the file). Nothing is allocated from a count before the count was
 * compared with the bytes that its entries need at the least. Fields are not aligned. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "gguf/inside.h"
#include "gguf/types.h"

enum {
    LEAST_KEY = 8 + 4 + 1,          /* name length, type, shortest value */
    LEAST_TENSOR = 8 + 4 + 4 + 8,   /* name length, n_dims, type, offset */
    SHOWN = 100,                    /* bytes of a name in a message */
};

/* Where the parser is, and what it is reading: the beginning of every message. */
struct cursor {
    const struct part *part;
    uint64_t at;
    const char *kind;               /* "key", "tensor" or NULL in the fixed header */
    uint64_t index;
    struct str name;                /* empty until it was read */
    luce_error *err;
};

/* What the tensor table says about one tensor's place, kept until the data section is known. */
struct extent {
    uint64_t offset, bytes, info_at;
    size_t tensor;                  /* index in g->tensors */
};

__attribute__((format(printf, 3, 4)))
static luce_status bad(const struct cursor *c, uint64_t at, const char *format, ...)
{
    char text[700], where[SHOWN + 60] = "header";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int shown = c->name.len > SHOWN ? SHOWN : (int)c->name.len;
    if (c->kind && shown)
        snprintf(where, sizeof where, "%s '%.*s'", c->kind, shown, c->name.at);
    else if (c->kind)
        snprintf(where, sizeof where, "%s %" PRIu64, c->kind, c->index);
    return fail(c->err, LUCE_E_FORMAT, "%s: %s at byte %" PRIu64 ": %s", c->part->path, where, at,
                text);
}

static luce_status cut_short(const struct cursor *c, const char *field, uint64_t bytes)
{
    return bad(c, c->at, "%s needs %" PRIu64 " bytes, the file ends at %" PRIu64
               ". The file is cut short (fetch it again) or damaged.", field, bytes, c->part->size);
}

static uint64_t remaining(const struct cursor *c) { return c->part->size - c->at; }

/* Little-endian fields; the callers of these have checked `remaining`. */
static uint32_t get_u32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}
static uint64_t get_u64(const uint8_t *at) { return get_u32(at) | (uint64_t)get_u32(at + 4) << 32; }

static luce_status read_u32(struct cursor *c, const char *field, uint32_t *out)
{
    *out = 0;
    if (remaining(c) < 4) return cut_short(c, field, 4);
    *out = get_u32(c->part->data + c->at);
    c->at += 4;
    return LUCE_OK;
}

static luce_status read_u64(struct cursor *c, const char *field, uint64_t *out)
{
    *out = 0;
    if (remaining(c) < 8) return cut_short(c, field, 8);
    *out = get_u64(c->part->data + c->at);
    c->at += 8;
    return LUCE_OK;
}

/* A length and that many bytes, of which 1 to `limit` are allowed. */
static luce_status read_name(struct cursor *c, uint64_t limit, struct str *out)
{
    uint64_t at = c->at, len;
    luce_status st = read_u64(c, "the length of its name", &len);
    if (st) return st;
    if (len == 0)
        return bad(c, at, "its name is empty (length 0); 1 to %" PRIu64 " bytes are allowed",
                   limit);
    if (len > limit)
        return bad(c, at, "its name has length %" PRIu64 "; 1 to %" PRIu64 " bytes are allowed",
                   len, limit);
    if (len > remaining(c)) return cut_short(c, "its name", len);
    *out = (struct str){ (const char *)c->part->data + c->at, (size_t)len };
    const void *nul = memchr(out->at, 0, out->len);
    if (nul) return bad(c, at, "its name holds a zero byte");
    c->name = *out;
    c->at += len;
    return LUCE_OK;
}

static luce_status skip_string(struct cursor *c)
{
    uint64_t at = c->at, len;
    luce_status st = read_u64(c, "the length of a string", &len);
    if (st) return st;
    if (len > GGUF_MAX_VALUE && len <= remaining(c))
        return bad(c, at, "a string of %" PRIu64 " bytes; at most %d are allowed", len,
                   GGUF_MAX_VALUE);
    if (len > remaining(c))
        return bad(c, at, "a string claims %" PRIu64 " bytes, %" PRIu64 " are left in the file"
                   ". The file is cut short (fetch it again) or damaged.", len, remaining(c));
    c->at += len;
    return LUCE_OK;
}

static luce_status skip_array(struct cursor *c, struct gguf_key *k)
{
    uint64_t at = c->at;
    uint32_t element;
    luce_status st = read_u32(c, "the element type of its array", &element);
    if (st) return st;
    if (element == GGUF_ARRAY) return bad(c, at, "an array of arrays, which no known model uses");
    if (element >= GGUF_N_TYPES)
        return bad(c, at, "array of type %" PRIu32 "; known are 0 to %d", element,
                   GGUF_N_TYPES - 1);
    k->element = (enum gguf_type)element;
    at = c->at;
    st = read_u64(c, "the length of its array", &k->count);
    if (st) return st;
    uint64_t least = element == GGUF_STRING ? 8 : gguf_type_bytes(k->element);
    if (k->count > remaining(c) / least)
        return bad(c, at, "an array claims %" PRIu64 " elements of type %s, but only %" PRIu64
                   " bytes are left in the file. It is cut short (fetch it again) or damaged.",
                   k->count, gguf_type_name(k->element), remaining(c));
    if (k->count > GGUF_MAX_VALUE)
        return bad(c, at, "an array of %" PRIu64 " elements; at most %d are allowed", k->count,
                   GGUF_MAX_VALUE);
    k->value = c->part->data + c->at;
    if (element != GGUF_STRING) c->at += k->count * least;
    else
        for (uint64_t i = 0; i < k->count; i++)
            if ((st = skip_string(c))) return st;
    return LUCE_OK;
}

static luce_status parse_key(struct cursor *c, struct gguf_key *k)
{
    luce_status st = read_name(c, GGUF_MAX_KEY, &k->name);
    if (st) return st;
    uint64_t at = c->at;
    uint32_t type;
    if ((st = read_u32(c, "its type", &type))) return st;
    if (type >= GGUF_N_TYPES)
        return bad(c, at, "its value is of type %" PRIu32 "; known are 0 to %d", type,
                   GGUF_N_TYPES - 1);
    k->type = k->element = (enum gguf_type)type;
    k->count = 1;
    k->value = c->part->data + c->at;
    if (type == GGUF_ARRAY) return skip_array(c, k);
    if (type == GGUF_STRING) return skip_string(c);
    unsigned bytes = gguf_type_bytes(k->type);
    if (bytes > remaining(c)) return cut_short(c, "its value", bytes);
    c->at += bytes;
    return LUCE_OK;
}

static luce_status no_memory(const struct part *p, luce_error *err, const char *what, uint64_t n)
{
    return fail(err, LUCE_E_NOMEM, "%s: out of memory for %" PRIu64 " %s", p->path, n, what);
}

static luce_status parse_keys(struct part *p, struct cursor *c, uint64_t n)
{
    if (!n) return LUCE_OK;
    p->keys = mem_array((size_t)n, sizeof *p->keys);
    if (!p->keys) return no_memory(p, c->err, "keys", n);
    c->kind = "key";
    for (uint64_t i = 0; i < n; i++) {
        c->index = i;
        c->name = (struct str){ 0 };
        uint64_t at = c->at, old;
        luce_status st = parse_key(c, &p->keys[i]);
        if (st) return st;
        int added = map_add(&p->key_index, p->keys[i].name, i, &old);
        if (added < 0) return no_memory(p, c->err, "keys", n);
        if (!added)
            return bad(c, at, "this key is there twice, first as key %" PRIu64 " at byte %" PRIu64,
                       old, (uint64_t)((const uint8_t *)p->keys[old].name.at - p->data - 8));
        p->n_keys++;
    }
    return LUCE_OK;
}

static luce_status parse_alignment(struct part *p, struct cursor *c)
{
    p->alignment = GGUF_DEFAULT_ALIGNMENT;
    const struct gguf_key *k = part_key(p, "general.alignment");
    if (!k) return LUCE_OK;
    c->name = k->name;
    uint64_t at = (uint64_t)(k->value - p->data);
    if (k->type != GGUF_U32)
        return bad(c, at, "it is of type %s, it must be u32", gguf_type_name(k->type));
    p->alignment = get_u32(k->value);
    if (p->alignment == 0 || p->alignment & (p->alignment - 1) || p->alignment > GGUF_MAX_ALIGNMENT)
        return bad(c, at, "it is %" PRIu32 ", it must be a power of two from 1 to %d", p->alignment,
                   GGUF_MAX_ALIGNMENT);
    return LUCE_OK;
}

/* Dimensions and type, and from them the size in bytes. */
static luce_status parse_shape(struct cursor *c, struct gguf_tensor *t)
{
    uint64_t at = c->at;
    uint32_t n_dims;
    luce_status st = read_u32(c, "its number of dimensions", &n_dims);
    if (st) return st;
    if (n_dims > 4)
        return bad(c, at, "it has %" PRIu32 " dimensions, at most 4 are allowed", n_dims);
    t->n_dims = (int)n_dims;
    for (int i = 0; i < 4; i++) t->dim[i] = 1;
    for (int i = 0; i < t->n_dims; i++) {
        at = c->at;
        if ((st = read_u64(c, "its dimensions", &t->dim[i]))) return st;
        if (t->dim[i] == 0) return bad(c, at, "dimension %d is 0, it must be at least 1", i);
        if (t->dim[i] > INT64_MAX)
            return bad(c, at, "size overflows: dimension %d is %" PRIu64, i, t->dim[i]);
    }
    at = c->at;
    if ((st = read_u32(c, "its type", &t->type))) return st;
    const struct gguf_tensor_type *type = gguf_tensor_type_find(t->type);
    if (!type)
        return bad(c, at, "tensor type id %" PRIu32 " %s", t->type, gguf_refused_type(t->type));
    if (t->dim[0] % type->block)
        return bad(c, at, "its rows of %" PRIu64 " elements are not whole blocks of %s (%" PRIu32
                   " elements each)", t->dim[0], type->name, type->block);
    bool wraps = __builtin_mul_overflow(t->dim[0] / type->block, (uint64_t)type->bytes, &t->bytes);
    for (int i = 1; i < 4; i++) wraps |= __builtin_mul_overflow(t->bytes, t->dim[i], &t->bytes);
    if (wraps)
        return bad(c, at, "size overflows 64 bits: [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                   "] of %s", t->dim[0], t->dim[1], t->dim[2], t->dim[3], type->name);
    return LUCE_OK;
}

static luce_status parse_tensor(struct gguf *g, struct cursor *c, struct extent *e)
{
    struct gguf_tensor *t = &g->tensors[g->n_tensors];
    *t = (struct gguf_tensor){ 0 };
    *e = (struct extent){ .info_at = c->at, .tensor = g->n_tensors };
    struct str name = { 0 };
    luce_status st = read_name(c, GGUF_MAX_NAME, &name);
    if (!st) st = parse_shape(c, t);
    if (!st) st = read_u64(c, "its offset", &e->offset);
    if (st) return st;
    e->bytes = t->bytes;
    t->name = arena_text(&g->arena, name.at, name.len);
    if (!t->name) return no_memory(c->part, c->err, "tensor names", c->index + 1);
    uint64_t old;
    int added = map_add(&g->tensor_index, (struct str){ t->name, name.len }, g->n_tensors, &old);
    if (added < 0) return no_memory(c->part, c->err, "tensor names", c->index + 1);
    if (!added)
        return bad(c, e->info_at, "a tensor of this name is there twice, first as tensor %" PRIu64
                   " of the model", old);
    g->n_tensors++;
    return LUCE_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Every tensor lies aligned in the data section, and no two share a byte. */
static luce_status check_extents(struct gguf *g, struct part *p, struct cursor *c, struct extent *e,
                                 size_t n)
{
    uint64_t start = (c->at + p->alignment - 1) / p->alignment * p->alignment;
    if (start > p->size) return cut_short(c, "the padding before the tensor data", start - c->at);
    uint64_t size = p->size - start;
    bool sorted = true;
    for (size_t i = 0; i < n; i++) {
        struct gguf_tensor *t = &g->tensors[e[i].tensor];
        c->name = str_of(t->name);
        if (e[i].offset % p->alignment)
            return bad(c, e[i].info_at,
                       "its offset %" PRIu64 " is not a multiple of the alignment %" PRIu32,
                       e[i].offset, p->alignment);
        if (e[i].bytes > size)
            return bad(c, e[i].info_at, "its size overflows the file: it claims %" PRIu64
                       " bytes, the tensor data has %" PRIu64
                       ". The file is cut short (fetch it again) or damaged.", e[i].bytes, size);
        if (e[i].offset > size - e[i].bytes)        /* offset + bytes could wrap */
            return bad(c, e[i].info_at,
                       "it needs %" PRIu64 " bytes from offset %" PRIu64
                       " of the tensor data, which begins at byte %" PRIu64 " and has %" PRIu64
                       ": the file ends at %" PRIu64
                       ". It is cut short (fetch it again) or damaged.",
                       e[i].bytes, e[i].offset, start, size, p->size);
        t->data = p->data + start + e[i].offset;
        if (i && e[i].offset < e[i - 1].offset) sorted = false;
    }
    if (!sorted) qsort(e, n, sizeof *e, by_offset);
    for (size_t i = 1; i < n; i++) {
        if (e[i - 1].bytes <= e[i].offset - e[i - 1].offset) continue;
        c->name = str_of(g->tensors[e[i].tensor].name);
        return bad(c, e[i].info_at, "it overlaps tensor '%s': offset %" PRIu64
                   " lies before the other's end at %" PRIu64, g->tensors[e[i - 1].tensor].name,
                   e[i].offset, e[i - 1].offset + e[i - 1].bytes);
    }
    p->end = start + e[n - 1].offset + e[n - 1].bytes;
    return LUCE_OK;
}

static luce_status parse_tensors(struct gguf *g, struct part *p, struct cursor *c, uint64_t n)
{
    p->end = c->at;
    if (!n) return LUCE_OK;
    if (n > remaining(c) / LEAST_TENSOR) {
        c->kind = NULL;
        return bad(c, 8,
                   "%" PRIu64 " tensors cannot fit the %" PRIu64 " bytes left after the keys. "
                   "The file is cut short (fetch it again) or damaged.",
                   n, remaining(c));
    }
    struct extent *extents = mem_array((size_t)n, sizeof *extents);
    struct gguf_tensor *more = mem_resize(g->tensors, (g->n_tensors + (size_t)n) * sizeof *more);
    if (more) g->tensors = more;
    luce_status st = LUCE_OK;
    if (!extents || !more) st = no_memory(p, c->err, "tensors", n);
    c->kind = "tensor";
    for (uint64_t i = 0; i < n && !st; i++) {
        c->index = i;
        c->name = (struct str){ 0 };
        st = parse_tensor(g, c, &extents[i]);
    }
    if (!st) st = check_extents(g, p, c, extents, (size_t)n);
    mem_free(extents);
    return st;
}

/* What people pass by mistake, by its first bytes. */
static const char *guess_content(const struct part *p)
{
    static const struct { const char *start, *says; } known[] = {
        { "version https://git-lfs", ". It is a Git LFS pointer: run 'git lfs pull'" },
        { "<", ". It looks like a web page: download the file itself" },
        { "PK", ". It looks like a zip or PyTorch file: convert it first" },
        { "lmgg", ". It is a GGML file from before GGUF: get a newer conversion" },
        { "tjgg", ". It is a GGJT file from before GGUF: get a newer conversion" },
    };
    for (size_t i = 0; i < COUNT(known); i++) {
        size_t len = strlen(known[i].start);
        if (p->size >= len && memcmp(p->data, known[i].start, len) == 0) return known[i].says;
    }
    if (p->size > 9 && p->data[8] == '{')
        return ". It looks like a safetensors file: convert it first";
    return ". Give a GGUF file of the model";
}

static luce_status parse_header(struct part *p, struct cursor *c, uint64_t *n_tensors,
                                uint64_t *n_keys)
{
    if (p->size >= 4 && memcmp(p->data, "GGUF", 4))
        return fail(c->err, LUCE_E_FORMAT,
                    "%s: not a GGUF file: it begins with bytes %02x %02x %02x %02x, "
                    "'GGUF' is 47 47 55 46%s",
                    p->path, p->data[0], p->data[1], p->data[2], p->data[3], guess_content(p));
    if (p->size < GGUF_HEADER_BYTES)
        return fail(c->err, LUCE_E_FORMAT, "%s: file too short for header: it has %" PRIu64
                    " bytes, a GGUF header takes %d. Fetch it again.", p->path, p->size,
                    GGUF_HEADER_BYTES);
    p->version = get_u32(p->data + 4);
    if (p->version && (p->version & 0xffff) == 0)
        return bad(c, 4,
                   "unsupported version %" PRIu32 " (byte-swapped?): a file in big-endian order; "
                   "get the little-endian one",
                   p->version);
    if (p->version < 2 || p->version > 3)
        return bad(c, 4, "unsupported version %" PRIu32 "; 2 and 3 can be read%s", p->version,
                   p->version == 1 ? ". Get a newer conversion of the model" : "");
    *n_tensors = get_u64(p->data + 8);
    *n_keys = get_u64(p->data + 16);
    c->at = GGUF_HEADER_BYTES;
    if (*n_tensors > remaining(c) / LEAST_TENSOR || *n_tensors > GGUF_MAX_ENTRIES)
        return bad(c, 8,
                   "it claims %" PRIu64
                   " tensors; %d are allowed, and each takes %d of the %" PRIu64 " bytes left",
                   *n_tensors, GGUF_MAX_ENTRIES, LEAST_TENSOR, remaining(c));
    if (*n_keys > remaining(c) / LEAST_KEY || *n_keys > GGUF_MAX_ENTRIES)
        return bad(c, 16,
                   "it claims %" PRIu64 " keys; %d are allowed, and each takes %d of the %" PRIu64
                   " bytes left",
                   *n_keys, GGUF_MAX_ENTRIES, LEAST_KEY, remaining(c));
    return LUCE_OK;
}

luce_status part_parse(struct gguf *g, struct part *p, luce_error *err)
{
    struct cursor c = { .part = p, .err = err };
    uint64_t n_tensors = 0, n_keys = 0;
    luce_status st = parse_header(p, &c, &n_tensors, &n_keys);
    if (!st) st = parse_keys(p, &c, n_keys);
    if (!st) st = parse_alignment(p, &c);
    if (!st) st = parse_tensors(g, p, &c, n_tensors);
    return st;
}
