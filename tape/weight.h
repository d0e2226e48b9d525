/* tape/weight.h - a matrix or vector of a model, as tapes and devices see it. */
#ifndef LUCE_TAPE_WEIGHT_H
#define LUCE_TAPE_WEIGHT_H

#include <stdint.h>

/* dim[0] is the row length (the input of a product), dim[1] the number of rows (its output),
 * dim[2] the number of experts (1 otherwise). Rows are contiguous in `host`, in format `type`. */
struct weight {
    const char *name;           /* as in the file; lives as long as the model */
    uint64_t    dim[3];
    uint32_t    type;           /* id of a quant/ format */
    /* Where the canonical bytes come from: mapped file or memory of the model; NULL for synthetic
     * matrices, whose rows are made from `seed` (quant/synthetic.h), and after the upload released
     * them. Vectors always have theirs. */
    const uint8_t *host;
    uint64_t    host_bytes;
    /* Rows of a group and bytes from the start of one to the next's, where others lie between them (experts whose
     * gate and up rows are one tensor); group 0: rows follow one another. */
    uint64_t    group, group_bytes;
    uint64_t    seed;
    float       synthetic_std;  /* standard deviation of synthetic values; 0: not synthetic */
    /* Set by the device that holds it (device.h, upload): its own layout and handle. */
    void       *dev;
    uint32_t    layout;         /* device's layout id, 0: none yet */
};

/* Canonical bytes of a row (over all matrices), in host memory. */
static inline const uint8_t *weight_row(const struct weight *w, uint64_t row, uint64_t row_bytes)
{
    if (!w->group) return w->host + row * row_bytes;
    return w->host + row / w->group * w->group_bytes + row % w->group * row_bytes;
}

#endif
