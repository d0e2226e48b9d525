/* base/clock.h - time that only moves forward. Threads: any. */
#ifndef LUCE_BASE_CLOCK_H
#define LUCE_BASE_CLOCK_H

#include <stdint.h>

/* Since some moment before the process began; not affected by changes of the date. */
uint64_t clock_ns(void);
double clock_seconds(void);

#endif
