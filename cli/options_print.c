/* cli/options_print.c - the options as --help and manual pages show them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/options_table.h"

enum { LEFT = 28 };             /* columns of an option's name in --help */

void options_help(struct buf *out, enum command_id id, const struct command *command)
{
    buf_printf(out, "%s\n\nUsage: luce %s [options]%s%s\n\nOptions:\n", command->summary, command->name,
               *command->operands ? " " : "", command->operands);
    for (int i = 0; i < options_count; i++) {
        const struct option *row = &options_table[i];
        if (!(row->commands >> id & 1)) continue;
        char left[NAME_MAX_BYTES], name[NAME_MAX_BYTES];
        options_variable(row->name, name);
        bool letter = row->letter != 0;
        snprintf(left, sizeof left, "%c%c%c --%s%s%s", letter ? '-' : ' ', letter ? row->letter : ' ',
                 letter ? ',' : ' ', row->name, row->value ? " " : "", row->value ? row->value : "");
        buf_printf(out, "  %-*s", LEFT, left);
        if (strlen(left) > LEFT) buf_printf(out, "\n  %-*s", LEFT, "");
        buf_printf(out, " %s", row->help);
        options_known(out, row, id);
        buf_add_text(out, " (");
        if (row->fallback) buf_printf(out, "default %s, ", row->fallback);
        buf_add_text(out, name);
        options_aliases(out, row, id);
        buf_add_text(out, ")\n");
    }
    buf_printf(out, "  %-*s print this\n", LEFT, "    --help");
}

void man_text(struct buf *out, const char *text)
{
    if (*text == '.' || *text == '\'') buf_add_text(out, "\\&");
    for (; *text; text++) {
        if (*text == '-') buf_add_text(out, "\\-");
        else if (*text == '\\') buf_add_text(out, "\\e");
        else buf_add_char(out, *text);
    }
}

void options_man(struct buf *out, enum command_id id)
{
    buf_add_text(out, ".SH OPTIONS\n");
    for (int i = 0; i < options_count; i++) {
        const struct option *row = &options_table[i];
        if (!(row->commands >> id & 1)) continue;
        char name[NAME_MAX_BYTES];
        options_variable(row->name, name);
        buf_add_text(out, ".TP\n");
        if (row->letter) buf_printf(out, "\\fB\\-%c\\fR, ", row->letter);
        buf_add_text(out, "\\fB\\-\\-");
        man_text(out, row->name);
        buf_add_text(out, "\\fR");
        if (row->value) buf_printf(out, " \\fI%s\\fR", row->value);
        buf_add_char(out, '\n');
        man_text(out, row->help);
        options_known(out, row, id);
        buf_printf(out, ".\nVariable %s", name);
        struct buf also = { 0 };
        options_aliases(&also, row, id);
        man_text(out, buf_text(&also));
        buf_drop(&also);
        if (row->fallback) {
            buf_add_text(out, "; default ");
            man_text(out, row->fallback);
        }
        buf_add_text(out, ".\n");
    }
}

luce_status output_failed(luce_error *err)
{
    luce_status st = fail(err, LUCE_E_IO, "standard output: %s", strerror(errno));
    if (errno == EPIPE) err->text[0] = '\0';
    return st;
}

luce_status output_write(const struct buf *text, luce_error *err)
{
    if (text->failed) return fail(err, LUCE_E_NOMEM, "out of memory for the output");
    if (fwrite(buf_text(text), 1, text->len, stdout) == text->len && fflush(stdout) == 0) return LUCE_OK;
    return output_failed(err);
}
