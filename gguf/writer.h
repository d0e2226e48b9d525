/* gguf/writer.h - writes a GGUF (version 3), whole or not at all.
 * Keys and tensors are declared first, in the order in which they are to stand in the file; then
 * gguf_write lays them out strictly (each tensor follows the one before, padded to the alignment)
 * and asks for the data of one tensor at a time: a model larger than memory can stream through.
 * Declaring remembers the first error and then does nothing; gguf_write reports it.
 * Threads: one owner at a time. */
#ifndef LUCE_GGUF_WRITER_H
#define LUCE_GGUF_WRITER_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/map.h"
#include "gguf/reader.h"

struct gguf_out;                    /* one tensor's place in the file, while its source writes it */

/* A tensor to be written. Its bytes come from `data`, or from `write`, which must put exactly the
 * bytes that type and dimensions say, in pieces of any size. */
struct gguf_source {
    const char *name;               /* copied */
    uint64_t    dim[4];             /* fastest first; the first n_dims count */
    int         n_dims;
    uint32_t    type;               /* gguf id */
    const void *data;               /* borrowed until gguf_write returns */
    luce_status (*write)(void *user, struct gguf_out *out, luce_error *err);
    void       *user;
};

struct gguf_writer {                /* zero-initialise; gguf_writer_drop */
    struct buf keys, infos;         /* in the form of the file */
    struct arena arena;             /* names */
    struct map names[2];            /* of keys, of tensors */
    struct gguf_source *sources;
    uint64_t n_keys, n_tensors, data_bytes;
    uint32_t alignment;             /* 0 until a key or a tensor needs it: 32 */
    luce_error first;
};

/* Keys. `value` points to a C value of that type (bool: a uint8_t, 0 or 1), `values` to `count` of
 * them; all are copied. LUCE_E_ARG at gguf_write: an empty, too long or repeated name, a wrong
 * type.
 * The key general.alignment (u32) sets the alignment and must come before the first tensor. */
void gguf_add(struct gguf_writer *w, const char *key, enum gguf_type type, const void *value);
void gguf_add_array(struct gguf_writer *w, const char *key, enum gguf_type element,
                    const void *values, uint64_t count);
void gguf_add_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_add_f32(struct gguf_writer *w, const char *key, float value);
void gguf_add_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_add_text(struct gguf_writer *w, const char *key, struct str value);
void gguf_add_texts(struct gguf_writer *w, const char *key, const struct str *values,
                    uint64_t count);
/* As a reader found it, any type. */
void gguf_add_key(struct gguf_writer *w, const struct gguf_key *k);

/* Declares the next tensor of the file. */
void gguf_add_tensor(struct gguf_writer *w, const struct gguf_source *t);

/* Bytes of a tensor; 0 when type or dimensions are not allowed. */
uint64_t gguf_source_bytes(const struct gguf_source *t);

/* Writes the file. LUCE_E_ARG (a wrong declaration, a source that put too few or too many bytes),
 * LUCE_E_IO, LUCE_E_NOMEM, or what a source returned; then no file is left behind, and an old one
 * of this name is untouched. */
luce_status gguf_write(struct gguf_writer *w, const char *path, luce_error *err);
/* Appends the keys as a whole file without tensors (models whose weights are made, not read). */
luce_status gguf_write_header(const struct gguf_writer *w, struct buf *out, luce_error *err);
/* For sources: the next bytes of the tensor. */
luce_status gguf_put(struct gguf_out *out, const void *data, size_t bytes, luce_error *err);
/* Fine on a zeroed writer. */
void gguf_writer_drop(struct gguf_writer *w);

#endif
