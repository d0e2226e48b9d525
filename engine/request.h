/* engine/request.h - one request: from its text to its tokens, and from tokens to text that goes out.
 * It owns its ids, its text and its place in them; the scheduler decides when it has rows in a step.
 * Threads: one owner. */
#ifndef LUCE_ENGINE_REQUEST_H
#define LUCE_ENGINE_REQUEST_H

#include <stdatomic.h>

#include "cache/cache.h"
#include "engine/stop.h"
#include "engine/thinking.h"
#include "run/sample.h"
#include "spec/drafter.h"
#include "text/vocab.h"

enum { MOST_TOP_LOGPROBS = 20 };
enum request_state { REQUEST_PROMPT, REQUEST_DECODE, REQUEST_DONE };

struct request {
    const luce_request *asked;      /* borrowed from the caller */
    const struct vocab *vocab;      /* NULL: ids only */
    struct seq *seq;                /* borrowed from the scheduler while it is active */
    enum request_state state;

    /* Tokens: those before the request (a session's), its prompt, what is generated. Room for all of
     * them is claimed at the start. */
    int32_t *ids;
    int n_ids, n_before, n_prompt, most_ids;

    struct sample_params sampling;
    struct str *stop;
    struct stopper stopper;
    struct detok detok;
    struct buf piece, text;
    struct thinking thinking;
    int  cut_at;                    /* tokens that there were when `thinking` ended it; 0: it did not */
    bool looped;                    /* and then the text repeated itself */
    double *pooled;                 /* [embd] sum of hidden states, or NULL */
    bool begun;                     /* it has claimed what the cache has of its ids */
    bool waits;                     /* until then: for pages that an older request is about to have, or gives up */
    bool restarts;                  /* it gave up its pages once, and is computed again ... */
    uint64_t waits_until;           /* ... when so many requests have left, or it is the oldest */
    bool refused;                   /* on_text wants no more */
    const atomic_bool *cancel;      /* set by another thread; NULL: nobody can */

    luce_status status;
    luce_error error;
    luce_finish finish;
    int n_reused;
    luce_speculation speculation;
    struct script script;           /* the caller's, by positions */
    double queued, started, first, last;    /* clock seconds: came, first step, first token, last token */
};

/* Tokenises and checks. before: n_before ids that come first (a session), or NULL. context: most
 * positions of a sequence. mask: as sample_params.mask. On failure the request is empty. */
struct request_env {
    const struct vocab *vocab;
    int vocab_size, context;
    const uint32_t *mask;
    const int32_t *before;
    int n_before;
    bool has_drafter;
};
luce_status request_init(struct request *r, const luce_request *asked, const struct request_env *env,
                         luce_error *err);
void request_drop(struct request *r);           /* fine on a zeroed one */
/* The token of position n_ids has been chosen: appends it, tells it, writes text, decides whether this is
 * the end. */
void request_take(struct request *r, const luce_token *token);
/* The token that comes next whatever the model says, or -1. */
int32_t request_given(const struct request *r);
/* Every row of the prompt is wanted. */
bool request_wants_all(const struct request *r);
/* Ends it: with an error, or for this reason. Lets held text go. */
void request_fail(struct request *r, luce_status status, const luce_error *error);
void request_finish(struct request *r, luce_finish finish);
/* True when the caller wants it to end. */
bool request_cancelled(const struct request *r);
/* No penalties and no bias: the device's choice is its own. */
bool request_is_plain(const struct request *r);
/* Moves the outcome to *out and drops the request. */
void request_result(struct request *r, luce_result *out);

#endif
