/* model/open.h - inside of model_open, shared with synthetic models. */
#ifndef LUCE_MODEL_OPEN_H
#define LUCE_MODEL_OPEN_H

#include "model/presets.h"

/* model_open; with a plan, g holds keys only and the weights are synthetic. */
luce_status model_open_planned(struct model **out, const struct gguf *g, const struct synthetic_plan *plan,
                               luce_error *err);

#endif
