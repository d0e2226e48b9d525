/* gguf/writer.c - see writer.h. Keys and tensor infos are built in memory in their final form;
 * the header's two counts come last, so they are written first from here.
 *   header | keys | infos | pad | tensor, pad | tensor, pad | ... */
#include "gguf/writer.h"

#include <inttypes.h>

#include "base/mem.h"
#include "gguf/inside.h"
#include "gguf/types.h"

enum { KEY_NAMES, TENSOR_NAMES };

struct gguf_out {
    struct file_writer *file;
    const char *name;
    uint64_t left;                  /* bytes that the tensor still needs */
};

static void put_u32(struct buf *b, uint32_t v)
{
    uint8_t bytes[4] = { (uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24) };
    buf_add(b, bytes, 4);
}

static void put_u64(struct buf *b, uint64_t v)
{
    put_u32(b, (uint32_t)v);
    put_u32(b, (uint32_t)(v >> 32));
}

static void put_text(struct buf *b, struct str s)
{
    put_u64(b, s.len);
    buf_add(b, s.at, s.len);
}

/* `count` host values of `bytes` each, least significant byte first. */
static void put_values(struct buf *b, const void *values, unsigned bytes, uint64_t count)
{
    const uint8_t *at = values;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    buf_add(b, at, (size_t)count * bytes);
#else
#error "values are copied as they lie in memory: this needs a little-endian machine"
#endif
}

/* Claims a name; false when the writer is dead or dies of it. */
static bool claim(struct gguf_writer *w, int names, struct str name)
{
    if (w->first.code) return false;
    const char *what = names == KEY_NAMES ? "key" : "tensor";
    size_t limit = names == KEY_NAMES ? GGUF_MAX_KEY : GGUF_MAX_NAME;
    int shown = name.len > 100 ? 100 : (int)name.len;
    if (name.len == 0 || name.len > limit || memchr(name.at, 0, name.len)) {
        fail(&w->first, LUCE_E_ARG,
             "%s name '%.*s' has %zu bytes; 1 to %zu without a zero byte are allowed", what,
             shown, name.at, name.len, limit);
        return false;
    }
    const char *copy = arena_text(&w->arena, name.at, name.len);
    int added = copy ? map_add(&w->names[names], (struct str){ copy, name.len }, 0, NULL) : -1;
    if (added < 0)
        fail(&w->first, LUCE_E_NOMEM, "out of memory for %s '%.*s'", what, shown, name.at);
    if (added == 0)
        fail(&w->first, LUCE_E_ARG, "%s '%.*s' is declared twice", what, shown, name.at);
    return added > 0;
}

static bool begin_key(struct gguf_writer *w, struct str key, uint32_t type)
{
    if (!claim(w, KEY_NAMES, key)) return false;
    w->n_keys++;
    put_text(&w->keys, key);
    put_u32(&w->keys, type);
    return true;
}

static bool begin_array(struct gguf_writer *w, struct str key, uint32_t element, uint64_t count)
{
    if (!begin_key(w, key, GGUF_ARRAY)) return false;
    put_u32(&w->keys, element);
    put_u64(&w->keys, count);
    return true;
}

static void set_alignment(struct gguf_writer *w, enum gguf_type type, const void *value)
{
    uint32_t v = 0;
    if (type == GGUF_U32) memcpy(&v, value, 4);
    if (v == 0 || v & (v - 1) || v > GGUF_MAX_ALIGNMENT)
        fail(&w->first, LUCE_E_ARG,
             "key 'general.alignment' must be u32 and a power of two up to %d", GGUF_MAX_ALIGNMENT);
    else if (w->n_tensors)
        fail(&w->first, LUCE_E_ARG,
             "key 'general.alignment' must be declared before the first tensor");
    w->alignment = v;
}

static void add_scalar(struct gguf_writer *w, struct str key, enum gguf_type type,
                       const void *value)
{
    unsigned bytes = gguf_type_bytes(type);
    if (!bytes && !w->first.code)
        fail(&w->first, LUCE_E_ARG, "key '%.*s': %s is not a type of fixed size",
             key.len > 100 ? 100 : (int)key.len, key.at, gguf_type_name(type));
    if (!begin_key(w, key, type)) return;
    if (str_is(key, "general.alignment")) set_alignment(w, type, value);
    put_values(&w->keys, value, bytes, 1);
}

static void add_array(struct gguf_writer *w, struct str key, enum gguf_type element,
                      const void *values, uint64_t count)
{
    unsigned bytes = gguf_type_bytes(element);
    if ((!bytes || count > GGUF_MAX_VALUE) && !w->first.code)
        fail(&w->first, LUCE_E_ARG, "key '%.*s': an array of %" PRIu64 " x %s cannot be written",
             key.len > 100 ? 100 : (int)key.len, key.at, count, gguf_type_name(element));
    if (begin_array(w, key, element, count)) put_values(&w->keys, values, bytes, count);
}

void gguf_add(struct gguf_writer *w, const char *key, enum gguf_type type, const void *value)
{
    add_scalar(w, str_of(key), type, value);
}

void gguf_add_array(struct gguf_writer *w, const char *key, enum gguf_type element,
                    const void *values, uint64_t count)
{
    add_array(w, str_of(key), element, values, count);
}

void gguf_add_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    gguf_add(w, key, GGUF_U32, &value);
}

void gguf_add_f32(struct gguf_writer *w, const char *key, float value)
{
    gguf_add(w, key, GGUF_F32, &value);
}

void gguf_add_bool(struct gguf_writer *w, const char *key, bool value)
{
    uint8_t byte = value;
    gguf_add(w, key, GGUF_BOOL, &byte);
}

void gguf_add_text(struct gguf_writer *w, const char *key, struct str value)
{
    if (begin_key(w, str_of(key), GGUF_STRING)) put_text(&w->keys, value);
}

void gguf_add_texts(struct gguf_writer *w, const char *key, const struct str *values,
                    uint64_t count)
{
    if (!begin_array(w, str_of(key), GGUF_STRING, count)) return;
    for (uint64_t i = 0; i < count; i++) put_text(&w->keys, values[i]);
}

void gguf_add_key(struct gguf_writer *w, const struct gguf_key *k)
{
    bool array = k->type == GGUF_ARRAY;
    if ((array ? k->element : k->type) != GGUF_STRING) {
        if (array) add_array(w, k->name, k->element, k->value, k->count);
        else add_scalar(w, k->name, k->type, k->value);
        return;
    }
    if (!(array ? begin_array(w, k->name, GGUF_STRING, k->count)
                : begin_key(w, k->name, GGUF_STRING)))
        return;
    struct gguf_cursor c = { 0 };
    struct str s;
    while (gguf_next(k, &c, &s)) put_text(&w->keys, s);
}

uint64_t gguf_source_bytes(const struct gguf_source *t)
{
    const struct gguf_tensor_type *type = gguf_tensor_type_find(t->type);
    uint64_t row = t->n_dims > 0 ? t->dim[0] : 1, bytes;
    if (!type || t->n_dims < 0 || t->n_dims > 4 || row % type->block) return 0;
    if (__builtin_mul_overflow(row / type->block, (uint64_t)type->bytes, &bytes)) return 0;
    for (int i = 1; i < t->n_dims; i++)
        if (__builtin_mul_overflow(bytes, t->dim[i], &bytes)) return 0;
    return bytes > INT64_MAX ? 0 : bytes;
}

static uint64_t pad_of(const struct gguf_writer *w, uint64_t at)
{
    return (w->alignment - at % w->alignment) % w->alignment;
}

/* Room for one more source: doubles at powers of two. */
static bool grow_sources(struct gguf_writer *w)
{
    uint64_t n = w->n_tensors;
    if (n & (n - 1)) return true;
    struct gguf_source *more = mem_resize(w->sources, (size_t)(n ? 2 * n : 1) * sizeof *more);
    if (more) w->sources = more;
    return more != NULL;
}

void gguf_add_tensor(struct gguf_writer *w, const struct gguf_source *t)
{
    struct str name = str_of(t->name);
    if (!claim(w, TENSOR_NAMES, name)) return;
    uint64_t bytes = gguf_source_bytes(t), total;
    if (!w->alignment) w->alignment = GGUF_DEFAULT_ALIGNMENT;
    if (!bytes || __builtin_add_overflow(w->data_bytes, bytes, &total) || total > INT64_MAX) {
        fail(&w->first, LUCE_E_ARG,
             "tensor '%s': %d dimensions [%" PRIu64 ", %" PRIu64 ", ...] of type id "
             "%" PRIu32 " cannot be written",
             t->name, t->n_dims, t->dim[0], t->dim[1], t->type);
        return;
    }
    if (!grow_sources(w)) {
        fail(&w->first, LUCE_E_NOMEM, "out of memory for tensor '%s'", t->name);
        return;
    }
    struct gguf_source *s = &w->sources[w->n_tensors++];
    *s = *t;
    s->name = arena_text(&w->arena, name.at, name.len);
    if (!s->name) fail(&w->first, LUCE_E_NOMEM, "out of memory for tensor '%s'", t->name);
    put_text(&w->infos, name);
    put_u32(&w->infos, (uint32_t)t->n_dims);
    for (int i = 0; i < t->n_dims; i++) put_u64(&w->infos, t->dim[i]);
    put_u32(&w->infos, t->type);
    put_u64(&w->infos, w->data_bytes);
    w->data_bytes = total + pad_of(w, total);
}

luce_status gguf_put(struct gguf_out *out, const void *data, size_t bytes, luce_error *err)
{
    if (bytes > out->left)
        return fail(err, LUCE_E_ARG,
                    "tensor '%s': its source puts %zu bytes, only %" PRIu64 " are left", out->name,
                    bytes, out->left);
    luce_status st = file_append(out->file, data, bytes, err);
    if (!st) out->left -= bytes;
    return st;
}

static luce_status write_pad(const struct gguf_writer *w, struct file_writer *f, luce_error *err)
{
    static const uint8_t zeros[4096];
    luce_status st = LUCE_OK;
    for (uint64_t left = pad_of(w, f->size), n; left && !st; left -= n) {
        n = left < sizeof zeros ? left : sizeof zeros;
        st = file_append(f, zeros, (size_t)n, err);
    }
    return st;
}

static luce_status write_header(const struct gguf_writer *w, struct file_writer *f, luce_error *err)
{
    struct buf head = { 0 };
    buf_add_text(&head, "GGUF");
    put_u32(&head, 3);
    put_u64(&head, w->n_tensors);
    put_u64(&head, w->n_keys);
    luce_status st = head.failed ? fail(err, LUCE_E_NOMEM, "%s: out of memory", f->path)
                                 : file_append(f, head.data, head.len, err);
    buf_drop(&head);
    if (!st) st = file_append(f, w->keys.data, w->keys.len, err);
    if (!st) st = file_append(f, w->infos.data, w->infos.len, err);
    if (!st && w->n_tensors) st = write_pad(w, f, err);
    return st;
}

static luce_status write_tensor(const struct gguf_source *s, struct file_writer *f, luce_error *err)
{
    struct gguf_out out = { .file = f, .name = s->name, .left = gguf_source_bytes(s) };
    luce_status st =
        s->write ? s->write(s->user, &out, err) : gguf_put(&out, s->data, (size_t)out.left, err);
    if (!st && out.left)
        st = fail(err, LUCE_E_ARG, "tensor '%s': its source put %" PRIu64 " bytes too few", s->name,
                  out.left);
    return st;
}

luce_status gguf_write(struct gguf_writer *w, const char *path, luce_error *err)
{
    if (!w->first.code && (w->keys.failed || w->infos.failed))
        fail(&w->first, LUCE_E_NOMEM, "out of memory for the header");
    if (!w->first.code && (w->n_keys > GGUF_MAX_ENTRIES || w->n_tensors > GGUF_MAX_ENTRIES))
        fail(&w->first, LUCE_E_ARG,
             "%" PRIu64 " keys and %" PRIu64 " tensors; at most %d of each are allowed", w->n_keys,
             w->n_tensors, GGUF_MAX_ENTRIES);
    if (w->first.code) return fail(err, w->first.code, "%s: %s", path, w->first.text);
    struct file_writer f;
    luce_status st = file_create(&f, path, err);
    if (st) return st;
    st = write_header(w, &f, err);
    for (uint64_t i = 0; i < w->n_tensors && !st; i++) {
        st = write_tensor(&w->sources[i], &f, err);
        if (!st) st = write_pad(w, &f, err);
    }
    if (!st) st = file_commit(&f, err);
    file_abandon(&f);
    return st;
}

void gguf_writer_drop(struct gguf_writer *w)
{
    buf_drop(&w->keys);
    buf_drop(&w->infos);
    arena_drop(&w->arena);
    map_drop(&w->names[KEY_NAMES]);
    map_drop(&w->names[TENSOR_NAMES]);
    mem_free(w->sources);
    *w = (struct gguf_writer){ 0 };
}

luce_status gguf_write_header(const struct gguf_writer *w, struct buf *out, luce_error *err)
{
    const uint32_t version = 3;
    const uint64_t n_tensors = 0;
    buf_add(out, "GGUF", 4);
    buf_add(out, &version, sizeof version);
    buf_add(out, &n_tensors, sizeof n_tensors);
    buf_add(out, &w->n_keys, sizeof w->n_keys);
    buf_add(out, w->keys.data, w->keys.len);
    if (w->first.code) return fail(err, w->first.code, "%s", w->first.text);
    return w->keys.failed || out->failed ? fail(err, LUCE_E_NOMEM, "out of memory for the header of a model") : LUCE_OK;
}
