/* device/gpu/short_conv.cuh - a channel of SHORT_CONV, for its own kernels and for DELTA, which does its work in steps
 * of few rows. States and journals: tape/kv.h. */
#ifndef LUCE_DEVICE_GPU_SHORT_CONV_CUH
#define LUCE_DEVICE_GPU_SHORT_CONV_CUH

#include "device/gpu/delta.cuh"

enum { CONV_TAPS = 4 };         /* of usual convolutions, which have kernels of their own, and of DELTA's */

/* Columns of a state, the oldest first, and one more. Here and below elements are read whether they count or not: in
 * a branch behind a comparison of the index compilers read at what it was compared with, from local memory. */
template <int TAPS> __device__ inline void shift(float (&window)[TAPS], int taps, float x)
{
#pragma unroll
    for (int i = 0; i + 1 < TAPS; i++) {
        const float old = window[i], next = window[i + 1];
        window[i] = i + 2 < taps ? next : i + 2 == taps ? x : old;
    }
}
/* Of these columns: 0 where there is none such. */
template <int TAPS> __device__ inline float column(const float (&window)[TAPS], int i)
{
    float x = 0;
#pragma unroll
    for (int m = 0; m < TAPS; m++) {
        const float here = window[m];
        x = m == i ? here : x;
    }
    return x;
}

/* w, seen: newest first. */
template <int TAPS> __device__ inline float convolved(const float (&w)[TAPS], const float (&seen)[TAPS], int taps)
{
    float sum = 0;
#pragma unroll
    for (int i = TAPS - 1; i >= 0; i--)
        if (i < taps) sum = __fmaf_rn(w[i], seen[i], sum);
    return act_silu(sum);
}
/* What the convolution of row j sees, newest first: row at[i] >= 0 of its path, or column taps - 1 + at[i] of the
 * state. */
template <int TAPS> __device__ inline void seen_rows(int (&at)[TAPS], int j, uint64_t path)
{
#pragma unroll
    for (int i = 0; i < TAPS; i++, j--) {
        while (j >= 0 && !(path >> j & 1)) j--;
        at[i] = j;
    }
}
/* The columns of a channel's state, the oldest first, where the step changes it. */
__device__ inline void keep_columns(const conv_state_args &a, const step_seq &q, int c, const float *columns,
                                    int stride)
{
    if (q.n_commit == 0 && q.past != 0) return;
    float *state = state_of(a.place, q.slot) + c;
    for (int i = 0; i + 1 < a.taps; i++) state[(uint64_t)i * a.channels] = columns[i * stride];
}

/* One channel of a sequence: its weights, and its state after what was accepted. */
template <int TAPS> struct channel {
    float w[TAPS], kept[TAPS];              /* w[i]: of the i-th newest; kept[i]: column i of the state, oldest first */
    float *state;

    __device__ void weights(const conv_state_args &a, int c)
    {
#pragma unroll
        for (int i = 0; i < TAPS; i++) w[i] = i < a.taps ? a.w[(uint64_t)c * a.taps + a.taps - 1 - i] : 0.0f;
    }
    __device__ void begin(const conv_state_args &a, const step_seq &q, int c)
    {
        const float *journal = journal_of(a.place, q.slot) + c;
        state = state_of(a.place, q.slot) + c;
#pragma unroll
        for (int i = 0; i < TAPS; i++)
            kept[i] = i + 1 < a.taps && q.past != q.n_commit ? state[(uint64_t)i * a.channels] : 0.0f;
        for (int i = max(0, q.n_commit - a.taps + 1); i < q.n_commit; i++)
            shift(kept, a.taps, journal[(uint64_t)q.commit[i] * a.channels]);
    }
    __device__ void keep(const conv_state_args &a) const
    {
#pragma unroll
        for (int i = 0; i < TAPS; i++)
            if (i + 1 < a.taps) state[(uint64_t)i * a.channels] = kept[i];
    }
};

#endif
