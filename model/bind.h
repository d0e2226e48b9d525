/* model/bind.h - from tensors of a file to checked weights, by the family's table. */
#ifndef LUCE_MODEL_BIND_H
#define LUCE_MODEL_BIND_H

#include "model/family.h"

/* Finds every tensor of the model's and the family's tables, checks type and dims, and fills
 * m->weights, m->layers and the model's own fields; appends the rope tables. Without a file's data
 * (m->synthetic) it makes the weights that a file would hold. */
luce_status bind_model(struct model *m, const struct gguf *g, luce_error *err);
/* Values of an optional f32 vector of exactly n elements, borrowed; NULL when absent. */
luce_status bind_floats(const struct gguf *g, const char *name, int n, const float **out, luce_error *err);

/* The same for one block behind the layers of a file: the family's layer (m->layers, one) and `own` rows, into
 * `fields`; there is room for `more` weights. Frequencies and what lies outside the block are the caller's. */
luce_status bind_block(struct model *m, const struct gguf *g, int block, const struct bind *own, int n_own,
                       void *fields, int more, luce_error *err);

#endif
