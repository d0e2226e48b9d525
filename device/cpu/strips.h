/* device/cpu/strips.h - where things lie in a strip block of the integer formats.
 *
 * A block holds g groups (8, or fewer at the end of a row) of 32 k of 16 rows. Codes come first. Four
 * successive k of one row are 4 bytes, 16 rows a vector of 64 bytes, the operand of one VPDPBUSD:
 *     nibbles  [group][j 0..3][row][4]: low nibble k = 4j + b, high nibble k = 16 + 4j + b
 *     bytes    [group][j 0..7][row][4]: k = 4j + b, the code plus 128
 *     bit 4    [group][row][4]: bit j of byte b belongs to k = 4j + b
 *     bits 45  [group][half][row][4]: bits 2j of byte b belong to k = 16 half + 4j + b, j 0..3
 * Scales follow, [group][row], so that one load serves 16 rows. The 6-bit scales of the big formats
 * keep their size: 4 low bits and 2 high bits apart, groups i and i + 4 in one byte. */
#ifndef LUCE_DEVICE_CPU_STRIPS_H
#define LUCE_DEVICE_CPU_STRIPS_H

#include "device/cpu/cpu.h"

enum {
    VEC = 64,
    NIBBLES = 4 * VEC,              /* of one group */
    BYTES = 8 * VEC,
    F16S = 2 * LANES,               /* 16 halves */

    Q4K_D = GROUPS * NIBBLES,       /* then dmin */
    Q4K_LOW = Q4K_D + 2 * F16S,     /* [group][row]: low nibble of the scale, high: of the min */
    Q4K_HIGH = Q4K_LOW + GROUPS * LANES,    /* [i][row]: nibble g / 4 of group g = i + 4 (0 or 1):
                                               2 bits of the scale, 2 bits of the min */
    Q4K_SIZE = Q4K_HIGH + 4 * LANES,

    Q5K_BIT = GROUPS * NIBBLES,
    Q5K_D = Q5K_BIT + GROUPS * VEC, /* from here on as Q4_K */
    Q5K_SIZE = Q5K_D + Q4K_SIZE - Q4K_D,

    Q6K_BITS = GROUPS * NIBBLES,
    Q6K_SCALES = Q6K_BITS + GROUPS * 2 * VEC,       /* i8 [group][half][row] */
    Q6K_D = Q6K_SCALES + GROUPS * 2 * LANES,
    Q6K_SIZE = Q6K_D + 2 * F16S,    /* 32 bytes unused: blocks begin on cache lines */

    IQ4XS_D = GROUPS * NIBBLES,
    IQ4XS_LOW = IQ4XS_D + F16S,     /* [i][row]: low nibble of group i, high: of group i + 4 */
    IQ4XS_HIGH = IQ4XS_LOW + 4 * LANES,     /* [g / 4][row]: bits 2 (g % 4) */
    IQ4XS_SIZE = IQ4XS_HIGH + 2 * LANES,
};
_Static_assert(Q4K_SIZE == 16 * 144 && Q5K_SIZE == 16 * 176 && IQ4XS_SIZE == 16 * 136, "no growth");

#endif
