/* quant/blocks.h - the blocks of every format as packed structs, for decoders and kernels, and the
 * single-block functions that kernels call. Meaning of the fields: docs/formats.md.
 * The structs are packed (alignment 1): blocks of 17, 33 or 210 bytes lie at any address.
 * The machine must be little-endian, as the files are. */
#ifndef LUCE_QUANT_BLOCKS_H
#define LUCE_QUANT_BLOCKS_H

#include <stdint.h>

#include "quant/quant.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "quant/blocks.h reads blocks as they lie in files: little-endian"
#endif

#define QUANT_PACKED __attribute__((packed))
enum { QK = 256 };              /* elements of the big blocks (K, IQ and TQ families) */

struct QUANT_PACKED block_q4_0 { uint16_t d; uint8_t qs[16]; };
struct QUANT_PACKED block_q4_1 { uint16_t d, m; uint8_t qs[16]; };
struct QUANT_PACKED block_q5_0 { uint16_t d; uint32_t qh; uint8_t qs[16]; };
struct QUANT_PACKED block_q5_1 { uint16_t d, m; uint32_t qh; uint8_t qs[16]; };
struct QUANT_PACKED block_q8_0 { uint16_t d; int8_t qs[32]; };
struct QUANT_PACKED block_q1_0 { uint16_t d; uint8_t qs[16]; };
struct QUANT_PACKED block_q2_0 { uint16_t d; uint8_t qs[16]; };

struct QUANT_PACKED block_q2_k { uint8_t scales[16], qs[64]; uint16_t d, dmin; };
struct QUANT_PACKED block_q3_k { uint8_t hmask[32], qs[64], scales[12]; uint16_t d; };
struct QUANT_PACKED block_q4_k { uint16_t d, dmin; uint8_t scales[12], qs[128]; };
struct QUANT_PACKED block_q5_k { uint16_t d, dmin; uint8_t scales[12], qh[32], qs[128]; };
struct QUANT_PACKED block_q6_k { uint8_t ql[128], qh[64]; int8_t scales[16]; uint16_t d; };

struct QUANT_PACKED block_iq1_s { uint16_t d; uint8_t qs[32]; uint16_t qh[8]; };
struct QUANT_PACKED block_iq1_m { uint8_t qs[32], qh[16]; uint16_t scales[4]; };
struct QUANT_PACKED block_iq2_xxs { uint16_t d; uint32_t qs[16]; };
struct QUANT_PACKED block_iq2_xs { uint16_t d, qs[32]; uint8_t scales[8]; };
struct QUANT_PACKED block_iq2_s { uint16_t d; uint8_t qs[32], signs[32], qh[8], scales[8]; };
struct QUANT_PACKED block_iq3_xxs { uint16_t d; uint8_t qs[64]; uint32_t signs[8]; };
struct QUANT_PACKED block_iq3_s { uint16_t d; uint8_t qs[64], qh[8], signs[32], scales[4]; };
struct QUANT_PACKED block_iq4_nl { uint16_t d; uint8_t qs[16]; };
struct QUANT_PACKED block_iq4_xs { uint16_t d, scales_h; uint8_t scales_l[4], qs[128]; };

struct QUANT_PACKED block_tq1_0 { uint8_t qs[48], qh[4]; uint16_t d; };
struct QUANT_PACKED block_tq2_0 { uint8_t qs[64]; uint16_t d; };
struct QUANT_PACKED block_mxfp4 { uint8_t e, qs[16]; };
struct QUANT_PACKED block_nvfp4 { uint8_t d[4], qs[32]; };

struct QUANT_PACKED block_rocmfp4 { uint8_t qs[16], e[2]; };
struct QUANT_PACKED block_rocmfp4_fast { uint8_t qs[16], e; };
struct QUANT_PACKED block_rocmfp6 { uint8_t qs[24], e[2]; };
struct QUANT_PACKED block_rocmfp8 { int8_t qs[32]; uint8_t e; };
struct QUANT_PACKED block_rocmfp3 { uint8_t qs[12], e[2]; };
struct QUANT_PACKED block_rocmfp2 { uint8_t qs[8], e[2]; };
struct QUANT_PACKED block_tq3_0 { uint16_t norm; uint8_t qs[8], signs[4]; };   /* 4 make a group */

/* One block of a row; the same bits as the table's rows without importance. */
void q8_0_decode_block(const struct block_q8_0 *b, float dst[32]);
void q8_0_encode_block(const float src[32], struct block_q8_0 *b);
void q4_0_decode_block(const struct block_q4_0 *b, float dst[32]);
void q4_0_encode_block(const float src[32], struct block_q4_0 *b);

/* The levels of the formats with a fixed codebook, by code. */
extern const int8_t iq4nl_values[16], fp4_values[16], rocmfp4_values[16], rocmfp3_values[8];
/* TQ3_0: the levels, ascending by code. */
extern const float tq3_values[8];

/* Scale and min (6 bits each) of sub-block b of Q4_K and Q5_K. */
static inline void k4_scale_min(const uint8_t s[12], int b, int *scale, int *min)
{
    if (b < 4) {
        *scale = s[b] & 63;
        *min = s[b + 4] & 63;
    } else {
        *scale = (s[b + 4] & 15) | s[b - 4] >> 6 << 4;
        *min = s[b + 4] >> 4 | s[b] >> 6 << 4;
    }
}
/* Signed scale of 16-element group g of Q3_K. */
static inline int k3_scale(const uint8_t s[12], int g)
{
    int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
    return (low | (s[8 + g % 4] >> 2 * (g / 4) & 3) << 4) - 32;
}
/* Half of the E8M0 scale: 2^(e - 128). Byte 255 is a power like the others. */
static inline float e8m0_half(uint8_t e)
{
    return f32_of_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}
/* Half of the UE4M3 scale, as the ROCm formats have it: bytes 0x7f and above are 0. */
static inline float ue4m3_half(uint8_t e)
{
    int exp = e >> 3, man = e & 7;
    if (e >= 0x7f) return 0;
    if (exp == 0) return (float)man * 0x1p-10f;
    return f32_of_bits((uint32_t)(exp + 119) << 23 | (uint32_t)man << 20);
}
/* Sign mask of a 7-bit sign index: bit 7 makes the number of negatives even. */
static inline unsigned iq_signs(unsigned index)
{
    unsigned p = index ^ index >> 4;
    p ^= p >> 2;
    p ^= p >> 1;
    return index | (p & 1) << 7;
}

#endif
