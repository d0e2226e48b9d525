/* luce.h - the public interface of luce: load a model, tokenise, generate, batch.
 * Everything that begins with luce_ is here, and nothing else is public. Functions that can fail
 * return a luce_status and describe the failure in *err (cause and remedy, one line).
 * Threads: see each function; a model may be used by one thread at a time unless stated. */
#ifndef LUCE_H
#define LUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    LUCE_OK = 0,
    LUCE_E_ARG,       /* the caller's argument, flag or request field is wrong */
    LUCE_E_IO,        /* a file or device file could not be read or written */
    LUCE_E_FORMAT,    /* a file's content contradicts its format or this engine's limits */
    LUCE_E_NOMEM,     /* host memory */
    LUCE_E_DEVMEM,    /* device memory */
    LUCE_E_DEVICE,    /* a device failed and cannot be used any more */
    LUCE_E_UNSUPPORTED, /* valid, but this build or device cannot do it */
    LUCE_E_CANCELLED, /* stopped by the caller */
    LUCE_E_NUMERIC,   /* a result that is not finite */
} luce_status;

/* Filled by whoever finds the error; text is one line without a newline. Zero-initialise it. */
typedef struct {
    luce_status code;
    char text[1000];
} luce_error;

#ifdef __cplusplus
}
#endif
#endif
