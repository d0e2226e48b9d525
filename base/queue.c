/* base/queue.c - see queue.h. One lock guards all fields; waiting is on two conditions. */
#define _GNU_SOURCE
#include "base/queue.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/mem.h"

struct queue {
    pthread_mutex_t lock;           /* guards everything below */
    pthread_cond_t not_empty, not_full;
    int capacity, first, n;
    bool closed;
    void *items[];                  /* ring: n of them from `first` on */
};

luce_status queue_new(struct queue **out, int capacity, luce_error *err)
{
    *out = NULL;
    if (capacity < 1) return fail(err, LUCE_E_ARG, "queue of %d: expected 1 or more", capacity);
    struct queue *q = mem_zero(sizeof *q + (size_t)capacity * sizeof q->items[0]);
    if (!q) return fail(err, LUCE_E_NOMEM, "out of memory for a queue of %d", capacity);
    q->capacity = capacity;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->not_empty, &monotonic);
    pthread_cond_init(&q->not_full, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = q;
    return LUCE_OK;
}

void queue_free(struct queue *q)
{
    if (!q) return;
    pthread_cond_destroy(&q->not_full);
    pthread_cond_destroy(&q->not_empty);
    pthread_mutex_destroy(&q->lock);
    mem_free(q);
}

static bool push(struct queue *q, void *item, bool wait)
{
    pthread_mutex_lock(&q->lock);
    while (wait && q->n == q->capacity && !q->closed) pthread_cond_wait(&q->not_full, &q->lock);
    bool can = !q->closed && q->n < q->capacity;
    if (can) {
        q->items[(q->first + q->n++) % q->capacity] = item;
        pthread_cond_signal(&q->not_empty);
    }
    pthread_mutex_unlock(&q->lock);
    return can;
}

bool queue_push(struct queue *q, void *item)
{
    return push(q, item, true);
}

bool queue_try_push(struct queue *q, void *item)
{
    return push(q, item, false);
}

/* The lock is held. */
static void *take(struct queue *q)
{
    if (q->n == 0) return NULL;
    void *item = q->items[q->first];
    q->first = (q->first + 1) % q->capacity;
    q->n--;
    pthread_cond_signal(&q->not_full);
    return item;
}

void *queue_pop(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (q->n == 0 && !q->closed) pthread_cond_wait(&q->not_empty, &q->lock);
    void *item = take(q);
    pthread_mutex_unlock(&q->lock);
    return item;
}

void *queue_pop_within(struct queue *q, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    double at = (double)until.tv_nsec * 1e-9 + (seconds > 0 ? seconds : 0);
    until.tv_sec += (time_t)at;
    until.tv_nsec = (long)((at - (double)(time_t)at) * 1e9);
    pthread_mutex_lock(&q->lock);
    while (q->n == 0 && !q->closed)
        if (pthread_cond_timedwait(&q->not_empty, &q->lock, &until) == ETIMEDOUT) break;
    void *item = take(q);
    pthread_mutex_unlock(&q->lock);
    return item;
}

void queue_close(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->not_empty);
    pthread_cond_broadcast(&q->not_full);
    pthread_mutex_unlock(&q->lock);
}

int queue_length(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    int n = q->n;
    pthread_mutex_unlock(&q->lock);
    return n;
}
