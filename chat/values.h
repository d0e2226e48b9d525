/* chat/values.h - JSON text and trees (jansson) as values of templates. Strings of clients are marked
 * plain; what they nest is limited. Threads: any, each with its own heap. */
#ifndef LUCE_CHAT_VALUES_H
#define LUCE_CHAT_VALUES_H

#include <jansson.h>

#include "text/jinja.h"

enum { VALUE_DEPTH_MAX = 256 };     /* objects and arrays within each other */

/* Lets jansson take its memory from base/mem.h. Once, before any other use of jansson. */
void values_use_counted_memory(void);
/* The tree as a value in the heap; `plain` marks its strings and keys. LUCE_E_ARG when it is nested
 * too deep, LUCE_E_NOMEM. NULL gives undefined. */
luce_status value_of_json(struct jheap *h, const json_t *json, bool plain, struct jval *out, luce_error *err);
/* The value that the text spells, plain; for the from_json filter. LUCE_E_ARG when it is not JSON. */
luce_status value_from_text(struct jheap *h, struct str text, struct jval *out, luce_error *err);

#endif
