/* tests/test_safetensors.c - JSON from untrusted bytes, and safetensors checkpoints as if they were GGUF:
 * what is in them, and what is refused with which words. */
#include "base/json_read.h"
#include "gguf/safetensors.h"
#include "test.h"

TEST(json_reader_takes_json_and_nothing_else)
{
    static const char *const good[] = { "{}", "[]", " [ 1 , -2.5e-3 , \"a\\u00e9\\n\\ud83d\\ude00\" , null , true ] ", "0",
                                        "{\"a\":{\"b\":[[],{}]},\"c\":false}", "\"\"" };
    static const char *const bad[] = { "", "{", "[1,]", "{\"a\":1,}", "[1 2]", "{a:1}", "{\"a\" 1}", "01", "1.", "-", "1e",
                                       "\"\\x\"", "\"\\u12g4\"", "\"open", "[}", "{]", "tru", "nul", "[1]]", "{} {}", "\"\n\"",
                                       "+1", ".5", "[,1]", "{,}" };
    struct json_in in;
    for (size_t i = 0; i < COUNT(good); i++) {
        json_read(&in, str_of(good[i]));
        CHECK(json_skip(&in) && json_done(&in), "'%s'", good[i]);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        json_read(&in, str_of(bad[i]));
        CHECK(!json_skip(&in) || !json_done(&in), "'%s' was taken", bad[i]);
    }
    char deep[JSON_IN_DEPTH + 1];
    memset(deep, '[', sizeof deep);
    json_read(&in, (struct str){ deep, sizeof deep });
    CHECK(!json_skip(&in) && in.bad);
}

TEST(json_reader_gives_names_texts_and_numbers)
{
    struct json_in in;
    struct buf text = { 0 };
    struct json_number n;
    bool first = true;
    json_read(&in, str_of("{\"k\\\"\": [12, 1.5, 9223372036854775808, \"\\u0041\\t\"]}"));
    CHECK(json_enter(&in, SEEN_OBJECT) && json_more(&in, &first) && json_read_name(&in, &text));
    CHECK_STR(buf_text(&text), "k\"");
    bool item = true;
    CHECK(json_enter(&in, SEEN_ARRAY) && json_more(&in, &item) && json_read_number(&in, &n));
    CHECK(n.whole && n.i == 12 && n.d == 12);
    CHECK(json_more(&in, &item) && json_read_number(&in, &n) && !n.whole && n.d == 1.5);
    CHECK(json_more(&in, &item) && json_read_number(&in, &n) && !n.whole && n.d == 9223372036854775808.0);
    CHECK(json_more(&in, &item) && json_read_text(&in, &text));
    CHECK_STR(buf_text(&text), "A\t");
    CHECK(!json_more(&in, &item) && !json_more(&in, &first) && json_done(&in));
    buf_drop(&text);
}

static const struct safetensors_name keys[] = { { "a.b", "x.count" }, { "kinds", "x.kinds" } };
static const struct safetensors_name tensors[] = { { "layers.*.w", "blk.*.weight" }, { "norm", "top" } };
static const struct safetensors_names names = { "x", keys, tensors, COUNT(keys), COUNT(tensors) };

/* Header and n bytes of data; a multiple of 8 keeps the data aligned. */
static size_t make_file(uint8_t *out, const char *header, size_t n)
{
    size_t len = (strlen(header) + 7) / 8 * 8;
    memset(out, 0, 8);
    out[0] = (uint8_t)len, out[1] = (uint8_t)(len >> 8);
    memset(out + 8, ' ', len);
    memcpy(out + 8, header, strlen(header));
    for (size_t i = 0; i < n; i++) out[8 + len + i] = (uint8_t)i;
    return 8 + len + n;
}

TEST(safetensors_are_read_as_if_they_were_gguf)
{
    _Alignas(16) uint8_t file[1024];
    luce_error err = { 0 };
    struct gguf *g;
    size_t n = make_file(file, "{\"__metadata__\":{\"format\":\"pt\"},"
                         "\"model.layers.12.w\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"
                         "\"norm\":{\"shape\":[2],\"data_offsets\":[0,8],\"dtype\":\"F32\"}}", 20);
    CHECK_OK(safetensors_open_memory(&g, file, n, str_of("{\"a\":{\"b\":7,\"c\":0.5,\"n\":null},\"kinds\":[\"p\",\"q\"],"
                                     "\"list\":[1,2,3],\"mixed\":[1,\"a\"],\"on\":true,\"t\":\"text\",\"a.b\":9}"), "test",
                                     &names, &err), err);
    if (!g) return;
    uint32_t count = 0, list[3];
    float half = 0;
    bool on = false;
    struct str text;
    CHECK_OK(gguf_text(g, "general.architecture", str_of(""), &text, &err), err);
    CHECK(str_is(text, "x"));
    CHECK_OK(gguf_u32(g, "x.count", 0, &count, &err), err);
    CHECK_EQ(count, 7);
    CHECK_OK(gguf_f32(g, "a.c", 0, &half, &err), err);
    CHECK(half == 0.5f);
    CHECK_OK(gguf_u32_per(g, "list", 0, list, 3, &err), err);
    CHECK(list[0] == 1 && list[2] == 3);
    CHECK_OK(gguf_bool(g, "on", false, &on, &err), err);
    CHECK(on && !gguf_key(g, "mixed") && !gguf_key(g, "a.n"));
    struct gguf_cursor at = { 0 };
    CHECK(gguf_next(gguf_key(g, "x.kinds"), &at, &text) && str_is(text, "p"));
    CHECK(gguf_next(gguf_key(g, "x.kinds"), &at, &text) && str_is(text, "q") && !gguf_next(gguf_key(g, "x.kinds"), &at, &text));
    const struct gguf_tensor *w = gguf_find(g, "blk.12.weight"), *top = gguf_find(g, "top");
    CHECK(w && w->dim[0] == 3 && w->dim[1] == 2 && w->bytes == 12 && w->data[0] == 8 && w->n_dims == 2);
    CHECK(top && top->dim[0] == 2 && top->bytes == 8 && top->data[0] == 0);
    gguf_close(g);
}

TEST(safetensors_that_are_damaged_are_refused_with_words)
{
    static const struct { const char *config, *header, *says; size_t data; } bad[] = {
        { "{", "{}", "not the JSON", 0 },
        { "[]", "{}", "not the JSON", 0 },
        { "{}", "{\"a\":", "not the JSON", 0 },
        { "{}", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "the file ends at", 4 },
        { "{}", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,12]}}", "has 8 bytes by its shape", 12 },
        { "{}", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", "has 8 bytes by its shape", 8 },
        { "{}", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "the tensors take 8 bytes", 9 },
        { "{}", "{\"a\":{\"dtype\":\"F8\",\"shape\":[2],\"data_offsets\":[0,8]}}", "dtype 'F8'", 8 },
        { "{}", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", "lacks its shape", 8 },
        { "{}", "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", "dimension of 0", 0 },
        { "{}", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", "overflows", 0 },
        { "{}", "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", "not the JSON", 4 },
        { "{}", "{\"a\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                "\"a\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[2,4]}}", "is there twice", 4 },
        { "{}", "{\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]}}", "multiple of its element's size", 5 },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        _Alignas(16) uint8_t file[1024];
        luce_error err = { 0 };
        struct gguf *g;
        size_t live = mem_live(), n = make_file(file, bad[i].header, bad[i].data);
        CHECK_EQ(safetensors_open_memory(&g, file, n, str_of(bad[i].config), "test", &names, &err), LUCE_E_FORMAT);
        CHECK(strstr(err.text, bad[i].says), "row %zu: \"%s\" lacks \"%s\"", i, err.text, bad[i].says);
        CHECK_EQ(mem_live(), live);
    }
    luce_error err = { 0 };
    struct gguf *g;
    uint8_t file[8] = { 1 };
    CHECK_EQ(safetensors_open_memory(&g, file, 8, str_of("{}"), "test", &names, &err), LUCE_E_FORMAT);
    CHECK(strstr(err.text, "its header claims 1 bytes"), "%s", err.text);
    CHECK_EQ(safetensors_open(&g, scratch("none"), &names, &err), LUCE_E_IO);
}
