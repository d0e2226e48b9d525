/* server/budget.h - how long a reply may reason: from the words of a request (an effort, a number of tokens)
 * and of the operator to the bound that the engine keeps. Threads: any; the server does not change. */
#ifndef LUCE_SERVER_BUDGET_H
#define LUCE_SERVER_BUDGET_H

#include "chat/chat.h"
#include "server/print.h"

/* The ids that close reasoning, made once. */
luce_status budget_open(struct server *s, luce_error *err);
void budget_close(struct server *s);
/* Whether the template is to reason, with what effort, and the request's bound. */
bool budget_read(const struct server *s, struct ask *a, struct chat_request *r, struct refusal *why);
/* The bound of a reply that has max_tokens; none where nothing asks for one. */
luce_thinking budget_bound(const struct server *s, const struct ask *a, int max_tokens);
/* "finish_details" of a choice that had a bound, for the open object. */
void put_finish_details(struct json *j, const struct choice *c);
/* "budget_envelope" of /props. */
void put_envelope(struct json *j, const struct server *s);

#endif
