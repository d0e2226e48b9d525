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
    static volatile uint64_t sink;      /* keeps the reads alive */
    if (g) sink += gguf_walk(g);
    gguf_close(g);
    return 0;
}
