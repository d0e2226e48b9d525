/* gguf/inside.h - the reader's own structures, shared by its files and nobody else. */
#ifndef LUCE_GGUF_INSIDE_H
#define LUCE_GGUF_INSIDE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/map.h"
#include "gguf/reader.h"

enum {
    GGUF_MAX_ENTRIES = 1 << 20,     /* keys, and tensors, of one file */
    GGUF_MAX_VALUE = 1 << 30,       /* bytes of a string, elements of an array */
    GGUF_MAX_KEY = 65535,           /* bytes of a key's name */
    GGUF_MAX_NAME = 127,            /* bytes of a tensor's name; 63 in mainline, 127 in forks */
    GGUF_MAX_ALIGNMENT = 65536,
    GGUF_MAX_PARTS = 1000,
    GGUF_DEFAULT_ALIGNMENT = 32,
    GGUF_HEADER_BYTES = 24,
};

/* One file of a model; a complete GGUF by itself. */
struct part {
    const char *path;               /* in the reader's arena; for messages */
    struct file_map map;            /* zeroed when the bytes belong to the caller */
    const uint8_t *data;
    uint64_t size;
    uint32_t version;
    uint32_t alignment;
    uint64_t end;                   /* where the last tensor's bytes end, before padding */
    struct gguf_key *keys;          /* owned */
    size_t n_keys;
    struct map key_index;           /* name to index in keys */
};

struct gguf {
    char *path;                     /* as given to gguf_open; owned */
    struct buf made;                /* a header that no file has: parts[0] of a safetensors checkpoint */
    struct arena arena;             /* names of tensors and parts */
    struct part *parts;             /* owned; the model's keys are those of parts[0] */
    int n_parts;
    struct gguf_tensor *tensors;    /* of all parts, in file order; owned */
    size_t n_tensors;
    struct map tensor_index;        /* name to index in tensors */
};

/* Reads the header of p (path, data and size are set): fills in the rest of p and appends its
 * tensors to g. On failure what was added stays, for gguf_close. */
luce_status part_parse(struct gguf *g, struct part *p, luce_error *err);
void part_close(struct part *p);
/* keys.c: gguf_key and gguf_u32 for the keys of one part. */
const struct gguf_key *part_key(const struct part *p, const char *name);
luce_status part_u32(const struct part *p, const char *key, uint32_t absent, uint32_t *out,
                     luce_error *err);

/* split.c: after g->parts[0] was parsed, opens all other parts, whichever part was given. */
luce_status split_open(struct gguf *g, luce_error *err);
/* Refuses a file that goes on with the next file's header behind its own data. */
luce_status split_refuse_joined(const struct part *p, luce_error *err);

/* reader.c: a reader without parts, or NULL; a zeroed part at the end of g->parts, or NULL. */
struct gguf *reader_new(const char *path);
struct part *reader_add_part(struct gguf *g, const char *path);
/* Maps and parses one more file. */
luce_status reader_add_file(struct gguf *g, const char *path, luce_error *err);
/* Forgets everything but the path. */
void reader_clear(struct gguf *g);

#endif
