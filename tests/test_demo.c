/* tests/test_demo.c - scripts/demo: the figures of a plain and a speculative run, and a comparison that can fail. */
#define _GNU_SOURCE
#include <sys/stat.h>

#include "base/buf.h"
#include "base/file.h"
#include "test.h"
#include "tiny_model.h"

#ifdef LUCE_PROGRAM

static int demo(struct buf *out, const char *luce, const char *args)
{
    struct buf line = { 0 };
    buf_printf(&line, "%s/scripts/demo --luce %s --model %s --tokens 24 %s 2>&1", LUCE_SOURCE_DIR, luce, tiny_model(),
               args);
    int code = test_shell(out, buf_text(&line));
    buf_drop(&line);
    return code;
}

/* A luce whose second answer of each pair is another one. */
static const char *unequal(void)
{
    const char *path = scratch("unequal");
    struct buf text = { 0 };
    struct file_writer w = { 0 };
    luce_error err = { 0 };
    buf_printf(&text, "#!/bin/sh\ncase \"$*\" in *--spec*|*--draft*) exec %s \"$@\" --temperature 100 --seed 1;; esac\n"
                      "exec %s \"$@\"\n", LUCE_PROGRAM, LUCE_PROGRAM);
    luce_status st = file_create(&w, path, &err);
    if (!st) st = file_append(&w, buf_text(&text), text.len, &err);
    if (!st) st = file_commit(&w, &err);
    CHECK_OK(st, err);
    chmod(path, 0755);
    buf_drop(&text);
    return path;
}

TEST(demo_shows_speeds_and_whether_the_texts_are_identical)
{
    static const char *const keys[] = { "\"plain_tokens_per_s\": ", "\"spec_tokens_per_s\": ", "\"ratio\": ",
                                        "\"identical\": true", "\"drafter\": \"ngram\"" };
    struct buf out = { 0 };
    CHECK_EQ(demo(&out, LUCE_PROGRAM, "--draft /no/such/drafter.gguf"), 2);
    CHECK(strstr(buf_text(&out), "there is no such file") != NULL, "%s", buf_text(&out));
    CHECK_EQ(demo(&out, LUCE_PROGRAM, "--ngram --prompt abcabcabcabc"), 0);
    CHECK(strstr(buf_text(&out), "identical:   yes") != NULL, "%s", buf_text(&out));
    CHECK_EQ(demo(&out, LUCE_PROGRAM, "--ngram --prompt abcabcabcabc --prompt x --json"), 0);
    CHECK(buf_text(&out)[0] == '{', "%s", buf_text(&out));
    for (size_t i = 0; i < COUNT(keys); i++) CHECK(strstr(buf_text(&out), keys[i]) != NULL, "%s", buf_text(&out));
    CHECK_EQ(demo(&out, unequal(), "--ngram --prompt abcabcabcabc --json"), 1);
    CHECK(strstr(buf_text(&out), "\"identical\": false") != NULL, "%s", buf_text(&out));
    buf_drop(&out);
}

#endif
