/* chat/history.h - puts a client's messages into the shape that templates expect, and, step by step,
 * into shapes that strict templates accept. Trees of jansson; what goes in is not changed. */
#ifndef LUCE_CHAT_HISTORY_H
#define LUCE_CHAT_HISTORY_H

#include <jansson.h>

#include "base/error.h"

struct history_form {
    bool keep_developer;        /* the template knows this role */
    bool keep_parts;            /* content may stay a list of parts (images) */
    bool short_ids;             /* ids of calls must have nine letters and digits */
};
/* A new array (json_decref): content as text, arguments parsed, the first system messages joined, names
 * on results. LUCE_E_ARG names the message that has no role or is no object; LUCE_E_UNSUPPORTED: images;
 * LUCE_E_NOMEM. */
luce_status history_clean(json_t **out, const json_t *messages, const struct history_form *form, luce_error *err);

/* A new array with calls and their results as text of assistant and user; NULL when out of memory. */
json_t *history_tell_calls(const json_t *messages);

/* Each makes a new array in which more is given up; NULL when out of memory. */
json_t *history_fold_system(const json_t *messages);    /* later system messages go into the next user's */
json_t *history_wrap_arguments(const json_t *messages); /* arguments that are no object become {"_raw": ..} */
json_t *history_alternate(const json_t *messages);      /* one call a turn, neighbours of one role joined */
json_t *history_plain(const json_t *messages);          /* system, results and calls as text of user and
                                                           assistant; before an assistant first, an empty user's */

#endif
