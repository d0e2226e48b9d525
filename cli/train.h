/* cli/train.h - the parts of luce train-drafter (docs/speculation.md, "A drafter of your own"). Each takes the options
 * of the command and says what it does on standard error. */
#ifndef LUCE_CLI_TRAIN_H
#define LUCE_CLI_TRAIN_H

#include "cli/options.h"

/* What a drafter learns from: the model at o->operands[0] answers, greedily, the prompts of a folder; then its layers'
 * outputs at every position of these texts. Writes a safetensors file (training/data.py says what is in it).
 * Whatever makes a model unfit for a drafter is refused here. */
luce_status train_data_write(const struct options *o, const char *prompts, const char *path, luce_error *err);

/* Copies a GGUF file with its matrices encoded as Q8_0; vectors, whole numbers and matrices whose rows are no
 * multiple of a block stay as they are. */
luce_status gguf_to_q8_0(const char *from, const char *to, luce_error *err);

#endif
