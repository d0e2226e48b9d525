/* quant/rotate.h - the orthonormal rotation of 128 values in front of cache formats: signs, a
 * Walsh-Hadamard transform, signs. It spreads outliers evenly; products of two rotated vectors are
 * those of the vectors. Queries are rotated once, the attention's output is turned back once. */
#ifndef LUCE_QUANT_ROTATE_H
#define LUCE_QUANT_ROTATE_H

enum { ROTATE_GROUP = 128 };    /* a head's size must be a multiple of this */

/* In place. Every step is rounded to f32 in a fixed order: the same bits on every machine. */
void rotate_group(float x[ROTATE_GROUP]);
void rotate_back(float x[ROTATE_GROUP]);

#endif
