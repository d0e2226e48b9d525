/* device/cpu/product_amx.h - the integer products with AMX. The tests build them once more with emulated tiles (see
 * tiles.h), under other names. */
#ifndef LUCE_DEVICE_CPU_PRODUCT_AMX_H
#define LUCE_DEVICE_CPU_PRODUCT_AMX_H

#include "device/cpu/product.h"

/* Below so many columns AVX-512 is faster; at least 16. Tests take tiles wherever they can be taken. */
#ifdef TILES_EMULATED
#define AMX(name) name##_emulated
enum { AMX_LEAST_COLS = 16, AMX_ALL_FORMATS = 1 };
#else
#define AMX(name) name##_amx
enum { AMX_LEAST_COLS = 64, AMX_ALL_FORMATS = 0 };
#endif

/* Around all products of a thread. */
void AMX(tiles_enter)(void);
void AMX(tiles_leave)(void);

/* Contract as product_fn. */
#define PRODUCT_DECLARE(name, format) void AMX(product_##name)(const struct product *p);
INTEGER_FORMATS(PRODUCT_DECLARE)
#undef PRODUCT_DECLARE

#define AMX_PRODUCT_ROW(name, format) { format, AMX(product_##name) },

#endif
