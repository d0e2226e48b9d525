/* model/vocab_gguf.h - the vocabulary of a GGUF file: its tokenizer keys, handed to text/. */
#ifndef LUCE_MODEL_VOCAB_GGUF_H
#define LUCE_MODEL_VOCAB_GGUF_H

#include "gguf/reader.h"
#include "text/vocab.h"

/* Token texts stay in the file's mapping: g must outlive the vocabulary. Errors are those of
 * vocab_open, and LUCE_E_FORMAT for keys of the wrong type or arrays of unequal length. */
luce_status vocab_from_gguf(struct vocab **out, const struct gguf *g, luce_error *err);

#endif
