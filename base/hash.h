/* base/hash.h - a fast 64-bit hash of bytes, for maps, caches and checksums of our own files.
 * Not for secrets or signatures. The value is the same on every machine. */
#ifndef LUCE_BASE_HASH_H
#define LUCE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* The hash of len bytes; another seed gives an unrelated one. */
uint64_t hash_bytes(const void *data, size_t len, uint64_t seed);

/* Mixes one 64-bit value (the finaliser of splitmix64, Steele et al. 2014). */
static inline uint64_t hash_u64(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
