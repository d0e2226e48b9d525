/* device/gpu/attn.cuh - what attention of narrow and of wide steps share: 8 values of a cached row as f16, and the
 * launch of the narrow kernels. */
#ifndef LUCE_DEVICE_GPU_ATTN_CUH
#define LUCE_DEVICE_GPU_ATTN_CUH

#include "device/gpu/rows.cuh"

enum { KEYS = PAGE, LOADS = 4 };        /* keys of a tile; pieces that a thread loads together to decode them */

bool narrow_attn_fits(int dim);     /* in the card's shared memory */
int launch_narrow_attn(launch *l, const attn_args *a, int rows, attn_depth depth, int n_units);

/* 8 values (dims 8 c ..) of row `at` of a block, as they are stored in any format but f16. */
struct stored8 {
    uint4 q;
    float d;
};
__device__ inline stored8 load8(const kv_part &p, const uint8_t *block, int dim, int at, int c)
{
    const uint8_t *row = block + (uint64_t)at * p.row_bytes;
    stored8 x = { make_uint4(0, 0, 0, 0), 0 };
    if (p.format == TYPE_BF16) x.q = *(const uint4 *)(row + 16 * c);
    else {                      /* q4_0: the high nibbles are elements 16..31 of a block */
        const uint2 q = *(const uint2 *)(row + (p.format == TYPE_Q8_0 ? 8 * c : 16 * (c / 4) + 8 * (c % 2)));
        x.q.x = q.x, x.q.y = q.y;
        x.d = __half2float(((const __half *)(block + p.scales))[at * (dim / 32) + c / 4]);
    }
    return x;
}
/* The same as f16. Out of line: a step with a short context runs every instruction once, and fetching them is
 * what it waits for. */
inline __device__ __noinline__ uint4 decode8(uint32_t format, stored8 x, int c)
{
    __half2 h[4];
    const uint32_t w[4] = { x.q.x, x.q.y, x.q.z, x.q.w };
    if (format == TYPE_BF16) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            h[i] = __halves2half2(clamped_half(__uint_as_float(w[i] << 16)),
                                  clamped_half(__uint_as_float(w[i] & 0xffff0000u)));
    } else if (format == TYPE_Q8_0) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t v = w[i / 2] >> (16 * (i % 2));
            h[i] = __floats2half2_rn((float)(int8_t)(v & 255) * x.d, (float)(int8_t)(v >> 8 & 255) * x.d);
        }
    } else {
        const int shift = c % 4 / 2 * 4;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t v = w[i / 2] >> (16 * (i % 2));
            h[i] = __floats2half2_rn((float)((int)(v >> shift & 15) - 8) * x.d,
                                     (float)((int)(v >> 8 >> shift & 15) - 8) * x.d);
        }
    }
    return make_uint4(as_bits(h[0]), as_bits(h[1]), as_bits(h[2]), as_bits(h[3]));
}

/* Caps scores where the model does. Returns what makes them powers of two: their factor. */
template <int N> __device__ inline float cap_scores(const attn_args &a, float (*s)[4])
{
    const float log2e = 1.4426950408889634f;
    if (a.softcap <= 0) return a.scale * log2e;
    const float in_cap = 2 * log2e * a.scale / a.softcap, out = a.softcap * log2e;
#pragma unroll
    for (int j = 0; j < N; j++)             /* tanh x = 1 - 2 / (e^2x + 1) */
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[j][e] = out * (1.0f - __fdividef(2.0f, exp2_fast(fminf(s[j][e] * in_cap, 60.0f)) + 1.0f));
    return 1;
}

#endif
