/* server/print.h - what the printers of all dialects share; on top of base/json.h. Threads: any. */
#ifndef LUCE_SERVER_PRINT_H
#define LUCE_SERVER_PRINT_H

#include "base/json.h"
#include "server/job.h"

/* Members of the open object. */
void put_text(struct json *j, const char *key, const char *text);       /* NULL: null */
void put_str(struct json *j, const char *key, struct str text);
void put_int(struct json *j, const char *key, int64_t value);
void put_number(struct json *j, const char *key, double value);
void put_bool(struct json *j, const char *key, bool value);
/* The tree as it is; absent: null. */
void put_tree(struct json *j, const char *key, const json_t *tree);
struct str str_in(const struct buf *b);
/* "accept_rate", "spec_decode_ran" and "timings" of a usage object. */
void put_timings(struct json *j, const struct job *job);
/* {"error": {...}} as OpenAI has it. */
void print_openai_error(const struct refusal *why, struct buf *out);
/* The same as the last event of a stream, and its end: chat and legacy completions. */
void print_openai_broken(struct job *job, const struct refusal *why, struct buf *out);
/* One server-sent event: begins the JSON of its data; ends it. event may be NULL. */
void event_begin(struct json *j, struct buf *out, const char *event);
void event_end(struct json *j);
/* "logprobs" of the tokens from c->n_printed to c->n_covered, in the chat form; moves n_printed. */
void put_chat_logprobs(struct json *j, struct choice *c);
/* Text of all items of a kind, joined; how many there are. */
void join_items(const struct choice *c, enum item_kind kind, struct buf *out);
int count_items(const struct choice *c, enum item_kind kind);

#endif
