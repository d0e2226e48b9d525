/* engine/engine.c - the engine's thread: takes submissions, runs steps, hands results back; see luce.h.
 * The lock guards the inbox and the counters. Model, scheduler and cache belong to the thread alone; what
 * submit reads of the model (vocabulary, context) does not change. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/mem.h"
#include "base/thread.h"
#include "engine/inside.h"

/* Requests that were submitted together: they count as one in the queue. */
struct group {
    int n_left;                     /* not yet done; the engine's lock */
};

struct luce_ticket {
    luce_request asked;
    struct request request;
    void (*on_done)(void *user, luce_result *result);
    struct group *group;            /* freed with its last request */
    struct luce_ticket *next;
    atomic_bool cancel;
    atomic_int holders;             /* the caller, the engine */
};

struct list {                       /* first in, first out */
    struct luce_ticket *first, **end;
};

struct luce_engine {
    luce_model *model;
    struct thread thread;
    pthread_mutex_t lock;
    pthread_cond_t  wake;
    struct list inbox;              /* submitted, not seen by the thread */
    struct list waiting;            /* the thread's: without a sequence */
    struct luce_ticket *running[STEP_SEQS];
    int  n_running;
    int  n_groups;
    bool closing;
    int  gather_ms;
    luce_error lost;                /* code set: the device failed */
    luce_engine_stats stats;
};

static void list_add(struct list *l, struct luce_ticket *t)
{
    t->next = NULL;
    if (!l->first) l->end = &l->first;
    *l->end = t;
    l->end = &t->next;
}

static struct luce_ticket *list_take(struct list *l)
{
    struct luce_ticket *t = l->first;
    if (t) l->first = t->next;
    return t;
}

void luce_ticket_free(luce_ticket *t)
{
    if (t && atomic_fetch_sub(&t->holders, 1) == 1) mem_free(t);
}

void luce_ticket_cancel(luce_ticket *t)
{
    atomic_store_explicit(&t->cancel, true, memory_order_relaxed);
}

/* The lock is held. */
static void count_cache(luce_engine *e)
{
    struct cache *cache = runner_cache(e->model->runner);
    struct cache_counts n = cache_count(cache);
    e->stats.pages = cache_pages(cache, 0);
    e->stats.free_pages = cache_free_pages(cache, 0);
    e->stats.kept_pages = n.pages;
    e->stats.kept_states = n.states;
    e->stats.evicted = n.evicted;
}

/* Tells the outcome, counts it, lets go of the ticket. */
static void finish(luce_engine *e, struct luce_ticket *t)
{
    luce_result result;
    seq_close(t->request.seq);
    t->request.seq = NULL;
    request_result(&t->request, &result);
    pthread_mutex_lock(&e->lock);
    count_cache(e);
    e->stats.generated_tokens += result.n_tokens;
    if (result.n_tokens || t->asked.prompt_only) e->stats.prompt_tokens += result.n_prompt;
    e->stats.drafted_tokens += result.speculation.n_drafted;
    e->stats.accepted_tokens += result.speculation.n_accepted;
    e->stats.reused_tokens += result.n_reused;
    e->stats.prefix_hits += result.n_reused > 0;
    e->stats.prompt_rows = e->model->scheduler.prompt_rows;
    e->stats.failed += result.status != LUCE_OK;
    e->stats.cancelled += result.finish == LUCE_FINISH_CANCELLED;
    e->stats.finished += result.status == LUCE_OK && result.finish != LUCE_FINISH_CANCELLED;
    if (--t->group->n_left == 0) {
        e->n_groups--;
        mem_free(t->group);
    }
    pthread_mutex_unlock(&e->lock);
    t->on_done(t->asked.user, &result);
    luce_result_drop(&result);
    luce_ticket_free(t);
}

/* Gives sequences to those that wait, oldest first; drops those that were cancelled. */
static void admit(luce_engine *e)
{
    struct list kept = { 0 };
    struct cache *cache = runner_cache(e->model->runner);
    for (struct luce_ticket *t; (t = list_take(&e->waiting));) {
        luce_error err = { 0 };
        if (request_cancelled(&t->request)) {
            request_finish(&t->request, LUCE_FINISH_CANCELLED);
            finish(e, t);
        } else if (e->lost.code) {
            request_fail(&t->request, e->lost.code, &e->lost);
            finish(e, t);
        } else if (kept.first || cache_free_slots(cache) == 0) {
            list_add(&kept, t);
        } else {
            struct seq *seq;
            luce_status st = seq_open(&seq, cache, &err);
            if (st) {
                request_fail(&t->request, st, &err);
                finish(e, t);
            } else {
                scheduler_add(&e->model->scheduler, &t->request, seq);
                e->running[e->n_running++] = t;
            }
        }
    }
    e->waiting = kept;
    if (kept.first)
        for (e->waiting.end = &e->waiting.first; *e->waiting.end;) e->waiting.end = &(*e->waiting.end)->next;
}

static void retire(luce_engine *e)
{
    int kept = 0;
    for (int i = 0; i < e->n_running; i++) {
        struct luce_ticket *t = e->running[i];
        if (t->request.state == REQUEST_DONE) finish(e, t);
        else e->running[kept++] = t;
    }
    e->n_running = kept;
}

/* The first request has come to an idle engine: waits for others, until all sequences have one. The lock
 * is held. */
static void gather(luce_engine *e)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += e->gather_ms % 1000 * 1000000L;
    end.tv_sec += e->gather_ms / 1000 + end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    for (bool late = false; !late && !e->closing;) {
        int n = 0;
        for (struct luce_ticket *t = e->inbox.first; t; t = t->next) n++;
        if (n >= e->stats.sequences) return;
        late = pthread_cond_timedwait(&e->wake, &e->lock, &end) == ETIMEDOUT;
    }
}

/* Moves the inbox over; waits while there is nothing to do. False: the engine closes and all is done. */
static bool take_inbox(luce_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->stats.steps = e->model->scheduler.steps;
    count_cache(e);
    while (!e->inbox.first && !e->waiting.first && e->n_running == 0 && !e->closing)
        pthread_cond_wait(&e->wake, &e->lock);
    if (e->gather_ms > 0 && !e->waiting.first && e->n_running == 0) gather(e);
    for (struct luce_ticket *t; (t = list_take(&e->inbox));) list_add(&e->waiting, t);
    bool closing = e->closing;
    int waiting = 0;
    for (struct luce_ticket *t = e->waiting.first; t; t = t->next) {
        if (closing) luce_ticket_cancel(t);
        waiting++;
    }
    for (int i = 0; closing && i < e->n_running; i++) luce_ticket_cancel(e->running[i]);
    e->stats.running = e->n_running;
    e->stats.waiting = waiting;
    pthread_mutex_unlock(&e->lock);
    return !closing || waiting || e->n_running;
}

static void run(void *arg)
{
    luce_engine *e = arg;
    while (take_inbox(e)) {
        admit(e);
        luce_error err = { 0 };
        luce_status st = scheduler_step(&e->model->scheduler, &err);
        if (st == LUCE_E_DEVICE) {
            pthread_mutex_lock(&e->lock);
            e->lost = err;
            e->stats.lost = true;
            pthread_mutex_unlock(&e->lock);
        }
        retire(e);
    }
}

luce_status luce_engine_open(luce_engine **out, luce_model *m, const luce_engine_params *params, luce_error *err)
{
    *out = NULL;
    luce_engine *e = mem_zero(sizeof *e);
    if (!e) {
        luce_model_close(m);
        return fail(err, LUCE_E_NOMEM, "out of memory for the engine");
    }
    e->model = m;
    e->stats.sequences = cache_slots(runner_cache(m->runner));
    e->stats.queue = params->queue;
    e->gather_ms = params->gather_ms;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    luce_status st = thread_start(&e->thread, "luce-engine", run, e, err);
    if (st) luce_engine_close(e);
    else *out = e;
    return st;
}

void luce_engine_stop(luce_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->closing = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    thread_join(&e->thread);
}

void luce_engine_close(luce_engine *e)
{
    if (!e) return;
    luce_engine_stop(e);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->wake);
    luce_model_close(e->model);
    mem_free(e);
}

const luce_model *luce_engine_model(const luce_engine *e)
{
    return e->model;
}

/* A ticket for the request, checked. */
static luce_status make_ticket(luce_engine *e, const luce_request *asked, struct luce_ticket **out, luce_error *err)
{
    struct luce_ticket *t = *out = mem_zero(sizeof *t);
    if (!t) return fail(err, LUCE_E_NOMEM, "out of memory for the request");
    struct request_env env = request_env_of(e->model);
    t->asked = *asked;
    atomic_init(&t->holders, 2);
    atomic_init(&t->cancel, false);
    luce_status st = request_init(&t->request, &t->asked, &env, err);
    t->request.cancel = &t->cancel;
    return st;
}

static luce_status enqueue(luce_engine *e, struct luce_ticket **tickets, int n, struct group *group,
                           luce_error *err)
{
    luce_status st = LUCE_OK;
    pthread_mutex_lock(&e->lock);
    if (e->closing) st = fail(err, LUCE_E_CANCELLED, "the engine is shutting down");
    else if (e->lost.code) st = fail(err, e->lost.code, "%s", e->lost.text);
    else if (e->n_groups >= e->stats.sequences + e->stats.queue)
        st = fail(err, LUCE_E_BUSY, "%d requests run or wait, which is the limit; try again later", e->n_groups);
    for (int i = 0; !st && i < n; i++) {
        tickets[i]->group = group;
        list_add(&e->inbox, tickets[i]);
    }
    if (!st) {
        e->n_groups++;
        pthread_cond_signal(&e->wake);
    }
    pthread_mutex_unlock(&e->lock);
    return st;
}

luce_status luce_engine_submit(luce_engine *e, const luce_request *requests, int n,
                               void (*on_done)(void *user, luce_result *result), luce_ticket **tickets,
                               luce_error *err)
{
    luce_status st = LUCE_OK;
    for (int i = 0; i < n; i++) tickets[i] = NULL;
    struct group *group = mem_zero(sizeof *group);
    if (!group) return fail(err, LUCE_E_NOMEM, "out of memory for the request");
    group->n_left = n;
    for (int i = 0; i < n && !st; i++) {
        st = make_ticket(e, &requests[i], &tickets[i], err);
        if (tickets[i]) tickets[i]->on_done = on_done;
    }
    if (!st) st = enqueue(e, tickets, n, group, err);
    if (!st) return LUCE_OK;
    for (int i = 0; i < n; i++) {
        if (tickets[i]) request_drop(&tickets[i]->request);
        mem_free(tickets[i]);
        tickets[i] = NULL;
    }
    mem_free(group);
    return st;
}

luce_engine_stats luce_engine_count(luce_engine *e)
{
    pthread_mutex_lock(&e->lock);
    luce_engine_stats s = e->stats;
    for (struct luce_ticket *t = e->inbox.first; t; t = t->next) s.waiting++;
    if (e->n_groups == 0) s.running = s.waiting = 0;
    pthread_mutex_unlock(&e->lock);
    return s;
}
