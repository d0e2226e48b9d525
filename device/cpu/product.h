/* device/cpu/product.h - the strip products of all instruction sets. */
#ifndef LUCE_DEVICE_CPU_PRODUCT_H
#define LUCE_DEVICE_CPU_PRODUCT_H

#include "device/cpu/cpu.h"

/* Contract as product_fn in cpu.h: y = strips times columns, the sums in the order that cpu.h gives.
 * q8: all integer formats; blocks: any format that decodes. */
void product_q8_portable(const struct product *p);
void product_f32_portable(const struct product *p);
void product_f16_portable(const struct product *p);
void product_bf16_portable(const struct product *p);
void product_blocks_portable(const struct product *p);

/* Likewise. */
void product_f32_avx2(const struct product *p);
void product_f16_avx2(const struct product *p);
void product_bf16_avx2(const struct product *p);
void product_f32_avx512(const struct product *p);
void product_f16_avx512(const struct product *p);
void product_bf16_avx512(const struct product *p);
void product_f32_neon(const struct product *p);
void product_f16_neon(const struct product *p);
void product_bf16_neon(const struct product *p);

/* The formats multiplied as integers. */
#define INTEGER_FORMATS(X)                                                                \
    X(q4_0, Q_Q4_0) X(q4_1, Q_Q4_1) X(q5_0, Q_Q5_0) X(q5_1, Q_Q5_1) X(q8_0, Q_Q8_0)       \
        X(q4_k, Q_Q4_K) X(q5_k, Q_Q5_K) X(q6_k, Q_Q6_K) X(iq4_nl, Q_IQ4_NL) \
            X(iq4_xs, Q_IQ4_XS) X(mxfp4, Q_MXFP4)
#define PRODUCT_DECLARE(name, format)                                                     \
    void product_##name##_avx2(const struct product *p);                                  \
    void product_##name##_avx512(const struct product *p);                                \
    void product_##name##_neon(const struct product *p);
INTEGER_FORMATS(PRODUCT_DECLARE)
#undef PRODUCT_DECLARE

/* One group of 32 k of 16 rows, unpacked: the meaning of a strip block. */
struct panel {
    uint8_t w[8][LANES][4];             /* code of k = 4j + b, by [j][row][b] */
    float   scale[2][LANES];            /* one, or one per 16 k */
    float   offset[LANES];
};
/* Group i of a block of n groups. */
void panel_unpack(uint32_t format, const uint8_t *block, int n, int i, struct panel *p);

#endif
