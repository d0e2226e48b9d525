/* base/watched.h - the mapped files, as the handler of SIGBUS finds them. Threads: any. */
#ifndef LUCE_BASE_WATCHED_H
#define LUCE_BASE_WATCHED_H

#include "base/file.h"

/* Remembers an open map until watched_remove; beyond the first 1024 at once nothing is remembered. */
void watched_add(const struct file_map *m);
void watched_remove(const struct file_map *m);

#endif
