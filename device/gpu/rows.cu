/* device/gpu/rows.cu - the ops that are about whole rows: begin of a step, EMBED, NORM, ADD, GATE, TAKE,
 * GATED, CONV, ARGMAX, and the conversion of a value into the activations of a product.
 * Traffic is some KB a row: a launch costs more than the bytes. One block a row; f32 throughout.
 * Sums: a thread takes its columns in ascending order; lanes combine by butterfly, and warps too. The
 * number of threads follows from the columns alone, so a row gives the same bits in any step.
 * What a kernel reads before it waits for its predecessor: weights, and the step. The kernel after begin
 * starts when begin has ended, and all others after that one, so the step is there. Every thread waits
 * before it ends, so that a kernel's end means that all before it have ended. */
#include "device/gpu/rows.cuh"

enum { ROW_THREADS = 1024 };

/* Threads of a block for rows of so many columns: a pair each, as far as a block goes. */
static int threads_for(int cols)
{
    int t = 64;
    while (t < ROW_THREADS && 2 * t < cols) t *= 2;
    return t;
}

/* ---- begin: one block -------------------------------------------------------------------------------- */
/* Every part of a step is 8-byte aligned. Byte of word i of the parts in use: so many sequences, outs, ... */
struct extent {
    int seqs, outs, edits, ctx, rows;
};
__device__ inline uint32_t word_at(int i, const extent &e)
{
    enum { SEQ = sizeof(step_seq) / 8, OUT = sizeof(step_out) / 8, EDIT = sizeof(step_edit) / 8,
           CTX = sizeof(step_ctx) / 8 };
    if (i < e.seqs * SEQ) return offsetof(step, seq) + 8 * i;
    i -= e.seqs * SEQ;
    if (i < e.outs * OUT) return offsetof(step, out) + 8 * i;
    i -= e.outs * OUT;
    if (i < e.edits * EDIT) return offsetof(step, edit) + 8 * i;
    i -= e.edits * EDIT;
    return i < e.ctx * CTX ? offsetof(step, ctx) + 8 * i : offsetof(step, row) + 8 * (i - e.ctx * CTX);
}
__device__ inline int words_of(const extent &e)
{
    return (e.seqs * (int)sizeof(step_seq) + e.outs * (int)sizeof(step_out) + e.edits * (int)sizeof(step_edit) +
            e.ctx * (int)sizeof(step_ctx) + e.rows * (int)sizeof(step_row)) / 8;
}
/* Host memory answers after a microsecond or more: all loads of a thread are on their way at once. */
enum { BEGIN_THREADS = 512, BEGIN_LOADS = 4 };
__device__ inline void copy_step(const begin_args &a, const extent &e)
{
    const int n = words_of(e);
#pragma unroll 1
    for (int i0 = threadIdx.x; i0 < n; i0 += BEGIN_THREADS * BEGIN_LOADS) {
        uint64_t word[BEGIN_LOADS];
#pragma unroll
        for (int j = 0; j < BEGIN_LOADS; j++) {
            const int i = i0 + j * BEGIN_THREADS;
            word[j] = i < n ? *(const uint64_t *)((const uint8_t *)a.host + word_at(i, e)) : 0;
        }
#pragma unroll
        for (int j = 0; j < BEGIN_LOADS; j++) {
            const int i = i0 + j * BEGIN_THREADS;
            if (i < n) *(uint64_t *)((uint8_t *)a.step + word_at(i, e)) = word[j];
        }
    }
}

/* Row i of a sequence that comes after another one. */
__device__ inline void move_on(const begin_args &a, int i)
{
    step_row &row = a.step->row[i];
    const step_seq &q = a.step->seq[row.seq];
    const int from = q.after ? q.after : q.follows;
    if (!from) return;
    const kept &k = a.kept[from - 1];
    if (i == q.first_row && k.n) row.token = k.chosen;
    if (!q.after) return;
    row.index += k.n;
    row.see += k.n;
#pragma unroll
    for (int j = 0; j < 3; j++) row.rope[j] += k.n;
}

/* What a narrow bucket can hold comes in one go, before it is known how much of it is in use; the rest after
 * the head. Edits of one slot are applied in order by one thread. */
__global__ void __launch_bounds__(BEGIN_THREADS) begin_kernel(begin_args a)
{
    __shared__ step_head head;
    if (threadIdx.x < sizeof(step_head) / 4) ((int32_t *)&head)[threadIdx.x] =
        ((const int32_t *)&a.host->head)[threadIdx.x];
    wait_predecessor();
    const bool guess = a.bucket.rows <= NARROW_ROWS;
    if (guess) copy_step(a, { a.bucket.seqs, a.bucket.outs, 0, 0, a.bucket.rows });
    __syncthreads();
    if (threadIdx.x < sizeof(step_head) / 4) ((int32_t *)&a.step->head)[threadIdx.x] =
        ((const int32_t *)&head)[threadIdx.x];
    if (guess) copy_step(a, { 0, 0, head.n_edits, head.n_ctx, 0 });
    else copy_step(a, { head.n_seqs, head.n_out, head.n_edits, head.n_ctx, head.n_rows });
    __syncthreads();
    for (int i = 0; i < head.n_edits; i++) {
        const step_edit &e = a.step->edit[i];
        if ((e.slot * KINDS + e.kind) % BEGIN_THREADS != (int)threadIdx.x) continue;
        if (e.kind < a.n_kinds && e.slot < a.n_slots && e.at >= 0 && e.at < a.max_pages[e.kind])
            a.table[e.kind][(int64_t)e.slot * a.max_pages[e.kind] + e.at] = e.page;
    }
    for (int i = threadIdx.x; head.after && i < head.n_rows; i += BEGIN_THREADS) move_on(a, i);
    for (int s = threadIdx.x; head.after && s < head.n_seqs; s += BEGIN_THREADS)
        if (a.step->seq[s].after) a.step->seq[s].past += a.kept[a.step->seq[s].after - 1].n;
    for (int s = threadIdx.x; s < head.n_seqs; s += BEGIN_THREADS) {
        const step_seq &q = a.step->seq[s];
        int tree = 0;
        for (int j = 0; !head.wide && j < q.n_rows; j++)
            tree |= a.step->row[q.first_row + j].path != ~(uint64_t)0 >> (63 - j);
        a.tree[s] = tree;
    }
}
void launch_begin(launch *l, const begin_args *a)
{
    fill_launch(l, begin_kernel, dim3(1), BEGIN_THREADS, 0, *a);
    l->overlap = false;
}

__global__ void __launch_bounds__(ROW_THREADS) embed_kernel(embed_args a)
{
    launch_dependents();
    const int row = blockIdx.x;
    if (row >= a.step->head.n_rows) return wait_predecessor();
    const int token = a.step->row[row].token, cols = a.table.n_cols;
    const bool inside = token >= 0 && token < a.table.n_rows;
    const uint8_t *from = a.table.at + (uint64_t)(inside ? token : 0) * a.table.row_bytes;
    float *y = a.y + (uint64_t)row * cols;
    const float undo = 1.0f / a.table.unit;
    wait_predecessor();
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        y[i] = inside ? a.scale * (row_value(a.table.type, from, i) * undo) : 0.0f;
}
void launch_embed(launch *l, const embed_args *a, int rows)
{
    fill_launch(l, embed_kernel, dim3(rows), threads_for(a->table.n_cols), 0, *a);
}

/* A pair of columns; the second may be beyond the end. */
__device__ inline float2 pair_at(const float *x, int k, int cols)
{
    if (cols % 2 == 0) return *(const float2 *)(x + k);
    return make_float2(x[k], k + 1 < cols ? x[k + 1] : 0.0f);
}
__device__ inline void put_pair(float *y, const form &f, int n, int k, int cols, float2 v)
{
    if (y && k < cols) {
        if (cols % 2 == 0) *(float2 *)(y + k) = v;
        else {
            y[k] = v.x;
            if (k + 1 < cols) y[k + 1] = v.y;
        }
    }
    if (f.at) form_put2(f, n, k, v.x, v.y);
}
/* Columns that are written: with a form, zeros up to the next multiple of 64. */
__device__ inline int padded(const form &f, int cols)
{
    return f.at ? (cols + 63) / 64 * 64 : cols;
}

/* ---- NORM: thread i takes the columns of lane i (panel.cuh) ------------------------------------------------ */
template <bool QUADS> __device__ inline float4 quad_at(const float *x, int k, int cols)
{
    if (QUADS) return k < cols ? *(const float4 *)(x + k) : make_float4(0, 0, 0, 0);
    return make_float4(k < cols ? x[k] : 0.0f, k + 1 < cols ? x[k + 1] : 0.0f, k + 2 < cols ? x[k + 2] : 0.0f,
                       k + 3 < cols ? x[k + 3] : 0.0f);
}
template <bool QUADS> __device__ inline void put_quad(float *y, int k, int cols, float4 v)
{
    if (k >= cols) return;
    if (QUADS) {
        *(float4 *)(y + k) = v;
        return;
    }
    y[k] = v.x;
    if (k + 1 < cols) y[k + 1] = v.y;
    if (k + 2 < cols) y[k + 2] = v.z;
    if (k + 3 < cols) y[k + 3] = v.w;
}
template <bool QUADS>
__device__ inline void put_normed(const norm_args &a, int row, int k, float4 v, float4 w, float factor)
{
    float4 out = times_norm(v, w, factor);
    if (a.residual) {
        const float4 r = quad_at<QUADS>(a.residual + (uint64_t)row * a.cols, k, a.cols);
        out.x += r.x, out.y += r.y, out.z += r.z, out.w += r.w;
    }
    if (a.y) put_quad<QUADS>(a.y + (uint64_t)row * a.cols, k, a.cols, out);
    if (a.form.at) form_put4(a.form, row, k, out);
}
/* Columns k .. k + 3 of every quad of this thread: the sum over the row's slots, which goes to x as well. Element by
 * element in the order of combine_experts_kernel. */
template <bool QUADS>
__device__ inline void sum_slots(const moe_sum_args &a, int row, int k0, int step, float4 (&v)[NORM_QUADS])
{
    const float *w = a.weights + (uint64_t)row * a.slots;
    const float *z = a.z + (uint64_t)row * a.slots * a.cols;
#pragma unroll
    for (int i = 0; i < NORM_QUADS; i++) v[i] = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int j = 0; j < a.slots; j++)
#pragma unroll
        for (int i = 0; i < NORM_QUADS; i++) {
            const float4 x = quad_at<QUADS>(z + (uint64_t)j * a.cols, k0 + i * step, a.cols);
            v[i].x = __fmaf_rn(w[j], x.x, v[i].x), v[i].y = __fmaf_rn(w[j], x.y, v[i].y);
            v[i].z = __fmaf_rn(w[j], x.z, v[i].z), v[i].w = __fmaf_rn(w[j], x.w, v[i].w);
        }
#pragma unroll
    for (int i = 0; i < NORM_QUADS; i++) {
        const int k = k0 + i * step;
        if (a.residual) {
            const float4 r = quad_at<QUADS>(a.residual + (uint64_t)row * a.cols, k, a.cols);
            v[i].x += r.x, v[i].y += r.y, v[i].z += r.z, v[i].w += r.w;
        }
        put_quad<QUADS>(a.y + (uint64_t)row * a.cols, k, a.cols, v[i]);
    }
}
template <bool QUADS, bool SUM> __global__ void __launch_bounds__(NORM_LANES) norm_kernel(norm_args a)
{
    enum { step = 4 * NORM_LANES };     /* in a block of fewer lanes each has one quad */
    __shared__ float sums[NORM_LANES / WARP];
    launch_dependents();
    const int row = blockIdx.x, cols = a.cols, k0 = 4 * (int)threadIdx.x;
    if (row >= *a.n_rows) return wait_predecessor();
    const float *x = a.x + (uint64_t)row * cols;
    float4 w[NORM_QUADS], v[NORM_QUADS];
#pragma unroll
    for (int i = 0; i < NORM_QUADS; i++) w[i] = quad_at<QUADS>(a.w, k0 + i * step, cols);
    wait_predecessor();
    if (SUM) {
        sum_slots<QUADS>(a.sum, row, k0, step, v);
    } else {
#pragma unroll
        for (int i = 0; i < NORM_QUADS; i++) v[i] = quad_at<QUADS>(x, k0 + i * step, cols);
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < NORM_QUADS; i++) sum = square_sum(v[i], sum);
#pragma unroll 1
    for (int k = k0 + NORM_QUADS * step; k < cols; k += step) sum = square_sum(quad_at<QUADS>(x, k, cols), sum);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = sum;
    __syncthreads();
    const float factor = norm_factor(sums, (int)blockDim.x / WARP, cols, a.eps);
    if (a.factors && threadIdx.x == 0) a.factors[row] = factor;
    const int end = padded(a.form, cols);
#pragma unroll
    for (int i = 0; i < NORM_QUADS; i++)
        if (k0 + i * step < end) put_normed<QUADS>(a, row, k0 + i * step, v[i], w[i], factor);
#pragma unroll 1
    for (int k = k0 + NORM_QUADS * step; k < end; k += step)
        put_normed<QUADS>(a, row, k, quad_at<QUADS>(x, k, cols), quad_at<QUADS>(a.w, k, cols), factor);
}
bool norm_can_sum(int cols)
{
    return cols <= MADE_COLS;
}
bool product_can_make(const made *m, int rows)
{
    if (card_is_small() || rows > 1 || m->cols > MADE_COLS) return false;
    if (m->by == MADE_BY_NORM) return m->cols % 4 == 0;
    return m->by == MADE_BY_GATED && m->dim <= MADE_HEAD && (m->dim | m->gate_cols | m->at | m->stride) % 2 == 0;
}
void launch_norm(launch *l, const norm_args *a, int rows)
{
    const bool quads = a->cols % 4 == 0;
    void (*kernel)(norm_args) = a->sum.z ? quads ? norm_kernel<true, true> : norm_kernel<false, true>
                                         : quads ? norm_kernel<true, false> : norm_kernel<false, false>;
    const int warps = (a->cols + 4 * WARP - 1) / (4 * WARP), most = NORM_LANES / WARP;
    fill_launch(l, kernel, dim3(rows), (warps < most ? warps : most) * WARP, 0, *a);
}

__global__ void __launch_bounds__(ROW_THREADS) map_kernel(map_args a)
{
    launch_dependents();
    const int row = blockIdx.x, cols = a.cols;
    if (row >= *a.n_rows) return wait_predecessor();
    wait_predecessor();
    const bool gate = a.kind == MAP_SILU || a.kind == MAP_GELU;
    const float *x = a.a + (uint64_t)(a.kind == MAP_TAKE ? a.step->out[row].row : row) * cols * (gate ? 2 : 1);
    const float *b = gate ? x + cols : a.b ? a.b + (uint64_t)row * cols : nullptr;
    float *y = a.y ? a.y + (uint64_t)row * cols : nullptr;
    for (int k = 2 * threadIdx.x; k < padded(a.form, cols); k += 2 * blockDim.x) {
        float2 v = make_float2(0, 0);
        if (k < cols) {
            v = pair_at(x, k, cols);
            if (gate) {
                const float second = k + 1 < cols ? b[k + 1] : 0.0f;
                v.x = (a.kind == MAP_SILU ? act_silu(v.x) : act_gelu(v.x)) * b[k];
                v.y = (a.kind == MAP_SILU ? act_silu(v.y) : act_gelu(v.y)) * second;
            } else if (b) {
                float2 w = pair_at(b, k, cols);
                v.x += w.x;
                v.y += w.y;
            }
        }
        put_pair(y, a.form, row, k, cols, v);
    }
}
void launch_map(launch *l, const map_args *a, int rows)
{
    fill_launch(l, map_kernel, dim3(rows), threads_for(a->cols), 0, *a);
}

struct pad_args {
    form f;
    int32_t cols;
};
__global__ void pad_kernel(pad_args a)
{
    launch_dependents();
    wait_predecessor();
    for (int k = a.cols + threadIdx.x; k < (a.cols + 63) / 64 * 64; k += blockDim.x)
        *(__half *)form_at(a.f, blockIdx.x, k) = __float2half_rn(0);
}
void launch_pad(launch *l, form f, int cols, int rows)
{
    pad_args a = { f, cols };
    fill_launch(l, pad_kernel, dim3(rows), 64, 0, a);
}

/* ---- GATED: a warp a head with a norm, else a warp for GATED_COLS of its columns; CONV: a block a row ---- */
enum { GATED_WARPS = 4 };

/* EVEN: all pairs of columns are aligned. Loads of a warp's first columns go before the sum. */
template <bool EVEN> __global__ void __launch_bounds__(GATED_WARPS * WARP) gated_kernel(gated_args a)
{
    launch_dependents();
    const int row = blockIdx.y, piece = blockIdx.x * GATED_WARPS + threadIdx.x / WARP, head = piece / a.pieces;
    const int from = piece % a.pieces * GATED_COLS, first = from + 2 * (threadIdx.x % WARP), dim = a.dim;
    const int end = a.pieces > 1 ? min(dim, from + GATED_COLS) : dim;
    if (row >= *a.n_rows || head >= a.heads) return wait_predecessor();
    const float *x = a.x + ((uint64_t)row * a.heads + head) * dim;
    const float *g = a.gate + (uint64_t)row * a.gate_cols + a.at + (uint64_t)head * a.stride;
    auto pair = [&](const float *from, int c) {
        if (c >= end) return make_float2(0, 0);
        return EVEN ? *(const float2 *)(from + c) : make_float2(from[c], c + 1 < end ? from[c + 1] : 0.0f);
    };
    float2 w[GATED_PAIRS], v[GATED_PAIRS], z[GATED_PAIRS];
#pragma unroll
    for (int i = 0; i < GATED_PAIRS; i++) w[i] = a.w ? pair(a.w, first + i * 2 * WARP) : make_float2(1, 1);
    wait_predecessor();
    const float one = a.scalar ? g[0] : 0.0f;
    float scale = 1, sum = 0;
#pragma unroll
    for (int i = 0; i < GATED_PAIRS; i++) {
        const int c = first + i * 2 * WARP;
        v[i] = pair(x, c);
        z[i] = a.scalar ? make_float2(one, one) : pair(g, c);
        sum = square_sum(v[i], sum);
    }
    if (a.w) {
        for (int c = first + GATED_COLS; c < end; c += 2 * WARP) sum = square_sum(pair(x, c), sum);
        scale = rms_factor(warp_sum(sum), dim, a.eps);
    }
    auto put = [&](int c, float2 from, float2 by, float2 gate) {
        auto gated = [&](float value, float weight, float at) {
            return (a.w ? value * scale * weight : value) * gate_of(at, a.silu);
        };
        float2 y = make_float2(gated(from.x, by.x, gate.x), gated(from.y, by.y, gate.y));
        const int k = head * dim + c;
        if (a.residual) {
            const float2 more = pair(a.residual + ((uint64_t)row * a.heads + head) * dim, c);
            y.x += more.x, y.y += more.y;
        }
        float *out = a.y ? a.y + (uint64_t)row * a.heads * dim + k : nullptr;
        if (EVEN && out) *(float2 *)out = y;
        if (EVEN && a.form.at) form_put2(a.form, row, k, y.x, y.y);
        for (int i = 0; !EVEN && i < 2 && c + i < end; i++) {
            const float one_of = i ? y.y : y.x;
            if (out) out[i] = one_of;
            if (a.form.at) *(__half *)form_at(a.form, row, k + i) = clamped_half(one_of * a.form.scale);
        }
    };
#pragma unroll
    for (int i = 0; i < GATED_PAIRS; i++)
        if (first + i * 2 * WARP < end) put(first + i * 2 * WARP, v[i], w[i], z[i]);
    for (int c = first + GATED_COLS; c < end; c += 2 * WARP)
        put(c, pair(x, c), a.w ? pair(a.w, c) : make_float2(1, 1), a.scalar ? make_float2(one, one) : pair(g, c));
}
void launch_gated(launch *l, const gated_args *from, int rows)
{
    gated_args a = *from;
    a.pieces = a.w ? 1 : (a.dim + GATED_COLS - 1) / GATED_COLS;
    const bool even = (a.dim | a.at | a.stride | a.gate_cols) % 2 == 0;
    const dim3 grid((a.heads * a.pieces + GATED_WARPS - 1) / GATED_WARPS, rows);
    fill_launch(l, even ? gated_kernel<true> : gated_kernel<false>, grid, GATED_WARPS * WARP, 0, a);
}

__global__ void __launch_bounds__(ROW_THREADS) mix_kernel(mix_args a)
{
    launch_dependents();
    wait_predecessor();
    const int row = blockIdx.x, groups = a.cols / a.group;
    if (row >= a.step->head.n_rows) return;
    const int local = row - a.step->seq[a.step->row[row].seq].first_row;
    const float *dyn = a.dyn + (uint64_t)row * a.dyn_cols + a.dyn_at;
    for (int c = threadIdx.x; c < a.cols; c += blockDim.x) {
        float y = 0;
        for (int o = 0; o < a.taps && o <= local; o++)
            y = __fmaf_rn(a.base[(uint64_t)o * a.cols + c] + dyn[o * groups + c / a.group],
                          a.x[(uint64_t)(row - o) * a.cols + c], y);
        a.y[(uint64_t)row * a.cols + c] = y;
    }
}
void launch_mix(launch *l, const mix_args *a, int rows)
{
    fill_launch(l, mix_kernel, dim3(rows), threads_for(a->cols), 0, *a);
}

/* ---- ARGMAX: a block a row and 4096 columns, then a warp a row for the best of these ----------------------- */
enum { ARGMAX_THREADS = 256, ARGMAX_LOADS = 16, ARGMAX_COLS = ARGMAX_THREADS * ARGMAX_LOADS };
static int argmax_blocks(int cols)
{
    return (cols + ARGMAX_COLS - 1) / ARGMAX_COLS;
}
uint64_t argmax_scratch(int rows, int cols)
{
    return (uint64_t)rows * argmax_blocks(cols) * sizeof(best);
}
__global__ void __launch_bounds__(ARGMAX_THREADS) argmax_kernel(argmax_args a)
{
    __shared__ best shared[ARGMAX_THREADS / WARP];
    launch_dependents();
    const int row = blockIdx.y, first = blockIdx.x * ARGMAX_COLS + threadIdx.x;
    wait_predecessor();
    if (row >= *a.n_rows) return;
    const float *x = a.x + (uint64_t)row * a.cols;
    float v[ARGMAX_LOADS];
#pragma unroll
    for (int i = 0; i < ARGMAX_LOADS; i++)
        v[i] = first + i * ARGMAX_THREADS < a.cols ? x[first + i * ARGMAX_THREADS] : -INFINITY;
    best mine = { -INFINITY, INT32_MAX };
#pragma unroll
    for (int i = 0; i < ARGMAX_LOADS; i++) {
        const int at = first + i * ARGMAX_THREADS;
        if (at < a.cols) mine = better(mine, best{ v[i], isnan(v[i]) ? -1 : at });
    }
    mine = best_of_warp(mine);
    if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = mine;
    __syncthreads();
    if (threadIdx.x) return;
#pragma unroll 1
    for (int i = 1; i < ARGMAX_THREADS / WARP; i++) mine = better(mine, shared[i]);
    ((best *)a.scratch)[(uint64_t)row * gridDim.x + blockIdx.x] = mine;
}
__global__ void __launch_bounds__(WARP) best_kernel(argmax_args a)
{
    launch_dependents();
    const int row = blockIdx.x, n = (a.cols + ARGMAX_COLS - 1) / ARGMAX_COLS;
    wait_predecessor();
    if (row >= *a.n_rows) return;
    best mine = { -INFINITY, INT32_MAX };
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += WARP) mine = better(mine, ((const best *)a.scratch)[(uint64_t)row * n + i]);
    mine = best_of_warp(mine);
    if (threadIdx.x) return;
    a.y[row] = mine.index;
    if (a.host) a.host[row] = mine.index;
}
int launch_argmax(launch *l, const argmax_args *a, int rows)
{
    fill_launch(l, argmax_kernel, dim3(argmax_blocks(a->cols), rows), ARGMAX_THREADS, 0, *a);
    fill_launch(l + 1, best_kernel, dim3(rows), WARP, 0, *a);
    return 2;
}

/* ---- ACCEPT: a warp a sequence, whose lane i has rows i and i + 32; and copies of what it kept ------------- */
__device__ inline int lowest(unsigned low, unsigned high)
{
    return low ? __ffs(low) - 1 : high ? __ffs(high) + 31 : -1;
}
/* Of this lane's row j: the token, the path of the row before it, and what was chosen after it. */
struct guessed {
    uint64_t before;
    int32_t token, chosen;
};
__device__ inline guessed guessed_at(const accept_args &a, const step_seq &q, int first, int j)
{
    if (j >= q.n_rows) return guessed{ 0, -1, -1 };
    const step_row &row = a.step->row[q.first_row + j];
    return guessed{ row.path & ~((uint64_t)1 << j), row.token, a.chosen[first + j] };
}
__device__ inline void put_kept(const accept_args &a, int o, int32_t row, int32_t chosen)
{
    a.y[2 * o] = row;
    a.y[2 * o + 1] = chosen;
    if (!a.host) return;
    a.host[2 * o] = row;
    a.host[2 * o + 1] = chosen;
}
/* The wanted row of the sequence's first one if all its rows are wanted, in order, or -1. */
__device__ inline int first_wanted(const step &s, const step_seq &q)
{
    const int lane = threadIdx.x, n_out = s.head.n_out;
    bool is[2], all = q.n_rows > 0 && !s.head.wide;
    for (int i = 0; i < 2; i++) is[i] = lane + i * WARP < n_out && s.out[lane + i * WARP].row == q.first_row;
    const int first = lowest(__ballot_sync(0xffffffffu, is[0]), __ballot_sync(0xffffffffu, is[1]));
    for (int j = lane; j < q.n_rows && all; j += WARP)
        all = first >= 0 && first + j < n_out && s.out[first + j].row == q.first_row + j;
    return __all_sync(0xffffffffu, all) ? first : -1;
}
__global__ void __launch_bounds__(WARP) accept_kernel(accept_args a)
{
    launch_dependents();
    const int s = blockIdx.x, lane = threadIdx.x;
    if (s >= a.step->head.n_seqs) return wait_predecessor();
    const step_seq &q = a.step->seq[s];
    const int first = first_wanted(*a.step, q);
    wait_predecessor();
    if (first < 0) {
        for (int o = lane; o < a.step->head.n_out; o += WARP)
            if (a.step->row[a.step->out[o].row].seq == s) put_kept(a, o, -1, -1);
        if (lane == 0 && q.n_rows) a.kept[s].n = 0;     /* a step of commits alone tells nothing */
        return;
    }
    const guessed low = guessed_at(a, q, first, lane), high = guessed_at(a, q, first, lane + WARP);
    int n = 0, at = 0;
    int32_t row[2] = { -1, -1 }, chosen[2] = { -1, -1 }, last = -1;     /* of the lane-th kept row, and 32 further */
#pragma unroll 1
    while (at >= 0) {
        const uint64_t path = a.step->row[q.first_row + at].path;
        last = __shfl_sync(0xffffffffu, at < WARP ? low.chosen : high.chosen, at % WARP);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (lane + i * WARP != n) continue;
            row[i] = q.first_row + at;
            chosen[i] = last;
        }
        n++;
        at = lowest(__ballot_sync(0xffffffffu, lane > at && low.before == path && low.token == last),
                    __ballot_sync(0xffffffffu, lane + WARP > at && high.before == path && high.token == last));
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int j = lane + i * WARP;
        if (j < q.n_rows) put_kept(a, first + j, row[i], chosen[i]);
        a.kept[s].row[j] = row[i];
    }
    if (lane == 0) {
        a.kept[s].n = n;
        a.kept[s].chosen = last;
    }
}
void launch_accept(launch *l, const accept_args *a, int seqs)
{
    fill_launch(l, accept_kernel, dim3(seqs), WARP, 0, *a);
}

enum { GATHER_THREADS = 256 };
__global__ void __launch_bounds__(GATHER_THREADS) gather_kernel(gather_args a)
{
    const int i = blockIdx.x;
    const bool there = i < a.kept->n;
    const uint32_t *from = (const uint32_t *)(a.from + (there ? a.kept->row[i] * a.row_bytes : 0));
    uint32_t *to = (uint32_t *)(a.to + i * a.stride);
    for (uint64_t k = threadIdx.x; k < a.row_bytes / 4; k += GATHER_THREADS) to[k] = there ? from[k] : 0;
}
void launch_gather(launch *l, const gather_args *a, int rows)
{
    fill_launch(l, gather_kernel, dim3(rows), GATHER_THREADS, 0, *a);
    l->overlap = false;
}
