/* server/route.h - the table of methods and paths, and the handlers behind it.
 * A handler fills the exchange's reply or refuses. Threads: the workers'. */
#ifndef LUCE_SERVER_ROUTE_H
#define LUCE_SERVER_ROUTE_H

#include "server/job.h"

struct route {
    const char *method, *path;      /* one that ends with a slash takes an id after it, which may hold slashes */
    const struct wire *wire;  /* of errors; NULL: OpenAI's */
    bool (*handle)(struct server *s, struct exchange *x, struct refusal *why);
    const char *doc;
};
const struct route *route_at(size_t i);         /* NULL past the end; docs and /props */
/* For struct http_params. */
void route_handle(void *server, struct exchange *x);
void route_refuse(void *server, struct exchange *x, int status, const char *text);

/* Fills the ask from its body; see struct ask. Each in the file of its API. *_read leaves the prompt to
 * *_parse. */
bool chat_read(struct server *s, struct ask *a, struct refusal *why);
bool messages_read(struct server *s, struct ask *a, struct refusal *why);
bool responses_read(struct server *s, struct ask *a, struct refusal *why);
bool chat_parse(struct server *s, struct ask *a, struct refusal *why);
bool completions_parse(struct server *s, struct ask *a, struct refusal *why);
bool messages_parse(struct server *s, struct ask *a, struct refusal *why);
bool responses_parse(struct server *s, struct ask *a, struct refusal *why);

/* The prompts of a field: a string, strings, token ids, or lists of them; at most so many. */
bool take_prompts(struct server *s, struct ask *a, const char *key, size_t most, struct refusal *why);

/* Handlers of admin.c; contract as struct route's. */
bool health_get(struct server *s, struct exchange *x, struct refusal *why);
bool models_get(struct server *s, struct exchange *x, struct refusal *why);
bool model_get(struct server *s, struct exchange *x, struct refusal *why);
bool props_get(struct server *s, struct exchange *x, struct refusal *why);
bool metrics_get(struct server *s, struct exchange *x, struct refusal *why);
bool status_get(struct server *s, struct exchange *x, struct refusal *why);
/* The JSON of a status; with the texts of requests for trusted clients. */
void status_print(struct server *s, struct buf *out, bool trusted);
bool page_get(struct server *s, struct exchange *x, struct refusal *why);
bool tokenize_post(struct server *s, struct exchange *x, struct refusal *why);
bool detokenize_post(struct server *s, struct exchange *x, struct refusal *why);
bool template_post(struct server *s, struct exchange *x, struct refusal *why);
bool count_post(struct server *s, struct exchange *x, struct refusal *why);
bool embeddings_post(struct server *s, struct exchange *x, struct refusal *why);
bool response_get(struct server *s, struct exchange *x, struct refusal *why);

/* Tools of all APIs in the chat form, a new reference; NULL for none. What cannot be run is left out, and
 * noted. */
json_t *take_tools(struct ask *a);
/* What came before tools: functions, of which the model calls one at a time; if there are no tools. */
bool take_functions(struct ask *a, struct refusal *why);
/* Lines that coding clients put first in a system text and that change with each request. */
void drop_billing_lines(struct buf *text);

#endif
