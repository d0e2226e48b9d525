/* base/pool.h - a team of threads that runs one function on all of them, again and again.
 * Made for kernels: a token costs hundreds of rounds, so idle members first spin (some 50 us) and
 * then sleep; where there are more threads than cores they sleep almost at once.
 * Threads: one thread at a time runs a pool; it works as thread 0. The function must not run its own
 * pool again. */
#ifndef LUCE_BASE_POOL_H
#define LUCE_BASE_POOL_H

#include "base/error.h"

enum { POOL_THREADS_MAX = 1024 };
struct pool;
typedef void (*pool_fn)(void *arg, int thread, int n_threads);

/* A pool of n_threads, the caller of pool_run included: a pool of 1 starts no thread.
 * LUCE_E_ARG (not 1 to POOL_THREADS_MAX), LUCE_E_NOMEM (memory or threads). */
luce_status pool_new(struct pool **out, int n_threads, luce_error *err);
/* NULL is fine. Not while the pool runs. */
void pool_free(struct pool *p);
int pool_threads(const struct pool *p);
/* Keeps each thread, the calling one as thread 0, on a core of its own, physical cores first. Does
 * nothing and returns false when there are more threads than cores or the system refuses. */
bool pool_pin(struct pool *p);
/* Calls fn(arg, thread, n_threads) on every thread and returns when all have returned; what they
 * wrote is then visible to the caller. */
void pool_run(struct pool *p, pool_fn fn, void *arg);
/* Inside fn only, and by every thread of the round: no thread leaves before all have come, and what
 * they wrote before is visible to all after. */
void pool_barrier(struct pool *p, int thread);

/* The share of thread t of n items: [*from, *to), contiguous, sizes differ by at most one. */
static inline void pool_share(int64_t n, int thread, int n_threads, int64_t *from, int64_t *to)
{
    int64_t each = n / n_threads, more = n % n_threads;
    *from = each * thread + (thread < more ? thread : more);
    *to = *from + each + (thread < more);
}

#endif
