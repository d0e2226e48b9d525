/* server/live.h - what goes on, for /status: the requests in the engine, the last that ended, and the clients that
 * watch. Texts of others are for trusted clients alone (struct exchange). Threads: any, unless stated. */
#ifndef LUCE_SERVER_LIVE_H
#define LUCE_SERVER_LIVE_H

#include "base/json.h"
#include "server/job.h"

struct live;
luce_status live_new(struct live **out, luce_error *err);
/* Nothing watches and nothing runs any more. NULL is fine. */
void live_free(struct live *l);

/* The job goes to the engine: it is listed until each of its choices ended, or until live_drop. */
void live_add(struct job *j);
void live_drop(struct job *j);
/* The engine's thread: a token, new text, the end of a choice. The last end takes the job off the list. */
void live_token(struct job *j);
void live_text(struct job *j, struct str text);
void live_end(struct job *j, const luce_result *r);

/* Members of the open object: "phase", "current", "requests", "perf_history". */
void live_put(struct server *s, struct json *j, bool trusted);
/* The reply is a stream of `status` events, as status_print has them, and for trusted clients of `token` events. */
bool live_watch(struct server *s, struct exchange *x, struct refusal *why);

#endif
