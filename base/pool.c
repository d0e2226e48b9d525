/* base/pool.c - see pool.h.
 * A round: the caller writes the job and opens the `start` gate; every thread runs it and arrives;
 * the last to arrive opens the `phase` gate, on which the caller (or, at a barrier, everyone)
 * waits. Threads arrive in groups of 8, and the last of a group arrives at the root: with a hundred
 * threads on one counter its cache line would be the slowest part. A gate is a number that changes
 * when it opens. What a gate orders goes by release and acquire; futex only lets threads sleep. */
#define _GNU_SOURCE
#include "base/pool.h"

#include <linux/futex.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

enum {
    LINE = 128,                 /* two cache lines: neighbours are fetched in pairs */
    GROUP = 8,
    SPIN_NS = 50000,
    SPIN_NS_CROWDED = 500,      /* more threads than cores: whoever is awaited needs this core */
    PAUSES = 32,                /* between two looks at the clock */
};

struct gate {
    _Alignas(LINE) atomic_uint value;
    _Alignas(LINE) atomic_int sleepers;
};

struct counter {
    _Alignas(LINE) atomic_int arrived;
};

struct worker {
    struct thread thread;
    struct pool *pool;
    int index;
};

struct pool {
    struct gate start, phase;
    struct counter root;
    struct counter group[POOL_THREADS_MAX / GROUP];
    _Alignas(LINE) pool_fn fn;  /* the job; NULL asks the threads to end */
    void *arg;
    int n_threads, n_groups;
    uint64_t spin_ns;
    struct worker *workers;     /* owned; n_threads of them, the first is unused */
};

static inline void relax(void)
{
#if defined(__x86_64__)         /* a hint to the core, not a choice of kernels */
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static void gate_open(struct gate *g)
{
    /* Sequentially consistent here and in gate_wait: either the opener sees the sleeper, or the
     * sleeper sees the new value. */
    atomic_fetch_add(&g->value, 1);
    if (atomic_load(&g->sleepers))
        syscall(SYS_futex, &g->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Returns when the value is no longer `old`. */
static void gate_wait(struct gate *g, unsigned old, uint64_t spin_ns)
{
    uint64_t until = 0;
    do {
        for (int i = 0; i < PAUSES; i++) {
            if (atomic_load_explicit(&g->value, memory_order_acquire) != old) return;
            relax();
        }
        uint64_t now = clock_ns();
        if (!until) until = now + spin_ns;
        else if (now >= until) break;
    } while (true);
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->value) == old)
        syscall(SYS_futex, &g->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
}

/* True for the last of `n`; the counter is then ready for the next round. */
static bool count(struct counter *c, int n)
{
    if (atomic_fetch_add_explicit(&c->arrived, 1, memory_order_acq_rel) + 1 < n) return false;
    atomic_store_explicit(&c->arrived, 0, memory_order_relaxed);
    return true;
}

static void arrive(struct pool *p, int thread)
{
    int g = thread / GROUP, rest = p->n_threads - g * GROUP;
    if (count(&p->group[g], rest < GROUP ? rest : GROUP) && count(&p->root, p->n_groups))
        gate_open(&p->phase);
}

void pool_barrier(struct pool *p, int thread)
{
    if (p->n_threads == 1) return;
    /* It cannot change before this thread has arrived. */
    unsigned phase = atomic_load_explicit(&p->phase.value, memory_order_relaxed);
    arrive(p, thread);
    gate_wait(&p->phase, phase, p->spin_ns);
}

static void work(void *at)
{
    struct worker *w = at;
    struct pool *p = w->pool;
    for (unsigned seen = 0;; seen++) {
        gate_wait(&p->start, seen, p->spin_ns);
        if (!p->fn) return;
        p->fn(p->arg, w->index, p->n_threads);
        arrive(p, w->index);
    }
}

void pool_run(struct pool *p, pool_fn fn, void *arg)
{
    if (p->n_threads == 1) {
        fn(arg, 0, 1);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    gate_open(&p->start);
    fn(arg, 0, p->n_threads);
    pool_barrier(p, 0);
}

luce_status pool_new(struct pool **out, int n_threads, luce_error *err)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > POOL_THREADS_MAX)
        return fail(err, LUCE_E_ARG, "%d threads: expected 1 to %d", n_threads, POOL_THREADS_MAX);
    struct pool *p = mem_aligned(sizeof *p, LINE);
    if (!p) return fail(err, LUCE_E_NOMEM, "out of memory for a pool of %d threads", n_threads);
    *p = (struct pool){ .n_threads = n_threads, .n_groups = (n_threads + GROUP - 1) / GROUP };
    p->spin_ns = n_threads > cores_count(false) ? SPIN_NS_CROWDED : SPIN_NS;
    p->workers = mem_array((size_t)n_threads, sizeof *p->workers);
    if (!p->workers) {
        mem_free(p);
        return fail(err, LUCE_E_NOMEM, "out of memory for %d threads", n_threads);
    }
    luce_status st = LUCE_OK;
    for (int i = 1; i < n_threads && !st; i++) {
        struct worker *w = &p->workers[i];
        w->pool = p;
        w->index = i;
        st = thread_start(&w->thread, "luce-pool", work, w, err);
    }
    if (st) {
        pool_free(p);
        return st;
    }
    *out = p;
    return LUCE_OK;
}

void pool_free(struct pool *p)
{
    if (!p) return;
    p->fn = NULL;
    gate_open(&p->start);
    for (int i = 1; i < p->n_threads; i++) thread_join(&p->workers[i].thread);
    mem_free(p->workers);
    mem_free(p);
}

int pool_threads(const struct pool *p)
{
    return p->n_threads;
}

bool pool_pin(struct pool *p)
{
    struct cores c;
    cores_find(&c);
    if (p->n_threads > c.n || p->n_threads > cores_count(false)) return false;
    bool all = cores_pin(pthread_self(), c.id[0]);
    for (int i = 1; i < p->n_threads; i++) all &= cores_pin(p->workers[i].thread.id, c.id[i]);
    return all;
}
