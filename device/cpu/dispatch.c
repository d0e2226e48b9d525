/* device/cpu/dispatch.c - which instruction sets there are, and the choice of kernels at open. */
#define _DEFAULT_SOURCE
#include <strings.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "base/mem.h"
#include "device/cpu/cpu.h"

static const struct kernels *const sets[] = {
    &kernels_portable,
#if defined(__x86_64__)
    &kernels_avx2, &kernels_avx512, &kernels_amx,
#elif defined(__aarch64__)
    &kernels_neon,
#endif
};

#if defined(__x86_64__)
/* AMX with int8: the processor has it, and the system keeps tiles for whoever asks once (for the whole process). */
static bool amx_here(void)
{
    enum { LEAF = 7, TILE_BIT = 1 << 24, INT8_BIT = 1 << 25, TILE_DATA = 18, ASK = 0x1023 /* ARCH_REQ_XCOMP_PERM */ };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(LEAF, 0, &a, &b, &c, &d) || !(d & TILE_BIT) || !(d & INT8_BIT)) return false;
    return syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
}
#endif

enum isa isa_here(void)
{
    enum isa best = ISA_PORTABLE;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
        best = ISA_AVX2;
    if (best == ISA_AVX2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") &&
        __builtin_cpu_supports("avx512vbmi"))
        best = ISA_AVX512;
    if (best == ISA_AVX512 && amx_here()) best = ISA_AMX;
#elif defined(__aarch64__)
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) best = ISA_NEON;
#endif
    return best;
}

const char *isa_name(enum isa isa)
{
    for (size_t i = 0; i < COUNT(sets); i++)
        if (sets[i]->isa == isa) return sets[i]->name;
    return "?";
}

const char *isa_at(int i)
{
    return i < (int)COUNT(sets) && sets[i]->isa <= isa_here() ? sets[i]->name : NULL;
}

bool isa_named(const char *name, enum isa *out)
{
    for (size_t i = 0; i < COUNT(sets); i++)
        if (!strcasecmp(sets[i]->name, name)) {
            *out = sets[i]->isa;
            return true;
        }
    return false;
}

void kernels_add(struct kernels *out, const struct kernels *k)
{
    out->isa = k->isa;
    out->name = k->name;
    for (int i = 0; i < OP_COUNT; i++)
        if (k->op[i]) out->op[i] = k->op[i];
    for (int i = 0; i < X_COUNT; i++)
        if (k->quantise[i]) out->quantise[i] = k->quantise[i];
    for (size_t i = 0; i < COUNT(k->product) && k->product[i].run; i++)
        for (size_t o = 0; o < COUNT(out->product); o++)
            if (out->product[o].id == k->product[i].id) out->product[o].run = k->product[i].run;
    if (k->gate) out->gate = k->gate;
    if (k->generic) out->generic = k->generic;
    if (k->int8.run) out->int8 = k->int8;
    if (k->bf16.run) out->bf16 = k->bf16;
    if (k->f32.run) out->f32 = k->f32;
    for (int i = 0; i < 3; i++)
        if (k->read[i]) out->read[i] = k->read[i];
    if (k->enter) out->enter = k->enter;
    if (k->leave) out->leave = k->leave;
}

void kernels_pick(struct kernels *out, enum isa isa)
{
    *out = kernels_portable;
    for (size_t s = 1; s < COUNT(sets) && sets[s]->isa <= isa; s++) kernels_add(out, sets[s]);
}

product_fn kernels_product(const struct kernels *k, uint32_t format)
{
    for (size_t i = 0; i < COUNT(k->product) && k->product[i].run; i++)
        if (k->product[i].id == format) return k->product[i].run;
    return k->generic;
}
