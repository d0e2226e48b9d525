/* model/presets.h - how the weights of a synthetic model are chosen. */
#ifndef LUCE_MODEL_PRESETS_H
#define LUCE_MODEL_PRESETS_H

#include "model/family.h"

struct preset;
struct mix;
struct synthetic_plan {
    const struct preset *preset;
    const struct mix *mix;      /* NULL: every matrix in `format` */
    uint32_t format;
    uint64_t seed;
    bool untied;                /* has an output.weight of its own */
};
/* Format of this tensor ("attn_q.weight"; layer -1: of the model) with rows of n_in elements. */
uint32_t synthetic_format(const struct model *m, const char *tensor, int layer, uint64_t n_in);

#endif
