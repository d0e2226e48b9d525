/* cli/options.c - see options.h. */
#define _POSIX_C_SOURCE 200809L
#include "cli/options_table.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "quant/quant.h"
#include "spec/drafter.h"
#include "tape/kv.h"

static const char *drafter_name(int i)
{
    const struct drafter *d = drafter_row(i);
    return d ? d->name : NULL;
}

static const char *cache_type_name(int i)
{
    const struct format *f = kv_format((size_t)i);
    return f ? f->name : NULL;
}

#define FOR(id) (1u << COMMAND_##id)
#define AT(field) offsetof(struct options, field)
#define SAMPLES (FOR(RUN) | FOR(CHAT))
#define LOADS (SAMPLES | FOR(BENCH) | FOR(PERPLEXITY) | FOR(INSPECT) | FOR(SERVE))
#define SPECULATES (SAMPLES | FOR(BENCH) | FOR(SERVE))
enum { MOST = 1000000000 };         /* what a request takes */
const struct option options_table[] = {
    { "model", 'm', OPT_TEXT, AT(model), NULL, "FILE", 0, 0,
      SAMPLES | FOR(BENCH) | FOR(PERPLEXITY) | FOR(TOKENIZE) | FOR(SERVE),
      "the model, a GGUF file (any part of a split one)" },
    { "file", 'f', OPT_TEXT, AT(file), NULL, "FILE", 0, 0,
      FOR(TOKENIZE) | FOR(RUN) | FOR(PERPLEXITY),
      "read the text from this file" },
    { "json", 0, OPT_FLAG, AT(json), NULL, NULL, 0, 0,
      FOR(INSPECT) | FOR(TOKENIZE) | FOR(RUN) | FOR(DEVICES) | FOR(BENCH) | FOR(PERPLEXITY) | FOR(TRAIN_DRAFTER),
      "print one JSON object" },
    { "values", 0, OPT_INT, AT(values), "8", "N", 0, INT32_MAX, FOR(INSPECT),
      "show at most N elements of an array" },
    { "special", 0, OPT_FLAG, AT(special), NULL, NULL, 0, 0, FOR(TOKENIZE) | SAMPLES | FOR(PERPLEXITY),
      "text that spells a control token becomes that token, and back" },
    { "bos", 0, OPT_FLAG, AT(bos), NULL, NULL, 0, 0, FOR(TOKENIZE),
      "add the tokens that the model wants around a raw prompt" },
    { "pieces", 0, OPT_FLAG, AT(pieces), NULL, NULL, 0, 0, FOR(TOKENIZE),
      "show each token's text beside its id" },
    { "decode", 0, OPT_FLAG, AT(decode), NULL, NULL, 0, 0, FOR(TOKENIZE),
      "the other way: ids, separated by spaces or commas, to text" },
    { "synthetic", 0, OPT_TEXT, AT(synthetic), NULL, "PRESET:FORMAT", 0, 0, FOR(BENCH),
      "a model of these dimensions with random weights instead of a file" },
    { "depth", 0, OPT_INTS, AT(depth), "512", "N,N,...", 0, 1 << 24, FOR(BENCH),
      "positions that are in the cache before decode, batches and steps" },
    { "prompt-tokens", 0, OPT_INTS, AT(prompt_tokens), "512", "N,N,...", 1, 1 << 24, FOR(BENCH),
      "lengths of the prefill" },
    { "repeat", 0, OPT_INT, AT(repeat), "5", "N", 1, 1000, FOR(BENCH), "least repetitions of a test" },
    { "only", 0, OPT_TEXTS, AT(only), NULL, "TEST", 0, 0, FOR(BENCH),
      "this test alone: load, decode, batch, step or prefill (--spec: this set of prompts); may be given "
      "several times" },
    { "all", 0, OPT_FLAG, AT(all), NULL, NULL, 0, 0, FOR(DOCTOR), "every case, not a fast subset" },
    { "tape", 0, OPT_FLAG, AT(tape), NULL, NULL, 0, 0, FOR(INSPECT), "print the ops that a step runs" },
    { "trace-ops", 0, OPT_FLAG, AT(trace_ops), NULL, NULL, 0, 0, FOR(INSPECT),
      "run a step op by op: time, bandwidth and a hash of each output" },
    { "check", 0, OPT_FLAG, AT(check), NULL, NULL, 0, 0, FOR(INSPECT),
      "refuse whatever a run would refuse, without running" },
    { "check-against-reference", 0, OPT_FLAG, AT(check_against_reference), NULL, NULL, 0, 0, FOR(INSPECT),
      "compare each op of a short prompt with the float64 definitions" },
    { "width", 0, OPT_INT, AT(width), "1", "N", 1, 64, FOR(INSPECT), "rows of the step of --tape and --trace-ops" },
    { "prompt", 'p', OPT_TEXT, AT(prompt), NULL, "TEXT", 0, 0, FOR(RUN) | FOR(INSPECT),
      "the text to continue (inspect: the tokens of the step)" },
    { "chat", 0, OPT_FLAG, AT(chat), NULL, NULL, 0, 0, FOR(RUN), "put the prompt into the model's chat form" },
    { "system", 0, OPT_TEXT, AT(system), NULL, "TEXT", 0, 0, SAMPLES, "system text of a chat" },
    { "max-tokens", 'n', OPT_INT, AT(max_tokens), "0", "N", 0, MOST, SAMPLES | FOR(BENCH) | FOR(TRAIN_DRAFTER),
      "generate at most N tokens; 0: what the context leaves (bench --spec: 128, train-drafter: 256)" },
    { "temperature", 0, OPT_NUMBER, AT(temperature), "0", "T", 0, 100, SAMPLES | FOR(SERVE),
        "0: always the likeliest token" },
    { "top-k", 0, OPT_INT, AT(top_k), "0", "N", 0, MOST, SAMPLES | FOR(SERVE),
        "draw from the N likeliest tokens; 0: off" },
    { "top-p", 0, OPT_NUMBER, AT(top_p), "1", "P", 0, 1, SAMPLES | FOR(SERVE),
      "draw from the likeliest tokens that make up P together; 1: off" },
    { "min-p", 0, OPT_NUMBER, AT(min_p), "0", "P", 0, 1, SAMPLES,
      "draw from tokens at least P times as likely as the likeliest; 0: off" },
    { "repetition-penalty", 0, OPT_NUMBER, AT(repetition_penalty), "1", "X", 0, 100, SAMPLES,
      "make tokens that were seen less likely; 1: off" },
    { "presence-penalty", 0, OPT_NUMBER, AT(presence_penalty), "0", "X", -100, 100, SAMPLES,
      "subtract X from the logits of tokens that were seen" },
    { "frequency-penalty", 0, OPT_NUMBER, AT(frequency_penalty), "0", "X", -100, 100, SAMPLES,
      "subtract X for each time that a token was seen" },
    { "penalty-window", 0, OPT_INT, AT(penalty_window), "256", "N", 1, MOST, SAMPLES,
      "tokens back that penalties see, prompt included" },
    { "seed", 's', OPT_INT, AT(seed), "-1", "N", -1, 9007199254740991, SAMPLES | FOR(DOCTOR),
      "the same seed gives the same text; -1: a random one" },
    { "stop", 0, OPT_TEXTS, AT(stop), NULL, "TEXT", 0, 0, SAMPLES, "end before this text; may be given 16 times" },
    { "ignore-end", 0, OPT_FLAG, AT(ignore_end), NULL, NULL, 0, 0, SAMPLES, "go on after the model's end token" },
    { "timings", 0, OPT_FLAG, AT(timings), NULL, NULL, 0, 0, SAMPLES,
      "print the speed after each text, also when nobody watches" },
    { "spec", 0, OPT_TEXT, AT(spec), NULL, "NAME", 0, 0, SPECULATES,
      "guess ahead and check, the text stays the same" },
    { "draft", 0, OPT_TEXT, AT(draft), NULL, "FILE", 0, 0, SPECULATES,
      "the drafter's file: a small model with the same vocabulary, or a network made for the model (DFlash)" },
    { "draft-max", 0, OPT_INT, AT(draft_max), "0", "N", 0, 63, SPECULATES,
      "guess at most N tokens a step; 0: the drafter's choice" },
    { "draft-block-size", 0, OPT_INT, AT(draft_block_size), "0", "N", 0, 64, SPECULATES,
      "guess at most N - 1 tokens ahead; 0: the drafter's choice" },
    { "draft-right", 0, OPT_NUMBER, AT(draft_right), "-1", "X", -1, 63, FOR(BENCH),
      "--spec scripted: tokens of each guess that are right, on average; all guesses are checked" },
    { "prompts", 0, OPT_TEXT, AT(prompts), "bench/prompts", "FOLDER", 0, 0, FOR(BENCH),
      "prompt sets of --spec" },
    { "out", 'o', OPT_TEXT, AT(out), "drafter", "FOLDER", 0, 0, FOR(TRAIN_DRAFTER),
      "where the files of the training go, drafter.gguf in the end" },
    { "from", 0, OPT_TEXT, AT(from), NULL, "FOLDER", 0, 0, FOR(TRAIN_DRAFTER),
      "prompts to learn from, as bench --spec reads them, instead of those of the recipe" },
    { "held-out", 0, OPT_TEXT, AT(held_out), "bench/prompts/held-out", "FOLDER", 0, 0, FOR(TRAIN_DRAFTER),
      "prompts that the drafter never sees and is judged by" },
    { "texts", 0, OPT_INT, AT(most_texts), "0", "N", 0, MOST, FOR(TRAIN_DRAFTER), "use N prompts of each set; 0: all" },
    { "steps", 0, OPT_INT, AT(steps), "0", "N", 0, MOST, FOR(TRAIN_DRAFTER), "steps of the training; 0: the recipe's" },
    { "minutes", 0, OPT_NUMBER, AT(minutes), "0", "X", 0, 100000, FOR(TRAIN_DRAFTER),
      "end the training after so many minutes of it; 0: when its steps are done" },
    { "resume", 0, OPT_FLAG, AT(resume), NULL, NULL, 0, 0, FOR(TRAIN_DRAFTER), "go on with what is in --out" },
    { "python", 0, OPT_TEXT, AT(python), "python3", "PROGRAM", 0, 0, FOR(TRAIN_DRAFTER), "a Python that has PyTorch" },
    { "recipe", 0, OPT_TEXT, AT(recipe), "training", "FOLDER", 0, 0, FOR(TRAIN_DRAFTER),
      "the programs of the training, a folder of luce's sources" },
    { "device", 'd', OPT_TEXT, AT(device), "auto", "ID", 0, 0, LOADS | FOR(DOCTOR) | FOR(TRAIN_DRAFTER),
        "where to run; 'luce devices' lists ids" },
    { "threads", 't', OPT_INT, AT(threads), "0", "N", 0, 1024, LOADS | FOR(DEVICES) | FOR(DOCTOR) | FOR(TRAIN_DRAFTER),
      "threads of the CPU; 0: what the machine has" },
    { "context", 'c', OPT_INT, AT(context), "0", "N", 0, INT32_MAX, LOADS,
      "most positions of a text; 0: the model's, or what fits (perplexity: the window; 0: 512)" },
    { "cache-type-k", 0, OPT_TEXT, AT(cache_type_k), "f16", "TYPE", 0, 0, LOADS,
      "format of keys in the cache" },
    { "cache-type-v", 0, OPT_TEXT, AT(cache_type_v), "f16", "TYPE", 0, 0, LOADS, "format of values in the cache" },
    { "chunk", 0, OPT_INT, AT(chunk), "0", "N", 0, 2048, LOADS | FOR(TRAIN_DRAFTER),
      "prompt tokens of one step; 0: the device's choice" },
    { "model-name", 0, OPT_TEXT, AT(model_name), "luce", "NAME", 0, 0, FOR(SERVE),
        "the model's id in requests and replies" },
    { "chat-template-file", 0, OPT_TEXT, AT(chat_template_file), NULL, "FILE", 0, 0, FOR(SERVE),
      "a Jinja template in place of the model's own" },
    { "host", 0, OPT_TEXT, AT(host), "127.0.0.1", "ADDRESS", 0, 0, FOR(SERVE),
      "where to listen; others than the loopback should have --api-key" },
    { "port", 0, OPT_INT, AT(port), "8080", "N", 0, 65535, FOR(SERVE), "port to listen on; 0: a free one" },
    { "api-key", 0, OPT_TEXTS, AT(api_key), NULL, "KEY", 0, 0, FOR(SERVE),
      "ask for this key on every route but /health; may be given several times" },
    { "no-cors", 0, OPT_FLAG, AT(no_cors), NULL, NULL, 0, 0, FOR(SERVE),
        "send no CORS headers: pages of other sites are shut out" },
    { "tls-cert", 0, OPT_TEXT, AT(tls_cert), NULL, "FILE", 0, 0, FOR(SERVE),
        "speak HTTPS with this certificate (PEM)" },
    { "tls-key", 0, OPT_TEXT, AT(tls_key), NULL, "FILE", 0, 0, FOR(SERVE), "the key of the certificate (PEM)" },
    { "default-max-tokens", 0, OPT_INT, AT(default_max_tokens), "0", "N", 0, INT32_MAX, FOR(SERVE),
      "tokens of an answer when the request does not say; 0: what the context leaves" },
    { "max-concurrency", 0, OPT_INT, AT(max_concurrency), "4", "N", 1, 64, FOR(SERVE), "requests that run at once" },
    { "queue", 0, OPT_INT, AT(queue), "32", "N", 0, 100000, FOR(SERVE), "requests that may wait; more get status 429" },
    { "max-body-mib", 0, OPT_INT, AT(max_body_mib), "64", "N", 1, 1024, FOR(SERVE), "largest body of a request" },
    { "keep-alive", 0, OPT_INT, AT(keep_alive), "4", "SECONDS", 1, 60, FOR(SERVE), "longest silence in a stream" },
    { "stream-usage", 0, OPT_TEXT, AT(stream_usage), "asked", "always|asked", 0, 0, FOR(SERVE),
      "end every stream with its usage, or those whose request asks for it" },
    { "kv-pool-tokens", 0, OPT_INT, AT(kv_pool_tokens), "0", "N", 0, INT64_C(1) << 40, FOR(SERVE),
      "positions in the cache for all requests together; 0: the context for each, or what fits" },
    { "prefix-reuse", 0, OPT_TEXT, AT(prefix_reuse), "exact", "exact|fast|off", 0, 0, FOR(SERVE),
      "what ended texts leave in the cache for those that begin alike: what changes no bit of theirs; also what may "
      "change near ties; nothing" },
    { "prefix-cache-max-mib", 0, OPT_INT, AT(prefix_cache_mib), "0", "N", 0, INT64_C(1) << 30, FOR(SERVE),
      "most of the cache that ended texts may hold; 0: what no running text needs" },
    { "admission-coalesce-ms", 0, OPT_INT, AT(admission_coalesce_ms), "0", "N", 0, 1000, FOR(SERVE),
      "an idle server waits so long after the first request, for others to begin with it" },
    { "thinking", 0, OPT_TEXT, AT(thinking), "template", "template|on|off", 0, 0, FOR(SERVE),
      "reasoning of requests that do not say" },
    { "think-max-tokens", 0, OPT_INT, AT(think_max_tokens), "0", "N", 0, INT32_MAX, FOR(SERVE),
      "end reasoning after N tokens, whatever a request allows; 0: no bound" },
    { "hard-limit-reply-budget", 0, OPT_INT, AT(hard_limit_reply_budget), "4096", "N", 0, INT32_MAX, FOR(SERVE),
      "tokens that bounded reasoning leaves to the answer, at most half of them; 0: none" },
    { "reasoning-effort-low", 0, OPT_INT, AT(effort[0]), "0", "N", 0, INT32_MAX, FOR(SERVE),
      "tokens of reasoning at this effort; 0: an eighth of what --default-max-tokens leaves" },
    { "reasoning-effort-medium", 0, OPT_INT, AT(effort[1]), "0", "N", 0, INT32_MAX, FOR(SERVE), "likewise; 0: half" },
    { "reasoning-effort-high", 0, OPT_INT, AT(effort[2]), "0", "N", 0, INT32_MAX, FOR(SERVE), "likewise; 0: all" },
    { "reasoning-effort-x-high", 0, OPT_INT, AT(effort[3]), "0", "N", 0, INT32_MAX, FOR(SERVE), "likewise; 0: all" },
    { "reasoning-effort-max", 0, OPT_INT, AT(effort[4]), "0", "N", 0, INT32_MAX, FOR(SERVE), "likewise; 0: all" },
    { "pooling", 0, OPT_TEXT, AT(pooling), "mean", "mean|last", 0, 0, FOR(SERVE),
      "embeddings: the mean over all tokens, or the last token's" },
    { "paged-attention", 0, OPT_FLAG, AT(paged_attention), "yes", NULL, 0, 0, FOR(SERVE),
      "the cache is always in pages; 'no' is refused" },
    { "list-devices", 0, OPT_FLAG, AT(list_devices), NULL, NULL, 0, 0, FOR(SERVE), "print the devices and end" },
    { "config", 0, OPT_TEXT, AT(config), NULL, "FILE", 0, 0, FOR(SERVE),
      "read options from this file: lines of NAME: VALUE, # comments" },
};

/* Options whose value names a row of another table: row i's name, NULL past the end. */
static const struct { size_t at; const char *(*name)(int i); } lists[] = {
    { AT(spec), drafter_name }, { AT(cache_type_k), cache_type_name }, { AT(cache_type_v), cache_type_name },
};

/* Flags that would have no effect without one of the others, or beside one of them: they are refused. */
enum relation { NEEDS, EXCLUDES };
static const struct rule {
    unsigned commands;
    enum relation relation;
    const char *name, *others[4];
} rules[] = {
    { FOR(RUN), NEEDS, "system", { "chat" } },
    { SPECULATES, NEEDS, "draft-max", { "spec", "draft" } },
    { SPECULATES, NEEDS, "draft-block-size", { "spec", "draft" } },
    { FOR(BENCH), NEEDS, "draft-right", { "spec" } },
    { FOR(BENCH), NEEDS, "prompts", { "spec", "draft" } },
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
enum { N_OPTIONS = sizeof options_table / sizeof *options_table, CONFIG_MOST_BYTES = 1 << 20 };
const int options_count = N_OPTIONS;

/* Other names of an option, which give way to its own. */
static const struct { const char *name, *is; } aliases[] = {
    { "max-ctx", "context" }, { "target-device", "device" }, { "target", "model" }, { "routing-queue-limit", "queue" },
    { "max-tokens", "default-max-tokens" }, { "think-max", "think-max-tokens" }, { "ddtree-budget", "draft-max" },
    { "budget", "draft-max" }, { "verify-width", "draft-block-size" }, { "kv-k", "cache-type-k" },
    { "kv-v", "cache-type-v" }, { "concurrent-prefix-cache-max-mib", "prefix-cache-max-mib" },
};

/* Words that stand for a value. */
static const struct { const char *option, *word, *value; } spoken[] = {
    { "context", "auto", "0" }, { "kv-pool-tokens", "auto", "0" }, { "chunk", "auto", "0" }, { "threads", "auto", "0" },
    { "prefix-cache-max-mib", "auto", "0" },
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
static bool is_one_of(const char *choices, const char *text)
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
        if (row->value && strchr(row->value, '|') && !is_one_of(row->value, text))
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
    for (int i = 0; i < N_OPTIONS; i++)
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
    for (int i = 0; i < N_OPTIONS && !st; i++)
        if (is_for(&options_table[i], id) && options_table[i].fallback)
            st = set(o, &options_table[i], options_table[i].name, options_table[i].fallback, err);
    return st;
}

static luce_status set_from_environment(struct options *o, enum command_id id, luce_error *err)
{
    luce_status st = LUCE_OK;
    bool own;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases && !st; i++) {
        const struct option *row = find_name(id, aliases[i].name, strlen(aliases[i].name), &own);
        if (row && !own) st = set_from_variable(o, row, aliases[i].name, err);
    }
    for (int i = 0; i < N_OPTIONS && !st; i++)
        if (is_for(&options_table[i], id))
            st = set_from_variable(o, &options_table[i], options_table[i].name, err);
    return st;
}

/* The row that `arg` (its first len bytes: without "=VALUE") names, or NULL. */
static const struct option *find(enum command_id id, const char *arg, size_t len, bool *own)
{
    if (arg[1] == '-') return find_name(id, arg + 2, len - 2, own);
    *own = true;
    for (const struct option *row = options_table; row < options_table + N_OPTIONS; row++)
        if (len == 2 && row->letter && arg[1] == row->letter && is_for(row, id)) return row;
    return NULL;
}

static char *trim(char *at)
{
    at += strspn(at, " \t");
    for (size_t n = strlen(at); n && strchr(" \t\r", at[n - 1]); n--) at[n - 1] = '\0';
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
    if (!row || !strcmp(row->name, "config")) return fail(err, LUCE_E_ARG, "%s: no option '%s'", from, name);
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

static luce_status parse_args(struct options *o, enum command_id id, const struct command *command, int n, char **args,
                              enum given *given, luce_error *err)
{
    bool only_operands = false;
    luce_status st = LUCE_OK;
    o->operands = args;
    for (int i = 0; i < n && !st; i++) {
        char *arg = args[i];
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
        if (!row)
            return fail(err, LUCE_E_ARG, "%s: no option '%.*s'; 'luce %s --help' lists them", command->name,
                        (int)len, arg, command->name);
        const char *value = arg[len] ? arg + len + 1 : row->type == OPT_FLAG ? "yes" : NULL;
        if (!value && i + 1 < n) value = args[++i];
        arg[len] = '\0';
        if (!value) return fail(err, LUCE_E_ARG, "%s: the value is missing; expected %s", arg, row->value);
        if (!own && given[row - options_table] == BY_NAME) continue;
        given[row - options_table] = own ? BY_NAME : BY_ALIAS;
        st = set(o, row, arg, value, err);
    }
    return st;
}

luce_status options_parse(struct options *o, enum command_id id, const struct command *command,
                          int n, char **args, luce_error *err)
{
    *o = (struct options){ 0 };
    enum given given[N_OPTIONS] = { NOT_GIVEN };
    luce_status st = add_words(o, id, &n, &args, err);
    const char *config = st ? NULL : find_config(id, n, args);
    if (!st) st = set_fallbacks(o, id, err);
    if (!st && config) st = set_from_file(o, id, config, err);
    if (!st) st = set_from_environment(o, id, err);
    if (!st) st = parse_args(o, id, command, n, args, given, err);
    if (!st) st = check_rules(o, id, given, err);
    const struct drafter *d = !st && id != COMMAND_BENCH && o->spec ? drafter_find(o->spec) : NULL;
    if (d && d->told)
        st = fail(err, LUCE_E_ARG, "--spec %s: it is told what to guess, which only 'luce bench' does", d->name);
    if (st) return st;
    if (o->n_operands > command->max_operands)
        return fail(err, LUCE_E_ARG, "%s: '%s' is too much; usage: luce %s [options] %s", command->name,
                    o->operands[command->max_operands], command->name, command->operands);
    if (o->n_operands < command->min_operands)
        return fail(err, LUCE_E_ARG, "%s: something is missing; usage: luce %s [options] %s",
                    command->name, command->name, command->operands);
    return LUCE_OK;
}

void options_known(struct buf *out, const struct option *row)
{
    for (size_t l = 0; l < COUNT(lists); l++)
        for (int i = 0; lists[l].at == row->at && lists[l].name(i); i++)
            buf_printf(out, "%s%s", i ? ", " : ": ", lists[l].name(i));
}

void options_aliases(struct buf *out, const struct option *row, enum command_id id)
{
    bool own;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(aliases[i].is, row->name) && find_name(id, aliases[i].name, strlen(aliases[i].name), &own) == row)
            buf_printf(out, ", also --%s", aliases[i].name);
}
