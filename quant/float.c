/* quant/float.c - formats without blocks: floats, and the integers that a file may hold in tensors
 * that are not matrices (no decode). */
#include "quant/rows.h"

static void f32_decode(const void *src, float *dst, int64_t n)
{
    memcpy(dst, src, (size_t)n * sizeof *dst);
}

static void f32_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    (void)importance;
    memcpy(dst, src, (size_t)n * sizeof *src);
}

static bool f32_valid(const void *src, int64_t n)
{
    const uint8_t *at = src;
    unsigned bad = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, at + 4 * i, 4);
        bad |= (u & 0x7f800000) == 0x7f800000;
    }
    return !bad;
}

static void f16_decode(const void *src, float *dst, int64_t n)
{
    const uint8_t *at = src;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, at + 2 * i, 2);
        dst[i] = f16_to_f32(h);
    }
}

static void f16_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    (void)importance;
    uint8_t *at = dst;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = f32_to_f16(src[i]);
        memcpy(at + 2 * i, &h, 2);
    }
}

static bool f16_valid(const void *src, int64_t n)
{
    return halves_finite(src, n, 2, 0);
}

static void bf16_decode(const void *src, float *dst, int64_t n)
{
    const uint8_t *at = src;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, at + 2 * i, 2);
        dst[i] = bf16_to_f32(h);
    }
}

static void bf16_encode(const float *src, void *dst, int64_t n, const float *importance)
{
    (void)importance;
    uint8_t *at = dst;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = f32_to_bf16(src[i]);
        memcpy(at + 2 * i, &h, 2);
    }
}

static bool bf16_valid(const void *src, int64_t n)
{
    const uint8_t *at = src;
    unsigned bad = 0;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, at + 2 * i, 2);
        bad |= (h & 0x7f80) == 0x7f80;
    }
    return !bad;
}

const struct format format_f32 = {
    .id = Q_F32, .name = "f32", .doc = "IEEE single", .block = 1, .bytes = 4,
    .decode = f32_decode, .encode = f32_encode, .valid = f32_valid,
};
const struct format format_f16 = {
    .id = Q_F16, .name = "f16", .doc = "IEEE half", .block = 1, .bytes = 2,
    .decode = f16_decode, .encode = f16_encode, .valid = f16_valid,
};
const struct format format_bf16 = {
    .id = Q_BF16, .name = "bf16", .doc = "upper half of an IEEE single", .block = 1, .bytes = 2,
    .decode = bf16_decode, .encode = bf16_encode, .valid = bf16_valid,
};
const struct format format_i8 = {
    .id = Q_I8, .name = "i8", .doc = "integer, not for matrices", .block = 1, .bytes = 1,
};
const struct format format_i16 = {
    .id = Q_I16, .name = "i16", .doc = "integer, not for matrices", .block = 1, .bytes = 2,
};
const struct format format_i32 = {
    .id = Q_I32, .name = "i32", .doc = "integer, not for matrices", .block = 1, .bytes = 4,
};
const struct format format_i64 = {
    .id = Q_I64, .name = "i64", .doc = "integer, not for matrices", .block = 1, .bytes = 8,
};
const struct format format_f64 = {
    .id = Q_F64, .name = "f64", .doc = "IEEE double, not for matrices", .block = 1, .bytes = 8,
};
