/* chat/tree.h - JSON text as trees of jansson and back, without loss. Jansson itself refuses integers beyond 64
 * bits, reals beyond a double, escapes that are half a character, and names with a NUL; here the first two are
 * leaves that keep their digits, half a character becomes U+FFFD, as does the NUL. Texts may come from anyone.
 * A leaf with digits is a string of jansson's that begins with a byte that no text has: ask tree_is_text, not
 * json_is_string, whether something is a text. Trees that may have such leaves are printed by tree_print alone.
 * Threads: any, each with its own trees. */
#ifndef LUCE_CHAT_TREE_H
#define LUCE_CHAT_TREE_H

#include <jansson.h>

#include "base/buf.h"
#include "base/str.h"

struct tree_error {
    const char *text;               /* what is wrong; static */
    size_t at;                      /* byte of the text */
    bool too_deep, no_memory;
};
/* The value that the text spells, nested at most `depth` deep (up to JSON_IN_DEPTH); json_decref. Of equal names in
 * an object the last one counts. NULL: it is not JSON, see *why (may be NULL). */
json_t *tree_read(struct str text, int depth, struct tree_error *why);
/* The same for an object at the usual depth; NULL for any other text. */
json_t *tree_read_object(struct str text);

enum tree_form { TREE_COMPACT, TREE_SPACED };   /* spaced: ", " and ": ", as models are trained */
/* Appends the tree as JSON text; NULL is null. */
void tree_print(struct buf *out, const json_t *tree, enum tree_form form);
/* The same as a text of jansson's, a new reference; NULL: out of memory. */
json_t *tree_text(const json_t *tree);

/* It is a string. */
bool tree_is_text(const json_t *v);
/* The digits of a number that neither json_int_t nor double holds, else NULL; borrowed from v. */
const char *tree_digits(const json_t *v);

#endif
