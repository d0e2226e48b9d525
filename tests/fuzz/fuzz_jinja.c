/* tests/fuzz/fuzz_jinja.c - any template over a small conversation: parsing and rendering end, within
 * their limits, and the marks of the output are in order. Bytes after a NUL are the user's text.
 * Seeds: tests/fuzz/corpus/jinja, dictionary: tests/fuzz/jinja.dict. */
#include <stdlib.h>

#include "base/mem.h"
#include "text/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool condition)
{
    if (!condition) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = malloc(size + 1);      /* its own block, so that a byte beyond it is seen */
    memcpy(copy, data, size);
    const char *nul = size ? memchr(copy, 0, size) : NULL;
    size_t len = nul ? (size_t)(nul - copy) : size;
    struct str words = nul ? (struct str){ nul + 1, size - len - 1 } : str_of("words <|im_end|>");
    struct jinja *t = NULL;
    struct jheap h = { .limit = 8 << 20 };
    struct jinja_output out;
    luce_error err = { 0 };
    if (jinja_parse(&t, (struct str){ copy, len }, "t", &err) == LUCE_OK) {
        struct jval messages = jinja_list(&h), m = jinja_dict(&h), args = jinja_dict(&h);
        jinja_put(&h, args, str_of("n"), true, jinja_float(0.1));
        jinja_put(&h, m, str_of("role"), false, jinja_text(&h, str_of("user"), false));
        jinja_put(&h, m, str_of("content"), true, jinja_text(&h, words, true));
        jinja_put(&h, m, str_of("arguments"), true, args);
        jinja_push(&h, messages, m);
        jinja_push(&h, messages, m);
        struct jinja_var vars[] = { { "messages", messages }, { "x", jinja_text(&h, words, true) }, { "n", jinja_int(3) } };
        struct jinja_render how = { .vars = vars, .n_vars = COUNT(vars), .now = 1, .max_steps = 100000 };
        if (jinja_render(t, &how, &h, &out, &err) == LUCE_OK) {
            size_t at = 0;
            for (size_t i = 0; i < out.n_spans; at = out.spans[i++].to)
                need(out.spans[i].from >= at && out.spans[i].to > out.spans[i].from && out.spans[i].to <= out.text.len);
        }
    }
    jinja_free(t);
    jinja_heap_drop(&h);
    need(mem_live() == 0);
    free(copy);
    return 0;
}
