/* base/clock.c - see clock.h. The call stays in user space (vDSO), about 20 ns. */
#define _GNU_SOURCE
#include "base/clock.h"

#include <time.h>

uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double clock_seconds(void)
{
    return (double)clock_ns() * 1e-9;
}
