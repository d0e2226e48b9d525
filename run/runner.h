/* run/runner.h - a loaded model that can take a step; target and drafter alike.
 * Owns weights on the device, tapes, programs by width bucket, and the step buffer.
 * Threads: one owner. A step in steady state allocates nothing. */
#ifndef LUCE_RUN_RUNNER_H
#define LUCE_RUN_RUNNER_H

#include "cache/cache.h"
#include "model/family.h"
#include "run/steps.h"

struct runner;

struct load_params {
    struct device *device;
    uint32_t k_format, v_format;        /* 0: f16 */
    int      context;                   /* positions of one sequence; 0: what fits, up to the model's */
    int      n_slots;                   /* 0: 1 */
    int64_t  total_positions;           /* of all sequences; 0: context * n_slots, or what fits */
    int      chunk;                     /* rows of a prefill step, 0: the device's choice */
    struct record_params record;
    luce_prefix_reuse reuse;            /* of texts that have ended, and the bytes that they may hold, */
    int64_t  kept_bytes;                /* 0: all */
    bool     keep_values;               /* every value of the tape can be read after a step (checks) */
    void   (*progress)(void *context, double share);    /* of the upload; may be NULL */
    void    *progress_context;
    bool   (*cancelled)(void *context);                 /* may be NULL */
};
/* The format of keys or values that a user calls `name`. LUCE_E_ARG lists them. */
luce_status cache_format(const char *name, uint32_t *out, luce_error *err);

/* What the load will take, in bytes; printed by the plan and by refusals. */
struct load_plan {
    uint64_t weights, cache, scratch, free;
    int      context;                   /* chosen */
    int      context_fits;              /* the largest that would fit, up to the model's; 0: none */
};
/* Computes the plan without claiming anything. LUCE_E_DEVMEM when it does not fit: the message is the
 * table and the largest context that does. LUCE_E_ARG for a cache format or a number out of range,
 * LUCE_E_CONTEXT for a context that is longer than the model's. */
luce_status runner_plan(const struct model *m, const struct load_params *p, struct load_plan *out,
                        luce_error *err);
/* Plans, uploads (releasing file pages strip by strip), opens the cache, records the tape. The runner
 * takes the model (closes it with itself, and on failure). */
luce_status runner_open(struct runner **out, struct model *m, const struct load_params *p, luce_error *err);
void runner_close(struct runner *r);

/* Borrowed, as long as the runner. */
const struct model *runner_model(const struct runner *r);
struct device *runner_device(const struct runner *r);
struct cache *runner_cache(const struct runner *r);
const struct tape *runner_tape(const struct runner *r);
/* The plan of the bucket that a step of n rows uses; compiles it if it is the first. */
luce_status runner_bucket(struct runner *r, enum step_class class, int n_rows, const struct plan **out,
                          luce_error *err);
struct load_plan runner_load_plan(const struct runner *r);
int runner_chunk(const struct runner *r);       /* most rows of a prefill step */

/* ---- a step: begin, add rows, run, read, decide --------------------------------------------------- */
/* Starts an empty step of this class. */
void runner_begin(struct runner *r, enum step_class class);
/* Adds n rows of a sequence; parent[i] is the local row before row i (-1: the sequence's last
 * position), NULL for a chain. Reserves pages. Returns the index of its first wanted row in *first_out
 * (if not NULL). LUCE_E_ARG when the step is full, LUCE_E_DEVMEM without free pages. */
luce_status runner_add(struct runner *r, struct seq *s, const int32_t *tokens, const int *parent, int n,
                       enum want want, int *first_out, luce_error *err);
/* The sequence that was added last stands behind what the device keeps of sequence `seq` of a step of another runner:
 * its rows are further on by as many as that are, and its first token is the one that follows (device.ahead). */
void runner_after(struct runner *r, int seq);
/* A runner has two sides, 0 (at first) and 1, each with a step and its results: so a step can be queued behind one
 * whose choices have not been read. Everything here is about the side that was turned to last. */
void runner_turn(struct runner *r, int side);
int runner_side(const struct runner *r);
/* Whether rows can follow others (record.ahead, on a device that queues steps). */
bool runner_goes_on(const struct runner *r);
/* The sequence that was added last, with one row, goes on from the one row of sequence `seq` in the other side's step,
 * which was accepted when that was queued: its token is what the device chooses there. Of that step only choices can be
 * read from then on. */
void runner_follow(struct runner *r, int seq);
/* The token of that row of the step that was queued last, by sequence; before seq_accept. */
void runner_known(struct runner *r, int seq, int32_t token);
/* How the token after wanted row i is drawn; greedily, unless it is said. */
void runner_draw(struct runner *r, int out_row, const struct step_draw *draw);
/* Rows of an input of the tape, once all rows of the step are added. */
luce_status runner_give(struct runner *r, struct val v, int row, int n_rows, const void *values, luce_error *err);
/* The same from memory of the device (device_fns.hold), where it stays as it is until the step has run. */
luce_status runner_give_held(struct runner *r, struct val v, int row, int n_rows, const void *held, luce_error *err);
/* Runs it. Wide rows are then part of their sequence; narrow ones wait for seq_accept. After
 * LUCE_E_DEVICE the runner can only be closed. */
luce_status runner_run(struct runner *r, luce_error *err);
/* The same, without waiting for it: reading results does, and until then other steps may be queued. */
luce_status runner_queue(struct runner *r, luce_error *err);
/* The same for wide rows of which nobody knows yet how many will be part of their sequences: seq_advance says it, or
 * never does. */
luce_status runner_queue_open(struct runner *r, luce_error *err);
/* Returns when all that was queued has run. */
luce_status runner_wait(struct runner *r, luce_error *err);
/* The sequence ends, and no step carries out its last commit: does so as far as that fills a page, which can then be
 * claimed by others. */
luce_status runner_settle(struct runner *r, struct seq *s, luce_error *err);
/* Runs it call by call (luce inspect --trace-ops). */
luce_status runner_trace(struct runner *r, trace_fn fn, void *context, luce_error *err);
const struct step *runner_step(const struct runner *r);
/* Results of the last run: the token that the row's draw gives, and the logits (as many as record.logits is wide, as a
 * rule the vocabulary), of wanted row i. LUCE_E_NUMERIC when a logit is not finite. */
luce_status runner_choice(struct runner *r, int out_row, int32_t *token, luce_error *err);
luce_status runner_logits(struct runner *r, int out_row, float *logits, luce_error *err);
luce_status runner_read(struct runner *r, struct val v, int row, int n_rows, void *out, luce_error *err);
/* Rows of several values, for which the host waits once. */
luce_status runner_read_all(struct runner *r, const struct rows_read *rows, int n, luce_error *err);
const struct record *runner_record(const struct runner *r);

/* How many of the sequence's next n prompt tokens one step takes, and its class: wide chunks, where the device's
 * classes differ only whole pages, and then the tail narrow. */
int runner_prefill_rows(const struct runner *r, struct seq *s, int n, enum step_class *class);
/* Feeds the first *rows of the next n tokens of a prompt to a sequence, in one step. They are accepted. */
luce_status runner_prefill_step(struct runner *r, struct seq *s, const int32_t *tokens, int n, int *rows,
                                luce_error *err);
/* Feeds n tokens of a prompt to a sequence, step by step. All rows are accepted. The logits of the last row are those
 * of wanted row 0. LUCE_E_CANCELLED between two steps; what was fed stays. cancelled may be NULL. */
luce_status runner_prefill(struct runner *r, struct seq *s, const int32_t *tokens, int n,
                           bool (*cancelled)(void *), void *context, luce_error *err);

#endif
