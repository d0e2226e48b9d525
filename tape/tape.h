/* tape/tape.h - a forward pass, recorded once: a straight list of ops with their operands.
 *
 * A model family's record functions call op_* (ops/ops.h), which check shapes and push calls. What
 * varies from step to step is data in the step (tape/step.h), so one tape serves every width; the
 * planner lays out its values per width bucket. A tape keeps its first error and goes dead: ops on a
 * dead tape do nothing, and tape_end returns the error once.
 * Ownership: the tape owns its calls, values and copies of attributes; weights are borrowed.
 * Threads: one owner. */
#ifndef LUCE_TAPE_TAPE_H
#define LUCE_TAPE_TAPE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "tape/kv.h"
#include "tape/step.h"
#include "tape/weight.h"

enum domain {                   /* what the rows of a value are */
    DOM_ROWS,                   /* rows of the step */
    DOM_OUT,                    /* rows whose logits are wanted */
    DOM_CTX,                    /* context rows of a drafter */
    DOM_SEQS,                   /* sequences */
    DOM_COUNT
};
enum dtype { DT_F32, DT_I32, DT_COUNT };

struct shape {
    enum domain rows;
    enum dtype  type;
    int         cols;
};
struct val { int id; };         /* id 0 is "no value" */

enum { CALL_IN = 4, CALL_W = 12, CALL_OUT = 2 };

struct call {
    int         op;             /* enum op of ops/ops.h */
    int         layer;          /* -1 outside the layers */
    int         n_in, n_w, n_out;
    struct val  in[CALL_IN];
    const struct weight *w[CALL_W];     /* an optional weight that is absent is NULL */
    const void *attr;           /* copied by tape_push; zero bytes pad it */
    size_t      attr_size;
    struct shape shape[CALL_OUT];       /* of the outputs */
    struct val  out[CALL_OUT];          /* set by tape_push */
};

struct value {
    struct shape shape;
    const char  *name;          /* "h", "logits", ...; for printing and traces */
    int          producer;      /* call index, -1 for an input */
    int          last_use;      /* call index of the last reader; n_calls when kept */
    bool         keep;          /* readable after the step: taps, logits, inputs */
};

/* What the tape is recorded for: says whether a call has a kernel of its own there. NULL has: all
 * calls (the reference interpreter). ops/ records the expansion of a call that has none. */
struct target {
    bool (*has)(const void *context, const struct call *c);
    const void *context;
    bool ahead;                 /* steps may depend on what an ACCEPT before them keeps */
    const char *takes;          /* what its kernels are limited to, for messages; NULL: nothing to say */
};

struct tape {
    struct arena  arena;
    struct target target;
    const struct kv_layout *kv; /* borrowed; layers that QKV and ATTN refer to; may be NULL */
    struct call  *calls;
    int           n_calls, cap_calls;
    struct value *values;       /* values[0] is "no value" */
    int           n_values, cap_values;
    luce_error    error;        /* the first */
};

void tape_begin(struct tape *t, struct target target, const struct kv_layout *kv);
/* The first error of the recording, if any. */
luce_status tape_end(struct tape *t, luce_error *err);
void tape_drop(struct tape *t);

/* Notes the first error; returns "no value". */
struct val tape_fail(struct tape *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool tape_dead(const struct tape *t);
/* Appends a copy of *c and returns its first output. Never expands: op_push of ops/ops.h does. */
struct val tape_push(struct tape *t, const struct call *c);
/* A value that the caller fills before each run (tests, image embeddings). */
struct val tape_input(struct tape *t, const char *name, struct shape shape);
/* Makes a value readable after the step and names it. */
void tape_keep(struct tape *t, struct val v, const char *name);
struct shape tape_shape(const struct tape *t, struct val v);

/* Rows that each domain has room for in one width bucket. */
struct bucket {
    int rows[DOM_COUNT];
    enum step_class class;
};
struct plan {
    struct bucket bucket;
    uint64_t  bytes;            /* of the whole arena, a multiple of 256 */
    uint64_t *offset;           /* by value id, multiples of 256; owned by the plan */
    int       n_values;
};
/* The last call that may read a value; n_calls when it is kept. In narrow steps of one row a device may make
 * what a call gives where it is read: what goes into it lives as long. */
int plan_last_use(const struct tape *t, int id, const struct bucket *b);
/* Gives every value a place: values whose lives overlap do not share bytes. */
luce_status plan_make(struct plan *p, const struct tape *t, struct bucket b, luce_error *err);
void plan_drop(struct plan *p);
/* Bytes of a row of this shape. */
static inline uint64_t shape_row_bytes(struct shape s)
{
    return (uint64_t)s.cols * 4;
}

#endif
