/* base/map.h - hash map from byte strings to 64-bit values. Keys are borrowed: their bytes must
 * outlive the map. Open addressing, at most half full. Keys may come from hostile files: hashes are
 * seeded by a secret of the process, so nobody can prepare keys that collide.
 * Threads: one writer, or many readers. */
#ifndef LUCE_BASE_MAP_H
#define LUCE_BASE_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct map_entry;
struct map {
    struct map_entry *entries;      /* NULL is a valid empty map */
    size_t n, cap;
    uint64_t seed;                  /* set when the first entry is added */
};

/* Adds, unless the key is there: then *old (if not NULL) receives its value. Returns 1 when added,
 * 0 when the key was there, -1 when out of memory. */
int map_add(struct map *m, struct str key, uint64_t value, uint64_t *old);
/* Adds or replaces; false when out of memory. */
bool map_set(struct map *m, struct str key, uint64_t value);
/* False when absent; *value is then untouched. */
bool map_find(const struct map *m, struct str key, uint64_t *value);
/* Room for n entries without further growth; false when out of memory. */
bool map_reserve(struct map *m, size_t n);
void map_drop(struct map *m);

#endif
