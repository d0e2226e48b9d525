/* device/cpu/product_amx.h - the integer products with AMX. The tests build them once more with emulated tiles (see
 * tiles.h), under other names. */
#ifndef LUCE_DEVICE_CPU_PRODUCT_AMX_H
#define LUCE_DEVICE_CPU_PRODUCT_AMX_H

#include "device/cpu/product.h"

#ifdef TILES_EMULATED
#define AMX(name) name##_emulated
#else
#define AMX(name) name##_amx
#endif

/* Below this many columns the products of AVX-512 are faster; at least 16. */
enum { AMX_LEAST_COLS = 16 };

/* Around all products of a thread. */
void AMX(tiles_enter)(void);
void AMX(tiles_leave)(void);

/* Contract as product_fn. */
#define PRODUCT_DECLARE(name, format) void AMX(product_##name)(const struct product *p);
INTEGER_FORMATS(PRODUCT_DECLARE)
#undef PRODUCT_DECLARE

#define AMX_PRODUCT_ROW(name, format) { format, AMX(product_##name) },

#endif
