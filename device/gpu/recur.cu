/* device/gpu/recur.cu - SHORT_CONV and DELTA: the ops of recurrent layers. States and journals: tape/kv.h.
 *
 * SHORT_CONV: a thread a channel of one sequence; its taps - 1 columns of the state are in registers, commits and
 * rows follow each other. Rows of a wide step are cut into slices of blocks; the first slice keeps the state.
 * Sum: taps upwards, fma.
 *
 * DELTA, two launches.
 *   keys  norms queries and keys of each row and makes its gates, to scratch. Before it writes the journal it copies
 *         the accepted rows' keys and decays to scratch, where the second launch reads them: no block waits for
 *         another's journal.
 *   rows  two warps a block of 16 columns of one head's memory, which no other columns meet. Lane 8 q + c of warp w
 *         holds elements q, q + 4, ... of column 8 w + c in registers: the state after what was accepted, and a copy
 *         that follows the path. The memory is read and written once a step. Where a row does not continue the one
 *         before, the copy starts again and redoes the row's ancestors, which gives the bits that they gave.
 * Traffic: the memory once in and once out, 8 bytes an element. Sums over keys: ascending in a lane, then by
 * butterfly; they depend on k_dim alone. */
#include "device/gpu/rows.cuh"

enum { CONV_THREADS = 128, TAPS_MOST = 16, WIDE_SLICE = 64, KEY_THREADS = 256, DELTA_THREADS = 64, QUARTERS = 4,
       BATCH = 8, KEY_MOST = 256 };

__device__ inline float *state_of(const state_place &p, int slot)
{
    return p.state + (uint64_t)slot * p.state_page;
}
__device__ inline float *journal_of(const state_place &p, int slot)
{
    return p.journal + (uint64_t)slot * p.journal_page;
}

/* ---- SHORT_CONV ----------------------------------------------------------------------------------------------- */
template <int TAPS> __device__ inline void shift(float (&window)[TAPS], int taps, float x)
{
#pragma unroll
    for (int i = 0; i + 1 < TAPS; i++)
        if (i + 2 < taps) window[i] = window[i + 1];
        else if (i + 2 == taps) window[i] = x;
}

/* TAPS: at least as many as the convolution has. */
template <int TAPS> __global__ void __launch_bounds__(CONV_THREADS) conv_kernel(conv_state_args a)
{
    launch_dependents();
    wait_predecessor();
    const int c = blockIdx.x * CONV_THREADS + threadIdx.x, taps = a.taps, n = a.channels;
    if (c >= n || (int)blockIdx.y >= a.step->head.n_seqs) return;
    const step_seq &q = a.step->seq[blockIdx.y];
    const bool wide = a.step->head.wide;
    float *state = state_of(a.place, q.slot) + c, *journal = journal_of(a.place, q.slot) + c;
    const int first = wide ? blockIdx.z * WIDE_SLICE : 0, end = wide ? min(first + WIDE_SLICE, q.n_rows) : q.n_rows;
    float w[TAPS], kept[TAPS];              /* w[i]: of the i-th newest; kept[i]: column i of the state, oldest first */
#pragma unroll
    for (int i = 0; i < TAPS; i++) {
        w[i] = i < taps ? a.w[(uint64_t)c * taps + taps - 1 - i] : 0.0f;
        kept[i] = i + 1 < taps && first == 0 && q.past != q.n_commit ? state[(uint64_t)i * n] : 0.0f;
    }
    for (int i = 0; i < q.n_commit && first == 0; i++) shift(kept, taps, journal[(uint64_t)q.commit[i] * n]);
    const float *x = a.x + (uint64_t)q.first_row * n + c;
    for (int j = first; j < end; j++) {
        const uint64_t path = wide ? ~(uint64_t)0 : a.step->row[q.first_row + j].path;
        float sum = 0, seen[TAPS];          /* seen[i]: the i-th newest */
        int at = j;
#pragma unroll
        for (int i = 0; i < TAPS; i++) {    /* then columns of the state, newest first */
            seen[i] = 0;
            if (i >= taps) continue;
            while (at >= 0 && !wide && !(path >> at & 1)) at--;
            if (at >= 0) seen[i] = x[(uint64_t)at * n];
            else {
#pragma unroll
                for (int m = 0; m < TAPS; m++)
                    if (m == taps - 1 + at) seen[i] = kept[m];
            }
            at--;
        }
#pragma unroll
        for (int i = TAPS - 1; i >= 0; i--)
            if (i < taps) sum = __fmaf_rn(w[i], seen[i], sum);
        a.y[(uint64_t)(q.first_row + j) * n + c] = act_silu(sum);
        if (!wide) journal[(uint64_t)j * n] = seen[0];
    }
    if (first || (!wide && q.n_commit == 0 && q.past != 0)) return;
    if (wide)
        for (int j = max(0, q.n_rows - taps + 1); j < q.n_rows; j++) shift(kept, taps, x[(uint64_t)j * n]);
#pragma unroll
    for (int i = 0; i < TAPS; i++)
        if (i + 1 < taps) state[(uint64_t)i * n] = kept[i];
}
bool recur_can(int taps, int k_dim)
{
    return taps <= TAPS_MOST && k_dim <= KEY_MOST;
}
void launch_short_conv(launch *l, const conv_state_args *a, int rows, int seqs, bool wide)
{
    const dim3 grid((a->channels + CONV_THREADS - 1) / CONV_THREADS, seqs,
                    wide ? (rows + WIDE_SLICE - 1) / WIDE_SLICE : 1);
    if (a->taps <= 4) fill_launch(l, conv_kernel<4>, grid, CONV_THREADS, 0, *a);
    else fill_launch(l, conv_kernel<TAPS_MOST>, grid, CONV_THREADS, 0, *a);
}

/* ---- DELTA ---------------------------------------------------------------------------------------------------- */
__device__ inline int key_head_of(const delta_args &a, int head)
{
    return a.grouped ? head / (a.v_heads / a.k_heads) : head % a.k_heads;
}

/* Block: a key head of one sequence (z: its share of a wide step's rows); a warp a row. */
__global__ void __launch_bounds__(KEY_THREADS) delta_keys_kernel(delta_args a)
{
    launch_dependents();
    wait_predecessor();
    if ((int)blockIdx.y >= a.step->head.n_seqs) return;
    const step_seq &q = a.step->seq[blockIdx.y];
    const bool wide = a.step->head.wide;
    const int head = blockIdx.x, n = a.k_dim, keys = a.k_heads * n, warp = threadIdx.x / WARP;
    const int lane = threadIdx.x % WARP, warps = KEY_THREADS / WARP, per = a.v_heads / a.k_heads;
    float *journal = journal_of(a.place, q.slot), *key_rows = journal + a.keys_at, *decay_rows = journal + a.decays_at;
    if (blockIdx.z == 0)
        for (int i = warp; i < q.n_commit; i += warps) {
            const uint64_t to = (uint64_t)blockIdx.y * NARROW_ROWS + i;
            for (int e = lane; e < n; e += WARP)
                a.old_keys[to * keys + head * n + e] = key_rows[(uint64_t)q.commit[i] * keys + head * n + e];
            for (int h = lane; h < a.v_heads; h += WARP)
                if (key_head_of(a, h) == head)
                    a.old_decays[to * a.v_heads + h] = decay_rows[(uint64_t)q.commit[i] * a.v_heads + h];
        }
    __syncthreads();                        /* now the journal may be written */
    for (int j = blockIdx.z * warps + warp; j < q.n_rows; j += gridDim.z * warps) {
        const uint64_t row = q.first_row + j;
        for (int i = 0; i < 2; i++) {
            const float *x = a.x + row * a.channels + i * keys + head * n;
            float sum = 0;
            for (int e = lane; e < n; e += WARP) sum = __fmaf_rn(x[e], x[e], sum);
            const float length = sqrtf(warp_sum(sum)), least = length > a.eps ? length : a.eps;
            const float scale = 1.0f / (i ? least : least * sqrtf((float)n));
            float *to = (i ? a.k : a.q) + row * keys + head * n;
            for (int e = lane; e < n; e += WARP) {
                const float v = x[e] * scale;
                to[e] = v;
                if (i && !wide) key_rows[(uint64_t)j * keys + head * n + e] = v;
            }
        }
        const float *g = a.gates + row * 2 * a.v_heads;
        for (int h = lane; h < a.v_heads; h += WARP) {
            if (key_head_of(a, h) != head) continue;
            const int in_group = h / per * 2 * per + h % per;
            const float z = g[a.grouped ? in_group + per : h] + a.dt[h];
            const float decay = expf((z > 20 ? z : log1pf(expf(z))) * a.a[h]);
            a.decay[row * a.v_heads + h] = decay;
            a.beta[row * a.v_heads + h] = 1.0f / (1.0f + expf(-g[a.grouped ? in_group : a.v_heads + h]));
            if (!wide) decay_rows[(uint64_t)j * a.v_heads + h] = decay;
        }
    }
}

/* s = decay * s + key * d, for this lane's elements. */
template <int N> __device__ inline void redo(float (&s)[N], const float *key, int n, int quarter, float d, float decay)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int e = quarter + QUARTERS * i;
        if (e < n) s[i] = __fmaf_rn(key[e], d, decay * s[i]);
    }
}
/* Sum over a column's lanes, in all of them. */
__device__ inline float quarters_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 8);
    return x + __shfl_xor_sync(0xffffffffu, x, 16);
}

struct delta_shared {
    float q[BATCH][KEY_MOST], k[BATCH][KEY_MOST], v[BATCH][16], decay[BATCH], beta[BATCH];
};

/* N: elements of a lane, QUARTERS N >= k_dim.
 * Long: the memory stays in registers from the commit to the last row. */
template <int N> __global__ void __launch_bounds__(DELTA_THREADS) delta_kernel(delta_args a)
{
    __shared__ delta_shared sh;
    launch_dependents();
    wait_predecessor();
    if ((int)blockIdx.y >= a.step->head.n_seqs) return;
    const step_seq &q = a.step->seq[blockIdx.y];
    const bool wide = a.step->head.wide;
    const int blocks = a.v_dim / 16, head = blockIdx.x / blocks, block = blockIdx.x % blocks, n = a.k_dim;
    const int lane = threadIdx.x % WARP, quarter = lane / 8, in_block = threadIdx.x / WARP * 8 + lane % 8;
    const int keys = a.k_heads * n, values = a.v_heads * a.v_dim, key_at = key_head_of(a, head) * n;
    const int value_at = head * a.v_dim + block * 16, column = value_at + in_block;
    float *state = state_of(a.place, q.slot) + a.memory_at + ((uint64_t)head * blocks + block) * n * 16 + in_block;
    float *corrections = journal_of(a.place, q.slot) + a.corrections_at + column;
    float start[N], s[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int e = quarter + QUARTERS * i;
        start[i] = e < n && q.past != q.n_commit ? state[e * 16] : 0.0f;
    }
    for (int i = 0; i < q.n_commit; i++) {
        const uint64_t from = (uint64_t)blockIdx.y * NARROW_ROWS + i;
        redo(start, a.old_keys + from * keys + key_at, n, quarter, corrections[(uint64_t)q.commit[i] * values],
             a.old_decays[from * a.v_heads + head]);
    }
    if (!wide && (q.n_commit || q.past == 0)) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int e = quarter + QUARTERS * i;
            if (e < n) state[e * 16] = start[i];
        }
    }
    __syncwarp();                           /* the commit's corrections are read: rows may write theirs */
#pragma unroll
    for (int i = 0; i < N; i++) s[i] = start[i];
    uint64_t holds = 0;                     /* path of the row that s stands after */
    for (int j0 = 0; j0 < q.n_rows; j0 += BATCH) {
        const int batch = min(BATCH, q.n_rows - j0);
        __syncthreads();
        for (int i = threadIdx.x; i < batch * n; i += DELTA_THREADS) {
            const uint64_t at = (uint64_t)(q.first_row + j0 + i / n) * keys + key_at + i % n;
            sh.q[i / n][i % n] = a.q[at];
            sh.k[i / n][i % n] = a.k[at];
        }
        for (int i = threadIdx.x; i < batch * 16; i += DELTA_THREADS)
            sh.v[i / 16][i % 16] =
                a.x[(uint64_t)(q.first_row + j0 + i / 16) * a.channels + 2 * keys + value_at + i % 16];
        if ((int)threadIdx.x < batch) {
            const uint64_t at = (uint64_t)(q.first_row + j0 + threadIdx.x) * a.v_heads + head;
            sh.decay[threadIdx.x] = a.decay[at];
            sh.beta[threadIdx.x] = a.beta[at];
        }
        __syncthreads();
        for (int b = 0; b < batch; b++) {
            const int j = j0 + b;
            if (!wide) {
                const uint64_t path = a.step->row[q.first_row + j].path, before = path & ~((uint64_t)1 << j);
                if (before != holds) {
#pragma unroll
                    for (int i = 0; i < N; i++) s[i] = start[i];
                    for (int e = 0; e < j; e++) {
                        if (!(before >> e & 1)) continue;
                        const uint64_t row = q.first_row + e;
                        redo(s, a.k + row * keys + key_at, n, quarter, corrections[(uint64_t)e * values],
                             a.decay[row * a.v_heads + head]);
                    }
                }
                holds = path;
            }
            float sum = 0;
#pragma unroll
            for (int i = 0; i < N; i++) {
                const int e = quarter + QUARTERS * i;
                if (e < n) sum = __fmaf_rn(sh.k[b][e], s[i], sum);
            }
            const float decay = sh.decay[b];
            const float d = sh.beta[b] * __fmaf_rn(-decay, quarters_sum(sum), sh.v[b][in_block]);
            if (!wide && quarter == 0) corrections[(uint64_t)j * values] = d;
            redo(s, sh.k[b], n, quarter, d, decay);
            float o = 0;
#pragma unroll
            for (int i = 0; i < N; i++) {
                const int e = quarter + QUARTERS * i;
                if (e < n) o = __fmaf_rn(sh.q[b][e], s[i], o);
            }
            o = quarters_sum(o);
            if (quarter == 0) a.y[(uint64_t)(q.first_row + j) * values + column] = o;
            __syncwarp();                   /* the correction is seen by the column's other lanes */
        }
    }
    if (!wide) return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int e = quarter + QUARTERS * i;
        if (e < n) state[e * 16] = s[i];
    }
}
uint64_t delta_scratch(const delta_args *a, int rows, int seqs)
{
    const uint64_t keys = (uint64_t)a->k_heads * a->k_dim, old = (uint64_t)seqs * NARROW_ROWS;
    return rows * 2 * (keys + a->v_heads) + old * (keys + a->v_heads);
}
int launch_delta(launch *l, const delta_args *from, float *scratch, int rows, int seqs, bool wide)
{
    delta_args a = *from;
    const uint64_t keys = (uint64_t)a.k_heads * a.k_dim;
    a.q = scratch;
    a.k = a.q + rows * keys;
    a.old_keys = a.k + rows * keys;
    a.decay = a.old_keys + (uint64_t)seqs * NARROW_ROWS * keys;
    a.beta = a.decay + (uint64_t)rows * a.v_heads;
    a.old_decays = a.beta + (uint64_t)rows * a.v_heads;
    fill_launch(l, delta_keys_kernel, dim3(a.k_heads, seqs, wide ? 16 : 1), KEY_THREADS, 0, a);
    const dim3 grid(a.v_heads * (a.v_dim / 16), seqs);
    if (a.k_dim <= 128) fill_launch(l + 1, delta_kernel<32>, grid, DELTA_THREADS, 0, a);
    else fill_launch(l + 1, delta_kernel<KEY_MOST / QUARTERS>, grid, DELTA_THREADS, 0, a);
    return 2;
}
