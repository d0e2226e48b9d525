/* gguf/reader.c - see reader.h. Opens and closes; the bytes are checked in parse.c, the files of a
 * split model are found in split.c, values are converted in keys.c. */
#include "gguf/reader.h"

#include "base/mem.h"
#include "gguf/inside.h"

struct gguf *reader_new(const char *path)
{
    struct gguf *g = mem_zero(sizeof *g);
    if (g && (g->path = mem_text(path, strlen(path)))) return g;
    mem_free(g);
    return NULL;
}

struct part *reader_add_part(struct gguf *g, const char *path)
{
    struct part *parts = mem_resize(g->parts, ((size_t)g->n_parts + 1) * sizeof *parts);
    if (!parts) return NULL;
    g->parts = parts;
    struct part *p = &parts[g->n_parts];
    *p = (struct part){ .path = arena_text(&g->arena, path, strlen(path)), .map.fd = -1 };
    if (!p->path) return NULL;
    g->n_parts++;
    return p;
}

luce_status reader_add_file(struct gguf *g, const char *path, luce_error *err)
{
    struct part *p = reader_add_part(g, path);
    if (!p) return fail(err, LUCE_E_NOMEM, "%s: out of memory for the header", path);
    luce_status st = file_map_open(&p->map, path, err);
    if (st) return st;
    p->data = p->map.data;
    p->size = p->map.size;
    return part_parse(g, p, err);
}

luce_status gguf_open(struct gguf **out, const char *path, luce_error *err)
{
    *out = NULL;
    struct gguf *g = reader_new(path);
    if (!g) return fail(err, LUCE_E_NOMEM, "%s: out of memory for the header", path);
    luce_status st = reader_add_file(g, path, err);
    if (!st) st = split_open(g, err);
    if (st) {
        gguf_close(g);
        return st;
    }
    *out = g;
    return LUCE_OK;
}

luce_status gguf_open_memory(struct gguf **out, const void *data, uint64_t size, const char *name,
                             luce_error *err)
{
    *out = NULL;
    struct gguf *g = reader_new(name);
    struct part *p = g ? reader_add_part(g, name) : NULL;
    luce_status st;
    if (!p) {
        st = fail(err, LUCE_E_NOMEM, "%s: out of memory for the header", name);
    } else {
        p->data = data;
        p->size = size;
        st = part_parse(g, p, err);
        if (!st) st = split_refuse_joined(p, err);
    }
    if (st) {
        gguf_close(g);
        return st;
    }
    *out = g;
    return LUCE_OK;
}

void part_close(struct part *p)
{
    file_map_close(&p->map);
    mem_free(p->keys);
    map_drop(&p->key_index);
    *p = (struct part){ .map.fd = -1 };
}

void reader_clear(struct gguf *g)
{
    for (int i = 0; i < g->n_parts; i++) part_close(&g->parts[i]);
    mem_free(g->parts);
    mem_free(g->tensors);
    map_drop(&g->tensor_index);
    arena_drop(&g->arena);
    buf_drop(&g->made);
    *g = (struct gguf){ .path = g->path };
}

void gguf_close(struct gguf *g)
{
    if (!g) return;
    reader_clear(g);
    mem_free(g->path);
    mem_free(g);
}

const char *gguf_path(const struct gguf *g) { return g->path; }
int gguf_n_parts(const struct gguf *g) { return g->n_parts; }
int gguf_version(const struct gguf *g) { return (int)g->parts[0].version; }
size_t gguf_n_tensors(const struct gguf *g) { return g->n_tensors; }
size_t gguf_n_keys(const struct gguf *g) { return g->parts[0].n_keys; }

uint64_t gguf_file_bytes(const struct gguf *g)
{
    uint64_t sum = 0;
    for (int i = 0; i < g->n_parts; i++) sum += g->parts[i].size;
    return sum;
}

const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name)
{
    uint64_t i;
    return map_find(&g->tensor_index, str_of(name), &i) ? &g->tensors[i] : NULL;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const struct gguf_key *part_key(const struct part *p, const char *name)
{
    uint64_t i;
    return map_find(&p->key_index, str_of(name), &i) ? &p->keys[i] : NULL;
}

const struct gguf_key *gguf_key(const struct gguf *g, const char *name)
{
    return part_key(&g->parts[0], name);
}

const struct gguf_key *gguf_key_at(const struct gguf *g, size_t i)
{
    return i < g->parts[0].n_keys ? &g->parts[0].keys[i] : NULL;
}

void gguf_release_range(const struct gguf *g, const uint8_t *from, uint64_t bytes)
{
    for (int i = 0; i < g->n_parts; i++) {
        const struct part *p = &g->parts[i];
        if (!p->map.data || from < p->data || from >= p->data + p->size) continue;
        uint64_t at = (uint64_t)(from - p->data);
        file_map_release(&p->map, at, bytes < p->size - at ? bytes : p->size - at);
        return;
    }
}

void gguf_release(const struct gguf *g, const struct gguf_tensor *t)
{
    gguf_release_range(g, t->data, t->bytes);
}
