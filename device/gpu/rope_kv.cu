/* device/gpu/rope_kv.cu - ROPE_KV: one warp per row and head of q, k or v (several heads in wide steps).
 * Traffic: 4 bytes a column in, q out in f32, k and v in the cache's format; the launch costs more.
 * Commits first: the warp of bank row j moves that row into its page, when it was accepted, before it
 * overwrites it; accepted bank rows that no new row overwrites have blocks of their own. The kernels of
 * other layers leave this layer's pages alone, so the commit does not wait for the kernel before.
 * The sum of a norm: lane i takes dims i, i + 32, ...; butterfly. Encoding equals tape/kv.c bit for bit. */
#include "device/gpu/rows.cuh"

enum { HEAD_WARPS = 4, HEAD_DIM = 256, LAYOUT_NONE = 0, LAYOUT_NORM = 1 };

/* One of the two halves, keys or values, of a head. */
struct half_place {
    uint64_t at;                /* in a page */
    uint32_t format;
    int row, scales;
};
__device__ inline half_place half_of(const kv_place &kv, int head, bool values)
{
    half_place h;
    h.at = values ? kv.v_at + head * kv.v_head : kv.k_at + head * kv.k_head;
    h.format = values ? kv.v_format : kv.k_format;
    h.row = values ? kv.v_row : kv.k_row;
    h.scales = values ? kv.v_scales : kv.k_scales;
    return h;
}
/* The head's block in the page of position `pos` of a slot; NULL without a page. */
__device__ inline uint8_t *block_of(const kv_place &kv, const half_place &h, int slot, int pos)
{
    int at = pos / PAGE;
    int page = at < kv.max_pages ? kv.table[(int64_t)slot * kv.max_pages + at] : -1;
    return page < 0 ? nullptr : kv.pages + (uint64_t)page * kv.page_bytes + h.at;
}

__device__ inline void move_row(const kv_place &kv, const half_place &h, int slot, int bank_row, int pos, int lane)
{
    uint8_t *to = block_of(kv, h, slot, pos);
    if (!to) return;
    const uint8_t *from = kv.pages + (uint64_t)slot * kv.page_bytes + h.at;
    const uint16_t *f = (const uint16_t *)(from + (uint64_t)bank_row * h.row);
    uint16_t *t = (uint16_t *)(to + (uint64_t)(pos % PAGE) * h.row);
#pragma unroll 1
    for (int i = lane; i < h.row / 2; i += WARP) t[i] = f[i];
    const int n = kv.dim / 32;
    if (h.scales && lane < n) {
        ((uint16_t *)(to + h.scales))[pos % PAGE * n + lane] =
            ((const uint16_t *)(from + h.scales))[bank_row * n + lane];
    }
}

/* Row `at` of the block gets the head's values. */
__device__ inline void encode_row(const kv_place &kv, const half_place &h, uint8_t *block, int at,
                                  const float *x, int lane)
{
    uint8_t *to = block + (uint64_t)at * h.row;
    if (h.format == TYPE_F16 || h.format == TYPE_BF16) {
#pragma unroll 1
        for (int i = lane; i < kv.dim; i += WARP) {
            if (h.format == TYPE_F16) ((__half *)to)[i] = __float2half_rn(x[i]);
            else ((bf16_t *)to)[i] = __float2bfloat16_rn(x[i]);
        }
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

__device__ inline void norm_head(float *x, const float *w, int dim, float eps, int lane)
{
    float sum = 0;
#pragma unroll 1
    for (int i = lane; i < dim; i += WARP) sum += x[i] * x[i];
    const float scale = 1.0f / sqrtf(warp_sum(sum) / dim + eps);
#pragma unroll 1
    for (int i = lane; i < dim; i += WARP) x[i] = x[i] * scale * w[i];
    __syncwarp();
}

/* Out of line: four copies of it would cost more to fetch than to run. */
__device__ __noinline__ float2 sine_cosine(float angle)
{
    float2 r;
    sincosf(angle, &r.x, &r.y);
    return r;
}
/* The rotary position that turns pair i. */
__device__ inline int axis_of(const rope_kv_args &a, int i)
{
    return i % 3 && i < 3 * a.sections[i % 3 - 1] ? i % 3 : 0;
}
__device__ inline void find_angles(float *sine, float *cosine, const rope_kv_args &a, const int32_t *pos, int lane)
{
#pragma unroll
    for (int j = 0; j < HEAD_DIM / 2 / WARP; j++) {
        const int i = lane + j * WARP;
        if (i >= a.dims / 2) break;
        const float2 r = sine_cosine(__fmul_rn((float)pos[axis_of(a, i)], a.freq[i]));
        sine[j] = r.x * a.magnitude;
        cosine[j] = r.y * a.magnitude;
    }
}
__device__ inline void rotate_head(float *x, const rope_kv_args &a, const float *sine, const float *cosine, int lane)
{
#pragma unroll
    for (int j = 0; j < HEAD_DIM / 2 / WARP; j++) {
        const int i = lane + j * WARP;
        if (i >= a.dims / 2) break;
        const int u = a.layout == LAYOUT_NORM ? 2 * i : i, v = a.layout == LAYOUT_NORM ? 2 * i + 1 : i + a.dims / 2;
        const float xu = x[u], xv = x[v];
        x[u] = xu * cosine[j] - xv * sine[j];
        x[v] = xv * cosine[j] + xu * sine[j];
    }
    __syncwarp();
}

/* Bank row j moves into its page, when the step before was accepted there. */
__device__ inline void commit_row(const kv_place &kv, const half_place &h, const step_seq &q, int j, int lane)
{
#pragma unroll 1
    for (int first = 0; first < q.n_commit; first += WARP) {
        const bool mine = first + lane < q.n_commit && q.commit[first + lane] == j;
        const uint32_t found = __ballot_sync(0xffffffffu, mine);
        if (found) move_row(kv, h, q.slot, j, q.past - q.n_commit + first + __ffs((int)found) - 1, lane);
    }
    __syncwarp();
}

/* A warp's head of one row: from the products to q, or to bank or page. */
__device__ inline void finish_head(const rope_kv_args &a, float *x, const step_row &r, const step_seq &q,
                                   bool wide, int row,
                                   int unit, const float *sine, const float *cosine, int lane)
{
    const int heads = a.heads, kv_heads = a.kv.kv_heads, dim = a.kv.dim;
    const float *from = a.x + (uint64_t)row * (heads * a.q_stride + 2 * kv_heads * dim) +
        (unit < heads ? unit * a.q_stride : heads * a.q_stride + (unit - heads) * dim);
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < dim; i += WARP) x[i] = from[i];
    __syncwarp();
    if (unit < heads + kv_heads) {
        const float *w = unit < heads ? a.q_norm : a.k_norm;
        if (w) norm_head(x, w, dim, a.eps, lane);
        if (a.layout != LAYOUT_NONE) rotate_head(x, a, sine, cosine, lane);
    }
    if (unit < heads) {
#pragma unroll 1
        for (int i = lane; i < dim; i += WARP) a.q[((uint64_t)row * heads + unit) * dim + i] = x[i];
        return;
    }
    const half_place h = half_of(a.kv, (unit - heads) % kv_heads, unit >= heads + kv_heads);
    const int pos = wide ? r.index : row - q.first_row;
    uint8_t *block = wide ? block_of(a.kv, h, q.slot, pos) : a.kv.pages + (uint64_t)q.slot * a.kv.page_bytes + h.at;
    if (block) encode_row(a.kv, h, block, pos % PAGE, x, lane);
}

__global__ void __launch_bounds__(HEAD_WARPS * WARP) rope_kv_kernel(rope_kv_args a)
{
    __shared__ float staged[HEAD_WARPS][HEAD_DIM];
    launch_dependents();
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row = blockIdx.y;
    const int heads = a.heads, kv_heads = a.kv.kv_heads, units = heads + 2 * kv_heads;
    const int first = blockIdx.x * HEAD_WARPS + warp, stride = gridDim.x * HEAD_WARPS;
    const step *s = a.step;
    const bool wide = s->head.wide;
    if (row >= a.bucket_rows) {             /* commits of a sequence that no new row overwrites */
        if (row - a.bucket_rows >= s->head.n_seqs) return wait_predecessor();
        const step_seq &q = s->seq[row - a.bucket_rows];
#pragma unroll 1
        for (int unit = first; unit < units; unit += stride) {
            if (unit < heads) continue;
            const half_place h = half_of(a.kv, (unit - heads) % kv_heads, unit >= heads + kv_heads);
#pragma unroll 1
            for (int i = 0; i < q.n_commit; i++)
                if (wide || q.commit[i] >= q.n_rows)
                    move_row(a.kv, h, q.slot, q.commit[i], q.past - q.n_commit + i, lane);
        }
        return wait_predecessor();
    }
    if (row >= s->head.n_rows) return wait_predecessor();
    const step_row &r = s->row[row];
    const step_seq &q = s->seq[r.seq];
    /* Angles and what was accepted come from the step: all that before the wait. */
    float sine[HEAD_DIM / 2 / WARP], cosine[HEAD_DIM / 2 / WARP];
    if (a.layout != LAYOUT_NONE) find_angles(sine, cosine, a, r.rope, lane);
#pragma unroll 1
    for (int unit = first; unit < units && !wide; unit += stride)
        if (unit >= heads)
            commit_row(a.kv, half_of(a.kv, (unit - heads) % kv_heads, unit >= heads + kv_heads), q,
                       row - q.first_row, lane);
    wait_predecessor();
#pragma unroll 1
    for (int unit = first; unit < units; unit += stride)
        finish_head(a, staged[warp], r, q, wide, row, unit, sine, cosine, lane);
}

void launch_rope_kv(launch *l, const rope_kv_args *a, int rows, int seqs)
{
    const int units = a->heads + 2 * a->kv.kv_heads;
    int blocks = (units + HEAD_WARPS - 1) / HEAD_WARPS;
    if (rows > NARROW_ROWS && blocks > 2) blocks = 2;       /* the angles of a row serve several heads */
    fill_launch(l, rope_kv_kernel, dim3(blocks, rows + seqs), HEAD_WARPS * WARP, 0, *a);
}
