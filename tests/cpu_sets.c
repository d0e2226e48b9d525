/* See tests/cpu_sets.h. */
#include "tests/cpu_sets.h"

#include <string.h>

#ifdef LUCE_EMULATED_TILES
extern const struct kernels kernels_amx_emulated;

static const struct kernels *emulated(void)
{
    return isa_here() >= ISA_AVX512 ? &kernels_amx_emulated : NULL;
}
#else
static const struct kernels *emulated(void)
{
    return NULL;
}
#endif

const char *cpu_set_at(int i)
{
    if (isa_at(i)) return isa_at(i);
    return emulated() && (i == 0 || isa_at(i - 1)) ? emulated()->name : NULL;
}

luce_status cpu_set_open(struct device **out, const char *set, int n_threads, luce_error *err)
{
    const struct kernels *other = set && emulated() && !strcmp(set, emulated()->name) ? emulated() : NULL;
    luce_status st = device_open(out, "cpu", &(struct device_params){ .isa = other ? "avx512" : set,
                                                                      .n_threads = n_threads }, err);
    if (!st && other) kernels_add(&((struct cpu *)*out)->kernels, other);
    return st;
}
