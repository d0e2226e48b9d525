/* tests/cpu_sets.h - the instruction sets that tests compare: those of this processor, and emulated ones. */
#ifndef LUCE_TESTS_CPU_SETS_H
#define LUCE_TESTS_CPU_SETS_H

#include "device/cpu/cpu.h"

/* The i-th one, the smallest first; NULL: there are no more. */
const char *cpu_set_at(int i);
/* The CPU with one of them; NULL: with all that is there. */
luce_status cpu_set_open(struct device **out, const char *set, int n_threads, luce_error *err);

#endif
