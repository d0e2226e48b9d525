/* device/gpu/emulate.cuh - what kernels use, on the emulated GPU (emulate.h): the words of the language, threads
 * and their indices, operations of a warp, copies into shared memory, the matrix instruction. */
#ifndef LUCE_DEVICE_GPU_EMULATE_CUH
#define LUCE_DEVICE_GPU_EMULATE_CUH

#include <math.h>
#include <string.h>
#include <type_traits>
#include <utility>
#include <vector>

#include "device/gpu/emulate.h"
#include "quant/quant.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __noinline__ __attribute__((noinline))

struct dim3 : emulated_dim {
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : emulated_dim{ x_, y_, z_ } {}
};
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline float2 make_float2(float x, float y) { return { x, y }; }
inline float4 make_float4(float x, float y, float z, float w) { return { x, y, z, w }; }
inline int2 make_int2(int x, int y) { return { x, y }; }
inline uint2 make_uint2(unsigned x, unsigned y) { return { x, y }; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return { x, y, z, w }; }

/* ---- threads -------------------------------------------------------------------------------------------- */
struct emulated_warp {
    void *slot[32];             /* what the lanes bring to an operation */
    int live, arrived;
    unsigned phase;             /* operations so far */
};
struct emulated_copy {
    void *to;
    const void *from;
    size_t bytes;
    uint64_t *bar;              /* bulk copies: the barrier that counts them */
};
/* A thread's share of a product of its warp group. */
struct emulated_product {
    float *d;
    int n;                      /* columns of b */
    bool add, turned, rows;     /* rows: a is here, else in shared memory */
    uint64_t a, b;
    uint16_t row[2][16];        /* of a: g and g + 8 */
};
struct emulated_block {
    emulated_dim index;
    uint8_t *shared;
    int live;
    struct {
        int arrived;
        unsigned phase;
    } barrier[16];
    std::vector<emulated_copy> bulk;        /* on their way */
};
struct emulated_thread {
    emulated_dim index;
    int lane;
    emulated_warp *warp;
    emulated_block *block;
    const unsigned *until;      /* runs when this is no longer `phase` */
    unsigned phase;
    std::vector<emulated_copy> copies;      /* on their way, `groups` counting those of each committed group */
    std::vector<size_t> groups;
    std::vector<emulated_product> products;     /* of its warp group, on their way, and those of each group of them */
    std::vector<size_t> product_groups;
};
extern emulated_thread *emulated_now;
extern emulated_dim blockDim, gridDim;        /* of the launch at work */
/* Lets others run until *counter has changed; until everyone else has had a turn. */
void emulated_wait(const unsigned *counter);
void emulated_pause();
void emulated_sync(int barrier, int threads);
/* The kernel does what no card would let it do: ends the process. */
[[noreturn]] void emulated_stop(const char *why);
/* Makes a kernel known to launches. */
typedef void (*emulated_call)(const void *kernel, void **args);
void emulated_know(const void *kernel, emulated_call call, size_t bytes);

#define threadIdx (emulated_now->index)
#define blockIdx (emulated_now->block->index)
#define DYNAMIC_SHARED(type, name) type *name = (type *)emulated_now->block->shared

template <class... P, size_t... I>
void emulated_call_with(void (*kernel)(P...), void **args, std::index_sequence<I...>)
{
    kernel(*(P *)args[I]...);
}
template <class... P> const void *kernel_address(void (*kernel)(P...))
{
    emulated_call call = [](const void *k, void **args) {
        emulated_call_with((void (*)(P...))(uintptr_t)k, args, std::index_sequence_for<P...>());
    };
    const size_t bytes[] = { sizeof(P)... };
    emulated_know((const void *)kernel, call, bytes[0]);
    return (const void *)kernel;
}

inline void __syncthreads()
{
    emulated_sync(0, emulated_now->block->live);
}
inline void group_sync(int id, int threads)
{
    emulated_sync(id, threads);
}
inline void spin_pause()
{
    emulated_pause();
}

/* ---- operations of a warp: the last lane that comes does them for all --------------------------------------- */
template <class F> void emulated_together(void *mine, F all)
{
    emulated_warp *w = emulated_now->warp;
    w->slot[emulated_now->lane] = mine;
    if (++w->arrived < w->live) return emulated_wait(&w->phase);
    w->arrived = 0;
    w->phase++;
    all(w->slot);
}
inline void __syncwarp(unsigned = 0xffffffffu)
{
    emulated_together(nullptr, [](void **) {});
}
template <class T> T emulated_shuffle(T value, int from)
{
    struct lane {
        T value, got;
        int from;
    } mine = { value, value, from };
    emulated_together(&mine, [](void **s) {
        for (int i = 0; i < 32; i++)
            if (s[i]) ((lane *)s[i])->got = ((lane *)s[((lane *)s[i])->from])->value;
    });
    return mine.got;
}
template <class T> T __shfl_sync(unsigned, T value, int from)
{
    return emulated_shuffle(value, from & 31);
}
template <class T> T __shfl_xor_sync(unsigned, T value, int mask)
{
    return emulated_shuffle(value, emulated_now->lane ^ mask);
}
template <class T> T __shfl_down_sync(unsigned, T value, int by)
{
    const int lane = emulated_now->lane;
    return emulated_shuffle(value, lane + by < 32 ? lane + by : lane);
}
template <class T> T __shfl_up_sync(unsigned, T value, int by)
{
    const int lane = emulated_now->lane;
    return emulated_shuffle(value, lane >= by ? lane - by : lane);
}
inline unsigned __ballot_sync(unsigned, bool yes)
{
    unsigned mine = yes;
    emulated_together(&mine, [](void **s) {
        unsigned all = 0;
        for (int i = 0; i < 32; i++)
            if (s[i]) all |= *(unsigned *)s[i] << i;
        for (int i = 0; i < 32; i++)
            if (s[i]) *(unsigned *)s[i] = all;
    });
    return mine;
}
inline bool __any_sync(unsigned mask, bool yes)
{
    return __ballot_sync(mask, yes) != 0;
}
inline bool __all_sync(unsigned mask, bool yes)
{
    return __ballot_sync(mask, !yes) == 0;
}

/* ---- numbers -------------------------------------------------------------------------------------------- */
struct __half { uint16_t bits; };
struct alignas(4) __half2 { __half x, y; };
struct bf16_t { uint16_t bits; };
extern const float *const emulated_halves;      /* the value of each f16 */

inline float __half2float(__half h) { return emulated_halves[h.bits]; }
inline __half __float2half_rn(float f) { return { f32_to_f16(f) }; }
inline __half __ushort_as_half(uint16_t bits) { return { bits }; }
inline uint16_t __half_as_ushort(__half h) { return h.bits; }
inline bf16_t __float2bfloat16_rn(float f) { return { f32_to_bf16(f) }; }
inline __half2 __halves2half2(__half x, __half y) { return { x, y }; }
inline __half2 __half2half2(__half x) { return { x, x }; }
inline __half2 __floats2half2_rn(float x, float y) { return { __float2half_rn(x), __float2half_rn(y) }; }
/* Rounded once: f32 is on the way, to odd. */
inline __half emulated_round(double x)
{
    float f = (float)x;
    if (isfinite(f) && (double)f != x && !(f32_bits(f) & 1))
        f = f32_of_bits(fabs((double)f) < fabs(x) ? f32_bits(f) + 1 : f32_bits(f) - 1);
    return __float2half_rn(f);
}
inline __half __hfma(__half a, __half b, __half c)
{
    return emulated_round((double)__half2float(a) * __half2float(b) + __half2float(c));
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return { __hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y) }; }
inline __half __hmul(__half a, __half b) { return __float2half_rn(__half2float(a) * __half2float(b)); }
inline __half2 __hmul2(__half2 a, __half2 b) { return { __hmul(a.x, b.x), __hmul(a.y, b.y) }; }

inline uint32_t __float_as_uint(float f) { return f32_bits(f); }
inline int __float_as_int(float f) { return (int)f32_bits(f); }
inline float __uint_as_float(uint32_t u) { return f32_of_bits(u); }
inline float __int_as_float(int i) { return f32_of_bits((uint32_t)i); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fdividef(float a, float b) { return a / b; }
#define __expf(x) expf(x)
inline float exp2_fast(float x) { return exp2f(x); }
#define __logf(x) logf(x)
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
template <class T> T __ldcs(const T *p) { return *p; }
template <class T> T __ldg(const T *p) { return *p; }
inline void __threadfence() {}
inline int atomicAdd(int *p, int x) { return (*p += x) - x; }
inline unsigned long long atomicAdd(unsigned long long *p, unsigned long long x) { return (*p += x) - x; }
inline int atomicMin(int *p, int x)
{
    const int old = *p;
    *p = min(old, x);
    return old;
}
inline int atomicMax(int *p, int x)
{
    const int old = *p;
    *p = max(old, x);
    return old;
}
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector)
{
    const uint64_t bytes = (uint64_t)high << 32 | low;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) out |= (uint32_t)(bytes >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i);
    return out;
}
inline uint32_t and_or(uint32_t x, uint32_t mask, uint32_t bits)
{
    return (x & mask) | bits;
}
template <int N> struct words {
    uint32_t at[N];
};
template <int N> void put_relaxed(uint32_t *p, const words<N> &x)
{
    memcpy(p, x.at, sizeof x.at);
}
template <int N> words<N> get_relaxed(const uint32_t *p)
{
    words<N> x;
    for (int i = 0; i < N; i++) x.at[i] = ((const volatile uint32_t *)p)[i];
    return x;
}

/* ---- copies into shared memory: as late as they may come ------------------------------------------------------ */
#define EVERY_SHAPE 1
#define HAS_LARGE_SHARED 1
#define HAS_BULK_COPY 1
#define HAS_WARPGROUP_MMA 0
#define HAS_GROUP_PRODUCTS 1
#define HAS_WARP_REDUCE 0

void bar_init(uint64_t *bar, int arrivals);
void bar_expect(uint64_t *bar, uint32_t bytes);
void bar_arrive(uint64_t *bar);
void bar_wait(uint64_t *bar, uint32_t parity);
void bulk_load(void *to, const void *from, uint32_t bytes, uint64_t *bar, bool evict_first);
inline void bar_fence() {}
inline int count_shared(int *at) { return (*at)++; }
inline void shared_fence() {}
inline void bulk_prefetch(const void *, uint32_t) {}
inline void wait_predecessor() {}
inline void launch_dependents() {}

inline void copy16(void *to_shared, const void *from)
{
    if ((uintptr_t)to_shared % 16 || (uintptr_t)from % 16) emulated_stop("a copy that is not aligned to 16 bytes");
    emulated_now->copies.push_back({ to_shared, from, 16, nullptr });
}
inline void copy_commit()
{
    emulated_now->groups.push_back(emulated_now->copies.size());
}
void copy_arrive(uint64_t *bar);
void emulated_copy_wait(size_t newest);
template <int N> void copy_wait()
{
    emulated_copy_wait(N);
}

/* ---- the matrix unit ------------------------------------------------------------------------------------------- */
void mma_f16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1);
void mma_bf16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1);
inline uint32_t pack_bf16(float low, float high)
{
    return f32_to_bf16(low) | (uint32_t)f32_to_bf16(high) << 16;
}
void emulated_matrices(uint32_t r[4], const void *at, bool turned);
inline void load_matrices(uint32_t r[4], const void *at)
{
    emulated_matrices(r, at, false);
}
inline void load_matrices_turned(uint32_t r[4], const void *at)
{
    emulated_matrices(r, at, true);
}

/* ---- products of warp groups (wgmma.cuh): done as late as they may be ----------------------------------------- */
void emulated_group_product(float *d, int n, bool add, const uint32_t *rows, uint64_t a, uint64_t b);
void emulated_product_wait(size_t newest);
inline void copy16_or_zeros(void *to_shared, const void *from, bool real)
{
    static const uint4 zeros = {};
    copy16(to_shared, real ? from : &zeros);
}
inline void wgmma_begin() {}
inline void wgmma_commit()
{
    emulated_now->product_groups.push_back(emulated_now->products.size());
}
template <int N> void wgmma_wait()
{
    emulated_product_wait(N);
}
/* Addresses are wider than a card's: 44 bits of 16 bytes, then what is across. */
inline uint64_t wgmma_operand(const uint8_t *at, int across)
{
    return (uint64_t)(uintptr_t)at >> 4 | (uint64_t)across >> 4 << 48;
}
inline void wgmma_32(float (&d)[16], uint64_t a, uint64_t b, int add)
{
    emulated_group_product(d, 32, add, nullptr, a, b);
}
template <int N> void wgmma_turned(float (&d)[N], const uint32_t *a, uint64_t b)
{
    emulated_group_product(d, 2 * N, true, a, 0, b);
}

#endif
