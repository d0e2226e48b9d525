/* device/check.h - a device's kernels against the float64 references of ops/, from the ops' tables.
 * Used by the tests and by `luce doctor`. */
#ifndef LUCE_DEVICE_CHECK_H
#define LUCE_DEVICE_CHECK_H

#include "device/device.h"

struct check_result {
    const char *op;             /* name of the op */
    const char *label;          /* of the case, with its parameters */
    double      nmse, allowed;  /* normalised mean squared error; infinite for NaN or a wrong shape */
    bool        passed;
};
typedef void (*check_fn)(void *context, const struct check_result *r);

struct check_params {
    uint64_t    seed;
    const char *only;           /* part of an op's name, NULL: all */
    bool        quick;          /* a small subset of the cases, for start-up */
};
/* Runs every case of every op (once per weight format where the case says so), outputs poisoned
 * before. Reports each through fn. Returns LUCE_OK when all ran, whether they passed or not;
 * *n_failed counts those that did not. */
luce_status check_device(struct device *d, const struct check_params *p, check_fn fn, void *context,
                         int *n_failed, luce_error *err);

#endif
