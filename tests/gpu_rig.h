/* tests/gpu_rig.h - the GPU of tests. */
#ifndef LUCE_TESTS_GPU_RIG_H
#define LUCE_TESTS_GPU_RIG_H

#include "device/device.h"

/* The first one, or the one that the CPU emulates; the caller closes it. NULL: neither is there. */
struct device *open_gpu(void);
bool gpu_is_emulated(struct device *d);

#endif
