/* device/gpu/rows.cu - the ops that are about whole rows: begin of a step, EMBED, NORM, ADD, GATE, TAKE,
 * GATED, CONV, ARGMAX, and the conversion of a value into the activations of a product.
 * Traffic is some KB a row: a launch costs more than the bytes. One block a row; f32 throughout.
 * Sums: thread i takes pairs i, i + threads, ...; warps combine by butterfly, then in index order. The
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

__device__ inline void copy_words(void *to, const void *from, uint64_t bytes)
{
    const uint64_t *f = (const uint64_t *)from;         /* every part of a step is 8-byte aligned */
    uint64_t *t = (uint64_t *)to;
    for (uint64_t i = threadIdx.x; i < bytes / 8; i += blockDim.x) t[i] = f[i];
}

/* One block. Edits of one slot are applied in order by one thread. */
__global__ void begin_kernel(begin_args a)
{
    __shared__ step_head head;
    if (threadIdx.x < sizeof(step_head) / 4) ((int32_t *)&head)[threadIdx.x] =
        ((const int32_t *)&a.host->head)[threadIdx.x];
    wait_predecessor();
    __syncthreads();
    copy_words(&a.step->head, &head, sizeof head);
    copy_words(a.step->seq, a.host->seq, head.n_seqs * sizeof(step_seq));
    copy_words(a.step->out, a.host->out, head.n_out * sizeof(step_out));
    copy_words(a.step->edit, a.host->edit, head.n_edits * sizeof(step_edit));
    copy_words(a.step->ctx, a.host->ctx, head.n_ctx * sizeof(step_ctx));
    copy_words(a.step->row, a.host->row, head.n_rows * sizeof(step_row));
    __syncthreads();
    for (int i = 0; i < head.n_edits; i++) {
        const step_edit &e = a.step->edit[i];
        if ((e.slot * KINDS + e.kind) % (int)blockDim.x != (int)threadIdx.x) continue;
        if (e.kind < a.n_kinds && e.slot < a.n_slots && e.at >= 0 && e.at < a.max_pages[e.kind])
            a.table[e.kind][(int64_t)e.slot * a.max_pages[e.kind] + e.at] = e.page;
    }
    /* Tags hold 22 bits of it: 0 and the numbers that look like it are left out. */
    if (threadIdx.x == 0) *a.serial = (*a.serial + 1) % (1u << 22) ? *a.serial + 1 : 1;
    for (int s = threadIdx.x; s < head.n_seqs; s += blockDim.x) {
        const step_seq &q = a.step->seq[s];
        int tree = 0;
        for (int j = 0; !head.wide && j < q.n_rows; j++)
            tree |= a.step->row[q.first_row + j].path != ~(uint64_t)0 >> (63 - j);
        a.tree[s] = tree;
    }
}
void launch_begin(launch *l, const begin_args *a)
{
    fill_launch(l, begin_kernel, dim3(1), 512, 0, *a);
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

/* A thread's first pairs of the weights are loaded before the wait; those of the row stay in registers. */
enum { NORM_PAIRS = 2 };
template <bool EVEN> __global__ void __launch_bounds__(ROW_THREADS) norm_kernel(norm_args a)
{
    __shared__ float shared[WARP];
    launch_dependents();
    const int row = blockIdx.x, cols = a.cols, step = 2 * (int)blockDim.x, k0 = 2 * (int)threadIdx.x;
    if (row >= *a.n_rows) return wait_predecessor();
    const float *x = a.x + (uint64_t)row * cols, *r = a.residual ? a.residual + (uint64_t)row * cols : nullptr;
    float *y = a.y ? a.y + (uint64_t)row * cols : nullptr;
    auto pair = [&](const float *from, int k) {
        if (k >= cols) return make_float2(0, 0);
        return EVEN ? *(const float2 *)(from + k) : make_float2(from[k], k + 1 < cols ? from[k + 1] : 0.0f);
    };
    float2 w[NORM_PAIRS], v[NORM_PAIRS];
#pragma unroll
    for (int i = 0; i < NORM_PAIRS; i++) w[i] = pair(a.w, k0 + i * step);
    wait_predecessor();
#pragma unroll
    for (int i = 0; i < NORM_PAIRS; i++) v[i] = pair(x, k0 + i * step);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < NORM_PAIRS; i++) sum += v[i].x * v[i].x, sum += v[i].y * v[i].y;
#pragma unroll 2
    for (int k = k0 + NORM_PAIRS * step; k < cols; k += step) {
        const float2 far = pair(x, k);
        sum += far.x * far.x, sum += far.y * far.y;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = sum;
    __syncthreads();
    float total = 0;
#pragma unroll 4
    for (int i = 0; i < (int)blockDim.x / WARP; i++) total += shared[i];
    const float scale = 1.0f / sqrtf(total / cols + a.eps);
#pragma unroll 1
    for (int i = 0, k = k0; k < padded(a.form, cols); i++, k += step) {
        const float2 x2 = i == 0 ? v[0] : i == 1 ? v[1] : pair(x, k), w2 =
            i == 0 ? w[0] : i == 1 ? w[1] : pair(a.w, k);
        float2 out = make_float2(x2.x * scale * w2.x, x2.y * scale * w2.y);
        if (r) {
            const float2 add = pair(r, k);
            out.x += add.x, out.y += add.y;
        }
        if (y && k < cols) {
            if (EVEN) *(float2 *)(y + k) = out;
            else {
                y[k] = out.x;
                if (k + 1 < cols) y[k + 1] = out.y;
            }
        }
        if (a.form.at) form_put2(a.form, row, k, out.x, out.y);
    }
}
void launch_norm(launch *l, const norm_args *a, int rows)
{
    fill_launch(l, a->cols % 2 ? norm_kernel<false> : norm_kernel<true>, dim3(rows), threads_for(a->cols), 0, *a);
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

/* ---- GATED: a warp a head; CONV: a block a row ------------------------------------------------------- */
enum { GATED_WARPS = 4 };
__global__ void __launch_bounds__(GATED_WARPS * WARP) gated_kernel(gated_args a)
{
    launch_dependents();
    wait_predecessor();
    const int row = blockIdx.y, head = blockIdx.x * GATED_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (row >= *a.n_rows || head >= a.heads) return;
    const float *x = a.x + ((uint64_t)row * a.heads + head) * a.dim;
    const float *g = a.gate + (uint64_t)row * a.gate_cols + a.at + (uint64_t)head * a.stride;
    float scale = 1;
    if (a.w) {
        float sum = 0;
        for (int c = lane; c < a.dim; c += WARP) sum = __fmaf_rn(x[c], x[c], sum);
        scale = 1.0f / sqrtf(warp_sum(sum) / a.dim + a.eps);
    }
    for (int c = lane; c < a.dim; c += WARP) {
        const float z = g[a.scalar ? 0 : c], f = (a.silu ? z : 1.0f) / (1.0f + expf(-z));
        const float y = (a.w ? x[c] * scale * a.w[c] : x[c]) * f;
        const int k = head * a.dim + c;
        if (a.y) a.y[(uint64_t)row * a.heads * a.dim + k] = y;
        if (a.form.at) *(__half *)form_at(a.form, row, k) = clamped_half(y * a.form.scale);
    }
}
void launch_gated(launch *l, const gated_args *a, int rows)
{
    fill_launch(l, gated_kernel, dim3((a->heads + GATED_WARPS - 1) / GATED_WARPS, rows), GATED_WARPS * WARP, 0, *a);
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

/* ---- ARGMAX: one block a row ----------------------------------------------------------------------- */
struct best {
    float value;
    int32_t index;              /* -1: NaN was met */
};
__device__ inline best better(best a, best b)
{
    if (a.index < 0 || b.index < 0) return best{ 0, -1 };
    if (b.value > a.value || (b.value == a.value && b.index < a.index)) return b;
    return a;
}
__global__ void __launch_bounds__(ROW_THREADS) argmax_kernel(argmax_args a)
{
    __shared__ best shared[WARP];
    launch_dependents();
    const int row = blockIdx.x;
    if (row >= *a.n_rows) return wait_predecessor();
    wait_predecessor();
    const float *x = a.x + (uint64_t)row * a.cols;
    best mine = { -INFINITY, INT32_MAX };
#pragma unroll 8
    for (int i = threadIdx.x; i < a.cols; i += blockDim.x) {
        float v = x[i];
        mine = better(mine, best{ v, isnan(v) ? -1 : i });
    }
    for (int i = 16; i; i /= 2)
        mine = better(mine, best{ __shfl_xor_sync(0xffffffffu, mine.value, i),
                                 __shfl_xor_sync(0xffffffffu, mine.index, i) });
    if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = mine;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < (int)blockDim.x / WARP; i++) mine = better(mine, shared[i]);
    a.y[row] = mine.index;
    if (a.host) a.host[row] = mine.index;
}
void launch_argmax(launch *l, const argmax_args *a, int rows)
{
    fill_launch(l, argmax_kernel, dim3(rows), threads_for(a->cols), 0, *a);
}
