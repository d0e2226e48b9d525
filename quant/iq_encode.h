/* quant/iq_encode.h - encoders of the grid formats; contract as struct format's encode. IQ1_S,
 * IQ2_XXS and IQ2_XS must be given importance (the table's needs_importance). */
#ifndef LUCE_QUANT_IQ_ENCODE_H
#define LUCE_QUANT_IQ_ENCODE_H

#include <stdint.h>

void iq1_s_encode(const float *src, void *dst, int64_t n, const float *importance);
void iq1_m_encode(const float *src, void *dst, int64_t n, const float *importance);
void iq2_xxs_encode(const float *src, void *dst, int64_t n, const float *importance);
void iq2_xs_encode(const float *src, void *dst, int64_t n, const float *importance);
void iq2_s_encode(const float *src, void *dst, int64_t n, const float *importance);
void iq3_xxs_encode(const float *src, void *dst, int64_t n, const float *importance);
void iq3_s_encode(const float *src, void *dst, int64_t n, const float *importance);

#endif
