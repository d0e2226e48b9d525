/* model/vocab_gguf.c - see vocab_gguf.h. */
#include "model/vocab_gguf.h"

#include <inttypes.h>
#include <math.h>

#include "base/arena.h"
#include "base/log.h"

/* Keys of special ids; files of some converters use the second name. */
static const struct {
    enum special_role role;
    const char *key;
} role_keys[] = {
    { ROLE_BOS, "tokenizer.ggml.bos_token_id" },
    { ROLE_EOS, "tokenizer.ggml.eos_token_id" },
    { ROLE_EOT, "tokenizer.ggml.eot_token_id" },
    { ROLE_EOM, "tokenizer.ggml.eom_token_id" },
    { ROLE_UNKNOWN, "tokenizer.ggml.unknown_token_id" },
    { ROLE_PADDING, "tokenizer.ggml.padding_token_id" },
    { ROLE_FIM_PREFIX, "tokenizer.ggml.prefix_token_id" },
    { ROLE_FIM_PREFIX, "tokenizer.ggml.fim_pre_token_id" },
    { ROLE_FIM_SUFFIX, "tokenizer.ggml.suffix_token_id" },
    { ROLE_FIM_SUFFIX, "tokenizer.ggml.fim_suf_token_id" },
    { ROLE_FIM_MIDDLE, "tokenizer.ggml.middle_token_id" },
    { ROLE_FIM_MIDDLE, "tokenizer.ggml.fim_mid_token_id" },
    { ROLE_FIM_PADDING, "tokenizer.ggml.fim_pad_token_id" },
    { ROLE_FIM_REPO, "tokenizer.ggml.fim_rep_token_id" },
    { ROLE_FIM_FILE, "tokenizer.ggml.fim_sep_token_id" },
};

struct reading {
    const struct gguf *g;
    struct arena arena;         /* arrays, until the vocabulary is built */
    luce_error *err;
};

static luce_status out_of_memory(const struct reading *r, const char *key)
{
    return fail(r->err, LUCE_E_NOMEM, "%s: out of memory for %s", gguf_path(r->g), key);
}

/* The array under `key`, NULL when absent. `want` is the element type; GGUF_I32 takes any
 * integer. */
static luce_status find_array(const struct reading *r, const char *key, enum gguf_type want,
                              const struct gguf_key **out)
{
    const struct gguf_key *k = *out = gguf_key(r->g, key);
    if (!k) return LUCE_OK;
    bool integer = k->element != GGUF_STRING && k->element != GGUF_F32 && k->element != GGUF_F64 &&
                   k->element != GGUF_BOOL && k->element != GGUF_ARRAY;
    bool fits = want == GGUF_I32 ? integer : k->element == want;
    if (k->type == GGUF_ARRAY && (fits || k->count == 0)) return LUCE_OK;
    *out = NULL;
    return fail(r->err, LUCE_E_FORMAT, "%s: %s is %s of %s, expected an array of %s",
                gguf_path(r->g), key, gguf_type_name(k->type), gguf_type_name(k->element),
                gguf_type_name(want));
}

static luce_status read_texts(struct reading *r, const char *key, const struct str **out, size_t *n)
{
    const struct gguf_key *k;
    luce_status st = find_array(r, key, GGUF_STRING, &k);
    if (st || !k || k->count == 0) return st;
    struct str *texts = arena_array(&r->arena, k->count, sizeof *texts);
    if (!texts) return out_of_memory(r, key);
    struct gguf_cursor c = { 0 };
    while (*n < k->count && gguf_next(k, &c, &texts[*n])) ++*n;
    *out = texts;
    return LUCE_OK;
}

static luce_status expect_count(const struct reading *r, const char *key, uint64_t count,
                                size_t n_tokens)
{
    if (count == n_tokens) return LUCE_OK;
    return fail(r->err, LUCE_E_FORMAT, "%s: %s has %" PRIu64 " entries, tokenizer.ggml.tokens has "
                "%zu", gguf_path(r->g), key, count, n_tokens);
}

static luce_status read_ints(struct reading *r, const char *key, const int32_t **out, size_t *n)
{
    const struct gguf_key *k;
    luce_status st = find_array(r, key, GGUF_I32, &k);
    if (st || !k || k->count == 0) return st;
    int32_t *values = arena_array(&r->arena, k->count, sizeof *values);
    if (!values) return out_of_memory(r, key);
    for (; *n < k->count; ++*n) {
        int64_t value = gguf_int_at(k, *n);
        values[*n] = value >= INT32_MIN && value <= INT32_MAX ? (int32_t)value : -1;
    }
    *out = values;
    return LUCE_OK;
}

static luce_status read_scores(struct reading *r, struct vocab_source *s)
{
    static const char key[] = "tokenizer.ggml.scores";
    const struct gguf_key *k;
    luce_status st = find_array(r, key, GGUF_F32, &k);
    if (st || !k) return st;
    if ((st = expect_count(r, key, k->count, s->n_tokens))) return st;
    float *scores = arena_array(&r->arena, k->count, sizeof *scores);
    if (!scores) return out_of_memory(r, key);
    for (uint64_t i = 0; i < k->count; i++) {
        scores[i] = (float)gguf_float_at(k, i);
        if (isnan(scores[i]))
            return fail(r->err, LUCE_E_FORMAT, "%s: %s holds NaN for token %" PRIu64 "; scores must be numbers",
                        gguf_path(r->g), key, i);
    }
    s->scores = scores;
    return LUCE_OK;
}

static luce_status read_arrays(struct reading *r, struct vocab_source *s)
{
    static const char kinds[] = "tokenizer.ggml.token_type";
    luce_status st;
    size_t n_kinds = 0;
    if ((st = read_texts(r, "tokenizer.ggml.tokens", &s->tokens, &s->n_tokens))) return st;
    if (!s->n_tokens)
        return fail(r->err, LUCE_E_FORMAT, "%s: tokenizer.ggml.tokens is missing or empty: the file "
                    "has no vocabulary. Convert the model again.", gguf_path(r->g));
    if ((st = read_texts(r, "tokenizer.ggml.merges", &s->merges, &s->n_merges))) return st;
    if ((st = read_scores(r, s))) return st;
    if ((st = read_ints(r, kinds, &s->kinds, &n_kinds))) return st;
    if (s->kinds && (st = expect_count(r, kinds, n_kinds, s->n_tokens))) return st;
    return read_ints(r, "tokenizer.ggml.suppress_tokens", &s->suppressed, &s->n_suppressed);
}

static luce_status read_choice(const struct reading *r, const char *key, enum vocab_choice *out)
{
    bool yes = false;
    luce_status st = gguf_bool(r->g, key, false, &yes, r->err);
    if (!st && gguf_key(r->g, key)) *out = yes ? CHOICE_YES : CHOICE_NO;
    return st;
}

static luce_status read_scalars(const struct reading *r, struct vocab_source *s)
{
    const struct str none = { "", 0 };
    luce_status st;
    if ((st = gguf_text(r->g, "general.name", none, &s->name, r->err))) return st;
    if ((st = gguf_text(r->g, "tokenizer.ggml.model", none, &s->model, r->err))) return st;
    if ((st = gguf_text(r->g, "tokenizer.ggml.pre", none, &s->pre, r->err))) return st;
    if ((st = read_choice(r, "tokenizer.ggml.add_bos_token", &s->add_bos))) return st;
    if ((st = read_choice(r, "tokenizer.ggml.add_eos_token", &s->add_eos))) return st;
    if ((st = read_choice(r, "tokenizer.ggml.add_space_prefix", &s->add_space_prefix))) return st;
    for (size_t i = 0; i < sizeof role_keys / sizeof *role_keys; i++) {
        uint32_t id = 0;
        if (!gguf_key(r->g, role_keys[i].key)) continue;
        if ((st = gguf_u32(r->g, role_keys[i].key, 0, &id, r->err))) return st;
        s->ids[role_keys[i].role] = id;
    }
    return LUCE_OK;
}

luce_status vocab_from_gguf(struct vocab **out, const struct gguf *g, luce_error *err)
{
    *out = NULL;
    struct reading r = { .g = g, .err = err };
    struct vocab_source s = vocab_source_empty();
    s.path = gguf_path(g);
    luce_status st = read_arrays(&r, &s);
    if (!st) st = read_scalars(&r, &s);
    if (!st) st = vocab_open(out, &s, err);
    arena_drop(&r.arena);
    return st;
}
