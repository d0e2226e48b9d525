/* server/ask.c - see ask.h. */
#include "server/ask.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "server/server.h"

bool refuse(struct refusal *r, int status, const char *code, const char *param, const char *format, ...)
{
    va_list args;
    *r = (struct refusal){ .status = status, .code = code, .param = param };
    va_start(args, format);
    vsnprintf(r->text, sizeof r->text, format, args);
    va_end(args);
    return false;
}

bool refuse_status(struct refusal *r, luce_status status, const char *text)
{
    int http = status == LUCE_E_ARG || status == LUCE_E_UNSUPPORTED || status == LUCE_E_CONTEXT ? 400
             : status == LUCE_E_BUSY ? 429
             : status == LUCE_E_CANCELLED || status == LUCE_E_NOMEM || status == LUCE_E_DEVMEM ? 503 : 500;
    const char *code = status == LUCE_E_BUSY ? "queue_full"
                     : status == LUCE_E_CONTEXT ? "context_length_exceeded" : NULL;
    return refuse(r, http, code, NULL, "%s", text);
}

json_t *ask_read_body(struct str body, struct refusal *why)
{
    static const char order_mark[] = "\xef\xbb\xbf";
    struct tree_error e;
    if (body.len >= 3 && !memcmp(body.at, order_mark, 3)) body = (struct str){ body.at + 3, body.len - 3 };
    json_t *json = tree_read(body, JSON_NESTING, &e);
    int line = 1;
    size_t column = 1;
    if (json_is_object(json)) return json;
    for (size_t i = 0; i < e.at && i < body.len; i++, column++)
        if (body.at[i] == '\n') line++, column = 0;
    if (json) refuse(why, 400, NULL, NULL, "JSON parse error: the body must be an object");
    else if (e.no_memory) refuse(why, 503, NULL, NULL, "out of memory for the body");
    else if (e.too_deep) refuse(why, 400, NULL, NULL, "JSON parse error: nesting deeper than %d", JSON_NESTING);
    else refuse(why, 400, NULL, NULL, "JSON parse error: %s (line %d, column %zu)", e.text, line, column);
    json_decref(json);
    return NULL;
}

static const char *kind_of(const json_t *v)
{
    static const char *const names[] = { "an object", "an array", "a string", "an integer", "a number", "a boolean",
                                         "a boolean", "null" };
    return tree_digits(v) ? "a number" : v ? names[json_typeof(v)] : "nothing";
}

bool field_bool(const json_t *object, const char *key, bool *out, struct refusal *why)
{
    const json_t *v = json_object_get(object, key);
    if (!v || json_is_null(v)) return true;
    if (!json_is_boolean(v)) return refuse(why, 400, NULL, key, "%s: expected a boolean, found %s", key, kind_of(v));
    *out = json_is_true(v);
    return true;
}

/* A number for people: whole ones with all their digits. */
static const char *shown(char out[40], double x)
{
    snprintf(out, 40, x == floor(x) && fabs(x) < 1e19 ? "%.0f" : "%.10g", x);
    return out;
}

bool field_number(const json_t *object, const char *key, double low, double high, double *out, struct refusal *why)
{
    const json_t *v = json_object_get(object, key);
    const char *digits = tree_digits(v);
    char text[3][40];
    if (!v || json_is_null(v)) return true;
    if (!json_is_number(v) && !digits)
        return refuse(why, 400, NULL, key, "%s: expected a number, found %s", key, kind_of(v));
    double x = digits ? strtod(digits, NULL) : json_number_value(v);
    if (!(x >= low && x <= high))
        return refuse(why, 400, NULL, key, "%s is %.60s; expected %s to %s", key, digits ? digits : shown(text[0], x),
                      shown(text[1], low), shown(text[2], high));
    *out = x;
    return true;
}

bool field_int(const json_t *object, const char *key, int64_t low, int64_t high, int64_t *out, struct refusal *why)
{
    double x = (double)*out;
    char text[40];
    const json_t *v = json_object_get(object, key);
    if (!field_number(object, key, (double)low, (double)high, &x, why)) return false;
    if (x != floor(x))
        return refuse(why, 400, NULL, key, "%s is %s; expected a whole number", key, shown(text, x));
    if (json_is_integer(v)) *out = json_integer_value(v);
    else if (v && !json_is_null(v)) *out = x < 0x1p63 ? (int64_t)x : INT64_MAX;
    return true;
}

/* Any 64 bits, with or without sign; -1 is none. */
static bool field_seed(const json_t *object, luce_sampling *out, struct refusal *why)
{
    const json_t *v = json_object_get(object, "seed");
    const char *digits = tree_digits(v);
    char *end = NULL;
    int64_t seed = -1;
    errno = 0;
    if (digits && *digits != '-') out->seed = strtoull(digits, &end, 10);
    out->has_seed = end && !*end && !errno;
    if (out->has_seed) return true;
    if (digits) return refuse(why, 400, NULL, "seed", "seed is %.60s; expected a whole number of 64 bits", digits);
    if (!field_int(object, "seed", INT64_MIN, INT64_MAX, &seed, why)) return false;
    out->seed = (uint64_t)seed;
    out->has_seed = seed != -1;
    return true;
}

const char *field_text(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return tree_is_text(v) ? json_string_value(v) : NULL;
}

static bool add_stops(struct ask *a, const char *key, struct refusal *why)
{
    const json_t *v = json_object_get(a->body, key);
    size_t n = json_is_array(v) ? json_array_size(v) : v && !json_is_null(v) ? 1 : 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
        if (!tree_is_text(s))
            return refuse(why, 400, NULL, key, "%s: expected a string or strings, found %s", key, kind_of(s));
        if (json_string_length(s) == 0) continue;
        if (a->n_stop == ASK_STOPS) return refuse(why, 400, NULL, key, "%s: more than %d strings", key, ASK_STOPS);
        a->stop_text[a->n_stop] = str_of(json_string_value(s));
        a->stop[a->n_stop++] = json_string_value(s);
    }
    return true;
}

/* Decimal digits and nothing else; -1: it is none, or beyond 32 bits. */
static int64_t token_id(const char *text)
{
    int64_t id = *text ? 0 : -1;
    for (; id >= 0 && *text; text++) id = *text < '0' || *text > '9' || id > INT32_MAX ? -1 : id * 10 + *text - '0';
    return id;
}

static bool read_bias(struct ask *a, const struct server *s, struct refusal *why)
{
    static const char field[] = "logit_bias";
    const char *key;
    json_t *v, *all = json_object_get(a->body, field);
    if (!all || json_is_null(all)) return true;
    if (!json_is_object(all)) return refuse(why, 400, NULL, field, "logit_bias: expected an object of id: bias");
    json_object_foreach(all, key, v) {
        double bias = 0;
        int64_t id = token_id(key);
        if (id < 0)
            return refuse(why, 400, NULL, field, "logit_bias: '%.40s' is not the id of a token; /tokenize tells ids",
                          key);
        if (id >= s->info.vocabulary)
            return refuse(why, 400, NULL, field, "logit_bias: the model has no token %.40s; its vocabulary has %d", key,
                          s->info.vocabulary);
        if (json_is_null(v) || !field_number(all, key, -100, 100, &bias, why)) {
            refuse(why, 400, NULL, field, "logit_bias: the bias of %.40s must be a number from -100 to 100", key);
            return false;
        }
        if (a->sampling.n_bias == ASK_BIAS)
            return refuse(why, 400, NULL, field, "logit_bias: more than %d tokens", ASK_BIAS);
        a->bias_id[a->sampling.n_bias] = (int32_t)id;
        a->bias[a->sampling.n_bias++] = (float)bias;
    }
    a->sampling.bias_id = a->bias_id;
    a->sampling.bias = a->bias;
    return true;
}

static bool read_sampling(struct ask *a, const struct server *s, struct refusal *why)
{
    luce_sampling *p = &a->sampling;
    const json_t *b = a->body;
    double temperature = s->params->temperature, top_p = s->params->top_p, min_p = 0, repetition = 1, presence = 0,
        frequency = 0;
    int64_t top_k = s->params->top_k, window = 256;
    if (!field_number(b, "temperature", 0, 100, &temperature, why) || !field_number(b, "top_p", 0, 1, &top_p, why) ||
        !field_number(b, "min_p", 0, 1, &min_p, why) || !field_int(b, "top_k", -1, INT32_MAX, &top_k, why) ||
        !field_number(b, "repetition_penalty", 0, 100, &repetition, why) ||
        !field_number(b, "rep_pen", 0, 100, &repetition, why) ||
        !field_number(b, "presence_penalty", -2, 2, &presence, why) ||
        !field_number(b, "frequency_penalty", -2, 2, &frequency, why) ||
        !field_int(b, "rep_window", 0, INT32_MAX, &window, why))
        return false;
    *p = (luce_sampling){ .temperature = (float)temperature, .min_p = (float)min_p,
                          .top_p = (float)fmax(top_p, (double)FLT_MIN),     /* 0 would be off */
                          .top_k = top_k > 0 ? (int)top_k : 0, .repetition_penalty = (float)repetition,
                          .presence_penalty = (float)presence, .frequency_penalty = (float)frequency,
                          .penalty_window = (int)window };
    return field_seed(b, p, why) && read_bias(a, s, why);
}

/* "on", "off" or a number of guessed tokens; false: neither. */
static bool draft_word(const char *word, int *draft)
{
    char *end;
    long n = strtol(word, &end, 10);
    bool number = end != word && !*end && n >= 0 && n <= ASK_DRAFT;
    if (number) *draft = n ? (int)n : -1;
    else if (!strcmp(word, "on") || !strcmp(word, "true")) *draft = 0;
    else if (!strcmp(word, "off") || !strcmp(word, "false")) *draft = -1;
    else return false;
    return true;
}

/* How far this request is guessed ahead: the field, else the header. */
static bool read_draft(struct ask *a, struct refusal *why)
{
    const json_t *v = json_object_get(a->body, "speculative");
    const char *word = tree_is_text(v) ? json_string_value(v) : a->draft_header;
    char number[32];
    if (json_is_boolean(v)) word = json_is_true(v) ? "on" : "off";
    if (json_is_integer(v)) {
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
        word = number;
    }
    if (!word && (!v || json_is_null(v))) return true;
    if (word && draft_word(word, &a->draft)) return true;
    return refuse(why, 400, NULL, "speculative", "speculative is '%.40s'; expected on, off or a number of guessed "
                  "tokens, 0 to %d", word ? word : kind_of(v), ASK_DRAFT);
}

/* What would need a grammar is refused, never ignored. */
static bool check_constraints(struct ask *a, struct refusal *why)
{
    static const char *const grammars[] = { "grammar", "guided_regex", "guided_json", "guided_grammar" };
    const struct { const char *name; const json_t *format; } places[] = {
        { "response_format", json_object_get(a->body, "response_format") },
        { "text.format", json_object_get(json_object_get(a->body, "text"), "format") },
        { "output_config.format", json_object_get(json_object_get(a->body, "output_config"), "format") },
        { "output_format", json_object_get(a->body, "output_format") } };
    for (size_t i = 0; i < COUNT(grammars); i++) {
        const json_t *v = json_object_get(a->body, grammars[i]);
        if (v && !json_is_null(v) && !(json_is_string(v) && json_string_length(v) == 0))
            return refuse(why, 400, "unsupported", grammars[i],
                "%s: this server cannot constrain its output; leave the field out",
                          grammars[i]);
    }
    for (size_t i = 0; i < COUNT(places); i++) {
        const char *type = field_text(places[i].format, "type");
        if (!places[i].format || json_is_null(places[i].format) || (type && !strcmp(type, "text"))) continue;
        return refuse(why, 400, "unsupported", places[i].name, "%s '%.40s': this server cannot constrain its "
                      "output; ask for JSON in the prompt, or use type 'text'", places[i].name,
                      type ? type : kind_of(places[i].format));
    }
    return true;
}

/* What this server cannot make, by fields that ask for it. */
static bool check_wishes(struct ask *a, struct refusal *why)
{
    size_t i;
    json_t *kind, *kinds = json_object_get(a->body, "modalities");
    const json_t *search = json_object_get(a->body, "web_search_options");
    if (search && !json_is_null(search)) a->notes |= NOTE_SEARCH;
    json_array_foreach(kinds, i, kind) {
        const char *word = tree_is_text(kind) ? json_string_value(kind) : kind_of(kind);
        if (strcmp(word, "text"))
            return refuse(why, 400, "unsupported", "modalities", "modalities: '%.40s': this server writes text only; "
                          "use [\"text\"]", word);
    }
    return true;
}

enum { MOST_TOKENS = INT64_C(1) << 53 };        /* a cap is cut to what the context leaves */
bool ask_common(struct ask *a, const struct server *s, struct refusal *why)
{
    static const char *const limits[] = { "max_tokens", "max_output_tokens", "max_completion_tokens" };
    const json_t *b = a->body, *options = json_object_get(b, "stream_options");
    int64_t n = 1, one = 0;
    a->choices = 1;
    a->include_usage = s->params->stream_usage;
    for (int i = 2; i >= 0; i--) {              /* the first in the list that is there */
        const json_t *v = json_object_get(b, limits[i]);
        if (json_is_integer(v) && json_integer_value(v) == -1) continue;        /* no limit, as some clients say it */
        if (v && !json_is_null(v) && !field_int(b, limits[i], a->prompt_only ? 0 : 1, MOST_TOKENS, &one, why))
            return false;
    }
    a->max_tokens = one ? one : s->params->max_tokens;
    bool parallel = true, cache = true;
    if (!field_bool(b, "stream", &a->stream, why) || (a->several && !field_int(b, "n", 1, ASK_CHOICES, &n, why)) ||
        !field_bool(options, "include_usage", &a->include_usage, why) ||
        !field_bool(b, "parallel_tool_calls", &parallel, why) || !field_bool(b, "cache_prompt", &cache, why))
        return false;
    a->fresh = !cache;
    a->choices = (int)n;
    a->one_call = !parallel;
    return read_sampling(a, s, why) && read_draft(a, why) && add_stops(a, "stop", why) &&
           add_stops(a, "stop_sequences", why) && check_constraints(a, why) && check_wishes(a, why) &&
           take_tool_choice(a, why);
}

void ask_drop(struct ask *a)
{
    json_decref(a->body);
    json_decref(a->messages);
    json_decref(a->kept);
    json_decref(a->tools);
    json_decref(a->variables);
    for (int i = 0; i < a->n_prompts; i++) luce_free(a->prompts[i].ids);
    mem_free(a->prompts);
    *a = (struct ask){ 0 };
}
