/* cli/man.c - manual pages from the tables of commands and options: luce.1, luce-run.1, ...
 * The build writes them with "luce --man DIRECTORY"; nothing is said there that --help does not say. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "cli/options.h"

static const char exit_section[] =
    ".SH EXIT STATUS\n0 done, 1 failed, 2 wrong usage, 3 not supported, 70 a device was lost, 128 + N ended by "
    "signal N. A failure is one line on standard error.\n";

static void head(struct buf *out, const char *command, const char *summary)
{
    buf_add_text(out, ".TH LUCE");
    if (*command) buf_add_char(out, '-');
    for (const char *p = command; *p; p++) buf_add_char(out, *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p);
    buf_add_text(out, " 1 \"\" \"luce " LUCE_VERSION "\" \"luce\"\n.SH NAME\nluce");
    if (*command) buf_printf(out, "\\-%s", command);
    buf_add_text(out, " \\- ");
    man_text(out, summary);
    buf_add_text(out, "\n.SH SYNOPSIS\n.B luce\n");
}

static void overview(struct buf *out, const struct command *commands, int n)
{
    head(out, "", "an inference engine for language models");
    buf_add_text(out, ".I COMMAND\n[options] ...\n.SH COMMANDS\n");
    for (int i = 0; i < n; i++) {
        buf_printf(out, ".TP\n.BR luce\\-%s (1)\n", commands[i].name);
        man_text(out, commands[i].summary);
        buf_add_text(out, ".\n");
    }
    buf_add_text(out, ".SH ENVIRONMENT\nEvery option is also a variable: \\-\\-max\\-tokens is LUCE_MAX_TOKENS. "
                      "A flag overrides it.\n");
    buf_add_text(out, exit_section);
}

static void page(struct buf *out, const struct command *command, enum command_id id)
{
    head(out, command->name, command->summary);
    buf_printf(out, ".B %s\n[options]", command->name);
    if (*command->operands) buf_printf(out, " %s", command->operands);
    buf_add_char(out, '\n');
    options_man(out, id);
    buf_add_text(out, exit_section);
    buf_add_text(out, ".SH SEE ALSO\n.BR luce (1)\n");
}

static luce_status write_page(const struct buf *path, const struct buf *text, luce_error *err)
{
    struct file_writer w = { 0 };
    luce_status st = file_create(&w, path->data, err);
    if (!st) st = file_append(&w, text->data, text->len, err);
    if (!st) st = file_commit(&w, err);
    file_abandon(&w);
    return st;
}

luce_status man_write(const char *directory, const struct command *commands, int n, luce_error *err)
{
    struct buf path = { 0 }, text = { 0 };
    luce_status st = LUCE_OK;
    struct stat s;
    if (stat(directory, &s))
        return fail(err, LUCE_E_IO, "--man %s: %s; make it first", directory, strerror(errno));
    for (int i = -1; !st && i < n; i++) {
        buf_clear(&path);
        buf_clear(&text);
        buf_printf(&path, "%s/luce%s%s.1", directory, i < 0 ? "" : "-", i < 0 ? "" : commands[i].name);
        if (i < 0) overview(&text, commands, n);
        else page(&text, &commands[i], (enum command_id)i);
        if (path.failed || text.failed) st = fail(err, LUCE_E_NOMEM, "out of memory for the manual pages");
        else st = write_page(&path, &text, err);
    }
    buf_drop(&path);
    buf_drop(&text);
    return st;
}
