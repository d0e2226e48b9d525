/* cli/inspect_model.h - the views of luce inspect that need the model and not only its file: the tape,
 * a traced step, the check of what a run would refuse, the comparison with the references. */
#ifndef LUCE_CLI_INSPECT_MODEL_H
#define LUCE_CLI_INSPECT_MODEL_H

#include "cli/options.h"

/* Shows the one view that the options ask for. */
luce_status inspect_model(const struct options *o, luce_error *err);

#endif
