/* ops/cases.h - what an op is tested on: small tapes with random inputs, made from the op's table.
 * One case records one call (with its weights and inputs) for one step; the checker
 * (device/check.h) runs it on a device and by the reference and compares. All content follows from
 * the seed. */
#ifndef LUCE_OPS_CASES_H
#define LUCE_OPS_CASES_H

#include "ops/interp.h"
#include "ops/ops.h"

struct case_env;                /* makes weights and inputs of random content for the case */
struct op_case {
    int  n_rows;                /* of the step */
    int  p[8];                  /* the op's own parameters: columns, heads, ... */
    float f[2];
    uint32_t format;            /* of its matrices; the checker runs the case once per format when
                                   each_format is set */
    bool each_format;
    /* Records the call on env's tape and returns the value to compare. */
    struct val (*record)(struct case_env *env, const struct op_case *c);
    /* Describes the case in words. */
    const char *label;
    /* Shape of the step's rows; zero: one chain. See case_step. */
    int n_seqs, past, wide, tree;
    int rope;                   /* added to the rotary positions */
    bool all;                   /* every row is wanted, in order; else every other one, from the last */
    bool block;                 /* rows see later ones: their bits do depend on company; and a device may lack
                                   the kernel (it takes no drafter that needs it) */
};
/* What the functions `cases` of the op table fill. A failed addition is remembered. */
struct case_list {
    struct op_case *cases;      /* owned */
    int  n, cap;
    bool failed;
};
void case_add(struct case_list *l, const struct op_case *c);
/* The same for shapes that one function records; those with a tree are labelled so. */
void case_add_shapes(struct case_list *l, const struct op_case *shapes, size_t n,
                     struct val (*record)(struct case_env *env, const struct op_case *c));
void case_list_drop(struct case_list *l);

/* Numbers of rows that cases use; those above NARROW_ROWS are wide. */
enum { CASE_WIDTHS = 10 };
extern const int case_widths[CASE_WIDTHS];

/* ---- for the record functions of cases ---------------------------------------------------------- */
struct tape *case_tape(struct case_env *env);
/* [in, out] (out 0: a vector) in the case's format or, for vectors, f32; normal values of this
 * standard deviation around `mean`. Matrices in block formats have mean 0. */
struct weight *case_weight(struct case_env *env, int in, int out, float mean, float std);
/* [in, out, experts] in the case's format. */
struct weight *case_weight_experts(struct case_env *env, int in, int out, int experts, float std);
/* A matrix that stays f32 whatever the case's format. */
struct weight *case_weight_f32(struct case_env *env, int in, int out, float mean, float std);
/* Rotary frequencies 10000^(-2i/dims) of dims / 2 pairs. */
struct weight *case_freq(struct case_env *env, int dims);
/* 0, or for one column in four minus infinity. */
struct weight *case_allowed(struct case_env *env, int cols);
/* Multiples of 1/8 from -1/2 to 1/2. */
struct weight *case_eighths(struct case_env *env, int cols);
struct val case_input(struct case_env *env, enum domain rows, int cols, float std);
/* Small whole numbers, so that columns tie; row 1 holds a NaN, row 2 -inf alone. */
struct val case_input_ties(struct case_env *env, enum domain rows, int cols);
/* [rows, cols] whose largest column is, as a rule, the token of a row that continues the row. */
struct val case_input_next(struct case_env *env, int cols);
/* The layer's cache of the case: kv_heads, head_dim, window, formats; filled with `past` random
 * positions per sequence before the run. Returns the layer's index. */
int case_cache(struct case_env *env, int kv_heads, int head_dim, int window, uint32_t k_format,
               uint32_t v_format);

/* A recurrent layer; state and journal are random before the run. Returns the layer's index. */
int case_state(struct case_env *env, const struct kv_state *s);

/* How the token after this row of the case's step is drawn: temperatures, top_k, top_p and min_p of all kinds. */
struct step_draw case_draw(int row);

/* ---- for who runs the cases ----------------------------------------------------------------------- */
enum { CASE_SEQS = 8, CASE_WEIGHTS = 16, CASE_INPUTS = 4, CASE_TOKENS = 40 };

struct case_input_rows {
    struct val val;             /* on the tape recorded last */
    float *rows;
    int n_rows, cols;
};
struct case_env {
    const struct op_case *c;
    uint32_t format;
    struct step *step;          /* owned, as all below */
    struct kv_layout kv;
    int n_slots, max_positions; /* positions that a sequence has at the end of the step, at most */
    /* Page images before the step, by kind, KV_STATE and KV_JOURNAL among them;
     * whatever is not committed holds large random values. */
    int n_pages[KV_POOLS], max_pages;
    uint8_t *pages[KV_POOLS];
    struct case_input_rows input[CASE_INPUTS];
    int n_inputs;
    struct weight *weight[CASE_WEIGHTS];
    int n_weights;
    /* State of the recording under way. */
    struct tape *tape;
    int next_input, next_weight, next_layer;
    uint64_t random;
    luce_error error;           /* the first */
};
/* Makes the case's step (the rows; edits come with case_record). `format` replaces the case's. */
luce_status case_open(struct case_env **out, const struct op_case *c, uint32_t format, uint64_t seed,
                      luce_error *err);
void case_close(struct case_env *env);
/* Records the case on t (begun here; tape_drop). Every recording of an env has the same weights,
 * inputs and cache. *out is kept. */
luce_status case_record(struct case_env *env, struct tape *t, struct target target, struct val *out,
                        luce_error *err);
/* An interpreter of a recorded tape with the case's inputs and cache, ready to run. */
luce_status case_interp(struct case_env *env, const struct tape *t, struct interp **out, luce_error *err);
/* Page of position `pos` of the sequence in the kind's table, as the step's edits say; -1: none. */
int case_page(const struct case_env *env, int kind, int slot, int pos);

#endif
