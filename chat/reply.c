/* chat/reply.c - see reply.h. Text is given out as soon as it cannot be the start of a mark; a call's
 * text stays in the buffer until the call is whole, so that it can come out as content if it is none. */
#define _GNU_SOURCE             /* memmem */
#include "chat/reply_private.h"

#include "base/mem.h"
#include "text/unicode.h"

bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

size_t held_back(struct str text, const char *const *marks, size_t n)
{
    size_t most = 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = marks[i] ? strlen(marks[i]) : 0, k = len ? len - 1 : 0;
        for (k = k < text.len ? k : text.len; k > most; k--)
            if (memcmp(text.at + text.len - k, marks[i], k) == 0) most = k;
    }
    return most;
}

int mark_at(const struct reply *r, size_t at, const char *mark, bool end)
{
    size_t n = strlen(mark), left = r->in.len > at ? r->in.len - at : 0;
    if (left >= n) return memcmp(r->in.data + at, mark, n) == 0;
    return left == 0 || memcmp(r->in.data + at, mark, left) == 0 ? (end ? 0 : -1) : 0;
}

void skip_space(struct reply *r)
{
    while (r->at < r->in.len && is_space(r->in.data[r->at])) r->at++;
}

void reply_event(struct reply *r, enum reply_kind kind, struct str text)
{
    struct reply_event e = { .kind = kind, .text = text, .call = r->n_calls };
    if (text.len == 0 && kind != REPLY_CALL_END) return;
    r->begun = true;
    if (kind == REPLY_CONTENT) r->said = true;
    r->p.on_event(r->p.user, &e);
}

/* ---- calls --------------------------------------------------------------------------------------- */

const json_t *tool_find(const json_t *tools, struct str name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function"), *n = json_object_get(f, "name");
        if (n && json_string_length(n) == name.len && memcmp(json_string_value(n), name.at, name.len) == 0) return f;
    }
    return NULL;
}

const json_t *call_schema(const struct reply *r, const char *key)
{
    const json_t *f = tool_find(r->p.tools, (struct str){ buf_text(&r->name), r->name.len });
    return json_object_get(json_object_get(json_object_get(f, "parameters"), "properties"), key);
}

void call_reset(struct reply *r)
{
    buf_clear(&r->name);
    buf_clear(&r->id);
    buf_clear(&r->key);
    buf_clear(&r->args);
    r->told = r->value = r->seen = 0;
    r->state = r->depth = r->levels = r->params = r->step = 0;
    r->started = r->announced = r->in_string = r->escaped = r->is_string = r->typed = r->as_text = r->unwrapped = false;
    r->comma = r->list = false;
    json_decref(r->given);
    r->given = NULL;
}

bool call_start(struct reply *r, struct str name, struct str id)
{
    if (r->started) return true;
    if (name.len == 0 || name.len > NAME_MAX_BYTES) return false;
    for (size_t i = 0; i < name.len; i++)
        if (is_space(name.at[i]) || !name.at[i] || is_one_of(name.at[i], "<>{}[]\"\\")) return false;
    if (r->single && !tool_find(r->p.tools, name)) return false;
    buf_add(&r->name, name.at, name.len);
    buf_add(&r->id, id.at, id.len);
    r->started = true;
    return true;
}

bool call_is_sure(const struct reply *r)
{
    return r->started && r->args.len >= CALL_SURE_BYTES;
}

static void tell(struct reply *r)
{
    if (!r->announced) {
        struct reply_event e = { .kind = REPLY_CALL, .text = { buf_text(&r->name), r->name.len }, .call = r->n_calls,
                                 .id = { buf_text(&r->id), r->id.len } };
        r->begun = r->announced = true;
        r->p.on_event(r->p.user, &e);
    }
    reply_event(r, REPLY_ARGUMENTS, (struct str){ buf_text(&r->args) + r->told, r->args.len - r->told });
    r->told = r->args.len;
}

void call_tell(struct reply *r)
{
    if (call_is_sure(r)) tell(r);
}

static void end_call(struct reply *r, enum call_end how)
{
    tell(r);
    struct reply_event e = { .kind = REPLY_CALL_END, .call = r->n_calls++, .end = how };
    r->n_whole += how == CALL_WHOLE;
    r->p.on_event(r->p.user, &e);
    call_reset(r);
}

json_t *json_of(struct reply *r, const char *text, size_t len)
{
    json_error_t why = { .text = "" };
    json_t *v = json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (v) return v;
    enum json_error_code code = json_error_code(&why);
    /* Numbers beyond 64 bits are JSON all the same. */
    if (code == json_error_numeric_overflow)
        v = json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    if (!v && json_error_code(&why) == json_error_out_of_memory) r->failed = true;
    return v;
}

enum verdict call_finish(struct reply *r)
{
    if (!r->started) return V_BROKEN;
    if (r->args.len == 0) buf_add_text(&r->args, "{}");
    end_call(r, CALL_WHOLE);
    return V_DONE;
}

void escape_json(struct buf *out, const char *bytes, size_t len)
{
    static const char short_form[] = "\nn\rr\tt\bb\ff\"\"\\\\";
    for (size_t i = 0, from = 0; i <= len; i++) {
        if (i < len && (unsigned char)bytes[i] >= 0x20 && bytes[i] != '"' && bytes[i] != '\\') continue;
        buf_add(out, bytes + from, i - from);
        from = i + 1;
        if (i == len) break;
        const char *known = bytes[i] ? strchr(short_form, bytes[i]) : NULL;
        if (known) buf_printf(out, "\\%c", known[1]);
        else buf_printf(out, "\\u%04x", (unsigned char)bytes[i]);
    }
}

/* ---- text ---------------------------------------------------------------------------------------- */

enum mark { M_NONE, M_OPEN, M_THINK, M_CLOSE, M_BARE, M_HOLD };

/* The mark that begins at byte `at`, and its length. said: text of its kind stands before it. M_HOLD: the text ends
 * before that is clear. */
static enum mark look(const struct reply *r, size_t at, bool said, bool end, size_t *len)
{
    const struct dialect *d = r->p.dialect;
    enum mark found = M_NONE;
    bool calls = !r->p.no_calls && at >= r->immune;
    *len = 0;
    for (int i = 0; calls && i < 3 && d->open[i]; i++) {
        bool bare_word = !is_one_of(*d->open[i], "<[");        /* without its marks: at the start of a line */
        if (bare_word && (!r->p.tools || (at > 0 && at > r->pos && r->in.data[at - 1] != '\n') || (at == r->pos &&
                said)))
            continue;
        int there = mark_at(r, at, d->open[i], end);
        if (there < 0) return M_HOLD;
        if (there && strlen(d->open[i]) > *len) {
            found = M_OPEN;
            *len = strlen(d->open[i]);
        }
    }
    if (found) return found;
    int close = mark_at(r, at, d->think_close, end);
    int open = r->mode == IN_CONTENT && !said ? mark_at(r, at, d->think_open, end) : 0;
    if (close < 0 || open < 0) return M_HOLD;
    if (close || open) {
        *len = strlen(close ? d->think_close : d->think_open);
        return close ? M_CLOSE : M_THINK;
    }
    if (calls && d->bare && r->mode == IN_CONTENT && !said && r->p.tools && r->in.data[at] == '{') return M_BARE;
    return M_NONE;
}

static void give(struct reply *r, size_t to)
{
    if (to > r->pos && r->skip_blank)
        while (r->pos < to && is_space(r->in.data[r->pos])) r->pos++;
    if (to <= r->pos) return;
    r->skip_blank = false;
    r->thought = r->mode == IN_REASONING;
    reply_event(r, r->mode == IN_REASONING ? REPLY_REASONING : REPLY_CONTENT,
                (struct str){ r->in.data + r->pos, to - r->pos });
    r->pos = to;
}

static void to_reasoning(struct reply *r, size_t after)
{
    r->mode = IN_REASONING;
    r->skip_blank = true;
    r->thought = false;
    r->pos = r->scan = after;
}

static void begin_call(struct reply *r, size_t from, size_t opener, size_t len)
{
    call_reset(r);
    r->mode = IN_CALL;
    r->from = from;
    r->opened = opener + len;
    r->at = r->opened;
    r->single = len == 0;
}

/* Gives out text up to the next mark and acts on it. False: no more can be said now. */
static bool read_text(struct reply *r, bool end)
{
    bool said = r->mode == IN_REASONING ? r->thought : r->said;
    for (size_t i = r->scan > r->pos ? r->scan : r->pos; i < r->in.len; i++) {
        size_t len;
        char c = r->in.data[i];
        if (is_space(c)) continue;
        enum mark m = is_one_of(c, "<[{c") ? look(r, i, said, end, &len) : M_NONE;
        if (m == M_CLOSE && r->mode == IN_CONTENT && said) m = M_NONE;  /* only one before all words is stray */
        said = true;
        if (m == M_NONE) continue;
        size_t text = i;        /* white space before a mark waits, or goes with it */
        while (text > r->pos && is_space(r->in.data[text - 1])) text--;
        give(r, text);
        r->scan = i;
        if (m == M_HOLD) return false;
        if (m == M_OPEN && r->mode == IN_REASONING) {
            r->mode = IN_TRIAL;
            r->scan = i;
            r->probed = 0;
            r->opened = i + len;
        } else if (m == M_OPEN || m == M_BARE) {
            begin_call(r, r->pos, i, m == M_BARE ? 0 : len);
        } else if (m == M_THINK) {
            to_reasoning(r, i + len);
        } else {
            r->mode = IN_CONTENT;
            r->skip_blank = true;
            r->pos = r->scan = i + len;
        }
        return true;
    }
    size_t text = r->in.len;
    while (!end && text > r->pos && is_space(r->in.data[text - 1])) text--;
    if (end && r->mode == IN_REASONING)
        while (text > r->pos && is_space(r->in.data[text - 1])) text--;
    if (end && r->n_calls && r->skip_blank)
        while (r->pos < text && is_space(r->in.data[r->pos])) r->pos++;
    give(r, text);
    r->scan = r->in.len;
    return false;
}

/* ---- calls inside reasoning ---------------------------------------------------------------------- */

struct trial {
    const json_t *tools;
    int whole;
    bool bad, text;
};

static void try_event(void *user, const struct reply_event *e)
{
    struct trial *t = user;
    if (e->kind == REPLY_CALL && !tool_find(t->tools, e->text)) t->bad = true;
    if (e->kind == REPLY_CALL_END && e->end == CALL_WHOLE) t->whole++;
    if (e->kind == REPLY_CALL_END && e->end == CALL_CUT) t->text = true;
    if (e->kind == REPLY_CONTENT) t->text = true;
}

/* Reads the held text as if it were content. */
static struct trial try_calls(struct reply *r, bool end)
{
    struct trial t = { .tools = r->p.tools };
    struct reply *sub = NULL;
    struct reply_params p = r->p;
    p.on_event = try_event;
    p.user = &t;
    p.in_reasoning = false;
    if (reply_open(&sub, &p, NULL)) {
        r->failed = true;
        return t;
    }
    reply_add(sub, (struct str){ r->in.data + r->scan, r->in.len - r->scan });
    if (end && reply_end(sub, !r->natural, NULL)) r->failed = true;
    reply_close(sub);
    return t;
}

/* A call's opener came inside reasoning, at r->scan. It is a call if nothing but whole calls to declared
 * tools follows; a closing tag, or anything else, makes it a mention. */
static bool read_trial(struct reply *r, bool end)
{
    struct str close = str_of(r->p.dialect->think_close);
    size_t from = r->scan + (r->probed > close.len ? r->probed - close.len : 0);
    bool closed = r->in.len - from >= close.len && memmem(r->in.data + from, r->in.len - from, close.at, close.len);
    size_t held = r->in.len - r->scan;
    if (!closed && !end && held < r->probed + r->probed / 2 + 1) return false;
    struct trial t = closed ? (struct trial){ .bad = true } : try_calls(r, end);
    r->probed = held;
    if (!t.bad && !end && !t.text) return false;
    r->mode = IN_REASONING;
    if (end && !t.bad && !t.text && t.whole > 0) {
        r->mode = IN_CONTENT;
        r->pos = r->scan;
        r->skip_blank = true;
        return true;
    }
    size_t last = closed ? (size_t)((char *)memmem(r->in.data + from, r->in.len - from, close.at,
                                                   close.len) - r->in.data)
                         : r->opened;
    r->immune = last;
    give(r, r->opened);
    r->scan = r->pos;
    return true;
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static void call_is_text(struct reply *r)
{
    r->n_malformed += r->started;       /* else it may be prose that mentions a mark */
    call_reset(r);
    r->mode = IN_CONTENT;
    /* After the ';' of another bare call anything may stand instead of an object, a longer character too. */
    bool object = r->single && r->opened < r->in.len && r->in.data[r->opened] == '{';
    r->immune = r->at > r->opened ? r->at : r->opened + object;
    r->pos = r->from;
    if (r->opened > r->pos) give(r, r->opened);
    if (object) give(r, r->opened + 1);
    r->scan = r->pos;
}

static void call_is_over(struct reply *r)
{
    r->mode = IN_CONTENT;
    r->pos = r->scan = r->at;
    r->skip_blank = true;
}

static bool read_call(struct reply *r, bool end)
{
    enum verdict v = r->single ? read_json_call(r, end) : r->p.dialect->read(r, end);
    call_tell(r);
    if (v == V_MORE && !end) return false;
    if (v == V_DONE) {
        call_is_over(r);
        return true;
    }
    bool cut = v == V_MORE && r->started && !r->natural, sure = call_is_sure(r);
    if (v == V_MORE && (cut || !sure)) r->at = r->in.len;
    if (cut) {
        end_call(r, CALL_CUT);
        call_is_over(r);
    } else if (sure) {
        r->n_malformed++;
        json_complete(&r->args);
        end_call(r, CALL_WHOLE);
        call_is_over(r);
    } else {
        call_is_text(r);
    }
    return true;
}

static void run(struct reply *r, bool end)
{
    for (;;) {
        bool more = r->mode == IN_CALL ? read_call(r, end) : r->mode == IN_TRIAL ? read_trial(r, end) : read_text(r,
                end);
        if (!more || r->in.failed) break;
    }
    if (r->pos < 4096 || r->mode == IN_CALL || r->mode == IN_TRIAL) return;
    size_t gone = r->pos;
    memmove(r->in.data, r->in.data + gone, r->in.len - gone);
    r->in.len -= gone;
    r->pos = 0;
    r->scan -= r->scan > gone ? gone : r->scan;
    r->immune -= r->immune > gone ? gone : r->immune;
}

luce_status reply_open(struct reply **out, const struct reply_params *params, luce_error *err)
{
    struct reply *r = *out = mem_zero(sizeof *r);
    if (!r) return fail(err, LUCE_E_NOMEM, "out of memory for the parser of a reply");
    r->p = *params;
    if (json_array_size(params->tools) == 0) r->p.tools = NULL;
    if (params->in_reasoning) r->mode = IN_REASONING, r->skip_blank = true;
    return LUCE_OK;
}

void reply_close(struct reply *r)
{
    if (!r) return;
    call_reset(r);
    buf_drop(&r->in);
    buf_drop(&r->name);
    buf_drop(&r->id);
    buf_drop(&r->key);
    buf_drop(&r->args);
    mem_free(r);
}

/* Appends bytes as valid UTF-8; an incomplete character waits. */
static void add_clean(struct reply *r, const char *p, size_t len, bool end)
{
    size_t from = 0, i = 0;
    while (i < len) {
        int n = utf8_valid(p + i, len - i);
        if (n > 0) {
            i += (size_t)n;
            continue;
        }
        if (n == 0 && !end) break;
        size_t bad = n < 0 ? (size_t)-n : len - i;
        buf_add(&r->in, p + from, i - from);
        buf_add_text(&r->in, "\xef\xbf\xbd");
        i += bad;
        from = i;
    }
    buf_add(&r->in, p + from, i - from);
    r->n_tail = (int)(len - i);
    if (r->n_tail) memcpy(r->tail, p + i, (size_t)r->n_tail);
}

void reply_add(struct reply *r, struct str bytes)
{
    size_t at = 0;
    while (r->n_tail && at < bytes.len) {       /* complete the character that waits, byte by byte */
        char both[8];
        int n = r->n_tail;
        memcpy(both, r->tail, (size_t)n);
        both[n++] = bytes.at[at++];
        add_clean(r, both, (size_t)n, false);
    }
    if (!r->n_tail) add_clean(r, bytes.at + at, bytes.len - at, false);
    if (!r->in.failed) run(r, false);
}

luce_status reply_end(struct reply *r, bool cut, luce_error *err)
{
    char tail[4];
    int n = r->n_tail;
    memcpy(tail, r->tail, sizeof tail);
    add_clean(r, tail, (size_t)n, true);
    r->natural = !cut;
    if (!r->in.failed) run(r, true);
    if (r->in.failed || r->name.failed || r->id.failed || r->args.failed || r->key.failed || r->failed)
        return fail(err, LUCE_E_NOMEM, "out of memory for a reply");
    return LUCE_OK;
}

bool reply_called(const struct reply *r)
{
    return r->n_whole > 0;
}

int reply_malformed(const struct reply *r)
{
    return r->n_malformed;
}

size_t reply_unread(const struct reply *r)
{
    return r->in.len - r->pos + (size_t)r->n_tail;
}

bool reply_in_reasoning(const struct reply *r)
{
    return r->mode == IN_REASONING || r->mode == IN_TRIAL;
}
