/* model/rope.h - rotary frequencies: the table of radians per position, all scaling included. */
#ifndef LUCE_MODEL_ROPE_H
#define LUCE_MODEL_ROPE_H

#include "model/family.h"

/* Reads the rope keys and factor tensors and fills m->c.rope[0] (its layout is set already). */
luce_status rope_configure(struct model *m, const struct gguf *g, luce_error *err);
/* Recomputes the tables of longrope models for this longest context. */
void rope_choose(struct model *m, int context);

#endif
