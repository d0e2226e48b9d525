/* tests/test_man.c - the manual pages against --help, and against the program that shows them. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/file.h"
#include "test.h"

#ifdef LUCE_PROGRAM

static int shell(struct buf *out, const char *format, const char *a, const char *b)
{
    struct buf line = { 0 };
    buf_printf(&line, format, a, b);
    int code = test_shell(out, buf_text(&line));
    buf_drop(&line);
    return code;
}

/* "--max-tokens" as the page spells it. */
static void escaped(const char *name, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        if (name[i] == '-') *out++ = '\\';
        *out++ = name[i];
    }
    *out = '\0';
}

/* Every option that --help lists, --help itself aside, is in the page. */
static void check_page(const char *command, const char *directory)
{
    struct buf help = { 0 }, page = { 0 };
    luce_error err = { 0 };
    char path[600];
    snprintf(path, sizeof path, "%s/luce-%s.1", directory, command);
    CHECK_EQ(shell(&help, "%s %s --help", LUCE_PROGRAM, command), 0);
    CHECK_OK(file_read(&page, path, 1 << 20, &err), err);
    int n = 0;
    for (const char *at = buf_text(&help); (at = strstr(at, " --")) != NULL; at++) {
        char want[200];
        size_t len = strcspn(at + 1, " ,)\n");
        if (len > 90 || !strncmp(at + 1, "--help", len)) continue;
        escaped(at + 1, len, want);
        CHECK(strstr(buf_text(&page), want) != NULL, "%s lacks %s", path, want);
        n++;
    }
    CHECK(n > 0, "luce %s has no options", command);
    buf_drop(&help);
    buf_drop(&page);
}

TEST(manual_pages_have_every_option_of_every_command)
{
    struct buf out = { 0 };
    const char *directory = scratch("man");
    char name[32];
    mkdir(directory, 0777);
    CHECK_EQ(shell(&out, "%s --man %s 2>&1", LUCE_PROGRAM, directory), 0);
    CHECK_EQ(shell(&out, "%s --help%s", LUCE_PROGRAM, ""), 0);
    const char *at = strstr(buf_text(&out), "Commands:\n");
    int n = 0;
    for (at = at ? at + 10 : ""; sscanf(at, "  %31s", name) == 1 && at[0] == ' '; n++) {
        check_page(name, directory);
        at = strchr(at, '\n') + 1;
    }
    CHECK(n >= 6, "%d commands", n);
    buf_drop(&out);
}

TEST(manual_pages_are_accepted_by_who_shows_them)
{
    struct buf out = { 0 };
    const char *directory = scratch("man");
    if (shell(&out, "command -v groff%s%s", "", "")) return;
    mkdir(directory, 0777);
    CHECK_EQ(shell(&out, "%s --man %s 2>&1", LUCE_PROGRAM, directory), 0);
    CHECK_EQ(shell(&out, "groff -man -Tascii -ww -z %s/*.1 2>&1%s", directory, ""), 0);
    CHECK(out.len == 0, "%s", buf_text(&out));
    buf_drop(&out);
}

TEST(manual_pages_need_a_directory)
{
    struct buf out = { 0 };
    CHECK_EQ(shell(&out, "%s --man%s 2>&1", LUCE_PROGRAM, ""), 2);
    CHECK(strstr(buf_text(&out), "give the directory") != NULL, "%s", buf_text(&out));
    CHECK_EQ(shell(&out, "%s --man /nowhere/at/all%s 2>&1", LUCE_PROGRAM, ""), 1);
    CHECK(strstr(buf_text(&out), "No such file") != NULL, "%s", buf_text(&out));
    buf_drop(&out);
}

#endif
