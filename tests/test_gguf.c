/* tests/test_gguf.c - the reader against hostile, damaged and split files.
 * Small files are spelled as words, one field each (image): a row of a table is a whole file. */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "gguf/types.h"
#include "gguf/writer.h"
#include "gguf_walk.h"
#include "test.h"

static void put(struct buf *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) buf_add_char(b, (char)(v >> 8 * i));
}

/* Appends the file that `words` spell, separated by spaces:
 *   hV,T,K   header: version V, T tensors, K keys        sTEXT   a string with its length
 *   bN wN dN qN   N in 1, 2, 4, 8 bytes                  rTEXT   raw bytes
 *   zN       N zero bytes                                pN      zeros up to a multiple of N
 *   kNAME    a key's name and type u32 (dN follows)
 *   tNAME,TYPE,OFFSET,D0,D1,...   a tensor info */
static void image(struct buf *b, const char *words)
{
    char word[200];
    for (int used; sscanf(words, " %199s%n", word, &used) == 1; words += used) {
        char *rest = word + 1, *end;
        uint64_t n = strtoull(rest, &end, 0);
        switch (word[0]) {
        case 'h':
            buf_add_text(b, "GGUF");
            put(b, n, 4);
            put(b, strtoull(end + 1, &end, 0), 8);
            put(b, strtoull(end + 1, &end, 0), 8);
            break;
        case 'b': put(b, n, 1); break;
        case 'w': put(b, n, 2); break;
        case 'd': put(b, n, 4); break;
        case 'q': put(b, n, 8); break;
        case 'z': for (uint64_t i = 0; i < n; i++) buf_add_char(b, 0); break;
        case 'p': while (b->len % n) buf_add_char(b, 0); break;
        case 'r': buf_add_text(b, rest); break;
        case 's': put(b, strlen(rest), 8); buf_add_text(b, rest); break;
        case 'k': put(b, strlen(rest), 8); buf_add_text(b, rest); put(b, GGUF_U32, 4); break;
        case 't': {
            char *name = strtok(rest, ",");
            uint64_t type = strtoull(strtok(NULL, ","), NULL, 0),
                     offset = strtoull(strtok(NULL, ","), NULL, 0);
            uint64_t dim[8];
            int n_dims = 0;
            for (char *d; (d = strtok(NULL, ","));) dim[n_dims++] = strtoull(d, NULL, 0);
            put(b, strlen(name), 8);
            buf_add_text(b, name);
            put(b, (uint64_t)n_dims, 4);
            for (int i = 0; i < n_dims; i++) put(b, dim[i], 8);
            put(b, type, 4);
            put(b, offset, 8);
            break;
        }
        default: CHECK(false, "no such word: %s", word);
        }
    }
}

/* Opens a copy of the bytes that ends at a page nobody may touch: reading beyond it is a crash. */
struct guarded {
    uint8_t *pages, *data;
    size_t mapped;
    struct gguf *g;
};
static luce_status guarded_open(struct guarded *o, const void *data, size_t size, luce_error *err)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (size + page) / page * page;
    o->mapped = room + page;
    o->pages = mmap(NULL, o->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(o->pages + room, page, PROT_NONE);
    o->data = o->pages + room - size;
    if (size) memcpy(o->data, data, size);
    return gguf_open_memory(&o->g, o->data, size, "test.gguf", err);
}
static void guarded_close(struct guarded *o)
{
    gguf_close(o->g);
    munmap(o->pages, o->mapped);
}

static const char good_file[] =
    "h3,3,9 sgeneral.architecture d8 sllama kllama.block_count d4 "
    "sllama.rope.freq_base d6 d0x461c4000 sllama.heads d9 d5 q4 d8 d8 d4 d4 "
    "stokenizer.ggml.tokens d9 d8 q3 sa sbc q0 sflag d7 b1 sbig d10 q0xffffffffffffffff "
    "ssmall d1 b0x80 kgeneral.alignment d32 "
    "ttoken_embd.weight,8,0,32,3 tnorm,0,128,5 tscalar,28,160 p32 z102 p32 d1 z16 p32 z8";

#define HUGE_COUNT "0x8000000000000000"
static const struct { const char *name, *words, *says; } bad_files[] = {
    { "empty", "", "file too short for header" },
    { "magic only", "rGGUF", "file too short for header" },
    { "8 bytes", "rGGUF d3", "file too short for header" },
    { "23 bytes", "rGGUF d3 q0 z7", "file too short for header" },
    { "other magic", "rGGML z40", "not a GGUF file: it begins with bytes 47 47 4d 4c, 'GGUF' is 47 47 55 46. Give a" },
    { "LFS pointer", "rversion d0", "not a GGUF file" },
    { "web page", "r<!DOCTYPE_html>", "web page" },
    { "version 0", "h0,0,0", "unsupported version 0" },
    { "version 1", "h1,0,0", "unsupported version 1; 2 and 3 can be read. Get a newer" },
    { "version 4", "h4,0,0", "unsupported version 4" },
    { "big endian", "h0x03000000,0,0", "byte-swapped" },
    { "2^63 keys", "h3,0," HUGE_COUNT " z40", "claims 9223372036854775808 keys" },
    { "2^64-1 keys", "h3,0,0xffffffffffffffff z40", "claims 18446744073709551615 keys" },
    { "2^63 tensors", "h3," HUGE_COUNT ",0 z40", "claims 9223372036854775808 tensors" },
    { "more keys than bytes", "h3,0,4 z40", "header at byte 16: it claims 4 keys" },
    { "more tensors than bytes", "h3,2,0 z40", "header at byte 8: it claims 2 tensors" },
    { "more tensors than bytes after keys", "h3,2,1 kabcdefghijklmnopqrstuvwxyz d0 z24",
      "2 tensors cannot fit the 24 bytes left" },

    { "empty key", "h3,0,1 q0 d0 b0", "key 0 at byte 24: its name is empty" },
    { "second key empty", "h3,0,2 ka d1 q0 d4 d0", "key 1 at byte 41: its name is empty" },
    { "key of 2^64-1 bytes", "h3,0,1 q0xffffffffffffffff z40", "length 18446744073709551615" },
    { "key of 65536 bytes", "h3,0,1 q65536 z65600", "length 65536; 1 to 65535" },
    { "key beyond the end", "h3,0,1 q40 rabcdefgh",
      "key 0 at byte 32: its name needs 40 bytes, the file ends at 40" },
    { "zero byte in key", "h3,0,1 q3 ra b0 rb d4 d0", "zero byte" },
    { "key twice", "h3,0,2 ktwice d1 ktwice d2",
      "key 'twice' at byte 45: this key is there twice, first as key 0 at byte 24" },
    { "value type 13", "h3,0,1 sx d13 d0", "type 13; known are 0 to 12" },
    { "value type 2^32-1", "h3,0,1 sx d0xffffffff d0", "type 4294967295" },
    { "cut in value", "h3,0,1 sx d10 d0", "needs 8 bytes, the file ends at 41" },
    { "string of 2^63", "h3,0,1 sx d8 q" HUGE_COUNT,
      "key 'x' at byte 37: a string claims 9223372036854775808 bytes" },
    { "string of 2^64-1", "h3,0,1 sx d8 q0xffffffffffffffff", "claims 18446744073709551615 bytes" },
    { "string one too long", "h3,0,1 sx d8 q5 rabcd", "claims 5 bytes, 4 are left" },
    { "array of 2^63 bytes", "h3,0,1 sx d9 d0 q" HUGE_COUNT,
      "claims 9223372036854775808 elements of type u8" },
    { "array of 2^61 u64 (wraps to 0)", "h3,0,1 sx d9 d10 q0x2000000000000000 z16",
      "2305843009213693952 elements" },
    { "array of 2^62 u32 (wraps to 0)", "h3,0,1 sx d9 d4 q0x4000000000000000 z16",
      "4611686018427387904 elements" },
    { "array of 2^63 strings", "h3,0,1 sx d9 d8 q" HUGE_COUNT " z16", "elements of type string" },
    { "array one too long", "h3,0,1 sx d9 d4 q3 d1 d2",
      "3 elements of type u32, but only 8 bytes" },
    { "long string in array", "h3,0,1 sx d9 d8 q2 sa q0xfffffffffffffff0",
      "claims 18446744073709551600 bytes" },
    { "array of arrays", "h3,0,1 sx d9 d9 q1 d0 q0", "array of arrays" },
    { "array of type 13", "h3,0,1 sx d9 d13 q1 d0 q0", "array of type 13" },

    { "alignment of type i32", "h3,0,1 sgeneral.alignment d5 d32",
      "'general.alignment' at byte 53: it is of type i32, it must be u32" },
    { "alignment of type u64", "h3,0,1 sgeneral.alignment d10 q32", "it is of type u64" },
    { "alignment of type u8", "h3,0,1 sgeneral.alignment d0 b32", "it is of type u8" },
    { "alignment of type string", "h3,0,1 sgeneral.alignment d8 s32", "it is of type string" },
    { "alignment of type array", "h3,0,1 sgeneral.alignment d9 d4 q1 d32", "it is of type array" },
    { "alignment 0", "h3,0,1 kgeneral.alignment d0", "it is 0, it must be a power of two" },
    { "alignment 3", "h3,0,1 kgeneral.alignment d3", "it is 3, it must be a power of two" },
    { "alignment 2^31", "h3,0,1 kgeneral.alignment d0x80000000", "it is 2147483648, it must be" },
    { "alignment 2^17", "h3,0,1 kgeneral.alignment d0x20000", "it is 131072, it must be" },

    { "tensor without name", "h3,1,0 q0 d0 d0 q0 p32 z32",
      "tensor 0 at byte 24: its name is empty" },
    { "tensor name of 128 bytes", "h3,1,0 q128 z200", "length 128; 1 to 127" },
    { "tensor name of 2^63 bytes", "h3,1,0 q" HUGE_COUNT " z200", "length 9223372036854775808" },
    { "zero byte in tensor name", "h3,1,0 q2 ra b0 d0 d0 q0 p32 z32", "zero byte" },
    { "tensor twice", "h3,2,0 ta,0,0,1 ta,0,32,1 p32 z64",
      "tensor 'a' at byte 57: a tensor of this name is there twice" },
    { "5 dimensions", "h3,1,0 ta,0,0,1,1,1,1,1 p32 z32",
      "tensor 'a' at byte 33: it has 5 dimensions" },
    { "2^32-1 dimensions", "h3,1,0 sa d0xffffffff d0 q0 p32 z32", "it has 4294967295 dimensions" },
    { "dimension 0", "h3,1,0 ta,0,0,0,5 p32 z32", "dimension 0 is 0" },
    { "dimension 0 beside a huge one", "h3,1,0 ta,0,0,0x7fffffffffffffff,0 p32 z32",
      "dimension 1 is 0" },
    { "dimension 2^63", "h3,1,0 ta,0,0,0x8000000000000000,2 p32 z32", "size overflows" },
    { "2^32 x 2^32", "h3,1,0 ta,0,0,0x100000000,0x100000000,1,1 p32 z32",
      "tensor 'a' at byte 69: size overflows 64 bits" },
    { "2^62 f32", "h3,1,0 ta,0,0,0x4000000000000000 p32 z32", "size overflows 64 bits" },
    { "2^21 four times", "h3,1,0 ta,24,0,0x200000,0x200000,0x200000,2 p32 z32", "size overflows" },
    { "blocks of 2^42+1 rows", "h3,1,0 ta,8,0,1152,0x40000000001 p32 z4000",
      "size overflows the file" },
    { "half a block", "h3,1,0 ta,8,0,33 p32 z64",
      "rows of 33 elements are not whole blocks of q8_0 (32" },
    { "block of a scalar", "h3,1,0 ta,12,0 p32 z200",
      "rows of 1 elements are not whole blocks of q4_K (256" },
    { "type 4", "h3,1,0 ta,4,0,32 p32 z64", "tensor type id 4 was removed" },
    { "type 38", "h3,1,0 ta,38,0,32 p32 z64", "tensor type id 38 was removed" },
    { "type 9", "h3,1,0 ta,9,0,32 p32 z64", "tensor type id 9 is for activations" },
    { "type 43", "h3,1,0 ta,43,0,32 p32 z64", "tensor type id 43 is not known" },
    { "type 99", "h3,1,0 ta,99,0,32 p32 z64", "tensor type id 99 is not known" },
    { "type 108", "h3,1,0 ta,108,0,32 p32 z64", "tensor type id 108 is not known" },
    { "type 2^32-1", "h3,1,0 ta,0xffffffff,0,32 p32 z64",
      "tensor type id 4294967295 is not known" },
    { "offset not aligned", "h3,1,0 ta,0,16,4 p32 z64",
      "its offset 16 is not a multiple of the alignment 32" },
    { "offset beyond the file", "h3,1,0 ta,0,64,4 p32 z64", "it needs 16 bytes from offset 64" },
    { "offset that wraps", "h3,1,0 ta,0,0xffffffffffffffe0,16 p32 z64",
      "from offset 18446744073709551584" },
    { "one byte too few", "h3,1,0 ta,0,0,16 p32 z63",
      "it claims 64 bytes, the tensor data has 63" },
    { "no data section", "h3,1,0 tabc,0,0,1", "padding before the tensor data needs 5 bytes" },
    { "same offset", "h3,2,0 ta,0,0,4 tb,0,0,4 p32 z64", "overlaps tensor" },
    { "overlap", "h3,2,0 ta,0,0,9 tb,0,32,4 p32 z64",
      "tensor 'b' at byte 57: it overlaps tensor 'a': offset 32 lies before the other's end" },
    { "overlap out of order", "h3,3,0 tc,0,64,4 ta,0,32,9 tb,0,0,1 p32 z96",
      "tensor 'c' at byte 24: it overlaps tensor 'a'" },

    { "two files joined", "h3,1,0 ta,0,0,8 p32 z32 h3,1,0 ta,0,0,8 p32 z32",
      "at byte 96: this looks like 2 shards joined end to end; pass the first shard" },
    { "joined without padding", "h3,1,0 ta,0,0,3 p32 z12 h3,0,0",
      "this looks like 2 shards joined" },
    { "joined, the second damaged", "h3,0,1 kx d1 h3,0,9 d1", "this looks like 2 shards joined" },
};

TEST(gguf_refuses_bad_files_and_says_why)
{
    size_t before = mem_live();
    for (size_t i = 0; i < COUNT(bad_files); i++) {
        struct buf b = { 0 };
        image(&b, bad_files[i].words);
        struct guarded o;
        luce_error err = { 0 };
        CHECK_EQ(guarded_open(&o, b.data, b.len, &err), LUCE_E_FORMAT);
        CHECK(strstr(err.text, bad_files[i].says) != NULL, "%s: \"%s\"", bad_files[i].name,
              err.text);
        CHECK(strstr(err.text, "test.gguf: ") == err.text, "%s: \"%s\"", bad_files[i].name,
              err.text);
        CHECK(o.g == NULL);
        /* The same from a file, and nobody needs the message. */
        struct file_writer w;
        const char *path = scratch("bad.gguf");
        CHECK_OK(file_create(&w, path, &err), err);
        CHECK_OK(file_append(&w, b.data, b.len, &err), err);
        CHECK_OK(file_commit(&w, &err), err);
        struct gguf *g;
        CHECK_EQ(gguf_open(&g, path, NULL), LUCE_E_FORMAT);
        CHECK(g == NULL);
        guarded_close(&o);
        buf_drop(&b);
    }
    CHECK_EQ(mem_live(), before);
}

TEST(gguf_refuses_what_is_no_file)
{
    static const struct { const char *path, *says; } rows[] = {
        { "/no/such/file.gguf", "No such file" }, { "/", "directory" }, { "", "cannot open" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct gguf *g;
        luce_error err = { 0 };
        CHECK_EQ(gguf_open(&g, rows[i].path, &err), LUCE_E_IO);
        CHECK(strstr(err.text, rows[i].says) != NULL, "%s", err.text);
    }
}

/* A claimed count costs nothing: the refusal comes before memory is asked for. */
TEST(gguf_allocates_nothing_for_claimed_counts)
{
    for (size_t i = 0; i < COUNT(bad_files); i++) {
        if (!strstr(bad_files[i].words, HUGE_COUNT)) continue;
        struct buf b = { 0 };
        image(&b, bad_files[i].words);
        struct gguf *g;
        luce_error err = { 0 };
        mem_fail_after(8);          /* reader, path, part; then keys, names and their maps */
        CHECK_EQ(gguf_open_memory(&g, b.data, b.len, "claims", &err), LUCE_E_FORMAT);
        mem_fail_never();
        buf_drop(&b);
    }
}

TEST(gguf_reads_keys_and_tensors)
{
    struct buf b = { 0 };
    image(&b, good_file);
    struct guarded o;
    luce_error err = { 0 };
    CHECK_OK(guarded_open(&o, b.data, b.len, &err), err);
    const struct gguf *g = o.g;
    CHECK_STR(gguf_path(g), "test.gguf");
    CHECK_EQ(gguf_version(g), 3);
    CHECK_EQ(gguf_n_parts(g), 1);
    CHECK_EQ(gguf_file_bytes(g), b.len);
    CHECK_EQ(gguf_n_keys(g), 9);
    CHECK_EQ(gguf_n_tensors(g), 3);
    CHECK(str_is(gguf_key_at(g, 1)->name, "llama.block_count"));
    CHECK(gguf_key_at(g, 9) == NULL);
    CHECK(gguf_tensor_at(g, 3) == NULL);
    CHECK(gguf_find(g, "norm ") == NULL);
    CHECK(gguf_key(g, "llama") == NULL);
    const struct gguf_tensor *t = gguf_find(g, "token_embd.weight");
    CHECK(t == gguf_tensor_at(g, 0));
    CHECK_EQ(t->n_dims, 2);
    CHECK_EQ(t->dim[0], 32);
    CHECK_EQ(t->dim[1], 3);
    CHECK_EQ(t->dim[2] * t->dim[3], 1);
    CHECK_EQ(t->type, 8);
    CHECK_EQ(t->bytes, 102);
    t = gguf_find(g, "norm");
    CHECK_EQ(t->data[0], 1);
    CHECK_EQ(t->data - gguf_tensor_at(g, 0)->data, 128);
    t = gguf_find(g, "scalar");
    CHECK_EQ(t->n_dims, 0);
    CHECK_EQ(t->bytes, 8);
    CHECK(t->data + 8 == o.data + b.len);
    const struct gguf_key *k = gguf_key(g, "tokenizer.ggml.tokens");
    static const char *const tokens[] = { "a", "bc", "" };
    struct gguf_cursor c = { 0 };
    struct str s;
    for (int i = 0; i < 3; i++) {
        CHECK(gguf_next(k, &c, &s));
        CHECK(str_is(s, tokens[i]));
    }
    CHECK(!gguf_next(k, &c, &s));
    CHECK(gguf_walk(g) != 0);
    guarded_close(&o);
    buf_drop(&b);
}

TEST(gguf_converts_values_with_range_checks)
{
    static const struct {
        const char *key;            /* as the file spells it, a key named x */
        const char *u32, *f32, *flag;   /* the value as text, or NULL: refused */
    } rows[] = {
        { "d0 b7", "7", "7", NULL },
        { "d1 b255", NULL, "-1", NULL },
        { "d2 w65535", "65535", "65535", NULL },
        { "d3 w0x8000", NULL, "-32768", NULL },
        { "d4 d0xffffffff", "4294967295", "4294967296", NULL },
        { "d5 d5", "5", "5", NULL },
        { "d5 d0xffffffff", NULL, "-1", NULL },
        { "d10 q0x100000000", NULL, "4294967296", NULL },
        { "d10 q1", "1", "1", "1" },
        { "d10 q0xffffffffffffffff", NULL, "18446744073709551616", NULL },
        { "d11 q9", "9", "9", NULL },
        { "d11 q0x8000000000000000", NULL, "-9223372036854775808", NULL },
        { "d7 b0", "0", "0", "0" },
        { "d7 b1", "1", "1", "1" },
        { "d7 b200", "1", "1", "1" },
        { "d0 b0", "0", "0", "0" },
        { "d6 d0x40000000", "2", "2", NULL },
        { "d6 d0x3fc00000", NULL, "1.5", NULL },
        { "d6 d0xbf800000", NULL, "-1", NULL },
        { "d6 d0x7fc00000", NULL, NULL, NULL },
        { "d6 d0x7f800000", NULL, NULL, NULL },
        { "d6 d0x4f800000", NULL, "4294967296", NULL },
        { "d12 q0x4000000000000000", "2", "2", NULL },
        { "d12 q0x7fe0000000000000", NULL, NULL, NULL },
        { "d12 q0x7ff8000000000000", NULL, NULL, NULL },
        { "d8 s7", NULL, NULL, NULL },
        { "d9 d4 q1 d7", NULL, NULL, NULL },
        { "d9 d4 q0", NULL, NULL, NULL },
        { "d9 d8 q1 s7", NULL, NULL, NULL },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf b = { 0 };
        image(&b, "h3,0,1 sx");
        image(&b, rows[i].key);
        struct gguf *g;
        luce_error err = { 0 };
        CHECK_OK(gguf_open_memory(&g, b.data, b.len, "values", &err), err);
        uint32_t u = 0;
        float f = 0;
        bool flag = false;
        char text[3][60];
        luce_status st[3] = { gguf_u32(g, "x", 99, &u, &err), gguf_f32(g, "x", 99, &f, &err),
                              gguf_bool(g, "x", true, &flag, &err) };
        snprintf(text[0], 60, "%" PRIu32, u);
        snprintf(text[1], 60, "%.20g", (double)f);
        snprintf(text[2], 60, "%d", flag);
        const char *wanted[3] = { rows[i].u32, rows[i].f32, rows[i].flag };
        for (int k = 0; k < 3; k++) {
            CHECK_EQ(st[k], wanted[k] ? LUCE_OK : LUCE_E_FORMAT);
            if (wanted[k] && !st[k])
                CHECK(strcmp(text[k], wanted[k]) == 0, "%s: %s", rows[i].key, text[k]);
        }
        gguf_close(g);
        buf_drop(&b);
    }
}

TEST(gguf_accessors_default_and_name_the_mismatch)
{
    struct buf b = { 0 };
    image(&b, good_file);
    struct gguf *g;
    luce_error err = { 0 };
    CHECK_OK(gguf_open_memory(&g, b.data, b.len, "m.gguf", &err), err);
    uint32_t u;
    float f;
    bool flag;
    struct str s;
    CHECK_OK(gguf_u32(g, "absent", 7, &u, &err), err);
    CHECK_EQ(u, 7);
    CHECK_OK(gguf_f32(g, "absent", 0.5f, &f, &err), err);
    CHECK(f == 0.5f);
    CHECK_OK(gguf_bool(g, "absent", true, &flag, &err), err);
    CHECK(flag);
    CHECK_OK(gguf_text(g, "absent", str_of("none"), &s, &err), err);
    CHECK(str_is(s, "none"));
    CHECK_OK(gguf_text(g, "general.architecture", (struct str){ 0 }, &s, &err), err);
    CHECK(str_is(s, "llama"));
    CHECK_OK(gguf_f32(g, "llama.rope.freq_base", 0, &f, &err), err);
    CHECK(f == 10000);
    CHECK_EQ(gguf_text(g, "flag", (struct str){ 0 }, &s, &err), LUCE_E_FORMAT);
    CHECK(strstr(err.text, "m.gguf: key 'flag' is 1, of type bool") != NULL, "%s", err.text);
    CHECK(strstr(err.text, "wanted: a string") != NULL, "%s", err.text);
    CHECK_EQ(gguf_u32(g, "small", 0, &u, &err), LUCE_E_FORMAT);
    CHECK(strstr(err.text, "key 'small' is -128, of type i8") != NULL, "%s", err.text);
    CHECK_EQ(gguf_u32(g, "big", 0, &u, &err), LUCE_E_FORMAT);
    CHECK(strstr(err.text, "is 18446744073709551615, of type u64") != NULL, "%s", err.text);
    CHECK_EQ(gguf_u32(g, "general.architecture", 0, &u, &err), LUCE_E_FORMAT);
    CHECK(strstr(err.text, "is 'llama', of type string") != NULL, "%s", err.text);
    CHECK_EQ(gguf_u32(g, "llama.heads", 0, &u, &err), LUCE_E_FORMAT);
    CHECK(strstr(err.text, "of type 4 x i32") != NULL, "%s", err.text);
    CHECK_EQ(gguf_int_at(gguf_key(g, "big"), 0), INT64_MAX);
    CHECK_EQ(gguf_int_at(gguf_key(g, "big"), 1), 0);
    CHECK(gguf_float_at(gguf_key(g, "big"), 0) == 0x1p64);
    CHECK_EQ(gguf_int_at(gguf_key(g, "llama.heads"), 3), 4);
    CHECK_EQ(gguf_int_at(gguf_key(g, "general.architecture"), 0), 0);
    gguf_close(g);
    buf_drop(&b);
}

TEST(gguf_reads_one_value_per_layer_from_scalar_or_array)
{
    struct buf b = { 0 };
    image(&b, "h3,0,6 kscalar d8 sexact d9 d5 q3 d1 d2 d3 slonger d9 d3 q4 w1 w2 w3 w4 sshort d9 "
              "d4 q2 d1 d2 "
              "snegative d9 d5 q3 d1 d0xffffffff d3 sfloats d9 d6 q3 d0x3f800000 d0x7fc00000 "
              "d0x40000000");
    struct gguf *g;
    luce_error err = { 0 };
    CHECK_OK(gguf_open_memory(&g, b.data, b.len, "per", &err), err);
    uint32_t u[3];
    float f[3];
    CHECK_OK(gguf_u32_per(g, "absent", 6, u, 3, &err), err);
    CHECK(u[0] == 6 && u[1] == 6 && u[2] == 6);
    CHECK_OK(gguf_u32_per(g, "scalar", 6, u, 3, &err), err);
    CHECK(u[0] == 8 && u[1] == 8 && u[2] == 8);
    CHECK_OK(gguf_u32_per(g, "exact", 6, u, 3, &err), err);
    CHECK(u[0] == 1 && u[1] == 2 && u[2] == 3);
    CHECK_OK(gguf_f32_per(g, "longer", 6, f, 3, &err), err);
    CHECK(f[0] == 1 && f[1] == 2 && f[2] == 3);
    CHECK_EQ(gguf_u32_per(g, "short", 6, u, 3, &err), LUCE_E_FORMAT);
    CHECK(strstr(err.text, "of type 2 x u32") && strstr(err.text, "at least 3"), "%s", err.text);
    CHECK_EQ(gguf_u32_per(g, "negative", 6, u, 3, &err), LUCE_E_FORMAT);
    CHECK(strstr(err.text, "'negative' element 1 is -1, of type 3 x i32") != NULL, "%s", err.text);
    CHECK_EQ(gguf_f32_per(g, "floats", 6, f, 3, &err), LUCE_E_FORMAT);
    CHECK(strstr(err.text, "'floats' element 1 is ") != NULL, "%s", err.text);
    CHECK_OK(gguf_f32_per(g, "floats", 6, f, 1, &err), err);
    gguf_close(g);
    buf_drop(&b);
}

/* Files as others write them: gaps, other order, no pad at the end, version 2, odd alignment. */
TEST(gguf_accepts_what_other_writers_do)
{
    static const char *const rows[] = {
        "h2,1,0 ta,0,0,4 p32 z16",
        "h3,0,0",
        "h3,0,1 kx d1",
        "h3,2,0 ta,0,64,4 tb,0,0,4 p32 z80",
        "h3,2,0 ta,0,0,4 tb,0,128,4 p32 z160",
        "h3,1,1 kgeneral.alignment d1 ta,0,3,1 z7",
        "h3,2,1 kgeneral.alignment d8 ta,0,0,2 tb,0,8,2 p8 z16",
        "h3,1,1 kgeneral.alignment d65536 ta,0,0,2 p65536 z8",
        "h3,1,0 ta,0,0,4 p32 z16 rtrailing",
        "h3,2,0 ta,42,0,64 tb,107,32,32 p32 z42",
        "h3,0,1 sempty d9 d8 q0",
        "h3,0,1 stext d8 q0",
        "h3,0,1 sUpper.Case-key d4 d0",
        "h3,1,2 ksplit.count d1 ksplit.no d0 tv.patch_embd.weight,1,0,14,14,3,8 p32 z9408",
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf b = { 0 };
        image(&b, rows[i]);
        struct guarded o;
        luce_error err = { 0 };
        luce_status st = guarded_open(&o, b.data, b.len, &err);
        CHECK(st == LUCE_OK, "%s: %s", rows[i], err.text);
        if (!st) CHECK(gguf_walk(o.g) != 0);
        guarded_close(&o);
        buf_drop(&b);
    }
}

TEST(gguf_knows_every_tensor_type_by_its_block)
{
    for (size_t i = 0; gguf_tensor_type_at(i); i++) {
        const struct gguf_tensor_type *t = gguf_tensor_type_at(i);
        struct buf b = { 0 };
        char words[100];
        snprintf(words, sizeof words, "h3,1,0 ta,%" PRIu32 ",0,%" PRIu32 ",3 p32 z%" PRIu32, t->id,
                 2 * t->block, 6 * t->bytes);
        image(&b, words);
        struct gguf *g;
        luce_error err = { 0 };
        CHECK_OK(gguf_open_memory(&g, b.data, b.len, t->name, &err), err);
        if (g) CHECK_EQ(gguf_tensor_at(g, 0)->bytes, 6 * t->bytes);
        gguf_close(g);
        CHECK_EQ(gguf_open_memory(&g, b.data, b.len - 1, t->name, &err), LUCE_E_FORMAT);
        CHECK(gguf_tensor_type_find(t->id) == t);
        buf_drop(&b);
    }
}

TEST(gguf_survives_truncation_at_every_byte)
{
    struct buf b = { 0 };
    image(&b, good_file);
    for (size_t size = 0; size < b.len; size++) {
        struct guarded o;
        luce_error err = { 0 };
        CHECK_EQ(guarded_open(&o, b.data, size, &err), LUCE_E_FORMAT);
        CHECK(strstr(err.text, "cut short") || strstr(err.text, "too short") ||
                  strstr(err.text, "left"),
              "%zu: %s", size, err.text);
        guarded_close(&o);
    }
    buf_drop(&b);
}

TEST(gguf_survives_flipped_bits_and_bytes)
{
    struct buf b = { 0 };
    image(&b, good_file);
    size_t before = mem_live(), header = b.len - 192;
    uint64_t sum = 0;
    for (int round = 0; round < 20000; round++) {
        uint8_t copy[2048];
        memcpy(copy, b.data, b.len);
        for (uint64_t n = 1 + test_random() % 3; n; n--) {
            uint8_t *at = &copy[test_random() % header];
            if (test_random() % 2) *at ^= (uint8_t)(1 << test_random() % 8);
            else *at = (uint8_t)test_random();
        }
        struct guarded o;
        luce_error err = { 0 };
        luce_status st = guarded_open(&o, copy, b.len, &err);
        CHECK(st == LUCE_OK || st == LUCE_E_FORMAT);
        CHECK(st == LUCE_OK || err.text[0] != '\0');
        if (!st) sum ^= gguf_walk(o.g);
        guarded_close(&o);
    }
    CHECK(sum != 0);
    CHECK_EQ(mem_live(), before);
    buf_drop(&b);
}

TEST(gguf_open_survives_every_failed_allocation)
{
    struct buf b = { 0 };
    image(&b, good_file);
    struct buf joined = { 0 };
    image(&joined, "h3,1,0 ta,0,0,8 p32 z32 h3,1,0 ta,0,0,8 p32 z32");
    size_t before = mem_live();
    luce_status st = LUCE_E_NOMEM;
    for (long n = 0; st == LUCE_E_NOMEM; n++) {
        struct gguf *g;
        mem_fail_after(n);
        st = gguf_open_memory(&g, b.data, b.len, "m", NULL);
        mem_fail_never();
        CHECK((st == LUCE_OK) == (g != NULL));
        gguf_close(g);
        CHECK_EQ(mem_live(), before);
    }
    CHECK_EQ(st, LUCE_OK);
    st = LUCE_E_NOMEM;
    for (long n = 0; st == LUCE_E_NOMEM; n++) {
        struct gguf *g;
        mem_fail_after(n);
        st = gguf_open_memory(&g, joined.data, joined.len, "m", NULL);
        mem_fail_never();
        CHECK(g == NULL);
        CHECK_EQ(mem_live(), before);
    }
    CHECK_EQ(st, LUCE_E_FORMAT);
    buf_drop(&b);
    buf_drop(&joined);
}
