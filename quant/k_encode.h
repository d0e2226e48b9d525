/* quant/k_encode.h - encoders of the K formats; contract as struct format's encode. */
#ifndef LUCE_QUANT_K_ENCODE_H
#define LUCE_QUANT_K_ENCODE_H

#include <stdint.h>

void q2_k_encode(const float *src, void *dst, int64_t n, const float *importance);
void q3_k_encode(const float *src, void *dst, int64_t n, const float *importance);
void q4_k_encode(const float *src, void *dst, int64_t n, const float *importance);
void q5_k_encode(const float *src, void *dst, int64_t n, const float *importance);
void q6_k_encode(const float *src, void *dst, int64_t n, const float *importance);

#endif
