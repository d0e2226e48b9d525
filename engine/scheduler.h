/* engine/scheduler.h - puts the rows of the active requests into steps, and hands out the tokens that
 * come of them. One step at a time: prompts in chunks, running texts together. While both wait, running texts
 * keep half of their speed, and a chunk is shared by the oldest prompt and those that are done soonest. Where the
 * cache has no room, requests wait; where they block each other, the youngest begins again later. Where the device
 * takes it, the next step of running texts is queued before the present one is waited for.
 * Threads: one owner, the one of the runner. */
#ifndef LUCE_ENGINE_SCHEDULER_H
#define LUCE_ENGINE_SCHEDULER_H

#include "engine/request.h"
#include "run/runner.h"
#include "spec/speculate.h"

/* Stands between the model and the choice of tokens; tests write scripts with it. */
struct step_hook {
    void *context;
    /* Before a step of n rows. */
    void (*step)(void *context, enum step_class class, int n_rows);
    /* The logits [vocab] of the request's next token; false: leave them. */
    bool (*logits)(void *context, const struct request *r, float *logits);
};

struct packed {                     /* who has rows in a step */
    struct request *request[STEP_SEQS];     /* NULL: it has left */
    int at[STEP_SEQS], rows[STEP_SEQS];     /* positions before them; how many */
    int out[STEP_SEQS];                     /* its first wanted row, -1 for none */
    struct draft *draft[STEP_SEQS];         /* NULL: the rows are a chain of known tokens */
    int n;
};

struct scheduler {
    struct runner  *runner;
    const struct step_hook *hook;   /* NULL: none */
    struct sampler *sampler;
    float          *logits, *raw;   /* of one row; raw: before the sampler's work, or a hidden state */
    struct request *active[STEP_SEQS];      /* borrowed; oldest first */
    int             n_active;
    bool            wide_last;      /* class of the step before */
    struct packed   ahead;          /* the step that was queued behind that one; n 0: none was */
    double          waited;         /* clock seconds when that one was done */
    struct speculator *speculator;  /* borrowed; NULL: nothing is guessed */
    struct draft   *draft;          /* [STEP_SEQS] by slot; NULL without a speculator */
    double          debt;           /* seconds that running texts are behind the speed that they keep */
    double          usual_seconds;  /* of a narrow step that nothing disturbs */
    double          row_seconds;    /* of a row of the last wide step */
    double        (*clock)(void);   /* clock_seconds; tests write their own time */
    uint64_t        n_left;         /* requests that have left */
    uint64_t        steps, prompt_rows;     /* prompt_rows: of prompts, as far as the cache did not have them */
};

luce_status scheduler_init(struct scheduler *s, struct runner *r, luce_error *err);
/* Running texts get guesses from here on; NULL: none do. The speculator outlives the scheduler. */
luce_status scheduler_speculate(struct scheduler *s, struct speculator *speculator, luce_error *err);
void scheduler_drop(struct scheduler *s);       /* fine on a zeroed one; no request may be active */
/* Makes a request active on this sequence, which the caller opened (and closes, after the request is
 * done). The sequence may hold a prefix of the request's ids. At most STEP_SEQS. */
void scheduler_add(struct scheduler *s, struct request *r, struct seq *seq);
/* Runs one step. Requests that end leave. A failure of one request ends that request; what is
 * returned (LUCE_E_DEVICE, LUCE_E_NOMEM) has ended all of them. */
luce_status scheduler_step(struct scheduler *s, luce_error *err);
/* Lets requests that begin claim what the cache has of them, or wait for older ones that read it
 * (request.waits); before each step that is not queued already. */
void scheduler_share(struct scheduler *s);

#endif
