/* device/cpu/device.h - the CPU's row of device/table.c. */
#ifndef LUCE_DEVICE_CPU_DEVICE_H
#define LUCE_DEVICE_CPU_DEVICE_H

#include "device/device.h"

extern const struct device_kind device_kind_cpu;

#endif
