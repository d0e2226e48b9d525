/* base/mem.h - counted allocation that can be made to fail.
 * All heap memory of luce comes from here, so tests can count what is live and fail the n-th call.
 * Threads: any. The failure counter is for single-threaded tests. */
#ifndef LUCE_BASE_MEM_H
#define LUCE_BASE_MEM_H

#include <stddef.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Uninitialised / zeroed memory, aligned to 16 bytes; NULL when out of memory or bytes is 0. */
void *mem_alloc(size_t bytes);
void *mem_zero(size_t bytes);
/* n elements of `size` bytes, zeroed; NULL also when n * size overflows. */
void *mem_array(size_t n, size_t size);
/* Aligned to `align` (a power of two, at least 64), zeroed by the system for large sizes only.
 * Large blocks ask for huge pages. Freed by mem_free. */
void *mem_aligned(size_t bytes, size_t align);
/* Resizes; the old block stays valid when NULL is returned. old may be NULL. */
void *mem_resize(void *old, size_t bytes);
/* NULL is fine. */
void mem_free(void *p);
/* A NUL-terminated copy of len bytes; mem_free. */
char *mem_text(const char *text, size_t len);

/* Number of live blocks. */
size_t mem_live(void);
/* The call after the next n succeeds no more, nor any later one, until mem_fail_never. */
void mem_fail_after(long n);
void mem_fail_never(void);

#endif
