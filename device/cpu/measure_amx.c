/* device/cpu/measure_amx.c - the arithmetic loop of AMX: see measure.c. Whole tiles of 64 k, six sums under way. */
#include "device/cpu/measure.h"
#include "device/cpu/tiles.h"

void probe_int8_amx(long rounds)
{
    static const uint8_t ones[TILE_ROWS][TILE_BYTES] = { { 1 } };
    int32_t sums[TILE_ROWS][TILE_BYTES / 4];
    struct tile_config c = { .palette = 1 };
    for (int t = 0; t < TILES; t++) c.bytes[t] = TILE_BYTES, c.rows[t] = TILE_ROWS;
    tile_configure(&c);
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    tile_zero(4);
    tile_zero(5);
    tile_load(6, ones, TILE_BYTES);
    tile_load(7, ones, TILE_BYTES);
    for (long r = 0; r < rounds; r++) {
        tile_dot(0, 6, 7);
        tile_dot(1, 6, 7);
        tile_dot(2, 6, 7);
        tile_dot(3, 6, 7);
        tile_dot(4, 6, 7);
        tile_dot(5, 6, 7);
    }
    tile_store(0, sums);
    tile_release();
    measure_sink = sums[0][0];
}
