/* The integer products with AMX once more, their tiles emulated, so that they are checked where the processor has
 * AVX-512 alone. */
#define TILES_EMULATED
#include "device/cpu/product_amx.c"     /* NOLINT: the same source under other names */

extern const struct kernels kernels_amx_emulated;
const struct kernels kernels_amx_emulated = {
    .isa = ISA_AMX, .name = "amx emulated", .enter = tiles_enter_emulated, .leave = tiles_leave_emulated,
    .product = { INTEGER_FORMATS(AMX_PRODUCT_ROW) },
};
