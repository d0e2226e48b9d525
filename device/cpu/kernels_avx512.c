/* device/cpu/kernels_avx512.c - the op bodies for AVX-512 with VNNI and BF16, and that row of kernels. */
#include "device/cpu/lanes_avx512.h"
#include "device/cpu/measure.h"
#include "device/cpu/product.h"

#define K(name) name##_avx512
#include "device/cpu/table.h"

const struct kernels kernels_avx512 = {
    .isa = ISA_AVX512, .name = "avx512", .op = OP_KERNELS, .quantise = QUANTISE_KERNELS,
    .gate = K(gate_lanes),
    .product = {
#define PRODUCT_ROW(name, format) { format, product_##name##_avx512 },
        INTEGER_FORMATS(PRODUCT_ROW)
#undef PRODUCT_ROW
        { Q_F32, product_f32_avx512 }, { Q_F16, product_f16_avx512 }, { Q_BF16, product_bf16_avx512 },
    },
    .int8 = { probe_int8_avx512, PROBE_INT8_OPS }, .bf16 = { probe_bf16_avx512, PROBE_BF16_OPS },
    .f32 = { probe_f32_avx512, PROBE_F32_OPS },
    .read = { read_plain_avx512, read_ahead_avx512, read_streams_avx512 },
};
