/* device/cpu/repack.c - weights into strips of 16 rows and back (strips.h draws the layouts).
 * Packing keeps every bit: unpack gives the canonical block again, which is how a row is decoded for
 * EMBED and why the golden vectors of quant/ hold for strips as well. */
#include <string.h>

#include "base/mem.h"
#include "device/cpu/strips.h"
#include "quant/blocks.h"

/* ---- codes --------------------------------------------------------------------------------------- */
static uint8_t *nibble_at(uint8_t *strip, int group, int row, int byte)
{
    return strip + group * NIBBLES + byte / 4 * VEC + row * 4 + byte % 4;
}

/* 16 bytes in the order low nibble e, high nibble e + 16. */
static void put_nibbles(uint8_t *strip, int group, int row, const uint8_t qs[16])
{
    for (int j = 0; j < 4; j++) memcpy(nibble_at(strip, group, row, 4 * j), qs + 4 * j, 4);
}

static void get_nibbles(const uint8_t *strip, int group, int row, uint8_t qs[16])
{
    for (int j = 0; j < 4; j++) memcpy(qs + 4 * j, strip + group * NIBBLES + j * VEC + row * 4, 4);
}

/* Bit e of qh to and from the fifth bits: byte e % 4 of the row, bit e / 4. */
static void put_bits(uint8_t *at, int row, uint32_t qh)
{
    for (int b = 0; b < 4; b++) {
        uint8_t bits = 0;
        for (int j = 0; j < 8; j++) bits |= (uint8_t)((qh >> (4 * j + b) & 1) << j);
        at[row * 4 + b] = bits;
    }
}

static uint32_t get_bits(const uint8_t *at, int row)
{
    uint32_t qh = 0;
    for (int b = 0; b < 4; b++)
        for (int j = 0; j < 8; j++) qh |= (uint32_t)(at[row * 4 + b] >> j & 1) << (4 * j + b);
    return qh;
}

static void put_u16(uint8_t *at, int row, uint16_t v)
{
    memcpy(at + 2 * row, &v, 2);
}

static uint16_t get_u16(const uint8_t *at, int row)
{
    uint16_t v;
    memcpy(&v, at + 2 * row, 2);
    return v;
}

/* ---- blocks of 32 -------------------------------------------------------------------------------- */
static size_t bytes_small(const struct format *f, int n)
{
    return (size_t)(n / GROUP) * LANES * (size_t)f->bytes;
}

/* Where the sections of a block of g groups begin: codes, fifth bits, scales, offsets. */
static void pack_small(const struct format *f, const uint8_t *src, int n, int row, uint8_t *strip)
{
    int g = n / GROUP;
    bool fifth = f->id == Q_Q5_0 || f->id == Q_Q5_1, offset = f->id == Q_Q4_1 || f->id == Q_Q5_1;
    uint8_t *bits = strip + g * NIBBLES, *scales = bits + (fifth ? g * VEC : 0);
    for (int i = 0; i < g; i++, src += f->bytes) {
        const uint8_t *at = src;
        memcpy(scales + i * F16S + 2 * row, at, 2);
        at += 2;
        if (offset) {
            memcpy(scales + (g + i) * F16S + 2 * row, at, 2);
            at += 2;
        }
        if (fifth) {
            uint32_t qh;
            memcpy(&qh, at, 4);
            put_bits(bits + i * VEC, row, qh);
            at += 4;
        }
        put_nibbles(strip, i, row, at);
    }
}

static void unpack_small(const struct format *f, const uint8_t *strip, int n, int row, uint8_t *dst)
{
    int g = n / GROUP;
    bool fifth = f->id == Q_Q5_0 || f->id == Q_Q5_1, offset = f->id == Q_Q4_1 || f->id == Q_Q5_1;
    const uint8_t *bits = strip + g * NIBBLES, *scales = bits + (fifth ? g * VEC : 0);
    for (int i = 0; i < g; i++, dst += f->bytes) {
        uint8_t *at = dst;
        memcpy(at, scales + i * F16S + 2 * row, 2);
        at += 2;
        if (offset) {
            memcpy(at, scales + (g + i) * F16S + 2 * row, 2);
            at += 2;
        }
        if (fifth) {
            uint32_t qh = get_bits(bits + i * VEC, row);
            memcpy(at, &qh, 4);
            at += 4;
        }
        get_nibbles(strip, i, row, at);
    }
}

static void pack_q8_0(const struct format *f, const uint8_t *src, int n, int row, uint8_t *strip)
{
    int g = n / GROUP;
    for (int i = 0; i < g; i++, src += f->bytes) {
        memcpy(strip + g * BYTES + i * F16S + 2 * row, src, 2);
        for (int j = 0; j < 8; j++) {
            uint32_t four;
            memcpy(&four, src + 2 + 4 * j, 4);
            four ^= 0x80808080u;
            memcpy(strip + i * BYTES + j * VEC + row * 4, &four, 4);
        }
    }
}

static void unpack_q8_0(const struct format *f, const uint8_t *strip, int n, int row, uint8_t *dst)
{
    int g = n / GROUP;
    for (int i = 0; i < g; i++, dst += f->bytes) {
        memcpy(dst, strip + g * BYTES + i * F16S + 2 * row, 2);
        for (int j = 0; j < 8; j++) {
            uint32_t four;
            memcpy(&four, strip + i * BYTES + j * VEC + row * 4, 4);
            four ^= 0x80808080u;
            memcpy(dst + 2 + 4 * j, &four, 4);
        }
    }
}

static void pack_mxfp4(const struct format *f, const uint8_t *src, int n, int row, uint8_t *strip)
{
    int g = n / GROUP;
    for (int i = 0; i < g; i++, src += f->bytes) {
        strip[g * NIBBLES + i * LANES + row] = src[0];
        put_nibbles(strip, i, row, src + 1);
    }
}

static void unpack_mxfp4(const struct format *f, const uint8_t *strip, int n, int row, uint8_t *dst)
{
    int g = n / GROUP;
    for (int i = 0; i < g; i++, dst += f->bytes) {
        dst[0] = strip[g * NIBBLES + i * LANES + row];
        get_nibbles(strip, i, row, dst + 1);
    }
}

/* ---- blocks of 256 ------------------------------------------------------------------------------- */
/* Q4_K and Q5_K pair groups 2p and 2p + 1 in the nibbles of one byte; strips pair k and k + 16. */
static void k_nibbles_put(uint8_t *strip, int row, const uint8_t qs[128])
{
    for (int g = 0; g < GROUPS; g++) {
        const uint8_t *q = qs + GROUP * (g / 2);
        int shift = 4 * (g % 2);
        for (int e = 0; e < 16; e++)
            *nibble_at(strip, g, row, e) = (uint8_t)((q[e] >> shift & 15) | (q[e + 16] >> shift & 15) << 4);
    }
}

static void k_nibbles_get(const uint8_t *strip, int row, uint8_t qs[128])
{
    memset(qs, 0, 128);
    for (int g = 0; g < GROUPS; g++) {
        uint8_t *q = qs + GROUP * (g / 2), pairs[16];
        int shift = 4 * (g % 2);
        get_nibbles(strip, g, row, pairs);
        for (int e = 0; e < 16; e++) {
            q[e] |= (uint8_t)((pairs[e] & 15) << shift);
            q[e + 16] |= (uint8_t)(pairs[e] >> 4 << shift);
        }
    }
}

/* `at` is the section from d on, the same in Q4_K and Q5_K. */
static void k_scales_put(uint8_t *at, int row, uint16_t d, uint16_t dmin, const uint8_t scales[12])
{
    put_u16(at, row, d);
    put_u16(at + F16S, row, dmin);
    uint8_t *low = at + Q4K_LOW - Q4K_D, *high = at + Q4K_HIGH - Q4K_D;
    for (int i = 0; i < 4; i++) high[i * LANES + row] = 0;
    for (int g = 0; g < GROUPS; g++) {
        int sc, m;
        k4_scale_min(scales, g, &sc, &m);
        low[g * LANES + row] = (uint8_t)((sc & 15) | (m & 15) << 4);
        high[g % 4 * LANES + row] |= (uint8_t)(((sc >> 4) | (m >> 4) << 2) << (g / 4 * 4));
    }
}

static void k_scales_get(const uint8_t *at, int row, uint16_t *d, uint16_t *dmin, uint8_t scales[12])
{
    *d = get_u16(at, row);
    *dmin = get_u16(at + F16S, row);
    const uint8_t *low = at + Q4K_LOW - Q4K_D, *high = at + Q4K_HIGH - Q4K_D;
    for (int g = 0; g < GROUPS; g++) {
        int l = low[g * LANES + row], h = high[g % 4 * LANES + row] >> (g / 4 * 4) & 15;
        int sc = (l & 15) | (h & 3) << 4, m = l >> 4 | (h >> 2) << 4;
        if (g < 4) {
            scales[g] = (uint8_t)sc;
            scales[g + 4] = (uint8_t)m;
        } else {
            scales[g + 4] = (uint8_t)((sc & 15) | (m & 15) << 4);
            scales[g - 4] |= (uint8_t)(sc >> 4 << 6);
            scales[g] |= (uint8_t)(m >> 4 << 6);
        }
    }
}

static size_t bytes_q4_k(const struct format *f, int n)
{
    (void)f, (void)n;
    return Q4K_SIZE;
}

static void pack_q4_k(const struct format *f, const uint8_t *src, int n, int row, uint8_t *strip)
{
    (void)f, (void)n;
    const struct block_q4_k *b = (const struct block_q4_k *)src;
    k_nibbles_put(strip, row, b->qs);
    k_scales_put(strip + Q4K_D, row, b->d, b->dmin, b->scales);
}

static void unpack_q4_k(const struct format *f, const uint8_t *strip, int n, int row, uint8_t *dst)
{
    (void)f, (void)n;
    struct block_q4_k b;
    uint16_t d, dmin;
    k_nibbles_get(strip, row, b.qs);
    k_scales_get(strip + Q4K_D, row, &d, &dmin, b.scales);
    b.d = d;
    b.dmin = dmin;
    memcpy(dst, &b, sizeof b);
}

static size_t bytes_q5_k(const struct format *f, int n)
{
    (void)f, (void)n;
    return Q5K_SIZE;
}

static void pack_q5_k(const struct format *f, const uint8_t *src, int n, int row, uint8_t *strip)
{
    (void)f, (void)n;
    const struct block_q5_k *b = (const struct block_q5_k *)src;
    k_nibbles_put(strip, row, b->qs);
    for (int g = 0; g < GROUPS; g++) {
        uint32_t bits = 0;
        for (int e = 0; e < GROUP; e++) bits |= (uint32_t)(b->qh[e] >> g & 1) << e;
        put_bits(strip + Q5K_BIT + g * VEC, row, bits);
    }
    k_scales_put(strip + Q5K_D, row, b->d, b->dmin, b->scales);
}

static void unpack_q5_k(const struct format *f, const uint8_t *strip, int n, int row, uint8_t *dst)
{
    (void)f, (void)n;
    struct block_q5_k b;
    uint16_t d, dmin;
    k_nibbles_get(strip, row, b.qs);
    memset(b.qh, 0, sizeof b.qh);
    for (int g = 0; g < GROUPS; g++) {
        uint32_t bits = get_bits(strip + Q5K_BIT + g * VEC, row);
        for (int e = 0; e < GROUP; e++) b.qh[e] |= (uint8_t)((bits >> e & 1) << g);
    }
    k_scales_get(strip + Q5K_D, row, &d, &dmin, b.scales);
    b.d = d;
    b.dmin = dmin;
    memcpy(dst, &b, sizeof b);
}

static size_t bytes_q6_k(const struct format *f, int n)
{
    (void)f, (void)n;
    return Q6K_SIZE;
}

/* Element e of a Q6_K block: its low nibble is in ql[64 (e/128) + e%64], the high one from e%128 >= 64
 * on; its two high bits are in qh[32 (e/128) + e%32] at 2 (e/32 % 4). */
static void pack_q6_k(const struct format *f, const uint8_t *src, int n, int row, uint8_t *strip)
{
    (void)f, (void)n;
    const struct block_q6_k *b = (const struct block_q6_k *)src;
    for (int g = 0; g < GROUPS; g++) {
        uint8_t *bits = strip + Q6K_BITS + g * 2 * VEC;
        memset(bits + row * 4, 0, 4);
        memset(bits + VEC + row * 4, 0, 4);
        for (int i = 0; i < GROUP; i++) {
            int e = GROUP * g + i, half = i / 16, j = i % 16 / 4, at = i % 4;
            int nib = b->ql[64 * (e / 128) + e % 64] >> (e % 128 >= 64 ? 4 : 0) & 15;
            int two = b->qh[32 * (e / 128) + e % 32] >> (2 * (e / 32 % 4)) & 3;
            uint8_t *q = nibble_at(strip, g, row, i % 16);
            *q = (uint8_t)(half ? *q | nib << 4 : nib);
            bits[half * VEC + row * 4 + at] |= (uint8_t)(two << (2 * j));
        }
        for (int h = 0; h < 2; h++)
            strip[Q6K_SCALES + (2 * g + h) * LANES + row] = (uint8_t)b->scales[2 * g + h];
    }
    put_u16(strip + Q6K_D, row, b->d);
}

static void unpack_q6_k(const struct format *f, const uint8_t *strip, int n, int row, uint8_t *dst)
{
    (void)f, (void)n;
    struct block_q6_k b;
    memset(&b, 0, sizeof b);
    for (int g = 0; g < GROUPS; g++) {
        const uint8_t *bits = strip + Q6K_BITS + g * 2 * VEC;
        uint8_t qs[16];
        get_nibbles(strip, g, row, qs);
        for (int i = 0; i < GROUP; i++) {
            int e = GROUP * g + i, half = i / 16, j = i % 16 / 4, at = i % 4;
            int nib = qs[i % 16] >> (4 * half) & 15;
            int two = bits[half * VEC + row * 4 + at] >> (2 * j) & 3;
            b.ql[64 * (e / 128) + e % 64] |= (uint8_t)(nib << (e % 128 >= 64 ? 4 : 0));
            b.qh[32 * (e / 128) + e % 32] |= (uint8_t)(two << (2 * (e / 32 % 4)));
        }
        for (int h = 0; h < 2; h++)
            b.scales[2 * g + h] = (int8_t)strip[Q6K_SCALES + (2 * g + h) * LANES + row];
    }
    b.d = get_u16(strip + Q6K_D, row);
    memcpy(dst, &b, sizeof b);
}

static size_t bytes_iq4_xs(const struct format *f, int n)
{
    (void)f, (void)n;
    return IQ4XS_SIZE;
}

static void pack_iq4_xs(const struct format *f, const uint8_t *src, int n, int row, uint8_t *strip)
{
    (void)f, (void)n;
    const struct block_iq4_xs *b = (const struct block_iq4_xs *)src;
    put_u16(strip + IQ4XS_D, row, b->d);
    for (int i = 0; i < 2; i++) strip[IQ4XS_HIGH + i * LANES + row] = (uint8_t)(b->scales_h >> (8 * i));
    for (int g = 0; g < GROUPS; g++) {
        put_nibbles(strip, g, row, b->qs + 16 * g);
        int low = b->scales_l[g / 2] >> (4 * (g % 2)) & 15;
        uint8_t *at = strip + IQ4XS_LOW + g % 4 * LANES + row;
        *at = (uint8_t)(g < 4 ? low : *at | low << 4);
    }
}

static void unpack_iq4_xs(const struct format *f, const uint8_t *strip, int n, int row, uint8_t *dst)
{
    (void)f, (void)n;
    struct block_iq4_xs b;
    memset(&b, 0, sizeof b);
    b.d = get_u16(strip + IQ4XS_D, row);
    b.scales_h = (uint16_t)(strip[IQ4XS_HIGH + row] | strip[IQ4XS_HIGH + LANES + row] << 8);
    for (int g = 0; g < GROUPS; g++) {
        get_nibbles(strip, g, row, b.qs + 16 * g);
        int low = strip[IQ4XS_LOW + g % 4 * LANES + row] >> (g < 4 ? 0 : 4) & 15;
        b.scales_l[g / 2] |= (uint8_t)(low << (4 * (g % 2)));
    }
    memcpy(dst, &b, sizeof b);
}

/* ---- plain numbers: [k][row], bf16 [k / 2][row][2] ------------------------------------------------- */
static size_t bytes_plain(const struct format *f, int n)
{
    return (size_t)n * LANES * (size_t)f->bytes;
}

static void pack_plain(const struct format *f, const uint8_t *src, int n, int row, uint8_t *strip)
{
    size_t size = (size_t)f->bytes;
    for (int k = 0; k < n; k++) memcpy(strip + ((size_t)k * LANES + (size_t)row) * size, src + (size_t)k * size, size);
}

static void unpack_plain(const struct format *f, const uint8_t *strip, int n, int row, uint8_t *dst)
{
    size_t size = (size_t)f->bytes;
    for (int k = 0; k < n; k++) memcpy(dst + (size_t)k * size, strip + ((size_t)k * LANES + (size_t)row) * size, size);
}

static size_t bytes_bf16(const struct format *f, int n)
{
    (void)f;
    return (size_t)((n + 1) / 2) * VEC;
}

static void pack_bf16(const struct format *f, const uint8_t *src, int n, int row, uint8_t *strip)
{
    (void)f;
    for (int k = 0; k < n; k++) memcpy(strip + k / 2 * VEC + row * 4 + k % 2 * 2, src + 2 * k, 2);
    if (n % 2) memset(strip + n / 2 * VEC + row * 4 + 2, 0, 2);
}

static void unpack_bf16(const struct format *f, const uint8_t *strip, int n, int row, uint8_t *dst)
{
    (void)f;
    for (int k = 0; k < n; k++) memcpy(dst + 2 * k, strip + k / 2 * VEC + row * 4 + k % 2 * 2, 2);
}

/* ---- anything else: canonical blocks, [block][row] ------------------------------------------------- */
static size_t bytes_blocks(const struct format *f, int n)
{
    return (size_t)(n / f->block) * LANES * (size_t)f->bytes;
}

static void pack_blocks(const struct format *f, const uint8_t *src, int n, int row, uint8_t *strip)
{
    (void)n;
    memcpy(strip + (size_t)row * (size_t)f->bytes, src, (size_t)f->bytes);
}

static void unpack_blocks(const struct format *f, const uint8_t *strip, int n, int row, uint8_t *dst)
{
    (void)n;
    memcpy(dst, strip + (size_t)row * (size_t)f->bytes, (size_t)f->bytes);
}

#define SMALL .unit = SUPER, .step = GROUP, .x = X_Q8
#define BIG   .unit = SUPER, .step = SUPER, .x = X_Q8
#define PLAIN .unit = SUPER, .step = 1
static const struct strip_format rows[] = {
    { Q_Q4_0, SMALL, .bias = 8, .bytes = bytes_small, .pack = pack_small, .unpack = unpack_small },
    { Q_Q4_1, SMALL, .offsets = true, .bytes = bytes_small, .pack = pack_small, .unpack = unpack_small },
    { Q_Q5_0, SMALL, .bias = 16, .bytes = bytes_small, .pack = pack_small, .unpack = unpack_small },
    { Q_Q5_1, SMALL, .offsets = true, .bytes = bytes_small, .pack = pack_small, .unpack = unpack_small },
    { Q_IQ4_NL, SMALL, .bias = 128, .bytes = bytes_small, .pack = pack_small, .unpack = unpack_small },
    { Q_Q8_0, SMALL, .bias = 128, .bytes = bytes_small, .pack = pack_q8_0, .unpack = unpack_q8_0 },
    { Q_MXFP4, SMALL, .bias = 128, .bytes = bytes_small, .pack = pack_mxfp4, .unpack = unpack_mxfp4 },
    { Q_Q4_K, BIG, .offsets = true, .bytes = bytes_q4_k, .pack = pack_q4_k, .unpack = unpack_q4_k },
    { Q_Q5_K, BIG, .offsets = true, .bytes = bytes_q5_k, .pack = pack_q5_k, .unpack = unpack_q5_k },
    { Q_Q6_K, BIG, .bias = 32, .halves = true, .bytes = bytes_q6_k, .pack = pack_q6_k, .unpack = unpack_q6_k },
    { Q_IQ4_XS, BIG, .bias = 128, .bytes = bytes_iq4_xs, .pack = pack_iq4_xs, .unpack = unpack_iq4_xs },
    { Q_F32, PLAIN, .x = X_F32, .bytes = bytes_plain, .pack = pack_plain, .unpack = unpack_plain },
    { Q_F16, PLAIN, .x = X_F32, .bytes = bytes_plain, .pack = pack_plain, .unpack = unpack_plain },
    { Q_BF16, PLAIN, .x = X_BF16, .bytes = bytes_bf16, .pack = pack_bf16, .unpack = unpack_bf16 },
};
static const struct strip_format blocks = { .x = X_F32, .bytes = bytes_blocks, .pack = pack_blocks,
                                            .unpack = unpack_blocks };

const struct strip_format *strip_format_find(uint32_t id)
{
    for (size_t i = 0; i < COUNT(rows); i++)
        if (rows[i].id == id) return &rows[i];
    return &blocks;
}
