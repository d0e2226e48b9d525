/* tests/test_quant_properties.c - what every number format promises, besides its golden vectors:
 * sizes, names, errors of a round trip, zeros, inputs that are not finite, checks of scales. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "quant/blocks.h"
#include "quant/rocm.h"
#include "quant/rotate.h"
#include "test.h"

enum { ROW = 1024, ROW_BYTES = 4 * ROW + 64 };

/* name, elements and bytes of a block, and how far a round trip of normal numbers may be off: root
 * mean square of the error over that of the row (0: not encoded). */
static const struct {
    const char *name;
    int block, bytes;
    double error;
} known[] = {
    { "f32", 1, 4, 1e-30 },
    { "f16", 1, 2, 3e-4 },
    { "bf16", 1, 2, 2.5e-3 },
    { "q4_0", 32, 18, 0.1 },
    { "q4_1", 32, 20, 0.09 },
    { "q5_0", 32, 22, 0.05 },
    { "q5_1", 32, 24, 0.045 },
    { "q8_0", 32, 34, 0.008 },
    { "q2_K", 256, 84, 0.35 },
    { "q3_K", 256, 110, 0.17 },
    { "q4_K", 256, 144, 0.085 },
    { "q5_K", 256, 176, 0.043 },
    { "q6_K", 256, 210, 0.022 },
    { "iq1_s", 256, 50, 0.57 },
    { "iq1_m", 256, 56, 0.67 },
    { "iq2_xxs", 256, 66, 0.41 },
    { "iq2_xs", 256, 74, 0.36 },
    { "iq2_s", 256, 82, 0.31 },
    { "iq3_xxs", 256, 98, 0.25 },
    { "iq3_s", 256, 110, 0.19 },
    { "iq4_nl", 32, 18, 0.09 },
    { "iq4_xs", 256, 136, 0.09 },
    { "mxfp4", 32, 17, 0.14 },
    { "nvfp4", 64, 36, 0.12 },
    { "q1_0", 128, 18, 0.65 },
    { "q2_0", 64, 18, 0.82 },
    { "tq1_0", 256, 54, 0.95 },
    { "tq2_0", 256, 66, 0.95 },
    { "tq3_0", 128, 56, 0.22 },
    { "rocmfp4", 32, 18, 0.1 },
    { "rocmfp4_fast", 32, 17, 0.11 },
    { "rocmfp6", 32, 26, 0.035 },
    { "rocmfp8", 32, 33, 0.018 },
    { "rocmfp3", 32, 14, 0.21 },
    { "rocmfp3_mix", 32, 14, 0.21 },
    { "rocmfp2", 32, 10, 0.43 },
    { "rocmfp2_mix", 32, 10, 0.43 },
    { "rocmfp2_affine", 32, 10, 0 },
    { "i8", 1, 1, 0 },
    { "i16", 1, 2, 0 },
    { "i32", 1, 4, 0 },
    { "i64", 1, 8, 0 },
    { "f64", 1, 8, 0 },
};

static void fill_normal(float *x)
{
    for (int i = 0; i < ROW; i++) x[i] = (float)test_normal() * 0.02f;
}

static void fill_importance(float *im)
{
    for (int i = 0; i < ROW; i++) im[i] = (float)test_uniform(0.2, 3);
}

static double error_of(const float *x, const float *y)
{
    double sum = 0, all = 0;
    for (int i = 0; i < ROW; i++) {
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        all += (double)x[i] * (double)x[i];
    }
    return sqrt(sum / all);
}

TEST(quant_table_has_each_format_once_with_its_size)
{
    size_t n = 0;
    for (const struct format *f; (f = format_at(n)); n++) {
        CHECK(format_find(f->id) == f, "%s shares its id", f->name);
        CHECK(format_named(f->name) == f, "%s shares its name", f->name);
        CHECK(f->doc && *f->doc);
        CHECK((f->levels != 0) == (f->decode_books != NULL), "%s", f->name);
    }
    CHECK_EQ(n, COUNT(known));
    for (size_t i = 0; i < COUNT(known); i++) {
        const struct format *f = format_named(known[i].name);
        CHECK(f != NULL, "no format %s", known[i].name);
        if (!f) continue;
        CHECK_EQ(f->block, known[i].block);
        CHECK_EQ(f->bytes, known[i].bytes);
        CHECK_EQ(format_bytes(f, 256 * 7), (uint64_t)(256 * 7 / known[i].block * known[i].bytes));
        CHECK((f->encode != NULL) == (known[i].error != 0), "%s", f->name);
    }
    CHECK_EQ(format_bytes(format_find(Q_Q4_K), UINT64_C(1) << 40), (UINT64_C(1) << 32) * 144);
}

TEST(quant_names_compare_without_case)
{
    CHECK(format_named("Q4_k") == format_find(Q_Q4_K));
    CHECK(format_named("IQ2_XXS") == format_find(Q_IQ2_XXS));
    CHECK(format_named("q4") == NULL);
    CHECK(format_named("") == NULL);
    CHECK(format_find(4) == NULL);
    CHECK(format_find(UINT32_MAX) == NULL);
    CHECK(format_find(Q_Q2_0) == format_named("q2_0"));
}

TEST(f16_conversion_is_exact_and_rounds_to_even)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        int exp = (int)(h >> 10 & 31), man = (int)(h & 0x3ff);
        float got = f16_to_f32((uint16_t)h);
        double want = exp ? ldexp(1024 + man, exp - 25) : ldexp(man, -24);
        if (exp == 31) want = man ? NAN : INFINITY;
        if (h & 0x8000) want = -want;
        bool same = isnan(want) ? isnan(got)
                                : (double)got == want && !signbit(got) == !signbit(want);
        if (!same) CHECK(same, "half %04x is %a", h, (double)got);
        uint16_t back = f32_to_f16(got);
        uint16_t expected = (uint16_t)(isnan(want) ? h | 0x200 : h);
        if (back != expected) CHECK(back == expected, "half %04x comes back as %04x", h, back);
        if (exp == 31 || (h & 0x7fff) == 0x7bff) continue;
        /* Between two neighbours: below, at and above the middle. */
        float next = f16_to_f32((uint16_t)(h + 1)), middle = (got + next) / 2;
        uint16_t even = (uint16_t)(h & 1 ? h + 1 : h);
        CHECK_EQ(f32_to_f16(middle), even);
        CHECK_EQ(f32_to_f16(nextafterf(middle, got)), h);
        CHECK_EQ(f32_to_f16(nextafterf(middle, next)), h + 1);
    }
    CHECK_EQ(f32_to_f16(65519.996f), 0x7bff);
    CHECK_EQ(f32_to_f16(65520.0f), 0x7c00);
    CHECK_EQ(f32_to_f16(-FLT_MAX), 0xfc00);
    CHECK_EQ(f32_to_f16(-INFINITY), 0xfc00);
    CHECK_EQ(f32_to_f16(0x1p-25f), 0);
    CHECK_EQ(f32_to_f16(nextafterf(0x1p-25f, 1)), 1);
    CHECK_EQ(f32_to_f16(-FLT_TRUE_MIN), 0x8000);
}

TEST(bf16_conversion_rounds_to_even)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        float got = bf16_to_f32((uint16_t)h);
        CHECK_EQ(f32_bits(got), h << 16);
        uint16_t back = f32_to_bf16(got);
        uint16_t expected = (uint16_t)(isnan(got) ? h | 64 : h);
        if (back != expected) CHECK(back == expected, "%04x comes back as %04x", h, back);
    }
    CHECK_EQ(f32_to_bf16(f32_of_bits(0x3f808000)), 0x3f80);
    CHECK_EQ(f32_to_bf16(f32_of_bits(0x3f808001)), 0x3f81);
    CHECK_EQ(f32_to_bf16(f32_of_bits(0x3f818000)), 0x3f82);
    CHECK_EQ(f32_to_bf16(FLT_MAX), 0x7f80);
    CHECK(isnan(bf16_to_f32(f32_to_bf16(f32_of_bits(0x7f800001)))));
}

TEST(quant_scale_bytes_have_their_values)
{
    for (int e = 0; e < 256; e++) {
        double want = e >= 0x7f ? 0 : e < 8 ? ldexp(e, -10) : ldexp(8 + e % 8, e / 8 - 11);
        CHECK((double)ue4m3_half((uint8_t)e) == want, "byte %d", e);
        CHECK((double)e8m0_half((uint8_t)e) == ldexp(1, e - 128), "byte %d", e);
    }
    for (unsigned i = 0; i < 128; i++) {
        unsigned mask = iq_signs(i), ones = 0;
        for (int j = 0; j < 8; j++) ones += mask >> j & 1;
        CHECK_EQ(mask & 127, i);
        CHECK_EQ(ones % 2, 0);
    }
}

TEST(quant_round_trip_keeps_normal_numbers)
{
    static float x[ROW], y[ROW], im[ROW];
    static uint8_t bytes[ROW_BYTES];
    fill_normal(x);
    fill_importance(im);
    for (size_t i = 0; i < COUNT(known); i++) {
        const struct format *f = format_named(known[i].name);
        if (!f || !f->encode) continue;
        for (int with = f->needs_importance; with < 2; with++) {
            memset(bytes, 0xa5, sizeof bytes);
            memset(y, 0xff, sizeof y);
            f->encode(x, bytes, ROW, with ? im : NULL);
            f->decode(bytes, y, ROW);
            double error = error_of(x, y);
            CHECK(error <= known[i].error, "%s: error %g with%s importance", f->name, error,
                  with ? "" : "out");
            CHECK_EQ(bytes[format_bytes(f, ROW)], 0xa5);
            CHECK(!f->valid || f->valid(bytes, ROW), "%s", f->name);
        }
    }
}

/* Importance must pay: what it weighs is no worse than without it. */
TEST(quant_importance_lowers_the_weighted_error)
{
    static float x[ROW], y[ROW], im[ROW];
    static uint8_t bytes[ROW_BYTES];
    fill_normal(x);
    for (int i = 0; i < ROW; i++) im[i] = i % 16 == 3 ? 50 : 0.1f;
    for (size_t k = 0; k < COUNT(known); k++) {
        const struct format *f = format_named(known[k].name);
        if (!f || !f->encode || f->needs_importance) continue;
        double error[2] = { 0, 0 };
        for (int with = 0; with < 2; with++) {
            f->encode(x, bytes, ROW, with ? im : NULL);
            f->decode(bytes, y, ROW);
            for (int i = 0; i < ROW; i++)
                error[with] += (double)im[i] * ((double)x[i] - (double)y[i]) *
                               ((double)x[i] - (double)y[i]);
        }
        CHECK(error[1] <= error[0] * 1.02, "%s: %g, without %g", f->name, error[1], error[0]);
    }
}

TEST(quant_zeros_stay_zeros)
{
    static const float zero[ROW];
    static float y[ROW], im[ROW];
    static uint8_t bytes[ROW_BYTES];
    fill_importance(im);
    for (size_t i = 0; format_at(i); i++) {
        const struct format *f = format_at(i);
        for (int with = 0; f->encode && with < 2; with++) {
            if (!with && f->needs_importance) continue;
            memset(bytes, 0xff, sizeof bytes);
            f->encode(zero, bytes, ROW, with ? im : NULL);
            CHECK(!f->valid || f->valid(bytes, ROW), "%s", f->name);
            f->decode(bytes, y, ROW);
            for (int k = 0; k < ROW; k++)
                if (y[k] != 0) {
                    test_failed(__FILE__, __LINE__, "%s: zero %d is %g", f->name, k, (double)y[k]);
                    break;
                }
        }
    }
}

/* Zeros beside other values: the grids have no zero, but their least value is near enough. */
TEST(quant_zeros_in_a_block_stay_small)
{
    static float x[ROW], y[ROW], im[ROW];
    static uint8_t bytes[ROW_BYTES];
    fill_importance(im);
    for (size_t i = 0; format_at(i); i++) {
        const struct format *f = format_at(i);
        if (!f->encode || f->id == Q_Q1_0) continue;        /* Q1_0 has signs only */
        fill_normal(x);
        memset(x + 32, 0, 64 * sizeof *x);
        f->encode(x, bytes, ROW, f->needs_importance ? im : NULL);
        f->decode(bytes, y, ROW);
        for (int k = 32; k < 96; k++)
            if (!(fabsf(y[k]) < 0.3f * 0.02f)) {
                test_failed(__FILE__, __LINE__, "%s: zero %d is %g", f->name, k, (double)y[k]);
                break;
            }
    }
}

/* The sanitizers are the judge of these two. */
TEST(quant_survives_values_that_are_not_finite)
{
    static const float odd[] = { NAN,          INFINITY, -INFINITY, FLT_MAX, -FLT_MAX,
                                 FLT_TRUE_MIN, -0.0f,    1e-38f,    1e30f };
    static float x[ROW], y[ROW], im[ROW];
    static uint8_t bytes[ROW_BYTES];
    for (size_t i = 0; format_at(i); i++) {
        const struct format *f = format_at(i);
        for (int round = 0; f->encode && round < 24; round++) {
            fill_normal(x);
            fill_importance(im);
            for (int k = 0; k < 1 << (round % 12); k++) {
                x[test_random() % ROW] = odd[test_random() % COUNT(odd)];
                if (round >= 12) im[test_random() % ROW] = odd[test_random() % COUNT(odd)];
            }
            if (round == 5) for (int k = 0; k < ROW; k++) x[k] = NAN;
            if (round == 6) for (int k = 0; k < ROW; k++) x[k] = FLT_TRUE_MIN;
            f->encode(x, bytes, ROW, round % 2 || f->needs_importance ? im : NULL);
            f->decode(bytes, y, ROW);
        }
    }
}

TEST(quant_decodes_any_bytes_at_any_address_in_any_pieces)
{
    static uint8_t bytes[ROW_BYTES];
    static float whole[ROW + 1], part[ROW];
    for (size_t i = 0; format_at(i); i++) {
        const struct format *f = format_at(i);
        if (!f->decode) continue;
        for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = (uint8_t)test_random();
        memset(whole, 0x5a, sizeof whole);
        f->decode(bytes + 3, whole, ROW);
        CHECK_EQ(f32_bits(whole[ROW]), 0x5a5a5a5a);
        for (int at = 0; at < ROW; at += f->block)
            f->decode(bytes + 3 + format_bytes(f, (uint64_t)at), part + at, f->block);
        CHECK(!memcmp(whole, part, sizeof part), "%s", f->name);
        f->decode(bytes, whole + ROW, 0);
        CHECK_EQ(f32_bits(whole[ROW]), 0x5a5a5a5a);
        if (f->valid) f->valid(bytes + 1, ROW);
    }
}

TEST(quant_single_blocks_are_blocks_of_rows)
{
    static float x[ROW], y[ROW], one[32];
    static uint8_t bytes[ROW_BYTES];
    fill_normal(x);
    format_find(Q_Q8_0)->encode(x, bytes, ROW, NULL);
    format_find(Q_Q8_0)->decode(bytes, y, ROW);
    struct block_q8_0 b8;
    q8_0_encode_block(x + 64, &b8);
    CHECK(!memcmp(&b8, bytes + 2 * sizeof b8, sizeof b8));
    q8_0_decode_block(&b8, one);
    CHECK(!memcmp(one, y + 64, sizeof one));
    format_find(Q_Q4_0)->encode(x, bytes, ROW, NULL);
    format_find(Q_Q4_0)->decode(bytes, y, ROW);
    struct block_q4_0 b4;
    q4_0_encode_block(x + 64, &b4);
    CHECK(!memcmp(&b4, bytes + 2 * sizeof b4, sizeof b4));
    q4_0_decode_block(&b4, one);
    CHECK(!memcmp(one, y + 64, sizeof one));
}

/* Byte `at` of a block set to `byte` makes its scale invalid. */
static const struct { const char *name; int at, byte;
} spoilt[] = {
    { "f32", 3, 0x7f },
    { "f16", 1, 0x7c },
    { "f16", 1, 0xff },
    { "bf16", 1, 0x7f },
    { "q4_0", 1, 0x7c },
    { "q4_1", 1, 0xfc },
    { "q4_1", 3, 0x7c },
    { "q5_0", 1, 0x7e },
    { "q5_1", 1, 0x7c },
    { "q5_1", 3, 0x7c },
    { "q8_0", 1, 0x7f },
    { "q2_K", 81, 0x7c },
    { "q2_K", 83, 0x7c },
    { "q3_K", 109, 0x7c },
    { "q4_K", 1, 0x7c },
    { "q4_K", 3, 0xfe },
    { "q5_K", 1, 0x7c },
    { "q5_K", 3, 0x7c },
    { "q6_K", 209, 0x7c },
    { "iq1_s", 1, 0x7c },
    { "iq1_m", 55, 0x70 },
    { "iq2_xxs", 1, 0x7c },
    { "iq2_xs", 1, 0x7c },
    { "iq2_s", 1, 0x7c },
    { "iq3_xxs", 1, 0x7c },
    { "iq3_s", 1, 0x7c },
    { "iq4_nl", 1, 0x7c },
    { "iq4_xs", 1, 0x7c },
    { "tq1_0", 53, 0x7c },
    { "tq2_0", 65, 0x7c },
    { "tq3_0", 1, 0x7c },
    { "tq3_0", 43, 0x7c },
    { "q1_0", 1, 0x7c },
    { "q2_0", 1, 0x7c },
    { "mxfp4", 0, 0xff },
    { "rocmfp4", 16, 0x7f },
    { "rocmfp4", 17, 0x80 },
    { "rocmfp4_fast", 16, 0xff },
    { "rocmfp6", 24, 0x7f },
    { "rocmfp6", 25, 0x80 },
    { "rocmfp8", 32, 0x7f },
    { "rocmfp3", 12, 0x7f },
    { "rocmfp3", 13, 0x90 },
    { "rocmfp2", 8, 0x7f },
    { "rocmfp2", 9, 0xff },
    { "rocmfp2_affine", 8, 0x80 },
    { "rocmfp2_affine", 9, 0x7f },
};

TEST(quant_valid_finds_a_spoilt_scale)
{
    static uint8_t bytes[ROW_BYTES];
    for (size_t i = 0; i < COUNT(spoilt); i++) {
        const struct format *f = format_named(spoilt[i].name);
        CHECK(f && f->valid, "%s", spoilt[i].name);
        if (!f || !f->valid) continue;
        memset(bytes, 0x30, sizeof bytes); /* 0x3030 is a fine half and 0x30 a fine byte scale */
        if (f->id == Q_IQ1_M) memset(bytes, 0xc0, sizeof bytes);
        if (f->id == Q_F32 || f->id == Q_BF16) memset(bytes, 0xb0, sizeof bytes);
        CHECK(f->valid(bytes, ROW), "%s", f->name);
        int64_t last = ROW / f->block - 1;
        bytes[last * f->bytes + spoilt[i].at] = (uint8_t)spoilt[i].byte;
        CHECK(!f->valid(bytes, ROW), "%s byte %d", f->name, spoilt[i].at);
        CHECK(f->valid(bytes, ROW - f->block), "%s looks past the end", f->name);
    }
    CHECK(format_find(Q_NVFP4)->valid == NULL);
    memset(bytes, 0xff, sizeof bytes);
    bytes[8] = bytes[9] = 0xfe;                  /* the sign bit is no part of the scale */
    CHECK(format_find(Q_ROCMFP2)->valid(bytes, 32));
}

static double product(const float *a, const float *b)
{
    double sum = 0;
    for (int i = 0; i < ROTATE_GROUP; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

TEST(rotation_keeps_products_and_turns_back)
{
    float a[ROTATE_GROUP], b[ROTATE_GROUP], ra[ROTATE_GROUP], rb[ROTATE_GROUP];
    for (int i = 0; i < ROTATE_GROUP; i++) {
        a[i] = ra[i] = (float)test_normal();
        b[i] = rb[i] = (float)test_normal();
    }
    rotate_group(ra);
    rotate_group(rb);
    double plain = product(a, b), rotated = product(ra, rb);
    CHECK(fabs(plain - rotated) < 1e-4, "%g %g", plain, rotated);
    rotate_back(ra);
    for (int i = 0; i < ROTATE_GROUP; i++)
        if (!(fabsf(ra[i] - a[i]) < 1e-5f))
            test_failed(__FILE__, __LINE__, "element %d is %g, not %g", i, (double)ra[i],
                        (double)a[i]);
    /* One unit vector becomes 128 values of one size. */
    float unit[ROTATE_GROUP] = { [5] = 1 };
    rotate_group(unit);
    for (int i = 0; i < ROTATE_GROUP; i++)
        CHECK(fabs(fabs((double)unit[i]) - 1 / sqrt(128)) < 1e-7);
}

TEST(tq3_0_keeps_a_row_with_an_outlier_when_rotated)
{
    const struct format *f = format_named("tq3_0");
    float x[ROTATE_GROUP], y[ROTATE_GROUP];
    uint8_t bytes[56];
    CHECK(f->rotate);
    double sum = 0, all = 0;
    for (int i = 0; i < ROTATE_GROUP; i++) x[i] = (float)test_normal();
    x[17] = 30;
    memcpy(y, x, sizeof y);
    rotate_group(y);
    f->encode(y, bytes, ROTATE_GROUP, NULL);
    f->decode(bytes, y, ROTATE_GROUP);
    rotate_back(y);
    for (int i = 0; i < ROTATE_GROUP; i++) {
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        all += (double)x[i] * (double)x[i];
    }
    CHECK(sqrt(sum / all) < 0.25, "%g", sqrt(sum / all));
}

TEST(rocmfp2_sign_bit_negates_its_half)
{
    const struct format *f = format_find(Q_ROCMFP2);
    uint8_t bytes[10] = { 0xe4, 0x1b, 0x27, 0x72, 0xe4, 0x1b, 0x27, 0x72, 0x38, 0x38 };
    float plain[32], signed_[32];
    f->decode(bytes, plain, 32);
    bytes[9] |= 0x80;
    f->decode(bytes, signed_, 32);
    for (int i = 0; i < 32; i++) CHECK(signed_[i] == (i < 16 ? plain[i] : -plain[i]));
}

TEST(rocmfp2_guess_tells_scales_from_offsets)
{
    enum { BLOCKS = 2000 };
    static struct block_rocmfp2 b[BLOCKS];
    static const struct { float ratio; int spread; enum rocmfp2_reading is;
    } cases[] = {
        { 1.0f, 3, ROCMFP2_TWO_SCALES },
        { 1.5f, 0, ROCMFP2_SCALE_OFFSET },
        { 1.25f, 0, ROCMFP2_UNCLEAR },
    };
    for (size_t k = 0; k < COUNT(cases); k++) {
        for (int i = 0; i < BLOCKS; i++) {
            int first = 40 + (int)(test_random() % 4) * 8, second = first;      /* powers of two */
            if (cases[k].ratio > 1.4f) second += 4;                             /* 12/8 */
            else if (cases[k].ratio > 1.2f) second += 2;                        /* 10/8 */
            if (cases[k].spread) second += (int)(test_random() % 7) - 3;
            b[i].e[0] = (uint8_t)first;
            b[i].e[1] = (uint8_t)second;
        }
        CHECK_EQ(rocmfp2_guess(b, 32 * BLOCKS), cases[k].is);
    }
    b[BLOCKS / 2].e[1] |= 0x80;
    CHECK_EQ(rocmfp2_guess(b, 32 * BLOCKS), ROCMFP2_TWO_SCALES);
    memset(b, 0, sizeof b);
    CHECK_EQ(rocmfp2_guess(b, 32 * BLOCKS), ROCMFP2_UNCLEAR);
}
