/* gguf/safetensors.c - see safetensors.h. A file is
 *   u64 n | n bytes of JSON: { name: { dtype, shape (slowest first), data_offsets [from, to) }, ... } | data
 * and its tensors fill the data without holes (huggingface/safetensors, README). config.json becomes a GGUF
 * header of keys in memory, the first part of the reader; the files are the parts after it. */
#include "gguf/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "gguf/inside.h"
#include "gguf/types.h"
#include "gguf/writer.h"

enum { MOST_HEADER = 100 << 20, MOST_CONFIG = 1 << 20, MOST_INDEX = 32 << 20, MOST_KEY = 200 };

static luce_status no_memory(const char *path, luce_error *err)
{
    return fail(err, LUCE_E_NOMEM, "%s: out of memory for the header", path);
}

static luce_status bad_json(const char *path, const struct json_in *in, luce_error *err)
{
    return fail(err, LUCE_E_FORMAT, "%s: what stands at byte %zu is not the JSON that is expected there. The file is "
                "damaged, or no part of a safetensors checkpoint.", path, (size_t)(in->at - in->start));
}

/* ---- keys ---------------------------------------------------------------------------------------- */
struct flatten {
    struct gguf_writer w;
    const struct safetensors_names *names;
    struct json_in in;
    struct buf texts;               /* of an array, each behind its length */
};

static const char *renamed(const struct flatten *f, const char *name)
{
    for (size_t i = 0; i < f->names->n_keys; i++)
        if (!strcmp(f->names->keys[i].from, name)) return f->names->keys[i].to;
    return name;
}

static void add_number(struct flatten *f, const char *key, const struct json_number *n)
{
    if (n->whole) gguf_add(&f->w, key, GGUF_I64, &n->i);
    else gguf_add(&f->w, key, GGUF_F64, &n->d);
}

/* Numbers: whole ones as such if all are. key NULL: the name is taken already. */
static bool add_numbers(struct flatten *f, const char *key)
{
    struct buf whole = { 0 }, real = { 0 };
    bool first = true, all_whole = true;
    uint64_t count = 0;
    while (json_more(&f->in, &first)) {
        struct json_number n;
        if (!json_read_number(&f->in, &n)) break;
        all_whole = all_whole && n.whole;
        buf_add(&whole, &n.i, sizeof n.i);
        buf_add(&real, &n.d, sizeof n.d);
        count++;
    }
    bool good = !f->in.bad && !whole.failed && !real.failed;
    if (good && key && count)
        gguf_add_array(&f->w, key, all_whole ? GGUF_I64 : GGUF_F64, all_whole ? whole.data : real.data, count);
    buf_drop(&whole);
    buf_drop(&real);
    return good;
}

static bool add_texts(struct flatten *f, const char *key)
{
    struct buf text = { 0 }, ends = { 0 };
    bool first = true;
    buf_clear(&f->texts);
    while (json_more(&f->in, &first) && json_read_text(&f->in, &text)) {
        buf_add(&f->texts, buf_text(&text), text.len);
        buf_add(&ends, &f->texts.len, sizeof f->texts.len);
    }
    size_t n = ends.len / sizeof f->texts.len, from = 0;
    struct str *all = mem_array(n + 1, sizeof *all);
    bool good = !f->in.bad && all && !text.failed && !ends.failed && !f->texts.failed;
    for (size_t i = 0; good && i < n; i++) {
        size_t end;
        memcpy(&end, ends.data + i * sizeof end, sizeof end);
        all[i] = (struct str){ buf_text(&f->texts) + from, end - from };
        from = end;
    }
    if (good && key && n) gguf_add_texts(&f->w, key, all, n);
    mem_free(all);
    buf_drop(&text);
    buf_drop(&ends);
    return good;
}

/* An array of numbers or of texts; others are passed over. */
static bool add_array(struct flatten *f, const char *key)
{
    struct json_in look = f->in;
    if (!json_enter(&look, SEEN_ARRAY)) return json_skip(&f->in);
    enum json_kind kind = json_next_kind(&look);
    struct json_in elements = look;
    bool first = true, alike = kind == SEEN_NUMBER || kind == SEEN_TEXT;
    while (alike && json_more(&elements, &first)) alike = json_next_kind(&elements) == kind && json_skip(&elements);
    if (!alike) return json_skip(&f->in);
    f->in = look;
    return kind == SEEN_NUMBER ? add_numbers(f, key) : add_texts(f, key);
}

static bool add_text(struct flatten *f, const char *key)
{
    struct buf text = { 0 };
    bool good = json_read_text(&f->in, &text) && !text.failed;
    if (good && key) gguf_add_text(&f->w, key, (struct str){ buf_text(&text), text.len });
    buf_drop(&text);
    return good;
}

static bool add_object(struct flatten *f, const char *prefix);

static bool add_value(struct flatten *f, const char *path)
{
    const char *key = renamed(f, path);
    struct json_number n;
    uint64_t old;
    if (!*path || strlen(key) > MOST_KEY || map_find(&f->w.names[0], str_of(key), &old)) key = NULL;
    switch (json_next_kind(&f->in)) {
    case SEEN_OBJECT: return add_object(f, path);
    case SEEN_ARRAY:  return add_array(f, key);
    case SEEN_TEXT:   return add_text(f, key);
    case SEEN_NUMBER:
        if (!json_read_number(&f->in, &n)) return false;
        if (key) add_number(f, key, &n);
        return true;
    case SEEN_TRUE: case SEEN_FALSE:
        if (key) gguf_add_bool(&f->w, key, json_next_kind(&f->in) == SEEN_TRUE);
        return json_skip(&f->in);
    default: return json_skip(&f->in);
    }
}

static bool add_object(struct flatten *f, const char *prefix)
{
    struct buf name = { 0 }, path = { 0 };
    bool first = true, good = json_enter(&f->in, SEEN_OBJECT);
    while (good && json_more(&f->in, &first)) {
        good = json_read_name(&f->in, &name);
        buf_clear(&path);
        if (*prefix) buf_printf(&path, "%s.", prefix);
        buf_add_text(&path, buf_text(&name));
        good = good && !name.failed && !path.failed && add_value(f, buf_text(&path));
    }
    buf_drop(&name);
    buf_drop(&path);
    return good && !f->in.bad;
}

/* The header that a GGUF with these keys and no tensors would have, as parts[0]. */
static luce_status make_keys(struct gguf *g, struct str config, const char *path, const struct safetensors_names *names,
                             luce_error *err)
{
    struct flatten f = { .names = names };
    gguf_add_text(&f.w, "general.architecture", str_of(names->arch));
    json_read(&f.in, config);
    bool good = add_object(&f, "") && json_done(&f.in);
    luce_status st = LUCE_OK;
    const uint32_t version = 3;
    const uint64_t none = 0;
    buf_add(&g->made, "GGUF", 4);
    buf_add(&g->made, &version, sizeof version);
    buf_add(&g->made, &none, sizeof none);
    buf_add(&g->made, &f.w.n_keys, sizeof f.w.n_keys);
    buf_add(&g->made, buf_text(&f.w.keys), f.w.keys.len);
    struct part *p = reader_add_part(g, path);
    if (f.in.bad) st = bad_json(path, &f.in, err);
    else if (f.w.first.code == LUCE_E_ARG) st = fail(err, LUCE_E_FORMAT, "%s: %s", path, f.w.first.text);
    else if (!p || g->made.failed || f.w.keys.failed || f.w.first.code) st = no_memory(path, err);
    else if (!good) st = bad_json(path, &f.in, err);
    gguf_writer_drop(&f.w);
    buf_drop(&f.texts);
    if (st) return st;
    p->data = (const uint8_t *)g->made.data;
    p->size = g->made.len;
    return part_parse(g, p, err);
}

/* ---- tensors ------------------------------------------------------------------------------------- */
static const struct { const char *name; uint32_t type; } dtypes[] = {
    { "F32", 0 }, { "F16", 1 },  { "BF16", 30 }, { "F64", 28 },
    { "I8", 24 }, { "I16", 25 }, { "I32", 26 },  { "I64", 27 },
};

struct entry {                      /* one tensor as the header describes it */
    char dtype[16];
    int n_dims;                     /* -1: not said */
    int64_t shape[4], offsets[2];
    int n_offsets;
};

/* Whole numbers, at most `most` of them; more or others are bad. */
static int read_numbers(struct json_in *in, int64_t *out, int most)
{
    bool first = true;
    int n = 0;
    if (!json_enter(in, SEEN_ARRAY)) return 0;
    while (json_more(in, &first)) {
        struct json_number number;
        if (!json_read_number(in, &number) || !number.whole || number.i < 0 || n == most) {
            in->bad = true;
            return 0;
        }
        out[n++] = number.i;
    }
    return n;
}

static bool read_entry(struct json_in *in, struct entry *e)
{
    struct buf name = { 0 };
    bool first = true, good = json_enter(in, SEEN_OBJECT);
    *e = (struct entry){ .n_dims = -1 };
    while (good && json_more(in, &first)) {
        good = json_read_name(in, &name) && !name.failed;
        struct str key = { buf_text(&name), name.len };
        if (!good) break;
        if (str_is(key, "shape")) {
            e->n_dims = read_numbers(in, e->shape, 4);
        } else if (str_is(key, "data_offsets")) {
            e->n_offsets = read_numbers(in, e->offsets, 2);
        } else if (str_is(key, "dtype")) {
            struct buf text = { 0 };
            if (json_read_text(in, &text)) snprintf(e->dtype, sizeof e->dtype, "%.15s", buf_text(&text));
            buf_drop(&text);
        } else {
            json_skip(in);
        }
        good = !in->bad;
    }
    buf_drop(&name);
    return good && !in->bad;
}

/* The name by the table: a '*' of the pattern stands for a number. */
static void rename_tensor(const struct safetensors_names *names, const char *name, char *out, size_t size)
{
    if (!strncmp(name, "model.", 6)) name += 6;
    for (size_t i = 0; i < names->n_tensors; i++) {
        const char *from = names->tensors[i].from, *star = strchr(from, '*'), *to = names->tensors[i].to;
        if (!star) {
            if (strcmp(name, from)) continue;
            snprintf(out, size, "%s", to);
            return;
        }
        size_t head = (size_t)(star - from);
        if (strncmp(name, from, head)) continue;
        size_t digits = strspn(name + head, "0123456789");
        const char *place = strchr(to, '*');
        if (!digits || !place || strcmp(name + head + digits, star + 1)) continue;
        snprintf(out, size, "%.*s%.*s%s", (int)(place - to), to, (int)digits, name + head, place + 1);
        return;
    }
    snprintf(out, size, "%s", name);
}

static luce_status bad_tensor(const struct part *p, const char *name, const char *what, luce_error *err)
{
    return fail(err, LUCE_E_FORMAT, "%s: tensor '%.100s' %s", p->path, name, what);
}

/* Checks the entry against the data, and fills in the tensor. */
static luce_status check_entry(const struct part *p, uint64_t start, const char *name, const struct entry *e,
                               struct gguf_tensor *t, luce_error *err)
{
    char text[200];
    size_t k = 0;
    while (k < COUNT(dtypes) && strcmp(dtypes[k].name, e->dtype)) k++;
    if (e->n_dims < 0 || e->n_offsets != 2) return bad_tensor(p, name, "lacks its shape or its data_offsets", err);
    if (k == COUNT(dtypes)) {
        snprintf(text, sizeof text, "has dtype '%s'; F32, F16, BF16 and whole numbers can be read", e->dtype);
        return bad_tensor(p, name, text, err);
    }
    *t = (struct gguf_tensor){ .n_dims = e->n_dims, .type = dtypes[k].type, .dim = { 1, 1, 1, 1 } };
    uint64_t element = gguf_tensor_type_find(t->type)->bytes, from = (uint64_t)e->offsets[0];
    bool wraps = false;
    t->bytes = element;
    for (int i = 0; i < e->n_dims; i++) {
        t->dim[i] = (uint64_t)e->shape[e->n_dims - 1 - i];
        wraps |= t->dim[i] == 0 || __builtin_mul_overflow(t->bytes, t->dim[i], &t->bytes);
    }
    if (wraps) return bad_tensor(p, name, "has a dimension of 0, or its size overflows", err);
    if (e->offsets[1] < e->offsets[0] || (uint64_t)(e->offsets[1] - e->offsets[0]) != t->bytes) {
        snprintf(text, sizeof text, "has %" PRIu64 " bytes by its shape, and offsets %" PRId64 " to %" PRId64, t->bytes,
                 e->offsets[0], e->offsets[1]);
        return bad_tensor(p, name, text, err);
    }
    if ((uint64_t)e->offsets[1] > p->size - start) {
        snprintf(text, sizeof text, "needs bytes up to %" PRIu64 ", the file ends at %" PRIu64
                 ": it is cut short (fetch it again) or damaged", start + (uint64_t)e->offsets[1], p->size);
        return bad_tensor(p, name, text, err);
    }
    t->data = p->data + start + from;
    if ((uintptr_t)t->data % element == 0) return LUCE_OK;
    return bad_tensor(p, name, "does not lie at a multiple of its element's size; save the checkpoint again with a "
                      "current version of safetensors", err);
}

static luce_status add_tensor(struct gguf *g, const struct part *p, const struct safetensors_names *names,
                              const char *name, struct gguf_tensor *t, luce_error *err)
{
    char to[GGUF_MAX_NAME + 1];
    uint64_t old;
    rename_tensor(names, name, to, sizeof to);
    if (!(g->n_tensors & (g->n_tensors - 1))) {         /* 0, or a power of two: full */
        size_t cap = g->n_tensors ? 2 * g->n_tensors : 1;
        struct gguf_tensor *more = mem_resize(g->tensors, cap * sizeof *more);
        if (!more) return no_memory(p->path, err);
        g->tensors = more;
    }
    t->name = arena_text(&g->arena, to, strlen(to));
    int added = t->name ? map_add(&g->tensor_index, str_of(t->name), g->n_tensors, &old) : -1;
    if (added < 0) return no_memory(p->path, err);
    if (!added) return bad_tensor(p, name, "is there twice", err);
    g->tensors[g->n_tensors++] = *t;
    return LUCE_OK;
}

static luce_status parse_entries(struct gguf *g, const struct part *p, struct json_in *in, uint64_t start,
                                 const struct safetensors_names *names, luce_error *err)
{
    struct buf name = { 0 };
    bool first = true;
    uint64_t sum = 0;
    luce_status st = LUCE_OK;
    json_enter(in, SEEN_OBJECT);
    while (!st && json_more(in, &first)) {
        struct entry e;
        struct gguf_tensor t;
        if (!json_read_name(in, &name)) break;
        if (name.failed) st = no_memory(p->path, err);
        else if (str_is((struct str){ buf_text(&name), name.len }, "__metadata__")) json_skip(in);
        else if (!read_entry(in, &e)) break;
        else if (name.len == 0 || name.len > GGUF_MAX_NAME || g->n_tensors == GGUF_MAX_ENTRIES)
            st = bad_tensor(p, buf_text(&name), "has no name, or one that is too long, or is one too many", err);
        else if (!(st = check_entry(p, start, buf_text(&name), &e, &t, err))) {
            sum += t.bytes;
            st = add_tensor(g, p, names, buf_text(&name), &t, err);
        }
    }
    buf_drop(&name);
    if (!st && !json_done(in)) st = bad_json(p->path, in, err);
    if (!st && sum != p->size - start)
        st = fail(err, LUCE_E_FORMAT, "%s: the tensors take %" PRIu64 " bytes, the data has %" PRIu64 ": it is damaged",
                  p->path, sum, p->size - start);
    return st;
}

static luce_status parse_file(struct gguf *g, struct part *p, const struct safetensors_names *names, luce_error *err)
{
    uint64_t n = 0;
    for (int i = 0; i < 8 && p->size >= 8; i++) n |= (uint64_t)p->data[i] << 8 * i;
    if (p->size < 8 || n > p->size - 8 || n > MOST_HEADER)
        return fail(err, LUCE_E_FORMAT, "%s: its header claims %" PRIu64 " bytes of the file's %" PRIu64 ": it is cut "
                    "short (fetch it again), damaged, or no safetensors file", p->path, n, p->size);
    struct json_in in;
    json_read(&in, (struct str){ (const char *)p->data + 8, (size_t)n });
    return parse_entries(g, p, &in, 8 + n, names, err);
}

/* ---- files --------------------------------------------------------------------------------------- */
static bool is_folder(const char *path)
{
    struct stat s;
    return !stat(path, &s) && S_ISDIR(s.st_mode);
}

bool safetensors_is(const char *path)
{
    static const char end[] = ".safetensors";
    size_t len = strlen(path);
    return is_folder(path) || (len > strlen(end) && !strcmp(path + len - strlen(end), end));
}

static luce_status add_file(struct gguf *g, const char *path, const struct safetensors_names *names, luce_error *err)
{
    struct part *p = reader_add_part(g, path);
    if (!p) return no_memory(path, err);
    luce_status st = file_map_open(&p->map, path, err);
    if (st) return st;
    p->data = p->map.data;
    p->size = p->map.size;
    return parse_file(g, p, names, err);
}

static luce_status add_named(struct gguf *g, struct str folder, const char *file, const struct safetensors_names *names,
                             luce_error *err)
{
    struct buf path = { 0 };
    buf_printf(&path, "%.*s/%s", (int)folder.len, folder.at, file);
    luce_status st = path.failed ? no_memory(file, err) : LUCE_OK;
    for (int i = 1; !st && i < g->n_parts; i++)
        if (!strcmp(g->parts[i].path, buf_text(&path))) goto out;       /* another tensor of it came before */
    if (!st && (strchr(file, '/') || g->n_parts > GGUF_MAX_PARTS))
        st = fail(err, LUCE_E_FORMAT, "%.*s: the index names the file '%.80s', or too many files", (int)folder.len,
                  folder.at, file);
    if (!st) st = add_file(g, buf_text(&path), names, err);
out:
    buf_drop(&path);
    return st;
}

/* The files that the index of a checkpoint in parts names. */
static luce_status add_index(struct gguf *g, struct str folder, const char *path, const struct safetensors_names *names,
                             luce_error *err)
{
    struct buf text = { 0 }, name = { 0 };
    struct json_in in;
    bool outer = true;
    luce_status st = file_read(&text, path, MOST_INDEX, err);
    json_read(&in, (struct str){ buf_text(&text), text.len });
    if (!st) json_enter(&in, SEEN_OBJECT);
    while (!st && json_more(&in, &outer) && json_read_name(&in, &name)) {
        bool first = true;
        if (strcmp(buf_text(&name), "weight_map")) {
            json_skip(&in);
            continue;
        }
        json_enter(&in, SEEN_OBJECT);
        while (!st && json_more(&in, &first) && json_read_name(&in, &name) && json_read_text(&in, &name))
            st = name.failed ? no_memory(path, err) : add_named(g, folder, buf_text(&name), names, err);
    }
    if (!st && !json_done(&in)) st = bad_json(path, &in, err);
    buf_drop(&text);
    buf_drop(&name);
    return st;
}

static luce_status open_all(struct gguf *g, const char *path, const struct safetensors_names *names, luce_error *err)
{
    const char *slash = strrchr(path, '/');
    bool whole = is_folder(path);
    struct str folder = whole ? str_of(path) : slash ? (struct str){ path, (size_t)(slash - path) } : str_of(".");
    struct buf config = { 0 }, at = { 0 };
    struct stat s;
    buf_printf(&at, "%.*s/config.json", (int)folder.len, folder.at);
    luce_status st = at.failed ? no_memory(path, err) : file_read(&config, buf_text(&at), MOST_CONFIG, err);
    if (!st) st = make_keys(g, (struct str){ buf_text(&config), config.len }, buf_text(&at), names, err);
    buf_clear(&at);
    buf_printf(&at, "%.*s/model.safetensors.index.json", (int)folder.len, folder.at);
    if (!st && at.failed) st = no_memory(path, err);
    if (!st && !whole) st = add_file(g, path, names, err);
    else if (!st && !stat(buf_text(&at), &s)) st = add_index(g, folder, buf_text(&at), names, err);
    else if (!st) st = add_named(g, folder, "model.safetensors", names, err);
    buf_drop(&config);
    buf_drop(&at);
    return st;
}

luce_status safetensors_open(struct gguf **out, const char *path, const struct safetensors_names *names,
                             luce_error *err)
{
    *out = NULL;
    struct gguf *g = reader_new(path);
    if (!g) return no_memory(path, err);
    luce_status st = open_all(g, path, names, err);
    if (st) gguf_close(g);
    else *out = g;
    return st;
}

luce_status safetensors_open_memory(struct gguf **out, const void *data, uint64_t size, struct str config,
                                    const char *name, const struct safetensors_names *names, luce_error *err)
{
    *out = NULL;
    struct gguf *g = reader_new(name);
    if (!g) return no_memory(name, err);
    luce_status st = make_keys(g, config, name, names, err);
    struct part *p = st ? NULL : reader_add_part(g, name);
    if (!st && !p) st = no_memory(name, err);
    if (p) {
        p->data = data;
        p->size = size;
        st = parse_file(g, p, names, err);
    }
    if (st) gguf_close(g);
    else *out = g;
    return st;
}
