/* tests/fuzz/fuzz_gguf.c - any bytes as a GGUF: the reader refuses them with a message or gives a
 * view of which every byte can be read.
 * Seeds: tests/fuzz/corpus/gguf (scripts/make-gguf-corpus.py). */
#include <stdlib.h>

#include "tests/gguf_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    luce_error err = { 0 };
    luce_status st = gguf_open_memory(&g, data, size, "fuzz", &err);
    if (st ? g || !err.text[0] || err.code != st : !g) abort();
    if (g && gguf_walk(g) != gguf_walk(g)) abort();     /* a reader does not change */
    gguf_close(g);
    return 0;
}
