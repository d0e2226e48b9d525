/* server/embeddings.c - POST /v1/embeddings: the direction of the final hidden state of each input. */
#include "server/print.h"
#include "server/route.h"

static const char *const formats[] = { "float", "base64" };

static bool check(const struct server *s, const struct ask *a, struct refusal *why)
{
    const json_t *v = json_object_get(a->body, "encoding_format");
    const char *format = json_string_value(v);
    int64_t dimensions = s->info.embedding;
    if (v && !json_is_null(v) && (!format || (strcmp(format, formats[0]) && strcmp(format, formats[1]))))
        return refuse(why, 400, NULL, "encoding_format", "encoding_format: expected 'float' or 'base64'");
    if (!field_int(a->body, "dimensions", 1, INT32_MAX, &dimensions, why)) return false;
    if (dimensions == s->info.embedding) return true;
    return refuse(why, 400, "unsupported", "dimensions", "dimensions is %lld; this model's embeddings have %d and "
                  "cannot be shortened", (long long)dimensions, s->info.embedding);
}

static bool parse(struct server *s, struct ask *a, struct refusal *why)
{
    a->choices = 1;
    a->embed = a->prompt_only = true;
    return check(s, a, why) && take_prompts(s, a, "input", ASK_INPUTS, why);
}

bool embeddings_post(struct server *s, struct exchange *x, struct refusal *why)
{
    struct ask ask = { .body = ask_read_body(x->body, why) };
    bool good = ask.body && parse(s, &ask, why) && job_start(s, x, &wire_embeddings, &ask, why);
    ask_drop(&ask);
    return good;
}

/* The bytes of the floats, little-endian, as text. */
static void put_base64(struct json *j, const float *v, int n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *bytes = (const unsigned char *)v;
    size_t len = (size_t)n * sizeof *v;
    struct buf text = { 0 };
    for (size_t i = 0; i < len; i += 3) {
        uint32_t group = (uint32_t)bytes[i] << 16;
        if (i + 1 < len) group |= (uint32_t)bytes[i + 1] << 8;
        if (i + 2 < len) group |= bytes[i + 2];
        for (int k = 0; k < 4; k++)
            buf_add_char(&text, i + (size_t)k > len ? '=' : digits[group >> (18 - 6 * k) & 63]);
    }
    json_str(j, str_in(&text));
    buf_drop(&text);
}

static void put_vector(struct json *j, const struct choice *c, int n, bool base64)
{
    json_open_object(j);
    put_text(j, "object", "embedding");
    put_int(j, "index", c->index);
    json_key(j, "embedding");
    if (base64) put_base64(j, c->vector, n);
    else {
        json_open_array(j);
        for (int i = 0; i < n; i++) json_float(j, c->vector[i]);
        json_close(j);
    }
    json_close(j);
}

static void whole(struct job *job, struct buf *out)
{
    const char *format = field_text(job->ask.body, "encoding_format");
    int64_t prompt = job_usage(job).prompt;
    struct json j;
    json_begin(&j, out);
    json_open_object(&j);
    put_text(&j, "object", "list");
    put_text(&j, "model", job->server->params->name);
    json_key(&j, "data");
    json_open_array(&j);
    for (int i = 0; i < job->n_choices; i++)
        put_vector(&j, &job->choice[i], job->server->info.embedding, format && !strcmp(format, formats[1]));
    json_close(&j);
    json_key(&j, "usage");
    json_open_object(&j);
    put_int(&j, "prompt_tokens", prompt);
    put_int(&j, "total_tokens", prompt);
    json_close(&j);
    json_close(&j);
}

const struct wire wire_embeddings = {
    .name = "embeddings", .id_prefix = "embd_", .call_prefix = "call_", .whole = whole, .error = print_openai_error,
    .prompt = "input",
};
