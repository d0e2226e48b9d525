/* tests/server/script_server.c - a server whose model writes what a script says: a real model with weights
 * of zero, behind the real engine, with the logits of each script in place of its own.
 *
 *   luce_script_server SCRIPTS.json MODEL.gguf   writes the model, serves it, prints the port
 *
 * SCRIPTS.json: {"context": N, "sequences": N, "queue": N, "keys": [...], "keep_alive_ms": N, "template": "...", "name": "...",
 *   "scripts": {NAME: {"pieces": [HEX, ...], "pace_ms": N, "prefill_us": N, "nan_at": N, "flat": true,
 *   "endless": true, "lose": true, "right": X}}, "drafter": NAME, "words": ["...", ...]}
 * A request whose prompt holds [[NAME]] gets one piece per token, then the end. pace_ms: sleep before each
 * token; prefill_us: before each row of a prompt; flat: all tokens are equally likely; endless: the last
 * piece comes again and again; lose: the device fails after the pieces; right: of each guess of the drafter "scripted" so many tokens are right.
 * words: have a token each, so that long prompts are cheap. */
#define _GNU_SOURCE
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../toy_vocab.h"
#include "engine/inside.h"
#include "gguf/writer.h"
#include "quant/quant.h"
#include "server/server.h"

enum { EMBD = 64, FF = 64, SCRIPTS = 4096 };

struct play {
    int32_t name, *token;
    int n, pace_ms, prefill_us, nan_at;
    bool flat, endless, lose;
    double right;
};

static const char chatml[] =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
static struct play scripts[SCRIPTS];
static int n_scripts;
static int32_t end_id;
static struct luce_model *the_model;
static bool lost;                   /* steps of the device fail */
static const struct device_fns *the_fns;

static luce_status run_or_fail(struct device *d, struct program *p, const struct step *s, trace_fn trace, void *user,
                               luce_error *err)
{
    return lost ? fail(err, LUCE_E_DEVICE, "the device fell off") : the_fns->run(d, p, s, trace, user, err);
}

static void nap_us(long us)
{
    if (us > 0) nanosleep(&(struct timespec){ .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 }, NULL);
}

static const struct play *script_of(const struct request *r)
{
    for (int i = r->n_before + r->n_prompt - 1; i >= 0; i--)
        if (r->ids[i] > end_id)
            for (int s = 0; s < n_scripts; s++)
                if (scripts[s].name == r->ids[i]) return &scripts[s];
    return NULL;
}

static void before_step(void *context, enum step_class class, int n_rows)
{
    const struct scheduler *s = &the_model->scheduler;
    int pace = 0;
    (void)context;
    long prefill = 0;
    (void)class;
    for (int i = 0; i < s->n_active; i++) {
        const struct play *c = script_of(s->active[i]);
        if (!c) continue;
        if (s->active[i]->state == REQUEST_DECODE && c->pace_ms > pace) pace = c->pace_ms;
        if (s->active[i]->state == REQUEST_PROMPT && c->prefill_us > prefill) prefill = c->prefill_us;
    }
    nap_us(pace * 1000L + prefill * n_rows);
}

/* Tells the drafter "scripted" what this request will say. */
static void tell_drafter(const struct request *r, const struct play *play)
{
    const struct scheduler *s = &the_model->scheduler;
    for (int i = 0; i < s->n_active; i++)
        if (s->active[i] == r)
            s->active[i]->script = (struct script){ .tokens = play->token, .n = play->n + 1,
                                                    .from = r->n_before + r->n_prompt, .right = play->right };
}

static bool write_logits(void *context, const struct request *r, float *logits)
{
    const struct play *s = script_of(r);
    int vocab = *(int *)context, at = r->n_ids - r->n_before - r->n_prompt;
    if (!s || s->flat) return false;
    if (at == 0) tell_drafter(r, s);
    for (int i = 0; i < vocab; i++) logits[i] = -20;
    if (s->endless && at >= s->n) at = s->n - 1;
    logits[at < s->n ? s->token[at] : end_id] = 20;
    lost = lost || (s->lose && at + 1 >= s->n);
    if (s->nan_at && at == s->nan_at)
        for (int i = 0; i < vocab; i++) logits[i] = NAN;
    return true;
}

static size_t from_hex(const char *hex, char *out)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        char two[3] = { hex[2 * i], hex[2 * i + 1], 0 };
        out[i] = (char)strtol(two, NULL, 16);
    }
    return n;
}

static int32_t piece_id(struct toy *toy, const char *hex)
{
    static char bytes[1 << 16];
    size_t n = from_hex(hex, bytes);
    if (n == 1) return (unsigned char)bytes[0];
    struct str text = toy_alphabet(toy, (struct str){ bytes, n });
    for (size_t i = 0; i < toy->source.n_tokens; i++)
        if (toy->kinds[i] == TOKEN_NORMAL && str_eq(toy->tokens[i], text)) return (int32_t)i;
    return toy_token(toy, text, TOKEN_NORMAL, 0);
}

static int64_t number(const json_t *o, const char *key, int64_t usual)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? json_integer_value(v) : usual;
}

static void add_scripts(struct toy *toy, json_t *all)
{
    const char *name;
    json_t *one, *piece;
    size_t i;
    json_object_foreach(all, name, one) {
        struct play *s = &scripts[n_scripts++];
        struct buf mark = { 0 };
        buf_printf(&mark, "[[%s]]", name);
        json_t *pieces = json_object_get(one, "pieces");
        *s = (struct play){ .pace_ms = (int)number(one, "pace_ms", 0), .prefill_us = (int)number(one, "prefill_us", 0),
                              .nan_at = (int)number(one, "nan_at", 0), .flat = json_is_true(json_object_get(one, "flat")),
                              .endless = json_is_true(json_object_get(one, "endless")),
                              .lose = json_is_true(json_object_get(one, "lose")),
                              .right = json_number_value(json_object_get(one, "right")) };
        s->token = calloc(json_array_size(pieces) + 1, sizeof *s->token);
        json_array_foreach(pieces, i, piece) s->token[s->n++] = piece_id(toy, json_string_value(piece));
        s->token[s->n] = end_id;
        s->name = toy_token(toy, (struct str){ mark.data, mark.len }, TOKEN_USER_DEFINED, 0);
        buf_drop(&mark);
    }
}

static void add_tensor(struct gguf_writer *w, const char *name, int in, int out, const float *data)
{
    gguf_add_tensor(w, &(struct gguf_source){ .name = name, .dim = { (uint64_t)in, (uint64_t)out },
                                              .n_dims = out ? 2 : 1, .type = Q_F32, .data = data });
}

static luce_status write_model(const char *path, struct toy *toy, const char *form, int context, luce_error *err)
{
    int vocab = (int)toy->source.n_tokens;
    float *zeros = calloc((size_t)vocab * EMBD, sizeof *zeros), ones[EMBD];
    for (int i = 0; i < EMBD; i++) ones[i] = 1;
    struct gguf_writer w = { 0 };
    gguf_add_text(&w, "general.architecture", str_of("llama"));
    gguf_add_u32(&w, "llama.block_count", 1);
    gguf_add_u32(&w, "llama.context_length", (uint32_t)context);
    gguf_add_u32(&w, "llama.embedding_length", EMBD);
    gguf_add_u32(&w, "llama.feed_forward_length", FF);
    gguf_add_u32(&w, "llama.attention.head_count", 2);
    gguf_add_u32(&w, "llama.attention.head_count_kv", 1);
    gguf_add_f32(&w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_add_text(&w, "tokenizer.ggml.model", str_of("gpt2"));
    gguf_add_text(&w, "tokenizer.ggml.pre", str_of("gpt-2"));
    gguf_add_texts(&w, "tokenizer.ggml.tokens", toy->tokens, toy->source.n_tokens);
    gguf_add_array(&w, "tokenizer.ggml.token_type", GGUF_I32, toy->kinds, toy->source.n_tokens);
    gguf_add_texts(&w, "tokenizer.ggml.merges", toy->merges, toy->source.n_merges);
    gguf_add_u32(&w, "tokenizer.ggml.eos_token_id", (uint32_t)end_id);
    gguf_add_text(&w, "tokenizer.chat_template", str_of(form));
    add_tensor(&w, "token_embd.weight", EMBD, vocab, zeros);
    add_tensor(&w, "output_norm.weight", EMBD, 0, ones);
    add_tensor(&w, "output.weight", EMBD, vocab, zeros);
    static const struct { const char *name; int in, out; } layer[] = {
        { "blk.0.attn_q.weight", EMBD, 64 }, { "blk.0.attn_k.weight", EMBD, 32 }, { "blk.0.attn_v.weight", EMBD, 32 },
        { "blk.0.attn_output.weight", 64, EMBD }, { "blk.0.ffn_gate.weight", EMBD, FF },
        { "blk.0.ffn_up.weight", EMBD, FF }, { "blk.0.ffn_down.weight", FF, EMBD },
    };
    add_tensor(&w, "blk.0.attn_norm.weight", EMBD, 0, ones);
    add_tensor(&w, "blk.0.ffn_norm.weight", EMBD, 0, ones);
    for (size_t i = 0; i < COUNT(layer); i++) add_tensor(&w, layer[i].name, layer[i].in, layer[i].out, zeros);
    luce_status st = gguf_write(&w, path, err);
    gguf_writer_drop(&w);
    free(zeros);
    return st;
}

static luce_status serve(const char *path, const json_t *all, luce_error *err)
{
    static const char *keys[16];
    struct server *s;
    int vocab, n_keys = 0, signal_number;
    size_t i;
    json_t *key, *host = json_object_get(all, "host");
    json_array_foreach(json_object_get(all, "keys"), i, key) if (n_keys < 16) keys[n_keys++] = json_string_value(key);
    const char *name = json_string_value(json_object_get(all, "name"));
    struct server_params p = {
        .name = name ? name : "script", .path = path, .reply_budget = number(all, "reply_budget", 1024),
        .think_max = number(all, "think_max", 0), .thinking = (int)number(all, "thinking", 0),
        .max_tokens = number(all, "max_tokens", 0), .engine = { .queue = (int)number(all, "queue", 32),
                                                               .gather_ms = (int)number(all, "gather_ms", 0) }, .top_p = 1,
        .http = { .host = json_is_string(host) ? json_string_value(host) : "127.0.0.1", .cors = true, .keys = keys, .n_keys = n_keys, .body_bytes = 8 << 20,
                  .keep_alive_ms = (int)number(all, "keep_alive_ms", 4000),
                  .cert = json_string_value(json_object_get(all, "cert")),
                  .key = json_string_value(json_object_get(all, "key")),
                  .connections = (int)number(all, "connections", 0), .head_seconds = (int)number(all, "head_seconds", 0),
                  .body_seconds = (int)number(all, "body_seconds", 0),
                  .stall_seconds = (int)number(all, "stall_seconds", 0),
                  .held_bytes = (size_t)number(all, "held_bytes", 0) } };
    json_array_foreach(json_object_get(all, "effort"), i, key) if (i < EFFORTS) p.effort[i] = json_integer_value(key);
    luce_model_params model = { .path = path, .device = "cpu", .threads = 1, .chunk = 128,
                                .sequences = (int)number(all, "sequences", 4),
                                .drafter = json_string_value(json_object_get(all, "drafter")) };
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    signal(SIGPIPE, SIG_IGN);
    luce_status st = luce_model_open(&the_model, &model, err);
    if (st) return st;
    vocab = luce_model_describe(the_model).vocabulary;
    struct step_hook hook = { .context = &vocab, .step = before_step, .logits = write_logits };
    the_model->scheduler.hook = &hook;
    the_fns = the_model->device->fns;
    static struct device_fns fns;
    fns = *the_fns;
    fns.run = run_or_fail;
    the_model->device->fns = &fns;
    if ((st = server_open(&s, the_model, &p, err))) return st;
    printf("%d\n", server_port(s));
    fflush(stdout);
    sigwait(&wanted, &signal_number);
    sigprocmask(SIG_UNBLOCK, &wanted, NULL);        /* a second one ends it at once */
    server_close(s);
    return LUCE_OK;
}

int main(int argc, char **argv)
{
    luce_error err = { 0 };
    json_error_t bad;
    json_t *word;
    size_t w;
    json_set_alloc_funcs(mem_alloc, mem_free);
    json_t *all = argc == 3 ? json_load_file(argv[1], 0, &bad) : NULL;
    if (!all) {
        fprintf(stderr, "usage: luce_script_server SCRIPTS.json MODEL.gguf\n");
        return 2;
    }
    struct toy *toy = toy_new("gpt2", "gpt-2");
    toy_token(toy, str_of("<|im_start|>"), TOKEN_CONTROL, 0);
    end_id = toy_token(toy, str_of("<|im_end|>"), TOKEN_CONTROL, 0);
    const char *form = json_string_value(json_object_get(all, "template"));
    json_array_foreach(json_object_get(all, "words"), w, word)
        toy_token(toy, str_of(json_string_value(word)), TOKEN_USER_DEFINED, 0);
    add_scripts(toy, json_object_get(all, "scripts"));
    luce_status st = write_model(argv[2], toy, form ? form : chatml, (int)number(all, "context", 4096), &err);
    if (!st) st = serve(argv[2], all, &err);
    if (st) fprintf(stderr, "script_server: %s\n", err.text);
    for (int i = 0; i < n_scripts; i++) free(scripts[i].token);
    toy_free(toy);
    json_decref(all);
    return st != LUCE_OK;
}
