/* cli/options.c - see options.h. */
#define _POSIX_C_SOURCE 200809L
#include "cli/options_table.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "spec/drafter.h"

#define FOR(id) (1u << COMMAND_##id)
#define SAMPLES (FOR(RUN) | FOR(CHAT))
#define SPECULATES (SAMPLES | FOR(BENCH) | FOR(SERVE))
/* Flags that would have no effect without one of the others, or beside one of them: they are refused. */
enum relation { NEEDS, EXCLUDES };
static const struct rule {
    unsigned commands;
    enum relation relation;
    const char *name, *others[4];
} rules[] = {
    { FOR(RUN), NEEDS, "system", { "chat" } },
    { SAMPLES, NEEDS, "top-k", { "temperature" } },
    { SAMPLES, NEEDS, "top-p", { "temperature" } },
    { SAMPLES, NEEDS, "min-p", { "temperature" } },
    { SPECULATES, NEEDS, "draft-max", { "spec", "draft" } },
    { SPECULATES, NEEDS, "draft-block-size", { "spec", "draft" } },
    { SPECULATES, NEEDS, "ddtree-tau", { "spec", "draft" } },
    { FOR(BENCH), NEEDS, "draft-right", { "spec" } },
    { FOR(BENCH), NEEDS, "prompts", { "spec", "draft" } },
    { FOR(BENCH), NEEDS, "log", { "spec", "draft" } },
    { FOR(BENCH), NEEDS, "max-tokens", { "spec", "draft" } },
    { FOR(BENCH), EXCLUDES, "depth", { "spec", "draft" } },
    { FOR(BENCH), EXCLUDES, "prompt-tokens", { "spec", "draft" } },
    { FOR(BENCH), EXCLUDES, "repeat", { "spec", "draft" } },
    { FOR(INSPECT), NEEDS, "prompt", { "trace-ops", "check-against-reference" } },
    { FOR(INSPECT), NEEDS, "width", { "tape", "trace-ops" } },
    { FOR(INSPECT), EXCLUDES, "json", { "tape", "trace-ops", "check", "check-against-reference" } },
    { FOR(TOKENIZE), EXCLUDES, "pieces", { "decode" } },
    { FOR(TOKENIZE), EXCLUDES, "bos", { "decode" } },
};
enum { CONFIG_MOST_BYTES = 1 << 20 };

/* Other names of an option, which give way to its own. */
static const struct { const char *name, *is; } aliases[] = {
    { "max-ctx", "context" }, { "target-device", "device" }, { "target", "model" }, { "routing-queue-limit", "queue" },
    { "max-tokens", "default-max-tokens" }, { "think-max", "think-max-tokens" }, { "ddtree-budget", "draft-max" },
    { "budget", "draft-max" }, { "specla", "ddtree" }, { "verify-width", "draft-block-size" },
    { "kv-k", "cache-type-k" }, { "kv-v", "cache-type-v" },
    { "concurrent-prefix-cache-max-mib", "prefix-cache-max-mib" },
};

/* Words that stand for a value. */
static const struct { const char *option, *word, *value; } spoken[] = {
    { "context", "auto", "0" }, { "kv-pool-tokens", "auto", "0" }, { "chunk", "auto", "0" }, { "threads", "auto", "0" },
    { "prefix-cache-max-mib", "auto", "0" }, { "device", "auto:0", "auto" }, { "draft-device", "auto:0", "auto" },
};

void options_variable(const char *option, char out[NAME_MAX_BYTES])
{
    int n = snprintf(out, NAME_MAX_BYTES, "LUCE_%s", option);
    for (int i = 5; i < n && i < NAME_MAX_BYTES; i++)
        out[i] = out[i] == '-' ? '_' : out[i] >= 'a' && out[i] <= 'z' ? (char)(out[i] - 32) : out[i];
}

static bool parse_flag(const char *text, bool *out)
{
    static const char *const words[2][4] = { { "0", "no", "off", "false" }, { "1", "yes", "on", "true" } };
    for (int v = 0; v < 2; v++)
        for (int i = 0; i < 4; i++)
            if (!strcmp(text, words[v][i])) return *out = v, true;
    return false;
}

/* Whether `text` is one of the words in "a|b|c". */
static bool is_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (const char *at = choices; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (strcspn(at, "|") == n && !memcmp(at, text, n)) return true;
    }
    return false;
}

/* `from` is what the user wrote: the flag or the variable. */
static luce_status set(struct options *o, const struct option *row, const char *from, const char *text,
                       luce_error *err)
{
    void *field = (char *)o + row->at;
    struct option_texts *texts = field;
    if (!*text && row->type != OPT_TEXTS)
        return fail(err, LUCE_E_ARG, "%s: the value is empty; expected %s", from,
                    row->value ? row->value : "yes or no");
    for (size_t i = 0; i < sizeof spoken / sizeof *spoken; i++)
        if (!strcmp(spoken[i].option, row->name) && !strcmp(spoken[i].word, text)) text = spoken[i].value;
    switch (row->type) {
    case OPT_FLAG:
        if (parse_flag(text, field)) return LUCE_OK;
        return fail(err, LUCE_E_ARG, "%s: '%s' is not yes or no", from, text);
    case OPT_TEXT:
        if (row->value && strchr(row->value, '|') && !is_choice(row->value, text))
            return fail(err, LUCE_E_ARG, "%s: '%s' is not one of %s", from, text, row->value);
        *(const char **)field = text;
        return LUCE_OK;
    case OPT_TEXTS:
        if (texts->n == OPTION_TEXTS_MAX)
            return fail(err, LUCE_E_ARG, "%s: given more than %d times", from, OPTION_TEXTS_MAX);
        texts->at[texts->n++] = text;
        return LUCE_OK;
    case OPT_INTS:
        return option_numbers(row, field, from, text, err);
    case OPT_SEED:
        return option_seed(field, from, text, err);
    case OPT_INT:
    case OPT_NUMBER:
        return option_number(row, field, from, text, err);
    }
    return LUCE_OK;
}

/* The variable of this name, if it is set and not empty, into the row's field. */
static luce_status set_from_variable(struct options *o, const struct option *row, const char *option, luce_error *err)
{
    char name[NAME_MAX_BYTES];
    options_variable(option, name);
    const char *value = getenv(name);
    return value && *value ? set(o, row, name, value, err) : LUCE_OK;
}

static bool is_for(const struct option *row, enum command_id id)
{
    return row->commands >> id & 1;
}

/* The row of this name (its first len bytes); *own: not by one of its other names. */
static const struct option *find_name(enum command_id id, const char *name, size_t len, bool *own)
{
    *own = true;
    for (int i = 0; i < options_count; i++)
        if (is_for(&options_table[i], id) && strlen(options_table[i].name) == len &&
            !memcmp(options_table[i].name, name, len))
            return &options_table[i];
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strlen(aliases[i].name) == len && !memcmp(aliases[i].name, name, len)) {
            const struct option *row = find_name(id, aliases[i].is, strlen(aliases[i].is), own);
            *own = false;
            return row;
        }
    return NULL;
}

/* How the command line named an option: its own name outweighs its other names. */
enum given { NOT_GIVEN, BY_ALIAS, BY_NAME };

/* Whether an option says something other than its default. */
static bool is_set(const struct options *o, const struct option *row)
{
    const void *field = (const char *)o + row->at;
    if (row->type == OPT_FLAG) return *(const bool *)field;
    if (row->type == OPT_SEED) return ((const struct option_seed *)field)->given;
    if (row->type == OPT_INT) return *(const int64_t *)field != strtoll(row->fallback, NULL, 10);
    if (row->type == OPT_NUMBER) return fabs(*(const double *)field - strtod(row->fallback, NULL)) > 0;
    const char *text = *(const char *const *)field;
    return text && (!row->fallback || strcmp(text, row->fallback) != 0);
}

static const struct option *named(const char *name)
{
    int i = 0;
    while (strcmp(options_table[i].name, name)) i++;
    return &options_table[i];
}

static luce_status check_rules(const struct options *o, enum command_id id, const enum given *given, luce_error *err)
{
    for (size_t r = 0; r < COUNT(rules); r++) {
        const struct rule *rule = &rules[r];
        const struct option *row = named(rule->name);
        bool any = false;
        bool wanted = given[row - options_table] && (row->type != OPT_FLAG || is_set(o, row));
        if (!(rule->commands >> id & 1) || !wanted) continue;
        for (int i = 0; i < 4 && rule->others[i]; i++) any = any || is_set(o, named(rule->others[i]));
        if (any != (rule->relation == EXCLUDES)) continue;
        struct buf others = { 0 };
        for (int i = 0; i < 4 && rule->others[i]; i++)
            buf_printf(&others, "%s--%s", i ? " or " : "", rule->others[i]);
        luce_status st = fail(err, LUCE_E_ARG, "--%s: it has no effect %s %s", rule->name,
                              rule->relation == NEEDS ? "without" : "beside", buf_text(&others));
        buf_drop(&others);
        return st;
    }
    return LUCE_OK;
}

static luce_status set_fallbacks(struct options *o, enum command_id id, luce_error *err)
{
    luce_status st = LUCE_OK;
    for (int i = 0; i < options_count && !st; i++)
        if (is_for(&options_table[i], id) && options_table[i].fallback)
            st = set(o, &options_table[i], options_table[i].name, options_table[i].fallback, err);
    return st;
}

/* A variable of an option that the server does not have: it may be empty or say that the thing is off. */
static luce_status check_absent(const char *name, luce_error *err)
{
    char variable[NAME_MAX_BYTES];
    bool on = true;
    options_variable(name, variable);
    const char *value = getenv(variable);
    if (!value || !*value || !strcmp(value, "none") || (parse_flag(value, &on) && !on)) return LUCE_OK;
    return fail(err, LUCE_E_ARG, "%s: %s", variable, option_absent(name, strlen(name)));
}

static luce_status set_from_environment(struct options *o, enum command_id id, luce_error *err)
{
    luce_status st = LUCE_OK;
    bool own;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases && !st; i++) {
        const struct option *row = find_name(id, aliases[i].name, strlen(aliases[i].name), &own);
        if (row && !own) st = set_from_variable(o, row, aliases[i].name, err);
    }
    for (int i = 0; i < options_count && !st; i++)
        if (is_for(&options_table[i], id))
            st = set_from_variable(o, &options_table[i], options_table[i].name, err);
    for (int i = 0; id == COMMAND_SERVE && !st && option_absent_name(i); i++)
        st = check_absent(option_absent_name(i), err);
    return st;
}

/* The row that `arg` (its first len bytes: without "=VALUE") names, or NULL. */
static const struct option *find(enum command_id id, const char *arg, size_t len, bool *own)
{
    if (arg[1] == '-') return find_name(id, arg + 2, len - 2, own);
    *own = true;
    for (const struct option *row = options_table; row < options_table + options_count; row++)
        if (len == 2 && row->letter && arg[1] == row->letter && is_for(row, id)) return row;
    return NULL;
}

static char *trim(char *at)
{
    at += strspn(at, " \t");
    for (size_t n = strlen(at); n && is_one_of(at[n - 1], " \t\r"); n--) at[n - 1] = '\0';
    size_t n = strlen(at);
    if (n < 2 || (*at != '"' && *at != '\'') || at[n - 1] != *at) return at;
    at[n - 1] = '\0';
    return at + 1;
}

/* One line of a configuration file: NAME: VALUE or NAME = VALUE; a name alone is "yes". */
static luce_status set_from_line(struct options *o, enum command_id id, const char *from, char *line, luce_error *err)
{
    bool own;
    size_t n = strcspn(line, ":=");
    char *value = line[n] ? line + n + 1 : NULL;
    line[n] = '\0';
    char *name = trim(line);
    name += name[0] == '-' && name[1] == '-' ? 2 : 0;
    for (char *c = name; *c; c++) *c = *c == '_' ? '-' : *c;
    const struct option *row = find_name(id, name, strlen(name), &own);
    const char *instead = !row && id == COMMAND_SERVE ? option_absent(name, strlen(name)) : NULL;
    if (instead) return fail(err, LUCE_E_ARG, "%s: %s: %s", from, name, instead);
    n = strcspn(name, " \t");
    if (!value && name[n] && find_name(id, name, n, &own))
        return fail(err, LUCE_E_ARG, "%s: no option '%s'; write %.*s: %s", from, name, (int)n, name,
                    name + n + strspn(name + n, " \t"));
    if (!row || !strcmp(row->name, "config"))
        return fail(err, LUCE_E_ARG, "%s: no option '%s'; 'luce serve --help' lists them", from, name);
    return set(o, row, from, value ? trim(value) : "yes", err);
}

static luce_status set_from_file(struct options *o, enum command_id id, const char *path, luce_error *err)
{
    luce_status st = file_read(&o->texts, path, CONFIG_MOST_BYTES, err);
    buf_add_char(&o->texts, '\0');
    if (!st && o->texts.failed) st = fail(err, LUCE_E_NOMEM, "out of memory for %s", path);
    int number = 0;
    for (char *line = o->texts.data, *end; !st && line && *line; line = end) {
        struct buf from = { 0 };
        size_t n = strcspn(line, "\n");
        end = line + n + (line[n] == '\n');
        line[n] = '\0';
        buf_printf(&from, "%s, line %d", path, ++number);
        if (line[strspn(line, " \t\r")] && line[strspn(line, " \t")] != '#')
            st = set_from_line(o, id, buf_text(&from), line, err);
        buf_drop(&from);
    }
    return st;
}

/* What --config says among the arguments, else its variable; NULL: nothing. */
static const char *find_config(enum command_id id, int n, char **args)
{
    const char *found = getenv("LUCE_CONFIG");
    bool own;
    if (!find_name(id, "config", 6, &own)) return NULL;
    for (int i = 0; i < n && strcmp(args[i], "--"); i++) {
        if (!strncmp(args[i], "--config=", 9)) found = args[i] + 9;
        else if (!strcmp(args[i], "--config") && i + 1 < n) found = args[i + 1];
    }
    return found && *found ? found : NULL;
}

/* The words of LUCE_ARGS before the arguments of the server. */
static luce_status add_words(struct options *o, enum command_id id, int *n, char ***args, luce_error *err)
{
    const char *more = id == COMMAND_SERVE ? getenv("LUCE_ARGS") : NULL;
    int k = 0;
    if (!more || !*more) return LUCE_OK;
    size_t most = strlen(more) / 2 + 1 + (size_t)*n;
    char *text = mem_text(more, strlen(more)), *rest = NULL;
    o->words = mem_array(most + 1, sizeof *o->words);
    if (o->words) o->words[most] = text;                /* where options_drop finds it */
    if (!text || !o->words) {
        mem_free(o->words ? NULL : text);
        return fail(err, LUCE_E_NOMEM, "out of memory for LUCE_ARGS");
    }
    o->n_words = most;
    for (char *at = text, *word; (word = strtok_r(at, " \t\r\n", &rest)); at = NULL) o->words[k++] = word;
    memcpy(o->words + k, *args, (size_t)*n * sizeof **args);
    *n += k;
    *args = o->words;
    return LUCE_OK;
}

void options_drop(struct options *o)
{
    buf_drop(&o->texts);
    if (o->words) mem_free(o->words[o->n_words]);
    mem_free(o->words);
}

/* *at: which argument was read last. */
static luce_status parse_args(struct options *o, enum command_id id, const struct command *command, int n, char **args,
                              enum given *given, int *at, luce_error *err)
{
    bool only_operands = false;
    luce_status st = LUCE_OK;
    o->operands = args;
    for (int i = 0; i < n && !st; i++) {
        char *arg = args[ *at = i];
        if (only_operands || arg[0] != '-' || !arg[1]) {
            args[o->n_operands++] = arg;
            continue;
        }
        if (!strcmp(arg, "--")) {
            only_operands = true;
            continue;
        }
        bool own;
        size_t len = strcspn(arg, "=");
        const struct option *row = find(id, arg, len, &own);
        const char *instead = !row && id == COMMAND_SERVE ? option_absent(arg + 2, len > 2 ? len - 2 : 0) : NULL;
        if (instead) return fail(err, LUCE_E_ARG, "%.*s: %s", (int)len, arg, instead);
        if (!row)
            return fail(err, LUCE_E_ARG, "%s: no option '%.*s'; 'luce %s --help' lists them", command->name,
                        (int)len, arg, command->name);
        const char *value = arg[len] ? arg + len + 1 : row->type == OPT_FLAG ? "yes" : NULL;
        bool word;                          /* the server's operand is a file, which has no such name */
        if (row->type == OPT_FLAG && !arg[len] && id == COMMAND_SERVE && i + 1 < n && parse_flag(args[i + 1], &word))
            value = args[++i];
        if (!value && i + 1 < n) value = args[++i];
        arg[len] = '\0';
        if (!value) return fail(err, LUCE_E_ARG, "%s: the value is missing; expected %s", arg, row->value);
        if (!own && given[row - options_table] == BY_NAME) continue;
        if (id == COMMAND_SERVE && row == named("model") && given[row - options_table] != NOT_GIVEN)
            return fail(err, LUCE_E_ARG, "two models: one server serves one model; start a server for each");
        given[row - options_table] = own ? BY_NAME : BY_ALIAS;
        st = set(o, row, arg, value, err);
    }
    return st;
}

/* A model's file may stand alone: commands whose operand it is. */
static luce_status take_model(struct options *o, enum command_id id, const struct command *command, bool given,
                              luce_error *err)
{
    bool always = id == COMMAND_INSPECT || id == COMMAND_TRAIN_DRAFTER;     /* others have --synthetic, or say more */
    if (strcmp(command->operands, "[MODEL]")) return LUCE_OK;
    if (given && o->n_operands) return fail(err, LUCE_E_ARG, "two models: --model %s and %s", o->model, o->operands[0]);
    if (o->n_operands) o->model = o->operands[0];
    if (o->model || !always) return LUCE_OK;
    return fail(err, LUCE_E_ARG, "%s: the model is missing; usage: luce %s [options] MODEL", command->name,
                command->name);
}

luce_status options_parse(struct options *o, enum command_id id, const struct command *command,
                          int n, char **args, luce_error *err)
{
    *o = (struct options){ 0 };
    enum given given[OPTIONS_MOST] = { NOT_GIVEN };
    int n_own = n, at = INT32_MAX;
    luce_status st = add_words(o, id, &n, &args, err);
    const char *config = st ? NULL : find_config(id, n, args);
    if (!st) st = set_fallbacks(o, id, err);
    if (!st && config) st = set_from_file(o, id, config, err);
    if (!st) st = set_from_environment(o, id, err);
    if (!st) st = parse_args(o, id, command, n, args, given, &at, err);
    if (st && at < n - n_own) {
        luce_error why = *err;
        fail(err, st, "LUCE_ARGS: %s", why.text);
    }
    if (!st) st = check_rules(o, id, given, err);
    if (o->draft && (!strcmp(o->draft, "none") || !strcmp(o->draft, "off"))) o->draft = NULL;
    const struct drafter *d = !st && id != COMMAND_BENCH && o->spec ? drafter_find(o->spec) : NULL;
    if (d && d->told)
        st = fail(err, LUCE_E_ARG, "--spec %s: it is told what to guess, which only 'luce bench' does", d->name);
    if (!st && o->draft_device && strcmp(o->draft_device, "auto") && strcmp(o->draft_device, o->device))
        st = fail(err, LUCE_E_ARG, "--draft-device %s: a drafter runs on the model's device, --device %s",
                  o->draft_device, o->device);
    if (st) return st;
    if (o->n_operands > command->max_operands)
        return fail(err, LUCE_E_ARG, "%s: '%s' is too much; usage: luce %s [options]%s%s%s", command->name,
                    o->operands[command->max_operands], command->name, *command->operands ? " " : "", command->operands,
                    id == COMMAND_RUN ? "; a prompt is -p TEXT"
                    : id == COMMAND_TOKENIZE && !o->model ? "; the model is -m FILE" : "");
    if (o->n_operands < command->min_operands)
        return fail(err, LUCE_E_ARG, "%s: something is missing; usage: luce %s [options] %s",
                    command->name, command->name, command->operands);
    return take_model(o, id, command, given[named("model") - options_table] != NOT_GIVEN, err);
}

void options_aliases(struct buf *out, const struct option *row, enum command_id id)
{
    bool own;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(aliases[i].is, row->name) && find_name(id, aliases[i].name, strlen(aliases[i].name), &own) == row)
            buf_printf(out, ", also --%s", aliases[i].name);
}
