/* device/gpu/recur.cu - SHORT_CONV and DELTA: the ops of recurrent layers. States and journals: tape/kv.h.
 *
 * What a kernel reads before it waits for its predecessor: the step, weights, and the layer's state and journal,
 * which only the step before wrote.
 *
 * SHORT_CONV: a thread a channel. Narrow: the threads of a channel share the rows of one sequence; all of them read
 * the state and the commits before one of them writes. Wide: a block has CONV_SLICE rows of a sequence at a time and a
 * window in registers; the block with the sequence's first row keeps its state. Sum: taps upwards, fma.
 *
 * DELTA: four warps a block of 16 columns of one head's memory, which no other columns meet. Lane 4 p + c of
 * warp w holds elements 32 i + 4 p + (0 .. 3) of column 4 w + c in registers: the state after what was accepted, and
 * a copy that follows the path. The memory is read and written once a step. Where a row does not continue the one
 * before, the copy starts again and redoes the row's ancestors, which gives the bits that they gave.
 * Every block norms the keys that it needs. The journal's keys and decays are written for all blocks of a key head by
 * the last of them that has read the old ones.
 * o = decay S^T q + (k . q) d, so that both sums over a column go over the memory before the row.
 * In steps of few rows DELTA does SHORT_CONV's work: a block convolves the channels that it reads, in shared memory,
 * a thread a channel. Those of values are its own; state and inputs of queries and keys are written by the block that
 * writes the journal's keys, since all blocks of the key head convolve them again.
 * Traffic: the memory once in and once out, 8 bytes an element. Sums over keys: four in a lane, each ascending, then
 * by butterfly; they depend on k_dim alone. */
#include "device/gpu/delta.cuh"

enum { CONV_WIDE_THREADS = 128, CONV_THREADS = 32, CONV_ROWS = 8, TAPS_MOST = 16, CONV_SLICE = 32,
       CONV_TAPS = 4, DELTA_THREADS = 128, WARP_COLUMNS = 4, PARTS = WARP / WARP_COLUMNS, BATCH = 8, KEY_MOST = 256 };

/* ---- SHORT_CONV ----------------------------------------------------------------------------------------------- */
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
    /* The inputs of row j, newest first: rows of its path, then columns of the state. x: of row 0. */
    __device__ void see(float (&seen)[TAPS], int taps, int j, uint64_t path, const float *x, int stride) const
    {
#pragma unroll
        for (int i = 0; i < TAPS; i++) {
            seen[i] = 0;
            if (i >= taps) continue;
            while (j >= 0 && !(path >> j & 1)) j--;
            seen[i] = j >= 0 ? x[(uint64_t)j * stride] : column(kept, taps - 1 + j);
            j--;
        }
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

/* Block: CONV_THREADS channels times the rows at work. TAPS: at least as many as the convolution has. */
template <int TAPS> __global__ void __launch_bounds__(CONV_THREADS * CONV_ROWS) conv_kernel(conv_state_args a)
{
    launch_dependents();
    const int c = blockIdx.x * CONV_THREADS + threadIdx.x % CONV_THREADS, n = a.channels, taps = a.taps;
    const int first = threadIdx.x / CONV_THREADS, step = blockDim.x / CONV_THREADS;
    if ((int)blockIdx.y >= a.step->head.n_seqs) return wait_predecessor();
    const step_seq &q = a.step->seq[blockIdx.y];
    channel<TAPS> ch;
    if (c < n) ch.weights(a, c), ch.begin(a, q, c);
    wait_predecessor();
    __syncthreads();                        /* all have read what one of them writes */
    if (c >= n) return;
    const float *x = a.x + (uint64_t)q.first_row * a.x_cols + c;
    for (int j = first; j < q.n_rows; j += step) {
        float seen[TAPS];
        ch.see(seen, taps, j, a.step->row[q.first_row + j].path, x, a.x_cols);
        a.y[(uint64_t)(q.first_row + j) * n + c] = ch.sum(seen, taps);
        ch.journal[(uint64_t)j * n] = seen[0];
    }
    if (first == 0 && (q.n_commit || q.past == 0)) ch.keep(a);
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
                a.y[(uint64_t)(q.first_row + j) * n + c] = ch.sum(seen, taps);
            }
        }
        item -= items;
    }
}
bool recur_can(int taps, int k_dim)
{
    return taps <= TAPS_MOST && k_dim <= KEY_MOST;
}
void launch_short_conv(launch *l, const conv_state_args *a, int rows, int seqs, bool wide)
{
    const int per = wide ? CONV_WIDE_THREADS : CONV_THREADS, at_once = rows < CONV_ROWS ? rows : CONV_ROWS;
    const dim3 grid((a->channels + per - 1) / per, wide ? (rows + CONV_SLICE - 1) / CONV_SLICE : seqs);
    const bool few = a->taps <= CONV_TAPS;
    void (*kernel)(conv_state_args) = wide ? few ? conv_wide_kernel<CONV_TAPS> : conv_wide_kernel<TAPS_MOST>
                                           : few ? conv_kernel<CONV_TAPS> : conv_kernel<TAPS_MOST>;
    fill_launch(l, kernel, grid, wide ? per : per * at_once, 0, *a);
}

/* ---- DELTA ---------------------------------------------------------------------------------------------------- */
/* s = decay * s + k * d */
__device__ inline void redo(float (&s)[4], float4 k, float d, float decay)
{
    s[0] = __fmaf_rn(k.x, d, decay * s[0]), s[1] = __fmaf_rn(k.y, d, decay * s[1]);
    s[2] = __fmaf_rn(k.z, d, decay * s[2]), s[3] = __fmaf_rn(k.w, d, decay * s[3]);
}
__device__ inline void add_products(float (&sum)[4], float4 x, const float (&s)[4])
{
    sum[0] = __fmaf_rn(x.x, s[0], sum[0]), sum[1] = __fmaf_rn(x.y, s[1], sum[1]);
    sum[2] = __fmaf_rn(x.z, s[2], sum[2]), sum[3] = __fmaf_rn(x.w, s[3], sum[3]);
}
/* Sum over a column's lanes, in all of them. */
__device__ inline float column_sum(const float (&x)[4])
{
    float sum = (x[0] + x[1]) + (x[2] + x[3]);
#pragma unroll
    for (int by = WARP_COLUMNS; by < WARP; by *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    return sum;
}

/* KEY: elements of a key here, zeros after k_dim. Two batches: one at work, one on its way. */
template <int KEY> struct delta_shared {
    float q[2][BATCH][KEY], k[2][BATCH][KEY], v[2][BATCH][16];
    float kq[BATCH], beta[BATCH];
    float key_scale[NARROW_ROWS], decay[NARROW_ROWS];       /* of all rows (of the batch, in wide steps) */
    uint64_t path[BATCH];
    int last;                   /* this block writes the journal's keys */
};

/* A block's view of one head's columns in one sequence. */
struct delta_block {
    int head, key_head, key_at, value_at, column, n, part, in_block;
    float *state, *keys, *decays, *corrections;             /* of the slot */
};

/* A block reads 2 n + 16 channels of a row: where the e-th lies in a batch, and which it is. */
template <int KEY> __device__ inline float *staged(delta_shared<KEY> &sh, const delta_block &b, int to, int r, int e)
{
    return e < b.n ? &sh.q[to][r][e] : e < 2 * b.n ? &sh.k[to][r][e - b.n] : &sh.v[to][r][e - 2 * b.n];
}
__device__ inline int channel_of(const delta_args &a, const delta_block &b, int e)
{
    const int keys = a.k_heads * b.n;
    return e < b.n ? b.key_at + e : e < 2 * b.n ? keys + b.key_at + e - b.n : 2 * keys + b.value_at + e - 2 * b.n;
}

/* Rows first .. first + count - 1 of the sequence on their way to shared memory. */
template <int KEY>
__device__ inline void stage(const delta_args &a, const delta_block &b, delta_shared<KEY> &sh, int to, uint64_t row,
                             int count)
{
    const int each = 2 * b.n + 16;
    if (b.n % 4 == 0 && a.x_cols % 4 == 0) {
        for (int i = threadIdx.x; i < count * (each / 4); i += DELTA_THREADS) {
            const int r = i / (each / 4), e = i % (each / 4) * 4;
            copy16(staged(sh, b, to, r, e), a.x + (row + r) * a.x_cols + channel_of(a, b, e));
        }
        return;
    }
    for (int i = threadIdx.x; i < count * each; i += DELTA_THREADS) {
        const int r = i / each, e = i % each;
        *staged(sh, b, to, r, e) = a.x[(row + r) * a.x_cols + channel_of(a, b, e)];
    }
}

/* SHORT_CONV of the channels that a block reads. */
template <int KEY> struct block_conv {
    enum { EACH = (2 * KEY + 16 + DELTA_THREADS - 1) / DELTA_THREADS };
    channel<CONV_TAPS> of[EACH];

    __device__ void begin(const delta_args &a, const delta_block &b, const step_seq &q)
    {
#pragma unroll
        for (int m = 0; m < EACH; m++) {
            const int e = threadIdx.x + m * DELTA_THREADS;
            if (e >= 2 * b.n + 16) continue;
            of[m].weights(a.conv, channel_of(a, b, e)), of[m].begin(a.conv, q, channel_of(a, b, e));
        }
    }
    /* The first batch's rows in place: the last first, as those behind a row see what went into it. */
    __device__ void rows(const delta_args &a, const delta_block &b, delta_shared<KEY> &sh, const step_seq &q)
    {
#pragma unroll
        for (int m = 0; m < EACH; m++) {
            const int e = threadIdx.x + m * DELTA_THREADS, stride = e < 2 * b.n ? (int)KEY : 16;
            if (e >= 2 * b.n + 16) continue;
            const bool writes = e >= 2 * b.n || sh.last;
            float *x = staged(sh, b, 0, 0, e);
            for (int j = q.n_rows - 1; j >= 0; j--) {
                float seen[CONV_TAPS];
                of[m].see(seen, a.conv.taps, j, sh.path[j], x, stride);
                x[j * stride] = of[m].sum(seen, a.conv.taps);
                if (writes) of[m].journal[(uint64_t)j * a.conv.channels] = seen[0];
            }
            if (writes && (q.n_commit || q.past == 0)) of[m].keep(a.conv);
        }
    }
};

/* Even warps norm the batch's queries and multiply them with keys, odd ones norm the keys and make the gates. at: place
 * of the batch in key_scale and decay. */
template <int KEY>
__device__ inline void prepare(const delta_args &a, const delta_block &b, delta_shared<KEY> &sh, int buffer, int at,
                               float2 gates, int count)
{
    enum { ROWS = BATCH * 2 * WARP / DELTA_THREADS };       /* of a warp */
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, first = warp / 2 * ROWS;
    const bool keys = warp % 2;
    float (*rows)[KEY] = keys ? sh.k[buffer] : sh.q[buffer];
    float sum[ROWS], dot[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        sum[r] = dot[r] = 0;
#pragma unroll
        for (int e = 0; e < KEY; e += 4 * WARP) {
            const float4 x = *(const float4 *)&rows[first + r][e + 4 * lane];
            const float4 y = *(const float4 *)&sh.k[buffer][first + r][e + 4 * lane];
            sum[r] = __fmaf_rn(x.x, x.x, sum[r]), sum[r] = __fmaf_rn(x.y, x.y, sum[r]);
            sum[r] = __fmaf_rn(x.z, x.z, sum[r]), sum[r] = __fmaf_rn(x.w, x.w, sum[r]);
            dot[r] = __fmaf_rn(x.x, y.x, dot[r]), dot[r] = __fmaf_rn(x.y, y.y, dot[r]);
            dot[r] = __fmaf_rn(x.z, y.z, dot[r]), dot[r] = __fmaf_rn(x.w, y.w, dot[r]);
        }
        sum[r] = warp_sum(sum[r]);
        if (!keys) dot[r] = warp_sum(dot[r]);
    }
    __syncthreads();                        /* the raw keys are read */
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float length = sqrtf(sum[r]), least = length > a.eps ? length : a.eps;
        const float scale = 1.0f / (keys ? least : least * sqrtf((float)b.n));
#pragma unroll
        for (int e = 0; e < KEY; e += 4 * WARP) {
            float4 *x = (float4 *)&rows[first + r][e + 4 * lane];
            *x = make_float4(x->x * scale, x->y * scale, x->z * scale, x->w * scale);
        }
        if (lane != r) continue;
        if (keys) sh.key_scale[at + first + r] = scale;
        else sh.kq[first + r] = dot[r] * scale;
    }
    if (warp == 1 && lane < count) {
        sh.decay[at + lane] = decay_of(a, gates.x, b.head);
        sh.beta[lane] = 1.0f / (1.0f + expf(-gates.y));
    }
    __syncthreads();
}

/* The memory after the ancestors `path` of a row, from what stands behind the commits. CONV: their keys are in the
 * batch. */
template <int N, bool CONV, int KEY>
__device__ inline void follow(const delta_args &a, const delta_block &b, const delta_shared<KEY> &sh, const step_seq &q,
                              uint64_t path, int rows, const float (&start)[N][4], float (&s)[N][4])
{
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int r = 0; r < 4; r++) s[i][r] = start[i][r];
    for (int e = 0; e < rows; e++) {
        if (!(path >> e & 1)) continue;
        const float *x = a.x + (uint64_t)(q.first_row + e) * a.x_cols + a.k_heads * b.n + b.key_at;
        const float scale = sh.key_scale[e], d = b.corrections[(uint64_t)e * a.v_heads * a.v_dim];
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int at = 4 * (PARTS * i + b.part);
            float4 k;
            if (CONV) k = *(const float4 *)&sh.k[0][e][at];
            else k = four(x, at, b.n), k = make_float4(k.x * scale, k.y * scale, k.z * scale, k.w * scale);
            redo(s[i], k, d, sh.decay[e]);
        }
    }
}

/* Keys and decays of the batch's rows j0 .. into the journal. */
template <int KEY>
__device__ inline void write_journal(const delta_args &a, const delta_block &b, const delta_shared<KEY> &sh, int buffer,
                                     const step_seq &q, int j0, int count)
{
    const int keys = a.k_heads * b.n, per = a.v_heads / a.k_heads;
    for (int i = threadIdx.x; i < count * b.n; i += DELTA_THREADS)
        b.keys[(uint64_t)(j0 + i / b.n) * keys + b.key_at + i % b.n] = sh.k[buffer][i / b.n][i % b.n];
    for (int i = threadIdx.x; i < count * per; i += DELTA_THREADS) {
        const int j = j0 + i / per, head = value_head_of(a, b.key_head, i % per);
        b.decays[(uint64_t)j * a.v_heads + head] = decay_of(a, gates_of(a, q.first_row + j, head).x, head);
    }
}

__device__ inline delta_block block_of(const delta_args &a, const step_seq &q)
{
    delta_block b;
    const int blocks = a.v_dim / 16, lane = threadIdx.x % WARP, block = blockIdx.x % blocks;
    float *journal = journal_of(a.place, q.slot);
    b.head = blockIdx.x / blocks, b.key_head = key_head_of(a, b.head), b.n = a.k_dim;
    b.part = lane / WARP_COLUMNS, b.in_block = threadIdx.x / WARP * WARP_COLUMNS + lane % WARP_COLUMNS;
    b.key_at = b.key_head * b.n, b.value_at = b.head * a.v_dim + block * 16, b.column = b.value_at + b.in_block;
    b.state = state_of(a.place, q.slot) + a.memory_at + ((uint64_t)b.head * blocks + block) * b.n * 16 + b.in_block;
    b.keys = journal + a.keys_at, b.decays = journal + a.decays_at;
    b.corrections = journal + a.corrections_at + b.column;
    return b;
}

/* The memory after what was accepted. */
template <int N>
__device__ inline void commit(const delta_args &a, const delta_block &b, const step_seq &q, float (&s)[N][4])
{
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const int e = 4 * (PARTS * i + b.part) + r;
            s[i][r] = e < b.n && q.past != q.n_commit ? b.state[e * 16] : 0.0f;
        }
    for (int c = 0; c < q.n_commit; c++) {
        const uint64_t row = q.commit[c];
        const float d = b.corrections[row * a.v_heads * a.v_dim], decay = b.decays[row * a.v_heads + b.head];
#pragma unroll
        for (int i = 0; i < N; i++)
            redo(s[i], four(b.keys + row * a.k_heads * b.n + b.key_at, 4 * (PARTS * i + b.part), b.n), d, decay);
    }
}
template <int N> __device__ inline void put_memory(const delta_block &b, const float (&s)[N][4])
{
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const int e = 4 * (PARTS * i + b.part) + r;
            if (e < b.n) b.state[e * 16] = s[i][r];
        }
}

/* FEW: at most BATCH rows, which SHORT_CONV has not seen. */
enum delta_kind { DELTA_WIDE, DELTA_NARROW, DELTA_FEW };

/* N: four elements each of a lane, 4 PARTS N >= k_dim. WIDE: rows change the memory at once.
 * Long: the memory stays in registers from the commit to the last row. */
template <int N, delta_kind KIND> __global__ void __launch_bounds__(DELTA_THREADS) delta_kernel(delta_args a)
{
    constexpr int KEY = 4 * PARTS * N;
    constexpr bool WIDE = KIND == DELTA_WIDE, CONV = KIND == DELTA_FEW;
    __shared__ __align__(16) delta_shared<KEY> sh;
    launch_dependents();
    if (a.k_dim < KEY)
        for (int i = threadIdx.x; i < 2 * BATCH * KEY; i += DELTA_THREADS)
            (&sh.q[0][0][0])[i] = (&sh.k[0][0][0])[i] = 0;
    __syncthreads();
    for (int seq = blockIdx.y; seq < a.step->head.n_seqs; seq += gridDim.y) {
        const step_seq &q = a.step->seq[seq];
        const delta_block b = block_of(a, q);
        float start[N][4], s[N][4];
        block_conv<KEY> conv;
        if (CONV) conv.begin(a, b, q);
        if (CONV && (int)threadIdx.x < q.n_rows) sh.path[threadIdx.x] = a.step->row[q.first_row + threadIdx.x].path;
        commit(a, b, q, WIDE ? s : start);
        if (!WIDE && (q.n_commit || q.past == 0)) put_memory(b, start);
        __syncthreads();                    /* the old keys are read */
        if (!WIDE && threadIdx.x == 0) {
            const int all = a.v_heads / a.k_heads * (a.v_dim / 16);
            int32_t *arrived = a.arrived + (uint64_t)q.slot * a.k_heads + b.key_head;
            __threadfence();
            sh.last = atomicAdd(arrived, 1) == all - 1;
            if (sh.last) *arrived = 0;
        }
        wait_predecessor();
        auto fetch = [&](int j0) {          /* the gates of one of its rows are the thread's */
            const int count = min((int)BATCH, q.n_rows - j0), lane = threadIdx.x % WARP;
            if (count > 0) stage(a, b, sh, j0 / BATCH % 2, q.first_row + j0, count);
            copy_commit();
            return lane < count ? gates_of(a, q.first_row + j0 + lane, b.head) : make_float2(0, 0);
        };
        float2 gates = fetch(0);
        if (CONV) {
            copy_wait<0>();
            __syncthreads();
            conv.rows(a, b, sh, q);
        }
        uint64_t holds = 0;                 /* path of the row that s stands after */
        if (!WIDE) follow<N, CONV>(a, b, sh, q, 0, 0, start, s);
        for (int j0 = 0; j0 < q.n_rows; j0 += BATCH) {
            const int count = min((int)BATCH, q.n_rows - j0), buffer = j0 / BATCH % 2, at = WIDE ? 0 : j0;
            const float2 next = fetch(j0 + BATCH);
            if (!WIDE && !CONV && (int)threadIdx.x < count)
                sh.path[threadIdx.x] = a.step->row[q.first_row + j0 + threadIdx.x].path;
            copy_wait<1>();
            __syncthreads();
            prepare(a, b, sh, buffer, at, gates, count);
            gates = next;
            for (int r = 0; r < count; r++) {
                const int j = j0 + r;
                if (!WIDE) {
                    const uint64_t path = sh.path[r], before = path & ~((uint64_t)1 << j);
                    if (before != holds) follow<N, CONV>(a, b, sh, q, before, j, start, s);
                    holds = path;
                }
                float known[4] = { 0, 0, 0, 0 }, seen[4] = { 0, 0, 0, 0 };
                float4 k[N];
#pragma unroll
                for (int i = 0; i < N; i++) {
                    k[i] = *(const float4 *)&sh.k[buffer][r][4 * (PARTS * i + b.part)];
                    add_products(known, k[i], s[i]);
                    add_products(seen, *(const float4 *)&sh.q[buffer][r][4 * (PARTS * i + b.part)], s[i]);
                }
                const float decay = sh.decay[at + r], of_k = column_sum(known), of_q = column_sum(seen);
                const float d = sh.beta[r] * __fmaf_rn(-decay, of_k, sh.v[buffer][r][b.in_block]);
                if (b.part == 0) {
                    a.y[(uint64_t)(q.first_row + j) * a.v_heads * a.v_dim + b.column] =
                        __fmaf_rn(sh.kq[r] * sh.key_scale[at + r], d, decay * of_q);
                    if (!WIDE) b.corrections[(uint64_t)j * a.v_heads * a.v_dim] = d;
                }
#pragma unroll
                for (int i = 0; i < N; i++) redo(s[i], k[i], d, decay);
                if (!WIDE) __syncwarp();    /* the correction is seen by the column's other lanes */
            }
            if (!WIDE && sh.last) write_journal(a, b, sh, buffer, q, j0, count);
            __syncthreads();                /* the buffer may be filled again */
        }
        if (WIDE && (q.n_rows || q.n_commit || q.past == 0)) put_memory(b, s);
        copy_wait<0>();
        __syncthreads();
    }
    wait_predecessor();
}
template <delta_kind KIND> static void launch_delta_kind(launch *l, const delta_args *a, int seqs)
{
    const dim3 grid(a->v_heads * (a->v_dim / 16), seqs);
    if (a->k_dim <= 128) fill_launch(l, delta_kernel<128 / (4 * PARTS), KIND>, grid, DELTA_THREADS, 0, *a);
    else fill_launch(l, delta_kernel<KEY_MOST / (4 * PARTS), KIND>, grid, DELTA_THREADS, 0, *a);
}
bool delta_can_convolve(int taps, int rows)
{
    return taps <= CONV_TAPS && rows <= BATCH;
}
int launch_delta(launch *l, const delta_args *a, int rows, int seqs, bool wide)
{
    if (wide && delta_wide_can(a)) return launch_delta_wide(l, a, rows, seqs);
    if (wide) launch_delta_kind<DELTA_WIDE>(l, a, 1);
    else if (a->conv.w) launch_delta_kind<DELTA_FEW>(l, a, seqs);
    else launch_delta_kind<DELTA_NARROW>(l, a, seqs);
    return 1;
}
