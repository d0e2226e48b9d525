/* base/map.c - see map.h. */
#include "base/map.h"

#include <stdatomic.h>
#include <sys/random.h>

#include "base/hash.h"
#include "base/mem.h"

struct map_entry {
    const char *at;                 /* NULL: free */
    uint64_t hash;
    size_t len;
    uint64_t value;
};

/* From the system once per process; where it gives none, the random placement of memory has to do. */
static uint64_t secret(void)
{
    static _Atomic uint64_t kept;
    uint64_t s = atomic_load(&kept);
    if (s) return s;
    if (getrandom(&s, sizeof s, GRND_NONBLOCK) != sizeof s) s = hash_u64((uint64_t)(uintptr_t)&kept);
    atomic_store(&kept, s | 1);
    return s | 1;
}

static uint64_t hash_of(const struct map *m, struct str key)
{
    return hash_bytes(key.at, key.len, m->seed);
}

static struct map_entry *slot_of(const struct map *m, struct str key, uint64_t hash)
{
    size_t mask = m->cap - 1;
    for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
        struct map_entry *e = &m->entries[i];
        if (!e->at) return e;
        if (e->hash == hash && str_eq((struct str){ e->at, e->len }, key)) return e;
    }
}

bool map_reserve(struct map *m, size_t n)
{
    size_t cap = m->cap ? m->cap : 16;
    while (cap / 2 <= n) cap *= 2;
    if (cap == m->cap) return true;
    struct map bigger = { .entries = mem_array(cap, sizeof *bigger.entries), .n = m->n, .cap = cap,
                          .seed = m->cap ? m->seed : secret() };
    if (!bigger.entries) return false;
    for (size_t i = 0; i < m->cap; i++) {
        const struct map_entry *e = &m->entries[i];
        if (e->at) *slot_of(&bigger, (struct str){ e->at, e->len }, e->hash) = *e;
    }
    mem_free(m->entries);
    *m = bigger;
    return true;
}

int map_add(struct map *m, struct str key, uint64_t value, uint64_t *old)
{
    if (!map_reserve(m, m->n)) return -1;
    uint64_t hash = hash_of(m, key);
    struct map_entry *e = slot_of(m, key, hash);
    if (e->at) {
        if (old) *old = e->value;
        return 0;
    }
    *e = (struct map_entry){ .at = key.at ? key.at : "", .hash = hash, .len = key.len, .value = value };
    m->n++;
    return 1;
}

bool map_set(struct map *m, struct str key, uint64_t value)
{
    int added = map_add(m, key, value, NULL);
    if (added == 0) slot_of(m, key, hash_of(m, key))->value = value;
    return added >= 0;
}

bool map_find(const struct map *m, struct str key, uint64_t *value)
{
    if (!m->cap) return false;
    const struct map_entry *e = slot_of(m, key, hash_of(m, key));
    if (!e->at) return false;
    *value = e->value;
    return true;
}

void map_drop(struct map *m)
{
    mem_free(m->entries);
    *m = (struct map){ 0 };
}
