/* device/gpu/pack.cu - weights from canonical rows into tiles, once at load: at memory speed or a little
 * below, which the copy from the host hides. */
#include "device/gpu/rows.cuh"

enum { PACK_THREADS = 64 };     /* a warp a row tile of 16 */

static source source_of(const rows *r)
{
    return source{ r->at, r->row_bytes, r->type, r->n_rows, r->n_cols, r->unit };
}

/* Block: tile (strip, chunk, rw); warp i packs row tile i. In a pair row tile 0 holds rows of `a`, row
 * tile 1 the same rows of `b`. */
template <class F> __global__ void pack_kernel(uint8_t *tiles, source a, source b, bool pair, int n_chunks)
{
    const uint64_t matrix = blockIdx.z;
    tiles += matrix * gridDim.x * ROW_WARPS * F::TILE;
    a.rows += matrix * a.n_rows * a.row_bytes;
    b.rows += matrix * b.n_rows * b.row_bytes;
    const int chunk = blockIdx.x % n_chunks, strip = blockIdx.x / n_chunks, rw = blockIdx.y;
    const int i = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint8_t *tile = tiles + ((uint64_t)blockIdx.x * ROW_WARPS + rw) * F::TILE;
    const int row0 = pair ? strip * (STRIP / 2) + rw * 16 : strip * STRIP + rw * TILE_ROWS + i * 16;
    F::pack(tile, pair && i ? b : a, row0, chunk * TILE_K, i, lane);
}
template <class F> static gpu_error pack(uint8_t *tiles, const rows *a, const rows *b, bool pair, int n, gpu_stream s)
{
    const int chunks = (a->n_cols + TILE_K - 1) / TILE_K, height = pair ? STRIP / 2 : STRIP;
    const int strips = (a->n_rows + height - 1) / height;
    return launch_now(pack_kernel<F>, dim3((unsigned)(strips * chunks), ROW_WARPS, (unsigned)n), PACK_THREADS, s, tiles,
                      source_of(a), pair ? source_of(b) : source_of(a), pair, chunks);
}
gpu_error pack_tiles(enum tile_format f, uint8_t *tiles, const rows *a, const rows *b, bool pair, int n, gpu_stream s)
{
    typedef gpu_error (*pack_fn)(uint8_t *, const rows *, const rows *, bool, int, gpu_stream);
    static const pack_fn by_format[TILES_COUNT] = { pack<tile_f16>, pack<tile_q8_0>, pack<tile_q4_0>,
                                                    pack<tile_q4_k>, pack<tile_q5_k>, pack<tile_q6_k>,
                                                    pack<tile_iq4_xs> };
    return by_format[f](tiles, a, b, pair, n, s);
}

enum tile_format tiles_of(uint32_t type)
{
    switch (type) {
    case TYPE_Q8_0: return TILES_Q8_0;
    case TYPE_Q4_0: return TILES_Q4_0;
    case TYPE_Q4_K: case TYPE_Q4_1: return TILES_Q4_K;
    case TYPE_Q5_K: case TYPE_Q5_1: case TYPE_Q5_0: return TILES_Q5_K;
    case TYPE_Q6_K: return TILES_Q6_K;
    case TYPE_IQ4_XS: case TYPE_IQ4_NL: return TILES_IQ4_XS;
    default: return TILES_F16;
    }
}
bool rows_decodable(uint32_t type)
{
    return tiles_of(type) != TILES_F16 || type == TYPE_F16 || type == TYPE_F32 || type == TYPE_BF16;
}
uint64_t tiles_bytes(enum tile_format f, uint64_t n_rows, uint64_t n_cols)
{
    static const int tile[TILES_COUNT] = { tile_f16::TILE, tile_q8_0::TILE, tile_q4_0::TILE,
                                           tile_q4_k::TILE, tile_q5_k::TILE, tile_q6_k::TILE, tile_iq4_xs::TILE };
    return (n_rows + STRIP - 1) / STRIP * ((n_cols + TILE_K - 1) / TILE_K) * ROW_WARPS * (uint64_t)tile[f];
}

__global__ void absmax_kernel(rows r, int *out)
{
    float top = 0;
    for (int row = blockIdx.x; row < r.n_rows; row += gridDim.x)
        for (int i = threadIdx.x; i < r.n_cols; i += blockDim.x) {
            const float v = fabsf(row_scale(r.type, r.at + (uint64_t)row * r.row_bytes, i) * r.unit);
            if (v < INFINITY && v > top) top = v;
        }
    top = warp_max(top);
    if (threadIdx.x % WARP == 0) atomicMax(out, __float_as_int(top));       /* not negative: bits are in order */
}
gpu_error rows_absmax(const rows *r, float *out, gpu_stream s)
{
    int blocks = r->n_rows < 4096 ? r->n_rows : 4096;
    return launch_now(absmax_kernel, blocks, 256, s, *r, (int *)out);
}

__global__ void f16_kernel(rows r, __half *out)
{
    for (int row = blockIdx.x; row < r.n_rows; row += gridDim.x)
        for (int i = threadIdx.x; i < r.n_cols; i += blockDim.x)
            out[(uint64_t)row * r.n_cols + i] = clamped_half(row_value(r.type,
                r.at + (uint64_t)row * r.row_bytes, i) * r.unit);
}
gpu_error rows_to_f16(const rows *r, uint16_t *out, gpu_stream s)
{
    int blocks = r->n_rows < 16384 ? r->n_rows : 16384;
    return launch_now(f16_kernel, blocks, 256, s, *r, (__half *)out);
}

/* ---- measuring: streaming reads --------------------------------------------------------------------- */
template <int UNROLL> __global__ void read_kernel(const uint4 *p, uint64_t n, uint32_t *out)
{
    uint32_t s = 0;
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i
         + (UNROLL - 1) * step < n; i += UNROLL * step) {
        uint4 v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) v[u] = __ldcs(p + i + u * step);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) s += v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
    }
    if (s == 0x12345) *out = s;
}
/* bf16 numbers of both signs below 1. */
__global__ void random_kernel(uint16_t *out, uint64_t n)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x) {
        uint32_t x = (uint32_t)i * 2654435761u;
        x ^= x >> 15;
        x *= 2246822519u;
        x ^= x >> 13;
        out[i] = (uint16_t)((x & 0x8000) | (0x3e80 + (x >> 16 & 0xff)));
    }
}
gpu_error measure_fill(void *p, uint64_t bytes, gpu_stream s)
{
    return launch_now(random_kernel, 4096, 256, s, (uint16_t *)p, bytes / 2);
}
gpu_error measure_read(const void *p, uint64_t bytes, int variant, int n_units, void *sink, gpu_stream s)
{
    const unsigned blocks = (unsigned)(n_units * (variant & 1 ? 8 : 4)), threads = variant & 2 ? 512 : 256;
    return launch_now(variant & 4 ? read_kernel<8> : read_kernel<4>, blocks, threads, s, (const uint4 *)p, bytes / 16,
                      (uint32_t *)sink);
}
