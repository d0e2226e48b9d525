/* base/hash.c - see hash.h. Eight bytes a round through a 64x64 to 128 bit product, folded. */
#include "base/hash.h"

#include <string.h>

static uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 p = (unsigned __int128)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

uint64_t hash_bytes(const void *data, size_t len, uint64_t seed)
{
    const unsigned char *at = data;
    uint64_t h = hash_u64(seed ^ 0x9e3779b97f4a7c15u) ^ len;
    for (; len >= 8; len -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        h = fold(h ^ word, 0xd6e8feb86659fd93u);
    }
    uint64_t tail = 0;
    if (len) memcpy(&tail, at, len);
    return hash_u64(fold(h ^ tail, 0xa0761d6478bd642fu));
}
