/* text/special.c - special tokens: what files leave unsaid about them, and finding them in text.
 * Matching is leftmost, then longest, over a sorted list: a bitmap of first byte pairs rejects
 * nearly every position at once, the others narrow a range of the list byte by byte. */
#include "base/log.h"
#include "base/mem.h"
#include "text/vocab_private.h"

/* Texts by which a role is known when the file does not name its id; the first that exists. */
static const struct {
    enum special_role role;
    const char *texts[12];
} known_roles[] = {
    { ROLE_EOT, { "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
                  "<|end_of_text|>", "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>",
                  "<end_of_utterance>" } },
    { ROLE_EOM, { "<|eom_id|>" } },
    { ROLE_FIM_PREFIX, { "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>",
                         "▁<PRE>", "<|code_prefix|>" } },
    { ROLE_FIM_SUFFIX, { "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>",
                         "▁<SUF>", "<|code_suffix|>" } },
    { ROLE_FIM_MIDDLE, { "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>",
                         "▁<MID>", "<|code_middle|>" } },
    { ROLE_FIM_PADDING, { "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>" } },
    { ROLE_FIM_REPO, { "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<reponame>", "<REPO>" } },
    { ROLE_FIM_FILE, { "<|file_sep|>" } },
};

static const char *const known_ends[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "<|role_end|>",
};

/* A special text longer than this is never matched: it bounds the work at one position. */
enum { MAX_SPECIAL = 512 };

static int32_t find_text(const struct vocab *v, const char *text)
{
    return vocab_find(v, str_of(text));
}

void correct_roles(struct vocab *v)
{
    for (size_t i = 0; i < COUNT(known_roles); i++) {
        int32_t *id = &v->special.ids[known_roles[i].role];
        const char *const *texts = known_roles[i].texts;
        for (size_t t = 0; *id < 0 && t < COUNT(known_roles[i].texts) && texts[t]; t++)
            *id = find_text(v, texts[t]);
    }
    static const enum special_role control[] = { ROLE_EOT, ROLE_EOM };
    for (size_t i = 0; i < COUNT(control); i++) {
        int32_t id = v->special.ids[control[i]];
        if (id >= 0) v->tokens[id].kind = TOKEN_CONTROL;
    }
}

static void set_end(struct vocab *v, int32_t id, bool is_end)
{
    if (id >= 0) v->tokens[id].is_end = is_end;
}

static bool has(const struct vocab *v, const char *text)
{
    return find_text(v, text) >= 0;
}

void mark_ends(struct vocab *v)
{
    static const enum special_role roles[] = {
        ROLE_EOS, ROLE_EOT, ROLE_EOM, ROLE_FIM_PADDING, ROLE_FIM_REPO, ROLE_FIM_FILE,
    };
    for (size_t i = 0; i < COUNT(roles); i++) set_end(v, v->special.ids[roles[i]], true);
    for (size_t i = 0; i < COUNT(known_ends); i++) set_end(v, find_text(v, known_ends[i]), true);
    if (v->pre && str_eq(str_of("laguna"), (struct str){ v->pre->names, 6 }))
        set_end(v, find_text(v, "</assistant>"), true);
    /* Formats with channels end a message, not the turn, with these. */
    if ((has(v, "<|return|>") && has(v, "<|call|>")) ||
        (has(v, "<|calls|>") && has(v, "<|flush|>")))
        set_end(v, find_text(v, "<|end|>"), false);
    if (has(v, "<|tool_response>")) set_end(v, find_text(v, "</s>"), false);
}

static struct str raw_of(const struct vocab *v, int32_t id)
{
    return (struct str){ v->tokens[id].raw, v->tokens[id].raw_len };
}

static bool is_special(const struct token *t)
{
    bool kind = t->kind == TOKEN_CONTROL || t->kind == TOKEN_USER_DEFINED || t->kind == TOKEN_UNKNOWN;
    return kind && t->raw_len > 0 && t->raw_len <= MAX_SPECIAL;
}

static int compare_raw(const struct vocab *v, int32_t a, int32_t b)
{
    struct str x = raw_of(v, a), y = raw_of(v, b);
    size_t len = x.len < y.len ? x.len : y.len;
    int order = memcmp(x.at, y.at, len);
    if (order) return order;
    if (x.len != y.len) return x.len < y.len ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Merge sort, bottom up, because the comparison needs the vocabulary. */
static bool sort_specials(struct vocab *v)
{
    size_t n = (size_t)v->n_specials;
    int32_t *from = v->specials, *to = mem_array(n ? n : 1, sizeof *to);
    if (!to) return false;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t low = 0; low < n; low += 2 * width) {
            size_t mid = low + width < n ? low + width : n;
            size_t high = mid + width < n ? mid + width : n, a = low, b = mid;
            for (size_t i = low; i < high; i++) {
                bool left = b == high || (a < mid && compare_raw(v, from[a], from[b]) <= 0);
                to[i] = left ? from[a++] : from[b++];
            }
        }
        int32_t *swap = from;
        from = to;
        to = swap;
    }
    v->specials = from;
    mem_free(to);
    return true;
}

/* Of equal texts the last one counts, and where control tokens are not allowed the last one that is none: only
 * these stay, so that a text is not matched with thousands of equals at each place. */
static void drop_equals(struct vocab *v)
{
    int kept = 0;
    for (int low = 0, high; low < v->n_specials; low = high) {
        int32_t plain = -1;
        for (high = low; high < v->n_specials; high++) {
            int32_t id = v->specials[high];
            if (!str_eq(raw_of(v, id), raw_of(v, v->specials[low]))) break;
            if (v->tokens[id].kind == TOKEN_USER_DEFINED && !v->tokens[id].is_end) plain = id;
        }
        int32_t last = v->specials[high - 1];
        if (plain >= 0 && plain != last) v->specials[kept++] = plain;
        v->specials[kept++] = last;
    }
    v->n_specials = kept;
}

/* In Phi-3 models special tokens swallow the white space that follows, except these. */
static void mark_strips(struct vocab *v, struct str name)
{
    static const char *const keep[] = { "<unk>", "<s>", "<|endoftext|>" };
    bool is_phi3 = false;
    for (size_t i = 0; i + 4 <= name.len; i++) {
        char c[6] = { 0 };
        for (size_t j = 0; j < 5 && i + j < name.len; j++) {
            c[j] = name.at[i + j];
            if (c[j] >= 'A' && c[j] <= 'Z') c[j] += 'a' - 'A';
        }
        is_phi3 |= memcmp(c, "phi3", 4) == 0 || memcmp(c, "phi-3", 5) == 0;
    }
    for (int i = 0; is_phi3 && i < v->n_specials; i++) v->tokens[v->specials[i]].strip_right = true;
    for (size_t i = 0; is_phi3 && i < COUNT(keep); i++) {
        int32_t id = find_text(v, keep[i]);
        if (id >= 0) v->tokens[id].strip_right = false;
    }
}

luce_status build_specials(struct vocab *v, struct str model_name, luce_error *err)
{
    int n = 0;
    for (int id = 0; id < v->n_tokens; id++) n += is_special(&v->tokens[id]);
    v->specials = mem_array(n ? (size_t)n : 1, sizeof *v->specials);
    if (!v->specials) return fail(err, LUCE_E_NOMEM, "out of memory for %d special tokens", n);
    for (int id = 0; id < v->n_tokens; id++)
        if (is_special(&v->tokens[id])) v->specials[v->n_specials++] = id;
    if (!sort_specials(v)) return fail(err, LUCE_E_NOMEM, "out of memory for %d special tokens", n);
    drop_equals(v);
    n = v->n_specials;
    int i = 0;
    for (int b = 0; b < 256; b++) {
        v->by_first[b] = i;
        while (i < n && (unsigned char)*v->tokens[v->specials[i]].raw == b) {
            struct str text = raw_of(v, v->specials[i++]);
            unsigned second = text.len > 1 ? (unsigned char)text.at[1] : 0;
            unsigned last = text.len > 1 ? second : 255;        /* one byte: whatever follows */
            for (; second <= last; second++) {
                unsigned two = (unsigned)b << 8 | second;
                v->by_two[two >> 6] |= (uint64_t)1 << (two & 63);
            }
        }
    }
    v->by_first[256] = n;
    mark_strips(v, model_name);
    return LUCE_OK;
}

/* The longest special token at text.at[at] that is allowed, or -1. */
static int32_t match(const struct vocab *v, struct str text, size_t at,
                     special_allowed *allowed, void *context)
{
    unsigned char first = (unsigned char)text.at[at];
    int low = v->by_first[first], high = v->by_first[first + 1];
    int32_t best = -1;
    for (size_t len = 1; low < high; len++) {
        /* Here specials[low .. high-1] agree with the text in `len` bytes; the shortest stand
         * first. */
        for (; low < high && v->tokens[v->specials[low]].raw_len == len; low++)
            if (allowed(context, v->specials[low], at, at + len)) best = v->specials[low];
        if (low == high || at + len == text.len) break;
        unsigned char next = (unsigned char)text.at[at + len];
        int bound[2];
        for (int side = 0; side < 2; side++) {
            int a = low, b = high;
            while (a < b) {
                int mid = a + (b - a) / 2;
                unsigned char c = (unsigned char)v->tokens[v->specials[mid]].raw[len];
                if (c < next || (side == 1 && c == next)) a = mid + 1;
                else b = mid;
            }
            bound[side] = a;
        }
        low = bound[0];
        high = bound[1];
    }
    return best;
}

size_t special_next(const struct vocab *v, struct str text, size_t from, special_allowed *allowed,
                    void *context, int32_t *id)
{
    *id = -1;
    if (v->n_specials == 0) return text.len;
    for (size_t i = from; i < text.len; i++) {
        unsigned two = (unsigned)(unsigned char)text.at[i] << 8;
        if (i + 1 < text.len) {
            two |= (unsigned char)text.at[i + 1];
            if (!(v->by_two[two >> 6] >> (two & 63) & 1)) continue;
        }
        if ((*id = match(v, text, i, allowed, context)) >= 0) return i;
    }
    return text.len;
}
