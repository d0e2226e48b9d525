/* tests/test_quant.c - formats against golden vectors (tests/golden/quant), and their
 * properties. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/file.h"
#include "quant/blocks.h"
#include "test.h"

enum { ROW = 512 };

static float input[ROW], importance[ROW];

/* The text of tests/golden/quant/NAME.txt; buf_drop. False when it is not there. */
static bool golden_text(struct buf *b, const char *name)
{
    char path[512];
    luce_error err = { 0 };
    snprintf(path, sizeof path, "%s/tests/golden/quant/%s.txt", LUCE_SOURCE_DIR, name);
    return file_read(b, path, 1 << 20, &err) == LUCE_OK && buf_text(b);
}

/* The lines after the line `section` up to the next section, or NULL. */
static const char *golden_section(const char *text, const char *section)
{
    size_t len = strlen(section);
    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (!strncmp(at, section, len) && at[len] == '\n') return at + len + 1;
    }
    return NULL;
}

/* Reads n floats as hex bits; false when there are fewer. */
static bool golden_floats(const char *at, float *out, int n)
{
    for (int i = 0; i < n; i++) {
        char *end;
        while (isspace((unsigned char)*at)) at++;
        uint32_t bits = (uint32_t)strtoul(at, &end, 16);
        if (end - at != 8) return false;
        out[i] = f32_of_bits(bits);
        at = end;
    }
    return true;
}

static size_t golden_bytes(const char *at, uint8_t *out, size_t max)
{
    size_t n = 0;
    for (unsigned v; n < max && isxdigit((unsigned char)at[0]) && sscanf(at, "%2x", &v) == 1;
         at += 2)
        out[n++] = (uint8_t)v;
    return n;
}

static void read_input(void)
{
    struct buf b = { 0 };
    if (golden_text(&b, "input")) {
        CHECK(golden_floats(golden_section(buf_text(&b), "x"), input, ROW));
        CHECK(golden_floats(golden_section(buf_text(&b), "imatrix"), importance, ROW));
    } else {
        CHECK(!"input.txt is readable");
    }
    buf_drop(&b);
}

/* Decodes the section of blocks and compares every bit with the section of values. */
static int check_decode(const struct format *f, const char *text, const char *blocks,
                        const char *values)
{
    uint8_t bytes[4 * ROW + 1];
    float want[ROW], got[ROW + 1];
    const char *from = golden_section(text, blocks), *to = golden_section(text, values);
    if (!from || !to) return 0;
    size_t size = golden_bytes(from, bytes + 1, sizeof bytes - 1);
    CHECK_EQ(size, format_bytes(f, ROW));
    CHECK(golden_floats(to, want, ROW), "%s %s", f->name, values);
    memset(got, 0xff, sizeof got);
    f->decode(bytes + 1, got, ROW);              /* an odd address */
    for (int i = 0; i < ROW; i++)
        if (f32_bits(got[i]) != f32_bits(want[i])) {
            test_failed(__FILE__, __LINE__, "%s %s: element %d is %a, not %a", f->name, values, i,
                        (double)got[i], (double)want[i]);
            break;
        }
    CHECK(f32_bits(got[ROW]) == 0xffffffff, "%s writes past its end", f->name);
    return 1;
}

/* The codebooks of a MIX format: sections books, book_blocks, book_decoded. */
static int check_books(const struct format *f, const char *text)
{
    uint8_t bytes[ROW];
    float books[16], want[ROW], got[ROW];
    const char *levels = golden_section(text, "books"), *from = golden_section(text, "book_blocks");
    const char *to = golden_section(text, "book_decoded");
    if (!levels || !from || !to) return 0;
    CHECK(f->levels > 0 && f->levels <= 8);
    CHECK_EQ(golden_bytes(from, bytes, sizeof bytes), format_bytes(f, ROW));
    CHECK(golden_floats(levels, books, 2 * f->levels) && golden_floats(to, want, ROW));
    memset(got, 0xff, sizeof got);
    f->decode_books(bytes, got, ROW, books);
    for (int i = 0; i < ROW; i++)
        if (f32_bits(got[i]) != f32_bits(want[i])) {
            test_failed(__FILE__, __LINE__, "%s books: element %d is %a, not %a", f->name, i,
                        (double)got[i], (double)want[i]);
            break;
        }
    return 1;
}

TEST(quant_decodes_golden_vectors_bit_for_bit)
{
    for (size_t i = 0; format_at(i); i++) {
        const struct format *f = format_at(i);
        if (!f->decode) continue;
        struct buf b = { 0 };
        int checked = 0;
        if (golden_text(&b, f->name)) {
            checked += check_decode(f, buf_text(&b), "encoded_plain", "decoded_plain");
            checked += check_decode(f, buf_text(&b), "encoded_imatrix", "decoded_imatrix");
            checked += check_decode(f, buf_text(&b), "random_blocks", "random_decoded");
        }
        CHECK(checked > 0, "%s has no golden vectors", f->name);
        if (f->decode_books)
            CHECK(b.len && check_books(f, buf_text(&b)), "%s: no vectors for books", f->name);
        buf_drop(&b);
    }
}

static void check_encode(const struct format *f, const char *text, const char *section,
                         const float *im)
{
    uint8_t want[4 * ROW], got[4 * ROW + 1];
    const char *from = golden_section(text, section);
    if (!from) return;
    size_t size = golden_bytes(from, want, sizeof want);
    memset(got, 0xa5, sizeof got);
    f->encode(input, got, ROW, im);
    /* The last 32 elements of block 0 are zeros; the reference codes them in IQ1 as if they were
     * not. */
    bool zeros_differ = f->id == Q_IQ1_S || f->id == Q_IQ1_M;
    for (size_t i = zeros_differ ? (size_t)f->bytes : 0; i < size; i++)
        if (got[i] != want[i]) {
            test_failed(__FILE__, __LINE__, "%s %s: byte %zu (block %zu) is %02x, not %02x",
                        f->name, section, i, i / (size_t)f->bytes, got[i], want[i]);
            break;
        }
    CHECK_EQ(got[size], 0xa5);
}

TEST(quant_encodes_golden_rows_byte_for_byte)
{
    read_input();
    for (size_t i = 0; format_at(i); i++) {
        const struct format *f = format_at(i);
        if (!f->encode) continue;
        struct buf b = { 0 };
        if (golden_text(&b, f->name)) {
            if (!f->needs_importance) check_encode(f, buf_text(&b), "encoded_plain", NULL);
            check_encode(f, buf_text(&b), "encoded_imatrix", importance);
        }
        buf_drop(&b);
    }
}
