/* engine/text.h - the public description of a text, as the tokenizer wants it. Threads: any. */
#ifndef LUCE_ENGINE_TEXT_H
#define LUCE_ENGINE_TEXT_H

#include "text/vocab.h"

/* Appends the ids of the text. LUCE_E_UNSUPPORTED when v is NULL; else as vocab_tokenize. */
luce_status text_to_ids(const luce_text *text, const struct vocab *v, struct ids *out, luce_error *err);

#endif
