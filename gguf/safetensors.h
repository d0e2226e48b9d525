/* gguf/safetensors.h - a safetensors checkpoint as if it were a GGUF: keys are those of its config.json
 * ("a.b" for b inside a; arrays of one kind of value; null is left out), tensors are mapped and never copied.
 * A table gives both the names under which they are looked up. Files are untrusted, as in reader.h. */
#ifndef LUCE_GGUF_SAFETENSORS_H
#define LUCE_GGUF_SAFETENSORS_H

#include "gguf/reader.h"

struct safetensors_name {
    const char *from, *to;          /* a "*" stands for a number, in tensors */
};
struct safetensors_names {
    const char *arch;               /* becomes general.architecture */
    const struct safetensors_name *keys, *tensors;     /* names that are not there stay; the first key counts */
    size_t n_keys, n_tensors;
};

/* A folder, or a file whose name ends in .safetensors. */
bool safetensors_is(const char *path);
/* `path`: a folder with config.json and model.safetensors (or model.safetensors.index.json and its parts), or
 * one .safetensors file with config.json beside it. Types F32, F16, BF16, F64, I8, I16, I32, I64. *out is owned
 * by the caller (gguf_close). LUCE_E_IO, LUCE_E_NOMEM, LUCE_E_FORMAT (file, tensor, what is wrong). */
luce_status safetensors_open(struct gguf **out, const char *path, const struct safetensors_names *names,
                             luce_error *err);
/* The same for bytes in memory, which must outlive the reader (tests, fuzzing): one file, and its config.json. */
luce_status safetensors_open_memory(struct gguf **out, const void *data, uint64_t size, struct str config,
                                    const char *name, const struct safetensors_names *names, luce_error *err);

#endif
