/* gguf/reader.h - read-only view of a GGUF model (versions 2 and 3, split files).
 * The file is untrusted: every count, offset and string is checked here, once, so that nobody
 * checks again. Tensor data is never copied, it stays in the mapping.
 * Threads: a reader does not change after gguf_open; any thread may read it. */
#ifndef LUCE_GGUF_READER_H
#define LUCE_GGUF_READER_H

#include "base/error.h"
#include "base/str.h"

struct gguf;                    /* opaque; owned by whoever called gguf_open */

enum gguf_type {                /* value types of the format */
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL,
    GGUF_STRING, GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64, GGUF_N_TYPES
};

struct gguf_tensor {
    const char    *name;        /* NUL-terminated; lives as long as the reader */
    uint64_t       dim[4];      /* elements, fastest first; unused dimensions are 1 */
    int            n_dims;
    uint32_t       type;        /* gguf id of a row of the quant table */
    const uint8_t *data;        /* into the mapping, aligned to general.alignment */
    uint64_t       bytes;
};

struct gguf_key {
    struct str     name;
    enum gguf_type type;        /* GGUF_ARRAY: see element and count */
    enum gguf_type element;
    uint64_t       count;       /* elements of an array, 1 otherwise */
    const uint8_t *value;       /* first byte of the value (of the first element), unaligned */
};

/* Opens `path` (any part of a split model) and maps it. Reads the header only.
 * On LUCE_OK *out is owned by the caller (gguf_close). Otherwise *out is NULL and err says why:
 * LUCE_E_IO, LUCE_E_NOMEM, LUCE_E_FORMAT (names key or tensor, byte offset, expected, found). */
luce_status gguf_open(struct gguf **out, const char *path, luce_error *err);
/* The same for bytes in memory (tests, fuzzing); they must outlive the reader. `name` is for
 * errors. One part of a split model opens by itself. Tensor data is aligned as `data` is. */
luce_status gguf_open_memory(struct gguf **out, const void *data, uint64_t size, const char *name,
                             luce_error *err);
void gguf_close(struct gguf *g);                 /* NULL is fine; every view into g ends here */
const char *gguf_path(const struct gguf *g);     /* as given; for messages */
uint64_t gguf_file_bytes(const struct gguf *g);  /* of all parts together */
int gguf_n_parts(const struct gguf *g);
int gguf_version(const struct gguf *g);

/* Borrowed, or NULL if the model has no tensor of that name. O(1). */
const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name);
size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);    /* in file order */
/* The tensor's bytes will not be read again: lets their file pages go. */
void gguf_release(const struct gguf *g, const struct gguf_tensor *t);
void gguf_release_range(const struct gguf *g, const uint8_t *from, uint64_t bytes);

/* Keys: borrowed, or NULL when absent. O(1). */
const struct gguf_key *gguf_key(const struct gguf *g, const char *name);
size_t gguf_n_keys(const struct gguf *g);
const struct gguf_key *gguf_key_at(const struct gguf *g, size_t i);          /* in file order */

/* Typed access. Each leaves *out at its default `absent` when the key is not there, and fails with
 * LUCE_E_FORMAT (key, type found, type wanted, value) when it is there but cannot be read as asked.
 * u32 and f32 accept every integer, bool or float type with a range check: u32 whole numbers, f32
 * finite ones. bool accepts bool and the integers 0 and 1. Scalars only. */
luce_status gguf_u32(const struct gguf *g, const char *key, uint32_t absent, uint32_t *out,
                     luce_error *err);
luce_status gguf_f32(const struct gguf *g, const char *key, float absent, float *out,
                     luce_error *err);
luce_status gguf_bool(const struct gguf *g, const char *key, bool absent, bool *out,
                      luce_error *err);
luce_status gguf_text(const struct gguf *g, const char *key, struct str absent, struct str *out,
                      luce_error *err);
/* A key that may be a scalar or an array with one element per layer: fills out[0 .. n-1].
 * An array shorter than n is an error. */
luce_status gguf_u32_per(const struct gguf *g, const char *key, uint32_t absent, uint32_t *out,
                         int n, luce_error *err);
luce_status gguf_f32_per(const struct gguf *g, const char *key, float absent, float *out, int n,
                         luce_error *err);

/* Walks an array of strings (or a single one) in order, from a zeroed cursor. False at the end.
 *     struct gguf_cursor c = { 0 }; struct str s; while (gguf_next(k, &c, &s)) ... */
struct gguf_cursor {
    uint64_t index;
    const uint8_t *at;
};
bool gguf_next(const struct gguf_key *k, struct gguf_cursor *c, struct str *out);
/* Element i of an array of numbers (or of a scalar, i = 0), converted: floats lose their fraction,
 * what is out of range becomes the nearest int64_t. 0 for strings, NaN and beyond the end. */
int64_t gguf_int_at(const struct gguf_key *k, uint64_t i);
double gguf_float_at(const struct gguf_key *k, uint64_t i);

/* "u32", "string", ...; static. */
const char *gguf_type_name(enum gguf_type t);

#endif
