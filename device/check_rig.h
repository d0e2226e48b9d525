/* device/check_rig.h - between device/check.c and device/check_width.c: a test case on a device. */
#ifndef LUCE_DEVICE_CHECK_RIG_H
#define LUCE_DEVICE_CHECK_RIG_H

#include "device/check.h"
#include "ops/cases.h"

/* A case with its weights on the device, its page pools, and one or more programs. */
struct rig {
    struct device *d;
    struct case_env *env;
    struct tape tape;
    struct val out;
    struct device_cache *cache;
    int n_uploaded;
};
struct rig_program {
    struct plan plan;
    struct program *program;
};
/* LUCE_E_UNSUPPORTED when the device has no kernel for the case (in this format). */
luce_status rig_open(struct rig *r, struct device *d, struct case_env *env, luce_error *err);
void rig_close(struct rig *r);
/* Compiles the tape for at least n rows and n sequences of a class. */
luce_status rig_compile(struct rig *r, struct rig_program *p, int n, bool wide, luce_error *err);
void rig_program_close(struct rig *r, struct rig_program *p);
/* Writes the case's page images to the device. */
luce_status rig_fill(struct rig *r, luce_error *err);
/* Writes n rows of the inputs from `first` on, poisons the output, runs the step and reads the
 * output's rows, 4 bytes a column, into out. */
luce_status rig_run(struct rig *r, struct rig_program *p, const struct step *s, int first, int n, void *out,
                    luce_error *err);
/* Rows of the case's output in step s. */
int rig_out_rows(const struct rig *r, const struct step *s);
/* Most error that the device promises for the case, summed over its calls. */
double rig_tolerance(const struct rig *r);

/* After a run of a call of a recurrent layer: states and journals of the layer against the reference's, all other
 * bytes against what was there before. */
struct check_walk;
luce_status check_states(struct check_walk *w, struct rig *r, struct interp *ref, const struct call *writer,
                         luce_error *err);

/* Goes through all cases that the parameters select and calls `run` for each. `run` reports through
 * the walk. */
struct check_walk {
    struct device *d;
    const struct check_params *params;
    check_fn fn;
    void *context;
    int *n_failed;
    const char *op;             /* of the case under way */
    char label[256];
};
typedef luce_status (*case_fn)(struct check_walk *w, struct case_env *env, luce_error *err);
luce_status check_walk(struct check_walk *w, case_fn run, luce_error *err);
/* `what` is appended to the case's label. */
void check_report(struct check_walk *w, const char *what, double nmse, double allowed);

#endif
