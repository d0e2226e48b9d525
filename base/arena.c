/* base/arena.c - see arena.h. A list of blocks, each twice as large as the one before. */
#include "base/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    char data[] __attribute__((aligned(16)));
};
enum { FIRST_BLOCK = 4096, LARGEST_STEP = 1 << 20 };

static struct arena_block *grow(struct arena *a, size_t bytes)
{
    size_t size = a->blocks ? a->blocks->size * 2 : FIRST_BLOCK;
    if (size > LARGEST_STEP) size = LARGEST_STEP;
    if (size < bytes) size = bytes;
    struct arena_block *b = mem_alloc(sizeof *b + size);
    if (!b) return NULL;
    b->next = a->blocks;
    b->used = 0;
    b->size = size;
    a->blocks = b;
    return b;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 4) return NULL;
    size_t need = (bytes + 15) / 16 * 16;
    struct arena_block *b = a->blocks;
    if (!b || b->size - b->used < need) b = grow(a, need);
    if (!b) return NULL;
    void *p = b->data + b->used;
    b->used += need;
    memset(p, 0, need);
    return p;
}

void *arena_array(struct arena *a, size_t n, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(n, size, &bytes) ? NULL : arena_alloc(a, bytes);
}

char *arena_text(struct arena *a, const char *text, size_t len)
{
    char *copy = len < SIZE_MAX ? arena_alloc(a, len + 1) : NULL;
    if (copy) memcpy(copy, text, len);
    return copy;
}

void arena_reset(struct arena *a)
{
    if (!a->blocks) return;
    struct arena_block *keep = a->blocks, *b = keep->next;
    while (b) {
        struct arena_block *next = b->next;
        mem_free(b);
        b = next;
    }
    keep->next = NULL;
    keep->used = 0;
}

void arena_drop(struct arena *a)
{
    while (a->blocks) {
        struct arena_block *next = a->blocks->next;
        mem_free(a->blocks);
        a->blocks = next;
    }
}
