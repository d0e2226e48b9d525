/* device/gpu/delta.cuh - what the kernels of recurrent layers share: where things lie, heads, gates. */
#ifndef LUCE_DEVICE_GPU_DELTA_CUH
#define LUCE_DEVICE_GPU_DELTA_CUH

#include "device/gpu/rows.cuh"

__device__ inline float *state_of(const state_place &p, int slot)
{
    return p.state + (uint64_t)slot * p.state_page;
}
__device__ inline float *journal_of(const state_place &p, int slot)
{
    return p.journal + (uint64_t)slot * p.journal_page;
}

__device__ inline int key_head_of(const delta_args &a, int head)
{
    return a.grouped ? head / (a.v_heads / a.k_heads) : head % a.k_heads;
}
/* The i-th of the value heads that share a key head. */
__device__ inline int value_head_of(const delta_args &a, int key_head, int i)
{
    return a.grouped ? key_head * (a.v_heads / a.k_heads) + i : key_head + i * a.k_heads;
}
/* What makes a row's decay (its alpha) and its beta. */
__device__ inline float2 gates_of(const delta_args &a, uint64_t row, int head)
{
    const float *g = a.gates + row * 2 * a.v_heads;
    const int per = a.v_heads / a.k_heads, in_group = head / per * 2 * per + head % per;
    return a.grouped ? make_float2(g[in_group + per], g[in_group]) : make_float2(g[head], g[a.v_heads + head]);
}
__device__ inline float log_decay_of(const delta_args &a, float alpha, int head)
{
    const float z = alpha + a.dt[head];
    return (z > 20 ? z : log1pf(expf(z))) * a.a[head];
}
__device__ inline float decay_of(const delta_args &a, float alpha, int head)
{
    return expf(log_decay_of(a, alpha, head));
}

/* Four elements of a key from e on; zeros beyond n. */
__device__ inline float4 four(const float *x, int e, int n)
{
    if (n % 4 == 0) return e < n ? *(const float4 *)(x + e) : make_float4(0, 0, 0, 0);
    return make_float4(e < n ? x[e] : 0.0f, e + 1 < n ? x[e + 1] : 0.0f, e + 2 < n ? x[e + 2] : 0.0f,
                       e + 3 < n ? x[e + 3] : 0.0f);
}

#endif
