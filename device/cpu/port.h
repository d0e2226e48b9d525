/* device/cpu/port.h - which machine the compiler is for, as far as whole files depend on it: the NEON
 * files are empty for others, so that tools may read them anywhere. */
#ifndef LUCE_DEVICE_CPU_PORT_H
#define LUCE_DEVICE_CPU_PORT_H

#if defined(__aarch64__)
#include <arm_neon.h>
#define HAVE_NEON
#endif

#endif
