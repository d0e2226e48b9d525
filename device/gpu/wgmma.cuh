/* device/gpu/wgmma.cuh - products by warp groups (sm_90a), operands in shared memory. */
#ifndef LUCE_DEVICE_GPU_WGMMA_CUH
#define LUCE_DEVICE_GPU_WGMMA_CUH

#include "device/gpu/port.h"

/* Operands lie in panels of 64 columns, 128 bytes a row, up to 64 rows. Byte of 16-byte piece c of row r: */
enum { PANEL_BYTES = 64 * 128 };
__device__ inline int panel_piece(int r, int c)
{
    return c / 8 * PANEL_BYTES + r * 128 + ((c % 8) ^ (r % 8)) * 16;
}

/* Operands of the instructions: the sums of a thread, and their numbers. */
#define SUMS_4(d, i) "+f"((d)[i]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3])
#define SUMS_16(d, i) SUMS_4(d, i), SUMS_4(d, i + 4), SUMS_4(d, i + 8), SUMS_4(d, i + 12)
#define SUMS_32(d, i) SUMS_16(d, i), SUMS_16(d, i + 16)
#define SUMS_64(d, i) SUMS_32(d, i), SUMS_32(d, i + 32)
#define SUMS_128(d, i) SUMS_64(d, i), SUMS_64(d, i + 64)
#define NUMBERS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define NUMBERS_16 NUMBERS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define NUMBERS_32 NUMBERS_16 ", " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NUMBERS_64 NUMBERS_32 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NUMBERS_128 NUMBERS_64 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/* ---- what attention at depth takes: the emulated card has it, too (emulate.cuh) ------------------------------- */
#if !defined(LUCE_EMULATED)
__device__ inline void wgmma_begin()
{
#if HAS_WARPGROUP_MMA
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ inline void wgmma_commit()
{
#if HAS_WARPGROUP_MMA
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/* All but the N latest groups are done. */
template <int N> __device__ inline void wgmma_wait()
{
#if HAS_WARPGROUP_MMA
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}
/* An asynchronous copy of 16 bytes as copy16, or of zeros. */
__device__ inline void copy16_or_zeros(void *to_shared, const void *from, bool real)
{
#if HAS_WARPGROUP_MMA
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_place(to_shared)), "l"(from),
                 "r"(real ? 16 : 0)
                 : "memory");
#endif
}
/* Descriptor of an operand at `at` (1024-byte aligned) in shared memory: 64 columns are 128 bytes a row, the
 * 16-byte pieces swapped by row % 8. `across`: bytes from 64 columns to the next 64, for operands whose rows are
 * the sum's index (turned). Addresses in it count 16 bytes. */
__device__ inline uint64_t wgmma_operand(shared_t at, int across)
{
    return (uint64_t)((uint32_t)(uintptr_t)at >> 4 & 0x3fff) | (uint64_t)(across ? across >> 4 : 1) << 16
        | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}
/* d[64 x 32] (+)= a[64 x 16] b[32 x 16]^T. */
__device__ inline void wgmma_32(float (&d)[16], uint64_t a, uint64_t b, int add)
{
#if HAS_WARPGROUP_MMA
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
        NUMBERS_16
        "}, %16, %17, add, 1, 1, 0, 0;\n}"
        : SUMS_16(d, 0)
        : "l"(a), "l"(b), "r"(add));
#endif
}

/* d[64 x 64] += a[64 x 16] b[16 x 64]: a as fragments in registers, b turned. */
__device__ inline void wgmma_turned(float (&d)[32], const uint32_t *a, uint64_t b)
{
#if HAS_WARPGROUP_MMA
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
        NUMBERS_32
        "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
        : SUMS_32(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#endif
}

/* d[64 x 128] += a[64 x 16] b[16 x 128]: a as fragments in registers, b turned. */
__device__ inline void wgmma_turned(float (&d)[64], const uint32_t *a, uint64_t b)
{
#if HAS_WARPGROUP_MMA
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        NUMBERS_64
        "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
        : SUMS_64(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#endif
}
#endif

/* ---- the rest -------------------------------------------------------------------------------------------------- */
/* Registers of a thread from here on: fewer, more. */
template <int N = 40> __device__ inline void warpgroup_registers_less()
{
#if HAS_WARPGROUP_MMA
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}
template <int N = 232> __device__ inline void warpgroup_registers_more()
{
#if HAS_WARPGROUP_MMA
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

/* d[64 x 256] += a[64 x 16] b[256 x 16]^T: 128 sums a thread. a and b are descriptors of shared memory. */
__device__ inline void wgmma_256(float d[128], uint64_t a, uint64_t b)
{
#if HAS_WARPGROUP_MMA
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
        NUMBERS_128
        "}, %128, %129, 1, 1, 1, 0, 0;"
        : SUMS_128(d, 0)
        : "l"(a), "l"(b));
#endif
}

/* Sums of products that are done: what reads them stays behind this line. */
template <int N> __device__ inline void wgmma_own(float (&d)[N])
{
#if HAS_WARPGROUP_MMA
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
#endif
}
/* First operands in registers: what makes them stays before this line. */
template <int N> __device__ inline void wgmma_ready(uint32_t (&a)[N])
{
#if HAS_WARPGROUP_MMA
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(a[i])::"memory");
#endif
}
/* d[64 x 64] (+)= a[64 x 16] b[64 x 16]^T. */
__device__ inline void wgmma_64(float (&d)[32], uint64_t a, uint64_t b, int add)
{
#if HAS_WARPGROUP_MMA
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
        NUMBERS_32
        "}, %32, %33, add, 1, 1, 0, 0;\n}"
        : SUMS_32(d, 0)
        : "l"(a), "l"(b), "r"(add));
#endif
}

/* d[64 x 8 NT] += a[64 x 16] b[8 NT x 16]^T: a as fragments in registers, NT 1, 2, 4 or 8. */
template <int NT> __device__ inline void wgmma_rows(float (&d)[NT * 4], const uint32_t (&a)[4], uint64_t b)
{
#if HAS_WARPGROUP_MMA
    if constexpr (NT == 1)
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, "
                     "1, 1, 1, 0;"
                     : SUMS_4(d, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    else if constexpr (NT == 2)
        asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {" NUMBERS_8
                     "}, {%8, %9, %10, %11}, %12, 1, 1, 1, 0;"
                     : SUMS_4(d, 0), SUMS_4(d, 4)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    else if constexpr (NT == 4)
        asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" NUMBERS_16
                     "}, {%16, %17, %18, %19}, %20, 1, 1, 1, 0;"
                     : SUMS_16(d, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" NUMBERS_32
                     "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
                     : SUMS_32(d, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#endif
}

/* d[64 x 256] += a[64 x 16] b[16 x 256]: a as fragments in registers, b turned. */
__device__ inline void wgmma_turned(float (&d)[128], const uint32_t *a, uint64_t b)
{
#if HAS_WARPGROUP_MMA
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
        NUMBERS_128
        "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 1;"
        : SUMS_128(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#endif
}
#endif
