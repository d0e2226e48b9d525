/* base/file.c - see file.h. */
#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/watched.h"

static luce_status io_error(luce_error *err, const char *path, const char *doing)
{
    return fail(err, LUCE_E_IO, "%s: %s: %s", path, doing, strerror(errno));
}

luce_status file_map_open(struct file_map *m, const char *path, luce_error *err)
{
    *m = (struct file_map){ .fd = -1 };
    m->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);     /* does not wait for a pipe's writer */
    if (m->fd < 0) return io_error(err, path, "cannot open");
    struct stat st;
    if (fstat(m->fd, &st)) {
        luce_status code = io_error(err, path, "cannot read its size");
        file_map_close(m);
        return code;
    }
    if (!S_ISREG(st.st_mode)) {
        file_map_close(m);
        return fail(err, LUCE_E_IO, "%s: not a regular file%s; give a file", path,
                    S_ISDIR(st.st_mode) ? " but a directory" : "");
    }
    m->size = (uint64_t)st.st_size;
    if (m->size == 0) return LUCE_OK;
    void *data = mmap(NULL, m->size, PROT_READ, MAP_SHARED, m->fd, 0);
    if (data == MAP_FAILED) {
        luce_status code = io_error(err, path, "cannot map");
        file_map_close(m);
        return code;
    }
    m->data = data;
    watched_add(m);
    /* Touching pages beyond a file that shrank is a SIGBUS; a file still being written grows. */
    if (fstat(m->fd, &st) == 0 && (uint64_t)st.st_size == m->size) return LUCE_OK;
    file_map_close(m);
    return fail(err, LUCE_E_IO, "%s: changed while it was opened. Is it still being written?", path);
}

void file_map_close(struct file_map *m)
{
    if (m->data) watched_remove(m);
    if (m->data) munmap((void *)m->data, m->size);
    if (m->fd > 0) close(m->fd);
    *m = (struct file_map){ .fd = -1 };
}

void file_map_release(const struct file_map *m, uint64_t at, uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t from = (at + page - 1) / page * page, to = (at + bytes) / page * page;
    if (m->data && to > from && to <= m->size + page)
        madvise((void *)(m->data + from), to - from, MADV_DONTNEED);
}

luce_status file_read(struct buf *out, const char *path, uint64_t limit, luce_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return io_error(err, path, "cannot open");
    luce_status code = LUCE_OK;
    uint64_t total = 0;
    for (;;) {
        char *at = buf_reserve(out, 65536);
        if (!at) {
            code = fail(err, LUCE_E_NOMEM, "%s: out of memory after %llu bytes", path,
                        (unsigned long long)total);
            break;
        }
        ssize_t n = read(fd, at, 65536);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) code = io_error(err, path, "cannot read");
        if (n <= 0) break;
        out->len += (size_t)n;
        out->data[out->len] = '\0';
        total += (uint64_t)n;
        if (total > limit) {
            code = fail(err, LUCE_E_FORMAT, "%s: longer than the %llu bytes allowed here", path,
                        (unsigned long long)limit);
            break;
        }
    }
    close(fd);
    return code;
}

luce_status file_create(struct file_writer *w, const char *path, luce_error *err)
{
    *w = (struct file_writer){ .fd = -1 };
    size_t len = strlen(path);
    w->path = mem_text(path, len);
    w->temp = mem_alloc(len + 32);
    if (!w->path || !w->temp) {
        file_abandon(w);
        return fail(err, LUCE_E_NOMEM, "%s: out of memory", path);
    }
    snprintf(w->temp, len + 32, "%s.%ld.part", path, (long)getpid());
    w->fd = open(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->fd < 0 && errno == EEXIST && unlink(w->temp) == 0)      /* left by a dead process */
        w->fd = open(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->fd >= 0) return LUCE_OK;
    luce_status code = io_error(err, path, "cannot create");
    mem_free(w->temp);
    w->temp = NULL;
    file_abandon(w);
    return code;
}

luce_status file_append(struct file_writer *w, const void *data, size_t bytes, luce_error *err)
{
    const char *at = data;
    while (bytes) {
        ssize_t n = write(w->fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            luce_status code = fail(err, LUCE_E_IO, "%s: cannot write: %s%s. Nothing was left behind.",
                                    w->path, strerror(errno),
                                    errno == ENOSPC ? " (free some space and try again)" : "");
            file_abandon(w);
            return code;
        }
        at += n;
        bytes -= (size_t)n;
        w->size += (uint64_t)n;
    }
    return LUCE_OK;
}

luce_status file_commit(struct file_writer *w, luce_error *err)
{
    luce_status code = LUCE_OK;
    if (fsync(w->fd)) code = io_error(err, w->path, "cannot flush");
    if (close(w->fd) && !code) code = io_error(err, w->path, "cannot close");
    w->fd = -1;
    if (!code && rename(w->temp, w->path)) code = io_error(err, w->path, "cannot rename into place");
    if (!code) {
        mem_free(w->temp);
        w->temp = NULL;
    }
    file_abandon(w);
    return code;
}

void file_abandon(struct file_writer *w)
{
    if (w->fd > 0) close(w->fd);
    if (w->temp) unlink(w->temp);
    mem_free(w->temp);
    mem_free(w->path);
    *w = (struct file_writer){ .fd = -1 };
}
