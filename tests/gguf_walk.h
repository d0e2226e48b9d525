/* tests/gguf_walk.h - reads all that a reader offers about a file: what an accepted file must
 * survive. Used on damaged files by the tests and by the fuzz target. */
#ifndef LUCE_TESTS_GGUF_WALK_H
#define LUCE_TESTS_GGUF_WALK_H

#include "base/hash.h"
#include "gguf/reader.h"
#include "gguf/types.h"

static inline uint64_t gguf_walk_key(const struct gguf *g, const struct gguf_key *k)
{
    uint64_t sum = hash_bytes(k->name.at, k->name.len, k->count);
    struct gguf_cursor c = { 0 };
    struct str s;
    while (gguf_next(k, &c, &s)) sum ^= hash_bytes(s.at, s.len, c.index);
    uint64_t last = k->count ? k->count - 1 : 0;
    sum += (uint64_t)gguf_int_at(k, 0) + (uint64_t)gguf_int_at(k, last) +
           (uint64_t)gguf_int_at(k, k->count);
    sum += gguf_float_at(k, last) > 0;
    char name[200];
    if (k->name.len >= sizeof name) return sum;
    memcpy(name, k->name.at, k->name.len);
    name[k->name.len] = '\0';
    uint32_t u, us[5];
    float f, fs[5];
    bool b;
    luce_error err;
    if (!gguf_u32(g, name, 1, &u, &err)) sum += u;
    if (!gguf_f32(g, name, 1, &f, &err)) sum += f > 0;
    if (!gguf_bool(g, name, true, &b, &err)) sum += b;
    if (!gguf_text(g, name, str_of("absent"), &s, &err)) sum += hash_bytes(s.at, s.len, 0);
    if (!gguf_u32_per(g, name, 1, us, 5, &err)) sum += us[4];
    if (!gguf_f32_per(g, name, 1, fs, 5, &err)) sum += fs[4] > 0;
    return sum + (gguf_key(g, name) == k);
}

/* Returns a number that depends on every byte that was read, so that no read is optimised away. */
static inline uint64_t gguf_walk(const struct gguf *g)
{
    uint64_t sum = gguf_file_bytes(g) + (uint64_t)gguf_n_parts(g) + (uint64_t)gguf_version(g);
    for (size_t i = 0; i < gguf_n_keys(g); i++) sum ^= gguf_walk_key(g, gguf_key_at(g, i));
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        sum ^= hash_bytes(t->data, (size_t)t->bytes, t->type) + t->dim[0] + t->dim[3];
        sum += gguf_find(g, t->name) == t;
        sum += strlen(gguf_tensor_type_find(t->type)->name);
        gguf_release(g, t);
    }
    return sum;
}

#endif
