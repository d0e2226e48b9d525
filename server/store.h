/* server/store.h - responses that a later request may continue by their id: the newest, up to a number and
 * a size. Threads: any. */
#ifndef LUCE_SERVER_STORE_H
#define LUCE_SERVER_STORE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

struct store;
luce_status store_new(struct store **out, luce_error *err);
void store_free(struct store *s);               /* NULL is fine */
struct kept {
    const json_t *messages;         /* the conversation in the chat form, the answer last */
    const char *reply;              /* as text */
    const char *items;              /* ids of the reply's items, each with a space before and after it */
};
/* Keeps copies. Does nothing when memory is short. */
void store_put(struct store *s, const char *id, const struct kept *k);
/* Copies that the caller owns (json_decref, mem_free); false when there is none of that id. Either out may
 * be NULL. */
bool store_get(struct store *s, const char *id, json_t **messages, char **reply);
/* A copy of the item that has this id in one of the replies (json_decref), or NULL. */
json_t *store_find_item(struct store *s, const char *id);

#endif
