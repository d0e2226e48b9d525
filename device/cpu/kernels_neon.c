/* device/cpu/kernels_neon.c - the op bodies for NEON with dot products, and that row of kernels. */
#include "device/cpu/port.h"

#ifdef HAVE_NEON
#include "device/cpu/lanes_neon.h"
#include "device/cpu/product.h"

#define K(name) name##_neon
#include "device/cpu/table.h"

const struct kernels kernels_neon = {
    .isa = ISA_NEON, .name = "neon", .op = OP_KERNELS, .quantise = QUANTISE_KERNELS,
    .gate = K(gate_lanes),
    .product = {
#define PRODUCT_ROW(name, format) { format, product_##name##_neon },
        INTEGER_FORMATS(PRODUCT_ROW)
#undef PRODUCT_ROW
        { Q_F32, product_f32_neon }, { Q_F16, product_f16_neon }, { Q_BF16, product_bf16_neon },
    },
};
#endif
