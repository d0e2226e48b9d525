/* tests/heard.h - what a reply's parser tells, written down as text, for tests of dialects. */
#ifndef LUCE_TESTS_HEARD_H
#define LUCE_TESTS_HEARD_H

#include "chat/reply.h"
#include "tests/test.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"s\":{\"type\":\"string\"},\"t\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},"
    "\"o\":{\"type\":\"object\"},\"l\":{\"type\":\"array\"},\"x\":{\"type\":[\"null\",\"number\"]},"
    "\"i?\":{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]},\"s?\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},"
    "\"s|l\":{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"array\"}]},\"e\":{\"enum\":[\"1\",\"2\"]},\"r\":{\"$ref\":\"#/$defs/R\"}},"
    "\"$defs\":{\"R\":{\"type\":\"integer\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"g\",\"parameters\":{}}}]";

/* Events as text: "reasoning|content" with calls as "{name:arguments:whole}". Pieces of one kind join. */
struct heard {
    struct buf text;
    int last, calls;
    bool bad;
};

static void hear(void *user, const struct reply_event *e)
{
    struct heard *h = user;
    static const char *const ends[] = { "whole", "cut" };
    for (size_t i = 0; i < e->text.len;) {      /* text is valid UTF-8, so never half a character */
        unsigned char c = (unsigned char)e->text.at[i];
        size_t n = c < 0x80 ? 1 : c < 0xc0 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        if (n == 0 || i + n > e->text.len) h->bad = true;
        i += n ? n : 1;
    }
    if (e->call != h->calls && e->kind >= REPLY_CALL) h->bad = true;
    if (e->kind == REPLY_REASONING && h->last != REPLY_REASONING) buf_add_text(&h->text, "R:");
    if (e->kind == REPLY_CONTENT && h->last != REPLY_CONTENT) buf_add_text(&h->text, "C:");
    if (e->kind == REPLY_CALL) buf_add_text(&h->text, "{");
    if (e->kind == REPLY_CALL_END) buf_printf(&h->text, ":%s}", ends[e->end]), h->calls++;
    buf_add(&h->text, e->text.at, e->text.len);
    if (e->kind == REPLY_CALL && e->id.len) buf_printf(&h->text, "#%.*s", (int)e->id.len, e->id.at);
    if (e->kind == REPLY_CALL) buf_add_text(&h->text, ":");
    h->last = (int)e->kind;
}

enum { REASON = 1, CUT = 2, NO_CALLS = 4, NO_TOOLS = 8 };

static inline const struct dialect *dialect_named(const char *name)
{
    for (size_t i = 0; dialect_at(i); i++)
        if (!strcmp(dialect_name(dialect_at(i)), name)) return dialect_at(i);
    test_failed(__FILE__, __LINE__, "no dialect %s", name);
    return dialect_at(0);
}

/* Feeds the text cut at the given places (sorted; the last one is its length). */
static inline struct heard feed(const char *dialect, int flags, struct str text, const size_t *cuts, size_t n, const json_t *tools)
{
    struct heard h = { .last = -1 };
    struct reply *r = NULL;
    luce_error err = { 0 };
    struct reply_params p = { .dialect = dialect_named(dialect), .tools = flags & NO_TOOLS ? NULL : tools,
                              .no_calls = (flags & NO_CALLS) != 0, .in_reasoning = (flags & REASON) != 0,
                              .on_event = hear, .user = &h };
    CHECK_OK(reply_open(&r, &p, &err), err);
    size_t at = 0;
    for (size_t i = 0; i < n; at = cuts[i++]) {
        char *copy = mem_text(text.at + at, cuts[i] - at);      /* its own bytes, so that sanitizers see the end */
        reply_add(r, (struct str){ copy, cuts[i] - at });
        mem_free(copy);
    }
    CHECK_OK(reply_end(r, (flags & CUT) != 0, &err), err);
    reply_close(r);
    CHECK(!h.bad, "%s: half a character or a wrong number: %s", dialect, buf_text(&h.text));
    return h;
}

enum { CALLS_MAX = 8 };
struct told {
    struct heard all;
    struct buf content, args[CALLS_MAX];
    char name[CALLS_MAX][16];
    enum call_end end[CALLS_MAX];
    int n, malformed;
    bool called;
};

static inline void hear_more(void *user, const struct reply_event *e)
{
    struct told *t = user;
    hear(&t->all, e);
    if (e->kind == REPLY_CONTENT) buf_add(&t->content, e->text.at, e->text.len);
    if (e->call >= CALLS_MAX) return;
    if (e->kind == REPLY_CALL) snprintf(t->name[e->call], 16, "%.*s", (int)e->text.len, e->text.at), t->n = e->call + 1;
    if (e->kind == REPLY_ARGUMENTS) buf_add(&t->args[e->call], e->text.at, e->text.len);
    if (e->kind == REPLY_CALL_END) t->end[e->call] = e->end;
}

static inline void told_drop(struct told *t)
{
    buf_drop(&t->all.text);
    buf_drop(&t->content);
    for (int i = 0; i < CALLS_MAX; i++) buf_drop(&t->args[i]);
}

/* Those of tools_text, kept. */
static inline const json_t *known_tools(void)
{
    static json_t *tools;
    if (!tools) tools = json_loads(tools_text, 0, NULL);
    return tools;
}

/* Reads the text in pieces: 0 as a whole, else of 1 to `piece` bytes. */
static inline struct told read_text(const char *dialect, int flags, struct str text, size_t piece)
{
    struct told t = { .all.last = -1 };
    struct reply *r = NULL;
    luce_error err = { 0 };
    struct reply_params p = { .dialect = dialect_named(dialect), .tools = known_tools(), .in_reasoning = (flags & REASON) != 0,
                              .on_event = hear_more, .user = &t };
    CHECK_OK(reply_open(&r, &p, &err), err);
    for (size_t at = 0, n; at < text.len; at += n) {
        n = piece == 0 ? text.len : 1 + (size_t)(test_random() % piece);
        if (n > text.len - at) n = text.len - at;
        reply_add(r, (struct str){ text.at + at, n });
    }
    CHECK_OK(reply_end(r, (flags & CUT) != 0, &err), err);
    t.called = reply_called(r);
    t.malformed = reply_malformed(r);
    reply_close(r);
    CHECK(!t.all.bad, "%s: half a character or a wrong number: %s", dialect, buf_text(&t.all.text));
    return t;
}

/* What is told must not depend on the pieces. What it is, read as a whole. */
static inline struct told read_any_way(const char *dialect, int flags, struct str text)
{
    struct told whole = read_text(dialect, flags, text, 0);
    for (size_t piece = 1; piece <= 17; piece = 2 * piece + 3) {
        struct told t = read_text(dialect, flags, text, piece);
        CHECK(!strcmp(buf_text(&t.all.text), buf_text(&whole.all.text)), "%s, pieces up to %zu: %.*s\n  gives %s\n  whole %s", dialect, piece,
              (int)text.len, text.at, buf_text(&t.all.text), buf_text(&whole.all.text));
        told_drop(&t);
    }
    return whole;
}

static inline void check_text(const char *dialect, int flags, const char *text, const char *want)
{
    struct told t = read_any_way(dialect, flags, str_of(text));
    CHECK(!strcmp(buf_text(&t.all.text), want), "%s: %s\n  gives    %s\n  expected %s", dialect, text, buf_text(&t.all.text), want);
    told_drop(&t);
}

/* What random values are made of: texts of a few words, whole numbers from `first` on. */
struct value_parts {
    const char *const *words;
    size_t n_words;
    const char *const *keys;
    size_t n_keys;
    json_int_t first;
    uint64_t n_numbers;
};

/* A value of any kind, lists and objects up to `depth` within each other; json_decref. */
static inline json_t *random_json(const struct value_parts *p, int depth)
{
    switch (test_random() % (depth > 0 ? 9 : 6)) {
    case 0: return json_integer(p->first + (json_int_t)(test_random() % p->n_numbers));
    case 1: return json_real((double)(test_random() % 1000) / 8 + 0.5);
    case 2: return json_boolean(test_random() & 1);
    case 3: return json_null();
    case 4:
    case 5: {
        struct buf b = { 0 };
        for (uint64_t n = test_random() % 6; n > 0; n--) buf_add_text(&b, p->words[test_random() % p->n_words]);
        json_t *v = json_string(buf_text(&b));
        buf_drop(&b);
        return v;
    }
    default: {
        bool list = test_random() & 1;
        json_t *v = list ? json_array() : json_object();
        for (uint64_t n = test_random() % 4; n > 0; n--)
            if (list) json_array_append_new(v, random_json(p, depth - 1));
            else json_object_set_new(v, p->keys[test_random() % p->n_keys], random_json(p, depth - 1));
        return v;
    }
    }
}

#endif
