/* device/gpu/quant/tiles.cuh - weights as the narrow product reads them: tiles of 32 rows x 64 columns
 * in the order of the matrix instruction's A fragments, dequantised to f16 in registers.
 *
 * A tile is two row tiles i (16 rows) of four k-steps s (16 columns). The 64 columns go in pairs c, c + 32, so
 * that a pair's scales are a pair, too: place 2 c + h has column c + 32 h, in activations as in weights. Lane
 * 4 g + t holds, for k-step s, the eight weights of rows g and g + 8, columns 8 s + t + {0, 32, 4, 36}: in
 * fragment order
 *     slot 0,1  row g,   columns +0 +32     slot 4,5  row g,   columns +4 +36
 *     slot 2,3  row g+8, columns +0 +32     slot 6,7  row g+8, columns +4 +36
 * Each format is a struct:
 *     TILE       bytes of a tile          KWARPS   warps that share the columns of a strip
 *     LUT        bytes of its table       IN_REGISTERS   load() leaves nothing in shared memory
 *     PANELS     tiles of a strip are a panel of f16
 *     load()     a lane's registers from the tile in shared memory
 *     frag<I,S>  the A fragment of row tile I, k-step S
 *     pack()     writes the tile from canonical blocks (upload; one call a lane)
 * Codes are used as f16 subnormals: the bits of a small integer q, read as f16, are q * 2^-24. Scales
 * are stored times `unit`, a power of two per matrix that puts the largest near f16's upper end, so one
 * fused multiply-add gives q * scale (- zero * scale) times unit * 2^-24, rounded once to 11 bits; the
 * epilogue multiplies by 2^24 / unit, exactly. */
#ifndef LUCE_DEVICE_GPU_QUANT_TILES_CUH
#define LUCE_DEVICE_GPU_QUANT_TILES_CUH

#include "device/gpu/port.h"

enum { TILE_ROWS = 32, TILE_K = 64 };

/* Column of slot e of k-step s for lane part t, and its row. */
__host__ __device__ inline int slot_column(int s, int t, int e)
{
    return 8 * s + t + 32 * (e & 1) + 4 * (e >> 2);
}
/* Place of a column among its 64. */
__host__ __device__ inline int place_of(int column)
{
    return 2 * (column % 32) + column / 32;
}
__host__ __device__ inline int slot_row(int g, int e)
{
    return g + 8 * ((e >> 1) & 1);
}

/* Where pack() reads: canonical rows of one matrix. */
struct source {
    const uint8_t *rows;        /* canonical blocks */
    uint64_t row_bytes;
    uint32_t type;              /* id of quant/quant.h */
    int n_rows, n_cols;         /* beyond them weights are zero */
    float unit;                 /* power of two that multiplies every scale; see above */
};

__device__ inline uint16_t read_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}
__device__ inline float read_half(const uint8_t *p)
{
    return __half2float(__ushort_as_half(read_u16(p)));
}

enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q4_0 = 2, TYPE_Q4_1 = 3, TYPE_Q5_0 = 6, TYPE_Q5_1 = 7, TYPE_Q8_0 = 8,
       TYPE_Q4_K = 12, TYPE_Q5_K = 13, TYPE_Q6_K = 14, TYPE_IQ4_NL = 20, TYPE_IQ4_XS = 23, TYPE_BF16 = 30 };

/* A weight of the formats with a scale and a term to add: code * scale + low, in this order. */
struct affine {
    int code;
    float scale, low;
};
__device__ inline affine affine_at(uint32_t type, const uint8_t *row, int col)
{
    affine a;
    if (type == TYPE_Q4_K || type == TYPE_Q5_K) {
        const uint8_t *b = row + (uint64_t)(col / 256) * (type == TYPE_Q4_K ? 144 : 176), *p = b + 4;
        const int i = col % 256 / 32, q = b[(type == TYPE_Q4_K ? 16 : 48) + 32 * (i / 2) + col % 32];
        const int sc = i < 4 ? p[i] & 63 : (p[i + 4] & 15) | (p[i - 4] >> 6) << 4;
        const int m = i < 4 ? p[i + 4] & 63 : (p[i + 4] >> 4) | (p[i] >> 6) << 4;
        a.code = i % 2 ? q >> 4 : q & 15;
        if (type == TYPE_Q5_K) a.code |= (b[16 + col % 32] >> i & 1) << 4;
        a.scale = __fmul_rn(read_half(b), (float)sc);
        a.low = -__fmul_rn(read_half(b + 2), (float)m);
        return a;
    }
    const int at = col % 32, bytes = type == TYPE_Q4_1 ? 20 : type == TYPE_Q5_0 ? 22 : 24;
    const uint8_t *b = row + (uint64_t)(col / 32) * bytes, *qs = b + bytes - 16, *high = qs - 4;
    a.code = at < 16 ? qs[at] & 15 : qs[at - 16] >> 4;
    if (type != TYPE_Q4_1) a.code |= (high[at / 8] >> (at % 8) & 1) << 4;
    a.scale = read_half(b);
    a.low = type == TYPE_Q5_0 ? -16.0f * a.scale : read_half(b + 2);
    return a;
}
/* The same for two rows of scales in a tile: [i][g][row is g + 8][scale, low][half]. */
__device__ inline void pack_affine(uint8_t *to, const source &w, int row0, int col0, int i, int lane)
{
    const int g = lane / 4, t = lane % 4, row = row0 + g + 8 * (t / 2), col = col0 + 32 * (t % 2);
    affine a = { 0, 0, 0 };
    if (row < w.n_rows && col < w.n_cols) a = affine_at(w.type, w.rows + row * w.row_bytes, col);
    __half *out = (__half *)to + (i * 8 + g) * 8 + t / 2 * 4 + t % 2;
    out[0] = __float2half_rn(a.scale * w.unit);
    out[2] = __float2half_rn(a.low * w.unit * 0x1p-24f);
}

/* d * -2^E, E down to -24: what a code's zero point takes away. */
template <int E> __device__ inline __half2 zero_of(__half2 d)
{
    const __half2 k = __half2half2(__float2half_rn(-1.0f / (float)(1 << -E)));
    return __hmul2(d, k);
}
__device__ inline __half2 sixteenth(__half2 d)
{
    return __hmul2(d, __half2half2(__float2half_rn(0.0625f)));
}

/* ---- f16: 4096 bytes [row][64 columns], the 16-byte pieces of a row swapped by row % 8: the order of panels
 * (kernels.h), so that wide products read them as they lie ----------------------------------------------- */
struct tile_f16 {
    enum { TILE = 4096, KWARPS = 2, LUT = 0, IN_REGISTERS = 0, PANELS = 1 };
    struct regs {
        shared_t at;            /* of the lane's row in a matrix load */
        int swap;
    };
    __device__ static void load(regs &r, shared_t tile, int lane)
    {
        r.at = tile + lane % 16 * 128;
        r.swap = (lane / 16) ^ (lane % 8);
    }
    template <int I, int S> __device__ static void frag(const regs &r, uint32_t a[4])
    {
        load_matrices(a, r.at + I * 16 * 128 + ((2 * S) ^ r.swap) * 16);
    }
    __device__ static void pack(uint8_t *tile, const source &w, int row0, int col0, int i, int lane)
    {
        int g = lane / 4, t = lane % 4;
        for (int s = 0; s < 4; s++)
            for (int e = 0; e < 8; e++) {
                int r = slot_row(g, e), c = slot_column(s, t, e), row = row0 + r, col = col0 + c;
                bool in = row < w.n_rows && col < w.n_cols;
                const int p = place_of(c);
                *(uint16_t *)(tile + (i * 16 + r) * 128 + ((p / 8) ^ (r % 8)) * 16 + p % 8 * 2) =
                    in ? read_u16(w.rows + row * w.row_bytes + 2 * (uint64_t)col) : 0;
            }
    }
};

/* ---- 8-bit: 2048 bytes [i][s / 2][lane][s % 2][8 codes + 128], then scales [i][g][4 halves] -------
 * scales of lane group g: rows g and g + 8, columns 0..31 and 32..63: index 2 * (row is g + 8) + half */
struct tile_q8_0 {
    enum { TILE = 2048 + 128, KWARPS = 4, LUT = 0, IN_REGISTERS = 1, PANELS = 0 };
    struct regs {
        uint4 q[2][2];
        uint2 d[2];
    };
    template <class P> __device__ static void load(regs &r, P tile, int lane)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            r.q[i][0] = load_at<uint4>(tile + i * 1024 + lane * 16);
            r.q[i][1] = load_at<uint4>(tile + i * 1024 + 512 + lane * 16);
            r.d[i] = load_at<uint2>(tile + 2048 + i * 64 + lane / 4 * 8);
        }
    }
    template <int I, int S> __device__ static void frag(const regs &r, uint32_t a[4])
    {
        const uint4 &q = r.q[I][S / 2];
        uint32_t lo = S % 2 ? q.z : q.x, hi = S % 2 ? q.w : q.y;
        __half2 d0 = as_half2(r.d[I].x), d1 = as_half2(r.d[I].y);
        __half2 z0 = zero_of<-17>(d0), z1 = zero_of<-17>(d1);               /* -128 * 2^-24 */
        a[0] = as_bits(__hfma2(as_half2(pick_bytes(lo, 0, 0x4140)), d0, z0));
        a[1] = as_bits(__hfma2(as_half2(pick_bytes(lo, 0, 0x4342)), d1, z1));
        a[2] = as_bits(__hfma2(as_half2(pick_bytes(hi, 0, 0x4140)), d0, z0));
        a[3] = as_bits(__hfma2(as_half2(pick_bytes(hi, 0, 0x4342)), d1, z1));
    }
    __device__ static void pack(uint8_t *tile, const source &w, int row0, int col0, int i, int lane)
    {
        int g = lane / 4, t = lane % 4;
        for (int s = 0; s < 4; s++)
            for (int e = 0; e < 8; e++) {
                int row = row0 + slot_row(g, e), col = col0 + slot_column(s, t, e), code = 0;
                if (row < w.n_rows && col < w.n_cols)
                    code = (int8_t)w.rows[row * w.row_bytes + (uint64_t)(col / 32) * 34 + 2 + col % 32];
                tile[(i * 2 + s / 2) * 512 + lane * 16 + (s % 2) * 8 + e] = (uint8_t)(code + 128);
            }
        int row = row0 + g + 8 * (t / 2), col = col0 + 32 * (t % 2);
        float d = 0;
        if (row < w.n_rows && col < w.n_cols) d = read_half(w.rows + row * w.row_bytes + (uint64_t)(col / 32) * 34);
        ((__half *)(tile + 2048))[(i * 8 + g) * 4 + t] = __float2half_rn(d * w.unit);
    }
};

/* Four-bit codes: 1024 bytes [i][lane][s], a word a k-step. In a word, code of slot e lies at bits
 *     e: 0 1 2 3 4 5 6 7  ->  0 16 4 20 8 24 12 28
 * so that four masks give four f16 pairs. */
__host__ __device__ inline int nibble_shift(int e)
{
    return 4 * (e >> 1) + 16 * (e & 1);
}
/* Codes of word q as f16 pairs: q * 2^-24 in out[0], out[2]; q * 2^-20 in out[1], out[3]. */
__device__ inline void nibbles(uint32_t q, __half2 out[4])
{
    uint32_t high = q >> 8;
    out[0] = as_half2(q & 0x000f000f);
    out[1] = as_half2(q & 0x00f000f0);
    out[2] = as_half2(high & 0x000f000f);
    out[3] = as_half2(high & 0x00f000f0);
}
template <int S> __device__ inline uint32_t word_of(const uint4 &q)
{
    return S == 0 ? q.x : S == 1 ? q.y : S == 2 ? q.z : q.w;
}

/* ---- q4_0: codes, then scales as q8_0 ------------------------------------------------------------- */
struct tile_q4_0 {
    enum { TILE = 1024 + 128, KWARPS = 4, LUT = 0, IN_REGISTERS = 1, PANELS = 0 };
    struct regs {
        uint4 q[2];
        uint2 d[2];
    };
    template <class P> __device__ static void load(regs &r, P tile, int lane)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            r.q[i] = load_at<uint4>(tile + i * 512 + lane * 16);
            r.d[i] = load_at<uint2>(tile + 1024 + i * 64 + lane / 4 * 8);
        }
    }
    template <int I, int S> __device__ static void frag(const regs &r, uint32_t a[4])
    {
        __half2 q[4], d0 = as_half2(r.d[I].x), d1 = as_half2(r.d[I].y);
        __half2 z0 = zero_of<-21>(d0), z1 = zero_of<-21>(d1), e1 = sixteenth(d1);      /* -8 * 2^-24 */
        nibbles(word_of<S>(r.q[I]), q);
        a[0] = as_bits(__hfma2(q[0], d0, z0));
        a[1] = as_bits(__hfma2(q[1], e1, z1));
        a[2] = as_bits(__hfma2(q[2], d0, z0));
        a[3] = as_bits(__hfma2(q[3], e1, z1));
    }
    __device__ static void pack(uint8_t *tile, const source &w, int row0, int col0, int i, int lane)
    {
        int g = lane / 4, t = lane % 4;
        for (int s = 0; s < 4; s++) {
            uint32_t word = 0;
            for (int e = 0; e < 8; e++) {
                int row = row0 + slot_row(g, e), col = col0 + slot_column(s, t, e);
                uint32_t code = 8;
                if (row < w.n_rows && col < w.n_cols) {
                    int at = col % 32;
                    uint8_t byte = w.rows[row * w.row_bytes + (uint64_t)(col / 32) * 18 + 2 + at % 16];
                    code = at < 16 ? byte & 15 : byte >> 4;
                }
                word |= code << nibble_shift(e);
            }
            ((uint32_t *)tile)[(i * 32 + lane) * 4 + s] = word;
        }
        int row = row0 + g + 8 * (t / 2), col = col0 + 32 * (t % 2);
        float d = 0;
        if (row < w.n_rows && col < w.n_cols) d = read_half(w.rows + row * w.row_bytes + (uint64_t)(col / 32) * 18);
        ((__half *)(tile + 1024))[(i * 8 + g) * 4 + t] = __float2half_rn(d * w.unit);
    }
};

/* ---- q4_K, q4_1: codes, then scales and terms [i][g][row is g + 8][scale, low][half] --------------------- */
struct tile_q4_k {
    enum { TILE = 1024 + 256, KWARPS = 4, LUT = 0, IN_REGISTERS = 1, PANELS = 0 };
    struct regs {
        uint4 q[2], d[2];
    };
    template <class P> __device__ static void load(regs &r, P tile, int lane)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            r.q[i] = load_at<uint4>(tile + i * 512 + lane * 16);
            r.d[i] = load_at<uint4>(tile + 1024 + i * 128 + lane / 4 * 16);
        }
    }
    template <int I, int S> __device__ static void frag(const regs &r, uint32_t a[4])
    {
        __half2 q[4];
        nibbles(word_of<S>(r.q[I]), q);
        __half2 d0 = as_half2(r.d[I].x), m0 = as_half2(r.d[I].y);
        __half2 e1 = sixteenth(as_half2(r.d[I].z)), m1 = as_half2(r.d[I].w);
        a[0] = as_bits(__hfma2(q[0], d0, m0));
        a[1] = as_bits(__hfma2(q[1], e1, m1));
        a[2] = as_bits(__hfma2(q[2], d0, m0));
        a[3] = as_bits(__hfma2(q[3], e1, m1));
    }
    __device__ static void pack(uint8_t *tile, const source &w, int row0, int col0, int i, int lane)
    {
        int g = lane / 4, t = lane % 4;
        for (int s = 0; s < 4; s++) {
            uint32_t word = 0;
            for (int e = 0; e < 8; e++) {
                int row = row0 + slot_row(g, e), col = col0 + slot_column(s, t, e);
                if (row < w.n_rows && col < w.n_cols)
                    word |= (uint32_t)affine_at(w.type, w.rows + row * w.row_bytes, col).code << nibble_shift(e);
            }
            ((uint32_t *)tile)[(i * 32 + lane) * 4 + s] = word;
        }
        pack_affine(tile + 1024, w, row0, col0, i, lane);
    }
};

/* ---- q5_K, q5_1, q5_0: codes as q4_K, their fifth bits [i][lane]: bit 4 s + e / 2, + 16 for odd slots; scales - */
struct tile_q5_k {
    enum { TILE = 1024 + 256 + 256, KWARPS = 4, LUT = 0, IN_REGISTERS = 1, PANELS = 0 };
    struct regs {
        uint4 q[2], d[2];
        uint32_t h[2];
    };
    template <class P> __device__ static void load(regs &r, P tile, int lane)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            r.q[i] = load_at<uint4>(tile + i * 512 + lane * 16);
            r.h[i] = load_at<uint32_t>(tile + 1024 + i * 128 + lane * 4);
            r.d[i] = load_at<uint4>(tile + 1280 + i * 128 + lane / 4 * 16);
        }
    }
    template <int I, int S> __device__ static void frag(const regs &r, uint32_t a[4])
    {
        const uint32_t q = word_of<S>(r.q[I]), low = q >> 8, h = r.h[I] >> (4 * S);
        const uint32_t w0 = and_or(h << 4, 0x00100010, q & 0x000f000f), w1 = and_or(h << 7, 0x01000100, q & 0x00f000f0);
        const uint32_t w2 = and_or(h << 2, 0x00100010, low & 0x000f000f);
        const uint32_t w3 = and_or(h << 5, 0x01000100, low & 0x00f000f0);
        const __half2 d0 = as_half2(r.d[I].x), m0 = as_half2(r.d[I].y);
        const __half2 e1 = sixteenth(as_half2(r.d[I].z)), m1 = as_half2(r.d[I].w);
        a[0] = as_bits(__hfma2(as_half2(w0), d0, m0));
        a[1] = as_bits(__hfma2(as_half2(w1), e1, m1));
        a[2] = as_bits(__hfma2(as_half2(w2), d0, m0));
        a[3] = as_bits(__hfma2(as_half2(w3), e1, m1));
    }
    __device__ static void pack(uint8_t *tile, const source &w, int row0, int col0, int i, int lane)
    {
        int g = lane / 4, t = lane % 4;
        uint32_t high = 0;
        for (int s = 0; s < 4; s++) {
            uint32_t word = 0;
            for (int e = 0; e < 8; e++) {
                int row = row0 + slot_row(g, e), col = col0 + slot_column(s, t, e);
                if (row >= w.n_rows || col >= w.n_cols) continue;
                const uint32_t code = (uint32_t)affine_at(w.type, w.rows + row * w.row_bytes, col).code;
                word |= (code & 15) << nibble_shift(e);
                high |= (code >> 4) << (4 * s + (e >> 1) + 16 * (e & 1));
            }
            ((uint32_t *)tile)[(i * 32 + lane) * 4 + s] = word;
        }
        ((uint32_t *)(tile + 1024))[i * 32 + lane] = high;
        pack_affine(tile + 1280, w, row0, col0, i, lane);
    }
};

/* ---- q6_K: low nibbles as above, high bits [i][lane][s pairs], scales [i][g][row][s / 2][half] ------
 * High bits: a half word a k-step; slot e at bits nibble_shift(e) + 4 of `high << ...`: stored so that
 * (h & 0x00300030) and (h & 0x03000300) fall beside the nibbles of the low word. */
struct tile_q6_k {
    enum { TILE = 1024 + 512 + 256, KWARPS = 4, LUT = 0, IN_REGISTERS = 1, PANELS = 0 };
    struct regs {
        uint4 q[2];
        uint2 h[2];
        uint4 d[2];
    };
    template <class P> __device__ static void load(regs &r, P tile, int lane)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            r.q[i] = load_at<uint4>(tile + i * 512 + lane * 16);
            r.h[i] = load_at<uint2>(tile + 1024 + i * 256 + lane * 8);
            r.d[i] = load_at<uint4>(tile + 1536 + i * 128 + lane / 4 * 16);
        }
    }
    template <int I, int S> __device__ static void frag(const regs &r, uint32_t a[4])
    {
        uint32_t q = word_of<S>(r.q[I]);
        /* Bits of k-step S: pairs (slots 0,1), (2,3), (4,5), (6,7) at bits 0, 2, 4, 6 of each half,
         * S % 2 chooses the byte of the half. */
        uint32_t h = (S < 2 ? r.h[I].x : r.h[I].y) >> (8 * (S % 2));
        uint32_t low = q >> 8;
        uint32_t w0 = and_or(h << 4, 0x00300030, q & 0x000f000f);
        uint32_t w1 = and_or(h << 6, 0x03000300, q & 0x00f000f0);
        uint32_t w2 = and_or(h, 0x00300030, low & 0x000f000f);
        uint32_t w3 = and_or(h << 2, 0x03000300, low & 0x00f000f0);
        uint32_t x = S < 2 ? r.d[I].x : r.d[I].y, y = S < 2 ? r.d[I].z : r.d[I].w;
        __half2 d0 = as_half2(x), d1 = as_half2(y), e1 = sixteenth(d1);
        __half2 z0 = zero_of<-19>(d0), z1 = zero_of<-19>(d1);               /* -32 * 2^-24 */
        a[0] = as_bits(__hfma2(as_half2(w0), d0, z0));
        a[1] = as_bits(__hfma2(as_half2(w1), e1, z1));
        a[2] = as_bits(__hfma2(as_half2(w2), d0, z0));
        a[3] = as_bits(__hfma2(as_half2(w3), e1, z1));
    }
    __device__ static void pack(uint8_t *tile, const source &w, int row0, int col0, int i, int lane)
    {
        int g = lane / 4, t = lane % 4;
        uint32_t high[2] = { 0, 0 };
        for (int s = 0; s < 4; s++) {
            uint32_t word = 0;
            for (int e = 0; e < 8; e++) {
                int row = row0 + slot_row(g, e), col = col0 + slot_column(s, t, e);
                uint32_t code = 32;
                if (row < w.n_rows && col < w.n_cols) {
                    const uint8_t *block = w.rows + row * w.row_bytes + (uint64_t)(col / 256) * 210;
                    int n = col % 256 / 128, j = col % 128 / 32, l = col % 32;
                    uint8_t ql = block[64 * n + 32 * (j & 1) + l], qh = block[128 + 32 * n + l];
                    code = (uint32_t)((j < 2 ? ql & 15 : ql >> 4) | ((qh >> (2 * j)) & 3) << 4);
                }
                word |= (code & 15) << nibble_shift(e);
                high[s / 2] |= (code >> 4) << (8 * (s % 2) + 2 * (e >> 1) + 16 * (e & 1));
            }
            ((uint32_t *)tile)[(i * 32 + lane) * 4 + s] = word;
        }
        ((uint32_t *)(tile + 1024))[(i * 32 + lane) * 2] = high[0];
        ((uint32_t *)(tile + 1024))[(i * 32 + lane) * 2 + 1] = high[1];
        for (int half = 0; half < 2; half++) {      /* row g + 8 half, k-step t */
            int row = row0 + g + 8 * half, col = col0 + 16 * t;
            float d = 0;
            if (row < w.n_rows && col < w.n_cols) {
                const uint8_t *block = w.rows + row * w.row_bytes + (uint64_t)(col / 256) * 210;
                d = read_half(block + 208) * (float)(int8_t)block[192 + col % 256 / 16];
            }
            ((__half *)(tile + 1536))[((i * 8 + g) * 2 + half) * 4 + t % 2 * 2 + t / 2] = __float2half_rn(d * w.unit);
        }
    }
};

/* ---- iq4_xs, iq4_nl: a byte holds the codes of a fragment's pair, looked up in shared memory -------
 * The table has an entry per byte and lane (256 x 32 half2), so that no two lanes meet in a bank. Entries lie 256 bytes
 * apart, so that one permutation of bytes makes a place of a code and the lane; where shared memory is short, 128: a
 * multiply-add more. Codes [i][lane][s][pair], then scales as q8_0. */
template <int APART> struct tile_iq4 {
    enum { TILE = 1024 + 128, KWARPS = 4, LUT = 256 * APART, IN_REGISTERS = 1, PANELS = 0 };
    struct regs {
        uint4 q[2];
        uint2 d[2];
        shared_t lut;
        uint32_t column;        /* this lane's place in an entry */
    };
    template <class P> __device__ static void load(regs &r, P tile, int lane)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            r.q[i] = load_at<uint4>(tile + i * 512 + lane * 16);
            r.d[i] = load_at<uint2>(tile + 1024 + i * 64 + lane / 4 * 8);
        }
    }
    template <int B> __device__ static __half2 look(const regs &r, uint32_t q)      /* by byte B of q */
    {
        if (APART == 256) return as_half2(look_up(r.lut, pick_bytes(q, r.column, 0x7604 | B << 4)));
        return as_half2(look_up(r.lut, (q >> 8 * B & 0xff) * APART + r.column));
    }
    template <int I, int S> __device__ static void frag(const regs &r, uint32_t a[4])
    {
        uint32_t q = word_of<S>(r.q[I]);
        __half2 d0 = as_half2(r.d[I].x), d1 = as_half2(r.d[I].y);
        a[0] = as_bits(__hmul2(look<0>(r, q), d0));
        a[1] = as_bits(__hmul2(look<1>(r, q), d1));
        a[2] = as_bits(__hmul2(look<2>(r, q), d0));
        a[3] = as_bits(__hmul2(look<3>(r, q), d1));
    }
    /* All threads of the block, half an entry each, in pieces of 16 bytes that take turns over the banks. */
    __device__ static void fill(uint32_t *lut)
    {
        /* -127, -104, -83, -65, -49, -35, -22, -10; 1, 13, 25, 38, 53, 69, 89, 113 */
        const uint64_t low = 0xf6eaddcfbfad9881, high = 0x7159453526190d01;
        auto level = [&](int code) { return (float)(int8_t)((code < 8 ? low : high) >> code % 8 * 8) * 0x1p-24f; };
        for (int i = threadIdx.x; i < 512; i += blockDim.x) {
            const int e = i / 2;
            const uint32_t pair = as_bits(__floats2half2_rn(level(e & 15), level(e >> 4)));
#pragma unroll
            for (int c = 0; c < 4; c++)
                ((uint4 *)lut)[e * (APART / 16) + i % 2 * 4 + (c + e) % 4] = make_uint4(pair, pair, pair, pair);
        }
    }
};
/* Code and scale of a weight of IQ4_NL or IQ4_XS; its value is scale * level. */
__device__ inline int iq4_code(uint32_t type, const uint8_t *row, int col)
{
    const int at = col % 32;
    const uint8_t *qs = type == TYPE_IQ4_NL ? row + (uint64_t)(col / 32) * 18 + 2
                                            : row + (uint64_t)(col / 256) * 136 + 8 + 16 * (col % 256 / 32);
    return at < 16 ? qs[at] & 15 : qs[at - 16] >> 4;
}
__device__ inline float iq4_scale(uint32_t type, const uint8_t *row, int col)
{
    if (type == TYPE_IQ4_NL) return read_half(row + (uint64_t)(col / 32) * 18);
    const uint8_t *b = row + (uint64_t)(col / 256) * 136;
    const int i = col % 256 / 32, s = ((b[4 + i / 2] >> (4 * (i % 2))) & 15) | ((read_u16(b + 2) >> (2 * i)) & 3) << 4;
    return __fmul_rn(read_half(b), (float)(s - 32));
}
template <int APART> struct tile_iq4_xs_of : tile_iq4<APART> {
    __device__ static void pack(uint8_t *tile, const source &w, int row0, int col0, int i, int lane)
    {
        int g = lane / 4, t = lane % 4;
        for (int s = 0; s < 4; s++) {
            uint32_t word = 0;
            for (int e = 0; e < 8; e++) {
                int row = row0 + slot_row(g, e), col = col0 + slot_column(s, t, e), code = 8;
                if (row < w.n_rows && col < w.n_cols) code = iq4_code(w.type, w.rows + row * w.row_bytes, col);
                word |= (uint32_t)code << (4 * e);
            }
            ((uint32_t *)tile)[(i * 32 + lane) * 4 + s] = word;
        }
        int row = row0 + g + 8 * (t / 2), col = col0 + 32 * (t % 2);
        float d = 0;
        if (row < w.n_rows && col < w.n_cols) d = iq4_scale(w.type, w.rows + row * w.row_bytes, col);
        ((__half *)(tile + 1024))[(i * 8 + g) * 4 + t] = __float2half_rn(d * w.unit);
    }
};
typedef tile_iq4_xs_of<256> tile_iq4_xs;

/* A format where shared memory is short: of the same tiles, with the same bits. */
template <class F> struct small_form {
    typedef F type;
};
template <> struct small_form<tile_iq4_xs> {
    typedef tile_iq4_xs_of<128> type;
};

#endif
