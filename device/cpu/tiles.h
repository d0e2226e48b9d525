/* device/cpu/tiles.h - the tile operations that product_amx.c is written with, in two bodies: the instructions, and
 * plain C that keeps tiles in memory, so that tests run the same kernels where the processor has none
 * (TILES_EMULATED). A tile's number is a literal.
 * Tiles belong to a thread: it configures them before it uses any and releases them when it is through, so that the
 * system has nothing to save for it any more. */
#ifndef LUCE_DEVICE_CPU_TILES_H
#define LUCE_DEVICE_CPU_TILES_H

#include <stddef.h>
#include <stdint.h>

enum { TILES = 8,
       TILE_ROWS = 16,
       TILE_BYTES = 64 };

/* What LDTILECFG reads. */
struct tile_config {
    uint8_t palette, start, none[14];
    uint16_t bytes[16]; /* of a row, by tile */
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "one cache line");

#ifndef TILES_EMULATED
#define tile_configure(c) __asm__ volatile("ldtilecfg %0" \
                                           :              \
                                           : "m"(*(c)))
#define tile_release() __asm__ volatile("tilerelease")
#define tile_zero(t) __asm__ volatile("tilezero %%tmm" #t \
                                      :                   \
                                      :)
/* Rows that lie `stride` bytes apart, a constant. */
#define tile_load(t, at, stride)                                       \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t                   \
                     :                                                 \
                     : "r"((const void *)(at)), "r"((size_t)(stride)), \
                       "m"(*(const char(*)[TILE_ROWS * (stride)])(at)))
/* Rows of 64 bytes, one after the other. */
#define tile_store(t, to)                                           \
    __asm__ volatile("tilestored %%tmm" #t ", (%1,%2,1)"            \
                     : "=m"(*(char(*)[TILE_ROWS * TILE_BYTES])(to)) \
                     : "r"((void *)(to)), "r"((size_t)TILE_BYTES))
/* c[m][n] += sum over k and i of a[m][4k + i] * b[k][4n + i], signed bytes into int32. */
#define tile_dot(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c \
                                           :                                            \
                                           :)
#else

#include <assert.h>
#include <string.h>

static _Thread_local struct {
    struct tile_config config;
    uint8_t at[TILES][TILE_ROWS][TILE_BYTES];
} emulated;

static inline void tile_configure(const struct tile_config *c)
{
    assert(c->palette == 1 && c->start == 0);
    for (int t = 0; t < TILES; t++)
        assert(c->rows[t] <= TILE_ROWS && c->bytes[t] <= TILE_BYTES && c->bytes[t] % 4 == 0);
    memset(&emulated, 0, sizeof emulated);
    emulated.config = *c;
}

static inline void tile_release(void)
{
    memset(&emulated, 0, sizeof emulated);
}

static inline void tile_zero(int t)
{
    assert(emulated.config.palette);
    memset(emulated.at[t], 0, sizeof emulated.at[t]);
}

static inline void tile_load(int t, const void *at, size_t stride)
{
    tile_zero(t);
    for (size_t r = 0; r < emulated.config.rows[t]; r++)
        memcpy(emulated.at[t][r], (const uint8_t *)at + r * stride, emulated.config.bytes[t]);
}

static inline void tile_store(int t, void *to)
{
    assert(emulated.config.palette);
    for (size_t r = 0; r < emulated.config.rows[t]; r++)
        memcpy((uint8_t *)to + r * TILE_BYTES, emulated.at[t][r], emulated.config.bytes[t]);
}

static inline void tile_dot(int c, int a, int b)
{
    const struct tile_config *f = &emulated.config;
    assert(f->palette && f->rows[c] == f->rows[a] && f->bytes[a] == 4 * f->rows[b] && f->bytes[b] == f->bytes[c]);
    int32_t sum[TILE_BYTES / 4];
    for (int m = 0; m < f->rows[c]; m++) {
        memcpy(sum, emulated.at[c][m], sizeof sum);
        for (int k = 0; k < f->rows[b]; k++)
            for (int n = 0; n < TILE_BYTES / 4; n++)
                for (int i = 0; i < 4; i++)
                    sum[n] += (int8_t)emulated.at[a][m][4 * k + i] * (int8_t)emulated.at[b][k][4 * n + i];
        memcpy(emulated.at[c][m], sum, sizeof sum);
    }
}
#endif

#endif
