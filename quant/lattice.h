/* quant/lattice.h - from any vector of levels to a point of a grid, for the encoders of the IQ
 * formats. A vector that is no point has a list of neighbours: all points within the `want`
 * smallest distances from it, by distance, then index. The lists are built once, at the first use
 * (up to 0.1 s). Threads: any. */
#ifndef LUCE_QUANT_LATTICE_H
#define LUCE_QUANT_LATTICE_H

#include <stdint.h>

enum lattice_id {
    LATTICE_IQ1,
    LATTICE_IQ2_XXS,
    LATTICE_IQ2_XS,
    LATTICE_IQ2_S,
    LATTICE_IQ3_XXS,
    LATTICE_IQ3_S
};

struct lattice {
    const uint16_t *grid;       /* points as level codes */
    int points, size, bits;     /* how many, of how many elements, bits of a level */
    int levels, want;
    int32_t *place;             /* by level code: index of the point, or -1 - start of its list */
    uint16_t *lists;            /* lists: length, then the points */
    uint32_t lists_size;
};

/* Ready for use, never freed. */
const struct lattice *lattice_get(enum lattice_id id);

/* The point nearest to x under weights w: sum of w * (value(level) * scale - x)^2, with `values` by
 * level. `level` holds the vector on entry and the point's levels on return. Returns its index, and
 * whether it was a point already in *on_grid (may be NULL). */
int lattice_snap(const struct lattice *g, const float *x, const float *w, float scale,
                 const float *values, uint8_t *level, uint8_t *on_grid);

#endif
