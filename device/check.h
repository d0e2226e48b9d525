/* device/check.h - a device's kernels against the float64 references of ops/, from the ops' tables.
 * Used by the tests and by `luce doctor`. */
#ifndef LUCE_DEVICE_CHECK_H
#define LUCE_DEVICE_CHECK_H

#include "device/device.h"

struct check_result {
    const char *op;             /* name of the op */
    const char *label;          /* of the case, with its parameters and what was compared */
    double      nmse, allowed;  /* normalised mean squared error; infinite for NaN or a wrong shape */
    bool        passed;
};
typedef void (*check_fn)(void *context, const struct check_result *r);

struct check_params {
    uint64_t    seed;
    const char *only;           /* part of an op's name, NULL: all */
    bool        quick;          /* a small subset of the cases, for start-up */
    int         sample;         /* of the cases that run once per weight format, one in so many, drawn by the
                                   seed; 0: all */
};
/* Runs every case of every op (once per weight format where the case says so; formats that the device
 * has no kernel for are left out), outputs poisoned before. Compares the outputs and, for ops that
 * write keys and values, every byte of every page: new rows closely, committed rows and all others
 * bit for bit. Reports each through fn (may be NULL). Returns LUCE_OK when all ran, whether they
 * passed or not; *n_failed counts those that did not. */
luce_status check_device(struct device *d, const struct check_params *p, check_fn fn, void *context,
                         int *n_failed, luce_error *err);
/* Whether a row's bits depend on its company: each row of the narrow cases is run again alone, one
 * step a row with the row before committed, and wide cases again in two chunks; on a device with
 * equal_bits also row by row. The results must be equal bit for bit (nmse is 0 or infinite). */
luce_status check_width_independence(struct device *d, const struct check_params *p, check_fn fn,
                                     void *context, int *n_failed, luce_error *err);

#endif
