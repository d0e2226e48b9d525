/* cli/main.c - the luce command: finds the command's row, parses its options, runs it.
 * Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not supported, 70 a device was lost, 128 + N ended by signal N
 * (Ctrl-C: 130).
 * A failure is one line on standard error. Nothing else in luce ends the process. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/options.h"
#include "cli/terminal.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_UNSUPPORTED = 3, EXIT_DEVICE_LOST = 70, EXIT_SIGNAL = 128 };

static const struct command commands[COMMAND_COUNT] = {
#define ROW(id, name, word, operands, least, most, summary) \
    [COMMAND_##id] = { word, operands, least, most, summary, name##_run },
    COMMANDS(ROW)
#undef ROW
};

static void add_version(struct buf *out)
{
    buf_add_text(out, "luce " LUCE_VERSION "\n");
}

static void add_help(struct buf *out)
{
    buf_add_text(out, "luce, an inference engine for language models\n\n"
                      "Usage: luce COMMAND [options] ...\n\nCommands:\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        buf_printf(out, "  %-14s %s\n", commands[i].name, commands[i].summary);
    buf_add_text(out, "\n'luce COMMAND --help' lists a command's options; --version prints the version;\n"
                      "--man DIRECTORY writes manual pages.\n");
}

static bool is_help(const char *arg)
{
    return !strcmp(arg, "--help") || !strcmp(arg, "-h");
}

static luce_status say(void (*add)(struct buf *out), luce_error *err)
{
    struct buf text = { 0 };
    add(&text);
    luce_status st = output_write(&text, err);
    buf_drop(&text);
    return st;
}

static luce_status command_help(enum command_id id, luce_error *err)
{
    struct buf text = { 0 };
    options_help(&text, id, &commands[id]);
    luce_status st = output_write(&text, err);
    buf_drop(&text);
    return st;
}

/* COMMAND_COUNT: there is none of this name. */
static enum command_id find_command(const char *name)
{
    int i = 0;
    while (i < COMMAND_COUNT && strcmp(name, commands[i].name)) i++;
    return (enum command_id)i;
}

static luce_status no_command(const char *name, luce_error *err)
{
    return fail(err, LUCE_E_ARG, "no command '%s'; 'luce --help' lists them", name);
}

/* luce help [COMMAND] */
static luce_status help_run(int n, char **args, luce_error *err)
{
    if (n == 0) return say(add_help, err);
    if (find_command(args[0]) == COMMAND_COUNT) return no_command(args[0], err);
    if (n > 1) return fail(err, LUCE_E_ARG, "help: '%s' is too much; usage: luce help [COMMAND]", args[1]);
    return command_help(find_command(args[0]), err);
}

static luce_status run_command(enum command_id id, int n, char **args, luce_error *err)
{
    for (int i = 0; i < n && strcmp(args[i], "--"); i++)
        if (is_help(args[i])) return command_help(id, err);
    struct options o;
    luce_status st = options_parse(&o, id, &commands[id], n, args, err);
    if (!st) st = commands[id].run(&o, err);
    options_drop(&o);
    return st;
}

static luce_status dispatch(int argc, char **argv, luce_error *err)
{
    const char *slash = strrchr(argv[0], '/');
    if (!strcmp(slash ? slash + 1 : argv[0], "luce_server"))
        return run_command(COMMAND_SERVE, argc - 1, argv + 1, err);
    if (argc < 2) return fail(err, LUCE_E_ARG, "no command; 'luce --help' lists them");
    bool version = !strcmp(argv[1], "--version") || !strcmp(argv[1], "-V") || !strcmp(argv[1], "version");
    if (!strcmp(argv[1], "help")) return help_run(argc - 2, argv + 2, err);
    if (version || is_help(argv[1])) {
        if (argc > 2) return fail(err, LUCE_E_ARG, "'%s' is too much after %s; 'luce COMMAND --help' lists a "
                                  "command's options", argv[2], argv[1]);
        return say(version ? add_version : add_help, err);
    }
    if (!strcmp(argv[1], "--man")) {
        if (argc != 3) return fail(err, LUCE_E_ARG, "--man: give the directory that the pages go to");
        return man_write(argv[2], commands, COMMAND_COUNT, err);
    }
    if (find_command(argv[1]) != COMMAND_COUNT) return run_command(find_command(argv[1]), argc - 2, argv + 2, err);
    return no_command(argv[1], err);
}

int main(int argc, char **argv)
{
    luce_error err = { 0 };
    standard_files_prepare();
    file_map_watch();
    luce_status st = dispatch(argc, argv, &err);
    if (st && *err.text) fprintf(stderr, "luce: %s\n", err.text);
    if (st == LUCE_E_CANCELLED && interrupt_signal()) return EXIT_SIGNAL + interrupt_signal();
    return st == LUCE_OK ? EXIT_DONE : st == LUCE_E_ARG ? EXIT_USAGE : st == LUCE_E_UNSUPPORTED ? EXIT_UNSUPPORTED
         : st == LUCE_E_DEVICE ? EXIT_DEVICE_LOST : EXIT_FAILED;
}
