/* tests/fuzz/fuzz_dialect.c - any reply in any dialect: the same events whole as cut in two and byte by byte,
 * valid UTF-8, calls that end whole hold a JSON object, only the last one of a reply that a limit ended is cut,
 * and without calls and reasoning no byte is lost. The first byte chooses the dialect, the second the flags,
 * the third where to cut.
 * Seeds: tests/fuzz/corpus/dialect, dictionary: tests/fuzz/dialect.dict. */
#define _GNU_SOURCE             /* memmem */
#ifdef LUCE_HAVE_JSON
#include <stdlib.h>
#include <string.h>

#include "chat/reply.h"
#include "text/unicode.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static json_t *tools;

static void need(bool condition)
{
    if (!condition) abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    tools = json_loads("[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{"
                       "\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"o\":{\"type\":[\"object\",\"null\"]}}}}}]", 0, NULL);
    return 0;
}

struct heard {
    struct buf all, args, content;
    int last, calls;
    bool reasoned, cut, inside;
};

/* A JSON object. Numbers may be larger than any type, and keys may hold NUL, which jansson cannot. */
static bool is_object(const struct buf *text)
{
    json_error_t why = { .text = "" };
    json_t *v = json_loadb(buf_text(text), text->len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    bool good = json_is_object(v) || (!v && (json_error_code(&why) == json_error_numeric_overflow ||
                                           json_error_code(&why) == json_error_null_byte_in_key));
    json_decref(v);
    return good;
}

static void hear(void *user, const struct reply_event *e)
{
    struct heard *h = user;
    for (size_t i = 0; i < e->text.len;) {
        int n = utf8_valid(e->text.at + i, e->text.len - i);
        need(n > 0);
        i += (size_t)n;
    }
    if ((int)e->kind != h->last) buf_printf(&h->all, "\n%d:", e->kind);
    h->last = (int)e->kind;
    buf_add(&h->all, e->text.at, e->text.len);
    need(!h->cut);
    if (e->kind == REPLY_REASONING) h->reasoned = true;
    if (e->kind == REPLY_CONTENT) buf_add(&h->content, e->text.at, e->text.len);
    need(h->inside == (e->kind == REPLY_ARGUMENTS || e->kind == REPLY_CALL_END));
    if (e->kind >= REPLY_CALL) h->inside = e->kind != REPLY_CALL_END;
    if (e->kind == REPLY_CALL) buf_clear(&h->args), h->calls++;
    if (e->kind == REPLY_ARGUMENTS) buf_add(&h->args, e->text.at, e->text.len);
    if (e->kind == REPLY_CALL_END) {
        buf_printf(&h->all, "%d", e->end);
        h->cut = e->end == CALL_CUT;
        need(h->cut || is_object(&h->args));
    }
}

static const struct dialect *chosen(const uint8_t *data)
{
    size_t n = 0;
    while (dialect_at(n)) n++;
    return dialect_at(data[0] % n);
}

/* Without calls and reasoning the content is the text. */
static void check_content(const struct heard *h, const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + 3, *open = dialect_reasoning_open(chosen(data)), *close = dialect_reasoning_close(chosen(data));
    size_t len = size - 3;
    if (h->calls || h->reasoned || (data[1] & 2) || memmem(text, len, open, strlen(open)) || memmem(text, len, close, strlen(close))) return;
    for (size_t i = 0; i < len;) {
        int n = utf8_valid(text + i, len - i);
        if (n <= 0) return;
        i += (size_t)n;
    }
    need(h->content.len == len && (len == 0 || !memcmp(h->content.data, text, len)));
}

/* Cut at one byte, or in single bytes. */
static void feed(struct heard *h, const uint8_t *data, size_t size, size_t cut, bool bytes)
{
    struct reply *r = NULL;
    struct reply_params p = { .dialect = chosen(data), .tools = data[1] & 1 ? tools : NULL, .in_reasoning = data[1] & 2,
                              .no_calls = data[1] & 4, .on_event = hear, .user = h };
    need(reply_open(&r, &p, NULL) == LUCE_OK);
    size_t len = size - 3, first = len ? cut % (len + 1) : 0;
    char *a = malloc(first + 1), *b = malloc(len - first + 1);
    memcpy(a, data + 3, first);
    memcpy(b, data + 3 + first, len - first);
    reply_add(r, (struct str){ a, first });
    for (size_t i = 0; bytes && i < len - first; i++) reply_add(r, (struct str){ b + i, 1 });
    if (!bytes) reply_add(r, (struct str){ b, len - first });
    need(reply_end(r, data[1] & 8, NULL) == LUCE_OK);
    need(!h->inside && (!h->cut || (data[1] & 8)));
    reply_close(r);
    free(a);
    free(b);
}

static void drop(struct heard *h)
{
    buf_drop(&h->all);
    buf_drop(&h->args);
    buf_drop(&h->content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3) return 0;
    struct heard whole = { .last = -1 };
    feed(&whole, data, size, 0, false);
    check_content(&whole, data, size);
    for (int way = 0; way < 2; way++) {
        struct heard cut = { .last = -1 };
        feed(&cut, data, size, way ? 0 : data[2], way);
        need(whole.all.len == cut.all.len && !memcmp(buf_text(&whole.all), buf_text(&cut.all), whole.all.len));
        drop(&cut);
    }
    drop(&whole);
    return 0;
}
#else
#include <stddef.h>
#include <stdint.h>
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)data, (void)size;
    return 0;
}
#endif
