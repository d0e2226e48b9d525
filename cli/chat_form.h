/* cli/chat_form.h - the plain forms in which model families write turns of a chat: what `luce chat` and
 * `luce run --chat` put around a user's words. The form is found by what a model's chat template
 * contains, else by its architecture. */
#ifndef LUCE_CLI_CHAT_FORM_H
#define LUCE_CLI_CHAT_FORM_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

struct chat_form {
    const char *name;
    const char *mark;               /* in the template of models that use it */
    const char *arch;               /* of models without a template that use it, or NULL */
    const char *system[2];          /* around the system text; NULL: it opens the first user turn */
    const char *user[2];
    const char *assistant;          /* begins the answer */
    const char *end[2];             /* ends it: the model's own end token, and what follows that */
    const char *stop;               /* text that ends an answer, or NULL */
};

/* Never NULL: the last form is plain text. */
const struct chat_form *chat_form_find(const luce_model_info *model);

/* A text with marks for what is the form's own. */
struct chat_text {
    struct buf text;
    luce_span  span[8];
    size_t     n_spans;
};
/* How the answer before ended: there was none, with its end token, or without. */
enum chat_before { CHAT_FIRST, CHAT_ENDED, CHAT_CUT };
/* Writes a user's turn and the begin of the answer. system: NULL for none; only in a first turn. */
void chat_turn(struct chat_text *out, const struct chat_form *f, enum chat_before before,
               const char *system, struct str user);
/* As the prompt of a request; borrows from *t. all_special: the user's words may spell control tokens, too. */
luce_text chat_prompt(const struct chat_text *t, enum chat_before before, bool all_special);
void chat_text_drop(struct chat_text *t);

#endif
