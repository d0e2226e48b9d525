/* tests/test_json.c - the JSON writer. */
#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "test.h"

static void write_all_kinds(struct json *j)
{
    json_open_object(j);
    json_key(j, "empty");
    json_open_object(j);
    json_close(j);
    json_key(j, "list");
    json_open_array(j);
    json_int(j, INT64_MIN);
    json_uint(j, UINT64_MAX);
    json_open_array(j);
    json_close(j);
    json_number(j, 0.1);
    json_bool(j, true);
    json_put_null(j);
    json_close(j);
    json_key(j, "a\"b");
    json_text(j, "x");
    json_key(j, "raw");
    json_raw(j, str_of("{\"k\":[1]}"));
    json_key(j, "no");
    json_bool(j, false);
    json_close(j);
}

TEST(json_puts_commas_and_brackets_where_they_belong)
{
    struct buf b = { 0 };
    struct json j;
    json_begin(&j, &b);
    write_all_kinds(&j);
    CHECK_STR(buf_text(&b),
              "{\"empty\":{},\"list\":[-9223372036854775808,18446744073709551615,[],0.1,true,null],"
              "\"a\\\"b\":\"x\",\"raw\":{\"k\":[1]},\"no\":false}");
    CHECK_EQ(j.depth, 0);
    buf_drop(&b);
}

/* R: the replacement character. */
#define R "\xef\xbf\xbd"
#define BYTES(text) text, sizeof text - 1
static const struct { const char *bytes; size_t len; const char *json; } strings[] = {
    { BYTES(""),                        "\"\"" },
    { BYTES("plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"),
      "\"plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80\"" },
    { BYTES("\"\\/\b\f\n\r\t"),         "\"\\\"\\\\/\\b\\f\\n\\r\\t\"" },
    { BYTES("\0\x01\x1f\x7f"),          "\"\\u0000\\u0001\\u001f\\u007f\"" },
    { BYTES("\xc2\x80\xc2\x9f\xc2\xa0"), "\"\\u0080\\u009f\xc2\xa0\"" },
    { BYTES("a\x80z"),                  "\"a" R "z\"" },                /* lone continuation */
    { BYTES("\xc0\xaf"),                "\"" R R "\"" },                /* overlong */
    { BYTES("\xe0\x80\x80"),            "\"" R R R "\"" },              /* overlong */
    { BYTES("\xed\xa0\x80"),            "\"" R R R "\"" },              /* surrogate */
    { BYTES("\xf4\x90\x80\x80"),        "\"" R R R R "\"" },            /* beyond U+10FFFF */
    { BYTES("\xe2\x82"),                "\"" R "\"" },                  /* cut short: one sequence */
    { BYTES("\xf0\x9f\x98x"),           "\"" R "x\"" },
    { BYTES("\xe2\x82\xe2\x82\xac"),    "\"" R "\xe2\x82\xac\"" },
    { BYTES("\xff\xfe"),                "\"" R R "\"" },
};

TEST(json_strings_are_escaped_and_valid_utf8)
{
    for (size_t i = 0; i < COUNT(strings); i++) {
        struct buf b = { 0 };
        struct json j;
        json_begin(&j, &b);
        json_str(&j, (struct str){ strings[i].bytes, strings[i].len });
        CHECK_STR(buf_text(&b), strings[i].json);
        buf_drop(&b);
    }
}

TEST(json_numbers_read_back_the_same)
{
    double special[] = { 0, -0.0, 1, 1e300, 5e-324, 1.0 / 3, 123456789.123456789 };
    for (size_t i = 0; i < 500 + COUNT(special); i++) {
        double v = i < COUNT(special) ? special[i] : test_normal() * pow(10, test_uniform(-30, 30));
        struct buf b = { 0 };
        struct json j;
        json_begin(&j, &b);
        json_number(&j, v);
        CHECK(strtod(buf_text(&b), NULL) == v, "%s is not %.17g", buf_text(&b), v);
        buf_drop(&b);
    }
    for (int i = 0; i < 500; i++) {
        float v = (float)(test_normal() * pow(10, test_uniform(-30, 30)));
        struct buf b = { 0 };
        struct json j;
        json_begin(&j, &b);
        json_float(&j, i ? v : 1e-5f);
        if (i) CHECK(strtof(buf_text(&b), NULL) == v, "%s is not %.9g", buf_text(&b), (double)v);
        else CHECK_STR(buf_text(&b), "1e-05");
        buf_drop(&b);
    }
    double not_finite[] = { NAN, INFINITY, -INFINITY };
    for (size_t i = 0; i < COUNT(not_finite); i++) {
        struct buf b = { 0 };
        struct json j;
        json_begin(&j, &b);
        json_number(&j, not_finite[i]);
        CHECK_STR(buf_text(&b), "null");
        buf_drop(&b);
    }
}

TEST(json_shows_a_failed_allocation_in_its_buffer)
{
    size_t before = mem_live();
    for (int n = 0;; n++) {
        struct buf b = { 0 };
        struct json j;
        json_begin(&j, &b);
        mem_fail_after(n);
        write_all_kinds(&j);
        mem_fail_never();
        bool failed = b.failed;
        buf_drop(&b);
        CHECK_EQ(mem_live(), before);
        if (!failed) break;
    }
}

TEST(json_can_be_as_deep_as_it_promises)
{
    struct buf b = { 0 };
    struct json j;
    json_begin(&j, &b);
    for (int i = 0; i < JSON_DEPTH_MAX; i++) json_open_array(&j);
    for (int i = 0; i < JSON_DEPTH_MAX; i++) json_close(&j);
    CHECK_EQ(b.len, 2 * JSON_DEPTH_MAX);
    buf_drop(&b);
}
