/* tests/tiny_model.h - a small llama file with random weights and a vocabulary of bytes, so that tests
 * can generate text: heads of 32 (every cache format fits), products in several formats. */
#ifndef LUCE_TESTS_TINY_MODEL_H
#define LUCE_TESTS_TINY_MODEL_H

enum {
    TINY_CONTEXT = 400, TINY_START = 256, TINY_END = 257,     /* "<|im_start|>", "<|im_end|>" */
    TINY_VOCAB = 264,           /* the last five are padding */
};
/* Path of the file, written at the first call; NULL after a failed check. */
const char *tiny_model(void);
/* The same with this text for the token "th" (258) and this context; it lies until the next one. NULL after a failed
 * check. */
const char *tiny_model_with(const char *text, int context);

#endif
