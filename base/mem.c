/* base/mem.c - see mem.h. Each block carries a small header with its size and its real start. */
#define _GNU_SOURCE
#include "base/mem.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct header {
    void *start;                /* what the C library gave */
    size_t bytes;               /* what the caller asked for */
};
enum { HEADER = 64, SMALL_PAGE = 4096, HUGE_PAGE = 2 << 20 };
_Static_assert(sizeof(struct header) <= HEADER, "the header fits before the block");

static atomic_size_t live_blocks;
static atomic_bool armed;
static atomic_long left;

static bool must_fail(void)
{
    return atomic_load(&armed) && atomic_fetch_sub(&left, 1) <= 0;
}

static struct header *header_of(void *p)
{
    return (struct header *)((char *)p - HEADER);
}

/* The system takes whole pages only; blocks of the C library begin a little after one. */
static void ask_for_huge_pages(char *start, size_t bytes)
{
    size_t gap = (SMALL_PAGE - (uintptr_t)start % SMALL_PAGE) % SMALL_PAGE;
    madvise(start + gap, (bytes - gap) / SMALL_PAGE * SMALL_PAGE, MADV_HUGEPAGE);
}

static void *take(size_t bytes, size_t align, bool zero)
{
    if (bytes == 0 || bytes > SIZE_MAX / 2 || must_fail()) return NULL;
    size_t gap = align > HEADER ? align : HEADER;
    size_t all = (gap + bytes + align - 1) / align * align;
    char *start;
    if (align <= 16) {
        start = zero ? calloc(1, all) : malloc(all);
    } else {
        start = aligned_alloc(align, all);
        if (start && all >= 2 * (size_t)HUGE_PAGE) ask_for_huge_pages(start, all);
        if (start && zero) memset(start, 0, all);
    }
    if (!start) return NULL;
    void *p = start + gap;
    *header_of(p) = (struct header){ .start = start, .bytes = bytes };
    atomic_fetch_add(&live_blocks, 1);
    return p;
}

void *mem_alloc(size_t bytes)
{
    return take(bytes, 16, false);
}

void *mem_zero(size_t bytes)
{
    return take(bytes, 16, true);
}

void *mem_array(size_t n, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(n, size, &bytes) ? NULL : take(bytes, 16, true);
}

void *mem_aligned(size_t bytes, size_t align)
{
    return take(bytes, align < 64 ? 64 : align, false);
}

void *mem_resize(void *old, size_t bytes)
{
    if (!old) return mem_alloc(bytes);
    void *p = mem_alloc(bytes);
    if (!p) return NULL;
    size_t keep = header_of(old)->bytes;
    memcpy(p, old, keep < bytes ? keep : bytes);
    mem_free(old);
    return p;
}

void mem_free(void *p)
{
    if (!p) return;
    struct header *h = header_of(p);
    atomic_fetch_sub(&live_blocks, 1);
    free(h->start);
}

char *mem_text(const char *text, size_t len)
{
    char *copy = mem_alloc(len + 1);
    if (!copy) return NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

size_t mem_live(void)
{
    return atomic_load(&live_blocks);
}

void mem_fail_after(long n)
{
    atomic_store(&left, n);
    atomic_store(&armed, true);
}

void mem_fail_never(void)
{
    atomic_store(&armed, false);
}
