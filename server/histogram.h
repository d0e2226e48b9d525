/* server/histogram.h - distributions for /metrics: how long requests wait and run, how long they are.
 * Threads: any. */
#ifndef LUCE_SERVER_HISTOGRAM_H
#define LUCE_SERVER_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"

/* Name, help, bounds of the buckets. */
#define HISTOGRAM_TABLE(X)                                                                                          \
    X(FIRST_TOKEN, "luce_time_to_first_token_seconds", "from the request to its first token", LONG_SECONDS)         \
    X(NEXT_TOKEN, "luce_time_per_output_token_seconds", "from a token to the next of its text", SHORT_SECONDS)      \
    X(QUEUE, "luce_queue_seconds", "from the request to its first step", LONG_SECONDS)                              \
    X(REQUEST, "luce_request_seconds", "from the request to its end", LONG_SECONDS)                                 \
    X(PROMPT, "luce_request_prompt_tokens", "tokens of a request's prompt", TOKENS)                                 \
    X(GENERATED, "luce_request_generated_tokens", "tokens that a request generated", TOKENS)
#define HISTOGRAM_ID(id, name, help, bounds) HISTOGRAM_##id,
enum histogram_id { HISTOGRAM_TABLE(HISTOGRAM_ID) HISTOGRAMS };
#undef HISTOGRAM_ID

enum { HISTOGRAM_BUCKETS = 16 };    /* and one without a bound */
struct histogram {                  /* zeroed; which one it is says its place in the table */
    atomic_ulong count[HISTOGRAM_BUCKETS + 1];
    _Atomic double sum;
};

/* all: [HISTOGRAMS]. */
void histogram_add(struct histogram *all, enum histogram_id id, double value);
/* All of them, as Prometheus reads them. */
void histograms_print(const struct histogram *all, struct buf *out);

#endif
