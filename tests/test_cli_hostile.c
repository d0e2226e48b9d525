/* tests/test_cli_hostile.c - every command that opens a model, given files that are none: exit code 1, one
 * line on standard error, nothing on standard output. The kinds of damage are those of test_gguf.c and
 * test_model_files.c; here one of each, through the program. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/mem.h"
#include "gguf/writer.h"
#include "test.h"
#include "tiny_model.h"

#ifdef LUCE_PROGRAM

/* Runs "luce ARGS" by the shell, with % for the path. Returns the exit code. */
static int run(const char *args, const char *path, struct buf *out, struct buf *err)
{
    struct buf line = { 0 };
    char outputs[2][512];
    luce_error e = { 0 };
    snprintf(outputs[0], sizeof outputs[0], "%s", scratch("hostile.out"));
    snprintf(outputs[1], sizeof outputs[1], "%s", scratch("hostile.err"));
    buf_printf(&line, "%s ", LUCE_PROGRAM);
    for (; *args; args++) {
        if (*args == '%') buf_add_text(&line, path);
        else buf_add_char(&line, *args);
    }
    buf_printf(&line, " < /dev/null > %s 2> %s", outputs[0], outputs[1]);
    int status = system(line.data);
    buf_clear(out);
    buf_clear(err);
    CHECK_OK(file_read(out, outputs[0], 1 << 24, &e), e);
    CHECK_OK(file_read(err, outputs[1], 1 << 24, &e), e);
    buf_drop(&line);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static const char *const all_commands[] = {
    "inspect %",
    "inspect % --json",
    "tokenize -m % text",
    "inspect % --check",
    "inspect % --tape",
    "inspect % --trace-ops",
    "inspect % --check-against-reference",
    "run -m % -p text",
    "run -m % -p text --json",
    "chat -m %",
    "bench -m % --only decode",
};
enum { OF_FILES = 3 }; /* the first of them read the header alone */

static void check_refused_by_all(const char *file, size_t from, const char *says)
{
    char path[512]; /* the harness forgets the eighth last one */
    snprintf(path, sizeof path, "%s", file);
    struct buf out = { 0 }, err = { 0 };
    for (size_t i = from; i < COUNT(all_commands); i++) {
        int code = run(all_commands[i], path, &out, &err);
        const char *end = strchr(buf_text(&err), '\n');
        CHECK(code == 1 && out.len == 0, "%s: exit %d, output \"%s\"", all_commands[i], code, buf_text(&out));
        CHECK(end && !end[1] && !strncmp(buf_text(&err), "luce: ", 6), "%s: \"%s\"", all_commands[i], buf_text(&err));
        CHECK(strstr(buf_text(&err), says) != NULL, "%s: \"%s\" lacks \"%s\"", all_commands[i], buf_text(&err), says);
    }
    buf_drop(&out);
    buf_drop(&err);
}

static const char *write_file(const char *name, const void *data, size_t bytes)
{
    struct file_writer w;
    luce_error err = { 0 };
    const char *path = scratch(name);
    CHECK_OK(file_create(&w, path, &err), err);
    CHECK_OK(file_append(&w, data, bytes, &err), err);
    CHECK_OK(file_commit(&w, &err), err);
    return path;
}

#define Z4 "\0\0\0\0"
#define Z64 Z4 Z4 Z4 Z4 Z4 Z4 Z4 Z4 Z4 Z4 Z4 Z4 Z4 Z4 Z4 Z4
#define HEAD(tensors, keys) "GGUF\3\0\0\0" tensors "\0\0\0" Z4 keys "\0\0\0" Z4
#define HUGE_8 "\0\0\0\0\0\0\0\x80"
#define ROW(bytes, says)              \
    {                                 \
        bytes, sizeof bytes - 1, says \
    }
static const struct {
    const char *bytes;
    size_t n;
    const char *says;
} headers[] = {
    ROW(HEAD("\0", "\1") Z4 Z4 Z4 "\0", "key 0 at byte 24: its name is empty"),
    ROW("GGUF", "file too short for header"),
    ROW("GGUF\1\0\0\0" Z4 Z4 Z4 Z4, "unsupported version 1"),
    ROW("GGUF\0\0\0\3" Z4 Z4 Z4 Z4, "byte-swapped"),
    ROW(HEAD("\0", "\1") "\x11\0\0\0" Z4 "general.alignment\5\0\0\0\x20\0\0\0", "it is of type i32, it must be u32"),
    ROW(HEAD("\0", "\1") "\x11\0\0\0" Z4 "general.alignment\4\0\0\0" Z4, "it is 0, it must be a power of two"),
    ROW(HEAD("\0", "\1") "\1\0\0\0" Z4 "x\x9\0\0\0\0\0\0\0" HUGE_8, "claims 9223372036854775808 elements"),
    ROW(HEAD("\0", "\1") "\1\0\0\0" Z4 "x\x8\0\0\0" HUGE_8, "claims 9223372036854775808 bytes"),
    ROW("GGUF\3\0\0\0" Z4 Z4 HUGE_8, "claims 9223372036854775808 keys"),
    ROW(HEAD("\1", "\0") "\1\0\0\0" Z4 "a\2\0\0\0\x80\4\0\0" Z4 "\1\0\0\0\0\4\0\0\x8\0\0\0" Z4 Z4 Z64, "size overflows"),
    ROW(HEAD("\1", "\0") "\1\0\0\0" Z4 "a\2\0\0\0" HUGE_8 "\2\0\0\0" Z4 Z4 Z4 Z4 Z64, "size overflows"),
};

TEST(cli_every_command_refuses_a_hostile_header_in_one_line)
{
    for (size_t i = 0; i < COUNT(headers); i++)
        check_refused_by_all(write_file("bad.gguf", headers[i].bytes, headers[i].n), 0, headers[i].says);
}

TEST(cli_every_command_says_which_part_of_a_split_model_is_missing)
{
    struct gguf_writer w = { 0 };
    luce_error err = { 0 };
    gguf_add_text(&w, "general.architecture", str_of("llama"));
    gguf_add(&w, "split.no", GGUF_U16, &(uint16_t){ 0 });
    gguf_add(&w, "split.count", GGUF_U16, &(uint16_t){ 3 });
    const char *path = scratch("alone-00001-of-00003.gguf");
    CHECK_OK(gguf_write(&w, path, &err), err);
    gguf_writer_drop(&w);
    check_refused_by_all(path, 0, "alone-00002-of-00003.gguf: cannot open");
}

/* What is done to the tiny model: a tensor without its name, or with a value that is not finite; a key
 * left out; one tensor more. */
struct damage {
    const char *tensor, *rename;
    bool spoil;
    const char *drop_key, *extra;
};

static const char *damaged(const struct damage *d)
{
    struct gguf *g = NULL;
    struct gguf_writer w = { 0 };
    luce_error err = { 0 };
    uint8_t *spoilt = NULL;
    const char *path = scratch("damaged.gguf");
    CHECK_OK(gguf_open(&g, tiny_model(), &err), err);
    for (size_t i = 0; i < gguf_n_keys(g); i++)
        if (!d->drop_key || !str_is(gguf_key_at(g, i)->name, d->drop_key)) gguf_add_key(&w, gguf_key_at(g, i));
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct gguf_source s = { .name = t->name, .n_dims = t->n_dims, .type = t->type, .data = t->data };
        memcpy(s.dim, t->dim, sizeof s.dim);
        if (d->tensor && !strcmp(t->name, d->tensor)) {
            if (d->rename) s.name = d->rename;
            if (d->spoil && (spoilt = mem_alloc(t->bytes))) {
                memcpy(spoilt, t->data, t->bytes);
                memset(spoilt + t->bytes - 64, 0xff, 64); /* scales and values alike: NaN */
                s.data = spoilt;
            }
        }
        gguf_add_tensor(&w, &s);
    }
    const float patch[4] = { 0 };
    if (d->extra) gguf_add_tensor(&w, &(struct gguf_source){ .name = d->extra, .dim = { 4 }, .n_dims = 1, .data = patch });
    CHECK_OK(gguf_write(&w, path, &err), err);
    gguf_writer_drop(&w);
    mem_free(spoilt);
    gguf_close(g);
    return path;
}

TEST(cli_commands_that_need_all_tensors_name_the_missing_one)
{
    if (!tiny_model()) return;
    const char *path = damaged(&(struct damage){ .tensor = "blk.0.attn_norm.weight", .rename = "blk.0.attn_norm" });
    check_refused_by_all(path, OF_FILES, "tensor 'blk.0.attn_norm.weight' [");
}

TEST(cli_unused_tensors_are_one_line_and_no_failure)
{
    struct buf out = { 0 }, err = { 0 };
    if (!tiny_model()) return;
    const char *path = damaged(&(struct damage){ .extra = "v.patch_embd.weight" });
    CHECK_EQ(run("run -m % -p text -n 3", path, &out, &err), 0);
    const char *end = strchr(buf_text(&err), '\n');
    CHECK(end && !end[1] && strstr(err.data, "1 of ") && strstr(err.data, "v.patch_embd.weight"), "\"%s\"",
          buf_text(&err));
    CHECK(out.len > 0);
    buf_drop(&out);
    buf_drop(&err);
}

TEST(cli_check_refuses_what_a_run_would)
{
    static const struct {
        struct damage damage;
        int code;
        const char *check, *run;
    } rows[] = {
        { { .drop_key = "tokenizer.ggml.model" }, 3, "without a vocabulary", "without a vocabulary" },
        { { .tensor = "output_norm.weight", .spoil = true }, 1, "tensor 'output_norm.weight' holds", "non-finite" },
        { { .tensor = "output.weight", .spoil = true }, 1, "tensor 'output.weight' holds", "non-finite" },
        { { .tensor = "blk.0.ffn_gate.weight", .spoil = true }, 1, "first in row ", "non-finite" },
        { { .tensor = "blk.0.attn_norm.weight", .spoil = true }, 1, "first in row ", "non-finite" },
    };
    struct buf out = { 0 }, err = { 0 };
    if (!tiny_model()) return;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s", damaged(&rows[i].damage));
        CHECK(run("inspect % --check", path, &out, &err) == rows[i].code && out.len == 0, "row %zu: %s", i,
              buf_text(&err));
        CHECK(strstr(buf_text(&err), rows[i].check) != NULL, "row %zu: %s", i, buf_text(&err));
        CHECK(run("run -m % -p text -n 3", path, &out, &err) == rows[i].code && out.len == 0, "row %zu: %s", i,
              buf_text(&err));
        CHECK(strstr(buf_text(&err), rows[i].run) != NULL, "row %zu: %s", i, buf_text(&err));
    }
    buf_drop(&out);
    buf_drop(&err);
}

#endif
