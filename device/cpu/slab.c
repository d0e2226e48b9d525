/* device/cpu/slab.c - memory of weights. A matrix of a small model is often smaller than a huge page, and on
 * pages of 4 KB a stream of weights stops at each of them: the hardware does not prefetch across. */
#include "base/mem.h"
#include "device/cpu/cpu.h"

enum { SLAB_BYTES = 32 << 20, LINE = 64 };

uint8_t *slab_take(struct slab **list, size_t bytes)
{
    if (bytes > SIZE_MAX - LINE) return NULL;
    bytes = (bytes + LINE - 1) / LINE * LINE;
    struct slab *s = *list;
    while (s && s->size - s->used < bytes) s = s->next;
    if (!s) {
        s = mem_zero(sizeof *s);
        if (!s) return NULL;
        s->size = bytes > SLAB_BYTES ? bytes : SLAB_BYTES;
        s->at = mem_aligned(s->size, LINE);
        if (!s->at) {
            mem_free(s);
            return NULL;
        }
        s->next = *list;
        *list = s;
    }
    uint8_t *piece = s->at + s->used;
    s->used += bytes;
    s->live++;
    return piece;
}

void slab_give(struct slab **list, uint8_t *piece)
{
    for (struct slab **at = list; piece && *at; at = &(*at)->next) {
        struct slab *s = *at;
        if (piece < s->at || piece >= s->at + s->size) continue;
        if (--s->live) return;
        *at = s->next;
        mem_free(s->at);
        mem_free(s);
        return;
    }
}
