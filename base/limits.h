/* base/limits.h - how much memory this process may still claim. Threads: any. */
#ifndef LUCE_BASE_LIMITS_H
#define LUCE_BASE_LIMITS_H

#include <stdint.h>

/* Bytes that can be had without swapping, within the limits of the control group (a container's memory) and
 * of the process (ulimit -v). 0 when nothing tells. */
uint64_t memory_available(void);
/* What the control group (v2) of this folder has left; UINT64_MAX without a limit. */
uint64_t memory_left_in_group(const char *folder);

#endif
