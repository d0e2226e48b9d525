/* bench/gpu_narrow.cu - study of the narrow product: correctness on odd shapes, then time as a share of
 * the measured read bandwidth, in a graph of many products over more weights than L2 holds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <vector>

#include "device/gpu/linear_narrow.cuh"

#define OK(x)                                                                             \
    do {                                                                                  \
        cudaError_t e_ = (x);                                                             \
        if (e_) {                                                                     \
            printf("%s:%d %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e_)); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

static uint64_t seed = 12345;
static uint32_t rnd() { seed = seed * 6364136223846793005ull + 1442695040888963407ull; return (uint32_t)(seed >> 33); }
static float uni() { return rnd() * (1.0f / 2147483648.0f); }
static uint16_t half_bits(float f) { __half h = __float2half(f); uint16_t u; memcpy(&u, &h, 2); return u; }
static float half_of(const uint8_t *p) { __half h; memcpy(&h, p, 2); return __half2float(h); }

struct f16 { typedef tile_f16 tile; enum { N = 1, BYTES = 2 }; static const char *name() { return "f16"; }
    static void fill(uint8_t *b) { uint16_t u = half_bits((uni() - 0.5f) * 0.1f); memcpy(b, &u, 2); }
    static void decode(const uint8_t *b, float *w) { w[0] = half_of(b); } };
struct q8_0 { typedef tile_q8_0 tile; enum { N = 32, BYTES = 34 }; static const char *name() { return "q8_0"; }
    static void fill(uint8_t *b) { uint16_t u = half_bits(0.0005f + 0.0005f * uni()); memcpy(b, &u, 2); for (int i = 0; i < 32; i++) b[2 + i] = (uint8_t)(int8_t)((int)(rnd() % 255) - 127); }
    static void decode(const uint8_t *b, float *w) { for (int i = 0; i < 32; i++) w[i] = half_of(b) * (int8_t)b[2 + i]; } };
struct q4_0 { typedef tile_q4_0 tile; enum { N = 32, BYTES = 18 }; static const char *name() { return "q4_0"; }
    static void fill(uint8_t *b) { uint16_t u = half_bits(0.005f + 0.005f * uni()); memcpy(b, &u, 2); for (int i = 0; i < 16; i++) b[2 + i] = rnd(); }
    static void decode(const uint8_t *b, float *w) { for (int i = 0; i < 32; i++) w[i] = half_of(b) * ((i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4) - 8); } };
struct q4_k { typedef tile_q4_k tile; enum { N = 256, BYTES = 144 }; static const char *name() { return "q4_K"; }
    static void fill(uint8_t *b) { for (int i = 0; i < 144; i++) b[i] = rnd(); uint16_t u = half_bits(0.0002f + 0.0002f * uni()), v = half_bits(0.001f + 0.001f * uni()); memcpy(b, &u, 2); memcpy(b + 2, &v, 2); }
    static void decode(const uint8_t *k, float *w) { const uint8_t *p = k + 4; for (int e = 0; e < 256; e++) { int b = e / 32;
        int sc = b < 4 ? p[b] & 63 : (p[b + 4] & 15) | (p[b - 4] >> 6) << 4, m = b < 4 ? p[b + 4] & 63 : (p[b + 4] >> 4) | (p[b] >> 6) << 4;
        int q = k[16 + 32 * (b / 2) + e % 32]; q = b % 2 ? q >> 4 : q & 15; w[e] = half_of(k) * sc * q - half_of(k + 2) * m; } } };
struct q6_k { typedef tile_q6_k tile; enum { N = 256, BYTES = 210 }; static const char *name() { return "q6_K"; }
    static void fill(uint8_t *b) { for (int i = 0; i < 210; i++) b[i] = rnd(); uint16_t u = half_bits(0.00002f + 0.00002f * uni()); memcpy(b + 208, &u, 2); }
    static void decode(const uint8_t *k, float *w) { for (int e = 0; e < 256; e++) { int n = e / 128, j = e % 128 / 32, l = e % 32;
        int ql = k[64 * n + 32 * (j & 1) + l]; int q = ((j < 2 ? ql & 15 : ql >> 4) | ((k[128 + 32 * n + l] >> (2 * j)) & 3) << 4) - 32; w[e] = half_of(k + 208) * (int8_t)k[192 + e / 16] * q; } } };
struct iq4_xs { typedef tile_iq4_xs tile; enum { N = 256, BYTES = 136 }; static const char *name() { return "iq4_xs"; }
    static void fill(uint8_t *b) { for (int i = 0; i < 136; i++) b[i] = rnd(); uint16_t u = half_bits(0.00002f + 0.00002f * uni()); memcpy(b, &u, 2); }
    static void decode(const uint8_t *k, float *w) { static const int T[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
        for (int e = 0; e < 256; e++) { int b = e / 32, at = e % 32; int s = ((k[4 + b / 2] >> (4 * (b % 2))) & 15) | (((k[2] | k[3] << 8) >> (2 * b)) & 3) << 4;
        int q = k[8 + 16 * b + at % 16]; q = at < 16 ? q & 15 : q >> 4; w[e] = half_of(k) * (s - 32) * T[q]; } } };

template <class T> __global__ void pack_kernel(uint8_t *tiles, source w, int chunks)
{
    int rw = blockIdx.y, c = blockIdx.x % chunks, strip = blockIdx.x / chunks;
    uint8_t *tile = tiles + ((uint64_t)blockIdx.x * ROW_WARPS + rw) * T::TILE;
    T::pack(tile, w, strip * STRIP + rw * TILE_ROWS + threadIdx.x / 32 * 16, c * 64, threadIdx.x / 32, threadIdx.x % 32);
}
__global__ void frag_kernel(uint8_t *out, const float *x, int n, int k, int nt)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < nt * 8 * ((k + 63) / 64 * 64); i += gridDim.x * blockDim.x) {
        int row = i / ((k + 63) / 64 * 64), col = i % ((k + 63) / 64 * 64);
        *(__half *)(out + x_at(row, col, nt)) = __float2half_rn(row < n && col < k ? x[row * k + col] : 0);
    }
}
__global__ void read_kernel(const uint4 *p, uint64_t n, uint32_t *out)
{
    uint32_t s = 0;
    uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x, step = (uint64_t)gridDim.x * blockDim.x;
    for (; i + 3 * step < n; i += 4 * step) {
        uint4 a = __ldcs(p + i), b = __ldcs(p + i + step), c = __ldcs(p + i + 2 * step), d = __ldcs(p + i + 3 * step);
        s += a.x ^ b.y ^ c.z ^ d.w ^ a.w ^ b.w ^ c.w;
    }
    if (s == 0x12345) *out = s;
}

static const float UNIT = 0x1p21f;
static int sms;
static double bandwidth;
static uint64_t *parts; static uint32_t *serial; static int *n_rows_dev;
__global__ void tick(uint32_t *s) { ++*s; }

template <class T, int NT, int EPI> static void launch(linear_args a, cudaStream_t st, bool pdl)
{
    typedef linear_shape<T, NT> shape;
    int chunks = std::min((int)shape::PANEL, a.n_chunks);
    size_t bytes = shape::FIXED + (size_t)chunks * NT * X_CHUNK;
    if (bytes > shape::LIMIT) bytes = shape::LIMIT;
    static bool set = false;
    if (!set) {
        OK(cudaFuncSetAttribute(linear_narrow<T, NT, EPI>, cudaFuncAttributeMaxDynamicSharedMemorySize, shape::LIMIT));
        set = true;
    }
    cudaLaunchConfig_t cfg = {};
    cfg.gridDim = dim3(std::min(sms, a.n_chunks * a.n_strips));
    cfg.blockDim = dim3(shape::THREADS);
    cfg.dynamicSmemBytes = bytes;
    cfg.stream = st;
    cudaLaunchAttribute at[1];
    at[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at[0].val.programmaticStreamSerializationAllowed = 1;
    cfg.attrs = at;
    cfg.numAttrs = pdl ? 1 : 0;
    OK(cudaLaunchKernelEx(&cfg, linear_narrow<T, NT, EPI>, a));
}

template <class F, int NT> static void check(int n_out, int k, int n)
{
    typedef typename F::tile T;
    uint64_t row_bytes = (uint64_t)k / F::N * F::BYTES;
    std::vector<uint8_t> w(row_bytes * n_out);
    for (uint64_t i = 0; i < w.size(); i += F::BYTES) F::fill(&w[i]);
    std::vector<float> x(n * k), y(n * n_out), wf(k);
    for (auto &v : x) v = (uni() + uni() + uni() - 1.5f);
    int chunks = (k + 63) / 64, strips = (n_out + 127) / 128;
    uint8_t *dw, *tiles, *xf; float *dx, *dy;
    OK(cudaMalloc(&dw, w.size())); OK(cudaMalloc(&tiles, (size_t)strips * chunks * 4 * T::TILE));
    OK(cudaMalloc(&xf, (size_t)chunks * NT * X_CHUNK)); OK(cudaMalloc(&dx, x.size() * 4)); OK(cudaMalloc(&dy, y.size() * 4));
    OK(cudaMemcpy(dw, w.data(), w.size(), cudaMemcpyHostToDevice)); OK(cudaMemcpy(dx, x.data(), x.size() * 4, cudaMemcpyHostToDevice));
    source s = { dw, row_bytes, n_out, k, UNIT };
    pack_kernel<T><<<dim3(strips * chunks, 4), 64>>>(tiles, s, chunks);
    frag_kernel<<<64, 256>>>(xf, dx, n, k, NT);
    OK(cudaMemset(dy, 0xff, y.size() * 4));
    OK(cudaMemcpy(n_rows_dev, &n, 4, cudaMemcpyHostToDevice));
    linear_args a = {}; a.tiles = tiles; a.x = xf; a.y = dy; a.parts = parts; a.serial = serial; tick<<<1, 1>>>(serial); a.n_rows = n_rows_dev;
    a.n_chunks = chunks; a.n_strips = strips; a.out_rows = n_out; a.y_stride = n_out; a.unit = T::TILE == 4096 ? 1.0f : 0x1p24f / UNIT;
    launch<T, NT, EPI_STORE>(a, 0, false);
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(y.data(), dy, y.size() * 4, cudaMemcpyDeviceToHost));
    double err = 0, sum = 0;
    for (int o = 0; o < n_out; o++) {
        for (int b = 0; b < k / F::N; b++) F::decode(&w[o * row_bytes + b * F::BYTES], &wf[b * F::N]);
        for (int r = 0; r < n; r++) {
            double ref = 0;
            for (int i = 0; i < k; i++) ref += (double)wf[i] * x[r * k + i];
            double d = y[r * n_out + o] - ref;
            if (!(fabs(d) < 1e30)) d = 1e30;
            err += d * d, sum += ref * ref;
        }
    }
    printf("check %-7s NT %d  %5d x %5d, %2d rows: nmse %.2e %s\n", F::name(), NT, n_out, k, n, err / sum, err / sum < 1e-6 ? "ok" : "WRONG");
    cudaFree(dw); cudaFree(tiles); cudaFree(xf); cudaFree(dx); cudaFree(dy);
}

/* Bits of row 0 for every width. */
template <class F> static void widths(int n_out, int k)
{
    typedef typename F::tile T;
    uint64_t row_bytes = (uint64_t)k / F::N * F::BYTES;
    std::vector<uint8_t> w(row_bytes * n_out);
    for (uint64_t i = 0; i < w.size(); i += F::BYTES) F::fill(&w[i]);
    int chunks = (k + 63) / 64, strips = (n_out + 127) / 128;
    std::vector<float> x(64 * k), y0(n_out), y(64 * n_out);
    for (auto &v : x) v = (uni() + uni() + uni() - 1.5f);
    uint8_t *dw, *tiles, *xf; float *dx, *dy;
    OK(cudaMalloc(&dw, w.size())); OK(cudaMalloc(&tiles, (size_t)strips * chunks * 4 * T::TILE));
    OK(cudaMalloc(&xf, (size_t)chunks * 8 * X_CHUNK)); OK(cudaMalloc(&dx, x.size() * 4)); OK(cudaMalloc(&dy, y.size() * 4));
    OK(cudaMemcpy(dw, w.data(), w.size(), cudaMemcpyHostToDevice)); OK(cudaMemcpy(dx, x.data(), x.size() * 4, cudaMemcpyHostToDevice));
    source s = { dw, row_bytes, n_out, k, UNIT };
    pack_kernel<T><<<dim3(strips * chunks, 4), 64>>>(tiles, s, chunks);
    int bad = 0;
    for (int nt = 1; nt <= 8; nt *= 2) {
        int n = nt * 8;
        frag_kernel<<<64, 256>>>(xf, dx, n, k, nt);
        OK(cudaMemset(dy, 0xff, y.size() * 4)); OK(cudaMemcpy(n_rows_dev, &n, 4, cudaMemcpyHostToDevice));
        linear_args a = {}; a.tiles = tiles; a.x = xf; a.y = dy; a.parts = parts; a.serial = serial; tick<<<1, 1>>>(serial); a.n_rows = n_rows_dev;
        a.n_chunks = chunks; a.n_strips = strips; a.out_rows = n_out; a.y_stride = n_out; a.unit = 1;
        if (nt == 1) launch<T, 1, EPI_STORE>(a, 0, false); if (nt == 2) launch<T, 2, EPI_STORE>(a, 0, false);
        if (nt == 4) launch<T, 4, EPI_STORE>(a, 0, false); if (nt == 8) launch<T, 8, EPI_STORE>(a, 0, false);
        OK(cudaMemcpy(y.data(), dy, y.size() * 4, cudaMemcpyDeviceToHost));
        if (nt == 1) y0 = std::vector<float>(y.begin(), y.begin() + n_out);
        for (int o = 0; o < n_out; o++) bad += memcmp(&y0[o], &y[o], 4) != 0;
    }
    printf("widths %-7s %5d x %5d: %d bits differ\n", F::name(), n_out, k, bad);
    cudaFree(dw); cudaFree(tiles); cudaFree(xf); cudaFree(dx); cudaFree(dy);
}

/* A chain of products as in a layer; weights over several GB so that L2 does not help. */
template <class F, int NT> static double chain(const int (*shapes)[3], int n_shapes, int layers, bool pdl, uint8_t *pool, uint64_t pool_bytes, double *bytes_out)
{
    typedef typename F::tile T;
    cudaStream_t st; OK(cudaStreamCreate(&st));
    int n = NT * 8; OK(cudaMemcpy(n_rows_dev, &n, 4, cudaMemcpyHostToDevice));
    static uint8_t *x = nullptr; static float *y; static uint8_t *yf;
    if (!x) {
        OK(cudaMalloc(&x, 64 << 20));
        OK(cudaMalloc(&y, 64 << 20));
        OK(cudaMalloc(&yf, 64 << 20));
        OK(cudaMemset(x, 0, 64 << 20));
    }
    uint64_t at = 0; double bytes = 0;
    std::vector<linear_args> args;
    for (int l = 0; l < layers; l++)
        for (int i = 0; i < n_shapes; i++) {
            int rows = shapes[i][0], k = shapes[i][1];
            int chunks = k / 64, strips = (rows + 127) / 128;
            uint64_t need = (uint64_t)strips * chunks * 4 * T::TILE;
            if (at + need > pool_bytes) at = 0;
            linear_args a = {}; a.tiles = pool + at; at += need; a.x = x; a.y = y; a.y_frag = yf; a.parts = parts; a.serial = serial; a.call = (uint32_t)args.size();
            a.n_rows = n_rows_dev; a.n_chunks = chunks; a.n_strips = strips; a.unit = 1; a.frag_scale = 1;
            a.out_rows = shapes[i][2] ? rows / 2 : rows; a.y_stride = a.out_rows; if (shapes[i][2]) a.y = nullptr;
            bytes += (double)rows * k / F::N * F::BYTES;
            args.push_back(a);
        }
    cudaGraph_t g; cudaGraphExec_t ge;
    OK(cudaStreamBeginCapture(st, cudaStreamCaptureModeThreadLocal));
    tick<<<1, 1, 0, st>>>(serial);
    for (size_t i = 0; i < args.size(); i++) {
        if (shapes[i % n_shapes][2]) launch<T, NT, EPI_GLU_SILU>(args[i], st, pdl);
        else launch<T, NT, EPI_STORE>(args[i], st, pdl);
    }
    OK(cudaStreamEndCapture(st, &g)); OK(cudaGraphInstantiate(&ge, g, 0));
    cudaEvent_t e0, e1; OK(cudaEventCreate(&e0)); OK(cudaEventCreate(&e1));
    std::vector<float> ms;
    for (int i = 0; i < 8; i++) {
        OK(cudaEventRecord(e0, st));
        OK(cudaGraphLaunch(ge, st));
        OK(cudaEventRecord(e1, st));
        OK(cudaStreamSynchronize(st));
        float t;
        OK(cudaEventElapsedTime(&t, e0, e1));
        if (i > 1) ms.push_back(t);
    }
    std::sort(ms.begin(), ms.end());
    cudaGraphExecDestroy(ge); cudaGraphDestroy(g); cudaStreamDestroy(st);
    *bytes_out = bytes;
    return ms[ms.size() / 2] * 1e-3;
}

template <class F> static void time_all(uint8_t *pool, uint64_t pool_bytes)
{
    static const int m8b[][3] = { { 6144, 4096, 0 }, { 4096, 4096, 0 }, { 24576, 4096, 1 }, { 4096, 12288, 0 } };
    static const int m27[][3] = { { 7168, 5120, 0 }, { 5120, 6144, 0 }, { 34816, 5120, 1 }, { 5120, 17408, 0 } };
    const int(*m)[3] = m8b;
    for (int which = 0; which < 2; which++) {
        m = which ? m27 : m8b;
        int layers = which ? 16 : 36;
        double b, t1 = 0;
        for (int v = 0; v < 2; v++) {
            double t = chain<F, 1>(m, 4, layers, v > 0, pool, pool_bytes, &b);
            printf("%-7s %s width 8 %-12s %.3f ms  %.2f TB/s  %4.1f%%\n", F::name(), which ? "27B" : "8B ", v == 0 ? "plain" : "pdl", t * 1e3, b / t * 1e-12, 100 * b / t / bandwidth);
            t1 = t;
        }
        double t;
        t = chain<F, 2>(m, 4, layers, true, pool, pool_bytes, &b); printf("%-7s    width 16 / 8: %.2f  (%4.1f%%)\n", F::name(), t / t1, 100 * b / t / bandwidth);
        t = chain<F, 4>(m, 4, layers, true, pool, pool_bytes, &b); printf("%-7s    width 32 / 8: %.2f\n", F::name(), t / t1);
        t = chain<F, 8>(m, 4, layers, true, pool, pool_bytes, &b); printf("%-7s    width 64 / 8: %.2f\n", F::name(), t / t1);
        /* Each product alone, back to back. */
        for (int i = 0; i < 4; i++) {
            int one[1][3] = { { m[i][0], m[i][1], m[i][2] } };
            t = chain<F, 1>(one, 1, layers, true, pool, pool_bytes, &b);
            printf("%-7s    %5d x %5d: %.2f us  %4.1f%%\n", F::name(), m[i][0], m[i][1], t / layers * 1e6, 100 * b / t / bandwidth); }
    }
}

template <class F> static void all(uint8_t *pool, uint64_t bytes)
{
    check<F, 1>(256, 512, 3); check<F, 1>(130, 768, 8); check<F, 2>(4096, 4096, 16); check<F, 1>(576, 1536, 1); check<F, 4>(640, 2048, 29); check<F, 8>(5120, 1280, 64);
    check<F, 2>(384, 17408, 11);
    widths<F>(4096, 4096); widths<F>(384, 1536);
    time_all<F>(pool, bytes);
}

int main(int argc, char **argv)
{
    cudaDeviceProp p; OK(cudaGetDeviceProperties(&p, 0)); sms = p.multiProcessorCount;
    uint64_t bytes = 12ull << 30; uint8_t *pool; OK(cudaMalloc(&pool, bytes)); OK(cudaMemset(pool, 0x11, bytes));
    OK(cudaMalloc(&parts, 512 << 20)); OK(cudaMalloc(&serial, 256)); OK(cudaMemset(serial, 0, 256)); OK(cudaMemset(parts, 0xff, 512 << 20)); OK(cudaMalloc(&n_rows_dev, 256));
    cudaEvent_t e0, e1; OK(cudaEventCreate(&e0)); OK(cudaEventCreate(&e1));
    for (int i = 0; i < 12; i++) {
        OK(cudaEventRecord(e0));
        read_kernel<<<sms *(i % 2 ? 8 : 4), i % 3 ? 512 : 256>>>((uint4 *)pool, (4ull << 30) / 16, (uint32_t *)n_rows_dev + 8);
        OK(cudaEventRecord(e1));
        OK(cudaDeviceSynchronize());
        float t;
        OK(cudaEventElapsedTime(&t, e0, e1));
        bandwidth = std::max(bandwidth, (4ull << 30) / (t * 1e-3));
    }
    printf("%s, %d SMs, read %.3f TB/s\n", p.name, sms, bandwidth * 1e-12);
#ifdef STUDY
#ifdef STUDY_TIMES
    for (int nt = 1; nt <= 2; nt++)
        for (int i = 0; i < 4; i++) {
            static const int m[][3] = { { 6144, 4096, 0 }, { 4096, 4096, 0 }, { 24576, 4096, 1 }, { 4096, 12288, 0 } };
        int one[1][3] = { { m[i][0], m[i][1], m[i][2] } }; double bb;
        if (nt == 1) chain<STUDY, 1>(one, 1, 36, true, pool, bytes, &bb); else chain<STUDY, 2>(one, 1, 36, true, pool, bytes, &bb);
        static long long tt[8][1024]; OK(cudaMemcpyFromSymbol(tt, study_times, sizeof tt));
        long long base = tt[0][0]; for (int b = 0; b < sms; b++) base = std::min(base, tt[0][b]);
            printf("NT %d %d x %d:", nt, m[i][0], m[i][1]);
            for (int k = 0; k < 8; k++) {
                std::vector<long long> v;
                for (int b = 0; b < sms; b++) v.push_back(tt[k][b] - base);
                std::sort(v.begin(), v.end());
                printf("  t%d %lld/%lld/%lld", k, v[0], v[sms / 2], v[sms - 1]);
            }
            printf("\n");
        }
#endif
    (void)argc;
    static const int m8b[][3] = { { 6144, 4096, 0 }, { 4096, 4096, 0 }, { 24576, 4096, 1 }, { 4096, 12288, 0 } };
    check<STUDY, 1>(4096, 4096, 8);
    double b;
    double t = chain<STUDY, 1>(m8b, 4, 36, true, pool, bytes, &b); printf("%s %s 8B %.3f ms %4.1f%%\n", argv[0], STUDY::name(), t * 1e3, 100 * b / t / bandwidth);
    t = chain<STUDY, 2>(m8b, 4, 36, true, pool, bytes, &b); printf("%s %s 8B w16 %.3f ms %4.1f%%\n", argv[0], STUDY::name(), t * 1e3, 100 * b / t / bandwidth);
    for (int i = 0; i < 4; i++) {
        int one[1][3] = { { m8b[i][0], m8b[i][1], m8b[i][2] } };
        t = chain<STUDY, 1>(one, 1, 36, true, pool, bytes, &b);
        printf("    %5d x %5d: %.2f us  %4.1f%%\n", m8b[i][0], m8b[i][1], t / 36 * 1e6, 100 * b / t / bandwidth); }
    return 0;
#else
    (void)argc, (void)argv;
#endif
    all<q4_0>(pool, bytes); all<q4_k>(pool, bytes); all<iq4_xs>(pool, bytes); all<q8_0>(pool, bytes); all<q6_k>(pool, bytes); all<f16>(pool, bytes);
    return 0;
}
