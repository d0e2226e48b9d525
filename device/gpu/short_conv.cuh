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

/* One channel of a sequence: its weights, and its state after what was accepted. */
template <int TAPS> struct channel {
    float w[TAPS], kept[TAPS];              /* w[i]: of the i-th newest; kept[i]: column i of the state, oldest first */
    float *state, *journal;

    __device__ void weights(const conv_state_args &a, int c)
    {
#pragma unroll
        for (int i = 0; i < TAPS; i++) w[i] = i < a.taps ? a.w[(uint64_t)c * a.taps + a.taps - 1 - i] : 0.0f;
    }
    __device__ void begin(const conv_state_args &a, const step_seq &q, int c)
    {
        state = state_of(a.place, q.slot) + c, journal = journal_of(a.place, q.slot) + c;
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
    __device__ float sum(const float (&seen)[TAPS], int taps) const
    {
        float s = 0;
#pragma unroll
        for (int i = TAPS - 1; i >= 0; i--)
            if (i < taps) s = __fmaf_rn(w[i], seen[i], s);
        return act_silu(s);
    }
};

#endif
