/* device/cpu/kernels_avx2.c - the op bodies for AVX2 and FMA, and that row of kernels. */
#include "device/cpu/lanes_avx2.h"
#include "device/cpu/measure.h"
#include "device/cpu/product.h"

#define K(name) name##_avx2
#include "device/cpu/table.h"

const struct kernels kernels_avx2 = {
    .isa = ISA_AVX2, .name = "avx2", .op = OP_KERNELS, .quantise = QUANTISE_KERNELS,
    .gate = K(gate_lanes),
    .product = {
#define PRODUCT_ROW(name, format) { format, product_##name##_avx2 },
        INTEGER_FORMATS(PRODUCT_ROW)
#undef PRODUCT_ROW
        { Q_F32, product_f32_avx2 }, { Q_F16, product_f16_avx2 }, { Q_BF16, product_bf16_avx2 },
    },
    .int8 = { probe_int8_avx2, PROBE_INT8_OPS }, .f32 = { probe_f32_avx2, PROBE_F32_OPS },
    .read = { read_avx2 },
};
