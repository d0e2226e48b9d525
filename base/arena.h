/* base/arena.h - memory that dies together: allocate piecemeal, free in one call.
 * Threads: one owner at a time. */
#ifndef LUCE_BASE_ARENA_H
#define LUCE_BASE_ARENA_H

#include <stddef.h>

struct arena_block;
struct arena {
    struct arena_block *blocks;     /* newest first; NULL is a valid empty arena */
};

/* Zeroed, aligned to 16 bytes; NULL when out of memory. Lives until arena_reset or arena_drop. */
void *arena_alloc(struct arena *a, size_t bytes);
/* n elements of `size` bytes; NULL also when the product overflows. */
void *arena_array(struct arena *a, size_t n, size_t size);
/* A NUL-terminated copy of len bytes. */
char *arena_text(struct arena *a, const char *text, size_t len);
/* Forgets all, keeps the newest block for reuse: a steady user allocates nothing. */
void arena_reset(struct arena *a);
/* Frees all; the arena is empty and may be used again. */
void arena_drop(struct arena *a);

#endif
