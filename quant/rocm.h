/* quant/rocm.h - encoders of the ROCm formats (contract as struct format's encode), and the guess
 * of how a file means its ROCMFP2 blocks. */
#ifndef LUCE_QUANT_ROCM_H
#define LUCE_QUANT_ROCM_H

#include <stdint.h>

void rocmfp4_encode(const float *src, void *dst, int64_t n, const float *importance);
void rocmfp4_fast_encode(const float *src, void *dst, int64_t n, const float *importance);
void rocmfp6_encode(const float *src, void *dst, int64_t n, const float *importance);
void rocmfp8_encode(const float *src, void *dst, int64_t n, const float *importance);
void rocmfp3_encode(const float *src, void *dst, int64_t n, const float *importance);
void rocmfp2_encode(const float *src, void *dst, int64_t n, const float *importance);

/* Which reading fits n elements of ROCMFP2 blocks (a few thousand blocks are enough): the median of
 * the second scale over the first is near 1 for two scales, near 1.5 for scale and offset. */
enum rocmfp2_reading { ROCMFP2_TWO_SCALES, ROCMFP2_SCALE_OFFSET, ROCMFP2_UNCLEAR };
enum rocmfp2_reading rocmfp2_guess(const void *src, int64_t n);

#endif
