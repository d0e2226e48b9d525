/* cli/prompt_sets.h - sets of prompts: a folder with NAME.txt, in which a line "%%" ends a prompt. */
#ifndef LUCE_CLI_PROMPT_SETS_H
#define LUCE_CLI_PROMPT_SETS_H

#include "cli/chat_form.h"

struct prompt_set {
    const char *name;
    bool chat;                      /* prompts are questions: they go into the model's chat form */
};
enum { PROMPT_SETS = 5 };
extern const struct prompt_set prompt_sets[PROMPT_SETS];

/* A prompt as text for a model, borrowed until the function returns; form: where it is a question, else NULL. */
typedef luce_status (*prompt_fn)(void *user, const luce_text *text, const struct chat_form *form, luce_error *err);
/* Calls fn for each prompt of the folder's file of this set, in order, until one fails. *found: the file is there. */
luce_status prompt_set_each(const char *folder, const struct prompt_set *set, const luce_model_info *info,
                            prompt_fn fn, void *user, bool *found, luce_error *err);

#endif
