/* luce.h - the public interface of luce: load a model, tokenise, generate, batch.
 * Everything that begins with luce_ is here, and nothing else is public. Functions that can fail
 * return a luce_status and describe the failure in *err (cause and remedy, one line).
 * Threads: see each function; a model may be used by one thread at a time unless stated. */
#ifndef LUCE_H
#define LUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    LUCE_OK = 0,
    LUCE_E_ARG,       /* the caller's argument, flag or request field is wrong */
    LUCE_E_IO,        /* a file or device file could not be read or written */
    LUCE_E_FORMAT,    /* a file's content contradicts its format or this engine's limits */
    LUCE_E_NOMEM,     /* host memory */
    LUCE_E_DEVMEM,    /* device memory */
    LUCE_E_DEVICE,    /* a device failed and cannot be used any more */
    LUCE_E_UNSUPPORTED, /* valid, but this build or device cannot do it */
    LUCE_E_CANCELLED, /* stopped by the caller */
    LUCE_E_NUMERIC,   /* a result that is not finite */
    LUCE_E_BUSY,      /* too much is waiting already; later it may work */
    LUCE_E_CONTEXT,   /* a prompt with what it is to generate, or a wanted context, that is too long */
} luce_status;

/* Filled by whoever finds the error; text is one line without a newline. Zero-initialise it. */
typedef struct {
    luce_status code;
    char text[1000];
} luce_error;

/* ---- models ----------------------------------------------------------------------------------- */
typedef struct luce_model luce_model;

/* Pages of the cache outlive their text: those that no text needs hold ended ones until room is wanted, and a text
 * that begins as one of them need not read that part again. */
typedef enum {
    LUCE_REUSE_EXACT,           /* the outcome is that of a fresh text, bit for bit */
    LUCE_REUSE_FAST,            /* also what a device computed narrow and would compute wide in a fresh text, with
                                   other bits: near ties may fall otherwise. The same as EXACT on a CPU */
    LUCE_REUSE_OFF,             /* every text is forgotten at its end */
} luce_prefix_reuse;

/* Zero is the usual everywhere. */
typedef struct {
    const char *path;           /* a GGUF file (any part of a split one) ... */
    const char *synthetic;      /* ... or "PRESET:FORMAT": real dimensions, random weights, no file */
    const char *device;         /* "cpu", "cuda:0", ...; NULL: the first GPU, else the CPU */
    int threads;                /* of the CPU; 0: as many as cores may be used */
    int context;                /* positions of a sequence; 0: what fits, up to the model's */
    int sequences;              /* at once, 1 to 64; 0: 1 */
    int64_t cache_positions;    /* of all sequences together; 0: context * sequences, or what fits */
    luce_prefix_reuse prefix_reuse;
    int64_t prefix_cache_bytes; /* that texts which have ended may hold of the cache; 0: all of it */
    int chunk;                  /* prompt rows of a step; 0: the device's choice */
    const char *cache_type_k, *cache_type_v;    /* "f16", "bf16", "q8_0", "q4_0"; NULL: f16 */
    /* Speculation: guesses that the model checks, so that a step may give several tokens. The text is the
     * same with and without. NULL: "draft-model" with a draft_path, else "none". */
    const char *drafter;
    const char *draft_path;     /* the drafter's file, for those that need one */
    int draft_max;              /* most guessed tokens of a step, 1 to 63; 0: the drafter's own */
    int draft_block_size;       /* positions of a guessed block: it reaches one less ahead; 0: likewise */
    bool draft_chain;           /* no branches, also from drafters that guess trees */
    double draft_margin;        /* of trees: paths less likely than e^-margin times the likeliest are left out; 0: none
                                   are. LUCE_E_ARG where nothing guesses trees */
    bool text;                  /* refuse a file without a vocabulary, before its weights are read */
    bool check_only;            /* refuse what would be refused, weights that are not finite included, then
                                   close: nothing is claimed */
    /* Told the share of the load that is done; false cancels. May be NULL. */
    bool (*progress)(void *user, double share);
    void *user;
} luce_model_params;

/* On LUCE_OK *out is owned by the caller (luce_model_close; NULL with check_only). LUCE_E_DEVMEM: the
 * message holds what is wanted, what is free and the largest context that fits. LUCE_E_CONTEXT: the model
 * takes no context as long as that. */
luce_status luce_model_open(luce_model **out, const luce_model_params *params, luce_error *err);
void luce_model_close(luce_model *m);           /* NULL is fine; after its sessions */

/* Borrowed from the model. */
typedef struct {
    const char *architecture, *device, *device_name;
    const char *drafter;        /* "none" without one */
    bool speculates;            /* there is one */
    int vocabulary, context, sequences;
    int embedding;              /* elements of a hidden state */
    int trained_context;        /* what the model was made for */
    bool has_text;              /* false for synthetic models: token ids only */
    const char *chat_template;  /* not NUL-terminated; NULL: none */
    size_t chat_template_bytes;
    uint64_t weight_bytes, cache_bytes, scratch_bytes;      /* on the device */
    double load_seconds;
} luce_model_info;
luce_model_info luce_model_describe(const luce_model *m);

/* ---- text and tokens -------------------------------------------------------------------------- */
enum {
    LUCE_SPECIAL = 1,           /* text that spells a control token is that token; and back */
    LUCE_BOS = 2,               /* add the tokens that the model wants around a raw text */
    LUCE_CHAT = 4,              /* add those that it wants around a rendered chat */
    LUCE_RAW = 8,               /* from ids: bytes as they stand, also a part of a character */
};
typedef struct {
    size_t from, to;
} luce_span;
typedef struct {
    const char *at;
    size_t bytes;
    unsigned flags;
    /* Bytes that may spell control tokens although the rest may not (without LUCE_SPECIAL): what a chat
     * template wrote, as opposed to the words of a user. In order, without overlap. */
    const luce_span *special;
    size_t n_special;
} luce_text;
/* *ids and *text are owned by the caller (luce_free). LUCE_E_UNSUPPORTED without a vocabulary. May be
 * called by any thread. */
luce_status luce_tokenize(const luce_model *m, const luce_text *text, int32_t **ids, size_t *n_ids,
                          luce_error *err);
luce_status luce_detokenize(const luce_model *m, const int32_t *ids, size_t n_ids, unsigned flags,
                            char **text, size_t *bytes, luce_error *err);
void luce_free(void *p);

/* ---- generation ------------------------------------------------------------------------------- */
/* Applied in this order: bias, penalties, then the largest logit (temperature 0) or top_k,
 * temperature, min_p, top_p and a draw that depends on seed and position alone. */
typedef struct {
    float    temperature;       /* 0: greedy */
    int      top_k;             /* 0: off */
    float    top_p;             /* 0 or 1: off */
    float    min_p;             /* 0: off */
    float    repetition_penalty;            /* 0 or 1: off */
    float    presence_penalty, frequency_penalty;
    int      penalty_window;    /* last tokens of prompt and text that penalties see; 0: 256 */
    bool     has_seed;          /* false: a random seed, told in the result */
    uint64_t seed;
    const int32_t *bias_id;     /* n_bias ids and what is added to their logits */
    const float   *bias;
    int      n_bias;
} luce_sampling;

/* A generated token. The logprobs are those of the model itself, before sampling. */
typedef struct {
    int32_t id;
    float   logprob;            /* this and the following only when the request wants them */
    int     n_top;              /* likeliest tokens, the likeliest first */
    const int32_t *top_id;
    const float   *top_logprob;
} luce_token;

/* A bound on reasoning: once that has gone on for `budget` tokens, the next ones are those of `end`. It
 * begins with the text, or where the text begins with `open` (after white space), and ends with `close`;
 * both are compared with the text that show_special gives. All borrowed. */
typedef struct {
    int budget;
    bool begun;                 /* the prompt has opened it */
    const char *open, *close;   /* open may be NULL */
    const int32_t *end;
    size_t n_end;               /* 0: no bound */
} luce_thinking;

typedef enum { LUCE_POOL_MEAN, LUCE_POOL_LAST } luce_pooling;

/* A step of a text that a drafter may guess at: the guess, what the model said, and what it took. Borrowed. */
typedef struct {
    size_t at;                  /* tokens generated before it */
    /* The guess, a tree: node 0 is the token before, and a node comes after its parent (parent[0] is -1). A node's
     * depth is its place after that token. */
    const int32_t *node;
    const int *parent, *depth;
    int n_nodes;                /* 1: nothing was guessed, */
    bool declined;              /* because it would not have paid */
    const int32_t *tokens;      /* that the step gave: the path through the tree, and one more */
    int n_tokens;
    int rows;                   /* of the step, for all texts that it served */
    double draft_seconds, verify_seconds, accept_seconds;
} luce_step;

typedef struct luce_result luce_result;
typedef struct {
    const int32_t *tokens;      /* the prompt as ids ... */
    size_t n_tokens;
    luce_text text;             /* ... or as text, when tokens is NULL */
    luce_sampling sampling;
    int max_tokens;             /* 0: what the context leaves */
    const char *const *stop;    /* generation ends before any of these texts; empty ones are ignored */
    int n_stop;
    bool fresh;                 /* take nothing from the prefix cache, and leave nothing in it (a session
                                   keeps its own text) */
    bool ignore_end;            /* go on after the model's end token */
    bool show_special;          /* write control tokens out as their text */
    /* Guessed tokens of each step: 0: as many as pay, -1: none, 1 to 63: so many whether they pay or not
     * (LUCE_E_ARG without a drafter). */
    int draft;
    /* For the drafter "scripted" (measurements): what the model will say, and how many tokens of a guess
     * are to be right, on average. Borrowed. */
    const int32_t *script;
    size_t n_script;
    double script_right;
    /* Told once, before the prompt is read: how many of its first tokens the cache has. May be NULL. */
    void (*on_begin)(void *user, size_t n_reused);
    /* Told each new piece of text (whole characters, never part of a stop string); false ends the
     * request. May be NULL. */
    bool (*on_text)(void *user, const char *bytes, size_t n);
    /* Told each generated token, before its text; not the end token. May be NULL. */
    void (*on_token)(void *user, const luce_token *token);
    bool logprobs;              /* on_token wants logprobs, */
    int  top_logprobs;          /* and those of this many tokens, 0 to 20 */
    luce_thinking thinking;
    bool prompt_only;           /* generate nothing: the request ends after its prompt, with FINISH_LENGTH */
    /* Told each token of the prompt after its first, with its logprobs and top_logprobs of the likeliest, in
     * order, while the prompt is read. May be NULL. */
    void (*on_prompt)(void *user, const luce_token *token);
    /* [luce_model_info.embedding] receives the final normed hidden state of the prompt's last token, or the
     * mean of those of all its tokens, with length 1 (zero stays zero). Needs prompt_only. May be NULL. */
    float *embedding;
    luce_pooling pooling;
    /* Told each step that luce_speculation counts, after its tokens. May be NULL. */
    void (*on_step)(void *user, const luce_step *step);
    /* Asked before each step; true ends the request. May be NULL. */
    bool (*cancelled)(void *user);
    void *user;
} luce_request;

typedef enum {
    LUCE_FINISH_NONE,           /* it failed: see the status */
    LUCE_FINISH_END,            /* the model's end token */
    LUCE_FINISH_STOP,           /* a stop string */
    LUCE_FINISH_LENGTH,         /* max_tokens, or the context is full */
    LUCE_FINISH_CANCELLED,
} luce_finish;
const char *luce_finish_name(luce_finish f);

/* What speculation did for a request. The tokens after the first are n_steps + n_accepted. Times are
 * those of the steps that the request had rows in, whoever shared them. */
typedef struct {
    size_t n_steps;             /* after the one that gave the first token */
    size_t n_drafted, n_accepted;           /* guessed tokens, and those that were kept */
    size_t n_declined;          /* steps without a guess because it would not have paid */
    double draft_seconds, verify_seconds, accept_seconds;
} luce_speculation;

struct luce_result {
    luce_status status;         /* of this request */
    luce_error  error;
    luce_finish finish;
    int32_t *tokens;            /* generated, the end token included; owned (luce_result_drop) */
    size_t   n_tokens;
    char    *text;              /* NUL-terminated, NULL while empty; owned */
    size_t   text_bytes;
    size_t   n_prompt;          /* tokens of the prompt, */
    size_t   n_reused;          /* tokens from the start that a session or the cache had */
    uint64_t seed;
    const char *stop;           /* the request's string that ended it, with LUCE_FINISH_STOP */
    bool thinking_cut;          /* `thinking` closed the reasoning; */
    bool looped;                /* the text then went round in circles and was ended (LUCE_FINISH_LENGTH) */
    double   queue_seconds;     /* from the submission to the first step */
    double   prompt_seconds;    /* from the first step to the first token */
    double   decode_seconds;    /* for the tokens after the first */
    luce_speculation speculation;
};
void luce_result_drop(luce_result *r);

/* Runs a request. Returns its status; *out says more and is to be dropped in either case. What was
 * cancelled is LUCE_OK with LUCE_FINISH_CANCELLED. LUCE_E_CONTEXT: prompt and max_tokens exceed
 * the context. LUCE_E_ARG: a parameter is out of range. */
luce_status luce_generate(luce_model *m, const luce_request *request, luce_result *out, luce_error *err);
/* Runs n requests, as many at once as the model has sequences, in shared steps. Each has the tokens
 * that it would have alone. results [n] are to be dropped. The status is that of the first that
 * failed. */
luce_status luce_generate_batch(luce_model *m, const luce_request *requests, int n, luce_result *results,
                                luce_error *err);

/* ---- sessions: a text that grows and keeps its cache ------------------------------------------- */
typedef struct luce_session luce_session;
/* Takes one of the model's sequences. LUCE_E_DEVMEM when all are taken. */
luce_status luce_session_open(luce_session **out, luce_model *m, luce_error *err);
void luce_session_close(luce_session *s);
/* As luce_generate; the prompt is put after what the session holds, and it holds prompt and generated
 * tokens (the end token included) afterwards. After an error it holds what it held before. */
luce_status luce_session_generate(luce_session *s, const luce_request *request, luce_result *out,
                                  luce_error *err);
/* All tokens that it holds; borrowed until the next call. */
const int32_t *luce_session_tokens(const luce_session *s, size_t *n);
/* Forgets the tokens from n on. */
void luce_session_rewind(luce_session *s, size_t n);

/* ---- an engine: requests of many threads, run by a thread of its own --------------------------- */
typedef struct luce_engine luce_engine;
typedef struct {
    int queue;                  /* how many submissions may wait beyond those that run */
    int gather_ms;              /* an idle engine waits so long after the first request, for others to begin with */
} luce_engine_params;
/* Owns the model from here on, also after a failure; nothing else may run requests on it. */
luce_status luce_engine_open(luce_engine **out, luce_model *m, const luce_engine_params *params, luce_error *err);
/* Cancels what is left and waits for it; whatever is submitted later fails. Once, before the close. */
void luce_engine_stop(luce_engine *e);
/* Stops, and closes the model. NULL is fine. */
void luce_engine_close(luce_engine *e);
const luce_model *luce_engine_model(const luce_engine *e);

typedef struct luce_ticket luce_ticket;
/* Queues n requests that count as one (choices of one prompt). All texts and arrays of the requests are
 * borrowed until on_done. The callbacks run on the engine's thread: they must not wait.
 * on_done(user, result) is called once for each request, after its last on_text; *result is its to move
 * from, and is dropped afterwards. tickets [n] are the caller's (luce_ticket_free). May be called by any
 * thread. After an error nothing was queued: what luce_generate refuses, LUCE_E_BUSY for a full queue,
 * LUCE_E_CANCELLED when the engine closes, LUCE_E_DEVICE after a device was lost. */
luce_status luce_engine_submit(luce_engine *e, const luce_request *requests, int n,
                               void (*on_done)(void *user, luce_result *result), luce_ticket **tickets,
                               luce_error *err);
/* Ends the request before its next step. Any thread; also after its end. */
void luce_ticket_cancel(luce_ticket *t);
/* Does not end the request. NULL is fine. */
void luce_ticket_free(luce_ticket *t);

typedef struct {
    int running, waiting;       /* requests; those that wait have no sequence yet */
    int sequences, queue;
    bool lost;                  /* the device failed: every request fails until the process starts anew */
    uint64_t steps, prompt_tokens, generated_tokens, finished, failed, cancelled;
    uint64_t drafted_tokens, accepted_tokens;               /* guessed, and right */
    uint64_t prompt_rows, reused_tokens;    /* of prompts: computed; found in the cache instead, */
    uint64_t prefix_hits;                   /* by so many requests */
    int pages, free_pages;      /* of the cache's first kind of layers; free: no sequence holds them */
    int kept_pages, kept_states;            /* of all kinds, of texts that have ended; and recurrent states */
    uint64_t evicted;           /* pages and states of such texts that gave way to others */
} luce_engine_stats;
luce_engine_stats luce_engine_count(luce_engine *e);

#ifdef __cplusplus
}
#endif
#endif
