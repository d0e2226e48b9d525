/* ops/cases.h - what an op is tested on: small tapes with random inputs, made from the op's table.
 * One case records one call (with its weights and inputs) for one step; the checker
 * (device/check.h) runs it on a device and by the reference and compares. */
#ifndef LUCE_OPS_CASES_H
#define LUCE_OPS_CASES_H

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
};
void case_add(struct case_list *l, const struct op_case *c);

struct tape *case_tape(struct case_env *env);
/* [in, out] (out 0: a vector) in the case's format or, for vectors, f32; normal values of this
 * standard deviation around `mean`. */
struct weight *case_weight(struct case_env *env, int in, int out, float mean, float std);
/* A matrix that stays f32 whatever the case's format. */
struct weight *case_weight_f32(struct case_env *env, int in, int out, float mean, float std);
struct val case_input(struct case_env *env, enum domain rows, int cols, float std);
/* The layer's cache of the case: kv_heads, head_dim, window, formats; filled with `past` random
 * positions per sequence before the run. Returns the layer's index. */
int case_cache(struct case_env *env, int kv_heads, int head_dim, int window, uint32_t k_format,
               uint32_t v_format);

#endif
