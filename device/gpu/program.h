/* device/gpu/program.h - between program.c (packs, graphs, runs), values.c (who reads a value how, where it lies) and
 * emit.c (calls to launches). */
#ifndef LUCE_DEVICE_GPU_PROGRAM_H
#define LUCE_DEVICE_GPU_PROGRAM_H

#include "device/gpu/gpu.h"

/* What a program knows of a value of its tape. */
struct place {
    bool form;                  /* products read it: it has a form at form_at of the block */
    bool f32;                   /* somebody reads it in f32 */
    bool inside;                /* who reads it makes it: products (program_made), DELTA, MOE_GLU */
    int norm;                   /* of a product's output: the deferred NORM that reads it (kernels.h); 0: none */
    int before;                 /* of a deferred NORM: the one before it; 0: it is not deferred */
    bool factors;               /* of a NORM: it gives its factors to a deferred one */
    uint64_t norm_at;           /* of both: factors, and sums behind them, in the block */
    int form_from, form_to;     /* life of the form: calls; the last product that reads it */
    uint64_t form_at, form_bytes;
    int32_t *host;              /* pinned mirror of a kept result of few columns (words of 4 bytes), or NULL */
};

struct launches {
    struct launch *at;
    int n, cap;
};

/* A program built for the block as it was in some generation. */
struct built {
    struct launches launches;
    gpu_graph_exec graph;
    unsigned generation;
};

struct program {
    const struct tape *tape;
    const struct plan *plan;
    struct device_cache *cache;
    struct gpu_block *block;    /* its cache's, or the device's */
    struct place *places;       /* by value id */
    int32_t *host;              /* pinned; all mirrors */
    struct step *step;          /* pinned; the begin kernel reads it */
    uint64_t queued;            /* the number of the step that was put there last, */
    gpu_event done;             /* and its end */
    struct gpu_pack **packs;    /* [call][PACK_MOST] of products */
    uint64_t scratch_at, panel_at, bytes, parts_bytes;  /* in the block */
    struct built built[ATTN_DEPTHS];
    bool attends;               /* in narrow steps */
    int far_group;              /* of attention that has a kernel for depth: most heads of a group; 0: none */
};

/* Parts of a row's sum of squares, padded (struct norm_before). */
static inline int norm_stride(int cols)
{
    return ((cols + 127) / 128 + 3) / 4 * 4;
}
/* Whether the rows of this domain run in wide kernels. */
static inline bool program_wide(const struct program *p, enum domain d)
{
    return p->plan->bucket.class == STEP_WIDE && d == DOM_ROWS;
}
/* Finds who reads the values how, and places their forms. */
void program_values(struct program *p);
/* Packs of call `index`'s matrices: as many neighbours in one product as fit, where no bias is in the way. */
luce_status program_packs(struct gpu *g, struct program *p, int index, luce_error *err);
/* Of the routed experts, and of the shared one. */
luce_status program_expert_packs(struct gpu *g, struct program *p, int index, luce_error *err);
/* Finds the packs of all products and what they and attention need as scratch. */
luce_status program_prepare(struct gpu *g, struct program *p, luce_error *err);
/* Whether there are kernels for the op. */
bool program_has(int op);
/* Fills `out` for the block as it is. all: every value also goes to f32 (traces). */
luce_status program_emit(struct gpu *g, struct program *p, bool all, enum attn_depth depth, struct launches *out,
                         luce_error *err);
/* How products would make the value; MADE_APART: they would not. Without addresses. */
struct made program_made(const struct program *p, struct val v);
/* The form of a value, at NULL when it has none. */
struct form program_form(const struct program *p, struct val v);

#endif
