/* cli/generate.h - what the commands that load a model share: a model from the options, a request from the options. */
#ifndef LUCE_CLI_GENERATE_H
#define LUCE_CLI_GENERATE_H

#include "cli/options.h"

/* What --model or --synthetic and the other options say; borrows from *o. */
luce_model_params model_params(const struct options *o);
/* When *draft is a folder: the one GGUF file in it, kept in *found. LUCE_E_ARG: it holds none, or several. */
luce_status draft_find(const char **draft, struct buf *found, luce_error *err);
/* luce_model_open with a progress bar; the drafter's file is found so. Ctrl-C cancels. */
luce_status model_load(luce_model **out, luce_model_params p, luce_error *err);
/* Sampling, limits and stop strings; the prompt is the caller's. stops: room for OPTION_TEXTS_MAX + 1
 * texts that lives as long as the request. more_stop: one more, or NULL. */
luce_request request_from_options(const struct options *o, const char **stops, const char *more_stop);
/* "prompt 12 tokens, 310/s; text 40 tokens, 55/s" on standard error, with --timings or at a terminal. */
void show_speed(const struct options *o, const luce_result *r);

#endif
