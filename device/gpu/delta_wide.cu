/* device/gpu/delta_wide.cu - DELTA in wide steps: chunks of 64 rows of a sequence at once (Yang et al. 2024, "Gated
 * Delta Networks", the form with WY products), on the matrix unit.
 *
 * With G_i the sum of the logarithms of a chunk's decays up to row i, S the memory before the chunk and A_ij =
 * beta_i exp(G_i - G_j) k_i . k_j for j < i:
 *   (I + A) W = beta exp(G) K,  (I + A) U = beta V          delta_chunks_kernel, for all chunks at once
 *   D = U - W S;  O = exp(G) Q S + P D,  P_ij = exp(G_i - G_j) q_i . k_j for j <= i
 *   S = exp(G_last) S + K^T (exp(G_last - G) D)             delta_memory_kernel, one chunk after the other
 * Matrices are multiplied as sums of two bf16 numbers each, hi and lo, in three products: 2^-17 of a factor is lost.
 * The triangular systems are solved in f32, a thread a column.
 * Chunks end at positions that are multiples of 64: how pages of a prompt are cut into steps changes nothing, nor do
 * other sequences.
 * Traffic: scratch of a chunk is 64 KB a key head and 80 KB a value head, written once and read by each block of a
 * head's columns. delta_memory_kernel: a block has 64 columns of a head's memory in registers. */
#include "device/gpu/delta.cuh"

enum { CHUNK = 64, CHUNK_KEY = 128, CHUNKS_THREADS = 256, MEMORY_THREADS = 512, MEMORY_COLUMNS = 64,
       FRAGMENT = 2 * WARP,                 /* uint4s of 16 x 16 numbers: hi, lo */
       KEY_STEPS = CHUNK_KEY / 16, ROW_STEPS = CHUNK / 16,
       LINE = CHUNK_KEY + 4, SQUARE = CHUNK + 4 };

/* ---- numbers as hi + lo -------------------------------------------------------------------------------- */
struct pair_of {
    uint32_t hi, lo;
};
__device__ inline pair_of split(float x, float y)
{
    pair_of p;
    p.hi = pack_bf16(x, y);
    p.lo = pack_bf16(x - __uint_as_float(p.hi << 16), y - __uint_as_float(p.hi & 0xffff0000u));
    return p;
}
__device__ inline pair_of split(float2 v)
{
    return split(v.x, v.y);
}
struct fragment_a {
    uint32_t hi[4], lo[4];

    __device__ void put(int i, pair_of p)
    {
        hi[i] = p.hi, lo[i] = p.lo;
    }
    __device__ void store(uint4 *at) const
    {
        const int lane = threadIdx.x % WARP;
        at[lane] = make_uint4(hi[0], hi[1], hi[2], hi[3]);
        at[WARP + lane] = make_uint4(lo[0], lo[1], lo[2], lo[3]);
    }
    __device__ void load(const uint4 *at)
    {
        const int lane = threadIdx.x % WARP;
        const uint4 h = at[lane], l = at[WARP + lane];
        hi[0] = h.x, hi[1] = h.y, hi[2] = h.z, hi[3] = h.w;
        lo[0] = l.x, lo[1] = l.y, lo[2] = l.z, lo[3] = l.w;
    }
};
/* b: hi of k 0 .. 7, hi of k 8 .. 15, lo of both. */
__device__ inline void multiply_split(float (&d)[4], const fragment_a &a, uint4 b)
{
    mma_bf16(d, a.hi, b.x, b.y);
    mma_bf16(d, a.hi, b.z, b.w);
    mma_bf16(d, a.lo, b.x, b.y);
}

/* ---- scratch ------------------------------------------------------------------------------------------- */
struct chunk_args {
    delta_args d;
    uint8_t *scratch;
};
enum { KEY_BYTES = 2 * ROW_STEPS * KEY_STEPS * FRAGMENT * 16, W_BYTES = ROW_STEPS * KEY_STEPS * FRAGMENT * 16,
       P_BYTES = ROW_STEPS * ROW_STEPS * FRAGMENT * 16, GATE_BYTES = 2 * CHUNK * 4 };
__host__ __device__ inline uint64_t value_bytes(int v_dim)
{
    return W_BYTES + P_BYTES + GATE_BYTES + 4ull * CHUNK * v_dim;
}
__host__ __device__ inline uint64_t chunk_bytes(int k_heads, int v_heads, int v_dim)
{
    return (uint64_t)k_heads * KEY_BYTES + v_heads * value_bytes(v_dim);
}
/* Of one chunk and head. */
struct chunk_place {
    uint4 *q, *k, *w, *p;       /* fragments: Q, W, P [row / 16][.. / 16], K^T [key / 16][row / 16] */
    float *grown, *left, *u;    /* exp(G), exp(G_last - G); U [row][v_dim] */
};
__device__ inline chunk_place place_of(const chunk_args &a, int chunk, int key_head, int head)
{
    chunk_place c;
    uint8_t *at = a.scratch + chunk * chunk_bytes(a.d.k_heads, a.d.v_heads, a.d.v_dim);
    c.q = (uint4 *)(at + (uint64_t)key_head * KEY_BYTES), c.k = c.q + ROW_STEPS * KEY_STEPS * FRAGMENT;
    at += (uint64_t)a.d.k_heads * KEY_BYTES + head * value_bytes(a.d.v_dim);
    c.w = (uint4 *)at, c.p = (uint4 *)(at + W_BYTES);
    c.grown = (float *)(at + W_BYTES + P_BYTES), c.left = c.grown + CHUNK, c.u = c.left + CHUNK;
    return c;
}
__device__ inline int chunks_of(const step_seq &q)
{
    return q.n_rows ? (q.past % CHUNK + q.n_rows + CHUNK - 1) / CHUNK : 0;
}
/* First of the sequence's rows in chunk c; that of the chunk behind its last one is beyond its rows. */
__device__ inline int chunk_row(const step_seq &q, int c)
{
    return max(0, c * CHUNK - q.past % CHUNK);
}

/* ---- all chunks: Q, K, W, U, P --------------------------------------------------------------------------- */
struct chunks_shared {
    float k[CHUNK][LINE], q[CHUNK][LINE];   /* q: then W */
    float m[CHUNK][SQUARE];                 /* A */
    float sum[CHUNK], grown[CHUNK], beta[CHUNK];
};

/* Normed keys and queries; zeros beyond. */
__device__ inline void load_keys(const delta_args &a, chunks_shared &sh, int key_head, uint64_t row, int count)
{
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, n = a.k_dim;
    for (int i = warp; i < 2 * CHUNK; i += CHUNKS_THREADS / WARP) {
        const int r = i % CHUNK;
        const bool key = i >= CHUNK;
        const float *x = a.x + (row + r) * a.channels + (key ? a.k_heads * n : 0) + key_head * n;
        const float4 v = r < count ? four(x, 4 * lane, n) : make_float4(0, 0, 0, 0);
        const float length = sqrtf(warp_sum(__fmaf_rn(v.x, v.x, v.y * v.y) + __fmaf_rn(v.z, v.z, v.w * v.w)));
        const float least = length > a.eps ? length : a.eps, by = 1.0f / (key ? least : least * sqrtf((float)n));
        *(float4 *)&(key ? sh.k : sh.q)[r][4 * lane] = make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
    }
}
/* A matrix of m by k sixteens as fragments; two(i, k): elements (i, k) and (i, k + 1). */
template <class F> __device__ inline void put_fragments(uint4 *to, int m, int k, F two)
{
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    for (int i = threadIdx.x / WARP; i < m * k; i += CHUNKS_THREADS / WARP) {
        const int row = i / k * 16 + g, col = i % k * 16 + 2 * t;
        fragment_a f;
#pragma unroll
        for (int r = 0; r < 4; r++) f.put(r, split(two(row + r % 2 * 8, col + r / 2 * 8)));
        f.store(to + i * FRAGMENT);
    }
}

/* Warp: rows 16 (warp % 4) .., columns 32 (warp / 4) .. of K K^T and Q K^T. */
__device__ inline void key_products(const chunks_shared &sh, float (&kk)[4][4], float (&qk)[4][4])
{
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    const int row = warp % 4 * 16 + g, col = warp / 4 * 32 + g;
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int r = 0; r < 4; r++) kk[j][r] = qk[j][r] = 0;
#pragma unroll 2
    for (int s = 0; s < KEY_STEPS; s++) {
        fragment_a q, k;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const int i = row + r % 2 * 8, c = 16 * s + 2 * t + r / 2 * 8;
            k.put(r, split(*(const float2 *)&sh.k[i][c]));
            q.put(r, split(*(const float2 *)&sh.q[i][c]));
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const pair_of b0 = split(*(const float2 *)&sh.k[col + 8 * j][16 * s + 2 * t]);
            const pair_of b1 = split(*(const float2 *)&sh.k[col + 8 * j][16 * s + 2 * t + 8]);
            const uint4 b = make_uint4(b0.hi, b1.hi, b0.lo, b1.lo);
            multiply_split(kk[j], k, b);
            multiply_split(qk[j], q, b);
        }
    }
}

/* Sums of logarithms of decays, and betas, by the first warp. */
__device__ inline void chunk_gates(const delta_args &a, chunks_shared &sh, const chunk_place &c, int head, uint64_t row,
                                   int count)
{
    const int lane = threadIdx.x;
    if (lane >= WARP) return;
    float sum = 0, g[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {           /* lane: rows 2 lane, 2 lane + 1 */
        const int i = 2 * lane + h;
        const float2 gates = i < count ? gates_of(a, row + i, head) : make_float2(0, 0);
        sum += i < count ? log_decay_of(a, gates.x, head) : 0.0f;
        g[h] = sum;
        sh.beta[i] = i < count ? 1.0f / (1.0f + expf(-gates.y)) : 0.0f;
    }
    for (int by = 1; by < WARP; by *= 2) {
        const float before = __shfl_up_sync(0xffffffffu, sum, by);
        if (lane >= by) sum += before;
    }
    const float before = __shfl_up_sync(0xffffffffu, sum, 1), last = __shfl_sync(0xffffffffu, sum, WARP - 1);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float all = (lane ? before : 0.0f) + g[h];
        sh.sum[2 * lane + h] = all;
        sh.grown[2 * lane + h] = c.grown[2 * lane + h] = expf(all);
        c.left[2 * lane + h] = expf(last - all);
    }
}

/* Into A and P: what the warp has of K K^T and Q K^T, with decays. */
__device__ inline void put_squares(chunks_shared &sh, const chunk_place &c, const float (&kk)[4][4],
                                   const float (&qk)[4][4])
{
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    const int row = warp % 4 * 16 + g, col = warp / 4 * 32 + 2 * t;
    float p[4][4];
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const int i = row + r / 2 * 8, k = col + 8 * j + r % 2;
            const float decay = k <= i ? expf(sh.sum[i] - sh.sum[k]) : 0.0f;
            p[j][r] = decay * qk[j][r];
            sh.m[i][k] = k < i ? sh.beta[i] * decay * kk[j][r] : 0.0f;
        }
#pragma unroll
    for (int s = 0; s < 2; s++) {           /* sums of two tiles of eight columns are a factor's fragment */
        fragment_a f;
        f.put(0, split(p[2 * s][0], p[2 * s][1]));
        f.put(1, split(p[2 * s][2], p[2 * s][3]));
        f.put(2, split(p[2 * s + 1][0], p[2 * s + 1][1]));
        f.put(3, split(p[2 * s + 1][2], p[2 * s + 1][3]));
        f.store(c.p + (warp % 4 * ROW_STEPS + warp / 4 * 2 + s) * FRAGMENT);
    }
}

/* x = (I + A)^-1 x, downwards. */
__device__ inline void solve(const chunks_shared &sh, float (&x)[CHUNK])
{
#pragma unroll
    for (int i = 1; i < CHUNK; i++) {
        float sum[2] = { 0, 0 };
#pragma unroll
        for (int k = 0; k < i; k += 4) {
            const float4 a = *(const float4 *)&sh.m[i][k];
            sum[0] = __fmaf_rn(a.x, x[k], sum[0]);
            if (k + 1 < i) sum[1] = __fmaf_rn(a.y, x[k + 1], sum[1]);
            if (k + 2 < i) sum[0] = __fmaf_rn(a.z, x[k + 2], sum[0]);
            if (k + 3 < i) sum[1] = __fmaf_rn(a.w, x[k + 3], sum[1]);
        }
        x[i] -= sum[0] + sum[1];
    }
}

/* Block (chunk, key head): what its value heads share, then each of them. */
__global__ void __launch_bounds__(CHUNKS_THREADS) delta_chunks_kernel(chunk_args all)
{
    const delta_args &a = all.d;
    DYNAMIC_SHARED(uint4, room);
    chunks_shared &sh = *(chunks_shared *)room;
    const int key_head = blockIdx.y;
    launch_dependents();
    wait_predecessor();
    int seq = 0, at = blockIdx.x;
    for (; seq < a.step->head.n_seqs && at >= chunks_of(a.step->seq[seq]); seq++) at -= chunks_of(a.step->seq[seq]);
    if (seq == a.step->head.n_seqs) return;
    const step_seq &q = a.step->seq[seq];
    const int from = chunk_row(q, at), count = min(chunk_row(q, at + 1), q.n_rows) - from;
    const uint64_t row = q.first_row + from;
    load_keys(a, sh, key_head, row, count);
    __syncthreads();
    const chunk_place keys = place_of(all, blockIdx.x, key_head, 0);
    put_fragments(keys.q, ROW_STEPS, KEY_STEPS, [&](int i, int k) { return make_float2(sh.q[i][k], sh.q[i][k + 1]); });
    put_fragments(keys.k, KEY_STEPS, ROW_STEPS, [&](int k, int i) { return make_float2(sh.k[i][k], sh.k[i + 1][k]); });
    float kk[4][4], qk[4][4];
    key_products(sh, kk, qk);
    for (int v = 0; v < a.v_heads / a.k_heads; v++) {
        const int head = value_head_of(a, key_head, v);
        const chunk_place c = place_of(all, blockIdx.x, key_head, head);
        __syncthreads();                    /* q is read, or W and the gates of the head before */
        chunk_gates(a, sh, c, head, row, count);
        __syncthreads();
        put_squares(sh, c, kk, qk);
        __syncthreads();
        for (int j = threadIdx.x; j < CHUNK_KEY + a.v_dim; j += CHUNKS_THREADS) {
            const float *values = a.x + row * a.channels + 2 * a.k_heads * a.k_dim + head * a.v_dim +
                max(0, j - CHUNK_KEY);
            float x[CHUNK];
#pragma unroll
            for (int i = 0; i < CHUNK; i++) {
                if (j < CHUNK_KEY) x[i] = sh.beta[i] * sh.grown[i] * sh.k[i][j];
                else x[i] = i < count ? sh.beta[i] * values[(uint64_t)i * a.channels] : 0.0f;
            }
            solve(sh, x);
#pragma unroll
            for (int i = 0; i < CHUNK; i++) {
                if (j < CHUNK_KEY) sh.q[i][j] = x[i];
                else c.u[(uint64_t)i * a.v_dim + j - CHUNK_KEY] = x[i];
            }
        }
        __syncthreads();
        put_fragments(c.w, ROW_STEPS, KEY_STEPS, [&](int i, int k) { return make_float2(sh.q[i][k], sh.q[i][k + 1]); });
    }
}

/* ---- the memory, chunk after chunk ----------------------------------------------------------------------- */
/* Second factors: [k / 16][column / 8][lane], as multiply_split takes them. */
struct memory_shared {
    uint4 s[KEY_STEPS][MEMORY_COLUMNS / 8][WARP], d[ROW_STEPS][MEMORY_COLUMNS / 8][WARP],
          left[ROW_STEPS][MEMORY_COLUMNS / 8][WARP];
};
/* Element (k, column) of a second factor. */
__device__ inline void put_factor(uint4 (*f)[MEMORY_COLUMNS / 8][WARP], int k, int column, float x)
{
    uint16_t *at = (uint16_t *)&f[k / 16][column / 8][column % 8 * 4 + k % 8 / 2] + k % 16 / 8 * 2 + k % 2;
    const pair_of p = split(x, 0);
    at[0] = (uint16_t)p.hi, at[4] = (uint16_t)p.lo;
}

/* Warp: key elements 16 (warp % 8) .. of columns 32 (warp / 8) .. of the block's memory: sums of products. */
struct memory_tile {
    float s[4][4];
    float *at;                  /* of its first element; column + 8: 8 or half a block of 16 further */
    int e, column, n;           /* its first element and column: rows e, e + 8, columns column + 8 j, + 1 */

    __device__ float *element(float *state, int j, int r) const
    {
        const int c = column + 8 * j + r % 2;
        return state + ((uint64_t)(c / 16) * n + e + r / 2 * 8) * 16 + c % 16;
    }
    __device__ bool real(int r) const
    {
        return e + r / 2 * 8 < n;
    }
};

/* Chunk c: D, and the part of O that the memory before it gives. Warp: rows 16 (warp % 4) .., columns
 * 16 (warp / 4) .. of the block. */
__device__ inline void correct(const chunk_place &c, memory_shared &sh, int v_dim, int first, float (&o)[2][4])
{
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    const int m = warp % 4, n0 = warp / 4 * 2;
    float known[2][4] = {};
#pragma unroll 4
    for (int s = 0; s < KEY_STEPS; s++) {
        fragment_a w, q;
        w.load(c.w + (m * KEY_STEPS + s) * FRAGMENT);
        q.load(c.q + (m * KEY_STEPS + s) * FRAGMENT);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const uint4 b = sh.s[s][n0 + j][lane];
            multiply_split(known[j], w, b);
            multiply_split(o[j], q, b);
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = 16 * m + g + 8 * h;
        const float grown = c.grown[i], left = c.left[i];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int column = 8 * (n0 + j) + 2 * t;
            const float2 u = *(const float2 *)&c.u[(uint64_t)i * v_dim + first + column];
            const float d[2] = { u.x - known[j][2 * h], u.y - known[j][2 * h + 1] };
#pragma unroll
            for (int e = 0; e < 2; e++) {
                put_factor(sh.d, i, column + e, d[e]);
                put_factor(sh.left, i, column + e, left * d[e]);
                o[j][2 * h + e] *= grown;
            }
        }
    }
}

/* Block: MEMORY_COLUMNS columns of a head's memory.
 * Long: the memory stays in registers from the commit to the last row. */
__global__ void __launch_bounds__(MEMORY_THREADS) delta_memory_kernel(chunk_args all)
{
    const delta_args &a = all.d;
    DYNAMIC_SHARED(uint4, room);
    memory_shared &sh = *(memory_shared *)room;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4, n = a.k_dim;
    const int slices = a.v_dim / MEMORY_COLUMNS, head = blockIdx.x / slices, key_head = key_head_of(a, head);
    const int first = blockIdx.x % slices * MEMORY_COLUMNS;
    memory_tile tile;
    tile.e = warp % 8 * 16 + g, tile.column = warp / 8 * 32 + 2 * t, tile.n = n;
    launch_dependents();
    for (int seq = 0, chunk = 0; seq < a.step->head.n_seqs; seq++) {
        const step_seq &q = a.step->seq[seq];
        float *state = state_of(a.place, q.slot) + a.memory_at + ((uint64_t)head * a.v_dim + first) * n;
        const float *journal = journal_of(a.place, q.slot);
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int r = 0; r < 4; r++)
                tile.s[j][r] = tile.real(r) && q.past != q.n_commit ? *tile.element(state, j, r) : 0.0f;
        for (int c = 0; c < q.n_commit; c++) {
            const uint64_t row = q.commit[c];
            const float *key = journal + a.keys_at + (row * a.k_heads + key_head) * n;
            const float *d = journal + a.corrections_at + (row * a.v_heads + head) * a.v_dim + first;
            const float decay = journal[a.decays_at + row * a.v_heads + head];
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int r = 0; r < 4; r++)
                    if (tile.real(r))
                        tile.s[j][r] = __fmaf_rn(key[tile.e + r / 2 * 8], d[tile.column + 8 * j + r % 2],
                                                 decay * tile.s[j][r]);
        }
        if (seq == 0) wait_predecessor();
        for (int at = 0; at < chunks_of(q); at++, chunk++) {
            const chunk_place c = place_of(all, chunk, key_head, head);
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int r = 0; r < 4; r++)
                    put_factor(sh.s, tile.e + r / 2 * 8, tile.column + 8 * j + r % 2, tile.s[j][r]);
            __syncthreads();
            const int from = chunk_row(q, at), end = min(chunk_row(q, at + 1), q.n_rows);
            float o[2][4] = {};
            correct(c, sh, a.v_dim, first, o);
            __syncthreads();
            const int m = warp % 4, n0 = warp / 4 * 2;
            for (int s = 0; s <= m; s++) {          /* P has nothing to the right of its diagonal */
                fragment_a p;
                p.load(c.p + (m * ROW_STEPS + s) * FRAGMENT);
#pragma unroll
                for (int j = 0; j < 2; j++) multiply_split(o[j], p, sh.d[s][n0 + j][lane]);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int i = from + 16 * m + g + 8 * h;
                if (i >= end) continue;
                float *y = a.y + ((uint64_t)(q.first_row + i) * a.v_heads + head) * a.v_dim + first + 8 * n0 + 2 * t;
#pragma unroll
                for (int j = 0; j < 2; j++) *(float2 *)(y + 8 * j) = make_float2(o[j][2 * h], o[j][2 * h + 1]);
            }
            const float grown = c.grown[CHUNK - 1];
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int r = 0; r < 4; r++) tile.s[j][r] *= grown;
#pragma unroll
            for (int s = 0; s < ROW_STEPS; s++) {
                fragment_a k;
                k.load(c.k + (warp % 8 * ROW_STEPS + s) * FRAGMENT);
#pragma unroll
                for (int j = 0; j < 4; j++) multiply_split(tile.s[j], k, sh.left[s][warp / 8 * 4 + j][lane]);
            }
        }
        if (q.n_rows == 0 && q.n_commit == 0 && q.past) continue;
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int r = 0; r < 4; r++)
                if (tile.real(r)) *tile.element(state, j, r) = tile.s[j][r];
    }
    wait_predecessor();
}

bool delta_wide_can(const delta_args *a)
{
    const int room = card_shared();
    return card_has_bf16() && (int)sizeof(chunks_shared) <= room && (int)sizeof(memory_shared) <= room &&
           a->k_dim <= CHUNK_KEY && a->k_dim % 4 == 0 && a->channels % 4 == 0 && a->v_dim % MEMORY_COLUMNS == 0;
}
/* Chunks of a step with so many rows: the first and the last of each sequence may be short. */
static int most_chunks(int rows, int seqs)
{
    return rows / CHUNK + 2 * (seqs < rows ? seqs : rows);
}
uint64_t delta_wide_scratch(const delta_args *a, int rows, int seqs)
{
    return delta_wide_can(a) ? most_chunks(rows, seqs) * chunk_bytes(a->k_heads, a->v_heads, a->v_dim) : 0;
}
int launch_delta_wide(launch *l, const delta_args *a, int rows, int seqs)
{
    const chunk_args all = { *a, (uint8_t *)a->scratch };
    allow_shared(delta_chunks_kernel, sizeof(chunks_shared));
    allow_shared(delta_memory_kernel, sizeof(memory_shared));
    fill_launch(l, delta_chunks_kernel, dim3(most_chunks(rows, seqs), a->k_heads), CHUNKS_THREADS,
                sizeof(chunks_shared), all);
    fill_launch(l + 1, delta_memory_kernel, dim3(a->v_heads * (a->v_dim / MEMORY_COLUMNS)), MEMORY_THREADS,
                sizeof(memory_shared), all);
    return 2;
}
