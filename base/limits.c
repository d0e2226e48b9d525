/* base/limits.c - see limits.h. A plan that trusts the machine's memory alone would be killed by the
 * first limit that is lower. */
#define _GNU_SOURCE
#include "base/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The number behind `key` at the start of a line of the file; `otherwise` when there is none. */
static uint64_t number_in(const char *folder, const char *name, const char *key, uint64_t otherwise)
{
    char path[512], line[256];
    uint64_t value = otherwise;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    if (!f) return otherwise;
    size_t n = strlen(key);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, key, n) && sscanf(line + n, "%" SCNu64, &value) == 1) break;
    fclose(f);
    return value;
}

uint64_t memory_left_in_group(const char *folder)
{
    uint64_t most = number_in(folder, "memory.max", "", UINT64_MAX);       /* "max" is no number */
    if (most == UINT64_MAX) return most;
    uint64_t used = number_in(folder, "memory.current", "", 0);
    uint64_t given_back = number_in(folder, "memory.stat", "inactive_file ", 0);
    used = used > given_back ? used - given_back : 0;
    return most > used ? most - used : 0;
}

static uint64_t left_of_address_space(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_AS, &r) || r.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
    uint64_t used = number_in("/proc/self", "statm", "", 0) * (uint64_t)sysconf(_SC_PAGESIZE);
    return r.rlim_cur > used ? r.rlim_cur - used : 0;
}

uint64_t memory_available(void)
{
    uint64_t machine = number_in("/proc", "meminfo", "MemAvailable:", 0) * 1024;
    uint64_t group = memory_left_in_group("/sys/fs/cgroup"), space = left_of_address_space();
    uint64_t least = group < space ? group : space;
    return machine < least ? machine : least;
}
