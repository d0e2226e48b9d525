/* device/cpu/kernels_amx.c - the row of kernels for AMX: integer products and their limit. */
#include "device/cpu/measure.h"
#include "device/cpu/product_amx.h"

const struct kernels kernels_amx = {
    .isa = ISA_AMX, .name = "amx", .enter = tiles_enter_amx, .leave = tiles_leave_amx,
    .product = { INTEGER_FORMATS(AMX_PRODUCT_ROW) },
    .int8 = { probe_int8_amx, PROBE_INT8_OPS_AMX },
};
