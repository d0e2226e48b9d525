/* tests/fuzz/fuzz_safetensors.c - any bytes as a safetensors file and its config.json: refused with a message, or
 * a view of which every byte can be read. The first two bytes say how long the config is.
 * Seeds: tests/fuzz/corpus/safetensors. */
#include <stdlib.h>

#include "base/mem.h"
#include "gguf/safetensors.h"
#include "tests/gguf_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct safetensors_name keys[] = { { "a", "x.count" }, { "b.c", "x.list" } };
static const struct safetensors_name tensors[] = { { "layers.*.w", "blk.*.weight" }, { "norm", "top" } };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct safetensors_names names = { "x", keys, tensors, COUNT(keys), COUNT(tensors) };
    struct gguf *g;
    luce_error err = { 0 };
    if (size < 2) return 0;
    size_t config = data[0] | (size_t)data[1] << 8, rest = size - 2;
    if (config > rest) config = rest;
    rest -= config;
    uint8_t *file = mem_aligned(rest + 1, 64);
    if (!file) return 0;
    memcpy(file, data + 2 + config, rest);
    luce_status st = safetensors_open_memory(&g, file, rest, (struct str){ (const char *)data + 2, config }, "fuzz", &names,
                                             &err);
    if (st ? g || !err.text[0] || err.code != st : !g) abort();
    if (g && gguf_walk(g) != gguf_walk(g)) abort();     /* a reader does not change */
    gguf_close(g);
    mem_free(file);
    return 0;
}
