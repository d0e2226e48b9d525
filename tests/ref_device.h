/* tests/ref_device.h - a device whose kernels are the float64 references: slow, exact, and without
 * pages of its own (sequences cannot share). For tests of what stands above devices. */
#ifndef LUCE_TESTS_REF_DEVICE_H
#define LUCE_TESTS_REF_DEVICE_H

#include "device/device.h"

/* A new one; owned by the caller (device_close, or fns->close). NULL when out of memory. */
struct device *ref_device(bool equal_bits, uint64_t memory_free);
/* How many steps and rows it has run, the step that it will refuse with LUCE_E_DEVICE (0: none),
 * and the step whose logits become NaN. */
struct ref_counts {
    int steps, rows, wide_rows, most_rows, fail_at, nan_at;
};
struct ref_counts *ref_counts(struct device *d);

#endif
