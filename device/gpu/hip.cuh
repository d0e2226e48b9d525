/* device/gpu/hip.cuh - what kernels use, on AMD GPUs whose warps have 32 lanes (RDNA): operations of a warp, the
 * matrix instruction by dot products of two, copies that are done at once. */
#ifndef LUCE_DEVICE_GPU_HIP_CUH
#define LUCE_DEVICE_GPU_HIP_CUH

#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#include <string.h>

#include "device/gpu/hip.h"

/* HIP's macro counts the commas of template arguments. */
#undef __launch_bounds__
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))

#define EVERY_SHAPE 0
#define HAS_LARGE_SHARED 0
#define HAS_BULK_COPY 0
#define HAS_ASYNC_COPY 0
#define HAS_WARP_REDUCE 0
#define HAS_WARPGROUP_MMA 0
#define HAS_GROUP_PRODUCTS 0

/* ---- operations of a warp ----------------------------------------------------------------------------------- */
__device__ inline int hip_lane()
{
    return __builtin_amdgcn_mbcnt_lo(~0u, 0);
}
/* Of values of whole words. */
template <class T> __device__ inline T hip_shuffle(T value, int from)
{
    static_assert(sizeof(T) % 4 == 0, "words are exchanged");
    int word[sizeof(T) / 4];
    memcpy(word, &value, sizeof value);
#pragma unroll
    for (int i = 0; i < (int)sizeof(T) / 4; i++) word[i] = __builtin_amdgcn_ds_bpermute(from * 4, word[i]);
    memcpy(&value, word, sizeof value);
    return value;
}
template <class T> __device__ inline T __shfl_sync(unsigned, T value, int from)
{
    return hip_shuffle(value, from & 31);
}
template <class T> __device__ inline T __shfl_xor_sync(unsigned, T value, int mask)
{
    return hip_shuffle(value, hip_lane() ^ mask);
}
template <class T> __device__ inline T __shfl_down_sync(unsigned, T value, int by)
{
    const int lane = hip_lane();
    return hip_shuffle(value, lane + by < 32 ? lane + by : lane);
}
template <class T> __device__ inline T __shfl_up_sync(unsigned, T value, int by)
{
    const int lane = hip_lane();
    return hip_shuffle(value, lane >= by ? lane - by : lane);
}
__device__ inline unsigned __ballot_sync(unsigned, bool yes)
{
    return (unsigned)__ballot(yes);
}
__device__ inline bool __any_sync(unsigned, bool yes)
{
    return __ballot(yes) != 0;
}
__device__ inline bool __all_sync(unsigned, bool yes)
{
    return __ballot(!yes) == 0;
}
/* Lanes go in step: what is left is the order of memory operations. */
__device__ inline void __syncwarp(unsigned = ~0u)
{
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
}
template <class T> __device__ inline T hip_reduce(T v, T (*better)(T, T))
{
#pragma unroll
    for (int i = 16; i; i /= 2) v = better(v, __shfl_xor_sync(~0u, v, i));
    return v;
}
__device__ inline int __reduce_min_sync(unsigned, int v)
{
    return hip_reduce<int>(v, [](int a, int b) { return a < b ? a : b; });
}
__device__ inline int __reduce_max_sync(unsigned, int v)
{
    return hip_reduce<int>(v, [](int a, int b) { return a > b ? a : b; });
}
/* There are no barriers of a part of the block: all of it meets. Every group of the block comes as often. */
__device__ inline void group_sync(int, int)
{
    __syncthreads();
}
__device__ inline void spin_pause()
{
    __builtin_amdgcn_s_sleep(1);
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */
struct bf16_t {
    uint16_t bits;
};
/* Nearest, ties to even; NaN stays NaN. */
__device__ inline bf16_t __float2bfloat16_rn(float f)
{
    uint32_t u = __float_as_uint(f);
    if (f != f) return { (uint16_t)(u >> 16 | 64) };
    return { (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16) };
}
/* Two numbers as bf16, the first in the low half. */
__device__ inline uint32_t pack_bf16(float low, float high)
{
    return __float2bfloat16_rn(low).bits | (uint32_t)__float2bfloat16_rn(high).bits << 16;
}
__device__ inline float exp2_fast(float x)
{
    return exp2f(x);
}
template <class T> __device__ inline T __ldcs(const T *p)
{
    return *p;
}
__device__ inline uint32_t and_or(uint32_t x, uint32_t mask, uint32_t bits)
{
    return (x & mask) | bits;
}
template <int N> struct words {
    uint32_t at[N];
};
template <int N> __device__ inline void put_relaxed(uint32_t *p, const words<N> &x)
{
    for (int i = 0; i < N; i++) __hip_atomic_store(p + i, x.at[i], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <int N> __device__ inline words<N> get_relaxed(const uint32_t *p)
{
    words<N> x;
    for (int i = 0; i < N; i++)
        x.at[i] = __hip_atomic_load((uint32_t *)p + i, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    return x;
}

/* ---- copies into shared memory: done when they return ----------------------------------------------------------- */
__device__ inline void bar_init(uint64_t *, int) {}
__device__ inline void bar_fence() {}
__device__ inline void shared_fence() {}
__device__ inline void bar_expect(uint64_t *, uint32_t) {}
__device__ inline void bar_wait(uint64_t *, uint32_t) {}
__device__ inline void bar_arrive(uint64_t *) {}
__device__ inline int count_shared(int *) { return 0; }
__device__ inline void bulk_load(void *, const void *, uint32_t, uint64_t *, bool) {}
__device__ inline void bulk_prefetch(const void *, uint32_t) {}
__device__ inline void copy16(void *to_shared, const void *from)
{
    *(uint4 *)to_shared = *(const uint4 *)from;
}
__device__ inline void copy_commit() {}
template <int N> __device__ inline void copy_wait() {}
__device__ inline void wait_predecessor() {}
__device__ inline void launch_dependents() {}

/* ---- the matrix instruction, and loads of its operands ---------------------------------------------------------- */
#include "device/gpu/matrix.cuh"

typedef _Float16 hip_pair __attribute__((ext_vector_type(2)));
__device__ inline float hip_dot(uint32_t x, uint32_t y, float sum)
{
    hip_pair a, b;
    memcpy(&a, &x, sizeof a);
    memcpy(&b, &y, sizeof b);
    return __builtin_amdgcn_fdot2(a, b, sum, false);
}
__device__ inline void mma_f16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    exchange_mma(d, a, b0, b1, hip_lane(), hip_dot);
}
__device__ inline float hip_dot_bf16(uint32_t x, uint32_t y, float sum)
{
    sum = fmaf(__uint_as_float(x << 16), __uint_as_float(y << 16), sum);
    return fmaf(__uint_as_float(x & 0xffff0000u), __uint_as_float(y & 0xffff0000u), sum);
}
__device__ inline void mma_bf16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    exchange_mma(d, a, b0, b1, hip_lane(), hip_dot_bf16);
}
__device__ inline void load_matrices(uint32_t r[4], const void *at)
{
    exchange_matrices(r, at, hip_lane());
}
__device__ inline void load_matrices_turned(uint32_t r[4], const void *at)
{
    exchange_matrices_turned(r, at, hip_lane());
}

#endif
