/* base/file.h - files: mapped for reading, read whole, written atomically. */
#ifndef LUCE_BASE_FILE_H
#define LUCE_BASE_FILE_H

#include "base/buf.h"
#include "base/error.h"

/* A read-only mapping of a regular file. data is NULL for an empty file. The descriptor stays open,
 * so that the size can be checked again and bytes can be read with pread. */
struct file_map {
    const uint8_t *data;
    uint64_t size;
    int fd;
};

/* LUCE_E_IO with path and reason: absent, a directory, not readable, changed while opening. */
luce_status file_map_open(struct file_map *m, const char *path, luce_error *err);
/* Fine on a zeroed or closed map. */
void file_map_close(struct file_map *m);
/* From here on a mapped file that shrinks while it is read (or whose disk fails) ends the process with one
 * line that names it and exit code 1, where SIGBUS would end it without a word. For programs, not for
 * libraries: it takes the signal. */
void file_map_watch(void);
/* The bytes will not be needed again: lets the system drop their pages from this process. */
void file_map_release(const struct file_map *m, uint64_t at, uint64_t bytes);

/* Appends the whole file to *out; at most `limit` bytes (LUCE_E_FORMAT beyond). */
luce_status file_read(struct buf *out, const char *path, uint64_t limit, luce_error *err);

/* A file that appears under its name complete or not at all: written under a temporary name in the
 * same directory, flushed, renamed. */
struct file_writer {
    char *path, *temp;
    int fd;
    uint64_t size;          /* bytes written so far */
};
/* Starts a file that will be `path`. LUCE_E_IO, LUCE_E_NOMEM. */
luce_status file_create(struct file_writer *w, const char *path, luce_error *err);
luce_status file_append(struct file_writer *w, const void *data, size_t bytes, luce_error *err);
/* Flushes and renames. On failure the temporary file is gone and the old file, if any, untouched. */
luce_status file_commit(struct file_writer *w, luce_error *err);
/* Gives up; fine after a commit or on a zeroed writer. */
void file_abandon(struct file_writer *w);

#endif
