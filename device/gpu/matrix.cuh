/* device/gpu/matrix.cuh - the matrix instruction and the loads of its operands by exchanges of a warp's lanes, where
 * a card has no such instructions. port.h says where their parts lie. dot(x, y, sum): sum + x.low y.low + x.high
 * y.high, x and y pairs of f16. */
#ifndef LUCE_DEVICE_GPU_MATRIX_CUH
#define LUCE_DEVICE_GPU_MATRIX_CUH

/* Every lane asks the four lanes of a row of a, and the four of each of its two columns of b, k ascending. */
template <class D>
__device__ inline void exchange_mma(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1, int lane, D dot)
{
    const int row = lane & ~3, column = (lane & 3) * 8;
    const uint32_t b[2] = { b0, b1 };
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const uint32_t low = __shfl_sync(~0u, a[2 * half], row + t);
            const uint32_t high = __shfl_sync(~0u, a[2 * half + 1], row + t);
            const uint32_t even = __shfl_sync(~0u, b[half], column + t);
            const uint32_t odd = __shfl_sync(~0u, b[half], column + 4 + t);
            d[0] = dot(low, even, d[0]);
            d[1] = dot(low, odd, d[1]);
            d[2] = dot(high, even, d[2]);
            d[3] = dot(high, odd, d[3]);
        }
}
/* Lane 8 m + i names row i of matrix m; lane 4 g + t gets its elements 2 t, 2 t + 1 of row g, */
__device__ inline void exchange_matrices(uint32_t r[4], const void *at, int lane)
{
#pragma unroll
    for (int m = 0; m < 4; m++) r[m] = ((const uint32_t *)__shfl_sync(~0u, at, 8 * m + lane / 4))[lane % 4];
}
/* or of column g. */
__device__ inline void exchange_matrices_turned(uint32_t r[4], const void *at, int lane)
{
#pragma unroll
    for (int m = 0; m < 4; m++) {
        const uint16_t *even = (const uint16_t *)__shfl_sync(~0u, at, 8 * m + lane % 4 * 2);
        const uint16_t *odd = (const uint16_t *)__shfl_sync(~0u, at, 8 * m + lane % 4 * 2 + 1);
        r[m] = even[lane / 4] | (uint32_t)odd[lane / 4] << 16;
    }
}

#endif
