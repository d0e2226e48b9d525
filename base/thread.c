/* base/thread.c - see thread.h. */
#define _GNU_SOURCE
#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static void *enter(void *at)
{
    struct thread *t = at;
    pthread_setname_np(pthread_self(), t->name);
    t->run(t->arg);
    return NULL;
}

luce_status thread_start(struct thread *t, const char *name, void (*run)(void *arg), void *arg,
                         luce_error *err)
{
    *t = (struct thread){ .run = run, .arg = arg };
    snprintf(t->name, sizeof t->name, "%s", name);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int problem = pthread_create(&t->id, NULL, enter, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (problem)
        return fail(err, LUCE_E_NOMEM,
                    "thread '%s' could not be started: %s. Use fewer threads, or raise the limit of "
                    "processes (ulimit -u).", name, strerror(problem));
    t->started = true;
    return LUCE_OK;
}

void thread_join(struct thread *t)
{
    if (!t->started) return;
    pthread_join(t->id, NULL);
    t->started = false;
}

static int topology(int cpu, const char *what)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, what);
    FILE *file = fopen(path, "re");
    int value = -1;
    if (!file) return -1;
    if (fscanf(file, "%d", &value) != 1) value = -1;
    fclose(file);
    return value;
}

void cores_find(struct cores *out)
{
    cpu_set_t mask;
    int cpu[CORES_MAX], package[CORES_MAX], core[CORES_MAX], rank[CORES_MAX], n = 0, top = 0;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof mask, &mask)) CPU_SET(0, &mask);
    for (int c = 0; c < CPU_SETSIZE && n < CORES_MAX; c++)
        if (CPU_ISSET(c, &mask)) cpu[n++] = c;
    for (int i = 0; i < n; i++) {
        package[i] = topology(cpu[i], "physical_package_id");
        core[i] = topology(cpu[i], "core_id");
        rank[i] = 0;
        for (int k = 0; k < i; k++)
            if (core[i] >= 0 && core[k] == core[i] && package[k] == package[i]) rank[i]++;
        if (rank[i] > top) top = rank[i];
    }
    *out = (struct cores){ 0 };
    for (int r = 0; r <= top; r++)
        for (int i = 0; i < n; i++)
            if (rank[i] == r) {
                out->id[out->n++] = cpu[i];
                if (r == 0) out->n_physical++;
            }
}

/* Cores that the control group of this process may use (cgroup v2), rounded up; 0: no limit. */
static int quota(void)
{
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!file) return 0;
    long limit = 0, period = 0;
    int n = fscanf(file, "%ld %ld", &limit, &period);        /* "max 100000" when unlimited */
    fclose(file);
    return n == 2 && limit > 0 && period > 0 ? (int)((limit + period - 1) / period) : 0;
}

int cores_count(bool physical)
{
    struct cores c;
    cores_find(&c);
    int n = physical ? c.n_physical : c.n, limit = quota();
    if (limit && limit < n) n = limit;
    return n < 1 ? 1 : n;
}

bool cores_pin(pthread_t thread, int core)
{
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (core < 0 || core >= CPU_SETSIZE) return false;
    CPU_SET(core, &mask);
    return pthread_setaffinity_np(thread, sizeof mask, &mask) == 0;
}
