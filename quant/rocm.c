/* quant/rocm.c - the ROCm family: 32 elements of small integer levels under UE4M3 scale bytes
 * (halved; one per block or one per 16 elements). value = level * scale.
 * Codes are little-endian bit strings, those of FP4 nibbles as in Q4_0. The MIX formats have the
 * bytes of FP3 and FP2; in their mode 1 the levels come from two codebooks outside the blocks.
 * FP2 has two readings with one id: two scales (bit 7 negates the half's levels), or, in the affine
 * one, scale and offset for all 32. Encoders: rocm_encode.c. */
#include "quant/rocm.h"

#include "quant/rows.h"

const int8_t rocmfp4_values[16] = { 0, 1, 2, 3, 4, 6, 8, 10, 0, -1, -2, -3, -4, -6, -8, -10 };
const int8_t rocmfp3_values[8] = { 0, 1, 2, 4, 0, -1, -2, -4 };

static void fp4_decode(const void *src, float *dst, int64_t n)
{
    const struct block_rocmfp4 *b = src;
    for (int64_t k = 0; k < n / 32; k++, b++, dst += 32) {
        float low = ue4m3_half(b->e[0]), high = ue4m3_half(b->e[1]);
        for (int i = 0; i < 16; i++) {
            dst[i] = (float)rocmfp4_values[b->qs[i] & 15] * low;
            dst[i + 16] = (float)rocmfp4_values[b->qs[i] >> 4] * high;
        }
    }
}

static void fp4_fast_decode(const void *src, float *dst, int64_t n)
{
    const struct block_rocmfp4_fast *b = src;
    for (int64_t k = 0; k < n / 32; k++, b++, dst += 32) {
        float scale = ue4m3_half(b->e);
        for (int i = 0; i < 16; i++) {
            dst[i] = (float)rocmfp4_values[b->qs[i] & 15] * scale;
            dst[i + 16] = (float)rocmfp4_values[b->qs[i] >> 4] * scale;
        }
    }
}

static void fp6_decode(const void *src, float *dst, int64_t n)
{
    const struct block_rocmfp6 *b = src;
    for (int64_t k = 0; k < n / 32; k++, b++)
        for (int i = 0; i < 32; i += 4) {        /* 4 codes in 3 bytes */
            const uint8_t *q = b->qs + i / 4 * 3;
            uint32_t word = q[0] | (uint32_t)q[1] << 8 | (uint32_t)q[2] << 16;
            float scale = ue4m3_half(b->e[i / 16]);
            for (int j = 0; j < 4; j++) {
                int code = (int)(word >> 6 * j & 63);
                dst[32 * k + i + j] = (float)(code & 32 ? -(code & 31) : code & 31) * scale;
            }
        }
}

static void fp8_decode(const void *src, float *dst, int64_t n)
{
    const struct block_rocmfp8 *b = src;
    for (int64_t k = 0; k < n / 32; k++, b++, dst += 32) {
        float scale = ue4m3_half(b->e);
        for (int i = 0; i < 32; i++) dst[i] = (float)b->qs[i] * scale;
    }
}

/* The 16 codes of half h of an FP3 block are 6 bytes. */
static inline uint64_t fp3_codes(const struct block_rocmfp3 *b, int h)
{
    uint64_t bits = 0;
    memcpy(&bits, b->qs + 6 * h, 6);
    return bits;
}

static void fp3_decode(const void *src, float *dst, int64_t n)
{
    const struct block_rocmfp3 *b = src;
    for (int64_t k = 0; k < n / 16; k++, dst += 16) {
        uint64_t bits = fp3_codes(b + k / 2, (int)(k % 2));
        float scale = ue4m3_half(b[k / 2].e[k % 2]);
        for (int i = 0; i < 16; i++) dst[i] = (float)rocmfp3_values[bits >> 3 * i & 7] * scale;
    }
}

static inline uint32_t fp2_codes(const struct block_rocmfp2 *b, int h)
{
    uint32_t bits;
    memcpy(&bits, b->qs + 4 * h, 4);
    return bits;
}

static inline void fp2_half(uint32_t bits, float scale, float *dst)
{
    for (int i = 0; i < 16; i++) dst[i] = (float)((int)(bits >> 2 * i & 3) - 1) * scale;
}

static void fp2_decode(const void *src, float *dst, int64_t n)
{
    const struct block_rocmfp2 *b = src;
    for (int64_t k = 0; k < n / 16; k++, dst += 16) {
        uint8_t e = b[k / 2].e[k % 2];
        float scale = ue4m3_half(e & 0x7f);
        fp2_half(fp2_codes(b + k / 2, (int)(k % 2)), e & 0x80 ? -scale : scale, dst);
    }
}

static void fp2_affine_decode(const void *src, float *dst, int64_t n)
{
    const struct block_rocmfp2 *b = src;
    for (int64_t k = 0; k < n / 32; k++, b++, dst += 32) {
        float scale = ue4m3_half(b->e[0]), offset = ue4m3_half(b->e[1]);
        for (int i = 0; i < 32; i++)
            dst[i] = (float)(b->qs[i / 4] >> 2 * (i % 4) & 3) * scale - offset;
    }
}

/* Mode 0 of MIX: no sign bit, so a byte above 0x7e is no scale. */
static void fp2_mix_decode(const void *src, float *dst, int64_t n)
{
    const struct block_rocmfp2 *b = src;
    for (int64_t k = 0; k < n / 16; k++, dst += 16)
        fp2_half(fp2_codes(b + k / 2, (int)(k % 2)), ue4m3_half(b[k / 2].e[k % 2]), dst);
}

static void fp3_books_decode(const void *src, float *dst, int64_t n, const float *books)
{
    const struct block_rocmfp3 *b = src;
    for (int64_t k = 0; k < n / 16; k++, dst += 16) {
        uint64_t bits = fp3_codes(b + k / 2, (int)(k % 2));
        uint8_t e = b[k / 2].e[k % 2];
        const float *book = books + 8 * (e >> 7);
        float scale = ue4m3_half(e & 0x7f);
        for (int i = 0; i < 16; i++) dst[i] = scale * book[bits >> 3 * i & 7];
    }
}

static void fp2_books_decode(const void *src, float *dst, int64_t n, const float *books)
{
    const struct block_rocmfp2 *b = src;
    for (int64_t k = 0; k < n / 16; k++, dst += 16) {
        uint32_t bits = fp2_codes(b + k / 2, (int)(k % 2));
        uint8_t e = b[k / 2].e[k % 2];
        const float *book = books + 4 * (e >> 7);
        float scale = ue4m3_half(e & 0x7f);
        for (int i = 0; i < 16; i++) dst[i] = scale * book[bits >> 2 * i & 3];
    }
}

/* True when the `scales` bytes at `offset` of each block, under `mask`, are at most 0x7e. */
static bool scales_valid(const void *src, int64_t blocks, size_t bytes, size_t offset, int scales,
                         unsigned mask)
{
    const uint8_t *at = (const uint8_t *)src + offset;
    unsigned bad = 0;
    for (int64_t k = 0; k < blocks; k++, at += bytes)
        for (int i = 0; i < scales; i++) bad |= (at[i] & mask) > 0x7e;
    return !bad;
}

#define VALID_SCALES(name, type, scales, mask)                                                  \
    static bool name(const void *src, int64_t n)                                                \
    {                                                                                           \
        return scales_valid(src, n / 32, sizeof(struct type), offsetof(struct type, e), scales, \
                            mask);                                                              \
    }
VALID_SCALES(fp4_valid, block_rocmfp4, 2, 0xff)
VALID_SCALES(fp4_fast_valid, block_rocmfp4_fast, 1, 0xff)
VALID_SCALES(fp6_valid, block_rocmfp6, 2, 0xff)
VALID_SCALES(fp8_valid, block_rocmfp8, 1, 0xff)
VALID_SCALES(fp3_valid, block_rocmfp3, 2, 0xff)
VALID_SCALES(fp2_valid, block_rocmfp2, 2, 0x7f)
VALID_SCALES(fp2_affine_valid, block_rocmfp2, 2, 0xff)

const struct format format_rocmfp4 = {
    .id = Q_ROCMFP4, .name = "rocmfp4", .doc = "16 levels to 10, scale per 16", .block = 32,
    .bytes = sizeof(struct block_rocmfp4), .decode = fp4_decode, .encode = rocmfp4_encode,
    .valid = fp4_valid,
};
const struct format format_rocmfp4_fast = {
    .id = Q_ROCMFP4_FAST,
    .name = "rocmfp4_fast",
    .doc = "16 levels to 10, scale per 32",
    .block = 32,
    .bytes = sizeof(struct block_rocmfp4_fast),
    .decode = fp4_fast_decode,
    .encode = rocmfp4_fast_encode,
    .valid = fp4_fast_valid,
};
const struct format format_rocmfp6 = {
    .id = Q_ROCMFP6, .name = "rocmfp6", .doc = "sign and 5 bits, scale per 16", .block = 32,
    .bytes = sizeof(struct block_rocmfp6), .decode = fp6_decode, .encode = rocmfp6_encode,
    .valid = fp6_valid,
};
const struct format format_rocmfp8 = {
    .id = Q_ROCMFP8, .name = "rocmfp8", .doc = "signed bytes, scale per 32", .block = 32,
    .bytes = sizeof(struct block_rocmfp8), .decode = fp8_decode, .encode = rocmfp8_encode,
    .valid = fp8_valid,
};
const struct format format_rocmfp3 = {
    .id = Q_ROCMFP3,
    .name = "rocmfp3",
    .doc = "levels 0, 1, 2, 4 with sign, scale per 16",
    .block = 32,
    .bytes = sizeof(struct block_rocmfp3),
    .decode = fp3_decode,
    .encode = rocmfp3_encode,
    .valid = fp3_valid,
};
const struct format format_rocmfp2 = {
    .id = Q_ROCMFP2,
    .name = "rocmfp2",
    .doc = "levels -1 to 2, scale (and sign) per 16",
    .block = 32,
    .bytes = sizeof(struct block_rocmfp2),
    .decode = fp2_decode,
    .encode = rocmfp2_encode,
    .valid = fp2_valid,
};
const struct format format_rocmfp2_affine = {
    .id = Q_ROCMFP2_AFFINE,
    .name = "rocmfp2_affine",
    .doc = "id 107 read as codes 0 to 3 times scale - offset",
    .block = 32,
    .bytes = sizeof(struct block_rocmfp2),
    .decode = fp2_affine_decode,
    .valid = fp2_affine_valid,
};
/* Without the mode of their tensor every scale byte of a MIX block is fine: no valid. */
const struct format format_rocmfp3_mix = {
    .id = Q_ROCMFP3_MIX,
    .name = "rocmfp3_mix",
    .doc = "rocmfp3 blocks, levels from two codebooks of 8",
    .block = 32,
    .bytes = sizeof(struct block_rocmfp3),
    .decode = fp3_decode,
    .encode = rocmfp3_encode,
    .levels = 8,
    .decode_books = fp3_books_decode,
};
const struct format format_rocmfp2_mix = {
    .id = Q_ROCMFP2_MIX,
    .name = "rocmfp2_mix",
    .doc = "rocmfp2 blocks, levels from two codebooks of 4",
    .block = 32,
    .bytes = sizeof(struct block_rocmfp2),
    .decode = fp2_mix_decode,
    .encode = rocmfp2_encode,
    .levels = 4,
    .decode_books = fp2_books_decode,
};
