/* text/vocab.c - opening a vocabulary: checks, decoding, defaults; see vocab.h. */
#include <inttypes.h>

#include "base/log.h"
#include "base/mem.h"
#include "text/merge.h"
#include "text/vocab_private.h"

struct vocab_source vocab_source_empty(void)
{
    struct vocab_source s = { .path = "" };
    for (int i = 0; i < N_ROLES; i++) s.ids[i] = -1;
    return s;
}

static const char *const role_keys[N_ROLES] = {
    [ROLE_BOS] = "bos", [ROLE_EOS] = "eos", [ROLE_EOT] = "eot", [ROLE_EOM] = "eom",
    [ROLE_UNKNOWN] = "unknown", [ROLE_PADDING] = "padding", [ROLE_FIM_PREFIX] = "fim_pre",
    [ROLE_FIM_SUFFIX] = "fim_suf", [ROLE_FIM_MIDDLE] = "fim_mid", [ROLE_FIM_PADDING] = "fim_pad",
    [ROLE_FIM_REPO] = "fim_rep", [ROLE_FIM_FILE] = "fim_sep",
};

/* How much of a name from the file goes into a message. */
static int shown(struct str name)
{
    return name.len < 80 ? (int)name.len : 80;
}

static luce_status choose_model(struct vocab *v, const struct vocab_source *s, luce_error *err)
{
    static const struct {
        const char *name;
        enum vocab_model model;
    } models[] = { { "gpt2", MODEL_GPT2 }, { "llama", MODEL_SPM }, { "gemma4", MODEL_GEMMA4 } };
    size_t i = 0;
    while (i < COUNT(models) && !str_is(s->model, models[i].name)) i++;
    if (i == COUNT(models))
        return fail(err, LUCE_E_UNSUPPORTED, "%s: tokenizer.ggml.model is '%.*s'; known: gpt2, "
                    "llama, gemma4", s->path, shown(s->model), s->model.at ? s->model.at : "");
    v->model = models[i].model;
    if (v->model == MODEL_SPM) return LUCE_OK;
    struct str pre = v->model == MODEL_GEMMA4 ? str_of("gemma4") : s->pre;
    if (!pre.len) {
        log_warn("%s: tokenizer.ggml.pre is missing, 'default' is taken: text may be split otherwise "
                 "than the model expects. Convert the model again.", s->path);
        pre = str_of("default");
    }
    v->pre = pretokenizer_find(pre);
    bool gemma4 = v->pre == pretokenizer_find(str_of("gemma4"));
    if (v->pre && gemma4 == (v->model == MODEL_GEMMA4)) return LUCE_OK;
    struct buf known = { 0 };
    for (size_t row = 0; pretokenizer_at(row); row++)
        buf_printf(&known, "%s%s", row ? " " : "", pretokenizer_at(row)->names);
    luce_status st = fail(err, LUCE_E_UNSUPPORTED, "%s: tokenizer.ggml.pre is '%.*s'; known: %s",
                          s->path, shown(pre), pre.at, buf_text(&known));
    buf_drop(&known);
    return st;
}

static luce_status check_source(const struct vocab_source *s, luce_error *err)
{
    if (s->n_tokens == 0 || s->n_tokens > INT32_MAX / 4)
        return fail(err, LUCE_E_FORMAT, "%s: tokenizer.ggml.tokens has %zu entries, expected 1 to "
                    "%d", s->path, s->n_tokens, INT32_MAX / 4);
    for (int i = 0; i < N_ROLES; i++)
        if (s->ids[i] >= 0 && (uint64_t)s->ids[i] >= s->n_tokens)
            return fail(err, LUCE_E_FORMAT, "%s: tokenizer.ggml.%s_token_id is %" PRId64
                        ", the vocabulary has %zu tokens", s->path, role_keys[i], s->ids[i],
                        s->n_tokens);
    for (size_t i = 0; s->kinds && i < s->n_tokens; i++)
        if (s->kinds[i] < TOKEN_NORMAL || s->kinds[i] > TOKEN_BYTE)
            return fail(err, LUCE_E_FORMAT, "%s: tokenizer.ggml.token_type[%zu] is %d, expected 1 "
                        "to 6", s->path, i, s->kinds[i]);
    for (size_t i = 0; i < s->n_tokens; i++)
        if (s->tokens[i].len > UINT32_MAX / 4)
            return fail(err, LUCE_E_FORMAT, "%s: tokenizer.ggml.tokens[%zu] has %zu bytes, too "
                        "many", s->path, i, s->tokens[i].len);
    return LUCE_OK;
}

static bool contains(struct str text, const char *word)
{
    size_t len = strlen(word);
    for (size_t i = 0; i + len <= text.len; i++)
        if (memcmp(text.at + i, word, len) == 0) return true;
    return false;
}

/* Entries that converters add to round the table up, such as "[PAD151669]". */
static bool is_padding(struct str text)
{
    if (text.len < 6 || memcmp(text.at, "[PAD", 4) || text.at[text.len - 1] != ']') return false;
    for (size_t i = 4; i + 1 < text.len; i++)
        if (text.at[i] < '0' || text.at[i] > '9') return false;
    return true;
}

static bool is_empty_placeholder(struct str text)
{
    return text.len >= 8 && memcmp(text.at, "[EMPTY_", 7) == 0 && text.at[text.len - 1] == ']';
}

/* Writes the token's bytes to out (room for raw.len) unless they are its raw text; returns the
 * end. */
static char *decode_token(struct vocab *v, struct token *t, char *out)
{
    struct str raw = { t->raw, t->raw_len };
    t->bytes = t->raw;
    t->bytes_len = t->raw_len;
    size_t n;
    if (is_empty_placeholder(raw) && t->kind != TOKEN_NORMAL) n = 0;
    else if (t->kind == TOKEN_NORMAL && v->model == MODEL_GPT2) n = alphabet_decode(raw, out);
    else if (t->kind == TOKEN_NORMAL) n = spaces_decode(raw, out);
    else if (t->kind == TOKEN_BYTE && named_byte(raw) >= 0) {
        *out = (char)named_byte(raw);
        n = 1;
    } else return out;
    t->bytes = out;
    t->bytes_len = (uint32_t)n;
    return out + n;
}

static luce_status read_tokens(struct vocab *v, const struct vocab_source *s, luce_error *err)
{
    size_t total = 1;
    for (size_t i = 0; i < s->n_tokens; i++) total += s->tokens[i].len;
    v->n_tokens = (int)s->n_tokens;
    v->tokens = mem_array(s->n_tokens, sizeof *v->tokens);
    v->bytes = mem_alloc(total);
    if (!v->tokens || !v->bytes)
        return fail(err, LUCE_E_NOMEM, "%s: out of memory for %zu tokens", s->path, s->n_tokens);
    char *out = v->bytes;
    size_t n_empty = 0;
    for (size_t i = 0; i < s->n_tokens; i++) {
        struct token *t = &v->tokens[i];
        struct str raw = s->tokens[i];
        if (!raw.at) raw = str_of("");
        t->raw = raw.at;
        t->raw_len = (uint32_t)raw.len;
        t->kind = (uint8_t)(s->kinds ? s->kinds[i] : TOKEN_NORMAL);
        if (t->kind == TOKEN_CONTROL && contains(raw, "unused")) t->kind = TOKEN_UNUSED;
        t->banned = raw.len == 0 || (is_padding(raw) && t->kind != TOKEN_NORMAL);
        n_empty += raw.len == 0;
        out = decode_token(v, t, out);
    }
    if (n_empty) log_warn("%s: %zu tokens have an empty text and are never used", s->path, n_empty);
    for (size_t i = 0; i < s->n_suppressed; i++) {
        int32_t id = s->suppressed[i];
        if (id >= 0 && id < v->n_tokens) v->tokens[id].banned = true;
    }
    return LUCE_OK;
}

static bool choose(enum vocab_choice choice, bool otherwise)
{
    return choice == CHOICE_DEFAULT ? otherwise : choice == CHOICE_YES;
}

static void read_roles(struct vocab *v, const struct vocab_source *s)
{
    int32_t *ids = v->special.ids;
    for (int i = 0; i < N_ROLES; i++) ids[i] = (int32_t)s->ids[i];
    if (v->model == MODEL_SPM) {
        static const struct { enum special_role role; int32_t id; } usual[] = {
            { ROLE_UNKNOWN, 0 }, { ROLE_BOS, 1 }, { ROLE_EOS, 2 },
        };
        for (size_t i = 0; i < COUNT(usual); i++) {
            int32_t *id = &ids[usual[i].role];
            if (*id < 0 && usual[i].id < v->n_tokens) *id = usual[i].id;
        }
    }
    /* SmolLM and small Granite vocabularies of this size go without BOS whatever their row says. */
    enum { NO_BOS_SIZE = 49152 };
    bool usual = v->model == MODEL_SPM || (v->pre->add_bos && v->n_tokens != NO_BOS_SIZE);
    v->special.add_bos = v->model == MODEL_GEMMA4 || choose(s->add_bos, usual);
    v->special.add_eos = choose(s->add_eos, false);
    if (v->special.add_bos && ids[ROLE_BOS] < 0) {
        if (s->add_bos == CHOICE_YES)
            log_warn("%s: add_bos_token without a bos_token_id is ignored", s->path);
        v->special.add_bos = false;
    }
    if (v->special.add_eos && ids[ROLE_EOS] < 0) {
        log_warn("%s: add_eos_token without an eos_token_id is ignored", s->path);
        v->special.add_eos = false;
    }
    v->add_space_prefix = v->model == MODEL_SPM && choose(s->add_space_prefix, true);
}

luce_status vocab_open(struct vocab **out, const struct vocab_source *s, luce_error *err)
{
    *out = NULL;
    struct vocab *v = mem_zero(sizeof *v);
    if (!v) return fail(err, LUCE_E_NOMEM, "%s: out of memory for the vocabulary", s->path);
    luce_status st;
    if ((st = check_source(s, err))) goto bad;
    if ((st = choose_model(v, s, err))) goto bad;
    if ((st = read_tokens(v, s, err))) goto bad;
    if ((st = build_raws(v, s, err))) goto bad;
    read_roles(v, s);
    correct_roles(v);
    mark_ends(v);
    if ((st = build_pieces(v, err))) goto bad;
    if ((st = build_specials(v, s->name, err))) goto bad;
    if (v->model == MODEL_SPM && (st = build_scores(v, s, err))) goto bad;
    if (v->model != MODEL_SPM && (st = build_pairs(v, s, err))) goto bad;
    if (v->model != MODEL_GPT2 && (st = build_joints(v, err))) goto bad;
    *out = v;
    return LUCE_OK;
bad:
    vocab_close(v);
    return st;
}

void vocab_close(struct vocab *v)
{
    if (!v) return;
    mem_free(v->tokens);
    mem_free(v->bytes);
    mem_free(v->raws.slots);
    mem_free(v->pieces.slots);
    mem_free(v->pairs);
    mem_free(v->score_rank);
    mem_free(v->joints);
    mem_free(v->specials);
    mem_free(v);
}

int vocab_size(const struct vocab *v)
{
    return v->n_tokens;
}

static bool in_range(const struct vocab *v, int32_t id)
{
    return id >= 0 && id < v->n_tokens;
}

struct str vocab_text(const struct vocab *v, int32_t id)
{
    if (!in_range(v, id)) return (struct str){ "", 0 };
    return (struct str){ v->tokens[id].raw, v->tokens[id].raw_len };
}

enum token_kind vocab_kind(const struct vocab *v, int32_t id)
{
    return in_range(v, id) ? (enum token_kind)v->tokens[id].kind : TOKEN_UNUSED;
}

struct vocab_special vocab_special(const struct vocab *v)
{
    return v->special;
}

bool vocab_is_end(const struct vocab *v, int32_t id)
{
    return in_range(v, id) && v->tokens[id].is_end;
}

bool vocab_is_banned(const struct vocab *v, int32_t id)
{
    return !in_range(v, id) || v->tokens[id].banned;
}
