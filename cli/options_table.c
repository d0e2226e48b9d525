/* cli/options_table.c - the options of all commands, a row each; see options.h. */
#include "cli/options_table.h"

#include <stddef.h>

#include "base/mem.h"
#include "quant/quant.h"
#include "spec/drafter.h"
#include "tape/kv.h"

/* Adds what the i-th value of an option is called, if the command takes it; false: there is no i-th. */
static bool add_drafter(struct buf *out, int i, enum command_id id, const char *before)
{
    const struct drafter *d = drafter_row(i);
    if (d && d->told && id == COMMAND_BENCH) buf_printf(out, "%s%s (%s)", before, d->name, d->doc);
    else if (d && !d->told) buf_printf(out, "%s%s", before, d->name);
    return d != NULL;
}

static bool add_cache_type(struct buf *out, int i, enum command_id id, const char *before)
{
    const struct format *f = kv_format((size_t)i);
    (void)id;
    if (f) buf_printf(out, "%s%s", before, f->name);
    return f != NULL;
}

#define FOR(id) (1u << COMMAND_##id)
#define AT(field) offsetof(struct options, field)
#define SAMPLES (FOR(RUN) | FOR(CHAT))
#define LOADS (SAMPLES | FOR(BENCH) | FOR(PERPLEXITY) | FOR(INSPECT) | FOR(SERVE))
#define SPECULATES (SAMPLES | FOR(BENCH) | FOR(SERVE))
enum { MOST = 1000000000 };         /* what a request takes */
const struct option options_table[] = {
    { "model", 'm', OPT_TEXT, AT(model), NULL, "FILE", 0, 0,
      SAMPLES | FOR(BENCH) | FOR(PERPLEXITY) | FOR(TOKENIZE) | FOR(SERVE) | FOR(INSPECT) | FOR(TRAIN_DRAFTER),
      "the model, a GGUF file (any part of a split one); may stand alone where nothing else can" },
    { "file", 'f', OPT_TEXT, AT(file), NULL, "FILE", 0, 0,
      FOR(TOKENIZE) | FOR(RUN) | FOR(PERPLEXITY),
      "read the text from this file" },
    { "json", 0, OPT_FLAG, AT(json), NULL, NULL, 0, 0,
      FOR(INSPECT) | FOR(TOKENIZE) | FOR(RUN) | FOR(DEVICES) | FOR(BENCH) | FOR(PERPLEXITY) | FOR(TRAIN_DRAFTER),
      "print JSON: one object, of devices a list" },
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
    { "repeat", 0, OPT_INT, AT(repeat), "5", "N", 1, 1000, FOR(BENCH), "least rounds of a test" },
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
    { "seed", 's', OPT_SEED, AT(seed), "-1", "N", 0, 0, SAMPLES | FOR(DOCTOR),
      "the same seed, any whole number of 64 bits, gives the same text; -1: a random one" },
    { "stop", 0, OPT_TEXTS, AT(stop), NULL, "TEXT", 0, 0, SAMPLES, "end before this text; may be given 16 times" },
    { "ignore-end", 0, OPT_FLAG, AT(ignore_end), NULL, NULL, 0, 0, SAMPLES, "go on after the model's end token" },
    { "timings", 0, OPT_FLAG, AT(timings), NULL, NULL, 0, 0, SAMPLES,
      "print the speed after each text, also when nobody watches" },
    { "spec", 0, OPT_TEXT, AT(spec), NULL, "NAME", 0, 0, SPECULATES,
      "guess ahead and check, the text stays the same" },
    { "draft", 0, OPT_TEXT, AT(draft), NULL, "FILE", 0, 0, SPECULATES,
      "the drafter's file: a small model with the same vocabulary, or a network made for the model (DFlash); "
      "a folder: the one GGUF file in it; none" },
    { "draft-max", 0, OPT_INT, AT(draft_max), "0", "N", 0, 63, SPECULATES,
      "guess at most N tokens a step; 0: the drafter's choice" },
    { "draft-block-size", 0, OPT_INT, AT(draft_block_size), "0", "N", 0, 64, SPECULATES,
      "guess at most N - 1 tokens ahead; 0: the drafter's choice" },
    { "ddtree", 0, OPT_FLAG, AT(ddtree), "yes", NULL, 0, 0, SPECULATES,
      "guess branches beside the likeliest chain, where the drafter can (dflash); =no: chains" },
    { "ddtree-tau", 0, OPT_NUMBER, AT(ddtree_tau), "0", "X", 0, 1000, SPECULATES,
      "leave out of a tree what is less likely than e^-X times its likeliest path; 0: nothing" },
    { "draft-device", 0, OPT_TEXT, AT(draft_device), "auto", "ID", 0, 0, SPECULATES,
      "where the drafter runs: the model's own device" },
    { "draft-residency", 0, OPT_TEXT, AT(draft_residency), "auto", "auto|persistent|request-scoped", 0, 0, FOR(SERVE),
      "how long the drafter is loaded: always as long as its model; 'request-scoped' is refused" },
    { "draft-right", 0, OPT_NUMBER, AT(draft_right), "-1", "X", -1, 63, FOR(BENCH),
      "--spec scripted: tokens of each guess that are right, on average; all guesses are checked" },
    { "prompts", 0, OPT_TEXT, AT(prompts), "bench/prompts", "FOLDER", 0, 0, FOR(BENCH),
      "prompt sets of --spec" },
    { "log", 0, OPT_TEXT, AT(log), NULL, "FILE", 0, 0, FOR(BENCH),
      "write each step of --spec to FILE: what was guessed, what came true, and the time (JSON, a line a step)" },
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
    { "resume", 0, OPT_FLAG, AT(resume), NULL, NULL, 0, 0, FOR(TRAIN_DRAFTER),
      "go on with what is in --out: the same command again, other --steps and --minutes apart" },
    { "python", 0, OPT_TEXT, AT(python), "python3", "PROGRAM", 0, 0, FOR(TRAIN_DRAFTER), "a Python that has PyTorch" },
    { "recipe", 0, OPT_TEXT, AT(recipe), "training", "FOLDER", 0, 0, FOR(TRAIN_DRAFTER),
      "the programs of the training, a folder of luce's sources" },
    { "device", 'd', OPT_TEXT, AT(device), "auto", "ID", 0, 0, LOADS | FOR(TRAIN_DRAFTER),
        "where to run; 'luce devices' lists ids" },
    { "device", 'd', OPT_TEXT, AT(device), NULL, "ID", 0, 0, FOR(DOCTOR),
      "the one to check; 'luce devices' lists ids; without it, all" },
    { "threads", 't', OPT_INT, AT(threads), "0", "N", 0, 1024, LOADS | FOR(DEVICES) | FOR(DOCTOR) | FOR(TRAIN_DRAFTER),
      "threads of the CPU; 0: what the machine has" },
    { "context", 'c', OPT_INT, AT(context), "0", "N", 0, INT32_MAX, LOADS,
      "most positions of a text; 0: the model's, or what fits (perplexity: the window; 0: 512)" },
    { "cache-type-k", 0, OPT_TEXT, AT(cache_type_k), "f16", "TYPE", 0, 0, LOADS,
      "format of keys in the cache" },
    { "cache-type-v", 0, OPT_TEXT, AT(cache_type_v), "f16", "TYPE", 0, 0, LOADS, "format of values in the cache" },
    { "chunk", 0, OPT_INT, AT(chunk), "0", "N", 0, 4096, LOADS | FOR(TRAIN_DRAFTER),
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
    { "agent-turn-cache", 0, OPT_FLAG, AT(agent_turn_cache), "yes", NULL, 0, 0, FOR(SERVE),
      "answers stay in the cache for the turns that follow; 'no' is refused (see --prefix-reuse)" },
    { "prefix-cache-slots", 0, OPT_INT, AT(prefix_cache_slots), "32", "N", 0, INT32_MAX, FOR(SERVE),
      "0: as --prefix-reuse off; any other number: what fits, the cache has no slots" },
    { "prefill-cache-slots", 0, OPT_INT, AT(prefill_cache_slots), "0", "N", 0, INT32_MAX, FOR(SERVE),
      "any number: whole prompts stay in the cache as long as they fit, see --prefix-reuse" },
    { "list-devices", 0, OPT_FLAG, AT(list_devices), NULL, NULL, 0, 0, FOR(SERVE), "print the devices and end" },
    { "config", 0, OPT_TEXT, AT(config), NULL, "FILE", 0, 0, FOR(SERVE),
      "read options from this file: lines of NAME: VALUE, # comments" },
};

const int options_count = (int)COUNT(options_table);
_Static_assert(COUNT(options_table) <= OPTIONS_MOST, "raise OPTIONS_MOST");

/* Options whose value names a row of another table. */
static const struct {
    size_t at;
    bool (*add)(struct buf *out, int i, enum command_id id, const char *before);
} lists[] = {
    { AT(spec), add_drafter }, { AT(cache_type_k), add_cache_type }, { AT(cache_type_v), add_cache_type },
};

void options_known(struct buf *out, const struct option *row, enum command_id id)
{
    for (size_t l = 0; l < COUNT(lists); l++)
        for (int i = 0; lists[l].at == row->at && lists[l].add(out, i, id, i ? ", " : ": "); i++) {}
}
