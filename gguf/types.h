/* gguf/types.h - facts of the container: which value and tensor types a file may hold and how many
 * bytes they take. What the bytes of a tensor mean is not known here; the number formats have a
 * table of their own, and a test keeps the two equal. Constant data; any thread. */
#ifndef LUCE_GGUF_TYPES_H
#define LUCE_GGUF_TYPES_H

#include "gguf/reader.h"

/* Bytes of one value of a fixed-size type; 0 for strings, arrays and unknown types. */
unsigned gguf_type_bytes(enum gguf_type t);

struct gguf_tensor_type {
    uint32_t    id;
    const char *name;
    uint32_t    block;          /* elements of a block; a row holds whole blocks */
    uint32_t    bytes;          /* bytes of a block */
};

/* Borrowed, or NULL for an id that no file may hold (gguf_refused_type says why). */
const struct gguf_tensor_type *gguf_tensor_type_find(uint32_t id);
/* Row i of the table, NULL past its end. */
const struct gguf_tensor_type *gguf_tensor_type_at(size_t i);
/* Why an id that gguf_tensor_type_find does not know is refused, with the remedy; for messages. */
const char *gguf_refused_type(uint32_t id);

#endif
