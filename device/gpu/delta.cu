/* device/gpu/delta.cu - DELTA, but for wide steps in chunks (delta_wide.cu). States and journals: tape/kv.h.
 *
 * The step, weights, and the layer's state and journal, which only the step before wrote, are asked for before the wait
 * for the kernel before, and used after what follows from that is asked for, too: where a product leaves no room for
 * blocks to come early, all loads are on their way at once.
 *
 * Four warps a block of 16 columns of one head's memory, which no other columns meet. Lane 4 p + c of warp w holds
 * elements 32 i + 4 p + (0 .. 3) of column 4 w + c in registers, after what was accepted and then along the path. The
 * memory is read and written once a step. Where a row does not continue the one before, it is read again and the row's
 * ancestors are redone, which gives the bits that they gave.
 * Every block norms the keys that it needs. The journal's keys and decays are written for all blocks of a key head by
 * the last of them that has read the old ones.
 * o = decay S^T q + (k . q) d, so that both sums over a column go over the memory before the row.
 * In steps of few rows DELTA does SHORT_CONV's work: a block convolves the channels that it reads, in shared memory,
 * a thread a channel. Those of values are its own; state and inputs of queries and keys are written by the block that
 * writes the journal's keys, since all blocks of the key head convolve them again.
 * Traffic: the memory once in and once out, 8 bytes an element. Sums over keys: four in a lane, each ascending, then
 * by butterfly; they depend on k_dim alone. */
#include "device/gpu/short_conv.cuh"

enum { HISTORY = CONV_TAPS - 1, DELTA_THREADS = 128, WARP_COLUMNS = 4, PARTS = WARP / WARP_COLUMNS, BATCH = 8,
       STAGED = 2 * BATCH, KEY_MOST = 256, DELTA_BLOCKS = 4 /* of a multiprocessor */ };

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

/* KEY: elements of a key here, zeros after k_dim. Two batches: one at work, one on its way. Before them lie the columns
 * of SHORT_CONV's state. */
template <int KEY> struct delta_shared {
    float q[HISTORY + STAGED][KEY], k[HISTORY + STAGED][KEY], v[STAGED][16];    /* q, k: from row HISTORY on */
    float raw[HISTORY + BATCH][16];                         /* values that SHORT_CONV has not seen */
    uint4 taps[BATCH];                                      /* the rows that a row's convolution sees, newest first */
    uint64_t path[BATCH];
    float kq[BATCH], beta[BATCH];
    float key_scale[NARROW_ROWS], decay[NARROW_ROWS];       /* of all rows (of the batch, in wide steps) */
    int last;                   /* this block writes the journal's keys */
};

/* A block's view of one head's columns in one sequence. */
struct delta_block {
    int head, key_head, key_at, value_at, column, n, part, in_block;
    float *state, *keys, *decays, *corrections;             /* of the slot */
};

/* A block reads 2 n + 16 channels of a row: where the e-th lies, and which it is. raw: SHORT_CONV has not seen it. */
template <int KEY>
__device__ inline float *staged(delta_shared<KEY> &sh, const delta_block &b, int r, int e, bool raw)
{
    return e < b.n ? &sh.q[HISTORY + r][e] : e < 2 * b.n ? &sh.k[HISTORY + r][e - b.n]
        : raw ? &sh.raw[HISTORY + r][e - 2 * b.n] : &sh.v[r][e - 2 * b.n];
}
__device__ inline int channel_of(const delta_args &a, const delta_block &b, int e)
{
    const int keys = a.k_heads * b.n;
    return e < b.n ? b.key_at + e : e < 2 * b.n ? keys + b.key_at + e - b.n : 2 * keys + b.value_at + e - 2 * b.n;
}

/* Rows `row` .. of the step on their way to rows `to` .. of shared memory. */
template <int KEY>
__device__ inline void stage(const delta_args &a, const delta_block &b, delta_shared<KEY> &sh, int to, uint64_t row,
                             int count, bool raw)
{
    const int each = 2 * b.n + 16, piece = b.n % 4 == 0 && a.x_cols % 4 == 0 ? 4 : 1;
#pragma unroll 1
    for (int e = threadIdx.x * piece; e < each; e += DELTA_THREADS * piece) {
        const float *x = a.x + row * a.x_cols + channel_of(a, b, e);
        float *at = staged(sh, b, to, e, raw);
        const int stride = e < 2 * b.n ? (int)KEY : 16;
#pragma unroll 1
        for (int r = 0; r < count; r++, x += a.x_cols, at += stride)
            if (piece == 4) copy16(at, x);
            else *at = *x;
    }
}

/* SHORT_CONV of the channels that a block reads: a thread a channel of queries and keys, in place; of values a thread
 * a row and channel. */
template <int KEY> struct block_conv {
    enum { EACH = 2 * KEY / DELTA_THREADS, SLICES = DELTA_THREADS / 16 /* rows of values at once */ };
    float w[EACH + 1][CONV_TAPS];

    /* Of a channel: its weights, and the state before row 0. */
    __device__ static void begin_channel(const delta_args &a, const step_seq &q, int c, float (&w)[CONV_TAPS],
                                         float *before, int stride)
    {
        channel<CONV_TAPS> ch;
        ch.weights(a.conv, c);
        if (before) ch.begin(a.conv, q, c);
#pragma unroll
        for (int i = 0; i < CONV_TAPS; i++) {
            w[i] = ch.w[i];
            if (before && i + 1 < a.conv.taps) before[(i + 1 - a.conv.taps) * stride] = ch.kept[i];
        }
    }
    __device__ void begin(const delta_args &a, const delta_block &b, delta_shared<KEY> &sh, const step_seq &q)
    {
        const int row = threadIdx.x;
#pragma unroll
        for (int m = 0; m < EACH; m++) {
            const int e = threadIdx.x + m * DELTA_THREADS;
            if (e < 2 * b.n) begin_channel(a, q, channel_of(a, b, e), w[m], staged(sh, b, 0, e, true), KEY);
        }
        begin_channel(a, q, channel_of(a, b, 2 * b.n + threadIdx.x % 16), w[EACH],
                      threadIdx.x < 16 ? &sh.raw[HISTORY][threadIdx.x] : nullptr, 16);
        if (row >= q.n_rows) return;
        const uint64_t path = sh.path[row] = a.step->row[q.first_row + row].path;
        int at[CONV_TAPS];
        seen_rows(at, row, path);
        sh.taps[row] = make_uint4((uint32_t)at[0], (uint32_t)at[1], (uint32_t)at[2], (uint32_t)at[3]);
    }
    /* N rows of a channel from row j0 on, each loaded before one is written. x: of row 0. journal NULL: not written. */
    template <int N>
    __device__ static void some(const delta_args &a, const delta_shared<KEY> &sh, const float (&w)[CONV_TAPS], int j0,
                                const float *x, float *y, int stride, float *journal)
    {
        float seen[N][CONV_TAPS];
#pragma unroll
        for (int n = 0; n < N; n++) {
            const uint4 at = sh.taps[j0 + n];
            seen[n][0] = x[(int)at.x * stride], seen[n][1] = x[(int)at.y * stride];
            seen[n][2] = x[(int)at.z * stride], seen[n][3] = x[(int)at.w * stride];
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
            y[(j0 + n) * stride] = convolved(w, seen[n], a.conv.taps);
            if (journal) journal[(uint64_t)(j0 + n) * a.conv.channels] = seen[n][0];
        }
    }
    /* The rows: the last first, as those behind a row see what went into it. */
    __device__ void rows(const delta_args &a, const delta_block &b, delta_shared<KEY> &sh, const step_seq &q)
    {
        enum { N = 4 };
        float *journal = journal_of(a.conv.place, q.slot);
#pragma unroll
        for (int m = 0; m < EACH; m++) {
            const int e = threadIdx.x + m * DELTA_THREADS, c = channel_of(a, b, e);
            if (e >= 2 * b.n) continue;
            float *x = staged(sh, b, 0, e, true), *to = sh.last ? journal + c : nullptr;
            int j = q.n_rows;
            for (; j >= N; j -= N) some<N>(a, sh, w[m], j - N, x, x, KEY, to);
            while (j > 0) some<1>(a, sh, w[m], --j, x, x, KEY, to);
            if (sh.last) keep_columns(a.conv, q, c, x - (a.conv.taps - 1) * KEY, KEY);
        }
        const int v = threadIdx.x % 16, c = channel_of(a, b, 2 * b.n + v);
        for (int j = threadIdx.x / 16; j < q.n_rows; j += SLICES)
            some<1>(a, sh, w[EACH], j, &sh.raw[HISTORY][v], &sh.v[0][v], 16, journal + c);
        if (threadIdx.x < 16) keep_columns(a.conv, q, c, &sh.raw[HISTORY + 1 - a.conv.taps][v], 16);
    }
};

/* Even warps norm the batch's queries and multiply them with keys, odd ones norm the keys. buffer, at: place of the
 * batch in q and k, in key_scale. */
template <int KEY>
__device__ inline void prepare(const delta_args &a, const delta_block &b, delta_shared<KEY> &sh, int buffer, int at)
{
    enum { ROWS = BATCH * 2 * WARP / DELTA_THREADS, QUADS = KEY / (4 * WARP) };     /* of a warp, of a lane in a row */
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, first = warp / 2 * ROWS;
    const bool keys = warp % 2;
    float (*rows)[KEY] = (keys ? sh.k : sh.q) + buffer + first, (*with)[KEY] = sh.k + buffer + first;
    float4 x[ROWS][QUADS];
    float sum[2 * ROWS];        /* of squares; of products with the key */
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        sum[r] = sum[ROWS + r] = 0;
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            const float4 y = *(const float4 *)&with[r][4 * (i * WARP + lane)];
            x[r][i] = *(const float4 *)&rows[r][4 * (i * WARP + lane)];
            sum[r] = square_sum(x[r][i], sum[r]);
            sum[ROWS + r] = __fmaf_rn(x[r][i].x, y.x, sum[ROWS + r]);
            sum[ROWS + r] = __fmaf_rn(x[r][i].y, y.y, sum[ROWS + r]);
            sum[ROWS + r] = __fmaf_rn(x[r][i].z, y.z, sum[ROWS + r]);
            sum[ROWS + r] = __fmaf_rn(x[r][i].w, y.w, sum[ROWS + r]);
        }
    }
    /* Lanes 4 n .. have the n-th of the sums. */
    sum_lanes(sum, lane);
    float one = sum[0];
    one += __shfl_xor_sync(0xffffffffu, one, 2);
    one += __shfl_xor_sync(0xffffffffu, one, 1);
    const float length = sqrtf(one), least = length > a.eps ? length : a.eps;
    const float mine = 1.0f / (keys ? least : least * sqrtf((float)b.n));
    const float product = one * __shfl_xor_sync(0xffffffffu, mine, WARP / 2);
    __syncthreads();                        /* the raw keys are read */
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float scale = __shfl_sync(0xffffffffu, mine, 4 * r);
#pragma unroll
        for (int i = 0; i < QUADS; i++)
            *(float4 *)&rows[r][4 * (i * WARP + lane)] =
                make_float4(x[r][i].x * scale, x[r][i].y * scale, x[r][i].z * scale, x[r][i].w * scale);
    }
    if (keys && lane < 4 * ROWS && lane % 4 == 0) sh.key_scale[at + first + lane / 4] = mine;
    if (!keys && lane >= 4 * ROWS && lane % 4 == 0) sh.kq[first + lane / 4 - ROWS] = product;
    __syncthreads();
}

/* Keys and decays of rows j0 .. into the journal; buffer: of k. */
template <int KEY>
__device__ inline void write_journal(const delta_args &a, const delta_block &b, const delta_shared<KEY> &sh, int buffer,
                                     const step_seq &q, int j0, int count)
{
    const int keys = a.k_heads * b.n, per = a.v_heads / a.k_heads;
    for (int e = threadIdx.x; e < b.n; e += DELTA_THREADS)
        for (int r = 0; r < count; r++) b.keys[(uint64_t)(j0 + r) * keys + b.key_at + e] = sh.k[buffer + r][e];
    enum { EACH = DELTA_THREADS / BATCH };
    const int j = j0 + (int)threadIdx.x / EACH;
    for (int i = threadIdx.x % EACH; i < per && j < j0 + count; i += EACH) {
        const int head = value_head_of(a, b.key_head, i);
        b.decays[(uint64_t)j * a.v_heads + head] = decay_of(a, gates_of(a, q.first_row + j, head).x, head);
    }
}

/* part: of the heads' columns. */
__device__ inline delta_block block_of(const delta_args &a, const step_seq &q, int part)
{
    delta_block b;
    const int blocks = a.v_dim / 16, lane = threadIdx.x % WARP, block = part % blocks;
    float *journal = journal_of(a.place, q.slot);
    b.head = part / blocks, b.key_head = key_head_of(a, b.head), b.n = a.k_dim;
    b.part = lane / WARP_COLUMNS, b.in_block = threadIdx.x / WARP * WARP_COLUMNS + lane % WARP_COLUMNS;
    b.key_at = b.key_head * b.n, b.value_at = b.head * a.v_dim + block * 16, b.column = b.value_at + b.in_block;
    b.state = state_of(a.place, q.slot) + a.memory_at + ((uint64_t)b.head * blocks + block) * b.n * 16 + b.in_block;
    b.keys = journal + a.keys_at, b.decays = journal + a.decays_at;
    b.corrections = journal + a.corrections_at + b.column;
    return b;
}

/* The memory as it is stored, or none yet. */
template <int N> __device__ inline void get_memory(const delta_block &b, bool there, float (&s)[N][4])
{
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const int e = 4 * (PARTS * i + b.part) + r;
            s[i][r] = e < b.n && there ? b.state[e * 16] : 0.0f;
        }
}
/* A row of the journal. */
template <int N> struct journal_row {
    float4 k[N];
    float d, decay;
    __device__ void get(const delta_args &a, const delta_block &b, uint64_t row)
    {
        d = b.corrections[row * a.v_heads * a.v_dim], decay = b.decays[row * a.v_heads + b.head];
#pragma unroll
        for (int i = 0; i < N; i++)
            k[i] = four(b.keys + row * a.k_heads * b.n + b.key_at, 4 * (PARTS * i + b.part), b.n);
    }
};
/* The memory after what was accepted; first: the first row of it, if there is one. */
template <int N>
__device__ inline void commit(const delta_args &a, const delta_block &b, const step_seq &q, const journal_row<N> &first,
                              float (&s)[N][4])
{
    journal_row<N> row = first;
    for (int c = 0; c < q.n_commit; c++) {
        if (c) row.get(a, b, q.commit[c]);
#pragma unroll
        for (int i = 0; i < N; i++) redo(s[i], row.k[i], row.d, row.decay);
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

/* The memory after the ancestors `path` of a row, from what stands behind the commits. CONV: their keys are in shared
 * memory. */
template <int N, bool CONV, int KEY>
__device__ inline void follow(const delta_args &a, const delta_block &b, const delta_shared<KEY> &sh, const step_seq &q,
                              uint64_t path, int rows, float (&s)[N][4])
{
    __syncwarp();               /* what another lane of the column wrote as a correction is seen */
    get_memory(b, true, s);
    for (int e = 0; e < rows; e++) {
        if (!(path >> e & 1)) continue;
        const float *x = a.x + (uint64_t)(q.first_row + e) * a.x_cols + a.k_heads * b.n + b.key_at;
        const float scale = sh.key_scale[e], d = b.corrections[(uint64_t)e * a.v_heads * a.v_dim];
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int at = 4 * (PARTS * i + b.part);
            float4 k;
            if (CONV) k = *(const float4 *)&sh.k[HISTORY + e][at];
            else k = four(x, at, b.n), k = make_float4(k.x * scale, k.y * scale, k.z * scale, k.w * scale);
            redo(s[i], k, d, sh.decay[e]);
        }
    }
}
/* Bit r: row r of a batch does not continue the row before it; holds: the path of the one before the batch. */
__device__ inline uint32_t turns(const uint64_t *path, int j0, int count, uint64_t holds)
{
    const int lane = threadIdx.x % WARP, r = lane < count ? lane : 0;
    const uint64_t before = r ? path[r - 1] : holds, mine = path[r] & ~((uint64_t)1 << (j0 + r));
    return __ballot_sync(0xffffffffu, lane < count && mine != before);
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
    const int blocks = a.v_heads * (a.v_dim / 16), all = a.step->head.n_seqs * blocks;
    if ((int)blockIdx.x >= all && blockIdx.x > 0) return;       /* the others wait */
    if (a.k_dim < KEY)
        for (int i = threadIdx.x; i < (HISTORY + STAGED) * KEY; i += DELTA_THREADS)
            (&sh.q[0][0])[i] = (&sh.k[0][0])[i] = 0;
    __syncthreads();
    for (int item = blockIdx.x; item < all; item += gridDim.x) {
        const step_seq &q = a.step->seq[item / blocks];
        const delta_block b = block_of(a, q, item % blocks);
        float s[N][4];
        journal_row<N> accepted;
        block_conv<KEY> conv;
        get_memory(b, q.past != q.n_commit, s);
        if (q.n_commit) accepted.get(a, b, q.commit[0]);
        if (CONV) conv.begin(a, b, sh, q);
        wait_predecessor();
        auto fetch = [&](int j0) {          /* the gates of one of its rows are the thread's */
            const int count = min((int)BATCH, q.n_rows - j0), lane = threadIdx.x % WARP;
            if (count > 0) stage(a, b, sh, j0 % STAGED, q.first_row + j0, count, CONV);
            copy_commit();
            return lane < count ? gates_of(a, q.first_row + j0 + lane, b.head) : make_float2(0, 0);
        };
        float2 gates = fetch(0);
        commit(a, b, q, accepted, s);
        if (!WIDE && (q.n_commit || q.past == 0)) put_memory(b, s);
        __syncthreads();                    /* the old keys are read, as what was stored followed from them */
        if (!WIDE && threadIdx.x == 0) {
            const int sharing = a.v_heads / a.k_heads * (a.v_dim / 16);
            int32_t *arrived = a.arrived + (uint64_t)q.slot * a.k_heads + b.key_head;
            sh.last = atomicAdd(arrived, 1) == sharing - 1;
            if (sh.last) *arrived = 0;
        }
        if (CONV) {
            copy_wait<0>();
            __syncthreads();
            conv.rows(a, b, sh, q);
        }
        uint64_t holds = 0;                 /* path of the row that s stands after, before a batch */
        for (int j0 = 0; j0 < q.n_rows; j0 += BATCH) {
            const int count = min((int)BATCH, q.n_rows - j0), batch = j0 % STAGED, at = WIDE ? 0 : j0;
            const float2 next = fetch(j0 + BATCH);
            if (!WIDE && !CONV && (int)threadIdx.x < count)
                sh.path[threadIdx.x] = a.step->row[q.first_row + j0 + threadIdx.x].path;
            if ((int)threadIdx.x < count) {
                sh.decay[at + threadIdx.x] = decay_of(a, gates.x, b.head);
                sh.beta[threadIdx.x] = 1.0f / (1.0f + expf(-gates.y));
            }
            copy_wait<1>();
            __syncthreads();
            prepare(a, b, sh, HISTORY + batch, at);
            gates = next;
            const int columns = a.v_heads * a.v_dim;
            float *const y = a.y + (uint64_t)(q.first_row + j0) * columns + b.column;
            float *const corrections = b.corrections + (uint64_t)j0 * columns;
            const uint32_t turned = WIDE ? 0 : turns(sh.path, j0, count, holds);
            if (!WIDE) holds = sh.path[count - 1];
            for (int r = 0; r < count; r++) {
                if (!WIDE && turned >> r & 1)
                    follow<N, CONV>(a, b, sh, q, sh.path[r] & ~((uint64_t)1 << (j0 + r)), j0 + r, s);
                float known[4] = { 0, 0, 0, 0 }, seen[4] = { 0, 0, 0, 0 };
                float4 k[N];
#pragma unroll
                for (int i = 0; i < N; i++) {
                    k[i] = *(const float4 *)&sh.k[HISTORY + batch + r][4 * (PARTS * i + b.part)];
                    add_products(known, k[i], s[i]);
                    add_products(seen, *(const float4 *)&sh.q[HISTORY + batch + r][4 * (PARTS * i + b.part)], s[i]);
                }
                const float decay = sh.decay[at + r], of_k = column_sum(known), of_q = column_sum(seen);
                const float d = sh.beta[r] * __fmaf_rn(-decay, of_k, sh.v[batch + r][b.in_block]);
                if (b.part == 0) {
                    y[r * columns] = __fmaf_rn(sh.kq[r] * sh.key_scale[at + r], d, decay * of_q);
                    if (!WIDE) corrections[r * columns] = d;
                }
#pragma unroll
                for (int i = 0; i < N; i++) redo(s[i], k[i], d, decay);
            }
            if (!WIDE && sh.last) write_journal(a, b, sh, HISTORY + batch, q, j0, count);
            __syncthreads();                /* the buffer may be filled again */
        }
        if (WIDE && (q.n_rows || q.n_commit || q.past == 0)) put_memory(b, s);
        copy_wait<0>();
        __syncthreads();
    }
    wait_predecessor();
}
template <delta_kind KIND> static void launch_delta_kind(launch *l, const delta_args *a, int seqs, int n_units)
{
    /* No more than run at once: the next kernel waits until the last of them has begun. */
    const int all = a->v_heads * (a->v_dim / 16) * seqs, most = DELTA_BLOCKS * n_units;
    const dim3 grid(all < most ? all : most);
    if (a->k_dim <= 128) fill_launch(l, delta_kernel<128 / (4 * PARTS), KIND>, grid, DELTA_THREADS, 0, *a);
    else fill_launch(l, delta_kernel<KEY_MOST / (4 * PARTS), KIND>, grid, DELTA_THREADS, 0, *a);
}
bool delta_can(int k_dim)
{
    return k_dim <= KEY_MOST;
}
bool delta_can_convolve(int taps, int rows)
{
    return taps <= CONV_TAPS && rows <= BATCH;
}
int launch_delta(launch *l, const delta_args *a, int rows, int seqs, bool wide, int n_units)
{
    if (wide && delta_wide_can(a)) return launch_delta_wide(l, a, rows, seqs);
    if (wide) launch_delta_kind<DELTA_WIDE>(l, a, 1, n_units);
    else if (a->conv.w) launch_delta_kind<DELTA_FEW>(l, a, seqs, n_units);
    else launch_delta_kind<DELTA_NARROW>(l, a, seqs, n_units);
    return 1;
}
