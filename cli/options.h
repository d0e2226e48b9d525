/* cli/options.h - the options of all commands, from one table.
 * A row of the table in options_table.c gives the flag (--name VALUE, --name=VALUE, -l VALUE), the variable
 * LUCE_NAME, the key of --config files, the check of its value and the line in --help. A file sets the
 * default, a variable overrides it, and a flag that; the last flag given wins. This is the only place that
 * reads the environment.
 *
 * To add an option: a field in struct options, a row in options_table.c that names the commands it is for.
 * To add a command: a row of COMMANDS below, and a file cli/NAME.c with its function. */
#ifndef LUCE_CLI_OPTIONS_H
#define LUCE_CLI_OPTIONS_H

#include "base/buf.h"
#include "base/error.h"

enum { OPTION_TEXTS_MAX = 16, OPTION_INTS_MAX = 16 };
struct option_ints {                /* of an option that is a list */
    int64_t at[OPTION_INTS_MAX];
    int n;
};
struct option_seed {
    bool given;                     /* else a random one is wanted */
    uint64_t value;
};
struct option_texts {               /* of an option that may be given several times */
    const char *at[OPTION_TEXTS_MAX];
    int n;
};

/* What the command was told. Texts are borrowed from the command line and the environment. */
struct options {
    const char *model;              /* path, or NULL */
    const char *file;               /* path of a text to read, or NULL */
    int64_t values;                 /* elements of an array that are shown */
    const char *synthetic, *device, *prompt, *system, *cache_type_k, *cache_type_v;
    const char *spec, *draft;       /* a drafter's name and file, or NULL */
    const char *draft_device, *draft_residency;
    int64_t draft_max, draft_block_size;
    bool ddtree;
    double ddtree_tau;
    double draft_right;
    const char *prompts, *log;      /* of bench --spec: folder; file of its steps, or NULL */
    /* train-drafter */
    const char *out, *from, *held_out, *python, *recipe;    /* from: folder of prompts, or NULL */
    int64_t most_texts, steps;      /* of each set; 0: all, the recipe's own number */
    double minutes;
    bool resume;
    struct option_texts stop, only;
    int64_t threads, context, chunk, max_tokens, top_k, penalty_window;
    struct option_seed seed;
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    bool chat, ignore_end, timings;
    struct option_ints depth, prompt_tokens;
    int64_t repeat;
    int64_t width;                  /* rows of the step that is shown */
    bool all;                       /* every case */
    bool tape, trace_ops, check, check_against_reference;
    bool json, special, bos, pieces, decode;
    /* serve */
    const char *model_name, *host, *tls_cert, *tls_key, *chat_template_file;
    struct option_texts api_key;
    const char *stream_usage, *thinking, *pooling, *prefix_reuse;
    int64_t port, default_max_tokens, max_concurrency, queue, max_body_mib, keep_alive;
    int64_t kv_pool_tokens, prefix_cache_mib, admission_coalesce_ms;
    int64_t think_max_tokens, hard_limit_reply_budget, effort[5];
    int64_t prefix_cache_slots, prefill_cache_slots;
    bool no_cors, list_devices, paged_attention, agent_turn_cache;
    const char *config;
    struct buf texts;               /* owned: what a configuration file and LUCE_ARGS said */
    size_t n_words;
    char **words;                   /* owned: arguments of LUCE_ARGS, then those of the command line */
    char **operands;                /* what is not an option, in order */
    int n_operands;
};

/* The commands: id, name in C, word of the command line, operands, least and most of them, summary. The function is
 * NAME_run, in cli/NAME.c. */
#define COMMANDS(X)                                                                                                   \
    X(SERVE, serve, "serve", "[MODEL]", 0, 1, "answer requests over HTTP: the APIs of OpenAI and Anthropic")          \
    X(RUN, run, "run", "[MODEL]", 0, 1, "continue a prompt, or answer it with --chat")                                \
    X(CHAT, chat, "chat", "[MODEL]", 0, 1, "talk with a model in the terminal")                                       \
    X(BENCH, bench, "bench", "[MODEL]", 0, 1, "measure a model's speed beside the machine's limits")                  \
    X(PERPLEXITY, perplexity, "perplexity", "[MODEL]", 0, 1, "measure how well a model predicts a text")              \
    X(TRAIN_DRAFTER, train_drafter, "train-drafter", "[MODEL]", 0, 1, "train a drafter for a model, with PyTorch")    \
    X(INSPECT, inspect, "inspect", "[MODEL]", 0, 1, "print what a model file holds")                                  \
    X(TOKENIZE, tokenize, "tokenize", "[TEXT]", 0, 1, "turn text into token ids, or ids into text")                   \
    X(DEVICES, devices, "devices", "", 0, 0, "list what models can run on here")                                      \
    X(DOCTOR, doctor, "doctor", "[OP]", 0, 1, "check a device's kernels against their definitions")

enum command_id {
#define ID(id, name, word, operands, least, most, summary) COMMAND_##id,
    COMMANDS(ID)
#undef ID
    COMMAND_COUNT
};

/* One row per command. */
struct command {
    const char *name;
    const char *operands;           /* in --help: "FILE", "[TEXT ...]", or "" */
    int min_operands, max_operands;
    const char *summary;            /* one line, no full stop */
    /* Does the work. Results go to standard output only when all went well; a failure is described
     * in *err and printed by main. LUCE_E_ARG ends the process with 2, LUCE_E_DEVICE with 70, any
     * other failure with 1. */
    luce_status (*run)(const struct options *o, luce_error *err);
};

/* Fills *o (options_drop, also after a failure) for command `id` from the environment and the n arguments
 * after the command's name.
 * LUCE_E_ARG names the option and what it takes. *args is reordered. */
luce_status options_parse(struct options *o, enum command_id id, const struct command *command,
                          int n, char **args, luce_error *err);
void options_drop(struct options *o);
/* Appends the command's --help. */
void options_help(struct buf *out, enum command_id id, const struct command *command);

/* The options of a command as the OPTIONS section of a manual page (man(7) source). */
void options_man(struct buf *out, enum command_id id);
/* Text with what man(7) would read as its own escaped. */
void man_text(struct buf *out, const char *text);

/* Writes the whole buffer to standard output. LUCE_E_NOMEM when the buffer had failed, else as output_failed. */
luce_status output_write(const struct buf *text, luce_error *err);
/* LUCE_E_IO from errno after a write; without a text when the reader has left, which needs no word. */
luce_status output_failed(luce_error *err);

/* Writes luce.1 and a luce-COMMAND.1 for each of n commands into a directory that is there. */
luce_status man_write(const char *directory, const struct command *commands, int n, luce_error *err);

/* The commands, each in its file; see struct command. */
#define DECLARE(id, name, word, operands, least, most, summary) \
    luce_status name##_run(const struct options *o, luce_error *err);
COMMANDS(DECLARE)
#undef DECLARE

#endif
