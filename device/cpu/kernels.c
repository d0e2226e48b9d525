/* device/cpu/kernels.c - the op bodies in plain C, and that row of kernels. */
#include "device/cpu/lanes_portable.h"
#include "device/cpu/measure.h"
#include "device/cpu/product.h"

#define K(name) name##_portable
#include "device/cpu/table.h"

const struct kernels kernels_portable = {
    .isa = ISA_PORTABLE, .name = "portable", .op = OP_KERNELS, .quantise = QUANTISE_KERNELS,
    .gate = K(gate_lanes),
    .product = {
        { Q_Q4_0, product_q8_portable }, { Q_Q4_1, product_q8_portable }, { Q_Q5_0, product_q8_portable },
        { Q_Q5_1, product_q8_portable }, { Q_Q8_0, product_q8_portable }, { Q_Q4_K, product_q8_portable },
        { Q_Q5_K, product_q8_portable }, { Q_Q6_K, product_q8_portable }, { Q_IQ4_NL, product_q8_portable },
        { Q_IQ4_XS, product_q8_portable }, { Q_MXFP4, product_q8_portable }, { Q_F16, product_f16_portable },
        { Q_BF16, product_bf16_portable }, { Q_F32, product_f32_portable },
    },
    .generic = product_blocks_portable, .f32 = { probe_f32_portable, PROBE_F32_OPS },
    .read = { read_portable },
};
