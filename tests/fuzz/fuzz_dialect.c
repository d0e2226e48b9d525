/* tests/fuzz/fuzz_dialect.c - any reply in any dialect: the same events whole as cut in two, valid UTF-8,
 * calls that end whole hold a JSON object, and without calls and reasoning no byte is lost. The first
 * byte chooses the dialect, the second the flags, the third where to cut.
 * Seeds: tests/fuzz/corpus/dialect, dictionary: tests/fuzz/dialect.dict. */
#ifdef LUCE_HAVE_JSON
#include <stdlib.h>

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
    struct buf all, args;
    int last;
};

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
    if (e->kind == REPLY_CALL) buf_clear(&h->args);
    if (e->kind == REPLY_ARGUMENTS) buf_add(&h->args, e->text.at, e->text.len);
    if (e->kind == REPLY_CALL_END) {
        buf_printf(&h->all, "%d", e->end);
        json_t *args = e->end == CALL_WHOLE
                           ? json_loadb(buf_text(&h->args), h->args.len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL) : NULL;
        need(e->end != CALL_WHOLE || json_is_object(args));
        json_decref(args);
    }
}

static void feed(struct heard *h, const uint8_t *data, size_t size, size_t cut)
{
    struct reply *r = NULL;
    struct reply_params p = { .dialect = dialect_at(data[0] % 11), .tools = data[1] & 1 ? tools : NULL, .in_reasoning = data[1] & 2,
                              .no_calls = data[1] & 4, .on_event = hear, .user = h };
    need(reply_open(&r, &p, NULL) == LUCE_OK);
    size_t len = size - 3, first = len ? cut % (len + 1) : 0;
    char *a = malloc(first + 1), *b = malloc(len - first + 1);
    memcpy(a, data + 3, first);
    memcpy(b, data + 3 + first, len - first);
    reply_add(r, (struct str){ a, first });
    reply_add(r, (struct str){ b, len - first });
    need(reply_end(r, data[1] & 8, NULL) == LUCE_OK);
    reply_close(r);
    free(a);
    free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3) return 0;
    struct heard whole = { .last = -1 }, cut = { .last = -1 };
    feed(&whole, data, size, 0);
    feed(&cut, data, size, data[2]);
    need(whole.all.len == cut.all.len && !memcmp(buf_text(&whole.all), buf_text(&cut.all), whole.all.len));
    buf_drop(&whole.all);
    buf_drop(&whole.args);
    buf_drop(&cut.all);
    buf_drop(&cut.args);
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
