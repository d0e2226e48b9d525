/* device/gpu/rows.cuh - decoding of single values of canonical rows, and writing of product forms. */
#ifndef LUCE_DEVICE_GPU_ROWS_CUH
#define LUCE_DEVICE_GPU_ROWS_CUH

#include "device/gpu/kernels.h"
#include "device/gpu/linear_narrow.cuh"

__device__ inline float bf16_value(uint16_t h)
{
    return __uint_as_float((uint32_t)h << 16);
}

/* Value at column `col`: the definition of quant/, operation by operation. */
__device__ inline float row_value(uint32_t type, const uint8_t *row, int col)
{
    switch (type) {
    case TYPE_F32: return __uint_as_float(read_u16(row + 4 * (uint64_t)col) |
                                          (uint32_t)read_u16(row + 4 * (uint64_t)col + 2) << 16);
    case TYPE_F16: return read_half(row + 2 * (uint64_t)col);
    case TYPE_BF16: return bf16_value(read_u16(row + 2 * (uint64_t)col));
    case TYPE_Q8_0: {
        const uint8_t *b = row + (uint64_t)(col / 32) * 34;
        return __fmul_rn((float)(int8_t)b[2 + col % 32], read_half(b));
    }
    case TYPE_Q4_0: {
        const uint8_t *b = row + (uint64_t)(col / 32) * 18;
        int at = col % 32, q = b[2 + at % 16];
        return __fmul_rn((float)((at < 16 ? q & 15 : q >> 4) - 8), read_half(b));
    }
    case TYPE_Q4_K: case TYPE_Q5_K: case TYPE_Q4_1: case TYPE_Q5_0: case TYPE_Q5_1: {
        const affine a = affine_at(type, row, col);
        return __fadd_rn(__fmul_rn(a.scale, (float)a.code), a.low);
    }
    case TYPE_Q6_K: {
        const uint8_t *b = row + (uint64_t)(col / 256) * 210;
        int n = col % 256 / 128, j = col % 128 / 32, l = col % 32;
        int ql = b[64 * n + 32 * (j & 1) + l], qh = b[128 + 32 * n + l];
        int q = ((j < 2 ? ql & 15 : ql >> 4) | ((qh >> (2 * j)) & 3) << 4) - 32;
        return __fmul_rn(__fmul_rn(read_half(b + 208), (float)(int8_t)b[192 + col % 256 / 16]), (float)q);
    }
    default: {                  /* TYPE_IQ4_NL, TYPE_IQ4_XS */
        const int8_t level[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
        return __fmul_rn(iq4_scale(type, row, col), (float)level[iq4_code(type, row, col)]);
    }
    }
}

/* Scale that multiplies the code at column `col`; the value itself in formats without codes. */
__device__ inline float row_scale(uint32_t type, const uint8_t *row, int col)
{
    switch (type) {
    case TYPE_Q8_0: return read_half(row + (uint64_t)(col / 32) * 34);
    case TYPE_Q4_0: return read_half(row + (uint64_t)(col / 32) * 18);
    case TYPE_Q4_K: case TYPE_Q5_K: case TYPE_Q4_1: case TYPE_Q5_0: case TYPE_Q5_1:
        return affine_at(type, row, col).scale;
    case TYPE_Q6_K: {
        const uint8_t *b = row + (uint64_t)(col / 256) * 210;
        return read_half(b + 208) * (float)(int8_t)b[192 + col % 256 / 16];
    }
    case TYPE_IQ4_NL: case TYPE_IQ4_XS: return iq4_scale(type, row, col);
    default: return row_value(type, row, col);
    }
}

__host__ __device__ inline int32_t *moe_entries(const moe_table *t)
{
    return (int32_t *)((uint8_t *)t + t->entries);
}

__device__ inline uint8_t *form_at(const form &f, int n, int k)
{
    return f.at + panel_at(n, k, f.rows);
}
__device__ inline void form_put2(const form &f, int n, int k, float v0, float v1)
{
    put_pair_at(form_at(f, n, k), v0 * f.scale, v1 * f.scale);
}

/* Columns k .. k + 3 (k a multiple of four). */
__device__ inline void form_put4(const form &f, int n, int k, float4 v)
{
    put_quad_at(form_at(f, n, k), make_float4(v.x * f.scale, v.y * f.scale, v.z * f.scale, v.w * f.scale));
}
/* One of the two parts, keys or values, of a head: where it begins in a page, its format. */
struct kv_part {
    uint64_t at;
    uint32_t format;
    int row_bytes, scales;
};
__device__ inline kv_part part_of(const kv_place &kv, int head, bool values)
{
    kv_part p;
    p.at = (values ? kv.v_at : kv.k_at) + head * kv.head;
    p.format = values ? kv.v_format : kv.k_format;
    p.row_bytes = values ? kv.v_row : kv.k_row;
    p.scales = values ? kv.v_scales : kv.k_scales;
    return p;
}

/* The larger of columns, ties: the lower one. */
struct best {
    float value;
    int32_t index;              /* INT32_MAX: none; -1: NaN was met */
};
__device__ inline best better(best a, best b)
{
    if (a.index < 0 || b.index < 0) return best{ 0, -1 };
    if (b.value > a.value || (b.value == a.value && b.index < a.index)) return b;
    return a;
}
__device__ inline best best_of_warp(best mine)
{
#pragma unroll 1
    for (int i = WARP / 2; i; i /= 2)
        mine = better(mine, best{ __shfl_xor_sync(0xffffffffu, mine.value, i),
                                 __shfl_xor_sync(0xffffffffu, mine.index, i) });
    return mine;
}

template <class A> static void fill_launch(launch *l, void (*kernel)(A), dim3 grid, int block,
                                           size_t shared, const A &a)
{
    static_assert(sizeof(A) <= LAUNCH_ARGS, "LAUNCH_ARGS");
    *l = launch{};
    l->kernel = kernel_address(kernel);
    l->grid[0] = grid.x, l->grid[1] = grid.y, l->grid[2] = grid.z;
    l->block = (unsigned)block;
    l->shared = (unsigned)shared;
    l->overlap = true;
    l->call = -1;
    memcpy(l->args, &a, sizeof a);
}

/* The item of a block's turn: back and forth over the blocks, so that long and short ones add up alike. */
__device__ inline int item_of(int turn)
{
    return turn * gridDim.x + (turn & 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

#endif
