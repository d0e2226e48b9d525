/* device/gpu/port.h - the only file that knows CUDA from HIP, and both from a GPU that tests emulate on the CPU
 * (emulate.h).
 * Gives both the same names: for C files the runtime's functions and types (GPU(Malloc), gpu_stream); for
 * kernels also warp operations on 32 lanes, streaming loads, asynchronous copies into shared memory,
 * the matrix instruction, programmatic launch. */
#ifndef LUCE_DEVICE_GPU_PORT_H
#define LUCE_DEVICE_GPU_PORT_H

#include <stdint.h>

#if defined(LUCE_EMULATED)
#include "device/gpu/emulate.h"
#define GPU_NAME "emulated"
#define GPU(name) emulated##name
#elif defined(LUCE_HIP)
#include "device/gpu/hip.h"
#define GPU_NAME "hip"
#define GPU(name) hip##name
#elif defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define GPU_NAME "cuda"
#define GPU(name) cuda##name
typedef __nv_bfloat16 bf16_t;
#else                           /* C files of the CUDA build */
#include <cuda_runtime_api.h>
#define GPU_NAME "cuda"
#define GPU(name) cuda##name
#endif

typedef GPU(Error_t) gpu_error;
typedef GPU(Stream_t) gpu_stream;
typedef GPU(Event_t) gpu_event;
typedef GPU(Graph_t) gpu_graph;
typedef GPU(GraphExec_t) gpu_graph_exec;

enum { WARP = 32 };

/* A constant of the host alone: HIP would look for what it names on the device, too. */
#if defined(__HIP_DEVICE_COMPILE__)
#define HOST_CONSTANT(...)
#else
#define HOST_CONSTANT(...) __VA_ARGS__
#endif

#if defined(LUCE_EMULATED) && defined(__cplusplus)
#include "device/gpu/emulate.cuh"
#define LUCE_KERNELS 1
#elif defined(__CUDACC__) || defined(__HIP__)
#define LUCE_KERNELS 1
#if defined(LUCE_HIP)
#include "device/gpu/hip.cuh"
#endif

/* Shared memory whose size the launch gives, aligned to 1024 bytes. */
#define DYNAMIC_SHARED(type, name) extern __shared__ __align__(1024) type name[]

template <class... P> static inline const void *kernel_address(void (*kernel)(P...))
{
    return (const void *)kernel;
}

#if !defined(LUCE_HIP)
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define defined_for_90a 1
#else
#define defined_for_90a 0
#endif
#define EVERY_SHAPE 0           /* kernels of both shapes (linear_shape) are compiled */
#if defined(__CUDA_ARCH__)
#define HAS_LARGE_SHARED (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200)     /* BIG_SHARED bytes a block */
#else
#define HAS_LARGE_SHARED 0
#endif
/* Capabilities of the code being compiled (0 on the host). */
#if defined(__CUDA_ARCH__)
#define HAS_BULK_COPY (__CUDA_ARCH__ >= 900)    /* cp.async.bulk, mbarrier transactions, PDL */
#define HAS_ASYNC_COPY (__CUDA_ARCH__ >= 800)   /* cp.async */
#define HAS_WARP_REDUCE (__CUDA_ARCH__ >= 800)  /* redux.sync */
#define HAS_MMA_16 (__CUDA_ARCH__ >= 800)       /* mma m16n8k16 for f16 and bf16 */
#define HAS_WARPGROUP_MMA defined_for_90a       /* wgmma, setmaxnreg */
#define HAS_GROUP_PRODUCTS HAS_WARPGROUP_MMA    /* those of attention at depth */
#else
#define HAS_GROUP_PRODUCTS 0
#define HAS_WARPGROUP_MMA 0
#define HAS_BULK_COPY 0
#define HAS_ASYNC_COPY 0
#define HAS_WARP_REDUCE 0
#define HAS_MMA_16 0
#endif

/* ---- places in shared memory as numbers of 32 bits, as instructions take them: what a loop keeps of them costs half,
 * and loads need not be told from those of global memory ------------------------------------------------- */
typedef uint32_t shared_t;
__device__ inline shared_t shared_place(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
template <class T> __device__ inline T load_at(shared_t at);
template <> __device__ inline uint32_t load_at<uint32_t>(shared_t at)
{
    uint32_t x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
    return x;
}
template <> __device__ inline uint2 load_at<uint2>(shared_t at)
{
    uint2 x;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(at) : "memory");
    return x;
}
template <> __device__ inline uint4 load_at<uint4>(shared_t at)
{
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(at) : "memory");
    return x;
}
__device__ inline void store_at(shared_t at, uint4 x)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}
/* The word at byte `at` of `table`, which nobody writes any more. */
__device__ inline uint32_t look_up(shared_t table, uint32_t at)
{
    uint32_t x;
    asm("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(table + at));
    return x;
}

/* ---- barriers in shared memory that count bytes of bulk copies (sm_90 and later) ---------------- */
__device__ inline void bar_init(uint64_t *bar, int arrivals)
{
#if HAS_BULK_COPY
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_place(bar)), "r"(arrivals));
#endif
}
/* Fresh barriers are seen by bulk copies. */
__device__ inline void bar_fence()
{
#if HAS_BULK_COPY
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/* Ordinary accesses of shared memory before it come before bulk copies after it. */
__device__ inline void shared_fence()
{
#if HAS_BULK_COPY
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/* One arrival, and so many bytes that will come. */
__device__ inline void bar_expect(uint64_t *bar, uint32_t bytes)
{
#if HAS_BULK_COPY
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_place(bar)), "r"(bytes)
                 : "memory");
#endif
}
/* Until the phase of this parity is complete. */
__device__ inline void bar_wait(uint64_t *bar, uint32_t parity)
{
#if HAS_BULK_COPY
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}" ::"r"(shared_place(bar)),
                 "r"(parity)
                 : "memory");
#endif
}
/* One arrival. */
__device__ inline void bar_arrive(uint64_t *bar)
{
#if HAS_BULK_COPY
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_place(bar)) : "memory");
#endif
}
/* One more in a counter in shared memory; returns what it was. All that the block's threads did before they counted
 * comes before what the thread does that finds them all. */
__device__ inline int count_shared(int *at)
{
    int before = 0;
#if HAS_BULK_COPY
    asm volatile("atom.acq_rel.cta.shared::cta.add.s32 %0, [%1], 1;" : "=r"(before) : "r"(shared_place(at)) : "memory");
#endif
    return before;
}
/* bytes (a multiple of 16) from global to shared memory; completes on bar. Streaming: the source is
 * not kept in L2 when evict_first is set. */
__device__ inline void bulk_load(void *to, const void *from, uint32_t bytes, uint64_t *bar, bool evict_first)
{
#if HAS_BULK_COPY
    if (evict_first) {
        uint64_t policy;
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                     " [%0], [%1], %2, [%3], %4;" ::"r"(shared_place(to)),
                     "l"(from), "r"(bytes), "r"(shared_place(bar)), "l"(policy)
                     : "memory");
    } else {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     ::"r"(shared_place(to)),
                     "l"(from), "r"(bytes), "r"(shared_place(bar))
                     : "memory");
    }
#endif
}
/* Brings bytes (a multiple of 16) of global memory into L2. */
__device__ inline void bulk_prefetch(const void *from, uint32_t bytes)
{
#if HAS_BULK_COPY
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

/* ---- asynchronous copies of 16 bytes, in groups that complete in order --------------------------- */
__device__ inline void copy16(shared_t to, const void *from)
{
#if HAS_ASYNC_COPY
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
#else
    store_at(to, *(const uint4 *)from);
#endif
}
/* The same. */
__device__ inline void copy16(void *to_shared, const void *from)
{
    copy16(shared_place(to_shared), from);
}
/* Copies so far make a group. */
__device__ inline void copy_commit()
{
#if HAS_ASYNC_COPY
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* How copies use the L2 cache: what they read gives way to all else, since nobody reads it again soon. */
typedef uint64_t cache_policy;
__device__ inline cache_policy read_once()
{
    cache_policy policy = 0;
#if HAS_ASYNC_COPY
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#endif
    return policy;
}
/* One arrival when this thread's copies so far are there. */
__device__ inline void copy_arrive(uint64_t *bar)
{
#if HAS_BULK_COPY
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_place(bar)) : "memory");
#endif
}
/* copy16 where `on`, without a branch. */
__device__ inline void copy16_if(bool on, shared_t to, const void *from, cache_policy policy)
{
#if HAS_ASYNC_COPY
    asm volatile("{\n"
                 ".reg .pred on;\n"
                 "setp.ne.s32 on, %2, 0;\n"
                 "@on cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %3;\n"
                 "}" ::"r"(to), "l"(from), "r"((int)on), "l"(policy) : "memory");
#else
    if (on) store_at(to, *(const uint4 *)from);
#endif
}
/* All but the newest N groups of this thread are there. */
template <int N> __device__ inline void copy_wait()
{
#if HAS_ASYNC_COPY
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

/* ---- programmatic dependent launch --------------------------------------------------------------- */
/* The kernels before this one have finished and their writes are visible. */
__device__ inline void wait_predecessor()
{
#if HAS_BULK_COPY
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* The next kernel may start (its wait_predecessor still waits for this one to end). */
__device__ inline void launch_dependents()
{
#if HAS_BULK_COPY
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* 2^x of normal results; 0 for smaller ones. */
__device__ inline float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Barrier `id` (1..15) of `threads` threads of the block. */
__device__ inline void group_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- the matrix instruction: d[16 x 8] += a[16 x 16] b[16 x 8], f16 or bf16 in, f32 out ----------
 * Fragments as in the PTX manual: lane = 4 g + t;
 *   a[0] rows g, k 2t, 2t+1;  a[1] rows g+8;  a[2] rows g, k 2t+8, 2t+9;  a[3] rows g+8, the same
 *   b[0] k 2t, 2t+1, column g;  b[1] k 2t+8, 2t+9
 *   d[0], d[1] row g, columns 2t, 2t+1;  d[2], d[3] row g+8 */
#define MMA_16(type)                                                                                        \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, " \
        "{%0,%1,%2,%3};"                                                                                    \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                    \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
__device__ inline void mma_f16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
#if HAS_MMA_16
    MMA_16("f16");
#elif defined(__CUDA_ARCH__)
    /* sm_75: two products of eight, in the same order of k. */
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}
/* The same for bf16; before sm_80 nothing (card_has_bf16). */
__device__ inline void mma_bf16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
#if HAS_MMA_16
    MMA_16("bf16");
#endif
}
/* Two numbers as bf16, the first in the low half. */
__device__ inline uint32_t pack_bf16(float low, float high)
{
    uint32_t both = 0;
#if HAS_MMA_16
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#endif
    return both;
}
/* ---- matrices of 8 x 8 halves from shared memory --------------------------------------------------- */
__device__ inline void load_matrices(uint32_t r[4], shared_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ inline void load_matrices(uint32_t r[4], const void *at)
{
    load_matrices(r, shared_place(at));
}
__device__ inline void load_matrices_turned(uint32_t r[4], const void *at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_place(at)) : "memory");
}
/* ---- words that other blocks read while they are written --------------------------------------------- */
template <int N> struct words {
    uint32_t at[N];
};
__device__ inline void put_relaxed(uint32_t *p, const words<2> &x)
{
    asm volatile("st.relaxed.gpu.global.v2.b32 [%0], {%1, %2};" ::"l"(p), "r"(x.at[0]), "r"(x.at[1]) : "memory");
}
__device__ inline void put_relaxed(uint32_t *p, const words<4> &x)
{
    asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x.at[0]), "r"(x.at[1]),
                 "r"(x.at[2]), "r"(x.at[3]) : "memory");
}
template <int N> __device__ inline words<N> get_relaxed(const uint32_t *p);
template <> __device__ inline words<2> get_relaxed<2>(const uint32_t *p)
{
    words<2> x;
    asm volatile("ld.relaxed.gpu.global.v2.b32 {%0, %1}, [%2];" : "=r"(x.at[0]), "=r"(x.at[1]) : "l"(p) : "memory");
    return x;
}
template <> __device__ inline words<4> get_relaxed<4>(const uint32_t *p)
{
    words<4> x;
    asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.at[0]), "=r"(x.at[1]), "=r"(x.at[2]), "=r"(x.at[3]) : "l"(p) : "memory");
    return x;
}
/* Inside a loop that reads until another block has written. */
__device__ inline void spin_pause()
{
}
/* (x & mask) | bits, in one instruction. */
__device__ inline uint32_t and_or(uint32_t x, uint32_t mask, uint32_t bits)
{
    uint32_t y;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(x), "r"(mask), "r"(bits));
    return y;
}
#endif
#endif

#ifdef LUCE_KERNELS
#if defined(LUCE_HIP) || defined(LUCE_EMULATED)
typedef uint8_t *shared_t;
/* Places in shared memory are pointers as others. */
__device__ inline shared_t shared_place(const void *p)
{
    return (uint8_t *)(uintptr_t)p;
}
typedef int cache_policy;
__device__ inline cache_policy read_once()
{
    return 0;
}
/* copy16 where `on`. */
__device__ inline void copy16_if(bool on, shared_t to, const void *from, cache_policy)
{
    if (on) copy16(to, from);
}
/* The word at byte `at` of `table`, which nobody writes any more. */
__device__ inline uint32_t look_up(shared_t table, uint32_t at)
{
    return *(const uint32_t *)(table + at);
}
#endif
/* x, which the compiler keeps instead of finding it out once more. */
__device__ inline int pinned(int x)
{
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+r"(x));
#endif
    return x;
}
/* The same as load_at of shared memory for global memory. */
template <class T> __device__ inline T load_at(const uint8_t *at)
{
    return *(const T *)at;
}
/* ---- bits ---------------------------------------------------------------------------------------- */
/* The nearest f16, its largest in place of infinity; NaN stays NaN. */
__device__ inline __half clamped_half(float v)
{
    v = v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v;
    return __float2half_rn(v);
}
__device__ inline __half2 as_half2(uint32_t x)
{
    __half2 h;
    memcpy(&h, &x, 4);
    return h;
}
__device__ inline uint32_t as_bits(__half2 h)
{
    uint32_t x;
    memcpy(&x, &h, 4);
    return x;
}
__device__ inline uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t selector)
{
    return __byte_perm(low, high, selector);
}
/* Sum by butterfly, in all lanes. */
__device__ inline float warp_sum(float x)
{
#pragma unroll
    for (int i = 16; i; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}
/* Sums over the eight lanes i + 4 j, by butterfly from the farthest on: of N numbers each lane keeps those that begin
 * with the one it returns. */
template <int N> __device__ inline int sum_lanes(float (&s)[N], int lane)
{
    int first = 0, n = N;
#pragma unroll
    for (int bit = WARP / 2; bit >= 4; bit /= 2) {
        if (n > 1) {
            n /= 2;
#pragma unroll
            for (int j = 0; j < N / 2; j++) {
                if (j >= n) break;
                const float give = lane & bit ? s[j] : s[j + n];
                s[j] = (lane & bit ? s[j + n] : s[j]) + __shfl_xor_sync(0xffffffffu, give, bit);
            }
            if (lane & bit) first += n;
        } else {
            s[0] += __shfl_xor_sync(0xffffffffu, s[0], bit);
        }
    }
    return first;
}
/* Largest of a warp's values, in all lanes. */
__device__ inline float warp_max(float x)
{
#pragma unroll
    for (int i = 16; i; i /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
}
/* The same of the four lanes 4 g .. 4 g + 3, which hold a row of the matrix instruction's sums. */
__device__ inline float lanes_sum(float x)
{
    x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float lanes_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
/* Largest of a warp's whole numbers. */
__device__ inline uint32_t warp_max_whole(uint32_t x)
{
#if HAS_WARP_REDUCE
    return __reduce_max_sync(0xffffffffu, x);
#else
    for (int i = 16; i; i /= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, x, i);
        x = other > x ? other : x;
    }
    return x;
#endif
}


/* ---- launches --------------------------------------------------------------------------------------- */
/* The architecture that a kernel's code here was written for (75, 90, ...), which may be older than the card. 0: it
 * has no number. */
template <class... P> static inline int code_of(void (*kernel)(P...))
{
#if defined(LUCE_HIP) || defined(LUCE_EMULATED)
    (void)kernel;
    return 0;
#else
    cudaFuncAttributes a = {};
    return cudaFuncGetAttributes(&a, kernel_address(kernel)) == cudaSuccess ? a.ptxVersion : 0;
#endif
}
/* A kernel may take so many bytes of dynamic shared memory: before its launch is captured. */
template <class... P> static inline void allow_shared(void (*kernel)(P...), int bytes)
{
    (void)GPU(FuncSetAttribute)(kernel_address(kernel), GPU(FuncAttributeMaxDynamicSharedMemorySize), bytes);
}
template <class T> struct same_type {
    typedef T type;
};
/* Starts a kernel on a stream. */
template <class... P>
static gpu_error launch_now(void (*kernel)(P...), dim3 grid, unsigned block, gpu_stream s,
                            typename same_type<P>::type... args)
{
    void *at[] = { (void *)&args... };
    GPU(LaunchConfig_t) config = {};
    config.gridDim = grid;
    config.blockDim = dim3(block);
    config.stream = s;
    return GPU(LaunchKernelExC)(&config, kernel_address(kernel), at);
}

#endif
#endif
