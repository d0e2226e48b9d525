/* base/thread.h - threads and the cores they may run on. */
#ifndef LUCE_BASE_THREAD_H
#define LUCE_BASE_THREAD_H

#include <pthread.h>

#include "base/error.h"

/* A running thread. Embedded by its owner, at a fixed address from thread_start to thread_join. */
struct thread {
    pthread_t id;
    bool started;
    void (*run)(void *arg);
    void *arg;
    char name[16];              /* cut to 15 bytes; shown by ps and debuggers */
};

/* Starts run(arg). All signals are blocked in the new thread, so that they reach the main one.
 * LUCE_E_NOMEM when the system gives no thread. */
luce_status thread_start(struct thread *t, const char *name, void (*run)(void *arg), void *arg,
                         luce_error *err);
/* Waits for the end; fine on a zeroed or joined thread. */
void thread_join(struct thread *t);

/* The logical cores that this process may use. First one hardware thread of each physical core,
 * then the second ones: the first n are the best places for n threads. */
enum { CORES_MAX = 1024 };
struct cores {
    int n, n_physical;
    int id[CORES_MAX];
};
/* Reads the affinity mask and the topology. At least one core. */
void cores_find(struct cores *out);
/* How many threads run at once here: the cores above, less if a CPU quota (cgroup) allows less.
 * `physical`: only one thread per physical core. At least 1. */
int cores_count(bool physical);
/* Keeps the thread on one core; false when the system refuses. */
bool cores_pin(pthread_t thread, int core);

#endif
