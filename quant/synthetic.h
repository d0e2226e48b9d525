/* quant/synthetic.h - rows of random weights in any format that has an encoder, made at memory speed.
 * For models without a file (model/presets.c). */
#ifndef LUCE_QUANT_SYNTHETIC_H
#define LUCE_QUANT_SYNTHETIC_H

#include "quant/quant.h"

/* Writes rows first_row .. first_row + n_rows - 1 of a matrix of `cols` columns (a multiple of the
 * block) into out, format_bytes(f, cols) each. Values are normal with standard deviation std; std 0:
 * all ones. A row's bytes depend on format, seed, its index, cols and std alone, so rows may be made in
 * any order, by any thread, in any chunks. f->encode must be there and need no importance.
 * Cost: copies of encoded pieces, 3 to 40 GB/s; each thread encodes a pool of them first (0.1 to 6 ms,
 * grid formats up to 70) whenever format or std change. Values repeat between rows, which no speed depends on. */
void synthetic_rows(const struct format *f, uint64_t seed, uint64_t first_row, uint64_t n_rows,
                    uint64_t cols, float std, void *out);

#endif
