/* ops/work.h - the parts that the ops' work functions are made of (ops.h, call_work). */
#ifndef LUCE_OPS_WORK_H
#define LUCE_OPS_WORK_H

#include "ops/ops.h"

/* All weights once, inputs and outputs once; each matrix multiplies every row of the output. */
struct work work_plain(const struct tape *t, const struct call *c, const struct step *s);
/* Bytes of inputs and outputs alone. */
double work_values(const struct tape *t, const struct call *c, const struct step *s);
/* Bytes of a weight in its stored format. */
double work_weight(const struct weight *w);
/* Of a call whose weights have one matrix an expert: of these, as many as n_rows rows that take `used`
 * of them touch on average when all are alike (exactly `used` for one row). The first n_each weights have a matrix an
 * expert, those behind them are a shared expert's. */
struct work work_experts(const struct tape *t, const struct call *c, const struct step *s, const struct moe_attr *a,
                         int n_each);
/* Bytes of keys and values of one position of a layer, all heads. */
double work_position(const struct tape *t, int layer);
/* Bytes of writing new keys and values of a layer and of moving the committed ones. */
double work_commit(const struct tape *t, int layer, const struct step *s);

#endif
