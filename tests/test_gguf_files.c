/* tests/test_gguf_files.c - what is written is what is read; models split over files. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "gguf/writer.h"
#include "gguf_walk.h"
#include "test.h"

static struct gguf *opened(const char *path)
{
    struct gguf *g;
    luce_error err = { 0 };
    CHECK_OK(gguf_open(&g, path, &err), err);
    return g;
}

/* A source that puts its tensor's bytes in uneven pieces: byte i is i * 7 + *user. */
static luce_status stream(void *user, struct gguf_out *out, luce_error *err)
{
    const uint64_t *a = user;       /* { bytes to put, first byte } */
    uint8_t piece[37];
    for (uint64_t at = 0, n; at < a[0]; at += n) {
        n = a[0] - at < sizeof piece ? a[0] - at : sizeof piece;
        for (uint64_t i = 0; i < n; i++) piece[i] = (uint8_t)((at + i) * 7 + a[1]);
        luce_status st = gguf_put(out, piece, (size_t)n, err);
        if (st) return st;
    }
    return LUCE_OK;
}

static const uint8_t u8s[] = { 0, 1, 255 };
static const int8_t i8s[] = { -128, 127 };
static const uint16_t u16s[] = { 65535 };
static const int16_t i16s[] = { -32768, 5 };
static const uint32_t u32s[] = { 0xffffffff, 1 };
static const int32_t i32s[] = { INT32_MIN, 4 };
static const float f32s[] = { 1.5f, -0.25f };
static const uint64_t u64s[] = { UINT64_MAX };
static const int64_t i64s[] = { INT64_MIN, 3 };
static const double f64s[] = { 1e300 };
static const struct {
    const char *name;
    enum gguf_type type;
    const void *values;
    uint64_t count;
} arrays[] = {
    { "u8", GGUF_U8, u8s, 3 },    { "i8", GGUF_I8, i8s, 2 },     { "u16", GGUF_U16, u16s, 1 },
    { "i16", GGUF_I16, i16s, 2 }, { "u32", GGUF_U32, u32s, 2 },  { "i32", GGUF_I32, i32s, 2 },
    { "f32", GGUF_F32, f32s, 2 }, { "bool", GGUF_BOOL, u8s, 2 }, { "u64", GGUF_U64, u64s, 1 },
    { "i64", GGUF_I64, i64s, 2 }, { "f64", GGUF_F64, f64s, 1 },  { "none", GGUF_U8, NULL, 0 },
};
static uint64_t streamed[] = { 34 * 5, 3 };

static void declare(struct gguf_writer *w)
{
    static const struct str texts[] = { { "a", 1 }, { "", 0 }, { "\xff\0z", 3 } };
    gguf_add_text(w, "general.architecture", str_of("test"));
    gguf_add_u32(w, "a.u32", 7);
    gguf_add_f32(w, "a.f32", 0.5f);
    gguf_add_bool(w, "a.bool", true);
    gguf_add_texts(w, "a.texts", texts, 3);
    for (size_t i = 0; i < COUNT(arrays); i++) {
        char name[40];
        snprintf(name, sizeof name, "array.%s", arrays[i].name);
        gguf_add_array(w, name, arrays[i].type, arrays[i].values, arrays[i].count);
        snprintf(name, sizeof name, "scalar.%s", arrays[i].name);
        if (arrays[i].count) gguf_add(w, name, arrays[i].type, arrays[i].values);
    }
    gguf_add_tensor(
        w, &(struct gguf_source){ .name = "plain", .dim = { 2 }, .n_dims = 1, .data = f32s });
    gguf_add_tensor(w, &(struct gguf_source){ .name = "streamed",
                                              .dim = { 32, 5 },
                                              .n_dims = 2,
                                              .type = 8,
                                              .write = stream,
                                              .user = streamed });
    gguf_add_tensor(w, &(struct gguf_source){ .name = "scalar", .type = 28, .data = f64s });
}

static void check_declared(const struct gguf *g)
{
    luce_error err = { 0 };
    struct str s;
    CHECK_OK(gguf_text(g, "general.architecture", (struct str){ 0 }, &s, &err), err);
    CHECK(str_is(s, "test"));
    for (size_t i = 0; i < COUNT(arrays); i++) {
        char name[40];
        snprintf(name, sizeof name, "array.%s", arrays[i].name);
        const struct gguf_key *k = gguf_key(g, name);
        CHECK(k && k->type == GGUF_ARRAY && k->element == arrays[i].type &&
                  k->count == arrays[i].count,
              "%s", name);
        size_t bytes = (size_t)(arrays[i].count * gguf_type_bytes(arrays[i].type));
        CHECK(!bytes || (k && memcmp(k->value, arrays[i].values, bytes) == 0), "%s", name);
        snprintf(name, sizeof name, "scalar.%s", arrays[i].name);
        k = gguf_key(g, name);
        CHECK(!k == !bytes);
        if (k) CHECK_EQ(k->type, arrays[i].type);
    }
    CHECK_EQ(gguf_key(g, "a.texts")->count, 3);
    CHECK_EQ(gguf_n_tensors(g), 3);
    const struct gguf_tensor *t = gguf_find(g, "streamed");
    CHECK_EQ(t->bytes, 34 * 5);
    CHECK_EQ((uintptr_t)t->data % 32, 0);
    for (uint64_t i = 0; i < t->bytes; i++)
        if (t->data[i] != (uint8_t)(i * 7 + 3)) CHECK(false, "byte %" PRIu64, i);
    CHECK(memcmp(gguf_find(g, "plain")->data, f32s, 8) == 0);
    CHECK(memcmp(gguf_find(g, "scalar")->data, f64s, 8) == 0);
    CHECK_EQ(gguf_file_bytes(g) % 32, 0);
}

TEST(gguf_writer_output_reads_back)
{
    size_t before = mem_live();
    luce_error err = { 0 };
    struct gguf_writer w = { 0 };
    declare(&w);
    CHECK_OK(gguf_write(&w, scratch("written.gguf"), &err), err);
    gguf_writer_drop(&w);
    struct gguf *g = opened(scratch("written.gguf"));
    if (!g) return;
    check_declared(g);
    /* Copying every key and tensor gives the same bytes. */
    for (size_t i = 0; i < gguf_n_keys(g); i++) gguf_add_key(&w, gguf_key_at(g, i));
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct gguf_source s = {
            .name = t->name, .n_dims = t->n_dims, .type = t->type, .data = t->data
        };
        memcpy(s.dim, t->dim, sizeof s.dim);
        gguf_add_tensor(&w, &s);
    }
    CHECK_OK(gguf_write(&w, scratch("copied.gguf"), &err), err);
    gguf_writer_drop(&w);
    gguf_close(g);
    struct buf a = { 0 }, b = { 0 };
    CHECK_OK(file_read(&a, scratch("written.gguf"), 1 << 20, &err), err);
    CHECK_OK(file_read(&b, scratch("copied.gguf"), 1 << 20, &err), err);
    CHECK_EQ(a.len, b.len);
    CHECK(a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
    buf_drop(&a);
    buf_drop(&b);
    CHECK_EQ(mem_live(), before);
}

TEST(gguf_writer_lays_out_strictly_at_any_alignment)
{
    for (uint32_t align = 1; align <= 65536; align *= 4) {
        luce_error err = { 0 };
        struct gguf_writer w = { 0 };
        gguf_add_u32(&w, "general.alignment", align);
        char names[20][8];
        uint8_t bytes[300];
        for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 31);
        for (int i = 0; i < 20; i++) {
            snprintf(names[i], 8, "t%d", i);
            gguf_add_tensor(&w, &(struct gguf_source){ .name = names[i],
                                                       .dim = { 1 + test_random() % 300 },
                                                       .n_dims = 1,
                                                       .type = 24,
                                                       .data = bytes });
        }
        CHECK_OK(gguf_write(&w, scratch("aligned.gguf"), &err), err);
        gguf_writer_drop(&w);
        struct gguf *g = opened(scratch("aligned.gguf"));
        if (!g) return;
        const uint8_t *next = gguf_tensor_at(g, 0)->data;
        for (int i = 0; i < 20; i++) {
            const struct gguf_tensor *t = gguf_find(g, names[i]);
            CHECK(t->data == next, "%s at alignment %u", names[i], align);
            CHECK(memcmp(t->data, bytes, (size_t)t->bytes) == 0);
            next += (t->bytes + align - 1) / align * align;
        }
        gguf_close(g);
    }
}

TEST(gguf_writer_refuses_bad_declarations_and_leaves_no_file)
{
    static uint64_t few[] = { 7, 0 }, many[] = { 9, 0 };
#define GOOD { .name = "good", .dim = { 2 }, .n_dims = 1, .data = f32s }
    static const struct { const char *key; struct gguf_source tensor; const char *says; } rows[] = {
        { "", GOOD, "key name '' has 0 bytes" },
        { "twice", GOOD, "key 'twice' is declared twice" },
        { "general.alignment", GOOD, "power of two" },
        { NULL, { .name = "", .n_dims = 0, .data = f32s }, "tensor name '' has 0 bytes" },
        { NULL, { .name = "plain", .data = f32s }, "tensor 'plain' is declared twice" },
        { NULL,
          { .name = "x", .dim = { 33 }, .n_dims = 1, .type = 8, .data = f32s }, "tensor 'x'" },
        { NULL, { .name = "x", .dim = { 32 }, .n_dims = 1, .type = 4, .data = f32s }, "type id 4" },
        { NULL, { .name = "x", .dim = { 4, 0 }, .n_dims = 2, .data = f32s }, "[4, 0, ...]" },
        { NULL, { .name = "x", .dim = { 1, 1, 1, 1 }, .n_dims = 5, .data = f32s }, "5 dimensions" },
        { NULL,
          { .name = "x", .dim = { 1ull << 40, 1ull << 40 }, .n_dims = 2, .data = f32s },
          "tensor 'x'" },
        { NULL,
          { .name = "x", .dim = { 8 }, .n_dims = 1, .type = 24, .write = stream, .user = few },
          "1 bytes too few" },
        { NULL,
          { .name = "x", .dim = { 8 }, .n_dims = 1, .type = 24, .write = stream, .user = many },
          "puts 9 bytes, only 8" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        luce_error err = { 0 };
        struct gguf_writer w = { 0 };
        gguf_add_u32(&w, "twice", 1);
        gguf_add_tensor(
            &w, &(struct gguf_source){ .name = "plain", .dim = { 2 }, .n_dims = 1, .data = f32s });
        if (rows[i].key) gguf_add_u32(&w, rows[i].key, 3);
        gguf_add_tensor(&w, &rows[i].tensor);
        const char *path = scratch("refused.gguf");
        CHECK_EQ(gguf_write(&w, path, &err), LUCE_E_ARG);
        CHECK(strstr(err.text, rows[i].says) != NULL, "%s: %s", rows[i].says, err.text);
        CHECK(access(path, F_OK) != 0);
        gguf_writer_drop(&w);
    }
    luce_error err = { 0 };
    struct gguf_writer w = { 0 };
    gguf_add(&w, "x", GGUF_STRING, "text");
    CHECK_EQ(gguf_write(&w, scratch("refused.gguf"), &err), LUCE_E_ARG);
    gguf_writer_drop(&w);
    declare(&w);
    CHECK_EQ(gguf_write(&w, scratch("no/such/folder.gguf"), &err), LUCE_E_IO);
    CHECK(strstr(err.text, "no/such/folder.gguf") != NULL, "%s", err.text);
    gguf_writer_drop(&w);
}

TEST(gguf_writer_survives_every_failed_allocation)
{
    size_t before = mem_live();
    luce_status st = LUCE_E_NOMEM;
    for (long n = 0; st == LUCE_E_NOMEM; n++) {
        struct gguf_writer w = { 0 };
        const char *path = scratch("failing.gguf");
        mem_fail_after(n);
        declare(&w);
        st = gguf_write(&w, path, NULL);
        mem_fail_never();
        gguf_writer_drop(&w);
        CHECK((st == LUCE_OK) == (access(path, F_OK) == 0));
        CHECK_EQ(mem_live(), before);
    }
    CHECK_EQ(st, LUCE_OK);
}

/* One part of a split model, as split tools write them; its tensors are t<first> and on. */
struct part_spec { uint32_t no, count, total; int first, n; };

static void write_part(const char *path, const struct part_spec *s)
{
    luce_error err = { 0 };
    struct gguf_writer w = { 0 };
    uint16_t no = (uint16_t)s->no, count = (uint16_t)s->count;
    int32_t total = (int32_t)s->total;
    gguf_add_text(&w, "general.architecture", str_of(s->no ? "other" : "test"));
    if (s->no) gguf_add_text(&w, "later.key", str_of("not used"));
    gguf_add(&w, "split.no", GGUF_U16, &no);
    gguf_add(&w, "split.count", GGUF_U16, &count);
    gguf_add(&w, "split.tensors.count", GGUF_I32, &total);
    static float values[16][3];     /* borrowed until gguf_write */
    for (int i = 0; i < s->n; i++) {
        values[i][0] = (float)(s->first + i);
        char name[16];
        snprintf(name, sizeof name, "t%d", s->first + i);
        gguf_add_tensor(&w, &(struct gguf_source){
                                .name = name, .dim = { 3 }, .n_dims = 1, .data = values[i] });
    }
    CHECK_OK(gguf_write(&w, path, &err), err);
    gguf_writer_drop(&w);
}

/* scratch() wants a file name; the parts of each row live under a prefix of their own. */
static const char *part_path(size_t row, const char *name)
{
    char full[80];
    snprintf(full, sizeof full, "r%zu-%s", row, name);
    return scratch(full);
}

#define M1 "m-00001-of-00003.gguf"
#define M2 "m-00002-of-00003.gguf"
#define M3 "m-00003-of-00003.gguf"
#define P1 { M1, { 0, 3, 6, 0, 2 } }
#define P2 { M2, { 1, 3, 6, 2, 3 } }
#define P3 { M3, { 2, 3, 6, 5, 1 } }
static const struct {
    const char *name;
    struct { const char *file; struct part_spec part; } files[3];
    const char *open;
    luce_status status;
    const char *says;
} splits[] = {
    { "whole", { P1, P2, P3 }, M1, LUCE_OK, NULL },
    { "from part 2", { P1, P2, P3 }, M2, LUCE_OK, NULL },
    { "from part 3", { P1, P2, P3 }, M3, LUCE_OK, NULL },
    { "no tensors in part 1", { { M1, { 0, 3, 6, 0, 0 } }, { M2, { 1, 3, 6, 0, 5 } }, P3 },
      M1, LUCE_OK, NULL },
    { "one part", { { "m.gguf", { 0, 1, 6, 0, 6 } } }, "m.gguf", LUCE_OK, NULL },
    { "count 0", { { "m.gguf", { 0, 0, 6, 0, 6 } } }, "m.gguf", LUCE_OK, NULL },

    { "part 2 absent", { P1, P3 }, M1, LUCE_E_IO, M2 ": cannot open: No such file" },
    { "part 1 absent", { P2, P3 }, M2, LUCE_E_IO, M1 ": cannot open" },
    { "part 3 absent", { P1, P2 }, M2, LUCE_E_IO, "It is part 3 of 3 of this model" },
    { "renamed", { { "model.gguf", { 0, 3, 6, 0, 2 } } },
      "model.gguf", LUCE_E_FORMAT, "must end in '-00001-of-00003.gguf'" },
    { "2 and 3 swapped", { P1, { M3, { 1, 3, 6, 2, 3 } }, { M2, { 2, 3, 6, 5, 1 } } },
      M1, LUCE_E_FORMAT, M2 ": it says that it is part 3 of 3, its name says part 2 of 3" },
    { "1 and 2 swapped", { { M2, { 0, 3, 6, 0, 2 } }, { M1, { 1, 3, 6, 2, 3 } }, P3 },
      M1, LUCE_E_FORMAT, "so its name must end in '-00002-of-00003.gguf'" },
    { "part 1 is another model's", { { M1, { 0, 4, 6, 0, 2 } }, P2, P3 },
      M2, LUCE_E_FORMAT, M1 ": it says that it is part 1 of 4" },
    { "parts disagree on the count", { P1, { M2, { 1, 2, 6, 2, 3 } } },
      M1, LUCE_E_FORMAT, "part 2 of 2" },
    { "part 2 does not know it is one", { P1, { M2, { 0, 1, 6, 2, 3 } } },
      M1, LUCE_E_FORMAT, "part 1 of 1" },
    { "part 3 is part 2 again", { P1, P2, { M3, { 1, 3, 6, 2, 3 } } },
      M1, LUCE_E_FORMAT, "tensor 't2' at byte" },
    { "no beyond count", { { M1, { 3, 3, 6, 0, 2 } } },
      M1, LUCE_E_FORMAT, "'split.no' is 3, it must be below split.count, which is 3" },
    { "no without count", { { "m.gguf", { 1, 1, 6, 0, 6 } } },
      "m.gguf", LUCE_E_FORMAT, "'split.no' is 1" },
    { "count 65535", { { "m-00001-of-65535.gguf", { 0, 65535, 6, 0, 2 } } },
      "m-00001-of-65535.gguf", LUCE_E_FORMAT, "'split.count' is 65535, at most 1000" },
    { "total too large",
      { { M1, { 0, 3, 7, 0, 2 } }, { M2, { 1, 3, 7, 2, 3 } }, { M3, { 2, 3, 7, 5, 1 } } },
      M1, LUCE_E_FORMAT, "'split.tensors.count' is 7, but 3 parts hold 6" },
    { "total too large in one part", { { "m.gguf", { 0, 1, 7, 0, 6 } } },
      "m.gguf", LUCE_E_FORMAT, "is 7, but 1 part holds 6" },
    { "total negative", { { "m.gguf", { 0, 1, 0xffffffff, 0, 6 } } },
      "m.gguf", LUCE_E_FORMAT, "'split.tensors.count' is -1" },
    { "a name in two parts", { P1, { M2, { 1, 3, 6, 1, 3 } }, P3 },
      M1, LUCE_E_FORMAT, "tensor 't1' at byte" },
};

TEST(gguf_opens_split_models_from_any_part_and_refuses_broken_ones)
{
    size_t before = mem_live();
    for (size_t i = 0; i < COUNT(splits); i++) {
        for (int k = 0; k < 3 && splits[i].files[k].file; k++)
            write_part(part_path(i, splits[i].files[k].file), &splits[i].files[k].part);
        struct gguf *g;
        luce_error err = { 0 };
        const char *path = part_path(i, splits[i].open);
        CHECK(gguf_open(&g, path, &err) == splits[i].status, "%s: %s", splits[i].name, err.text);
        if (splits[i].says)
            CHECK(strstr(err.text, splits[i].says) != NULL, "%s: %s", splits[i].name, err.text);
        CHECK((g != NULL) == (splits[i].status == LUCE_OK));
        if (!g) continue;
        CHECK_STR(gguf_path(g), path);
        CHECK_EQ(gguf_n_parts(g), splits[i].files[2].file ? 3 : 1);
        CHECK_EQ(gguf_n_tensors(g), 6);
        for (int t = 0; t < 6; t++) {
            char name[16];
            snprintf(name, sizeof name, "t%d", t);
            const struct gguf_tensor *found = gguf_find(g, name);
            float value = -1;
            if (found) memcpy(&value, found->data, sizeof value);
            CHECK(found == gguf_tensor_at(g, (size_t)t) && value == (float)t, "%s", name);
        }
        struct str arch = { 0 };
        CHECK_OK(gguf_text(g, "general.architecture", arch, &arch, &err), err);
        CHECK(str_is(arch, "test"));                    /* part 1 rules, whichever part is opened */
        CHECK(gguf_key(g, "later.key") == NULL);
        CHECK(gguf_walk(g) != 0);
        gguf_close(g);
    }
    CHECK_EQ(mem_live(), before);
}

TEST(gguf_recognises_parts_joined_end_to_end)
{
    static const char *const targets[] = { "joined.gguf", "j-00001-of-00003.gguf" };
    struct buf all = { 0 };
    luce_error err = { 0 };
    for (uint32_t no = 0; no < 3; no++) {
        write_part(scratch("piece.gguf"), &(struct part_spec){ no, 3, 6, 2 * (int)no, 2 });
        CHECK_OK(file_read(&all, scratch("piece.gguf"), 1 << 20, &err), err);
    }
    for (size_t i = 0; i < COUNT(targets); i++) {
        struct file_writer w;
        CHECK_OK(file_create(&w, scratch(targets[i]), &err), err);
        CHECK_OK(file_append(&w, all.data, all.len, &err), err);
        CHECK_OK(file_commit(&w, &err), err);
        struct gguf *g;
        CHECK_EQ(gguf_open(&g, scratch(targets[i]), &err), LUCE_E_FORMAT);
        CHECK(strstr(err.text,
                     "this looks like 3 shards joined end to end; pass the first shard") != NULL,
              "%s", err.text);
    }
    buf_drop(&all);
}

TEST(gguf_open_of_a_split_model_survives_every_failed_allocation)
{
    static const char *const names[] = { "f-00001-of-00003.gguf", "f-00002-of-00003.gguf",
                                         "f-00003-of-00003.gguf" };
    char last[512];
    for (uint32_t no = 0; no < 3; no++)
        write_part(scratch(names[no]), &(struct part_spec){ no, 3, 6, 2 * (int)no, 2 });
    snprintf(last, sizeof last, "%s", scratch(names[2]));
    size_t before = mem_live();
    luce_status st = LUCE_E_NOMEM;
    for (long n = 0; st == LUCE_E_NOMEM; n++) {
        struct gguf *g;
        luce_error err = { 0 };
        mem_fail_after(n);
        st = gguf_open(&g, last, &err);
        mem_fail_never();
        CHECK(st == LUCE_OK || strstr(err.text, "out of memory") != NULL, "%s", err.text);
        gguf_close(g);
        CHECK_EQ(mem_live(), before);
    }
    CHECK_EQ(st, LUCE_OK);
}

TEST(gguf_split_names_may_hold_anything_before_the_pattern)
{
    const char *names[] = { "a-00001-of-00002.gguf-00001-of-00002.gguf",
                            "a-00001-of-00002.gguf-00002-of-00002.gguf" };
    for (uint32_t no = 0; no < 2; no++)
        write_part(scratch(names[no]), &(struct part_spec){ no, 2, 4, 2 * (int)no, 2 });
    struct gguf *g = opened(scratch(names[1]));
    if (g) CHECK_EQ(gguf_n_tensors(g), 4);
    gguf_close(g);
}

/* tests/fixtures/oracle.gguf is written by another implementation: scripts/make-gguf-corpus.py. */
TEST(gguf_reads_the_file_of_an_independent_writer)
{
    struct gguf *g = opened(fixture("oracle.gguf"));
    if (!g) return;
    luce_error err = { 0 };
    uint32_t u, heads[3];
    float f;
    bool flag;
    struct str s;
    CHECK_OK(gguf_text(g, "general.architecture", (struct str){ 0 }, &s, &err), err);
    CHECK(str_is(s, "llama"));
    CHECK_OK(gguf_u32(g, "llama.block_count", 0, &u, &err), err);
    CHECK_EQ(u, 3);
    CHECK_OK(gguf_u32_per(g, "llama.attention.head_count", 0, heads, 3, &err), err);
    CHECK(heads[0] == 4 && heads[1] == 2 && heads[2] == 1);
    CHECK_OK(gguf_f32(g, "llama.rope.freq_base", 0, &f, &err), err);
    CHECK(f == 10000);
    CHECK_OK(gguf_bool(g, "oracle.flag", false, &flag, &err), err);
    CHECK(flag);
    static const struct { const char *key; enum gguf_type type; int64_t value; } ints[] = {
        { "oracle.uint8", GGUF_U8, 72 },       { "oracle.int8", GGUF_I8, -128 + 72 },
        { "oracle.uint16", GGUF_U16, 200 },    { "oracle.int16", GGUF_I16, -32768 + 200 },
        { "oracle.uint32", GGUF_U32, 200 },    { "oracle.int32", GGUF_I32, INT32_MIN + 200 },
        { "oracle.uint64", GGUF_U64, 200 },    { "oracle.int64", GGUF_I64, INT64_MIN + 200 },
    };
    for (size_t i = 0; i < COUNT(ints); i++) {
        const struct gguf_key *k = gguf_key(g, ints[i].key);
        CHECK(k && k->type == ints[i].type && gguf_int_at(k, 0) == ints[i].value, "%s", ints[i].key);
    }
    CHECK(gguf_float_at(gguf_key(g, "oracle.float64"), 0) == 1e300);
    CHECK(gguf_float_at(gguf_key(g, "oracle.floats"), 1) == -2);
    struct gguf_cursor c = { 0 };
    int n = 0;
    for (; gguf_next(gguf_key(g, "tokenizer.ggml.tokens"), &c, &s); n++) {
        char token[16];
        snprintf(token, sizeof token, "tok%d", n);
        CHECK(str_is(s, token));
    }
    CHECK_EQ(n, 40);
    const struct gguf_tensor *a = gguf_find(g, "a.weight"), *q = gguf_find(g, "c.weight");
    CHECK(a && a->type == 0 && a->dim[0] == 4 && a->dim[1] == 3);
    CHECK(q && q->type == 8 && q->dim[0] == 64 && q->dim[1] == 2 && q->bytes == 4 * 34);
    for (int i = 0; a && i < 12; i++) {
        float v;
        memcpy(&v, a->data + 4 * i, 4);
        CHECK(v == (float)i);
    }
    gguf_close(g);
}

/* A model file may hold far more than a text model uses (G12): all of it is found by name. */
TEST(gguf_holds_thousands_of_tensors_of_any_purpose)
{
    enum { N = 3000 };
    luce_error err = { 0 };
    struct gguf_writer w = { 0 };
    char name[40];
    static const uint8_t byte[1] = { 9 };
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "%s.%d.weight", i % 3 ? "v.blk" : "blk", i);
        gguf_add_tensor(&w, &(struct gguf_source){
            .name = name, .dim = { 1 }, .n_dims = 1, .type = 24, .data = byte });
    }
    CHECK_OK(gguf_write(&w, scratch("many.gguf"), &err), err);
    gguf_writer_drop(&w);
    struct gguf *g = opened(scratch("many.gguf"));
    if (!g) return;
    CHECK_EQ(gguf_n_tensors(g), N);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "%s.%d.weight", i % 3 ? "v.blk" : "blk", i);
        const struct gguf_tensor *t = gguf_find(g, name);
        CHECK(t == gguf_tensor_at(g, (size_t)i) && t->data[0] == 9, "%s", name);
    }
    CHECK(gguf_find(g, "blk.1.weight") == NULL);
    gguf_close(g);
}
