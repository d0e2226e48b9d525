/* device/gpu/short_conv.cu - SHORT_CONV. States and journals: tape/kv.h.
 *
 * A thread a channel. Narrow: the threads of a channel share the rows of some sequences, whose states and commits they
 * read before they write. What rows see is on its way meanwhile: the kernel before is a product that leaves no room for
 * blocks to come early, so loads must not wait for each other. Wide: a block has CONV_SLICE rows of a sequence at a
 * time and a window in registers; the block with the sequence's first row keeps its state.
 * Sum: taps upwards, fma. */
#include "device/gpu/short_conv.cuh"

enum { CONV_WIDE_THREADS = 128, CONV_THREADS = 32, CONV_ROWS = 16, TAPS_MOST = 16, CONV_SLICE = 32 };

/* What the convolution of a row of the step sees (seen_rows). */
template <int TAPS> struct conv_row {
    int seq, first, at[TAPS];
    float seen[TAPS];
    /* The rows on their way; seq is -1 where r is none of sequences s0 .. s1 - 1. c: channel. */
    __device__ void look(const conv_state_args &a, int r, int n_rows, int s0, int s1, int c)
    {
        seq = r < n_rows ? a.step->row[r].seq : -1, first = 0;
        if (seq < s0 || seq >= s1) seq = -1;
        if (seq < 0) return;
        first = a.step->seq[seq].first_row;
        seen_rows(at, r - first, a.step->row[r].path);
        const float *x = a.x + (uint64_t)first * a.x_cols + c;
#pragma unroll
        for (int i = 0; i < TAPS; i++) seen[i] = i < a.taps && at[i] >= 0 ? x[(uint64_t)at[i] * a.x_cols] : 0;
    }
};
/* Block: CONV_THREADS channels of CONV_ROWS sequences, a warp a row at a time. TAPS: as many as the convolution has, or
 * more. */
template <int TAPS>
__global__ void __launch_bounds__(CONV_THREADS * CONV_ROWS, TAPS > CONV_TAPS ? 1 : 3) conv_kernel(conv_state_args a)
{
    launch_dependents();
    __shared__ float kept[CONV_ROWS][TAPS][CONV_THREADS];
    const int lane = threadIdx.x % CONV_THREADS, c = blockIdx.x * CONV_THREADS + lane, n = a.channels, taps = a.taps;
    const int warp = threadIdx.x / CONV_THREADS, warps = blockDim.x / CONV_THREADS;
    const int s0 = blockIdx.y * CONV_ROWS, s1 = min(s0 + (int)CONV_ROWS, a.step->head.n_seqs);
    if (s0 >= s1 && blockIdx.y > 0) return;     /* the others wait */
    const int rows = c < n ? a.step->head.n_rows : 0, seqs = c < n ? s1 : 0;
    channel<TAPS> ch;
    conv_row<TAPS> row;
    if (c < n) ch.weights(a, c);
    wait_predecessor();
    row.look(a, warp, rows, s0, s1, c);
    for (int s = s0 + warp; s < seqs; s += warps) {
        ch.begin(a, a.step->seq[s], c);
#pragma unroll
        for (int i = 0; i < TAPS; i++) kept[s - s0][i][lane] = ch.kept[i];
    }
    __syncthreads();                        /* all have read what one of them writes */
    for (int r = warp; r < rows; r += warps, row.look(a, r, rows, s0, s1, c)) {
        if (row.seq < 0) continue;
#pragma unroll
        for (int i = 0; i < TAPS; i++)
            if (i < taps && row.at[i] < 0) row.seen[i] = kept[row.seq - s0][taps - 1 + row.at[i]][lane];
        a.y[(uint64_t)r * n + c] = convolved(ch.w, row.seen, taps);
        journal_of(a.place, a.step->seq[row.seq].slot)[(uint64_t)(r - row.first) * n + c] = row.seen[0];
    }
    for (int s = s0 + warp; s < seqs; s += warps)
        keep_columns(a, a.step->seq[s], c, &kept[s - s0][0][lane], CONV_THREADS);
}

/* Block: CONV_WIDE_THREADS channels; an item is CONV_SLICE rows of a sequence, or a sequence without rows. */
template <int TAPS> __global__ void __launch_bounds__(CONV_WIDE_THREADS) conv_wide_kernel(conv_state_args a)
{
    launch_dependents();
    const int c = blockIdx.x * CONV_WIDE_THREADS + threadIdx.x, n = a.channels, taps = a.taps;
    channel<TAPS> ch;
    if (c < n) ch.weights(a, c);
    wait_predecessor();
    if (c >= n) return;
    int item = blockIdx.y;
    for (int s = 0; s < a.step->head.n_seqs; s++) {
        const step_seq &q = a.step->seq[s];
        const int items = max(1, (q.n_rows + CONV_SLICE - 1) / CONV_SLICE);
        const float *x = a.x + (uint64_t)q.first_row * a.x_cols + c;
        for (; item < items; item += gridDim.y) {
            const int first = item * CONV_SLICE, end = min(first + CONV_SLICE, q.n_rows);
            float seen[TAPS];               /* seen[i]: the i-th newest */
#pragma unroll
            for (int i = 0; i < TAPS; i++)
                seen[i] = i + 1 < taps && first > i ? x[(uint64_t)(first - 1 - i) * a.x_cols] : 0.0f;
            if (first == 0 && (q.n_rows || q.n_commit || q.past == 0)) {
                ch.begin(a, q, c);
#pragma unroll
                for (int i = 0; i < TAPS; i++) {
                    const float old = seen[i], kept = column(ch.kept, taps - 2 - i);
                    seen[i] = i + 1 < taps ? kept : old;
                }
                for (int j = max(0, q.n_rows - taps + 1); j < q.n_rows; j++)
                    shift(ch.kept, taps, x[(uint64_t)j * a.x_cols]);
                ch.keep(a);
            }
#pragma unroll 4
            for (int j = first; j < end; j++) {
#pragma unroll
                for (int i = TAPS - 1; i > 0; i--) seen[i] = seen[i - 1];
                seen[0] = x[(uint64_t)j * a.x_cols];
                a.y[(uint64_t)(q.first_row + j) * n + c] = convolved(ch.w, seen, taps);
            }
        }
        item -= items;
    }
}

bool short_conv_can(int taps)
{
    return taps <= TAPS_MOST;
}
void launch_short_conv(launch *l, const conv_state_args *a, int rows, int seqs, bool wide)
{
    const int per = wide ? CONV_WIDE_THREADS : CONV_THREADS, at_once = rows < CONV_ROWS ? rows : CONV_ROWS;
    const dim3 grid((a->channels + per - 1) / per, wide ? (rows + CONV_SLICE - 1) / CONV_SLICE
                                                            : (seqs + CONV_ROWS - 1) / CONV_ROWS);
    const bool few = a->taps <= CONV_TAPS;
    void (*kernel)(conv_state_args) = wide ? few ? conv_wide_kernel<CONV_TAPS> : conv_wide_kernel<TAPS_MOST>
                                           : few ? conv_kernel<CONV_TAPS> : conv_kernel<TAPS_MOST>;
    fill_launch(l, kernel, grid, wide ? per : per * at_once, 0, *a);
}
