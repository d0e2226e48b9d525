/* server/split.h - parts the text of a model into reasoning, content and calls of tools, and tells the job.
 * Threads: one owner. */
#ifndef LUCE_SERVER_SPLIT_H
#define LUCE_SERVER_SPLIT_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/str.h"

struct ask;
struct choice;
struct server;
struct splitter;
/* NULL: out of memory. Borrows the ask. */
struct splitter *splitter_new(const struct server *s, const struct ask *a);
void splitter_free(struct splitter *s);
/* Control tokens are to be in the text. */
bool splitter_wants_special(const struct splitter *s);
bool splitter_in_reasoning(const struct splitter *s);
void splitter_add(struct splitter *s, struct choice *c, struct str text, struct buf *out);
/* The text has ended (cut: by a limit). True when there were whole calls. */
bool splitter_end(struct splitter *s, struct choice *c, bool cut, struct buf *out);

#endif
