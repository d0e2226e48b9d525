/* device/cpu/product.h - the strip products of all instruction sets. */
#ifndef LUCE_DEVICE_CPU_PRODUCT_H
#define LUCE_DEVICE_CPU_PRODUCT_H

#include "device/cpu/cpu.h"

void product_q8_portable(const struct product *p);
void product_f32_portable(const struct product *p);
void product_f16_portable(const struct product *p);
void product_bf16_portable(const struct product *p);
void product_blocks_portable(const struct product *p);

/* One group of 32 k of 16 rows, unpacked: the meaning of a strip block. */
struct panel {
    uint8_t w[8][LANES][4];             /* code of k = 4j + b, by [j][row][b] */
    float   scale[2][LANES];            /* one, or one per 16 k */
    float   offset[LANES];
};
/* Group i of a block of n groups. */
void panel_unpack(uint32_t format, const uint8_t *block, int n, int i, struct panel *p);

#endif
