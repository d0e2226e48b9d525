/* device/gpu/rope_kv.cu - ROPE_KV: one warp per row and head of q, k or v (several heads in wide steps).
 * Traffic: 4 bytes a column in, q out in f32, k and v in the cache's format; the launch costs more.
 * Commits first: the warp of bank row j moves that row into its page, when it was accepted, before it
 * overwrites it; accepted bank rows that no new row overwrites have blocks of their own. The kernels of
 * other layers leave this layer's pages alone, so the commit does not wait for the kernel before.
 * Angles are the same for all heads of a row: thread i of a block turns pair i into its sine and cosine, once.
 * The sum of a norm: lane i takes dims i, i + 32, ...; butterfly. Encoding equals tape/kv.c bit for bit. */
#include "device/gpu/rows.cuh"

enum { HEAD_WARPS = 4, HEAD_DIM = 256, HEAD_VALUES = HEAD_DIM / WARP, LAYOUT_NONE = 0, LAYOUT_NORM = 1 };

/* The head's block in the page of position `pos` of a slot; NULL without a page. */
__device__ inline uint8_t *block_of(const kv_place &kv, const kv_part &h, int slot, int pos)
{
    int at = pos / PAGE;
    int page = at < kv.max_pages ? kv.table[(int64_t)slot * kv.max_pages + at] : -1;
    return page < 0 ? nullptr : kv.pages + (uint64_t)page * kv.page_bytes + h.at;
}

__device__ inline void move_row(const kv_place &kv, const kv_part &h, int slot, int bank_row, int pos, int lane)
{
    uint8_t *to = block_of(kv, h, slot, pos);
    if (!to) return;
    const uint8_t *from = kv.pages + (uint64_t)slot * kv.page_bytes + h.at;
    const uint4 *f = (const uint4 *)(from + (uint64_t)bank_row * h.row_bytes);
    uint4 *t = (uint4 *)(to + (uint64_t)(pos % PAGE) * h.row_bytes);
    if (lane < h.row_bytes / 16) t[lane] = f[lane];
    const int n = kv.dim / 32;
    if (h.scales && lane < n) {
        ((uint16_t *)(to + h.scales))[pos % PAGE * n + lane] =
            ((const uint16_t *)(from + h.scales))[bank_row * n + lane];
    }
}

/* Row `at` of the block gets the head's values. */
__device__ inline void encode_row(const kv_place &kv, const kv_part &h, uint8_t *block, int at,
                                  const float *x, int lane)
{
    uint8_t *to = block + (uint64_t)at * h.row_bytes;
    if (h.format == TYPE_F16) {
#pragma unroll
        for (int j = 0; j < HEAD_VALUES; j++)
            if (lane + WARP * j < kv.dim) ((__half *)to)[lane + WARP * j] = __float2half_rn(x[lane + WARP * j]);
        return;
    }
    if (h.format == TYPE_BF16) {
#pragma unroll 1
        for (int i = lane; i < kv.dim; i += WARP) ((bf16_t *)to)[i] = __float2bfloat16_rn(x[i]);
        return;
    }
    const int n = kv.dim / 32;
    __half *scales = (__half *)(block + h.scales) + at * n;
#pragma unroll 1
    for (int b = 0; b < n; b++) {
        const float v = x[32 * b + lane], top = warp_max(fabsf(v));
        if (h.format == TYPE_Q8_0) {
            const float d = __fdiv_rn(top, 127.0f), id = d != 0 ? __fdiv_rn(1.0f, d) : 0.0f, q = __fmul_rn(v, id);
            const int code = !(fabsf(q) < 127.0f) ? (q >= 127.0f ? 127 : q <= -127.0f ? -127 : 0) : (int)roundf(q);
            to[32 * b + lane] = (uint8_t)(int8_t)code;
            if (lane == 0) scales[b] = __float2half_rn(d);
        } else {                /* the first of the largest values sets the scale */
            const uint32_t largest = __ballot_sync(0xffffffffu, fabsf(v) == top);
            const float first = __shfl_sync(0xffffffffu, v, largest ? __ffs((int)largest) - 1 : 0);
            const float d = __fdiv_rn(top > 0 ? first : 0.0f, -8.0f), id = d != 0 ? __fdiv_rn(1.0f, d) : 0.0f;
            const float q = __fadd_rn(__fmul_rn(v, id), 8.5f);
            const int code = !(q > 0) ? 0 : q >= 15.0f ? 15 : (int)q;
            const int high = __shfl_down_sync(0xffffffffu, code, 16);
            if (lane < 16) to[16 * b + lane] = (uint8_t)(code | high << 4);
            if (lane == 0) scales[b] = __float2half_rn(d);
        }
    }
}

/* Values of a head in registers: lane + 32 j. */
__device__ inline void load_head(float v[HEAD_VALUES], const float *from, int dim, int lane)
{
#pragma unroll
    for (int j = 0; j < HEAD_VALUES; j++) v[j] = lane + WARP * j < dim ? from[lane + WARP * j] : 0.0f;
}
__device__ inline void norm_head(float v[HEAD_VALUES], const float w[HEAD_VALUES], int dim, float eps)
{
    float sum = 0;
#pragma unroll
    for (int j = 0; j < HEAD_VALUES; j++) sum = __fmaf_rn(v[j], v[j], sum);
    const float scale = rms_factor(warp_sum(sum), dim, eps);
#pragma unroll
    for (int j = 0; j < HEAD_VALUES; j++) v[j] = v[j] * scale * w[j];
}

/* Sine and cosine: the angle less a whole number of quarter turns, in f64, so that no angle needs another
 * way; then Taylor, whose first term left out is below 2e-9 there. */
__device__ inline float2 sine_cosine(float angle)
{
    const double turns = rint((double)angle * 0.63661977236758134);
    const float r = (float)((double)angle - turns * 1.5707963267948966), z = r * r;
    const float s = __fmaf_rn(r * z, __fmaf_rn(z, __fmaf_rn(z, __fmaf_rn(z, 1.0f / 362880, -1.0f / 5040), 1.0f / 120),
                                               -1.0f / 6), r);
    const float c = __fmaf_rn(z, __fmaf_rn(z, __fmaf_rn(z, __fmaf_rn(z, __fmaf_rn(z, -1.0f / 3628800, 1.0f / 40320),
                                                                    -1.0f / 720), 1.0f / 24), -0.5f), 1.0f);
    const int quarter = (int)turns;
    const float y = quarter & 1 ? c : s, x = quarter & 1 ? s : c;
    return make_float2(quarter & 2 ? -y : y, (quarter + 1) & 2 ? -x : x);
}
/* The rotary position that turns pair i. */
__device__ inline int axis_of(const rope_kv_args &a, int i)
{
    return i % 3 && i < 3 * a.sections[i % 3 - 1] ? i % 3 : 0;
}
/* turn[i]: sine and cosine of pair i. */
__device__ inline void rotate_head(float *x, const rope_kv_args &a, const float2 *turn, int lane)
{
#pragma unroll
    for (int j = 0; j < HEAD_VALUES / 2; j++) {
        const int i = lane + j * WARP;
        if (i >= a.dims / 2) break;
        const int u = a.layout == LAYOUT_NORM ? 2 * i : i, v = a.layout == LAYOUT_NORM ? 2 * i + 1 : i + a.dims / 2;
        const float xu = x[u], xv = x[v];
        const float2 t = turn[i];
        x[u] = xu * t.y - xv * t.x;
        x[v] = xv * t.y + xu * t.x;
    }
    __syncwarp();
}

/* Bank row j moves into its page, when the step before was accepted there. */
__device__ inline void commit_row(const kv_place &kv, const kv_part &h, const step_seq &q, int j, int lane)
{
#pragma unroll 1
    for (int first = 0; first < q.n_commit; first += WARP) {
        const bool mine = first + lane < q.n_commit && q.commit[first + lane] == j;
        const uint32_t found = __ballot_sync(0xffffffffu, mine);
        if (found) move_row(kv, h, q.slot, j, q.past - q.n_commit + first + __ffs((int)found) - 1, lane);
    }
    __syncwarp();
}

/* A warp's head of one row: from the products to q, or to bank or page. w: weights of its norm, if it has one. */
__device__ inline void finish_head(const rope_kv_args &a, float *x, const step_row &r, const step_seq &q, bool wide,
                                   int row, int unit, const float w[HEAD_VALUES], const float2 *turn, int lane)
{
    const int heads = a.heads, kv_heads = a.kv.kv_heads, dim = a.kv.dim;
    float v[HEAD_VALUES];
    load_head(v, a.x + (uint64_t)row * (heads * a.q_stride + 2 * kv_heads * dim) +
        (unit < heads ? unit * a.q_stride : heads * a.q_stride + (unit - heads) * dim), dim, lane);
    const bool turned = unit < heads + kv_heads;
    if (turned && (unit < heads ? a.q_norm : a.k_norm)) norm_head(v, w, dim, a.eps);
    __syncwarp();
#pragma unroll
    for (int j = 0; j < HEAD_VALUES; j++)
        if (lane + WARP * j < dim) x[lane + WARP * j] = v[j];
    __syncwarp();
    if (turned && a.layout != LAYOUT_NONE) rotate_head(x, a, turn, lane);
    if (unit < heads) {
#pragma unroll
        for (int j = 0; j < HEAD_VALUES; j++)
            if (lane + WARP * j < dim) a.q[((uint64_t)row * heads + unit) * dim + lane + WARP * j] = x[lane + WARP * j];
        return;
    }
    const kv_part h = part_of(a.kv, (unit - heads) % kv_heads, unit >= heads + kv_heads);
    const int pos = wide ? r.index : row - q.first_row;
    uint8_t *block = wide ? block_of(a.kv, h, q.slot, pos) : a.kv.pages + (uint64_t)q.slot * a.kv.page_bytes + h.at;
    if (block) encode_row(a.kv, h, block, pos % PAGE, x, lane);
}

/* Commits of sequences that no new row overwrites: a row of blocks takes sequences first, first + stride, ... */
__device__ inline void commit_rest(const rope_kv_args &a, int first, int stride, int unit0, int units, int lane)
{
    const step *s = a.step;
    for (int i = first; i < s->head.n_seqs; i += stride) {
        const step_seq &q = s->seq[i];
        for (int j = 0; j < q.n_commit; j++) {
            if (!s->head.wide && q.commit[j] < q.n_rows) continue;
            for (int unit = unit0; unit < units; unit += (int)gridDim.x * HEAD_WARPS) {
                if (unit < a.heads) continue;
                const kv_part h = part_of(a.kv, (unit - a.heads) % a.kv.kv_heads, unit >= a.heads + a.kv.kv_heads);
                move_row(a.kv, h, q.slot, q.commit[j], q.past - q.n_commit + j, lane);
            }
        }
    }
}

__global__ void __launch_bounds__(HEAD_WARPS * WARP) rope_kv_kernel(rope_kv_args a)
{
    __shared__ float staged[HEAD_WARPS][HEAD_DIM];
    __shared__ float2 turn[HEAD_DIM / 2];
    static_assert(HEAD_DIM / 2 <= HEAD_WARPS * WARP, "a thread a pair");
    launch_dependents();
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row = blockIdx.y;
    const int heads = a.heads, kv_heads = a.kv.kv_heads, units = heads + 2 * kv_heads;
    const int first = blockIdx.x * HEAD_WARPS + warp, stride = gridDim.x * HEAD_WARPS;
    const step *s = a.step;
    const bool wide = s->head.wide;
    if (row >= a.bucket_rows) {
        commit_rest(a, row - a.bucket_rows, (int)gridDim.y - a.bucket_rows, first, units, lane);
        return wait_predecessor();
    }
    if (row >= s->head.n_rows) return wait_predecessor();
    const step_row &r = s->row[row];
    const step_seq &q = s->seq[r.seq];
    /* Angles, weights and what was accepted do not come from the kernel before: all that before the wait. */
    if (a.layout != LAYOUT_NONE && (int)threadIdx.x < a.dims / 2) {
        const float2 t = sine_cosine(__fmul_rn((float)r.rope[axis_of(a, threadIdx.x)], a.freq[threadIdx.x]));
        turn[threadIdx.x] = make_float2(t.x * a.magnitude, t.y * a.magnitude);
    }
    for (int unit = first; unit < units && !wide; unit += stride)
        if (unit >= heads)
            commit_row(a.kv, part_of(a.kv, (unit - heads) % kv_heads, unit >= heads + kv_heads), q,
                       row - q.first_row, lane);
    __syncthreads();
    bool waited = false;
#pragma unroll 1
    for (int unit = first; unit < units; unit += stride) {
        float w[HEAD_VALUES];
        const float *norm = unit < heads ? a.q_norm : a.k_norm;
        if (norm) load_head(w, norm, a.kv.dim, lane);
        if (!waited) wait_predecessor();
        waited = true;
        finish_head(a, staged[warp], r, q, wide, row, unit, w, turn, lane);
    }
    if (!waited) wait_predecessor();
}

void launch_rope_kv(launch *l, const rope_kv_args *a, int rows, int seqs)
{
    const int units = a->heads + 2 * a->kv.kv_heads;
    int blocks = (units + HEAD_WARPS - 1) / HEAD_WARPS;
    if (rows > NARROW_ROWS && blocks > 2) blocks = 2;       /* the angles of a row serve several heads */
    fill_launch(l, rope_kv_kernel, dim3(blocks, rows + (seqs < rows ? seqs : rows)), HEAD_WARPS * WARP, 0, *a);
}
