/* device/gpu/device.h - the GPU's row of device/table.c. */
#ifndef LUCE_DEVICE_GPU_DEVICE_H
#define LUCE_DEVICE_GPU_DEVICE_H

#include "device/device.h"

extern const struct device_kind device_kind_gpu;

#endif
